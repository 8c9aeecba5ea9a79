// SPDX-License-Identifier: Apache-2.0
#include "text/template/wrap.h"

#include "text/template/split.h"
#include "text/template/unicode.h"

// Characters of one line, so that its places can be looked at by number.
struct characters {
    uint32_t *c;
    size_t *offset; // in the text, and the end of the text behind the last one
    size_t count;
    const char *text;
};

static bool is_blank(uint32_t c) // what the wrapping takes for white space
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_letter(uint32_t c) { return unicode_is_word(c) && !unicode_is_decimal(c); }

static bool is_word_punctuation(uint32_t c)
{
    return unicode_is_word(c) || (c < 0x80 && c && strchr("!\"'&.,?", (int)c));
}

static bool character_is(const struct characters *line, size_t at, bool (*is)(uint32_t))
{
    return at < line->count && is(line->c[at]);
}

// Length of a dash at `at` (two hyphens or more) between two words; 0 when there is none.
static size_t dash_length(const struct characters *line, size_t at)
{
    if (!at || line->c[at] != '-' || !is_word_punctuation(line->c[at - 1]))
        return 0;
    size_t end = at;
    while (end < line->count && line->c[end] == '-')
        end++;
    return end - at >= 2 && character_is(line, end, unicode_is_word) ? end - at : 0;
}

// True when a word may end before `at`, which is behind a hyphen between letters.
static bool hyphen_break(const struct characters *line, size_t start, size_t at)
{
    if (line->c[at - 1] != '-' || at < start + 2)
        return false;
    bool letter = is_letter(line->c[at - 2]), two_letters = letter && at >= 3 && is_letter(line->c[at - 3]);
    bool hyphenated = letter && at >= 4 && line->c[at - 3] == '-' && is_letter(line->c[at - 4]);
    if (!two_letters && !hyphenated)
        return false;
    size_t second = at + 1 + (at + 1 < line->count && line->c[at + 1] == '-');
    return character_is(line, at, is_letter) && character_is(line, second, is_letter);
}

// End of the chunk that starts here: white space, a dash between words, or a word up to where it may be broken.
static size_t chunk_end(const struct characters *line, size_t start, bool hyphens)
{
    size_t end = start + 1;
    if (is_blank(line->c[start])) {
        while (character_is(line, end, is_blank))
            end++;
        return end;
    }
    size_t dash = hyphens ? dash_length(line, start) : 0;
    if (dash)
        return start + dash;
    while (end < line->count && !is_blank(line->c[end])) {
        if (hyphens && (hyphen_break(line, start, end) || dash_length(line, end)))
            break;
        end++;
    }
    return end;
}

static void put_characters(struct render *render, const struct characters *line, size_t from, size_t to)
{
    text_put(render, (struct bytes){ line->text + line->offset[from], line->offset[to] - line->offset[from] });
}

// Where a word that is longer than a whole line is cut, `room` columns being left: at a hyphen if there is one.
static size_t cut_long_word(const struct characters *line, size_t start, size_t room, const struct wrapping *wrapping)
{
    for (size_t at = start + room; wrapping->break_on_hyphens && at > start + 1; at--)
        if (line->c[at - 1] == '-') {
            for (size_t i = start; i < at - 1; i++)
                if (line->c[i] != '-')
                    return at;
            break;
        }
    return start + room;
}

struct wrap { // of one line, in the making
    const struct wrapping *wrapping;
    const struct characters *line;
    size_t *ends; // ends[i] is where chunk i ends
    size_t chunk; // the one at hand
    size_t at;    // what has been dealt with; within the chunk where a long one was cut
    bool begun;   // something has been put
};

static void next_chunk(struct wrap *wrap) { wrap->at = wrap->ends[wrap->chunk++]; }

static bool all_blank(const struct characters *line, size_t from, size_t to)
{
    while (from < to && is_blank(line->c[from]))
        from++;
    return from == to;
}

// One line of the result. White space is left out where a line begins, but for the first, and where it ends.
static void wrap_one(struct render *render, struct wrap *wrap)
{
    const struct characters *line = wrap->line;
    size_t width = (size_t)wrap->wrapping->width;
    if (wrap->begun && is_blank(line->c[wrap->at]))
        next_chunk(wrap);
    size_t start = wrap->at, last = start; // `last` is where the last chunk of this line begins
    while (wrap->at < line->count && wrap->ends[wrap->chunk] - start <= width) {
        last = wrap->at;
        next_chunk(wrap);
    }
    if (wrap->at < line->count && wrap->ends[wrap->chunk] - wrap->at > width) {
        if (wrap->wrapping->break_long_words) {
            last = wrap->at;
            wrap->at = cut_long_word(line, wrap->at, width - (wrap->at - start), wrap->wrapping);
        } else if (wrap->at == start) {
            next_chunk(wrap);
        }
    }
    size_t end = all_blank(line, last, wrap->at) ? last : wrap->at;
    if (end == start)
        return;
    text_put(render, wrap->begun ? wrap->wrapping->line_end : bytes_of(""));
    put_characters(render, line, start, end);
    wrap->begun = true;
}

static void wrap_line(struct render *render, const struct characters *line, const struct wrapping *wrapping)
{
    struct wrap wrap = { .wrapping = wrapping, .line = line };
    wrap.ends = render_room(render, line->count + 1, sizeof *wrap.ends);
    if (!wrap.ends)
        return;
    for (size_t at = 0, count = 0; at < line->count; at = wrap.ends[count++])
        wrap.ends[count] = chunk_end(line, at, wrapping->break_on_hyphens);
    while (wrap.at < line->count && render_step(render, 1))
        wrap_one(render, &wrap);
}

static bool characters_of(struct render *render, struct bytes text, struct characters *line)
{
    line->count = unicode_count(text);
    line->text = text.data;
    line->c = render_room(render, line->count + 1, sizeof *line->c);
    line->offset = render_room(render, line->count + 1, sizeof *line->offset);
    if (!line->c || !line->offset)
        return false;
    size_t at = 0, length;
    for (size_t i = 0; i < line->count; i++, at += length) {
        line->c[i] = unicode_first(rest_of(text, at), &length);
        line->offset[i] = at;
    }
    line->offset[line->count] = text.len;
    return true;
}

struct value wrap_text(struct render *render, struct bytes text, const struct wrapping *wrapping)
{
    const struct list *lines = split_lines(render, text, false);
    size_t mark = text_mark(render);
    for (size_t i = 0; i < lines->count && render_step(render, 1); i++) {
        struct characters line;
        text_put(render, i ? wrapping->line_end : bytes_of(""));
        if (characters_of(render, lines->items[i].string, &line))
            wrap_line(render, &line, wrapping);
    }
    return text_take(render, mark);
}

// Bytes of a tag or comment at the start of `text`; 0 when it is not closed.
static size_t tag_length(struct bytes text)
{
    bool comment = bytes_start_with(text, bytes_of("<!--"));
    struct bytes close = bytes_of(comment ? "-->" : ">"), inside = rest_of(text, comment ? 4 : 1);
    const char *end = memmem(inside.data, inside.len, close.data, close.len);
    return end ? (size_t)(end - text.data) + close.len : 0;
}

// Puts what an entity such as &amp; or &#39; stands for; returns its bytes, 0 when it is none.
static size_t put_entity(struct render *render, struct bytes text)
{
    static const struct {
        const char *name;
        uint32_t c;
    } entities[] = { { "&amp;", '&' },  { "&lt;", '<' },    { "&gt;", '>' },
                     { "&quot;", '"' }, { "&apos;", '\'' }, { "&nbsp;", 0xA0 } };
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (bytes_start_with(text, bytes_of(entities[i].name))) {
            text_put_codepoint(render, entities[i].c);
            return strlen(entities[i].name);
        }
    const char *end = memchr(text.data, ';', text.len < 12 ? text.len : 12);
    if (!end || text.len < 4 || text.data[1] != '#')
        return 0;
    bool hex = (text.data[2] | 0x20) == 'x';
    struct bytes digits = { text.data + 2 + hex, (size_t)(end - text.data) - 2 - hex };
    int64_t number;
    bool too_big;
    if (!string_to_int(digits, hex ? 16 : 10, &number, &too_big) || number <= 0)
        return 0;
    text_put_codepoint(render, number > 0x10FFFF ? 0xFFFD : (uint32_t)number);
    return (size_t)(end - text.data) + 1;
}

struct value filter_striptags(struct call *call)
{
    struct render *render = call->render;
    struct bytes rest = string_of(render, call->self).string;
    size_t mark = text_mark(render);
    render_step_characters(render, rest.len);
    while (rest.len && render_step(render, 1)) {
        const char *open = memchr(rest.data, '<', rest.len);
        size_t plain = open ? (size_t)(open - rest.data) : rest.len;
        size_t tag = open ? tag_length((struct bytes){ open, rest.len - plain }) : 0;
        plain = open && !tag ? rest.len : plain;
        text_put(render, (struct bytes){ rest.data, plain });
        rest = rest_of(rest, plain + tag);
    }
    const struct list *words = split_words(render, text_take(render, mark).string);
    for (size_t i = 0; i < words->count && !render->failed; i++) {
        text_put(render, bytes_of(i ? " " : ""));
        struct bytes word = words->items[i].string;
        for (size_t at = 0, length; at < word.len && !render->failed; at += length) {
            struct bytes here = { word.data + at, word.len - at };
            length = here.data[0] == '&' ? put_entity(render, here) : 0;
            if (!length)
                text_put(render, (struct bytes){ here.data, length = 1 });
        }
    }
    return text_take(render, mark);
}
