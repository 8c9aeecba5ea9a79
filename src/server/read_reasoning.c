// SPDX-License-Identifier: Apache-2.0
// server/read_reasoning.c: reads whether and how much a model is to think, under all names that clients have for it,
// and passes it to the chat template under the names that it reads.
#include "format/json.h"
#include "server/kind.h"
#include "server/read.h"

enum thinking { THINK_AS_USUAL, THINK, THINK_NOT };

struct asked {
    enum thinking think;
    const char *effort; // NULL: none was named
    const char *field;  // that asks for thinking or none
    const char *effort_field;
};

// ---- fields -------------------------------------------------------------------------------------------------------

static void request_thought(struct asked *asked, const char *field, bool think)
{
    asked->think = think ? THINK : THINK_NOT;
    asked->field = field;
}

static bool read_switch(struct job *job, const char *name, struct asked *asked)
{
    const json_t *value = field_of(job->json, name);
    if (value && !json_is_boolean(value))
        return api_fail(&job->error, 400, name, "\"%s\" is true or false", name);
    if (value)
        request_thought(asked, name, json_is_true(value));
    return true;
}

// true, false, or the object of the APIs of DeepSeek and others: {"type": "enabled" | "disabled"}.
static bool read_thinking(struct job *job, struct asked *asked)
{
    const json_t *value = field_of(job->json, "thinking");
    int type = field_word(value, "type", WORDS("disabled", "enabled"));
    if (!json_is_object(value))
        return read_switch(job, "thinking", asked);
    if (!fields_check_keys(value, "thinking", WORDS("type"), &job->error))
        return false;
    if (type < 0)
        return api_fail(&job->error, 400, "thinking",
                        "\"thinking\" is true, false or an object whose type is enabled or disabled");
    request_thought(asked, "thinking", type);
    return true;
}

static bool read_effort(struct job *job, const json_t *value, const char *field, struct asked *asked)
{
    if (value && !json_is_string(value))
        return api_fail(&job->error, 400, field, "\"%s\" has an effort that is no word, such as low or high", field);
    if (!value || !json_string_length(value))
        return true;
    asked->effort = json_string_value(value);
    asked->effort_field = field;
    return true;
}

// {"effort", "enabled", "exclude", "max_tokens"}, as OpenRouter has it.
static bool read_reasoning_object(struct job *job, struct asked *asked)
{
    const json_t *value = field_of(job->json, "reasoning");
    bool enabled = false, exclude = false;
    int64_t most = job->max_reasoning_tokens;
    if (!value)
        return true;
    if (!json_is_object(value))
        return api_fail(&job->error, 400, "reasoning", "\"reasoning\" is an object with an effort");
    if (!fields_check_keys(value, "reasoning", WORDS("effort", "enabled", "exclude", "max_tokens"), &job->error)
        || !read_effort(job, field_of(value, "effort"), "reasoning", asked)
        || !fields_read_bool(value, "enabled", &enabled, &job->error)
        || !fields_read_bool(value, "exclude", &exclude, &job->error)
        || !fields_read_int(value, "max_tokens", 0, INT32_MAX, &most, &job->error))
        return fields_fail_within("reasoning", &job->error);
    if (field_of(value, "enabled"))
        request_thought(asked, "reasoning", enabled);
    job->drops_reasoning |= exclude;
    job->max_reasoning_tokens = (int)most;
    return true;
}

static bool read_reasoning_format(struct job *job)
{
    int word = field_word(job->json, "reasoning_format", WORDS("none", "auto", "deepseek"));
    job->keeps_markers |= word == 0;
    return !field_of(job->json, "reasoning_format") || word >= 0
        || api_fail(&job->error, 400, "reasoning_format", "\"reasoning_format\" is none, auto or deepseek");
}

// ---- the template's variables -------------------------------------------------------------------------------------

static bool reads(const struct job *job, const char *variable) { return chat_reads(job_chat(job), variable); }

static bool refuse(struct job *job, const char *field, const char *reason)
{
    return api_fail_code(&job->error, 400, field, "unsupported_parameter",
                         "\"%s\" is not supported with this model: %s", field, reason);
}

// Sets every switch that the template reads. False: it reads none.
static bool set_switches(const struct job *job, bool on, json_t *variables)
{
    static const char *const switches[] = { "enable_thinking", "thinking" };
    bool any = false;
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (!reads(job, switches[i]))
            continue;
        json_object_set_new(variables, switches[i], json_boolean(on));
        any = true;
    }
    if (any || !reads(job, "thinking_mode"))
        return any;
    json_object_set_new(variables, "thinking_mode", json_string(on ? "enabled" : "disabled"));
    return true;
}

static const char *effort_variable(const struct job *job)
{
    if (reads(job, "reasoning_effort"))
        return "reasoning_effort";
    return reads(job, "thinking_effort") ? "thinking_effort" : NULL;
}

// Tells a template without a switch not to think, by an effort or a budget.
static bool set_off(const struct job *job, json_t *variables)
{
    const struct reasoning_form *form = chat_reasoning(job_chat(job));
    const char *effort = effort_variable(job);
    if (reads(job, "thinking_budget"))
        return json_object_set_new(variables, "thinking_budget", json_integer(0)) == 0;
    if (!effort || !form || !form->effort_off)
        return false;
    return json_object_set_new(variables, effort, json_string(form->effort_off)) == 0;
}

static bool apply_switch(struct job *job, const struct asked *asked, json_t *variables)
{
    bool think = asked->think == THINK;
    if (asked->think == THINK_AS_USUAL || set_switches(job, think, variables) || (!think && set_off(job, variables)))
        return true;
    bool thinks = chat_reasoning(job_chat(job)) || job->api->reasoning;
    if (!(kind_of(job)->endpoint & (ON_CHAT | ON_TOKENIZE))) { // other APIs' clients ask for it of any model
        job->max_reasoning_tokens = think ? job->max_reasoning_tokens : 0;
        return true;
    }
    if (think)
        return thinks || refuse(job, asked->field, "its chat template does not read it, and has no form of reasoning");
    return !thinks
        || refuse(job, asked->field,
                  "its chat template has no way to ask for an answer without a thought; \"max_reasoning_tokens\": 0 "
                  "closes each thought at once");
}

// An effort as this template knows it: the nearest of its words, the lower of two.
static bool apply_effort(struct job *job, const struct asked *asked, json_t *variables)
{
    const struct reasoning_form *form = chat_reasoning(job_chat(job));
    const char *variable = effort_variable(job);
    char word[REASONING_EFFORT_BYTES_MAX];
    if (!asked->effort || !strcmp(asked->effort, "none"))
        return true;
    if (!variable)
        return asked->field || refuse(job, asked->effort_field, "its chat template reads neither it nor a switch");
    bool nearest = form && reasoning_nearest_effort(form, asked->effort, word);
    json_object_set_new(variables, variable, json_string(nearest ? word : asked->effort));
    return true;
}

// An effort switches thinking on or off where no other field does.
static void take_effort_as_switch(const struct job *job, struct asked *asked)
{
    bool none = asked->effort && !strcmp(asked->effort, "none");
    bool has_switch = reads(job, "enable_thinking") || reads(job, "thinking") || reads(job, "thinking_mode");
    if (asked->think == THINK_AS_USUAL && asked->effort && (none || has_switch))
        request_thought(asked, asked->effort_field, !none);
}

static void set_budget(const struct job *job, json_t *variables)
{
    if (job->max_reasoning_tokens > 0 && reads(job, "thinking_budget"))
        json_object_set_new(variables, "thinking_budget", json_integer(job->max_reasoning_tokens));
}

bool read_reasoning(struct job *job, json_t *variables)
{
    const struct request_params *params = &job->params;
    struct asked asked = { 0 };
    job->keeps_markers = params->keeps_thoughts;
    job->drops_reasoning = !params->include_reasoning;
    job->gathers_reasoning = !params->stream_reasoning;
    job->max_reasoning_tokens = (int)params->max_reasoning_tokens;
    if (!read_switch(job, "enable_thinking", &asked) || !read_thinking(job, &asked)
        || !read_effort(job, field_of(job->json, "reasoning_effort"), "reasoning_effort", &asked)
        || !read_reasoning_object(job, &asked) || !read_reasoning_format(job))
        return false;
    take_effort_as_switch(job, &asked);
    set_budget(job, variables);
    return apply_switch(job, &asked, variables) && apply_effort(job, &asked, variables);
}

// ---- the prompt ---------------------------------------------------------------------------------------------------

enum { PROMPT_END_BYTES = 64 }; // longer than any marker

static bool ends_closed(struct bytes prompt, const struct reasoning_form *form)
{
    size_t len = strlen(form->close);
    while (prompt.len && strchr(" \n", prompt.data[prompt.len - 1]))
        prompt.len--;
    return prompt.len >= len && !memcmp(prompt.data + prompt.len - len, form->close, len);
}

// Where a marker comes last in a text; 0: nowhere, else behind it.
static size_t behind_last(struct bytes text, const char *marker)
{
    size_t behind = 0, len = strlen(marker);
    const char *found;
    for (size_t at = 0; at < text.len && (found = memmem(text.data + at, text.len - at, marker, len)); at = behind)
        behind = (size_t)(found - text.data) + len;
    return behind;
}

// A message that is continued may end inside a thought.
static bool continues_thought(const struct job *job)
{
    const json_t *messages = json_object_get(job->json, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    struct bytes text = json_bytes(json_object_get(last, "content"));
    const struct reasoning_form *form = job->reasoning;
    return json_is_true(json_object_get(job->json, "continue_final_message")) && text.len
        && behind_last(text, form->open) > behind_last(text, form->close);
}

static const struct reasoning_form *form_of(const struct job *job)
{
    const struct api *api = job->api;
    return job->own_chat && !api->no_reasoning ? chat_reasoning(job->own_chat) : api->reasoning;
}

void read_prompt_end(struct job *job, struct bytes prompt)
{
    size_t skip = prompt.len > PROMPT_END_BYTES ? prompt.len - PROMPT_END_BYTES : 0;
    struct strbuf end = { 0 };
    job->reasoning = form_of(job);
    if (!job->reasoning)
        return;
    if (job->reasoning != job->api->reasoning)
        job->params.skip_special = false; // its markers may be special tokens
    strbuf_add(&end, prompt.len ? prompt.data + skip : "", prompt.len - skip);
    if (continues_thought(job)) {
        end.len = 0;
        strbuf_add_format(&end, "%s\n", job->reasoning->open);
    }
    job->prompt_end = (struct bytes){ arena_text(&job->kept, strbuf_text(&end), end.len), end.len };
    job->kept_bytes += end.len + 1;
    job->may_think = !ends_closed(job->prompt_end, job->reasoning);
    job->keeps_markers |= job->reasoning->calls_in_headers && job->tools;
    strbuf_free(&end);
}
