// SPDX-License-Identifier: Apache-2.0
// Two bytes choose the form and the cuts, the rest is an answer. The events must not depend on the cuts, and with the
// markers they must be the text.
#include <stdlib.h>

#include "base/random.h"
#include "text/reasoning.h"

struct record {
    struct strbuf parts, all;
    char kind; // of the latest
};

static void add(struct record *record, char kind, struct bytes text)
{
    if (record->kind != kind)
        strbuf_add_byte(&record->parts, kind);
    record->kind = kind;
    strbuf_add(&record->parts, text.data, text.len);
    strbuf_add(&record->all, text.data, text.len);
}

static void on_reasoning(void *context, struct bytes text) { add(context, '\x01', text); }
static void on_content(void *context, struct bytes text) { add(context, '\x02', text); }
static void on_marker(void *context, struct bytes text) { add(context, '\x03', text); }

// Pieces of 0 to piece_max bytes, by the seed.
static struct strbuf read_cut(const struct reasoning_form *form, bool calls, struct bytes text, int piece_max,
                              uint64_t seed)
{
    struct record record = { 0 };
    struct reasoning_sink sink = { &record, on_reasoning, on_content, on_marker };
    struct bytes rest = text;
    struct reasoning_splitter *splitter = reasoning_open(form, bytes_of(seed & 1 ? form->open : ""), &sink);
    if (calls)
        reasoning_ends_with_call(splitter);
    while (rest.len) {
        size_t piece = piece_max ? (size_t)random_between(&seed, 0, piece_max) : rest.len, behind;
        piece = piece < rest.len ? piece : rest.len;
        reasoning_would_end(splitter, (struct bytes){ rest.data, piece }, &behind);
        reasoning_add(splitter, (struct bytes){ rest.data, piece });
        rest = bytes_from(rest, piece);
    }
    reasoning_finish(splitter);
    reasoning_close(splitter);
    if (!bytes_equal(strbuf_bytes(&record.all), text))
        abort();
    strbuf_free(&record.all);
    return record.parts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "think",  "qwen3",   "granite", "kimi_k2", "harmony",         "muse_glimmer",
                                         "gemma4", "mistral", "solar",   "kimi_k3", "cohere_command3", "apriel" };
    struct error err;
    if (size < 2)
        return 0;
    const struct reasoning_form *form = reasoning_named(names[data[0] % (sizeof names / sizeof *names)], &err);
    struct bytes text = { (const char *)data + 2, size - 2 };
    uint64_t seed = data[1];
    struct strbuf whole = read_cut(form, data[0] & 0x80, text, 0, seed);
    struct strbuf cut = read_cut(form, data[0] & 0x80, text, 1 + data[1] % 16, seed);
    if (!bytes_equal(strbuf_bytes(&whole), strbuf_bytes(&cut)))
        abort();
    strbuf_free(&whole);
    strbuf_free(&cut);
    reasoning_find(text);
    return 0;
}
