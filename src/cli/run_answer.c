// SPDX-License-Identifier: Apache-2.0
#include "cli/run_answer.h"

#include <stdlib.h>

#include "cli/cli.h"
#include "cli/run_print.h"
#include "cli/run_thought.h"

// State of an answer while it streams.
struct stream {
    struct nibble_decoder *decoder;
    struct nibble_text *answer;
    struct run_thought thought;
    struct run_print print;
    size_t printed;
    struct nibble_usage usage;
    enum nibble_finish reason;
    struct error *err;
    bool ok;
};

bool prompt_encode(const struct session *session, const char *prompt, size_t len, struct prompt_ids *out,
                   struct error *err)
{
    int flags = session->chat ? NIBBLE_PARSE_SPECIAL : NIBBLE_PARSE_SPECIAL | NIBBLE_ADD_SPECIAL;
    *out = (struct prompt_ids){ 0 };
    ptrdiff_t count = nibble_tokenize(session->tokenizer, prompt, len, flags, &out->ids, err);
    out->count = count > 0 ? (size_t)count : 0;
    return count > 0 || (count == 0 && fail(err, "the prompt has no tokens; give it some text"));
}

void prompt_free(struct prompt_ids *prompt)
{
    free(prompt->ids);
    nibble_reasoning_close(prompt->reasoning);
    *prompt = (struct prompt_ids){ 0 };
}

// ---- while it streams ---------------------------------------------------------------------------------------------

static bool print_new(struct stream *stream)
{
    size_t from = stream->printed;
    stream->printed = stream->answer->len;
    struct bytes text = { stream->answer->data + from, stream->answer->len - from };
    return run_print_add(&stream->print, text, stream->err);
}

static bool on_token(void *context, const struct nibble_token *token)
{
    struct stream *stream = context;
    if (token->stop)
        return false;
    nibble_decoder_add(stream->decoder, token->id, &stream->thought.piece);
    run_thought_take(&stream->thought, stream->answer);
    stream->ok = print_new(stream);
    return stream->ok;
}

static void on_finished(void *context, enum nibble_finish reason, const struct nibble_usage *usage,
                        const char *sentence)
{
    struct stream *stream = context;
    stream->usage = *usage;
    stream->reason = reason;
    if (reason == NIBBLE_FINISH_FAILED)
        stream->ok = fail(stream->err, "%s", sentence);
}

// ---- after it -----------------------------------------------------------------------------------------------------

static const char *why_short(const struct stream *stream, bool limited)
{
    if (session_interrupted)
        return "stopped";
    if (stream->reason != NIBBLE_FINISH_LENGTH)
        return NULL;
    return limited ? "cut off: max_tokens is reached" : "cut off: the context is full";
}

static void print_figures(const struct session *session, const struct stream *stream, bool limited)
{
    const struct nibble_usage *usage = &stream->usage;
    int read = usage->prompt_tokens - usage->cached_tokens, rest = usage->answer_tokens - 1;
    double answered = usage->answer_tokens ? usage->first_token : usage->finished;
    const char *why = why_short(stream, limited);
    if (session->figures)
        cli_print("prompt %d tokens, %.1f t/s; answer %d tokens, %.1f t/s%s%s\n", read,
                  read / (answered - usage->arrived + 1e-9), usage->answer_tokens,
                  rest > 0 ? rest / (usage->finished - answered + 1e-9) : 0.0, why ? "; " : "", why ? why : "");
    else if (why)
        cli_print("%s, after %d tokens\n", why, usage->answer_tokens);
}

static bool fail_room(const struct session *session, size_t count, struct error *err)
{
    return fail(err, "the prompt has %zu tokens, and the context holds %d, the answer included; shorten it%s", count,
                nibble_engine_max_model_len(session->engine),
                session->shortened ? ", or give a larger --max-model-len" : "");
}

static bool finish(struct stream *stream, const struct session *session, bool limited)
{
    nibble_decoder_finish(stream->decoder, &stream->thought.piece);
    run_thought_finish(&stream->thought, stream->answer);
    run_thought_free(&stream->thought);
    nibble_decoder_close(stream->decoder);
    bool ok = stream->ok && print_new(stream) && run_print_finish(&stream->print, stream->err);
    run_print_close(&stream->print);
    if (ok)
        print_figures(session, stream, limited);
    return ok;
}

bool answer_prompt(struct session *session, const struct prompt_ids *prompt, struct nibble_text *answer,
                   struct error *err)
{
    struct stream stream = { .answer = answer, .err = err, .ok = true };
    long long room = session_room(session, prompt->count);
    bool limited = session->max_tokens && session->max_tokens <= room;
    struct nibble_request request = { .prompt = prompt->ids,
                                      .prompt_count = prompt->count,
                                      .max_tokens = limited ? session->max_tokens : (int)room,
                                      .sampling = session->sampling,
                                      .stop_ids = session->stop_ids,
                                      .stop_count = session->stop_count,
                                      .top_logprobs = -1,
                                      .listener = { .context = &stream, .token = on_token, .finished = on_finished } };
    if (room < 1)
        return fail_room(session, prompt->count, err);
    uint64_t name = nibble_scheduler_add(session->scheduler, &request, err);
    if (!name)
        return false;
    stream.decoder = nibble_decoder_open(session->tokenizer, true);
    run_print_open(&stream.print, session);
    run_thought_open(&stream.thought, prompt->reasoning, session);
    if (prompt->reasoning)
        nibble_decoder_show(stream.decoder, session->tokenizer, prompt->reasoning);
    struct nibble_step step;
    while (!session_interrupted && nibble_scheduler_step(session->scheduler, &step))
        ;
    nibble_scheduler_cancel(session->scheduler, name);
    return finish(&stream, session, limited);
}
