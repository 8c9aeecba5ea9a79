// SPDX-License-Identifier: Apache-2.0
// plan/memory.c: weights, workspace and pools against what there is: how long and how many sequences fit.
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "kv/table.h"
#include "plan/decide.h"

void plan_weights_by_format(const struct model *model, size_t *bytes)
{
    struct map seen = { 0 };
    memset(bytes, 0, DTYPE_COUNT * sizeof *bytes);
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        const struct tensor *used[2 * LINEAR_OUTPUTS_MAX + 1] = { op->vector };
        for (int j = 0; j < op->matrices; j++) {
            used[1 + 2 * j] = op->matrix[j].tensor;
            used[2 + 2 * j] = op->matrix[j].bias;
        }
        for (size_t j = 0; j < sizeof used / sizeof *used; j++) {
            int64_t ignored;
            if (!used[j] || map_get(&seen, bytes_of(used[j]->name), &ignored))
                continue;
            map_put(&seen, bytes_of(used[j]->name), 1);
            bytes[used[j]->dtype] += used[j]->bytes;
        }
    }
    map_free(&seen);
}

static size_t workspace_bytes(const struct plan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < BUFFER_COUNT; i++) {
        size_t rows = (size_t)(i == BUFFER_LAST || i == BUFFER_LOGITS ? plan->outputs : plan->batch_tokens);
        bytes += rows * (size_t)plan->model->buffer_width[i] * sizeof(float);
    }
    return bytes;
}

// Pages of each class for one sequence of `length` tokens; returns their bytes, SIZE_MAX for more than that.
static size_t size_sequence(struct plan *plan, int length)
{
    size_t bytes = 0, of_class;
    for (int i = 0; i < plan->class_count; i++) {
        struct plan_class *class = &plan->classes[i];
        class->pages = kv_table_pages_needed(class->window, length, plan->batch_tokens);
        if (__builtin_mul_overflow((size_t)class->pages, class->page_bytes, &of_class)
            || __builtin_add_overflow(bytes, of_class, &bytes))
            return SIZE_MAX;
    }
    return bytes;
}

// The longest sequence whose pages fit into `room`, 0 when not even one page of each class does.
static int longest_fit(struct plan *plan, size_t room)
{
    int low = 0, high = plan->model->config.context;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (size_sequence(plan, middle) <= room)
            low = middle;
        else
            high = middle - 1;
    }
    return low < plan->model->config.context ? low / KV_PAGE_TOKENS * KV_PAGE_TOKENS : low; // whole pages
}

// As many sequences as were asked for and fit: the pages of one, times that.
static void size_pools(struct plan *plan, size_t room)
{
    size_t of_one = size_sequence(plan, plan->max_model_len);
    double fit = (double)room / (double)of_one;
    plan->concurrency = fit < plan->max_num_seqs ? fit : plan->max_num_seqs;
    for (int i = 0; i < plan->class_count; i++) {
        struct plan_class *class = &plan->classes[i];
        double pages = class->pages * plan->concurrency;
        class->pages = pages < INT32_MAX ? (int)pages : INT32_MAX;
        plan->pool_bytes += (size_t)class->pages * class->page_bytes;
    }
}

static bool refuse_memory(struct plan *plan, int length, int longest, struct error *err)
{
    size_t fixed = plan->weight_bytes + plan->workspace_bytes;
    size_t cache = size_sequence(plan, length ? length : 1);
    const char *fits = longest ? arena_format(&plan->arena, "the longest context that fits is %d", longest)
                               : "not even the shortest context fits";
    const char *reason = arena_format(
        &plan->arena,
        "weights take %zu MiB, workspace %zu MiB and the cache %zu MiB, %zu MiB more than the %zu MiB that %s; %s",
        plan->weight_bytes >> 20, plan->workspace_bytes >> 20, cache >> 20,
        (fixed + cache - plan->memory_bytes) >> 20, plan->memory_bytes >> 20,
        plan->memory_bytes == plan->device.memory_free_bytes ? "are free here" : "there are", fits);
    return refuse(plan, err, "--max-model-len", arena_format(&plan->arena, "%d", length), reason);
}

bool decide_memory(struct plan *plan, const struct plan_options *options, struct error *err)
{
    size_t by_format[DTYPE_COUNT];
    plan_weights_by_format(plan->model, by_format);
    for (int i = 0; i < DTYPE_COUNT; i++)
        plan->weight_bytes += by_format[i];
    plan->workspace_bytes = workspace_bytes(plan);
    plan->memory_bytes = options->memory_bytes ? options->memory_bytes : plan->device.memory_free_bytes;

    size_t fixed = plan->weight_bytes + plan->workspace_bytes, room = SIZE_MAX;
    if (plan->memory_bytes)
        room = plan->memory_bytes > fixed ? plan->memory_bytes - fixed : 0;
    int context = plan->model->config.context, longest = longest_fit(plan, room);
    int wanted = options->max_model_len ? options->max_model_len : longest;
    if (!longest || wanted > longest)
        return refuse_memory(plan, options->max_model_len ? wanted : context, longest, err);
    plan->max_model_len = wanted;
    if (!options->max_model_len && longest < context)
        plan->length_note = arena_format(&plan->arena, "the model's %d do not fit in memory", context);
    size_pools(plan, room);
    return true;
}
