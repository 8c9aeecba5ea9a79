// SPDX-License-Identifier: Apache-2.0
#include "server/llama_server.h"

#include "format/json.h"
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/kind.h"
#include "server/parts.h"
#include "server/read.h"

// ---- what the server says of itself -------------------------------------------------------------------------------

static json_t *sampling_of(const struct api *api)
{
    const struct nibble_sampling *defaults = &api->defaults.sampling;
    int tokens = api->defaults.max_tokens ? api->defaults.max_tokens : FIELDS_REST_OF_CONTEXT;
    return json_pack("{s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:i}", "temperature", defaults->temperature, "top_k",
                     defaults->top_k, "top_p", defaults->top_p, "min_p", defaults->min_p, "repeat_penalty",
                     defaults->repetition_penalty, "presence_penalty", defaults->presence_penalty, "frequency_penalty",
                     defaults->frequency_penalty, "n_predict", tokens, "max_tokens", tokens);
}

static json_t *slot_of(const struct api *api, int id, bool busy)
{
    return json_pack("{s:i, s:i, s:b, s:b, s:o}", "id", id, "n_ctx", api->max_model_len, "speculative", 0,
                     "is_processing", busy, "params", sampling_of(api));
}

static struct bytes special_of(const struct api *api, const char *name)
{
    const json_t *specials = api->chat ? chat_special_tokens(api->chat) : NULL;
    return json_bytes(json_object_get(specials, name));
}

json_t *llama_props(const struct api *api)
{
    bool supports_tools = false;
    if (api->chat)
        chat_tool_form(api->chat, &supports_tools);
    return json_pack("{s:o, s:i, s:s, s:s, s:o, s:{s:b, s:b}, s:o, s:o, s:{s:b, s:b}, s:s, s:b, s:b}",
                     "default_generation_settings", slot_of(api, 0, false), "total_slots", api->slots, "model_alias",
                     api->names[0], "model_path", api->root, "chat_template",
                     api_text(api->chat ? chat_source(api->chat) : bytes_of("")), "chat_template_caps",
                     "supports_tools", supports_tools, "supports_system_role", 1, "bos_token",
                     api_text(special_of(api, "bos_token")), "eos_token", api_text(special_of(api, "eos_token")),
                     "modalities", "vision", 0, "audio", 0, "build_info", "nibble-" NIBBLE_VERSION, "is_sleeping", 0,
                     "endpoint_slots", api->show_slots);
}

// A slot is a request that runs; which of them a request has has no meaning here.
json_t *llama_slots(const struct api *api, int running)
{
    json_t *slots = json_array();
    for (int i = 0; i < api->slots; i++)
        json_array_append_new(slots, slot_of(api, i, i < running));
    return slots;
}

bool llama_apply_template(struct job *job)
{
    struct strbuf prompt = { 0 };
    if (read_tools(job) && read_messages(job, &prompt)) {
        strbuf_add_text(&job->reply, "{\"prompt\":");
        json_write_text(&job->reply, strbuf_bytes(&prompt));
        strbuf_add_byte(&job->reply, '}');
    }
    strbuf_free(&prompt);
    return false;
}

// ---- /completion --------------------------------------------------------------------------------------------------

// Without a limit an answer has the rest of the context.
bool llama_translate_completion(struct job *job)
{
    static const char *const limits[] = { "n_predict", "max_tokens", "max_completion_tokens" };
    const json_t *prompt = json_object_get(job->json, "prompt");
    bool limited = false;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const json_t *limit = json_object_get(job->json, limits[i]);
        limited |= limit && !json_is_null(limit);
    }
    if (!limited)
        json_object_set_new(job->json, limits[0], json_integer(FIELDS_REST_OF_CONTEXT));
    if (json_array_size(prompt) && !json_is_integer(json_array_get(prompt, 0)))
        return api_fail(&job->error, 400, "prompt",
                        "\"prompt\" is one text or one list of token ids; send several to "
                        "/v1/completions");
    static const char *const single[] = { "n", "n_cmpl", "logprobs", "prompt_logprobs", "return_token_ids", "echo" };
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        const json_t *value = json_object_get(job->json, single[i]);
        if (value && !field_is_empty(value) && !(i < 2 && json_integer_value(value) == 1))
            return api_fail_code(&job->error, 400, single[i], "unsupported_parameter",
                                 "\"%s\" is not supported here; use /v1/completions", single[i]);
    }
    return true;
}

static void write_figures(const struct choice *choice, bool stop, struct strbuf *out)
{
    strbuf_add_format(out, ",\"id_slot\":0,\"stop\":%s,\"tokens_predicted\":%d,\"tokens_evaluated\":%zu",
                      stop ? "true" : "false", choice->generated, choice->prompt->count);
}

static void write_end(const struct choice *choice, struct strbuf *out)
{
    const struct output *answer = &choice->answer;
    bool word = answer->reason == NIBBLE_FINISH_STOP && answer->stop_string >= 0;
    write_figures(choice, true, out);
    strbuf_add_format(out, ",\"stop_type\":\"%s\",\"stopping_word\":",
                      answer->reason == NIBBLE_FINISH_LENGTH ? "limit"
                          : word                             ? "word"
                                                             : "eos");
    json_write_text(out, word ? choice->job->params.stops[answer->stop_string] : (struct bytes){ 0 });
    strbuf_add_text(out, ",\"model\":");
    json_write_text(out, bytes_of(choice->job->api->names[0]));
    strbuf_add_format(out, ",\"tokens_cached\":%d,\"truncated\":false}", answer->usage.cached_tokens);
}

bool llama_whole(struct job *job, struct strbuf *out)
{
    struct bytes all = parts_join(&job->choices[0], PART_CONTENT);
    struct answer_cursor *cursor = &job->cursor;
    strbuf_add_text(out, cursor->part++ ? "" : "{\"index\":0,\"tokens\":[],\"content\":\"");
    if (all.len > cursor->at) {
        struct bytes rest = bytes_from(all, cursor->at);
        size_t length = json_text_cut(rest, ANSWER_SLICE_BYTES);
        json_write_text_inside(out, (struct bytes){ rest.data, length });
        cursor->at += length;
    }
    if (cursor->at < all.len)
        return false;
    strbuf_add_byte(out, '"');
    write_end(&job->choices[0], out);
    return true;
}

static void open_event(struct bytes text, struct strbuf *out)
{
    strbuf_add_text(out, "data: {\"index\":0,\"tokens\":[],\"content\":");
    json_write_text(out, text);
}

bool llama_stream(struct job *job, struct strbuf *out)
{
    struct choice *choice = &job->choices[0];
    struct answer_part *part = choice->part_count ? &choice->parts[0] : NULL; // a completion has but this
    while (part && part->sent < part->text.len) {
        if (out->len >= ANSWER_SLICE_BYTES)
            return false;
        struct bytes rest = bytes_from(strbuf_bytes(&part->text), part->sent);
        struct bytes text = { rest.data, json_text_cut(rest, ANSWER_SLICE_BYTES) };
        open_event(text, out);
        write_figures(choice, false, out);
        strbuf_add_text(out, "}\n\n");
        part->sent += text.len;
    }
    if (part)
        part->sent = part->text.len = 0;
    if (job->released && job->error.status) {
        llama_stream_error(&job->error, out);
    } else if (job->released) {
        open_event((struct bytes){ 0 }, out);
        write_end(choice, out);
        strbuf_add_text(out, "\n\n");
    }
    return true;
}

void llama_stream_error(const struct api_error *err, struct strbuf *out)
{
    json_t *error = api_error_json(err, API_OPENAI);
    strbuf_add_text(out, "data: ");
    api_dump(error, out);
    strbuf_add_text(out, "\n\n");
    json_decref(error);
}
