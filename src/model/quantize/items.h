// SPDX-License-Identifier: Apache-2.0
// model/quantize/items.h: the tensors of the new checkpoint: each one's published name, its values' source, and whether
// it is a linear layer's matrix.
#ifndef MODEL_QUANTIZE_ITEMS_H
#define MODEL_QUANTIZE_ITEMS_H

#include "base/map.h"
#include "model/quantize/importance.h"

struct item {
    const char *name; // as published: "model.layers.0.mlp.up_proj.weight"
    const struct tensor *tensor;
    int64_t rows, cols;         // size as written; a vector is one row
    int64_t first;              // the tensor's row that is row 0 here, for stacked experts
    const struct tensor *scale; // global scale, or NULL; for experts the value at `expert`
    int expert;
    float offset;                   // added to each value
    int head_rows, rotary;          // rows per head; how many to permute from interleaved rope, 0: none
    bool linear;                    // may be quantised
    int op;                         // linear: index into model.ops
    bool listed;                    // listed as not quantised in the config
    int fused;                      // those of one number share an overall scale; never less than that of the item
                                    // before, but for an op's experts, which come matrix by matrix
    const struct importance *input; // of its columns, and of its results; NULL: unknown or unused
    struct importance *result;
    const char *kept; // why a linear layer is not quantised, or NULL
};

struct items {
    struct item *items; // heap
    size_t count, capacity;
    const char **attention; // by layer: the attention module's path, or NULL
    struct map names;       // item name -> index
    struct map used;        // file tensors that are in items, or omitted on purpose
    struct arena arena;
};

// `published` is the same model with published names: `model` itself, or the one made from a GGUF. Strings are borrowed
// from both and from the checkpoint.
bool items_collect(struct items *items, const struct checkpoint *checkpoint, const struct model *model,
                   const struct model *published, struct error *err);
void items_free(struct items *items);

#define ITEM_SUFFIX ".weight"

// The module's path: the name without its last component.
struct bytes item_module(const struct item *item);

#endif
