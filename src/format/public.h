// SPDX-License-Identifier: Apache-2.0
#ifndef FORMAT_PUBLIC_H
#define FORMAT_PUBLIC_H

#include "format/checkpoint.h"

struct nibble_checkpoint {
    struct checkpoint checkpoint;
};

#endif
