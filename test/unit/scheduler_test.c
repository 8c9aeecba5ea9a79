// SPDX-License-Identifier: Apache-2.0
// The scheduler with pools and prefix cache, without an engine. A page's slot holds a hash of the text up to its token,
// a state that of the text it has read, so that reading a wrong, stale or foreign page is noticed; the next token is a
// function of that hash, so each answer has to be the one its prompt gets alone.
#include "base/random.h"
#include "container.h"
#include "engine/schedule/scheduler.h"

enum { LENGTH_MAX = 160, CLASSES_MAX = 3, CLIENTS_MAX = 80, TOKENS = 50, STEPS_MAX = 100000 };

static const struct kv_class full = { .page_tokens = KV_PAGE_TOKENS };

// ---- a fake engine ----

struct client {
    struct request request; // first: chunks name it
    bool alive, scored;
    int prompt_count, max_tokens, salt;
    int32_t ids[LENGTH_MAX];     // the prompt and the answer it must get
    uint64_t hashes[LENGTH_MAX]; // of the text up to and including each token
    int next_output;             // position of the row that must come next
    bool was_running, was_ready; // before the step
};

struct simulation {
    uint64_t seed; // of what happens; `name` is where it began
    uint64_t name;
    struct kv_pool pools[CLASSES_MAX];
    struct scheduler scheduler;
    struct client clients[CLIENTS_MAX];
    int client_count;
    int finished, preempted;
};

#define CHECK(simulation, condition)                                                                     \
    do {                                                                                                 \
        if (!(condition))                                                                                \
            fail_msg("seed %llu: %s does not hold", (unsigned long long)(simulation)->name, #condition); \
    } while (0)

static uint64_t extend_hash(uint64_t hash, int32_t id)
{
    hash = (hash ^ (uint64_t)(uint32_t)id) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

// The whole text that the client will have, prompt and answer.
static void foresee(struct client *client)
{
    uint64_t hash = 1;
    for (int i = 0; i < client->prompt_count + client->max_tokens; i++) {
        if (i >= client->prompt_count)
            client->ids[i] = (int32_t)(hash % TOKENS);
        client->hashes[i] = hash = extend_hash(hash, client->ids[i]);
    }
}

static void simulation_open(struct simulation *simulation, uint64_t name, const struct scheduler_options *options,
                            const struct kv_class *classes, const int *pages)
{
    enum { PAGE_BYTES = KV_PAGE_TOKENS * sizeof(uint64_t) };
    struct scheduler_options own = *options;
    *simulation = (struct simulation){ .seed = name, .name = name };
    own.pools = simulation->pools;
    for (int i = 0; i < own.classes; i++)
        kv_pool_open(&simulation->pools[i], memory_new((size_t)pages[i], PAGE_BYTES), classes[i], PAGE_BYTES, pages[i]);
    scheduler_open(&simulation->scheduler, &own);
}

// At the end every page is free.
static void simulation_close(struct simulation *simulation)
{
    int classes = simulation->scheduler.options.classes;
    scheduler_close(&simulation->scheduler);
    for (int i = 0; i < classes; i++) {
        CHECK(simulation, simulation->pools[i].free_count == simulation->pools[i].page_count);
        free(simulation->pools[i].bytes);
        kv_pool_close(&simulation->pools[i]);
    }
}

static struct client *arrive(struct simulation *simulation, const struct client *like,
                             struct nibble_request request_params)
{
    static const char *const salts[] = { "", "tenant" };
    CHECK(simulation, simulation->client_count < CLIENTS_MAX);
    struct client *client = &simulation->clients[simulation->client_count++];
    *client = *like;
    client->alive = true;
    client->scored = request_params.score_prompt;
    client->next_output = request_params.score_prompt ? 0 : client->prompt_count - 1;
    foresee(client);
    request_params.prompt = client->ids;
    request_params.prompt_count = (size_t)client->prompt_count;
    request_params.max_tokens = client->max_tokens;
    request_params.cache_salt = salts[client->salt];
    request_params.cache_salt_len = strlen(salts[client->salt]);
    scheduler_add(&simulation->scheduler, &client->request, &request_params, simulation->scheduler.last_name + 1);
    return client;
}

static void leave(struct simulation *simulation, struct client *client)
{
    client->alive = false;
    scheduler_remove(&simulation->scheduler, &client->request);
}

static uint64_t *slot(struct simulation *simulation, const struct client *client, int class, int position)
{
    struct kv_pool *pool = &simulation->pools[class];
    int32_t page = client->request.sequence.tables[class].pages[position / pool->class.page_tokens];
    CHECK(simulation, page != KV_PAGE_NONE);
    return (uint64_t *)(pool->bytes + (size_t)page * pool->page_bytes)
        + (pool->class.state ? 0 : position % KV_PAGE_TOKENS);
}

// The state of all that came before becomes that of the chunk's last token, in its page.
static void compute_state(struct simulation *simulation, struct client *client, int class, const struct chunk *chunk)
{
    const struct kv_pool *pool = &simulation->pools[class];
    int last = chunk->first + chunk->count - 1, index = last / pool->class.page_tokens;
    const struct kv_page *page = &pool->pages[client->request.sequence.tables[class].pages[index]];
    CHECK(simulation, page->owners == 1 && !page->keyed);
    CHECK(simulation, chunk->first / pool->class.page_tokens == index);
    if (chunk->first)
        CHECK(
            simulation,
            *slot(simulation, client, class, chunk->first - 1) == (client->hashes[chunk->first - 1] ^ (uint64_t)class));
    *slot(simulation, client, class, last) = client->hashes[last] ^ (uint64_t)class;
}

// Writes the chunk's slots, then looks at all that its tokens see.
static void compute(struct simulation *simulation, const struct chunk *chunk)
{
    struct client *client = (struct client *)chunk->request;
    const struct sequence *sequence = &client->request.sequence;
    int end = chunk->first + chunk->count;
    CHECK(simulation, chunk->count > 0 && chunk->first == sequence->cached && end <= sequence->count);
    for (int class = 0; class < sequence->classes; class++) {
        const struct kv_pool *pool = &simulation->pools[class];
        if (pool->class.state) {
            compute_state(simulation, client, class, chunk);
            continue;
        }
        for (int i = chunk->first; i < end; i++) {
            if (!kv_table_has(&pool->class, i / KV_PAGE_TOKENS))
                continue;
            const struct kv_page *page = &pool->pages[sequence->tables[class].pages[i / KV_PAGE_TOKENS]];
            CHECK(simulation, page->owners == 1 && !page->keyed); // what others may read is never written
            *slot(simulation, client, class, i) = client->hashes[i] ^ (uint64_t)class;
        }
        int window = pool->class.window, seen = window && chunk->first >= window ? chunk->first - window + 1 : 0;
        for (int i = seen; i < end; i++)
            if (kv_table_has(&pool->class, i / KV_PAGE_TOKENS))
                CHECK(simulation, *slot(simulation, client, class, i) == (client->hashes[i] ^ (uint64_t)class));
    }
    for (int i = end - chunk->outputs; i < end; i++) // each row comes once, in order
        CHECK(simulation, i == client->next_output++);
}

// The step's tokens are drawn; answers that are complete leave.
static void draw(struct simulation *simulation, const struct chunk *chunk)
{
    struct client *client = (struct client *)chunk->request;
    struct sequence *sequence = &client->request.sequence;
    CHECK(simulation, !memcmp(sequence->ids, client->ids, (size_t)sequence->count * sizeof *client->ids));
    if (sequence->cached < sequence->count)
        return;
    CHECK(simulation, client->next_output == sequence->count);
    int answered = sequence->count - client->prompt_count;
    if (answered < client->max_tokens) {
        scheduler_continue(&simulation->scheduler, &client->request,
                           (int32_t)(client->hashes[sequence->count - 1] % TOKENS));
        answered++;
    }
    if (answered == client->max_tokens) {
        CHECK(simulation, client->request.usage.answer_tokens == client->max_tokens);
        simulation->finished++;
        leave(simulation, client);
    }
}

// ---- what always holds ----

static bool goes_before(const struct simulation *simulation, const struct client *a, const struct client *b)
{
    if (simulation->scheduler.options.by_priority && a->request.priority != b->request.priority)
        return a->request.priority < b->request.priority;
    return a->request.name < b->request.name;
}

// Every page has as many owners as tables hold it, all with the same salt.
static void check_owners(struct simulation *simulation)
{
    for (int class = 0; class < simulation->scheduler.options.classes; class++) {
        struct kv_pool *pool = &simulation->pools[class];
        int owners[1024] = { 0 }, salts[1024];
        CHECK(simulation, pool->page_count <= 1024);
        kv_pool_check(pool);
        for (int i = 0; i < simulation->client_count; i++) {
            struct client *client = &simulation->clients[i];
            const struct kv_table *table = &client->request.sequence.tables[class];
            CHECK(simulation, client->alive || !table->pages);
            CHECK(simulation, !client->alive || client->request.running || table->count == 0);
            for (int j = 0; client->alive && j < table->count; j++) {
                int32_t page = table->pages[j];
                if (page == KV_PAGE_NONE)
                    continue;
                CHECK(simulation, !owners[page] || salts[page] == client->salt);
                owners[page]++;
                salts[page] = client->salt;
            }
        }
        for (int i = 0; i < pool->page_count; i++)
            CHECK(simulation, owners[i] == pool->pages[i].owners);
    }
}

static bool has_chunk(const struct simulation *simulation, const struct client *client)
{
    for (int i = 0; i < simulation->scheduler.chunk_count; i++)
        if (simulation->scheduler.chunks[i].request == &client->request)
            return true;
    return false;
}

// Admitted and preempted requests, by order.
static void check_order(struct simulation *simulation)
{
    bool preempted = false, admitted = false;
    for (int i = 0; i < simulation->client_count; i++) {
        const struct client *a = &simulation->clients[i];
        if (!a->alive)
            continue;
        CHECK(simulation, a->was_ready || !a->request.running);
        preempted |= a->was_running && !a->request.running;
        admitted |= !a->was_running && a->request.running;
        bool first = a->request.running;
        for (int j = 0; j < simulation->client_count; j++) {
            const struct client *b = &simulation->clients[j];
            if (!b->alive || !b->request.running || a == b)
                continue;
            first &= goes_before(simulation, a, b);
            bool passed_over = !a->request.running && !goes_before(simulation, b, a);
            CHECK(simulation, !(passed_over && a->was_running));                  // the last in the order are preempted
            CHECK(simulation, !(passed_over && a->was_ready && !b->was_running)); // nobody passes one who is ready
        }
        CHECK(simulation, !first || has_chunk(simulation, a)); // the first always gets ahead
    }
    CHECK(simulation, !(preempted && admitted));
    simulation->preempted += preempted;
}

static void check_budget(struct simulation *simulation)
{
    const struct scheduler_options *options = &simulation->scheduler.options;
    int tokens = 0, outputs = 0, continuing = 0;
    for (int i = 0; i < simulation->scheduler.chunk_count; i++) {
        const struct chunk *chunk = &simulation->scheduler.chunks[i];
        const struct client *client = (const struct client *)chunk->request;
        tokens += chunk->count;
        outputs += chunk->outputs;
        continuing += client->was_running && chunk->first == client->request.sequence.count - 1;
    }
    int share = options->batch_tokens / SCHEDULER_PROMPT_SHARE;
    share = share > SCHEDULER_PROMPT_TOKENS_MIN ? share : SCHEDULER_PROMPT_TOKENS_MIN;
    CHECK(simulation, tokens <= options->batch_tokens && outputs <= options->outputs);
    CHECK(simulation, !continuing || tokens - continuing <= share);
    CHECK(simulation, simulation->scheduler.running.count <= options->running_max);
}

static void check_after(struct simulation *simulation)
{
    struct nibble_scheduler_stats stats;
    int alive = 0, running = 0;
    check_owners(simulation);
    for (int i = 0; i < simulation->client_count; i++) {
        const struct client *client = &simulation->clients[i];
        const struct sequence *sequence = &client->request.sequence;
        alive += client->alive;
        running += client->alive && client->request.running;
        for (int class = 0; client->alive && class < sequence->classes; class++) {
            const struct kv_table *table = &sequence->tables[class];
            int visible = kv_table_first_visible(&table->pool->class, sequence->cached);
            CHECK(simulation, table->first == visible || table->first == table->count); // the rest was given back
        }
    }
    scheduler_stats(&simulation->scheduler, &stats);
    CHECK(simulation, stats.running == running && stats.waiting == alive - running);
    CHECK(simulation, stats.prefix_hits <= stats.prefix_queries && stats.cache_use >= 0 && stats.cache_use <= 1);
    CHECK(simulation, running || stats.cache_use == 0);
}

// One step. False: nothing was to be read.
static bool step(struct simulation *simulation)
{
    for (int i = 0; i < simulation->client_count; i++) {
        struct client *client = &simulation->clients[i];
        const struct request *leader = client->alive ? client->request.leader : NULL;
        CHECK(simulation, !leader || (!client->request.running && ((const struct client *)leader)->alive));
        client->was_running = client->alive && client->request.running;
        client->was_ready = !leader || leader->prompt_read;
    }
    bool more = scheduler_decide(&simulation->scheduler, (double)simulation->scheduler.last_name + 0.5);
    CHECK(simulation, more == (simulation->scheduler.running.count > 0));
    check_owners(simulation);
    check_order(simulation);
    check_budget(simulation);
    for (int i = 0; i < simulation->scheduler.chunk_count; i++)
        compute(simulation, &simulation->scheduler.chunks[i]);
    scheduler_computed(&simulation->scheduler);
    for (int i = 0; i < simulation->scheduler.chunk_count; i++)
        draw(simulation, &simulation->scheduler.chunks[i]);
    check_after(simulation);
    return more;
}

static int run_to_end(struct simulation *simulation)
{
    int steps = 0;
    while (step(simulation))
        CHECK(simulation, ++steps < STEPS_MAX);
    CHECK(simulation, !simulation->scheduler.waiting.count);
    return steps;
}

// ---- many seeds ----

static void random_prompt(struct simulation *simulation, struct client *client)
{
    uint64_t *seed = &simulation->seed, book = (uint64_t)random_between(seed, 0, 2);
    int total = random_between(seed, 1, LENGTH_MAX);
    client->prompt_count = random_between(seed, 1, total);
    client->max_tokens = total - client->prompt_count;
    client->salt = random_between(seed, 0, 4) == 0;
    int common = random_between(seed, 0, 3) ? random_between(seed, 0, client->prompt_count) : 0;
    for (int i = 0; i < client->prompt_count; i++)
        client->ids[i] = random_between(i < common ? &book : seed, 0, TOKENS - 1);
    if (random_between(seed, 0, 3) == 0)
        client->ids[0] ^= 1; // the same pages later on, in another text
}

static void random_arrival(struct simulation *simulation)
{
    struct client client = { 0 };
    uint64_t *seed = &simulation->seed, last = simulation->scheduler.last_name;
    random_prompt(simulation, &client);
    bool follows = last && random_between(seed, 0, 4) == 0;
    struct nibble_request request_params = { .score_prompt = random_between(seed, 0, 7) == 0,
                                             .priority = random_between(seed, -2, 2),
                                             .after = follows ? last - (uint64_t)random_between(seed, 0, (int)last - 1)
                                                              : 0 };
    arrive(simulation, &client, request_params);
}

static bool random_departure(struct simulation *simulation)
{
    int count = simulation->client_count;
    struct client *client = &simulation->clients[random_between(&simulation->seed, 0, count ? count - 1 : 0)];
    bool leaves = client->alive;
    if (leaves)
        leave(simulation, client);
    check_after(simulation);
    return leaves;
}

static void open_random(struct simulation *simulation, uint64_t name)
{
    uint64_t seed = name * 7919 + 1;
    struct kv_class classes[CLASSES_MAX];
    int pages[CLASSES_MAX];
    struct scheduler_options options = { .classes = random_between(&seed, 1, CLASSES_MAX),
                                         .batch_tokens = random_between(&seed, 1, 80),
                                         .running_max = random_between(&seed, 1, 12),
                                         .prefix_cache = random_between(&seed, 0, 3),
                                         .by_priority = random_between(&seed, 0, 1) };
    options.outputs = random_between(&seed, 1, options.batch_tokens);
    for (int i = 0; i < options.classes; i++) {
        classes[i] = full;
        classes[i].window = random_between(&seed, 0, 1) ? random_between(&seed, 1, 100) : 0;
        if (i == 1 && random_between(&seed, 0, 1)) { // the first pages of class 0 are in a class of their own
            classes[i] = classes[0];
            classes[i].end = classes[0].begin = random_between(&seed, 1, 3);
        }
        if (i == options.classes - 1 && !classes[i].end && random_between(&seed, 0, 1))
            classes[i] = kv_table_states(KV_PAGE_TOKENS * random_between(&seed, 1, 4));
        int least = kv_table_pages_needed(&classes[i], LENGTH_MAX, options.batch_tokens);
        pages[i] = random_between(&seed, least, random_between(&seed, 0, 2) ? 3 * least : 12 * least);
        pages[i] *= classes[i].state ? 4 : 1; // a sequence needs so few that hardly any would be left to be found
    }
    simulation_open(simulation, name, &options, classes, pages);
}

static void test_many_seeds(void **state)
{
    (void)state;
    enum { SEEDS = 400 };
    static struct simulation simulation;
    int finished = 0, preempted = 0, cancelled = 0, hits = 0, hits_of_states = 0, hits_of_sinks = 0;
    for (uint64_t name = 1; name <= SEEDS; name++) {
        open_random(&simulation, name);
        bool has_states = simulation.pools[simulation.scheduler.options.classes - 1].class.state;
        int clients = random_between(&simulation.seed, 1, CLIENTS_MAX), rush = random_between(&simulation.seed, 1, 20);
        for (int steps = 0; simulation.client_count < clients; steps++) {
            CHECK(&simulation, steps < STEPS_MAX);
            while (simulation.client_count < clients && random_between(&simulation.seed, 0, rush) > 2)
                random_arrival(&simulation);
            if (random_between(&simulation.seed, 0, 30) == 0)
                cancelled += random_departure(&simulation);
            if (rush <= 2)
                random_arrival(&simulation);
            step(&simulation);
        }
        run_to_end(&simulation);
        finished += simulation.finished;
        preempted += simulation.preempted;
        hits += simulation.scheduler.counts.prefix_hits > 0;
        hits_of_states += has_states && simulation.scheduler.counts.prefix_hits > 0;
        hits_of_sinks += simulation.pools[0].class.begin && simulation.scheduler.counts.prefix_hits > 0;
        simulation_close(&simulation);
    }
    assert_true(finished > 10 * SEEDS && preempted > SEEDS && cancelled > SEEDS / 4 && hits > SEEDS / 4);
    assert_true(hits_of_states > SEEDS / 20 && hits_of_sinks > SEEDS / 20);
}

// ---- one thing at a time ----

static struct simulation world; // of the tests below

static void open_plain(int pages, int batch_tokens, int running_max, bool by_priority)
{
    struct scheduler_options options = { .classes = 1,
                                         .batch_tokens = batch_tokens,
                                         .outputs = batch_tokens,
                                         .running_max = running_max,
                                         .prefix_cache = true,
                                         .by_priority = by_priority };
    simulation_open(&world, 0, &options, &full, &pages);
}

// A prompt of its own for each `text`.
static struct client *arrive_with(int text, int prompt_count, int max_tokens, struct nibble_request request_params)
{
    struct client client = { .prompt_count = prompt_count, .max_tokens = max_tokens };
    uint64_t seed = (uint64_t)text;
    for (int i = 0; i < prompt_count; i++)
        client.ids[i] = random_between(&seed, 0, TOKENS - 1);
    return arrive(&world, &client, request_params);
}

static const struct nibble_request plain;

static void test_a_second_reading_finds_whole_pages(void **state)
{
    (void)state;
    static const int lengths[][2] = { { 1, 0 }, { 16, 0 }, { 17, 16 }, { 32, 16 }, { 33, 32 }, { 100, 96 } };
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        open_plain(20, 64, 4, false);
        for (int round = 0; round < 2; round++) {
            struct client *client = arrive_with(1, lengths[i][0], 5, plain);
            run_to_end(&world);
            assert_int_equal(client->request.usage.cached_tokens, round ? lengths[i][1] : 0);
        }
        simulation_close(&world);
    }
    open_plain(20, 64, 4, false);
    struct client *first = arrive_with(1, 20, 60, plain); // the answer is found again, too
    run_to_end(&world);
    struct client second = { .prompt_count = 80 };
    memcpy(second.ids, first->ids, sizeof second.ids);
    struct client *again = arrive(&world, &second, plain);
    run_to_end(&world);
    assert_int_equal(again->request.usage.cached_tokens, 64);

    second.salt = 1; // another tenant's pages are not
    again = arrive(&world, &second, plain);
    run_to_end(&world);
    assert_int_equal(again->request.usage.cached_tokens, 0);
    second.salt = 0; // and who wants every token scored reads it all
    again = arrive(&world, &second, (struct nibble_request){ .score_prompt = true });
    run_to_end(&world);
    assert_int_equal(again->request.usage.cached_tokens, 0);
    simulation_close(&world);
}

static void test_the_deepest_page_of_the_oldest_text_goes_first(void **state)
{
    (void)state;
    open_plain(12, 200, 4, false);
    arrive_with(1, 81, 0, plain); // 6 pages, 5 of them whole
    run_to_end(&world);
    arrive_with(2, 81, 0, plain);
    run_to_end(&world);
    arrive_with(3, 49, 0, plain); // 4 pages: 2 that were never whole, then the oldest text's last two
    run_to_end(&world);
    struct client *first = arrive_with(1, 81, 0, plain);
    run_to_end(&world);
    assert_int_equal(first->request.usage.cached_tokens, 48);
    simulation_close(&world);
}

static void test_the_last_in_the_order_is_preempted(void **state)
{
    (void)state;
    for (int by_priority = 0; by_priority < 2; by_priority++) {
        open_plain(14, 64, 4, by_priority);
        struct client *clients[3];
        for (int i = 0; i < 3; i++) // each grows from 3 to 6 pages; the first has the highest number
            clients[i] = arrive_with(i + 1, 40, 50, (struct nibble_request){ .priority = 3 - i });
        run_to_end(&world);
        struct client *best = by_priority ? clients[2] : clients[0], *worst = by_priority ? clients[0] : clients[2];
        assert_int_equal(best->request.usage.preemptions, 0);
        assert_true(worst->request.usage.preemptions > 0);
        assert_int_equal(world.finished, 3);
        simulation_close(&world);
    }
}

static void test_priorities_are_admitted_first(void **state)
{
    (void)state;
    open_plain(10, 64, 1, true);
    static const int priorities[] = { 0, 5, -3, 5, 1 }, order[] = { 2, 0, 4, 1, 3 };
    struct client *clients[5];
    for (int i = 0; i < 5; i++)
        clients[i] = arrive_with(i + 1, 10, 2, (struct nibble_request){ .priority = priorities[i] });
    for (int i = 0; i < 5; i++) {
        step(&world);
        for (int j = 0; j < 5; j++)
            assert_int_equal(clients[j]->alive && clients[j]->request.running, j == order[i]);
        step(&world);
        assert_false(clients[order[i]]->alive);
    }
    simulation_close(&world);
}

static void test_a_whole_prompt_must_fit(void **state)
{
    (void)state;
    struct scheduler_options options = { .classes = 1, .batch_tokens = 64, .outputs = 16, .running_max = 4 };
    simulation_open(&world, 0, &options, &full, (const int[]){ 10 });
    struct client *first = arrive_with(1, 80, 0, (struct nibble_request){ .score_prompt = true }); // a page at a time
    struct client *second = arrive_with(2, 96, 0, plain), *third = arrive_with(3, 16, 0, plain);
    for (int i = 0; i < 4; i++) {
        step(&world);
        assert_true(first->request.running);
        assert_false(second->request.running); // the pages that are free are the first's
        assert_false(third->request.running);  // and nobody passes
    }
    step(&world);
    assert_false(first->alive);
    step(&world);
    assert_true(second->request.running);
    run_to_end(&world);
    assert_int_equal(world.preempted, 0);
    simulation_close(&world);
}

static void test_those_who_run_keep_a_page_to_go_on(void **state)
{
    (void)state;
    open_plain(10, 64, 4, false);
    struct client *first = arrive_with(1, 63, 60, plain); // 4 pages, and soon a fifth
    step(&world);
    struct client *second = arrive_with(2, 96, 5, plain); // as many as are left
    for (int i = 0; i < 58; i++) {
        step(&world);
        assert_false(second->request.running);
    }
    run_to_end(&world);
    assert_false(first->alive || second->alive);
    assert_int_equal(world.preempted, 0);
    simulation_close(&world);
}

static void test_prompts_leave_room_for_those_who_continue(void **state)
{
    (void)state;
    open_plain(40, 128, 4, false);
    struct client *talker = arrive_with(1, 10, 50, plain);
    step(&world);
    struct client *reader = arrive_with(2, 150, 1, plain);
    for (int i = 0; i < 4; i++) {
        step(&world);
        assert_int_equal(world.scheduler.chunk_count, 2);
        assert_int_equal(world.scheduler.chunks[0].count, 1);
        assert_int_equal(world.scheduler.chunks[1].count, 32);
        assert_int_equal(talker->request.usage.answer_tokens, i + 2);
    }
    leave(&world, talker); // nobody continues: the rest at once
    step(&world);
    assert_int_equal(world.scheduler.chunks[0].count, 22);
    assert_false(reader->alive);
    simulation_close(&world);
}

static void test_a_follower_shares_its_leaders_prompt(void **state)
{
    (void)state;
    open_plain(40, 32, 4, false);
    struct client *leader = arrive_with(1, 100, 20, plain);
    struct client *follower = arrive_with(1, 100, 20, (struct nibble_request){ .after = leader->request.name });
    struct client *other = arrive_with(2, 10, 1, plain);
    run_to_end(&world);
    assert_int_equal(follower->request.usage.cached_tokens, 96);
    assert_true(other->request.usage.admitted > 0);

    leader = arrive_with(3, 100, 20, plain); // a leader that goes away does not hold up anybody
    follower = arrive_with(3, 100, 20, (struct nibble_request){ .after = leader->request.name });
    step(&world);
    assert_false(follower->request.running);
    leave(&world, leader);
    step(&world);
    assert_true(follower->request.running);
    run_to_end(&world);
    assert_int_equal(world.finished, 4);
    simulation_close(&world);
}

static void test_scored_prompts_are_bounded_by_rows(void **state)
{
    (void)state;
    struct scheduler_options options = { .classes = 1, .batch_tokens = 64, .outputs = 8, .running_max = 20 };
    simulation_open(&world, 0, &options, &full, (const int[]){ 40 });
    assert_int_equal(world.scheduler.options.running_max, 8);
    arrive_with(1, 60, 3, (struct nibble_request){ .score_prompt = true });
    struct client *other = arrive_with(2, 60, 3, plain);
    step(&world);
    assert_int_equal(world.scheduler.chunks[0].count, 8);
    assert_int_equal(world.scheduler.chunks[0].outputs, 8);
    assert_int_equal(world.scheduler.chunks[1].count, 56); // up to the token whose row there is none for
    assert_int_equal(world.scheduler.chunks[1].outputs, 0);
    assert_int_equal(other->request.usage.answer_tokens, 0);
    run_to_end(&world);
    assert_int_equal(world.finished, 2);
    simulation_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_second_reading_finds_whole_pages),
        cmocka_unit_test(test_the_deepest_page_of_the_oldest_text_goes_first),
        cmocka_unit_test(test_the_last_in_the_order_is_preempted),
        cmocka_unit_test(test_priorities_are_admitted_first),
        cmocka_unit_test(test_a_whole_prompt_must_fit),
        cmocka_unit_test(test_those_who_run_keep_a_page_to_go_on),
        cmocka_unit_test(test_prompts_leave_room_for_those_who_continue),
        cmocka_unit_test(test_a_follower_shares_its_leaders_prompt),
        cmocka_unit_test(test_scored_prompts_are_bounded_by_rows),
        cmocka_unit_test(test_many_seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
