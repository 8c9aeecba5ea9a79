// SPDX-License-Identifier: Apache-2.0
// Texts on tiny models: however a text comes to be in the cache, its logits have the same bits.
#include <math.h>

#include "container.h"
#include "engine/sampling/sampler.h"
#include "engine/reader.h"
#include "tiny.h"

enum { VOCABULARY = 40, CONTEXT = 200, WINDOW = 20 };

static const struct tiny_sizes sizes = { .layers = 3,
                                         .hidden = 32,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .feed_forward = 48,
                                         .vocabulary = VOCABULARY,
                                         .context = CONTEXT };

// Models and caches of every kind: full, all windowed, mixed; plain, quantised, different by side and layer.
static const struct kind {
    const char *type, *more, *cache;
} kinds[] = {
    { "llama", "{}", "auto" },
    { "llama", "{}", "0:float32,1:fp8/nvfp4,2:int8_per_token_head" },
    { "mistral", "{\"sliding_window\":20}", "nvfp4" },
    { "gemma3_text", "{\"sliding_window\":20,\"sliding_window_pattern\":2}", "int4_per_token_head/fp8_per_token_head" },
    { "qwen3", "{}", "fp8_e5m2" },
};

struct world {
    struct tiny tiny;
    struct engine engine;
};

static struct engine_options options_of(const struct kind *kind)
{
    return (struct engine_options){ .plan = { .user.kv_cache_dtype = kind->cache, .user.max_num_seqs = 2 },
                                    .plan.user.threads = 1 };
}

static void world_build(struct world *world, const struct kind *kind)
{
    *world = (struct world){ .tiny.seed = 1 };
    tiny_model(&world->tiny, kind->type, &sizes, kind->more);
}

static void world_start(struct world *world, const struct engine_options *options)
{
    struct error err;
    if (!engine_open(&world->engine, &world->tiny.checkpoint, options, &err))
        fail_msg("%s", err.text);
}

static void world_open(struct world *world, const struct kind *kind, const struct engine_options *options)
{
    world_build(world, kind);
    world_start(world, options);
}

// Every page must have come back.
static void world_close(struct world *world)
{
    for (int i = 0; i < world->engine.plan.class_count; i++) {
        assert_int_equal(world->engine.pools[i].free_count, world->engine.pools[i].page_count);
        kv_pool_check(&world->engine.pools[i]);
    }
    engine_close(&world->engine);
    checkpoint_close(&world->tiny.checkpoint);
}

static void random_text(uint64_t *seed, int32_t *ids, int count)
{
    for (int i = 0; i < count; i++)
        ids[i] = random_between(seed, 0, VOCABULARY - 1);
}

static void assign(struct reader *reader, const int32_t *ids, int count)
{
    struct error err;
    if (!reader_assign(reader, ids, (size_t)count, &err))
        fail_msg("%s", err.text);
    assert_int_equal(reader->sequence.count, count);
}

// The logits after a sequence's last token, copied.
static void read_logits(struct reader *reader, float *out)
{
    const float *logits;
    struct error err;
    if (!reader_read(reader, &logits, &err))
        fail_msg("%s", err.text);
    assert_int_equal(reader->sequence.cached, reader->sequence.count);
    memcpy(out, logits, VOCABULARY * sizeof *out);
}

// The logits of a fresh sequence.
static void check_as_fresh(struct engine *engine, const int32_t *ids, int count, const float *found)
{
    struct reader fresh;
    float expected[VOCABULARY];
    reader_open(&fresh, engine);
    assign(&fresh, ids, count);
    read_logits(&fresh, expected);
    reader_close(&fresh);
    assert_memory_equal(found, expected, sizeof expected);
}

// ---- the same bits ----

static bool has_window(const struct plan *plan)
{
    for (int i = 0; i < plan->class_count; i++)
        if (plan->classes[i].kind.window)
            return true;
    return false;
}

static void test_the_common_beginning_stays(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        struct world world;
        struct reader reader;
        struct engine_options options = options_of(&kinds[k]);
        int32_t ids[CONTEXT];
        int count = 30, kept = 0;
        options.plan.user.batch_tokens = 24;
        world_open(&world, &kinds[k], &options);
        reader_open(&reader, &world.engine);
        random_text(&seed, ids, CONTEXT);
        for (int round = 0; round < 15; round++) {
            float logits[VOCABULARY];
            int common = kept < reader.sequence.cached ? kept : reader.sequence.cached;
            assign(&reader, ids, count);
            int cached = reader.sequence.cached;
            assert_true(cached == common || (cached == 0 && has_window(&world.engine.plan)));
            read_logits(&reader, logits);
            check_as_fresh(&world.engine, ids, count, logits);
            kept = random_between(&seed, 0, count); // the next text begins alike
            random_text(&seed, ids + kept, CONTEXT - kept);
            count = random_between(&seed, kept > 1 ? kept : 1, CONTEXT);
            if (kept < count && ids[kept] == reader.sequence.ids[kept])
                ids[kept] = (ids[kept] + 1) % VOCABULARY;
        }
        reader_close(&reader);
        world_close(&world);
    }
}

static void test_scores_do_not_depend_on_chunks(void **state)
{
    (void)state;
    static const int batches[] = { 0, 1, 30, 100 }, threads[] = { 1, 1, 2, 3 };
    static float expected[CONTEXT * VOCABULARY], found[CONTEXT * VOCABULARY];
    int32_t ids[CONTEXT];
    uint64_t seed = 3;
    random_text(&seed, ids, CONTEXT);
    for (size_t k = 0; k < COUNT_OF(kinds); k++)
        for (size_t i = 0; i < COUNT_OF(batches); i++) {
            struct world world;
            struct reader reader;
            struct error err;
            struct engine_options options = options_of(&kinds[k]);
            options.plan.user.batch_tokens = batches[i];
            options.plan.user.threads = threads[i];
            world_open(&world, &kinds[k], &options);
            reader_open(&reader, &world.engine);
            float *out = i ? found : expected;
            for (int at = 0, count; at < CONTEXT; at += count) { // appended in pieces, too
                count = i ? random_between(&seed, 1, CONTEXT - at) : CONTEXT;
                assert_true(reader_append(&reader, ids + at, (size_t)count, &err));
                assert_true(reader_score(&reader, out + at * VOCABULARY, &err));
            }
            assert_memory_equal(out, expected, sizeof expected);
            float last[VOCABULARY]; // reading the last token again changes nothing
            read_logits(&reader, last);
            assert_memory_equal(last, expected + (CONTEXT - 1) * VOCABULARY, sizeof last);
            reader_close(&reader);
            world_close(&world);
        }
}

static void test_going_back_behind_the_window(void **state)
{
    (void)state;
    struct world world;
    struct reader reader;
    struct engine_options options = options_of(&kinds[2]);
    float logits[VOCABULARY];
    int32_t ids[CONTEXT];
    uint64_t seed = 4;
    random_text(&seed, ids, CONTEXT);
    options.plan.user.batch_tokens = 16;
    world_open(&world, &kinds[2], &options);
    reader_open(&reader, &world.engine);
    assign(&reader, ids, 180);
    read_logits(&reader, logits);
    int32_t *pages = reader.sequence.tables[0].pages;
    assert_int_equal(pages[0], KV_PAGE_NONE); // left the window long ago
    assert_true(pages[11] != KV_PAGE_NONE);
    assign(&reader, ids, 178); // still within what is held
    assert_int_equal(reader.sequence.cached, 178);
    read_logits(&reader, logits);
    check_as_fresh(&world.engine, ids, 178, logits);
    assign(&reader, ids, 60); // not any more
    assert_int_equal(reader.sequence.cached, 0);
    read_logits(&reader, logits);
    check_as_fresh(&world.engine, ids, 60, logits);
    reader_close(&reader);
    world_close(&world);
}

static void test_two_sequences_do_not_meet(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        struct world world;
        struct reader readers[2];
        struct engine_options options = options_of(&kinds[k]);
        static float logits[2][CONTEXT][VOCABULARY];
        int32_t ids[2][CONTEXT];
        struct error err;
        world_open(&world, &kinds[k], &options);
        for (int s = 0; s < 2; s++) {
            random_text(&seed, ids[s], CONTEXT);
            reader_open(&readers[s], &world.engine);
        }
        int counts[2] = { 0 };
        while (counts[0] < CONTEXT || counts[1] < CONTEXT) {
            int s = random_between(&seed, 0, 1), more = random_between(&seed, 1, 30);
            more = more < CONTEXT - counts[s] ? more : CONTEXT - counts[s];
            if (!more)
                continue;
            assert_true(reader_append(&readers[s], ids[s] + counts[s], (size_t)more, &err));
            counts[s] += more;
            read_logits(&readers[s], logits[s][counts[s] - 1]);
        }
        for (int s = 0; s < 2; s++)
            reader_close(&readers[s]);
        for (int s = 0; s < 2; s++)
            check_as_fresh(&world.engine, ids[s], CONTEXT, logits[s][CONTEXT - 1]);
        world_close(&world);
    }
}

// ---- limits ----

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct world world;
    struct reader reader;
    struct error err;
    struct engine_options options = options_of(&kinds[0]);
    float logits[VOCABULARY];
    int32_t ids[CONTEXT + 1];
    uint64_t seed = 6;
    random_text(&seed, ids, CONTEXT + 1);
    world_open(&world, &kinds[0], &options);
    reader_open(&reader, &world.engine);
    assert_false(reader_assign(&reader, ids, CONTEXT + 1, &err));
    assert_says(err, "context of 200 tokens");
    assert_null(strstr(err.text, "--max-model-len")); // the model itself has no more
    assert_false(reader_assign(&reader, ids, SIZE_MAX / 8, &err));
    assign(&reader, ids, CONTEXT);
    assert_false(reader_append(&reader, ids, 1, &err));
    assert_says(err, "200 tokens and 1 more");
    read_logits(&reader, logits);

    static const int32_t wrong[] = { -1, VOCABULARY, INT32_MAX, INT32_MIN };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        int32_t text[] = { ids[0], ids[1], wrong[i] };
        char number[32];
        snprintf(number, sizeof number, "token id %d ", wrong[i]);
        assert_false(reader_assign(&reader, text, 3, &err));
        assert_says(err, number);
        assert_says(err, "0 to 39");
    }
    assign(&reader, ids, 50); // and all is well
    read_logits(&reader, logits);
    check_as_fresh(&world.engine, ids, 50, logits);
    reader_close(&reader);
    world_close(&world);

    options.plan.user.max_model_len = 64;
    world_open(&world, &kinds[0], &options);
    reader_open(&reader, &world.engine);
    assert_false(reader_assign(&reader, ids, 65, &err));
    assert_says(err, "--max-model-len");
    reader_close(&reader);
    world_close(&world);
}

static void test_one_reader_too_many(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        struct world world;
        struct reader readers[3];
        struct engine_options options = options_of(&kinds[k]);
        struct error err;
        float logits[VOCABULARY];
        const float *ignored;
        int32_t ids[CONTEXT];
        uint64_t seed = 7;
        random_text(&seed, ids, CONTEXT);
        world_open(&world, &kinds[k], &options);
        for (int s = 0; s < 3; s++) {
            reader_open(&readers[s], &world.engine);
            assign(&readers[s], ids, CONTEXT);
        }
        read_logits(&readers[0], logits);
        read_logits(&readers[1], logits);
        assert_false(reader_read(&readers[2], &ignored, &err));
        assert_says(err, "open fewer sequences");
        reader_close(&readers[0]);
        read_logits(&readers[2], logits);
        reader_close(&readers[2]);
        check_as_fresh(&world.engine, ids, CONTEXT, logits);
        reader_close(&readers[1]);
        world_close(&world);
    }
}

// ---- damage ----

static void put_value(struct tiny *tiny, const char *name, size_t index, float value)
{
    memcpy((char *)tiny_find(tiny, name)->data + index * sizeof value, &value, sizeof value);
}

static void test_damaged_weights_are_noticed(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        size_t index;
        float value;
    } cases[] = {
        { "model.embed_tokens.weight", 3 * 32, NAN },
        { "model.layers.1.mlp.up_proj.weight", 5, NAN },
        { "model.layers.2.self_attn.v_proj.weight", 0, INFINITY },
        { "lm_head.weight", 0, NAN },
        { "lm_head.weight", VOCABULARY * 32 - 1, NAN }, // in one logit alone, and not the first
        { "lm_head.weight", 7 * 32, -INFINITY },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct world world;
        struct reader reader;
        struct error err;
        struct engine_options options = options_of(&kinds[0]);
        const float *ignored;
        static float scores[4 * VOCABULARY];
        world_build(&world, &kinds[0]);
        put_value(&world.tiny, cases[i].tensor, cases[i].index, cases[i].value);
        world_start(&world, &options);
        reader_open(&reader, &world.engine);
        assign(&reader, (const int32_t[]){ 1, 2, 3, 4 }, 4);
        assert_false(reader_score(&reader, scores, &err));
        assert_says(err, "not finite");
        assign(&reader, (const int32_t[]){ 3 }, 1);
        assert_false(reader_read(&reader, &ignored, &err));
        assert_says(err, "not finite after token 0");
        reader_close(&reader);
        world_close(&world);
    }
}

static void test_engines_that_do_not_open(void **state)
{
    (void)state;
    struct engine engine;
    struct error err;
    struct tiny tiny = { .without = "model.layers.2.mlp.down_proj.weight" };
    struct engine_options options = options_of(&kinds[0]);
    tiny_model(&tiny, "llama", &sizes, "{}");
    assert_false(engine_open(&engine, &tiny.checkpoint, &options, &err));
    assert_says(err, tiny.without);
    checkpoint_close(&tiny.checkpoint);

    tiny = (struct tiny){ 0 };
    tiny_model(&tiny, "llama", &sizes, "{}");
    options.plan.user.threads = 1000;
    assert_false(engine_open(&engine, &tiny.checkpoint, &options, &err));
    assert_says(err, "1000 threads");
    options = options_of(&kinds[0]);
    options.plan.user.kv_cache_dtype = "nvfp5";
    assert_false(engine_open(&engine, &tiny.checkpoint, &options, &err));
    assert_true(err.usage);
    options = options_of(&kinds[0]);
    put_value(&tiny, "model.layers.1.input_layernorm.weight", 31, NAN);
    assert_false(engine_open(&engine, &tiny.checkpoint, &options, &err));
    assert_says(err, "model.layers.1.input_layernorm.weight holds a value that is not finite at 31");
    checkpoint_close(&tiny.checkpoint);
}

// ---- progress ----

static void keep_progress(void *context, double done)
{
    double *last = context;
    assert_true(done >= *last && done <= 1);
    *last = done;
}

static void test_progress_goes_from_0_to_1(void **state)
{
    (void)state;
    static const char *const without[] = { NULL, "lm_head.weight" }; // a head that is the embedding is not read twice
    for (size_t i = 0; i < COUNT_OF(without); i++) {
        struct tiny tiny = { .without = without[i] };
        struct engine engine;
        struct error err;
        double done = 0;
        struct engine_options options = { .plan.user.threads = 1,
                                          .plan.user.progress = keep_progress,
                                          .plan.user.progress_context = &done };
        struct tiny_sizes large = sizes;
        large.vocabulary = 80000; // megabytes, so that there is something to tell on the way
        tiny_model(&tiny, "llama", &large, "{}");
        assert_true(engine_open(&engine, &tiny.checkpoint, &options, &err));
        assert_true(done == 1);
        engine_close(&engine);
        checkpoint_close(&tiny.checkpoint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_common_beginning_stays),   cmocka_unit_test(test_scores_do_not_depend_on_chunks),
        cmocka_unit_test(test_going_back_behind_the_window), cmocka_unit_test(test_two_sequences_do_not_meet),
        cmocka_unit_test(test_what_does_not_fit_is_refused), cmocka_unit_test(test_one_reader_too_many),
        cmocka_unit_test(test_damaged_weights_are_noticed),  cmocka_unit_test(test_engines_that_do_not_open),
        cmocka_unit_test(test_progress_goes_from_0_to_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
