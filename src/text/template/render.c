// SPDX-License-Identifier: Apache-2.0
// text/template/render.c: limits, memory and output of one rendering.
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "text/template/unicode.h"
#include "text/template/value.h"

struct value render_fail(struct render *render, const char *format, ...)
{
    if (!render->failed) {
        struct error sentence;
        va_list args;
        va_start(args, format);
        vsnprintf(sentence.text, sizeof sentence.text, format, args);
        va_end(args);
        fail(render->err, "chat template, line %d: %s", render->line, sentence.text);
        render->failed = true;
    }
    return value_undefined(UNDEFINED_EMPTY, (struct bytes){ 0 });
}

struct value render_fail_undefined(struct render *render, struct value value)
{
    const char *owner = value_kind((struct value){ .type = value.owner });
    int length = shown_length(value.string);
    const char *name = length ? value.string.data : "";
    switch ((enum undefined_reason)value.reason) {
    case UNDEFINED_VARIABLE: return render_fail(render, "'%.*s' is undefined", length, name);
    case UNDEFINED_ATTRIBUTE: return render_fail(render, "%s has no attribute '%.*s'", owner, length, name);
    case UNDEFINED_ELEMENT: return render_fail(render, "%s has no such element", owner);
    case UNDEFINED_FORBIDDEN:
        return render_fail(render, "'%.*s' of %s is not allowed in a template", length, name, owner);
    case UNDEFINED_PARAMETER: return render_fail(render, "parameter '%.*s' was not given", length, name);
    case UNDEFINED_NO_ELSE: return render_fail(render, "the condition of an inline if is false and it has no else");
    case UNDEFINED_NO_ITEM: return render_fail(render, "the loop has no such item");
    case UNDEFINED_EMPTY: break;
    }
    return render_fail(render, "there is no item, the sequence is empty");
}

struct value render_fail_kind(struct render *render, const char *takes, struct value value)
{
    return value.type == VALUE_UNDEFINED ? render_fail_undefined(render, value)
                                         : render_fail(render, "%s, not %s", takes, value_kind(value));
}

bool render_step(struct render *render, size_t cost)
{
    render->steps += cost;
    if (render->steps > render->steps_max)
        render_fail(render, "the template is still running after %llu steps, which is the limit",
                    (unsigned long long)render->steps_max);
    return !render->failed;
}

bool render_step_bytes(struct render *render, size_t bytes)
{
    return render_step(render, bytes / RENDER_BYTES_PER_STEP);
}

bool render_step_characters(struct render *render, size_t bytes)
{
    return render_step(render, bytes / RENDER_CHARACTERS_PER_STEP);
}

bool render_enter(struct render *render)
{
    if (render->depth >= RENDER_DEPTH_MAX)
        return render_fail(render, "the template nests deeper than %d levels, which is the limit", RENDER_DEPTH_MAX),
               false;
    render->depth++;
    return true;
}

void render_leave(struct render *render)
{
    assert(render->depth > 0);
    render->depth--;
}

// True when the bytes were within the limit.
static bool account(struct render *render, size_t bytes)
{
    if (bytes > RENDER_MEMORY_BYTES_MAX - render->memory_used)
        return render_fail(render, "the template needs more than %d MB of memory", RENDER_MEMORY_BYTES_MAX >> 20),
               false;
    render->memory_used += bytes;
    return render_step_bytes(render, bytes);
}

void *render_new(struct render *render, size_t size)
{
    assert(size <= RENDER_SMALL_BYTES);
    account(render, size);
    return arena_new(&render->arena, 1, size);
}

void *render_room(struct render *render, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX;
    return account(render, bytes) ? arena_new(&render->arena, 1, bytes) : NULL;
}

void text_put(struct render *render, struct bytes text)
{
    if (!render_step_bytes(render, text.len))
        return;
    if (text.len > RENDER_OUTPUT_BYTES_MAX - (render->out->len - render->out_start))
        render_fail(render, "the text grows past %d MB, which is the limit", RENDER_OUTPUT_BYTES_MAX >> 20);
    else
        strbuf_add(render->out, text.data, text.len);
}

void text_put_byte(struct render *render, char byte) { text_put(render, (struct bytes){ &byte, 1 }); }

void text_put_format(struct render *render, const char *format, ...)
{
    char text[512]; // the longest are doubles written out in full
    render_step(render, 1);
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(length >= 0 && (size_t)length < sizeof text);
    text_put(render, (struct bytes){ text, (size_t)length });
}

void text_put_fill(struct render *render, struct bytes fill, size_t times)
{
    char several[256];
    size_t count = fill.len && fill.len <= sizeof several ? sizeof several / fill.len : 0;
    for (size_t i = 0; i < count && i < times; i++)
        memcpy(several + i * fill.len, fill.data, fill.len);
    for (; count && times >= count && !render->failed; times -= count)
        text_put(render, (struct bytes){ several, count * fill.len });
    for (; fill.len && times && !render->failed; times--)
        text_put(render, fill);
}

struct value text_take(struct render *render, size_t mark)
{
    struct strbuf *out = render->out;
    size_t length = out->len - mark;
    char *copy = length ? render_room(render, length, 1) : NULL;
    if (copy)
        memcpy(copy, out->data + mark, length);
    text_drop(render, mark);
    return value_string((struct bytes){ copy ? copy : "", copy ? length : 0 });
}

void text_drop(struct render *render, size_t mark) { strbuf_cut(render->out, mark); }
