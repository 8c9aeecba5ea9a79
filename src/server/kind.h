// SPDX-License-Identifier: Apache-2.0
// server/kind.h: the kinds of requests that become jobs, a row each: whose fields they have, what reads them and what
// writes their answers. A further API is a row: its reader rewrites a request as a chat or a completion, and its writer
// puts the answer into that API's words.
#ifndef SERVER_KIND_H
#define SERVER_KIND_H

#include "server/job.h"

// A field of a chat or a completion, as the client's API calls it. The last one of a list has no names.
struct field_name {
    const char *own, *client;
};

// The words of an API: how its answers are written (answer.h).
struct dialect {
    // Writes what has come. False: there is more. Behind the last of it comes `end`, or a failure.
    bool (*stream)(struct job *job, struct strbuf *out);
    void (*end)(const struct job *job, struct strbuf *out); // NULL: `stream` writes the end, and what failed
    // A whole answer's steps, done for each choice (DIALECT_STEPS).
    bool (*const *whole)(struct job *job, struct choice *choice, struct strbuf *out);
    int whole_steps;
    enum api_style style;
    const char *failure_open, *failure_close; // what stands around the error of a stream that fails
    const char *stream_type;                  // of a stream's content; NULL: server-sent events
    const struct field_name *renamed;         // fields whose names are others there, for errors; NULL: none
};
#define DIALECT_STEPS(steps) .whole = (steps), .whole_steps = sizeof(steps) / sizeof *(steps)

struct kind {
    const char *id_prefix;
    enum endpoint endpoint;        // whose fields a request may have; 0: it has no body, and its path says all
    enum endpoint reads_as;        // ON_CHAT or ON_COMPLETION, whose fields are read; 0: nothing is generated
    const struct dialect *dialect; // NULL where nothing is generated, and no field is renamed
    bool cuts_length;              // max_tokens beyond the context is cut to what is left of it, not refused
    const char *prompt_field;
    // Rewrites job->json, whose fields are checked, as a body of `reads_as`; NULL: it is one. False: an error or a
    // reply. It may change the job's kind.
    bool (*translate)(struct job *job);
    bool (*read)(struct job *job);
};

extern const struct kind kinds[];
extern const struct dialect openai_dialect, llama_dialect, messages_dialect, ollama_dialect, responses_dialect;

// An error is about the client's field: "max_tokens" was "options.num_predict".
void kind_rename_field(const struct job *job, struct api_error *err);

static inline const struct kind *kind_of(const struct job *job) { return &kinds[job->kind]; }
static inline bool kind_is_chat(const struct job *job) { return kinds[job->kind].reads_as == ON_CHAT; }

#endif
