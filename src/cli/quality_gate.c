// SPDX-License-Identifier: Apache-2.0
#include "cli/quality_gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/quality.h"

enum { CONTEXT = 512, CHUNKS = 4, NAMED = 4 };

struct gate {
    struct nibble_checkpoint *checkpoint;
    struct nibble_tokenizer *tokenizer;
    struct nibble_options options; // of one sequence that is as long as a chunk
    struct quality_text text;
    struct quality_reference reference;
    int layers;
};

static bool gate_open(struct gate *gate, const char *model, const struct nibble_options *options, struct error *err)
{
    size_t len;
    const char *text = nibble_calibration_text(&len);
    *gate = (struct gate){ .options = *options };
    gate->options.max_model_len = CONTEXT;
    gate->options.max_num_seqs = 1;
    gate->options.kv_cache_bytes = 0;
    struct nibble_options plain = quality_plain(&gate->options, "float32");
    return (gate->checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_ALL, err))
        && nibble_engine_check(gate->checkpoint, options, err)
        && nibble_engine_check(gate->checkpoint, &gate->options, err)
        && (gate->tokenizer = nibble_tokenizer_open(gate->checkpoint, err))
        && quality_text_cut(&gate->text, gate->tokenizer, "the built-in text", text, len, CONTEXT, CHUNKS, err)
        && quality_reference_open(&gate->reference, gate->checkpoint, &plain, &gate->text, true, err);
}

static void gate_close(struct gate *gate)
{
    quality_reference_close(&gate->reference);
    free(gate->text.ids);
    nibble_tokenizer_close(gate->tokenizer);
    nibble_checkpoint_close(gate->checkpoint);
}

static bool gate_measure(struct gate *gate, const struct nibble_options *options, double *kld, struct error *err)
{
    struct cli_progress progress = { .label = "measuring the cache", .shown = -1 };
    struct quality_side side;
    struct quality_score score;
    bool ok = quality_side_open(&side, gate->checkpoint, options, err)
        && quality_measure(&side, &gate->reference, &gate->text, cli_progress_show, &progress, &score, err);
    gate->layers = ok ? nibble_engine_layers(side.engine) : 0;
    quality_side_close(&side);
    if (ok)
        *kld = score.mean;
    return ok;
}

// ---- what a refusal says ------------------------------------------------------------------------------------------

// Names the layers with the largest attention error.
static void name_layers(struct gate *gate, struct strbuf *out)
{
    struct error ignored;
    int layers = gate->layers;
    struct nibble_layer_error *errors = memory_new((size_t)layers, sizeof *errors);
    if (nibble_layer_errors(gate->checkpoint, &gate->options, gate->text.ids, (size_t)gate->text.context, errors,
                            &ignored)) {
        strbuf_add_text(out, "; layers whose attention is furthest off:");
        for (int named = 0; named < NAMED && named < layers; named++) {
            int worst = 0;
            for (int i = 1; i < layers; i++)
                worst = errors[i].out > errors[worst].out ? i : worst;
            strbuf_add_format(out, "%s %d (%.1f %%)", named ? "," : "", worst, 100 * errors[worst].out);
            errors[worst].out = -1;
        }
    }
    free(errors);
}

// Alternatives from the smallest change on: the same format with default transforms, then formats of more bits.
static const struct {
    const char *dtype; // NULL: as it was asked for
    const char *words;
} helps[] = {
    { NULL, "leave out --kv-transform, --kv-scale and --kv-sink-pages" },
    { "fp8/nvfp4", "--kv-cache-dtype fp8/nvfp4" },
    { "fp8", "--kv-cache-dtype fp8" },
    { "int8_per_token_head", "--kv-cache-dtype int8_per_token_head" },
    { "bfloat16", "--kv-cache-dtype bfloat16" },
    { "float32", "--kv-cache-dtype float32" },
};

static void name_help(struct gate *gate, double limit, struct strbuf *out)
{
    bool touched = gate->options.kv_transform || gate->options.kv_scale || gate->options.kv_sink_pages;
    for (size_t i = !touched || gate->options.kv_plan; i < sizeof helps / sizeof *helps; i++) {
        struct nibble_options options = quality_plain(&gate->options, helps[i].dtype);
        struct error ignored;
        double kld;
        options.kv_transform = options.kv_scale = options.kv_sink_pages = NULL;
        if (!helps[i].dtype) {
            options.kv_cache_dtype = gate->options.kv_cache_dtype;
            options.kv_cache_dtype_skip_layers = gate->options.kv_cache_dtype_skip_layers;
        }
        if (gate_measure(gate, &options, &kld, &ignored) && kld <= limit) {
            strbuf_add_format(out, "; what would pass: %s (%.6f)", helps[i].words, kld);
            return;
        }
    }
    strbuf_add_text(out, "; nothing that was tried would pass: allow more");
}

bool quality_gate(const char *model, const struct nibble_options *options, double limit, double *kld, struct error *err)
{
    struct gate gate;
    bool ok = gate_open(&gate, model, options, err) && gate_measure(&gate, &gate.options, kld, err);
    if (ok && *kld > limit) {
        struct strbuf more = { 0 };
        name_layers(&gate, &more);
        name_help(&gate, limit, &more);
        ok = fail(err, "--quality-gate %g: the KL divergence of the planned cache is %.6f%s", limit, *kld, more.data);
        strbuf_free(&more);
    }
    gate_close(&gate);
    return ok;
}
