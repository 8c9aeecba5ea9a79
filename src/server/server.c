// SPDX-License-Identifier: Apache-2.0
// server/server.c: start-up, the event loop's timers and signals, and graceful shutdown.
#include "server/server.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mapping.h"
#include "base/memory.h"
#include "server/serve.h"

enum { SUMMARY_SECONDS = 10, FLUSH_POLL_MS = 20, FLUSH_POLLS_MAX = 250 };

// ---- while it runs ------------------------------------------------------------------------------------------------

// Logs the activity since the last summary, if there was any.
static void log_summary(struct server *server)
{
    struct nibble_scheduler_stats now;
    struct histogram ignored;
    mailbox_read(&server->mailbox, &now, &ignored);
    const struct nibble_scheduler_stats *then = &server->logged;
    double at = clock_now(), seconds = at - server->logged_at;
    uint64_t prompt = now.prompt_tokens - then->prompt_tokens, answer = now.answer_tokens - then->answer_tokens;
    uint64_t asked = now.prefix_queries - then->prefix_queries, hit = now.prefix_hits - then->prefix_hits;
    const struct log_field fields[] = {
        { "prompt", LOG_RATE, .number = (double)prompt / seconds },
        { "generation", LOG_RATE, .number = (double)answer / seconds },
        { "running", LOG_COUNT, .number = now.running },
        { "waiting", LOG_COUNT, .number = now.waiting },
        { "cache", LOG_PERCENT, .number = now.cache_use },
        { "prefix_hits", LOG_PERCENT, .number = asked ? (double)hit / (double)asked : 0 },
        { "preemptions", LOG_COUNT, .number = (double)(now.preemptions - then->preemptions) },
        { 0 },
    };
    char why[256];
    watch_observe(server);
    if (!watch_live(server, why, sizeof why))
        log_message(&server->options->log, LOG_ERROR, "health", "%.*s", (int)strcspn(why, "\n"), why);
    if (now.steps != then->steps)
        log_event(&server->options->log, LOG_INFO, "busy", fields);
    server->logged = now;
    server->logged_at = at;
}

// ---- the end ------------------------------------------------------------------------------------------------------

static void later(struct server *server, void (*callback)(evutil_socket_t, short, void *), double seconds)
{
    struct timeval time = { (time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6) };
    event_base_once(server->base, -1, EV_TIMEOUT, callback, server, &time);
}

// Called when no job is left: ends the loop as soon as the clients have taken what was written for them.
static void end_when_sent(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct server *server = context;
    if (http_sending(server->http) && server->flush_polls++ < FLUSH_POLLS_MAX)
        later(server, end_when_sent, FLUSH_POLL_MS / 1e3);
    else
        event_base_loopbreak(server->base);
}

static void abandon_all(struct server *server, int status, const char *sentence)
{
    struct api_error err;
    api_fail(&err, status, NULL, "%s", sentence);
    for (struct job *job = server->jobs; job; job = job->next)
        deliver_abandon(server, job, &err);
}

// Called when the time to drain is over.
static void on_deadline(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct server *server = context;
    log_message(&server->options->log, LOG_WARNING, "shutdown", "%d requests did not finish in time",
                server->job_count);
    abandon_all(server, 503, "the server is shutting down");
}

static void on_signal(evutil_socket_t signal, short what, void *context)
{
    (void)signal, (void)what;
    struct server *server = context;
    if (server->draining) { // asked twice: at once
        on_deadline(-1, 0, server);
        return;
    }
    server->draining = true;
    log_message(&server->options->log, LOG_INFO, "shutdown", "%d requests may take %g s to finish", server->job_count,
                server->options->drain_seconds);
    if (server->job_count)
        later(server, on_deadline, server->options->drain_seconds);
    else
        end_when_sent(-1, 0, server);
}

// Called when a rank is lost.
static void on_lost(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct server *server = context;
    event_del(server->lost); // it stays so
    server->draining = true;
    abandon_all(server, 500, nibble_ranks_lost(server->options->engine.ranks));
    if (!server->job_count)
        end_when_sent(-1, 0, server);
}

// No answer leaves the server that was computed from files that have changed on disk: they are checked before anything
// is delivered. Once they have changed, every request gets an error and the server ends.
static void check_model(struct server *server)
{
    if (*server->model_error.text || nibble_checkpoint_check(server->served.checkpoint, &server->model_error))
        return;
    server->draining = true;
    log_message(&server->options->log, LOG_WARNING, "shutdown", "%s", server->model_error.text);
    abandon_all(server, 500, server->model_error.text);
    if (!server->job_count)
        end_when_sent(-1, 0, server);
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct server *server = context;
    check_model(server);
    deliver_written(server);
    if (server->draining && !server->job_count)
        end_when_sent(-1, 0, server);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    check_model(context);
    log_summary(context);
}

// ---- the start ----------------------------------------------------------------------------------------------------

// Called when the model is loaded: the default is a share of the memory that is free then.
static void open_budget(struct server *server)
{
    const struct server_options *options = server->options;
    budget_open(&server->budget, options->inflight_bytes ? options->inflight_bytes : budget_default_bytes());
    log_message(&options->log, LOG_DEBUG, "limits", "requests in flight may hold %zu bytes",
                server->budget.limit_bytes);
}

static struct event *watch(struct server *server, int fd, short what, event_callback_fn callback)
{
    struct event *event = event_new(server->base, fd, what | EV_PERSIST, callback, server);
    event_add(event, what == EV_TIMEOUT ? &(struct timeval){ SUMMARY_SECONDS, 0 } : NULL);
    return event;
}

// Limits the connections to the file descriptors that the system gives.
static struct http_limits choose_limits(struct server *server)
{
    struct http_limits limits = server->options->http;
    limits.budget = &server->budget;
    limits.connections = http_raise_file_limit(limits.connections);
    if (limits.connections < server->options->http.connections)
        log_message(&server->options->log, LOG_WARNING, "start",
                    "the limit of open files (ulimit -n) leaves room for %d "
                    "of the %d connections of --max-connections; raise it, or lower those",
                    limits.connections, server->options->http.connections);
    return limits;
}

// Takes the address, before anything that costs time. Until http_listen connections to it are refused.
static bool open_http(struct server *server, struct error *err)
{
    const struct server_options *options = server->options;
    const struct http_callbacks callbacks = {
        .context = server,
        .admit = route_admit,
        .request = route_request,
        .refuse = route_refuse,
        .gone = route_gone,
        .sent = deliver_sent,
    };
    event_set_mem_functions(memory_allocate, memory_reallocate, free);
    server->base = event_base_new();
    if (!server->base)
        return fail(err, "the system gives no event loop");
    struct http_limits limits = choose_limits(server);
    server->http = http_open(server->base, &limits, &callbacks);
    return options->uds ? http_bind_unix(server->http, options->uds, err)
                        : http_bind(server->http, options->host, options->port, &server->port, err);
}

// From here on signals are handled by the loop: before, they end the process by default.
static void watch_all(struct server *server)
{
    server->wake = watch(server, server->outbox.wake_fd, EV_READ, on_wake);
    server->terminate = watch(server, SIGTERM, EV_SIGNAL, on_signal);
    server->interrupt = watch(server, SIGINT, EV_SIGNAL, on_signal);
    server->tick = watch(server, -1, EV_TIMEOUT, on_tick);
    if (server->options->engine.ranks)
        server->lost = watch(server, nibble_ranks_lost_fd(server->options->engine.ranks), EV_READ, on_lost);
    server->logged_at = clock_now();
}

static void open_metrics(struct server *server)
{
    const struct api *api = &server->served.api;
    server->plan = json_incref(server->served.plan_json);
    metrics_open(&server->metrics, api->names[0], api->max_model_len, server->plan);
    server->metrics.kv_cache_dtype = server->options->engine.kv_cache_dtype;
    server->metrics.prefix_cache = !server->options->scheduler.no_prefix_cache;
    server->metrics.self_test_passed = !server->options->engine.no_self_test;
    server->mailbox.step_tokens = server->metrics.histograms[METRIC_ITERATION_TOKENS];
    nibble_scheduler_stats(server->served.scheduler, &server->mailbox.stats);
}

// Formats the address as people type it: an IPv6 host in brackets, "all of them" as this machine.
static void format_address(const struct server_options *options, int port, char *out, size_t size)
{
    const char *host = options->host;
    if (!strcmp(host, "0.0.0.0") || !strcmp(host, "::"))
        host = "127.0.0.1";
    if (options->uds)
        snprintf(out, size, "unix:%s", options->uds);
    else
        snprintf(out, size, strchr(host, ':') ? "http://[%s]:%d" : "http://%s:%d", host, port);
}

// Announces the address in the log, and on stdout for scripts, unless both are the same place.
static void log_ready(const struct server *server)
{
    char address[512];
    struct strbuf line = { 0 };
    struct stat out, err;
    format_address(server->options, server->port, address, sizeof address);
    bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev
        && out.st_ino == err.st_ino;
    const struct api *api = &server->served.api;
    strbuf_add_format(&line, "nibble: ready on %s (%s, context length %d tokens, cache capacity %zu tokens", address,
                      api->names[0], api->max_model_len, server->mailbox.stats.cache_tokens);
    if (api->reasoning)
        strbuf_add_format(&line, ", reasoning %s", api->reasoning->name);
    strbuf_add_text(&line, ")\n");
    log_print(&server->options->log, LOG_INFO, "ready", line.data);
    if (!same) {
        fputs(line.data, stdout);
        fflush(stdout);
    }
    strbuf_free(&line);
}

// Starts the threads from the last stage to the first, so that each finds the next one running.
static bool start_threads(struct server *server, struct error *err)
{
    if (!writer_open(&server->writer, &server->mailbox, &server->outbox, &server->metrics, err))
        return false;
    if (!worker_open(&server->worker, server->served.scheduler, &server->mailbox, server->jobs_max, err)) {
        writer_close(&server->writer);
        return false;
    }
    if (readers_open(&server->readers, &server->mailbox, &server->worker.to_run, server->jobs_max, err))
        return true;
    worker_close(&server->worker);
    writer_close(&server->writer);
    return false;
}

static void stop_threads(struct server *server)
{
    readers_close(&server->readers);
    worker_close(&server->worker);
    writer_close(&server->writer);
}

static bool serve(struct server *server, struct error *err)
{
    open_budget(server);
    health_open(&server->health, server->options->stall_seconds);
    open_metrics(server);
    watch_all(server);
    if (!start_threads(server, err))
        return false;
    bool listens = http_listen(server->http, err);
    if (listens) {
        mapping_go_on();
        log_ready(server);
        event_base_dispatch(server->base);
    }
    stop_threads(server);
    if (!listens)
        return false;
    const struct nibble_ranks *ranks = server->options->engine.ranks;
    if (*server->model_error.text)
        return fail(err, "%s", server->model_error.text);
    return !ranks || !nibble_ranks_lost(ranks) || fail(err, "%s", nibble_ranks_lost(ranks));
}

static void close_all(struct server *server)
{
    struct event *const events[] = { server->wake, server->terminate, server->interrupt, server->tick, server->lost };
    if (server->http)
        http_close(server->http);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            event_free(events[i]);
    if (server->base)
        event_base_free(server->base);
    metrics_close(&server->metrics);
    json_decref(server->plan);
    response_store_close(&server->responses);
    access_close(&server->access);
    outbox_close(&server->outbox);
    mailbox_close(&server->mailbox);
    served_close(&server->served);
}

static void print_plan(const struct server *server)
{
    struct nibble_text text = { 0 };
    nibble_plan_print(nibble_engine_plan(server->served.engine), NIBBLE_PLAN_SHORT, 0, &text);
    log_print(&server->options->log, LOG_INFO, "plan", text.data);
    free(text.data);
}

static void print_sampling(const struct server *server)
{
    const struct nibble_defaults *defaults = &server->served.api.defaults;
    struct strbuf line = { 0 };
    struct nibble_text text = { 0 };
    nibble_sampling_print(&defaults->sampling, &text);
    strbuf_add_format(&line, "sampling: %s (%s)\n", text.data, defaults->origin);
    log_print(&server->options->log, LOG_INFO, "sampling", line.data);
    free(text.data);
    strbuf_free(&line);
}

static bool load(struct server *server, struct error *err)
{
    const struct server_options *options = server->options;
    if ((options->before_load && !options->before_load(options->before_load_context, err))
        || !served_open(&server->served, options, err))
        return false;
    print_plan(server);
    print_sampling(server);
    return true;
}

int server_run(const struct server_options *options)
{
    struct server server = { .options = options, .jobs_max = options->engine.max_num_seqs + options->queue };
    struct error err = { 0 };
    access_open(&server.access, &options->access);
    response_store_open(&server.responses, options->response_store_bytes, options->response_store_count);
    mailbox_open(&server.mailbox);
    bool ok = outbox_open(&server.outbox, &err) && open_http(&server, &err) && load(&server, &err)
        && serve(&server, &err);
    close_all(&server);
    if (!ok)
        log_failure(&options->log, err.text);
    return ok ? 0 : err.usage ? 2 : 1;
}
