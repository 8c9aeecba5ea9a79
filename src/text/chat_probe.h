// SPDX-License-Identifier: Apache-2.0
// text/chat_probe.h: finds the shape of messages that a template was written for, by rendering small conversations and
// looking for their words in the prompts. A template's source has too many ways to write the same thing.
#ifndef TEXT_CHAT_PROBE_H
#define TEXT_CHAT_PROBE_H

#include "text/chat.h"
#include "text/message_shape.h"

// Published templates take less than a tenth of this for a probe. There are some thirty probes: a template that is made
// to be slow delays the start by about half a second.
enum { PROBE_STEPS_MAX = 300 * 1000 };

struct message_shape chat_probe(const struct chat *chat);

// As chat_render, within so many steps; 0: the template's usual limit.
bool chat_render_within(const struct chat *chat, const json_t *request, uint64_t steps, struct strbuf *out,
                        struct error *err);

#endif
