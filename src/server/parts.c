// SPDX-License-Identifier: Apache-2.0
#include "server/parts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/json_writer.h"
#include "server/check.h"

static struct answer_part *add_part(struct choice *choice, enum part_kind kind)
{
    choice->parts = memory_grow(choice->parts, (size_t)choice->part_count + 1, sizeof *choice->parts);
    struct answer_part *part = &choice->parts[choice->part_count++];
    *part = (struct answer_part){ .kind = kind };
    return part;
}

static void add_text(struct choice *choice, enum part_kind kind, struct bytes text)
{
    struct answer_part *last = choice->part_count ? &choice->parts[choice->part_count - 1] : NULL;
    if (!text.len)
        return;
    if (!last || last->kind != kind)
        last = add_part(choice, kind);
    strbuf_add(&last->text, text.data, text.len);
}

void parts_add_content(struct choice *choice, struct bytes text) { add_text(choice, PART_CONTENT, text); }

void parts_add_empty(struct choice *choice) { add_part(choice, PART_CONTENT); }

// ---- what the tool reader finds -----------------------------------------------------------------------------------

static void add_content(void *context, struct bytes text) { add_text(context, PART_CONTENT, text); }

static void add_reasoning(void *context, struct bytes text)
{
    struct choice *choice = context;
    if (!choice->job->drops_reasoning)
        add_text(choice, PART_REASONING, text);
}

// An id for a call whose form has none; Mistral's templates insist on 9 letters and digits.
static void make_id(const struct job *job, char *out, size_t size)
{
    char digits[REQUEST_ID_RANDOM_DIGITS + 1];
    request_id_random(digits);
    snprintf(out, size, tools_form_has_short_ids(job->tool_form) ? "%.9s" : "call_%.16s", digits);
}

static void add_call(void *context, int index, struct bytes name, struct bytes id)
{
    struct choice *choice = context;
    struct answer_part *call = add_part(choice, PART_CALL);
    if (id.len && id.len < sizeof call->id)
        memcpy(call->id, id.data, id.len);
    else
        make_id(choice->job, call->id, sizeof call->id);
    strbuf_add(&call->name, name.data, name.len);
    call->call = index;
    choice->call_count = index + 1;
}

static void add_arguments(void *context, int index, struct bytes fragment)
{
    struct choice *choice = context;
    int at = choice->part_count - 1;
    while (choice->parts[at].kind != PART_CALL || choice->parts[at].call != index)
        at--;
    strbuf_add(&choice->parts[at].text, fragment.data, fragment.len);
}

static void open_tools(struct choice *choice)
{
    const struct job *job = choice->job;
    struct tool_sink sink = { .context = choice,
                              .content = add_content,
                              .reasoning = add_reasoning,
                              .call = add_call,
                              .arguments = add_arguments };
    bool reads = job->tool_form && (job->tools || tools_form_reads_always(job->tool_form));
    bool is_split = job->reasoning && job->reasoning->calls_in_headers && !job->tools; // its headers are gone
    if (!reads || is_split || choice->tools)
        return;
    choice->tools = tool_reader_open(job->tool_form, job->tools, &sink);
    if (job->one_call)
        tool_reader_end_with_call(choice->tools);
}

// Some text began as a call and was not one: it is in the content, and the log has a word of it.
static void finish_tools(struct choice *choice)
{
    tool_reader_finish(choice->tools);
    int broken = tool_reader_broken(choice->tools);
    if (broken)
        check_warn(choice->job, "%d broken tool call%s of choice %d left as text", broken, broken > 1 ? "s" : "",
                   choice->index);
}

static void take_content(struct choice *choice, struct bytes text)
{
    if (!choice->tools)
        parts_add_content(choice, text);
    else
        tool_reader_add(choice->tools, text);
}

void parts_take(struct choice *choice)
{
    const struct output *delivered = &choice->delivered;
    struct bytes rest = strbuf_bytes(&delivered->text);
    open_tools(choice);
    for (int i = 0; i < delivered->run_count; i++) {
        struct output_run run = delivered->runs[i];
        struct bytes text = { rest.data, run.len };
        if (run.reasoning)
            add_text(choice, PART_REASONING, text);
        else
            take_content(choice, text);
        rest = bytes_from(rest, run.len);
    }
    take_content(choice, rest);
    if (choice->tools && choice->delivered.finished)
        finish_tools(choice);
}

// ---- all parts ----------------------------------------------------------------------------------------------------

struct bytes parts_join(struct choice *choice, enum part_kind kind)
{
    struct answer_part *first = NULL;
    for (int i = 0; i < choice->part_count; i++) {
        struct answer_part *part = &choice->parts[i];
        if (part->kind != kind)
            continue;
        if (first) {
            strbuf_add(&first->text, part->text.data, part->text.len);
            strbuf_free(&part->text);
        }
        first = first ? first : part;
    }
    return first ? strbuf_bytes(&first->text) : (struct bytes){ 0 };
}

void parts_complete_call(struct answer_part *call)
{
    json_t *object = NULL;
    struct error ignored;
    struct strbuf whole = { 0 };
    bool ok = json_read_strict(strbuf_bytes(&call->text), API_CONTAINERS_MAX, &object, &ignored)
        && json_is_object(object);
    json_decref(object);
    if (ok)
        return;
    strbuf_add_text(&whole, "{\"incomplete\":");
    json_write_text(&whole, strbuf_bytes(&call->text));
    strbuf_add_byte(&whole, '}');
    strbuf_free(&call->text);
    call->text = whole;
}

bool parts_is_blank(struct answer_part *part)
{
    const struct strbuf *text = &part->text;
    while (part->blank < text->len && text->data[part->blank] && strchr(" \t\r\n", text->data[part->blank]))
        part->blank++;
    return part->kind == PART_CONTENT && part->blank >= text->len;
}

bool parts_is_filler(const struct choice *choice, struct answer_part *part)
{
    return choice->part_count > 1 && !part->begun && parts_is_blank(part);
}

size_t parts_bytes(const struct choice *choice)
{
    size_t bytes = 0;
    for (int i = 0; i < choice->part_count; i++)
        bytes += sizeof *choice->parts + choice->parts[i].text.cap + choice->parts[i].name.cap;
    return bytes;
}

void parts_free(struct choice *choice)
{
    for (int i = 0; i < choice->part_count; i++) {
        strbuf_free(&choice->parts[i].text);
        strbuf_free(&choice->parts[i].name);
    }
    free(choice->parts);
    choice->parts = NULL;
    choice->part_count = choice->call_count = 0;
}
