// SPDX-License-Identifier: Apache-2.0
// server/model.h: the served model: opened once, before the port is.
#ifndef SERVER_MODEL_H
#define SERVER_MODEL_H

#include "server/api.h"
#include "server/server.h"

struct served {
    struct nibble_checkpoint *checkpoint;
    struct tokenizer *tokenizer;
    struct chat *chat;
    const struct reasoning_form *reasoning;
    struct lazy_vocabulary vocabulary;
    struct nibble_engine *engine;
    struct nibble_scheduler *scheduler;
    struct nibble_text plan;
    json_t *plan_json;
    struct strbuf tokenizer_info; // empty: /tokenizer_info is off
    struct nibble_defaults defaults;
    struct error chat_error;
    const char *name; // of the model, where none was given
    char *own_name;   // the copy that it may be
    struct api api;
};

bool served_open(struct served *served, const struct server_options *options, struct error *err);
void served_close(struct served *served);

#endif
