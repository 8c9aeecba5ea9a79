// SPDX-License-Identifier: Apache-2.0
// Two bytes choose the form and the cuts, the rest is an answer. The events must not depend on the cuts, what holds no
// call must come out as it went in, and arguments of tagged and Python's forms are JSON, but for the last call's.
#include <stdlib.h>

#include "base/random.h"
#include "text/tools/form.h"
#include "text/tools/scan.h"

struct record {
    struct strbuf text; // content, and calls between marks
    bool in_arguments;
    bool strict; // arguments are written by the reader, not by the model
    struct strbuf arguments;
};

static void check_arguments(struct record *record)
{
    struct scan scan = { 0 };
    enum scan_answer answer = SCAN_MORE;
    size_t at = 0;
    for (; at < record->arguments.len && answer == SCAN_MORE; at++)
        answer = scan_add(&scan, record->arguments.data[at]);
    if (record->strict && record->arguments.len && (answer != SCAN_WHOLE || at < record->arguments.len))
        abort();
    record->arguments.len = 0;
}

static void on_content(void *context, struct bytes text)
{
    struct record *record = context;
    if (record->in_arguments)
        strbuf_add_text(&record->text, "\x01end\x01");
    record->in_arguments = false;
    strbuf_add(&record->text, text.data, text.len);
}

static void on_reasoning(void *context, struct bytes text)
{
    struct record *record = context;
    strbuf_add(&record->text, text.data, text.len);
}

static void on_call(void *context, int index, struct bytes name, struct bytes id)
{
    struct record *record = context;
    check_arguments(record);
    strbuf_add_format(&record->text, "\x01%d %.*s %.*s\x01", index, (int)name.len, name.data, (int)id.len, id.data);
    record->in_arguments = true;
}

static void on_arguments(void *context, int index, struct bytes fragment)
{
    struct record *record = context;
    (void)index;
    strbuf_add(&record->text, fragment.data, fragment.len);
    strbuf_add(&record->arguments, fragment.data, fragment.len);
}

// Pieces of 0 to piece_max bytes, by the seed.
static struct strbuf read_cut(const struct tool_form *form, const json_t *tools, struct bytes text, int piece_max,
                              uint64_t seed, int *calls)
{
    struct record record = { .strict = strstr(form->call, "%p") || strstr(form->call, "%a") };
    struct tool_sink sink = { &record, on_content, on_reasoning, on_call, on_arguments };
    struct tool_reader *reader = tool_reader_open(form, tools, &sink);
    while (text.len) {
        size_t piece = piece_max ? (size_t)random_between(&seed, 0, piece_max) : text.len;
        if (piece > text.len)
            piece = text.len;
        tool_reader_add(reader, (struct bytes){ text.data, piece });
        text = (struct bytes){ text.data + piece, text.len - piece };
    }
    tool_reader_finish(reader);
    *calls = tool_reader_calls(reader);
    tool_reader_close(reader);
    strbuf_free(&record.arguments);
    return record.text;
}

#define TOOLS                                                                                                          \
    "[{\"function\": {\"name\": \"f\"}}, {\"function\": {\"name\": \"get_weather\", \"parameters\": {\"properties\": " \
    "{\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"e\": {\"anyOf\": [{\"type\": \"string\"}, "     \
    "{\"type\": "                                                                                                      \
    "\"null\"}]}, \"o\": {\"type\": \"object\"}}}}}]"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    json_t *tools = json_loads(TOOLS, 0, NULL);
    const struct tool_form *form = &tool_forms[data[0] % tool_form_count];
    struct bytes text = { (const char *)data + 2, size - 2 };
    int calls, calls_cut;
    struct strbuf whole = read_cut(form, tools, text, 0, 0, &calls);
    struct strbuf cut = read_cut(form, tools, text, 1 + data[1] % 16, data[1], &calls_cut);
    if (calls != calls_cut || !bytes_equal(strbuf_bytes(&whole), strbuf_bytes(&cut)))
        abort();
    if (!calls && !form->channels && !form->drops[0] && !bytes_equal(strbuf_bytes(&whole), text))
        abort();
    strbuf_free(&whole);
    strbuf_free(&cut);
    json_decref(tools);
    return 0;
}
