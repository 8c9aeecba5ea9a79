// SPDX-License-Identifier: Apache-2.0
// plan/plan.h: for every op of every layer the kernel, the number formats and the bytes, decided from headers before
// anything is loaded; and for every kernel that was passed over, the reason. The engine runs what is written here.
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "device/device.h"
#include "kernel/kernel.h"
#include "model/model.h"

struct plan_options {
    const char *kv_cache_dtype; // NULL: auto
    int max_model_len;          // 0: the model's own, or as much of it as the memory holds
    int max_num_seqs;           // 0: 1
    int batch_tokens;           // 0: PLAN_BATCH_TOKENS
};

enum { PLAN_BATCH_TOKENS = 512, PLAN_BATCH_TOKENS_MAX = 4096, PLAN_SEQUENCES_MAX = 4096, PLAN_OUTPUTS_MAX = 128 };

// Layers that share attention kind, head geometry and formats: one pool of pages.
struct plan_class {
    struct kv_layout layout;
    int window;
    int layers;
    size_t page_bytes;   // of all its layers
    int pages;
};

struct plan_layer {
    int class_index;
    size_t offset;       // of the layer within a page
};

// A kernel that does not fit an op of these layers, and why.
struct plan_reason {
    const struct kernel *kernel;
    int first_layer, last_layer; // -1: outside the layers
    const char *text;
};

struct plan {
    const struct model *model;  // borrowed
    struct device device;
    int max_model_len, max_num_seqs, batch_tokens, outputs;
    const char *length_note;    // why max_model_len is not the model's own, or NULL

    struct plan_layer *layer;   // (model layers)
    int class_count;
    struct plan_class classes[KV_CLASSES_MAX];

    struct plan_op {
        const struct kernel *few, *many;
    } *ops;                     // beside model->ops
    int reason_count, reason_capacity;
    struct plan_reason *reasons;

    size_t weight_bytes, workspace_bytes, pool_bytes;
    struct arena arena;
};

bool plan_make(struct plan *plan, const struct model *model, const struct device *device,
               const struct plan_options *options, struct error *err);
void plan_free(struct plan *plan);

// Bytes one more token of context takes in a layer.
size_t plan_layer_token_bytes(const struct plan *plan, int layer);

// The weights that ops refer to, each tensor once, summed by format into bytes (DTYPE_COUNT entries).
void plan_weights_by_format(const struct model *model, size_t *bytes);

#endif
