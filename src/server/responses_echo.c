// SPDX-License-Identifier: Apache-2.0
// server/responses_echo.c: what a response object repeats of its request.
#include "server/responses.h"

#include "server/json_writer.h"

enum echo_rule { ECHO_AS_IT_IS, ECHO_TEXT }; // ECHO_TEXT: only a string

// Values as they came, or as JSON text where there are none.
static const struct {
    const char *name;
    enum echo_rule rule;
    const char *otherwise;
} echoes[] = {
    { "instructions", ECHO_AS_IT_IS, "null" },
    { "max_output_tokens", ECHO_AS_IT_IS, "null" },
    { "max_tool_calls", ECHO_AS_IT_IS, "null" },
    { "metadata", ECHO_AS_IT_IS, "{}" },
    { "parallel_tool_calls", ECHO_AS_IT_IS, "true" },
    { "previous_response_id", ECHO_AS_IT_IS, "null" },
    { "prompt_cache_key", ECHO_TEXT, "null" },
    { "safety_identifier", ECHO_TEXT, "null" },
    { "tool_choice", ECHO_AS_IT_IS, "\"auto\"" },
    { "tools", ECHO_AS_IT_IS, "[]" },
    { "top_logprobs", ECHO_AS_IT_IS, "0" },
    { "truncation", ECHO_AS_IT_IS, "\"disabled\"" },
    { "user", ECHO_TEXT, "null" },
};

static void add_echo(const json_t *value, enum echo_rule rule, const char *otherwise, struct strbuf *out)
{
    if (!value || json_is_null(value) || (rule == ECHO_TEXT && !json_is_string(value)))
        strbuf_add_text(out, otherwise);
    else
        api_dump(value, out);
}

static void add_number(const json_t *value, const char *name, double otherwise, struct strbuf *out)
{
    enum { FLOAT_DIGITS = 7 };
    double number = json_is_number(value) ? json_number_value(value) : otherwise;
    strbuf_add_format(out, ",\"%s\":%.*g", name, FLOAT_DIGITS, number);
}

static void add_text(const json_t *text, struct strbuf *out)
{
    strbuf_add_text(out, ",\"text\":{\"format\":");
    add_echo(json_object_get(text, "format"), ECHO_AS_IT_IS, "{\"type\":\"text\"}", out);
    strbuf_add_text(out, ",\"verbosity\":\"medium\"}");
}

static void add_reasoning(const json_t *reasoning, struct strbuf *out)
{
    strbuf_add_text(out, ",\"reasoning\":{\"effort\":");
    add_echo(json_object_get(reasoning, "effort"), ECHO_TEXT, "null", out);
    strbuf_add_text(out, ",\"summary\":null}");
}

void responses_write_echo(struct job *job)
{
    const json_t *body = job->json;
    struct strbuf *out = &job->response->record->echo;
    strbuf_add_text(out, ",\"model\":");
    json_write_text(out, bytes_of(job->api->names[0]));
    strbuf_add_text(out, ",\"background\":false,\"service_tier\":\"default\"");
    for (size_t i = 0; i < sizeof echoes / sizeof *echoes; i++) {
        strbuf_add_format(out, ",\"%s\":", echoes[i].name);
        add_echo(json_object_get(body, echoes[i].name), echoes[i].rule, echoes[i].otherwise, out);
    }
    add_number(json_object_get(body, "temperature"), "temperature", job->api->defaults.sampling.temperature, out);
    add_number(json_object_get(body, "top_p"), "top_p", job->api->defaults.sampling.top_p, out);
    add_text(json_object_get(body, "text"), out);
    add_reasoning(json_object_get(body, "reasoning"), out);
}
