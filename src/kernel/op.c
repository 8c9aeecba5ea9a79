// SPDX-License-Identifier: Apache-2.0
// kernel/op.c: what kernel/op.h lists, as data.
#include "kernel/op.h"

#include <assert.h>

#include "kernel/kernel.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof *(array)))

// ---- the lists as arrays; A is the argument struct ----

// clang-format off
#define ROW(role_, member, slot_, rows_, width, type_) \
    { .name = #member,                                 \
      .role = ROLE_##role_,                            \
      .slot = SLOT_##slot_,                            \
      .rows = rows_,                                   \
      .shape = #width,                                 \
      .type = #type_,                                  \
      .at = offsetof(A, member) },
#define ROW_EACH(role_, array, member, slot_, rows_, width, type_) \
    { .name = #array "." #member,                                  \
      .role = ROLE_##role_,                                        \
      .slot = SLOT_##slot_,                                        \
      .rows = rows_,                                               \
      .shape = #width,                                             \
      .type = #type_,                                              \
      .at = offsetof(A, array[0].member),                          \
      .each = sizeof((A){ 0 }.array[0]) },
#define ROW_FUSED(role_, member, op)                         \
    { .name = #member,                                       \
      .role = ROLE_##role_,                                  \
      .rows = WHOLE,                                         \
      .shape = "0",                                          \
      .type = "VALUE_BYTES",                                 \
      .at = offsetof(A, member),                             \
      .fused = OP_##op },

struct size {
    size_t width;
    enum operand_type type;
};
#define SIZE(role, member, slot, rows, width, type) *size++ = (struct size){ (size_t)(width), type };
#define SIZE_EACH(role, array, member, slot, rows, width, type) SIZE(role, member, slot, rows, width, type)
#define SIZE_FUSED(role, member, op) SIZE(role, member, NONE, WHOLE, 0, VALUE_BYTES)

#define DEFINE(id, word, formats, cpu, gpu, division_, flops_, about_)      \
    static const struct operand *list_##word(int *count)                    \
    {                                                                       \
        typedef struct word##_args A;                                       \
        static const struct operand list[] = {                              \
            id##_OPERANDS(ROW, ROW_EACH, ROW_FUSED)                         \
        };                                                                  \
        *count = COUNT_OF(list);                                            \
        return list;                                                        \
    }                                                                       \
    static void measure_##word(const void *args, int i, struct size *size)  \
    {                                                                       \
        const struct word##_args *a = args;                                 \
        (void)a, (void)i;                                                   \
        id##_OPERANDS(SIZE, SIZE_EACH, SIZE_FUSED)                          \
    }                                                                       \
    static double flops_of_##word(const void *args)                         \
    {                                                                       \
        const struct word##_args *a = args;                                 \
        (void)a;                                                            \
        return flops_;                                                      \
    }
OPS(DEFINE)
// clang-format on

#define INFO(id, word_, formats, cpu, gpu, division_, flops_, about_) \
    [OP_##id] = { .word = #word_,                                     \
                  .about = about_,                                    \
                  .tolerance = cpu,                                   \
                  .gpu_tolerance = gpu,                               \
                  .division = DIVIDED_##division_,                    \
                  .flops = #flops_,                                   \
                  .list = list_##word_ },
const struct op_info op_table[OP_COUNT] = { OPS(INFO) };

#define MEASURE(id, word, ...) [OP_##id] = measure_##word,
static void (*const measures[OP_COUNT])(const void *, int, struct size *) = { OPS(MEASURE) };

#define FLOPS(id, word, ...) [OP_##id] = flops_of_##word,
static double (*const flops[OP_COUNT])(const void *) = { OPS(FLOPS) };

// ---- using them ----

const char *op_word(enum op_kind kind) { return op_table[kind].word; }

const struct kernel *kernel_reference(enum op_kind op)
{
    const struct kernel *kernel = kernel_next(NULL);
    while (kernel->op != op || kernel->priority)
        kernel = kernel_next(kernel);
    return kernel;
}

static int count_matrices(enum op_kind kind, const void *args)
{
    const union op_args *all = args;
    return kind == OP_LINEAR ? all->linear.outputs : kind == OP_EXPERTS ? all->experts.outputs : 1;
}

int op_operands(enum op_kind kind, void *args, struct operand_use out[OP_OPERANDS_MAX])
{
    struct size size[OP_OPERANDS_MAX];
    int listed, count = 0, matrices = count_matrices(kind, args);
    const struct operand *list = op_table[kind].list(&listed);
    for (int i = 0; i < matrices; i++) {
        measures[kind](args, i, size);
        for (int j = 0; j < listed; j++)
            if (!i || list[j].each)
                out[count++] = (struct operand_use){ .operand = &list[j],
                                                     .matrix = i,
                                                     .member = (char *)args + list[j].at + (size_t)i * list[j].each,
                                                     .width = size[j].width,
                                                     .type = size[j].type };
    }
    return count;
}

double op_flops(enum op_kind kind, const void *args) { return flops[kind](args); }

void **operand_pointer(const struct operand_use *use)
{
    // Pools come first in places, data in the middle of a weight; anything else is the pointer.
    size_t at = use->operand->role == ROLE_WEIGHT ? offsetof(struct weight, data) : 0;
    static_assert(!offsetof(struct kv_place, pool) && !offsetof(struct state_place, pool),
                  "a place begins with its pool");
    return (void **)(void *)((char *)use->member + at);
}
