// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPENSSL_SUPPRESS_DEPRECATED // as in kv/prefix.c
#include <openssl/sha.h>

#include "base/file.h"
#include "base/sha256.h"
#include "engine/calibration/text_observer.h"

_Static_assert(CALIBRATION_KEY_BYTES == SHA256_DIGEST_LENGTH, "a key is a whole hash");

enum { SAMPLES = 256, SAMPLE_BYTES = 64 };
enum { MAGIC_BYTES = 16, HEAD_BYTES = MAGIC_BYTES + CALIBRATION_KEY_BYTES + sizeof(int32_t) };
enum { WAY_NUMBERS = 3 };                                      // before its errors: format, tokens kept, search
enum { WAYS_MAX = KV_WAYS_MAX / 2 };                           // in a file: there is room for what a plan adds
static const char magic[MAGIC_BYTES + 1] = "nibble kv keys 2"; // another way to measure is another number

// ---- the key ----

static void hash_text(SHA256_CTX *context, const char *text) { SHA256_Update(context, text, strlen(text) + 1); }

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
    size_t moe_layer_freq = checkpoint->tensor_count / SAMPLES + 1;
    for (size_t i = 0; i < checkpoint->tensor_count; i++)
        hash_tensor(context, &checkpoint->tensors[i], i % moe_layer_freq == 0);
}

struct calibration_key calibration_hash_checkpoint(const struct checkpoint *checkpoint)
{
    struct calibration_key key;
    SHA256_CTX context;
    SHA256_Init(&context);
    hash_checkpoint(&context, checkpoint);
    SHA256_Final(key.bytes, &context);
    return key;
}

static void hash_model(SHA256_CTX *context, const struct plan *wanted)
{
    const struct model_config *config = &wanted->model->config;
    const int sizes[] = { config->layers,        config->hidden,     config->rotated,  config->rope_interleaved,
                          config->experts.top_k, config->activation, TEXT_WATCH_TOKENS };
    const double numbers[] = { config->norm_epsilon,    config->norm_offset,    config->embed_scale,
                               config->attention_scale, config->residual_scale, config->attention_softcap };
    hash_text(context, config->architecture);
    SHA256_Update(context, sizes, sizeof sizes);
    SHA256_Update(context, numbers, sizeof numbers);
}

static void hash_layer(SHA256_CTX *context, const struct plan *wanted, int index)
{
    const struct layer *layer = &wanted->model->layer[index];
    const int sizes[] = { layer->heads, layer->kv_heads, layer->head_dim, layer->window };
    SHA256_Update(context, sizes, sizeof sizes);
    const float *frequencies = layer_frequencies(layer, wanted->max_model_len);
    if (frequencies)
        SHA256_Update(context, frequencies, (size_t)wanted->model->config.rotated / 2 * sizeof *frequencies);
}

// The file has formats by their numbers, so it belongs to a table of them.
static void hash_formats(SHA256_CTX *context)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        hash_text(context, dtype_word((enum dtype)i));
}

struct calibration_key calibration_key_of(const struct checkpoint *checkpoint, const struct plan *wanted,
                                          struct bytes text)
{
    struct calibration_key key;
    SHA256_CTX context;
    SHA256_Init(&context);
    hash_text(&context, magic);
    hash_formats(&context);
    hash_checkpoint(&context, checkpoint);
    hash_model(&context, wanted);
    for (int i = 0; i < wanted->model->config.layers; i++)
        if (text_watch_sees(wanted, i))
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

static size_t content_bytes(const struct plan *wanted, int ways)
{
    size_t bytes = HEAD_BYTES + (size_t)ways * WAY_NUMBERS * sizeof(int32_t) + SHA256_DIGEST_LENGTH;
    for (int i = 0; i < wanted->model->config.layers; i++)
        if (text_watch_sees(wanted, i))
            bytes += ((size_t)ways * KV_TRANSFORMS + centre_values(wanted, i)) * sizeof(float);
    return bytes;
}

static bool all_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

// A layer without a centre has NaN in place of it.
static const char *parse_centre(struct kv_calibration *out, const struct plan *wanted, int index, const char *at)
{
    size_t values = centre_values(wanted, index);
    float *centre = ARENA_NEW(&out->arena, float, values);
    memcpy(centre, at, values * sizeof *centre);
    out->layer[index].centre = all_finite(centre, values) ? centre : NULL;
    out->layer[index].centre_count = values;
    return at + values * sizeof *centre;
}

static const char *parse_way(struct kv_calibration *out, const struct plan *wanted, const char *at)
{
    int32_t numbers[WAY_NUMBERS];
    struct kv_way *way = &out->ways[out->way_count++];
    memcpy(numbers, at, sizeof numbers);
    at += sizeof numbers;
    *way = (struct kv_way){ .k = numbers[0], .kept = numbers[1], .search = numbers[2] };
    way->errors = arena_new(&out->arena, (size_t)out->layers, sizeof *way->errors);
    for (int i = 0; i < out->layers; i++)
        if (text_watch_sees(wanted, i)) {
            memcpy(way->errors[i], at, sizeof way->errors[i]);
            at += sizeof way->errors[i];
        }
    return at;
}

// How many ways the file has, if it has the bytes that belong to so many; else -1.
static int parse_head(struct bytes content, const struct calibration_key *key, const struct plan *wanted,
                      struct error *err)
{
    uint8_t sum[SHA256_DIGEST_LENGTH];
    const char *at = content.data;
    int32_t ways = 0;
    if (content.len < MAGIC_BYTES || memcmp(at, magic, MAGIC_BYTES))
        return fail(err, "is no calibration of this version"), -1;
    if (content.len < content_bytes(wanted, 0))
        return fail(err, "has %zu bytes where at least %zu belong", content.len, content_bytes(wanted, 0)), -1;
    if (memcmp(at + MAGIC_BYTES, key->bytes, sizeof key->bytes))
        return fail(err, "belongs to another checkpoint"), -1;
    memcpy(&ways, at + MAGIC_BYTES + sizeof key->bytes, sizeof ways);
    sha256_of((struct bytes){ at, content.len - sizeof sum }, sum);
    if (ways < 0 || ways > WAYS_MAX || content.len != content_bytes(wanted, ways)
        || memcmp(at + content.len - sizeof sum, sum, sizeof sum))
        return fail(err, "is damaged"), -1;
    return ways;
}

bool calibration_parse(struct kv_calibration *out, struct bytes content, const struct calibration_key *key,
                       const struct plan *wanted, struct error *err)
{
    int ways = parse_head(content, key, wanted, err);
    if (ways < 0)
        return false;
    const char *at = content.data + HEAD_BYTES;
    *out = (struct kv_calibration){ .layers = wanted->model->config.layers };
    out->layer = ARENA_NEW(&out->arena, struct kv_calibrated, out->layers);
    for (int i = 0; i < out->layers; i++)
        if (text_watch_sees(wanted, i))
            at = parse_centre(out, wanted, i, at);
    for (int i = 0; i < ways; i++)
        at = parse_way(out, wanted, at);
    return true;
}

static void print_centre(const struct kv_calibration *calibration, const struct plan *wanted, int index,
                         struct strbuf *out)
{
    for (size_t i = 0; i < centre_values(wanted, index); i++) {
        float value = calibration->layer[index].centre ? calibration->layer[index].centre[i] : NAN;
        strbuf_add(out, (const char *)&value, sizeof value);
    }
}

void calibration_seal(struct strbuf *content)
{
    uint8_t sum[SHA256_DIGEST_LENGTH];
    sha256_of(strbuf_bytes(content), sum);
    strbuf_add(content, (const char *)sum, sizeof sum);
}

void calibration_print(const struct kv_calibration *calibration, const struct calibration_key *key,
                       const struct plan *wanted, struct strbuf *out)
{
    const int32_t ways = calibration->way_count;
    strbuf_add(out, magic, MAGIC_BYTES);
    strbuf_add(out, (const char *)key->bytes, sizeof key->bytes);
    strbuf_add(out, (const char *)&ways, sizeof ways);
    for (int i = 0; i < calibration->layers; i++)
        if (text_watch_sees(wanted, i))
            print_centre(calibration, wanted, i, out);
    for (int i = 0; i < ways; i++) {
        const struct kv_way *way = &calibration->ways[i];
        const int32_t numbers[WAY_NUMBERS] = { way->k, way->kept, way->search };
        strbuf_add(out, (const char *)numbers, sizeof numbers);
        for (int j = 0; j < calibration->layers; j++)
            if (text_watch_sees(wanted, j))
                strbuf_add(out, (const char *)way->errors[j], sizeof way->errors[j]);
    }
    calibration_seal(out);
}
