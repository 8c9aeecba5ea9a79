// SPDX-License-Identifier: Apache-2.0
#include "engine/self_test.h"

#include <stdlib.h>

#include "engine/kernels/cuda.h"

enum {
    SELF_TEST_SEED = 5753
}; // its test cases have grouped heads, windows, soft caps, sinks and several long sequences

// The questions so far, each asked once.
struct questions {
    struct question {
        const struct kernel *kernel;
        struct testcase_options wanted;
    } *list;
    int count, capacity;
};

static bool is_known(const struct questions *questions, const struct kernel *kernel,
                     const struct testcase_options *wanted)
{
    for (int i = 0; i < questions->count; i++) {
        const struct question *known = &questions->list[i];
        if (known->kernel == kernel && known->wanted.load == wanted->load && known->wanted.weight == wanted->weight
            && known->wanted.k == wanted->k && known->wanted.v == wanted->v
            && known->wanted.head_dim == wanted->head_dim && known->wanted.value_dim == wanted->value_dim
            && known->wanted.latent == wanted->latent && known->wanted.sink == wanted->sink
            && known->wanted.fuses == wanted->fuses)
            return true;
    }
    return false;
}

static void add_question(struct questions *questions, const struct kernel *kernel,
                         const struct testcase_options *wanted)
{
    if (is_known(questions, kernel, wanted))
        return;
    if (questions->count == questions->capacity) {
        questions->capacity = questions->capacity ? 2 * questions->capacity : 32;
        questions->list = memory_grow(questions->list, (size_t)questions->capacity, sizeof *questions->list);
    }
    questions->list[questions->count++] = (struct question){ kernel, *wanted };
}

// Adds the kernels of one op, with the formats that the op has and the neighbours that are fused.
static void add_op(struct questions *questions, const struct plan *plan, int index)
{
    const struct op *op = &plan->model->ops[index];
    const struct plan_op *bound = &plan->ops[index];
    struct testcase_options wanted = { .size = TESTCASE_SMALL, .seed = SELF_TEST_SEED };
    if (op->kind == OP_KV_WRITE || op->kind == OP_ATTENTION) {
        const struct plan_layer *placed = &plan->layer[op->layer];
        const struct kv_layout *layout = &plan->classes[placed->class_index].layout;
        if (placed->sink_class != PLAN_NO_CLASS)
            wanted.sink = (uint64_t)1 << plan->classes[placed->sink_class].layout.k.dtype;
        wanted.k = layout->k.dtype;
        wanted.v = layout->v.dtype;
        wanted.latent = layout->latent;
        wanted.head_dim = layout->k.dim;
        wanted.value_dim = layout->v.dim;
    }
    if (op->kind == OP_TRANSFORM)
        wanted.head_dim = plan->model->layer[op->layer].head_dim;
    for (int i = 0; i == 0 || i < op->matrices; i++) {
        if (op->matrices)
            wanted.weight = op->matrix[i].tensor->dtype;
        for (int load = 0; load < KERNEL_LOADS; load++) {
            const struct kernel *row = bound->rows[load][i];
            if (!row || bound->fused[load] || bound->left_out)
                continue;
            wanted.load = row->load & (KERNEL_DECODE >> load & 1 ? KERNEL_DECODE : KERNEL_PREFILL);
            wanted.fuses = bound->fuses[load];
            add_question(questions, row, &wanted);
        }
    }
}

static bool answers_rightly(const struct question *question, const struct check_device *device, struct error *err)
{
    const struct kernel *kernel = question->kernel;
    struct check_result result;
    check_run(kernel, &question->wanted, device, &result);
    if (result.trouble.text[0])
        return fail(err, "kernel %s fails its self-test on this machine: %s", kernel->name, result.trouble.text);
    return result.ok
        || fail(err, "kernel %s fails its self-test on this machine: %s%sits error is %.2g where %s allows %.2g",
                kernel->name, result.flaw ? result.flaw : "", result.flaw ? ", and " : "", result.error,
                op_word(kernel->op), result.tolerance);
}

const struct kernel *self_test_failure(const struct plan *plan, struct cuda *cuda, struct error *err)
{
    struct kernels_cuda on_gpu = kernels_cuda_on(cuda);
    struct questions questions = { 0 };
    const struct kernel *failed = NULL;
    for (int i = 0; i < plan->model->op_count; i++)
        add_op(&questions, plan, i);
    for (int i = 0; i < questions.count && !failed; i++)
        if (!answers_rightly(&questions.list[i], &on_gpu.device, err))
            failed = questions.list[i].kernel;
    free(questions.list);
    return failed;
}
