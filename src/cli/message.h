// SPDX-License-Identifier: Apache-2.0
// cli/message.h: multi-line input: lines from a terminal or a pipe, joined to one message.
//   (1) """ at a line's start opens a message of several lines, """ at a line's end closes it; neither is part of it
//   (2) a line that ends in an odd number of backslashes goes on in the next one: the last becomes a line end
//   (3) a line that has line ends in it (a paste) is a message as it is, unless both marks of (1) surround it
#ifndef CLI_MESSAGE_H
#define CLI_MESSAGE_H

#include "base/strbuf.h"

// A zeroed one is empty. Freed with strbuf_free(&text).
struct message {
    struct strbuf text;
    bool quoted;    // """ is open
    bool continued; // it has a line already, and the next one goes on after a line end
};

// A line without its end. True: the message is complete. False: more lines belong to it.
bool message_add_line(struct message *message, struct bytes line);

// Lines are missing; at the end of the input the message is what there is.
bool message_is_open(const struct message *message);

#endif
