// SPDX-License-Identifier: Apache-2.0
// format/gguf.h: the GGUF container, versions 2 and 3, little endian. Everything is checked while parsing: after
// gguf_parse returns true, every string, array and tensor lies inside the file, no two tensors overlap, names are
// unique, and each tensor's bytes follow from its type and shape.
#ifndef FORMAT_GGUF_H
#define FORMAT_GGUF_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/map.h"
#include "base/memory.h"
#include "format/tensor.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_value {
    enum gguf_type type;
    union {
        int64_t integer;     // every integer type and bool; a U64 past INT64_MAX is refused
        double real;         // F32, F64
        struct bytes string; // borrowed from the file, not terminated
    };
    // GGUF_ARRAY: `count` elements of type `element`, which is never an array
    enum gguf_type element;
    size_t count;
    const char *data;            // fixed-size elements, packed, possibly unaligned; read with gguf_array_*
    const struct bytes *strings; // GGUF_STRING elements
};

struct gguf {
    uint32_t version;
    struct map keys; // name -> index into values
    struct gguf_value *values;
    size_t value_count;
    struct tensor *tensors; // in file order
    size_t tensor_count;
    struct arena arena; // owns the above
};

bool gguf_parse(struct bytes in, struct gguf *out, struct error *err); // on failure nothing needs freeing
void gguf_free(struct gguf *gguf);

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key); // NULL when absent

// Typed getters, as in format/json.h: an absent key leaves *out unchanged and returns true, a wrong type is an error.
bool gguf_get_int(const struct gguf *gguf, const char *key, int64_t low, int64_t high, int64_t *out, struct error *err);
bool gguf_get_real(const struct gguf *gguf, const char *key, double *out, struct error *err); // finite; integers, too
bool gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, struct error *err);
bool gguf_get_string(const struct gguf *gguf, const char *key, struct bytes *out, struct error *err);
// An array with elements of this type; every integer type matches an integer type. *out is NULL if the key is absent.
bool gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_type element, const struct gguf_value **out,
                    struct error *err);

int64_t gguf_array_int(const struct gguf_value *array, size_t index); // any integer element type, bool included
double gguf_array_real(const struct gguf_value *array, size_t index); // F32, F64

#endif
