// SPDX-License-Identifier: Apache-2.0
// kernel/sample_cache.c: samples of the two ops that work on pages. Page numbers are drawn at random; page -1, which a
// table names where a window has given a page back, is there to be read and holds NaN.
#include <math.h>
#include <string.h>

#include "kernel/ref/kv_codec.h"
#include "kernel/ref/table.h"
#include "kernel/sample_draw.h"
#include "kv/pool.h"

enum { CLASS = 1, SPARE_PAGES = 3, DISTINCT_PAGES = 8 };

struct scene {
    struct kv_place cache;
    int heads, window;
    int old[SAMPLE_SEQUENCES_MAX];      // tokens of each sequence that came before the batch
    int32_t *table[SAMPLE_SEQUENCES_MAX];
    int pages;                          // of the pool, page -1 included
};

// ---- drawing ----

static int length_of(const struct draw *draw, const struct scene *scene, int sequence)
{
    return scene->old[sequence] + draw->sample->sequence[sequence].count;
}

static int pages_of(int tokens)
{
    return (tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

// The first position that a sequence's first token in the batch sees.
static int first_seen(const struct scene *scene, int sequence)
{
    int old = scene->old[sequence];
    return scene->window && old >= scene->window ? old - scene->window + 1 : 0;
}

static void draw_sequences(struct draw *draw, struct scene *scene, int tokens, int large_old)
{
    struct sample *sample = draw->sample;
    int sequences = draw_size(draw, 1, tokens < SAMPLE_SEQUENCES_MAX ? tokens : SAMPLE_SEQUENCES_MAX, 1);
    int32_t *positions = ARENA_NEW(&sample->arena, int32_t, tokens);
    for (int s = 0; s < sequences; s++) {
        int first = tokens * s / sequences, end = tokens * (s + 1) / sequences;
        bool is_long = draw_coin(draw) && draw_coin(draw);
        // Of the short ones, one in five is new.
        int old = draw_size(draw, is_long ? 200 : -20, is_long ? 600 : 70, large_old);
        scene->old[s] = old > 0 ? old : 0;
        for (int row = first; row < end; row++)
            positions[row] = scene->old[s] + row - first;
        sample->sequence[s] = (struct batch_sequence){ .first = first, .count = end - first };
    }
    sample->batch = (struct batch){ .tokens = tokens, .positions = positions, .sequences = sequences,
                                    .sequence = sample->sequence };
}

static void draw_pages(struct draw *draw, struct scene *scene)
{
    struct sample *sample = draw->sample;
    int total = 0, next = 0;
    for (int s = 0; s < sample->batch.sequences; s++)
        total += pages_of(length_of(draw, scene, s));
    int32_t *numbers = ARENA_NEW(&sample->arena, int32_t, total + SPARE_PAGES);
    int32_t *nowhere = ARENA_NEW(&sample->arena, int32_t, total);
    for (int i = 0; i < total + SPARE_PAGES; i++)
        numbers[i] = i;
    for (int i = 0; i < total; i++)
        nowhere[i] = KV_PAGE_NONE;
    random_shuffle(&draw->seed, numbers, total + SPARE_PAGES);
    for (int s = 0; s < sample->batch.sequences; s++) {
        int count = pages_of(length_of(draw, scene, s));
        scene->table[s] = ARENA_NEW(&sample->arena, int32_t, count);
        for (int i = 0; i < count; i++)
            scene->table[s][i] = i < first_seen(scene, s) / KV_PAGE_TOKENS ? KV_PAGE_NONE : numbers[next++];
        for (int i = 0; i < KV_CLASSES_MAX; i++)
            sample->sequence[s].pages[i] = i == CLASS ? scene->table[s] : nowhere;
    }
    scene->pages = 1 + total + SPARE_PAGES;
}

static void draw_scene(struct draw *draw, struct scene *scene, int large_many, int large_old)
{
    int kv_heads = draw_size(draw, 1, 3, 8), layers = draw_size(draw, 1, 3, 1), dim = draw_head_dim(draw);
    *scene = (struct scene){ .heads = kv_heads * draw_size(draw, 1, 4, 2) };
    scene->window = draw_coin(draw) ? draw_size(draw, 1, draw_coin(draw) ? 50 : 500, 0) : 0;
    draw_sequences(draw, scene, draw_tokens(draw, large_many), large_old);
    draw_pages(draw, scene);
    struct kv_layout layout = kv_layout_make(draw->wanted->k, draw->wanted->v, kv_heads, dim, dim);
    scene->cache = (struct kv_place){
        .page_bytes = (size_t)layers * layout.layer_bytes,
        .layer_offset = (size_t)draw_size(draw, 0, layers - 1, 0) * layout.layer_bytes,
        .class_index = CLASS, .layout = layout, .k_scale = 0.05f, .v_scale = 0.04f,
    };
}

void draw_kv_write(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct scene scene;
    draw_scene(draw, &scene, 4096, 0);
    struct kv_write_args *args = &sample->args.kv_write;
    int row_values = scene.cache.layout.k.heads * scene.cache.layout.k.dim, tokens = sample->batch.tokens;
    size_t bytes = (size_t)scene.pages * scene.cache.page_bytes;
    scene.cache.pool = draw_output_bytes(draw, bytes, 2 * row_values) + scene.cache.page_bytes;
    args->batch = &sample->batch;
    args->k = draw_values(draw, tokens, row_values);
    args->v = draw_values(draw, tokens, row_values);
    args->cache = scene.cache;
    sample->bytes_moved =
        (size_t)tokens * (2 * (size_t)row_values * sizeof(float) + kv_layout_token_bytes(&scene.cache.layout));
}

static uint8_t *page_at(const struct scene *scene, int sequence, int index)
{
    return scene->cache.pool + (ptrdiff_t)scene->table[sequence][index] * (ptrdiff_t)scene->cache.page_bytes;
}

// Stores K and V of what a sequence's tokens see. Long ones repeat the same few pages.
static void fill_cache(struct draw *draw, const struct scene *scene, int sequence)
{
    const struct kv_side *side = &scene->cache.layout.k;
    int first = first_seen(scene, sequence) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    int end = length_of(draw, scene, sequence), distinct = DISTINCT_PAGES * KV_PAGE_TOKENS;
    int count = end - first < distinct ? end - first : distinct;
    int32_t *positions = ARENA_NEW(&draw->sample->arena, int32_t, count);
    for (int i = 0; i < count; i++)
        positions[i] = first + i;
    struct batch_sequence all = draw->sample->sequence[sequence];
    all.first = 0;
    all.count = count;
    struct batch batch = { .tokens = count, .positions = positions, .sequences = 1, .sequence = &all };
    struct kv_write_args write = { .batch = &batch, .cache = scene->cache };
    write.k = draw_values(draw, count, side->heads * side->dim);
    write.v = draw_values(draw, count, side->heads * side->dim);
    kv_write_ref(&write, 0, 1);
    int first_page = first / KV_PAGE_TOKENS;
    for (int i = first_page + DISTINCT_PAGES; i < pages_of(end); i++)
        memcpy(page_at(scene, sequence, i), page_at(scene, sequence, i - DISTINCT_PAGES), scene->cache.page_bytes);
}

void draw_attention(struct draw *draw)
{
    struct sample *sample = draw->sample;
    struct scene scene;
    draw_scene(draw, &scene, 64, draw->wanted->load == KERNEL_FEW ? 16383 : 512);
    int dim = scene.cache.layout.k.dim, row_values = scene.heads * dim, tokens = sample->batch.tokens;
    size_t bytes = (size_t)scene.pages * scene.cache.page_bytes;
    uint8_t *room = arena_new(&sample->arena, bytes, 1);
    scene.cache.pool = (uint8_t *)memset(room, NOTHING, bytes) + scene.cache.page_bytes;
    for (int s = 0; s < sample->batch.sequences; s++) {
        fill_cache(draw, &scene, s);
        sample->bytes_moved += (size_t)(length_of(draw, &scene, s) - first_seen(&scene, s))
                             * kv_layout_token_bytes(&scene.cache.layout);
        for (int i = 0; i < sample->sequence[s].count; i++) {
            int context = scene.old[s] + i + 1, seen = scene.window && scene.window < context ? scene.window : context;
            sample->flops += 4.0 * seen * row_values;
        }
    }
    struct attention_args *args = &sample->args.attention;
    *args = (struct attention_args){ .batch = &sample->batch, .heads = scene.heads, .scale = 1 / sqrtf((float)dim),
                                     .window = scene.window, .cache = scene.cache };
    args->q = draw_values(draw, tokens, row_values);
    args->out = draw_output(draw, tokens, row_values);
    args->softcap = draw_coin(draw) ? 5 : 0;
    args->sinks = draw_coin(draw) ? draw_values(draw, 1, scene.heads) : NULL;
    sample->bytes_moved += 2 * (size_t)tokens * (size_t)row_values * sizeof(float);
}

// ---- what kv_write wrote ----

struct vector {
    const struct kv_side *side;
    float layer_scale;
    uint8_t *data, *scale;
};

// Every vector that the batch has a place for: row by row, K's heads and then V's.
static void walk_vectors(const struct sample *sample, void (*visit)(const struct vector *vector, void *context),
                         void *context)
{
    const struct kv_place *cache = &sample->args.kv_write.cache;
    for (int s = 0; s < sample->batch.sequences; s++)
        for (int i = 0; i < 2 * sample->sequence[s].count; i++) {
            int position = sample->batch.positions[sample->sequence[s].first + i / 2];
            int32_t page = sample->sequence[s].pages[CLASS][position / KV_PAGE_TOKENS];
            uint8_t *layer = cache->pool + (size_t)page * cache->page_bytes + cache->layer_offset;
            const struct kv_side *side = i % 2 ? &cache->layout.v : &cache->layout.k;
            for (int head = 0; head < side->heads; head++)
                visit(&(struct vector){ side, i % 2 ? cache->v_scale : cache->k_scale,
                                        layer + kv_data_at(side, head, position % KV_PAGE_TOKENS),
                                        layer + kv_scale_at(side, head, position % KV_PAGE_TOKENS) }, context);
        }
}

static void read_vector(const struct vector *vector, void *context)
{
    float **values = context;
    kv_codecs[vector->side->dtype].load(vector->data, vector->scale, vector->side->dim, vector->layer_scale, *values);
    *values += vector->side->dim;
}

void read_kv_write(const struct sample *sample, float *values)
{
    walk_vectors(sample, read_vector, &values);
}

struct undo {
    const uint8_t *pool, *before;
};

static void undo_vector(const struct vector *vector, void *context)
{
    const struct undo *undo = context;
    memcpy(vector->data, undo->before + (vector->data - undo->pool), vector->side->data_bytes);
    memcpy(vector->scale, undo->before + (vector->scale - undo->pool), vector->side->scale_bytes);
}

void undo_kv_write(struct sample *sample, const uint8_t *before)
{
    walk_vectors(sample, undo_vector, &(struct undo){ sample->output[0].data, before });
}
