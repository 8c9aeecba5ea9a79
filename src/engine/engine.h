// SPDX-License-Identifier: Apache-2.0
// engine/engine.h: a plan made real. Opening goes the way the data goes: checkpoint -> model -> plan -> weights ->
// pools -> program. After that a step allocates nothing: it fills the batch and walks the program.
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "device/team.h"
#include "kv/pool.h"
#include "plan/plan.h"

struct engine {
    const struct checkpoint *checkpoint; // borrowed
    struct model model;
    struct plan plan;
    struct kv_pool pools[KV_CLASSES_MAX];
    float *buffers[BUFFER_COUNT];        // (rows, width) each, carved from one mapping
    void *workspace, *scratch;           // the second within the first
    uint8_t *packed;                     // weights in the order that kernels read
    struct team *team;

    struct batch batch;                  // what the next step reads; arrays below
    int32_t *ids, *positions, *output_rows;
    struct batch_sequence *batch_sequences;

    struct program {
        struct phase {                   // one or two per op of the model
            void (*run)(const void *args, int part, int parts);
            const void *args;
        } *phases;
        int count;
    } few, many;                         // for steps of few tokens, and of many
    struct arena arena;
};

struct engine_options {
    struct plan_options plan;
    const char *device; // a word of device/device.h; NULL: cpu
    int threads;        // 0: every core
    bool skip_self_test;
    void (*progress)(void *context, double done);
    void *progress_context;
};

bool engine_open(struct engine *engine, const struct checkpoint *checkpoint, const struct engine_options *options,
                 struct error *err);
void engine_close(struct engine *engine);

// Could these tokens be read? Could `count` more follow `length` tokens?
bool engine_check_ids(const struct engine *engine, const int32_t *ids, size_t count, struct error *err);
bool engine_check_length(const struct engine *engine, int length, size_t count, struct error *err);

// Runs the batch. Logits of its output rows are in buffers[BUFFER_LOGITS] afterwards: (outputs, vocabulary).
void engine_step(struct engine *engine);

#endif
