// SPDX-License-Identifier: Apache-2.0
// engine/kernels/kernels.h: reports about the kernels of this build: what they are for, whether they are right, how
// fast they are. A report is JSON; its list "kernels" is also a table.
#ifndef ENGINE_KERNELS_KERNELS_H
#define ENGINE_KERNELS_KERNELS_H

#include "device/device.h"
#include "engine/kernels/grid.h"
#include "kernel/check.h"

struct cuda;

struct kernels_query {
    const char *name; // of a kernel or an op; NULL: all
    struct device device;
    struct cuda *cuda; // the device, where rows are to be run on a GPU
    uint64_t seed;
    bool quick;                                   // of a test: one seed, small shapes
    int threads;                                  // 0: every core
    void (*progress)(void *context, double done); // may be NULL
    void *progress_context;
};

struct kernels_report {
    json_t *json;
    json_t *table; // the rows for people; NULL: the list "kernels" of `json`
    const struct grid_column *columns;
    int width;                  // of the text, in columns
    struct strbuf above, below; // lines around the table
    int failed;
};

bool kernels_list(const struct kernels_query *query, struct kernels_report *report, struct error *err);
bool kernels_test(const struct kernels_query *query, struct kernels_report *report, struct error *err);
bool kernels_bench(const struct kernels_query *query, struct kernels_report *report, struct error *err);

// The rows that the query is about: the next after `kernel`, the first after NULL.
const struct kernel *kernels_next(const struct kernels_query *query, const struct kernel *kernel);

int kernels_count(const struct kernels_query *query);

// The features that a kernel needs and the device lacks ("avx2 fma", "cuda", "sm_90"), or NULL.
const char *kernels_missing(const struct kernel *kernel, const struct device *device, struct arena *arena);

const char *kernels_load_word(enum kernel_load load, struct arena *arena); // "1-8", "9+", "any"
const char *kernels_format_words(const struct kernel *kernel, const struct testcase_options *wanted,
                                 struct arena *arena);

void kernels_progress(const struct kernels_query *query, double done);

#endif
