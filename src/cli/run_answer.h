// SPDX-License-Identifier: Apache-2.0
// cli/run_answer.h: one answer of `nibble run`: a prompt in tokens, and the text that is streamed for it.
#ifndef CLI_RUN_ANSWER_H
#define CLI_RUN_ANSWER_H

#include "cli/run_session.h"

struct prompt_ids {
    int32_t *ids;
    size_t count;
    struct nibble_reasoning *reasoning; // of its answer; NULL: thoughts are not looked for
};

// Tokenises a prompt, on the heap. A chat's template writes its own BOS.
bool prompt_encode(const struct session *session, const char *prompt, size_t len, struct prompt_ids *out,
                   struct error *err);
void prompt_free(struct prompt_ids *prompt);

// Streams until an end token, the limit, the end of the context or Ctrl-C. The text is gathered in *answer as well.
bool answer_prompt(struct session *session, const struct prompt_ids *prompt, struct nibble_text *answer,
                   struct error *err);

#endif
