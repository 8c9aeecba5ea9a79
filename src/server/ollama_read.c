// SPDX-License-Identifier: Apache-2.0
// server/ollama_read.c: Ollama's /api/chat and /api/generate rewritten as a chat, or, of a raw prompt, as a completion.
#include <math.h>
#include <stdio.h>

#include "server/translate.h"

const struct field_name ollama_field_names[] = {
    { "temperature", "options.temperature" },
    { "top_p", "options.top_p" },
    { "top_k", "options.top_k" },
    { "min_p", "options.min_p" },
    { "seed", "options.seed" },
    { "max_tokens", "options.num_predict" },
    { "stop", "options.stop" },
    { "repetition_penalty", "options.repeat_penalty" },
    { "presence_penalty", "options.presence_penalty" },
    { "frequency_penalty", "options.frequency_penalty" },
    { "response_format", "format" },
    { NULL, NULL },
};

// ---- options ------------------------------------------------------------------------------------------------------

enum option_kind {
    OPTION_HONOURED, // as a field of the chat
    OPTION_HARMLESS, // it is about memory and speed
    OPTION_USUAL,    // refused, but for a number from low to high (true is 1), which changes nothing
    OPTION_LENGTH,   // honoured; every number below 0 is the rest of the context
    OPTION_CONTEXT,  // harmless up to the context
};

static const struct option {
    const char *name;
    enum option_kind kind;
    const char *own; // of an honoured one, the field; of others, what to do instead
    double low, high;
} options[] = {
    { "temperature", OPTION_HONOURED, "temperature" },
    { "top_k", OPTION_HONOURED, "top_k" },
    { "top_p", OPTION_HONOURED, "top_p" },
    { "min_p", OPTION_HONOURED, "min_p" },
    { "seed", OPTION_HONOURED, "seed" },
    { "stop", OPTION_HONOURED, "stop" },
    { "repeat_penalty", OPTION_HONOURED, "repetition_penalty" },
    { "presence_penalty", OPTION_HONOURED, "presence_penalty" },
    { "frequency_penalty", OPTION_HONOURED, "frequency_penalty" },
    { "num_predict", OPTION_LENGTH, "max_tokens" },
    { "num_ctx", OPTION_CONTEXT },
    { "num_keep", OPTION_HARMLESS },
    { "num_batch", OPTION_HARMLESS },
    { "num_gpu", OPTION_HARMLESS },
    { "num_thread", OPTION_HARMLESS },
    { "num_gqa", OPTION_HARMLESS },
    { "main_gpu", OPTION_HARMLESS },
    { "low_vram", OPTION_HARMLESS },
    { "f16_kv", OPTION_HARMLESS },
    { "logits_all", OPTION_HARMLESS },
    { "use_mmap", OPTION_HARMLESS },
    { "use_mlock", OPTION_HARMLESS },
    { "numa", OPTION_HARMLESS },
    { "mirostat_tau", OPTION_HARMLESS },
    { "mirostat_eta", OPTION_HARMLESS },
    { "repeat_last_n", OPTION_USUAL, "penalties look at the whole text, which is -1", -1, -1 },
    { "mirostat", OPTION_USUAL, "use temperature, top_p and min_p", 0, 0 },
    { "typical_p", OPTION_USUAL, "use top_p or min_p", 1, 1 },
    { "tfs_z", OPTION_USUAL, "use top_p or min_p", 1, 1 },
    { "penalize_newline", OPTION_USUAL, "penalties count line ends as all tokens", 1, 1 },
    { "vocab_only", OPTION_USUAL, "this server generates text", 0, 0 },
    { "embedding_only", OPTION_USUAL, "this server generates text", 0, 0 },
};

static const struct option *find_option(const char *name)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!strcmp(options[i].name, name))
            return &options[i];
    return NULL;
}

static bool refuse_option(struct api_error *err, const char *name, const char *code, const char *why)
{
    char param[sizeof err->param];
    snprintf(param, sizeof param, "options.%s", name);
    return api_fail_code(err, 400, param, code, "\"options.%.60s\" %s", name, why);
}

static bool check_usual(const struct option *option, const json_t *value, struct api_error *err)
{
    double number = json_is_boolean(value) ? json_is_true(value)
        : json_is_number(value)            ? json_number_value(value)
                                           : NAN;
    char why[128];
    snprintf(why, sizeof why, "is not supported with this value; %s", option->own);
    return (number >= option->low && number <= option->high)
        || refuse_option(err, option->name, "unsupported_value", why);
}

static bool check_context(const struct job *job, const json_t *value, struct api_error *err)
{
    char why[128];
    snprintf(why, sizeof why, "is a number of tokens up to this server's context, which is %d",
             job->api->max_model_len);
    return (json_is_integer(value) && json_integer_value(value) >= 0
            && json_integer_value(value) <= job->api->max_model_len)
        || refuse_option(err, "num_ctx", "invalid_value", why);
}

static bool translate_option(struct job *job, const char *name, json_t *value, json_t *body)
{
    const struct option *option = find_option(name);
    if (json_is_null(value))
        return true;
    if (!option)
        return refuse_option(&job->error, name, "unknown_parameter", "is no option");
    switch (option->kind) {
    case OPTION_HARMLESS: return true;
    case OPTION_USUAL: return check_usual(option, value, &job->error);
    case OPTION_CONTEXT: return check_context(job, value, &job->error);
    case OPTION_HONOURED: json_object_set(body, option->own, value); return true;
    case OPTION_LENGTH: break;
    }
    bool rest = json_is_integer(value) && json_integer_value(value) < 0;
    json_object_set_new(body, option->own, rest ? json_integer(FIELDS_REST_OF_CONTEXT) : json_incref(value));
    return true;
}

static bool translate_options(struct job *job, json_t *body)
{
    json_t *given = field_of(job->json, "options"), *value;
    const char *name;
    if (given && !json_is_object(given))
        return api_fail(&job->error, 400, "options", "\"options\" is an object");
    json_object_set_new(body, "max_tokens", json_integer(FIELDS_REST_OF_CONTEXT));
    json_object_foreach (given, name, value)
        if (!translate_option(job, name, value, body))
            return false;
    return true;
}

// ---- fields of both -----------------------------------------------------------------------------------------------

// "json", or a schema.
static bool translate_format(struct job *job, json_t *body)
{
    const json_t *format = field_of(job->json, "format");
    const char *word = json_string_value(format);
    if (!format || (word && !*word))
        return true;
    if (!json_is_object(format) && !(word && !strcmp(word, "json")))
        return api_fail(&job->error, 400, "format", "\"format\" is \"json\" or a JSON schema");
    json_object_set_new(body, "response_format",
                        word ? json_pack("{s:s}", "type", "json_object") : translate_schema("format", format));
    return true;
}

// true, false, or a degree: variables of the template, where it has them.
static bool translate_think(struct job *job, json_t *body)
{
    static const char *const degrees[] = { "low", "medium", "high", NULL };
    const json_t *think = field_of(job->json, "think");
    int degree = field_word(job->json, "think", degrees);
    if (!think)
        return true;
    if (degree < 0 && !json_is_boolean(think))
        return api_fail(&job->error, 400, "think", "\"think\" is true, false, low, medium or high");
    json_object_set_new(body, "enable_thinking", json_boolean(!json_is_false(think)));
    json_object_set_new(body, "thinking", json_boolean(!json_is_false(think)));
    if (degree >= 0 && job->api->chat && chat_reads(job->api->chat, "reasoning_effort"))
        json_object_set_new(body, "reasoning_effort", json_string(degrees[degree]));
    return true;
}

// Answers stream unless they are asked not to.
static bool translate_common(struct job *job, json_t *body)
{
    bool stream = true;
    if (!fields_read_bool(job->json, "stream", &stream, &job->error))
        return false;
    json_object_set_new(body, "stream", json_boolean(stream));
    return translate_options(job, body) && translate_format(job, body) && translate_think(job, body);
}

// A request without a prompt asks for the model to be loaded. Always false: there is a reply.
static bool reply_loaded(struct job *job)
{
    ollama_write_loaded(job, &job->reply);
    return false;
}

// ---- /api/chat ----------------------------------------------------------------------------------------------------

// A message's keys that a chat has under other names.
static json_t *translate_message(const json_t *message, size_t index, struct api_error *err)
{
    static const char *const keys[] = { "role",       "content",   "thinking",     "images",
                                        "tool_calls", "tool_name", "tool_call_id", NULL };
    if (!json_is_object(message))
        return api_fail(err, 400, "messages", "messages[%zu] is no object", index), NULL;
    if (!fields_check_keys(message, "messages", keys, err))
        return NULL;
    if (json_array_size(json_object_get(message, "images")))
        return api_fail(err, 400, "messages", "messages[%zu] has images; this server reads text alone", index), NULL;
    json_t *own = json_copy((json_t *)message);
    static const struct field_name moved[] = { { "reasoning_content", "thinking" }, { "name", "tool_name" } };
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        json_t *value = field_of(own, moved[i].client);
        if (value)
            json_object_set(own, moved[i].own, value);
        json_object_del(own, moved[i].client);
    }
    json_object_del(own, "images");
    return own;
}

static bool translate_messages(struct job *job, json_t *body)
{
    const json_t *messages = json_object_get(job->json, "messages"), *message;
    size_t index;
    if (!translate_common(job, body))
        return false;
    if (!json_is_array(messages))
        return api_fail(&job->error, 400, "messages", "\"messages\" is a list of messages");
    json_t *list = json_array();
    json_object_set_new(body, "messages", list);
    json_array_foreach (messages, index, message) {
        json_t *own = translate_message(message, index, &job->error);
        if (!own)
            return false;
        json_array_append_new(list, own);
    }
    json_t *tools = field_of(job->json, "tools");
    if (tools)
        json_object_set(body, "tools", tools);
    return true;
}

bool ollama_translate_chat(struct job *job)
{
    if (field_is_empty(json_object_get(job->json, "messages")))
        return reply_loaded(job);
    return translate_json(job, translate_messages);
}

// ---- /api/generate ------------------------------------------------------------------------------------------------

static bool check_text(struct job *job, const char *key)
{
    const json_t *value = field_of(job->json, key);
    return !value || json_is_string(value) || api_fail(&job->error, 400, key, "\"%s\" is a string", key);
}

// The prompt is the user's message, or, where it is raw, the text that the model continues.
static bool translate_prompt(struct job *job, json_t *body)
{
    json_t *prompt = json_object_get(job->json, "prompt"), *system = json_object_get(job->json, "system");
    bool raw = false;
    if (!translate_common(job, body) || !fields_read_bool(job->json, "raw", &raw, &job->error)
        || !check_text(job, "prompt") || !check_text(job, "system"))
        return false;
    if (raw) {
        job->kind = JOB_OLLAMA_RAW;
        json_object_set(body, "prompt", prompt);
        return field_is_empty(system)
            || api_fail(&job->error, 400, "system", "\"system\" is for the template, which a raw prompt does without");
    }
    json_t *messages = json_array();
    json_object_set_new(body, "messages", messages);
    if (!field_is_empty(system))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", prompt));
    return true;
}

bool ollama_translate_generate(struct job *job)
{
    if (field_is_empty(json_object_get(job->json, "prompt")))
        return reply_loaded(job);
    return translate_json(job, translate_prompt);
}
