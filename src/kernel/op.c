// SPDX-License-Identifier: Apache-2.0
// kernel/op.c: what an op is called and which row defines it.
#include "kernel/kernel.h"

const struct kernel *kernel_reference(enum op_kind op)
{
    const struct kernel *kernel = kernel_next(NULL);
    while (kernel->op != op || kernel->priority)
        kernel = kernel_next(kernel);
    return kernel;
}

const char *op_word(enum op_kind kind)
{
    static const char *const words[OP_COUNT] = {
#define X(id, word) word,
        OPS(X)
#undef X
    };
    return words[kind];
}
