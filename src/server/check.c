// SPDX-License-Identifier: Apache-2.0
#include "server/check.h"

#include <stdarg.h>
#include <stdio.h>

#include "text/grammar/validate.h"

void check_warn(struct job *job, const char *format, ...)
{
    size_t len = strlen(job->warning);
    va_list args;
    va_start(args, format);
    if (len + 2 < sizeof job->warning) {
        len += (size_t)snprintf(job->warning + len, sizeof job->warning - len, "%s", len ? "; " : "");
        vsnprintf(job->warning + len, sizeof job->warning - len, format, args);
    }
    va_end(args);
}

bool check_prepare(struct job *job, const json_t *schema, bool strict, const char *param)
{
    const char *unheld = grammar_unsupported(job->grammar);
    if (unheld && strict)
        return api_fail(&job->error, 400, param,
                        "the schema cannot be used: %s cannot be enforced; leave it out, or "
                        "send \"strict\": false to have the rest held",
                        unheld);
    if (unheld && !*job->warning)
        check_warn(job, "not enforced: %s", unheld);
    job->checked = grammar_unenforced(job->grammar) != NULL;
    if (schema) {
        job->schema = json_incref((json_t *)schema);
        job->strict = strict;
    }
    return true;
}

static bool check_value(const json_t *schema, struct bytes text, struct error *err)
{
    json_error_t cause;
    json_t *value = json_loadb(text.data ? text.data : "", text.len,
                               JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &cause);
    if (!value)
        return fail(err, "it is not JSON: %s", cause.text);
    enum validity verdict = validate(schema, schema, value, err);
    json_decref(value);
    return verdict == VALID;
}

// ---- calls of tools ------------------------------------------------------------------------------------------------

// State of reading the tool calls in a text one after the other.
struct calls {
    const json_t *tools;
    struct strbuf name, arguments; // of the latest
    int count;
    bool ok, strict;
    struct error *err;
};

static void check_latest(struct calls *calls)
{
    if (!calls->count || !calls->ok)
        return;
    bool strict;
    json_t *schema = tools_schema(calls->tools, strbuf_bytes(&calls->name), &strict);
    if (schema && !check_value(schema, strbuf_bytes(&calls->arguments), calls->err)) {
        calls->ok = fail_within(calls->err, "the arguments of %s", strbuf_text(&calls->name));
        calls->strict = strict;
    }
    json_decref(schema);
}

static void skip_content(void *context, struct bytes text) { (void)context, (void)text; }

static void begin_call(void *context, int index, struct bytes name, struct bytes id)
{
    struct calls *calls = context;
    (void)index, (void)id;
    check_latest(calls);
    calls->count++;
    calls->name.len = calls->arguments.len = 0;
    strbuf_add(&calls->name, name.data, name.len);
}

static void add_arguments(void *context, int index, struct bytes fragment)
{
    struct calls *calls = context;
    (void)index;
    strbuf_add(&calls->arguments, fragment.data, fragment.len);
}

// Returns the number of calls; *ok: all of them meet their schemas.
static int check_calls(const struct job *job, struct bytes text, bool *ok, bool *strict, struct error *err)
{
    struct calls calls = { .tools = job->tools, .ok = true, .err = err };
    struct tool_sink sink = {
        .context = &calls, .content = skip_content, .call = begin_call, .arguments = add_arguments
    };
    struct tool_reader *reader = tool_reader_open(job->tool_form, job->tools, &sink);
    tool_reader_add(reader, text);
    tool_reader_finish(reader);
    tool_reader_close(reader);
    check_latest(&calls);
    strbuf_free(&calls.name);
    strbuf_free(&calls.arguments);
    *ok = calls.ok;
    *strict = calls.strict;
    return calls.count;
}

bool check_text(const struct job *job, struct bytes text, bool *strict, struct error *err)
{
    bool ok = true;
    if (job->tools && check_calls(job, text, &ok, strict, err))
        return ok;
    *strict = job->strict;
    return !job->schema || check_value(job->schema, text, err);
}
