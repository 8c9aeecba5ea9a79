// SPDX-License-Identifier: Apache-2.0
// model/tensor_lookup_unused.c: reports unused tensors. Those of known unsupported parts (vision, MTP) are counted by
// kind; others are named, since they may matter.
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "model/tensor_lookup_internal.h"

enum { NAMED_MAX = 3 };

static const struct {
    const char *word;      // NULL: not reported
    const char *parts[10]; // substrings of names
} kinds[] = {
    { NULL,
      { "rotary_emb.inv_freq", "rope_freqs.", "rope_factors_", ".input_scale", ".input_global_scale",
        ".input_zero_point", ".q_scale", ".q.scale", "output_scale", "_zero_point" } },
    { "of images and sound", { "vision", "visual", "multi_modal_projector", "mm_projector", "audio", "image" } },
    { "of multi-token prediction (MTP) layers", { "mtp.", ".nextn.", "eh_proj", ".enorm", ".hnorm", "shared_head" } },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

// True for layers beyond the config's: multi-token prediction (MTP).
static bool is_later_layer(const char *name, int layers)
{
    static const char *const before[] = { "layers.", "blk." };
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const char *at = strstr(name, before[i]);
        if (at && strtol(at + strlen(before[i]), NULL, 10) >= layers)
            return true;
    }
    return false;
}

static int kind_of(const char *name, int layers)
{
    for (int i = 0; i < KINDS; i++)
        for (size_t j = 0; j < sizeof kinds[i].parts / sizeof *kinds[i].parts && kinds[i].parts[j]; j++)
            if (strstr(name, kinds[i].parts[j]))
                return i;
    return is_later_layer(name, layers) ? KINDS - 1 : KINDS;
}

void find_note_unused(struct graph *graph)
{
    const struct checkpoint *checkpoint = graph->source.checkpoint;
    struct model *model = graph->model;
    struct strbuf text = { 0 }, names = { 0 };
    size_t counts[KINDS + 1] = { 0 };
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        const char *name = checkpoint->tensors[i].name;
        if (graph->find->used[i])
            continue;
        int kind = kind_of(name, model->config.layers);
        if (kind == KINDS && counts[KINDS] < NAMED_MAX)
            strbuf_add_format(&names, "%s%s", names.len ? ", " : "", name);
        counts[kind]++;
    }
    for (int i = 0; i < KINDS; i++)
        if (counts[i] && kinds[i].word)
            strbuf_add_format(&text, "%s%zu %s", text.len ? ", " : "", counts[i], kinds[i].word);
    if (text.len)
        model->unused = arena_text(&model->arena, text.data, text.len);
    if (counts[KINDS])
        model_warn(model, "%zu tensor%s of the checkpoint %s not used: %s%s", counts[KINDS],
                   counts[KINDS] == 1 ? "" : "s", counts[KINDS] == 1 ? "is" : "are", names.data,
                   counts[KINDS] > NAMED_MAX ? " ..." : "");
    strbuf_free(&text);
    strbuf_free(&names);
}
