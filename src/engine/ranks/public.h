// SPDX-License-Identifier: Apache-2.0
// engine/ranks/public.h: the struct behind nibble_ranks.
#ifndef ENGINE_RANKS_PUBLIC_H
#define ENGINE_RANKS_PUBLIC_H

#include "engine/ranks/group.h"
#include "nibble.h"

struct nibble_ranks {
    struct group group;
};

#endif
