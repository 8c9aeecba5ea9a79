// SPDX-License-Identifier: Apache-2.0
#include "cli/markdown.h"

#include <ctype.h>

enum { HOLD_MAX = 400, HEADING_LEVELS = 6, FENCE_MIN = 3, RULE_MIN = 3, DIGITS_MAX = 9 };

// Select Graphic Rendition (ECMA-48): each has its own end, so that they nest.
#define BOLD "\033[1m"
#define DIM "\033[2m"
#define NOT_BOLD "\033[22m" // nor dim
#define ITALIC "\033[3m"
#define NOT_ITALIC "\033[23m"
#define STRUCK "\033[9m"
#define NOT_STRUCK "\033[29m"
#define CODE "\033[36m"
#define NOT_CODE "\033[39m"

// A step returns how many bytes it has taken, or that it needs more text.
enum { MORE = -1 };

static size_t run_of(struct bytes text, size_t at)
{
    size_t end = at;
    while (end < text.len && text.data[end] == text.data[at])
        end++;
    return end - at;
}

static size_t line_of(struct bytes text)
{
    const char *end = text.len ? memchr(text.data, '\n', text.len) : NULL;
    return end ? (size_t)(end - text.data) : text.len;
}

static struct bytes first_of(struct bytes text, size_t len) { return (struct bytes){ text.data, len }; }

static void write_styled(struct markdown *markdown, const char *on, struct bytes text, const char *off)
{
    wrap_add_style(&markdown->wrap, on);
    wrap_add(&markdown->wrap, text);
    wrap_add_style(&markdown->wrap, off);
}

// ---- code blocks --------------------------------------------------------------------------------------------------

// A fence at least as long as the opening one, alone on its line.
static bool closes_block(const struct markdown *markdown, struct bytes line)
{
    while (line.len && line.data[0] == ' ')
        line = bytes_from(line, 1);
    while (line.len && (line.data[line.len - 1] == ' ' || line.data[line.len - 1] == '\r'))
        line.len--;
    return line.len >= (size_t)markdown->fence_len && line.data[0] == markdown->fence && run_of(line, 0) == line.len;
}

// A line of a code block, or the part of it that has come. Whether the first ones are the closing fence has to be seen.
static long step_code(struct markdown *markdown, struct bytes text, bool final)
{
    size_t len = line_of(text);
    bool whole = len < text.len, first = !markdown->within_line;
    size_t marks = strspn(strbuf_text(&markdown->pending), " `~\r");
    if (first && !whole && !final && marks == len)
        return MORE;
    markdown->wrap.verbatim = true;
    bool closing = first && closes_block(markdown, first_of(text, len));
    write_styled(markdown, closing ? DIM : CODE, first_of(text, len), closing ? NOT_BOLD : NOT_CODE);
    if (whole)
        wrap_add(&markdown->wrap, bytes_of("\n"));
    wrap_flush(&markdown->wrap);
    markdown->within_line = !whole;
    markdown->code = !closing;
    markdown->wrap.verbatim = !closing;
    return (long)len + whole;
}

static long open_block(struct markdown *markdown, struct bytes text, size_t spaces, bool final)
{
    size_t len = line_of(text), marks = run_of(text, spaces);
    if (marks < FENCE_MIN && spaces + marks < text.len)
        return 0;
    if (len == text.len && !final)
        return MORE;
    if (marks < FENCE_MIN
        || (text.data[spaces] == '`' && memchr(text.data + spaces + marks, '`', len - spaces - marks)))
        return 0;
    markdown->code = true;
    markdown->fence = text.data[spaces];
    markdown->fence_len = (int)marks;
    markdown->wrap.verbatim = true;
    write_styled(markdown, DIM, first_of(text, len), NOT_BOLD);
    if (len < text.len)
        wrap_add(&markdown->wrap, bytes_of("\n"));
    wrap_flush(&markdown->wrap);
    return (long)(len + (len < text.len));
}

// ---- the beginning of a line --------------------------------------------------------------------------------------

// Writes the spaces and the mark of a list, and lets lines that wrap begin below its text.
static long write_marker(struct markdown *markdown, struct bytes text, size_t spaces, size_t len, const char *shown)
{
    wrap_add(&markdown->wrap, first_of(text, spaces));
    if (shown)
        wrap_add(&markdown->wrap, bytes_of(shown));
    else
        wrap_add(&markdown->wrap, (struct bytes){ text.data + spaces, len });
    wrap_add(&markdown->wrap, bytes_of(" "));
    markdown->wrap.indent = (int)(spaces + (shown ? 1 : len) + 1);
    return (long)(spaces + len + 1);
}

static long step_heading(struct markdown *markdown, struct bytes text, size_t spaces, bool final)
{
    size_t marks = run_of(text, spaces);
    if (spaces + marks == text.len && !final)
        return MORE;
    if (marks > HEADING_LEVELS || spaces + marks == text.len || text.data[spaces + marks] != ' ')
        return 0;
    markdown->heading = true;
    wrap_add_style(&markdown->wrap, BOLD);
    return (long)(spaces + marks + 1);
}

// "---" alone on its line: at least so many marks, and any spaces among them.
static bool is_rule(struct bytes line, char mark, size_t least)
{
    size_t marks = 0;
    for (size_t i = 0; i < line.len; i++)
        if (line.data[i] == mark)
            marks++;
        else if (line.data[i] != ' ' && line.data[i] != '\r')
            return false;
    return marks >= least;
}

static long step_bullet(struct markdown *markdown, struct bytes text, size_t spaces, bool final)
{
    size_t len = line_of(text);
    char mark = text.data[spaces];
    struct bytes line = { text.data + spaces, len - spaces };
    if (len == text.len && !final && is_rule(line, mark, 0))
        return MORE;
    if (mark != '+' && is_rule(line, mark, RULE_MIN)) {
        write_styled(markdown, DIM, first_of(text, len), NOT_BOLD);
        return (long)len;
    }
    if (spaces + 1 >= text.len || text.data[spaces + 1] != ' ')
        return 0;
    return write_marker(markdown, text, spaces, 1, "•");
}

static long step_number(struct markdown *markdown, struct bytes text, size_t spaces, bool final)
{
    size_t end = spaces;
    while (end < text.len && isdigit((unsigned char)text.data[end]))
        end++;
    if (end - spaces > DIGITS_MAX)
        return 0;
    if (end + 1 >= text.len && !final && (end == text.len || text.data[end] == '.' || text.data[end] == ')'))
        return MORE;
    if (end + 1 >= text.len || (text.data[end] != '.' && text.data[end] != ')') || text.data[end + 1] != ' ')
        return 0;
    return write_marker(markdown, text, spaces, end + 1 - spaces, NULL);
}

static long step_quote(struct markdown *markdown, struct bytes text, size_t spaces)
{
    wrap_add(&markdown->wrap, first_of(text, spaces));
    write_styled(markdown, DIM, bytes_of("│"), NOT_BOLD);
    markdown->wrap.indent = (int)spaces + 2;
    return (long)spaces + 1;
}

// The mark that a line begins with. 0: it has none, and its text follows.
static long step_line_start(struct markdown *markdown, struct bytes text, bool final)
{
    size_t spaces = strspn(strbuf_text(&markdown->pending), " ");
    if (spaces == text.len)
        return final ? 0 : MORE;
    markdown->wrap.indent = (int)spaces;
    switch (text.data[spaces]) {
    case '`':
    case '~': return open_block(markdown, text, spaces, final);
    case '#': return step_heading(markdown, text, spaces, final);
    case '-':
    case '*':
    case '+': return step_bullet(markdown, text, spaces, final);
    case '>': return step_quote(markdown, text, spaces);
    case '|': markdown->wrap.verbatim = true; return 0;
    default: return isdigit((unsigned char)text.data[spaces]) ? step_number(markdown, text, spaces, final) : 0;
    }
}

// ---- within a line ------------------------------------------------------------------------------------------------

static bool is_word(char c) { return isalnum((unsigned char)c) || (unsigned char)c >= 0x80; }
static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || !c; }

// Finds the run of marks that ends what one of `len` at the text's start begins: it is of the same length, on the same
// line, and behind a letter. 0: there is none; MORE: it may still come.
static long find_end(struct bytes text, size_t len, bool final)
{
    char mark = text.data[0];
    size_t line = line_of(text);
    for (size_t at = len, run; at < line; at += run) {
        run = run_of(text, at);
        if (text.data[at] == '\\' && run == 1)
            run = 2;
        else if (text.data[at] == mark && run == len && at > len && (mark == '`' || !is_space(text.data[at - 1]))) {
            if (at + run == text.len && !final)
                return MORE;
            if (mark != '_' || at + run == text.len || !is_word(text.data[at + run]))
                return (long)at;
        }
    }
    return line < text.len || final || text.len > HOLD_MAX ? 0 : MORE;
}

static long step_code_span(struct markdown *markdown, struct bytes text, bool final)
{
    size_t marks = run_of(text, 0);
    if (marks == text.len && !final)
        return MORE;
    long end = find_end(text, marks, final);
    if (end <= 0) {
        if (end == 0)
            wrap_add(&markdown->wrap, first_of(text, marks));
        return end == 0 ? (long)marks : MORE;
    }
    write_styled(markdown, CODE, (struct bytes){ text.data + marks, (size_t)end - marks }, NOT_CODE);
    return end + (long)marks;
}

static void write_emphasis(struct markdown *markdown, struct markdown_mark mark, bool on)
{
    if (mark.mark == '~')
        wrap_add_style(&markdown->wrap, on ? STRUCK : NOT_STRUCK);
    if (mark.mark != '~' && mark.len >= 2)
        wrap_add_style(&markdown->wrap, on ? BOLD : markdown->heading ? "" : NOT_BOLD);
    if (mark.mark != '~' && mark.len != 2)
        wrap_add_style(&markdown->wrap, on ? ITALIC : NOT_ITALIC);
}

static bool ends_open(struct markdown *markdown, char mark, size_t len)
{
    const struct markdown_mark *last = markdown->open_count ? &markdown->open[markdown->open_count - 1] : NULL;
    if (!last || last->mark != mark || (size_t)last->len != len || is_space(markdown->before))
        return false;
    markdown->open_count--;
    write_emphasis(markdown, *last, false);
    return true;
}

static bool may_begin(const struct markdown *markdown, struct bytes text, size_t len)
{
    char mark = text.data[0];
    size_t least = mark == '~' ? 2 : 1, most = mark == '~' ? 2 : 3;
    return len >= least && len <= most && len < text.len && !is_space(text.data[len])
        && !(mark != '~' && is_word(markdown->before)) && markdown->open_count < MARKDOWN_NESTED_MAX;
}

static long step_emphasis(struct markdown *markdown, struct bytes text, bool final)
{
    size_t len = run_of(text, 0);
    if (len == text.len && !final)
        return MORE;
    if (ends_open(markdown, text.data[0], len))
        return (long)len;
    long end = may_begin(markdown, text, len) ? find_end(text, len, final) : 0;
    if (end == MORE)
        return MORE;
    if (end) {
        struct markdown_mark mark = { text.data[0], (int)len };
        markdown->open[markdown->open_count++] = mark;
        write_emphasis(markdown, mark, true);
    } else {
        wrap_add(&markdown->wrap, first_of(text, len));
    }
    return (long)len;
}

static long step_escape(struct markdown *markdown, struct bytes text, bool final)
{
    if (text.len < 2 && !final)
        return MORE;
    bool escapes = text.len > 1 && ispunct((unsigned char)text.data[1]);
    wrap_add(&markdown->wrap, (struct bytes){ text.data + escapes, 1 });
    return 1 + escapes;
}

static long end_line(struct markdown *markdown)
{
    while (markdown->open_count)
        write_emphasis(markdown, markdown->open[--markdown->open_count], false);
    if (markdown->heading)
        wrap_add_style(&markdown->wrap, NOT_BOLD);
    markdown->heading = markdown->within_line = markdown->wrap.verbatim = false;
    wrap_add(&markdown->wrap, bytes_of("\n"));
    markdown->wrap.indent = 0;
    return 1;
}

static long step_text(struct markdown *markdown, struct bytes text, bool final)
{
    static const char marks[] = "`*_~\\\n";
    switch (text.data[0]) {
    case '\n': return end_line(markdown);
    case '\\': return step_escape(markdown, text, final);
    case '`': return step_code_span(markdown, text, final);
    case '*':
    case '_':
    case '~': return step_emphasis(markdown, text, final);
    default: break;
    }
    size_t len = 0;
    while (len < text.len && !strchr(marks, text.data[len]))
        len++;
    while (len < text.len && !text.data[len]) // strchr finds the terminator, too
        len++;
    wrap_add(&markdown->wrap, first_of(text, len));
    return (long)len;
}

// ---- the text -----------------------------------------------------------------------------------------------------

// Takes what is certain from the start of the pending text. False: it is empty, or its meaning is open.
static bool step(struct markdown *markdown, bool final)
{
    struct bytes text = strbuf_bytes(&markdown->pending);
    long done = 0;
    if (!text.len)
        return false;
    if (markdown->code) {
        done = step_code(markdown, text, final);
    } else {
        if (!markdown->within_line)
            done = step_line_start(markdown, text, final);
        if (done == 0) {
            markdown->within_line = true;
            done = step_text(markdown, text, final);
        } else if (done > 0) {
            markdown->within_line = !markdown->code;
        }
    }
    if (done == MORE)
        return false;
    markdown->before = text.data[done - 1];
    memmove(markdown->pending.data, markdown->pending.data + done, text.len - (size_t)done + 1);
    markdown->pending.len -= (size_t)done;
    return true;
}

void markdown_add(struct markdown *markdown, struct bytes text)
{
    strbuf_add(&markdown->pending, text.data, text.len);
    while (step(markdown, false))
        ;
}

void markdown_finish(struct markdown *markdown)
{
    while (step(markdown, true))
        ;
    while (markdown->open_count)
        write_emphasis(markdown, markdown->open[--markdown->open_count], false);
    if (markdown->heading)
        wrap_add_style(&markdown->wrap, NOT_BOLD);
    markdown->heading = markdown->code = markdown->within_line = markdown->wrap.verbatim = false;
    wrap_flush(&markdown->wrap);
}

void markdown_free(struct markdown *markdown)
{
    wrap_free(&markdown->wrap);
    strbuf_free(&markdown->pending);
    *markdown = (struct markdown){ 0 };
}
