// SPDX-License-Identifier: Apache-2.0
// kernel/load.h: the loads of an op (enum kernel_load) by rows. Tables by load are indexed by the number of its bit.
#ifndef KERNEL_LOAD_H
#define KERNEL_LOAD_H

#include "kernel/kernel.h"

enum { KERNEL_LOAD_SMALL = KERNEL_LOADS - 1 }; // the number of KERNEL_DECODE_SMALL; the others ascend by rows

// The most rows of a load, by its number.
static inline int kernel_load_most(int load)
{
    static const int most[KERNEL_LOADS] = { 1, 8, 32, 64, 128, INT32_MAX, KERNEL_DECODE_ROWS_MAX };
    return most[load];
}

static inline int kernel_load_least(int load)
{
    return load && load != KERNEL_LOAD_SMALL ? kernel_load_most(load - 1) + 1 : 1;
}

// The number of the load that so many rows are.
static inline int kernel_load_of(int rows)
{
    int load = 0;
    while (rows > kernel_load_most(load))
        load++;
    return load;
}

// The loads that an op is bound for.
static inline enum kernel_load kernel_loads_of(enum op_kind op)
{
    return op == OP_ATTENTION ? KERNEL_ANY : KERNEL_ANY & ~KERNEL_DECODE_SMALL;
}

// Ops that walk along each sequence, whose load is the most rows that one sequence has in a step.
static inline bool kernel_walks_sequences(enum op_kind op)
{
    return op == OP_ATTENTION || op == OP_CONV || op == OP_SSM_SCAN || op == OP_GATED_DELTA;
}

// The rows that a set of loads is for, which are next to each other.
static inline int kernel_loads_least(enum kernel_load loads)
{
    return loads & KERNEL_DECODE_SMALL ? 1 : kernel_load_least(__builtin_ctz(loads));
}

static inline int kernel_loads_most(enum kernel_load loads)
{
    int most = 0;
    for (int load = 0; load < KERNEL_LOADS; load++)
        if (loads >> load & 1 && kernel_load_most(load) > most)
            most = kernel_load_most(load);
    return most;
}

#endif
