// SPDX-License-Identifier: Apache-2.0
#include "model/quantize/quantize.h"

#include <math.h>
#include <stdlib.h>

#include "device/device.h"
#include "format/json.h"
#include "model/modules.h"
#include "model/quantize/config.h"
#include "model/quantize/cholesky.h"
#include "model/quantize/items.h"
#include "model/quantize/layout.h"
#include "model/quantize/write.h"
#include "model/tensor_source.h"

enum { GLOBALS_WINDOW = EXPERTS_MAX }; // `fused` numbers in use at a time
enum { TEXT_READS = 4 };               // progress: cost of a text through a matrix, in values read and rounded
static const size_t shard_bytes_usual = 5000000000;

struct job {
    const struct checkpoint *checkpoint;
    const struct nibble_quantize_options *options;
    const char *folder;
    const struct layout *layout;
    struct model model, published; // published is empty unless the checkpoint is a GGUF
    json_t *config;
    struct items items;
    struct layout_entries *entries; // by item
    size_t (*kv_entries)[2];        // by layer
    struct safetensors_out out;
    struct writing writing;
    struct cholesky cholesky;
    struct error *err;
};

// ---- selection ----

static bool read_patterns(struct modules *modules, const struct nibble_quantize_options *options, struct error *err)
{
    modules->way = MODULES_PARTS;
    for (size_t i = 0; i < options->exclude_count; i++) {
        const char *pattern = options->exclude[i];
        bool regex = bytes_start_with(bytes_of(pattern), bytes_of("re:"));
        if (!(regex ? modules_add_regex(modules, pattern + 3, (int)i, err)
                    : modules_add(modules, pattern, (int)i, err)))
            return err->usage = true, false;
    }
    return true;
}

// A pattern without a match is likely a typo.
static bool check_patterns(const struct nibble_quantize_options *options, const bool *matched, struct error *err)
{
    for (size_t i = 0; i < options->exclude_count; i++)
        if (!matched[i])
            return fail_usage(err, "--exclude %.200s matches none of the model's linear layers", options->exclude[i]);
    return true;
}

static bool exclude(struct job *job)
{
    struct modules modules = { 0 };
    bool *matched = memory_new(job->options->exclude_count + 1, sizeof *matched);
    bool ok = read_patterns(&modules, job->options, job->err);
    for (size_t i = 0; i < job->items.count && ok; i++) {
        struct item *item = &job->items.items[i];
        struct bytes module = item_module(item);
        int pattern = -1;
        if (!item->linear)
            continue;
        ok = modules_find(&modules, arena_text(&job->items.arena, module.data, module.len), &pattern, job->err);
        if (pattern >= 0) {
            item->kept = "excluded";
            matched[pattern] = true;
        }
    }
    ok = ok && check_patterns(job->options, matched, job->err);
    free(matched);
    modules_free(&modules);
    return ok;
}

static bool choose(struct job *job)
{
    int block = job->layout->block;
    if (!exclude(job))
        return false;
    for (size_t i = 0; i < job->items.count; i++) {
        struct item *item = &job->items.items[i];
        if (item->linear && !item->kept && block && item->cols % block)
            item->kept = arena_format(&job->items.arena, "rows of %lld values, no multiple of %d",
                                      (long long)item->cols, block);
        if (strlen(item->name) > TENSOR_NAME_BYTES_MAX - 16)
            return fail(job->err, "tensor %.60s...: its name is too long", item->name);
    }
    return true;
}

static bool is_encoded(const struct job *job, const struct item *item)
{
    return job->layout->encode && item->linear && !item->kept;
}

// ---- output files ----

static bool is_plain(const struct tensor *tensor)
{
    const uint64_t floats = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16);
    return !tensor->source && floats >> tensor->dtype & 1;
}

// The dtype of a tensor that is not quantised.
static enum dtype float_type(const struct job *job, const struct item *item)
{
    bool matrix = item->rows > 1 && item->cols > 1;
    if (matrix && (!is_plain(item->tensor) || item->tensor->rank > 2 || !job->layout->encode))
        return DTYPE_BF16;
    return item->tensor->dtype;
}

static bool is_verbatim(const struct job *job, const struct item *item)
{
    return !item->rows
        || (is_plain(item->tensor) && item->tensor->rank < 3 && !item->offset && !item->rotary && !item->scale
            && float_type(job, item) == item->tensor->dtype);
}

static enum dtype written_type(const struct job *job, const struct item *item)
{
    enum dtype type = float_type(job, item);
    return is_verbatim(job, item) || type == DTYPE_BF16 ? type : DTYPE_F32;
}

static bool place_kv(struct job *job)
{
    if (!job->options->k_scales)
        return true;
    job->kv_entries = memory_new((size_t)job->model.config.layers, sizeof *job->kv_entries);
    for (int i = 0; i < job->model.config.layers; i++) {
        if (!job->items.attention[i])
            return fail(job->err, "layer %d has no keys and values of its own that a scale could be stored for", i);
        layout_add_kv(job->layout, job->items.attention[i], &job->out, job->kv_entries[i]);
    }
    return true;
}

static bool place(struct job *job)
{
    struct writing *writing = &job->writing;
    job->entries = memory_new(job->items.count + 1, sizeof *job->entries);
    safetensors_out_open(&job->out, job->folder);
    for (size_t i = 0; i < job->items.count; i++) {
        const struct item *item = &job->items.items[i];
        const struct tensor *tensor = item->tensor;
        bool encoded = is_encoded(job, item), matrix = tensor->rank > 1;
        int rank = item->rows && matrix ? 2 : tensor->rank;
        int64_t values = item->rows ? item->rows * item->cols : tensor_values(tensor);
        const int64_t shape[2] = { matrix ? item->rows : item->rows * item->cols, item->cols };
        if (encoded)
            job->entries[i] = layout_add(job->layout, item, &job->out);
        else
            job->entries[i].codes = safetensors_out_add(&job->out, item->name, written_type(job, item), rank,
                                                        item->rows ? shape : tensor->shape);
        writing->total += (double)values * (encoded && job->layout->overall ? 2 : 1);
        writing->total += encoded && job->cholesky.source ? (double)values * TEXT_READS : 0;
    }
    size_t shard_bytes = job->options->shard_bytes ? job->options->shard_bytes : shard_bytes_usual;
    return place_kv(job) && safetensors_out_begin(&job->out, shard_bytes, job->err);
}

// ---- conversion ----

// Matrices that engines fuse (q, k, v) get one global scale, as some engines support only one.
static bool measure_fused(struct job *job, size_t first, float *globals)
{
    int fused = job->items.items[first].fused;
    float amax = 0, *global = &globals[fused % GLOBALS_WINDOW];
    for (size_t i = first; i < job->items.count && job->items.items[i].fused < fused + GLOBALS_WINDOW; i++) {
        const struct item *item = &job->items.items[i];
        if (item->fused == fused && is_encoded(job, item) && !write_measure(&job->writing, item, &amax, job->err))
            return false;
    }
    *global = weight_nvfp4_global(amax);
    return true;
}

static bool advance(void *context, double values, struct error *err)
{
    return write_advance(context, values * TEXT_READS, err);
}

static void report(const struct job *job, const struct item *item, bool gptq, const struct write_result *result)
{
    if (!job->options->tensor || !item->linear)
        return;
    job->options->tensor(
        job->options->tensor_context,
        &(struct nibble_quantized){ .name = item->name,
                                    .rows = item->rows,
                                    .cols = item->cols,
                                    .format = is_encoded(job, item) ? layout_weights_word(job->layout->weights)
                                                                    : dtype_word(written_type(job, item)),
                                    .kept = item->kept,
                                    .gptq = gptq,
                                    .error = result->energy > 0 ? sqrt(result->error / result->energy) : 0 });
}

static bool write_item(struct job *job, size_t index, float global)
{
    const struct item *item = &job->items.items[index];
    struct layout_entries entries = job->entries[index];
    struct write_result result = { 0 };
    const float *factor = NULL;
    bool ok;
    if (is_encoded(job, item))
        ok = cholesky_find(&job->cholesky, &job->items, index, &factor, job->err)
            && write_encoded(&job->writing, item, job->layout, global, factor, entries, &result, job->err);
    else if (is_verbatim(job, item))
        ok = write_verbatim(&job->writing, item, entries.codes, job->err);
    else
        ok = write_floats(&job->writing, item, written_type(job, item), entries.codes, &result, job->err);
    if (ok)
        report(job, item, factor, &result);
    return ok;
}

static void release(void *context, const struct tensor *of_file) { checkpoint_release(context, of_file); }

static bool write_all(struct job *job)
{
    float globals[GLOBALS_WINDOW] = { 0 };
    int measured = -1; // the highest `fused` number with a global scale
    for (size_t i = 0; i < job->items.count; i++) {
        const struct item *item = &job->items.items[i];
        if (job->layout->overall && is_encoded(job, item) && item->fused > measured) {
            if (!measure_fused(job, i, globals))
                return false;
            measured = item->fused;
        }
        if (!write_item(job, i, globals[item->fused % GLOBALS_WINDOW]))
            return false;
        tensor_source_visit(item->tensor, release, (void *)job->checkpoint);
    }
    for (int i = 0; i < job->model.config.layers && job->kv_entries; i++)
        if (!safetensors_out_put(&job->out, job->kv_entries[i][0], 0, &job->options->k_scales[i], sizeof(float),
                                 job->err)
            || !safetensors_out_put(&job->out, job->kv_entries[i][1], 0, &job->options->v_scales[i], sizeof(float),
                                    job->err))
            return false;
    return safetensors_out_finish(&job->out, job->err);
}

// ---- steps ----

static bool describe(struct job *job)
{
    if (!model_describe(&job->model, job->checkpoint, job->err))
        return false;
    if (job->checkpoint->gguf)
        return config_publish(job->checkpoint, &job->model, &job->config, &job->published, job->err)
            && items_collect(&job->items, job->checkpoint, &job->model, &job->published, job->err);
    job->config = json_deep_copy(job->checkpoint->config);
    return items_collect(&job->items, job->checkpoint, &job->model, &job->model, job->err);
}

static bool save_config(struct job *job)
{
    const char *types[] = { "torch_dtype", "dtype" };
    for (int i = 0; i < 2 && !job->layout->encode; i++)
        if (json_object_get(job->config, types[i]))
            json_object_set_new(job->config, types[i], json_string("bfloat16"));
    return layout_declare(job->layout, &job->items, job->options->k_scales, job->config, job->folder, job->err)
        && json_save(job->config, job->folder, "config.json", job->err);
}

bool quantize(const struct checkpoint *checkpoint, const char *folder, const struct nibble_quantize_options *options,
              const struct hessian_source *hessian, struct error *err)
{
    struct device host;
    struct job job = { .checkpoint = checkpoint, .options = options, .folder = folder, .err = err };
    job.layout = layout_find(options->weights, options->layout, err);
    bool ok = job.layout && describe(&job) && choose(&job) && device_open_cpu(&host, err);
    int cores = ok && host.cores < THREAD_POOL_MAX ? host.cores : THREAD_POOL_MAX;
    job.writing = (struct writing){ .out = &job.out,
                                    .progress = options->progress,
                                    .progress_context = options->progress_context };
    job.writing.pool = ok ? thread_pool_open(options->threads ? options->threads : cores, err) : NULL;
    job.cholesky = (struct cholesky){ .source = hessian,
                                      .model = &job.model,
                                      .pool = job.writing.pool,
                                      .progress = advance,
                                      .progress_context = &job.writing };
    write_open(&job.writing);
    ok = job.writing.pool && place(&job) && write_all(&job) && save_config(&job);
    write_close(&job.writing);
    cholesky_free(&job.cholesky);
    if (job.writing.pool)
        thread_pool_close(job.writing.pool);
    safetensors_out_close(&job.out);
    free(job.entries);
    free(job.kv_entries);
    items_free(&job.items);
    json_decref(job.config);
    model_free(&job.published);
    model_free(&job.model);
    return ok;
}
