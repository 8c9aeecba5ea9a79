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

struct kind {
    const char *id_prefix;
    enum endpoint endpoint; // whose fields a request may have; 0: it has no body, and its path says all
    enum endpoint reads_as; // ON_CHAT or ON_COMPLETION, whose fields are read; 0: nothing is generated
    bool cuts_length;       // max_tokens beyond the context is cut to what is left of it, not refused
    const char *prompt_field;
    // Rewrites job->json, whose fields are checked, as a body of `reads_as`; NULL: it is one. False: an error or a
    // reply. It may change the job's kind.
    bool (*translate)(struct job *job);
    bool (*read)(struct job *job);
    // As answer_stream and answer_whole (answer.h); NULL where nothing is generated.
    bool (*stream)(struct job *job, struct strbuf *out);
    bool (*whole)(struct job *job, struct strbuf *out);
    void (*stream_error)(const struct api_error *err, struct strbuf *out); // the last events of a stream that fails
    const char *stream_type;          // of a stream's content; NULL: server-sent events
    const struct field_name *renamed; // fields whose names are others there, for errors; NULL: none
};

extern const struct kind kinds[];

// An error is about the client's field: "max_tokens" was "options.num_predict".
void kind_rename_field(const struct job *job, struct api_error *err);

static inline const struct kind *kind_of(const struct job *job) { return &kinds[job->kind]; }
static inline bool kind_is_chat(const struct job *job) { return kinds[job->kind].reads_as == ON_CHAT; }

#endif
