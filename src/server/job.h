// SPDX-License-Identifier: Apache-2.0
// server/job.h: an HTTP request on its way through the threads. One thread at a time owns it:
//
//   loop (bytes) -> reader (fields, tokens, grammar) -> worker (the engine) -> writer (the answer's text) -> loop
//
//   (1) every job comes back to the loop exactly once as over, through the outbox, and the loop alone frees it
//   (2) a reader hands what it refuses, and what needs no engine, straight to the writer
//   (3) while the worker has a job, the writer gets its output through the choices' output queues, under the mailbox's
//       lock; while the writer has it, the loop gets text through `outgoing`, under the outbox's lock
//   (4) when the client has gone, the loop sets `cancelled` and wakes the writer: nothing more is written, and the job
//       comes back as soon as reader and worker have released it
//   (5) what a job holds is charged to the budget (charged_bytes) and given back, all of it, when the writer is done
#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "base/memory.h"
#include "server/budget.h"
#include "server/fields.h"
#include "server/request_id.h"
#include "server/thought.h"
#include "text/tools.h"

// How far a job has come, for the health check (health.h) and metrics.
enum job_stage { JOB_READING, JOB_READ, JOB_RUNNING, JOB_WRITING };

enum { JOB_WARNING_BYTES = 512 };

enum job_kind {
    JOB_CHAT,
    JOB_COMPLETION,
    JOB_TOKENIZE,
    JOB_DETOKENIZE,
    JOB_INPUT_TOKENS,
    JOB_RESPONSE,
    JOB_RESPONSE_TOKENS,
    JOB_RESPONSE_GET,
    JOB_RESPONSE_ITEMS,
    JOB_RESPONSE_DELETE,
    JOB_RESPONSE_CANCEL,
    JOB_MESSAGES, // Anthropic's
    JOB_COUNT_TOKENS,
    JOB_OLLAMA_CHAT,
    JOB_OLLAMA_GENERATE,
    JOB_OLLAMA_RAW, // a generate whose prompt no template writes
    JOB_OLLAMA_SHOW,
    JOB_APPLY_TEMPLATE, // llama-server's
    JOB_LLAMA_COMPLETION,
    JOB_INFILL, // llama-server's
};

// Output of a choice: text, tokens and the end, in order.
struct output {
    struct strbuf text; // what has become certain
    struct answer_token {
        int32_t id;
        bool scored, stop;
        float logprob;
        int rank;                 // of a prompt's token
        int top_first, top_count; // in tops
        double at;                // when it came, in seconds of the worker's clock
    } *tokens;
    int token_count, token_capacity;
    struct nibble_candidate *tops;
    int top_count, top_capacity;
    struct output_run { // the text's parts in order; none: all of it is content
        bool reasoning;
        size_t len;
    } *runs;
    int run_count, run_capacity;
    int prompt_tokens;    // how many of the tokens are the prompt's own, at the beginning
    int reasoning_tokens; // and how many belong to a thought
    int discarded_tokens; // of answers before this one that did not meet their schema

    bool finished; // the following are there
    enum nibble_finish reason;
    int stop_string; // index of the stop string that hit, -1: none
    int32_t stop_id; // the stop token that did, -1: none
    struct nibble_usage usage;
};

void output_add(struct output *output, const struct nibble_token *token, double at);
void output_add_text(struct output *output, bool reasoning, struct bytes text);
void output_mark(struct output *output, bool reasoning, size_t len); // the text's last bytes, which were appended to it
void output_move(struct output *from, struct output *to); // appends; *from is empty afterwards, its memory kept
void output_clear(struct output *output);

// A part of an answer. A stream may drop the text that it has sent.
enum part_kind { PART_REASONING, PART_CONTENT, PART_CALL };
struct answer_part {
    enum part_kind kind;
    struct strbuf text; // of a call: its arguments
    struct strbuf name; // of a call
    char id[64];        // of a call
    int call;           // its place among the calls
    size_t sent;        // bytes of the text that a stream has sent
    size_t blank;       // bytes of the text that are known to be blank
    bool begun;         // its beginning is written (of a call: its name)
    int token_end;      // of the answer's kept tokens, how many had come with this part and those before it
};

struct prompt {
    int32_t *ids;
    size_t count;
    struct bytes text; // as it was sent, .data NULL: as ids
};

// One answer: the n of a prompt are n choices.
struct choice {
    struct job *job;
    int index;  // in the answer
    int number; // among the n of its prompt
    const struct prompt *prompt;

    // The worker's.
    uint64_t name; // the scheduler's, 0: not there
    struct detokenizer detokenizer;
    struct stop stop;
    int stop_hit;
    int32_t stop_id;
    struct thought thought;
    struct matcher *matcher;         // NULL: any token may come
    bool call_over;                  // the only call that there may be is complete:
    struct tool_reader *call_watch;  // detects the end of the only call that there may be; NULL: calls may be many
    struct output step_output;       // of this step
    struct output withheld;          // of all steps, where the answer is checked before it is sent
    struct output prompt_scores;     // prompt_logprobs; the writer's when the worker has released the job
    struct nibble_usage first_usage; // of the first attempt
    int attempt, discarded_tokens;
    bool again; // to be generated once more

    struct output queued_output; // under the mailbox's lock

    // The writer's.
    struct output delivered;   // taken from the queue last
    struct output answer;      // the tokens that are still to be written, and the end
    int generated;             // tokens of the answer so far, with those of discarded attempts
    int reasoning_tokens;      // of these, in thoughts
    int tokens_written;        // of answer.tokens, in a stream
    bool begun;                // its first chunk is out, or its echo is in
    bool ended;                // its last chunk is out
    struct tool_reader *tools; // NULL: the text is content
    struct answer_part *parts; // the text taken apart, in the order in which the model wrote it (parts.h)
    int part_count, call_count;
    double token_at;    // when its latest token came, 0: none has
    size_t text_offset; // of the next token in a completion's text, in characters
};

struct job {
    const struct api *api;
    enum job_kind kind;
    char id[48];          // "chatcmpl-..."
    const char *path;     // of its endpoint
    enum api_style style; // of its errors
    time_t created;
    double arrived;                            // in seconds of the worker's clock
    struct strbuf body;                        // the request as it came; empty once it is read
    size_t body_bytes;                         // that it had
    char request_id[REQUEST_ID_BYTES_MAX + 1]; // the client's name for it
    const unsigned char *tenant; // digest of its API key, which keeps its prefix cache apart; NULL: shared
    const unsigned char *owner;  // the digest, also where the cache is shared; NULL: no key is asked for
    atomic_bool cancelled;       // the client has gone
    atomic_int stage;            // enum job_stage
    struct budget *budget;       // NULL: nothing is charged
    size_t charged_bytes;        // of the budget; changed by the thread that owns the job
    size_t text_bytes_charged;   // of these, for the text of answers

    // Of /v1/responses and what is below it (responses.h).
    struct response_store *response_store; // NULL: nothing is stored
    struct response *response;             // what the request asks for beside a chat, and its writer; or NULL
    struct bytes target, query;            // what the path names, decoded, and its query; kept
    size_t recalled_bytes;                 // of stored items that were read for it

    // Between the readers: a small request that needs much of what is stored is read once more in the large lane.
    bool in_small_lane, leaves_lane;

    // The reader's, read by all later. The JSON is gone when the job is read: what is needed later is a copy in `kept`
    // or a reference of its own.
    json_t *json;
    struct arena kept;
    size_t kept_bytes;
    struct request_params params;
    struct prompt *prompts;
    int prompt_count;
    struct chat *own_chat;      // of the request's own template, until it is read; NULL: it has none
    struct grammar *grammar;    // NULL: any text
    const json_t *tools;        // whose calls are looked for in the answer; NULL: none
    const json_t *prompt_tools; // those that the prompt has, while it is read
    json_t *kept_tools;         // the reference that keeps them
    const struct tool_form *tool_form;
    const struct reasoning_form *reasoning; // how the model writes its thoughts; NULL: it is not looked for
    struct bytes prompt_end;                // of the rendered chat, which may open a thought
    bool keeps_markers;                     // thoughts stay in the content, with their markers
    bool drops_reasoning;                   // or are left out of the answer
    bool gathers_reasoning;                 // a stream sends a thought when it is whole
    bool may_think;                         // the model may open a thought: the prompt has not closed it
    int shortest_answer;                    // of the grammar, in tokens
    int max_reasoning_tokens;               // a longer thought is closed; -1: it may have any length
    bool must_call, one_call;               // tool_choice asks for a call; at most one may come
    const char *must_name;                  // of this tool; NULL: of any
    json_t *schema;                         // of an answer that is no call; NULL: none
    bool checked, strict;                   // answers are validated (check.h); one that fails is an error
    char warning[JOB_WARNING_BYTES];        // for the log; empty: none
    struct choice *choices;
    int choice_count;

    // How it ended where it never came to an answer: error.status, or else `reply`, as JSON text.
    struct api_error error;
    struct strbuf reply;

    // The worker's.
    struct worker *worker;
    int started, running; // choices: given to the scheduler so far, and still there
    int waiting;          // of those running, to be generated again
    struct job *next_run; // of all that it has
    bool touched;         // in this step

    // Under the mailbox's lock.
    STAILQ_ENTRY(job) in_mailbox_list;
    bool in_mailbox, over_in_mailbox; // over: the worker and the reader have released it
    bool sent_to_writer;              // by a reader or the worker: the writer may look at it
    bool written;                     // the writer has released it, too

    // The writer's.
    bool released;         // over_in_mailbox, when the writer took it last
    bool begun;            // a stream's first event is written
    bool complete;         // all of the answer is in `text`, or was
    struct answer_cursor { // how far an answer is written
        int choice, step;
        int part;    // of the choice
        int event;   // of those that end an item of a response
        int segment; // of an item
        size_t at;   // within the step, the part or the segment
        int list;    // within the step: of several lists or texts
        int block;   // content blocks or items begun
    } cursor;
    struct strbuf text;         // the next slice
    atomic_size_t unsent_bytes; // written, and not taken by the client's socket yet
    atomic_bool stalled;        // the writer waits for the socket

    // Under the outbox's lock.
    STAILQ_ENTRY(job) in_outbox_list;
    struct strbuf outgoing;
    bool in_outbox, over_outgoing;

    // The loop's.
    struct http_exchange *exchange; // NULL: the client has gone, or has its answer
    bool over;                      // all others have released it
    bool streaming;                 // the head of the answer is out
    size_t sending_bytes;           // given to the socket, and not taken by the client yet
    struct job *next, *previous;    // of all
};

STAILQ_HEAD(job_queue, job);

struct job *job_new(const struct api *api, enum job_kind kind, const char *path);
void job_free(struct job *job);

// The chat template of a request; NULL: there is none.
static inline const struct chat *job_chat(const struct job *job)
{
    return job->own_chat ? job->own_chat : job->api->chat;
}

// Frees the body, its JSON and its template, once the fields are read.
void job_drop_json(struct job *job);
// Frees all that is large and its charge; the fields for the log stay.
void job_empty(struct job *job);
// Charges the job with so much in all. False: the budget has no room for more, and the charge stays.
bool job_charge(struct job *job, size_t total_bytes);

// prompts x n choices, in the order of the answer.
void job_make_choices(struct job *job);

#endif
