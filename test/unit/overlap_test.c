// SPDX-License-Identifier: Apache-2.0
// Overlapped scheduling: steps that are queued before the tokens of the step before are read back. The engine is a fake
// of a GPU's: a step runs when its results are read, or when a later step needs them, takes its tokens from what it
// draws and its text from the pages. A page that is read too early, or that another sequence has written, gives a wrong
// token.
#include <limits.h>

#include "base/random.h"
#include "container.h"
#include "engine/schedule/generate.h"

enum {
    VOCABULARY = 60,
    LENGTH_MAX = 200,
    PAGES_MAX = 400,
    SEQUENCES_MAX = 8,
    BATCH_TOKENS = 64,
    ANSWERS = 24,
    STEPS_MAX = 20000,
    WINDOW = 40
};

// ---- an engine that is a step behind ----

struct fake_row {
    bool asked;
    uint64_t seed;
    int count;
};

struct fake_step {
    int number, tokens, sequences, outputs;
    int32_t ids[BATCH_TOKENS], positions[BATCH_TOKENS], output_rows[BATCH_TOKENS];
    struct {
        int first, count;
        int32_t pages[2][LENGTH_MAX / KV_PAGE_TOKENS + 1];
    } sequence[SEQUENCES_MAX];
    struct fake_row rows[BATCH_TOKENS];
    int32_t drawn[BATCH_TOKENS];
    bool done;
};

static struct fake {
    struct engine engine;
    bool can_draw, can_follow;
    int asked;                          // rows that were asked for, of all steps
    int started, overlapped_steps;      // steps
    int fails_at_start, fails_at_end;   // the number of a step that does; 0: none
    struct fake_step steps[2];          // by number, modulo 2
    struct fake_row rows[BATCH_TOKENS]; // asked for, of the next step
    int32_t drawn[BATCH_TOKENS];        // by the step that ran last
    uint64_t slots[2][PAGES_MAX * KV_PAGE_TOKENS];
    float logits[BATCH_TOKENS * VOCABULARY];
    int32_t ids[BATCH_TOKENS], positions[BATCH_TOKENS], output_rows[BATCH_TOKENS];
    struct batch_sequence batch_sequences[SEQUENCES_MAX];
} fake;

static uint64_t mix(uint64_t hash, uint64_t with)
{
    hash = (hash ^ with) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static uint64_t slot_value(int position, int32_t id) { return mix(mix(7, (uint64_t)position), (uint64_t)(uint32_t)id); }

static int32_t choose(uint64_t text, uint64_t seed, int count)
{
    return (int32_t)(mix(mix(text, seed), (uint64_t)count) % VOCABULARY);
}

// The tokens that an output sees: all in one cache class, the window in the other.
static uint64_t read_text(const struct fake_step *step, int sequence, int position)
{
    uint64_t hash = 1;
    for (int i = 0; i <= position; i++)
        for (int class = i + WINDOW > position ? 1 : 0; class >= 0; class--) {
            int32_t page = step->sequence[sequence].pages[class][i / KV_PAGE_TOKENS];
            assert_true(page >= 0);
            hash = mix(hash, fake.slots[class][page * KV_PAGE_TOKENS + i % KV_PAGE_TOKENS]);
        }
    return hash;
}

static int sequence_of(const struct fake_step *step, int row)
{
    int i = 0;
    while (row >= step->sequence[i].first + step->sequence[i].count)
        i++;
    return i;
}

static void write_token(const struct fake_step *step, int row)
{
    int position = step->positions[row], sequence = sequence_of(step, row);
    int32_t id = step->ids[row] < 0 ? fake.drawn[~step->ids[row]] : step->ids[row];
    for (int class = 0; class < 2; class++) {
        int32_t page = step->sequence[sequence].pages[class][position / KV_PAGE_TOKENS];
        fake.slots[class][page * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS] = slot_value(position, id);
    }
}

static void run_step(struct fake_step *step)
{
    for (int i = 0; i < step->tokens; i++)
        write_token(step, i);
    for (int i = 0; i < step->outputs; i++) {
        int row = step->output_rows[i], position = step->positions[row];
        uint64_t text = read_text(step, sequence_of(step, row), position);
        step->drawn[i] = choose(text, step->rows[i].seed, step->rows[i].count);
        if (step->rows[i].asked)
            continue;
        for (int id = 0; id < VOCABULARY; id++) // as the host draws with temperature 0, if nothing interferes
            fake.logits[i * VOCABULARY + id] = id == choose(text, 0, position + 1);
    }
    memcpy(fake.drawn, step->drawn, sizeof fake.drawn);
    step->done = true;
}

// Everything up to a step, in order.
static void run_until(int number)
{
    for (int i = number - 1; i <= number; i++) {
        struct fake_step *step = &fake.steps[(i + 2) % 2];
        if (step->number == i && i > 0 && !step->done)
            run_step(step);
    }
}

bool engine_check_ids(const struct engine *engine, const int32_t *ids, size_t count, struct error *err)
{
    (void)engine, (void)ids, (void)count, (void)err;
    return true;
}

bool engine_queue_sampling(struct engine *engine, int row, const struct nibble_sampling *sampling, int count)
{
    (void)engine;
    fake.rows[row] = (struct fake_row){ true, sampling->seed, count };
    fake.asked++;
    return fake.can_draw;
}

int engine_start(struct engine *engine, struct error *err)
{
    const struct batch *batch = &engine->batch;
    int number = ++fake.started;
    struct fake_step *step = &fake.steps[number % 2];
    if (number == fake.fails_at_start)
        return (fail)(err, "no step %d", number);
    assert_true(!step->number || step->done); // one may be under way, not two
    fake.overlapped_steps += fake.steps[(number + 1) % 2].number && !fake.steps[(number + 1) % 2].done;
    *step = (struct fake_step){
        .number = number, .tokens = batch->tokens, .sequences = batch->sequences, .outputs = batch->outputs
    };
    memcpy(step->ids, fake.ids, sizeof step->ids);
    memcpy(step->positions, fake.positions, sizeof step->positions);
    memcpy(step->output_rows, fake.output_rows, sizeof step->output_rows);
    memcpy(step->rows, fake.rows, sizeof step->rows);
    memset(fake.rows, 0, sizeof fake.rows);
    for (int i = 0; i < batch->sequences; i++) {
        step->sequence[i].first = batch->sequence[i].first;
        step->sequence[i].count = batch->sequence[i].count;
        int pages = batch->positions[batch->sequence[i].first + batch->sequence[i].count - 1] / KV_PAGE_TOKENS + 1;
        for (int class = 0; class < 2; class++)
            memcpy(step->sequence[i].pages[class], batch->sequence[i].pages[class], (size_t)pages * sizeof(int32_t));
    }
    return number;
}

bool engine_may_follow(const struct engine *engine, int step)
{
    (void)engine;
    return fake.can_follow && step == fake.started && step != 0;
}

bool engine_finish(struct engine *engine, int number, struct engine_result *result, struct error *err)
{
    (void)engine;
    run_until(number);
    struct fake_step *step = &fake.steps[number % 2];
    assert_int_equal(step->number, number);
    *result = (struct engine_result){ fake.logits, step->drawn };
    return number != fake.fails_at_end || (fail)(err, "step %d went wrong", number);
}

// ---- requests and deliveries ----

struct client {
    int32_t prompt[LENGTH_MAX], delivered[LENGTH_MAX], expected[LENGTH_MAX];
    int prompt_count, max_tokens, end_at, count, finishes;
    uint64_t name, seed;
    int32_t stop; // VOCABULARY: none
    enum nibble_finish reason;
    struct nibble_usage usage;
    char error[80];
};

struct event {
    int client, what; // a token, or below 0 the reason of an end
};

static struct client clients[ANSWERS];
static struct event events[ANSWERS * LENGTH_MAX];
static int event_count;
static struct generator generator;

static void note(const struct client *client, int what)
{
    events[event_count++] = (struct event){ (int)(client - clients), what };
}

static bool on_token(void *context, const struct nibble_token *token)
{
    struct client *client = context;
    assert_int_equal(client->finishes, 0);
    assert_int_equal(token->position, client->prompt_count + client->count);
    note(client, token->id);
    client->delivered[client->count++] = token->id;
    return client->count != client->end_at;
}

static void on_finished(void *context, enum nibble_finish reason, const struct nibble_usage *usage, const char *error)
{
    struct client *client = context;
    note(client, -1 - (int)reason);
    client->finishes++;
    client->reason = reason;
    client->usage = *usage;
    snprintf(client->error, sizeof client->error, "%s", error ? error : "");
}

// The answer's tokens, from the text alone.
static void foresee(struct client *client)
{
    int32_t text[LENGTH_MAX];
    memcpy(text, client->prompt, sizeof text);
    for (int length = client->prompt_count; length < client->prompt_count + client->max_tokens; length++) {
        uint64_t hash = 1;
        for (int i = 0; i < length; i++)
            for (int class = i + WINDOW > length - 1 ? 1 : 0; class >= 0; class--)
                hash = mix(hash, slot_value(i, text[i]));
        text[length] = choose(hash, client->seed, length);
        client->expected[length - client->prompt_count] = text[length];
    }
}

static void client_make(struct client *client, uint64_t *seed)
{
    *client = (struct client){ .prompt_count = random_between(seed, 1, 100),
                               .max_tokens = random_between(seed, 1, 90),
                               .seed = random_next(seed),
                               .stop = VOCABULARY };
    for (int i = 0; i < client->prompt_count; i++) // many begin alike
        client->prompt[i] = i < 48 ? i : random_between(seed, 0, VOCABULARY - 1);
    foresee(client);
}

static void client_add(struct client *client)
{
    struct error err;
    struct nibble_request request_params = {
        .prompt = client->prompt,
        .prompt_count = (size_t)client->prompt_count,
        .max_tokens = client->max_tokens,
        .sampling = { .top_p = 1, .repetition_penalty = 1, .seed = client->seed },
        .stop_ids = &client->stop,
        .stop_count = client->stop < VOCABULARY,
        .top_logprobs = -1,
        .listener = { .context = client, .token = on_token, .finished = on_finished },
    };
    client->name = generator_add(&generator, &request_params, &err);
    assert_true(client->name);
}

// Its knowledge is correct, though it may be incomplete.
static void client_check(const struct client *client)
{
    assert_int_equal(client->finishes, 1);
    assert_int_equal(client->usage.answer_tokens, client->count);
    assert_memory_equal(client->delivered, client->expected, (size_t)client->count * sizeof *client->delivered);
    bool stopped = client->count
        && (client->delivered[client->count - 1] == client->stop || client->count == client->end_at);
    for (int i = 0; i + 1 < client->count; i++)
        assert_true(client->delivered[i] != client->stop);
    if (client->reason == NIBBLE_FINISH_STOP)
        assert_true(stopped);
    else if (client->reason == NIBBLE_FINISH_LENGTH)
        assert_int_equal(client->count, client->max_tokens);
}

static void world_open(bool overlapped, int pages, int sequences)
{
    struct error err;
    memset(&fake, 0, sizeof fake);
    fake.can_draw = true;
    fake.can_follow = overlapped;
    struct engine *engine = &fake.engine;
    engine->plan = (struct plan){ .class_count = 2,
                                  .batch_tokens = BATCH_TOKENS,
                                  .outputs = SEQUENCES_MAX,
                                  .max_num_seqs = sequences,
                                  .max_model_len = LENGTH_MAX };
    engine->model.config.vocabulary = VOCABULARY;
    engine->pool = thread_pool_open(1, &err);
    engine->ids = fake.ids;
    engine->positions = fake.positions;
    engine->output_rows = fake.output_rows;
    engine->batch_sequences = fake.batch_sequences;
    engine->batch = (struct batch){
        .ids = fake.ids, .positions = fake.positions, .sequence = fake.batch_sequences, .output_rows = fake.output_rows
    };
    for (int i = 0; i < 2; i++)
        kv_pool_open(&engine->pools[i], fake.slots[i],
                     (struct kv_class){ .page_tokens = KV_PAGE_TOKENS, .window = i ? WINDOW : 0 },
                     KV_PAGE_TOKENS * sizeof(uint64_t), pages);
    generator_open(&generator, engine, &(struct nibble_scheduler_options){ 0 });
    event_count = 0;
}

// Every page must have come back.
static void world_close(void)
{
    generator_close(&generator);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fake.engine.pools[i].free_count, fake.engine.pools[i].page_count);
        kv_pool_check(&fake.engine.pools[i]);
        kv_pool_close(&fake.engine.pools[i]);
    }
    thread_pool_close(fake.engine.pool);
}

static int run(void)
{
    struct nibble_step step;
    int steps = 0;
    while (generator_step(&generator, &step))
        assert_true(step.tokens > 0 && steps++ < STEPS_MAX);
    return steps;
}

// ---- tests ----

// While ends can be foreseen nothing is different: the same steps, and the same tokens in the same order.
static void test_nothing_is_different(void **state)
{
    (void)state;
    static struct event before[COUNT_OF(events)];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct nibble_scheduler_stats stats[2];
        int steps[2], count = 0;
        for (int overlapped = 0; overlapped <= 1; overlapped++) {
            uint64_t own = seed;
            world_open(overlapped, seed % 2 ? PAGES_MAX : 20, SEQUENCES_MAX); // little more than for one
            for (int i = 0; i < ANSWERS; i++) {
                client_make(&clients[i], &own);
                client_add(&clients[i]);
            }
            steps[overlapped] = run();
            generator_stats(&generator, &stats[overlapped]);
            for (int i = 0; i < ANSWERS; i++)
                client_check(&clients[i]);
            assert_true(overlapped ? fake.overlapped_steps > steps[1] / (seed % 2 ? 2 : 8) : !fake.overlapped_steps);
            if (overlapped) {
                assert_int_equal(event_count, count);
                assert_memory_equal(events, before, (size_t)count * sizeof *events);
            }
            memcpy(before, events, sizeof before);
            count = event_count;
            world_close();
        }
        assert_int_equal(steps[0], steps[1]);
        assert_memory_equal(&stats[0], &stats[1], sizeof stats[0]);
    }
}

// Stop ids, listeners that end their request, requests that come and go at any time, and pools that are too small.
static void test_every_answer_is_true(void **state)
{
    (void)state;
    uint64_t preemptions = 0, overlapped_steps = 0, stops = 0, cancelled = 0;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        uint64_t own = seed;
        struct nibble_step step;
        struct nibble_scheduler_stats stats;
        int added = 0, steps = 0;
        world_open(true, seed % 3 ? PAGES_MAX : random_between(&own, 13, 22), random_between(&own, 1, SEQUENCES_MAX));
        bool more = true;
        while (more || added < ANSWERS) {
            assert_true(steps++ < STEPS_MAX);
            if (added < ANSWERS && random_between(&own, 0, 5) == 0) {
                struct client *client = &clients[added++];
                client_make(client, &own);
                client->stop = added % 2 ? random_between(&own, 0, VOCABULARY - 1) : VOCABULARY;
                client->end_at = added % 3 ? 0 : random_between(&own, 1, 40);
                client_add(client);
            }
            if (added && random_between(&own, 0, 60) == 0)
                generator_cancel(&generator, clients[random_between(&own, 0, added - 1)].name);
            more = generator_step(&generator, &step);
        }
        generator_stats(&generator, &stats);
        preemptions += stats.preemptions;
        overlapped_steps += (uint64_t)fake.overlapped_steps;
        for (int i = 0; i < ANSWERS; i++) {
            client_check(&clients[i]);
            stops += clients[i].reason == NIBBLE_FINISH_STOP;
            cancelled += clients[i].reason == NIBBLE_FINISH_CANCELLED;
        }
        world_close();
    }
    assert_true(preemptions > 30 && overlapped_steps > 5000 && stops > 500 && cancelled > 100);
}

// One that ends unforeseen is told at once, and the step that was started for it is nobody's.
static void test_cancelled_while_a_step_is_ahead(void **state)
{
    (void)state;
    uint64_t seed = 3;
    struct nibble_step step;
    world_open(true, PAGES_MAX, SEQUENCES_MAX);
    client_make(&clients[0], &seed);
    clients[0].max_tokens = 50;
    foresee(&clients[0]);
    client_add(&clients[0]);
    for (int i = 0; i < 10; i++)
        assert_true(generator_step(&generator, &step));
    assert_true(fake.overlapped_steps > 5);
    int count = clients[0].count;
    generator_cancel(&generator, clients[0].name);
    assert_int_equal(clients[0].reason, NIBBLE_FINISH_CANCELLED);
    assert_int_equal(clients[0].usage.answer_tokens, count);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fake.engine.pools[i].free_count, fake.engine.pools[i].page_count);
    client_make(&clients[1], &seed); // takes the pages that the step ahead writes to
    client_add(&clients[1]);
    run();
    client_check(&clients[0]);
    client_check(&clients[1]);
    client_add(&clients[1]); // closing while one is ahead
    clients[1].count = clients[1].finishes = 0;
    for (int i = 0; i < 4; i++)
        generator_step(&generator, &step);
    world_close();
}

// Somebody wants logprobs: no step overlaps as long as that request runs, and all get what they would.
static void test_others_keep_steps_in_turn(void **state)
{
    (void)state;
    uint64_t seed = 5;
    struct error err;
    world_open(true, PAGES_MAX, SEQUENCES_MAX);
    for (int i = 0; i < 3; i++) {
        client_make(&clients[i], &seed);
        if (i < 2) {
            client_add(&clients[i]);
            continue;
        }
        clients[i].seed = 0;
        clients[i].max_tokens = 90;
        foresee(&clients[i]);
        struct nibble_request request_params = {
            .prompt = clients[i].prompt,
            .prompt_count = (size_t)clients[i].prompt_count,
            .max_tokens = 90,
            .sampling = { .top_p = 1, .repetition_penalty = 1 },
            .top_logprobs = 0,
            .listener = { .context = &clients[i], .token = on_token, .finished = on_finished },
        };
        assert_true(generator_add(&generator, &request_params, &err));
    }
    run();
    for (int i = 0; i < 3; i++)
        client_check(&clients[i]);
    assert_int_equal(fake.overlapped_steps, 0);
    world_close();
}

// ---- samplers that the device does not have -------------------------------------------------------------------------

static const struct nibble_sampling host_samplings[] = {
    { .typical_p = 0.9 },
    { .top_a = 0.01 },
    { .top_n_sigma = 2 },
    { .dynatemp_range = 0.5, .dynatemp_exponent = 1 },
    { .xtc_probability = 0.5, .xtc_threshold = 0.01 },
    { .dry_multiplier = 1, .dry_base = 1.75, .dry_allowed_length = 1 },
    { .mirostat = 2, .mirostat_tau = 5, .mirostat_eta = 0.1 },
    { .min_keep = 5 },
    { .order = { NIBBLE_SAMPLER_TEMPERATURE } },
};

static void sampled_add(struct client *client, struct nibble_sampling sampling, bool limits)
{
    static const int32_t allowed[] = { 1, 2, 3, 4, 5, 6, 7 }, words[] = { 1, 2, NIBBLE_SEQUENCE_END };
    struct error err;
    sampling.temperature = sampling.top_p = sampling.repetition_penalty = 1;
    sampling.seed = client->seed;
    struct nibble_request request_params = {
        .prompt = client->prompt,
        .prompt_count = (size_t)client->prompt_count,
        .max_tokens = client->max_tokens,
        .sampling = sampling,
        .allowed_ids = allowed,
        .allowed_count = limits ? COUNT_OF(allowed) : 0,
        .bad_words = { words, limits ? COUNT_OF(words) : 0 },
        .top_logprobs = -1,
        .listener = { .context = client, .token = on_token, .finished = on_finished },
    };
    client->count = client->finishes = 0;
    client->name = generator_add(&generator, &request_params, &err);
    assert_true(client->name);
}

// They are drawn on the host, and what is drawn depends neither on the others in the batch nor on being preempted.
static void test_samplers_on_the_host(void **state)
{
    (void)state;
    int different = 0;
    uint64_t seed = 21, preemptions = 0;
    struct nibble_scheduler_stats stats;
    enum { KINDS = COUNT_OF(host_samplings) + 1 };
    for (int i = 0; i < ANSWERS; i++) {
        client_make(&clients[i], &seed);
        clients[i].max_tokens = 70;
        foresee(&clients[i]); // with temperature 0
        world_open(true, PAGES_MAX, SEQUENCES_MAX);
        sampled_add(&clients[i], host_samplings[i % KINDS % COUNT_OF(host_samplings)], i % KINDS == KINDS - 1);
        run();
        different += memcmp(clients[i].delivered, clients[i].expected, 70 * sizeof *clients[i].delivered) != 0;
        memcpy(clients[i].expected, clients[i].delivered, sizeof clients[i].expected);
        assert_int_equal(clients[i].count, 70);
        assert_int_equal(fake.asked, 0);
        assert_int_equal(fake.overlapped_steps, 0);
        world_close();
    }
    assert_int_equal(different, ANSWERS);
    world_open(true, 20, SEQUENCES_MAX);
    for (int i = 0; i < ANSWERS; i++)
        sampled_add(&clients[i], host_samplings[i % KINDS % COUNT_OF(host_samplings)], i % KINDS == KINDS - 1);
    run();
    generator_stats(&generator, &stats);
    preemptions = stats.preemptions;
    for (int i = 0; i < ANSWERS; i++)
        client_check(&clients[i]);
    assert_int_equal(fake.asked, 0);
    assert_true(preemptions > 0);
    world_close();
}

static bool is_failing(void)
{
    struct nibble_scheduler_stats stats;
    generator_stats(&generator, &stats);
    return stats.failing;
}

static void test_a_device_that_fails(void **state)
{
    (void)state;
    for (int at_start = 0; at_start <= 1; at_start++)
        for (int number = 2; number < 8; number++) {
            uint64_t seed = 9;
            world_open(true, PAGES_MAX, SEQUENCES_MAX);
            *(at_start ? &fake.fails_at_start : &fake.fails_at_end) = number;
            for (int i = 0; i < 4; i++) {
                client_make(&clients[i], &seed);
                clients[i].max_tokens = 60;
                foresee(&clients[i]);
                client_add(&clients[i]);
            }
            run();
            for (int i = 0; i < 4; i++) {
                client_check(&clients[i]);
                assert_int_equal(clients[i].reason, NIBBLE_FINISH_FAILED);
                assert_non_null(strstr(clients[i].error, at_start ? "no step" : "went wrong"));
            }
            assert_true(is_failing());
            client_make(&clients[4], &seed); // the next one may have more luck
            client_add(&clients[4]);
            run();
            client_check(&clients[4]);
            assert_true(clients[4].reason != NIBBLE_FINISH_FAILED && !is_failing());
            world_close();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_different),
        cmocka_unit_test(test_every_answer_is_true),
        cmocka_unit_test(test_cancelled_while_a_step_is_ahead),
        cmocka_unit_test(test_others_keep_steps_in_turn),
        cmocka_unit_test(test_samplers_on_the_host),
        cmocka_unit_test(test_a_device_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
