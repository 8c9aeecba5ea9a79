// SPDX-License-Identifier: Apache-2.0
#include "model/quantize/items.h"

#include <stdlib.h>
#include <string.h>

#include "model/tensor_source.h"

struct collecting {
    struct items *items;
    const struct checkpoint *checkpoint;
    const struct model *model, *published;
    const struct importance *now[BUFFER_COUNT]; // each buffer's importance after the ops so far
    const struct importance *input;             // of the current op
    struct importance *results[LINEAR_OUTPUTS_MAX];
    int fused;
    struct error *err;
};

struct bytes item_module(const struct item *item)
{
    const char *dot = strrchr(item->name, '.');
    return (struct bytes){ item->name, dot ? (size_t)(dot - item->name) : strlen(item->name) };
}

static bool ends_with(const char *text, const char *ending)
{
    size_t len = strlen(text), tail = strlen(ending);
    return len >= tail && !strcmp(text + len - tail, ending);
}

static void use(void *context, const struct tensor *of_file)
{
    struct items *items = context;
    map_put(&items->used, bytes_of(of_file->name), 0);
}

static struct item *append(struct collecting *c, struct item item)
{
    struct items *items = c->items;
    if (items->count == items->capacity) {
        items->capacity = items->capacity ? items->capacity * 2 : 256;
        items->items = memory_grow(items->items, items->capacity, sizeof *items->items);
    }
    tensor_source_visit(item.tensor, use, items);
    if (item.scale)
        tensor_source_visit(item.scale, use, items);
    map_put(&items->names, bytes_of(item.name), (int64_t)items->count);
    items->items[items->count] = item;
    return &items->items[items->count++];
}

// ---- tensors of the model's ops ----

// Routers and lm_head stay unquantised: a router is small and decisive, and lm_head's errors reach the logits directly.
static bool is_quantisable(const struct op *op, int matrix, const char *name)
{
    static const char *const routers[] = { ".gate.weight", ".router.weight", ".shared_expert_gate.weight" };
    for (size_t i = 0; i < sizeof routers / sizeof *routers; i++)
        if (ends_with(name, routers[i]))
            return false;
    return (op->kind == OP_LINEAR || op->kind == OP_EXPERTS) && op->matrix[matrix].out != BUFFER_LOGITS
        && ends_with(name, ITEM_SUFFIX);
}

// True if the tensor is a whole file matrix, or a whole quantised module.
static bool is_whole(const struct tensor *tensor)
{
    return !tensor->source || (tensor->source->label && tensor->rank == 2 && tensor->source->row_step <= 1);
}

// A fused file matrix, of which the model uses runs of rows, is written whole.
#define RUN_MARK " (from "
#define EXPERTS ".experts."

static const struct tensor *whole_of(const struct collecting *c, const struct tensor *run, const char **name)
{
    const char *mark = strstr(*name, RUN_MARK);
    if (!mark)
        return run;
    *name = arena_text(&c->items->arena, *name, (size_t)(mark - *name));
    return run->source ? run->source->codes : checkpoint_find(c->checkpoint, *name);
}

// Records the attention module of a layer, for its cache scales.
static void note_attention(struct collecting *c, const struct op *op, int matrix, const char *name)
{
    if (op->layer < 0 || op->matrix[matrix].out != BUFFER_K || c->model->layer[op->layer].latent)
        return;
    struct bytes path = item_module(&(struct item){ .name = name });
    path = item_module(&(struct item){ .name = arena_text(&c->items->arena, path.data, path.len) });
    c->items->attention[op->layer] = arena_text(&c->items->arena, path.data, path.len);
}

// Llama GGUFs permute q and k for interleaved rope; the rows must be permuted back.
static bool is_reordered(const struct collecting *c, const struct op *op, int matrix)
{
    return c->model->config.rope_interleaved && !c->published->config.rope_interleaved && op->kind == OP_LINEAR
        && (op->matrix[matrix].out == BUFFER_Q || op->matrix[matrix].out == BUFFER_K);
}

static void add_matrix(struct collecting *c, const struct op *op, int j, const struct tensor *tensor, const char *name,
                       int64_t first, int expert)
{
    int64_t known;
    if (map_get(&c->items->names, bytes_of(name), &known))
        return; // tied lm_head
    bool linear = is_quantisable(op, j, name), reordered = is_reordered(c, op, j);
    const struct model_config *config = &c->model->config;
    append(c,
           (struct item){ .name = name,
                          .tensor = tensor,
                          .rows = tensor->shape[tensor->rank - 2],
                          .cols = tensor->shape[tensor->rank - 1],
                          .first = first,
                          .scale = op->matrix[j].scale,
                          .expert = expert,
                          .head_rows = reordered ? config->head_dim : 0,
                          .rotary = reordered ? config->rotated : 0,
                          .linear = linear,
                          .op = (int)(op - c->model->ops),
                          .listed = !linear && op->kind != OP_EMBED,
                          .input = c->input,
                          .result = c->results[j],
                          .fused = op->kind == OP_EXPERTS ? c->fused + expert : c->fused });
}

static void add_bias(struct collecting *c, const struct op *op, int j, const char *matrix_name)
{
    const struct tensor *bias = op->matrix[j].bias;
    if (!bias || bias->source || bias->rank != 1)
        return;
    int stem = (int)(strlen(matrix_name) - strlen(ITEM_SUFFIX));
    bool reordered = is_reordered(c, op, j);
    append(c,
           (struct item){ .name = arena_format(&c->items->arena, "%.*s.bias", stem, matrix_name),
                          .tensor = bias,
                          .rows = reordered ? bias->shape[0] : 1,
                          .cols = reordered ? 1 : bias->shape[0],
                          .fused = c->fused,
                          .head_rows = reordered ? c->model->config.head_dim : 0,
                          .rotary = reordered ? c->model->config.rotated : 0 });
}

// The name of one expert's matrix of a stacked tensor, or "".
static const char *unstacked_name(struct collecting *c, const struct tensor *published, int expert)
{
    static const struct {
        const char *stacked, *word;
    } names[] = { { "gate_up_proj" RUN_MARK "gate)", "gate_proj" },
                  { "gate_up_proj" RUN_MARK "up)", "up_proj" },
                  { "down_proj", "down_proj" } };
    const char *at = strstr(published->name, EXPERTS);
    for (size_t i = 0; at && i < sizeof names / sizeof *names; i++)
        if (!strcmp(at + strlen(EXPERTS), names[i].stacked))
            return arena_format(&c->items->arena, "%.*s" EXPERTS "%d.%s" ITEM_SUFFIX, (int)(at - published->name),
                                published->name, expert, names[i].word);
    return "";
}

// The name of one expert's matrix: '*' is replaced by its number.
static const char *expert_name(struct collecting *c, const struct tensor *published, int expert)
{
    const char *star = strchr(published->name, '*');
    if (published->source && published->source->parts)
        return published->source->parts[expert]->name;
    return star
        ? arena_format(&c->items->arena, "%.*s%d%s", (int)(star - published->name), published->name, expert, star + 1)
        : unstacked_name(c, published, expert);
}

// Adds experts as one item per expert and matrix.
static void add_experts(struct collecting *c, const struct op *op, int j, const struct tensor *published)
{
    const struct tensor *tensor = op->matrix[j].tensor;
    const struct tensor *const *own = tensor->source ? tensor->source->parts : NULL;
    for (int e = 0; e < tensor->shape[0]; e++) {
        const struct tensor *part = own ? own[e] : tensor;
        const char *name = expert_name(c, published, e);
        if ((!own || is_whole(part)) && ends_with(name, ITEM_SUFFIX)) // stacked rows are readable
            add_matrix(c, op, j, part, name, own ? 0 : e * tensor->shape[1], e);
    }
}

static bool add_op(struct collecting *c, const struct op *op, const struct op *published)
{
    c->input = op->kind == OP_LINEAR || op->kind == OP_EXPERTS ? c->now[op->in] : NULL;
    importance_follow(op, c->model, c->now, c->results, &c->items->arena);
    for (int j = 0; j < op->matrices; j++) {
        const struct tensor *tensor = op->matrix[j].tensor, *named = published->matrix[j].tensor;
        bool same = tensor->rank == named->rank;
        for (int i = 0; i < tensor->rank && same; i++)
            same = tensor->shape[i] == named->shape[i];
        if (!same)
            return fail(c->err,
                        "tensor %s lies in another shape than published checkpoints have %s; quantise the "
                        "published checkpoint instead",
                        tensor->name, named->name);
        const char *name = named->name;
        const struct tensor *whole = whole_of(c, tensor, &name);
        if (whole != tensor)
            c->results[j] = NULL;
        if (tensor->rank == 3) {
            add_experts(c, op, j, named);
        } else if (whole && is_whole(whole) && ends_with(name, ITEM_SUFFIX)) {
            note_attention(c, op, j, name);
            add_matrix(c, op, j, whole, name, 0, 0);
            if (whole == tensor)
                add_bias(c, op, j, name);
        }
    }
    double offset = op->offset - published->offset;
    if (op->vector && !op->vector->source && op->vector->rank == 1)
        append(c,
               (struct item){ .name = published->vector->name,
                              .tensor = op->vector,
                              .rows = 1,
                              .cols = op->vector->shape[0],
                              .fused = c->fused,
                              .offset = op->kind == OP_NORM ? (float)offset : 0 });
    c->fused += op->kind == OP_EXPERTS && op->matrices ? (int)op->matrix[0].tensor->shape[0] : 1;
    return true;
}

// ---- other tensors ----

// True for tensors of a module's old quantisation scheme, and scales that the new config does not declare.
static bool is_obsolete(const struct collecting *c, const char *name)
{
    static const char *const scales[] = { ".input_scale", ".k_scale",  ".v_scale",     ".q_scale",
                                          ".prob_scale",  ".kv_scale", ".output_scale" };
    const char *dot = strrchr(name, '.');
    char weight[TENSOR_NAME_BYTES_MAX + sizeof ITEM_SUFFIX];
    int64_t index;
    if (!dot)
        return false;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (!strcmp(dot, scales[i]))
            return true;
    snprintf(weight, sizeof weight, "%.*s" ITEM_SUFFIX, (int)(dot - name), name);
    return map_get(&c->items->names, bytes_of(weight), &index) && c->items->items[index].tensor->source;
}

static bool add_rest(struct collecting *c)
{
    const uint64_t floats = DTYPE_BIT(F32) | DTYPE_BIT(F16) | DTYPE_BIT(BF16);
    for (size_t i = 0; i < c->checkpoint->tensor_count; i++) {
        const struct tensor *tensor = &c->checkpoint->tensors[i];
        int64_t known;
        if (map_get(&c->items->used, bytes_of(tensor->name), &known) || is_obsolete(c, tensor->name))
            continue;
        if (!(floats >> tensor->dtype & 1) && dtype_table[tensor->dtype].bits <= 8)
            return fail(c->err,
                        "tensor %s is %s and nibble cannot write its module anew; quantise a checkpoint of "
                        "16-bit weights instead",
                        tensor->name, dtype_word(tensor->dtype));
        bool linear = tensor->rank == 2 && ends_with(tensor->name, ITEM_SUFFIX);
        bool experts = tensor->rank == 3 && strstr(tensor->name, EXPERTS); // stacked
        append(c,
               (struct item){ .name = tensor->name, .tensor = tensor, .fused = c->fused, .listed = linear || experts });
    }
    return true;
}

// Every GGUF tensor must be used, or the new checkpoint would lack it.
static bool check_rest(struct collecting *c)
{
    map_put(&c->items->used, bytes_of("rope_freqs.weight"), 0); // its content is in config.json
    for (size_t i = 0; i < c->checkpoint->tensor_count; i++) {
        int64_t known;
        const char *name = c->checkpoint->tensors[i].name;
        if (!map_get(&c->items->used, bytes_of(name), &known))
            return fail(c->err,
                        "tensor %s has no published name that nibble knows; quantise the published checkpoint "
                        "instead of the GGUF",
                        name);
    }
    return true;
}

bool items_collect(struct items *items, const struct checkpoint *checkpoint, const struct model *model,
                   const struct model *published, struct error *err)
{
    *items = (struct items){ 0 };
    items->attention = ARENA_NEW(&items->arena, const char *, model->config.layers);
    struct collecting c = {
        .items = items, .checkpoint = checkpoint, .model = model, .published = published, .err = err
    };
    bool ok = model->op_count == published->op_count
        || fail(err, "the GGUF's layers are made of other steps than those of the published checkpoint; quantise that");
    for (int i = 0; i < model->op_count && ok; i++)
        ok = add_op(&c, &model->ops[i], &published->ops[i]);
    ok = ok && (checkpoint->gguf ? check_rest(&c) : add_rest(&c));
    if (!ok)
        items_free(items);
    return ok;
}

void items_free(struct items *items)
{
    free(items->items);
    map_free(&items->names);
    map_free(&items->used);
    arena_free(&items->arena);
    *items = (struct items){ 0 };
}
