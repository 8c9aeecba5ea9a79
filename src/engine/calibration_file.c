// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPENSSL_SUPPRESS_DEPRECATED // as in kv/prefix.c
#include <openssl/sha.h>

#include "base/file.h"
#include "engine/calibrate.h"

_Static_assert(CALIBRATION_KEY_BYTES == SHA256_DIGEST_LENGTH, "a key is a whole hash");

enum { MAGIC_BYTES = 16, SAMPLES = 256, SAMPLE_BYTES = 64 };
static const char magic[MAGIC_BYTES + 1] = "nibble kv keys 1"; // another way to measure is another number

// ---- the key ----

static void hash_text(SHA256_CTX *context, const char *text)
{
    SHA256_Update(context, text, strlen(text) + 1);
}

static void hash_tensor(SHA256_CTX *context, const struct tensor *tensor, bool sampled)
{
    hash_text(context, tensor->name);
    hash_text(context, dtype_word(tensor->dtype));
    SHA256_Update(context, tensor->shape, (size_t)tensor->rank * sizeof *tensor->shape);
    if (sampled && tensor->bytes >= SAMPLE_BYTES)
        SHA256_Update(context, tensor->data + (tensor->bytes - SAMPLE_BYTES) / 2, SAMPLE_BYTES);
}

// Tensors at even distances are looked into.
static void hash_checkpoint(SHA256_CTX *context, const struct checkpoint *checkpoint)
{
    size_t rhythm = checkpoint->tensor_count / SAMPLES + 1;
    for (size_t i = 0; i < checkpoint->tensor_count; i++)
        hash_tensor(context, &checkpoint->tensors[i], i % rhythm == 0);
}

static void hash_model(SHA256_CTX *context, const struct plan *wanted)
{
    const struct model_config *config = &wanted->model->config;
    const int sizes[] = { config->layers, config->hidden, config->rotated, config->rope_interleaved,
                          config->experts.chosen, config->activation, CALIBRATE_TOKENS, wanted->scale_search };
    const double numbers[] = { config->norm_epsilon,    config->norm_offset, config->embed_scale,
                               config->attention_scale, config->residual_scale, config->attention_softcap };
    hash_text(context, config->architecture);
    SHA256_Update(context, sizes, sizeof sizes);
    SHA256_Update(context, numbers, sizeof numbers);
}

static void hash_layer(SHA256_CTX *context, const struct plan *wanted, int index)
{
    const struct layer *layer = &wanted->model->layer[index];
    const int sizes[] = { layer->heads, layer->kv_heads, layer->head_dim, layer->window,
                          calibrate_kept(wanted, index) };
    SHA256_Update(context, sizes, sizeof sizes);
    hash_text(context, dtype_word(calibrate_keys(wanted, index)->dtype));
    const float *frequencies = layer_frequencies(layer, wanted->max_model_len);
    if (frequencies)
        SHA256_Update(context, frequencies, (size_t)wanted->model->config.rotated / 2 * sizeof *frequencies);
}

struct calibration_key calibration_key_of(const struct checkpoint *checkpoint, const struct plan *wanted,
                                          struct bytes text)
{
    struct calibration_key key;
    SHA256_CTX context;
    SHA256_Init(&context);
    hash_text(&context, magic);
    hash_checkpoint(&context, checkpoint);
    hash_model(&context, wanted);
    for (int i = 0; i < wanted->model->config.layers; i++)
        if (calibrate_measures(wanted, i))
            hash_layer(&context, wanted, i);
    SHA256_Update(&context, text.data, text.len);
    SHA256_Final(key.bytes, &context);
    return key;
}

char *calibration_path(const struct calibration_key *key)
{
    static const char folder[] = "calibration/";
    char name[sizeof folder + 2 * CALIBRATION_KEY_BYTES + 1];
    int len = snprintf(name, sizeof name, "%s", folder);
    for (int i = 0; i < CALIBRATION_KEY_BYTES; i++)
        len += snprintf(name + len, sizeof name - (size_t)len, "%02x", key->bytes[i]);
    return file_cache_path(name);
}

// ---- the content ----

static size_t centre_values(const struct plan *wanted, int index)
{
    const struct layer *layer = &wanted->model->layer[index];
    return (size_t)layer->kv_heads * (size_t)layer->head_dim;
}

static size_t content_bytes(const struct plan *wanted)
{
    size_t bytes = MAGIC_BYTES + 2 * CALIBRATION_KEY_BYTES;
    for (int i = 0; i < wanted->model->config.layers; i++)
        if (calibrate_measures(wanted, i))
            bytes += (KV_TRANSFORMS + centre_values(wanted, i)) * sizeof(float);
    return bytes;
}

static bool all_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

// A layer without a result has NaN in place of it.
static const char *parse_layer(struct kv_calibration *out, const struct plan *wanted, int index, const char *at)
{
    struct kv_calibrated *layer = &out->layer[index];
    size_t values = centre_values(wanted, index);
    float *centre = ARENA_NEW(&out->arena, float, values);
    memcpy(layer->error, at, sizeof layer->error);
    memcpy(centre, at + sizeof layer->error, values * sizeof *centre);
    layer->k = calibrate_keys(wanted, index)->dtype;
    layer->centre = all_finite(centre, values) && all_finite(layer->error, KV_TRANSFORMS) ? centre : NULL;
    return at + sizeof layer->error + values * sizeof *centre;
}

bool calibration_parse(struct kv_calibration *out, struct bytes content, const struct calibration_key *key,
                       const struct plan *wanted, struct error *err)
{
    uint8_t sum[SHA256_DIGEST_LENGTH];
    const char *at = content.data;
    if (content.len < MAGIC_BYTES || memcmp(at, magic, MAGIC_BYTES))
        return fail(err, "is no calibration of this version");
    if (content.len != content_bytes(wanted))
        return fail(err, "has %zu bytes where %zu belong", content.len, content_bytes(wanted));
    if (memcmp(at + MAGIC_BYTES, key->bytes, sizeof key->bytes))
        return fail(err, "belongs to another checkpoint");
    SHA256((const unsigned char *)at, content.len - sizeof sum, sum);
    if (memcmp(at + content.len - sizeof sum, sum, sizeof sum))
        return fail(err, "is damaged");
    *out = (struct kv_calibration){ .layers = wanted->model->config.layers };
    out->layer = ARENA_NEW(&out->arena, struct kv_calibrated, out->layers);
    at += MAGIC_BYTES + CALIBRATION_KEY_BYTES;
    for (int i = 0; i < out->layers; i++)
        if (calibrate_measures(wanted, i))
            at = parse_layer(out, wanted, i, at);
    return true;
}

void calibration_print(const struct kv_calibration *calibration, const struct calibration_key *key,
                       const struct plan *wanted, struct strbuf *out)
{
    uint8_t sum[SHA256_DIGEST_LENGTH];
    strbuf_add(out, magic, MAGIC_BYTES);
    strbuf_add(out, (const char *)key->bytes, sizeof key->bytes);
    for (int i = 0; i < calibration->layers; i++) {
        const struct kv_calibrated *layer = &calibration->layer[i];
        if (!calibrate_measures(wanted, i))
            continue;
        strbuf_add(out, (const char *)layer->error, sizeof layer->error);
        for (size_t j = 0; j < centre_values(wanted, i); j++) {
            float value = layer->centre ? layer->centre[j] : NAN;
            strbuf_add(out, (const char *)&value, sizeof value);
        }
    }
    SHA256((const unsigned char *)out->data, out->len, sum);
    strbuf_add(out, (const char *)sum, sizeof sum);
}
