// SPDX-License-Identifier: Apache-2.0
// A Jinja lexer with trim_blocks and lstrip_blocks.
#include "text/template/lex.h"

#include <errno.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/template/unicode.h"

struct lexer {
    struct bytes in;
    size_t at;
    int line;
    bool line_starting; // what came last ended in a newline
    struct arena *arena;
    struct token *tokens;
    size_t count, capacity;
    char open[TEMPLATE_BRACKETS_MAX]; // the closing brackets that are due
    size_t open_count;
    struct error *err;
};

static const struct {
    enum token_type type;
    const char *text;
} operators[] = {
#define X(id, text) { TOKEN_##id, text },
    TOKEN_OPERATORS(X)
#undef X
};

const char *token_name(enum token_type type)
{
    switch (type) {
    case TOKEN_END: return "the end of the template";
    case TOKEN_DATA: return "text";
    case TOKEN_VARIABLE_BEGIN: return "{{";
    case TOKEN_VARIABLE_END: return "}}";
    case TOKEN_BLOCK_BEGIN: return "{%";
    case TOKEN_BLOCK_END: return "%}";
    case TOKEN_NAME: return "a name";
    case TOKEN_STRING: return "a string";
    case TOKEN_INTEGER: return "an integer";
    case TOKEN_FLOAT: return "a float";
    default: return operators[type - TOKEN_FLOAT - 1].text;
    }
}

static struct bytes rest(const struct lexer *lexer) { return bytes_from(lexer->in, lexer->at); }

static bool at_text(const struct lexer *lexer, const char *text)
{
    return bytes_start_with(rest(lexer), bytes_of(text));
}

static void advance(struct lexer *lexer, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        lexer->line += lexer->in.data[lexer->at + i] == '\n';
    lexer->at += bytes;
    if (bytes)
        lexer->line_starting = lexer->in.data[lexer->at - 1] == '\n';
}

static struct token *add_token(struct lexer *lexer, enum token_type type, struct bytes text)
{
    MEMORY_RESERVE(lexer->tokens, lexer->count, lexer->capacity);
    struct token *token = &lexer->tokens[lexer->count++];
    *token = (struct token){ .type = type, .line = lexer->line, .text = text };
    return token;
}

static size_t space_length(struct bytes text) { return text.len - unicode_strip_left(text).len; }

// Passes the end of a tag, such as %} with what is around it; false when none is here. A minus before it takes all
// white space behind it along, a block's or a comment's own end takes one newline.
static bool pass_end(struct lexer *lexer, const char *end)
{
    struct bytes here = rest(lexer);
    bool variable = end[0] == '}';
    size_t sign = here.len && (here.data[0] == '-' || (here.data[0] == '+' && !variable));
    if (!bytes_start_with(bytes_from(here, sign), bytes_of(end)))
        return false;
    advance(lexer, sign + 2);
    if (sign && here.data[0] == '-')
        advance(lexer, space_length(rest(lexer)));
    else if (!sign && !variable && at_text(lexer, "\n"))
        advance(lexer, 1);
    return true;
}

static bool lex_string(struct lexer *lexer)
{
    struct bytes here = rest(lexer);
    size_t end = 1;
    while (end < here.len && here.data[end] != here.data[0])
        end += here.data[end] == '\\' ? 2 : 1;
    if (end >= here.len)
        return fail(lexer->err, "chat template, line %d: a string is not closed", lexer->line);
    struct bytes text;
    const char *why = escape_decode((struct bytes){ here.data + 1, end - 1 }, lexer->arena, &text);
    if (why)
        return fail(lexer->err, "chat template, line %d: %s", lexer->line, why);
    add_token(lexer, TOKEN_STRING, text);
    advance(lexer, end + 1);
    return true;
}

// Digits with single underscores between them.
static size_t digits_length(struct bytes text, const char *digits)
{
    size_t length = 0;
    while (length < text.len) {
        size_t skip = length && text.data[length] == '_';
        if (length + skip >= text.len || !text.data[length + skip] || !strchr(digits, text.data[length + skip]))
            break;
        length += skip + 1;
    }
    return length;
}

static struct bytes tail(struct bytes text, size_t from)
{
    return from < text.len ? bytes_from(text, from) : (struct bytes){ 0 };
}

// Length of a float at the start of `text`, 0: it is none.
static size_t float_length(struct bytes text)
{
    static const char decimal[] = "0123456789";
    size_t whole = digits_length(text, decimal), length = whole;
    if (tail(text, length).len && text.data[length] == '.') {
        size_t fraction = digits_length(tail(text, length + 1), decimal);
        length += fraction ? 1 + fraction : 0;
    }
    if (tail(text, length).len && (text.data[length] | 0x20) == 'e') {
        struct bytes power = tail(text, length + 1);
        size_t sign = power.len && (power.data[0] == '+' || power.data[0] == '-');
        size_t digits = digits_length(tail(power, sign), decimal);
        length += digits ? 1 + sign + digits : 0;
    }
    return length > whole ? length : 0;
}

static size_t integer_length(struct bytes text, int *base)
{
    static const struct {
        char letter;
        int base;
        const char *digits;
    } bases[] = { { 'b', 2, "01" }, { 'o', 8, "01234567" }, { 'x', 16, "0123456789abcdefABCDEF" } };
    *base = 10;
    if (text.data[0] != '0')
        return digits_length(text, "0123456789");
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        if (text.len < 3 || (text.data[1] | 0x20) != bases[i].letter)
            continue;
        struct bytes digits = tail(text, 2);
        size_t lead = digits.data[0] == '_';
        size_t length = digits_length(tail(digits, lead), bases[i].digits);
        if (length)
            return *base = bases[i].base, 2 + lead + length;
    }
    return digits_length(text, "0");
}

static bool lex_number(struct lexer *lexer)
{
    struct bytes here = rest(lexer);
    int base = 10;
    bool after_dot = lexer->at && lexer->in.data[lexer->at - 1] == '.';
    size_t length = after_dot ? 0 : float_length(here);
    bool is_float = length;
    if (!is_float)
        length = integer_length(here, &base);
    char *plain = arena_new(lexer->arena, length + 1, 1);
    size_t used = 0;
    for (size_t i = base == 10 ? 0 : 2; i < length; i++)
        if (here.data[i] != '_')
            plain[used++] = here.data[i];
    struct token *token = add_token(lexer, is_float ? TOKEN_FLOAT : TOKEN_INTEGER, (struct bytes){ here.data, length });
    errno = 0;
    if (is_float)
        token->number = strtod(plain, NULL);
    else
        token->integer = strtoll(plain, NULL, base);
    if (!is_float && errno)
        return fail(lexer->err, "chat template, line %d: %.*s does not fit 64 bits", lexer->line,
                    shown_length(token->text), token->text.data);
    advance(lexer, length);
    return true;
}

static bool is_name_character(uint32_t c)
{
    bool digit = c >= '0' && c <= '9', letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    return c < 0x80 ? digit || letter || c == '_' : unicode_is_word(c);
}

static size_t name_length(struct bytes text)
{
    size_t length = 0, step;
    while (length < text.len && is_name_character(unicode_first(tail(text, length), &step)))
        length += step;
    return length;
}

static bool balance(struct lexer *lexer, char bracket)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *pair = strchr(opening, bracket);
    if (pair) {
        if (lexer->open_count == TEMPLATE_BRACKETS_MAX)
            return fail(lexer->err, "chat template, line %d: more than %d brackets are open", lexer->line,
                        TEMPLATE_BRACKETS_MAX);
        lexer->open[lexer->open_count++] = closing[pair - opening];
    } else if (strchr(closing, bracket)) {
        if (!lexer->open_count)
            return fail(lexer->err, "chat template, line %d: '%c' closes nothing", lexer->line, bracket);
        char due = lexer->open[--lexer->open_count];
        if (due != bracket)
            return fail(lexer->err, "chat template, line %d: found '%c' where '%c' was due", lexer->line, bracket, due);
    }
    return true;
}

static bool lex_operator(struct lexer *lexer)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!at_text(lexer, operators[i].text))
            continue;
        size_t length = strlen(operators[i].text);
        if (length == 1 && !balance(lexer, operators[i].text[0]))
            return false;
        add_token(lexer, operators[i].type, (struct bytes){ lexer->in.data + lexer->at, length });
        advance(lexer, length);
        return true;
    }
    size_t length;
    unicode_first(rest(lexer), &length);
    return fail(lexer->err, "chat template, line %d: unexpected character '%.*s'", lexer->line, (int)length,
                lexer->in.data + lexer->at);
}

static bool lex_one(struct lexer *lexer)
{
    struct bytes here = rest(lexer);
    if (here.data[0] >= '0' && here.data[0] <= '9')
        return lex_number(lexer);
    size_t name = name_length(here);
    if (name) {
        add_token(lexer, TOKEN_NAME, (struct bytes){ here.data, name });
        advance(lexer, name);
        return true;
    }
    if (here.data[0] == '\'' || here.data[0] == '"')
        return lex_string(lexer);
    return lex_operator(lexer);
}

// The inside of {{ }} or {% %}; its beginning has been passed.
static bool lex_code(struct lexer *lexer, const char *end, enum token_type end_type)
{
    lexer->open_count = 0;
    while (lexer->at < lexer->in.len) {
        int line = lexer->line;
        if (!lexer->open_count && pass_end(lexer, end)) {
            add_token(lexer, end_type, bytes_of(end))->line = line;
            return true;
        }
        size_t space = space_length(rest(lexer));
        if (space)
            advance(lexer, space);
        else if (!lex_one(lexer))
            return false;
    }
    return true; // the parser finds the end of the template where it expects more
}

// Length of `{%- raw -%}` and the like at the start of `text`, up to the sign before its end; 0: it is none.
static size_t raw_tag_length(struct bytes text, const char *word, bool plus_allowed)
{
    size_t at = 2;
    at += tail(text, at).len && (text.data[at] == '-' || text.data[at] == '+');
    at += space_length(tail(text, at));
    if (!bytes_start_with(tail(text, at), bytes_of(word)))
        return 0;
    at += strlen(word);
    at += space_length(tail(text, at));
    size_t sign = tail(text, at).len && (text.data[at] == '-' || (plus_allowed && text.data[at] == '+'));
    return bytes_start_with(tail(text, at + sign), bytes_of("%}")) ? at : 0;
}

// Adds text that ends where a tag begins, cut as the tag's sign says: a minus takes all white space, and unless there
// is a plus, a statement alone on its line takes the indentation.
static void add_data(struct lexer *lexer, struct bytes text, char sign, bool statement)
{
    size_t full = text.len;
    if (sign == '-') {
        text = unicode_strip_right(text);
    } else if (sign != '+' && statement) {
        const char *newline = text.len ? memrchr(text.data, '\n', text.len) : NULL;
        size_t start = newline ? (size_t)(newline - text.data) + 1 : 0;
        if ((start || lexer->line_starting) && !unicode_strip_left(tail(text, start)).len)
            text.len = start;
    }
    if (text.len)
        add_token(lexer, TOKEN_DATA, text);
    advance(lexer, full);
}

static bool lex_raw(struct lexer *lexer, size_t tag)
{
    int line = lexer->line;
    advance(lexer, tag);
    bool minus = at_text(lexer, "-");
    advance(lexer, minus ? 3 : 2);
    if (minus)
        advance(lexer, space_length(rest(lexer)));
    struct bytes here = rest(lexer);
    if (!here.len) // jinja2 lets a template end here
        return true;
    for (size_t at = 0; at + 1 < here.len; at++) {
        const char *brace = memchr(here.data + at, '{', here.len - at - 1);
        if (!brace)
            break;
        at = (size_t)(brace - here.data);
        size_t end = brace[1] == '%' ? raw_tag_length(tail(here, at), "endraw", true) : 0;
        if (!end)
            continue;
        add_data(lexer, (struct bytes){ here.data, at }, brace[2], true);
        advance(lexer, end);
        return pass_end(lexer, "%}");
    }
    return fail(lexer->err, "chat template, line %d: {%% raw %%} is not closed by {%% endraw %%}", line);
}

static bool lex_comment(struct lexer *lexer)
{
    int line = lexer->line;
    struct bytes here = rest(lexer);
    size_t start = 2 + (here.len > 2 && (here.data[2] == '-' || here.data[2] == '+'));
    for (size_t at = start; at + 1 < here.len; at++)
        if (here.data[at] == '#' && here.data[at + 1] == '}') {
            size_t sign = at > start && (here.data[at - 1] == '-' || here.data[at - 1] == '+');
            advance(lexer, at - sign);
            return pass_end(lexer, "#}");
        }
    if (start < here.len) // jinja2 lets a template end right behind {#
        return fail(lexer->err, "chat template, line %d: a comment is not closed by #}", line);
    advance(lexer, here.len);
    return true;
}

static bool lex_tag(struct lexer *lexer)
{
    struct bytes here = rest(lexer);
    size_t raw = here.data[1] == '%' ? raw_tag_length(here, "raw", false) : 0;
    if (raw)
        return lex_raw(lexer, raw);
    if (here.data[1] == '#')
        return lex_comment(lexer);
    bool variable = here.data[1] == '{';
    add_token(lexer, variable ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, (struct bytes){ here.data, 2 });
    advance(lexer, here.len > 2 && (here.data[2] == '-' || here.data[2] == '+') ? 3 : 2);
    return variable ? lex_code(lexer, "}}", TOKEN_VARIABLE_END) : lex_code(lexer, "%}", TOKEN_BLOCK_END);
}

// Bytes of text before the next tag; all that is left when there is none.
static size_t data_length(struct bytes text)
{
    for (size_t at = 0; at + 1 < text.len; at++) {
        const char *brace = memchr(text.data + at, '{', text.len - at - 1);
        if (!brace)
            break;
        if (brace[1] == '%' || brace[1] == '{' || brace[1] == '#')
            return (size_t)(brace - text.data);
        at = (size_t)(brace - text.data);
    }
    return text.len;
}

static bool lex_all(struct lexer *lexer)
{
    while (lexer->at < lexer->in.len) {
        struct bytes here = rest(lexer);
        size_t data = data_length(here);
        if (data == here.len) {
            add_token(lexer, TOKEN_DATA, here);
            advance(lexer, here.len);
            break;
        }
        struct bytes tag = tail(here, data);
        add_data(lexer, (struct bytes){ here.data, data }, tag.len > 2 ? tag.data[2] : ' ', tag.data[1] != '{');
        if (!lex_tag(lexer))
            return false;
    }
    return true;
}

static struct bytes normalise(struct bytes source, struct arena *arena)
{
    char *text = arena_new(arena, source.len + 1, 1);
    size_t used = 0;
    for (size_t i = 0; i < source.len; i++) {
        bool pair = source.data[i] == '\r' && i + 1 < source.len && source.data[i + 1] == '\n';
        if (!pair)
            text[used++] = source.data[i] == '\r' ? '\n' : source.data[i];
    }
    if (used && text[used - 1] == '\n')
        used--;
    return (struct bytes){ text, used };
}

struct token *template_lex(struct bytes source, struct arena *arena, struct error *err)
{
    if (source.len > TEMPLATE_SOURCE_BYTES_MAX)
        return fail(err, "chat template: it has %zu bytes, the limit is %d", source.len, TEMPLATE_SOURCE_BYTES_MAX),
               NULL;
    if (!utf8_is_valid(source))
        return fail(err, "chat template: it is not valid UTF-8"), NULL;
    struct lexer lexer = { .line = 1, .line_starting = true, .arena = arena, .err = err };
    lexer.in = normalise(source, arena);
    if (!lex_all(&lexer)) {
        free(lexer.tokens);
        return NULL;
    }
    add_token(&lexer, TOKEN_END, (struct bytes){ 0 });
    return lexer.tokens;
}
