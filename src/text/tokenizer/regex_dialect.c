// SPDX-License-Identifier: Apache-2.0
// A recursive-descent translator of regexes from Oniguruma to PCRE2.
#include "text/tokenizer/regex_dialect.h"

#include <stdio.h>

#include "base/pcre.h"
#include "base/utf8.h"
#include "text/tokenizer/unicode16.h"

// Unicode's White_Space, which is stable; PCRE2's own \s also has U+180E.
#define SPACE \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                                                      \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}" \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD_IN_CLASS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
// Outside of a class Oniguruma asks a Latin-1 table first, and that one has the superscripts and fractions.
#define WORD "[" WORD_IN_CLASS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"
#define NOT_WORD "[^" WORD_IN_CLASS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"
#define HEX "0-9A-Fa-f"
#define NOT_HEX "\\x{0}-\\x{2f}\\x{3a}-\\x{40}\\x{47}-\\x{60}\\x{67}-\\x{10ffff}"

static const struct escape {
    char letter;
    const char *outside; // of a class
    const char *inside;  // items, or a class to go beside them; NULL: it has no meaning there
} escapes[] = {
    { 's', "[" SPACE "]", SPACE },
    { 'S', "[" NOT_SPACE "]", NOT_SPACE },
    { 'w', WORD, WORD_IN_CLASS },
    { 'W', NOT_WORD, "[^" WORD_IN_CLASS "]" },
    { 'h', "[" HEX "]", HEX },
    { 'H', "[" NOT_HEX "]", NOT_HEX },
    { 'b', "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))", NULL },
    { 'B', "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))", NULL },
    { 'A', "\\A", NULL },
    { 'z', "\\z", NULL },
    { 'Z', "\\Z", NULL },
};

static const char controls[] = "t\tn\nv\vf\fr\ra\ae\033"; // a letter, and the character that it stands for

// PCRE2 knows general categories by their short names only.
static const char categories[] = "Letter L Uppercase_Letter Lu Lowercase_Letter Ll Titlecase_Letter Lt Modifier_Letter "
                                 "Lm Other_Letter Lo "
                                 "Mark M Nonspacing_Mark Mn Spacing_Mark Mc Enclosing_Mark Me Number N Decimal_Number "
                                 "Nd Letter_Number Nl "
                                 "Other_Number No Punctuation P Symbol S Separator Z Space_Separator Zs Other C "
                                 "Control Cc";

struct translation {
    struct bytes in;
    size_t at;
    int depth; // of groups and classes
    struct error *err;
};

static bool ended(const struct translation *t) { return t->at == t->in.len; }

static bool looking_at(const struct translation *t, const char *text)
{
    return bytes_start_with(bytes_from(t->in, t->at), bytes_of(text));
}

static bool accept(struct translation *t, const char *text)
{
    if (!looking_at(t, text))
        return false;
    t->at += strlen(text);
    return true;
}

static bool looking_at_one_of(const struct translation *t, const char *set)
{
    return !ended(t) && t->in.data[t->at] && strchr(set, t->in.data[t->at]);
}

static bool take_codepoint(struct translation *t, uint32_t *out)
{
    size_t length = utf8_decode(bytes_from(t->in, t->at), out);
    if (!length)
        return fail(t->err, "ends too early, or is not UTF-8");
    t->at += length;
    return true;
}

static void add_codepoint(struct strbuf *out, uint32_t codepoint) { strbuf_add_format(out, "\\x{%x}", codepoint); }

// ---- escapes ----

static bool take_hex(struct translation *t, size_t digits_max, uint32_t *out)
{
    *out = 0;
    size_t digits = 0;
    for (; digits < digits_max && !ended(t) && bytes_hex_digit(t->in.data[t->at]) >= 0; digits++, t->at++)
        *out = *out << 4 | (uint32_t)bytes_hex_digit(t->in.data[t->at]);
    return digits || fail(t->err, "a hexadecimal escape has no digits");
}

static bool refuse_escape(struct translation *t)
{
    return fail(t->err, "the escape \\%.1s is not supported here", ended(t) ? "" : t->in.data + t->at);
}

// An escape that stands for one character, behind its backslash.
static bool take_escaped_character(struct translation *t, uint32_t *out)
{
    char letter = ended(t) ? '\0' : t->in.data[t->at];
    for (const char *pair = controls; *pair; pair += 2)
        if (*pair == letter)
            return t->at++, *out = (uint8_t)pair[1], true;
    if (accept(t, "x{"))
        return take_hex(t, 8, out) && (accept(t, "}") || fail(t->err, "\\x{ is not closed"));
    if (accept(t, "x"))
        return take_hex(t, 2, out);
    if (accept(t, "u"))
        return take_hex(t, 4, out);
    if ((letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z'))
        return refuse_escape(t);
    return take_codepoint(t, out);
}

// PCRE2 takes a script's bare name for Script_Extensions, where Oniguruma means Script.
static bool is_script(struct bytes name)
{
    char pattern[64];
    int length = snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)name.len, name.data);
    int code;
    char message[PCRE_MESSAGE_BYTES];
    pcre2_code *compiled = pcre_compile((struct bytes){ pattern, (size_t)length }, PCRE2_UTF, &code, message);
    pcre2_code_free(compiled);
    return compiled != NULL;
}

// \p{...}, \P{...}, \d or \D, behind the backslash.
static bool take_property(struct translation *t, struct bytes *name, bool *negated)
{
    enum { NAME_BYTES_MAX = 40 };
    char letter = t->in.data[t->at++];
    *negated = letter == 'P' || letter == 'D';
    *name = bytes_of("Nd");
    if (letter == 'd' || letter == 'D')
        return true;
    if (!accept(t, "{"))
        return fail(t->err, "\\%c without braces is not supported", letter);
    *negated ^= accept(t, "^");
    *name = (struct bytes){ t->in.data + t->at, 0 };
    while (!ended(t) && t->in.data[t->at] != '}')
        name->len++, t->at++;
    if (!accept(t, "}") || !name->len || name->len > NAME_BYTES_MAX)
        return fail(t->err, "\\%c{ is not followed by a property's name", letter);
    const char *pairs = categories;
    for (struct bytes full, short_name; bytes_next_word(&pairs, &full) && bytes_next_word(&pairs, &short_name);)
        if (bytes_equal(*name, full))
            return *name = short_name, true;
    return true;
}

// The items of a class that a Unicode property stands for.
static void add_property(struct bytes name, struct strbuf *items)
{
    strbuf_add_format(items, "\\p{%s%.*s}", name.len > 2 && is_script(name) ? "sc:" : "", (int)name.len, name.data);
    unicode16_add_category(name, items);
}

static bool translate_property(struct translation *t, struct strbuf *out)
{
    struct bytes name;
    bool negated;
    if (!take_property(t, &name, &negated))
        return false;
    strbuf_add_text(out, negated ? "[^" : "[");
    add_property(name, out);
    strbuf_add_text(out, "]");
    return true;
}

static const struct escape *take_escape(struct translation *t)
{
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
        if (!ended(t) && t->in.data[t->at] == escapes[i].letter)
            return t->at++, &escapes[i];
    return NULL;
}

// One escape outside of a class, behind its backslash.
static bool translate_escape(struct translation *t, struct strbuf *out)
{
    const struct escape *escape = take_escape(t);
    if (escape)
        return strbuf_add_text(out, escape->outside), true;
    if (looking_at_one_of(t, "dDpP"))
        return translate_property(t, out);
    uint32_t codepoint;
    if (!take_escaped_character(t, &codepoint))
        return false;
    add_codepoint(out, codepoint);
    return true;
}

// ---- classes ----
// A class is a union of items. Items that PCRE2 has between brackets are collected in `items`; nested classes and \W
// become alternatives beside them. In an intersection, each union but the last becomes a lookahead.

struct class {
    struct strbuf items, alternatives, lookaheads;
};

static bool translate_class(struct translation *t, struct strbuf *out);

static void add_alternative(struct class *class, struct bytes alternative)
{
    strbuf_add_text(&class->alternatives, "|");
    strbuf_add(&class->alternatives, alternative.data, alternative.len);
}

static void add_union(struct class *class, struct strbuf *out)
{
    strbuf_add_text(out, "(?:");
    if (class->items.len)
        strbuf_add_format(out, "[%s]", class->items.data);
    // each alternative has its bar in front
    strbuf_add_format(out, "%s)", strbuf_text(&class->alternatives) + !class->items.len);
}

static void add_intersection(struct class *class)
{
    strbuf_add_text(&class->lookaheads, "(?=");
    add_union(class, &class->lookaheads);
    strbuf_add_text(&class->lookaheads, ")");
    class->items.len = class->alternatives.len = 0;
    strbuf_add_text(&class->items, "");
    strbuf_add_text(&class->alternatives, "");
}

static void add_class(struct class *class, bool negated, struct strbuf *out)
{
    if (!class->alternatives.len && !class->lookaheads.len) {
        strbuf_add_format(out, "[%s%s]", negated ? "^" : "", class->items.data);
        return;
    }
    strbuf_add_text(out, negated ? "(?:(?!" : "(?:");
    strbuf_add_text(out, strbuf_text(&class->lookaheads));
    add_union(class, out);
    strbuf_add_text(out, negated ? ")\\p{Any})" : ")");
}

static bool translate_class_property(struct translation *t, struct class *class)
{
    struct bytes name;
    bool negated;
    if (!take_property(t, &name, &negated))
        return false;
    strbuf_add_text(&class->alternatives, negated ? "|[^" : "");
    add_property(name, negated ? &class->alternatives : &class->items);
    strbuf_add_text(&class->alternatives, negated ? "]" : "");
    return true;
}

// A set of characters in a class, written with an escape; *taken when there was one.
static bool translate_class_set(struct translation *t, struct class *class, bool *taken)
{
    size_t start = t->at;
    if (!accept(t, "\\"))
        return true;
    *taken = true;
    if (looking_at_one_of(t, "dDpP"))
        return translate_class_property(t, class);
    const struct escape *escape = take_escape(t);
    if (!escape) {
        t->at = start; // a single character
        return *taken = false, true;
    }
    if (!escape->inside)
        return t->at--, refuse_escape(t);
    if (escape->inside[0] == '[')
        add_alternative(class, bytes_of(escape->inside));
    else
        strbuf_add_text(&class->items, escape->inside);
    return true;
}

static bool take_class_character(struct translation *t, uint32_t *out)
{
    return accept(t, "\\") ? take_escaped_character(t, out) : take_codepoint(t, out);
}

// A character or a range of them.
static bool translate_class_range(struct translation *t, struct class *class)
{
    uint32_t low, high;
    if (!take_class_character(t, &low))
        return false;
    add_codepoint(&class->items, low);
    if (!looking_at(t, "-") || looking_at(t, "-]") || looking_at(t, "-[") || looking_at(t, "-&&"))
        return true;
    t->at++;
    if (!take_class_character(t, &high))
        return false;
    strbuf_add_text(&class->items, "-");
    add_codepoint(&class->items, high);
    return true;
}

static bool translate_class_item(struct translation *t, struct class *class)
{
    if (looking_at(t, "[:"))
        return fail(t->err, "POSIX brackets such as [:alpha:] are not supported");
    if (looking_at(t, "[")) {
        struct strbuf nested = { 0 };
        bool ok = translate_class(t, &nested);
        if (ok)
            add_alternative(class, strbuf_bytes(&nested));
        strbuf_free(&nested);
        return ok;
    }
    if (accept(t, "&&")) {
        if (!class->items.len && !class->alternatives.len)
            return fail(t->err, "&& has nothing in front of it");
        return add_intersection(class), true;
    }
    bool taken = false;
    if (!translate_class_set(t, class, &taken))
        return false;
    return taken || translate_class_range(t, class);
}

static bool translate_class(struct translation *t, struct strbuf *out)
{
    if (++t->depth > REGEX_DEPTH_MAX)
        return fail(t->err, "is nested more than %d levels deep", REGEX_DEPTH_MAX);
    struct class class = { 0 };
    t->at++;
    bool negated = accept(t, "^"), ok = true;
    for (bool first = true; ok && (first || !accept(t, "]")); first = false)
        ok = translate_class_item(t, &class);
    ok = ok && (class.items.len || class.alternatives.len || fail(t->err, "&& has nothing behind it"));
    if (ok)
        add_class(&class, negated, out);
    strbuf_free(&class.items);
    strbuf_free(&class.alternatives);
    strbuf_free(&class.lookaheads);
    t->depth--;
    return ok;
}

// ---- groups and quantifiers ----

static bool translate_sequence(struct translation *t, struct strbuf *out);

// (?im-im) and (?im-im:...): the i of both dialects is the same, Oniguruma's m is PCRE2's s. An isolated option reaches
// to the end of its group across every `|`, so it becomes a group of its own.
static bool translate_options(struct translation *t, struct strbuf *out)
{
    strbuf_add_text(out, "(?");
    for (; looking_at_one_of(t, "im-"); t->at++)
        strbuf_add_byte(out, t->in.data[t->at] == 'm' ? 's' : t->in.data[t->at]);
    bool isolated = looking_at(t, ")");
    if (!accept(t, ")") && !accept(t, ":"))
        return fail(t->err, "the group (?%.1s is not supported", ended(t) ? "" : t->in.data + t->at);
    strbuf_add_text(out, ":");
    if (!translate_sequence(t, out))
        return false;
    strbuf_add_text(out, ")");
    return isolated || accept(t, ")") || fail(t->err, "a group is not closed");
}

static bool translate_group(struct translation *t, struct strbuf *out)
{
    static const char *const kinds[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>" };
    const char *opening = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !opening; i++)
        if (accept(t, kinds[i]))
            opening = kinds[i];
    if (!opening && accept(t, "(?"))
        return translate_options(t, out);
    t->at += !opening;
    strbuf_add_text(out, opening ? opening : "(?:"); // nothing ever asks what a capture held
    if (!translate_sequence(t, out))
        return false;
    strbuf_add_text(out, ")");
    return accept(t, ")") || fail(t->err, "a group is not closed");
}

static void wrap(struct strbuf *out, size_t atom)
{
    static const char opening[] = "(?:";
    enum { LENGTH = sizeof opening - 1 };
    size_t length = out->len - atom;
    strbuf_add(out, opening, LENGTH);
    memmove(out->data + atom + LENGTH, out->data + atom, length);
    memcpy(out->data + atom, opening, LENGTH);
    strbuf_add_text(out, ")");
}

static size_t count_digits(const struct translation *t, size_t at)
{
    size_t start = at;
    while (at < t->in.len && t->in.data[at] >= '0' && t->in.data[at] <= '9')
        at++;
    return at - start;
}

// {n}, {n,}, {,m} or {n,m}. Anything else is a plain brace. A sign behind it is another quantifier, save for the `?` of
// a range, which makes it lazy.
static void translate_braces(struct translation *t, struct strbuf *out, size_t atom)
{
    size_t at = t->at + 1, low = count_digits(t, at), comma = at + low;
    bool range = comma < t->in.len && t->in.data[comma] == ',';
    size_t high = range ? count_digits(t, comma + 1) : 0;
    size_t end = comma + range + high;
    if (end >= t->in.len || t->in.data[end] != '}' || (!low && !high)) {
        strbuf_add_text(out, "\\{");
        t->at++;
        return;
    }
    strbuf_add_text(out, low ? "{" : "{0");
    strbuf_add(out, t->in.data + at, end + 1 - at);
    t->at = end + 1;
    if (range && accept(t, "?"))
        strbuf_add_text(out, "?");
    else if (looking_at(t, "?") || looking_at(t, "+"))
        wrap(out, atom);
}

// Alternatives up to the closing parenthesis, which is left, or the end.
static bool translate_sequence(struct translation *t, struct strbuf *out)
{
    if (++t->depth > REGEX_DEPTH_MAX)
        return fail(t->err, "is nested more than %d levels deep", REGEX_DEPTH_MAX);
    size_t atom = out->len; // where the thing begins that a quantifier would repeat
    while (!ended(t) && t->in.data[t->at] != ')') {
        char c = t->in.data[t->at];
        uint32_t codepoint;
        bool ok = true;
        if (c == '{') {
            translate_braces(t, out, atom);
        } else if (looking_at_one_of(t, "*+?")) {
            strbuf_add_byte(out, c);
            t->at++;
        } else {
            atom = out->len;
            if (c == '(')
                ok = translate_group(t, out);
            else if (c == '[')
                ok = translate_class(t, out);
            else if (accept(t, "\\"))
                ok = translate_escape(t, out);
            else if (looking_at_one_of(t, "|^$."))
                strbuf_add_byte(out, c), t->at++;
            else if ((ok = take_codepoint(t, &codepoint)))
                add_codepoint(out, codepoint);
        }
        if (!ok)
            return false;
    }
    t->depth--;
    return true;
}

bool regex_dialect_translate(struct bytes pattern, struct strbuf *out, struct error *err)
{
    if (pattern.len > REGEX_BYTES_MAX)
        return fail(err, "is %zu bytes long, and %d is the limit", pattern.len, REGEX_BYTES_MAX);
    struct translation t = { .in = pattern, .err = err };
    return translate_sequence(&t, out) && (ended(&t) || fail(err, "has a closing parenthesis too many"));
}
