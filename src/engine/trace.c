// SPDX-License-Identifier: Apache-2.0
#include "engine/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "engine/engine.h"
#include "engine/gpu/gpu.h"
#include "engine/npy.h"
#include "plan/cost.h"
#include "plan/op_shape.h"

enum { NO_DUMP = -1, DIMENSIONS_MAX = 3 };

struct trace {
    struct engine_watch watch;
    const struct nibble_trace *wanted;
    int dumped_op;
    struct strbuf name, kernel, shape, path;
    struct plan_load_group *groups; // of the step: one per sequence
    int group_capacity;
    struct error failure; // of a file; it ends the step
    bool failed;
};

// ---- the values of an op ----

static int shape_of(const struct op_result *result, int rows, int shape[DIMENSIONS_MAX])
{
    int dimensions = 0;
    shape[dimensions++] = rows;
    if (result->slots)
        shape[dimensions++] = result->slots;
    shape[dimensions++] = result->width;
    return dimensions;
}

// "5x576", or of several results "q:5x576,k:5x192,v:5x192".
static void describe_shape(struct trace *trace, const struct op_results *results, int rows)
{
    trace->shape.len = 0;
    for (int i = 0; i < results->count; i++) {
        int shape[DIMENSIONS_MAX], dimensions = shape_of(&results->item[i], rows, shape);
        strbuf_add_format(&trace->shape, "%s", i ? "," : "");
        if (results->count > 1)
            strbuf_add_format(&trace->shape, "%s:", buffer_word(results->item[i].buffer));
        for (int j = 0; j < dimensions; j++)
            strbuf_add_format(&trace->shape, "%s%d", j ? "x" : "", shape[j]);
    }
    if (!results->count)
        strbuf_add_format(&trace->shape, "-");
}

// Widened where they are integers, into *heap, which is to be freed.
static const float *values_of(const struct engine *engine, const struct op_result *result, size_t count, float **heap)
{
    const float *seen = engine->seen[result->buffer];
    const int32_t *integers = (const int32_t *)(const void *)seen;
    *heap = NULL;
    if (!buffer_holds_integers(result->buffer))
        return seen;
    *heap = memory_new(count + 1, sizeof **heap);
    for (size_t i = 0; i < count; i++)
        (*heap)[i] = (float)integers[i];
    return *heap;
}

// FNV-1a, by words of 32 bits instead of bytes.
static uint64_t add_to_checksum(uint64_t sum, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        sum = (sum ^ bits) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static void measure_values(const struct engine *engine, const struct op_results *results, int rows,
                           struct nibble_op *out)
{
    double squares = 0;
    size_t all = 0;
    out->checksum = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < results->count; i++) {
        size_t count = (size_t)rows * op_result_width(&results->item[i]);
        float *heap;
        const float *values = values_of(engine, &results->item[i], count, &heap);
        out->checksum = add_to_checksum(out->checksum, values, count);
        for (size_t j = 0; j < count; j++)
            squares += (double)values[j] * values[j];
        all += count;
        free(heap);
    }
    out->has_values = all > 0;
    out->rms = all ? sqrt(squares / (double)all) : 0;
}

static bool dump(struct trace *trace, const struct engine *engine, const struct op_results *results, int rows,
                 struct error *err)
{
    for (int i = 0; i < results->count; i++) {
        const struct op_result *result = &results->item[i];
        int shape[DIMENSIONS_MAX], dimensions = shape_of(result, rows, shape);
        trace->path.len = 0;
        strbuf_add_format(&trace->path, "%s", strbuf_text(&trace->name));
        if (results->count > 1)
            strbuf_add_format(&trace->path, ".%s", buffer_word(result->buffer));
        strbuf_add_format(&trace->path, ".step%d.npy", engine->watch_clock->step);
        float *heap;
        const float *values = values_of(engine, result, (size_t)rows * op_result_width(result), &heap);
        bool ok = npy_write(strbuf_text(&trace->path), values, shape, dimensions, err);
        free(heap);
        if (!ok)
            return false;
        if (trace->wanted->dumped)
            trace->wanted->dumped(trace->wanted->context, strbuf_text(&trace->path));
    }
    return true;
}

// ---- an op has run ----

static struct nibble_cost cost_of(struct trace *trace, const struct engine *engine, int op)
{
    const struct batch *batch = &engine->batch;
    if (batch->sequences > trace->group_capacity) {
        trace->group_capacity = batch->sequences;
        trace->groups = memory_grow(trace->groups, (size_t)batch->sequences, sizeof *trace->groups);
    }
    for (int i = 0; i < batch->sequences; i++)
        trace->groups[i] = (struct plan_load_group){ .sequences = 1,
                                                     .depth = batch->positions[batch->sequence[i].first],
                                                     .tokens = batch->sequence[i].count };
    const struct plan_step step = { trace->groups, batch->sequences, batch->outputs };
    struct plan_cost cost = plan_op_cost(&engine->plan, op, &step);
    return (struct nibble_cost){ cost.read_bytes, cost.flops, cost.int8_ops, cost.activation_bytes };
}

// The rows that did the op, "a+b" where there are several.
static const char *kernel_of(struct trace *trace, const struct engine *engine, int op)
{
    const struct kernel *rows[GPU_ROWS_MAX] = { plan_row(&engine->plan, op, engine_load(engine, op)) };
    int count = engine->gpu ? gpu_rows(engine, op, rows) : 1;
    trace->kernel.len = 0;
    for (int i = 0; i < count; i++)
        strbuf_add_format(&trace->kernel, "%s%s", i ? "+" : "", rows[i]->name);
    return strbuf_text(&trace->kernel);
}

static void report(struct trace *trace, const struct engine *engine, int index, const struct op_results *results,
                   int rows)
{
    const struct op *op = &engine->model.ops[index];
    struct nibble_op out = { .step = engine->watch_clock->step,
                             .tokens = engine->batch.tokens,
                             .name = strbuf_text(&trace->name),
                             .kind = op_word(op->kind),
                             .kernel = kernel_of(trace, engine, index),
                             .seconds = engine->watch_clock->seconds,
                             .cost = cost_of(trace, engine, index) };
    describe_shape(trace, results, rows);
    out.shape = strbuf_text(&trace->shape);
    if (trace->wanted->values)
        measure_values(engine, results, rows, &out);
    trace->wanted->op(trace->wanted->context, &out);
}

// One caller does it all, so that a checksum's order is always the same. Nobody has results of rows that are not there.
static void after(void *context, const struct engine *engine, int op, int chunk, int chunks)
{
    struct trace *trace = context;
    (void)chunks;
    int rows = engine->model.ops[op].on_outputs ? engine->batch.outputs : engine->batch.tokens;
    if (chunk != 0 || !rows || (!trace->wanted->op && op != trace->dumped_op))
        return;
    struct op_results results = plan_op_results(&engine->plan, op, engine_load(engine, op));
    trace->name.len = 0;
    plan_op_name(&engine->plan, op, &trace->name);
    if (trace->wanted->op)
        report(trace, engine, op, &results, rows);
    if (op == trace->dumped_op && !trace->failed)
        trace->failed = !dump(trace, engine, &results, rows, &trace->failure);
}

static bool finish(void *context, struct error *err)
{
    const struct trace *trace = context;
    return !trace->failed || fail(err, "%s", trace->failure.text);
}

// ---- opening ----

static bool find_dumped(struct trace *trace, const struct plan *plan, struct error *err)
{
    const char *name = trace->wanted->dump;
    if (!plan_op_find(plan, name, &trace->dumped_op, err))
        return fail_within(err, "NIBBLE_DUMP");
    return plan->model->ops[trace->dumped_op].kind != OP_KV_WRITE
        || fail(err, "NIBBLE_DUMP: %s writes to the KV cache and gives no array; dump the op before or after it", name);
}

struct trace *trace_open(const struct nibble_trace *wanted, const struct plan *plan, struct error *err)
{
    struct trace *trace = memory_new(1, sizeof *trace);
    bool has_values = wanted->values || wanted->dump;
    *trace = (struct trace){ .wanted = wanted,
                             .dumped_op = NO_DUMP,
                             .watch = { .ops = UINT32_MAX,
                                        .buffers = has_values ? UINT32_MAX : 0,
                                        .results = true,
                                        .timed = true,
                                        .after = after,
                                        .finish = finish,
                                        .context = trace } };
    if (!wanted->dump || find_dumped(trace, plan, err))
        return trace;
    trace_close(trace);
    return NULL;
}

void trace_close(struct trace *trace)
{
    if (!trace)
        return;
    strbuf_free(&trace->name);
    strbuf_free(&trace->kernel);
    strbuf_free(&trace->shape);
    strbuf_free(&trace->path);
    free(trace->groups);
    free(trace);
}

const struct engine_watch *trace_watch(const struct trace *trace) { return &trace->watch; }
