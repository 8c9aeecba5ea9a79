// SPDX-License-Identifier: Apache-2.0
// GGUF parser in three layers: a bounds-checked reader, key/value pairs, the tensor table.
#include "format/gguf.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "base/utf8.h"

enum {
    GGUF_RANK_MAX = 4,
    GGUF_ALIGNMENT_DEFAULT = 32,
    GGUF_ALIGNMENT_MIN = 8,
    GGUF_ALIGNMENT_MAX = 1 << 30,
    // the least size of an entry: counts are checked against the file's size before anything is allocated
    GGUF_KEY_BYTES_MIN = 8 + 4 + 1,
    GGUF_TENSOR_BYTES_MIN = 8 + 4 + 4 + 8,
    GGUF_STRING_BYTES_MIN = 8,
};

enum kind { KIND_INTEGER, KIND_BOOL, KIND_REAL, KIND_STRING, KIND_ARRAY };

static const struct {
    const char *name;
    enum kind kind;
    size_t bytes; // 0: variable
} types[] = {
    [GGUF_U8] = { "uint8", KIND_INTEGER, 1 },     [GGUF_I8] = { "int8", KIND_INTEGER, 1 },
    [GGUF_U16] = { "uint16", KIND_INTEGER, 2 },   [GGUF_I16] = { "int16", KIND_INTEGER, 2 },
    [GGUF_U32] = { "uint32", KIND_INTEGER, 4 },   [GGUF_I32] = { "int32", KIND_INTEGER, 4 },
    [GGUF_F32] = { "float32", KIND_REAL, 4 },     [GGUF_BOOL] = { "bool", KIND_BOOL, 1 },
    [GGUF_STRING] = { "string", KIND_STRING, 0 }, [GGUF_ARRAY] = { "array", KIND_ARRAY, 0 },
    [GGUF_U64] = { "uint64", KIND_INTEGER, 8 },   [GGUF_I64] = { "int64", KIND_INTEGER, 8 },
    [GGUF_F64] = { "float64", KIND_REAL, 8 },
};

// ---- the reader ----

struct reader {
    struct bytes in;
    size_t at;
    char part[TENSOR_NAME_BYTES_MAX + 32]; // what is being read, for error messages
    struct error *err;
};

static void enter(struct reader *reader, const char *what, const char *name)
{
    snprintf(reader->part, sizeof reader->part, "%s '%s'", what, name);
}

static size_t left(const struct reader *reader) { return reader->in.len - reader->at; }

// The next bytes, or NULL if the file ends before.
static const char *take(struct reader *reader, uint64_t bytes)
{
    if (bytes > left(reader)) {
        fail(reader->err, "the file ends after %zu bytes, inside %s; it is incomplete, download it again",
             reader->in.len, reader->part);
        return NULL;
    }
    const char *data = reader->in.data + reader->at;
    reader->at += bytes;
    return data;
}

static bool take_u32(struct reader *reader, uint32_t *out)
{
    const char *data = take(reader, sizeof *out);
    return data && memcpy(out, data, sizeof *out);
}

static bool take_u64(struct reader *reader, uint64_t *out)
{
    const char *data = take(reader, sizeof *out);
    return data && memcpy(out, data, sizeof *out);
}

// Reads a count of elements of at least `bytes_min` bytes each.
static bool take_count(struct reader *reader, const char *things, size_t bytes_min, size_t *out)
{
    uint64_t count;
    if (!take_u64(reader, &count))
        return false;
    if (count > left(reader) / bytes_min)
        return fail(reader->err,
                    "%s claims %llu %s, more than the %zu bytes of the file can hold; it is damaged or "
                    "incomplete, download it again",
                    reader->part, (unsigned long long)count, things, reader->in.len);
    *out = (size_t)count;
    return true;
}

static bool take_string(struct reader *reader, struct bytes *out)
{
    uint64_t length;
    if (!take_u64(reader, &length))
        return false;
    *out = (struct bytes){ take(reader, length), length };
    return out->data;
}

// Names are used as C strings in messages and JSON, so they must be printable; values may hold any bytes.
static bool is_printable(struct bytes text)
{
    while (text.len) {
        uint32_t codepoint;
        size_t length = utf8_decode(text, &codepoint);
        if (!length || codepoint < ' ')
            return false;
        text = (struct bytes){ text.data + length, text.len - length };
    }
    return true;
}

static bool take_name(struct reader *reader, const char *what, struct arena *arena, const char **out)
{
    struct bytes name;
    snprintf(reader->part, sizeof reader->part, "the name of a %s", what);
    if (!take_string(reader, &name))
        return false;
    if (!name.len || name.len > TENSOR_NAME_BYTES_MAX || !is_printable(name))
        return fail(reader->err, "%s is empty, longer than %d bytes or no text; the file is damaged, download it again",
                    reader->part, TENSOR_NAME_BYTES_MAX);
    *out = arena_text(arena, name.data, name.len);
    enter(reader, what, *out);
    return true;
}

// ---- values ----

static int64_t integer_at(const char *data, enum gguf_type type)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
    } raw;
    memcpy(&raw, data, types[type].bytes);
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL: return raw.u8;
    case GGUF_I8: return raw.i8;
    case GGUF_U16: return raw.u16;
    case GGUF_I16: return raw.i16;
    case GGUF_U32: return raw.u32;
    case GGUF_I32: return raw.i32;
    case GGUF_U64:
    case GGUF_I64: return raw.i64; // a U64 past INT64_MAX was refused
    default: assert(!"not an integer type"); return 0;
    }
}

static double real_at(const char *data, enum gguf_type type)
{
    union {
        float f32;
        double f64;
    } raw;
    memcpy(&raw, data, types[type].bytes);
    return type == GGUF_F32 ? raw.f32 : raw.f64;
}

static bool take_type(struct reader *reader, enum gguf_type *out)
{
    uint32_t type;
    if (!take_u32(reader, &type))
        return false;
    if (type >= sizeof types / sizeof *types)
        return fail(reader->err, "%s has the unknown value type %u; the file is damaged or newer than this nibble",
                    reader->part, type);
    *out = (enum gguf_type)type;
    return true;
}

// Refuses booleans other than 0 and 1, and integers that do not fit an int64_t.
static bool check_numbers(struct reader *reader, const char *data, enum gguf_type type, size_t count)
{
    if (type != GGUF_BOOL && type != GGUF_U64)
        return true;
    for (size_t i = 0; i < count; i++) {
        int64_t value = integer_at(data + i * types[type].bytes, type);
        if (type == GGUF_BOOL && value > 1)
            return fail(reader->err, "%s has %lld for a boolean; the file is damaged", reader->part, (long long)value);
        if (value < 0)
            return fail(reader->err, "%s has %llu, which is more than 63 bits hold", reader->part,
                        (unsigned long long)value);
    }
    return true;
}

static bool take_array(struct reader *reader, struct arena *arena, struct gguf_value *value)
{
    if (!take_type(reader, &value->element))
        return false;
    if (value->element == GGUF_ARRAY)
        return fail(reader->err, "%s is an array of arrays, which nibble does not read", reader->part);
    size_t size = types[value->element].bytes;
    if (!take_count(reader, "elements", size ? size : GGUF_STRING_BYTES_MIN, &value->count))
        return false;
    if (size) {
        value->data = take(reader, value->count * size);
        return value->data && check_numbers(reader, value->data, value->element, value->count);
    }

    struct bytes *strings = ARENA_NEW(arena, struct bytes, value->count);
    value->strings = strings;
    for (size_t i = 0; i < value->count; i++)
        if (!take_string(reader, &strings[i]))
            return false;
    return true;
}

static bool take_value(struct reader *reader, struct arena *arena, struct gguf_value *value)
{
    if (!take_type(reader, &value->type))
        return false;
    if (value->type == GGUF_ARRAY)
        return take_array(reader, arena, value);
    if (value->type == GGUF_STRING)
        return take_string(reader, &value->string);

    const char *data = take(reader, types[value->type].bytes);
    if (!data || !check_numbers(reader, data, value->type, 1))
        return false;
    if (types[value->type].kind == KIND_REAL)
        value->real = real_at(data, value->type);
    else
        value->integer = integer_at(data, value->type);
    return true;
}

static bool take_values(struct reader *reader, struct gguf *gguf)
{
    gguf->values = ARENA_NEW(&gguf->arena, struct gguf_value, gguf->value_count);
    for (size_t i = 0; i < gguf->value_count; i++) {
        const char *key;
        int64_t earlier;
        if (!take_name(reader, "key", &gguf->arena, &key))
            return false;
        if (map_get(&gguf->keys, bytes_of(key), &earlier))
            return fail(reader->err, "key '%s' is there twice; the file is damaged", key);
        if (!take_value(reader, &gguf->arena, &gguf->values[i]))
            return false;
        map_put(&gguf->keys, bytes_of(key), (int64_t)i);
    }
    return true;
}

// ---- tensors ----

static bool refuse_type(const struct reader *reader, uint32_t type)
{
    struct strbuf known = { 0 };
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (dtype_table[i].gguf >= 0 && dtype_table[i].use & DTYPE_USE_W)
            strbuf_add_format(&known, "%s%s", known.len ? ", " : "", dtype_table[i].word);
    fail(reader->err, "%s has type number %u, which nibble does not read; take a file in one of %s", reader->part, type,
         strbuf_text(&known));
    strbuf_free(&known);
    return false;
}

static bool take_shape(struct reader *reader, struct tensor *tensor)
{
    uint32_t rank;
    if (!take_u32(reader, &rank))
        return false;
    if (rank > GGUF_RANK_MAX)
        return fail(reader->err, "%s has %u dimensions, and GGUF knows up to %d; the file is damaged", reader->part,
                    rank, GGUF_RANK_MAX);
    tensor->rank = (int)rank;
    for (int i = tensor->rank - 1; i >= 0; i--) { // GGUF stores the innermost dimension first
        uint64_t extent;
        if (!take_u64(reader, &extent))
            return false;
        if (!extent || extent > INT64_MAX)
            return fail(reader->err, "%s has a dimension of %llu; the file is damaged", reader->part,
                        (unsigned long long)extent);
        tensor->shape[i] = (int64_t)extent;
    }
    return true;
}

static bool take_tensor(struct reader *reader, struct arena *arena, struct tensor *tensor, uint64_t *offset)
{
    uint32_t type;
    if (!take_name(reader, "tensor", arena, &tensor->name) || !take_shape(reader, tensor) || !take_u32(reader, &type)
        || !take_u64(reader, offset))
        return false;
    return (dtype_from_gguf(type, &tensor->dtype) || refuse_type(reader, type)) && tensor_measure(tensor, reader->err);
}

// Offsets count from the first aligned byte after the table.
static bool place_tensors(struct reader *reader, struct gguf *gguf, const uint64_t *offsets, size_t alignment)
{
    size_t start = (reader->at + alignment - 1) & ~(alignment - 1);
    size_t room = start < reader->in.len ? reader->in.len - start : 0;
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        struct tensor *tensor = &gguf->tensors[i];
        if (offsets[i] % alignment)
            return fail(reader->err, "tensor '%s' is not aligned to %zu bytes; the file is damaged", tensor->name,
                        alignment);
        if (offsets[i] > room || tensor->bytes > room - offsets[i])
            return fail(reader->err,
                        "tensor '%s' has %zu bytes at %llu, and the file ends after %zu; it is "
                        "incomplete, download it again",
                        tensor->name, tensor->bytes, (unsigned long long)(start + offsets[i]), reader->in.len);
        tensor->data = reader->in.data + start + offsets[i];
    }
    return tensor_check_overlaps(gguf->tensors, gguf->tensor_count, reader->err);
}

static bool take_tensors(struct reader *reader, struct gguf *gguf, struct map *names)
{
    int64_t alignment = GGUF_ALIGNMENT_DEFAULT;
    if (!gguf_get_int(gguf, "general.alignment", GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX, &alignment, reader->err))
        return false;
    if (alignment & (alignment - 1))
        return fail(reader->err, "key 'general.alignment' is %lld, expected a power of two", (long long)alignment);

    gguf->tensors = ARENA_NEW(&gguf->arena, struct tensor, gguf->tensor_count);
    uint64_t *offsets = ARENA_NEW(&gguf->arena, uint64_t, gguf->tensor_count);
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        int64_t earlier;
        if (!take_tensor(reader, &gguf->arena, &gguf->tensors[i], &offsets[i]))
            return false;
        struct bytes name = bytes_of(gguf->tensors[i].name);
        if (map_get(names, name, &earlier))
            return fail(reader->err, "tensor '%s' is there twice; the file is damaged", name.data);
        map_put(names, name, (int64_t)i);
    }
    return place_tensors(reader, gguf, offsets, (size_t)alignment);
}

// ---- the file ----

static bool take_header(struct reader *reader, struct gguf *gguf)
{
    snprintf(reader->part, sizeof reader->part, "the header");
    const char *magic = take(reader, 4);
    if (!magic)
        return false;
    if (memcmp(magic, "GGUF", 4))
        return fail(reader->err, "not a GGUF file: it does not start with the letters GGUF");
    if (!take_u32(reader, &gguf->version))
        return false;
    if (gguf->version && !(gguf->version & 0xFFFF))
        return fail(reader->err, "a big-endian GGUF file; nibble reads little-endian ones");
    if (gguf->version == 1)
        return fail(reader->err, "a GGUF file of version 1, which is no longer in use; take one of version 2 or 3");
    if (gguf->version != 2 && gguf->version != 3)
        return fail(reader->err, "a GGUF file of version %u; nibble reads versions 2 and 3", gguf->version);
    if (!take_count(reader, "tensors", GGUF_TENSOR_BYTES_MIN, &gguf->tensor_count))
        return false;
    return take_count(reader, "keys", GGUF_KEY_BYTES_MIN, &gguf->value_count);
}

bool gguf_parse(struct bytes in, struct gguf *out, struct error *err)
{
    struct reader reader = { .in = in, .err = err };
    struct map names = { 0 };
    *out = (struct gguf){ 0 };
    bool ok = take_header(&reader, out) && take_values(&reader, out) && take_tensors(&reader, out, &names);
    map_free(&names);
    if (!ok)
        gguf_free(out);
    return ok;
}

void gguf_free(struct gguf *gguf)
{
    map_free(&gguf->keys);
    arena_free(&gguf->arena);
    *gguf = (struct gguf){ 0 };
}

// ---- look-ups ----

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key)
{
    int64_t index;
    return map_get(&gguf->keys, bytes_of(key), &index) ? &gguf->values[index] : NULL;
}

static bool wrong_type(const struct gguf_value *value, const char *key, const char *expected, struct error *err)
{
    if (value->type == GGUF_ARRAY)
        return fail(err, "key '%s' is an array of %s, expected %s", key, types[value->element].name, expected);
    return fail(err, "key '%s' has type %s, expected %s", key, types[value->type].name, expected);
}

bool gguf_get_int(const struct gguf *gguf, const char *key, int64_t low, int64_t high, int64_t *out, struct error *err)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (!value)
        return true;
    if (types[value->type].kind != KIND_INTEGER)
        return wrong_type(value, key, "an integer", err);
    if (value->integer < low || value->integer > high)
        return fail(err, "key '%s' is %lld, expected an integer from %lld to %lld", key, (long long)value->integer,
                    (long long)low, (long long)high);
    *out = value->integer;
    return true;
}

bool gguf_get_real(const struct gguf *gguf, const char *key, double *out, struct error *err)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (!value)
        return true;
    enum kind kind = types[value->type].kind;
    if (kind != KIND_REAL && kind != KIND_INTEGER)
        return wrong_type(value, key, "a number", err);
    double real = kind == KIND_REAL ? value->real : (double)value->integer;
    if (!isfinite(real))
        return fail(err, "key '%s' is %f, expected a finite number", key, real);
    *out = real;
    return true;
}

bool gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, struct error *err)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (!value)
        return true;
    if (value->type != GGUF_BOOL)
        return wrong_type(value, key, "a boolean", err);
    *out = value->integer;
    return true;
}

bool gguf_get_string(const struct gguf *gguf, const char *key, struct bytes *out, struct error *err)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (!value)
        return true;
    if (value->type != GGUF_STRING)
        return wrong_type(value, key, "a string", err);
    *out = value->string;
    return true;
}

bool gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_type element, const struct gguf_value **out,
                    struct error *err)
{
    static const char *const expected[] = {
        [KIND_INTEGER] = "an array of integers",
        [KIND_BOOL] = "an array of booleans",
        [KIND_REAL] = "an array of real numbers",
        [KIND_STRING] = "an array of strings",
    };
    assert(element != GGUF_ARRAY);
    const struct gguf_value *value = gguf_find(gguf, key);
    *out = NULL;
    if (!value)
        return true;
    if (value->type != GGUF_ARRAY || types[value->element].kind != types[element].kind)
        return wrong_type(value, key, expected[types[element].kind], err);
    *out = value;
    return true;
}

int64_t gguf_array_int(const struct gguf_value *array, size_t index)
{
    assert(index < array->count && array->data);
    return integer_at(array->data + index * types[array->element].bytes, array->element);
}

double gguf_array_real(const struct gguf_value *array, size_t index)
{
    assert(index < array->count && types[array->element].kind == KIND_REAL);
    return real_at(array->data + index * types[array->element].bytes, array->element);
}
