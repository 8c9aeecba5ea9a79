// SPDX-License-Identifier: Apache-2.0
// cli/serve.c: `nibble serve`: the options of the HTTP server, from the command line, a YAML file and the environment.
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/engine_options.h"
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
    RESPONSE_STORE_BYTES = 64 << 20,
    RESPONSE_STORE_COUNT = 10000,
    HEADER_SECONDS = 10,
    BODY_SECONDS = 60,
    DRAIN_SECONDS = 30,
    STALL_SECONDS = 60,
    UNSENT_BYTES = 16 << 20,
    IDLE_SECONDS = 75,
    SEND_SECONDS = 30,
};

struct serve_command {
    struct server_options server;
    struct option_texts api_keys, origins, hosts, model_names;
    const char *model, *config; // config: read by config_apply, before the options are
    int64_t seed;               // below 0: none
    int policy, log_level;
    double quality_gate; // 0: none
    bool prefix_cache;
    char *default_model; // heap, or NULL
};

enum { POLICY_FCFS, POLICY_PRIORITY };
static const char *const policies[] = { [POLICY_FCFS] = "fcfs", [POLICY_PRIORITY] = "priority", NULL };

// ---- from the command line ----------------------------------------------------------------------------------------

// The rows are the keys of a configuration file as well.
static int parse(struct serve_command *command, struct config *config, int argc, char **argv)
{
    struct server_options *server = &command->server;
    const struct option_row options[] = {
        { "address and access", OPTION_HEADING },
        { "--host", OPTION_TEXT, &server->host, "HOST", "address to listen on (127.0.0.1)" },
        { "--port", OPTION_INT, &server->port, "N", "its port; 0: a free one (8000)", 0, 65535 },
        { "--uds", OPTION_TEXT, &server->uds, "PATH", "listen on a Unix socket instead" },
        { "--api-key", OPTION_TEXTS, &command->api_keys, "KEY ...", "ask for one of these keys ($NIBBLE_API_KEY)" },
        { "--allowed-origins", OPTION_TEXTS, &command->origins, "ORIGIN ...", "whose pages may ask, or * (its own)" },
        { "--allowed-hosts", OPTION_TEXTS, &command->hosts, "HOST ...", "its names, or * (on loopback: localhost)" },
        { "--share-prefix-cache", OPTION_FLAG, &server->share_prefix_cache, NULL, "between API keys, too" },
        { "--slots", OPTION_FLAG, &server->slots, NULL, "answer GET /slots, as llama-server does" },
        { "model and cache", OPTION_HEADING },
        { "--model", OPTION_TEXT, &command->model, "MODEL", "the same as MODEL, for a configuration" },
        { "--served-model-name", OPTION_TEXTS, &command->model_names, "NAME ...",
          "what clients call it (MODEL's own name)" },
        { "--chat-template", OPTION_TEXT, &server->chat_template, "FILE", "a Jinja template instead of the model's" },
        { "--reasoning-parser", OPTION_TEXT, &server->reasoning_parser, "NAME",
          "how the model writes thoughts (found in the template)" },
        { "--no-reasoning", OPTION_FLAG, &server->no_reasoning, NULL, "leave thoughts in the content" },
        { "--max-reasoning-tokens", OPTION_INT, &server->max_reasoning_tokens, "N",
          "close longer thoughts, where a request says nothing", 0, 1 << 28 },
        { "--tool-call-parser", OPTION_TEXT, &server->tool_call_parser, "NAME",
          "how the model writes tool calls (found in its template)" },
        { "--trust-request-chat-template", OPTION_FLAG, &server->trust_request_chat_template, NULL,
          "requests may bring their own, as chat_template" },
        { "--enable-tokenizer-info-endpoint", OPTION_FLAG, &server->enable_tokenizer_info_endpoint, NULL,
          "serve the tokenizer's configuration at /tokenizer_info" },
        ENGINE_OPTION_ROWS(server->engine),
        SERVING_OPTION_ROWS(server->engine),
        RANKS_OPTION_ROW(server->engine),
        { "--enable-prefix-caching", OPTION_SWITCH, &command->prefix_cache, NULL, "share equal beginnings (on)" },
        { "running", OPTION_HEADING },
        DEFAULTS_OPTION_ROWS(server->defaults),
        { "--scheduling-policy", OPTION_WORD, &command->policy, "POLICY", "fcfs or priority (fcfs)",
          .words = policies },
        { "--seed", OPTION_LONG, &command->seed, "N", "for requests without their own (a random one)", 0,
          9007199254740991 },
        { "--threads", OPTION_INT, &server->engine.threads, "N", "threads (all cores)", 1, 256 },
        { "--quality-gate", OPTION_REAL, &command->quality_gate, "X",
          "serve only if the cache's KL divergence is at most X", 1e-6, 100 },
        { "--no-self-test", OPTION_FLAG, &server->engine.no_self_test, NULL, "do not check the kernels first" },
        { "limits", OPTION_HEADING },
        { "--max-connections", OPTION_INT, &server->http.connections, "N", "connections at once (1024)", 1, 1 << 20 },
        { "--max-queue", OPTION_INT, &server->queue, "N", "requests that wait; 429 beyond (1024)", 1, 1 << 20 },
        { "--max-inflight-bytes", OPTION_SIZE, &server->inflight_bytes, "BYTES",
          "of all requests together; 429 beyond (1/8 of free memory)" },
        { "--response-store-size", OPTION_SIZE, &server->response_store_bytes, "BYTES",
          "of all responses that are stored (64M)" },
        { "--response-store-count", OPTION_INT, &server->response_store_count, "N",
          "of them at most; 0: none is stored (10000)", 0, 1 << 20 },
        { "--max-header-bytes", OPTION_SIZE, &server->http.head_bytes, "BYTES", "of one request (64K)" },
        { "--max-body-bytes", OPTION_SIZE, &server->http.body_bytes, "BYTES", "of one request (8M)" },
        { "--header-seconds", OPTION_REAL, &server->http.head_seconds, "S", "for its headers to come (10)", 1e-3, 1e6 },
        { "--body-seconds", OPTION_REAL, &server->http.body_seconds, "S", "for its body to come (60)", 1e-3, 1e6 },
        { "--drain-seconds", OPTION_REAL, &server->drain_seconds, "S", "to finish after SIGTERM (30)", 0, 1e6 },
        { "--stall-seconds", OPTION_REAL, &server->stall_seconds, "S", "without progress: /health is 503 (60)", 1e-3,
          1e6 },
        { "files and logs", OPTION_HEADING },
        { "--config", OPTION_TEXT, &command->config, "FILE", "these options in YAML; the command line wins" },
        { "--log-level", OPTION_WORD, &command->log_level, "LEVEL", "debug, info, warning or error (info)",
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
    argv = config_apply(config, options, &argc, argv, &err);
    if (!argv)
        return cli_fail(&err, false);
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (count)
        command->model = argv[0];
    return parsed;
}

// ---- what it leaves open ------------------------------------------------------------------------------------------

static bool is_set(const char *text) { return text && *text; }

// The model that scripts/quickstart fetches.
static bool choose_default_model(struct serve_command *command, struct error *err)
{
    static const char name[] = "SmolLM2-135M-Instruct";
    command->default_model = file_cache_path("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if (!command->default_model || !file_exists(command->default_model))
        return fail(err,
                    "no MODEL was given, and the default one is not there (%s); run scripts/quickstart, "
                    "which fetches it, or give a MODEL",
                    command->default_model ? command->default_model : "neither NIBBLE_CACHE nor HOME is set");
    command->model = command->default_model;
    if (!command->model_names.count)
        command->model_names = (struct option_texts){ { name }, 1 };
    return true;
}

static bool choose_api_keys(struct serve_command *command, struct error *err)
{
    struct option_texts *keys = &command->api_keys;
    const char *key = getenv("NIBBLE_API_KEY");
    if (!keys->count && is_set(key))
        keys->items[keys->count++] = key;
    bool empty = false;
    for (int i = 0; i < keys->count; i++)
        empty = empty || !*keys->items[i];
    return !empty || fail_usage(err, "an --api-key is empty; leave the option out to serve without a key");
}

static bool check_words(const struct option_texts *words, bool (*check)(const char *word, struct error *err),
                        struct error *err)
{
    for (int i = 0; i < words->count; i++)
        if (!check(words->items[i], err)) {
            err->usage = true;
            return false;
        }
    return true;
}

static bool pass_quality_gate(void *context, struct error *err)
{
    const struct serve_command *command = context;
    double limit = command->quality_gate, kld;
    char line[128];
    if (limit <= 0)
        return true;
    if (!quality_gate(command->model, &command->server.engine, limit, &kld, err))
        return false;
    snprintf(line, sizeof line, "quality: KL divergence %.6f from a cache that is not quantised; the gate is %g\n", kld,
             limit);
    log_print(&command->server.log, LOG_INFO, "quality", line);
    return true;
}

static int serve(struct serve_command *command)
{
    struct error err;
    if (!choose_api_keys(command, &err) || !check_words(&command->origins, access_check_origin_word, &err)
        || !check_words(&command->hosts, access_check_host_word, &err)
        || (!command->model && !choose_default_model(command, &err))) {
        log_failure(&command->server.log, err.text);
        return err.usage ? EXIT_USAGE : EXIT_FAILED;
    }
    struct cli_progress progress = { .label = "loading weights", .shown = -1 };
    struct server_options *server = &command->server;
    server->model = command->model;
    server->model_names = command->model_names.items;
    server->model_name_count = command->model_names.count;
    server->access = (struct access_options){
        .keys = command->api_keys.items,
        .key_count = command->api_keys.count,
        .origins = command->origins.items,
        .origin_count = command->origins.count,
        .hosts = command->hosts.items,
        .host_count = command->hosts.count,
        .listens_at = server->uds ? NULL : server->host,
    };
    server->engine.progress = server->log.json ? NULL : cli_progress_show;
    server->engine.calibrating = server->log.json ? NULL : cli_calibrating_show;
    server->engine.progress_context = &progress;
    server->scheduler.no_prefix_cache = !command->prefix_cache;
    server->scheduler.by_priority = command->policy == POLICY_PRIORITY;
    server->has_seed = command->seed >= 0;
    server->seed = server->has_seed ? (uint64_t)command->seed : 0;
    server->before_load = pass_quality_gate;
    server->before_load_context = command;
    return server_run(server);
}

// Serves, with a log that has a thread of its own.
static int serve_and_log(struct serve_command *command)
{
    struct log *log = &command->server.log;
    struct error err;
    log->level = (enum log_level)command->log_level;
    if (!log_open(log, &err))
        return log_failure(log, err.text), EXIT_FAILED;
    int status = serve(command);
    log_close(log);
    return status;
}

int command_serve(int argc, char **argv)
{
    struct serve_command command = {
        .server = { .host = "127.0.0.1",
                    .port = PORT,
                    .max_reasoning_tokens = -1,
                    .engine = { .max_num_seqs = SEQUENCES },
                    .queue = QUEUE,
                    .response_store_bytes = RESPONSE_STORE_BYTES,
                    .response_store_count = RESPONSE_STORE_COUNT,
                    .http = { .connections = CONNECTIONS,
                              .head_bytes = HEADER_BYTES,
                              .body_bytes = BODY_BYTES,
                              .unsent_bytes = UNSENT_BYTES,
                              .head_seconds = HEADER_SECONDS,
                              .body_seconds = BODY_SECONDS,
                              .idle_seconds = IDLE_SECONDS,
                              .send_seconds = SEND_SECONDS },
                    .drain_seconds = DRAIN_SECONDS,
                    .stall_seconds = STALL_SECONDS },
        .seed = -1,
        .log_level = LOG_INFO,
        .prefix_cache = true,
    };
    struct config config = { 0 };
    int status = ranks_begin(&command.server.engine.ranks);
    if (status < 0)
        status = parse(&command, &config, argc, argv);
    if (status < 0)
        status = ranks_settle(&command.server.engine, false);
    if (status < 0)
        status = serve_and_log(&command);
    nibble_ranks_close(command.server.engine.ranks);
    free(command.default_model);
    config_free(&config);
    return status;
}
