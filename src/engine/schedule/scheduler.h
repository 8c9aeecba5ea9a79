// SPDX-License-Identifier: Apache-2.0
// engine/schedule/scheduler.h: the continuous batching scheduler (Orca, vLLM), with chunked prefill and preemption by
// recomputation: it decides how many tokens of which request are computed in the next step. The scheduler computes
// nothing itself: generate.c or a simulation carries its chunks out and reports the tokens. Its decisions depend on
// these reports alone.
//
// Overlapped scheduling: the caller may report that a step has been computed as soon as later steps will find its pages
// written, and add placeholders for tokens that are not known yet. The scheduler then decides the next step, assuming
// that no request ends. A request that does end is taken out, and leaves a gap in the chunks.
//
// Requests stand in one order: by arrival, or by priority and then arrival. The first in it go first and are preempted
// last, so the very first always gets ahead. Preempted requests give up their pages, wait in their old place and read
// everything again, or find it in the prefix cache.
#ifndef ENGINE_SCHEDULE_SCHEDULER_H
#define ENGINE_SCHEDULE_SCHEDULER_H

#include "engine/sequence.h"
#include "kv/prefix.h"
#include "nibble.h"

// While any request decodes, prompts get a quarter of the token budget of a step, and at least a page.
enum { SCHEDULER_PROMPT_SHARE = 4, SCHEDULER_PROMPT_TOKENS_MIN = KV_PAGE_TOKENS };

struct scheduler_options {
    struct kv_pool *pools; // borrowed; each holds one sequence of any length that is ever added
    int classes;
    int batch_tokens, outputs; // tokens and rows of logits in one step
    int running_max;           // requests in one step (max_num_seqs)
    bool prefix_cache, by_priority;
};

// One text being read and continued. Its owner keeps the memory; the rest is the scheduler's.
struct request {
    uint64_t name; // the id that callers cancel it by; rises with arrival
    int prompt_count, priority;
    struct sequence sequence;
    struct kv_prefix prefix; // empty without a prefix cache
    int next_output;         // the first position whose logits are still wanted
    bool running;
    bool has_placeholder;         // its last token is being drawn: a placeholder token stands for it
    bool prompt_read;             // once, whatever happened later
    const struct request *leader; // while it waits for shared prefix pages: the request that computes them, or NULL
    struct nibble_usage usage;
    struct request *before, *after; // its neighbours in the queue
};

struct request_queue {
    struct request *first, *last;
    int count;
};

// The next `count` tokens of a request, from position `first` on; logits are wanted after the last `outputs` of them.
struct chunk {
    struct request *request; // NULL: it was taken out
    int first, count, outputs;
};

struct scheduler {
    struct scheduler_options options;
    struct request_queue running, waiting; // in their order
    struct chunk *chunks;                  // (running_max), of the step that was decided last
    int chunk_count;
    int prompt_tokens, prompt_outputs; // left for prompts in this step
    uint64_t last_name;
    struct nibble_scheduler_stats counts;
};

void scheduler_open(struct scheduler *scheduler, const struct scheduler_options *options);
void scheduler_close(struct scheduler *scheduler); // no request may be left

// Fills *request and queues it. The scheduler reads the prompt, its length and max_tokens, whether the prompt is
// scored, the priority, the salt of the prefix cache, and the request to wait for.
void scheduler_add(struct scheduler *scheduler, struct request *request, const struct nibble_request *params,
                   double now);

// Takes a request out, finished or not, also of the chunks; its pages are free afterwards.
void scheduler_remove(struct scheduler *scheduler, struct request *request);

struct request *scheduler_find(const struct scheduler *scheduler, uint64_t name); // NULL: there is none

// Chooses the chunks of the next step, with their pages. False: there is nothing to read.
bool scheduler_decide(struct scheduler *scheduler, double now);

bool scheduler_is_awaited(const struct scheduler *scheduler); // whether any of the chunks still has a request

// The chunks have been computed and their pages written, as far as later steps can see.
void scheduler_computed(struct scheduler *scheduler);

// Whether the next step preempts no request, even if all that run continue.
bool scheduler_has_slack(const struct scheduler *scheduler);

// A request whose every token has been read will continue; the placeholder stands for its next token until that is
// known.
void scheduler_add_placeholder(struct request *request, int32_t placeholder);

// A request whose every token has been read is held: it takes no part in steps until it continues. When it is preempted
// meanwhile, the logits of its last token are wanted again.
void scheduler_hold(struct request *request);

// The request continues with this token, which replaces its placeholder if it has one.
void scheduler_continue(struct scheduler *scheduler, struct request *request, int32_t id);

void scheduler_stats(const struct scheduler *scheduler, struct nibble_scheduler_stats *out); // all but cache_tokens

#endif
