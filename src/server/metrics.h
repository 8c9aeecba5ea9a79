// SPDX-License-Identifier: Apache-2.0
// server/metrics.h: Prometheus metrics (text exposition format), with vLLM's names where the meaning is the same.
// The writer's thread observes answers, the loop counts requests and prints: a lock is inside. One table (metrics.c)
// has each metric's name, kind, help and buckets.
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include <jansson.h>
#include <pthread.h>

#include "base/strbuf.h"
#include "nibble.h"
#include "server/api.h"
#include "server/http.h"

enum { METRIC_BUCKETS_MAX = 32, METRIC_HTTP_ROWS = 128 };

struct histogram {
    const double *bounds; // rising
    int bound_count;
    uint64_t counts[METRIC_BUCKETS_MAX + 1]; // not cumulative; the last is above every bound
    double sum;
};
void histogram_observe(struct histogram *histogram, double value); // below 0 or not a number: it is not counted

enum metric_histogram {
    METRIC_TIME_TO_FIRST_TOKEN,
    METRIC_INTER_TOKEN_LATENCY,
    METRIC_TIME_PER_OUTPUT_TOKEN,
    METRIC_E2E_LATENCY,
    METRIC_QUEUE_TIME,
    METRIC_INFERENCE_TIME,
    METRIC_PREFILL_TIME,
    METRIC_DECODE_TIME,
    METRIC_PROMPT_TOKENS,
    METRIC_GENERATION_TOKENS,
    METRIC_MAX_GENERATION_TOKENS,
    METRIC_PARAMS_N,
    METRIC_PARAMS_MAX_TOKENS,
    METRIC_PREFILL_COMPUTED_TOKENS,
    METRIC_ITERATION_TOKENS,
    METRIC_HISTOGRAMS,
};

struct metrics {
    pthread_mutex_t lock;                // of histograms, finished and http
    char *model_name;                    // owned; label of every metric with vLLM's name
    const json_t *plan;                  // borrowed: nibble plan --json
    const char *kv_cache_dtype;          // as it was asked for, set by the owner; NULL: auto
    bool prefix_cache, self_test_passed; // set by the owner
    double start_seconds;                // of the process, since 1970
    struct histogram histograms[METRIC_HISTOGRAMS];
    uint64_t finished[API_FINISHES];
    uint64_t foreign_requests;                 // of other origins, or for other hosts: 403
    size_t inflight_bytes, inflight_bytes_max; // of the budget for requests; set by the owner, as are the next three
    uint64_t log_dropped, grammars_compiled;
    struct http_counts connections;
    struct http_count {
        char handler[48]; // a route of the server's table, or "other"
        char method[8];   // "other" where it is none that HTTP has
        int status;
        struct histogram seconds;
    } http[METRIC_HTTP_ROWS]; // the last row takes whatever has no row any more
    int http_count;
};

void metrics_open(struct metrics *metrics, const char *model_name, int max_model_len, const json_t *plan);
void metrics_close(struct metrics *metrics);
void metrics_observe(struct metrics *metrics, enum metric_histogram which, double value);
void metrics_count_finish(struct metrics *metrics, enum nibble_finish how);
void metrics_count_http(struct metrics *metrics, const char *handler, const char *method, int status, double seconds);

// `stats` are the scheduler's after its latest step; waiting counts what has not reached it yet as well.
void metrics_print(struct metrics *metrics, const struct nibble_scheduler_stats *stats, int waiting,
                   struct strbuf *out);

#endif
