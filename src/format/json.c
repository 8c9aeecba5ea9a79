// SPDX-License-Identifier: Apache-2.0
#include "format/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"

// ---- memory --------------------------------------------------------------------------------------------------------

// jansson continues without a value, key or string that it could not allocate, and does not always report that: an
// object then lacks a member. So nibble installs an allocator that does not fail. jansson has one allocator per
// process: a program that uses libnibble keeps its own underneath, so that each can free the other's memory.
static json_malloc_t allocate_below;
static json_free_t release_below;

static void *allocate(size_t bytes)
{
    void *memory = allocate_below(bytes);
    if (!memory)
        memory_exhausted(1, bytes);
    return memory;
}

__attribute__((constructor)) static void guard_allocator(void)
{
    json_get_alloc_funcs(&allocate_below, &release_below);
    json_set_alloc_funcs(allocate, release_below);
}

__attribute__((destructor)) static void restore_allocator(void) { json_set_alloc_funcs(allocate_below, release_below); }

// ---- reading -------------------------------------------------------------------------------------------------------

enum { INTEGER_DIGITS_SAFE = 18, REAL_DIGITS_SAFE = 308 }; // this many digits always fit 64 bits, or a double

// JSON text rewritten for jansson. The copy starts at the first rewrite, so most texts are never copied.
struct rewrite {
    struct bytes in;
    size_t done; // bytes of `in` that are in `out`
    struct strbuf out;
};

static void replace(struct rewrite *rewrite, size_t start, size_t end, const char *text)
{
    strbuf_add(&rewrite->out, rewrite->in.data + rewrite->done, start - rewrite->done);
    strbuf_add_text(&rewrite->out, text);
    rewrite->done = end;
}

static size_t skip_string(struct bytes in, size_t at)
{
    for (at++; at < in.len && in.data[at] != '"'; at++)
        if (in.data[at] == '\\')
            at++;
    return at < in.len ? at + 1 : in.len;
}

static bool is_number_byte(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

// jansson refuses integers past 64 bits and reals past a double. Both become reals, at most 1e308.
static void rewrite_number(struct rewrite *rewrite, size_t start, size_t end)
{
    struct strbuf number = { 0 };
    strbuf_add(&number, rewrite->in.data + start, end - start);
    char *real_end, *integer_end;
    double real = strtod(number.data, &real_end);
    errno = 0;
    strtoll(number.data, &integer_end, 10);
    if (!*real_end && isinf(real))
        replace(rewrite, start, end, real > 0 ? "1e308" : "-1e308");
    else if (!*integer_end && errno == ERANGE)
        replace(rewrite, end, end, ".0");
    strbuf_free(&number);
}

static size_t scan_number(struct rewrite *rewrite, size_t start)
{
    struct bytes in = rewrite->in;
    size_t end = start;
    bool exponent = false, point = false;
    for (; end < in.len && is_number_byte(in.data[end]); end++) {
        exponent |= in.data[end] == 'e' || in.data[end] == 'E';
        point |= in.data[end] == '.';
    }
    if (exponent || end - start > (point ? REAL_DIGITS_SAFE : INTEGER_DIGITS_SAFE))
        rewrite_number(rewrite, start, end);
    return end;
}

// If NaN or Infinity starts here, replaces it and returns its end; otherwise returns `at`.
static size_t scan_constant(struct rewrite *rewrite, size_t at)
{
    static const struct {
        const char *word, *instead;
    } constants[] = {
        { "NaN", "null" },
        { "Infinity", "1e308" },
        { "-Infinity", "-1e308" },
    };
    struct bytes rest = { rewrite->in.data + at, rewrite->in.len - at };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        struct bytes word = bytes_of(constants[i].word);
        if (bytes_start_with(rest, word)) {
            replace(rewrite, at, at + word.len, constants[i].instead);
            return at + word.len;
        }
    }
    return at;
}

// One pass over the text outside strings: rewrites numbers and constants and checks limits. jansson checks the syntax.
static bool prepare(struct rewrite *rewrite, bool constants, size_t containers_max, struct error *err)
{
    struct bytes in = rewrite->in;
    size_t depth = 0, containers = 0;
    for (size_t at = 0; at < in.len;) {
        char c = in.data[at];
        size_t next = at + 1;
        if (c == '"') {
            next = skip_string(in, at);
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_DEPTH_MAX)
                return fail(err, "JSON is nested more than %d levels deep", JSON_DEPTH_MAX);
            if (++containers > containers_max)
                return fail(err, "JSON holds more than %zu arrays and objects", containers_max);
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        } else if (constants && (c == 'N' || c == 'I' || (c == '-' && next < in.len && in.data[next] == 'I'))) {
            size_t end = scan_constant(rewrite, at);
            next = end > at ? end : next;
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            next = scan_number(rewrite, at);
        }
        at = next;
    }
    if (rewrite->done)
        replace(rewrite, in.len, in.len, "");
    return true;
}

// jansson's allocations, with malloc's overhead: a number or literal with its list entry, a string (as a key, with its
// hash table entry), an array or object with its initial capacity.
enum { VALUE_BYTES = 48, STRING_BYTES = 128, CONTAINER_BYTES = 272 };

static bool is_literal_byte(char c) { return is_number_byte(c) || (c >= 'a' && c <= 'z'); }

size_t json_memory(struct bytes in)
{
    size_t bytes = in.len; // in case the text is rewritten
    for (size_t at = 0; at < in.len;) {
        size_t next = at + 1;
        if (in.data[at] == '"') {
            next = skip_string(in, at);
            bytes += STRING_BYTES + (next - at);
        } else if (in.data[at] == '[' || in.data[at] == '{') {
            bytes += CONTAINER_BYTES;
        } else if (is_literal_byte(in.data[at])) {
            while (next < in.len && is_literal_byte(in.data[next]))
                next++;
            bytes += VALUE_BYTES;
        }
        at = next;
    }
    return bytes;
}

// The key, with its quotes, that ends at `end`; jansson's own message names only short keys.
static struct bytes key_before(struct bytes text, size_t end)
{
    size_t start = end > 1 ? end - 2 : 0;
    while (start && (text.data[start] != '"' || text.data[start - 1] == '\\'))
        start--;
    return (struct bytes){ text.data + start, end - start };
}

static bool explain(const json_error_t *trouble, struct bytes text, struct error *err)
{
    if (json_error_code(trouble) == json_error_duplicate_key) {
        struct bytes key = key_before(text, (size_t)trouble->position);
        return fail(err, "line %d, column %d: the key %.*s stands twice in one object; leave one of the two out",
                    trouble->line, trouble->column, (int)(key.len < 200 ? key.len : 200), key.data);
    }
    // jansson uses this message only for escapes; for invalid bytes it prints the byte
    if (bytes_start_with(bytes_of(trouble->text), bytes_of("invalid Unicode")))
        return fail(err,
                    "line %d, column %d: a \\u escape names half of a surrogate pair, which is no character; "
                    "write both halves",
                    trouble->line, trouble->column);
    return fail(err, "line %d, column %d: not valid JSON: %s", trouble->line, trouble->column, trouble->text);
}

static bool read_text(struct bytes in, bool constants, size_t containers_max, json_t **out, struct error *err)
{
    *out = NULL;
    if (bytes_start_with(in, bytes_of("\xEF\xBB\xBF")))
        in = (struct bytes){ in.data + 3, in.len - 3 };
    if (!in.len)
        return fail(err, "empty where JSON was expected");

    struct rewrite rewrite = { .in = in };
    bool ok = prepare(&rewrite, constants, containers_max, err);
    if (ok) {
        struct bytes text = rewrite.done ? strbuf_bytes(&rewrite.out) : in;
        json_error_t trouble;
        *out = json_loadb(text.data, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &trouble);
        ok = *out || explain(&trouble, text, err);
    }
    strbuf_free(&rewrite.out);
    return ok;
}

bool json_read(struct bytes in, json_t **out, struct error *err)
{
    return read_text(in, true, JSON_CONTAINERS_MAX, out, err);
}

bool json_read_strict(struct bytes in, size_t containers_max, json_t **out, struct error *err)
{
    return read_text(in, false, containers_max, out, err);
}

bool json_read_file(const char *path, json_t **out, struct error *err)
{
    struct file file;
    *out = NULL;
    if (!file_open(&file, path, err))
        return false;
    bool ok = json_read(file.content, out, err) || fail_within(err, "%s", path);
    file_close(&file);
    return ok;
}

void json_add(const json_t *value, struct strbuf *out)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    strbuf_add_text(out, text ? text : "{}");
    free(text);
}

void json_add_string(const char *text, struct strbuf *out)
{
    json_t *string = json_string_nocheck(text);
    json_add(string, out);
    json_decref(string);
}

bool json_save(const json_t *value, const char *folder, const char *name, struct error *err)
{
    enum { REAL_DIGITS = 16 }; // keeps 1e-05 as 1e-05
    struct strbuf path = { 0 };
    strbuf_add_format(&path, "%s/%s", folder, name);
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(REAL_DIGITS));
    struct strbuf content = { 0 };
    strbuf_add_format(&content, "%s\n", text ? text : "");
    bool ok = text ? file_save(path.data, strbuf_bytes(&content), err) : fail(err, "%s: no JSON to write", path.data);
    free(text);
    strbuf_free(&content);
    strbuf_free(&path);
    return ok;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a real number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "unknown";
}

// NULL if absent or null: the caller's default stays.
static const json_t *find(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

bool json_get_int(const json_t *object, const char *key, int64_t low, int64_t high, int64_t *out, struct error *err)
{
    const json_t *value = find(object, key);
    if (!value)
        return true;
    if (!json_is_number(value))
        return fail(err, "\"%s\" is %s, expected an integer", key, type_name(value));
    double real = json_number_value(value);
    bool whole = json_is_integer(value) || (real == floor(real) && fabs(real) < 0x1p63); // files also write 4096.0
    int64_t integer = json_is_integer(value) ? json_integer_value(value) : whole ? (int64_t)real : 0;
    if (!whole || integer < low || integer > high)
        return fail(err, "\"%s\" is %.17g, expected an integer from %lld to %lld", key, real, (long long)low,
                    (long long)high);
    *out = integer;
    return true;
}

bool json_get_real(const json_t *object, const char *key, double *out, struct error *err)
{
    const json_t *value = find(object, key);
    if (!value)
        return true;
    if (!json_is_number(value))
        return fail(err, "\"%s\" is %s, expected a number", key, type_name(value));
    *out = json_number_value(value);
    return true;
}

bool json_get_bool(const json_t *object, const char *key, bool *out, struct error *err)
{
    const json_t *value = find(object, key);
    if (!value)
        return true;
    if (!json_is_boolean(value))
        return fail(err, "\"%s\" is %s, expected true or false", key, type_name(value));
    *out = json_is_true(value);
    return true;
}

bool json_get_text(const json_t *object, const char *key, const char **out, struct error *err)
{
    const json_t *value = find(object, key);
    if (!value)
        return true;
    if (!json_is_string(value))
        return fail(err, "\"%s\" is %s, expected a string", key, type_name(value));
    if (strlen(json_string_value(value)) != json_string_length(value))
        return fail(err, "\"%s\" holds a NUL character, which has no place there", key);
    *out = json_string_value(value);
    return true;
}
