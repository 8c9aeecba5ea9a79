// SPDX-License-Identifier: Apache-2.0
#include "model/find.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/architecture.h"

enum { NAME_BYTES_MAX = 160, REASON_BYTES_MAX = 256, VOCABULARY_MAX = 1 << 23 };

static const struct {
    const char *json, *gguf;
} weight_names[W_COUNT] = {
#define X(id, json, gguf) { json, gguf },
    WEIGHTS(X)
#undef X
};

static void name_of(const struct graph *graph, enum weight_name name, const char *suffix, char out[NAME_BYTES_MAX])
{
    bool gguf = graph->source.checkpoint->gguf;
    const char *word = gguf ? weight_names[name].gguf : weight_names[name].json;
    if (gguf && graph->layer >= 0)
        snprintf(out, NAME_BYTES_MAX, "blk.%d.%s.%s", graph->layer, word, suffix);
    else if (gguf)
        snprintf(out, NAME_BYTES_MAX, "%s.%s", word, suffix);
    else if (graph->layer >= 0)
        snprintf(out, NAME_BYTES_MAX, "%slayers.%d.%s.%s", graph->prefix, graph->layer, word, suffix);
    else
        snprintf(out, NAME_BYTES_MAX, "%s%s.%s", name == W_HEAD ? "" : graph->prefix, word, suffix);
}

// Published safetensors put different things in front of the same names.
static const char *prefix_of(const struct checkpoint *checkpoint)
{
    static const char *const prefixes[] = { "model.", "language_model.model.", "model.language_model.", "" };
    char name[NAME_BYTES_MAX];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (checkpoint_find(checkpoint, name))
            return prefixes[i];
    }
    return prefixes[0];
}

void find_begin(struct graph *graph)
{
    const struct checkpoint *checkpoint = graph->source.checkpoint;
    graph->prefix = prefix_of(checkpoint);
    graph->model->imagined = !checkpoint->gguf && !checkpoint->tensor_count;
}

static const struct tensor *look_up(const struct graph *graph, enum weight_name name, const char *suffix)
{
    char full[NAME_BYTES_MAX];
    name_of(graph, name, suffix, full);
    return checkpoint_find(graph->source.checkpoint, full);
}

// The first trouble stays.
static const struct tensor *trouble(struct graph *graph, enum weight_name name, const char *suffix, const char *format,
                                    ...) __attribute__((format(printf, 4, 5)));

static const struct tensor *trouble(struct graph *graph, enum weight_name name, const char *suffix, const char *format,
                                    ...)
{
    char full[NAME_BYTES_MAX], reason[REASON_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    name_of(graph, name, suffix, full);
    if (!graph->failed)
        fail(graph->err, "tensor %s %s", full, reason);
    graph->failed = true;
    return NULL;
}

static const struct tensor *imagine(struct graph *graph, enum weight_name name, const char *suffix, int rank,
                                    int64_t rows, int64_t cols)
{
    struct arena *arena = &graph->model->arena;
    struct tensor *tensor = ARENA_NEW(arena, struct tensor, 1);
    char full[NAME_BYTES_MAX];
    name_of(graph, name, suffix, full);
    *tensor = (struct tensor){ .name = arena_text(arena, full, strlen(full)), .dtype = graph->model->config.kv_dtype,
                               .rank = rank, .shape = { rows, cols } };
    return tensor_measure(tensor, graph->err) ? tensor : trouble(graph, name, suffix, "is too large to imagine");
}

static int64_t imagined_vocabulary(struct graph *graph)
{
    int vocabulary = 0;
    if (!source_need_int(&graph->source, "vocab_size", NULL, 1, VOCABULARY_MAX, 0, &vocabulary, graph->err))
        graph->failed = true;
    return vocabulary;
}

static const struct tensor *find_weight(struct graph *graph, enum weight_name name, int64_t rows, int64_t cols)
{
    const struct tensor *tensor = look_up(graph, name, "weight");
    if (!tensor && graph->model->imagined)
        return imagine(graph, name, "weight", 2, rows ? rows : imagined_vocabulary(graph), cols);
    if (!tensor)
        return trouble(graph, name, "weight", "is missing; the checkpoint is incomplete or not a %s model",
                       graph->model->config.architecture);
    if (!(dtype_table[tensor->dtype].use & DTYPE_USE_W))
        return trouble(graph, name, "weight", "is stored as %s, which nibble does not read as a weight",
                       dtype_word(tensor->dtype));
    if (tensor->rank != 2 || (rows && tensor->shape[0] != rows) || tensor->shape[1] != cols)
        return trouble(graph, name, "weight",
                       "has shape (%lld, %lld) in %d dimensions; (%lld, %lld) was expected from the model's config",
                       (long long)tensor->shape[0], (long long)tensor->shape[1], tensor->rank,
                       (long long)(rows ? rows : tensor->shape[0]), (long long)cols);
    if (!rows && (tensor->shape[0] < 1 || tensor->shape[0] > VOCABULARY_MAX))
        return trouble(graph, name, "weight", "has %lld rows; a vocabulary of 1 to %d tokens was expected",
                       (long long)tensor->shape[0], VOCABULARY_MAX);
    return tensor;
}

static const struct tensor *find_floats(struct graph *graph, enum weight_name name, const char *suffix, int64_t width)
{
    const uint64_t plain = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16);
    const struct tensor *tensor = look_up(graph, name, suffix);
    if (!tensor && graph->model->imagined)
        return imagine(graph, name, suffix, 1, width, 1);
    if (!tensor)
        return trouble(graph, name, suffix, "is missing; the checkpoint is incomplete or not a %s model",
                       graph->model->config.architecture);
    if (!(plain >> tensor->dtype & 1) || tensor->rank != 1 || tensor->shape[0] != width)
        return trouble(graph, name, suffix,
                       "is %s of %lld values in %d dimensions; %lld plain 16- or 32-bit floats in one were expected",
                       dtype_word(tensor->dtype), (long long)tensor_values(tensor), tensor->rank, (long long)width);
    return tensor;
}

const struct tensor *find_vector(struct graph *graph, enum weight_name name, int64_t width)
{
    return find_floats(graph, name, "weight", width);
}

struct op_matrix find_matrix(struct graph *graph, enum weight_name name, int64_t rows, int64_t cols, enum buffer out)
{
    struct op_matrix matrix = { .out = out, .tensor = find_weight(graph, name, rows, cols) };
    bool required = graph->qkv_bias && (name == W_Q || name == W_K || name == W_V);
    if (required || look_up(graph, name, "bias"))
        matrix.bias = find_floats(graph, name, "bias", rows);
    if (graph->source.checkpoint->gguf && look_up(graph, name, "scale")) // NVFP4's overall scale travels beside it
        matrix.scale = find_floats(graph, name, "scale", 1);
    return matrix;
}

bool find_tied_head(struct graph *graph)
{
    const json_t *said = graph->source.json ? json_object_get(graph->source.json, "tie_word_embeddings") : NULL;
    if (graph->model->imagined)
        return json_is_true(said) || (!json_is_false(said) && graph->architecture->ties_head);
    return !look_up(graph, W_HEAD, "weight") && !json_is_false(said);
}
