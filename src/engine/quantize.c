// SPDX-License-Identifier: Apache-2.0
// engine/quantize.c: post-training quantisation of a checkpoint (nibble_quantize). For GPTQ the model reads a text, and
// an observer adds up the Hessian of each matrix's inputs.
#include <stdlib.h>

#include "base/public.h"
#include "engine/reader.h"
#include "format/public.h"
#include "kernel/ref/hessian.h"
#include "model/quantize/cholesky.h"
#include "model/quantize/quantize.h"

enum { WINDOW_TOKENS = 512, MEMORY_SHARE = 2 }; // of what is free, half may go to Hessians

struct reading {
    struct engine engine;
    struct reader reader;
    struct engine_watch watch;
    struct hessian_source source;
    const int32_t *ids;
    size_t count, window; // tokens, and how many of them are read at a time
    float **wanted;       // by op: where its Hessian goes, or NULL
};

// ---- looking ----

static void add_of_experts(const struct engine *engine, const struct op *op, float *hessian, int chunk, int chunks)
{
    const int32_t *first = (const void *)engine->seen[BUFFER_FIRST], *pair = (const void *)engine->seen[BUFFER_PAIR];
    size_t columns = (size_t)op->width, size = hessian_size(columns);
    for (int i = 0; i < engine->model.config.experts.count; i++)
        hessian_add(hessian + (size_t)i * size * size, columns, engine->seen[op->in], pair + first[i],
                    first[i + 1] - first[i], chunk, chunks);
}

static void look(void *context, const struct engine *engine, int index, int chunk, int chunks)
{
    const struct reading *reading = context;
    const struct op *op = &engine->model.ops[index];
    float *hessian = reading->wanted[index];
    if (!hessian)
        return;
    if (cholesky_per_expert(op))
        add_of_experts(engine, op, hessian, chunk, chunks);
    else
        hessian_add(hessian, (size_t)op->width, engine->seen[op->in], NULL, engine->batch.tokens, chunk, chunks);
}

// ---- reading ----

// Each window of the text is read from an empty cache.
static bool accumulate(void *context, int window, const struct hessian_target *wanted, int count, struct error *err)
{
    struct reading *reading = context;
    size_t first = (size_t)window * reading->window, rest = reading->count - first;
    const float *logits;
    for (int i = 0; i < reading->engine.model.op_count; i++)
        reading->wanted[i] = NULL;
    for (int i = 0; i < count; i++)
        reading->wanted[wanted[i].op] = wanted[i].hessian;
    return reader_assign(&reading->reader, NULL, 0, err)
        && reader_assign(&reading->reader, reading->ids + first, rest < reading->window ? rest : reading->window, err)
        && reader_read(&reading->reader, &logits, err);
}

static bool read_context(const struct checkpoint *checkpoint, int *context, struct error *err)
{
    struct model model;
    if (!model_describe(&model, checkpoint, err))
        return false;
    *context = model.config.context;
    model_free(&model);
    return true;
}

static bool reading_open(struct reading *reading, const struct checkpoint *checkpoint,
                         const struct nibble_quantize_options *options, struct error *err)
{
    struct device host;
    int context;
    if (!read_context(checkpoint, &context, err))
        return false;
    context = context < WINDOW_TOKENS ? context : WINDOW_TOKENS;
    reading->watch = (struct engine_watch){
        .ops = 1u << OP_LINEAR | 1u << OP_EXPERTS, .buffers = UINT32_MAX, .after = look, .context = reading
    };
    const struct engine_options engine_options = {
        .plan = { .user = { .device = "cpu",
                            .threads = options->threads,
                            .kv_cache_dtype = "float32",
                            .max_model_len = context,
                            .max_num_seqs = 1 },
                  .apart = true },
        .watch = &reading->watch,
    };
    if (!engine_open(&reading->engine, checkpoint, &engine_options, err))
        return false;
    reader_open(&reading->reader, &reading->engine);
    reading->ids = options->ids, reading->count = options->id_count, reading->window = (size_t)context;
    reading->wanted = memory_new((size_t)reading->engine.model.op_count, sizeof *reading->wanted);
    if (!device_open_cpu(&host, err)) // with what is free now
        return false;
    reading->source =
        (struct hessian_source){ .accumulate = accumulate,
                                 .context = reading,
                                 .windows = (int)((reading->count + reading->window - 1) / reading->window),
                                 .bytes = host.memory_free_bytes / MEMORY_SHARE };
    return true;
}

static void reading_close(struct reading *reading)
{
    if (reading->wanted) {
        reader_close(&reading->reader);
        engine_close(&reading->engine);
        free(reading->wanted);
    }
}

bool nibble_quantize(const struct nibble_checkpoint *checkpoint, const char *folder,
                     const struct nibble_quantize_options *options, struct error *err)
{
    struct reading reading = { 0 };
    bool has_text = options->id_count && options->weights != NIBBLE_WEIGHTS_BF16;
    bool ok = (!has_text || reading_open(&reading, &checkpoint->checkpoint, options, err))
        && quantize(&checkpoint->checkpoint, folder, options, has_text ? &reading.source : NULL, err);
    reading_close(&reading);
    return ok;
}
