// SPDX-License-Identifier: Apache-2.0
// server/llama_server.c: /apply-template and /completion of llama.cpp's llama-server, and the answers of /infill.
#include "server/answer.h"
#include "server/json_writer.h"
#include "server/parts.h"
#include "server/read.h"
#include "server/translate.h"

bool llama_apply_template(struct job *job)
{
    struct strbuf prompt = { 0 };
    if (read_tools(job) && read_messages(job, &prompt))
        json_write(&job->reply, "{\"prompt\":%b}", strbuf_bytes(&prompt));
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
    json_write(out, ",\"id_slot\":0,\"stop\":%s,\"tokens_predicted\":%d,\"tokens_evaluated\":%z",
               stop ? "true" : "false", choice->generated, choice->prompt->count);
}

static void write_end(const struct choice *choice, struct strbuf *out)
{
    const struct output *answer = &choice->answer;
    bool word = answer->reason == NIBBLE_FINISH_STOP && answer->stop_string >= 0;
    const char *type = answer->reason == NIBBLE_FINISH_LENGTH ? "limit" : word ? "word" : "eos";
    write_figures(choice, true, out);
    json_write(out, ",\"stop_type\":\"%s\",\"stopping_word\":%b,\"model\":%q,\"tokens_cached\":%d,\"truncated\":false}",
               type, word ? choice->job->params.stops[answer->stop_string] : (struct bytes){ 0 },
               choice->job->api->names[0], answer->usage.cached_tokens);
}

static bool write_opening(struct job *job, struct choice *choice, struct strbuf *out)
{
    (void)job, (void)choice;
    strbuf_add_text(out, "{\"index\":0,\"tokens\":[],\"content\":\"");
    return true;
}

static bool write_content(struct job *job, struct choice *choice, struct strbuf *out)
{
    if (!answer_write_text(parts_join(choice, PART_CONTENT), &job->cursor.at, out))
        return false;
    strbuf_add_byte(out, '"');
    write_end(choice, out);
    return true;
}

static const answer_step steps[] = { write_opening, write_content };

static void open_event(struct bytes text, struct strbuf *out)
{
    json_write(out, "data: {\"index\":0,\"tokens\":[],\"content\":%b", text);
}

static void write_piece(struct job *job, const struct answer_part *part, struct bytes text, struct strbuf *out)
{
    (void)part;
    open_event(text, out);
    write_figures(&job->choices[0], false, out);
    strbuf_add_text(out, "}\n\n");
}

static bool stream(struct job *job, struct strbuf *out)
{
    return answer_stream_parts(job, &(struct part_events){ .piece = write_piece }, out);
}

static void end_stream(const struct job *job, struct strbuf *out)
{
    open_event((struct bytes){ 0 }, out);
    write_end(&job->choices[0], out);
    strbuf_add_text(out, "\n\n");
}

const struct dialect llama_dialect = {
    .stream = stream,
    .end = end_stream,
    DIALECT_STEPS(steps),
    .failure_open = "data: ",
    .failure_close = "\n\n",
};
