// SPDX-License-Identifier: Apache-2.0
#include "model/source.h"

#include <stdio.h>

#include "format/json.h"

enum { KEY_BYTES_MAX = 128 };

static void full_key(const struct source *source, const char *key, char out[KEY_BYTES_MAX])
{
    snprintf(out, KEY_BYTES_MAX, "%s.%s", source->prefix, key);
}

static bool is_list(const struct gguf_value *value) { return value && value->type == GGUF_ARRAY; }

// An entry of an array, or with index -1 the largest.
static bool read_entry(const struct source *source, const char *gguf_key, int index, int low, int high, int *out,
                       struct error *err)
{
    char key[KEY_BYTES_MAX];
    const struct gguf_value *list;
    full_key(source, gguf_key, key);
    if (!gguf_get_array(source->checkpoint->gguf, key, GGUF_I32, &list, err))
        return false;
    if (!list->count || (index >= 0 && (size_t)index >= list->count))
        return fail(err, "gguf: %s has %zu entries, and the model more layers", key, list->count);
    int64_t value = gguf_array_int(list, index < 0 ? 0 : (size_t)index);
    for (size_t i = 1; index < 0 && i < list->count; i++)
        value = gguf_array_int(list, i) > value ? gguf_array_int(list, i) : value;
    if (value < low || value > high)
        return fail(err, "gguf: %s has %lld in it; %d to %d is possible", key, (long long)value, low, high);
    *out = (int)value;
    return true;
}

bool source_int_of_layer(const struct source *source, const char *gguf_key, int layer, int low, int high, int *out,
                         struct error *err)
{
    return is_list(source_gguf(source, gguf_key)) ? read_entry(source, gguf_key, layer, low, high, out, err)
                                                  : source_int(source, NULL, gguf_key, low, high, out, err);
}

bool source_int(const struct source *source, const char *json_key, const char *gguf_key, int low, int high, int *out,
                struct error *err)
{
    int64_t value = *out;
    char key[KEY_BYTES_MAX];
    if (source->by_layer && gguf_key && is_list(source_gguf(source, gguf_key)))
        return read_entry(source, gguf_key, -1, low, high, out, err);
    if (source->json) {
        if (json_key && !json_get_int(source->json, json_key, low, high, &value, err))
            return fail_within(err, "config.json");
    } else if (gguf_key) {
        full_key(source, gguf_key, key);
        if (!gguf_get_int(source->checkpoint->gguf, key, low, high, &value, err))
            return false;
    }
    *out = (int)value;
    return true;
}

bool source_need_int(const struct source *source, const char *json_key, const char *gguf_key, int low, int high,
                     int otherwise, int *out, struct error *err)
{
    *out = source->json ? otherwise : 0;
    if (!source_int(source, json_key, gguf_key, low, high, out, err))
        return false;
    if (*out)
        return true;
    if (source->json)
        return fail(err, "config.json lacks %s; the checkpoint is incomplete", json_key);
    return fail(err, "gguf: key %s.%s is missing; the file was not converted whole", source->prefix, gguf_key);
}

bool source_real(const struct source *source, const char *json_key, const char *gguf_key, double *out,
                 struct error *err)
{
    char key[KEY_BYTES_MAX];
    if (source->json)
        return !json_key || json_get_real(source->json, json_key, out, err) || fail_within(err, "config.json");
    if (!gguf_key)
        return true;
    full_key(source, gguf_key, key);
    return gguf_get_real(source->checkpoint->gguf, key, out, err);
}

bool source_bool(const struct source *source, const char *json_key, bool *out, struct error *err)
{
    return !source->json || json_get_bool(source->json, json_key, out, err) || fail_within(err, "config.json");
}

const struct gguf_value *source_gguf(const struct source *source, const char *gguf_key)
{
    char key[KEY_BYTES_MAX];
    if (!source->checkpoint->gguf)
        return NULL;
    full_key(source, gguf_key, key);
    return gguf_find(source->checkpoint->gguf, key);
}
