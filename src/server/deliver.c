// SPDX-License-Identifier: Apache-2.0
// server/deliver.c: sends finished text from the outbox to the clients, in chunks or whole, and logs each request.
#include "base/clock.h"
#include "server/answer.h"
#include "server/kind.h"
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
    route_reply(server, exchange, job->path, 200, "application/json", body, clock_now() - job->arrived);
}

static void reply_error(struct server *server, struct job *job, const struct api_error *err)
{
    struct http_exchange *exchange = job->exchange;
    end_exchange(job);
    route_reply_error(server, exchange, job->path, job->style, err, clock_now() - job->arrived);
}

static void open_stream(struct server *server, struct job *job)
{
    job->streaming = true;
    if (job->params.stream) {
        http_add_header(job->exchange, "Cache-Control", "no-cache");
        http_add_header(job->exchange, "X-Accel-Buffering", "no"); // nginx would hold events back
    }
    cors_add_headers(&server->access, job->exchange);
    const struct dialect *dialect = kind_of(job)->dialect;
    const char *type = dialect ? dialect->stream_type : NULL;
    http_stream_open(job->exchange, 200,
                     !job->params.stream ? "application/json"
                         : type          ? type
                                         : "text/event-stream; charset=utf-8");
}

// `cut`: the client must see that something is missing.
static void close_stream(struct server *server, struct job *job, bool cut)
{
    struct http_exchange *exchange = job->exchange;
    route_count(server, exchange, job->path, 200, clock_now() - job->arrived);
    end_exchange(job);
    if (cut)
        http_stream_cut(exchange);
    else
        http_stream_close(exchange);
}

// Sends text: events and long answers are chunked; an answer that is complete at once has a Content-Length.
static void deliver(struct server *server, struct job *job, struct bytes text)
{
    if (!job->streaming && job->over && job->error.status) {
        reply_error(server, job, &job->error);
        return;
    }
    if (!job->streaming && job->over && !job->params.stream) {
        reply(server, job, text);
        return;
    }
    if (!job->streaming)
        open_stream(server, job);
    http_stream_write(job->exchange, text);
    job->sending_bytes += text.len;
    if (job->over)
        close_stream(server, job, false);
}

void deliver_sent(void *context, struct http_exchange *exchange)
{
    struct server *server = context;
    struct job *job = http_owner(exchange); // only jobs stream
    size_t bytes = job->sending_bytes;
    job->sending_bytes = 0;
    writer_sent(&server->writer, job, bytes);
}

void deliver_gone(struct server *server, struct job *job)
{
    job->exchange = NULL;
    atomic_store(&job->cancelled, true);
    mailbox_resume(&server->mailbox, job);
}

void deliver_abandon(struct server *server, struct job *job, const struct api_error *err)
{
    struct strbuf events = { 0 };
    if (job->exchange && !job->streaming) {
        reply_error(server, job, err);
    } else if (job->exchange) {
        if (job->params.stream)
            answer_write_failure(job, err, &events);
        http_stream_write(job->exchange, strbuf_bytes(&events));
        close_stream(server, job, !job->params.stream);
    }
    strbuf_free(&events);
    deliver_gone(server, job);
}

// ---- to the log ---------------------------------------------------------------------------------------------------

// Returns how the first choice ended, or why there was no answer.
static const char *finish_word(const struct job *job, const struct nibble_usage *usage)
{
    if (!usage)
        return job->error.status ? "refused" : atomic_load(&job->cancelled) ? "abort" : "done";
    return api_finish_words[job->choices[0].answer.reason];
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
        { "total", LOG_SECONDS, .number = clock_now() - job->arrived },
        { "finish", LOG_TEXT, finish_word(job, usage) },
        { "status", LOG_COUNT, .number = job->error.status ? job->error.status : 200 },
        { "param", LOG_TEXT, job->error.status && *job->error.param ? job->error.param : NULL },
        { "error", LOG_TEXT, job->error.status && !job->error.quotes ? job->error.text : NULL },
        { "warning", LOG_TEXT, *job->warning ? job->warning : NULL },
        { 0 },
    };
    log_event(&server->options->log, *job->warning ? LOG_WARNING : LOG_INFO, "request", fields);
}

// ---- the way through ----------------------------------------------------------------------------------------------

static void forget(struct server *server, struct job *job)
{
    if (job->previous)
        job->previous->next = job->next;
    else
        server->jobs = job->next;
    if (job->next)
        job->next->previous = job->previous;
    server->job_count--;
    job_free(job);
}

void deliver_written(struct server *server)
{
    struct job *job;
    struct strbuf text;
    outbox_clear_wake(&server->outbox);
    while ((job = outbox_take(&server->outbox, &text))) {
        if (job->exchange)
            deliver(server, job, strbuf_bytes(&text));
        strbuf_free(&text);
        if (job->over) {
            log_job(server, job);
            forget(server, job);
        }
    }
}
