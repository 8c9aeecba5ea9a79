// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration/key_error.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/ref/dot.h"
#include "kernel/ref/kv_codec.h"
#include "kernel/ref/table.h"
#include "plan/calibration.h"

enum { QUERIES = 32 };

static const float *vector_of(const float *x, int token, int heads, int head, int dim)
{
    return x + ((size_t)token * (size_t)heads + (size_t)head) * (size_t)dim;
}

// The mean of the rotations by 0, 1 ... length - 1 times an angle.
static double complex mean_rotation(double angle, int length)
{
    double half = sin(angle / 2), share = half == 0 ? 1 : sin(length * angle / 2) / (length * half);
    return share * cexp(I * (length - 1) * angle / 2);
}

// The mean over tokens of channels a and b, with RoPE undone in each pair (inverse rotation). The loop starts at the
// last token and rotates the sum back by one position before it adds the next token, so that no token needs an angle of
// its own.
static double complex mean_unrotated(const struct key_sample *sample, int kv_head, int a, int b, double angle)
{
    double complex back = cexp(-I * angle), sum = 0;
    for (int token = sample->tokens - 1; token >= 0; token--) {
        const float *k = vector_of(sample->k, token, sample->kv_heads, kv_head, sample->head_dim);
        sum = k[a] + I * k[b] + back * sum;
    }
    return sum / sample->tokens;
}

void key_centre(const struct key_sample *sample, int kv_head, int length, float *centre)
{
    int pairs = sample->rotated / 2;
    for (int i = 0; i < pairs; i++) {
        double complex mean = mean_unrotated(sample, kv_head, i, i + pairs, sample->rope_frequencies[i])
            * mean_rotation(sample->frequencies[i], length);
        centre[i] = (float)creal(mean);
        centre[i + pairs] = (float)cimag(mean);
    }
    for (int i = 2 * pairs; i < sample->head_dim; i++)
        centre[i] = (float)creal(mean_unrotated(sample, kv_head, i, i, 0));
}

// A vector as the cache would give it back.
static void store(const struct key_sample *sample, enum dtype format, float layer_scale, float *x)
{
    const struct kv_codec *codec = &kv_codecs[format];
    bool searches = sample->scale_search && codec->store_searched;
    uint8_t data[HEAD_DIM_MAX * sizeof(float)], scale[HEAD_DIM_MAX];
    (searches ? codec->store_searched : codec->store)(x, sample->head_dim, layer_scale, data, scale);
    codec->load(data, scale, sample->head_dim, layer_scale, x);
}

// Returns all keys of a head in `out` as the cache would give them back, in the basis of the queries: the Hadamard
// transform is its own inverse, and the centre stays subtracted, as it does in the cache.
static void store_keys(const struct key_sample *sample, int kv_head, const float *centre, int transform, float *out)
{
    int dim = sample->head_dim, one = 1;
    struct transform_args rotation = {
        .rows = &one, .kv_heads = 1, .head_dim = dim, .block = transform & KV_ROTATE ? dim & -dim : 0
    };
    for (int token = 0; token < sample->tokens; token++) {
        float *x = out + (size_t)token * (size_t)dim;
        memcpy(x, vector_of(sample->k, token, sample->kv_heads, kv_head, dim), (size_t)dim * sizeof *x);
        struct transform_args whole = rotation;
        whole.k = rotation.k = x;
        whole.centre = transform & KV_CENTRE ? centre : NULL;
        transform_ref(&whole, 0, 1);
        if (token >= sample->kept)
            store(sample, sample->format, sample->layer_scale, x);
        transform_ref(&rotation, 0, 1);
    }
}

static void store_values(const struct key_sample *sample, int kv_head, float *out)
{
    size_t dim = (size_t)sample->head_dim;
    for (int token = 0; token < sample->tokens; token++) {
        float *x = out + (size_t)token * dim;
        memcpy(x, vector_of(sample->v, token, sample->kv_heads, kv_head, sample->head_dim), dim * sizeof *x);
        if (token >= sample->kept)
            store(sample, sample->v_format, sample->v_layer_scale, x);
    }
}

// One head's vectors, `stride` values apart.
struct vectors {
    const float *first;
    size_t stride;
};

static const float *vector_at(struct vectors vectors, int token)
{
    return vectors.first + (size_t)token * vectors.stride;
}

static struct vectors exact_vectors(const struct key_sample *sample, const float *x, int kv_head)
{
    size_t dim = (size_t)sample->head_dim;
    return (struct vectors){ x + (size_t)kv_head * dim, (size_t)sample->kv_heads * dim };
}

// The attention output of one query of `token`. scores: room for all tokens.
static void attend(const struct key_sample *sample, int token, int head, struct vectors keys, struct vectors values,
                   float *scores, float *out)
{
    int dim = sample->head_dim;
    int first = sample->window && token >= sample->window ? token - sample->window + 1 : 0;
    const float *q = vector_of(sample->q, token, sample->heads, head, dim);
    float most = sample->sinks ? sample->sinks[head] : -INFINITY, sum = 0;
    for (int i = first; i <= token; i++) {
        scores[i] = dot(q, vector_at(keys, i), dim) * sample->scale;
        if (sample->softcap > 0)
            scores[i] = sample->softcap * tanhf(scores[i] / sample->softcap);
        most = fmaxf(most, scores[i]);
    }
    sum = sample->sinks ? expf(sample->sinks[head] - most) : 0;
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int i = first; i <= token; i++) {
        const float *v = vector_at(values, i);
        float share = expf(scores[i] - most);
        sum += share;
        for (int j = 0; j < dim; j++)
            out[j] += share * v[j];
    }
    for (int j = 0; j < dim; j++)
        out[j] /= sum;
}

static void add_difference(struct key_error *error, const float *found, const float *exact, int dim)
{
    for (int i = 0; i < dim; i++) {
        double apart = (double)found[i] - exact[i];
        error->apart += apart * apart;
        error->all += (double)exact[i] * exact[i];
    }
}

static struct key_error attention_error(const struct key_sample *sample, int kv_head, struct vectors keys,
                                        struct vectors values)
{
    struct key_error error = { 0 };
    int dim = sample->head_dim, group = sample->heads / sample->kv_heads, half = sample->tokens / 2;
    float exact[HEAD_DIM_MAX], found[HEAD_DIM_MAX];
    float *scores = memory_new((size_t)sample->tokens, sizeof *scores);
    struct vectors exact_keys = exact_vectors(sample, sample->k, kv_head);
    struct vectors exact_values = exact_vectors(sample, sample->v, kv_head);
    for (int i = 0; i < QUERIES * group; i++) {
        int token = half + (sample->tokens - 1 - half) * (i / group) / (QUERIES - 1);
        int head = kv_head * group + i % group;
        attend(sample, token, head, exact_keys, exact_values, scores, exact);
        attend(sample, token, head, keys, values, scores, found);
        add_difference(&error, found, exact, dim);
    }
    free(scores);
    return error;
}

static float *new_vectors(const struct key_sample *sample)
{
    return memory_new((size_t)sample->tokens * (size_t)sample->head_dim, sizeof(float));
}

struct key_error key_error(const struct key_sample *sample, int kv_head, const float *centre, int transform)
{
    float *keys = new_vectors(sample);
    store_keys(sample, kv_head, centre, transform, keys);
    struct key_error error = attention_error(sample, kv_head, (struct vectors){ keys, (size_t)sample->head_dim },
                                             exact_vectors(sample, sample->v, kv_head));
    free(keys);
    return error;
}

struct stored_error stored_error(const struct key_sample *sample, int kv_head, const float *centre, int transform)
{
    size_t dim = (size_t)sample->head_dim;
    float *keys = new_vectors(sample), *values = new_vectors(sample);
    store_keys(sample, kv_head, centre, transform, keys);
    store_values(sample, kv_head, values);
    struct stored_error error = { .out = attention_error(sample, kv_head, (struct vectors){ keys, dim },
                                                         (struct vectors){ values, dim }) };
    for (int token = 0; token < sample->tokens; token++) {
        float *key = keys + (size_t)token * dim;
        for (size_t i = 0; i < dim && transform & KV_CENTRE; i++)
            key[i] += centre[i];
        add_difference(&error.k, key, vector_of(sample->k, token, sample->kv_heads, kv_head, (int)dim), (int)dim);
        add_difference(&error.v, values + (size_t)token * dim,
                       vector_of(sample->v, token, sample->kv_heads, kv_head, (int)dim), (int)dim);
    }
    free(values);
    free(keys);
    return error;
}
