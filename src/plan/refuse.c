// SPDX-License-Identifier: Apache-2.0
// plan/refuse.c: a refusal says what would run instead. Alternatives are found by planning them, never by a fixed list.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "plan/decide.h"

enum { CANDIDATES_SHOWN = 8 }; // groups of rows in the sentence; JSON has all rows

void plan_add_layers(struct strbuf *out, const bool *marked, int count)
{
    const char *separator = "";
    for (int first = 0, last; first < count; first = last + 1) {
        last = first;
        if (!marked[first])
            continue;
        while (last + 1 < count && marked[last + 1])
            last++;
        strbuf_add_format(out, first == last ? "%s%d" : "%s%d-%d", separator, first, last);
        separator = ", ";
    }
}

const char *decide_layer_list(struct plan *plan, const bool *marked)
{
    struct strbuf list = { 0 };
    plan_add_layers(&list, marked, plan->model->config.layers);
    const char *text = arena_text(&plan->arena, strbuf_text(&list), list.len);
    strbuf_free(&list);
    return text;
}

bool refuse(struct plan *plan, struct error *err, const char *flag, const char *value, const char *reason)
{
    struct plan_refusal *refusal = &plan->refusal;
    refusal->flag = flag;
    refusal->value = value;
    refusal->reason = reason;
    refusal->layers = refusal->layers ? refusal->layers : "";
    if (!strncmp(reason, flag, strlen(flag))) // the sentence names it already
        return fail(err, "%s", reason);
    return fail(err, "%s %s: %s", flag, value, reason);
}

// ---- alternatives ----

struct search {
    struct plan *plan; // the refused one, which collects what is found
    const struct plan_options *options;
};

// Plans with the changed options; what is accepted is an alternative.
static void try_options(struct search *search, const struct plan_options *options, const struct device *device,
                        const char *flag, const char *value)
{
    struct plan_refusal *refusal = &search->plan->refusal;
    struct plan attempt;
    struct error ignored;
    if (refusal->alternative_count == PLAN_ALTERNATIVES_MAX
        || (search->options->user.kv_plan && decide_is_in_kv_plan(flag)))
        return;
    if (decide_all(&attempt, search->plan->model, device, options, &ignored))
        refusal->alternatives[refusal->alternative_count++] = (struct plan_alternative){
            flag, arena_text(&search->plan->arena, value, strlen(value)), plan_token_bytes(&attempt)
        };
    plan_free(&attempt);
}

static void try_formats(struct search *search)
{
    struct plan_options options = *search->options;
    options.user.attention_kernel = NULL;
    const char *flag = search->plan->refusal.flag;
    bool memory = !strcmp(flag, "--max-model-len") || !strcmp(flag, "--kv-cache-memory-bytes");
    for (int i = 0; i < DTYPE_COUNT; i++) {
        options.user.kv_cache_dtype = dtype_word((enum dtype)i);
        bool asked = search->options->user.kv_cache_dtype
            && !strcmp(search->options->user.kv_cache_dtype, options.user.kv_cache_dtype);
        if (!(dtype_table[i].use & DTYPE_USE_CACHE) || asked)
            continue;
        if (memory && dtype_table[i].bits >= 16) // more bytes would not help
            continue;
        try_options(search, &options, &search->plan->device, "--kv-cache-dtype", options.user.kv_cache_dtype);
    }
}

// When only some layers are the trouble, leaving those in 16 bit may do.
static void try_skipping(struct search *search)
{
    struct plan_options options = *search->options;
    const char *layers = search->plan->refusal.layers;
    struct strbuf list = { 0 };
    if (options.user.kv_cache_dtype_skip_layers)
        strbuf_add_format(&list, "%s ", options.user.kv_cache_dtype_skip_layers);
    for (const char *c = layers; *c; c++)
        if (*c != ',')
            strbuf_add_byte(&list, *c);
    options.user.kv_cache_dtype_skip_layers = strbuf_text(&list);
    if (*layers)
        try_options(search, &options, &search->plan->device, "--kv-cache-dtype-skip-layers",
                    options.user.kv_cache_dtype_skip_layers);
    strbuf_free(&list);
}

static void try_transforms(struct search *search)
{
    struct plan_options options = *search->options;
    for (int i = 0; i < KV_TRANSFORMS; i++) {
        options.user.kv_transform = kv_transform_word(i);
        try_options(search, &options, &search->plan->device, "--kv-transform", options.user.kv_transform);
    }
}

// A plan that is to run has this machine's CPU and GPU to choose from. One that is only looked at has every kind of
// device, among which a GPU goes by its sm_NN.
static void try_devices(struct search *search)
{
    bool runs_here = search->options->runs_here;
    for (int i = 0; device_words[i]; i++) {
        struct device device;
        struct error ignored;
        if ((runs_here || strcmp(device_words[i], "cuda")) && plan_choose_device(&device, device_words[i], &ignored)
            && strcmp(device.word, search->plan->device.word) && !(runs_here && device.imagined))
            try_options(search, search->options, &device, "--device", device_words[i]);
    }
}

static void try_lengths(struct search *search)
{
    struct plan_options options = *search->options;
    char text[16];
    options.user.max_model_len = search->plan->max_model_len;
    snprintf(text, sizeof text, "%d", options.user.max_model_len);
    if (options.user.max_model_len)
        try_options(search, &options, &search->plan->device, "--max-model-len", text);
}

// Tries a cache of the bytes that one sequence of the asked length takes, or of what there is.
static void try_cache_bytes(struct search *search)
{
    struct plan_options options = *search->options;
    struct plan attempt;
    struct error ignored;
    char text[32];
    options.user.kv_cache_bytes = 0;
    options.user.max_num_seqs = 1;
    bool accepted = decide_all(&attempt, search->plan->model, &search->plan->device, &options, &ignored);
    options = *search->options;
    options.user.kv_cache_bytes = attempt.pool_bytes;
    snprintf(text, sizeof text, "%zu", attempt.pool_bytes);
    if (accepted)
        try_options(search, &options, &search->plan->device, "--kv-cache-memory-bytes", text);
    plan_free(&attempt);
}

static void try_no_sinks(struct search *search)
{
    struct plan_options options = *search->options;
    options.user.kv_sink_pages = "0";
    try_options(search, &options, &search->plan->device, "--kv-sink-pages", options.user.kv_sink_pages);
}

static void try_kernels(struct search *search)
{
    struct plan_options options = *search->options;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        options.user.attention_kernel = kernel->name;
        if (kernel->op == OP_ATTENTION && kernel->device == search->plan->device.kind)
            try_options(search, &options, &search->plan->device, "--attention-kernel", kernel->name);
    }
}

static void try_linear_kernels(struct search *search)
{
    struct plan_options options = *search->options;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        options.user.linear_kernel = kernel->name;
        if (kernel->op == OP_LINEAR && !kernel->nvfp4 && kernel->device == search->plan->device.kind)
            try_options(search, &options, &search->plan->device, "--linear-kernel", kernel->name);
    }
}

static const struct {
    const char *flag;
    void (*tries[3])(struct search *search);
} searches[] = {
    { "--kv-cache-dtype", { try_skipping, try_formats } },
    { "--attention-kernel", { try_kernels, try_formats } },
    { "--linear-kernel", { try_linear_kernels, try_devices } },
    { "--kv-sink-pages", { try_no_sinks, try_formats } },
    { "--max-model-len", { try_lengths, try_formats } },
    { "--kv-cache-memory-bytes", { try_cache_bytes, try_lengths, try_formats } },
    { "--device", { try_devices } },
    { "--kv-transform", { try_transforms } },
};

static size_t distance(size_t a, size_t b) { return a > b ? a - b : b - a; }

// Nearest in bytes first; equals keep the order they were found in.
static void sort_alternatives(struct plan_refusal *refusal, size_t asked_bytes)
{
    for (int i = 1; i < refusal->alternative_count; i++)
        for (int j = i; j > 0; j--) {
            struct plan_alternative *a = &refusal->alternatives[j - 1], *b = &refusal->alternatives[j];
            if (distance(a->token_bytes, asked_bytes) <= distance(b->token_bytes, asked_bytes))
                break;
            struct plan_alternative moved = *a;
            *a = *b;
            *b = moved;
        }
}

// Bytes per token of a word that is not known, or has no layout here: by its bits.
static size_t bytes_of_refused_word(const struct plan *plan)
{
    const struct model_config *config = &plan->model->config;
    struct bytes word = bytes_of(plan->refusal.value);
    int bits = dtype_kv_word_refused_bits(word), sides = config->latent ? 1 : 2;
    enum dtype dtype;
    if (dtype_from_kv_word(word, &dtype))
        bits = dtype_table[dtype].bits;
    size_t cached = 0;
    for (int i = 0; i < config->layers; i++)
        cached += plan->model->layer[i].kind == LAYER_ATTENTION;
    return cached * (size_t)(sides * config->kv_heads * config->head_dim) * (size_t)bits / 8;
}

static int count_reasons(const char *text)
{
    int count = 1;
    while ((text = strstr(text, "; "))) {
        text += strlen("; ");
        count++;
    }
    return count;
}

// Rows with the same reasons are one line. Those that nearly fit come first.
static void add_candidates(const struct plan_refusal *refusal, struct strbuf *out)
{
    struct arena arena = { 0 };
    int shown = 0, left = refusal->candidate_count;
    bool *done = ARENA_NEW(&arena, bool, left);
    for (int reasons = 1; left && shown < CANDIDATES_SHOWN; reasons++)
        for (int i = 0; i < refusal->candidate_count && shown < CANDIDATES_SHOWN; i++) {
            const struct plan_reason *candidate = &refusal->candidates[i];
            if (done[i] || count_reasons(candidate->text) > reasons)
                continue;
            int alike = plan_reasons_alike(refusal->candidates, refusal->candidate_count, i, done);
            strbuf_add_format(out, "\n  %s", candidate->kernel->name);
            if (alike > 1)
                strbuf_add_format(out, " (and %d more)", alike - 1);
            strbuf_add_format(out, " %s", candidate->text);
            left -= alike;
            shown++;
        }
    arena_free(&arena);
}

void refuse_print_lists(const struct plan *plan, struct error *err)
{
    const struct plan_refusal *refusal = &plan->refusal;
    struct strbuf text = { 0 };
    strbuf_add_text(&text, err->text);
    add_candidates(refusal, &text);
    strbuf_add_text(&text, refusal->alternative_count ? "\nwhat would run:" : "");
    for (int i = 0; i < refusal->alternative_count; i++)
        strbuf_add_format(&text, "\n  %s %s  (%zu bytes per token, all layers)", refusal->alternatives[i].flag,
                          refusal->alternatives[i].value, refusal->alternatives[i].token_bytes);
    fail(err, "%s", text.data);
    strbuf_free(&text);
}

void refuse_find_alternatives(struct plan *plan, const struct plan_options *options, struct error *err)
{
    struct plan_refusal *refusal = &plan->refusal;
    struct search search = { .plan = plan, .options = options };
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++)
        for (int j = 0; j < 3 && searches[i].tries[j] && !strcmp(searches[i].flag, refusal->flag); j++)
            searches[i].tries[j](&search);
    sort_alternatives(refusal, plan->class_count ? plan_token_bytes(plan) : bytes_of_refused_word(plan));
    refuse_print_lists(plan, err);
}
