// SPDX-License-Identifier: Apache-2.0
// tools/tune.c: `nibble tune`: mixed-precision search for the KV cache, a format for the keys and the values of each
// layer. The cost of one side is measured with it alone in the smallest format, against the same model with nothing
// quantised; the gain of larger formats follows from a cache that is all in them. The choice is then measured as a
// whole, on a held-out part of the text, and written to a file for --kv-plan.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "tools/output.h"
#include "cli/quality.h"
#include "tools/tune_solve.h"
#include "plan/kv_plan.h"

enum { SIDES = 2, ROUNDS_MAX = 5, CONTEXT = 1024 };

static const char unquantised[] = "float32";
static const char widest[] = "bfloat16"; // what a side that is not to be quantised has

// From the fewest bits on.
static const char *const formats[] = { "nvfp4", "fp8", widest };
enum { FORMATS = sizeof formats / sizeof *formats };

struct tune_command {
    const char *model, *text, *out;
    struct nibble_options engine;
    double kld_max, bits_max;
    int context, chunks;
    bool json;
};

struct tune {
    const struct tune_command *command;
    struct nibble_checkpoint *checkpoint;
    struct nibble_tokenizer *tokenizer;
    struct quality_text learnt, verified; // the first part of the text, and the rest
    struct quality_reference learnt_reference, verified_reference;
    const char *architecture;
    int layers;
    int *item_of;            // (layers): the layer's first item; -1: it has no keys and values
    int *layer_of;           // (items)
    struct tune_item *items; // keys and values of each layer that has them
    int item_count;
    double uniform[FORMATS]; // what a cache in one format costs
    double kld;              // of the choice
    struct arena arena;
};

// ---- formats as words ---------------------------------------------------------------------------------------------

static const char *chosen_word(const struct tune *tune, int layer, int side)
{
    return tune->item_of[layer] < 0 ? widest : formats[tune->items[tune->item_of[layer] + side].chosen];
}

// Formats the choice as a flag, such as "0-3:fp8/nvfp4,4-5:nvfp4".
static const char *dtype_flag(struct tune *tune)
{
    struct strbuf flag = { 0 };
    for (int first = 0, end; first < tune->layers; first = end) {
        const char *k = chosen_word(tune, first, 0), *v = chosen_word(tune, first, 1);
        for (end = first + 1; end < tune->layers && chosen_word(tune, end, 0) == k && chosen_word(tune, end, 1) == v;)
            end++;
        strbuf_add_format(&flag, first + 1 == end ? "%s%d:" : "%s%d-%d:", first ? "," : "", first, end - 1);
        strbuf_add_format(&flag, k == v ? "%s" : "%s/%s", k, v);
    }
    const char *text = arena_text(&tune->arena, flag.data, flag.len);
    strbuf_free(&flag);
    return text;
}

// ---- measuring ----------------------------------------------------------------------------------------------------

static bool measure(struct tune *tune, const char *dtype, const struct quality_text *text,
                    struct quality_reference *reference, double *kld, struct error *err)
{
    struct nibble_options options = tune->command->engine;
    struct quality_side side;
    struct quality_score score;
    options.kv_cache_dtype = dtype;
    bool ok = quality_side_open(&side, tune->checkpoint, &options, err)
        && quality_measure(&side, reference, text, NULL, NULL, &score, err);
    quality_side_close(&side);
    if (ok)
        *kld = score.mean;
    return ok;
}

// Measures one side of one layer alone in the smallest format.
static bool measure_item(struct tune *tune, int index, struct error *err)
{
    for (int i = 0; i < tune->item_count; i++)
        tune->items[i].chosen = i == index ? 0 : FORMATS - 1;
    double alone;
    if (!measure(tune, dtype_flag(tune), &tune->learnt, &tune->learnt_reference, &alone, err))
        return false;
    tune->items[index].kld[0] = fmax(alone - tune->uniform[FORMATS - 1], 0);
    return true;
}

// Measures one side of all layers in a format.
static bool measure_side(struct tune *tune, int side, int format, double *kld, struct error *err)
{
    for (int i = 0; i < tune->item_count; i++)
        tune->items[i].chosen = i % SIDES == side ? format : FORMATS - 1;
    if (!measure(tune, dtype_flag(tune), &tune->learnt, &tune->learnt_reference, kld, err))
        return false;
    *kld = fmax(*kld - tune->uniform[FORMATS - 1], 0);
    return true;
}

// Estimates the cost of each item in each format: the smallest was measured, others are as much less as they are for
// all layers together; the costs of a side are scaled to add up to its measured total.
static bool measure_items(struct tune *tune, struct error *err)
{
    struct cli_progress progress = { .label = "measuring layers", .shown = -1 };
    for (int i = 0; i < FORMATS; i++)
        if (!measure(tune, formats[i], &tune->learnt, &tune->learnt_reference, &tune->uniform[i], err))
            return false;
    for (int i = 0; i < tune->item_count; i++) {
        if (!measure_item(tune, i, err))
            return false;
        cli_progress_show(&progress, (i + 1.0) / tune->item_count);
    }
    for (int side = 0; side < SIDES; side++) {
        double together[FORMATS] = { 0 }, sum = 0;
        for (int format = 0; format < FORMATS - 1; format++)
            if (!measure_side(tune, side, format, &together[format], err))
                return false;
        for (int i = side; i < tune->item_count; i += SIDES)
            sum += tune->items[i].kld[0];
        for (int i = side; i < tune->item_count; i += SIDES) {
            double share = sum > 0 ? tune->items[i].kld[0] / sum : 0;
            for (int format = 0; format < FORMATS; format++)
                tune->items[i].kld[format] = share * together[format];
        }
    }
    return true;
}

// ---- choosing -----------------------------------------------------------------------------------------------------

static bool verify(struct tune *tune, struct error *err)
{
    return measure(tune, dtype_flag(tune), &tune->verified, &tune->verified_reference, &tune->kld, err);
}

// Checks before measuring that the bits can be reached at all.
static bool check_bits(struct tune *tune, struct error *err)
{
    double bits = tune->command->bits_max;
    return !bits || tune_solve(tune->items, tune->item_count, FORMATS, bits, 0)
        || fail(err, "%g bits cannot be had: %s, the smallest format, takes %.3f", bits, formats[0],
                tune_bits(tune->items, tune->item_count));
}

static bool choose_by_bits(struct tune *tune, struct error *err)
{
    tune_solve(tune->items, tune->item_count, FORMATS, tune->command->bits_max, 0);
    return verify(tune, err);
}

// Sums are estimates: where the measured figure is too high, the target of the sum is lowered by as much.
static bool choose_by_kld(struct tune *tune, struct error *err)
{
    double target = tune->command->kld_max;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        bool reached = tune_solve(tune->items, tune->item_count, FORMATS, 0, target);
        if (!verify(tune, err))
            return false;
        if (tune->kld <= tune->command->kld_max)
            return true;
        if (!reached)
            break;
        target *= 0.95 * tune->command->kld_max / tune->kld;
    }
    return fail(err, "a divergence of %g cannot be had: with %.3f bits it is %.6f; allow more with --kld-max",
                tune->command->kld_max, tune_bits(tune->items, tune->item_count), tune->kld);
}

// ---- what is known of the model beforehand --------------------------------------------------------------------------

// Lists the layers that have keys and values.
static bool list_items(struct tune *tune, const json_t *root, struct error *err)
{
    const json_t *layers = json_object_get(root, "layers"), *layer;
    const char *name = json_string_value(json_object_get(root, "architecture"));
    size_t index, count = json_array_size(layers);
    tune->architecture = arena_text(&tune->arena, name, strlen(name));
    tune->layers = (int)count;
    tune->item_of = ARENA_NEW(&tune->arena, int, count);
    tune->layer_of = ARENA_NEW(&tune->arena, int, count *SIDES);
    tune->items = ARENA_NEW(&tune->arena, struct tune_item, count * SIDES);
    json_array_foreach (layers, index, layer) {
        bool has_values = json_real_value(json_object_get(layer, "v_bits")) > 0;
        tune->item_of[index] = has_values ? tune->item_count : -1;
        for (int side = 0; side < SIDES && has_values; side++)
            tune->layer_of[tune->item_count++] = (int)index;
    }
    return tune->item_count
        || fail(err, "no layer of this model has keys and values apart; there is nothing to choose");
}

// Bits of each side in a format, from a plan; a format that cannot be had is a refusal.
static bool read_bits(struct tune *tune, int format, struct error *err)
{
    struct nibble_options options = tune->command->engine;
    struct nibble_text text = { 0 };
    options.kv_cache_dtype = formats[format];
    if (!nibble_engine_check(tune->checkpoint, &options, err))
        return false;
    struct nibble_plan *plan = nibble_plan_make(tune->checkpoint, &options, err);
    bool ok = plan && nibble_plan_accepted(plan);
    if (ok)
        nibble_plan_print(plan, NIBBLE_PLAN_JSON, 0, &text);
    nibble_plan_close(plan);
    json_t *root = ok ? json_loadb(text.data, text.len, 0, NULL) : NULL;
    ok = ok && (tune->items || list_items(tune, root, err));
    for (int i = 0; i < tune->item_count && ok; i++) {
        const json_t *layer = json_array_get(json_object_get(root, "layers"), (size_t)tune->layer_of[i]);
        const char *key = i == tune->item_of[tune->layer_of[i]] ? "k_bits" : "v_bits";
        tune->items[i].bits[format] = json_real_value(json_object_get(layer, key));
    }
    json_decref(root);
    free(text.data);
    return ok;
}

// Splits the text: half of the chunks to learn from, the others to verify with.
static bool read_text(struct tune *tune, struct error *err)
{
    const struct tune_command *command = tune->command;
    if (!quality_text_read(&tune->learnt, tune->tokenizer, command->text, command->context, command->chunks, err))
        return false;
    struct quality_text *learnt = &tune->learnt, *verified = &tune->verified;
    if (learnt->chunks < 2)
        return fail(err,
                    "%s has one chunk of %d tokens, and two are needed at least: one to learn from, one "
                    "to verify with; give a longer text or a smaller --context",
                    command->text, learnt->context);
    *verified = (struct quality_text){ .chunks = learnt->chunks / 2, .context = learnt->context };
    learnt->chunks -= verified->chunks;
    size_t ids = (size_t)verified->chunks * (size_t)verified->context;
    verified->ids = memory_new(ids, sizeof *verified->ids);
    memcpy(verified->ids, learnt->ids + (size_t)learnt->chunks * (size_t)learnt->context, ids * sizeof *verified->ids);
    return true;
}

// ---- the result ---------------------------------------------------------------------------------------------------

static int compare_cost(const void *a, const void *b)
{
    const struct tune_item *x = *(const struct tune_item *const *)a, *y = *(const struct tune_item *const *)b;
    if (x->kld[0] != y->kld[0])
        return x->kld[0] > y->kld[0] ? -1 : 1;
    return (x > y) - (x < y); // qsort itself keeps equal ones in order only while it gets memory
}

// Prints the sides that cost most, and their formats.
static void explain(const struct tune *tune, struct strbuf *out)
{
    enum { SHOWN = 8 };
    const struct tune_item **order = memory_new((size_t)tune->item_count, sizeof *order);
    for (int i = 0; i < tune->item_count; i++)
        order[i] = &tune->items[i];
    qsort(order, (size_t)tune->item_count, sizeof *order, compare_cost);
    strbuf_add_format(out, "what %s costs most:", formats[0]);
    for (int i = 0; i < tune->item_count && i < SHOWN; i++) {
        int index = (int)(order[i] - tune->items);
        strbuf_add_format(out, "%s %s of layer %d (%.6f, now %s)", i ? "," : "", index % SIDES ? "values" : "keys",
                          tune->layer_of[index], order[i]->kld[0], formats[order[i]->chosen]);
    }
    strbuf_add_byte(out, '\n');
    free(order);
}

static json_t *json_of_result(struct tune *tune)
{
    json_t *uniform = json_object();
    for (int i = 0; i < FORMATS; i++)
        json_object_set_new(uniform, formats[i], json_real(tune->uniform[i]));
    return json_pack("{s:i, s:s, s:i, s:s, s:s?, s:s?, s:s?, s:f, s:f, s:{s:i, s:i, s:i}, s:o}", "kv_plan",
                     KV_PLAN_VERSION, "architecture", tune->architecture, "layers", tune->layers, "kv_cache_dtype",
                     dtype_flag(tune), "kv_transform", tune->command->engine.kv_transform, "kv_scale",
                     tune->command->engine.kv_scale, "kv_sink_pages", tune->command->engine.kv_sink_pages, "bits",
                     tune_bits(tune->items, tune->item_count), "kld", tune->kld, "measured", "context",
                     tune->learnt.context, "learnt", tune->learnt.chunks, "verified", tune->verified.chunks, "uniform",
                     uniform);
}

static bool report(struct tune *tune, struct output_file *file, struct error *err)
{
    struct strbuf out = { 0 }, plan = { 0 };
    cli_add_json(&plan, json_of_result(tune), JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    if (tune->command->json) {
        strbuf_add(&out, plan.data, plan.len);
    } else {
        strbuf_add_format(&out, "%.3f bits, KL divergence %.6f (on text that nothing was learnt from)\n",
                          tune_bits(tune->items, tune->item_count), tune->kld);
        for (int i = 0; i < FORMATS; i++)
            strbuf_add_format(&out, "%s %s %.6f", i ? "," : "all layers in", formats[i], tune->uniform[i]);
        strbuf_add_byte(&out, '\n');
        explain(tune, &out);
        strbuf_add_format(&out, "--kv-cache-dtype %s\n", dtype_flag(tune));
    }
    bool ok = output_file_finish(file, plan.data, plan.len, err) && cli_write(out.data, out.len, err);
    strbuf_free(&out);
    strbuf_free(&plan);
    return ok;
}

static bool tune_text(struct tune *tune, struct error *err)
{
    struct nibble_options plain = quality_plain(&tune->command->engine, unquantised);
    return quality_reference_open(&tune->learnt_reference, tune->checkpoint, &plain, &tune->learnt, true, err)
        && quality_reference_open(&tune->verified_reference, tune->checkpoint, &plain, &tune->verified, true, err)
        && measure_items(tune, err) && (tune->command->bits_max ? choose_by_bits : choose_by_kld)(tune, err);
}

static bool tune_model(struct tune *tune, struct error *err)
{
    const struct tune_command *command = tune->command;
    struct nibble_options plain = quality_plain(&tune->command->engine, unquantised);
    struct output_file file = { 0 };
    bool ok = output_file_open(&file, command->out, "-o", err)
        && (tune->checkpoint = nibble_checkpoint_open(command->model, NIBBLE_NEED_ALL, err))
        && nibble_engine_check(tune->checkpoint, &plain, err);
    for (int i = 0; i < FORMATS && ok; i++)
        ok = read_bits(tune, i, err);
    ok = ok && check_bits(tune, err) && (tune->tokenizer = nibble_tokenizer_open(tune->checkpoint, err))
        && read_text(tune, err) && tune_text(tune, err) && report(tune, &file, err);
    output_file_close(&file);
    quality_reference_close(&tune->learnt_reference);
    quality_reference_close(&tune->verified_reference);
    free(tune->learnt.ids);
    free(tune->verified.ids);
    nibble_tokenizer_close(tune->tokenizer);
    nibble_checkpoint_close(tune->checkpoint);
    arena_free(&tune->arena);
    return ok;
}

static bool check(const struct tune_command *command, struct error *err)
{
    if (!command->text)
        return fail_usage(err, "tune needs a text to measure on: --text FILE");
    if (!command->bits_max == !command->kld_max)
        return fail_usage(err, "tune needs one aim: --bits B, at most so many, or --kld-max X, at most so far off");
    if (command->engine.kv_plan)
        return fail_usage(err, "tune writes a plan and cannot start from one; leave --kv-plan out");
    return true;
}

int command_tune(int argc, char **argv)
{
    struct tune_command command = { .context = CONTEXT };
    const struct option_row options[] = {
        { "--text", OPTION_TEXT, &command.text, "FILE", "the text to measure on (- for standard input)" },
        { "--bits", OPTION_REAL, &command.bits_max, "B", "the best with at most so many bits per value", 1, 32 },
        { "--kld-max", OPTION_REAL, &command.kld_max, "X", "the fewest bits with at most this divergence", 1e-6, 100 },
        { "-o", OPTION_TEXT, &command.out, "PLAN", "write the choice to this file, for --kv-plan" },
        { "--context", OPTION_INT, &command.context, "N", "tokens per chunk (1024)", 4, 1 << 24 },
        { "--chunks", OPTION_INT, &command.chunks, "N", "only the first N chunks", 2, 1 << 24 },
        ENGINE_FURTHER_ROWS(command.engine),
        { "--threads", OPTION_INT, &command.engine.threads, "N", "threads (all cores)", 1, 256 },
        { "--json", OPTION_FLAG, &command.json, NULL, "as JSON" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble tune MODEL --text FILE (--bits B | --kld-max X) [-o PLAN] [options]",
        .about = "Measures what each layer's keys and values cost in 4 and 8 bits, chooses formats for all of them,\n"
                 "and verifies the choice on a part of the text that nothing was learnt from.",
        .example = "nibble tune model.gguf --text prose.txt --bits 5 -o model.kvplan",
        .options = options,
        .required = { "MODEL" },
        .positional_max = 1,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (parsed >= 0)
        return parsed;
    struct error err;
    struct tune tune = { .command = &command };
    command.model = argv[0];
    command.engine.max_model_len = command.engine.max_model_len ? command.engine.max_model_len : command.context;
    command.engine.activations = "exact"; // what rounding does to a token hides what one layer's cache does
    return check(&command, &err) && tune_model(&tune, &err) ? EXIT_DONE : cli_fail(&err, command.json);
}
