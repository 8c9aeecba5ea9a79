// SPDX-License-Identifier: Apache-2.0
// server/job.h: a request on its way. One thread at a time owns it, and it goes round once:
//
//   loop (bytes) -> reader (fields, tokens, grammar) -> worker (the engine) -> loop (the answer), which frees it
//
// The reader sends what it refuses, and what needs no engine, straight back to the loop. While the worker has a job,
// the loop hears of it through the choices' mail, which the post (post.h) hands over under its lock.
#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include <stdatomic.h>

#include "server/fields.h"
#include "server/request_id.h"
#include "text/tools.h"

enum job_kind { JOB_CHAT, JOB_COMPLETION, JOB_TOKENIZE, JOB_DETOKENIZE };

// What has happened to a choice, in order.
struct mail {
    struct strbuf text;                    // what has become certain
    struct answer_token {
        int32_t id;
        bool scored, stop;
        float logprob;
        int top_first, top_count;          // in tops
        double at;                         // when it came, in seconds of the worker's clock
    } *tokens;
    int token_count, token_capacity;
    struct nibble_candidate *tops;
    int top_count, top_capacity;
    int prompt_tokens;                     // how many of the tokens are the prompt's own, at the beginning

    bool finished;                         // the following are there
    enum nibble_finish reason;
    int stop_string;                       // index of the stop string that hit, -1: none
    int32_t stop_id;                       // the stop token that did, -1: none
    struct nibble_usage usage;
};

void mail_add(struct mail *mail, const struct nibble_token *token, double at);
void mail_move(struct mail *from, struct mail *to); // appends; *from is empty afterwards, its memory kept
void mail_clear(struct mail *mail);
void mail_free(struct mail *mail);

struct prompt {
    int32_t *ids;
    size_t count;
    struct bytes text;                     // as it was sent, .data NULL: as ids
};

struct choice {
    struct job *job;
    int index;                             // in the answer
    int number;                            // among the n of its prompt
    const struct prompt *prompt;

    // The worker's.
    uint64_t name;                         // the scheduler's, 0: not there
    struct detokenizer detokenizer;
    struct stop stop;
    int stop_hit;
    int32_t stop_id;
    struct matcher *matcher;               // NULL: any token may come
    struct tool_reader *call_watch;        // sees when the only call has come that there may be; NULL: nobody needs to
    struct mail draft;                     // of this step

    struct mail mail;                      // under the post's lock

    // The loop's.
    struct mail news, answer;              // what has just come, and all of it where the whole is needed at the end
    bool begun;                            // its first chunk is out, or its echo is in
    struct tool_reader *tools;             // NULL: the text is content
    struct tool_call {
        char id[32];
        struct strbuf name, arguments;
        size_t sent;                       // of the arguments
        bool named;                        // a chunk has told its name
    } *calls;
    int call_count;
    struct strbuf content;                 // since the last chunk, or all of it
    double token_at;                       // when its latest token came, 0: none has
    size_t text_offset;                    // of the next token in a completion's text, in characters
};

struct job {
    const struct api *api;
    enum job_kind kind;
    char id[48];                           // "chatcmpl-..."
    const char *path;                      // of its endpoint
    time_t created;
    double arrived;                        // in seconds of the worker's clock
    struct strbuf body;                    // the request as it came; empty once it is read
    size_t body_bytes;                     // that it had
    size_t charged_bytes;                  // to the server's budget, given back when the job is forgotten
    char request_id[REQUEST_ID_BYTES_MAX + 1]; // the client's name for it
    const unsigned char *tenant;           // digest of its API key, which keeps its prefix cache apart; NULL: shared
    atomic_bool cancelled;                 // the client has gone

    // The reader's, read by all later.
    json_t *json;                          // lends strings to everything below
    struct fields fields;
    struct prompt *prompts;
    int prompt_count;
    struct grammar *grammar;               // NULL: any text
    const json_t *tools;                   // whose calls are looked for in the answer; NULL: none
    enum tool_form tool_form;
    bool must_call, one_call;              // tool_choice asks for a call; at most one may come
    const char *must_name;                 // of this tool; NULL: of any
    struct choice *choices;
    int choice_count;

    // How it ended where it never came to an answer: error.status, or else `reply`.
    struct api_error error;
    json_t *reply;

    // The worker's.
    struct worker *worker;
    int started, running;                  // choices: given to the scheduler so far, and still there
    struct job *next_run;                  // of all that it has
    bool touched;                          // in this step

    // Under the post's lock.
    struct job *next_posted;
    bool posted, accepted_mail, over_mail; // over: the worker and the reader have let go of it

    // The loop's.
    struct http_exchange *exchange;        // NULL: the client has gone, or has its answer
    bool accepted, over, streaming;        // streaming: the head of the answer is out
    struct job *next, *previous;           // of all
};

struct job *job_new(const struct api *api, enum job_kind kind, const char *path);
void job_free(struct job *job);

// prompts x n choices, in the order of the answer.
void job_make_choices(struct job *job);

#endif
