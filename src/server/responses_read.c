// SPDX-License-Identifier: Apache-2.0
// server/responses_read.c: reads POST /v1/responses: its fields as those of a chat, the response that it continues, and
// how much of a conversation that is too long is dropped.
#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/check.h"
#include "server/read.h"
#include "server/responses.h"

// ---- fields -------------------------------------------------------------------------------------------------------

// Fields that a chat has not, or not in this form.
static const char *const own_fields[] = {
    "input",   "instructions",         "text",       "reasoning", "tools",    "tool_choice",    "max_output_tokens",
    "include", "previous_response_id", "truncation", "store",     "metadata", "max_tool_calls", "top_logprobs",
};

static bool read_length(struct job *job, json_t *chat)
{
    int64_t length = 0, calls = 1;
    if (!fields_read_int(job->json, "max_output_tokens", 1, INT32_MAX, &length, &job->error))
        return false;
    if (length)
        json_object_set_new(chat, "max_tokens", json_integer(length));
    job->response->max_tokens = (int)length;
    return fields_read_int(job->json, "max_tool_calls", 0, INT32_MAX, &calls, &job->error);
}

// Reads what is to come beside the answer. Most words belong to tools of OpenAI's, of which there are none; encrypted
// reasoning is for servers that keep the reasoning to themselves.
static bool read_include(struct job *job, json_t *chat)
{
    static const char *const words[] = {
        "message.output_text.logprobs", "reasoning.encrypted_content",   "web_search_call.action.sources",
        "web_search_call.results",      "code_interpreter_call.outputs", "computer_call_output.output.image_url",
        "file_search_call.results",     "message.input_image.image_url", NULL
    };
    const json_t *list = field_of(job->json, "include"), *value;
    int64_t top = 0;
    size_t index;
    if (list && !json_is_array(list))
        return api_fail(&job->error, 400, "include", "\"include\" is a list of words");
    json_array_foreach (list, index, value) {
        const char *const *word = words;
        while (*word && !(json_is_string(value) && !strcmp(*word, json_string_value(value))))
            word++;
        if (!*word)
            return api_fail(&job->error, 400, "include", "entry %zu of \"include\" is nothing that can be included",
                            index);
        if (word == words)
            json_object_set_new(chat, "logprobs", json_true());
    }
    if (!fields_read_int(job->json, "top_logprobs", 0, API_LOGPROBS_MAX, &top, &job->error))
        return false;
    if (top) {
        json_object_set_new(chat, "logprobs", json_true());
        json_object_set_new(chat, "top_logprobs", json_integer(top));
    }
    return true;
}

static bool read_truncation(struct job *job, json_t *chat)
{
    (void)chat;
    int word = field_word(job->json, "truncation", WORDS("disabled", "auto"));
    job->response->truncates = word == 1;
    return word >= 0 || !field_of(job->json, "truncation")
        || api_fail(&job->error, 400, "truncation", "\"truncation\" is auto or disabled");
}

static bool read_metadata(struct job *job, json_t *chat)
{
    (void)chat;
    enum { PAIRS_MAX = 16, KEY_BYTES_MAX = 64, VALUE_BYTES_MAX = 512 * 4 }; // of characters
    json_t *table = field_of(job->json, "metadata"), *value;
    const char *key;
    bool ok = !table || (json_is_object(table) && json_object_size(table) <= PAIRS_MAX);
    if (ok)
        json_object_foreach (table, key, value)
            ok = ok && strlen(key) <= KEY_BYTES_MAX && json_is_string(value)
                && json_string_length(value) <= VALUE_BYTES_MAX;
    return ok || api_fail(&job->error, 400, "metadata", "\"metadata\" is an object of up to %d short texts", PAIRS_MAX);
}

static bool read_stream(struct job *job, json_t *chat)
{
    bool stream = false, obfuscates = false;
    const json_t *options = field_of(job->json, "stream_options");
    if (!options)
        return true;
    if (!fields_read_bool(job->json, "stream", &stream, &job->error))
        return false;
    if (!json_is_object(options) || !stream)
        return api_fail(&job->error, 400, "stream_options",
                        "\"stream_options\" is an object, and goes with \"stream\": true");
    json_object_del(chat, "stream_options");
    return (fields_check_keys(options, "stream_options", WORDS("include_obfuscation"), &job->error)
            && fields_read_bool(options, "include_obfuscation", &obfuscates, &job->error))
        || fields_fail_within("stream_options", &job->error);
}

// ---- the store ----------------------------------------------------------------------------------------------------

bool responses_fail_unknown(struct job *job, struct bytes id)
{
    return api_fail_code(&job->error, 404, NULL, "not_found", "Response with id '%.*s' not found.",
                         (int)(id.len < 100 ? id.len : 100), id.data ? id.data : "");
}

static bool read_previous(struct job *job, json_t *chat)
{
    (void)chat;
    static const char field[] = "previous_response_id";
    const json_t *value = field_of(job->json, field);
    struct response_record *previous = NULL;
    if (!value)
        return true;
    if (!json_is_string(value))
        return api_fail(&job->error, 400, field, "\"%s\" is the id of a response", field);
    if (job->response_store)
        previous = response_store_find(job->response_store, json_bytes(value), job->owner);
    if (!previous)
        return api_fail_code(&job->error, 404, field, "previous_response_not_found",
                             "Previous response with id '%.100s' not found.", json_string_value(value));
    job->response->record->previous = previous;
    return atomic_load(&previous->status) != RESPONSE_IN_PROGRESS
        || api_fail(&job->error, 400, field, "the response of \"%s\" is still in progress; wait for its end", field);
}

static bool read_store(struct job *job, json_t *chat)
{
    (void)chat;
    bool wanted = true;
    bool ok = fields_read_bool(job->json, "store", &wanted, &job->error);
    job->response->stored = wanted && job->kind == JOB_RESPONSE && job->response_store
        && job->response_store->budget.limit_bytes && job->response_store->count_max;
    return ok;
}

// Stores the request's side now, so that the response can be cancelled by its id.
static bool store_request(struct job *job, json_t *chat)
{
    (void)chat;
    struct response *response = job->response;
    responses_write_echo(job);
    response->stored = response->stored && response_store_add(job->response_store, response->record);
    job->kept_bytes += response->record->echo.cap + response->record->input.cap;
    if (response->record->input.len && !response->stored)
        check_warn(job, "the response is not stored: --response-store-size and --response-store-count have no room");
    return true;
}

bool responses_translate(struct job *job)
{
    static bool (*const sections[])(struct job *job, json_t *chat) = {
        read_store,
        read_previous,
        responses_read_input,
        responses_read_tools,
        responses_read_text,
        read_length,
        responses_read_reasoning,
        read_include,
        read_truncation,
        read_metadata,
        read_stream,
        store_request,
    };
    job->response = memory_new(1, sizeof *job->response);
    job->response->record = response_record_new(strchr(job->id, '_') ? strchr(job->id, '_') + 1 : "", job->owner,
                                                job->created);
    json_t *chat = json_copy(job->json);
    for (size_t i = 0; i < sizeof own_fields / sizeof *own_fields; i++)
        json_object_del(chat, own_fields[i]);
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof sections / sizeof *sections; i++)
        ok = sections[i](job, chat);
    if (job->leaves_lane) { // as if nothing had been read
        response_free(job);
        json_decref(chat);
        return job->recalled_bytes = 0, false;
    }
    json_decref(job->json);
    job->json = chat;
    return ok;
}

// ---- truncation ---------------------------------------------------------------------------------------------------

// The messages that are left when those before `cut` are dropped, but for the system message and the question that the
// first one left belongs to (new reference).
static json_t *cut_messages(const json_t *messages, size_t cut)
{
    json_t *left = json_array(), *message;
    json_t *first = json_array_get(messages, 0);
    size_t question = cut, index;
    if (cut && field_is(first, "role", "system"))
        json_array_append(left, first);
    while (question && !field_is(json_array_get(messages, question), "role", "user"))
        question--;
    if (question && question < cut)
        json_array_append(left, json_array_get(messages, question));
    json_array_foreach ((json_t *)messages, index, message)
        if (index >= cut)
            json_array_append(left, message);
    return left;
}

// Where a conversation may begin: at a question, or at an answer to the results of tools. The list is on the heap.
static size_t *find_cuts(const json_t *messages, size_t *count)
{
    size_t *cuts = memory_new(json_array_size(messages) + 1, sizeof *cuts), index;
    const json_t *message;
    const char *before = "";
    *count = 0;
    json_array_foreach (messages, index, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!strcmp(role, "user") || (!strcmp(role, "assistant") && !strcmp(before, "tool")))
            cuts[(*count)++] = index;
        before = role;
    }
    return cuts;
}

// The tokens of a prompt; more than the context: too many to count. False: refused.
static bool count_tokens(struct job *job, size_t *count)
{
    const struct api *api = job->api;
    struct strbuf text = { 0 };
    struct tokens tokens = { 0 };
    struct error cause;
    bool ok = read_messages(job, &text);
    *count = (size_t)api->max_model_len + 1;
    if (ok && text.len / api->token_bytes_max <= (size_t)api->max_model_len) {
        ok = tokenizer_encode_while(api->tokenizer, strbuf_bytes(&text), TOKENIZE_PARSE_SPECIAL, &job->cancelled,
                                    &tokens, &cause)
            || (!atomic_load(&job->cancelled) && api_fail_field(&job->error, "input", &cause));
        *count = tokens.count;
    }
    tokens_free(&tokens);
    strbuf_free(&text);
    return ok;
}

static bool fits(struct job *job, json_t *messages, size_t room, bool *does)
{
    size_t count = 0;
    json_object_set_new(job->json, "messages", messages);
    bool ok = count_tokens(job, &count);
    *does = count + room <= (size_t)job->api->max_model_len;
    return ok;
}

// Drops as few of the oldest messages as possible. Tokens are counted a logarithmic number of times.
static bool truncate_messages(struct job *job)
{
    size_t context = (size_t)job->api->max_model_len, asked = (size_t)job->response->max_tokens, count;
    size_t room = asked && asked < context / 2 ? asked : asked ? context / 2 : context / 4;
    json_t *messages = json_incref(json_object_get(job->json, "messages"));
    size_t *cuts = find_cuts(messages, &count), low = 0, high = count ? count - 1 : 0;
    bool does = false, ok = read_tools(job) && fits(job, json_incref(messages), 1, &does);
    while (ok && !does && low < high && !atomic_load(&job->cancelled)) {
        bool fits_here;
        size_t middle = low + (high - low) / 2;
        ok = fits(job, cut_messages(messages, cuts[middle]), room, &fits_here);
        if (fits_here)
            high = middle;
        else
            low = middle + 1;
    }
    if (ok && !does && count)
        json_object_set_new(job->json, "messages", cut_messages(messages, cuts[low]));
    free(cuts);
    json_decref(messages);
    return ok;
}

bool responses_read(struct job *job) { return (!job->response->truncates || truncate_messages(job)) && read_chat(job); }

// ---- tokens of an input ---------------------------------------------------------------------------------------------

bool responses_count_tokens(struct job *job)
{
    return responses_translate(job) && (!job->response->truncates || truncate_messages(job))
        && read_count(job, TOKENIZE_PARSE_SPECIAL, READ_COUNT_OPENING);
}
