// SPDX-License-Identifier: Apache-2.0
// format/json.h: JSON as it is published. jansson does the parsing; what it refuses and the world writes all the
// same (NaN, Infinity, integers past 64 bits, a byte order mark) is rewritten first: NaN becomes null,
// +-Infinity +-1e308, a huge integer a real. Key order is kept.
#ifndef FORMAT_JSON_H
#define FORMAT_JSON_H

#include <jansson.h>

#include "base/bytes.h"
#include "base/error.h"

// Far above what published files and honest requests hold; jansson recurses and allocates a few hundred bytes each.
enum { JSON_DEPTH_MAX = 128, JSON_CONTAINERS_MAX = 4 << 20 };

// A new reference in *out, released with json_decref. Any value may stand at the top, and strings may hold NUL. A key
// that stands twice in an object is refused: readers differ in which of the two counts. The error says line and column.
bool json_read(struct bytes in, json_t **out, struct error *err);
// The same for what a client sends: nothing but JSON, and no more arrays and objects than that.
bool json_read_strict(struct bytes in, size_t containers_max, json_t **out, struct error *err);
// An upper estimate of the memory that reading a text takes, every value counted, without reading it: a text of small
// values takes twenty times its length.
size_t json_memory(struct bytes in);
bool json_read_file(const char *path, json_t **out, struct error *err);

static inline struct bytes json_bytes(const json_t *string) // .data is NULL for other values
{
    return (struct bytes){ json_string_value(string), json_string_length(string) };
}

// A new file for people to read, too, on the disk when this returns true.
bool json_save(const json_t *value, const char *folder, const char *name, struct error *err);

// Typed look-ups in an object. Absent or null: true and *out untouched, so set the default first.
// Present with another type or out of range: false and a sentence naming the key. A whole real is an integer.
bool json_get_int(const json_t *object, const char *key, int64_t low, int64_t high, int64_t *out, struct error *err);
bool json_get_real(const json_t *object, const char *key, double *out, struct error *err); // finite
bool json_get_bool(const json_t *object, const char *key, bool *out, struct error *err);
bool json_get_text(const json_t *object, const char *key, const char **out, struct error *err); // borrowed

#endif
