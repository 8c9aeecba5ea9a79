// SPDX-License-Identifier: Apache-2.0
#ifndef ENGINE_PUBLIC_RANKS_H
#define ENGINE_PUBLIC_RANKS_H

#include "engine/group.h"
#include "nibble.h"

struct nibble_ranks {
    struct group group;
};

#endif
