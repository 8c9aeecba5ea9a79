// SPDX-License-Identifier: Apache-2.0
// engine/ranks/protocol.h: what rank 0 tells the others, as bytes: an engine to open, a step, an engine to close, the
// end. All
// ranks are of one build, so numbers are as they lie in memory. A step is small: of a page table only what has changed
// since the last step that had the sequence in the same place.
#ifndef ENGINE_RANKS_PROTOCOL_H
#define ENGINE_RANKS_PROTOCOL_H

#include "base/strbuf.h"
#include "engine/engine.h"

enum told_kind { TOLD_OPEN, TOLD_STEP, TOLD_CLOSE, TOLD_END };

struct told_head {
    int32_t kind;
    int32_t engine; // its number
};

// What a message begins with. False: it is none.
bool told_read_head(struct bytes *message, struct told_head *out);
void told_write_head(struct strbuf *message, enum told_kind kind, int engine);

// An engine to open: the path of a checkpoint and how. What is read points into *arena, and nobody watches it.
void told_write_open(struct strbuf *message, const char *path, const struct engine_options *options);
bool told_read_open(struct bytes message, struct arena *arena, const char **path, struct engine_options *options);

// Room for page tables, on both sides.
void told_open_tables(struct told_tables *tables, const struct plan *plan, struct arena *arena);

// The engine's batch, and back again: false where the message does not fit the engine.
void told_write_step(struct strbuf *message, const struct engine *engine, struct told_tables *tables);
bool told_read_step(struct bytes message, struct engine *engine, struct told_tables *tables);

#endif
