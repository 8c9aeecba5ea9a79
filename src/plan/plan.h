// SPDX-License-Identifier: Apache-2.0
// plan/plan.h: for every op of every layer the kernel, the number formats and the bytes, decided from headers before
// anything is loaded; for every kernel that was passed over, the reason. The engine runs what is written here.
// A plan that cannot run is refused, and the refusal is a value too: what was asked, why not, and what would run
// instead.
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "base/strbuf.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "kernel/load.h"
#include "kv/pool.h"
#include "model/model.h"
#include "nibble.h"
#include "plan/calibration.h"

struct plan;

struct plan_options {
    struct nibble_options user;               // as they were given: flags, or fields of the public interface
    const struct kv_calibration *calibration; // borrowed as long as the plan; NULL, or of no layers: nothing is known
    const struct kernel *const *failed;       // rows that failed their self-test, ends in NULL; NULL: none
    // Called when the plan is accepted and wants a calibration, with which it is then decided again; NULL: it goes
    // without. *out is borrowed as long as the plan.
    bool (*find_calibration)(void *context, const struct plan *plan, const struct kv_calibration **out,
                             struct error *err);
    void *find_context;
    bool apart;     // no op is fused: the results of all ops can be looked at
    bool runs_here; // devices that can be planned for but not run are no alternatives to a refusal
};

enum { PLAN_BATCH_TOKENS = 512, PLAN_BATCH_TOKENS_MAX = 4096, PLAN_SEQUENCES_MAX = 4096 };
enum { PLAN_OUTPUTS_MIN = 128, PLAN_OUTPUTS_MAX = 512 }; // rows of logits: one per sequence, within these bounds
enum { PLAN_TYPICAL_TOKENS = 2048 };                     // the length that pools are balanced for
enum { PLAN_STATE_TOKENS_MIN = 256, PLAN_STATE_TOKENS_MAX = PLAN_TYPICAL_TOKENS }; // that one state is chosen to cover
enum { PLAN_STATE_TOKENS_ASKED_MAX = 1 << 20 };
enum { PLAN_SINK_SHARE = 8 };  // pools of sink pages: an eighth of the room at most
enum { PLAN_CACHE_SHARE = 4 }; // a quarter of what is free, without --kv-cache-memory-bytes
#define PLAN_IN_FILE SIZE_MAX
#define PLAN_GPU_SHARE 0.92

// Layers that share attention kind, head geometry and formats, or have a state: one pool of pages.
struct plan_class {
    struct kv_class kind;
    struct kv_layout layout; // of keys and values
    int layers;
    size_t page_bytes; // of all its layers
    int pages;
};

enum { PLAN_NO_CLASS = -1 };
struct plan_layer {
    const char *format_origin; // why K and V have their formats: a flag, or what auto found
    int class_index;           // PLAN_NO_CLASS: it keeps nothing
    size_t offset;             // of the layer within a page
    int sink_class;            // of its sink pages, or PLAN_NO_CLASS
    size_t sink_offset;
    int transform;   // of its keys: KV_CENTRE, KV_ROTATE
    bool calibrated; // it is the best of those that were measured
    bool undecided;  // it would be, if any had been: none until then
};

// Kernels that do not fit an op of these layers, and why.
struct plan_reason {
    const struct kernel *kernel;
    int first_layer, last_layer; // -1: outside the layers
    const char *text;            // several are joined by "; "
};

// The reasons that say the same of the same layers as this one, itself the first, are marked as done. Returns how many.
int plan_reasons_alike(const struct plan_reason *reasons, int count, int first, bool *done);

// "0-3, 7" of the layers that are marked.
void plan_add_layers(struct strbuf *out, const bool *marked, int count);

// Words to type in place of (or beside) the flag of that name, and what they cost.
struct plan_alternative {
    const char *flag, *value;
    size_t token_bytes;
};

enum { PLAN_ALTERNATIVES_MAX = 24 };

// Describes the part of a model that one of several ranks holds.
struct plan_rank {
    int rank, first_head, heads, first_kv_head, kv_heads;
    size_t weight_bytes, workspace_bytes, scratch_bytes, pool_bytes;
    int replicated_count;
    const struct model_replica *replicated;
};

struct plan_refusal {
    const char *flag, *value; // what was asked for; NULL: nothing was refused
    const char *reason;
    const char *layers;  // "0-3, 7", or "" when it is not about layers
    int candidate_count; // rows of the op, each with its reasons
    struct plan_reason *candidates;
    int alternative_count; // nearest in bytes first
    struct plan_alternative alternatives[PLAN_ALTERNATIVES_MAX];
};

// A cache format with fewer bytes that would run, too: what a plan suggests to try next.
struct plan_next {
    const char *flag, *value; // NULL: nothing
    double factor;            // as many tokens would fit in the same memory
    double divergence;        // from a float32 cache, as measured on SmolLM2-135M (doc/quality.md)
};

struct plan {
    const struct model *model; // borrowed
    struct device device;
    int max_model_len; // in a refusal: the longest that fits, or 0
    int max_num_seqs, batch_tokens, outputs;
    const char *length_note; // why max_model_len is not the model's own, or NULL
    const char *sink_note;   // why there are no sink pages where that would be the default, or NULL
    bool int8_activations;   // of linear layers: asked for
    bool scale_search;       // scales by least square error, for formats that leave a choice
    const char *exchange;    // what carries the bytes that ranks exchange, once it is known, or NULL
    const char *failed_note; // kernels left out because they failed their self-test, or NULL
    size_t memory_bytes;     // what weights, workspace and pools may take; 0: no limit

    struct plan_layer *layer;                 // (model layers)
    const struct kv_calibration *calibration; // borrowed; NULL: none
    bool wants_calibration;                   // before it runs: transforms, or the centres of those that are decided
    int class_count;
    struct plan_class classes[KV_CLASSES_MAX];

    struct plan_op {
        // By the number of a load (kernel/load.h) and by matrix: matrices that have the same row are done by one call
        // of it. All rows of a matrix have the same packing. Ops without matrices have but the first.
        const struct kernel *rows[KERNEL_LOADS][LINEAR_OUTPUTS_MAX];
        uint32_t fuses[KERNEL_LOADS];         // neighbours that its rows do (KERNEL_FUSES_*)
        bool fused[KERNEL_LOADS];             // a neighbour does this op
        bool left_out;                        // its layer has no use for it: nothing runs
        size_t placed_at[LINEAR_OUTPUTS_MAX]; // of its matrices among the placed weights; PLAN_IN_FILE: not placed
    } *ops;                                   // beside model->ops
    int reason_count, reason_capacity;
    struct plan_reason *reasons;

    int rank_count; // of a model that several share, where this plan knows of the others, too; else 0
    const struct plan_rank *ranks;

    size_t weight_bytes; // placed weights, and those that stay in the file
    size_t placed_bytes; // of the former: packed as a kernel reads them, or in a GPU's memory
    size_t copied_bytes; // of the latter: tensors that are there in another layout already, as of a tied head
    int copied_count;
    const char *copied_name; // the first of them
    size_t workspace_bytes, pool_bytes;
    size_t scratch_bytes; // the last of the workspace: memory for the kernel that runs
    double concurrency;   // sequences of max_model_len that the pools hold at once
    struct plan_refusal refusal;
    struct plan_next next;
    struct arena arena;
    struct arena said; // texts of the kv plan's file, which stand where options would
};

// The row that does an op at a load, of its first matrix where matrices have different ones.
static inline const struct kernel *plan_row(const struct plan *plan, int op, int load)
{
    return plan->ops[op].rows[load][0];
}

// How a matrix is packed for all rows that read it; NULL: as the file has it.
static inline const struct kernel_packing *plan_packing(const struct plan *plan, int op, int matrix)
{
    return plan->ops[op].rows[0][matrix]->packing;
}

// Everything that the plan places begins at such a multiple, whatever reads it.
enum { PLAN_ALIGNMENT = 256 };
static inline size_t plan_align(size_t bytes) { return (bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT; }

// Returns the bytes of a matrix, or of all experts' matrices, each packed by itself (NULL: not packed), one after the
// other.
size_t plan_placed_bytes(const struct tensor *tensor, const struct kernel_packing *packing);

// Bytes of one value of a buffer: 4, and on a GPU 2 for what linear layers read and write, but for a router's logits.
size_t plan_value_bytes(const struct plan *plan, enum buffer buffer);
int plan_buffer_rows(const struct plan *plan, enum buffer buffer);

// The device of a word (device/device.h). "auto", or NULL, is a GPU of this machine that this build has kernels for,
// else the CPU, with a note of why no GPU is used where there is one.
bool plan_choose_device(struct device *device, const char *word, struct error *err);

// True: the plan can run. False: the sentence is in *err, with the alternatives on lines of their own; plan->refusal
// says the same as values, unless the options themselves were wrong (err->usage). Either way the plan is to be freed.
bool plan_make(struct plan *plan, const struct model *model, const struct device *device,
               const struct plan_options *options, struct error *err);
void plan_free(struct plan *plan);

// The same for a checkpoint that so many ranks share, each on such a device: rank 0's model and plan, with what all the
// others hold. On false the model, too, is to be freed.
bool plan_make_ranks(struct plan *plan, struct model *model, const struct checkpoint *checkpoint, int ranks,
                     const struct device *device, const struct plan_options *options, struct error *err);
struct plan_rank plan_rank_of(const struct plan *plan); // the one whose plan it is, borrowed from its model

// Ranks that compute a model together must have these in common: each has as much as the one with the least.
struct plan_share {
    int max_model_len, pages[KV_CLASSES_MAX];
};
struct plan_share plan_share_of(const struct plan *plan);
struct plan_share plan_share_least(struct plan_share a, struct plan_share b);
void plan_take_share(struct plan *plan, const struct plan_share *share);

// That one more token of context takes in a layer, and in all of them; states take none.
size_t plan_layer_token_bytes(const struct plan *plan, int layer);
size_t plan_token_bytes(const struct plan *plan);

// The memory of one sequence of so many tokens, in whole pages. Latents count as keys.
struct plan_sequence_cost {
    size_t k_bytes, v_bytes, state_bytes;
};
struct plan_sequence_cost plan_sequence_cost(const struct plan *plan, int tokens);
size_t plan_sequence_bytes(const struct plan *plan, int tokens);

// Tokens of context that the cache has room for, of all sequences together.
size_t plan_cache_tokens(const struct plan *plan);

const struct plan_class *plan_states(const struct plan *plan); // the class of recurrent layers, NULL: there are none

// The weights that ops refer to, each tensor once, summed by format into bytes (DTYPE_COUNT entries).
void plan_weights_by_format(const struct model *model, size_t *bytes);

#endif
