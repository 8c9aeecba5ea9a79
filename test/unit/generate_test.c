// SPDX-License-Identifier: Apache-2.0
// Many answers at once on tiny models: each is the one it is alone, bit for bit, and its listener gets the same.
#include <math.h>
#include <stdatomic.h>

#include "container.h"
#include "engine/schedule/generate.h"
#include "engine/reader.h"
#include "sanitized.h"
#include "tiny.h"

enum { VOCABULARY = 40, CONTEXT = 200, ANSWERS = 8, TOP = 3 };

static const struct tiny_sizes sizes = { .layers = 3,
                                         .hidden = 32,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .feed_forward = 48,
                                         .vocabulary = VOCABULARY,
                                         .context = CONTEXT };

static const struct kind {
    const char *type, *more, *cache;
} kinds[] = {
    { "llama", "{}", "auto" },
    { "llama", "{}", "0:float32,1:fp8/nvfp4,2:int8_per_token_head" },
    { "mistral", "{\"sliding_window\":20}", "nvfp4" },
    { "gemma3_text", "{\"sliding_window\":20,\"sliding_window_pattern\":2}", "int4_per_token_head/fp8_per_token_head" },
};

struct world {
    struct tiny tiny;
    struct engine engine;
    struct generator generator;
};

static void world_open(struct world *world, const struct kind *kind, const struct engine_options *options,
                       const struct nibble_scheduler_options *scheduling)
{
    struct error err;
    struct engine_options own = *options;
    *world = (struct world){ .tiny.seed = 1 };
    tiny_model(&world->tiny, kind->type, &sizes, kind->more);
    own.plan.user.kv_cache_dtype = kind->cache;
    if (!engine_open(&world->engine, &world->tiny.checkpoint, &own, &err))
        fail_msg("%s", err.text);
    generator_open(&world->generator, &world->engine, scheduling);
}

static void world_open_plain(struct world *world)
{
    world_open(world, &kinds[0], &(struct engine_options){ .plan.user.max_num_seqs = 4, .plan.user.threads = 1 },
               &(struct nibble_scheduler_options){ 0 });
}

// Every page must have come back.
static void world_close(struct world *world)
{
    generator_close(&world->generator);
    for (int i = 0; i < world->engine.plan.class_count; i++) {
        assert_int_equal(world->engine.pools[i].free_count, world->engine.pools[i].page_count);
        kv_pool_check(&world->engine.pools[i]);
    }
    engine_close(&world->engine);
    checkpoint_close(&world->tiny.checkpoint);
}

// ---- a listener that keeps everything ----

struct delivered {
    int32_t ids[CONTEXT];
    float logprobs[CONTEXT];
    struct nibble_candidate top[CONTEXT][TOP];
    int count, prompt_count;
    int end_at; // says stop after as many; 0: never
    int finishes;
    enum nibble_finish reason;
    struct nibble_usage usage;
    char error[256];
};

static void keep(struct delivered *delivered, int at, const struct nibble_token *token)
{
    assert_int_equal(token->position, at);
    delivered->ids[at] = token->id;
    delivered->logprobs[at] = token->scored ? token->logprob : 1;
    assert_true(token->top_count <= TOP);
    for (int i = 0; i < token->top_count; i++)
        delivered->top[at][i] = token->top[i];
}

static void on_prompt_token(void *context, const struct nibble_token *token)
{
    struct delivered *delivered = context;
    keep(delivered, delivered->prompt_count++, token);
}

static bool on_token(void *context, const struct nibble_token *token)
{
    struct delivered *delivered = context;
    assert_int_equal(delivered->finishes, 0);
    keep(delivered, token->position, token);
    return ++delivered->count != delivered->end_at;
}

static void on_finished(void *context, enum nibble_finish reason, const struct nibble_usage *usage, const char *error)
{
    struct delivered *delivered = context;
    delivered->finishes++;
    delivered->reason = reason;
    delivered->usage = *usage;
    assert_int_equal(error != NULL, reason == NIBBLE_FINISH_FAILED);
    if (error)
        snprintf(delivered->error, sizeof delivered->error, "%s", error);
}

static struct nibble_listener listener_of(struct delivered *delivered)
{
    *delivered = (struct delivered){ .end_at = delivered->end_at };
    return (struct nibble_listener){
        .context = delivered, .prompt_token = on_prompt_token, .token = on_token, .finished = on_finished
    };
}

static uint64_t need_add(struct generator *generator, const struct nibble_request *request_params)
{
    struct error err;
    uint64_t name = generator_add(generator, request_params, &err);
    if (!name)
        fail_msg("%s", err.text);
    return name;
}

static void run(struct generator *generator)
{
    struct nibble_step step;
    int steps = 0;
    while (generator_step(generator, &step))
        assert_true(step.tokens > 0 && steps++ < 10000);
}

// One answer by itself.
static void answer(struct world *world, struct nibble_request request_params, struct delivered *delivered)
{
    request_params.listener = listener_of(delivered);
    need_add(&world->generator, &request_params);
    run(&world->generator);
    assert_int_equal(delivered->finishes, 1);
}

static const struct nibble_sampling greedy = { .top_p = 1, .repetition_penalty = 1 };
static const int32_t some_ids[] = { 3, 1, 4, 1, 5, 9, 2, 6 };

static struct nibble_request plain_request(int max_tokens)
{
    return (struct nibble_request){ .prompt = some_ids,
                                    .prompt_count = COUNT_OF(some_ids),
                                    .max_tokens = max_tokens,
                                    .sampling = greedy,
                                    .top_logprobs = -1 };
}

// ---- the same tokens ----

struct request_list {
    int32_t prompts[ANSWERS][CONTEXT];
    struct nibble_request request_params[ANSWERS];
};

// Texts that partly begin alike, drawn in all kinds of ways.
static void make_requests(struct request_list *request_list, uint64_t seed)
{
    for (int i = 0; i < ANSWERS; i++) {
        int length = random_between(&seed, 1, 120), common = i % 2 ? random_between(&seed, 0, length) : 0;
        for (int j = 0; j < length; j++)
            request_list->prompts[i][j] = j < common ? request_list->prompts[i - 1][j]
                                                     : random_between(&seed, 0, VOCABULARY - 1);
        request_list->request_params[i] = (struct nibble_request){
            .prompt = request_list->prompts[i],
            .prompt_count = (size_t)length,
            .max_tokens = random_between(&seed, 1, 60),
            .sampling = { .temperature = i % 4 ? 0.9 : 0,
                          .top_p = i % 3 ? 0.9 : 1,
                          .top_k = i % 5 ? 0 : 12,
                          .repetition_penalty = 1.1,
                          .frequency_penalty = i % 2,
                          .seed = seed,
                          .choice = i },
            .top_logprobs = TOP,
            .score_prompt = i == 5,
        };
    }
}

static void check_same(const struct delivered *delivered, const struct delivered *alone, int i)
{
    size_t count = (size_t)(alone->count + alone->usage.prompt_tokens);
    assert_int_equal(delivered->count, alone->count);
    assert_int_equal(delivered->prompt_count, alone->prompt_count);
    if (memcmp(delivered->ids, alone->ids, count * sizeof *delivered->ids)
        || memcmp(delivered->logprobs, alone->logprobs, count * sizeof *delivered->logprobs)
        || memcmp(delivered->top, alone->top, count * sizeof *delivered->top))
        fail_msg("answer %d is another one than alone", i);
}

// All at once, twice: the second time what was read before is found again.
static int answer_together(struct world *world, const struct request_list *request_list, const struct delivered *alone)
{
    static struct delivered delivered[ANSWERS];
    int cached = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < ANSWERS; i++) {
            struct nibble_request request_params = request_list->request_params[i];
            request_params.listener = listener_of(&delivered[i]);
            need_add(&world->generator, &request_params);
        }
        run(&world->generator);
        for (int i = 0; i < ANSWERS; i++) {
            check_same(&delivered[i], &alone[i], i);
            cached += delivered[i].usage.cached_tokens;
        }
    }
    return cached;
}

static void test_the_same_tokens_whatever_happens(void **state)
{
    (void)state;
    static const struct {
        int sequences, batch, threads;
        bool small, no_prefix_cache;
    } worlds[] = {
        { 8, 0, 2, false, false },
        { 3, 24, 1, false, true },
        { 8, 17, 2, true, false },
        { 8, 40, 1, true, true },
    };
    static struct request_list request_list;
    static struct delivered alone[ANSWERS];
    uint64_t preemptions = 0;
    make_requests(&request_list, 11);
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        struct world world;
        struct nibble_scheduler_options scheduling = { .no_prefix_cache = true };
        world_open(&world, &kinds[k], &(struct engine_options){ .plan.user.threads = 1 }, &scheduling);
        for (int i = 0; i < ANSWERS; i++)
            answer(&world, request_list.request_params[i], &alone[i]);
        world_close(&world);
        for (size_t i = 0; i < COUNT_OF(worlds); i++) {
            struct engine_options options = { .plan.user.batch_tokens = worlds[i].batch,
                                              .plan.user.threads = worlds[i].threads };
            if (worlds[i].small) { // little more than for one
                world_open(&world, &kinds[k], &options, &scheduling);
                options.plan.user.kv_cache_bytes = world.engine.plan.pool_bytes * 5 / 4;
                world_close(&world);
            }
            options.plan.user.max_num_seqs = worlds[i].sequences;
            scheduling.no_prefix_cache = worlds[i].no_prefix_cache;
            world_open(&world, &kinds[k], &options, &scheduling);
            int cached = answer_together(&world, &request_list, alone);
            struct nibble_scheduler_stats stats;
            generator_stats(&world.generator, &stats);
            assert_int_equal(cached > 0, !worlds[i].no_prefix_cache);
            assert_true(stats.prefix_hits == (uint64_t)cached);
            preemptions += stats.preemptions;
            world_close(&world);
            scheduling.no_prefix_cache = true;
        }
    }
    assert_true(preemptions > 10);
}

// Reported logprobs are those of the model's logits.
static void test_logprobs_are_the_models_own(void **state)
{
    (void)state;
    struct world world;
    struct reader reader;
    struct error err;
    static struct delivered delivered;
    static float logits[CONTEXT * VOCABULARY];
    struct nibble_request request_params = plain_request(20);
    request_params.sampling =
        (struct nibble_sampling){ .temperature = 1.5, .top_p = 0.8, .repetition_penalty = 1.3, .seed = 4 };
    request_params.bias = (const struct nibble_bias[]){ { 7, 3 } };
    request_params.bias_count = 1;
    request_params.score_prompt = true;
    request_params.top_logprobs = TOP;
    world_open_plain(&world);
    answer(&world, request_params, &delivered);
    assert_int_equal(delivered.prompt_count, COUNT_OF(some_ids));
    assert_int_equal(delivered.count, 20);
    int total = delivered.prompt_count + delivered.count;
    reader_open(&reader, &world.engine);
    assert_true(reader_append(&reader, delivered.ids, (size_t)total, &err) && reader_score(&reader, logits, &err));
    reader_close(&reader);
    assert_true(delivered.logprobs[0] == 1); // nothing comes before the first
    for (int i = 1; i < total; i++) {
        const float *row = logits + (i - 1) * VOCABULARY;
        double sum = 0;
        int best = 0;
        for (int id = 0; id < VOCABULARY; id++) {
            sum += exp(row[id]);
            best = row[id] > row[best] ? id : best;
        }
        assert_true(fabs(delivered.logprobs[i] - (row[delivered.ids[i]] - log(sum))) < 1e-5);
        assert_int_equal(delivered.top[i][0].id, best);
        for (int j = 0; j < TOP; j++) {
            assert_true(fabs(delivered.top[i][j].logprob - (row[delivered.top[i][j].id] - log(sum))) < 1e-5);
            assert_true(!j || delivered.top[i][j].logprob <= delivered.top[i][j - 1].logprob);
        }
    }
    world_close(&world);
}

// ---- how answers end ----

static void test_ends(void **state)
{
    (void)state;
    struct world world;
    static struct delivered whole, delivered;
    world_open_plain(&world);
    answer(&world, plain_request(12), &whole);
    const int32_t *said = whole.ids + COUNT_OF(some_ids);
    assert_int_equal(whole.reason, NIBBLE_FINISH_LENGTH);
    assert_int_equal(whole.count, 12);
    assert_int_equal(whole.usage.answer_tokens, 12);
    assert_int_equal(whole.usage.prompt_tokens, COUNT_OF(some_ids));
    assert_true(whole.usage.arrived <= whole.usage.admitted && whole.usage.admitted <= whole.usage.first_token
                && whole.usage.first_token <= whole.usage.finished);

    int at = 0; // the first place of some token that is said later on
    while (at < 11 && said[at] == said[at + 1])
        at++;
    int32_t stop = said[at + 1];
    for (at = 0; said[at] != stop; at++)
        ;
    struct nibble_request request_params = plain_request(12);
    request_params.stop_ids = &stop;
    request_params.stop_count = 1;
    answer(&world, request_params, &delivered);
    assert_int_equal(delivered.reason, NIBBLE_FINISH_STOP);
    assert_int_equal(delivered.count, at + 1);
    request_params.min_tokens = at + 2; // not so early
    answer(&world, request_params, &delivered);
    assert_true(delivered.count >= at + 2 && delivered.ids[COUNT_OF(some_ids) + (size_t)at] != stop);

    delivered.end_at = 5; // the listener has delivered enough
    answer(&world, plain_request(12), &delivered);
    assert_int_equal(delivered.reason, NIBBLE_FINISH_STOP);
    assert_int_equal(delivered.count, 5);
    delivered.end_at = 0;
    request_params = plain_request(0); // nothing is drawn
    request_params.score_prompt = true;
    request_params.top_logprobs = 0;
    answer(&world, request_params, &delivered);
    assert_int_equal(delivered.reason, NIBBLE_FINISH_LENGTH);
    assert_int_equal(delivered.count, 0);
    assert_int_equal(delivered.prompt_count, COUNT_OF(some_ids));
    world_close(&world);
}

static void test_cancelling_frees_at_once(void **state)
{
    (void)state;
    struct world world;
    static struct delivered delivered[3];
    uint64_t names[3];
    struct nibble_step step;
    world_open(&world, &kinds[3], &(struct engine_options){ .plan.user.max_num_seqs = 2, .plan.user.threads = 1 },
               &(struct nibble_scheduler_options){ 0 });
    for (int i = 0; i < 3; i++) {
        struct nibble_request request_params = plain_request(100);
        request_params.listener = listener_of(&delivered[i]);
        names[i] = need_add(&world.generator, &request_params);
    }
    for (int i = 0; i < 5; i++)
        assert_true(generator_step(&world.generator, &step));
    for (int i = 2; i >= 0; i--) { // one that waits, then those that run
        generator_cancel(&world.generator, names[i]);
        assert_int_equal(delivered[i].finishes, 1);
        assert_int_equal(delivered[i].reason, NIBBLE_FINISH_CANCELLED);
        assert_int_equal(delivered[i].count, i == 2 ? 0 : 5);
        generator_cancel(&world.generator, names[i]); // again is nothing
        generator_cancel(&world.generator, 12345);
    }
    for (int i = 0; i < world.engine.plan.class_count; i++)
        assert_int_equal(world.engine.pools[i].free_count, world.engine.pools[i].page_count);
    assert_false(generator_step(&world.generator, &step));

    struct nibble_request request_params = plain_request(100); // closing cancels what is left
    request_params.listener = listener_of(&delivered[0]);
    need_add(&world.generator, &request_params);
    generator_step(&world.generator, &step);
    world_close(&world);
    assert_int_equal(delivered[0].reason, NIBBLE_FINISH_CANCELLED);
}

// ---- listeners that interfere ----

struct rules {
    struct delivered delivered;
    int asked;
    uint64_t work; // that a mask takes
};

// Only tokens of the same remainder by 5 as the number of those to come.
static uint64_t only_some(void *context, int tokens_left, uint32_t *mask)
{
    struct rules *rules = context;
    rules->asked++;
    for (int id = 0; id < VOCABULARY; id++) {
        assert_true(mask[id / 32] >> id % 32 & 1);
        if (id % 5 != tokens_left % 5)
            mask[id / 32] &= ~(1u << id % 32);
    }
    return rules->work;
}

static int32_t next_to_it(void *context, int tokens_left, int32_t drawn)
{
    (void)context;
    assert_int_equal(drawn % 5, tokens_left % 5);
    return tokens_left % 2 ? (drawn + 1) % VOCABULARY : drawn;
}

static void test_listeners_restrict_and_choose(void **state)
{
    (void)state;
    static struct rules rules[4];
    static struct delivered alone;
    struct world world;
    world_open_plain(&world);
    answer(&world, plain_request(20), &alone);
    for (int i = 0; i < 4; i++) { // with and without rules, in the same steps
        struct nibble_request request_params = plain_request(20);
        request_params.sampling.temperature = i == 2 ? 1 : 0;
        request_params.listener = listener_of(&rules[i].delivered);
        request_params.listener.restrict_tokens = i ? only_some : NULL;
        request_params.listener.choose_token = i == 3 ? next_to_it : NULL;
        need_add(&world.generator, &request_params);
    }
    run(&world.generator);
    check_same(&rules[0].delivered, &alone, 0);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(rules[i].asked, 20);
        for (int j = 0; j < 20; j++) {
            int shift = i == 3 && (20 - j) % 2;
            assert_int_equal(rules[i].delivered.ids[(int)COUNT_OF(some_ids) + j] % 5, (20 - j + shift) % 5);
        }
    }
    world_close(&world);
}

// One plain answer and others whose masks are so dear that a step has one of them, two at most: the plain one gets a
// token in every step, the others take turns, and all draw what they draw otherwise.
static void test_dear_masks_hold_up_nobody(void **state)
{
    (void)state;
    enum { DEAR = 5, TOKENS = 40, PLAIN_TOKENS = 80 };
    static struct rules cheap[DEAR + 1], dear[DEAR + 1];
    struct rules *rounds[] = { cheap, dear, dear };
    for (int round = 0; round < 3; round++) {
        struct world world;
        struct engine_options options = { .plan.user.max_num_seqs = 8, .plan.user.threads = 2 };
        if (round == 2) { // some are preempted while they sit out
            world_open(&world, &kinds[0], &options, &(struct nibble_scheduler_options){ 0 });
            int pages = world.engine.pools[0].page_count;
            options.plan.user.kv_cache_bytes = world.engine.plan.pool_bytes / pages * 14; // hardly more than for one
            world_close(&world);
        }
        world_open(&world, &kinds[0], &options, &(struct nibble_scheduler_options){ 0 });
        struct rules *rules = rounds[round];
        for (int i = 0; i <= DEAR; i++) {
            struct nibble_request request_params = plain_request(i ? TOKENS : PLAIN_TOKENS);
            request_params.score_prompt = i == 1;
            request_params.top_logprobs = TOP;
            request_params.listener = listener_of(&rules[i].delivered);
            request_params.listener.restrict_tokens = i ? only_some : NULL;
            rules[i].asked = 0;
            rules[i].work = round ? GENERATE_MASK_WORK_MAX : 0;
            need_add(&world.generator, &request_params);
        }
        struct nibble_step step;
        int steps = 0, before = 0;
        for (; generator_step(&world.generator, &step); steps++) {
            int masks = -before, plain = rules[0].delivered.finishes ? PLAIN_TOKENS : steps + 1;
            before = 0;
            for (int i = 1; i <= DEAR; i++)
                before += rules[i].asked;
            masks += before;
            assert_true(steps < 10000 && (!round || masks <= 2)); // one for each thread
            if (round < 2)
                assert_int_equal(rules[0].delivered.count, plain);
        }
        struct nibble_scheduler_stats stats;
        generator_stats(&world.generator, &stats);
        assert_int_equal(stats.preemptions > 0, round == 2);
        for (int i = 0; i <= DEAR; i++) {
            check_same(&rules[i].delivered, &cheap[i].delivered, i);
            assert_true(!i || rules[i].asked == TOKENS);
        }
        world_close(&world);
    }
}

// ---- refusals and damage ----

static void test_wishes_that_make_no_sense(void **state)
{
    (void)state;
    struct world world;
    struct error err;
    int32_t wrong = VOCABULARY, negative = -1;
    static int32_t many[CONTEXT + 1];
    const struct nibble_bias no_number = { 1, NAN }, no_token = { VOCABULARY, 1 };
    world_open_plain(&world);
#define REFUSED(member, value, says)                                                         \
    do {                                                                                     \
        struct nibble_request request_params = plain_request(10);                            \
        request_params.member = (value);                                                     \
        request_params.stop_count = request_params.stop_ids ? 1 : request_params.stop_count; \
        request_params.bias_count = request_params.bias ? 1 : 0;                             \
        assert_int_equal(generator_add(&world.generator, &request_params, &err), 0);         \
        assert_says(err, says);                                                              \
    } while (0)
    REFUSED(prompt_count, 0, "no tokens");
    REFUSED(max_tokens, CONTEXT - 7, "a prompt of 8 tokens with an answer of 193 is longer than the context of 200");
    REFUSED(max_tokens, INT32_MAX, "longer than the context");
    REFUSED(max_tokens, -1, "-1");
    REFUSED(min_tokens, 11, "11 to 10");
    REFUSED(prompt, &wrong, "token id 40");
    REFUSED(stop_ids, &negative, "a stop id: token id -1");
    REFUSED(stop_count, VOCABULARY + 1, "41 stop ids");
    REFUSED(bias, &no_token, "a bias: token id 40");
    REFUSED(bias, &no_number, "bias of token 1");
    REFUSED(top_logprobs, GENERATE_TOP_MAX + 1, "up to 128");
    REFUSED(sampling.temperature, -1, "temperature");
#undef REFUSED
    struct nibble_request request_params = plain_request(0);
    request_params.prompt = many;
    request_params.prompt_count = CONTEXT + 1;
    assert_int_equal(generator_add(&world.generator, &request_params, &err), 0);
    request_params.prompt_count = SIZE_MAX;
    assert_int_equal(generator_add(&world.generator, &request_params, &err), 0);
    request_params.prompt_count = CONTEXT; // just fits
    static struct delivered delivered;
    answer(&world, request_params, &delivered);
    assert_int_equal(delivered.reason, NIBBLE_FINISH_LENGTH);
    world_close(&world);
}

static void test_damage_fails_one_request_alone(void **state)
{
    (void)state;
    struct world world;
    static struct delivered alone, delivered[2];
    world_open_plain(&world);
    answer(&world, plain_request(10), &alone);
    float damage = NAN;
    struct tensor *embedding = tiny_find(&world.tiny, "model.embed_tokens.weight");
    memcpy((char *)embedding->data + 30 * 32 * sizeof damage, &damage, sizeof damage); // of token 30
    for (int i = 0; i < 2; i++) {
        int32_t bad[] = { 1, 2, 30 };
        struct nibble_request request_params = plain_request(10);
        request_params.listener = listener_of(&delivered[i]);
        if (i == 1)
            request_params.prompt = bad, request_params.prompt_count = 3;
        need_add(&world.generator, &request_params);
    }
    run(&world.generator);
    check_same(&delivered[0], &alone, 0);
    assert_int_equal(delivered[1].reason, NIBBLE_FINISH_FAILED);
    assert_int_equal(delivered[1].count, 0);
    assert_non_null(strstr(delivered[1].error, "not finite after token 2"));
    world_close(&world);
}

// ---- memory ----

#ifndef SANITIZED
// Every allocation of the process passes here.
static _Atomic long allocations;

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}
void *realloc(void *old, size_t bytes)
{
    allocations++;
    return __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes)
{
    allocations++;
    return __libc_memalign(alignment, bytes);
}
#endif

static void test_continuing_allocates_nothing(void **state)
{
    (void)state;
#ifdef SANITIZED
    skip(); // the sanitizer has an allocator of its own
#else
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        struct world world;
        struct nibble_step step;
        static struct rules rules[4];
        world_open(&world, &kinds[k], &(struct engine_options){ .plan.user.max_num_seqs = 4, .plan.user.threads = 2 },
                   &(struct nibble_scheduler_options){ 0 });
        for (int i = 0; i < 4; i++) {
            struct nibble_request request_params = plain_request(100);
            request_params.sampling = (struct nibble_sampling){ .temperature = 0.8,
                                                                .top_p = 0.9,
                                                                .top_k = i,
                                                                .min_p = 0.01,
                                                                .repetition_penalty = 1.1,
                                                                .presence_penalty = 0.1,
                                                                .seed = 1 };
            request_params.top_logprobs = TOP;
            request_params.listener = listener_of(&rules[i].delivered);
            request_params.listener.restrict_tokens = only_some;
            need_add(&world.generator, &request_params);
        }
        generator_step(&world.generator, &step);
        long before = allocations;
        assert_true(before > 0);
        for (int i = 0; i < 80; i++) { // across pages and windows
            assert_true(generator_step(&world.generator, &step));
            assert_true(step.answers == 4 && step.tokens == 4);
        }
        assert_int_equal(allocations - before, 0);
        world_close(&world);
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_tokens_whatever_happens),
        cmocka_unit_test(test_logprobs_are_the_models_own),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_cancelling_frees_at_once),
        cmocka_unit_test(test_listeners_restrict_and_choose),
        cmocka_unit_test(test_dear_masks_hold_up_nobody),
        cmocka_unit_test(test_wishes_that_make_no_sense),
        cmocka_unit_test(test_damage_fails_one_request_alone),
        cmocka_unit_test(test_continuing_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
