// SPDX-License-Identifier: Apache-2.0
// Unicode normalisation (NFC, NFD, NFKC, NFKD) in linear time, and the other normalizers of `tokenizers`.
#include "text/tokenizer/normalize.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/memory.h"
#include "base/utf8.h"

void normalizer_add(struct normalizer *normalizer, struct normalize_step step)
{
    normalizer->steps = memory_grow(normalizer->steps, normalizer->count + 1, sizeof *normalizer->steps);
    normalizer->steps[normalizer->count++] = step;
}

void normalizer_free(struct normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->count; i++)
        regex_free(normalizer->steps[i].regex);
    free(normalizer->steps);
    *normalizer = (struct normalizer){ 0 };
}

bool normalize_is_space(uint32_t c)
{
    return (c >= '\t' && c <= '\r') || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A)
        || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_mark(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool normalize_is_word(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC
        || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169)
        || (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D; // lettered symbols and the joiners
}

static size_t decode_at(struct bytes text, size_t at, uint32_t *codepoint)
{
    return utf8_decode(bytes_from(text, at), codepoint);
}

// ---- the four forms ----

struct codepoints {
    int32_t *items;
    size_t count, capacity;
};

static void decompose(struct bytes text, int options, struct codepoints *out)
{
    enum { EXPANSION_MAX = 32 }; // the longest is 18
    uint32_t codepoint;
    size_t length;
    for (size_t at = 0; at < text.len; at += length) {
        length = decode_at(text, at, &codepoint);
        if (out->capacity - out->count < EXPANSION_MAX) {
            out->capacity = out->capacity * 2 + text.len + EXPANSION_MAX;
            out->items = memory_grow(out->items, out->capacity, sizeof *out->items);
        }
        utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)codepoint, out->items + out->count,
                                                         EXPANSION_MAX, (utf8proc_option_t)options, NULL);
        out->count += count > 0 && count <= EXPANSION_MAX ? (size_t)count : 0;
    }
}

static unsigned combining_class(int32_t codepoint)
{
    return (unsigned)utf8proc_get_property(codepoint)->combining_class;
}

// A stable sort by combining class, in linear time: a run of marks can be as long as the text.
static void sort_marks(int32_t *marks, size_t count)
{
    size_t starts[257] = { 0 };
    for (size_t i = 0; i < count; i++)
        starts[(combining_class(marks[i]) & 255) + 1]++;
    for (size_t i = 1; i < 257; i++)
        starts[i] += starts[i - 1];
    int32_t *sorted = memory_new(count, sizeof *sorted);
    for (size_t i = 0; i < count; i++)
        sorted[starts[combining_class(marks[i]) & 255]++] = marks[i];
    memcpy(marks, sorted, count * sizeof *marks);
    free(sorted);
}

static void order_marks(struct codepoints *text)
{
    for (size_t i = 0; i < text->count;) {
        size_t end = i;
        bool sorted = true;
        for (; end < text->count && combining_class(text->items[end]); end++)
            sorted &= end == i || combining_class(text->items[end - 1]) <= combining_class(text->items[end]);
        if (!sorted)
            sort_marks(text->items + i, end - i);
        i = end + 1;
    }
}

static bool is_ascii(struct bytes text)
{
    unsigned char bits = 0;
    for (size_t i = 0; i < text.len; i++)
        bits |= (unsigned char)text.data[i];
    return bits < 0x80;
}

static void apply_form(const struct normalize_step *step, struct bytes text, struct strbuf *out)
{
    if (is_ascii(text)) {
        strbuf_add(out, text.data, text.len);
        return;
    }
    static const int options[] = {
        [NORMALIZE_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [NORMALIZE_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [NORMALIZE_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [NORMALIZE_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    int option = options[step->kind];
    struct codepoints decomposed = { 0 };
    decompose(text, option, &decomposed);
    order_marks(&decomposed);
    size_t count = decomposed.count;
    if (option & UTF8PROC_COMPOSE)
        count = (size_t)utf8proc_normalize_utf32(decomposed.items, (utf8proc_ssize_t)count, (utf8proc_option_t)option);
    for (size_t i = 0; i < count; i++)
        strbuf_add_codepoint(out, (uint32_t)decomposed.items[i]);
    free(decomposed.items);
}

// ---- the others ----

static void add_lowercase(uint32_t codepoint, struct strbuf *out)
{
    if (codepoint == 0x130) // the one letter whose lower case is two characters
        strbuf_add_text(out, "i\xCC\x87");
    else
        strbuf_add_codepoint(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)codepoint));
}

static void apply_each(const struct normalize_step *step, struct bytes text, struct strbuf *out)
{
    uint32_t codepoint;
    size_t length;
    for (size_t at = 0; at < text.len; at += length) {
        length = decode_at(text, at, &codepoint);
        if (step->kind == NORMALIZE_LOWERCASE)
            add_lowercase(codepoint, out);
        else if (!is_mark(codepoint))
            strbuf_add(out, text.data + at, length);
    }
}

static void apply_strip(const struct normalize_step *step, struct bytes text, struct strbuf *out)
{
    size_t first = text.len, last = 0, length; // of what is not space
    uint32_t codepoint;
    for (size_t at = 0; at < text.len; at += length) {
        length = decode_at(text, at, &codepoint);
        if (normalize_is_space(codepoint))
            continue;
        first = at < first ? at : first;
        last = at + length;
    }
    size_t begin = step->left ? first : 0, end = step->right ? last : text.len;
    if (begin < end)
        strbuf_add(out, text.data + begin, end - begin);
}

static bool apply_replace(const struct normalize_step *step, struct bytes text, size_t bytes_max, struct strbuf *out,
                          struct error *err)
{
    struct regex_scan *scan = regex_scan_open(step->regex);
    bool ok = regex_replace(scan, text, step->content, bytes_max, out, err);
    regex_scan_close(scan);
    return ok;
}

// Context of a step.
struct context {
    bool continues;
    size_t bytes_max;
};

static bool apply(const struct normalize_step *step, struct bytes text, struct context context, struct strbuf *out,
                  struct error *err)
{
    switch (step->kind) {
    case NORMALIZE_NFC:
    case NORMALIZE_NFD:
    case NORMALIZE_NFKC:
    case NORMALIZE_NFKD: apply_form(step, text, out); break;
    case NORMALIZE_LOWERCASE:
    case NORMALIZE_STRIP_ACCENTS: apply_each(step, text, out); break;
    case NORMALIZE_STRIP: apply_strip(step, text, out); break;
    case NORMALIZE_PREPEND:
        if (text.len && !context.continues)
            strbuf_add(out, step->content.data, step->content.len);
        strbuf_add(out, text.data, text.len);
        break;
    case NORMALIZE_REPLACE: return apply_replace(step, text, context.bytes_max, out, err);
    }
    return true;
}

bool normalizer_apply(const struct normalizer *normalizer, struct bytes text, bool continues, struct strbuf *out,
                      struct error *err)
{
    struct context context = { continues, text.len * NORMALIZE_GROWTH_MAX + NORMALIZE_GROWTH_FREE_BYTES };
    struct strbuf from = { 0 }, to = { 0 };
    bool ok = true;
    strbuf_add(&from, text.data, text.len);
    for (size_t i = 0; ok && i < normalizer->count; i++) {
        to.len = 0;
        ok = apply(&normalizer->steps[i], strbuf_bytes(&from), context, &to, err);
        struct strbuf spare = from;
        from = to;
        to = spare;
    }
    strbuf_add(out, from.data, from.len);
    strbuf_free(&from);
    strbuf_free(&to);
    return ok;
}
