// SPDX-License-Identifier: Apache-2.0
// A safetensors file: eight bytes with the header's length, the header in JSON, the tensors' data.
#include "format/safetensors.h"

#include "base/strbuf.h"
#include "format/json.h"

enum { LENGTH_BYTES = 8, HEADER_BYTES_MAX = 100 * 1000 * 1000 };

static bool refuse_type(const char *name, const char *type, struct error *err)
{
    struct strbuf known = { 0 };
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (dtype_table[i].safetensors)
            strbuf_add_format(&known, "%s%s", known.len ? ", " : "", dtype_table[i].safetensors);
    fail(err, "tensor '%s' has type %.32s, which nibble does not read; it reads %s", name, type, strbuf_text(&known));
    strbuf_free(&known);
    return false;
}

static bool read_type(const json_t *entry, struct tensor *tensor, struct error *err)
{
    const json_t *type = json_object_get(entry, "dtype");
    if (!json_is_string(type))
        return fail(err, "tensor '%s' has no \"dtype\"; the file is damaged", tensor->name);
    struct bytes name = { json_string_value(type), json_string_length(type) };
    return dtype_from_safetensors(name, &tensor->dtype) || refuse_type(tensor->name, name.data, err);
}

static bool read_shape(const json_t *entry, struct tensor *tensor, struct error *err)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return fail(err, "tensor '%s' has no \"shape\"; the file is damaged", tensor->name);
    if (json_array_size(shape) > TENSOR_RANK_MAX)
        return fail(err, "tensor '%s' has %zu dimensions, and nibble reads up to %d", tensor->name,
                    json_array_size(shape), TENSOR_RANK_MAX);
    tensor->rank = (int)json_array_size(shape);
    for (int i = 0; i < tensor->rank; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return fail(err, "tensor '%s' has a dimension that is no whole number; the file is damaged", tensor->name);
        tensor->shape[i] = json_integer_value(extent);
    }
    return true;
}

static bool read_place(const json_t *entry, struct bytes data, struct tensor *tensor, struct error *err)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return fail(err, "tensor '%s' has no two \"data_offsets\"; the file is damaged", tensor->name);
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || begin > end)
        return fail(err, "tensor '%s' lies from %lld to %lld; the file is damaged", tensor->name, (long long)begin,
                    (long long)end);
    if ((uint64_t)end > data.len)
        return fail(err, "tensor '%s' ends %llu bytes past the end of the file; it is incomplete, download it again",
                    tensor->name, (unsigned long long)end - data.len);
    if ((size_t)(end - begin) != tensor->bytes)
        return fail(err, "tensor '%s' has %lld bytes where its type and shape need %zu; the file is damaged",
                    tensor->name, (long long)(end - begin), tensor->bytes);
    tensor->data = data.data + begin;
    return true;
}

static bool read_tensors(const json_t *header, struct bytes data, struct safetensors *out, struct error *err)
{
    out->tensors = ARENA_NEW(&out->arena, struct tensor, json_object_size(header));
    const char *name;
    json_t *entry;
    json_object_foreach ((json_t *)header, name, entry) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        if (!*name || strlen(name) > TENSOR_NAME_BYTES_MAX)
            return fail(err, "a tensor's name is empty or longer than %d bytes; the file is damaged",
                        TENSOR_NAME_BYTES_MAX);
        struct tensor *tensor = &out->tensors[out->tensor_count++];
        tensor->name = arena_text(&out->arena, name, strlen(name));
        if (!read_type(entry, tensor, err) || !read_shape(entry, tensor, err) || !tensor_measure(tensor, err)
            || !read_place(entry, data, tensor, err))
            return false;
    }
    return tensor_check_overlaps(out->tensors, out->tensor_count, err);
}

static bool read_header(struct bytes in, json_t **header, struct bytes *data, struct error *err)
{
    uint64_t length;
    if (in.len < LENGTH_BYTES)
        return fail(err, "the file ends after %zu bytes; it is incomplete, download it again", in.len);
    memcpy(&length, in.data, LENGTH_BYTES);
    if (length > HEADER_BYTES_MAX)
        return fail(err, "not a safetensors file: its header would have %llu bytes, and %d is the most there may be",
                    (unsigned long long)length, HEADER_BYTES_MAX);
    if (length > in.len - LENGTH_BYTES)
        return fail(err,
                    "the file ends after %zu bytes, inside its header of %llu; it is incomplete, download it "
                    "again",
                    in.len, (unsigned long long)length);
    struct bytes text = { in.data + LENGTH_BYTES, (size_t)length };
    *data = (struct bytes){ text.data + text.len, in.len - LENGTH_BYTES - text.len };
    return json_read(text, header, err) || fail_within(err, "the header");
}

bool safetensors_parse(struct bytes in, struct safetensors *out, struct error *err)
{
    json_t *header;
    struct bytes data = { 0 };
    *out = (struct safetensors){ 0 };
    if (!read_header(in, &header, &data, err))
        return false;
    bool ok = json_is_object(header) ? read_tensors(header, data, out, err)
                                     : fail(err, "not a safetensors file: its header is no JSON object");
    json_decref(header);
    if (!ok)
        safetensors_free(out);
    return ok;
}

void safetensors_free(struct safetensors *file)
{
    arena_free(&file->arena);
    *file = (struct safetensors){ 0 };
}
