// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: splits by regex, and replacements inside pieces.
#include "text/tokenizer/pretokenize.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "text/tokenizer/bytemap.h"
#include "text/tokenizer/normalize.h"

void pretokenizer_add(struct pretokenizer *pretokenizer, struct pretokenize_step step)
{
    pretokenizer->steps = memory_grow(pretokenizer->steps, pretokenizer->count + 1, sizeof *pretokenizer->steps);
    pretokenizer->steps[pretokenizer->count++] = step;
}

bool pretokenizer_add_split(struct pretokenizer *pretokenizer, struct bytes pattern, enum split_behavior behavior,
                            bool invert, struct error *err)
{
    // As published, these regexes scan the rest of a run again from each place in it: quadratic, minutes for a
    // megabyte. Their equivalents match the run once; groups of three digits are then cut from its end.
    static const struct {
        const char *published, *same;
        size_t group;
    } slow[] = {
        { "\\d{1,3}(?=(?:\\d{3})*\\b)", "(?<!\\d)\\d++(?!\\w)", 3 },
        { "(?=(\\d{3})+(?!\\d))", "(?:\\d{3})++(?!\\d)", 3 },
        { "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", "\\p{N}++", 3 },
        { "\\s+$", "(?<!\\s)\\s+$", 0 },
    };
    struct pretokenize_step step = { .kind = PRETOKENIZE_SPLIT, .behavior = behavior, .invert = invert };
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        if (bytes_equal(pattern, bytes_of(slow[i].published))) {
            pattern = bytes_of(slow[i].same);
            step.group = slow[i].group;
        }
    }
    step.regex = regex_new(pattern, err);
    if (step.regex)
        pretokenizer_add(pretokenizer, step);
    return step.regex;
}

void pretokenizer_free(struct pretokenizer *pretokenizer)
{
    for (size_t i = 0; i < pretokenizer->count; i++)
        regex_free(pretokenizer->steps[i].regex);
    free(pretokenizer->steps);
    *pretokenizer = (struct pretokenizer){ 0 };
}

void pieces_free(struct pieces *pieces)
{
    strbuf_free(&pieces->text);
    free(pieces->items);
    *pieces = (struct pieces){ 0 };
}

static void add_piece(struct pieces *pieces, size_t begin, size_t end)
{
    if (begin == end)
        return;
    MEMORY_RESERVE(pieces->items, pieces->count, pieces->capacity);
    pieces->items[pieces->count++] = (struct piece){ begin, end };
}

static struct bytes piece_text(const struct pieces *pieces, size_t index)
{
    struct piece piece = pieces->items[index];
    return (struct bytes){ pieces->text.data + piece.begin, piece.end - piece.begin };
}

// ---- splitting ----

// A split of one piece in progress: matches and the text between them arrive from left to right.
struct split {
    enum split_behavior behavior;
    size_t first;  // index of the first piece this split has made
    bool previous; // the stretch before was a match
    bool waiting;  // SPLIT_WITH_NEXT: a match waits for what follows, from here:
    size_t begin;
    struct pieces *out;
};

// The piece before grows to `end`, unless there is none.
static bool extend_last(struct split *split, size_t end)
{
    if (split->out->count == split->first)
        return false;
    split->out->items[split->out->count - 1].end = end;
    return true;
}

static void add_stretch(struct split *split, size_t begin, size_t end, bool match)
{
    bool previous = split->previous;
    split->previous = match;
    switch (split->behavior) {
    case SPLIT_REMOVED:
        if (!match)
            add_piece(split->out, begin, end);
        break;
    case SPLIT_ISOLATED: add_piece(split->out, begin, end); break;
    case SPLIT_CONTIGUOUS:
        if (match != previous || !extend_last(split, end))
            add_piece(split->out, begin, end);
        break;
    case SPLIT_WITH_PREVIOUS: // of matches in a row, only the first joins what is before them
        if (!match || previous || !extend_last(split, end))
            add_piece(split->out, begin, end);
        break;
    case SPLIT_WITH_NEXT: // of matches in a row, only the last joins what is behind them
        if (split->waiting && match)
            add_piece(split->out, split->begin, begin);
        if (!match)
            add_piece(split->out, split->waiting ? split->begin : begin, end);
        split->waiting = match;
        split->begin = begin;
        break;
    }
}

static void add_groups(struct split *split, const char *text, size_t begin, size_t end, size_t group, bool match)
{
    size_t left = utf8_count((struct bytes){ text + begin, end - begin }), start = begin;
    for (size_t at = begin; at < end; left--) {
        if (at > start && left % group == 0) {
            add_stretch(split, start, at, match);
            start = at;
        }
        for (at++; at < end && ((unsigned char)text[at] & 0xC0) == 0x80;)
            at++;
    }
    add_stretch(split, start, end, match);
}

static bool split_piece(const struct pretokenize_step *step, struct regex_scan *scan, const struct pieces *in,
                        size_t index, struct pieces *out, struct error *err)
{
    struct bytes text = piece_text(in, index);
    size_t base = in->items[index].begin, done = 0, begin, end;
    struct split split = { .behavior = step->behavior, .first = out->count, .out = out };
    regex_scan_start(scan, text);
    enum regex_step found;
    while ((found = regex_scan_next(scan, &begin, &end, err)) == REGEX_MATCH) {
        if (begin > done)
            add_stretch(&split, base + done, base + begin, step->invert);
        if (step->group)
            add_groups(&split, in->text.data, base + begin, base + end, step->group, !step->invert);
        else
            add_stretch(&split, base + begin, base + end, !step->invert);
        done = end;
    }
    if (done < text.len)
        add_stretch(&split, base + done, base + text.len, step->invert);
    if (split.waiting)
        add_piece(out, split.begin, base + text.len);
    return found == REGEX_END;
}

// ---- changing the text of pieces ----

// `where` is that of this piece.
static bool change_piece(const struct pretokenize_step *step, struct regex_scan *scan, struct bytes piece, int where,
                         struct strbuf *out, struct error *err)
{
    bool prefix = step->first_only ? where & PRETOKENIZE_AT_START : !(where & PRETOKENIZE_CONTINUES);
    switch (step->kind) {
    case PRETOKENIZE_REPLACE:
        return regex_replace(scan, piece, step->content,
                             out->len + piece.len * NORMALIZE_GROWTH_MAX + NORMALIZE_GROWTH_FREE_BYTES, out, err);
    case PRETOKENIZE_PREFIX:
        if (prefix && !bytes_start_with(piece, step->content))
            strbuf_add(out, step->content.data, step->content.len);
        strbuf_add(out, piece.data, piece.len);
        return true;
    case PRETOKENIZE_BYTES: bytemap_encode(piece, out); return true;
    case PRETOKENIZE_SPLIT: break;
    }
    return true;
}

static bool apply(const struct pretokenize_step *step, int where, const struct pieces *in, struct pieces *out,
                  struct error *err)
{
    struct regex_scan *scan = step->regex ? regex_scan_open(step->regex) : NULL;
    bool ok = true;
    if (step->kind == PRETOKENIZE_SPLIT)
        strbuf_add(&out->text, in->text.data, in->text.len);
    if (in->beheaded)
        where &= ~PRETOKENIZE_AT_START;
    for (size_t i = 0; ok && i < in->count; i++, where = 0) {
        size_t begin = out->text.len;
        if (step->kind == PRETOKENIZE_SPLIT) {
            ok = split_piece(step, scan, in, i, out, err);
        } else {
            ok = change_piece(step, scan, piece_text(in, i), where, &out->text, err);
            add_piece(out, begin, out->text.len);
        }
    }
    out->beheaded = in->beheaded || !out->count || out->items[0].begin > 0;
    regex_scan_close(scan);
    return ok;
}

bool pretokenizer_apply(const struct pretokenizer *pretokenizer, struct bytes text, int where, struct pieces *out,
                        struct error *err)
{
    struct pieces to = { 0 };
    bool ok = true;
    out->text.len = out->count = out->beheaded = 0;
    strbuf_add(&out->text, text.data, text.len);
    add_piece(out, 0, text.len);
    for (size_t i = 0; ok && i < pretokenizer->count; i++) {
        to.text.len = to.count = 0;
        ok = apply(&pretokenizer->steps[i], where, out, &to, err);
        struct pieces spare = *out;
        *out = to;
        to = spare;
    }
    pieces_free(&to);
    return ok;
}
