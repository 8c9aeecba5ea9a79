// SPDX-License-Identifier: Apache-2.0
// cli/run_chat.h: the conversation of a `nibble run`: turns, what is dropped when the context is full, and answers that
// are made anew.
#ifndef CLI_RUN_CHAT_H
#define CLI_RUN_CHAT_H

#include <jansson.h>

#include "base/bytes.h"
#include "cli/run_session.h"

struct terminal;

struct run_chat {
    struct session *session;
    struct terminal *terminal; // NULL: one prompt is answered
    json_t *messages;          // cli/history.h; with --raw empty
    bool editing;              // the next message replaces the last one
    bool leaving;
    char *file; // that was saved or loaded last: it may be written again; NULL: none
};

bool run_chat_open(struct run_chat *chat, struct session *session, const char *system, struct error *err);
void run_chat_close(struct run_chat *chat);

// Answers a message, and adds both to the conversation. One that fails leaves it as it was.
bool run_chat_answer(struct run_chat *chat, struct bytes text, struct error *err);
// Answers the last message anew, with another draw.
bool run_chat_answer_again(struct run_chat *chat, struct error *err);

// The last message of the user; .data NULL: there is none.
struct bytes run_chat_last_message(const struct run_chat *chat);

// The system message; NULL: none. Setting it keeps all turns.
const char *run_chat_system(const struct run_chat *chat);
bool run_chat_set_system(struct run_chat *chat, struct bytes text, struct error *err); // empty: none

// Reads messages from the terminal, or lines from a pipe, until the end or /bye. Returns the exit status.
int run_chat_converse(struct run_chat *chat);

#endif
