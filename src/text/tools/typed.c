// SPDX-License-Identifier: Apache-2.0
// Typing of values by a tool's schema.
#include "text/tools/typed.h"

#include "format/json.h"
#include "text/grammar/schema.h"
#include "text/grammar/validate.h"
#include "text/tools/scan.h"

enum { DEPTH_MAX = 16 }; // of $ref, anyOf and allOf that are followed

// ---- types --------------------------------------------------------------------------------------------------------

static const json_t *follow(const json_t *root, const json_t *schema)
{
    struct error ignored;
    for (int i = 0; i < DEPTH_MAX; i++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        const json_t *target = ref ? schema_resolve(root, ref, &ignored) : NULL;
        if (!target)
            return schema;
        schema = target;
    }
    return schema;
}

const json_t *typed_schema(const json_t *arguments, const char *name)
{
    const json_t *schema = follow(arguments, arguments);
    return json_object_get(json_object_get(schema, "properties"), name);
}

static unsigned types_of(const json_t *root, const json_t *schema, int depth);

// The types that one of the alternatives allows; all where there are none.
static unsigned any_types(const json_t *root, const json_t *list, int depth)
{
    unsigned types = json_array_size(list) ? 0 : SCHEMA_ALL;
    json_t *item;
    size_t i;
    json_array_foreach (list, i, item)
        types |= types_of(root, item, depth + 1);
    return types;
}

static unsigned listed_types(const json_t *schema)
{
    const json_t *listed = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const");
    unsigned types = listed ? 0 : SCHEMA_ALL;
    json_t *item;
    size_t i;
    json_array_foreach (listed, i, item)
        types |= schema_type_of(item);
    return constant ? types & schema_type_of(constant) : types;
}

static unsigned types_of(const json_t *root, const json_t *schema, int depth)
{
    struct error ignored;
    unsigned types = SCHEMA_ALL;
    json_t *part;
    size_t i;
    schema = follow(root, schema);
    if (!json_is_object(schema) || depth > DEPTH_MAX || !schema_read_types(schema, &types, &ignored))
        return SCHEMA_ALL;
    if (!json_object_get(schema, "type") && schema_implied_types(schema))
        types = schema_implied_types(schema);
    types &= listed_types(schema) & any_types(root, json_object_get(schema, "anyOf"), depth)
        & any_types(root, json_object_get(schema, "oneOf"), depth);
    json_array_foreach (json_object_get(schema, "allOf"), i, part)
        types &= types_of(root, part, depth + 1);
    return types;
}

enum typed_kind typed_kind(const json_t *arguments, const json_t *schema)
{
    unsigned types = schema ? types_of(arguments, schema, 0) : SCHEMA_ALL;
    return types == SCHEMA_STRING ? TYPED_TEXT : types & SCHEMA_STRING || !types ? TYPED_EITHER : TYPED_JSON;
}

// ---- texts --------------------------------------------------------------------------------------------------------

void typed_add_escaped(struct bytes text, struct strbuf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        char byte = text.data[i];
        if (byte == '"' || byte == '\\')
            strbuf_add_byte(out, '\\');
        if ((unsigned char)byte >= 0x20)
            strbuf_add_byte(out, byte);
        else if (byte == '\n' || byte == '\t' || byte == '\r')
            strbuf_add_text(out, byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : "\\r");
        else
            strbuf_add_format(out, "\\u%04x", (unsigned)byte);
    }
}

void typed_add_string(struct bytes text, struct strbuf *out)
{
    strbuf_add_byte(out, '"');
    typed_add_escaped(text, out);
    strbuf_add_byte(out, '"');
}

static struct bytes trim(struct bytes text)
{
    while (text.len && bytes_is_space(*text.data))
        text = bytes_from(text, 1);
    while (text.len && bytes_is_space(text.data[text.len - 1]))
        text.len--;
    return text;
}

// One JSON value and nothing else. Its text is kept, so that no number changes.
static bool is_json(struct bytes text)
{
    struct scan scan = { 0 };
    enum scan_answer answer = SCAN_MORE;
    size_t i = 0;
    for (; i < text.len && answer == SCAN_MORE; i++)
        answer = scan_add(&scan, text.data[i]);
    if (i < text.len || !text.len)
        return false;
    return answer == SCAN_WHOLE || (answer == SCAN_MORE && scan_add(&scan, ' ') == SCAN_BEFORE);
}

static bool is_valid(const json_t *root, const json_t *schema, struct bytes json)
{
    struct error ignored;
    json_t *value = json_loadb(json.data, json.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool valid = value && !json_is_string(value) && (!schema || validate(root, schema, value, &ignored) == VALID);
    json_decref(value);
    return valid;
}

// The value as JSON text; false: it is none.
static bool read_json(struct bytes text, struct strbuf *out)
{
    struct scan_quotes quotes = { 0 };
    if (!is_json(text))
        return scan_read_literal(text, out);
    for (size_t i = 0; i < text.len; i++)
        scan_escape(&quotes, text.data[i], out);
    return true;
}

void typed_add(const json_t *arguments, const json_t *schema, enum typed_kind kind, struct bytes text,
               struct strbuf *out)
{
    struct strbuf json = { 0 };
    bool is_value = kind != TYPED_TEXT && read_json(trim(text), &json)
        && (kind == TYPED_JSON || is_valid(arguments, schema, strbuf_bytes(&json)));
    if (is_value)
        strbuf_add(out, json.data, json.len);
    else
        typed_add_string(text, out);
    strbuf_free(&json);
}

// ---- nested tags --------------------------------------------------------------------------------------------------

struct nested {
    const json_t *root;
    struct bytes prefix, text;
    size_t at;
};

static bool take(struct nested *nested, struct bytes text)
{
    if (!bytes_start_with(bytes_from(nested->text, nested->at), text))
        return false;
    nested->at += text.len;
    return true;
}

static void skip_spaces(struct nested *nested)
{
    while (nested->at < nested->text.len && bytes_is_space(nested->text.data[nested->at]))
        nested->at++;
}

static bool add_value(struct nested *nested, const json_t *schema, int depth, struct strbuf *out);

// prefix<key>value prefix</key>
static bool add_tagged(struct nested *nested, const json_t *schema, bool item, int depth, struct strbuf *out)
{
    struct bytes rest = bytes_from(nested->text, nested->at);
    const char *end = rest.len ? memchr(rest.data, '>', rest.len) : NULL;
    if (!end || rest.data[0] == '/')
        return false;
    struct bytes key = { rest.data, (size_t)(end - rest.data) };
    nested->at += key.len + 1;
    const json_t *own = item ? json_object_get(schema, "items")
                             : json_object_getn(json_object_get(schema, "properties"), key.data, key.len);
    if (!item) {
        typed_add_string(key, out);
        strbuf_add_text(out, ": ");
    }
    return add_value(nested, own, depth, out) && take(nested, nested->prefix) && take(nested, bytes_of("/"))
        && take(nested, key) && take(nested, bytes_of(">"));
}

static bool add_members(struct nested *nested, const json_t *schema, int depth, struct strbuf *out)
{
    static const char item[] = "item>";
    bool list = bytes_start_with(bytes_from(nested->text, nested->at), bytes_of(item));
    strbuf_add_byte(out, list ? '[' : '{');
    for (int count = 0;; count++) {
        strbuf_add_text(out, count ? ", " : "");
        if (!add_tagged(nested, schema, list, depth, out))
            return false;
        skip_spaces(nested);
        size_t back = nested->at;
        if (!take(nested, nested->prefix))
            break;
        if (nested->at < nested->text.len && nested->text.data[nested->at] == '/') { // the container's own end
            nested->at = back;
            break;
        }
    }
    strbuf_add_byte(out, list ? ']' : '}');
    return true;
}

static bool add_value(struct nested *nested, const json_t *schema, int depth, struct strbuf *out)
{
    size_t begin = nested->at;
    schema = follow(nested->root, schema);
    if (depth >= SCAN_DEPTH_MAX)
        return false;
    skip_spaces(nested);
    if (take(nested, nested->prefix) && nested->at < nested->text.len && nested->text.data[nested->at] != '/')
        return add_members(nested, schema, depth + 1, out);
    nested->at = begin;
    struct bytes rest = bytes_from(nested->text, begin);
    const char *end = rest.len ? memmem(rest.data, rest.len, nested->prefix.data, nested->prefix.len) : NULL;
    if (!end)
        return false;
    rest.len = (size_t)(end - rest.data);
    nested->at += rest.len;
    typed_add(nested->root, schema, typed_kind(nested->root, schema), rest, out);
    return true;
}

bool typed_add_nested(const json_t *arguments, const json_t *schema, struct bytes prefix, struct bytes text,
                      struct strbuf *out)
{
    struct nested nested = { arguments, prefix, trim(text), 0 };
    size_t before = out->len;
    if (take(&nested, prefix) && add_members(&nested, follow(arguments, schema), 0, out)
        && nested.at == nested.text.len)
        return true;
    out->len = before;
    return false;
}
