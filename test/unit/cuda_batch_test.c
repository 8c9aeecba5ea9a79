// SPDX-License-Identifier: Apache-2.0
// A step's batch as a block of bytes: whatever the room, what is read through the view is what the batch says.
#include "base/random.h"
#include "container.h"
#include "engine/gpu/batch.h"
#include "kv/pool.h"

enum { SEEDS = 50, SEQUENCES_MAX = 9, TOKENS_MAX = 200, PAGES_MAX = 40, CLASSES = 3 };

struct scene {
    struct batch batch;
    struct batch_sequence sequences[SEQUENCES_MAX];
    int32_t ids[TOKENS_MAX], positions[TOKENS_MAX], output_rows[TOKENS_MAX];
    int32_t pages[SEQUENCES_MAX][CLASSES][PAGES_MAX];
};

// Some pages at the beginning of a table have been given back.
static void draw_tables(struct scene *scene, int sequence, uint64_t *seed)
{
    for (int i = 0; i < CLASSES; i++) {
        int gone = i ? random_between(seed, 0, PAGES_MAX / 2) : 0;
        for (int page = 0; page < PAGES_MAX; page++)
            scene->pages[sequence][i][page] = page < gone ? KV_PAGE_NONE : random_between(seed, 0, 1000);
        scene->sequences[sequence].pages[i] = scene->pages[sequence][i];
    }
}

static void draw_scene(struct scene *scene, uint64_t seed)
{
    *scene = (struct scene){ 0 };
    struct batch *batch = &scene->batch;
    *batch = (struct batch){ .ids = scene->ids,
                             .positions = scene->positions,
                             .output_rows = scene->output_rows,
                             .sequence = scene->sequences,
                             .sequences = random_between(&seed, 1, SEQUENCES_MAX) };
    for (int i = 0; i < CLASSES; i++)
        batch->page_tokens[i] = KV_PAGE_TOKENS;
    for (int i = 0; i < batch->sequences; i++) {
        int count = random_between(&seed, 1, 20), old = random_between(&seed, 0, PAGES_MAX * KV_PAGE_TOKENS - count);
        scene->sequences[i] = (struct batch_sequence){ .first = batch->tokens, .count = count };
        draw_tables(scene, i, &seed);
        for (int j = 0; j < count; j++) {
            scene->ids[batch->tokens] = random_between(&seed, 0, 50000);
            scene->positions[batch->tokens++] = old + j;
        }
        scene->output_rows[batch->outputs++] = batch->tokens - 1;
    }
}

static struct cuda_batch_block block_for(const struct scene *scene, int spare)
{
    struct cuda_batch_block block = { .tokens = scene->batch.tokens + spare,
                                      .sequences = scene->batch.sequences + spare,
                                      .outputs = scene->batch.outputs + spare,
                                      .classes = CLASSES,
                                      .pages = (size_t)spare };
    for (int i = 0; i < CLASSES; i++)
        block.pages += cuda_batch_pages(&scene->batch, i);
    cuda_batch_measure(&block);
    return block;
}

static void check_view(const struct scene *scene, const struct cuda_batch *view)
{
    const struct batch *batch = &scene->batch;
    assert_int_equal(view->counts[CUDA_TOKENS], batch->tokens);
    assert_int_equal(view->counts[CUDA_SEQUENCES], batch->sequences);
    assert_int_equal(view->counts[CUDA_OUTPUTS], batch->outputs);
    assert_memory_equal(view->ids, batch->ids, (size_t)batch->tokens * sizeof *view->ids);
    assert_memory_equal(view->positions, batch->positions, (size_t)batch->tokens * sizeof *view->positions);
    assert_memory_equal(view->output_rows, batch->output_rows, (size_t)batch->outputs * sizeof *view->output_rows);
    for (int i = 0; i < batch->sequences; i++) {
        const struct batch_sequence *sequence = &batch->sequence[i];
        int last = sequence->first + sequence->count - 1, pages = batch->positions[last] / KV_PAGE_TOKENS + 1;
        assert_int_equal(view->first[i], sequence->first);
        assert_int_equal(view->count[i], sequence->count);
        assert_int_equal(view->sequence_of[sequence->first], i);
        assert_int_equal(view->sequence_of[last], i);
        for (int class_index = 0; class_index < CLASSES; class_index++) {
            const int32_t *run = view->tables + view->table_at[class_index * view->sequences_max + i];
            for (int page = 0; page < pages; page++)
                if (sequence->pages[class_index][page] != KV_PAGE_NONE)
                    assert_int_equal(run[page], sequence->pages[class_index][page]);
        }
    }
}

static void test_the_view_says_what_the_batch_says(void **state)
{
    struct scene scene;
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        draw_scene(&scene, seed);
        for (int spare = 0; spare <= 64; spare += 32) {
            struct cuda_batch_block block = block_for(&scene, spare);
            uint8_t *host = malloc(block.bytes);
            size_t bytes = cuda_batch_fill(&block, &scene.batch, host);
            assert_true(bytes + (size_t)spare * sizeof(int32_t) <= block.bytes);
            struct cuda_batch view = cuda_batch_view(&block, host);
            assert_int_equal(view.sequences_max, block.sequences);
            check_view(&scene, &view);
            free(host);
        }
    }
}

// Nothing of a table that a window has given back is copied.
static void test_given_back_pages_take_no_room(void **state)
{
    struct scene scene;
    (void)state;
    draw_scene(&scene, 1);
    scene.batch.sequences = 1;
    scene.positions[scene.sequences[0].count - 1] = PAGES_MAX * KV_PAGE_TOKENS - 1;
    for (int page = 0; page < PAGES_MAX - 3; page++)
        scene.pages[0][2][page] = KV_PAGE_NONE;
    for (int page = PAGES_MAX - 3; page < PAGES_MAX; page++)
        scene.pages[0][2][page] = page;
    assert_int_equal(cuda_batch_pages(&scene.batch, 0), PAGES_MAX);
    assert_int_equal(cuda_batch_pages(&scene.batch, 2), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_view_says_what_the_batch_says),
        cmocka_unit_test(test_given_back_pages_take_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
