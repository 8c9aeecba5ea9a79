// SPDX-License-Identifier: Apache-2.0
// plan/explain_parts.h: what the two forms of an explanation share.
#ifndef PLAN_EXPLAIN_PARTS_H
#define PLAN_EXPLAIN_PARTS_H

#include <jansson.h>

#include "base/strbuf.h"
#include "plan/plan.h"

const struct plan_class *explain_class_of(const struct plan *plan, int layer);
int explain_op_of(const struct plan *plan, int layer, enum op_kind kind); // the layer's first op of that kind, or -1

// explain_rows.c: the rows that a matrix, or an op without, is bound to, by load; "a up to 8 tokens, b beyond"; lines
// about those of matrices and of attention, and about those that are slow.
struct explain_rows {
    const struct kernel *row[KERNEL_LOADS];
};
struct explain_rows explain_rows_of(const struct plan *plan, int op, int matrix);
bool explain_same_rows(const struct explain_rows *a, const struct explain_rows *b);
void explain_add_rows(struct strbuf *out, const struct explain_rows *rows);
void explain_add_matrices(const struct plan *plan, struct strbuf *out);
void explain_add_attention_rows(const struct plan *plan, struct strbuf *out);
void explain_add_slow(const struct plan *plan, const char *title, struct strbuf *out);
// All that are bound, each with its op, loads, layers and functions; those of the first op of some kinds in a layer.
json_t *explain_json_rows(const struct plan *plan);
json_t *explain_json_layer_rows(const struct plan *plan, int layer, const enum op_kind *kinds, int count);
// Formats of the weights for which these rows, or any where it is NULL, round activations or dequantise.
enum explain_set { EXPLAIN_INT16, EXPLAIN_INT8, EXPLAIN_NVFP4, EXPLAIN_UNPACKED };
uint64_t explain_weights(const struct plan *plan, const struct explain_rows *rows, enum explain_set set);

void explain_add_attention(struct strbuf *out, const struct plan_class *class); // "full", "latent 512+64"

// Texts for a format: .text lives as long as the call that it is an argument of.
struct explain_text {
    char text[32];
};
struct explain_text explain_size(size_t bytes);         // "1.5 MiB"
struct explain_text explain_range(int first, int last); // "0-3" or "7"
// Adds "0-3, 7": the layers for which `has` is true, `before` in front of the first. False: there are none.
bool explain_add_layers(struct strbuf *out, int layers, const char *before, bool (*has)(const void *context, int layer),
                        const void *context);
struct explain_which { // a context
    const struct plan *plan;
    int which;
};
void explain_add_formats(struct strbuf *out, const struct kv_layout *layout); // "fp8_e4m3/nvfp4" or "nvfp4"

// explain_memory.c: "float32 137.2 KiB, Q4_1 63.3 MiB"; "context length 8192 tokens, cache capacity 65536 tokens"; all
// lines about weights, memory and the cache.
void explain_add_weight_formats(const struct plan *plan, struct strbuf *out);
void explain_add_lengths(const struct plan *plan, struct strbuf *out);
void explain_add_memory(const struct plan *plan, struct strbuf *out);

// Breaks down the memory of weights: the bytes of their formats, second copies of some in another layout, and the bytes
// that the layouts that kernels read add, or save.
struct explain_packing {
    size_t listed_bytes, copied_bytes;
    int64_t layout_bytes;
};
struct explain_packing explain_packing(const struct plan *plan);

// explain_state.c: lines about layers without attention, and an entry for one of them.
void explain_add_states(const struct plan *plan, struct strbuf *out);
json_t *explain_json_recurrent(const struct plan *plan, int index);

// explain_store.c: how a layer's scales are chosen, NULL where nothing is to choose, and how many of its first pages
// are kept apart; a line about both.
const char *explain_scale(const struct plan *plan, int layer);
int explain_sink_pages(const struct plan *plan, int layer);
void explain_add_store(const struct plan *plan, struct strbuf *out);

// explain_transform.c: the word for what a layer's keys are stored as, "auto" where that is still to be measured, lines
// about it, and the errors that were measured, if any.
const char *explain_transform(const struct plan *plan, int layer);
void explain_add_transform(const struct plan *plan, struct strbuf *out);
void explain_add_short_transform(const struct plan *plan, struct strbuf *out);
json_t *explain_json_errors(const struct plan *plan, int layer);

// explain_ranks.c: lines about the ranks that share the model, none where it is whole, and the same for programs.
void explain_add_ranks(const struct plan *plan, struct strbuf *out);
json_t *explain_json_ranks(const struct plan *plan);

// explain_checkpoint.c: lines about the checkpoint, warnings last, and the same for programs.
void explain_add_checkpoint(const struct plan *plan, struct strbuf *out);
void explain_add_warnings(const struct plan *plan, const char *title, struct strbuf *out);
json_t *explain_json_stored(const struct plan *plan);
json_t *explain_json_checkpoint(const struct plan *plan);

#endif
