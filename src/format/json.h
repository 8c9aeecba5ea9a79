// SPDX-License-Identifier: Apache-2.0
// format/json.h: JSON parsing and typed getters, on jansson. Published files contain what jansson refuses (NaN,
// Infinity, integers past 64 bits, a byte order mark); this is rewritten first: NaN becomes null, +-Infinity +-1e308, a
// huge integer a real. Key order is kept.
#ifndef FORMAT_JSON_H
#define FORMAT_JSON_H

#include <jansson.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/strbuf.h"

// Far above published files and honest requests. The limits exist because jansson recurses, and allocates a few hundred
// bytes per container.
enum { JSON_DEPTH_MAX = 128, JSON_CONTAINERS_MAX = 4 << 20 };

// Parses JSON; *out is a new reference, released with json_decref. Any value may be the root, and strings may contain
// NUL. Duplicate keys are refused, since parsers differ in which of the two counts. The error has line and column.
bool json_read(struct bytes in, json_t **out, struct error *err);
// Parses a client's JSON: no NaN or Infinity, and at most `containers_max` arrays and objects.
bool json_read_strict(struct bytes in, size_t containers_max, json_t **out, struct error *err);
// An upper bound of the memory that parsing takes, without parsing: up to twenty times the text's length if values are
// small.
size_t json_memory(struct bytes in);
bool json_read_file(const char *path, json_t **out, struct error *err);

static inline struct bytes json_bytes(const json_t *string) // .data is NULL for other values
{
    return (struct bytes){ json_string_value(string), json_string_length(string) };
}

// Appends any value as one line of JSON.
void json_add(const json_t *value, struct strbuf *out);
void json_add_string(const char *text, struct strbuf *out); // a string

// Writes a new, indented file and fsyncs it.
bool json_save(const json_t *value, const char *folder, const char *name, struct error *err);

// Typed getters. An absent or null member leaves *out unchanged and returns true, so set the default first. A member of
// another type or out of range is an error that names the key. A real without a fraction counts as an integer.
bool json_get_int(const json_t *object, const char *key, int64_t low, int64_t high, int64_t *out, struct error *err);
bool json_get_real(const json_t *object, const char *key, double *out, struct error *err); // finite
bool json_get_bool(const json_t *object, const char *key, bool *out, struct error *err);
bool json_get_text(const json_t *object, const char *key, const char **out, struct error *err); // borrowed

#endif
