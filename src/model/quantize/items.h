// SPDX-License-Identifier: Apache-2.0
// model/quantize/items.h: what a new checkpoint will hold: every tensor under its published name, where its values come
// from, and whether it is a linear layer's matrix.
#ifndef MODEL_QUANTIZE_ITEMS_H
#define MODEL_QUANTIZE_ITEMS_H

#include "base/map.h"
#include "model/quantize/importance.h"

struct item {
    const char *name; // as published: "model.layers.0.mlp.up_proj.weight"
    const struct tensor *tensor;
    int64_t rows, cols;         // of what is written; a vector is one row
    int64_t first;              // the tensor's row that is row 0 here: experts lie one after the other
    const struct tensor *scale; // of all its values, or NULL; of experts the one at `expert`
    int expert;
    float offset;                   // added to each value
    int head_rows, rotary;          // rows of a head, and how many of them go from neighbours to halves; 0: all stay
    bool linear;                    // may be quantised
    int op;                         // of a linear one: its op's place in model.ops
    bool listed;                    // stays as it is, which configs say, so that nobody takes it for quantised
    int fused;                      // those of one number share an overall scale; never less than that of the item
                                    // before, but for an op's experts, which come matrix by matrix
    const struct importance *input; // of its columns, and of what comes out of its rows; NULL: not known, of no use
    struct importance *result;
    const char *kept; // why a linear layer stays as it is after all, or NULL
};

struct items {
    struct item *items; // heap
    size_t count, capacity;
    const char **attention; // by layer: the path of the module that k and v belong to, or NULL
    struct map names;       // of items, to their indices
    struct map used;        // names of the file's tensors that are in items, or left out on purpose
    struct arena arena;
};

// `published` is the same model under published names: `model` itself, or what was made of a GGUF. All strings are
// borrowed from both and from the checkpoint.
bool items_collect(struct items *items, const struct checkpoint *checkpoint, const struct model *model,
                   const struct model *published, struct error *err);
void items_free(struct items *items);

#define ITEM_SUFFIX ".weight"

// The module's path: the name without its last component.
struct bytes item_module(const struct item *item);

#endif
