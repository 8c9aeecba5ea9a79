// SPDX-License-Identifier: Apache-2.0
// A JSON recogniser as a state machine with a stack of open brackets.
#include "text/tools/scan.h"

#include "format/json.h"

enum state {
    VALUE,      // is due
    FIRST_ITEM, // a value is due, or ]
    FIRST_KEY,  // a key is due, or }
    KEY,
    COLON,
    TEXT, // between quotes
    ESCAPE,
    HEX,
    WORD,
    BEHIND, // a value inside a container
    MINUS,  // from here on: inside a number
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
};

static enum scan_answer go_on(struct scan *scan, enum state state)
{
    scan->state = state;
    return SCAN_MORE;
}

static enum scan_answer end_value(struct scan *scan)
{
    scan->state = BEHIND;
    return scan->depth ? SCAN_MORE : SCAN_WHOLE;
}

static enum scan_answer open_container(struct scan *scan, char closes, enum state first)
{
    if (scan->depth == SCAN_DEPTH_MAX)
        return SCAN_BAD;
    scan->closes[scan->depth++] = closes;
    return go_on(scan, first);
}

static enum scan_answer close_container(struct scan *scan, char byte)
{
    if (byte != scan->closes[scan->depth - 1])
        return SCAN_BAD;
    scan->depth--;
    return end_value(scan);
}

static enum scan_answer begin_text(struct scan *scan, bool key)
{
    scan->in_key = key;
    return go_on(scan, TEXT);
}

static enum scan_answer begin_value(struct scan *scan, char byte)
{
    switch (byte) {
    case '{': return open_container(scan, '}', FIRST_KEY);
    case '[': return open_container(scan, ']', FIRST_ITEM);
    case '"': return begin_text(scan, false);
    case 't': scan->word = "rue"; return go_on(scan, WORD);
    case 'f': scan->word = "alse"; return go_on(scan, WORD);
    case 'n': scan->word = "ull"; return go_on(scan, WORD);
    case '-': return go_on(scan, MINUS);
    case '0': return go_on(scan, ZERO);
    default: return byte >= '1' && byte <= '9' ? go_on(scan, INTEGER) : SCAN_BAD;
    }
}

// The state behind this byte of a number; BEHIND: the number ends before it.
static enum state extend_number(enum state state, char byte)
{
    bool digit = byte >= '0' && byte <= '9', e = byte == 'e' || byte == 'E';
    switch (state) {
    case MINUS: return byte == '0' ? ZERO : digit ? INTEGER : BEHIND;
    case ZERO: return byte == '.' ? POINT : e ? EXPONENT : BEHIND;
    case INTEGER: return digit ? INTEGER : byte == '.' ? POINT : e ? EXPONENT : BEHIND;
    case POINT: return digit ? FRACTION : BEHIND;
    case FRACTION: return digit ? FRACTION : e ? EXPONENT : BEHIND;
    case EXPONENT: return byte == '+' || byte == '-' ? EXPONENT_SIGN : digit ? EXPONENT_DIGITS : BEHIND;
    default: return digit ? EXPONENT_DIGITS : BEHIND;
    }
}

static bool may_end(enum state number)
{
    return number == ZERO || number == INTEGER || number == FRACTION || number == EXPONENT_DIGITS;
}

static enum scan_answer add_to_text(struct scan *scan, char byte)
{
    switch (scan->state) {
    case ESCAPE:
        scan->digits = 4;
        return byte == 'u' ? go_on(scan, HEX) : byte && strchr("\"\\/bfnrt", byte) ? go_on(scan, TEXT) : SCAN_BAD;
    case HEX: return bytes_hex_digit(byte) < 0 ? SCAN_BAD : go_on(scan, --scan->digits ? HEX : TEXT);
    default:
        if (byte == '\\')
            return go_on(scan, ESCAPE);
        return byte != '"' ? SCAN_MORE : scan->in_key ? go_on(scan, COLON) : end_value(scan);
    }
}

static enum scan_answer add_between(struct scan *scan, char byte)
{
    if (bytes_is_space(byte))
        return SCAN_MORE;
    switch (scan->state) {
    case FIRST_ITEM: return byte == ']' ? close_container(scan, byte) : begin_value(scan, byte);
    case FIRST_KEY:
        if (byte == '}')
            return close_container(scan, byte);
        // fall through
    case KEY: return byte == '"' ? begin_text(scan, true) : SCAN_BAD;
    case COLON: return byte == ':' ? go_on(scan, VALUE) : SCAN_BAD;
    case BEHIND:
        if (byte == ',')
            return go_on(scan, scan->closes[scan->depth - 1] == '}' ? KEY : VALUE);
        return close_container(scan, byte);
    default: return begin_value(scan, byte);
    }
}

enum scan_answer scan_add(struct scan *scan, char byte)
{
    if (scan->state >= MINUS) {
        enum state next = extend_number(scan->state, byte);
        if (next != BEHIND)
            return go_on(scan, next);
        if (!may_end(scan->state))
            return SCAN_BAD;
        if (end_value(scan) == SCAN_WHOLE)
            return SCAN_BEFORE;
    }
    switch (scan->state) {
    case TEXT:
    case ESCAPE:
    case HEX: return add_to_text(scan, byte);
    case WORD:
        if (byte != *scan->word)
            return SCAN_BAD;
        return *++scan->word ? SCAN_MORE : end_value(scan);
    default: return add_between(scan, byte);
    }
}

bool scan_in_text(const struct scan *scan)
{
    return scan->state == TEXT || scan->state == ESCAPE || scan->state == HEX;
}

void scan_escape(struct scan_quotes *quotes, char byte, struct strbuf *out)
{
    if (quotes->inside && (unsigned char)byte < 0x20)
        strbuf_add_format(out, "\\u%04x", (unsigned)byte);
    else
        strbuf_add_byte(out, byte);
    if (byte == '"' && !quotes->escaped)
        quotes->inside = !quotes->inside;
    quotes->escaped = quotes->inside && byte == '\\' && !quotes->escaped;
}

// ---- arguments ----

static void escape_all(struct bytes json, struct strbuf *out)
{
    struct scan_quotes quotes = { 0 };
    for (size_t i = 0; i < json.len; i++)
        scan_escape(&quotes, json.data[i], out);
}

static bool is_object(const struct strbuf *text)
{
    json_t *value = json_loadb(strbuf_text(text), text->len, JSON_ALLOW_NUL, NULL);
    bool object = json_is_object(value);
    json_decref(value);
    return object;
}

// Some models write their arguments as a string that holds the object: the object is meant.
static void unwrap(struct strbuf *text)
{
    json_t *string = json_loadb(text->data, text->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    struct strbuf inner = { 0 };
    escape_all(json_bytes(string), &inner);
    if (is_object(&inner)) {
        strbuf_free(text);
        *text = inner;
    } else {
        strbuf_free(&inner);
    }
    json_decref(string);
}

void scan_arguments(struct bytes json, struct strbuf *out)
{
    struct strbuf text = { 0 };
    escape_all(json, &text);
    if (text.data[0] == '"')
        unwrap(&text);
    struct bytes value = strbuf_bytes(&text);
    bool none = bytes_equal(value, bytes_of("null")) || bytes_equal(value, bytes_of("\"\""));
    value = none ? bytes_of("{}") : value;
    strbuf_add(out, value.data, value.len);
    strbuf_free(&text);
}
