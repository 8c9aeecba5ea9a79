// SPDX-License-Identifier: Apache-2.0
// plan/explain_parts.h: what the files of an explanation share: parts of the JSON, and the printer of the text.
#ifndef PLAN_EXPLAIN_PARTS_H
#define PLAN_EXPLAIN_PARTS_H

#include <jansson.h>

#include "base/strbuf.h"
#include "plan/explain.h"
#include "plan/plan.h"

// ---- JSON ----

json_t *explain_root(const struct plan *plan); // explain_json.c: a plan or its refusal; the caller's

const struct plan_class *explain_class_of(const struct plan *plan, int layer);
json_t *explain_json_formats(uint64_t formats); // the words of a set of formats

// explain_kernels.c: the kernels that ops are bound to. All rows, each with its loads, layers and functions; the ops
// that have the same rows, with the row of each load; those of the first op of some kinds in a layer; what is fused;
// sentences about slow rows.
json_t *explain_json_rows(const struct plan *plan);
json_t *explain_json_bindings(const struct plan *plan);
json_t *explain_json_layer_rows(const struct plan *plan, int layer, const enum op_kind *kinds, int count);
json_t *explain_json_fused(const struct plan *plan);
json_t *explain_json_slow(const struct plan *plan);

// explain_memory.c: weights, and memory with the cost of a context.
json_t *explain_json_weights(const struct plan *plan);
json_t *explain_json_memory(const struct plan *plan);

// explain_layer.c: a layer with attention, with a state, or without either.
json_t *explain_json_layer(const struct plan *plan, int index);
const char *explain_attention(struct strbuf *out, const struct plan_class *class); // "full", "latent 512+64"

// explain_ranks.c, explain_checkpoint.c
json_t *explain_json_ranks(const struct plan *plan);
json_t *explain_json_stored(const struct plan *plan);
json_t *explain_json_checkpoint(const struct plan *plan);

// ---- text ----

enum { EXPLAIN_WIDTH = 80, EXPLAIN_INDENT = 10 };

struct explain_page {
    struct strbuf *out;
    struct explain_style style;
    json_t *plan;
};

// Members of JSON objects; "" and 0 where there is none.
const char *explain_string(const json_t *object, const char *key);
long long explain_number(const json_t *object, const char *key);

void explain_add_size(struct strbuf *out, double bytes);         // "1.5 MiB"
void explain_add_words(struct strbuf *out, const json_t *words); // "Q4_1 Q8_0"

// A line with its title in the first column, wrapped between words; nothing where the text is empty. Frees the text.
void explain_add_line(struct explain_page *page, const char *title, struct strbuf *text);

void explain_text_layers(struct explain_page *page);  // explain_text_layers.c: the table of layers, and how they store
void explain_text_kernels(struct explain_page *page); // explain_text_kernels.c: the table of kernels, and rejected ones
void explain_text_memory(struct explain_page *page);  // explain_text_memory.c: weights, cache, memory, ranks
void explain_add_weight_formats(struct strbuf *out, const json_t *weights);
void explain_add_lengths(struct strbuf *out, const json_t *memory);

#endif
