// SPDX-License-Identifier: Apache-2.0
// kernel/testcase_operands.c: the memory that a test case's arguments point to, as it is uploaded to a GPU.
#include <assert.h>
#include <math.h>

#include "kernel/minifloat.h"
#include "kernel/testcase_draw.h"

struct list {
    const struct testcase *testcase;
    const struct kernel *kernel;
    int ops; // the op and the neighbours that are fused
    struct listed {
        struct operand_use use;
        int op; // which of them it belongs to
    } listed[2 * TESTCASE_OPERANDS_MAX];
    int count;
};

// The op's operands and those of fused neighbours, without the neighbours themselves.
static void gather(struct list *list, enum op_kind op, void *args)
{
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(op, args, uses), own = list->ops++;
    for (int i = 0; i < count; i++) {
        const struct operand *operand = uses[i].operand;
        void *address = *operand_pointer(&uses[i]);
        bool fused = operand->role == ROLE_FUSED_BEFORE || operand->role == ROLE_FUSED_AFTER;
        if (!address || operand->role == ROLE_ROWS || operand->role == ROLE_BATCH)
            continue;
        if (fused)
            gather(list, (enum op_kind)operand->fused, address);
        else
            list->listed[list->count++] = (struct listed){ uses[i], own };
    }
}

// Written by one of the fused ops and read by another: it never reaches memory.
static bool is_between(const struct list *list, const struct listed *listed)
{
    for (int i = 0; i < list->count; i++) {
        const struct listed *other = &list->listed[i];
        enum operand_role role = listed->use.operand->role, other_role = other->use.operand->role;
        if (other->op != listed->op && *operand_pointer(&other->use) == *operand_pointer(&listed->use)
            && ((role == ROLE_OUT && other_role == ROLE_IN) || (role == ROLE_IN && other_role == ROLE_OUT)))
            return true;
    }
    return false;
}

static size_t weight_bytes(const struct list *list, const struct operand_use *use)
{
    const struct weight *weight = use->member;
    const struct kernel_packing *packing = list->kernel->packing;
    size_t bytes = packing ? packing->bytes(weight->dtype, weight->rows, weight->cols)
                           : dtype_bytes(weight->dtype, (size_t)weight->rows * (size_t)weight->cols);
    return bytes * use->width;
}

static size_t bytes_of_pool(const struct testcase *testcase, enum operand_role role)
{
    return role == ROLE_STATE ? testcase->output[testcase->outputs - 1].bytes : testcase->pages_bytes;
}

// Rows that are picked are there, even where the batch was cut.
static int count_tokens(const struct batch *batch)
{
    int rows = batch->tokens;
    for (int i = 0; i < batch->outputs; i++)
        rows = batch->output_rows[i] < rows ? rows : batch->output_rows[i] + 1;
    return rows;
}

static struct testcase_operand describe(const struct list *list, const struct operand_use *use)
{
    static const enum testcase_type types[] = { TESTCASE_F32, TESTCASE_BF16, TESTCASE_F32, TESTCASE_BYTES };
    struct testcase_operand out = { .slot = operand_pointer(use), .width = use->width, .type = types[use->type] };
    switch (use->operand->role) {
    case ROLE_WEIGHT: out.width = weight_bytes(list, use); break;
    case ROLE_CACHE:
    case ROLE_CACHE_OUT:
    case ROLE_STATE: out.width = bytes_of_pool(list->testcase, use->operand->role); break;
    case ROLE_SCRATCH:
        out.width = draw_scratch_bytes(list->testcase, list->kernel);
        out.type = TESTCASE_SCRATCH;
        break;
    default:
        out.rows = use->operand->rows == WHOLE ? 0
            : use->operand->rows == PER_TOKEN  ? count_tokens(&list->testcase->batch)
                                               : testcase_rows(list->testcase);
    }
    return out;
}

int testcase_operands(const struct testcase *testcase, const struct kernel *kernel, union op_args *args,
                      struct testcase_operand out[TESTCASE_OPERANDS_MAX])
{
    struct list list = { .testcase = testcase, .kernel = kernel };
    int count = 0;
    gather(&list, testcase->op, args);
    for (int i = 0; i < list.count; i++) {
        if (is_between(&list, &list.listed[i]))
            continue;
        assert(count < TESTCASE_OPERANDS_MAX);
        out[count++] = describe(&list, &list.listed[i].use);
    }
    return count;
}

void testcase_round(struct testcase *testcase, const struct kernel *kernel)
{
    struct testcase_operand operands[TESTCASE_OPERANDS_MAX];
    int count = testcase_operands(testcase, kernel, &testcase->args, operands);
    for (int i = 0; i < count; i++) {
        float *values = *operands[i].slot;
        size_t total = (size_t)operands[i].rows * operands[i].width;
        for (size_t j = 0; operands[i].type == TESTCASE_BF16 && j < total; j++)
            values[j] = isnan(values[j]) ? values[j] : bf16_to_f32(f32_to_bf16(values[j]));
    }
}
