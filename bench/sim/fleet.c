// SPDX-License-Identifier: Apache-2.0
#include "sim/fleet.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kv/layout.h"

struct event {
    double time;
    uint64_t order; // of those at the same time
    bool is_step;   // a server's step ends; else a session has its next turn
    int index;      // of the server or the session
};

struct server {
    struct kv_pool pool;
    struct scheduler scheduler;
    bool computing;
    int requests;
};

// A turn that a server is answering.
struct visit {
    struct request request; // first: chunks name it
    int session, turn;
    double first_token;
    bool counts;
};

struct fleet {
    const struct fleet_options *options;
    const struct traffic *traffic;
    struct fleet_result *result;
    struct router router;
    struct server *servers;
    struct progress {
        int turn, tokens; // the next one's number; what the session has said so far
    } *progress;          // (sessions)
    struct event *events; // a heap, the next one first
    size_t event_count, event_room;
    uint64_t last_order;
    double now, end, last_end;
    double next_scrape;
    int32_t *prompt;
    int prompt_room;
};

// ---- events ----

static bool comes_before(const struct event *a, const struct event *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void add_event(struct fleet *fleet, double time, bool is_step, int index)
{
    struct event event = { time, ++fleet->last_order, is_step, index };
    if (fleet->event_count == fleet->event_room) {
        fleet->event_room = 2 * fleet->event_room + 64;
        fleet->events = memory_grow(fleet->events, fleet->event_room, sizeof *fleet->events);
    }
    size_t at = fleet->event_count++;
    for (; at && comes_before(&event, &fleet->events[(at - 1) / 2]); at = (at - 1) / 2)
        fleet->events[at] = fleet->events[(at - 1) / 2];
    fleet->events[at] = event;
}

static struct event next_event(struct fleet *fleet)
{
    struct event first = fleet->events[0], moved = fleet->events[--fleet->event_count];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < fleet->event_count) {
        child += child + 1 < fleet->event_count && comes_before(&fleet->events[child + 1], &fleet->events[child]);
        if (!comes_before(&fleet->events[child], &moved))
            break;
        fleet->events[at] = fleet->events[child];
        at = child;
    }
    fleet->events[at] = moved;
    return first;
}

// ---- what is measured ----

static void note(struct distribution *distribution, double value)
{
    int count = distribution->count++;
    if (!(count & (count - 1))) // full: room for as many again
        distribution->values = memory_grow(distribution->values, 2 * (size_t)count + 1, sizeof *distribution->values);
    distribution->values[count] = value;
    distribution->mean += value;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void complete(struct distribution *distribution)
{
    int count = distribution->count;
    if (!count)
        return;
    qsort(distribution->values, (size_t)count, sizeof *distribution->values, by_size);
    distribution->mean /= count;
    distribution->p50 = distribution->values[count / 2];
    distribution->p99 = distribution->values[(int)(count * 0.99)];
}

static bool counts_now(const struct fleet *fleet)
{
    return fleet->now >= fleet->options->warm_up && fleet->now < fleet->end;
}

static void note_visit(struct fleet *fleet, const struct visit *visit)
{
    struct fleet_result *result = fleet->result;
    const struct nibble_usage *usage = &visit->request.usage;
    result->requests++;
    result->prompt_tokens += usage->prompt_tokens;
    result->cached_tokens += usage->cached_tokens;
    result->preemptions += (uint64_t)usage->preemptions;
    note(&result->prompt, usage->prompt_tokens);
    note(&result->first_token, visit->first_token - usage->arrived);
    if (usage->answer_tokens > 1)
        note(&result->token, (fleet->now - visit->first_token) / (usage->answer_tokens - 1));
    fleet->last_end = fleet->now;
}

// ---- servers ----

static void start_step(struct fleet *fleet, struct server *server)
{
    const struct scheduler *scheduler = &server->scheduler;
    server->computing = scheduler_decide(&server->scheduler, fleet->now);
    if (!server->computing)
        return;
    double seconds = step_time_of(&fleet->options->step_time, scheduler->chunks, scheduler->chunk_count);
    add_event(fleet, fleet->now + seconds, true, (int)(server - fleet->servers));
}

static void leave(struct fleet *fleet, struct server *server, struct visit *visit)
{
    const struct session *session = &fleet->traffic->sessions[visit->session];
    int next = visit->turn + 1;
    if (visit->counts)
        note_visit(fleet, visit);
    fleet->progress[visit->session] = (struct progress){ next, visit->request.sequence.count };
    if (next < session->turns) {
        double think = fleet->traffic->turns[session->first_turn + next].think;
        add_event(fleet, fleet->now + think, false, visit->session);
    }
    scheduler_remove(&server->scheduler, &visit->request);
    free(visit);
}

// The token after all that was read so far.
static void draw(struct fleet *fleet, struct server *server, struct visit *visit)
{
    const struct session *session = &fleet->traffic->sessions[visit->session];
    const struct sequence *sequence = &visit->request.sequence;
    int32_t id;
    if (sequence->cached < sequence->count)
        return;
    traffic_text(session, sequence->count, sequence->count + 1, &id);
    scheduler_continue(&server->scheduler, &visit->request, id);
    fleet->result->answer_tokens += counts_now(fleet);
    if (visit->request.usage.answer_tokens == 1)
        visit->first_token = fleet->now;
    if (visit->request.usage.answer_tokens == fleet->traffic->turns[session->first_turn + visit->turn].answer)
        leave(fleet, server, visit);
}

static void end_step(struct fleet *fleet, struct server *server)
{
    struct scheduler *scheduler = &server->scheduler;
    scheduler_computed(scheduler);
    fleet->result->steps += counts_now(fleet);
    for (int i = 0; i < scheduler->chunk_count; i++)
        draw(fleet, server, (struct visit *)scheduler->chunks[i].request);
    start_step(fleet, server);
}

// ---- arrivals ----

// The router sees the last scraped metrics until the next scrape.
static void scrape(struct fleet *fleet)
{
    if (fleet->now < fleet->next_scrape)
        return;
    if (fleet->options->scrape > 0)
        fleet->next_scrape = (floor(fleet->now / fleet->options->scrape) + 1) * fleet->options->scrape;
    for (int i = 0; i < fleet->router.servers; i++) {
        struct nibble_scheduler_stats stats;
        scheduler_stats(&fleet->servers[i].scheduler, &stats);
        fleet->router.views[i] = (struct view){ stats.waiting, stats.running, stats.cache_use, 0 };
    }
}

static void arrive(struct fleet *fleet, int index)
{
    const struct session *session = &fleet->traffic->sessions[index];
    const struct progress *progress = &fleet->progress[index];
    const struct turn *turn = &fleet->traffic->turns[session->first_turn + progress->turn];
    int count = (progress->turn ? progress->tokens : session->system_tokens) + turn->user;
    if (count > fleet->prompt_room)
        fleet->prompt = memory_grow(fleet->prompt, (size_t)(fleet->prompt_room = count), sizeof *fleet->prompt);
    traffic_text(session, 0, count, fleet->prompt);
    struct server *server = &fleet->servers[router_pick(&fleet->router, fleet->prompt, count)];
    struct visit *visit = memory_new(1, sizeof *visit);
    *visit = (struct visit){ .session = index, .turn = progress->turn, .counts = counts_now(fleet) };
    server->requests += visit->counts;
    struct nibble_request request_params = { .prompt = fleet->prompt,
                                             .prompt_count = (size_t)count,
                                             .max_tokens = turn->answer };
    scheduler_add(&server->scheduler, &visit->request, &request_params, fleet->now);
    if (!server->computing)
        start_step(fleet, server);
}

// ---- the whole ----

static void fleet_open(struct fleet *fleet, const struct fleet_options *options, const struct traffic *traffic,
                       struct fleet_result *result)
{
    *result = (struct fleet_result){ 0 };
    *fleet = (struct fleet){ .options = options,
                             .traffic = traffic,
                             .result = result,
                             .end = options->seconds > 0 ? options->seconds : INFINITY };
    router_open(&fleet->router, &options->router);
    fleet->servers = memory_new((size_t)options->router.servers, sizeof *fleet->servers);
    fleet->progress = memory_new((size_t)traffic->session_count, sizeof *fleet->progress);
    for (int i = 0; i < options->router.servers; i++) {
        struct server *server = &fleet->servers[i];
        kv_pool_open(&server->pool, NULL, (struct kv_class){ .page_tokens = KV_PAGE_TOKENS }, 0, options->router.pages);
        scheduler_open(&server->scheduler,
                       &(struct scheduler_options){ .pools = &server->pool,
                                                    .classes = 1,
                                                    .batch_tokens = options->batch_tokens,
                                                    .outputs = options->running_max,
                                                    .running_max = options->running_max,
                                                    .prefix_cache = true });
    }
    for (int i = 0; i < traffic->session_count; i++)
        if (traffic->sessions[i].turns)
            add_event(fleet, traffic->sessions[i].begin, false, i);
}

static void fleet_close(struct fleet *fleet)
{
    for (int i = 0; i < fleet->router.servers; i++) {
        struct server *server = &fleet->servers[i];
        assert(server->pool.free_count == server->pool.page_count); // nobody is left
        scheduler_close(&server->scheduler);
        kv_pool_close(&server->pool);
    }
    router_close(&fleet->router);
    free(fleet->servers);
    free(fleet->progress);
    free(fleet->events);
    free(fleet->prompt);
}

static void sum_up(struct fleet *fleet)
{
    struct fleet_result *result = fleet->result;
    double most = 0;
    for (int i = 0; i < fleet->router.servers; i++)
        most = fmax(most, fleet->servers[i].requests);
    result->span = fmin(fleet->end, fleet->last_end) - fleet->options->warm_up;
    result->busiest = most * fleet->router.servers / result->requests;
    complete(&result->first_token);
    complete(&result->token);
    complete(&result->prompt);
}

void fleet_run(const struct fleet_options *options, const struct traffic *traffic, struct fleet_result *result)
{
    struct fleet fleet;
    fleet_open(&fleet, options, traffic, result);
    while (fleet.event_count) {
        struct event event = next_event(&fleet);
        fleet.now = event.time;
        scrape(&fleet);
        if (event.is_step)
            end_step(&fleet, &fleet.servers[event.index]);
        else if (fleet.now < fleet.end)
            arrive(&fleet, event.index);
    }
    sum_up(&fleet);
    fleet_close(&fleet);
}

void fleet_result_free(struct fleet_result *result)
{
    free(result->first_token.values);
    free(result->token.values);
    free(result->prompt.values);
    *result = (struct fleet_result){ 0 };
}
