// SPDX-License-Identifier: Apache-2.0
// text/chat.h: from a list of messages to the prompt that the model was trained on: which template, which variables.
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "base/strbuf.h"
#include "format/checkpoint.h"
#include "text/reasoning.h"
#include "text/tools.h"

struct chat; // immutable once open

// The template in template_file, else the checkpoint's own; special tokens come from the checkpoint. Either may be
// NULL.
struct chat *chat_open(const struct checkpoint *checkpoint, const char *template_file,
                       struct error *err); // NULL on failure
// With a template that is given as text: a built-in one, or a request's.
struct chat *chat_open_source(const struct checkpoint *checkpoint, struct bytes source, struct error *err);
// Does the checkpoint bring a template of its own?
bool chat_has_template(const struct checkpoint *checkpoint);
struct bytes chat_source(const struct chat *chat);    // of the template for requests without tools
json_t *chat_special_tokens(const struct chat *chat); // bos_token, eos_token ... (borrowed)
void chat_close(struct chat *chat);

// How the model writes calls. *supports_tools: its template puts them into the prompt.
const struct tool_form *chat_tool_form(const struct chat *chat, bool *supports_tools);

// Sets another form of calls than the template's, by its name (text/tools.h), before the chat is used. False with a
// sentence.
bool chat_set_tool_form(struct chat *chat, const char *name, struct error *err);

// How the model writes its thoughts; NULL: its template knows none.
const struct reasoning_form *chat_reasoning(const struct chat *chat);

// Does the template, or the one for requests with tools, look at this variable?
bool chat_reads(const struct chat *chat, const char *variable);

// The messages of a request as this template wants them (new reference): text/message_shape.h, and the tools in words
// where the template has no place for them (text/tools.h). `tools`: NULL, or a checked list. NULL with a sentence.
json_t *chat_normalise(const struct chat *chat, const json_t *messages, const json_t *tools, struct error *err);

// The tools of a request as this template wants them (new reference): NULL where it fails with any, which are in the
// messages then; an empty list for a template that needs some list.
json_t *chat_tools(const struct chat *chat, const json_t *tools);

// `request`: a list of messages, or an object with messages, tools, add_generation_prompt and further variables.
// continue_final_message: the prompt ends where the last message's content ends (text/chat_continue.h).
bool chat_render(const struct chat *chat, const json_t *request, struct strbuf *out, struct error *err);

#endif
