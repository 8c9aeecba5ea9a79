// SPDX-License-Identifier: Apache-2.0
// model/quantize/write.h: converts and writes tensors, a slice of rows at a time, on all threads, in constant memory.
#ifndef MODEL_QUANTIZE_WRITE_H
#define MODEL_QUANTIZE_WRITE_H

#include "device/thread_pool.h"
#include "model/quantize/items.h"
#include "model/quantize/layout.h"

struct writing {
    struct safetensors_out *out;
    struct thread_pool *pool;
    struct slice *slice; // reused buffers
    bool (*progress)(void *context, double done);
    void *progress_context;
    double done, total; // in values read
};

struct write_result {
    double error, energy; // sums of squares: of errors and of values
};

// Reports progress; false if the callback asks to stop.
bool write_advance(struct writing *writing, double values, struct error *err);

void write_open(struct writing *writing);
void write_close(struct writing *writing);

// The largest magnitude of a matrix. An error if a value is not finite.
bool write_measure(struct writing *writing, const struct item *item, float *amax, struct error *err);

// Writes a matrix's codes and scales, by GPTQ with the Hessian's Cholesky factor, or to nearest if that is NULL.
bool write_encoded(struct writing *writing, const struct item *item, const struct layout *layout, float global,
                   const float *factor, struct layout_entries entries, struct write_result *result, struct error *err);

bool write_floats(struct writing *writing, const struct item *item, enum dtype dtype, size_t entry,
                  struct write_result *result, struct error *err);

bool write_verbatim(struct writing *writing, const struct item *item, size_t entry, struct error *err);

#endif
