// SPDX-License-Identifier: Apache-2.0
#include "cli/run_chat.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/history.h"
#include "cli/run_answer.h"
#include "cli/run_commands.h"
#include "cli/terminal.h"
#include "text/messages.h"

enum { ANSWER_ROOM_MAX = 2048 };

bool run_chat_open(struct run_chat *chat, struct session *session, const char *system, struct error *err)
{
    *chat = (struct run_chat){ .session = session, .messages = json_array() };
    return !system || run_chat_set_system(chat, bytes_of(system), err);
}

void run_chat_close(struct run_chat *chat)
{
    json_decref(chat->messages);
    free(chat->file);
}

// ---- prompts ------------------------------------------------------------------------------------------------------

static bool encode_chat(const struct session *session, const json_t *messages, struct prompt_ids *out,
                        struct error *err)
{
    struct nibble_text prompt = { 0 };
    char *json = json_dumps(messages, 0);
    bool ok = nibble_chat_render(session->chat, json, strlen(json), &prompt, err)
        && prompt_encode(session, prompt.data, prompt.len, out, err);
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
        if (session_room(session, out->count) >= answer_room(session) || !history_drop_oldest_turn(messages))
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

// ---- answers ------------------------------------------------------------------------------------------------------

// Answers turns that end with the user's message. The conversation becomes what they are then, or stays.
static bool answer_turns(struct run_chat *chat, json_t *turns, struct error *err)
{
    struct session *session = chat->session;
    struct nibble_text answer = { 0 };
    struct prompt_ids prompt = { 0 };
    int dropped = 0;
    bool ok = encode_fitting(session, turns, &prompt, &dropped, err);
    if (ok && session_room(session, prompt.count) > 0)
        print_dropped(session, dropped);
    ok = ok && answer_prompt(session, &prompt, &answer, err);
    if (ok) {
        history_add_reply(turns, &answer);
        json_array_clear(chat->messages);
        json_array_extend(chat->messages, turns);
    }
    prompt_free(&prompt);
    free(answer.data);
    return ok;
}

static bool answer_raw(struct session *session, struct bytes text, struct error *err)
{
    struct nibble_text answer = { 0 };
    struct prompt_ids prompt;
    bool ok = prompt_encode(session, text.data, text.len, &prompt, err)
        && answer_prompt(session, &prompt, &answer, err);
    prompt_free(&prompt);
    free(answer.data);
    return ok;
}

static json_t *last_of(const json_t *messages) { return json_array_get(messages, json_array_size(messages) - 1); }

// Removes the last message of the user's and what follows it.
static void drop_last_turn(json_t *turns)
{
    while (last_of(turns) && !message_has_role(last_of(turns), "user"))
        json_array_remove(turns, json_array_size(turns) - 1);
    if (last_of(turns))
        json_array_remove(turns, json_array_size(turns) - 1);
}

bool run_chat_answer(struct run_chat *chat, struct bytes text, struct error *err)
{
    struct session *session = chat->session;
    bool ok;
    session_interrupted = 0;
    session->sampling.choice = 0;
    if (!session->chat) {
        ok = answer_raw(session, text, err);
    } else {
        json_t *turns = json_copy(chat->messages);
        if (chat->editing)
            drop_last_turn(turns);
        ok = history_add(turns, "user", text.data, text.len, err) && answer_turns(chat, turns, err);
        json_decref(turns);
    }
    chat->editing = chat->editing && !ok;
    return ok && nibble_checkpoint_check(session->checkpoint, err);
}

bool run_chat_answer_again(struct run_chat *chat, struct error *err)
{
    struct session *session = chat->session;
    json_t *turns = json_copy(chat->messages);
    session_interrupted = 0;
    session->sampling.choice++;
    while (!message_has_role(last_of(turns), "user"))
        json_array_remove(turns, json_array_size(turns) - 1);
    bool ok = answer_turns(chat, turns, err);
    json_decref(turns);
    return ok && nibble_checkpoint_check(session->checkpoint, err);
}

// ---- messages -----------------------------------------------------------------------------------------------------

static struct bytes content_of(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    return (struct bytes){ json_string_value(content), json_string_length(content) };
}

struct bytes run_chat_last_message(const struct run_chat *chat)
{
    for (size_t i = json_array_size(chat->messages); i-- > 0;)
        if (message_has_role(json_array_get(chat->messages, i), "user"))
            return content_of(json_array_get(chat->messages, i));
    return (struct bytes){ 0 };
}

const char *run_chat_system(const struct run_chat *chat)
{
    const json_t *first = json_array_get(chat->messages, 0);
    return first && message_has_role(first, "system") ? content_of(first).data : NULL;
}

bool run_chat_set_system(struct run_chat *chat, struct bytes text, struct error *err)
{
    json_t *messages = json_array(), *turns = json_copy(chat->messages);
    bool ok = !text.len || history_add(messages, "system", text.data, text.len, err);
    if (ok && run_chat_system(chat))
        json_array_remove(turns, 0);
    if (ok) {
        json_array_extend(messages, turns);
        json_decref(chat->messages);
        chat->messages = json_incref(messages);
    }
    json_decref(turns);
    json_decref(messages);
    return ok;
}

// ---- the loop -----------------------------------------------------------------------------------------------------

// A failure (a message that is too long, a mistyped command) is printed, and the chat goes on.
static int take(struct run_chat *chat, struct bytes text)
{
    struct error err;
    bool command = run_commands_is_one(text), editing = chat->editing;
    bool ok = command ? run_commands_do(chat, text, &err) : run_chat_answer(chat, text, &err);
    if (command && editing)
        chat->editing = false;
    if (ok && !command && terminal_is_interactive(chat->terminal))
        cli_print("\n");
    return ok ? EXIT_DONE : cli_fail(&err, false);
}

static void greet(const struct run_chat *chat)
{
    struct nibble_text name = { 0 };
    run_commands_describe_model(chat, &name);
    cli_print("%.*s\n", (int)name.len, name.data);
    session_print_sampling(chat->session);
    cli_print("/help lists commands, /bye or Ctrl-D leaves, Ctrl-C stops an answer\n\n");
    free(name.data);
}

int run_chat_converse(struct run_chat *chat)
{
    char *message;
    size_t len;
    bool interrupted;
    int status = EXIT_DONE;
    chat->terminal = terminal_open(chat->session->model, run_commands_complete);
    bool interactive = terminal_is_interactive(chat->terminal);
    chat->session->figures = !interactive;
    if (interactive)
        greet(chat);
    else
        session_print_start(chat->session);
    while (!chat->leaving && !cli_reader_left() && (message = terminal_read(chat->terminal, &len, &interrupted))) {
        if (interrupted) {
            chat->editing = false;
            cli_print("Ctrl-C stops an answer, and there is none; /bye or Ctrl-D leaves\n");
        } else if (len) {
            int failed = take(chat, (struct bytes){ message, len });
            status = failed ? failed : status;
        }
        free(message);
    }
    terminal_close(chat->terminal);
    return interactive ? EXIT_DONE : status;
}
