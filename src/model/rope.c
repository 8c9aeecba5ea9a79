// SPDX-License-Identifier: Apache-2.0
#include "model/rope.h"

#include <math.h>
#include <string.h>

#include "format/json.h"

static const struct {
    const char *word;
    enum rope_scaling scaling;
} scalings[] = {
    { "default", ROPE_PLAIN }, { "none", ROPE_PLAIN },    { "linear", ROPE_LINEAR }, { "llama3", ROPE_LLAMA3 },
    { "yarn", ROPE_YARN },     { "longrope", ROPE_LONG }, { "su", ROPE_LONG },
};

static bool find_scaling(struct bytes word, enum rope_scaling *out, struct error *err)
{
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++)
        if (bytes_equal(word, bytes_of(scalings[i].word)))
            return *out = scalings[i].scaling, true;
    return fail(err, "rope scaling \"%.*s\" is not supported; nibble knows linear, llama3, yarn and longrope",
                (int)word.len, word.data);
}

// The object that holds the scaling's numbers: rope_parameters, or its entry for one kind of layer, or rope_scaling.
static const json_t *scaling_object(const json_t *config, const char *kind)
{
    const json_t *parameters = json_object_get(config, "rope_parameters");
    if (!json_is_object(parameters)) {
        const json_t *scaling = json_object_get(config, "rope_scaling");
        return json_is_object(scaling) ? scaling : NULL;
    }
    const json_t *entry = json_object_get(parameters, kind);
    return json_is_object(entry) ? entry : parameters;
}

static bool read_json(struct rope *rope, const json_t *config, const char *kind, double *attention_factor,
                      struct error *err)
{
    if (!json_get_real(config, "rope_theta", &rope->theta, err)
        || !json_get_real(config, "original_max_position_embeddings", &rope->original_context, err)) // Phi 3
        return false;
    const json_t *object = scaling_object(config, kind);
    if (!object)
        return true;
    const char *word = "default";
    double mscale = 0, mscale_all = 0;
    if (!json_get_text(object, "type", &word, err) || !json_get_text(object, "rope_type", &word, err)
        || !find_scaling(bytes_of(word), &rope->scaling, err) || !json_get_real(object, "rope_theta", &rope->theta, err)
        || !json_get_real(object, "factor", &rope->factor, err)
        || !json_get_real(object, "original_max_position_embeddings", &rope->original_context, err)
        || !json_get_real(object, "low_freq_factor", &rope->low_frequency, err)
        || !json_get_real(object, "high_freq_factor", &rope->high_frequency, err)
        || !json_get_real(object, "beta_fast", &rope->beta_fast, err)
        || !json_get_real(object, "beta_slow", &rope->beta_slow, err)
        || !json_get_bool(object, "truncate", &rope->truncate, err)
        || !json_get_real(object, "attention_factor", attention_factor, err)
        || !json_get_real(object, "mscale", &mscale, err) || !json_get_real(object, "mscale_all_dim", &mscale_all, err))
        return false;
    if (mscale_all > 0 && rope->factor > 1)
        rope->attention = pow(0.1 * mscale_all * log(rope->factor) + 1, 2);
    if (mscale > 0 && mscale_all > 0 && *attention_factor < 0)
        *attention_factor = (0.1 * mscale * log(rope->factor) + 1) / (0.1 * mscale_all * log(rope->factor) + 1);
    return true;
}

static bool read_gguf(struct rope *rope, const struct source *source, double *attention_factor, struct error *err)
{
    struct bytes word = bytes_of("none");
    const struct gguf_value *type = source_gguf(source, "rope.scaling.type");
    if (type && type->type == GGUF_STRING)
        word = type->string;
    if (!find_scaling(word, &rope->scaling, err) || !source_real(source, NULL, "rope.freq_base", &rope->theta, err)
        || !source_real(source, NULL, "rope.scaling.factor", &rope->factor, err)
        || !source_real(source, NULL, "rope.scaling.original_context_length", &rope->original_context, err)
        || !source_real(source, NULL, "rope.scaling.yarn_beta_fast", &rope->beta_fast, err)
        || !source_real(source, NULL, "rope.scaling.yarn_beta_slow", &rope->beta_slow, err))
        return false;
    double factor = 1, log_multiplier = 0; // the first multiplies yarn's own
    if (!source_real(source, NULL, "rope.scaling.attn_factor", &factor, err)
        || !source_real(source, NULL, "rope.scaling.yarn_log_multiplier", &log_multiplier, err)
        || !source_real(source, NULL, "rope.scaling.yarn_attn_factor", &factor, err))
        return false;
    if (checkpoint_find(source->checkpoint, "rope_factors_long.weight")) {
        rope->scaling = ROPE_LONG;
        *attention_factor = factor;
    }
    if (rope->scaling == ROPE_YARN && factor != 1)
        *attention_factor = factor * (0.1 * log(rope->factor) + 1);
    if (rope->scaling == ROPE_YARN && log_multiplier > 0 && rope->factor > 1) { // a tenth of mscale_all_dim
        rope->attention = pow(log_multiplier * log(rope->factor) + 1, 2);
        *attention_factor = 1;
    }
    return true;
}

// The factors that llama 3 models carry in a GGUF instead of the numbers they came from.
static bool read_divisors(struct rope *rope, const struct checkpoint *checkpoint, int rotated, struct error *err)
{
    const struct tensor *tensor = checkpoint_find(checkpoint, "rope_freqs.weight");
    if (!tensor)
        return true;
    if (tensor->dtype != DTYPE_F32 || tensor_values(tensor) != rotated / 2 || (uintptr_t)tensor->data % sizeof(float))
        return fail(err, "tensor rope_freqs.weight holds %lld values of %s; %d of float32 were expected",
                    (long long)tensor_values(tensor), dtype_word(tensor->dtype), rotated / 2);
    rope->divisors = (const float *)(const void *)tensor->data;
    for (int i = 0; i < rotated / 2; i++)
        if (!(rope->divisors[i] > 0))
            return fail(err, "tensor rope_freqs.weight has %g at %d; positive numbers were expected", rope->divisors[i],
                        i);
    return true;
}

bool rope_read(struct rope *rope, const struct source *source, const char *kind, int context, int rotated,
               struct error *err)
{
    double attention_factor = -1;
    *rope = (struct rope){ .theta = rope->theta ? rope->theta : 10000,
                           .original_context = context,
                           .low_frequency = 1,
                           .high_frequency = 4,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .truncate = true,
                           .magnitude = 1,
                           .attention = 1 };
    bool ok = source->json
        ? read_json(rope, source->json, kind, &attention_factor, err) || fail_within(err, "config.json")
        : read_gguf(rope, source, &attention_factor, err) && read_divisors(rope, source->checkpoint, rotated, err);
    if (!ok)
        return false;
    if (rope->scaling == ROPE_LONG && !rope->factor && rope->original_context > 0)
        rope->factor = context / rope->original_context;
    bool scaled = rope->scaling != ROPE_PLAIN;
    if (!(rope->theta > 0) || (scaled && !(rope->factor > 0)) || !(rope->original_context > 0) || !(rope->beta_fast > 0)
        || !(rope->beta_slow > 0) || (rope->scaling == ROPE_LLAMA3 && !(rope->high_frequency > rope->low_frequency)))
        return fail(err,
                    "the rope numbers make no sense (theta %g, factor %g, original context %g): they must be positive",
                    rope->theta, rope->factor, rope->original_context);
    if (rope->scaling == ROPE_YARN)
        rope->magnitude = attention_factor >= 0 ? attention_factor : rope->factor > 1 ? 0.1 * log(rope->factor) + 1 : 1;
    if (rope->scaling == ROPE_LONG && attention_factor >= 0)
        rope->magnitude = attention_factor;
    else if (rope->scaling == ROPE_LONG && rope->factor > 1 && rope->original_context > 1)
        rope->magnitude = sqrt(1 + log(rope->factor) / log(rope->original_context));
    return true;
}

// ---- longrope ----

// A list of config.json, or a tensor of a GGUF: a positive number for each pair.
static const float *read_list(const json_t *list, const struct tensor *tensor, const char *name, int pairs,
                              struct arena *arena, struct error *err)
{
    bool plain = tensor && tensor->dtype == DTYPE_F32 && tensor_values(tensor) == pairs;
    if (!plain && json_array_size(list) != (size_t)pairs)
        return fail(err, "the model's rope lacks %s as a list of %d numbers", name, pairs), NULL;
    float *out = ARENA_NEW(arena, float, pairs);
    if (plain)
        memcpy(out, tensor->data, (size_t)pairs * sizeof *out);
    for (int i = 0; i < pairs; i++) {
        out[i] = plain ? out[i] : (float)json_number_value(json_array_get(list, (size_t)i));
        if (!(out[i] > 0 && isfinite(out[i])))
            return fail(err, "the model's rope has %g at %d of %s; positive numbers were expected", out[i], i, name),
                   NULL;
    }
    return out;
}

bool rope_read_divisors(struct rope *rope, const struct source *source, const char *kind, int rotated,
                        struct arena *arena, struct error *err)
{
    const json_t *object = source->json ? scaling_object(source->json, kind) : NULL;
    const struct checkpoint *checkpoint = source->checkpoint;
    const struct tensor *tensor = checkpoint_find(checkpoint, "rope_factors_long.weight");
    const struct tensor *short_tensor = checkpoint_find(checkpoint, "rope_factors_short.weight");
    rope->divisors = read_list(json_object_get(object, "long_factor"), tensor, "long_factor", rotated / 2, arena, err);
    if (rope->divisors)
        rope->short_divisors = read_list(json_object_get(object, "short_factor"), short_tensor, "short_factor",
                                         rotated / 2, arena, err);
    return rope->divisors && rope->short_divisors;
}

// ---- frequencies ----

// Llama 3: slow pairs are slowed by the factor, fast ones left, those between blended.
static double scale_llama3(const struct rope *rope, double frequency)
{
    double turns = rope->original_context * frequency / (2 * M_PI);
    if (turns < rope->low_frequency)
        return frequency / rope->factor;
    if (turns > rope->high_frequency)
        return frequency;
    double blend = (turns - rope->low_frequency) / (rope->high_frequency - rope->low_frequency);
    return (1 - blend) * frequency / rope->factor + blend * frequency;
}

// YaRN: the pair that makes `turns` full rotations over the original context.
static double yarn_pair(const struct rope *rope, int rotated, double turns)
{
    return rotated * log(rope->original_context / (turns * 2 * M_PI)) / (2 * log(rope->theta));
}

static double scale_yarn(const struct rope *rope, int rotated, int pair, double frequency)
{
    double low = yarn_pair(rope, rotated, rope->beta_fast), high = yarn_pair(rope, rotated, rope->beta_slow);
    if (rope->truncate)
        low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, rotated - 1);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax((pair - low) / (high - low), 0), 1);
    return frequency / rope->factor * ramp + frequency * (1 - ramp);
}

const float *rope_frequencies(const struct rope *rope, int rotated, struct arena *arena)
{
    float *out = ARENA_NEW(arena, float, rotated / 2 + 1);
    for (int pair = 0; pair < rotated / 2; pair++) {
        double frequency = pow(rope->theta, -2.0 * pair / rotated);
        switch (rope->scaling) {
        case ROPE_PLAIN:
        case ROPE_LONG: // divided below
            break;
        case ROPE_LINEAR: frequency /= rope->factor; break;
        case ROPE_LLAMA3: frequency = scale_llama3(rope, frequency); break;
        case ROPE_YARN: frequency = scale_yarn(rope, rotated, pair, frequency); break;
        }
        out[pair] = (float)(rope->divisors ? frequency / rope->divisors[pair] : frequency);
    }
    return out;
}
