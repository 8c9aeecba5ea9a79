// SPDX-License-Identifier: Apache-2.0
// plan/explain_store.c: how keys and values are stored, beside their formats.
#include "plan/explain_parts.h"

static bool leaves_choice(const struct plan *plan, int layer)
{
    const struct kv_layout *layout = &explain_class_of(plan, layer)->layout;
    return layout->k.dtype == DTYPE_NVFP4 || layout->v.dtype == DTYPE_NVFP4;
}

const char *explain_scale(const struct plan *plan, int layer)
{
    return !leaves_choice(plan, layer) ? NULL : plan->scale_search ? "search" : "amax";
}

int explain_sink_pages(const struct plan *plan, int layer)
{
    int index = plan->layer[layer].sink_class;
    return index == PLAN_NO_CLASS ? 0 : plan->classes[index].kind.end;
}

// "layers 0-3, 7": those with sink pages.
static void add_sink_layers(const struct plan *plan, struct strbuf *out)
{
    const char *separator = " in layers ";
    for (int first = 0, last; first < plan->model->config.layers; first = last + 1) {
        last = first;
        if (!explain_sink_pages(plan, first))
            continue;
        while (last + 1 < plan->model->config.layers && explain_sink_pages(plan, last + 1))
            last++;
        strbuf_add_text(out, separator);
        explain_add_range(out, first, last);
        separator = ", ";
    }
}

void explain_add_store(const struct plan *plan, struct strbuf *out)
{
    int choices = 0, sinks = 0, pages = 0;
    for (int i = 0; i < plan->model->config.layers; i++) {
        if (plan->model->layer[i].kind != LAYER_ATTENTION)
            continue;
        choices += leaves_choice(plan, i);
        sinks += explain_sink_pages(plan, i) > 0;
        pages = sinks == 1 && !pages ? explain_sink_pages(plan, i) : pages;
    }
    if (!choices && !sinks && !plan->sink_note)
        return;
    const char *separator = "";
    strbuf_add_text(out, "store     ");
    if (choices) {
        strbuf_add_format(out, "%s scales by %s", dtype_word(DTYPE_NVFP4),
                          plan->scale_search ? "least square error" : "largest magnitude");
        separator = "; ";
    }
    if (sinks) {
        strbuf_add_format(out, "%s%d sink page%s (the first of a sequence) in %s", separator, pages,
                          pages == 1 ? "" : "s", dtype_word(plan->model->config.kv_dtype));
        add_sink_layers(plan, out);
        separator = "; ";
    }
    if (plan->sink_note)
        strbuf_add_format(out, "%sno sink pages in 16 bit: %s", separator, plan->sink_note);
    strbuf_add_byte(out, '\n');
}
