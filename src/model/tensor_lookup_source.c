// SPDX-License-Identifier: Apache-2.0
// model/tensor_lookup_source.c: assembles a quantised matrix from its scheme's tensors. All must be present with the
// right dtype and shape, and tensors of other schemes must not be.
#include <stdio.h>
#include <string.h>

#include "model/tensor_lookup_internal.h"

// ---- the scheme ----

static bool is_plain_float(const struct tensor *tensor) { return tensor && LAYOUT_FLOATS >> tensor->dtype & 1; }

// For incomplete quantisation configs: a plain weight without codes counts as excluded.
static bool is_left_out(const struct graph *graph, enum weight_name name, const struct scheme *scheme)
{
    if (graph->find->quantised.complete)
        return false;
    if (graph->model->imagined)
        return name == W_HEAD;
    char full[FIND_NAME_BYTES_MAX];
    const struct checkpoint *checkpoint = graph->source.checkpoint;
    find_name_of(graph, name, scheme->layout->part[LAYOUT_CODES].suffix, full);
    const struct tensor *codes = checkpoint_find(checkpoint, full);
    find_name_of(graph, name, "weight", full);
    return is_plain_float(checkpoint_find(checkpoint, full)) && (!codes || is_plain_float(codes));
}

bool find_scheme(struct graph *graph, enum weight_name name, const struct scheme **scheme)
{
    struct find *find = graph->find;
    char module[FIND_MODULE_BYTES_MAX];
    *scheme = NULL;
    if (graph->source.checkpoint->gguf)
        return true;
    find_module_of(graph, name, module);
    if (find->expert > 0)
        *scheme = find->expert_scheme;
    else if (!quantised_find(&find->quantised, module, name == W_EMBED ? "Embedding" : "Linear", scheme, graph->err))
        return graph->failed = true, false;
    find->expert_scheme = *scheme;
    if (*scheme && is_left_out(graph, name, *scheme))
        *scheme = NULL;
    return true;
}

// ---- its tensors ----

static int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

static int64_t extent_of(enum layout_extent extent, const struct scheme *scheme, enum dtype word,
                         const struct tensor *wanted)
{
    int64_t rows = tensor_rows(wanted), cols = tensor_cols(wanted), bits = dtype_table[word].bits;
    switch (extent) {
    case LAYOUT_N: return rows;
    case LAYOUT_K: return cols;
    case LAYOUT_N_WORDS: return divide_up(rows * scheme->bits, bits);
    case LAYOUT_K_WORDS: return divide_up(cols * scheme->bits, bits);
    case LAYOUT_N_SCALES: return scheme->rows_each ? divide_up(rows, scheme->rows_each) : 1;
    case LAYOUT_K_SCALES: return scheme->group ? divide_up(cols, scheme->group) : 1;
    case LAYOUT_TWO: return 2;
    default: return 1;
    }
}

// torch.squeeze: drops dimensions of 1.
static struct tensor squeezed(const struct tensor *tensor)
{
    struct tensor out = *tensor;
    out.rank = 0;
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] != 1)
            out.shape[out.rank++] = tensor->shape[i];
    return out;
}

// "float32 or bfloat16"
static const char *dtype_words(struct arena *arena, uint64_t dtypes)
{
    const char *words = "";
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (dtypes >> i & 1)
            words = arena_format(arena, "%s%s%s", words, *words ? " or " : "", dtype_word((enum dtype)i));
    return words;
}

static const struct tensor *find_part(struct graph *graph, enum weight_name name, const struct scheme *scheme,
                                      enum layout_part_name which, const struct tensor *wanted)
{
    const struct layout_part *part = &scheme->layout->part[which];
    bool needed[LAYOUT_PARTS] = { [LAYOUT_CODES] = true,
                                  [LAYOUT_SCALES] = true,
                                  [LAYOUT_OVERALL] = true,
                                  [LAYOUT_ZEROS] = scheme->zeros,
                                  [LAYOUT_ORDER] = scheme->ordered };
    const struct tensor *tensor = part->suffix ? find_tensor(graph, name, part->suffix) : NULL;
    if (!tensor && part->suffix && needed[which])
        return find_trouble(graph, name, part->suffix, "is missing; the checkpoint declares %s for this module",
                            scheme->word);
    if (!tensor)
        return NULL;
    if (!(part->dtypes >> tensor->dtype & 1))
        return find_trouble(graph, name, part->suffix, "is stored as %s; %s, declared for this module, has it as %s",
                            dtype_word(tensor->dtype), scheme->word, dtype_words(&graph->model->arena, part->dtypes));
    enum dtype word = which == LAYOUT_CODES || which == LAYOUT_ZEROS ? tensor->dtype : DTYPE_U8;
    struct tensor expected = { .rank = 2,
                               .shape = { extent_of(part->shape[0], scheme, word, wanted),
                                          extent_of(part->shape[1], scheme, word, wanted) } };
    struct tensor found = squeezed(tensor), bare = squeezed(&expected);
    return find_check_shape(graph, name, part->suffix, &found, &bare) ? tensor : NULL;
}

// Tensor names that identify schemes. A module may have only those of its own scheme.
static const char *const known_names[] = { "weight",           "weight_packed", "weight_scale_2", "weight_global_scale",
                                           "weight_scale_inv", "qweight",       "qzeros" };

static const char *foreign_name(struct graph *graph, enum weight_name name, const struct weight_layout *layout)
{
    for (size_t i = !layout; i < sizeof known_names / sizeof *known_names; i++) {
        bool own = false;
        for (int j = 0; layout && j < LAYOUT_PARTS; j++)
            own |= layout->part[j].suffix && !strcmp(known_names[i], layout->part[j].suffix);
        if (!own && find_has(graph, name, known_names[i]))
            return known_names[i];
    }
    return NULL;
}

static bool check_names(struct graph *graph, enum weight_name name, const struct scheme *scheme)
{
    const char *foreign = foreign_name(graph, name, scheme->layout);
    if (!foreign)
        return true;
    bool alone = !find_has(graph, name, scheme->layout->part[LAYOUT_CODES].suffix);
    return find_trouble(graph, name, foreign,
                        alone ? "is there alone, and the checkpoint declares %s for this module"
                              : "is none of %s, which the checkpoint declares for this module",
                        scheme->word);
}

bool find_check_plain(struct graph *graph, enum weight_name name)
{
    const char *foreign = foreign_name(graph, name, NULL);
    return !foreign
        || find_trouble(graph, name, foreign, "is there, and the checkpoint's quantisation config %s",
                        graph->find->quantised.scheme_count ? "leaves this module out" : "is missing");
}

struct tensor find_resolve(const struct scheme *scheme, struct tensor wanted, struct tensor_source *source)
{
    source->label = scheme->word;
    source->group = scheme->group;
    source->rows_each = scheme->rows_each;
    source->row_step = 1;
    wanted.dtype = scheme->layout->resolve(scheme, tensor_cols(&wanted), source);
    wanted.source = source;
    return wanted;
}

void find_quantised(struct graph *graph, enum weight_name name, const struct scheme *scheme, struct tensor wanted,
                    struct op_matrix *matrix)
{
    struct tensor_source *source = ARENA_NEW(&graph->model->arena, struct tensor_source, 1);
    const struct tensor *parts[LAYOUT_PARTS] = { NULL };
    const struct weight_layout *layout = scheme->layout;
    if (layout->multiple && tensor_cols(&wanted) % layout->multiple) {
        find_trouble(graph, name, layout->part[LAYOUT_CODES].suffix,
                     "has rows of %lld values; %s needs a multiple of %d", (long long)tensor_cols(&wanted),
                     scheme->word, layout->multiple);
        return;
    }
    if (!graph->model->imagined) {
        if (!check_names(graph, name, scheme))
            return;
        for (int i = 0; i < LAYOUT_PARTS; i++)
            parts[i] = find_part(graph, name, scheme, (enum layout_part_name)i, &wanted);
    }
    if (graph->failed)
        return;
    *source = (struct tensor_source){ .codes = parts[LAYOUT_CODES],
                                      .scales = parts[LAYOUT_SCALES],
                                      .zeros = parts[LAYOUT_ZEROS],
                                      .order = parts[LAYOUT_ORDER],
                                      .extents = parts[LAYOUT_EXTENTS] };
    matrix->tensor = find_new(graph, name, "weight", find_resolve(scheme, wanted, source));
    if (parts[LAYOUT_OVERALL])
        matrix->scale = tensor_source_global_scale(&graph->model->arena, parts[LAYOUT_OVERALL], layout->divides);
    else if (source->factor == SCALE_FACTOR)
        matrix->scale = tensor_source_unscale(&graph->model->arena);
}
