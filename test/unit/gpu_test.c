// SPDX-License-Identifier: Apache-2.0
// The engine's steps on a GPU as they go to its driver, which fake_cuda.c stands in for: what is queued in which order,
// and that two steps under way do not share anything on the host. The model has no ops; kernels do nothing.
#include <dlfcn.h>
#include <string.h>

#include "container.h"
#include "engine/engine.h"
#include "engine/gpu/internal.h"
#include "fake_cuda.h"

enum { SEQUENCES = 4, VOCABULARY = 50 };

static struct fake_cuda *fake;

static struct world {
    struct engine engine;
    struct gpu *gpu;
    int32_t ids[SEQUENCES], positions[SEQUENCES], output_rows[SEQUENCES], pages[1];
    struct batch_sequence sequences[SEQUENCES];
    float logits[SEQUENCES * VOCABULARY];
} world;

static void need(bool ok, const struct error *err)
{
    if (!ok)
        fail_msg("%s", err->text);
}

static int world_open(void **state)
{
    static const char kernels[] = "sample_peaks sample_masses sample_draw";
    struct error err;
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || !(fake = dlsym(library, "fake_cuda")))
        fail_msg("libcuda.so.1 is not the one of this test: LD_LIBRARY_PATH names it in test/meson.build");
    *fake = (struct fake_cuda)FAKE_CUDA_WELL;
    fake->params_bytes = sizeof(struct cuda_sampling);
    world = (struct world){ 0 };
    struct engine *engine = &world.engine;
    engine->plan = (struct plan){ .batch_tokens = SEQUENCES,
                                  .outputs = SEQUENCES,
                                  .max_num_seqs = SEQUENCES,
                                  .max_model_len = 16,
                                  .class_count = 1 };
    engine->model.config.vocabulary = VOCABULARY;
    engine->buffers[BUFFER_LOGITS] = world.logits;
    engine->batch = (struct batch){ .ids = world.ids,
                                    .positions = world.positions,
                                    .sequence = world.sequences,
                                    .output_rows = world.output_rows,
                                    .page_tokens = { KV_PAGE_TOKENS } };
    engine->gpu = world.gpu = memory_new(1, sizeof *world.gpu);
    world.gpu->cuda = cuda_open(0, &err);
    need(world.gpu->cuda, &err);
    need(cuda_load_image(world.gpu->cuda, kernels, sizeof kernels, "sample", &err), &err);
    need(gpu_open_batch(world.gpu, engine, &err), &err);
    return 0;
}

static int world_close(void **state)
{
    (void)state;
    gpu_close(world.gpu);
    assert_int_equal(fake->live, 0);
    return 0;
}

// One token of each sequence. Returns the step's number.
static int start(int sequences, int32_t id, bool drawn)
{
    const struct nibble_sampling sampling = { .top_p = 1 };
    struct error err;
    struct batch *batch = &world.engine.batch;
    batch->tokens = batch->sequences = batch->outputs = sequences;
    for (int i = 0; i < sequences; i++) {
        world.ids[i] = id < 0 ? ~i : id;
        world.positions[i] = 3;
        world.output_rows[i] = i;
        world.sequences[i] = (struct batch_sequence){ .first = i, .count = 1, .pages = { world.pages } };
        if (drawn)
            assert_true(engine_queue_sampling(&world.engine, i, &sampling, 4));
    }
    int step = engine_start(&world.engine, &err);
    need(step, &err);
    return step;
}

static struct engine_result finish(int step)
{
    struct engine_result result;
    struct error err;
    need(engine_finish(&world.engine, step, &result, &err), &err);
    return result;
}

static void check_queued(const char *const *expected, int count)
{
    assert_int_equal(fake->queued_count, count);
    for (int i = 0; i < count; i++)
        assert_string_equal(fake->queued[i], expected[i]);
    fake->queued_count = 0;
}

static void test_a_step_in_order(void **state)
{
    static const char *const drawn[] = { "cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2",
                                         "cuEventRecord", "cuEventSynchronize" };
    static const char *const looked_at[] = { "cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2",
                                             "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventSynchronize" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        finish(start(2, 7, true));
        check_queued(drawn, COUNT_OF(drawn));
        finish(start(2, 7, false));
        check_queued(looked_at, COUNT_OF(looked_at));
    }
    assert_int_equal(world.gpu->graph_count, 1);
}

// The second step is queued behind the first before that is waited for, and takes ids from what it drew.
static void test_a_step_behind_another(void **state)
{
    static const char *const both[] = { "cuMemcpyHtoDAsync_v2", "cuGraphLaunch",        "cuMemcpyDtoHAsync_v2",
                                        "cuEventRecord",        "cuMemcpyHtoDAsync_v2", "cuGraphLaunch",
                                        "cuMemcpyDtoHAsync_v2", "cuEventRecord" };
    const struct gpu *gpu = world.gpu;
    (void)state;
    assert_false(engine_may_follow(&world.engine, 0));
    gpu->tokens[0] = 11;
    gpu->tokens[1] = 12;
    int first = start(2, 7, true);
    assert_true(engine_may_follow(&world.engine, first));
    gpu->tokens[0] = 21;
    gpu->tokens[1] = ENGINE_NOT_FINITE;
    int second = start(2, -1, true);
    check_queued(both, COUNT_OF(both));
    assert_ptr_equal(gpu->view.drawn, gpu->tokens);
    assert_int_equal(gpu->view.ids[0], ~0);
    assert_int_equal(gpu->view.ids[1], ~1);
    assert_int_not_equal(first, second);
    assert_false(engine_may_follow(&world.engine, first));  // it is not the last
    assert_false(engine_may_follow(&world.engine, second)); // two are enough
    struct engine_result result = finish(first);
    const void *waited = fake->waited;
    assert_true(result.drawn[0] == 11 && result.drawn[1] == 12);
    assert_true(engine_may_follow(&world.engine, second));
    result = finish(second);
    assert_ptr_not_equal(fake->waited, waited);
    assert_true(result.drawn[0] == 21 && result.drawn[1] == ENGINE_NOT_FINITE);
}

// Somebody else's step between two of ours takes the tokens' place.
static void test_others_in_between(void **state)
{
    (void)state;
    int ours = start(1, 7, true);
    int other = start(1, 8, false);
    finish(other);
    assert_false(engine_may_follow(&world.engine, ours));
    finish(ours);
}

static void test_trouble(void **state)
{
    struct engine_result result;
    struct error err;
    (void)state;
    int step = start(1, 7, true);
    fake->status = 700;
    fake->failing = "cuMemcpyHtoDAsync_v2";
    assert_int_equal(engine_start(&world.engine, &err), 0);
    fake->failing = "cuEventSynchronize";
    assert_false(engine_finish(&world.engine, step, &result, &err));
    assert_non_null(strstr(err.text, "a captured step"));
    fake->failing = NULL;
    finish(start(1, 7, true)); // no slot is lost
    finish(start(1, 7, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_step_in_order, world_open, world_close),
        cmocka_unit_test_setup_teardown(test_a_step_behind_another, world_open, world_close),
        cmocka_unit_test_setup_teardown(test_others_in_between, world_open, world_close),
        cmocka_unit_test_setup_teardown(test_trouble, world_open, world_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
