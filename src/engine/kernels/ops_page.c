// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/ops_page.h"

#include <string.h>

#include "kernel/op.h"

static const char *const role_words[] = {
    [ROLE_ROWS] = "number of rows",
    [ROLE_BATCH] = "batch",
    [ROLE_IN] = "in",
    [ROLE_OUT] = "out",
    [ROLE_INOUT] = "in and out",
    [ROLE_SUM] = "out, or added to",
    [ROLE_INDEX] = "out, in any order",
    [ROLE_WEIGHT] = "weight",
    [ROLE_VECTOR] = "vector",
    [ROLE_OPTIONAL] = "vector or none",
    [ROLE_CACHE] = "KV cache",
    [ROLE_CACHE_OUT] = "KV cache, written",
    [ROLE_STATE] = "state, in and out",
    [ROLE_SCRATCH] = "scratch",
    [ROLE_FUSED_BEFORE] = "fused, before",
    [ROLE_FUSED_AFTER] = "fused, after",
};

static const char *const slot_words[] = {
    [SLOT_NONE] = "-",
    [SLOT_IN] = "in",
    [SLOT_SECOND] = "second",
    [SLOT_THIRD] = "third",
    [SLOT_OUT] = "out",
    [SLOT_EXPERT] = "routes",
    [SLOT_EXPERT_WEIGHT] = "routes",
    [SLOT_PAIR] = "routes",
    [SLOT_FIRST] = "routes",
    [SLOT_MATRIX] = "matrix",
    [SLOT_BIAS] = "matrix.bias",
    [SLOT_SCALES] = "matrix.scale",
    [SLOT_VECTOR] = "vector",
    [SLOT_MORE_0] = "more[0]",
    [SLOT_MORE_1] = "more[1]",
    [SLOT_DECAY] = "vector",
    [SLOT_CONV_KERNEL] = "vector",
    [SLOT_FREQUENCIES] = "the layer's rope",
    [SLOT_CENTRE] = "the layer's calibration",
};

static const char *const division_words[] = {
    [DIVIDED_NOT] = "every rank does all of it, or its own heads where the layer's numbers say so",
    [DIVIDED_VOCABULARY] = "rows of the table; the results are summed",
    [DIVIDED_GROUPS] = "the groups that the rank has of the input",
    [DIVIDED_MATRICES] = "rows; or columns, where the rank has a part of the input's, and the results are summed",
    [DIVIDED_EXPERTS] = "rows or columns within every expert; the results are summed after combine",
    [DIVIDED_HEADS] = "the matrices of the rank's heads",
    [DIVIDED_ATTENTION] = "the rank's heads",
    [DIVIDED_WIDTH] = "columns",
    [DIVIDED_TERMS] = "terms; the results are summed",
};

// The table's C without what only C needs: "a->in * a->output[i].weight.rows" is "in * output.weight.rows".
static void add_expression(struct strbuf *out, const char *text)
{
    static const struct {
        const char *from, *to;
    } words[] = {
        { "a->", "" },          { "[i]", "" },          { "layout.", "" },
        { "(size_t)", "" },     { "VALUE_F32", "f32" }, { "VALUE_BF16", "bf16" },
        { "VALUE_INT", "i32" }, { "VALUE_BYTES", "-" },
    };
    while (*text) {
        size_t taken = 0;
        for (size_t i = 0; i < sizeof words / sizeof *words && !taken; i++)
            if (!strncmp(text, words[i].from, strlen(words[i].from))) {
                strbuf_add_text(out, words[i].to);
                taken = strlen(words[i].from);
            }
        if (!taken)
            strbuf_add_byte(out, *text);
        text += taken ? taken : 1;
    }
}

static void add_shape(const struct operand *operand, struct strbuf *out)
{
    static const char *const rows[] = { "rows, ", "tokens, ", "outputs, ", "" };
    if (operand->role == ROLE_WEIGHT) {
        strbuf_add_text(out, "matrices: ");
        add_expression(out, operand->shape);
    } else if (strcmp(operand->shape, "0")) {
        strbuf_add_format(out, "(%s", rows[operand->rows]);
        add_expression(out, operand->shape);
        strbuf_add_text(out, ")");
    } else {
        strbuf_add_text(out, "-");
    }
}

static void add_operand(const struct operand *operand, struct strbuf *out)
{
    bool is_int = !strcmp(operand->type, "VALUE_INT"), has_type = strcmp(operand->type, "VALUE_BYTES");
    strbuf_add_format(out, "| `%s` | %s | ", operand->name, role_words[operand->role]);
    add_shape(operand, out);
    strbuf_add_format(out, " | %s | ", !has_type ? "-" : is_int ? "i32" : "f32");
    add_expression(out, operand->type);
    strbuf_add_format(out, " | %s |\n", slot_words[operand->slot]);
}

static void add_op(const struct op_info *op, struct strbuf *out)
{
    int count;
    const struct operand *operands = op->list(&count);
    strbuf_add_format(out, "\n## %s\n\n", op->word);
    strbuf_add_format(out, "%c%s. Tolerance %g on CPUs, %g on GPUs.",
                      op->about[0] >= 'a' ? op->about[0] - 32 : op->about[0], op->about + 1, (double)op->tolerance,
                      (double)op->gpu_tolerance);
    strbuf_add_format(out, " Ranks: %s.", division_words[op->division]);
    if (strcmp(op->flops, "0")) {
        strbuf_add_text(out, " Operations per row: ");
        add_expression(out, op->flops);
        strbuf_add_byte(out, '.');
    }
    strbuf_add_text(out, "\n\n| operand | role | shape | CPU | GPU | bound to |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < count; i++)
        add_operand(&operands[i], out);
}

void ops_page_print(struct strbuf *out)
{
    strbuf_add_text(out,
                    "# Ops\n\n"
                    "Written by `nibble kernels --ops-markdown` from the table in `src/kernel/op.h`, from which "
                    "binding, data "
                    "flow, costs,\ntest cases, fault injection and the reference rows follow. \"Bound to\" is the "
                    "member of `struct "
                    "op` (`src/model/model.h`)\nthat names the buffer or the tensor. A tolerance is the largest "
                    "difference from the "
                    "reference as a part of the\nlargest value. [add-an-op.md](add-an-op.md) adds one.\n");
    for (int i = 0; i < OP_COUNT; i++)
        add_op(&op_table[i], out);
}
