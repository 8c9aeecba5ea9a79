// SPDX-License-Identifier: Apache-2.0
#include "cli/wrap.h"

#include <utf8proc.h>

enum { TAB_COLUMNS = 8, REPLACEMENT = 0xfffd, ZERO_WIDTH_JOINER = 0x200d };

// Closing punctuation of CJK text, which does not begin a line (kinsoku).
static bool closes(uint32_t c)
{
    static const uint32_t closing[] = { 0x3001, 0x3002, 0x3009, 0x300b, 0x300d, 0x300f, 0x3011, 0x3015, 0x3017,
                                        0x30fb, 0x30fc, 0xff01, 0xff09, 0xff0c, 0xff0e, 0xff1a, 0xff1b, 0xff1f };
    for (size_t i = 0; i < sizeof closing / sizeof *closing; i++)
        if (closing[i] == c)
            return true;
    return false;
}

static void begin_line(struct wrap *wrap)
{
    strbuf_add_byte(&wrap->out, '\n');
    for (int i = 0; i < wrap->indent; i++)
        strbuf_add_byte(&wrap->out, ' ');
    wrap->column = wrap->indent;
    wrap->spaces = 0;
}

static void advance(struct wrap *wrap, int width)
{
    wrap->column += width;
    if (wrap->columns && wrap->column > wrap->columns) // the terminal has begun a line by itself
        wrap->column = (wrap->column - 1) % wrap->columns + 1;
}

static void write_spaces(struct wrap *wrap)
{
    int count = wrap->spaces;
    for (int i = 0; i < count; i++)
        strbuf_add_byte(&wrap->out, ' ');
    wrap->spaces = 0;
    advance(wrap, count);
}

void wrap_flush(struct wrap *wrap)
{
    bool fits = wrap->verbatim || !wrap->columns || wrap->column + wrap->spaces + wrap->word_width <= wrap->columns;
    if (!wrap->word.len)
        return;
    if (wrap->word_width && !fits && wrap->column > wrap->indent)
        begin_line(wrap);
    else if (wrap->word_width)
        write_spaces(wrap);
    strbuf_add(&wrap->out, wrap->word.data, wrap->word.len);
    advance(wrap, wrap->word_width);
    wrap->word.len = 0;
    wrap->word_width = 0;
}

static void end_line(struct wrap *wrap)
{
    wrap_flush(wrap);
    strbuf_add_byte(&wrap->out, '\n');
    wrap->column = wrap->spaces = 0;
    wrap->last = '\n';
}

// A space, or a tab, which goes to the next of its columns.
static void add_space(struct wrap *wrap, bool tab)
{
    wrap_flush(wrap);
    wrap->spaces += tab ? TAB_COLUMNS - (wrap->column + wrap->spaces) % TAB_COLUMNS : 1;
    wrap->last = ' ';
    if (wrap->verbatim)
        write_spaces(wrap);
}

// A mark, and whatever else belongs to the character before (a joined emoji, a variation selector), takes no room.
static int width_of(const struct wrap *wrap, uint32_t c)
{
    int width = utf8proc_charwidth((int32_t)c);
    bool joined = wrap->last && !utf8proc_grapheme_break((int32_t)wrap->last, (int32_t)c);
    return joined || wrap->last == ZERO_WIDTH_JOINER ? 0 : width;
}

static void add_character(struct wrap *wrap, uint32_t c)
{
    int width = width_of(wrap, c);
    bool after_wide = wrap->word_width && utf8proc_charwidth((int32_t)wrap->last) == 2;
    if (width && (width == 2 || after_wide) && !closes(c))
        wrap_flush(wrap);
    strbuf_add_codepoint(&wrap->word, c);
    wrap->word_width += width;
    wrap->last = c;
}

static void add_codepoint(struct wrap *wrap, uint32_t c)
{
    if (c == '\r')
        return;
    if (c == '\n')
        end_line(wrap);
    else if (c == ' ' || c == '\t')
        add_space(wrap, c == '\t');
    else if (c < ' ' || (c >= 0x7f && c < 0xa0))
        add_character(wrap, REPLACEMENT);
    else
        add_character(wrap, c);
}

void wrap_add(struct wrap *wrap, struct bytes text)
{
    for (size_t at = 0; at < text.len;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)text.data + at,
                                                (utf8proc_ssize_t)(text.len - at), &c);
        add_codepoint(wrap, len > 0 ? (uint32_t)c : REPLACEMENT);
        at += len > 0 ? (size_t)len : 1;
    }
}

void wrap_add_style(struct wrap *wrap, const char *sequence) { strbuf_add_text(&wrap->word, sequence); }

void wrap_free(struct wrap *wrap)
{
    strbuf_free(&wrap->out);
    strbuf_free(&wrap->word);
    *wrap = (struct wrap){ 0 };
}
