// SPDX-License-Identifier: Apache-2.0
// engine/engine.h: the model runner: it loads a plan and executes steps of it. Opening follows the data flow:
// checkpoint -> model -> plan -> weights -> pools -> program. After that a step allocates nothing: it fills the batch
// and walks the program.
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "device/thread_pool.h"
#include "engine/gpu/gpu.h"
#include "engine/ranks/group.h"
#include "engine/observer.h"
#include "kv/pool.h"
#include "nibble.h"
#include "plan/plan.h"

struct engine {
    const struct checkpoint *checkpoint; // borrowed
    struct model model;
    struct plan plan;
    struct kv_pool pools[KV_CLASSES_MAX];
    float *buffers[BUFFER_COUNT]; // (rows, width) each, carved from one block; bfloat16 on a GPU, but for some
    void *workspace, *scratch;    // the second within the first
    uint8_t *placed;              // weights, where the plan has placed them
    struct thread_pool *pool;
    struct gpu *gpu;                    // NULL on CPUs; with it, all addresses above are its own and the ops run there
    struct group *group;                // borrowed; NULL: this process computes all of it
    int number;                         // by which the ranks of a group know the engine
    struct protocol_tables {            // of a group: page tables as rank 0 last sent them (engine/ranks/protocol.h)
        int32_t *pages[KV_CLASSES_MAX]; // (max_num_seqs, capacity)
        int *counts[KV_CLASSES_MAX];    // (max_num_seqs)
        int capacity[KV_CLASSES_MAX];
    } tables;
    struct strbuf message;            // of rank 0, to the others
    bool shares_device;               // with another rank
    struct nccl *nccl;                // of a GPU in a group: by which ranks exchange their parts,
    float *parts_host;                // or, where that is NULL, all of them on their way
    const struct engine_watch *watch; // borrowed; NULL: nothing is observed
    float *seen[BUFFER_COUNT];        // what it asked for, in this CPU's memory
    struct watch_clock *watch_clock;  // NULL: it asks for no times

    struct batch batch; // what the next step reads; arrays below
    int32_t *ids, *positions, *output_rows;
    struct batch_sequence *batch_sequences;

    struct program {
        struct program_step { // one to four per op of the model
            void (*run)(const void *args, int chunk, int chunks);
            const void *args;
        } *steps;
        int count;
    } decode, prefill; // on CPUs, by the number of tokens of a step
    struct arena arena;
};

// An op of the program, for steps that are no kernel's.
struct program_op {
    const struct engine *engine;
    int op; // its place in model.ops
};

// A model and its plan, made before the engine that takes both over.
struct engine_plan {
    struct model model;
    struct plan plan;
};

struct engine_options {
    struct plan_options plan;         // its `user` has what an engine is asked for besides its plan
    struct engine_plan *decided;      // taken over, and empty then; NULL: made by the engine
    struct group *group;              // the ranks that compute it together, borrowed as long as the engine is open
    const struct engine_watch *watch; // borrowed as long as the engine is open; NULL: none
};

// The device of a word, which must be there.
bool engine_choose_device(struct device *device, const char *word, struct error *err);

bool engine_open(struct engine *engine, const struct checkpoint *checkpoint, const struct engine_options *options,
                 struct error *err);
void engine_close(struct engine *engine);

// Could these tokens be read? Could `count` more follow `length` tokens?
bool engine_check_ids(const struct engine *engine, const int32_t *ids, size_t count, struct error *err);
bool engine_check_length(const struct engine *engine, int length, size_t count, struct error *err);

// The number of an op's load in the batch (kernel/load.h).
int engine_load(const struct engine *engine, int op);

// Before a step: of this row of the output only a token is wanted, drawn by these rules after so many tokens of its
// text. True: the device will draw it and its logits will not come. False: this one cannot.
bool engine_queue_sampling(struct engine *engine, int row, const struct nibble_sampling *sampling, int count);

// Starts the batch and returns a number for this step, which is to be finished; 0: a GPU failed on the way.
int engine_start(struct engine *engine, struct error *err);

// Whether another step may be started before this one is finished. It then runs after it, on what it leaves in the
// cache, and the id ~i in its batch stands for the token that was drawn of this one's row i. All that is wanted of it
// must be drawn by the device.
bool engine_may_follow(const struct engine *engine, int step);

// The result of a step. It belongs to the engine and is valid until the next step is started.
enum { ENGINE_NOT_FINITE = -1 };
struct engine_result {
    const float *logits;  // (outputs, vocabulary); those of rows that the device drew from are not there
    const int32_t *drawn; // (outputs): what the device drew, or ENGINE_NOT_FINITE where the logits were not numbers
};

// Waits for a step. False: a GPU failed on the way.
bool engine_finish(struct engine *engine, int step, struct engine_result *result, struct error *err);

#endif
