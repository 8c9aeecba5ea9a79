// SPDX-License-Identifier: Apache-2.0
// server/server.c: from the model's files to the ready line, and from SIGTERM to the exit.
#include "server/server.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mapping.h"
#include "base/memory.h"
#include "base/public.h"
#include "base/sha256.h"
#include "server/serve.h"

enum { SUMMARY_SECONDS = 10, FLUSH_POLL_MS = 20, FLUSH_POLLS_MAX = 250 };

// ---- while it runs ------------------------------------------------------------------------------------------------

// What has happened since the last summary, if anything has.
static void log_summary(struct server *server)
{
    struct nibble_scheduler_stats now;
    struct histogram ignored;
    post_read(&server->post, &now, &ignored);
    const struct nibble_scheduler_stats *then = &server->logged;
    double at = worker_now(), seconds = at - server->logged_at;
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

// No job is left: the loop ends as soon as the clients have taken what was written for them.
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

// The time to drain is over.
static void on_deadline(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct server *server = context;
    log_say(&server->options->log, LOG_WARNING, "shutdown", "%d requests did not finish in time", server->job_count);
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
    log_say(&server->options->log, LOG_INFO, "shutdown", "%d requests may take %g s to finish", server->job_count,
            server->options->drain_seconds);
    if (server->job_count)
        later(server, on_deadline, server->options->drain_seconds);
    else
        end_when_sent(-1, 0, server);
}

// One of the processes that compute the model together is gone.
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

// No answer leaves the server that was computed from files which somebody has changed: they are looked at before
// anything is delivered. Once they have changed, every request gets an error and the server ends.
static void check_model(struct server *server)
{
    if (*server->model_error.text || nibble_checkpoint_check(server->served.checkpoint, &server->model_error))
        return;
    server->draining = true;
    log_say(&server->options->log, LOG_WARNING, "shutdown", "%s", server->model_error.text);
    abandon_all(server, 500, server->model_error.text);
    if (!server->job_count)
        end_when_sent(-1, 0, server);
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct server *server = context;
    check_model(server);
    deliver_posted(server);
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

static void digest_keys(struct server *server)
{
    const struct server_options *options = server->options;
    server->keys = memory_new((size_t)options->api_key_count + 1, sizeof *server->keys);
    for (int i = 0; i < options->api_key_count; i++)
        sha256_of(bytes_of(options->api_keys[i]), server->keys[i]);
}

static struct event *watch(struct server *server, int fd, short what, event_callback_fn callback)
{
    struct event *event = event_new(server->base, fd, what | EV_PERSIST, callback, server);
    event_add(event, what == EV_TIMEOUT ? &(struct timeval){ SUMMARY_SECONDS, 0 } : NULL);
    return event;
}

static bool open_loop(struct server *server, struct error *err)
{
    const struct http_callbacks callbacks = {
        .context = server, .request = route_request, .refuse = route_refuse, .gone = route_gone,
    };
    event_set_mem_functions(memory_allocate, memory_reallocate, free);
    server->base = event_base_new();
    if (!server->base)
        return fail(err, "the system gives no event loop");
    server->http = http_open(server->base, &server->options->http, &callbacks);
    server->wake = watch(server, server->post.wake_fd, EV_READ, on_wake);
    server->terminate = watch(server, SIGTERM, EV_SIGNAL, on_signal);
    server->interrupt = watch(server, SIGINT, EV_SIGNAL, on_signal);
    server->tick = watch(server, -1, EV_TIMEOUT, on_tick);
    if (server->options->engine.ranks)
        server->lost = watch(server, nibble_ranks_lost_fd(server->options->engine.ranks), EV_READ, on_lost);
    server->logged_at = worker_now();
    return true;
}

static void open_metrics(struct server *server)
{
    const struct api *api = &server->served.api;
    server->plan = json_loadb(api->plan, api->plan_len, 0, NULL);
    metrics_open(&server->metrics, api->names[0], api->max_model_len, server->plan);
    server->metrics.kv_cache_dtype = server->options->engine.kv_cache_dtype;
    server->metrics.prefix_cache = !server->options->scheduler.no_prefix_cache;
    server->metrics.self_test_passed = !server->options->engine.no_self_test;
    server->post.step_tokens = server->metrics.histograms[METRIC_ITERATION_TOKENS];
    nibble_scheduler_stats(server->served.scheduler, &server->post.stats);
}

// The address as people type it: an IPv6 host in brackets, "all of them" as this machine.
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

// To stderr, where the log goes, and to stdout for scripts, unless both are the same place.
static void say_ready(const struct server *server, int port)
{
    char address[512];
    struct stat out, err;
    format_address(server->options, port, address, sizeof address);
    bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev
        && out.st_ino == err.st_ino;
    FILE *const places[] = { stderr, same ? NULL : stdout };
    for (int i = 0; i < 2 && places[i]; i++) {
        fprintf(places[i], "nibble: ready on %s (%s, the cache holds %zu tokens)\n", address,
                server->served.api.names[0], server->post.stats.cache_tokens);
        fflush(places[i]);
    }
}

static bool listen_on(struct server *server, int *port, struct error *err)
{
    const struct server_options *options = server->options;
    return options->uds ? http_listen_unix(server->http, options->uds, err)
                        : http_listen(server->http, options->host, options->port, port, err);
}

static bool serve(struct server *server, struct error *err)
{
    int port = 0;
    open_metrics(server);
    digest_keys(server);
    if (!open_loop(server, err)
        || !listen_on(server, &port, err)
        || !worker_open(&server->worker, server->served.scheduler, &server->post, server->jobs_max, err))
        return false;
    mapping_go_on();
    say_ready(server, port);
    event_base_dispatch(server->base);
    worker_close(&server->worker);
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
    free(server->keys);
    post_close(&server->post);
    served_close(&server->served);
}

static void print_plan(const struct nibble_engine *engine)
{
    struct nibble_text text = { 0 };
    nibble_plan_print(nibble_engine_plan(engine), NIBBLE_PLAN_SHORT, 0, &text);
    fprintf(stderr, "%s", text.data);
    free(text.data);
}

int server_run(const struct server_options *options)
{
    struct server server = { .options = options, .jobs_max = options->engine.max_num_seqs + options->queue };
    struct nibble_error error = { 0 };
    struct error err;
    bool ok = served_open(&server.served, options, &error);
    if (ok) {
        print_plan(server.served.engine);
        ok = post_open(&server.post, &err) && serve(&server, &err);
        if (!ok)
            public_error(&error, &err);
        close_all(&server);
    }
    if (!ok)
        fprintf(stderr, "nibble: %s\n", error.text);
    return ok ? 0 : error.usage ? 2 : 1;
}
