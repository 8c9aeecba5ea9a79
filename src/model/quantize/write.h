// SPDX-License-Identifier: Apache-2.0
// model/quantize/write.h: values from where they lie to where they go, a slice of rows at a time, on the whole team.
// What it takes is a few slices of memory, however large a matrix is.
#ifndef MODEL_QUANTIZE_WRITE_H
#define MODEL_QUANTIZE_WRITE_H

#include "device/thread_pool.h"
#include "model/quantize/items.h"
#include "model/quantize/layout.h"

struct writing {
    struct safetensors_out *out;
    struct thread_pool *team;
    struct slice *slice; // memory that is used again from one to the next
    bool (*progress)(void *context, double done);
    void *progress_context;
    double done, total; // in values read
};

struct write_result {
    double error, energy; // sums of squares, of what was lost and of what there was
};

// So many values have been read. False: whoever watches says stop.
bool write_advance(struct writing *writing, double values, struct error *err);

void write_open(struct writing *writing);
void write_close(struct writing *writing);

// The largest magnitude of a matrix. False: a value is not a finite number.
bool write_measure(struct writing *writing, const struct item *item, float *amax, struct error *err);

// A matrix as its codes and scales; with the factor of its inputs' hessian errors are made up for, with NULL each value
// is the nearest.
bool write_encoded(struct writing *writing, const struct item *item, const struct layout *layout, float global,
                   const float *factor, struct layout_entries entries, struct write_result *result, struct error *err);

bool write_floats(struct writing *writing, const struct item *item, enum dtype dtype, size_t entry,
                  struct write_result *result, struct error *err);

bool write_verbatim(struct writing *writing, const struct item *item, size_t entry, struct error *err);

#endif
