// SPDX-License-Identifier: Apache-2.0
// A recogniser of JSON and literals as a state machine with a stack of open brackets.
#include "text/tools/scan.h"

#include "format/json.h"

enum state {
    VALUE,      // is due
    FIRST_ITEM, // a value is due, or the end of the list
    FIRST_KEY,  // a key is due, or the end of the object
    KEY,
    COLON,
    BEHIND, // a value inside a container
    TEXT,   // between quotes
    ESCAPE,
    HEX,
    QUOTE, // Gemma's begins
    RAW,   // inside Gemma's
    BARE,  // a key without quotes
    WORD,
    BEHIND_WORD, // of a literal: no letter may follow
    MINUS,       // from here on: inside a number
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
};

static void put(struct strbuf *out, const char *text)
{
    if (out)
        strbuf_add_text(out, text);
}

static void put_byte(struct strbuf *out, char byte)
{
    if (out)
        strbuf_add_byte(out, byte);
}

// A byte inside a JSON string, escaped where JSON asks for it.
static void put_escaped(struct strbuf *out, char byte)
{
    if (out && (unsigned char)byte < 0x20)
        strbuf_add_format(out, "\\u%04x", (unsigned)byte);
    else if (byte == '"' || byte == '\\')
        put(out, byte == '"' ? "\\\"" : "\\\\");
    else
        put_byte(out, byte);
}

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

static enum scan_answer end_string(struct scan *scan, struct strbuf *out)
{
    put(out, "\"");
    return scan->in_key ? go_on(scan, COLON) : end_value(scan);
}

static void begin_member(struct scan *scan, struct strbuf *out)
{
    put(out, scan->comma ? ", " : "");
    scan->comma = false;
}

static enum scan_answer open_container(struct scan *scan, char byte, struct strbuf *out)
{
    if (scan->depth == SCAN_DEPTH_MAX)
        return SCAN_BAD;
    scan->closes[scan->depth++] = byte == '{' ? '}' : byte == '[' ? ']' : ')';
    put(out, byte == '{' ? "{" : "[");
    return go_on(scan, byte == '{' ? FIRST_KEY : FIRST_ITEM);
}

static enum scan_answer close_container(struct scan *scan, char byte, struct strbuf *out)
{
    if (!scan->depth || byte != scan->closes[scan->depth - 1])
        return SCAN_BAD;
    scan->depth--;
    scan->comma = false;
    put(out, byte == '}' ? "}" : "]");
    return end_value(scan);
}

// ---- strings ------------------------------------------------------------------------------------------------------

// False: the byte begins no string.
static bool begin_string(struct scan *scan, char byte, bool key, struct strbuf *out)
{
    bool quote = scan->quote && byte == *scan->quote;
    if (byte != '"' && !quote && (byte != '\'' || !scan->literal || scan->quote))
        return false;
    begin_member(scan, out);
    put(out, quote ? "" : "\"");
    scan->in_key = key;
    scan->delimiter = byte;
    scan->matched = 1;
    scan->state = quote ? QUOTE : TEXT;
    return true;
}

static enum scan_answer add_to_text(struct scan *scan, char byte, struct strbuf *out)
{
    if (byte == scan->delimiter)
        return end_string(scan, out);
    if (byte == '\\')
        return go_on(scan, ESCAPE);
    put_escaped(out, byte);
    return SCAN_MORE;
}

static enum scan_answer add_escape(struct scan *scan, char byte, struct strbuf *out)
{
    if (byte == 'u' || (byte == 'x' && scan->literal)) {
        scan->digits = byte == 'u' ? 4 : 2;
        put(out, byte == 'u' ? "\\u" : "\\u00");
        return go_on(scan, HEX);
    }
    bool known = byte && strchr("\"\\/bfnrt", byte);
    if (!known && !scan->literal)
        return SCAN_BAD;
    put(out, known ? "\\" : byte == '\'' ? "" : "\\\\"); // Python keeps a backslash that begins no escape
    if (known)
        put_byte(out, byte);
    else
        put_escaped(out, byte);
    return go_on(scan, TEXT);
}

static enum scan_answer add_hex(struct scan *scan, char byte, struct strbuf *out)
{
    if (bytes_hex_digit(byte) >= 0) {
        put_byte(out, byte);
        return go_on(scan, --scan->digits ? HEX : TEXT);
    }
    if (!scan->literal)
        return SCAN_BAD;
    for (; scan->digits; scan->digits--) // a string that is being emitted must stay one
        put(out, "0");
    scan->state = TEXT;
    return add_to_text(scan, byte, out);
}

static enum scan_answer add_to_quote(struct scan *scan, char byte, struct strbuf *out)
{
    if (byte != scan->quote[scan->matched])
        return SCAN_BAD;
    if (scan->quote[++scan->matched])
        return SCAN_MORE;
    scan->matched = 0;
    put(out, "\"");
    return go_on(scan, RAW);
}

// Gemma's strings have no escapes; no beginning of a quote is also inside it, but for its first byte.
static enum scan_answer add_raw(struct scan *scan, char byte, struct strbuf *out)
{
    const char *quote = scan->quote;
    if (byte != quote[scan->matched]) {
        for (size_t i = 0; i < scan->matched; i++)
            put_escaped(out, quote[i]);
        scan->matched = 0;
    }
    if (byte != quote[scan->matched])
        put_escaped(out, byte);
    else if (!quote[++scan->matched])
        return end_string(scan, out);
    return SCAN_MORE;
}

static bool is_letter(char byte) { return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z'; }

static enum scan_answer begin_key(struct scan *scan, char byte, struct strbuf *out)
{
    if (begin_string(scan, byte, true, out))
        return SCAN_MORE;
    if (!scan->quote || (!is_letter(byte) && byte != '_'))
        return SCAN_BAD;
    begin_member(scan, out);
    put(out, "\"");
    put_byte(out, byte);
    return go_on(scan, BARE);
}

static enum scan_answer add_to_bare_key(struct scan *scan, char byte, struct strbuf *out)
{
    if (byte != ':' && byte != ' ') {
        put_escaped(out, byte);
        return byte && strchr("{}[],\"\n", byte) ? SCAN_BAD : SCAN_MORE;
    }
    put(out, byte == ':' ? "\": " : "\"");
    return go_on(scan, byte == ':' ? VALUE : COLON);
}

// ---- words and numbers --------------------------------------------------------------------------------------------

static const struct word {
    const char *word, *json;
} words[] = {
    { "true", "true" }, { "false", "false" }, { "null", "null" }, // JSON's,
    { "True", "true" }, { "False", "false" }, { "None", "null" }, // and Python's
};

static enum scan_answer begin_word(struct scan *scan, char byte)
{
    for (int i = 0; i < (scan->literal ? 6 : 3); i++)
        if (*words[i].word == byte) {
            scan->word = &words[i];
            scan->matched = 1;
            return go_on(scan, WORD);
        }
    return SCAN_BAD;
}

static enum scan_answer add_to_word(struct scan *scan, char byte, struct strbuf *out)
{
    if (byte != scan->word->word[scan->matched])
        return SCAN_BAD;
    if (scan->word->word[++scan->matched])
        return SCAN_MORE;
    if (scan->literal)
        return go_on(scan, BEHIND_WORD);
    put(out, scan->word->json);
    return end_value(scan);
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

// ---- values -------------------------------------------------------------------------------------------------------

static enum scan_answer begin_value(struct scan *scan, char byte, struct strbuf *out)
{
    if (begin_string(scan, byte, false, out))
        return SCAN_MORE;
    begin_member(scan, out);
    if (byte == '{' || byte == '[' || (byte == '(' && scan->literal && !scan->quote))
        return open_container(scan, byte, out);
    if (byte != '-' && (byte < '0' || byte > '9'))
        return begin_word(scan, byte);
    put_byte(out, byte);
    return go_on(scan, byte == '-' ? MINUS : byte == '0' ? ZERO : INTEGER);
}

// Literals may have a comma behind the last member.
static enum scan_answer add_behind(struct scan *scan, char byte, struct strbuf *out)
{
    if (byte != ',' || !scan->depth)
        return close_container(scan, byte, out);
    bool object = scan->closes[scan->depth - 1] == '}';
    scan->comma = true;
    return go_on(scan, object ? scan->literal ? FIRST_KEY : KEY : scan->literal ? FIRST_ITEM : VALUE);
}

static enum scan_answer add_between(struct scan *scan, char byte, struct strbuf *out)
{
    if (bytes_is_space(byte))
        return SCAN_MORE;
    switch (scan->state) {
    case FIRST_ITEM:
        return byte == ']' || byte == ')' ? close_container(scan, byte, out) : begin_value(scan, byte, out);
    case FIRST_KEY: return byte == '}' ? close_container(scan, byte, out) : begin_key(scan, byte, out);
    case KEY: return begin_key(scan, byte, out);
    case COLON: put(out, ": "); return byte == ':' ? go_on(scan, VALUE) : SCAN_BAD;
    case BEHIND: return add_behind(scan, byte, out);
    default: return begin_value(scan, byte, out);
    }
}

enum scan_answer scan_write(struct scan *scan, char byte, struct strbuf *out)
{
    if (scan->state >= MINUS) {
        enum state next = extend_number(scan->state, byte);
        if (next != BEHIND)
            return put_byte(out, byte), go_on(scan, next);
        if (!may_end(scan->state))
            return SCAN_BAD;
        if (end_value(scan) == SCAN_WHOLE)
            return SCAN_BEFORE;
    } else if (scan->state == BEHIND_WORD) {
        if (is_letter(byte))
            return SCAN_BAD;
        put(out, scan->word->json);
        if (end_value(scan) == SCAN_WHOLE)
            return SCAN_BEFORE;
    }
    switch (scan->state) {
    case TEXT: return add_to_text(scan, byte, out);
    case ESCAPE: return add_escape(scan, byte, out);
    case HEX: return add_hex(scan, byte, out);
    case QUOTE: return add_to_quote(scan, byte, out);
    case RAW: return add_raw(scan, byte, out);
    case BARE: return add_to_bare_key(scan, byte, out);
    case WORD: return add_to_word(scan, byte, out);
    default: return add_between(scan, byte, out);
    }
}

enum scan_answer scan_add(struct scan *scan, char byte) { return scan_write(scan, byte, NULL); }

bool scan_in_text(const struct scan *scan)
{
    return scan->state == TEXT || scan->state == ESCAPE || scan->state == HEX;
}

bool scan_read_literal(struct bytes text, struct strbuf *out)
{
    struct scan scan = { .literal = true };
    enum scan_answer answer = SCAN_MORE;
    size_t before = out->len, end = 0;
    for (; end <= text.len && answer == SCAN_MORE; end++) // a blank ends a number
        answer = scan_write(&scan, end < text.len ? text.data[end] : ' ', out);
    end -= answer == SCAN_BEFORE;
    while (end < text.len && bytes_is_space(text.data[end]))
        end++;
    if ((answer == SCAN_WHOLE || answer == SCAN_BEFORE) && end >= text.len)
        return true;
    out->len = before;
    return false;
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
