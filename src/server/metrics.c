// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof *(array)))

// ---- the tables ---------------------------------------------------------------------------------------------------

// Metrics that are one number: name, kind, labels, value, help. A row is printed where metrics, stats, waiting, process
// and the label strings `model` (vLLM's two) and `none` are in scope.
// clang-format off
#define SCALARS(X)                                                                                                    \
    X("vllm:num_requests_running", gauge, model, stats->running, "Requests that are being answered.")                 \
    X("vllm:num_requests_waiting", gauge, model, waiting, "Requests that wait to be read.")                           \
    X("vllm:kv_cache_usage_perc", gauge, model, stats->cache_use,                                                     \
      "Share of the cache that running requests hold; 1 is all of it.")                                               \
    X("vllm:num_preemptions_total", counter, model, stats->preemptions,                                               \
      "How often a request gave its cache to others and was read again.")                                             \
    X("vllm:prompt_tokens_total", counter, model, stats->prompt_tokens, "Tokens of prompts.")                         \
    X("vllm:prompt_tokens_cached_total", counter, model, stats->prefix_hits,                                          \
      "Tokens of prompts that the prefix cache had.")                                                                 \
    X("vllm:generation_tokens_total", counter, model, stats->answer_tokens, "Tokens of answers.")                     \
    X("vllm:prefix_cache_queries_total", counter, model, stats->prefix_queries,                                       \
      "Tokens that were looked up in the prefix cache.")                                                              \
    X("vllm:prefix_cache_hits_total", counter, model, stats->prefix_hits,                                             \
      "Tokens that were found in the prefix cache.")                                                                  \
    X("nibble:cache_tokens", gauge, none, stats->cache_tokens, "Capacity of the KV cache in tokens.")             \
    X("nibble:device_failing", gauge, none, stats->failing,                                                           \
      "1: the device failed in the latest step, and /health says so.")                                                \
    X("vllm:corrupted_requests_total", counter, model, stats->corrupted,                                              \
      "Requests that ended because the model's logits were not finite.")                                              \
    X("nibble:self_test_passed", gauge, none, metrics->self_test_passed,                                              \
      "1: each kernel gave the known answer before the port opened; 0: it was not asked.")                            \
    X("nibble:inflight_bytes", gauge, none, metrics->inflight_bytes,                                                  \
      "Memory that requests in flight are charged with.")                                                             \
    X("nibble:inflight_bytes_max", gauge, none, metrics->inflight_bytes_max, "--max-inflight-bytes; 429 beyond it.")  \
    X("nibble:http_foreign_requests_total", counter, none, metrics->foreign_requests,                                 \
      "Requests of pages of other origins, or for other hosts, that were refused.")                                   \
    X("nibble:http_connections_refused_total", counter, none, metrics->connections.refused,                           \
      "Connections that were answered 503: all were in use, or there were no more descriptors.")                      \
    X("nibble:http_connections_evicted_total", counter, none, metrics->connections.evicted,                           \
      "Idle connections that were closed for new ones.")                                                              \
    X("nibble:grammars_compiled_total", counter, none, metrics->grammars_compiled,                                    \
      "Schemas, regexes, grammars and lists of tools that no earlier request had brought.")                           \
    X("nibble:log_lines_dropped_total", counter, none, metrics->log_dropped,                                          \
      "Lines of the log that were not written, as nobody read those before them.")                                    \
    X("process_start_time_seconds", gauge, none, metrics->start_seconds, "When the process started, since 1970.")     \
    X("process_resident_memory_bytes", gauge, none, process.resident_bytes, "Memory of the process that is in RAM.")  \
    X("process_cpu_seconds_total", counter, none, process.cpu_seconds, "CPU time of the process, of all threads.")
// clang-format on

static const double first_token_bounds[] = { .001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                             1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560 };
static const double token_gap_bounds[] = { .01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                           .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80 };
static const double latency_bounds[] = { .3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                         30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680 };
static const double token_bounds[] = { 1,   2,   5,   1e1, 2e1, 5e1, 1e2, 2e2, 5e2, 1e3, 2e3, 5e3, 1e4, 2e4,
                                       5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8 };
static const double choice_bounds[] = { 1, 2, 5, 10, 20 };
static const double step_bounds[] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384 };
static const double http_bounds[] = { .005, .01, .05, .1, .5, 1, 5, 10, 60 };

#define BOUNDS(array) array##_bounds, COUNT_OF(array##_bounds)

static const struct {
    const char *name;
    const double *bounds; // token_bounds end at max_model_len
    int bound_count;
    const char *help;
} histogram_table[METRIC_HISTOGRAMS] = {
    [METRIC_TIME_TO_FIRST_TOKEN] = { "vllm:time_to_first_token_seconds", BOUNDS(first_token),
                                     "From a request's arrival to its first token." },
    [METRIC_INTER_TOKEN_LATENCY] = { "vllm:inter_token_latency_seconds", BOUNDS(token_gap),
                                     "From one token of an answer to the next." },
    [METRIC_TIME_PER_OUTPUT_TOKEN] = { "vllm:request_time_per_output_token_seconds", BOUNDS(token_gap),
                                       "A request's mean time from token to token." },
    [METRIC_E2E_LATENCY] = { "vllm:e2e_request_latency_seconds", BOUNDS(latency),
                             "From a request's arrival to its last token." },
    [METRIC_QUEUE_TIME] = { "vllm:request_queue_time_seconds", BOUNDS(latency), "From arrival to admission." },
    [METRIC_INFERENCE_TIME] = { "vllm:request_inference_time_seconds", BOUNDS(latency),
                                "From admission to the last token." },
    [METRIC_PREFILL_TIME] = { "vllm:request_prefill_time_seconds", BOUNDS(latency),
                              "From admission to the first token." },
    [METRIC_DECODE_TIME] = { "vllm:request_decode_time_seconds", BOUNDS(latency), "From the first token to the last." },
    [METRIC_PROMPT_TOKENS] = { "vllm:request_prompt_tokens", BOUNDS(token), "Tokens of a request's prompt." },
    [METRIC_GENERATION_TOKENS] = { "vllm:request_generation_tokens", BOUNDS(token), "Tokens of a request's answers." },
    [METRIC_MAX_GENERATION_TOKENS] = { "vllm:request_max_num_generation_tokens", BOUNDS(token),
                                       "Tokens of a request's longest answer." },
    [METRIC_PARAMS_N] = { "vllm:request_params_n", BOUNDS(choice), "How many answers a request asked for." },
    [METRIC_PARAMS_MAX_TOKENS] = { "vllm:request_params_max_tokens", BOUNDS(token),
                                   "The max_tokens that a request asked for." },
    [METRIC_PREFILL_COMPUTED_TOKENS] = { "vllm:request_prefill_kv_computed_tokens", BOUNDS(token),
                                         "Tokens of a prompt that had to be read, not found in the cache." },
    [METRIC_ITERATION_TOKENS] = { "vllm:iteration_tokens_total", BOUNDS(step), "Tokens of one step of the engine." },
};

// ---- counting -----------------------------------------------------------------------------------------------------

void histogram_observe(struct histogram *histogram, double value)
{
    if (!(value >= 0))
        return;
    int bucket = 0;
    while (bucket < histogram->bound_count && value > histogram->bounds[bucket])
        bucket++;
    histogram->counts[bucket]++;
    histogram->sum += value;
}

// The kernel counts a process's start in ticks since boot.
static double process_start_seconds(void)
{
    unsigned long long ticks = 0;
    char text[1024];
    file_read_start("/proc/self/stat", text, sizeof text);
    const char *rest = strrchr(text, ')'); // the name before it may hold anything
    struct timespec now, since_boot;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &since_boot);
    double start = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    if (rest
        && sscanf(rest,
                  ") %*c"
                  "%*s%*s%*s%*s%*s%*s%*s%*s%*s"
                  "%*s%*s%*s%*s%*s%*s%*s%*s%*s"
                  "%llu",
                  &ticks)
            == 1)
        start -= (double)since_boot.tv_sec + (double)since_boot.tv_nsec * 1e-9
            - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return start;
}

void metrics_open(struct metrics *metrics, const char *model_name, int max_model_len, const json_t *plan)
{
    *metrics = (struct metrics){ .plan = plan, .start_seconds = process_start_seconds() };
    pthread_mutex_init(&metrics->lock, NULL);
    size_t bytes = strlen(model_name) + 1;
    metrics->model_name = memcpy(memory_new(bytes, 1), model_name, bytes);
    for (int i = 0; i < METRIC_HISTOGRAMS; i++) {
        struct histogram *histogram = &metrics->histograms[i];
        histogram->bounds = histogram_table[i].bounds;
        histogram->bound_count = histogram_table[i].bound_count;
        while (histogram->bounds == token_bounds && histogram->bound_count
               && token_bounds[histogram->bound_count - 1] > max_model_len)
            histogram->bound_count--;
    }
}

void metrics_close(struct metrics *metrics)
{
    if (!metrics->model_name)
        return;
    free(metrics->model_name);
    pthread_mutex_destroy(&metrics->lock);
    *metrics = (struct metrics){ 0 };
}

void metrics_observe(struct metrics *metrics, enum metric_histogram which, double value)
{
    pthread_mutex_lock(&metrics->lock);
    histogram_observe(&metrics->histograms[which], value);
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_count_finish(struct metrics *metrics, enum nibble_finish how)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->finished[how]++;
    pthread_mutex_unlock(&metrics->lock);
}

// A client may send any word as its method; only HTTP's own become labels.
static const char *method_label(const char *method)
{
    static const char *const methods[] = { "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH" };
    for (int i = 0; i < COUNT_OF(methods); i++)
        if (!strcmp(method, methods[i]))
            return methods[i];
    return "other";
}

static struct http_count *http_row(struct metrics *metrics, const char *handler, const char *method, int status)
{
    assert(strlen(handler) < sizeof metrics->http->handler);
    for (int i = 0; i < metrics->http_count; i++) {
        struct http_count *row = &metrics->http[i];
        if (row->status == status && !strcmp(row->handler, handler) && !strcmp(row->method, method))
            return row;
    }
    if (metrics->http_count == METRIC_HTTP_ROWS)
        return &metrics->http[METRIC_HTTP_ROWS - 1];
    bool last = metrics->http_count == METRIC_HTTP_ROWS - 1;
    struct http_count *row = &metrics->http[metrics->http_count++];
    *row = (struct http_count){ .status = last ? 0 : status,
                                .seconds = { .bounds = http_bounds, .bound_count = COUNT_OF(http_bounds) } };
    snprintf(row->handler, sizeof row->handler, "%s", last ? "other" : handler);
    snprintf(row->method, sizeof row->method, "%s", last ? "other" : method);
    return row;
}

void metrics_count_http(struct metrics *metrics, const char *handler, const char *method, int status, double seconds)
{
    pthread_mutex_lock(&metrics->lock);
    histogram_observe(&http_row(metrics, handler, method_label(method), status)->seconds, seconds);
    pthread_mutex_unlock(&metrics->lock);
}

// ---- printing -----------------------------------------------------------------------------------------------------

static void add_head(struct strbuf *out, const char *name, const char *kind, const char *help)
{
    strbuf_add_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void add_sample(struct strbuf *out, const char *name, const char *labels, double value)
{
    strbuf_add_format(out, *labels ? "%s{%s} %.15g\n" : "%s%s %.15g\n", name, labels, value);
}

static void add_label(struct strbuf *labels, const char *name, const char *value)
{
    struct strbuf clean = { 0 };
    strbuf_add_clean(&clean, bytes_of(value));
    strbuf_add_format(labels, "%s%s=\"", labels->len ? "," : "", name);
    for (size_t i = 0; i < clean.len; i++) {
        char c = clean.data[i];
        if (c == '\\' || c == '"' || c == '\n')
            strbuf_add_byte(labels, '\\');
        strbuf_add_byte(labels, c == '\n' ? 'n' : c);
    }
    strbuf_add_byte(labels, '"');
    strbuf_free(&clean);
}

static void add_buckets(struct strbuf *out, const char *name, const char *labels, const struct histogram *histogram)
{
    uint64_t total = 0;
    for (int i = 0; i < histogram->bound_count; i++) {
        char bound[32];
        snprintf(bound, sizeof bound, "%.15g", histogram->bounds[i]);
        total += histogram->counts[i];
        // The clients' libraries write whole bounds as 1.0, and `le` is compared as text.
        strbuf_add_format(out, "%s_bucket{%s,le=\"%s%s\"} %" PRIu64 "\n", name, labels, bound,
                          strchr(bound, '.') ? "" : ".0", total);
    }
    total += histogram->counts[histogram->bound_count];
    strbuf_add_format(out, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name, labels, total);
    strbuf_add_format(out, "%s_sum{%s} %.15g\n%s_count{%s} %" PRIu64 "\n", name, labels, histogram->sum, name, labels,
                      total);
}

struct process {
    double resident_bytes, cpu_seconds;
};

static struct process process_now(void)
{
    struct timespec cpu;
    unsigned long long pages = 0;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    char text[256];
    file_read_start("/proc/self/statm", text, sizeof text);
    sscanf(text, "%*u %llu", &pages);
    return (struct process){ .resident_bytes = (double)pages * (double)sysconf(_SC_PAGESIZE),
                             .cpu_seconds = (double)cpu.tv_sec + (double)cpu.tv_nsec * 1e-9 };
}

static void print_scalars(const struct metrics *metrics, const struct nibble_scheduler_stats *stats, int waiting,
                          const char *model, struct strbuf *out)
{
    static const char none[] = "";
    struct process process = process_now();
#define X(name, kind, labels, value, help) \
    add_head(out, name, #kind, help);      \
    add_sample(out, name, labels, (double)(value));
    SCALARS(X)
#undef X
}

static void print_requests(const struct metrics *metrics, const char *model, struct strbuf *out)
{
    static const char success[] = "vllm:request_success_total";
    add_head(out, success, "counter", "Requests that ended, by how.");
    for (int i = 0; i < API_FINISHES; i++) {
        struct strbuf labels = { 0 };
        strbuf_add_text(&labels, model);
        add_label(&labels, "finished_reason", api_finish_words[i]);
        add_sample(out, success, labels.data, (double)metrics->finished[i]);
        strbuf_free(&labels);
    }
    for (int i = 0; i < METRIC_HISTOGRAMS; i++) {
        add_head(out, histogram_table[i].name, "histogram", histogram_table[i].help);
        add_buckets(out, histogram_table[i].name, model, &metrics->histograms[i]);
    }
}

static uint64_t histogram_count(const struct histogram *histogram)
{
    uint64_t count = 0;
    for (int i = 0; i <= histogram->bound_count; i++)
        count += histogram->counts[i];
    return count;
}

static void print_http(const struct metrics *metrics, struct strbuf *out)
{
    static const char requests[] = "http_requests_total", seconds[] = "http_request_duration_seconds";
    struct strbuf durations = { 0 };
    add_head(out, requests, "counter", "Answers by method, status and handler.");
    add_head(&durations, seconds, "histogram", "From a request's last byte to the end of its answer.");
    for (int i = 0; i < metrics->http_count; i++) {
        const struct http_count *row = &metrics->http[i];
        struct strbuf labels = { 0 };
        char status[16];
        snprintf(status, sizeof status, "%d", row->status);
        add_label(&labels, "method", row->method);
        add_label(&labels, "status", status);
        add_label(&labels, "handler", row->handler);
        add_sample(out, requests, labels.data, (double)histogram_count(&row->seconds));
        add_buckets(&durations, seconds, labels.data, &row->seconds);
        strbuf_free(&labels);
    }
    strbuf_add(out, durations.data, durations.len);
    strbuf_free(&durations);
}

// ---- what was decided before the port opened ----------------------------------------------------------------------

static void print_info(struct strbuf *out, const char *name, const char *help, struct strbuf *labels)
{
    add_head(out, name, "gauge", help);
    add_sample(out, name, labels->data, 1);
    strbuf_free(labels);
}

static void add_number_label(struct strbuf *labels, const char *name, json_int_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, value);
    add_label(labels, name, text);
}

static void print_configuration(const struct metrics *metrics, const struct nibble_scheduler_stats *stats,
                                const char *model, struct strbuf *out)
{
    struct strbuf cache = { 0 }, build = { 0 };
    json_int_t page_tokens = json_integer_value(
        json_object_get(json_object_get(metrics->plan, "memory"), "page_tokens"));
    const char *device = json_string_value(json_object_get(metrics->plan, "device"));
    strbuf_add_text(&cache, model);
    add_label(&cache, "cache_dtype", metrics->kv_cache_dtype ? metrics->kv_cache_dtype : "auto");
    add_label(&cache, "enable_prefix_caching", metrics->prefix_cache ? "True" : "False");
    if (page_tokens > 0) {
        add_number_label(&cache, "block_size", page_tokens);
        add_number_label(&cache, "num_gpu_blocks", (json_int_t)stats->cache_tokens / page_tokens); // on a CPU, too
    }
    print_info(out, "vllm:cache_config_info", "The cache as it was configured.", &cache);
    add_label(&build, "version", nibble_version());
    add_label(&build, "compiler", NIBBLE_COMPILER);
    add_label(&build, "device", device ? device : "");
    print_info(out, "nibble:build_info", "What this server is.", &build);
}

static void print_layer_bits(const json_t *layers, struct strbuf *out)
{
    static const struct {
        const char *side, *key;
    } sides[] = { { "k", "k_bits" }, { "v", "v_bits" } };
    add_head(out, "nibble:layer_kv_bits", "gauge", "Bits of the cache per number, its scales included.");
    for (size_t i = 0; i < json_array_size(layers); i++)
        for (int side = 0; side < COUNT_OF(sides); side++) {
            struct strbuf labels = { 0 };
            const json_t *bits = json_object_get(json_array_get(layers, i), sides[side].key);
            add_number_label(&labels, "layer", (json_int_t)i);
            add_label(&labels, "side", sides[side].side);
            if (json_is_number(bits))
                add_sample(out, "nibble:layer_kv_bits", labels.data, json_number_value(bits));
            strbuf_free(&labels);
        }
}

static void print_kernels(const json_t *kernels, struct strbuf *out)
{
    static const char *const keys[][2] = {
        { "op", "op" }, { "tokens", "load" }, { "kernel", "kernel" }, { "layers", "layers" }
    };
    size_t index;
    const json_t *bound;
    add_head(out, "nibble:kernel_info", "gauge", "A kernel that does an op of these layers, for so many tokens.");
    json_array_foreach (kernels, index, bound) {
        struct strbuf labels = { 0 };
        for (int i = 0; i < COUNT_OF(keys); i++)
            add_label(&labels, keys[i][1], json_string_value(json_object_get(bound, keys[i][0])));
        add_sample(out, "nibble:kernel_info", labels.data, 1);
        strbuf_free(&labels);
    }
}

void metrics_print(struct metrics *metrics, const struct nibble_scheduler_stats *stats, int waiting, struct strbuf *out)
{
    struct strbuf model = { 0 };
    const json_t *layers = json_object_get(metrics->plan, "layers");
    add_label(&model, "model_name", metrics->model_name);
    add_label(&model, "engine", "0");
    pthread_mutex_lock(&metrics->lock);
    print_scalars(metrics, stats, waiting, model.data, out);
    print_requests(metrics, model.data, out);
    print_http(metrics, out);
    pthread_mutex_unlock(&metrics->lock);
    print_configuration(metrics, stats, model.data, out);
    print_layer_bits(layers, out);
    print_kernels(json_object_get(metrics->plan, "kernels"), out);
    strbuf_free(&model);
}
