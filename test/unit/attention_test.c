// SPDX-License-Identifier: Apache-2.0
// kv_write and attention over every pair of cache formats: pages in any order, several sequences, older context,
// windows, soft caps and shared heads. The bytes of the pages are those of kv/layout.h, the results those of a plain
// softmax in double precision over K and V as each token's codec gives them back.
#include <math.h>

#include "container.h"
#include "kernel/ref/kv_codec.h"
#include "kernel/ref/table.h"
#include "kernel_run.h"

enum {
    SEQUENCES_MAX = 3,
    CONTEXT_MAX = 96,
    PAGES_MAX = SEQUENCES_MAX * CONTEXT_MAX / KV_PAGE_TOKENS + 3,
    TOKENS_MAX = SEQUENCES_MAX * CONTEXT_MAX,
    CLASS = 1
};

// A few texts, of which the first `old` tokens are in the cache when the last `fresh` are read.
struct scene {
    uint64_t seed;
    int kv_heads, heads, group, lead, window;
    float scale, softcap;
    struct guarded sinks; // (heads), or nothing
    struct kv_place cache;
    struct guarded pool;
    int sequences;
    struct text {
        int old, fresh;
        int32_t pages[CONTEXT_MAX / KV_PAGE_TOKENS];
        struct guarded k, v; // (position, kv head, dim)
    } text[SEQUENCES_MAX];
};

// The inputs of the kernels in one step.
struct step {
    struct batch batch;
    struct batch_sequence sequence[SEQUENCES_MAX];
    int32_t positions[TOKENS_MAX];
    struct guarded k, v, q, out;
};

// ---- scenes ----

static int pick_dim(uint64_t *seed, enum dtype dtype)
{
    static const int any[] = { 2, 10, 24, 40, 65 };
    if (dtype == DTYPE_INT4_TOKEN)
        return 2 << random_between(seed, 0, 5);
    if (dtype_table[dtype].block > 1)
        return dtype_table[dtype].block * random_between(seed, 1, 4);
    return any[random_between(seed, 0, COUNT_OF(any) - 1)];
}

static void make_texts(struct scene *scene)
{
    int32_t free_pages[PAGES_MAX];
    int next = 0;
    for (int i = 0; i < PAGES_MAX; i++)
        free_pages[i] = i;
    random_shuffle(&scene->seed, free_pages, PAGES_MAX);
    for (int s = 0; s < scene->sequences; s++) {
        struct text *text = &scene->text[s];
        text->old = random_between(&scene->seed, 0, 1) ? random_between(&scene->seed, 0, CONTEXT_MAX / 2) : 0;
        text->fresh = random_between(&scene->seed, 1, random_between(&scene->seed, 0, 2) ? 20 : CONTEXT_MAX / 2);
        int length = text->old + text->fresh;
        for (int i = 0; i < CONTEXT_MAX / KV_PAGE_TOKENS; i++)
            text->pages[i] = i * KV_PAGE_TOKENS < length ? free_pages[next++] : -1;
        text->k = guarded_random(&scene->seed, (size_t)(length * scene->kv_heads * scene->cache.layout.k.dim));
        text->v = guarded_random(&scene->seed, (size_t)(length * scene->kv_heads * scene->cache.layout.v.dim));
        for (size_t i = 0; i < text->k.bytes / sizeof(float); i++)
            ((float *)text->k.data)[i] *= 2;
    }
}

static void scene_open(struct scene *scene, uint64_t seed, enum dtype k, enum dtype v)
{
    *scene = (struct scene){ .seed = seed };
    uint64_t *random = &scene->seed;
    scene->kv_heads = random_between(random, 1, 3);
    scene->group = random_between(random, 1, 4);
    scene->lead = scene->kv_heads > 1 ? random_between(random, 0, scene->group - 1) : 0; // another rank's, as are some
    scene->heads = scene->kv_heads * scene->group - scene->lead - random_between(random, 0, scene->group - 1);
    scene->window = random_between(random, 0, 1) ? random_between(random, 1, 50) : 0;
    scene->softcap = random_between(random, 0, 1) ? 2 : 0;
    scene->scale = 0.2f + fabsf(random_real(random));
    scene->sequences = random_between(random, 1, SEQUENCES_MAX);
    struct kv_layout layout = kv_layout_make(k, v, scene->kv_heads, pick_dim(random, k), pick_dim(random, v));
    size_t offset = (size_t)random_between(random, 0, 2) * 48; // other layers lie before and behind
    scene->cache = (struct kv_place){ .page_bytes = offset + layout.layer_bytes + 32,
                                      .layer_offset = offset,
                                      .class_index = CLASS,
                                      .layout = layout,
                                      .k_scale = 0.75f,
                                      .v_scale = 1.5f };
    scene->pool = guarded_new(PAGES_MAX * scene->cache.page_bytes);
    scene->cache.pool = scene->pool.data;
    make_texts(scene);
    if (random_between(random, 0, 1))
        scene->sinks = guarded_random(random, (size_t)scene->heads);
}

static void scene_close(struct scene *scene)
{
    for (int s = 0; s < scene->sequences; s++)
        guarded_free(&scene->text[s].k), guarded_free(&scene->text[s].v);
    guarded_free(&scene->pool);
    if (scene->sinks.room)
        guarded_free(&scene->sinks);
}

// ---- the definition of the bytes ----

static size_t vector_bytes(enum dtype dtype, int dim) { return (size_t)(dim * dtype_table[dtype].bits / 8); }

static size_t vector_scale_bytes(enum dtype dtype, int dim)
{
    enum dtype_scale scale = dtype_table[dtype].scale;
    return scale == DTYPE_SCALE_VECTOR ? 4 : scale == DTYPE_SCALE_BLOCK ? (size_t)dim / 16 : 0;
}

// Puts one vector into `layer`, whose side begins at `start`. Returns where the side ends.
static size_t define_vector(const struct kv_side *side, float layer_scale, const float *x, int head, int slot,
                            uint8_t *layer, size_t start)
{
    size_t data = vector_bytes(side->dtype, side->dim), scale = vector_scale_bytes(side->dtype, side->dim);
    size_t vectors = (size_t)side->heads * KV_PAGE_TOKENS, index = (size_t)head * KV_PAGE_TOKENS + (size_t)slot;
    if (x)
        kv_codecs[side->dtype].store(x, side->dim, layer_scale, layer + start + index * data,
                                     layer + start + vectors * data + index * scale);
    return start + vectors * (data + scale);
}

// The whole pool as it must be when positions [0, old + fresh) of every text are written; all else is untouched.
static void check_pool(const struct scene *scene)
{
    const struct kv_place *cache = &scene->cache;
    const struct kv_side *k = &cache->layout.k, *v = &cache->layout.v;
    struct guarded expected = guarded_new(scene->pool.bytes);
    for (int s = 0; s < scene->sequences; s++) {
        const struct text *text = &scene->text[s];
        for (int position = 0; position < text->old + text->fresh; position++)
            for (int head = 0; head < scene->kv_heads; head++) {
                int32_t page = text->pages[position / KV_PAGE_TOKENS];
                uint8_t *layer = (uint8_t *)expected.data + (size_t)page * cache->page_bytes + cache->layer_offset;
                int slot = position % KV_PAGE_TOKENS, vector = position * scene->kv_heads + head;
                size_t start_of_v = define_vector(k, cache->k_scale, (float *)text->k.data + vector * k->dim, head,
                                                  slot, layer, 0);
                define_vector(v, cache->v_scale, (float *)text->v.data + vector * v->dim, head, slot, layer,
                              start_of_v);
            }
    }
    assert_memory_equal(scene->pool.data, expected.data, expected.bytes);
    guarded_free(&expected);
}

// ---- steps ----

// The old or the fresh tokens of every text; texts that have none are left out.
static void step_open(struct step *step, struct scene *scene, bool fresh)
{
    *step = (struct step){ 0 };
    int rows = 0;
    for (int s = 0; s < scene->sequences; s++)
        rows += fresh ? scene->text[s].fresh : scene->text[s].old;
    size_t k_width = (size_t)(scene->kv_heads * scene->cache.layout.k.dim);
    size_t v_width = (size_t)(scene->kv_heads * scene->cache.layout.v.dim);
    step->k = guarded_floats((size_t)rows * k_width);
    step->v = guarded_floats((size_t)rows * v_width);
    step->q = guarded_random(&scene->seed, (size_t)(rows * scene->heads * scene->cache.layout.k.dim));
    step->out = guarded_floats((size_t)(rows * scene->heads * scene->cache.layout.v.dim));
    struct batch *batch = &step->batch;
    for (int s = 0; s < scene->sequences; s++) {
        const struct text *text = &scene->text[s];
        size_t from = fresh ? (size_t)text->old : 0, count = (size_t)(fresh ? text->fresh : text->old);
        if (!count)
            continue;
        memcpy((float *)step->k.data + (size_t)batch->tokens * k_width, (float *)text->k.data + from * k_width,
               count * k_width * sizeof(float));
        memcpy((float *)step->v.data + (size_t)batch->tokens * v_width, (float *)text->v.data + from * v_width,
               count * v_width * sizeof(float));
        for (size_t i = 0; i < count; i++)
            step->positions[(size_t)batch->tokens + i] = (int32_t)(from + i);
        step->sequence[batch->sequences++] =
            (struct batch_sequence){ .first = batch->tokens, .count = (int)count, .pages = { [CLASS] = text->pages } };
        batch->tokens += (int)count;
    }
    batch->positions = step->positions;
    batch->sequence = step->sequence;
}

static void step_close(struct step *step)
{
    guarded_free(&step->k), guarded_free(&step->v), guarded_free(&step->q), guarded_free(&step->out);
}

static void write_step(struct scene *scene, const struct step *step)
{
    struct kv_write_args args = { .batch = &step->batch, .k = step->k.data, .v = step->v.data, .cache = scene->cache };
    run_kernel((struct run){ kv_write_ref, &args, { &scene->pool } });
}

// Pages that no fresh token sees are gone by now.
static void evict(struct scene *scene)
{
    for (int s = 0; s < scene->sequences && scene->window; s++)
        for (int page = 0; (page + 1) * KV_PAGE_TOKENS <= scene->text[s].old - scene->window + 1; page++)
            scene->text[s].pages[page] = -1;
}

static struct attention_args attention_of(const struct scene *scene, const struct step *step)
{
    return (struct attention_args){ .batch = &step->batch,
                                    .q = step->q.data,
                                    .out = step->out.data,
                                    .heads = scene->heads,
                                    .group = scene->group,
                                    .lead = scene->lead,
                                    .scale = scene->scale,
                                    .window = scene->window,
                                    .softcap = scene->softcap,
                                    .sinks = scene->sinks.data,
                                    .cache = scene->cache };
}

// ---- the definition of attention ----

// One head's vector as the cache gives it back.
static void read_back(const struct kv_side *side, float layer_scale, const float *x, float *out)
{
    uint8_t data[HEAD_DIM_MAX * 4], scale[HEAD_DIM_MAX];
    kv_codecs[side->dtype].store(x, side->dim, layer_scale, data, scale);
    kv_codecs[side->dtype].load(data, scale, side->dim, layer_scale, out);
}

static void check_head(const struct scene *scene, const struct text *text, int position, int head, const float *q,
                       const float *out)
{
    const struct kv_side *k = &scene->cache.layout.k, *v = &scene->cache.layout.v;
    int kv_head = (head + scene->lead) / scene->group;
    double sum = scene->sinks.data ? exp(((float *)scene->sinks.data)[head]) : 0;
    double expected[HEAD_DIM_MAX] = { 0 }, largest = 0, inexact = 0;
    for (int past = position; past >= 0 && (!scene->window || position - past < scene->window); past--) {
        float key[HEAD_DIM_MAX], value[HEAD_DIM_MAX];
        int vector = past * scene->kv_heads + kv_head;
        read_back(k, scene->cache.k_scale, (float *)text->k.data + vector * k->dim, key);
        read_back(v, scene->cache.v_scale, (float *)text->v.data + vector * v->dim, value);
        double score = 0, size = 0;
        for (int i = 0; i < k->dim; i++) {
            score += (double)q[i] * key[i] * scene->scale;
            size += fabs((double)q[i] * key[i] * scene->scale);
        }
        inexact = fmax(inexact, size * (k->dim + 8) * epsilon);
        double share = exp(scene->softcap > 0 ? scene->softcap * tanh(score / scene->softcap) : score);
        sum += share;
        for (int i = 0; i < v->dim; i++) {
            expected[i] += share * value[i];
            largest = fmax(largest, fabs(value[i]));
        }
    }
    for (int i = 0; i < v->dim; i++)
        check_near(out[i], expected[i] / sum, largest * (2 * inexact + (CONTEXT_MAX + 8) * epsilon));
}

static void check_attention(const struct scene *scene, const struct step *step)
{
    int heads = scene->heads, k_dim = scene->cache.layout.k.dim, v_dim = scene->cache.layout.v.dim;
    int row = 0;
    for (int s = 0; s < scene->sequences; s++)
        for (int i = 0; i < scene->text[s].fresh; i++, row++)
            for (int head = 0; head < heads; head++) {
                int vector = row * heads + head;
                check_head(scene, &scene->text[s], scene->text[s].old + i, head, (float *)step->q.data + vector * k_dim,
                           (float *)step->out.data + vector * v_dim);
            }
}

// A row in a batch of its own has the same bits.
static void check_row_alone(const struct scene *scene, const struct step *step, int row)
{
    struct attention_args args = attention_of(scene, step);
    size_t q_width = (size_t)(args.heads * scene->cache.layout.k.dim);
    size_t out_width = (size_t)(args.heads * scene->cache.layout.v.dim);
    const struct batch_sequence *found = step->sequence;
    while (row >= found->first + found->count)
        found++;
    struct batch_sequence sequence = { .first = 0, .count = 1, .pages = { [CLASS] = found->pages[CLASS] } };
    struct batch batch = { .tokens = 1, .positions = &step->positions[row], .sequences = 1, .sequence = &sequence };
    struct guarded out = guarded_floats(out_width);
    args.batch = &batch;
    args.q += (size_t)row * q_width;
    args.out = out.data;
    attention_ref(&args, 0, 1);
    assert_memory_equal(out.data, (float *)step->out.data + (size_t)row * out_width, out.bytes);
    guarded_free(&out);
}

static void play(uint64_t seed, enum dtype k, enum dtype v)
{
    struct scene scene;
    struct step old, fresh;
    scene_open(&scene, seed, k, v);
    step_open(&old, &scene, false);
    step_open(&fresh, &scene, true);
    write_step(&scene, &old);
    write_step(&scene, &fresh);
    check_pool(&scene);
    evict(&scene);
    struct attention_args args = attention_of(&scene, &fresh);
    run_kernel((struct run){ attention_ref, &args, { &fresh.out } });
    check_attention(&scene, &fresh);
    for (int row = 0; row < fresh.batch.tokens; row += 5)
        check_row_alone(&scene, &fresh, row);
    step_close(&old);
    step_close(&fresh);
    scene_close(&scene);
}

static bool is_cache_format(int dtype) { return dtype_table[dtype].use & DTYPE_USE_KV; }

static void test_every_pair_of_formats(void **state)
{
    (void)state;
    for (int k = 0; k < DTYPE_COUNT; k++)
        for (int v = 0; v < DTYPE_COUNT; v++)
            if (is_cache_format(k) && is_cache_format(v))
                play((uint64_t)(k * DTYPE_COUNT + v), k, v);
}

static void test_many_scenes(void **state)
{
    (void)state;
    for (uint64_t seed = 1000; seed < 1150; seed++)
        play(seed, seed % 2 ? DTYPE_F32 : DTYPE_NVFP4, seed % 3 ? DTYPE_BF16 : DTYPE_NVFP4);
}

// One key lies far along the queries and all others far against them: all attention is on that one, exactly, whichever
// page it is on, and nothing overflows on the way.
static void test_large_scores(void **state)
{
    (void)state;
    for (uint64_t seed = 2000; seed < 2030; seed++) {
        struct scene scene;
        struct step old, fresh;
        int where[SEQUENCES_MAX], row = 0;
        scene_open(&scene, seed, DTYPE_F32, DTYPE_F32);
        scene.window = 0, scene.softcap = 0;
        if (scene.sinks.room)
            guarded_free(&scene.sinks), scene.sinks = (struct guarded){ 0 };
        int heads = scene.heads, width = scene.kv_heads * scene.cache.layout.k.dim;
        int v_dim = scene.cache.layout.v.dim;
        for (int s = 0; s < scene.sequences; s++) {
            const struct text *text = &scene.text[s];
            where[s] = random_between(&scene.seed, 0, text->old + text->fresh - 1);
            for (int i = 0; i < (text->old + text->fresh) * width; i++)
                ((float *)text->k.data)[i] = i / width == where[s] ? 1e4f : -1e4f;
        }
        step_open(&old, &scene, false);
        step_open(&fresh, &scene, true);
        for (size_t i = 0; i < fresh.q.bytes / sizeof(float); i++)
            ((float *)fresh.q.data)[i] = 1e4f;
        write_step(&scene, &old);
        write_step(&scene, &fresh);
        struct attention_args args = attention_of(&scene, &fresh);
        run_kernel((struct run){ attention_ref, &args, { &fresh.out } });
        for (int s = 0; s < scene.sequences; s++)
            for (int i = 0; i < scene.text[s].fresh; i++, row++)
                for (int head = 0; head < heads && scene.text[s].old + i >= where[s]; head++)
                    assert_memory_equal(args.out + (row * heads + head) * v_dim,
                                        (float *)scene.text[s].v.data
                                            + (where[s] * scene.kv_heads + (head + scene.lead) / scene.group) * v_dim,
                                        (size_t)v_dim * sizeof(float));
        step_close(&old);
        step_close(&fresh);
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair_of_formats),
        cmocka_unit_test(test_many_scenes),
        cmocka_unit_test(test_large_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
