// SPDX-License-Identifier: Apache-2.0
// cli/run.c: `nibble run`: streams one completion, or chats in the terminal (a REPL).
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/history.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "cli/run_thought.h"
#include "cli/trace.h"

enum { ANSWER_ROOM_MAX = 2048 };

struct run_command {
    const char *system, *template_file;
    struct nibble_options engine;
    struct nibble_defaults_options defaults;
    struct nibble_sampling sampling; // below 0: the model's own default
    int64_t seed;                    // below 0: a random one
    int max_tokens;
    bool raw, no_reasoning;
    int trace; // enum trace_word
};

struct session {
    struct nibble_checkpoint *checkpoint;
    struct nibble_tokenizer *tokenizer;
    struct nibble_chat *chat; // NULL with --raw
    struct cli_trace trace;
    struct nibble_engine *engine;
    struct nibble_scheduler *scheduler;
    struct nibble_sampling sampling;
    int max_tokens; // 0: as many as the context holds
    bool shortened; // --max-model-len was given
    bool no_reasoning;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

// ---- opening ------------------------------------------------------------------------------------------------------

static void override_double(double *value, double given)
{
    if (given >= 0)
        *value = given;
}

static bool choose_sampling(struct session *session, const struct run_command *command, struct error *err)
{
    struct nibble_sampling *sampling = &session->sampling;
    const struct nibble_sampling *given = &command->sampling;
    struct nibble_defaults defaults;
    if (!nibble_sampling_defaults(session->checkpoint, &command->defaults, &defaults, err))
        return false;
    *sampling = defaults.sampling;
    override_double(&sampling->temperature, given->temperature);
    override_double(&sampling->top_p, given->top_p);
    override_double(&sampling->min_p, given->min_p);
    override_double(&sampling->repetition_penalty, given->repetition_penalty);
    sampling->top_k = given->top_k >= 0 ? given->top_k : sampling->top_k;
    sampling->seed = (uint64_t)command->seed;
    if (command->seed < 0 && getrandom(&sampling->seed, sizeof sampling->seed, 0) < 0)
        sampling->seed = (uint64_t)time(NULL);
    return true;
}

static bool open_engine(struct session *session, const struct run_command *command, struct error *err)
{
    struct nibble_options options = command->engine;
    options.trace = cli_trace_open(&session->trace, (enum trace_word)command->trace);
    session->engine = cli_engine_open(session->checkpoint, &options, err);
    if (!session->engine)
        return false;
    session->scheduler = nibble_scheduler_open(session->engine, &(struct nibble_scheduler_options){ 0 });
    cli_print_plan(session->engine);
    return true;
}

static bool session_open(struct session *session, const char *model, const struct run_command *command,
                         struct error *err)
{
    *session = (struct session){ .max_tokens = command->max_tokens,
                                 .shortened = command->engine.max_model_len,
                                 .no_reasoning = command->no_reasoning };
    return (session->checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_ALL, err))
        && (session->tokenizer = nibble_tokenizer_open(session->checkpoint, err))
        && (command->raw || (session->chat = nibble_chat_open(session->checkpoint, command->template_file, err)))
        && choose_sampling(session, command, err) && open_engine(session, command, err);
}

static void session_close(struct session *session)
{
    nibble_scheduler_close(session->scheduler);
    nibble_engine_close(session->engine);
    nibble_chat_close(session->chat);
    nibble_tokenizer_close(session->tokenizer);
    nibble_checkpoint_close(session->checkpoint);
}

// ---- an answer ----------------------------------------------------------------------------------------------------

// State of an answer while it streams.
struct stream {
    const struct nibble_tokenizer *tokenizer;
    struct nibble_decoder *decoder;
    struct nibble_text *answer;
    struct run_thought thought;
    size_t printed;
    struct nibble_usage usage;
    enum nibble_finish reason;
    struct error *err;
    bool ok;
};

struct prompt_ids {
    int32_t *ids;
    size_t count;
    struct nibble_reasoning *reasoning; // of its answer; NULL: thoughts are not looked for
};

static void prompt_free(struct prompt_ids *prompt)
{
    free(prompt->ids);
    nibble_reasoning_close(prompt->reasoning);
    *prompt = (struct prompt_ids){ 0 };
}

static bool print_new(struct stream *stream)
{
    size_t from = stream->printed;
    stream->printed = stream->answer->len;
    return cli_write(stream->answer->data + from, stream->answer->len - from, stream->err);
}

static bool on_token(void *context, const struct nibble_token *token)
{
    struct stream *stream = context;
    if (nibble_token_ends_text(stream->tokenizer, token->id))
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

static void print_speed(const struct nibble_usage *usage, bool context_full)
{
    int read = usage->prompt_tokens - usage->cached_tokens, rest = usage->answer_tokens - 1;
    double answered = usage->answer_tokens ? usage->first_token : usage->finished;
    cli_print("prompt %d tokens, %.1f t/s; answer %d tokens, %.1f t/s%s\n", read,
              read / (answered - usage->arrived + 1e-9), usage->answer_tokens,
              rest > 0 ? rest / (usage->finished - answered + 1e-9) : 0.0,
              interrupted        ? "; stopped"
                  : context_full ? "; cut off: the context is full"
                                 : "");
}

// Returns how many tokens the context has left after a prompt of `count`.
static long long room_after(const struct session *session, size_t count)
{
    return (long long)nibble_engine_max_model_len(session->engine) - (long long)count;
}

// Streams until an end token, the limit, the end of the context or Ctrl-C. The text is gathered in *answer as well.
static bool continue_prompt(struct session *session, const struct prompt_ids *prompt, struct nibble_text *answer,
                            struct error *err)
{
    struct stream stream = { .tokenizer = session->tokenizer,
                             .answer = answer,
                             .thought.reasoning = prompt->reasoning,
                             .err = err,
                             .ok = true };
    long long room = room_after(session, prompt->count);
    bool within = session->max_tokens && session->max_tokens <= room;
    struct nibble_request request = { .prompt = prompt->ids,
                                      .prompt_count = prompt->count,
                                      .max_tokens = within ? session->max_tokens : (int)room,
                                      .sampling = session->sampling,
                                      .top_logprobs = -1,
                                      .listener = { .context = &stream, .token = on_token, .finished = on_finished } };
    if (room < 1)
        return fail(err,
                    "the prompt has %zu tokens, and the context holds %d, the answer included; shorten "
                    "it%s",
                    prompt->count, nibble_engine_max_model_len(session->engine),
                    session->shortened ? ", or give a larger --max-model-len" : "");
    uint64_t name = nibble_scheduler_add(session->scheduler, &request, err);
    if (!name)
        return false;
    stream.decoder = nibble_decoder_open(session->tokenizer, true);
    if (prompt->reasoning)
        nibble_decoder_show(stream.decoder, session->tokenizer, prompt->reasoning);
    struct nibble_step step;
    while (!interrupted && nibble_scheduler_step(session->scheduler, &step))
        ;
    nibble_scheduler_cancel(session->scheduler, name);
    nibble_decoder_finish(stream.decoder, &stream.thought.piece);
    run_thought_finish(&stream.thought, answer);
    run_thought_free(&stream.thought);
    nibble_decoder_close(stream.decoder);
    bool ok = stream.ok && print_new(&stream) && cli_write("\n", 1, err);
    if (ok)
        print_speed(&stream.usage, !within && stream.reason == NIBBLE_FINISH_LENGTH);
    return ok;
}

// Tokenises a prompt, on the heap. A chat's template writes its own BOS.
static bool encode(const struct session *session, const char *prompt, size_t len, struct prompt_ids *out,
                   struct error *err)
{
    int flags = session->chat ? NIBBLE_PARSE_SPECIAL : NIBBLE_PARSE_SPECIAL | NIBBLE_ADD_SPECIAL;
    *out = (struct prompt_ids){ 0 };
    ptrdiff_t count = nibble_tokenize(session->tokenizer, prompt, len, flags, &out->ids, err);
    out->count = count > 0 ? (size_t)count : 0;
    return count > 0 || (count == 0 && fail(err, "the prompt has no tokens; give it some text"));
}

// ---- a conversation -----------------------------------------------------------------------------------------------

static bool encode_chat(const struct session *session, const json_t *messages, struct prompt_ids *out,
                        struct error *err)
{
    struct nibble_text prompt = { 0 };
    char *json = json_dumps(messages, 0);
    bool ok = nibble_chat_render(session->chat, json, strlen(json), &prompt, err)
        && encode(session, prompt.data, prompt.len, out, err);
    if (ok && !session->no_reasoning)
        out->reasoning = nibble_reasoning_open(session->chat, prompt.data, prompt.len);
    free(json);
    free(prompt.data);
    return ok;
}

// Returns the tokens of the context that a chat keeps for an answer: as many as it may have, a quarter of the context
// at most.
static int answer_room(const struct session *session)
{
    int room = nibble_engine_max_model_len(session->engine) / 4;
    room = room < ANSWER_ROOM_MAX ? room : ANSWER_ROOM_MAX;
    return session->max_tokens && session->max_tokens < room ? session->max_tokens : room;
}

// Tokenises a chat, with its oldest turns dropped as far as the context needs it. The latest message stays.
static bool encode_fitting(const struct session *session, json_t *messages, struct prompt_ids *out, int *dropped,
                           struct error *err)
{
    *dropped = 0;
    while (encode_chat(session, messages, out, err)) {
        if (room_after(session, out->count) >= answer_room(session) || !history_drop_oldest_turn(messages))
            return true;
        ++*dropped;
        prompt_free(out);
    }
    return false;
}

static void print_dropped(const struct session *session, int dropped)
{
    int context = nibble_engine_max_model_len(session->engine);
    if (dropped == 1)
        cli_print("the context of %d tokens is full: the oldest turn was dropped\n", context);
    else if (dropped)
        cli_print("the context of %d tokens is full: the %d oldest turns were dropped\n", context, dropped);
}

// A turn that fails leaves the messages as they were.
static bool answer_chat(struct session *session, json_t *messages, const char *text, size_t len, struct error *err)
{
    json_t *turns = json_copy(messages);
    struct nibble_text answer = { 0 };
    struct prompt_ids prompt = { 0 };
    int dropped = 0;
    bool ok = history_add(turns, "user", text, len, err) && encode_fitting(session, turns, &prompt, &dropped, err);
    if (ok && room_after(session, prompt.count) > 0)
        print_dropped(session, dropped);
    ok = ok && continue_prompt(session, &prompt, &answer, err);
    if (ok) {
        history_add_reply(turns, &answer);
        json_array_clear(messages);
        json_array_extend(messages, turns);
    }
    json_decref(turns);
    prompt_free(&prompt);
    free(answer.data);
    return ok;
}

static bool answer_raw(struct session *session, const char *text, size_t len, struct error *err)
{
    struct nibble_text answer = { 0 };
    struct prompt_ids prompt;
    bool ok = encode(session, text, len, &prompt, err) && continue_prompt(session, &prompt, &answer, err);
    prompt_free(&prompt);
    free(answer.data);
    return ok;
}

static bool answer(struct session *session, json_t *messages, const char *text, size_t len, struct error *err)
{
    interrupted = 0;
    return (session->chat ? answer_chat(session, messages, text, len, err) : answer_raw(session, text, len, err))
        && nibble_checkpoint_check(session->checkpoint, err);
}

// Turn after turn until the end of the input. A turn that fails (too long, for example) prints its error and the chat
// goes on.
static int converse(struct session *session, json_t *messages)
{
    struct terminal *terminal = terminal_open();
    char *message;
    size_t len;
    int status = EXIT_DONE;
    while ((message = terminal_read(terminal, &len))) {
        struct error err;
        if (len && !answer(session, messages, message, len, &err))
            status = cli_fail(&err, false);
        free(message);
        if (cli_reader_left())
            break;
    }
    bool interactive = terminal_is_interactive(terminal);
    terminal_close(terminal);
    return interactive ? EXIT_DONE : status;
}

static int run(const char *model, const char *prompt, const struct run_command *command)
{
    struct session session;
    struct error err = { 0 };
    struct nibble_text input = { 0 };
    json_t *messages = json_array();
    bool standard = prompt && !strcmp(prompt, "-");
    bool ready = (!command->system || history_add(messages, "system", command->system, strlen(command->system), &err))
        && (!standard || cli_read("-", &input, &err));
    if (!ready)
        return json_decref(messages), free(input.data), cli_fail(&err, false);
    bool opened = session_open(&session, model, command, &err);
    sigaction(SIGINT, &(struct sigaction){ .sa_handler = on_interrupt }, NULL);
    int status;
    if (!opened)
        status = cli_fail(&err, false);
    else if (!prompt)
        status = converse(&session, messages);
    else if (answer(&session, messages, standard ? input.data : prompt, standard ? input.len : strlen(prompt), &err))
        status = EXIT_DONE;
    else
        status = cli_fail(&err, false);
    session_close(&session);
    json_decref(messages);
    free(input.data);
    return status;
}

int command_run(int argc, char **argv)
{
    struct run_command command = {
        .sampling = { .temperature = -1, .top_p = -1, .min_p = -1, .top_k = -1, .repetition_penalty = -1 }, .seed = -1
    };
    const struct option_row options[] = {
        { "--max-tokens", OPTION_INT, &command.max_tokens, "N", "longest answer in tokens (what the context holds)", 1,
          1 << 28 },
        { "--temperature", OPTION_REAL, &command.sampling.temperature, "X",
          "0: always the most likely token (the model's, else 1)", 0, 100 },
        { "--top-p", OPTION_REAL, &command.sampling.top_p, "X", "draw from the likeliest tokens that sum to X", 0, 1 },
        { "--top-k", OPTION_INT, &command.sampling.top_k, "N", "draw from the N likeliest tokens (0: all)", 0,
          1 << 28 },
        { "--min-p", OPTION_REAL, &command.sampling.min_p, "X", "drop tokens below X times the likeliest", 0, 1 },
        { "--repetition-penalty", OPTION_REAL, &command.sampling.repetition_penalty, "X",
          "make tokens that occurred less likely (1: off)", 0, 100 },
        DEFAULTS_OPTION_ROWS(command.defaults),
        { "--seed", OPTION_LONG, &command.seed, "N", "the same seed draws the same answer", 0, 9007199254740991 },
        { "--system", OPTION_TEXT, &command.system, "TEXT", "a system message before the chat" },
        { "--chat-template", OPTION_TEXT, &command.template_file, "FILE", "a Jinja template instead of the model's" },
        { "--raw", OPTION_FLAG, &command.raw, NULL, "no chat template: continue the text as it is" },
        { "--no-reasoning", OPTION_FLAG, &command.no_reasoning, NULL, "leave the model's thoughts in the answer" },
        ENGINE_OPTION_ROWS(command.engine),
        RANKS_OPTION_ROW(command.engine),
        { "--threads", OPTION_INT, &command.engine.threads, "N", "threads (all cores)", 1, 256 },
        { "--no-self-test", OPTION_FLAG, &command.engine.no_self_test, NULL, "do not check the kernels first" },
        { "--trace", OPTION_WORD, &command.trace, "WORD", "ops: a line per op, with time and checksum (none)",
          .words = trace_words },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble run MODEL [PROMPT | -] [options]",
        .about = "Streams the answer to PROMPT (- reads it from standard input); its thought goes to stderr.\n"
                 "Without PROMPT, a chat in the terminal:\n"
                 "Ctrl-C stops an answer, Ctrl-D leaves. A message of several lines: paste it, surround it with "
                 "\"\"\", or\n"
                 "end each line but the last with \\.",
        .example = "nibble run model.gguf \"What is a nibble?\" --kv-cache-dtype nvfp4 --temperature 0",
        .options = options,
        .required = { "MODEL" },
        .positional_max = 2,
    };
    int count = 0;
    int status = ranks_begin(&command.engine.ranks);
    if (status < 0)
        status = options_parse(&line, argc, argv, &count);
    if (status < 0)
        status = ranks_settle(&command.engine, false);
    if (status < 0)
        status = run(argv[0], count == 2 ? argv[1] : NULL, &command);
    nibble_ranks_close(command.engine.ranks);
    return status;
}
