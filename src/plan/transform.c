// SPDX-License-Identifier: Apache-2.0
// plan/transform.c: what each layer's keys are stored as: as the flag says, or by what a calibration measured. Keys in
// 16 bits or more gain nothing, so `auto` leaves them alone.
#include <string.h>

#include "base/suggest.h"
#include "plan/decide.h"

enum { TRANSFORM_AUTO = KV_TRANSFORMS, WORDS, ENOUGH_BITS = 16 };

static const char flag_name[] = "--kv-transform";
static const char *const words[WORDS] = {
    [0] = "none",
    [KV_CENTRE] = "centre",
    [KV_ROTATE] = "rotate",
    [KV_CENTRE | KV_ROTATE] = "centre+rotate",
    [TRANSFORM_AUTO] = "auto",
};

const char *kv_transform_word(int transform) { return words[transform]; }

static bool parse_word(const char *word, int *out, struct error *err)
{
    for (*out = 0; *out < WORDS; ++*out)
        if (!strcmp(word, words[*out]))
            return true;
    const char *near = suggest(bytes_of(word), words, WORDS);
    return fail_usage(err,
                      "%s: \"%.60s\" is no transform of keys%s%s%s; there are auto none rotate centre "
                      "centre+rotate",
                      flag_name, word, near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
}

static bool has_keys(const struct plan *plan, int layer) { return plan->model->layer[layer].kind == LAYER_ATTENTION; }

static bool has_sinks(const struct plan *plan, int layer)
{
    const struct op *op = plan->model->ops;
    while (op->kind != OP_ATTENTION || op->layer != layer)
        op++;
    return op->vector;
}

// Which transforms leave a layer's results as they are, and why not the others.
static int allowed(const struct plan *plan, int layer, const char **why)
{
    *why = "latents are keys and values at once, and values must stay as they are";
    if (plan->model->layer[layer].latent)
        return 0;
    *why = "scores have a soft cap, and a constant on all of them would not go unseen";
    if (plan->model->config.attention_softcap > 0)
        return KV_ROTATE;
    *why = "attention has sinks, and a constant on all other scores would not go unseen";
    return has_sinks(plan, layer) ? KV_ROTATE : KV_CENTRE | KV_ROTATE;
}

static enum dtype k_format(const struct plan *plan, int layer)
{
    return plan->classes[plan->layer[layer].class_index].layout.k.dtype;
}

// Returns what a calibration measured of a layer, or NULL.
static const struct kv_calibrated *measured(const struct plan_options *options, int layer)
{
    const struct kv_calibration *known = options->calibration;
    return known && known->layers && known->layer[layer].centre ? &known->layer[layer] : NULL;
}

// The one with the least error; of equals the simpler one.
static int least_error(const struct kv_calibrated *found, int possible)
{
    int best = 0;
    for (int i = 1; i < KV_TRANSFORMS; i++)
        if (!(i & ~possible) && found->error[i] < found->error[best])
            best = i;
    return best;
}

static void choose(struct plan *plan, const struct kv_calibrated *found, int index)
{
    struct plan_layer *layer = &plan->layer[index];
    const char *why;
    int possible = allowed(plan, index, &why);
    if (!possible || dtype_table[k_format(plan, index)].bits >= ENOUGH_BITS)
        return;
    layer->undecided = !found || found->k != k_format(plan, index);
    layer->calibrated = !layer->undecided;
    if (layer->calibrated)
        layer->transform = least_error(found, possible);
}

static bool refuse_word(struct plan *plan, int wanted, struct error *err)
{
    int layers = plan->model->config.layers;
    bool *marked = ARENA_NEW(&plan->arena, bool, layers);
    const char *why, *first = NULL;
    for (int i = 0; i < layers; i++) {
        marked[i] = has_keys(plan, i) && wanted & ~allowed(plan, i, &why);
        first = marked[i] && !first ? why : first;
    }
    if (!first)
        return true;
    plan->refusal.layers = decide_layer_list(plan, marked);
    return refuse(plan, err, flag_name, words[wanted],
                  arena_format(&plan->arena, "not in layers %s: %s", plan->refusal.layers, first));
}

bool decide_transforms(struct plan *plan, const struct plan_options *options, struct error *err)
{
    int wanted = TRANSFORM_AUTO;
    if (options->user.kv_transform && !parse_word(options->user.kv_transform, &wanted, err))
        return false;
    if (wanted != TRANSFORM_AUTO && !refuse_word(plan, wanted, err))
        return false;
    plan->calibration = options->calibration;
    for (int i = 0; i < plan->model->config.layers; i++) {
        struct plan_layer *layer = &plan->layer[i];
        if (!has_keys(plan, i))
            continue;
        const struct kv_calibrated *found = measured(options, i);
        if (wanted == TRANSFORM_AUTO)
            choose(plan, found, i);
        else
            layer->transform = wanted;
        plan->wants_calibration |= layer->undecided || (layer->transform & KV_CENTRE && !found);
    }
    return true;
}

bool decide_leaves_out(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_TRANSFORM && !plan->layer[op->layer].transform;
}
