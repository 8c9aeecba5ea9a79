// SPDX-License-Identifier: Apache-2.0
// server/route.c: the routes of the API. Admission is decided on a request's head (route_admit), before its body is
// read. Requests that need the model become jobs; all others are answered here.
#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "server/grammar_cache.h"
#include "server/describe.h"
#include "server/http_parse.h"
#include "server/serve.h"

extern const char page_html[]; // web/index.html, put into the program by the build
extern const size_t page_html_len;

static const char json_content[] = "application/json";

struct route {
    const char *method, *path;
    bool open;            // needs no key
    bool any_host;        // for monitors, which call a server by names of their own and learn nothing else
    bool more;            // the path goes on,
    const char *suffix;   // and ends with this; NULL: as it likes
    enum api_style style; // of errors
    void (*handle)(struct server *server, const struct route *route, struct http_exchange *exchange);
    enum job_kind kind;                                             // of handle_job
    json_t *(*describe)(const struct api *api);                     // of handle_description
    bool (*is_well)(struct server *server, char *why, size_t size); // of handle_health
};

static void handle_job(struct server *server, const struct route *route, struct http_exchange *exchange);

// ---- replies ------------------------------------------------------------------------------------------------------

void route_count(struct server *server, const struct http_exchange *exchange, const char *path, int status,
                 double seconds)
{
    char method[8]; // longer ones are not ours
    struct bytes given = http_method(exchange);
    snprintf(method, sizeof method, "%.*s", (int)(given.len < sizeof method ? given.len : 0), given.data);
    metrics_count_http(&server->metrics, path, method, status, seconds);
}

void route_reply(struct server *server, struct http_exchange *exchange, const char *path, int status, const char *type,
                 struct bytes body, double seconds)
{
    route_count(server, exchange, path, status, seconds);
    cors_add_headers(&server->access, exchange);
    http_reply(exchange, status, type, body);
}

void route_reply_error(struct server *server, struct http_exchange *exchange, const char *path, enum api_style style,
                       const struct api_error *err, double seconds)
{
    struct strbuf body = { 0 };
    json_t *json = api_error_json(err, style);
    if (style == API_ANTHROPIC)
        json_object_set_new(json, "request_id", json_string(http_request_id(exchange)));
    api_dump(json, &body);
    json_decref(json);
    if (err->status == 401)
        http_add_header(exchange, "WWW-Authenticate", "Bearer");
    if (err->status == 429 || err->status == 503)
        http_add_header(exchange, "Retry-After", "1");
    route_reply(server, exchange, path, err->status, json_content, strbuf_bytes(&body), seconds);
    strbuf_free(&body);
}

// Logs the path as the client wrote it, because it may be a wrong one.
static void log_refusal(const struct server *server, const struct http_exchange *exchange, const struct api_error *err)
{
    char method[16], path[256];
    struct bytes given_method = http_method(exchange), given_path = http_path(exchange);
    snprintf(method, sizeof method, "%.*s", (int)given_method.len, given_method.data);
    snprintf(path, sizeof path, "%.*s", (int)given_path.len, given_path.data);
    const struct log_field fields[] = {
        { "request_id", LOG_TEXT, http_request_id(exchange) },
        { "method", LOG_TEXT, method },
        { "path", LOG_TEXT, path },
        { "status", LOG_COUNT, .number = err->status },
        { "error", LOG_TEXT, err->text },
        { 0 },
    };
    log_event(&server->options->log, LOG_INFO, "refused", fields);
}

// Whose errors a request gets: a path says it, or, at those that several APIs share, Anthropic's header.
static enum api_style style_of(const struct route *route, const struct http_exchange *exchange)
{
    struct bytes path = http_path(exchange);
    if (route && (route->style || route->handle == handle_job))
        return route->style;
    if (bytes_start_with(path, bytes_of("/api/")))
        return API_OLLAMA;
    bool versioned = http_header(exchange, "anthropic-version").data;
    return versioned || bytes_start_with(path, bytes_of("/v1/messages")) ? API_ANTHROPIC : API_OPENAI;
}

// Anthropic's SDK reads a request's id from a header of its own.
static void add_request_id(struct http_exchange *exchange, enum api_style style)
{
    if (style == API_ANTHROPIC)
        http_add_header(exchange, "request-id", http_request_id(exchange));
}

// Refuses a request that never became a job.
static void refuse(struct server *server, struct http_exchange *exchange, const struct route *route,
                   const struct api_error *err)
{
    enum api_style style = style_of(route, exchange);
    log_refusal(server, exchange, err);
    add_request_id(exchange, style);
    route_reply_error(server, exchange, route ? route->path : "other", style, err, 0);
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

// A device that fails every request at once has the shortest queue of all, so balancers must learn it here.
static void handle_health(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    char why[256] = "";
    watch_observe(server);
    int status = route->is_well(server, why, sizeof why) ? 200 : 503;
    route_reply(server, exchange, route->path, status, "text/plain", bytes_of(why), 0);
}

static void handle_description(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    reply_json(server, route, exchange, route->describe(&server->served.api));
}

static void handle_metrics(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    struct nibble_scheduler_stats stats;
    struct strbuf text = { 0 };
    mailbox_read(&server->mailbox, &stats, &server->metrics.histograms[METRIC_ITERATION_TOKENS]);
    int unseen = 0; // jobs that the scheduler does not know yet
    for (const struct job *job = server->jobs; job; job = job->next)
        unseen += atomic_load(&job->stage) < JOB_RUNNING;
    server->metrics.inflight_bytes = budget_used(&server->budget);
    server->metrics.inflight_bytes_max = server->budget.limit_bytes;
    server->metrics.log_dropped = log_dropped(&server->options->log);
    server->metrics.grammars_compiled = grammar_cache_compiled(server->served.api.grammars);
    server->metrics.connections = http_counts(server->http);
    metrics_print(&server->metrics, &stats, stats.waiting + unseen, &text);
    route_reply(server, exchange, route->path, 200, "text/plain; version=0.0.4; charset=utf-8", strbuf_bytes(&text), 0);
    strbuf_free(&text);
}

static void handle_models(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    reply_json(server, route, exchange, describe_models(&server->served.api, style_of(route, exchange)));
}

// Returns the name in a path, behind that of its route.
static struct bytes target_of(const struct route *route, const struct http_exchange *exchange)
{
    struct bytes target = bytes_from(http_path(exchange), strlen(route->path));
    target.len -= route->suffix ? strlen(route->suffix) : 0;
    return target;
}

static void handle_model(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    const struct api *api = &server->served.api;
    struct strbuf name = { 0 };
    struct api_error err;
    http_add_unescaped(&name, target_of(route, exchange));
    if (api_has_model(api, strbuf_bytes(&name))) {
        reply_json(server, route, exchange, describe_model(api, strbuf_text(&name), style_of(route, exchange)));
    } else {
        api_fail_model(api, strbuf_text(&name), &err);
        refuse(server, exchange, route, &err);
    }
    strbuf_free(&name);
}

static void handle_plan(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    const struct api *api = &server->served.api;
    route_reply(server, exchange, route->path, 200, json_content, (struct bytes){ api->plan, api->plan_len }, 0);
}

static void handle_slots(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    struct nibble_scheduler_stats stats;
    struct api_error err;
    if (!server->served.api.show_slots) {
        api_fail(&err, 501, NULL, "this server does not show its slots; start it with --slots");
        refuse(server, exchange, route, &err);
        return;
    }
    mailbox_read(&server->mailbox, &stats, &server->metrics.histograms[METRIC_ITERATION_TOKENS]);
    reply_json(server, route, exchange, describe_slots(&server->served.api, stats.running));
}

static void handle_tokenizer_info(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    struct bytes info = server->served.api.tokenizer_info;
    struct api_error err;
    if (info.data) {
        route_reply(server, exchange, route->path, 200, json_content, info, 0);
        return;
    }
    api_fail(&err, 404, NULL, "%s is off; start the server with --enable-tokenizer-info-endpoint", route->path);
    refuse(server, exchange, route, &err);
}

// ---- what becomes a job -------------------------------------------------------------------------------------------

static bool check_room(const struct server *server, struct api_error *err)
{
    if (server->draining)
        return api_fail(err, 503, NULL, "the server is shutting down; ask another one");
    return server->job_count < server->jobs_max
        || api_fail(err, 429, NULL, "%d requests are running or waiting already; try again in a moment",
                    server->job_count);
}

static const unsigned char *key_of(const struct server *server, const struct http_exchange *exchange)
{
    return access_find_key(&server->access, http_header(exchange, "Authorization"), http_header(exchange, "X-Api-Key"));
}

// Keeps what the path says beside its route: the headers are gone when the job is read.
static void keep_target(struct job *job, const struct route *route, const struct http_exchange *exchange)
{
    struct strbuf target = { 0 };
    struct bytes query = http_query(exchange);
    if (route->more)
        http_add_unescaped(&target, target_of(route, exchange));
    job->target = (struct bytes){ arena_text(&job->kept, strbuf_text(&target), target.len), target.len };
    job->query = (struct bytes){ arena_text(&job->kept, query.len ? query.data : "", query.len), query.len };
    strbuf_free(&target);
}

static void handle_job(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    struct api_error err;
    if (!check_room(server, &err)) { // there was some when the body began
        refuse(server, exchange, route, &err);
        return;
    }
    struct job *job = job_new(&server->served.api, route->kind, route->path);
    job->style = route->style;
    add_request_id(exchange, route->style);
    job->budget = &server->budget;
    job->body = http_take_body(exchange, &job->charged_bytes);
    job->body_bytes = job->body.len;
    job->exchange = exchange;
    snprintf(job->request_id, sizeof job->request_id, "%s", http_request_id(exchange));
    job->owner = key_of(server, exchange);
    job->tenant = server->options->share_prefix_cache ? NULL : job->owner;
    job->response_store = &server->responses;
    keep_target(job, route, exchange);
    job->arrived = clock_now();
    http_set_owner(exchange, job);
    job->next = server->jobs;
    if (job->next)
        job->next->previous = job;
    server->jobs = job;
    server->job_count++;
    readers_add(&server->readers, job);
}

void route_gone(void *context, struct http_exchange *exchange)
{
    struct job *job = http_owner(exchange);
    if (job)
        deliver_gone(context, job);
}

// ---- the table ----------------------------------------------------------------------------------------------------

static const struct route routes[] = {
    { "GET", "/", .open = true, .handle = handle_page },
    { "GET", "/health", .open = true, .any_host = true, .handle = handle_health, .is_well = watch_ready },
    { "GET", "/health/ready", .open = true, .any_host = true, .handle = handle_health, .is_well = watch_ready },
    { "GET", "/health/live", .open = true, .any_host = true, .handle = handle_health, .is_well = watch_live },
    { "GET", "/version", .open = true, .handle = handle_description, .describe = describe_version },
    { "GET", "/metrics", .open = true, .handle = handle_metrics },
    { "GET", "/v1/models", .handle = handle_models },
    { "GET", "/v1/models/", .more = true, .handle = handle_model },
    { "GET", "/v1/plan", .handle = handle_plan },
    { "GET", "/v1/health", .open = true, .any_host = true, .handle = handle_health, .is_well = watch_ready },
    { "GET", "/props", .handle = handle_description, .describe = describe_props },
    { "GET", "/slots", .handle = handle_slots },
    { "POST", "/apply-template", .handle = handle_job, .kind = JOB_APPLY_TEMPLATE },
    { "POST", "/completion", .handle = handle_job, .kind = JOB_LLAMA_COMPLETION },
    { "POST", "/v1/messages", .style = API_ANTHROPIC, .handle = handle_job, .kind = JOB_MESSAGES },
    { "POST", "/v1/messages/count_tokens", .style = API_ANTHROPIC, .handle = handle_job, .kind = JOB_COUNT_TOKENS },
    { "GET", "/api/tags", .style = API_OLLAMA, .handle = handle_description, .describe = describe_tags },
    { "GET", "/api/ps", .style = API_OLLAMA, .handle = handle_description, .describe = describe_running },
    { "GET", "/api/version", .open = true, .style = API_OLLAMA, .handle = handle_description,
      .describe = describe_ollama },
    { "POST", "/api/show", .style = API_OLLAMA, .handle = handle_job, .kind = JOB_OLLAMA_SHOW },
    { "POST", "/api/chat", .style = API_OLLAMA, .handle = handle_job, .kind = JOB_OLLAMA_CHAT },
    { "POST", "/api/generate", .style = API_OLLAMA, .handle = handle_job, .kind = JOB_OLLAMA_GENERATE },
    { "GET", "/tokenizer_info", .handle = handle_tokenizer_info },
    { "POST", "/v1/chat/completions", .handle = handle_job, .kind = JOB_CHAT },
    { "POST", "/v1/chat/completions/input_tokens", .handle = handle_job, .kind = JOB_INPUT_TOKENS },
    { "POST", "/v1/completions", .handle = handle_job, .kind = JOB_COMPLETION },
    { "POST", "/infill", .handle = handle_job, .kind = JOB_INFILL },
    { "POST", "/tokenize", .handle = handle_job, .kind = JOB_TOKENIZE },
    { "POST", "/detokenize", .handle = handle_job, .kind = JOB_DETOKENIZE },
    { "POST", "/v1/responses", .handle = handle_job, .kind = JOB_RESPONSE },
    { "POST", "/v1/responses/input_tokens", .handle = handle_job, .kind = JOB_RESPONSE_TOKENS },
    { "GET", "/v1/responses/", .more = true, .handle = handle_job, .kind = JOB_RESPONSE_GET },
    { "DELETE", "/v1/responses/", .more = true, .handle = handle_job, .kind = JOB_RESPONSE_DELETE },
    { "GET", "/v1/responses/", .more = true, .suffix = "/input_items", .handle = handle_job,
      .kind = JOB_RESPONSE_ITEMS },
    { "POST", "/v1/responses/", .more = true, .suffix = "/cancel", .handle = handle_job, .kind = JOB_RESPONSE_CANCEL },
};

enum { ROUTES = sizeof routes / sizeof *routes };

static bool is_path_of(const struct route *route, struct bytes path)
{
    struct bytes own = bytes_of(route->path), suffix = bytes_of(route->suffix ? route->suffix : "");
    if (!route->more)
        return bytes_equal(path, own);
    return bytes_start_with(path, own) && path.len - own.len >= suffix.len
        && bytes_equal(bytes_from(path, path.len - suffix.len), suffix);
}

static bool takes_method(const struct route *route, const struct http_exchange *exchange)
{
    return http_is_method(exchange, route->method)
        || (http_is_method(exchange, "HEAD") && !strcmp(route->method, "GET"));
}

// A path that is written out, or that has a suffix, is not the longer path of another route.
static int rank_of(const struct route *route) { return !route->more ? 2 : route->suffix != NULL; }

// The route of a request; where only its method is wrong, one of the same path.
static const struct route *find_route(const struct http_exchange *exchange)
{
    const struct route *route = NULL;
    for (int i = 0; i < ROUTES; i++) {
        const struct route *other = &routes[i];
        if (!is_path_of(other, http_path(exchange)))
            continue;
        bool same = route && rank_of(other) == rank_of(route);
        if (!route || rank_of(other) > rank_of(route) || (same && takes_method(other, exchange)))
            route = other;
    }
    return route;
}

// The methods of a route's path, as the header Allow lists them.
static void add_allow(const struct route *route, struct http_exchange *exchange)
{
    struct strbuf methods = { 0 };
    for (int i = 0; i < ROUTES; i++)
        if (is_path_of(&routes[i], http_path(exchange)) && rank_of(&routes[i]) == rank_of(route))
            strbuf_add_format(&methods, methods.len ? ", %s" : "%s", routes[i].method);
    http_add_header(exchange, "Allow", strbuf_text(&methods));
    strbuf_free(&methods);
}

// ---- who may ask --------------------------------------------------------------------------------------------------

static bool check_host(const struct server *server, const struct route *route, const struct http_exchange *exchange,
                       struct api_error *err)
{
    struct bytes host = http_header(exchange, "Host");
    return (route && route->any_host) || access_allows_host(&server->access, host)
        || api_fail(err, 403, NULL,
                    "this server does not answer to the name %.*s; start it with --allowed-hosts if it "
                    "should",
                    (int)(host.len < 200 ? host.len : 200), host.data);
}

static bool check_route(const struct route *route, struct http_exchange *exchange, struct api_error *err)
{
    struct bytes path = http_path(exchange);
    if (!route)
        return api_fail(err, 404, NULL, "there is no %.*s here", (int)(path.len < 200 ? path.len : 200), path.data);
    if (takes_method(route, exchange))
        return true;
    add_allow(route, exchange);
    return api_fail(err, 405, NULL, "%s is for %s requests", route->path, route->method);
}

static bool check_key(const struct server *server, const struct route *route, const struct http_exchange *exchange,
                      struct api_error *err)
{
    return route->open || !server->options->access.key_count || key_of(server, exchange)
        || api_fail(err, 401, NULL, "this server needs its API key; send it as Authorization: Bearer KEY");
}

// OPTIONS is a browser's question before it sends to another origin (preflight), and it has no key yet.
static void answer_options(struct server *server, const struct route *route, struct http_exchange *exchange)
{
    if (route)
        add_allow(route, exchange);
    cors_add_preflight_headers(&server->access, exchange);
    route_reply(server, exchange, route ? route->path : "other", 204, NULL, (struct bytes){ 0 }, 0);
}

bool route_admit(void *context, struct http_exchange *exchange)
{
    struct server *server = context;
    const struct route *route = find_route(exchange);
    struct api_error err;
    if (check_host(server, route, exchange, &err) && cors_check(&server->access, exchange, &err)) {
        if (http_is_method(exchange, "OPTIONS")) {
            answer_options(server, route, exchange);
            return false;
        }
        if (check_route(route, exchange, &err) && check_key(server, route, exchange, &err)
            && (route->handle != handle_job || check_room(server, &err)))
            return true;
    }
    server->metrics.foreign_requests += err.status == 403;
    refuse(server, exchange, route, &err);
    return false;
}

void route_request(void *context, struct http_exchange *exchange)
{
    const struct route *route = find_route(exchange);
    route->handle(context, route, exchange);
}

void route_refuse(void *context, struct http_exchange *exchange, int status, const char *sentence)
{
    struct api_error err;
    api_fail(&err, status, NULL, "%s", sentence);
    refuse(context, exchange, NULL, &err); // style_of knows the path
}
