// SPDX-License-Identifier: Apache-2.0
// format/public.c: the public API of checkpoints, nibble_checkpoint_*.
#include "format/public.h"

#include <stdlib.h>

#include "base/public.h"

struct nibble_checkpoint *nibble_checkpoint_open(const char *model, enum nibble_need need, struct error *err)
{
    static const enum checkpoint_need needs[] = {
        [NIBBLE_NEED_TEXT] = CHECKPOINT_TEXT,
        [NIBBLE_NEED_HEADERS] = CHECKPOINT_HEADERS,
        [NIBBLE_NEED_ALL] = CHECKPOINT_ALL,
    };
    struct nibble_checkpoint *checkpoint = memory_new(1, sizeof *checkpoint);
    if (checkpoint_open(&checkpoint->checkpoint, model, needs[need], err))
        return checkpoint;
    free(checkpoint);
    return NULL;
}

bool nibble_checkpoint_check(const struct nibble_checkpoint *checkpoint, struct error *err)
{
    return checkpoint_check(&checkpoint->checkpoint, err);
}

void nibble_checkpoint_close(struct nibble_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    checkpoint_close(&checkpoint->checkpoint);
    free(checkpoint);
}
