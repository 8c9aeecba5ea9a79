// SPDX-License-Identifier: Apache-2.0
// text/message_shape.h: the shape of messages that a chat template was written for, and conversations brought into it.
// Templates agree on roles and contents, and on little else: what earlier tool calls, results and thoughts look like is
// found by rendering probes (chat_probe.c), not by the model's name.
#ifndef TEXT_MESSAGE_SHAPE_H
#define TEXT_MESSAGE_SHAPE_H

#include <jansson.h>

#include "text/tools.h"

enum call_ids {
    IDS_ANY,
    IDS_NINE,  // nine letters and digits (Mistral)
    IDS_NAMED, // functions.NAME:COUNTER, from which the template takes the name (Kimi K2)
};

struct message_shape {
    bool takes_lists, needs_lists; // contents may, or must, be lists of parts
    bool takes_system;
    bool takes_tools;        // without an error; it need not show them
    bool iterates_tools;     // an empty list where there are none
    bool one_system;         // system messages come first, as one
    bool writes_calls;       // earlier calls; else they are given as text
    bool writes_results;     // messages of role tool; else the user says them
    bool one_call;           // a message has at most one call
    bool arguments_as_text;  // JSON text, not an object
    bool no_content_is_null; // beside calls; else it is ""
    bool calls_or_content;   // a message with a content loses its calls: they are a message of their own
    bool results_as_json;    // written as they are where JSON has to stand
    bool thought_or_content; // a message with calls has at most one of them
    bool thought_blocks;     // thoughts are parts of the content, {"type": "thinking", "thinking": ...}
    const char *thought_key; // of a message; NULL: none, or blocks
    enum call_ids ids;
};

// Brings normalised messages (text/messages.h), whose thoughts are under MESSAGE_THOUGHT, into a template's shape (a
// new reference).
json_t *message_shape_apply(const struct message_shape *shape, const struct tool_form *form, json_t *messages);

#endif
