// SPDX-License-Identifier: Apache-2.0
// model/quantised_others.c: quantisation configs with one scheme for all modules, which may leave out modules without
// saying so: fp8, fbgemm_fp8, gpt-oss's mxfp4, GPTQ and AWQ.
#include <string.h>
#include <strings.h>

#include "format/json.h"
#include "model/quantised.h"

// Checks a key for supported values: others mean another layout.
static bool check_word(const json_t *declaration, const char *key, const char *first, const char *second,
                       struct error *err)
{
    const char *word = first;
    return json_get_text(declaration, key, &word, err)
        && (!strcasecmp(word, first) || !strcasecmp(word, second)
            || fail(err, "%s is \"%.60s\", which nibble does not read; it reads \"%s\"", key, word, first));
}

static bool read_excluded(struct quantised *quantised, const json_t *declaration, struct error *err)
{
    quantised->excluded.way = MODULES_PARTS;
    return quantised_add_modules(&quantised->excluded, declaration, "modules_to_not_convert", 0, err)
        && quantised_add_modules(&quantised->excluded, declaration, "ignored_layers", 0, err);
}

bool quantised_read_fp8(struct quantised *quantised, const json_t *declaration, struct error *err)
{
    const json_t *block = json_object_get(declaration, "weight_block_size");
    const json_t *store = json_object_get(declaration, "store_dtype");
    json_int_t rows = json_integer_value(json_array_get(block, 0)), cols = json_integer_value(json_array_get(block, 1));
    struct scheme scheme = { &weight_layout_fp8, "FP8 by tensor" };
    int number;
    if (store && !json_is_null(store))
        return fail(err, "store_dtype is declared, which nibble does not read");
    if (block && !json_is_null(block)) {
        if (rows < 1 || cols < 1 || rows > INT32_MAX || cols > INT32_MAX)
            return fail(err, "weight_block_size is no pair of positive numbers");
        scheme = (struct scheme){ &weight_layout_fp8_inverse, "FP8 by block", .group = (int)cols,
                                  .rows_each = (int)rows };
    }
    return check_word(declaration, "fmt", "e4m3", "float8_e4m3fn", err) && read_excluded(quantised, declaration, err)
        && quantised_add_scheme(quantised, scheme, &number, err);
}

bool quantised_read_fbgemm(struct quantised *quantised, const json_t *declaration, struct error *err)
{
    const struct scheme scheme = { &weight_layout_fp8, "FP8 by channel", .rows_each = 1 };
    int number;
    return read_excluded(quantised, declaration, err) && quantised_add_scheme(quantised, scheme, &number, err);
}

bool quantised_read_mxfp4(struct quantised *quantised, const json_t *declaration, struct error *err)
{
    const struct scheme scheme = { &weight_layout_mxfp4, "MXFP4", .bits = 4, .group = 32, .rows_each = 1 };
    int number;
    quantised->chosen_only = true;
    quantised->chosen.way = MODULES_PARTS;
    return read_excluded(quantised, declaration, err) && quantised_add_scheme(quantised, scheme, &number, err)
        && modules_add(&quantised->chosen, "experts", number, err);
}

// ---- GPTQ and AWQ ----

struct integers {
    int64_t bits, group;
    bool symmetric, ordered;
};

static struct scheme scheme_of(const struct weight_layout *layout, const struct integers *integers, int zero_bias,
                               struct arena *arena)
{
    const char *zeros = integers->symmetric ? "" : " with zero points", *order = integers->ordered ? ", reordered" : "";
    struct scheme scheme = {
        layout,         .bits = (int)integers->bits,   .group = integers->group > 0 ? (int)integers->group : 0,
        .rows_each = 1, .zeros = !integers->symmetric, .zero_bias = zero_bias
    };
    scheme.ordered = integers->ordered && scheme.group; // with one group the order does not matter
    scheme.word = scheme.group
        ? arena_format(arena, "int%d in groups of %d%s%s", scheme.bits, scheme.group, zeros, order)
        : arena_format(arena, "int%d by channel%s", scheme.bits, zeros);
    return scheme;
}

static bool read_integers(const json_t *object, struct integers *integers, struct error *err)
{
    return json_get_int(object, "bits", 1, 64, &integers->bits, err)
        && json_get_int(object, "group_size", -1, INT32_MAX, &integers->group, err)
        && json_get_bool(object, "sym", &integers->symmetric, err)
        && json_get_bool(object, "desc_act", &integers->ordered, err)
        && (integers->bits == 4 || integers->bits == 8
            || fail(err, "codes of %lld bits, which nibble does not read; it reads 4 and 8",
                    (long long)integers->bits));
}

// GPTQModel's `dynamic` patterns: "-:" excludes modules, "+:" or no prefix overrides their parameters.
static bool read_dynamic(struct quantised *quantised, const json_t *dynamic, const struct integers *all, int zero_bias,
                         struct error *err)
{
    const char *pattern;
    json_t *own;
    json_object_foreach ((json_t *)dynamic, pattern, own) {
        struct integers integers = *all;
        bool leaves_out = !strncmp(pattern, "-:", 2);
        const char *regex = leaves_out || !strncmp(pattern, "+:", 2) ? pattern + 2 : pattern;
        int number;
        if (leaves_out ? !modules_add_regex(&quantised->excluded, regex, 0, err)
                       : !read_integers(own, &integers, err)
                    || !quantised_add_scheme(
                        quantised, scheme_of(&weight_layout_gptq, &integers, zero_bias, quantised->arena), &number, err)
                    || !modules_add_regex(&quantised->chosen, regex, number, err))
            return fail_within(err, "dynamic");
    }
    return true;
}

bool quantised_read_gptq(struct quantised *quantised, const json_t *declaration, struct error *err)
{
    struct integers integers = { .bits = 4, .group = 128, .symmetric = true };
    const char *format = "gptq";
    int number;
    if (json_is_true(json_object_get(declaration, "is_marlin_format")))
        return fail(err, "the weights are in the order of the Marlin kernel, which nibble does not read");
    if (!check_word(declaration, "checkpoint_format", "gptq", "gptq_v2", err)
        || !json_get_text(declaration, "checkpoint_format", &format, err) || !read_integers(declaration, &integers, err)
        || !read_excluded(quantised, declaration, err))
        return false;
    int zero_bias = strcasecmp(format, "gptq_v2") != 0; // version 1 stores zero points minus one
    return quantised_add_scheme(quantised, scheme_of(&weight_layout_gptq, &integers, zero_bias, quantised->arena),
                                &number, err)
        && read_dynamic(quantised, json_object_get(declaration, "dynamic"), &integers, zero_bias, err);
}

bool quantised_read_awq(struct quantised *quantised, const json_t *declaration, struct error *err)
{
    struct integers integers = { .bits = 4, .group = 128 };
    bool zeros = true;
    int number;
    if (!check_word(declaration, "version", "gemm", "gemm", err)
        || !json_get_int(declaration, "w_bit", 1, 64, &integers.bits, err)
        || !json_get_int(declaration, "q_group_size", -1, INT32_MAX, &integers.group, err)
        || !json_get_int(declaration, "bits", 1, 64, &integers.bits, err)
        || !json_get_int(declaration, "group_size", -1, INT32_MAX, &integers.group, err)
        || !json_get_bool(declaration, "zero_point", &zeros, err))
        return false;
    if (integers.bits != 4 || !zeros)
        return fail(err, "AWQ with %lld bits%s, which nibble does not read; it reads 4 bits with zero points",
                    (long long)integers.bits, zeros ? "" : " and without zero points");
    return read_excluded(quantised, declaration, err)
        && quantised_add_scheme(quantised, scheme_of(&weight_layout_awq, &integers, 0, quantised->arena), &number, err);
}
