// SPDX-License-Identifier: Apache-2.0
// server/deliver.c: from the post to the clients: chunks, whole answers and errors; then the log and the metrics.
#include "base/memory.h"
#include "server/answer.h"
#include "server/cors.h"
#include "server/serve.h"

// ---- to the client ------------------------------------------------------------------------------------------------

static void end_exchange(struct job *job)
{
    http_set_owner(job->exchange, NULL);
    job->exchange = NULL;
}

static void reply(struct server *server, struct job *job, struct bytes body)
{
    struct http_exchange *exchange = job->exchange;
    end_exchange(job);
    route_reply(server, exchange, job->path, 200, "application/json", body, worker_now() - job->arrived);
}

static void reply_error(struct server *server, struct job *job, const struct api_error *err)
{
    struct http_exchange *exchange = job->exchange;
    end_exchange(job);
    route_reply_error(server, exchange, job->path, err, worker_now() - job->arrived);
}

static void open_stream(struct server *server, struct job *job)
{
    job->streaming = true;
    http_add_header(job->exchange, "Cache-Control", "no-cache");
    http_add_header(job->exchange, "X-Accel-Buffering", "no"); // nginx would hold events back
    cors_add_headers(&server->access, job->exchange);
    http_stream_open(job->exchange, 200, "text/event-stream; charset=utf-8");
}

static void close_stream(struct server *server, struct job *job)
{
    struct http_exchange *exchange = job->exchange;
    metrics_count_http(&server->metrics, job->path, "POST", 200, worker_now() - job->arrived);
    end_exchange(job);
    http_stream_close(exchange);
}

static void stream(struct server *server, struct job *job)
{
    struct strbuf events = { 0 };
    if (!job->streaming)
        open_stream(server, job);
    answer_stream(job, &events);
    http_stream_write(job->exchange, strbuf_bytes(&events));
    strbuf_free(&events);
    if (job->over)
        close_stream(server, job);
}

static void answer(struct server *server, struct job *job)
{
    struct strbuf body = { 0 };
    if (job->choice_count)
        answer_gather(job);
    if (!job->over)
        return;
    if (job->error.status) {
        reply_error(server, job, &job->error);
        return;
    }
    if (job->reply)
        api_dump(job->reply, &body);
    else
        answer_whole(job, &body);
    reply(server, job, strbuf_bytes(&body));
    strbuf_free(&body);
}

void deliver_abandon(struct server *server, struct job *job, const struct api_error *err)
{
    struct strbuf events = { 0 };
    atomic_store(&job->cancelled, true);
    if (!job->exchange)
        return;
    if (!job->streaming) {
        reply_error(server, job, err);
        return;
    }
    answer_stream_error(err, &events);
    http_stream_write(job->exchange, strbuf_bytes(&events));
    strbuf_free(&events);
    close_stream(server, job);
}

// ---- to the log and the metrics -----------------------------------------------------------------------------------

// The time between tokens, as they come.
static void observe_tokens(struct server *server, struct choice *choice)
{
    const struct mail *news = &choice->news;
    for (int i = news->prompt_tokens; i < news->token_count; i++) {
        if (choice->token_at > 0)
            metrics_observe(&server->metrics, METRIC_INTER_TOKEN_LATENCY, news->tokens[i].at - choice->token_at);
        choice->token_at = news->tokens[i].at;
    }
}

static enum metric_finish finish_of(enum nibble_finish reason)
{
    static const enum metric_finish finishes[] = {
        [NIBBLE_FINISH_STOP] = METRIC_STOP, [NIBBLE_FINISH_LENGTH] = METRIC_LENGTH,
        [NIBBLE_FINISH_CANCELLED] = METRIC_ABORT, [NIBBLE_FINISH_FAILED] = METRIC_ERROR,
    };
    return finishes[reason];
}

static void observe_choice(struct server *server, const struct choice *choice)
{
    const struct nibble_usage *usage = &choice->news.usage;
    const struct fields *fields = &choice->job->fields;
    struct metrics *metrics = &server->metrics;
    metrics->finished[finish_of(choice->news.reason)]++;
    if (!usage->first_token)
        return;
    double decode = usage->finished - usage->first_token;
    const struct {
        enum metric_histogram which;
        double value;
    } rows[] = {
        { METRIC_TIME_TO_FIRST_TOKEN, usage->first_token - usage->arrived },
        { METRIC_E2E_LATENCY, usage->finished - usage->arrived },
        { METRIC_QUEUE_TIME, usage->admitted - usage->arrived },
        { METRIC_INFERENCE_TIME, usage->finished - usage->admitted },
        { METRIC_PREFILL_TIME, usage->first_token - usage->admitted },
        { METRIC_DECODE_TIME, decode },
        { METRIC_PROMPT_TOKENS, usage->prompt_tokens },
        { METRIC_GENERATION_TOKENS, usage->answer_tokens },
        { METRIC_MAX_GENERATION_TOKENS, usage->answer_tokens },
        { METRIC_PARAMS_N, (double)fields->n },
        { METRIC_PARAMS_MAX_TOKENS, (double)fields->max_tokens },
        { METRIC_PREFILL_COMPUTED_TOKENS, usage->prompt_tokens - usage->cached_tokens },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        metrics_observe(metrics, rows[i].which, rows[i].value);
    if (usage->answer_tokens > 1)
        metrics_observe(metrics, METRIC_TIME_PER_OUTPUT_TOKEN, decode / (usage->answer_tokens - 1));
}

static void observe_news(struct server *server, struct job *job)
{
    for (int i = 0; i < job->choice_count; i++) {
        observe_tokens(server, &job->choices[i]);
        if (job->choices[i].news.finished)
            observe_choice(server, &job->choices[i]);
    }
}

// How the first choice ended, or the status of what never became an answer.
static const char *finish_word(const struct job *job, const struct nibble_usage *usage)
{
    static const char *const words[] = {
        [NIBBLE_FINISH_STOP] = "stop", [NIBBLE_FINISH_LENGTH] = "length",
        [NIBBLE_FINISH_CANCELLED] = "abort", [NIBBLE_FINISH_FAILED] = "error",
    };
    if (!usage)
        return job->error.status ? "refused" : atomic_load(&job->cancelled) ? "abort" : "done";
    return words[job->choices[0].answer.reason];
}

static void log_job(const struct server *server, const struct job *job)
{
    const struct nibble_usage *usage = job->choice_count ? &job->choices[0].answer.usage : NULL;
    int in = 0, out = 0, cached = 0;
    for (int i = 0; i < job->choice_count; i++) {
        const struct nibble_usage *own = &job->choices[i].answer.usage;
        in += job->choices[i].number ? 0 : own->prompt_tokens;
        cached += job->choices[i].number ? 0 : own->cached_tokens;
        out += own->answer_tokens;
    }
    const struct log_field fields[] = {
        { "id", LOG_TEXT, job->id },
        { "request_id", LOG_TEXT, job->request_id },
        { "path", LOG_TEXT, job->path },
        { "in", LOG_COUNT, .number = in },
        { "out", LOG_COUNT, .number = out },
        { "cached", LOG_COUNT, .number = cached },
        { "queue", LOG_SECONDS, .number = usage && usage->admitted ? usage->admitted - usage->arrived : 0 },
        { "first", LOG_SECONDS, .number = usage && usage->first_token ? usage->first_token - usage->arrived : 0 },
        { "total", LOG_SECONDS, .number = worker_now() - job->arrived },
        { "finish", LOG_TEXT, finish_word(job, usage) },
        { "status", LOG_COUNT, .number = job->error.status ? job->error.status : 200 },
        { "param", LOG_TEXT, job->error.status && *job->error.param ? job->error.param : NULL },
        { "error", LOG_TEXT, job->error.status && !job->error.quotes ? job->error.text : NULL },
        { 0 },
    };
    log_event(&server->options->log, LOG_INFO, "request", fields);
}

// ---- the way through ----------------------------------------------------------------------------------------------

// A body of megabytes was taken apart into many small pieces on another thread: the allocator would keep them for good.
enum { LARGE_BODY_BYTES = 1 << 20 };

static void forget(struct server *server, struct job *job)
{
    if (job->previous)
        job->previous->next = job->next;
    else
        server->jobs = job->next;
    if (job->next)
        job->next->previous = job->previous;
    server->job_count--;
    bool large = job->body_bytes >= LARGE_BODY_BYTES;
    budget_give_back(&server->budget, job->charged_bytes);
    job_free(job);
    if (large)
        memory_give_back();
}

void deliver_posted(struct server *server)
{
    struct job *job;
    post_hear(&server->post);
    while ((job = post_take(&server->post))) {
        observe_news(server, job);
        bool answers = job->choice_count && !(job->over && job->error.status && !job->streaming);
        if (!job->exchange)
            answer_gather(job); // for the log
        else if (answers && job->fields.stream)
            stream(server, job);
        else
            answer(server, job);
        if (job->over) {
            log_job(server, job);
            forget(server, job);
        }
    }
}
