// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.h"

#include "kernel/cuda/images.h"
#include "kernel/cuda/sample.h"
#include "plan/cost.h"
#include "plan/explain_parts.h"

const struct plan_class *explain_class_of(const struct plan *plan, int layer)
{
    return &plan->classes[plan->layer[layer].class_index];
}

int explain_op_of(const struct plan *plan, int layer, enum op_kind kind)
{
    for (int i = 0; i < plan->model->op_count; i++)
        if (plan->model->ops[i].layer == layer && plan->model->ops[i].kind == kind)
            return i;
    return -1;
}

static bool has_attention(const struct plan *plan, int layer)
{
    return plan->model->layer[layer].kind == LAYER_ATTENTION;
}

static int last_of_run(const struct plan *plan, int first)
{
    int last = first;
    while (last + 1 < plan->model->config.layers && plan->layer[last + 1].class_index == plan->layer[first].class_index)
        last++;
    return last;
}

void explain_add_size(struct strbuf *out, size_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units)
        value /= 1024, unit++;
    strbuf_add_format(out, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void explain_add_range(struct strbuf *out, int first, int last)
{
    strbuf_add_format(out, first == last ? "%d" : "%d-%d", first, last);
}

void explain_add_formats(struct strbuf *out, const struct kv_layout *layout)
{
    strbuf_add_text(out, dtype_word(layout->k.dtype));
    if (layout->v.dtype != layout->k.dtype)
        strbuf_add_format(out, "/%s", dtype_word(layout->v.dtype));
}

// The next layer with attention, or how many layers there are.
static int next_attention(const struct plan *plan, int layer)
{
    while (layer < plan->model->config.layers && !has_attention(plan, layer))
        layer++;
    return layer;
}

// "nvfp4" when all layers with attention have the same formats, else "0-3:bfloat16, 4-29:fp8_e4m3/nvfp4".
static void add_formats_by_layer(const struct plan *plan, struct strbuf *out)
{
    int layers = plan->model->config.layers, start = next_attention(plan, 0);
    strbuf_add_text(out, start == layers ? "of states alone" : "");
    for (int first = start, after; first < layers; first = after) {
        const struct kv_layout *layout = &explain_class_of(plan, first)->layout;
        int last = first;
        for (after = next_attention(plan, first + 1); after < layers; after = next_attention(plan, after + 1)) {
            const struct kv_layout *next = &explain_class_of(plan, after)->layout;
            if (next->k.dtype != layout->k.dtype || next->v.dtype != layout->v.dtype)
                break;
            last = after;
        }
        strbuf_add_text(out, first > start ? ", " : "");
        if (first > start || after < layers) {
            explain_add_range(out, first, last);
            strbuf_add_byte(out, ':');
        }
        explain_add_formats(out, layout);
    }
}

void explain_short(const struct plan *plan, struct strbuf *out)
{
    const struct model_shard *shard = &plan->model->shard;
    strbuf_add_format(out, "plan: %s on %s", plan->model->config.architecture, plan->device.word);
    if (shard->ranks)
        strbuf_add_format(out, ", rank %d of %d", shard->rank, shard->ranks);
    strbuf_add_text(out, "; KV cache ");
    add_formats_by_layer(plan, out);
    explain_add_short_transform(plan, out);
    strbuf_add_format(out, ", %zu bytes per token (all layers)", plan_token_bytes(plan));
    if (plan_states(plan)) {
        strbuf_add_text(out, " and states of ");
        explain_add_size(out, plan_states(plan)->page_bytes);
        strbuf_add_text(out, " per sequence");
    }
    strbuf_add_text(out, ", ");
    explain_add_lengths(plan, out);
    strbuf_add_text(out, "; weights ");
    explain_add_weight_formats(plan, out);
    if (plan->failed_note)
        strbuf_add_format(out, "; left out after a failed self-test: %s", plan->failed_note);
    strbuf_add_byte(out, '\n');
    explain_add_slow(plan, "warning: ", out);
    explain_add_warnings(plan, "warning: ", out);
}

// A column of `width`, coloured without counting the colour.
static void add_cell(struct strbuf *out, struct explain_style style, const char *colour, int width, const char *text)
{
    bool coloured = style.colour && *colour;
    strbuf_add_format(out, "%s%-*s%s ", coloured ? colour : "", width, text, coloured ? "\033[0m" : "");
}

// Fewer bits are greener.
static const char *colour_of(enum dtype dtype)
{
    int bits = dtype_table[dtype].bits;
    return bits <= 4 ? "\033[32m" : bits <= 8 ? "\033[33m" : "";
}

void explain_add_attention(struct strbuf *out, const struct plan_class *class)
{
    int latent = class->layout.v.dim, rotary = class->layout.k.dim - latent;
    if (class->kind.state)
        strbuf_add_text(out, "state");
    else if (class->layout.latent)
        strbuf_add_format(out, "latent %d+%d", latent, rotary);
    else
        strbuf_add_format(out, class->kind.window ? "window %d" : "full", class->kind.window);
}

static void add_layer_lines(const struct plan *plan, struct explain_style style, struct strbuf *out)
{
    const int kind_width = plan->classes[0].layout.latent ? 14 : 12;
    const struct {
        const char *title;
        int width;
    } columns[] = {
        { "layers", 9 }, { "attention", kind_width }, { "K", 20 }, { "V", 20 }, { "bytes/token/layer", 0 },
    };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        add_cell(out, style, "\033[1m", columns[i].width, columns[i].title);
    out->data[out->len - 1] = '\n';
    for (int first = 0, last; first < plan->model->config.layers; first = last + 1) {
        last = last_of_run(plan, first);
        if (!has_attention(plan, first))
            continue;
        const struct plan_class *class = explain_class_of(plan, first);
        struct strbuf range = { 0 }, kind = { 0 }, bytes = { 0 };
        explain_add_range(&range, first, last);
        explain_add_attention(&kind, class);
        strbuf_add_format(&bytes, "%zu", plan_layer_token_bytes(plan, first));
        add_cell(out, style, "", 9, range.data);
        add_cell(out, style, "", kind_width, kind.data);
        add_cell(out, style, colour_of(class->layout.k.dtype), 20, dtype_word(class->layout.k.dtype));
        add_cell(out, style, colour_of(class->layout.v.dtype), 20,
                 class->layout.latent ? "in K" : dtype_word(class->layout.v.dtype));
        strbuf_add_format(out, "%s\n", bytes.data);
        strbuf_free(&range);
        strbuf_free(&kind);
        strbuf_free(&bytes);
    }
}

static void add_experts(const struct plan *plan, struct strbuf *out)
{
    const struct model_experts *experts = &plan->model->config.experts;
    if (!experts->count)
        return;
    double bytes = plan_experts_bytes(plan);
    strbuf_add_format(out, "routing   top %d of %d experts; a token reads ", experts->top_k, experts->count);
    explain_add_size(out, (size_t)(bytes * experts->top_k / experts->count));
    strbuf_add_text(out, " of their ");
    explain_add_size(out, (size_t)bytes);
    strbuf_add_byte(out, '\n');
}

static bool is_fused(const struct plan_op *bound, enum kernel_load loads)
{
    for (int load = 0; load < KERNEL_LOADS; load++)
        if (loads >> load & 1 && bound->fused[load])
            return true;
    return false;
}

// Ops that are fused into a neighbour's kernel, which is one of those named above.
static void add_fused(const struct plan *plan, struct strbuf *out)
{
    static const char *const words[] = { "decode", "prefill" };
    static const enum kernel_load loads[] = { KERNEL_DECODE, KERNEL_PREFILL };
    for (int load = 0; load < 2; load++) {
        bool of_kind[OP_COUNT] = { 0 };
        int kinds = 0;
        for (int i = 0; i < plan->model->op_count; i++)
            if (is_fused(&plan->ops[i], loads[load]) && !of_kind[plan->model->ops[i].kind]) {
                of_kind[plan->model->ops[i].kind] = true;
                strbuf_add_format(out, "%s%s", kinds++ ? " " : "fused     ", op_word(plan->model->ops[i].kind));
            }
        if (kinds)
            strbuf_add_format(out, " into neighbouring %s kernels\n", words[load]);
    }
}

static void add_device(const struct plan *plan, struct strbuf *out)
{
    const struct device *device = &plan->device;
    struct arena arena = { 0 };
    strbuf_add_format(out, "device    %s", device->word);
    if (device->imagined)
        strbuf_add_text(out, " (imagined)");
    if (device->name[0] && device->kind == DEVICE_CUDA)
        strbuf_add_format(out, ": %s, %d multiprocessors, ", device->name, device->multiprocessors);
    else if (device->name[0])
        strbuf_add_format(out, ": %s, %d cores", device->name, device->cores);
    if (device->name[0] && device->kind == DEVICE_CUDA)
        explain_add_size(out, device->memory_bytes);
    if (device->kind == DEVICE_CPU)
        strbuf_add_format(out, ", %s", device_feature_words(&arena, device->features));
    if (device->note[0])
        strbuf_add_format(out, "; %s", device->note);
    strbuf_add_byte(out, '\n');
    arena_free(&arena);
}

// A GPU's launches besides those of ops.
static void add_sampling(const struct plan *plan, struct strbuf *out)
{
    int vocabulary = plan->model->config.vocabulary;
    if (plan->device.kind != DEVICE_CUDA)
        return;
    strbuf_add_text(out, "sampling  ");
    if (!cuda_sampling_fits(vocabulary))
        strbuf_add_format(out, "by the CPU: kernels draw from vocabularies of up to %d tokens\n",
                          CUDA_SAMPLING_VOCABULARY_MAX);
    for (int i = 0; i < CUDA_SAMPLING_CALLS && cuda_sampling_fits(vocabulary); i++)
        strbuf_add_format(out, "%s%s", cuda_sampling_functions[i], i + 1 < CUDA_SAMPLING_CALLS ? ", " : "\n");
}

// An imagined GPU is planned with what the sources have for it, whatever this build holds.
static void add_missing_code(const struct plan *plan, struct strbuf *out)
{
    const struct device *device = &plan->device;
    if (device->kind == DEVICE_CUDA && device->imagined && !cuda_has_code(device->sm))
        strbuf_add_format(out, "code      this build holds no %s code: build with -Dcuda-archs=%d%s to run it\n",
                          device->word, device->sm, cuda_is_listed(cuda_wgmma_architectures, device->sm) ? "a" : "");
}

static void add_passed_over(const struct plan *plan, struct strbuf *out)
{
    struct arena arena = { 0 };
    bool *done = ARENA_NEW(&arena, bool, plan->reason_count);
    for (int i = 0; i < plan->reason_count; i++) {
        const struct plan_reason *reason = &plan->reasons[i];
        struct strbuf layers = { 0 };
        if (done[i])
            continue;
        int others = plan_reasons_alike(plan->reasons, plan->reason_count, i, done) - 1;
        if (reason->first_layer >= 0)
            explain_add_range(&layers, reason->first_layer, reason->last_layer);
        strbuf_add_format(out, "passed    %-9s %s", strbuf_text(&layers), reason->kernel->name);
        if (others)
            strbuf_add_format(out, " (and %d more)", others);
        strbuf_add_format(out, ": %s\n", reason->text);
        strbuf_free(&layers);
    }
    arena_free(&arena);
}

// "9 query heads, 3 KV heads (GQA 3:1), head size 64", with the usual name of how query heads share KV heads.
static void add_heads(const struct model_config *config, struct strbuf *out)
{
    int shared = config->kv_heads ? config->heads / config->kv_heads : 0;
    strbuf_add_format(out, "%d query heads, ", config->heads);
    if (config->latent)
        strbuf_add_format(out, "MLA latents of %d channels and %d rotary ones", config->latent,
                          config->head_dim - config->latent);
    else if (shared == 1)
        strbuf_add_format(out, "as many KV heads (MHA), head size %d", config->head_dim);
    else if (config->kv_heads == 1)
        strbuf_add_format(out, "1 KV head (MQA), head size %d", config->head_dim);
    else
        strbuf_add_format(out, "%d KV heads (GQA %d:1), head size %d", config->kv_heads, shared, config->head_dim);
}

static void add_model(const struct plan *plan, struct strbuf *out)
{
    const struct model_config *config = &plan->model->config;
    strbuf_add_format(out, "model     %s: %d layers, ", config->architecture, config->layers);
    add_heads(config, out);
    strbuf_add_format(out, ", vocabulary %d, context length %d%s\n", config->vocabulary, config->context,
                      plan->model->imagined ? "; config alone, no weights to run" : "");
}

void explain_full(const struct plan *plan, struct explain_style style, struct strbuf *out)
{
    add_model(plan, out);
    add_device(plan, out);
    add_layer_lines(plan, style, out);
    explain_add_attention_rows(plan, out);
    explain_add_states(plan, out);
    explain_add_transform(plan, out);
    explain_add_store(plan, out);
    explain_add_matrices(plan, out);
    add_experts(plan, out);
    add_sampling(plan, out);
    add_fused(plan, out);
    explain_add_slow(plan, "slow      ", out);
    explain_add_memory(plan, out);
    explain_add_ranks(plan, out);
    explain_add_checkpoint(plan, out);
    add_missing_code(plan, out);
    if (style.verbose)
        add_passed_over(plan, out);
}
