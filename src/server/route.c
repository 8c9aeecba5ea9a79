// SPDX-License-Identifier: Apache-2.0
// server/route.c: which request goes where, and who may ask. What needs the model becomes a job; the rest is answered
// here.
#include <openssl/crypto.h>
#include <stdio.h>

#include "base/sha256.h"
#include "server/page.h"
#include "server/serve.h"

static const char json_content[] = "application/json";

struct route {
    const char *method, *path;
    bool open; // needs no key
    bool more; // the path goes on
    void (*handle)(struct server *server, const struct route *route, struct http_exchange *exchange);
    enum job_kind kind; // of handle_job
};

// ---- replies ------------------------------------------------------------------------------------------------------

static void allow_origin(const struct server *server, struct http_exchange *exchange)
{
    if (http_header(exchange, "Origin").data)
        http_add_header(exchange, "Access-Control-Allow-Origin", server->options->allowed_origin);
}

void route_reply(struct server *server, struct http_exchange *exchange, const char *path, int status, const char *type,
                 struct bytes body, double seconds)
{
    char method[8]; // longer ones are not ours
    struct bytes given = http_method(exchange);
    snprintf(method, sizeof method, "%.*s", (int)(given.len < sizeof method ? given.len : 0), given.data);
    metrics_count_http(&server->metrics, path, method, status, seconds);
    allow_origin(server, exchange);
    http_reply(exchange, status, type, body);
}

void route_reply_error(struct server *server, struct http_exchange *exchange, const char *path,
                       const struct api_error *err, double seconds)
{
    struct strbuf body = { 0 };
    json_t *json = api_error_json(err);
    api_dump(json, &body);
    json_decref(json);
    if (err->status == 401)
        http_add_header(exchange, "WWW-Authenticate", "Bearer");
    if (err->status == 429 || err->status == 503)
        http_add_header(exchange, "Retry-After", "1");
    route_reply(server, exchange, path, err->status, json_content, strbuf_bytes(&body), seconds);
    strbuf_free(&body);
}

static void reply_json(struct server *server, const struct route *route, struct http_exchange *exchange, json_t *json)
{
    struct strbuf body = { 0 };
    api_dump(json, &body);
    json_decref(json);
    route_reply(server, exchange, route->path, 200, json_content, strbuf_bytes(&body), 0);
    strbuf_free(&body);
}

// ---- what is answered at once -------------------------------------------------------------------------------------

static void handle_page(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    route_reply(server, exchange, route->path, 200, "text/html; charset=utf-8",
                (struct bytes){ page_html, page_html_len }, 0);
}

// A device that fails every request at once has the shortest queue of all, so balancers must hear of it here.
static void handle_health(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    struct nibble_scheduler_stats stats;
    struct histogram ignored;
    post_read(&server->post, &stats, &ignored);
    int status = server->draining || stats.failing ? 503 : 200;
    route_reply(server, exchange, route->path, status, "text/plain", (struct bytes){ 0 }, 0);
}

static void handle_version(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    reply_json(server, route, exchange, json_pack("{s:s}", "version", nibble_version()));
}

static void handle_metrics(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    struct nibble_scheduler_stats stats;
    struct strbuf text = { 0 };
    post_read(&server->post, &stats, &server->metrics.histograms[METRIC_ITERATION_TOKENS]);
    int unseen = 0; // jobs that the scheduler does not know yet
    for (const struct job *job = server->jobs; job; job = job->next)
        unseen += !job->accepted;
    metrics_print(&server->metrics, &stats, stats.waiting + unseen, &text);
    route_reply(server, exchange, route->path, 200, "text/plain; version=0.0.4; charset=utf-8", strbuf_bytes(&text), 0);
    strbuf_free(&text);
}

static json_t *model_card(const struct api *api, const char *name)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:i}", "id", name, "object", "model", "created",
                     (json_int_t)api->created, "owned_by", "nibble", "root", api->root, "parent", "max_model_len",
                     api->max_model_len);
}

static void handle_models(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    const struct api *api = &server->served.api;
    json_t *cards = json_array();
    for (int i = 0; i < api->name_count; i++)
        json_array_append_new(cards, model_card(api, api->names[i]));
    reply_json(server, route, exchange, json_pack("{s:s, s:o}", "object", "list", "data", cards));
}

// Bytes of a path as they were meant: %2F is a slash.
static void add_unescaped(struct strbuf *out, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        bool escaped = text.data[i] == '%' && i + 2 < text.len && bytes_hex_digit(text.data[i + 1]) >= 0
            && bytes_hex_digit(text.data[i + 2]) >= 0;
        int code = escaped ? bytes_hex_digit(text.data[i + 1]) * 16 + bytes_hex_digit(text.data[i + 2]) : text.data[i];
        strbuf_add_byte(out, (char)code);
        i += escaped ? 2 : 0;
    }
}

static void handle_model(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    const struct api *api = &server->served.api;
    struct bytes path = http_path(exchange);
    struct strbuf name = { 0 };
    struct api_error err;
    json_t *card = NULL;
    add_unescaped(&name, (struct bytes){ path.data + strlen(route->path), path.len - strlen(route->path) });
    for (int i = 0; i < api->name_count && !card; i++)
        if (bytes_equal(strbuf_bytes(&name), bytes_of(api->names[i])))
            card = model_card(api, api->names[i]);
    if (card) {
        reply_json(server, route, exchange, card);
    } else {
        api_fail(&err, 404, "model", "The model `%.200s` does not exist; this server has `%s`.", strbuf_text(&name),
                 api->names[0]);
        route_reply_error(server, exchange, route->path, &err, 0);
    }
    strbuf_free(&name);
}

static void handle_plan(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    const struct api *api = &server->served.api;
    route_reply(server, exchange, route->path, 200, json_content, (struct bytes){ api->plan, api->plan_len }, 0);
}

// ---- what becomes a job -------------------------------------------------------------------------------------------

static void handle_job(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    struct api_error err;
    if (server->draining) {
        api_fail(&err, 503, NULL, "the server is shutting down; ask another one");
        route_reply_error(server, exchange, route->path, &err, 0);
        return;
    }
    if (server->job_count == server->jobs_max) {
        api_fail(&err, 429, NULL, "%d requests are running or waiting already; try again in a moment",
                 server->job_count);
        route_reply_error(server, exchange, route->path, &err, 0);
        return;
    }
    struct job *job = job_new(&server->served.api, route->kind, route->path, http_body(exchange));
    job->exchange = exchange;
    job->arrived = worker_now();
    http_set_owner(exchange, job);
    job->next = server->jobs;
    if (job->next)
        job->next->previous = job;
    server->jobs = job;
    server->job_count++;
    worker_add(&server->worker, job);
}

void route_gone(void *context, struct http_exchange *exchange)
{
    struct job *job = http_owner(exchange);
    (void)context;
    if (!job)
        return;
    job->exchange = NULL;
    atomic_store(&job->cancelled, true);
}

// ---- the table ----------------------------------------------------------------------------------------------------

static const struct route routes[] = {
    { "GET", "/", .open = true, .handle = handle_page },
    { "GET", "/health", .open = true, .handle = handle_health },
    { "GET", "/version", .open = true, .handle = handle_version },
    { "GET", "/metrics", .open = true, .handle = handle_metrics },
    { "GET", "/v1/models", .handle = handle_models },
    { "GET", "/v1/models/", .more = true, .handle = handle_model },
    { "GET", "/v1/plan", .handle = handle_plan },
    { "POST", "/v1/chat/completions", .handle = handle_job, .kind = JOB_CHAT },
    { "POST", "/v1/completions", .handle = handle_job, .kind = JOB_COMPLETION },
    { "POST", "/tokenize", .handle = handle_job, .kind = JOB_TOKENIZE },
    { "POST", "/detokenize", .handle = handle_job, .kind = JOB_DETOKENIZE },
};

// Takes the same time whatever the key is.
static bool has_key(const struct server *server, struct http_exchange *exchange)
{
    static const char scheme[] = "Bearer ";
    struct bytes given = http_header(exchange, "Authorization");
    unsigned char digest[KEY_DIGEST_BYTES];
    bool known = false;
    if (!server->options->api_key_count)
        return true;
    if (!bytes_start_with(given, bytes_of(scheme)))
        return false;
    sha256_of((struct bytes){ given.data + strlen(scheme), given.len - strlen(scheme) }, digest);
    for (int i = 0; i < server->options->api_key_count; i++)
        known |= CRYPTO_memcmp(digest, server->keys[i], sizeof digest) == 0;
    return known;
}

// A browser asks before it sends to another origin.
static void answer_preflight(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    http_add_header(exchange, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    http_add_header(exchange, "Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id");
    http_add_header(exchange, "Access-Control-Max-Age", "3600");
    route_reply(server, exchange, route->path, 204, NULL, (struct bytes){ 0 }, 0);
}

static bool is_method(const struct http_exchange *exchange, const char *method)
{
    return bytes_equal(http_method(exchange), bytes_of(method));
}

void route_request(void *context, struct http_exchange *exchange)
{
    struct server *server = context;
    struct bytes path = http_path(exchange);
    const struct route *route = NULL;
    struct api_error err;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        struct bytes own = bytes_of(routes[i].path);
        if (bytes_equal(path, own) || (routes[i].more && bytes_start_with(path, own)))
            route = &routes[i];
    }
    if (!route) {
        api_fail(&err, 404, NULL, "there is no %.*s here", (int)(path.len < 200 ? path.len : 200), path.data);
    } else if (is_method(exchange, "OPTIONS")) {
        answer_preflight(server, route, exchange);
        return;
    } else if (!is_method(exchange, route->method) && !(is_method(exchange, "HEAD") && !strcmp(route->method, "GET"))) {
        http_add_header(exchange, "Allow", route->method);
        api_fail(&err, 405, NULL, "%s is for %s requests", route->path, route->method);
    } else if (!route->open && !has_key(server, exchange)) {
        api_fail(&err, 401, NULL, "this server needs its API key; send it as Authorization: Bearer KEY");
    } else {
        route->handle(server, route, exchange);
        return;
    }
    route_reply_error(server, exchange, route ? route->path : "other", &err, 0);
}

void route_refuse(void *context, struct http_exchange *exchange, int status, const char *sentence)
{
    struct api_error err;
    api_fail(&err, status, NULL, "%s", sentence);
    route_reply_error(context, exchange, "other", &err, 0);
}
