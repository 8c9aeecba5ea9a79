// SPDX-License-Identifier: Apache-2.0
// A recogniser of literals as a state machine with a stack of open brackets.
#include "text/tools/literal.h"

enum state {
    VALUE, // is due
    ITEM,  // or the end of the list
    KEY,   // or the end of the object
    COLON,
    BEHIND, // a value inside a container
    TEXT,
    ESCAPE,
    HEX,
    QUOTE, // Gemma's begins
    RAW,   // inside Gemma's
    BARE,  // a key without quotes
    WORD,
    NUMBER,
};

static enum scan_answer end_value(struct literal *literal)
{
    literal->state = BEHIND;
    return literal->depth ? SCAN_MORE : SCAN_WHOLE;
}

static enum scan_answer end_string(struct literal *literal, struct strbuf *out)
{
    strbuf_add_byte(out, '"');
    if (!literal->in_key)
        return end_value(literal);
    literal->state = COLON;
    return SCAN_MORE;
}

static void begin_member(struct literal *literal, struct strbuf *out)
{
    if (literal->comma)
        strbuf_add_text(out, ", ");
    literal->comma = false;
}

static enum scan_answer open_container(struct literal *literal, char byte, struct strbuf *out)
{
    if (literal->depth == SCAN_DEPTH_MAX)
        return SCAN_BAD;
    literal->closes[literal->depth++] = byte == '{' ? '}' : byte == '[' ? ']' : ')';
    literal->state = byte == '{' ? KEY : ITEM;
    strbuf_add_byte(out, byte == '{' ? '{' : '[');
    return SCAN_MORE;
}

static enum scan_answer close_container(struct literal *literal, char byte, struct strbuf *out)
{
    if (!literal->depth || byte != literal->closes[literal->depth - 1])
        return SCAN_BAD;
    literal->depth--;
    literal->comma = false;
    strbuf_add_byte(out, byte == '}' ? '}' : ']');
    return end_value(literal);
}

static enum scan_answer begin_string(struct literal *literal, char byte, bool key, struct strbuf *out)
{
    begin_member(literal, out);
    strbuf_add_byte(out, '"');
    literal->in_key = key;
    literal->delimiter = byte;
    literal->state = TEXT;
    return SCAN_MORE;
}

static bool begins_quote(const struct literal *literal, char byte) { return literal->quote && byte == *literal->quote; }

static enum scan_answer begin_quote(struct literal *literal, bool key, struct strbuf *out)
{
    begin_member(literal, out);
    literal->in_key = key;
    literal->matched = 1;
    literal->state = QUOTE;
    return SCAN_MORE;
}

static bool is_letter(char byte)
{
    char lower = (char)(byte | 0x20);
    return lower >= 'a' && lower <= 'z';
}

static enum scan_answer begin_value(struct literal *literal, char byte, struct strbuf *out)
{
    if (byte == '"' || (byte == '\'' && !literal->quote))
        return begin_string(literal, byte, false, out);
    if (begins_quote(literal, byte))
        return begin_quote(literal, false, out);
    begin_member(literal, out);
    if (byte == '{' || byte == '[' || (byte == '(' && !literal->quote))
        return open_container(literal, byte, out);
    if (is_letter(byte)) {
        literal->word[0] = byte;
        literal->word_len = 1;
        literal->state = WORD;
        return SCAN_MORE;
    }
    literal->number = (struct scan){ 0 };
    if ((byte != '-' && (byte < '0' || byte > '9')) || scan_add(&literal->number, byte) != SCAN_MORE)
        return SCAN_BAD;
    strbuf_add_byte(out, byte);
    literal->state = NUMBER;
    return SCAN_MORE;
}

static enum scan_answer begin_key(struct literal *literal, char byte, struct strbuf *out)
{
    if (byte == '"' || (byte == '\'' && !literal->quote))
        return begin_string(literal, byte, true, out);
    if (begins_quote(literal, byte))
        return begin_quote(literal, true, out);
    if (!literal->quote || (!is_letter(byte) && byte != '_'))
        return SCAN_BAD;
    begin_member(literal, out);
    strbuf_add_byte(out, '"');
    strbuf_add_byte(out, byte);
    literal->state = BARE;
    return SCAN_MORE;
}

// ---- strings ------------------------------------------------------------------------------------------------------

// A byte inside a JSON string, escaped where JSON asks for it.
static void add_escaped(char byte, struct strbuf *out)
{
    if ((unsigned char)byte < 0x20)
        strbuf_add_format(out, "\\u%04x", (unsigned)byte);
    else
        strbuf_add(out, byte == '"' ? "\\\"" : byte == '\\' ? "\\\\" : &byte, byte == '"' || byte == '\\' ? 2 : 1);
}

static enum scan_answer add_escape(struct literal *literal, char byte, struct strbuf *out)
{
    literal->state = TEXT;
    if (byte == 'u' || byte == 'x') {
        literal->digits = byte == 'u' ? 4 : 2;
        literal->state = HEX;
        strbuf_add_text(out, byte == 'u' ? "\\u" : "\\u00");
    } else if (byte && strchr("\"\\/bfnrt", byte)) {
        strbuf_add_byte(out, '\\');
        strbuf_add_byte(out, byte);
    } else {
        if (byte != '\'')
            strbuf_add_text(out, "\\\\"); // Python keeps a backslash that begins no escape
        add_escaped(byte, out);
    }
    return SCAN_MORE;
}

static enum scan_answer add_to_string(struct literal *literal, char byte, struct strbuf *out);

static enum scan_answer end_hex(struct literal *literal, char byte, struct strbuf *out)
{
    while (literal->digits) {
        strbuf_add_byte(out, '0');
        literal->digits--;
    }
    literal->state = TEXT;
    return add_to_string(literal, byte, out);
}

static enum scan_answer add_to_string(struct literal *literal, char byte, struct strbuf *out)
{
    switch (literal->state) {
    case ESCAPE: return add_escape(literal, byte, out);
    case HEX:
        if (bytes_hex_digit(byte) < 0) // a string that is being emitted must stay one
            return end_hex(literal, byte, out);
        strbuf_add_byte(out, byte);
        literal->state = --literal->digits ? HEX : TEXT;
        return SCAN_MORE;
    default:
        if (byte == literal->delimiter)
            return end_string(literal, out);
        if (byte == '\\')
            literal->state = ESCAPE;
        else
            add_escaped(byte, out);
        return SCAN_MORE;
    }
}

static enum scan_answer add_to_quote(struct literal *literal, char byte, struct strbuf *out)
{
    if (byte != literal->quote[literal->matched])
        return SCAN_BAD;
    if (!literal->quote[++literal->matched]) {
        literal->matched = 0;
        literal->state = RAW;
        strbuf_add_byte(out, '"');
    }
    return SCAN_MORE;
}

// Gemma's strings have no escapes; no beginning of a quote is also inside it, but for its first byte.
static enum scan_answer add_raw(struct literal *literal, char byte, struct strbuf *out)
{
    const char *quote = literal->quote;
    if (byte != quote[literal->matched]) {
        for (size_t i = 0; i < literal->matched; i++)
            add_escaped(quote[i], out);
        literal->matched = 0;
    }
    if (byte != quote[literal->matched])
        add_escaped(byte, out);
    else if (!quote[++literal->matched])
        return end_string(literal, out);
    return SCAN_MORE;
}

// ---- words --------------------------------------------------------------------------------------------------------

static enum scan_answer add_between(struct literal *literal, char byte, struct strbuf *out);

static enum scan_answer end_word(struct literal *literal, char byte, struct strbuf *out)
{
    static const struct {
        const char *word, *json;
    } words[] = { { "True", "true" }, { "False", "false" }, { "None", "null" },
                  { "true", "true" }, { "false", "false" }, { "null", "null" } };
    struct bytes word = { literal->word, literal->word_len };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!bytes_equal(word, bytes_of(words[i].word)))
            continue;
        strbuf_add_text(out, words[i].json);
        return end_value(literal) == SCAN_WHOLE ? SCAN_BEFORE : add_between(literal, byte, out);
    }
    return SCAN_BAD;
}

static enum scan_answer add_to_word(struct literal *literal, char byte, struct strbuf *out)
{
    if (!is_letter(byte))
        return end_word(literal, byte, out);
    if (literal->word_len == LITERAL_WORD_BYTES)
        return SCAN_BAD;
    literal->word[literal->word_len++] = byte;
    return SCAN_MORE;
}

static enum scan_answer add_to_number(struct literal *literal, char byte, struct strbuf *out)
{
    enum scan_answer answer = scan_add(&literal->number, byte);
    if (answer == SCAN_MORE)
        strbuf_add_byte(out, byte);
    if (answer != SCAN_BEFORE)
        return answer;
    return end_value(literal) == SCAN_WHOLE ? SCAN_BEFORE : add_between(literal, byte, out);
}

static enum scan_answer add_to_bare_key(struct literal *literal, char byte, struct strbuf *out)
{
    if (byte != ':' && byte != ' ') {
        add_escaped(byte, out);
        return byte && strchr("{}[],\"\n", byte) ? SCAN_BAD : SCAN_MORE;
    }
    strbuf_add_text(out, byte == ':' ? "\": " : "\"");
    literal->state = byte == ':' ? VALUE : COLON;
    return SCAN_MORE;
}

// ---- all ----------------------------------------------------------------------------------------------------------

static enum scan_answer add_behind(struct literal *literal, char byte, struct strbuf *out)
{
    if (byte != ',')
        return close_container(literal, byte, out);
    literal->comma = true;
    literal->state = literal->closes[literal->depth - 1] == '}' ? KEY : ITEM;
    return SCAN_MORE;
}

static enum scan_answer add_between(struct literal *literal, char byte, struct strbuf *out)
{
    if (bytes_is_space(byte))
        return SCAN_MORE;
    switch (literal->state) {
    case ITEM:
        return byte == ']' || byte == ')' ? close_container(literal, byte, out) : begin_value(literal, byte, out);
    case KEY: return byte == '}' ? close_container(literal, byte, out) : begin_key(literal, byte, out);
    case COLON:
        strbuf_add_text(out, ": ");
        literal->state = VALUE;
        return byte == ':' ? SCAN_MORE : SCAN_BAD;
    case BEHIND: return add_behind(literal, byte, out);
    default: return begin_value(literal, byte, out);
    }
}

enum scan_answer literal_add(struct literal *literal, char byte, struct strbuf *out)
{
    switch (literal->state) {
    case TEXT:
    case ESCAPE:
    case HEX: return add_to_string(literal, byte, out);
    case QUOTE: return add_to_quote(literal, byte, out);
    case RAW: return add_raw(literal, byte, out);
    case BARE: return add_to_bare_key(literal, byte, out);
    case WORD: return add_to_word(literal, byte, out);
    case NUMBER: return add_to_number(literal, byte, out);
    default: return add_between(literal, byte, out);
    }
}

bool literal_read(const char *quote, struct bytes text, struct strbuf *out)
{
    struct literal literal = { .quote = quote };
    enum scan_answer answer = SCAN_MORE;
    size_t before = out->len, end = 0;
    for (; end <= text.len && answer == SCAN_MORE; end++) // a blank ends a number or a word
        answer = literal_add(&literal, end < text.len ? text.data[end] : ' ', out);
    end -= answer == SCAN_BEFORE;
    while (end < text.len && bytes_is_space(text.data[end]))
        end++;
    if ((answer == SCAN_WHOLE || answer == SCAN_BEFORE) && end >= text.len)
        return true;
    out->len = before;
    return false;
}
