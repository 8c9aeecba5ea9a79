// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "server/metrics.h"

#include <cmocka.h>

#define LAYER(k_bits) "{\"k_bits\": " k_bits ", \"v_bits\": 4.5}"

static const char plan_text[] = "{\"device\": \"cpu:avx2\", \"memory\": {\"page_tokens\": 16}, \"layers\": [" LAYER(
    "16") "," LAYER("8") "," LAYER("8") "," LAYER("8") "], \"kernels\": [{\"op\": \"attention\", \"tokens\": \"1-8\", "
                                                       "\"layers\": \"0, 3\", "
                                                       "\"kernel\": \"a\"}, {\"op\": \"embed\", \"tokens\": \"any\", "
                                                       "\"layers\": \"\", "
                                                       "\"kernel\": \"e\"}]}";

struct scene {
    struct metrics metrics;
    struct nibble_scheduler_stats stats;
    json_t *plan;
    struct strbuf text;
};

static void open_scene(struct scene *scene, const char *model_name, int max_model_len)
{
    *scene = (struct scene){ .plan = json_loads(plan_text, 0, NULL) };
    assert_non_null(scene->plan);
    metrics_open(&scene->metrics, model_name, max_model_len, scene->plan);
}

static void print(struct scene *scene)
{
    strbuf_free(&scene->text);
    metrics_print(&scene->metrics, &scene->stats, 7, &scene->text);
}

static void close_scene(struct scene *scene)
{
    strbuf_free(&scene->text);
    metrics_close(&scene->metrics);
    json_decref(scene->plan);
}

static bool has_line(const struct scene *scene, const char *line)
{
    size_t len = strlen(line);
    for (const char *at = scene->text.data; (at = strstr(at, line)); at++)
        if ((at == scene->text.data || at[-1] == '\n') && at[len] == '\n')
            return true;
    return false;
}

#define assert_line(scene, line)                                     \
    do {                                                             \
        if (!has_line(scene, line))                                  \
            fail_msg("no line %s in\n%s", line, (scene)->text.data); \
    } while (0)

static int count_lines(const struct scene *scene, const char *start)
{
    int count = 0;
    for (const char *at = scene->text.data; (at = strstr(at, start)); at++)
        count += at == scene->text.data || at[-1] == '\n';
    return count;
}

static void test_histogram_bounds_are_inclusive(void **state)
{
    (void)state;
    static const double bounds[] = { 1, 2 };
    struct histogram histogram = { .bounds = bounds, .bound_count = 2 };
    static const double values[] = { 0, 1, 1.5, 2, 3, -1, NAN };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        histogram_observe(&histogram, values[i]);
    assert_int_equal(histogram.counts[0], 2);
    assert_int_equal(histogram.counts[1], 2);
    assert_int_equal(histogram.counts[2], 1);
    assert_true(histogram.sum == 7.5);
}

static void test_token_bounds_end_at_the_context(void **state)
{
    (void)state;
    static const struct {
        int max_model_len, bounds;
    } cases[] = { { 1, 1 }, { 19, 4 }, { 20, 5 }, { 8192, 12 }, { 1 << 28, 26 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene scene;
        open_scene(&scene, "m", cases[i].max_model_len);
        assert_int_equal(scene.metrics.histograms[METRIC_PROMPT_TOKENS].bound_count, cases[i].bounds);
        assert_int_equal(scene.metrics.histograms[METRIC_ITERATION_TOKENS].bound_count, 13);
        close_scene(&scene);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, "m", 100);
    scene.stats = (struct nibble_scheduler_stats){ .running = 3,
                                                   .cache_use = 0.25,
                                                   .cache_tokens = 4096,
                                                   .prompt_tokens = 562949953421311,
                                                   .prefix_hits = 10,
                                                   .failing = true };
    scene.metrics.finished[METRIC_LENGTH] = 5;
    metrics_observe(&scene.metrics, METRIC_TIME_TO_FIRST_TOKEN, 0.003);
    metrics_observe(&scene.metrics, METRIC_TIME_TO_FIRST_TOKEN, 0.5);
    metrics_observe(&scene.metrics, METRIC_PARAMS_N, 50);
    print(&scene);
    static const char *const lines[] = {
        "# TYPE vllm:num_requests_running gauge",
        "vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 3",
        "vllm:num_requests_waiting{model_name=\"m\",engine=\"0\"} 7",
        "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.25",
        "# TYPE vllm:prompt_tokens_total counter",
        "vllm:prompt_tokens_total{model_name=\"m\",engine=\"0\"} 562949953421311",
        "vllm:prompt_tokens_cached_total{model_name=\"m\",engine=\"0\"} 10",
        "vllm:request_success_total{model_name=\"m\",engine=\"0\",finished_reason=\"length\"} 5",
        "vllm:request_success_total{model_name=\"m\",engine=\"0\",finished_reason=\"stop\"} 0",
        "# TYPE vllm:time_to_first_token_seconds histogram",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"0.001\"} 0",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"0.005\"} 1",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"0.5\"} 2",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"2560.0\"} 2",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"+Inf\"} 2",
        "vllm:time_to_first_token_seconds_sum{model_name=\"m\",engine=\"0\"} 0.503",
        "vllm:time_to_first_token_seconds_count{model_name=\"m\",engine=\"0\"} 2",
        "vllm:request_params_n_bucket{model_name=\"m\",engine=\"0\",le=\"20.0\"} 0",
        "vllm:request_params_n_bucket{model_name=\"m\",engine=\"0\",le=\"+Inf\"} 1",
        "nibble:cache_tokens 4096",
        "nibble:device_failing 1",
        "nibble:self_test_passed 0",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_line(&scene, lines[i]);
    assert_int_equal(count_lines(&scene, "# HELP "), count_lines(&scene, "# TYPE "));
    close_scene(&scene);
}

static void test_the_plan(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, "m", 100);
    scene.stats.cache_tokens = 4096;
    scene.metrics.self_test_passed = scene.metrics.prefix_cache = true;
    scene.metrics.kv_cache_dtype = "fp8";
    print(&scene);
    static const char *const lines[] = {
        "nibble:self_test_passed 1",
        ("vllm:cache_config_info{model_name=\"m\",engine=\"0\",cache_dtype=\"fp8\",enable_prefix_caching=\"True\","
         "block_size=\"16\",num_gpu_blocks=\"256\"} 1"),
        "nibble:layer_kv_bits{layer=\"0\",side=\"k\"} 16",
        "nibble:layer_kv_bits{layer=\"3\",side=\"v\"} 4.5",
        "nibble:kernel_info{op=\"attention\",load=\"1-8\",kernel=\"a\",layers=\"0, 3\"} 1",
        "nibble:kernel_info{op=\"embed\",load=\"any\",kernel=\"e\",layers=\"\"} 1",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_line(&scene, lines[i]);
    assert_int_equal(count_lines(&scene, "nibble:layer_kv_bits{"), 8);
    assert_int_equal(count_lines(&scene, "nibble:kernel_info{"), 2);
    assert_non_null(strstr(scene.text.data, ",device=\"cpu:avx2\"} 1\n"));
    close_scene(&scene);
}

static void test_a_plan_that_says_nothing(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, "m", 0);
    json_object_clear(scene.plan);
    print(&scene);
    assert_int_equal(count_lines(&scene, "nibble:layer_kv_bits{"), 0);
    assert_non_null(strstr(scene.text.data, ",device=\"\"} 1\n"));
    close_scene(&scene);
}

static void test_labels_are_escaped(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, "a\"b\\c\nd\xFF\xC3\xA9", 10);
    print(&scene);
    assert_line(&scene, "vllm:num_requests_running{model_name=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\xC3\xA9\",engine=\"0\"} 0");
    close_scene(&scene);
}

static void test_http(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, "m", 10);
    metrics_count_http(&scene.metrics, "/v1/models", "GET", 200, 0.01);
    metrics_count_http(&scene.metrics, "/v1/models", "GET", 200, 0.25);
    metrics_count_http(&scene.metrics, "/v1/models", "GET", 401, 0);
    metrics_count_http(&scene.metrics, "other", "BREW\"} 1", 405, 0);
    print(&scene);
    static const char *const lines[] = {
        "http_requests_total{method=\"GET\",status=\"200\",handler=\"/v1/models\"} 2",
        "http_requests_total{method=\"GET\",status=\"401\",handler=\"/v1/models\"} 1",
        "http_requests_total{method=\"other\",status=\"405\",handler=\"other\"} 1",
        "http_request_duration_seconds_bucket{method=\"GET\",status=\"200\",handler=\"/v1/models\",le=\"0.1\"} 1",
        "http_request_duration_seconds_sum{method=\"GET\",status=\"200\",handler=\"/v1/models\"} 0.26",
        "http_request_duration_seconds_count{method=\"GET\",status=\"200\",handler=\"/v1/models\"} 2",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_line(&scene, lines[i]);
    close_scene(&scene);
}

static void test_http_rows_are_bounded(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, "m", 10);
    for (int status = 0; status < 1000; status++)
        metrics_count_http(&scene.metrics, "/v1/models", "GET", 100 + status, 1);
    print(&scene);
    assert_int_equal(scene.metrics.http_count, METRIC_HTTP_ROWS);
    assert_int_equal(count_lines(&scene, "http_requests_total{"), METRIC_HTTP_ROWS);
    assert_line(&scene, "http_requests_total{method=\"other\",status=\"0\",handler=\"other\"} 873");
    close_scene(&scene);
}

static double number_after(const struct scene *scene, const char *start)
{
    const char *at = strstr(scene->text.data, start);
    assert_non_null(at);
    return strtod(at + strlen(start), NULL);
}

static void test_process(void **state)
{
    (void)state;
    struct scene scene;
    struct timespec now;
    open_scene(&scene, "m", 10);
    print(&scene);
    clock_gettime(CLOCK_REALTIME, &now);
    double start = number_after(&scene, "\nprocess_start_time_seconds ");
    assert_true(start < (double)now.tv_sec + 1 && start > (double)now.tv_sec - 300);
    assert_true(number_after(&scene, "\nprocess_resident_memory_bytes ") > 100000);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram_bounds_are_inclusive),
        cmocka_unit_test(test_token_bounds_end_at_the_context),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_the_plan),
        cmocka_unit_test(test_a_plan_that_says_nothing),
        cmocka_unit_test(test_labels_are_escaped),
        cmocka_unit_test(test_http),
        cmocka_unit_test(test_http_rows_are_bounded),
        cmocka_unit_test(test_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
