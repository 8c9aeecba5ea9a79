// SPDX-License-Identifier: Apache-2.0
// kernel/testcase_cache.c: test cases of the two ops that work on pages, and of the transform of keys before them. Page
// numbers are random; page -1, which a table names where a window has given a page back, is there to be read and holds
// NaN.
#include <math.h>
#include <string.h>

#include "kernel/ref/kv_codec.h"
#include "kernel/ref/table.h"
#include "kernel/testcase_draw.h"
#include "kv/pool.h"

enum { CLASS = 1, SINK_CLASS = 3, SINK_PAGES_MAX = 2, SPARE_PAGES = 3, DISTINCT_PAGES = 8, CPU_SEQUENCES_MAX = 4 };

struct scene {
    struct kv_place cache, sink;
    int sink_pages;
    int heads, group, lead, window;
    int old[TESTCASE_SEQUENCES_MAX]; // tokens of each sequence that came before the batch
    int32_t *table[TESTCASE_SEQUENCES_MAX], *sink_table[TESTCASE_SEQUENCES_MAX];
    int pages, sinks; // of the pools here, page -1 included
};

// ---- drawing ----

static int length_of(const struct draw *draw, const struct scene *scene, int sequence)
{
    return scene->old[sequence] + draw->testcase->sequence[sequence].count;
}

static int pages_of(int tokens) { return (tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS; }

// The first position that a sequence's first token in the batch sees.
static int first_seen(const struct scene *scene, int sequence)
{
    int old = scene->old[sequence];
    return scene->window && old >= scene->window ? old - scene->window + 1 : 0;
}

// The least rows of each sequence: prefill attention takes no sequence that decode attention serves.
static int least_each(const struct draw *draw)
{
    return draw->kernel->op == OP_ATTENTION ? kernel_loads_least(draw->kernel->load) : 1;
}

// The first row of a sequence. On a GPU some sequences have rows for decode and some for prefill, where a kernel takes
// both.
static int first_row(const struct draw *draw, int sequence, int sequences, int tokens)
{
    if (draw->kernel->device == DEVICE_CPU || least_each(draw) > 1)
        return tokens * sequence / sequences;
    int row = tokens * sequence * sequence / (sequences * sequences);
    return row > sequence ? row : sequence;
}

static void draw_sequences(struct draw *draw, struct scene *scene, int tokens, int large_old)
{
    struct testcase *testcase = draw->testcase;
    int most = draw->kernel->device == DEVICE_CPU ? CPU_SEQUENCES_MAX : TESTCASE_SEQUENCES_MAX;
    bool is_far = draw->is_long && draw_is_decode(draw); // so long that a CTA has several work tiles
    int room = tokens / least_each(draw), sequences = draw_size(draw, 1, room < most ? room : most, 1);
    int32_t *positions = ARENA_NEW(&testcase->arena, int32_t, tokens);
    for (int s = 0; s < sequences; s++) {
        int first = first_row(draw, s, sequences, tokens), end = first_row(draw, s + 1, sequences, tokens);
        bool is_long = draw_coin(draw) && draw_coin(draw);
        // One in five of the short ones is new.
        int old = is_far ? draw_size(draw, 6300, 9000, 0)
                         : draw_size(draw, is_long ? 200 : -20, is_long ? 600 : 70, large_old);
        scene->old[s] = old > 0 ? old : 0;
        for (int row = first; row < end; row++)
            positions[row] = scene->old[s] + row - first;
        testcase->sequence[s] = (struct batch_sequence){ .first = first, .count = end - first };
    }
    testcase->batch = (struct batch){
        .tokens = tokens, .positions = positions, .sequences = sequences, .sequence = testcase->sequence
    };
}

static void draw_pages(struct draw *draw, struct scene *scene)
{
    struct testcase *testcase = draw->testcase;
    int total = 0, next = 0;
    for (int s = 0; s < testcase->batch.sequences; s++)
        total += pages_of(length_of(draw, scene, s));
    int32_t *numbers = ARENA_NEW(&testcase->arena, int32_t, total + SPARE_PAGES);
    int32_t *nowhere = ARENA_NEW(&testcase->arena, int32_t, total);
    for (int i = 0; i < total + SPARE_PAGES; i++)
        numbers[i] = i;
    for (int i = 0; i < total; i++)
        nowhere[i] = KV_PAGE_NONE;
    random_shuffle(&draw->seed, numbers, total + SPARE_PAGES);
    for (int s = 0; s < testcase->batch.sequences; s++) {
        int count = pages_of(length_of(draw, scene, s));
        int sinks = scene->sink_pages < count ? scene->sink_pages : count;
        scene->table[s] = ARENA_NEW(&testcase->arena, int32_t, count);
        scene->sink_table[s] = ARENA_NEW(&testcase->arena, int32_t, sinks);
        for (int i = 0; i < count; i++) {
            int32_t page = i < first_seen(scene, s) / KV_PAGE_TOKENS ? KV_PAGE_NONE : numbers[next++];
            scene->table[s][i] = i < sinks ? KV_PAGE_NONE : page;
            if (i < sinks)
                scene->sink_table[s][i] = page;
        }
        for (int i = 0; i < KV_CLASSES_MAX; i++)
            testcase->sequence[s].pages[i] = i == CLASS ? scene->table[s] : nowhere;
        if (scene->sink_pages)
            testcase->sequence[s].pages[SINK_CLASS] = scene->sink_table[s];
    }
    scene->pages = 1 + total + SPARE_PAGES;
    scene->sinks = scene->sink_pages ? scene->pages : 0;
    testcase->batch.pages_end[SINK_CLASS] = scene->sink_pages;
}

// A step of one shape: its pages in any order, which here are but the first few.
static void draw_step(struct draw *draw, struct scene *scene)
{
    struct testcase *testcase = draw->testcase;
    const struct testcase_step *step = &draw->wanted->step;
    int each = pages_of(step->context), tokens = step->sequences * step->rows_each;
    int32_t *positions = ARENA_NEW(&testcase->arena, int32_t, tokens);
    int32_t *numbers = ARENA_NEW(&testcase->arena, int32_t, step->sequences *each);
    struct batch_sequence *sequences = ARENA_NEW(&testcase->arena, struct batch_sequence, step->sequences);
    for (int i = 0; i < step->sequences * each; i++)
        numbers[i] = i;
    random_shuffle(&draw->seed, numbers, step->sequences * each);
    for (int i = 0; i < tokens; i++)
        positions[i] = step->context - step->rows_each + i % step->rows_each;
    for (int i = 0; i < step->sequences; i++) {
        sequences[i] = (struct batch_sequence){ .first = i * step->rows_each, .count = step->rows_each };
        sequences[i].pages[CLASS] = numbers + i * each;
    }
    testcase->batch =
        (struct batch){ .tokens = tokens, .positions = positions, .sequences = step->sequences, .sequence = sequences };
    scene->pages = 1 + DISTINCT_PAGES;
}

// One of some formats.
static enum dtype draw_format(struct draw *draw, uint64_t formats)
{
    int dtype = draw_size(draw, 0, DTYPE_COUNT - 1, 0);
    while (!(formats >> dtype & 1))
        dtype = (dtype + 1) % DTYPE_COUNT;
    return (enum dtype)dtype;
}

static struct kv_place draw_place(struct draw *draw, const struct kv_layout *layout, int layers, int class_index)
{
    return (struct kv_place){
        .page_bytes = (size_t)layers * layout->layer_bytes,
        .layer_offset = (size_t)draw_size(draw, 0, layers - 1, 0) * layout->layer_bytes,
        .class_index = class_index,
        .layout = *layout,
        .k_scale = 0.05f,
        .v_scale = layout->latent ? 0.05f : 0.04f,
    };
}

// Pages of both places, one after the other in `pages`.
static size_t scene_bytes(const struct scene *scene)
{
    return (size_t)scene->pages * scene->cache.page_bytes + (size_t)scene->sinks * scene->sink.page_bytes;
}

static void place_pools(struct scene *scene, uint8_t *pages)
{
    scene->cache.pool = pages + scene->cache.page_bytes;
    scene->sink.pool = pages + (size_t)scene->pages * scene->cache.page_bytes + scene->sink.page_bytes;
    if (!scene->sink_pages)
        scene->sink = (struct kv_place){ 0 };
}

// Some of the first and of the last group may be another rank's; of latents all heads are one group.
static void draw_groups(struct draw *draw, int kv_heads, int group, bool latent, struct scene *scene)
{
    int room = latent ? 0 : kv_heads > 1 ? group - 1 : (group - 1) / 2;
    scene->group = group;
    scene->lead = draw_coin(draw) ? draw_size(draw, 0, room, 0) : 0;
    scene->heads = kv_heads * group - scene->lead - (draw_coin(draw) ? draw_size(draw, 0, room, 0) : 0);
}

static void draw_scene(struct draw *draw, struct scene *scene, int large_prefill, int large_old)
{
    bool is_wide = draw->is_long && !draw_is_decode(draw);
    int kv_heads = draw_size(draw, 1, is_wide ? 1 : 3, 8), layers = draw_size(draw, 1, 3, 1);
    struct kv_layout layout = draw_layout(draw, kv_heads);
    bool cpu = draw->kernel->device == DEVICE_CPU;
    int group = layout.latent ? draw_size(draw, 1, draw->is_long ? 20 : 80, 128)
                              : draw_size(draw, 1,
                                          cpu ? 4
                                              : draw->is_long ? 2
                                                              : 9,
                                          cpu ? 2 : 4);
    *scene = (struct scene){ 0 };
    draw_groups(draw, layout.k.heads, group, layout.latent, scene);
    scene->window = draw_coin(draw) ? draw_size(draw, 1, draw_coin(draw) ? 50 : 500, 0) : 0;
    if (draw->wanted->step.sequences) {
        draw_step(draw, scene);
    } else {
        if (draw->wanted->sink)
            scene->sink_pages = draw_size(draw, draw->wanted->size == TESTCASE_SMALL, SINK_PAGES_MAX, 1);
        draw_sequences(draw, scene, draw_tokens(draw, large_prefill), large_old);
        draw_pages(draw, scene);
    }
    for (int i = 0; i < KV_CLASSES_MAX; i++)
        draw->testcase->batch.page_tokens[i] = KV_PAGE_TOKENS;
    scene->cache = draw_place(draw, &layout, layers, CLASS);
    if (scene->sink_pages) {
        enum dtype dtype = draw_format(draw, draw->wanted->sink);
        struct kv_layout sink = layout.latent
            ? kv_layout_make_latent(dtype, layout.k.dim, layout.v.dim)
            : kv_layout_make(dtype, dtype, layout.k.heads, layout.k.dim, layout.v.dim);
        scene->sink = draw_place(draw, &sink, layers, SINK_CLASS);
    }
}

// Draws a transform of any kind: centre and block, or one of them.
static void draw_transform_of(struct draw *draw, int dim, int kv_heads, struct transform_args *args)
{
    bool centred = draw_coin(draw);
    args->centre = centred ? draw_values(draw, kv_heads, dim) : NULL;
    args->block = !centred || draw_coin(draw) ? dim & -dim : 0;
}

void draw_transform(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct transform_args *args = &testcase->args.transform;
    int heads = draw_size(draw, 1, 6, 24), kv_heads = draw_size(draw, 1, 3, 8), dim = draw_layout(draw, 1).k.dim;
    *args = (struct transform_args){ .rows = &testcase->rows, .heads = heads, .kv_heads = kv_heads, .head_dim = dim };
    draw_transform_of(draw, dim, kv_heads, args);
    args->q = draw_output_in_place(draw, testcase->rows, heads * dim);
    args->k = draw_output_in_place(draw, testcase->rows, kv_heads * dim);
}

// The fused rope. Its q is a result; its k is what is stored.
static void draw_rope_before(struct draw *draw, const struct scene *scene)
{
    struct testcase *testcase = draw->testcase;
    const struct kv_side *side = &scene->cache.layout.k;
    struct rope_args *args = &testcase->before.rope;
    *args = (struct rope_args){ .batch = &testcase->batch,
                                .k = (float *)testcase->args.kv_write.k,
                                .heads = scene->heads,
                                .kv_heads = side->heads,
                                .head_dim = side->dim,
                                .magnitude = 1 };
    args->rotated = 2 * draw_size(draw, 1, side->dim / 2, side->dim / 2);
    args->interleaved = draw_coin(draw);
    args->frequencies = draw_frequencies(draw, args->rotated / 2);
    args->q = draw_output_in_place(draw, testcase->batch.tokens, scene->heads * side->dim);
    testcase->args.kv_write.rope = args;
}

// The same of the transform, whose q is rope's, where there is one.
static void draw_transform_before(struct draw *draw, const struct scene *scene)
{
    struct testcase *testcase = draw->testcase;
    const struct kv_side *side = &scene->cache.layout.k;
    const struct rope_args *rope = testcase->args.kv_write.rope;
    struct transform_args *args = &testcase->transform.transform;
    *args = (struct transform_args){ .rows = &testcase->batch.tokens,
                                     .k = (float *)testcase->args.kv_write.k,
                                     .heads = scene->heads,
                                     .kv_heads = side->heads,
                                     .head_dim = side->dim };
    draw_transform_of(draw, side->dim, side->heads, args);
    args->q = rope ? rope->q : draw_output_in_place(draw, testcase->batch.tokens, scene->heads * side->dim);
    testcase->args.kv_write.transform = args;
}

void draw_kv_write(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct scene scene;
    draw_scene(draw, &scene, 4096, 0);
    struct kv_write_args *args = &testcase->args.kv_write;
    int row_values = scene.cache.layout.k.heads * scene.cache.layout.k.dim, tokens = testcase->batch.tokens;
    size_t bytes = scene_bytes(&scene);
    testcase->pages = draw_output_bytes(draw, bytes, scene.cache.layout.latent ? row_values : 2 * row_values);
    testcase->pages_bytes = bytes;
    place_pools(&scene, testcase->pages);
    args->batch = &testcase->batch;
    args->k = draw_values(draw, tokens, row_values);
    args->v = scene.cache.layout.latent ? NULL : draw_values(draw, tokens, row_values);
    args->cache = scene.cache;
    args->sink = scene.sink;
    args->sink_pages = scene.sink_pages;
    args->scale_search = draw_coin(draw);
    if (draw->wanted->fuses & KERNEL_FUSES_ROPE)
        draw_rope_before(draw, &scene);
    if (draw->wanted->fuses & KERNEL_FUSES_TRANSFORM)
        draw_transform_before(draw, &scene);
    testcase->bytes_moved += (size_t)tokens * kv_layout_token_bytes(&scene.cache.layout);
}

static uint8_t *page_at(const struct scene *scene, int sequence, int index)
{
    return scene->cache.pool + (ptrdiff_t)scene->table[sequence][index] * (ptrdiff_t)scene->cache.page_bytes;
}

// Stores random K and V at positions from `first` on, as many as the sequence has rows.
static void write_cache(struct draw *draw, const struct scene *scene, struct batch_sequence sequence, int first)
{
    const struct kv_side *side = &scene->cache.layout.k;
    int32_t *positions = ARENA_NEW(&draw->testcase->arena, int32_t, sequence.count);
    for (int i = 0; i < sequence.count; i++)
        positions[i] = first + i;
    struct batch batch = { .tokens = sequence.count, .positions = positions, .sequences = 1, .sequence = &sequence };
    struct kv_write_args write = {
        .batch = &batch, .cache = scene->cache, .sink = scene->sink, .sink_pages = scene->sink_pages
    };
    write.k = draw_values(draw, sequence.count, side->heads * side->dim);
    write.v = draw_values(draw, sequence.count, side->heads * side->dim);
    kv_write_ref(&write, 0, 1);
}

// Stores what a sequence's tokens see. Long ones repeat the same few pages.
static void fill_cache(struct draw *draw, const struct scene *scene, int sequence)
{
    int first = first_seen(scene, sequence) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    int end = length_of(draw, scene, sequence), distinct = DISTINCT_PAGES * KV_PAGE_TOKENS;
    struct batch_sequence all = draw->testcase->sequence[sequence];
    all.first = 0;
    all.count = end - first < distinct ? end - first : distinct;
    write_cache(draw, scene, all, first);
    int repeated = DISTINCT_PAGES - scene->sink_pages;
    for (int i = first / KV_PAGE_TOKENS + DISTINCT_PAGES; i < pages_of(end); i++)
        memcpy(page_at(scene, sequence, i), page_at(scene, sequence, i - repeated), scene->cache.page_bytes);
}

// The work of one sequence whose first row of the batch has so many tokens before it.
static void count_attention(struct draw *draw, const struct scene *scene, const struct batch_sequence *sequence)
{
    struct testcase *testcase = draw->testcase;
    int old = testcase->batch.positions[sequence->first], length = old + sequence->count;
    int first = scene->window && old >= scene->window ? old - scene->window + 1 : 0;
    testcase->bytes_moved += (size_t)(length - first) * kv_layout_token_bytes(&scene->cache.layout);
    for (int i = old + 1; i <= length; i++) {
        int seen = scene->window && scene->window < i ? scene->window : i;
        testcase->flops += 2.0 * seen * scene->heads * (scene->cache.layout.k.dim + scene->cache.layout.v.dim);
    }
}

// The pages of a step: the few that are here hold random tokens.
static void fill_step(struct draw *draw, const struct scene *scene)
{
    int32_t numbers[DISTINCT_PAGES];
    struct testcase *testcase = draw->testcase;
    struct batch_sequence whole = { .count = DISTINCT_PAGES * KV_PAGE_TOKENS };
    for (int i = 0; i < DISTINCT_PAGES; i++)
        numbers[i] = i;
    whole.pages[CLASS] = numbers;
    write_cache(draw, scene, whole, 0);
    size_t pages = (size_t)(draw->wanted->step.sequences * pages_of(draw->wanted->step.context));
    testcase->pages_there = (1 + pages) * scene->cache.page_bytes;
}

void draw_attention(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct scene scene;
    draw_scene(draw, &scene, 64, draw_is_decode(draw) ? 16383 : 512);
    const struct kv_layout *layout = &scene.cache.layout;
    int tokens = testcase->batch.tokens;
    size_t bytes = scene_bytes(&scene);
    testcase->pages = memset(arena_new(&testcase->arena, bytes, 1), NOTHING, bytes);
    testcase->pages_bytes = bytes;
    place_pools(&scene, testcase->pages);
    if (draw->wanted->step.sequences)
        fill_step(draw, &scene);
    for (int s = 0; s < testcase->batch.sequences; s++) {
        if (!draw->wanted->step.sequences)
            fill_cache(draw, &scene, s);
        count_attention(draw, &scene, &testcase->batch.sequence[s]);
    }
    struct attention_args *args = &testcase->args.attention;
    *args = (struct attention_args){ .batch = &testcase->batch,
                                     .heads = scene.heads,
                                     .group = scene.group,
                                     .lead = scene.lead,
                                     .window = scene.window,
                                     .scale = 1 / sqrtf((float)layout->k.dim),
                                     .cache = scene.cache,
                                     .sink = scene.sink,
                                     .sink_pages = scene.sink_pages };
    args->q = draw_row_values(draw, tokens, scene.heads * layout->k.dim);
    args->out = draw_row_output(draw, tokens, scene.heads * layout->v.dim);
    args->softcap = draw_coin(draw) ? 5 : 0;
    args->sinks = draw_coin(draw) ? draw_values(draw, 1, scene.heads) : NULL;
}

// ---- what kv_write wrote ----

struct vector {
    const struct kv_side *side;
    float layer_scale;
    uint8_t *data, *scale;
};

// Every vector that the batch has a place for: row by row, K's heads and then V's, if those are not in them.
static void walk_vectors(const struct testcase *testcase, void (*visit)(const struct vector *vector, void *context),
                         void *context)
{
    const struct kv_write_args *args = &testcase->args.kv_write;
    for (int s = 0; s < testcase->batch.sequences; s++)
        for (int i = 0; i < 2 * testcase->sequence[s].count; i += args->cache.layout.latent ? 2 : 1) {
            int position = testcase->batch.positions[testcase->sequence[s].first + i / 2];
            const struct kv_place *cache = position / KV_PAGE_TOKENS < args->sink_pages ? &args->sink : &args->cache;
            int32_t page = testcase->sequence[s].pages[cache->class_index][position / KV_PAGE_TOKENS];
            uint8_t *layer = cache->pool + (size_t)page * cache->page_bytes + cache->layer_offset;
            const struct kv_side *side = i % 2 ? &cache->layout.v : &cache->layout.k;
            for (int head = 0; head < side->heads; head++)
                visit(&(struct vector){ side, i % 2 ? cache->v_scale : cache->k_scale,
                                        layer + kv_data_at(side, head, position % KV_PAGE_TOKENS),
                                        layer + kv_scale_at(side, head, position % KV_PAGE_TOKENS) },
                      context);
        }
}

static void read_vector(const struct vector *vector, void *context)
{
    float **values = context;
    kv_codecs[vector->side->dtype].load(vector->data, vector->scale, vector->side->dim, vector->layer_scale, *values);
    *values += vector->side->dim;
}

void read_kv_write(const struct testcase *testcase, float *values) { walk_vectors(testcase, read_vector, &values); }

struct undo {
    const uint8_t *pool, *before;
};

static void undo_vector(const struct vector *vector, void *context)
{
    const struct undo *undo = context;
    memcpy(vector->data, undo->before + (vector->data - undo->pool), vector->side->data_bytes);
    memcpy(vector->scale, undo->before + (vector->scale - undo->pool), vector->side->scale_bytes);
}

void undo_kv_write(struct testcase *testcase, const uint8_t *before)
{
    walk_vectors(testcase, undo_vector, &(struct undo){ testcase->output[0].data, before });
}
