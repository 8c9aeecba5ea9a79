// SPDX-License-Identifier: Apache-2.0
// cli/serve.c: a model over HTTP: what the command line, the configuration and the environment say to the server.
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/public.h"
#include "cli/cache_options.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/quality_gate.h"
#include "cli/ranks.h"
#include "server/server.h"

// Defaults; the last three have no flag.
enum {
    PORT = 8000,
    SEQUENCES = 128,
    CONNECTIONS = 1024,
    QUEUE = 1024,
    HEADER_BYTES = 64 << 10,
    BODY_BYTES = 8 << 20,
    HEADER_SECONDS = 10,
    BODY_SECONDS = 60,
    DRAIN_SECONDS = 30,
    STALL_SECONDS = 60,
    UNSENT_BYTES = 16 << 20,
    IDLE_SECONDS = 75,
    SEND_SECONDS = 30,
};

struct request {
    struct server_options server;
    struct cache_options cache;
    struct option_texts api_keys, origins, hosts, model_names;
    const char *model, *config; // config: read by config_apply, before the options are
    long long port, threads, seed, connections, queue;
    int policy, log_level;
    double quality_gate; // 0: none
    bool prefix_cache;
    char *default_model; // heap, or NULL
};

enum { POLICY_FCFS, POLICY_PRIORITY };
static const char *const policies[] = { [POLICY_FCFS] = "fcfs", [POLICY_PRIORITY] = "priority", NULL };

// ---- from the command line ----------------------------------------------------------------------------------------

// The table borrows the request. Its rows are the keys of a configuration as well.
static int parse(struct request *request, struct config *config, int argc, char **argv)
{
    struct server_options *server = &request->server;
    const struct option_row options[] = {
        { "address and access", OPTION_HEADING },
        { "--host", OPTION_TEXT, &server->host, "HOST", "address to listen on (127.0.0.1)" },
        { "--port", OPTION_INT, &request->port, "N", "its port; 0: a free one (8000)", 0, 65535 },
        { "--uds", OPTION_TEXT, &server->uds, "PATH", "listen on a Unix socket instead" },
        { "--api-key", OPTION_TEXTS, &request->api_keys, "KEY ...", "ask for one of these keys ($NIBBLE_API_KEY)" },
        { "--allowed-origins", OPTION_TEXTS, &request->origins, "ORIGIN ...", "whose pages may ask, or * (its own)" },
        { "--allowed-hosts", OPTION_TEXTS, &request->hosts, "HOST ...", "its names, or * (on loopback: localhost)" },
        { "--share-prefix-cache", OPTION_FLAG, &server->share_prefix_cache, NULL, "between API keys, too" },
        { "model and cache", OPTION_HEADING },
        { "--model", OPTION_TEXT, &request->model, "MODEL", "the same as MODEL, for a configuration" },
        { "--served-model-name", OPTION_TEXTS, &request->model_names, "NAME ...",
          "what clients call it (MODEL's own name)" },
        { "--chat-template", OPTION_TEXT, &server->chat_template, "FILE", "a Jinja template instead of the model's" },
        CACHE_OPTION_ROWS(request->cache),
        SERVING_OPTION_ROWS(request->cache),
        RANKS_OPTION_ROW(request->cache),
        { "--enable-prefix-caching", OPTION_SWITCH, &request->prefix_cache, NULL, "share equal beginnings (on)" },
        { "running", OPTION_HEADING },
        { "--scheduling-policy", OPTION_WORD, &request->policy, "POLICY", "fcfs or priority (fcfs)",
          .words = policies },
        { "--seed", OPTION_INT, &request->seed, "N", "for requests without their own (a random one)", 0,
          9007199254740991 },
        { "--threads", OPTION_INT, &request->threads, "N", "threads (all cores)", 1, 256 },
        { "--quality-gate", OPTION_REAL, &request->quality_gate, "X",
          "serve only if the cache's KL divergence is at most X", 1e-6, 100 },
        { "--no-self-test", OPTION_FLAG, &server->engine.no_self_test, NULL, "do not check the kernels first" },
        { "limits", OPTION_HEADING },
        { "--max-connections", OPTION_INT, &request->connections, "N", "connections at once (1024)", 1, 1 << 20 },
        { "--max-queue", OPTION_INT, &request->queue, "N", "requests that wait; 429 beyond (1024)", 1, 1 << 20 },
        { "--max-inflight-bytes", OPTION_SIZE, &server->inflight_bytes, "BYTES",
          "of all requests together; 429 beyond (1/8 of free memory)" },
        { "--max-header-bytes", OPTION_SIZE, &server->http.head_bytes, "BYTES", "of one request (64K)" },
        { "--max-body-bytes", OPTION_SIZE, &server->http.body_bytes, "BYTES", "of one request (8M)" },
        { "--header-seconds", OPTION_REAL, &server->http.head_seconds, "S", "for its headers to come (10)", 1e-3, 1e6 },
        { "--body-seconds", OPTION_REAL, &server->http.body_seconds, "S", "for its body to come (60)", 1e-3, 1e6 },
        { "--drain-seconds", OPTION_REAL, &server->drain_seconds, "S", "to finish after SIGTERM (30)", 0, 1e6 },
        { "--stall-seconds", OPTION_REAL, &server->stall_seconds, "S", "without progress: /health is 503 (60)", 1e-3,
          1e6 },
        { "files and logs", OPTION_HEADING },
        { "--config", OPTION_TEXT, &request->config, "FILE", "these options in YAML; the command line wins" },
        { "--log-level", OPTION_WORD, &request->log_level, "LEVEL", "debug, info, warning or error (info)",
          .words = log_level_words },
        { "--log-json", OPTION_FLAG, &server->log.json, NULL, "a JSON object per line" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble serve [MODEL] [options]",
        .about = "Serves MODEL, or the quick start's, over the OpenAI API, with a page to chat and watch at /.",
        .example = "nibble serve model.gguf --port 8000 --kv-cache-dtype nvfp4",
        .options = options,
        .positional_max = 1,
    };
    struct error err;
    struct nibble_error error;
    argv = config_apply(config, options, &argc, argv, &err);
    if (!argv)
        return public_error(&error, &err), cli_fail(&error, false);
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (count)
        request->model = argv[0];
    return parsed;
}

// ---- what it leaves open ------------------------------------------------------------------------------------------

static bool is_set(const char *text) { return text && *text; }

// Where scripts/setup.sh puts what it fetches.
static bool choose_default_model(struct request *request, struct nibble_error *error)
{
    static const char name[] = "SmolLM2-135M-Instruct";
    request->default_model = file_cache_path("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if (!request->default_model || !file_exists(request->default_model))
        return cli_trouble(error,
                           "no MODEL was given, and the default one is not there (%s); run scripts/quickstart, "
                           "which fetches it, or give a MODEL",
                           request->default_model ? request->default_model : "neither NIBBLE_CACHE nor HOME is set");
    request->model = request->default_model;
    if (!request->model_names.count)
        request->model_names = (struct option_texts){ { name }, 1 };
    return true;
}

static bool choose_api_keys(struct request *request, struct nibble_error *error)
{
    struct option_texts *keys = &request->api_keys;
    const char *key = getenv("NIBBLE_API_KEY");
    if (!keys->count && is_set(key))
        keys->items[keys->count++] = key;
    bool empty = false;
    for (int i = 0; i < keys->count; i++)
        empty = empty || !*keys->items[i];
    if (empty)
        *error = (struct nibble_error){ .text = "an --api-key is empty; leave the option out to serve without a key",
                                        .usage = true };
    return !empty;
}

static bool check_words(const struct option_texts *words, bool (*check)(const char *word, struct error *err),
                        struct nibble_error *error)
{
    struct error err;
    for (int i = 0; i < words->count; i++)
        if (!check(words->items[i], &err)) {
            public_error(error, &err);
            error->usage = true;
            return false;
        }
    return true;
}

static bool pass_quality_gate(void *context, struct nibble_error *error)
{
    const struct request *request = context;
    double limit = request->quality_gate, kld;
    char line[128];
    if (limit <= 0)
        return true;
    if (!quality_gate(request->model, &request->server.engine, limit, &kld, error))
        return false;
    snprintf(line, sizeof line, "quality: KL divergence %.6f from a cache that is not quantised; the gate is %g\n", kld,
             limit);
    log_print(&request->server.log, LOG_INFO, "quality", line);
    return true;
}

static int serve(struct request *request)
{
    struct nibble_error error;
    if (!choose_api_keys(request, &error) || !check_words(&request->origins, access_check_origin_word, &error)
        || !check_words(&request->hosts, access_check_host_word, &error)
        || (!request->model && !choose_default_model(request, &error))) {
        log_failure(&request->server.log, error.text);
        return error.usage ? EXIT_USAGE : EXIT_FAILED;
    }
    struct cli_progress progress = { .label = "loading weights", .shown = -1 };
    struct server_options *server = &request->server;
    server->model = request->model;
    server->model_names = request->model_names.items;
    server->model_name_count = request->model_names.count;
    server->port = (int)request->port;
    server->access = (struct access_options){
        .keys = request->api_keys.items,
        .key_count = request->api_keys.count,
        .origins = request->origins.items,
        .origin_count = request->origins.count,
        .hosts = request->hosts.items,
        .host_count = request->hosts.count,
        .listens_at = server->uds ? NULL : server->host,
    };
    cache_options_apply(&request->cache, &server->engine);
    server->engine.threads = (int)request->threads;
    server->engine.progress = server->log.json ? NULL : cli_progress_show;
    server->engine.calibrating = server->log.json ? NULL : cli_calibrating_show;
    server->engine.progress_context = &progress;
    server->scheduler.no_prefix_cache = !request->prefix_cache;
    server->scheduler.by_priority = request->policy == POLICY_PRIORITY;
    server->has_seed = request->seed >= 0;
    server->seed = server->has_seed ? (uint64_t)request->seed : 0;
    server->http.connections = (int)request->connections;
    server->queue = (int)request->queue;
    server->before_load = pass_quality_gate;
    server->before_load_context = request;
    return server_run(server);
}

// Its log has a thread of its own from here on.
static int serve_and_log(struct request *request)
{
    struct log *log = &request->server.log;
    struct error err;
    log->level = (enum log_level)request->log_level;
    if (!log_open(log, &err))
        return log_failure(log, err.text), EXIT_FAILED;
    int status = serve(request);
    log_close(log);
    return status;
}

int command_serve(int argc, char **argv)
{
    struct request request = {
        .server = { .host = "127.0.0.1",
                    .http = { .head_bytes = HEADER_BYTES,
                              .body_bytes = BODY_BYTES,
                              .unsent_bytes = UNSENT_BYTES,
                              .head_seconds = HEADER_SECONDS,
                              .body_seconds = BODY_SECONDS,
                              .idle_seconds = IDLE_SECONDS,
                              .send_seconds = SEND_SECONDS },
                    .drain_seconds = DRAIN_SECONDS,
                    .stall_seconds = STALL_SECONDS },
        .cache = { .sequences = SEQUENCES },
        .port = PORT,
        .connections = CONNECTIONS,
        .queue = QUEUE,
        .seed = -1,
        .log_level = LOG_INFO,
        .prefix_cache = true,
    };
    struct config config = { 0 };
    int status = ranks_begin(&request.cache.joined);
    if (status < 0)
        status = parse(&request, &config, argc, argv);
    if (status < 0)
        status = ranks_settle(request.cache.joined, request.cache.ranks, false);
    if (status < 0)
        status = serve_and_log(&request);
    nibble_ranks_close(request.cache.joined);
    strbuf_free(&request.cache.skip_layers);
    free(request.default_model);
    config_free(&config);
    return status;
}
