// SPDX-License-Identifier: Apache-2.0
// plan/sinks.c: sink pages: how many of a sequence's first pages each layer keeps in 16 bit. Attention returns to the
// first tokens of a text from everywhere, and few bits cost most there. By default it is one page where keys have four
// bits, as far as the kernels that the layer would have anyway read such pages beside the others.
#include <errno.h>
#include <stdlib.h>

#include "plan/decide.h"
#include "plan/fit.h"
#include "plan/kv_flag.h"

enum { SINKS_DEFAULT = 1, SINKS_DEFAULT_BITS = 4 };

static const char flag_name[] = "--kv-sink-pages";

static bool parse_pages(const char *text, int *out, struct error *err)
{
    char *end;
    errno = 0;
    long pages = strtol(text, &end, 10);
    if (end == text || *end || errno || pages < 0 || pages > KV_SINK_PAGES_MAX)
        return fail_usage(err, "%s: \"%.40s\" is not a number of pages; 0 to %d is possible", flag_name, text,
                          KV_SINK_PAGES_MAX);
    *out = (int)pages;
    return true;
}

// The row that the op would have at a load, NULL: none; of those that did not fail their self-test.
static const struct kernel *best_row(struct plan *plan, const struct plan_options *options,
                                     const struct fit_request *request, int load)
{
    const struct kernel *best = NULL;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel))
        if (kernel->op == request->op && kernel->load >> load & 1 && (!best || kernel->priority > best->priority)
            && !decide_has_failed(options, kernel) && !fit_reasons(kernel, request, &plan->device, &plan->arena))
            best = kernel;
    return best;
}

// The first row of a layer with these formats that does not read sink pages in `wide` beside them, NULL: all do.
static const struct kernel *row_without(struct plan *plan, const struct plan_options *options,
                                        const struct layer *layer, const struct kv_formats *formats, enum dtype wide)
{
    static const enum op_kind ops[] = { OP_KV_WRITE, OP_ATTENTION };
    for (int i = 0; i < 2 * KERNEL_LOADS; i++) {
        int load = i % KERNEL_LOADS;
        struct fit_request request = { .op = ops[i / KERNEL_LOADS],
                                       .has_cache = true,
                                       .k = formats->k,
                                       .v = formats->v,
                                       .latent = layer->latent,
                                       .k_dim = layer->head_dim,
                                       .v_dim = layer->latent ? layer->latent : layer->head_dim };
        const struct kernel *row = best_row(plan, options, &request, load);
        request.sink = (uint64_t)1 << wide;
        if (row && fit_reasons(row, &request, &plan->device, &plan->arena))
            return row;
    }
    return NULL;
}

static bool same_need(const struct layer *a, const struct layer *b)
{
    return a->kind == b->kind && a->latent == b->latent && a->head_dim == b->head_dim;
}

// Chooses sink pages where no option gives them. A layer like the one before it takes the same answer.
static void choose_pages(struct plan *plan, const struct plan_options *options, const struct kv_formats *formats,
                         int *pages)
{
    const struct model *model = plan->model;
    enum dtype wide = model->config.kv_dtype;
    for (int i = 0; i < model->config.layers; i++) {
        const struct layer *layer = &model->layer[i];
        pages[i] = 0;
        if (layer->kind != LAYER_ATTENTION || dtype_table[formats[i].k].bits > SINKS_DEFAULT_BITS)
            continue;
        if (i && same_need(layer, &model->layer[i - 1]) && formats[i].k == formats[i - 1].k
            && formats[i].v == formats[i - 1].v) {
            pages[i] = pages[i - 1];
            continue;
        }
        const struct kernel *without = row_without(plan, options, layer, &formats[i], wide);
        pages[i] = without ? 0 : SINKS_DEFAULT;
        if (without)
            plan->sink_note = arena_format(&plan->arena, "%s does not read %s beside sink pages in %s", without->name,
                                           dtype_word(formats[i].k), dtype_word(wide));
    }
}

bool decide_sinks(struct plan *plan, const struct plan_options *options, const struct kv_formats *formats, int *pages,
                  struct error *err)
{
    const struct model *model = plan->model;
    int asked = 0, wide = dtype_table[model->config.kv_dtype].bits;
    if (!options->user.kv_sink_pages)
        return choose_pages(plan, options, formats, pages), true;
    if (!parse_pages(options->user.kv_sink_pages, &asked, err))
        return false;
    for (int i = 0; i < model->config.layers; i++) {
        bool quantised = dtype_table[formats[i].k].bits < wide || dtype_table[formats[i].v].bits < wide;
        pages[i] = quantised && model->layer[i].kind == LAYER_ATTENTION ? asked : 0;
    }
    return true;
}
