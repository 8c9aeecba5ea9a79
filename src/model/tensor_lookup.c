// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_lookup.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/architecture.h"
#include "model/tensor_lookup_internal.h"

enum { WORD_BYTES_MAX = 96, REASON_BYTES_MAX = 400, VOCABULARY_MAX = 1 << 23 };

static const struct {
    const char *json, *gguf;
} weight_names[W_COUNT] = {
#define X(id, json, gguf) { json, gguf },
    WEIGHTS(X)
#undef X
};

// ---- names ----

// Replaces '*' by the expert's number.
static void expand(const char *word, int expert, char out[WORD_BYTES_MAX])
{
    const char *star = strchr(word, '*');
    if (star && expert >= 0)
        snprintf(out, WORD_BYTES_MAX, "%.*s%d%s", (int)(star - word), word, expert, star + 1);
    else
        snprintf(out, WORD_BYTES_MAX, "%s", word);
}

// The safetensors name: the architecture's own, or the common one.
static const char *json_name(const struct graph *graph, enum weight_name name)
{
    for (const struct architecture_name *own = graph->architecture->names; own && own->json; own++)
        if (own->name == name)
            return own->json;
    return weight_names[name].json;
}

bool find_is_each(const struct graph *graph, enum weight_name name)
{
    return !graph->source.checkpoint->gguf && strchr(json_name(graph, name), '*');
}

// lm_head is outside "model", under the same parent.
static const char *head_prefix(const struct graph *graph)
{
    bool nested = !strcmp(graph->prefix, "language_model.model.") || !strcmp(graph->prefix, "language_model.backbone.");
    return nested ? "language_model." : "";
}

void find_module_of(const struct graph *graph, enum weight_name name, char out[FIND_MODULE_BYTES_MAX])
{
    bool gguf = graph->source.checkpoint->gguf;
    char word[WORD_BYTES_MAX];
    expand(gguf ? weight_names[name].gguf : json_name(graph, name), graph->find->expert, word);
    if (gguf && graph->layer >= 0)
        snprintf(out, FIND_MODULE_BYTES_MAX, "blk.%d.%s", graph->layer, word);
    else if (gguf)
        snprintf(out, FIND_MODULE_BYTES_MAX, "%s", word);
    else if (graph->layer >= 0)
        snprintf(out, FIND_MODULE_BYTES_MAX, "%slayers.%d.%s", graph->prefix, graph->layer, word);
    else
        snprintf(out, FIND_MODULE_BYTES_MAX, "%s%s", name == W_HEAD ? head_prefix(graph) : graph->prefix, word);
}

void find_name_of(const struct graph *graph, enum weight_name name, const char *suffix, char out[FIND_NAME_BYTES_MAX])
{
    char module[FIND_MODULE_BYTES_MAX];
    find_module_of(graph, name, module);
    snprintf(out, FIND_NAME_BYTES_MAX, "%s%s%s", module, *suffix && *suffix != '_' ? "." : "", suffix);
}

// The prefix of the model's names, which differs between published checkpoints.
static const char *prefix_of(const struct graph *graph)
{
    static const char *const prefixes[] = { "model.",    "language_model.model.",    "model.language_model.",
                                            "backbone.", "language_model.backbone.", "" };
    char name[FIND_NAME_BYTES_MAX];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(name, sizeof name, "%s%s.weight", prefixes[i], json_name(graph, W_EMBED));
        if (checkpoint_find(graph->source.checkpoint, name))
            return prefixes[i];
    }
    return prefixes[0];
}

// ---- opening and closing ----

void find_begin(struct graph *graph)
{
    const struct checkpoint *checkpoint = graph->source.checkpoint;
    struct arena *arena = &graph->model->arena;
    graph->prefix = prefix_of(graph);
    graph->model->imagined = !checkpoint->gguf && !checkpoint->tensor_count;
    graph->find = ARENA_NEW(arena, struct find, 1);
    graph->find->expert = -1;
    graph->find->used = ARENA_NEW(arena, bool, checkpoint->tensor_count);
    if (!quantised_read(&graph->find->quantised, checkpoint, arena, graph->err))
        graph->failed = true;
}

void find_end(struct graph *graph)
{
    if (!graph->find)
        return;
    if (!graph->failed)
        find_kv_scales(graph);
    if (!graph->failed)
        find_note_unused(graph);
    quantised_free(&graph->find->quantised);
}

// ---- one tensor ----

const struct tensor *find_tensor(const struct graph *graph, enum weight_name name, const char *suffix)
{
    char full[FIND_NAME_BYTES_MAX];
    find_name_of(graph, name, suffix, full);
    const struct checkpoint *checkpoint = graph->source.checkpoint;
    const struct tensor *tensor = checkpoint_find(checkpoint, full);
    if (tensor)
        graph->find->used[tensor - checkpoint->tensors] = true;
    return tensor;
}

bool find_has(struct graph *graph, enum weight_name name, const char *suffix)
{
    char full[FIND_NAME_BYTES_MAX];
    find_name_of(graph, name, suffix, full);
    return checkpoint_find(graph->source.checkpoint, full);
}

// Only the first error is kept.
const struct tensor *find_trouble(struct graph *graph, enum weight_name name, const char *suffix, const char *format,
                                  ...)
{
    char full[FIND_NAME_BYTES_MAX], reason[REASON_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    find_name_of(graph, name, suffix, full);
    if (!graph->failed)
        fail(graph->err, "tensor %s %s", full, reason);
    graph->failed = true;
    return NULL;
}

static const struct tensor *find_missing(struct graph *graph, enum weight_name name, const char *suffix)
{
    return find_trouble(graph, name, suffix, "is missing; the checkpoint is incomplete or not a %s model",
                        graph->model->config.architecture);
}

// "(2, 3)"
static const char *shape_text(const struct tensor *tensor, char out[REASON_BYTES_MAX])
{
    int len = snprintf(out, REASON_BYTES_MAX, "(");
    for (int i = 0; i < tensor->rank; i++)
        len += snprintf(out + len, (size_t)(REASON_BYTES_MAX - len), "%s%lld", i ? ", " : "",
                        (long long)tensor->shape[i]);
    snprintf(out + len, (size_t)(REASON_BYTES_MAX - len), ")");
    return out;
}

bool find_check_shape(struct graph *graph, enum weight_name name, const char *suffix, const struct tensor *tensor,
                      const struct tensor *wanted)
{
    char found_text[REASON_BYTES_MAX], wanted_text[REASON_BYTES_MAX];
    bool same = tensor->rank == wanted->rank;
    for (int i = 0; same && i < tensor->rank; i++)
        same = tensor->shape[i] == wanted->shape[i];
    return same
        || find_trouble(graph, name, suffix, "has shape %s; %s was expected from the model's config",
                        shape_text(tensor, found_text), shape_text(wanted, wanted_text));
}

const struct tensor *find_new(struct graph *graph, enum weight_name name, const char *suffix, struct tensor shape)
{
    struct arena *arena = &graph->model->arena;
    struct tensor *tensor = ARENA_NEW(arena, struct tensor, 1);
    char full[FIND_NAME_BYTES_MAX];
    find_name_of(graph, name, suffix, full);
    *tensor = shape;
    tensor->name = arena_text(arena, full, strlen(full));
    return tensor_measure(tensor, graph->err) ? tensor : find_trouble(graph, name, suffix, "is too large");
}

static int64_t imagined_vocabulary(struct graph *graph)
{
    int vocabulary = 0;
    if (!source_need_int(&graph->source, "vocab_size", NULL, 1, VOCABULARY_MAX, 0, &vocabulary, graph->err))
        graph->failed = true;
    return vocabulary;
}

// ---- matrices ----

const struct tensor *find_plain(struct graph *graph, enum weight_name name, struct tensor wanted)
{
    const struct tensor *tensor = find_tensor(graph, name, "weight");
    if (!tensor && graph->model->imagined)
        return find_new(graph, name, "weight", wanted);
    if (!graph->source.checkpoint->gguf && !find_check_plain(graph, name))
        return NULL;
    if (!tensor)
        return find_missing(graph, name, "weight");
    if (!(dtype_table[tensor->dtype].use & DTYPE_USE_W))
        return find_trouble(
            graph, name, "weight", "is stored as %s, which nibble does not read as a weight%s",
            dtype_word(tensor->dtype),
            graph->find->quantised.scheme_count ? "; the checkpoint's quantisation config leaves this module out" : "");
    return find_check_shape(graph, name, "weight", tensor, &wanted) ? tensor : NULL;
}

const struct tensor *find_floats(struct graph *graph, enum weight_name name, const char *suffix, struct tensor wanted)
{
    const uint64_t plain = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16);
    const struct tensor *tensor = find_tensor(graph, name, suffix);
    if (!tensor && graph->model->imagined)
        return find_new(graph, name, suffix, wanted);
    if (!tensor)
        return find_missing(graph, name, suffix);
    if (!(plain >> tensor->dtype & 1))
        return find_trouble(graph, name, suffix, "is stored as %s; plain 16- or 32-bit floats were expected",
                            dtype_word(tensor->dtype));
    return find_check_shape(graph, name, suffix, tensor, &wanted) ? tensor : NULL;
}

struct tensor find_shape(const struct graph *graph, int rank, int64_t first, int64_t second, int64_t third)
{
    return (struct tensor){ .dtype = graph->model->config.kv_dtype, .rank = rank, .shape = { first, second, third } };
}

const struct tensor *find_named_vector(struct graph *graph, enum weight_name name, const char *suffix, int64_t width)
{
    return find_floats(graph, name, suffix, find_shape(graph, 1, width, 0, 0));
}

const struct tensor *find_vector(struct graph *graph, enum weight_name name, int64_t width)
{
    return find_named_vector(graph, name, "weight", width);
}

const struct tensor *find_conv_kernel(struct graph *graph, enum weight_name name, int64_t channels, int64_t conv_width)
{
    struct tensor wanted = graph->source.json ? find_shape(graph, 3, channels, 1, conv_width)
                                              : find_shape(graph, 2, channels, conv_width, 0);
    return find_floats(graph, name, "weight", wanted);
}

// The vocabulary's size, from the file.
static int64_t find_vocabulary(struct graph *graph, enum weight_name name)
{
    const struct tensor *tensor = find_tensor(graph, name, "weight");
    if (graph->model->imagined || find_has(graph, name, "weight_packed"))
        return imagined_vocabulary(graph);
    if (!tensor)
        return find_missing(graph, name, "weight"), 0;
    if (tensor->rank != 2 || tensor->shape[0] < 1 || tensor->shape[0] > VOCABULARY_MAX)
        find_trouble(graph, name, "weight", "has %lld rows; a vocabulary of 1 to %d tokens was expected",
                     (long long)tensor->shape[0], VOCABULARY_MAX);
    return tensor->shape[0];
}

struct op_matrix find_matrix(struct graph *graph, enum weight_name name, int64_t rows, int64_t cols, enum buffer out)
{
    struct op_matrix matrix = { .out = out };
    const struct scheme *scheme;
    if (!rows)
        rows = find_vocabulary(graph, name);
    if (graph->failed || !find_scheme(graph, name, &scheme))
        return matrix;
    if (scheme)
        find_quantised(graph, name, scheme, find_shape(graph, 2, rows, cols, 0), &matrix);
    else
        matrix.tensor = find_plain(graph, name, find_shape(graph, 2, rows, cols, 0));
    bool needs_bias = graph->qkv_bias && (name == W_Q || name == W_K || name == W_V);
    if (needs_bias || find_has(graph, name, "bias"))
        matrix.bias = find_floats(graph, name, "bias", find_shape(graph, 1, rows, 0, 0));
    if (graph->source.checkpoint->gguf && find_has(graph, name, "scale")) // NVFP4's global scale
        matrix.scale = find_floats(graph, name, "scale", find_shape(graph, 1, 1, 0, 0));
    return matrix;
}

const struct tensor *find_groups(struct graph *graph, enum weight_name name, int64_t groups, int64_t width)
{
    struct tensor wanted = graph->source.json ? find_shape(graph, 1, groups * width, 0, 0)
                                              : find_shape(graph, 2, groups, width, 0);
    return find_floats(graph, name, "weight", wanted);
}

const struct tensor *find_column(struct graph *graph, enum weight_name name, const char *suffix, int64_t rows)
{
    const struct tensor *tensor = find_tensor(graph, name, suffix);
    int rank = tensor && tensor->rank == 2 ? 2 : 1;
    return find_floats(graph, name, suffix, find_shape(graph, rank, rows, 1, 0));
}

struct op_matrix find_row(struct graph *graph, enum weight_name name, int64_t cols, enum buffer out)
{
    const struct tensor *vector = find_tensor(graph, name, "weight");
    if (!vector || vector->rank != 1)
        return find_matrix(graph, name, 1, cols, out);
    struct tensor *row = ARENA_NEW(&graph->model->arena, struct tensor, 1);
    vector = find_vector(graph, name, cols);
    if (!vector)
        return (struct op_matrix){ .out = out };
    *row = *vector;
    row->rank = 2;
    row->shape[0] = 1;
    row->shape[1] = cols;
    return (struct op_matrix){ .tensor = row, .out = out };
}

bool find_tied_head(struct graph *graph)
{
    static const char *const suffixes[] = { "weight", "weight_packed", "qweight" };
    const json_t *said = graph->source.json ? json_object_get(graph->source.json, "tie_word_embeddings") : NULL;
    if (graph->model->imagined)
        return json_is_true(said) || (!json_is_false(said) && graph->architecture->ties_head);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (find_has(graph, W_HEAD, suffixes[i]))
            return false;
    return !json_is_false(said);
}
