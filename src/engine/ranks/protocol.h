// SPDX-License-Identifier: Apache-2.0
// engine/ranks/protocol.h: the rank protocol: the messages that rank 0 broadcasts: an engine to open, a step, an engine
// to close, the end. A message is made of the structs below, of texts (a length, -1 for none, and as many bytes) and of
// arrays of 32-bit integers and floats; no pointer is sent. All ranks are of one build on like machines, so numbers are
// in the machine's byte order. A step is small: of a page table only what has changed since the last step that had the
// sequence in the same place.
#ifndef ENGINE_RANKS_PROTOCOL_H
#define ENGINE_RANKS_PROTOCOL_H

#include <assert.h>

#include "base/strbuf.h"
#include "engine/engine.h"

enum protocol_kind { PROTOCOL_OPEN, PROTOCOL_STEP, PROTOCOL_CLOSE, PROTOCOL_END };

struct protocol_head {
    int32_t kind;   // enum protocol_kind
    int32_t engine; // its number
};

// After the path, the texts of the options and a number of layers, each of which is a protocol_layer and its centre.
struct protocol_open {
    uint64_t memory_bytes, kv_cache_bytes;
    double gpu_memory_utilization;
    int32_t max_model_len, max_num_seqs, batch_tokens, mamba_block_size, threads;
    uint8_t apart, runs_here, no_self_test, unused;
};

struct protocol_layer {
    int32_t k; // enum dtype
    int32_t centre_count;
    float error[KV_TRANSFORMS];
};

// Then ids, positions and output rows; then each sequence: its count, and for each class how many entries of its page
// table are as before, and the others.
struct protocol_step {
    int32_t tokens, sequences, outputs;
};

static_assert(sizeof(struct protocol_head) == 8, "two numbers");
static_assert(sizeof(struct protocol_open) == 48, "no padding");
static_assert(sizeof(struct protocol_layer) == 8 + 4 * KV_TRANSFORMS, "no padding");
static_assert(sizeof(struct protocol_step) == 12, "three numbers");
static_assert(sizeof(float) == 4 && sizeof(double) == 8 && sizeof(int) == 4, "as the arrays are sent");

// The head of a message. False: it is none.
bool protocol_read_head(struct bytes *message, struct protocol_head *out);
void protocol_write_head(struct strbuf *message, enum protocol_kind kind, int engine);

// The message that opens an engine: the path of a checkpoint and the options. The options that are read point into
// *arena and have no observer.
void protocol_write_open(struct strbuf *message, const char *path, const struct engine_options *options);
bool protocol_read_open(struct bytes message, struct arena *arena, const char **path, struct engine_options *options);

// Room for page tables, on both sides.
void protocol_open_tables(struct protocol_tables *tables, const struct plan *plan, struct arena *arena);

// The engine's batch, and back again: false where the message does not fit the engine.
void protocol_write_step(struct strbuf *message, const struct engine *engine, struct protocol_tables *tables);
bool protocol_read_step(struct bytes message, struct engine *engine, struct protocol_tables *tables);

#endif
