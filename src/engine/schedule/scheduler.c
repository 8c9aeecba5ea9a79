// SPDX-License-Identifier: Apache-2.0
// engine/schedule/scheduler.c: the continuous batching scheduler, with one token budget per step for prefill and
// decode.
//   (1) requests that decode get their token first; prompts get the rest of the budget, and while any request decodes
//       at most 1/SCHEDULER_PROMPT_SHARE of it, so that a long prompt does not hold up the others
//   (2) a request is admitted when enough pages are free for everything it has to read, besides those that running
//       requests still need for their prompts and one for each to decode; a step that preempts admits no request
//   (3) at most as many run as can continue in one step
//   (4) a request that lacks a page preempts the last in the order, which has no chunk yet: chunks are given in order
#include "engine/schedule/scheduler.h"

#include <assert.h>
#include <stdlib.h>

static int smaller(int a, int b) { return a < b ? a : b; }

void scheduler_open(struct scheduler *scheduler, const struct scheduler_options *options)
{
    *scheduler = (struct scheduler){ .options = *options };
    int *running_max = &scheduler->options.running_max;
    *running_max = smaller(*running_max, smaller(options->batch_tokens, options->outputs)); // (3)
    scheduler->chunks = memory_new((size_t)*running_max, sizeof *scheduler->chunks);
}

void scheduler_close(struct scheduler *scheduler)
{
    assert(!scheduler->running.count && !scheduler->waiting.count);
    free(scheduler->chunks);
    *scheduler = (struct scheduler){ 0 };
}

// ---- queues ----

static bool goes_before(const struct scheduler *scheduler, const struct request *a, const struct request *b)
{
    if (scheduler->options.by_priority && a->priority != b->priority)
        return a->priority < b->priority;
    return a->name < b->name;
}

static struct request_queue *queue_of(struct scheduler *scheduler, const struct request *request)
{
    return request->running ? &scheduler->running : &scheduler->waiting;
}

// Into the order, looked for from the end, where most belong.
static void enqueue(struct scheduler *scheduler, struct request *request)
{
    struct request_queue *queue = queue_of(scheduler, request);
    struct request *before = queue->last;
    while (before && goes_before(scheduler, request, before))
        before = before->before;
    request->before = before;
    request->after = before ? before->after : queue->first;
    *(request->before ? &request->before->after : &queue->first) = request;
    *(request->after ? &request->after->before : &queue->last) = request;
    queue->count++;
}

static void dequeue(struct scheduler *scheduler, struct request *request)
{
    struct request_queue *queue = queue_of(scheduler, request);
    *(request->before ? &request->before->after : &queue->first) = request->after;
    *(request->after ? &request->after->before : &queue->last) = request->before;
    queue->count--;
}

struct request *scheduler_find(const struct scheduler *scheduler, uint64_t name)
{
    const struct request_queue *queues[] = { &scheduler->running, &scheduler->waiting };
    for (int i = 0; i < 2; i++)
        for (struct request *request = queues[i]->first; request; request = request->after)
            if (request->name == name)
                return request;
    return NULL;
}

void scheduler_add(struct scheduler *scheduler, struct request *request, const struct nibble_request *params,
                   double now)
{
    const struct scheduler_options *options = &scheduler->options;
    int prompt_count = (int)params->prompt_count, length = prompt_count + params->max_tokens;
    for (int i = 0; i < options->classes; i++)
        assert(kv_table_pages_needed(&options->pools[i].class, length, options->batch_tokens)
               <= options->pools[i].page_count);
    *request = (struct request){
        .name = ++scheduler->last_name,
        .prompt_count = prompt_count,
        .priority = params->priority,
        .next_output = params->score_prompt ? 0 : prompt_count - 1,
        .leader = params->after ? scheduler_find(scheduler, params->after) : NULL,
        .usage = { .prompt_tokens = prompt_count, .arrived = now },
    };
    sequence_open(&request->sequence, options->pools, options->classes, length);
    sequence_append(&request->sequence, params->prompt, prompt_count);
    if (options->prefix_cache)
        kv_prefix_open(&request->prefix, (struct bytes){ params->cache_salt, params->cache_salt_len }, length);
    enqueue(scheduler, request);
}

void scheduler_remove(struct scheduler *scheduler, struct request *request)
{
    dequeue(scheduler, request);
    for (struct request *other = scheduler->waiting.first; other; other = other->after)
        if (other->leader == request)
            other->leader = NULL;
    for (int i = 0; i < scheduler->chunk_count; i++)
        if (scheduler->chunks[i].request == request)
            scheduler->chunks[i].request = NULL;
    sequence_close(&request->sequence);
    kv_prefix_close(&request->prefix);
}

// ---- pages ----

static void preempt(struct scheduler *scheduler, struct request *request)
{
    dequeue(scheduler, request);
    sequence_give_up_pages(&request->sequence);
    request->running = false;
    request->usage.preemptions++;
    scheduler->counts.preemptions++;
    enqueue(scheduler, request);
}

// The pages of one class that the running requests still need, for the tokens they have and for one more page of tokens
// each. A request that is admitted without regard to them might be preempted in the next step.
static int pages_reserved(const struct scheduler *scheduler, int class)
{
    int pages = 0;
    for (const struct request *request = scheduler->running.first; request; request = request->after)
        pages += kv_table_pages_missing(&request->sequence.tables[class], request->sequence.count + KV_PAGE_TOKENS,
                                        scheduler->options.batch_tokens);
    return pages;
}

bool scheduler_has_slack(const struct scheduler *scheduler)
{
    for (int i = 0; i < scheduler->options.classes; i++)
        if (pages_reserved(scheduler, i) > scheduler->options.pools[i].free_count)
            return false;
    return true;
}

// Takes what the cache has of a request's beginning. The first token whose logits are wanted is always read.
static void take_beginning(struct scheduler *scheduler, struct request *request)
{
    struct sequence *sequence = &request->sequence;
    int pages = request->next_output / KV_PAGE_TOKENS;
    if (!scheduler->options.prefix_cache)
        return;
    kv_prefix_extend(&request->prefix, sequence->ids, pages);
    pages = kv_prefix_find(&request->prefix, sequence->tables, sequence->classes, pages);
    kv_prefix_take(&request->prefix, sequence->tables, sequence->classes, pages);
    sequence->cached = pages * KV_PAGE_TOKENS;
}

// Whether the pages for all that a waiting request has to read are there. (2)
static bool has_room(const struct scheduler *scheduler, const struct request *request)
{
    const struct sequence *sequence = &request->sequence;
    for (int i = 0; i < sequence->classes; i++) {
        const struct kv_table *table = &sequence->tables[i];
        int missing = kv_table_pages_missing(table, sequence->count, scheduler->options.batch_tokens);
        if (missing + pages_reserved(scheduler, i) > table->pool->free_count)
            return false;
    }
    return true;
}

// ---- a step ----

static int tokens_left(const struct request *request) { return request->sequence.count - request->sequence.cached; }

// The next chunk of a request, 0 tokens when the step has no room for it. One token needs no share: it was set aside.
static struct chunk next_chunk(const struct scheduler *scheduler, struct request *request, bool set_aside)
{
    struct chunk chunk = { .request = request, .first = request->sequence.cached, .count = 1 };
    int before_outputs = request->next_output - chunk.first;
    if (!set_aside)
        chunk.count = smaller(smaller(sequence_readable(&request->sequence), scheduler->prompt_tokens),
                              before_outputs + scheduler->prompt_outputs);
    chunk.outputs = chunk.count > before_outputs ? chunk.count - before_outputs : 0;
    return chunk;
}

static void give_chunk(struct scheduler *scheduler, struct chunk chunk, bool set_aside)
{
    scheduler->chunks[scheduler->chunk_count++] = chunk;
    if (set_aside)
        return;
    scheduler->prompt_tokens -= chunk.count;
    scheduler->prompt_outputs -= chunk.outputs;
}

// Pages for a chunk, taken from the last in the order if need be. False: the request was the last itself.
static bool find_pages(struct scheduler *scheduler, const struct chunk *chunk)
{
    while (!sequence_take_pages(&chunk->request->sequence, chunk->count)) {
        struct request *victim = scheduler->running.last;
        preempt(scheduler, victim);
        if (victim == chunk->request)
            return false;
    }
    return true;
}

// Divides the step's tokens and rows between those that continue and those that read. (1)
static void divide_budget(struct scheduler *scheduler)
{
    const struct scheduler_options *options = &scheduler->options;
    int continuing = 0, share = options->batch_tokens;
    for (struct request *request = scheduler->running.first; request; request = request->after)
        continuing += tokens_left(request) <= 1; // those that were held have a row, too
    if (continuing) {
        share /= SCHEDULER_PROMPT_SHARE;
        share = share > SCHEDULER_PROMPT_TOKENS_MIN ? share : SCHEDULER_PROMPT_TOKENS_MIN;
    }
    scheduler->prompt_tokens = smaller(share, options->batch_tokens - continuing);
    scheduler->prompt_outputs = options->outputs - continuing;
}

// A chunk for each that runs, in order. False when one had to be preempted.
static bool continue_running(struct scheduler *scheduler)
{
    uint64_t preemptions = scheduler->counts.preemptions;
    for (struct request *request = scheduler->running.first, *next; request; request = next) {
        bool set_aside = tokens_left(request) == 1;
        struct chunk chunk = next_chunk(scheduler, request, set_aside);
        if (chunk.count && !find_pages(scheduler, &chunk))
            break;
        if (chunk.count)
            give_chunk(scheduler, chunk, set_aside);
        next = request->after;
    }
    return scheduler->counts.preemptions == preemptions;
}

static void note_first_admission(struct scheduler *scheduler, struct request *request, double now)
{
    request->usage.admitted = now;
    request->usage.cached_tokens = request->sequence.cached;
    if (scheduler->options.prefix_cache && request->next_output) {
        scheduler->counts.prefix_queries += (uint64_t)request->prompt_count;
        scheduler->counts.prefix_hits += (uint64_t)request->sequence.cached;
    }
}

// False: there is no room for it now.
static bool admit(struct scheduler *scheduler, struct request *request, double now)
{
    take_beginning(scheduler, request);
    struct chunk chunk = next_chunk(scheduler, request, false);
    if (!chunk.count || !has_room(scheduler, request)) {
        sequence_give_up_pages(&request->sequence);
        return false;
    }
    bool taken = sequence_take_pages(&request->sequence, chunk.count);
    assert(taken);
    if (!request->usage.preemptions)
        note_first_admission(scheduler, request, now);
    dequeue(scheduler, request);
    request->running = true;
    request->leader = NULL;
    enqueue(scheduler, request);
    give_chunk(scheduler, chunk, false);
    return true;
}

// In order, as long as there is room. One that waits for its leader lets others pass.
static void admit_waiting(struct scheduler *scheduler, double now)
{
    for (struct request *request = scheduler->waiting.first, *next; request; request = next) {
        next = request->after;
        if (scheduler->running.count == scheduler->options.running_max || !scheduler->prompt_tokens)
            return;
        if (request->leader && !request->leader->prompt_read)
            continue;
        if (!admit(scheduler, request, now))
            return;
    }
}

bool scheduler_decide(struct scheduler *scheduler, double now)
{
    scheduler->chunk_count = 0;
    divide_budget(scheduler);
    if (continue_running(scheduler))
        admit_waiting(scheduler, now);
    return scheduler->chunk_count > 0;
}

bool scheduler_is_awaited(const struct scheduler *scheduler)
{
    for (int i = 0; i < scheduler->chunk_count; i++)
        if (scheduler->chunks[i].request)
            return true;
    return false;
}

void scheduler_computed(struct scheduler *scheduler)
{
    scheduler->counts.steps++;
    for (int i = 0; i < scheduler->chunk_count; i++) {
        struct request *request = scheduler->chunks[i].request;
        if (!request)
            continue;
        struct sequence *sequence = &request->sequence;
        sequence->cached += scheduler->chunks[i].count;
        if (sequence->cached > request->next_output)
            request->next_output = sequence->cached;
        if (scheduler->options.prefix_cache) {
            int pages = sequence->cached / KV_PAGE_TOKENS;
            kv_prefix_extend(&request->prefix, sequence->ids, pages);
            kv_prefix_remember(&request->prefix, sequence->tables, sequence->classes, pages);
        }
        sequence_evict(sequence);
        if (!request->prompt_read && sequence->cached >= request->prompt_count) {
            request->prompt_read = true;
            scheduler->counts.prompt_tokens += (uint64_t)request->prompt_count;
        }
    }
}

void scheduler_add_placeholder(struct request *request, int32_t placeholder)
{
    assert(request->running && tokens_left(request) == 0);
    sequence_append(&request->sequence, &placeholder, 1);
    request->has_placeholder = true;
}

void scheduler_hold(struct request *request)
{
    assert(request->running && tokens_left(request) == 0);
    request->next_output = request->sequence.count - 1;
}

void scheduler_continue(struct scheduler *scheduler, struct request *request, int32_t id)
{
    if (request->next_output < request->sequence.cached)
        request->next_output = request->sequence.cached; // it was held
    if (!request->has_placeholder)
        scheduler_add_placeholder(request, id);
    request->sequence.ids[request->sequence.count - 1] = id;
    request->has_placeholder = false;
    request->usage.answer_tokens++;
    scheduler->counts.answer_tokens++;
}

void scheduler_stats(const struct scheduler *scheduler, struct nibble_scheduler_stats *out)
{
    *out = scheduler->counts;
    out->running = scheduler->running.count;
    out->waiting = scheduler->waiting.count;
    for (int i = 0; i < scheduler->options.classes; i++) {
        const struct kv_pool *pool = &scheduler->options.pools[i];
        double use = 1 - (double)pool->free_count / pool->page_count;
        out->cache_use = use > out->cache_use ? use : out->cache_use;
    }
}
