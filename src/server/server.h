// SPDX-License-Identifier: Apache-2.0
// server/server.h: the HTTP server of `nibble serve`: a model behind the OpenAI API.
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "nibble.h"
#include "server/access.h"
#include "server/http.h"
#include "server/log.h"

// Names follow the flags. Everything is borrowed until server_run returns.
struct server_options {
    const char *model;              // a path, or org/name in the Hugging Face cache
    const char *const *model_names; // what clients call it; the first is the one in answers
    int model_name_count;           // 0: the name of the model's file or folder
    const char *host;
    int port;                     // 0: a free one
    const char *uds;              // a socket's path in place of host and port; NULL: TCP
    struct access_options access; // no key is empty
    bool share_prefix_cache;      // between keys, too
    const char *chat_template;    // a file; NULL: the model's own
    const char *reasoning_parser; // a name; NULL: the form is found in the chat template
    bool no_reasoning;            // thoughts stay in the text
    int max_reasoning_tokens;     // of requests without their own; -1: any number
    bool slots;                   // GET /slots answers
    const char *tool_call_parser; // a form of tool calls; NULL: the one that the template asks for
    bool trust_request_chat_template, enable_tokenizer_info_endpoint;
    struct nibble_options engine;
    struct nibble_scheduler_options scheduler;
    struct nibble_defaults_options defaults;
    bool has_seed;
    uint64_t seed; // of requests without their own, where has_seed
    struct http_limits http;
    size_t inflight_bytes;       // what requests in flight may hold; 0: a share of the machine's free memory
    size_t response_store_bytes; // what stored responses of /v1/responses may hold
    int response_store_count;    // and how many there may be; 0: none is stored
    int queue;                   // requests that wait; the next one is answered 429
    double stall_seconds;        // without any progress: /health is 503
    double drain_seconds;        // what is running may take as long after SIGTERM
    struct log log;
    // Called when the address is taken and before the model is loaded; false keeps the server from starting. NULL:
    // there is nothing to check.
    bool (*before_load)(void *context, struct error *err);
    void *before_load_context;
};

// Serves until SIGTERM or SIGINT. The exit status: 0 after a drain, 1 when it cannot start or one of the processes that
// compute the model is lost, 2 for an option's value.
int server_run(const struct server_options *options);

#endif
