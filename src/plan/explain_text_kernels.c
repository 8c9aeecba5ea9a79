// SPDX-License-Identifier: Apache-2.0
// plan/explain_text_kernels.c: the table of kernels by the number of tokens in a step, what is fused, what is slow, and
// the kernels that were rejected.
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/cuda/params.h"
#include "kernel/kernel.h"
#include "plan/explain_parts.h"

// ---- the table ----

enum { FOR_WIDTH = 13, TOKENS_WIDTH = 8, TOKENS_AT = EXPLAIN_INDENT + FOR_WIDTH + 1 };

// Ops that take most of the time; the others are for --verbose.
static bool is_heavy(const char *op)
{
    static const enum op_kind heavy[] = { OP_ATTENTION, OP_LINEAR,   OP_EXPERTS,    OP_PER_HEAD_LINEAR,
                                          OP_CONV,      OP_SSM_SCAN, OP_GATED_DELTA };
    for (size_t i = 0; i < sizeof heavy / sizeof *heavy; i++)
        if (!strcmp(op, op_word(heavy[i])))
            return true;
    return false;
}

// Column "for": the formats of a binding's weights, or its layers, which are counted where the list is too long.
static void add_subject(struct strbuf *out, const json_t *binding)
{
    const json_t *weights = json_object_get(binding, "weights");
    const char *layers = explain_string(binding, "layers");
    if (json_array_size(weights))
        explain_add_words(out, weights);
    else if (strlen(layers) <= FOR_WIDTH)
        strbuf_add_text(out, layers);
    else
        strbuf_add_format(out, "%lld layers", explain_number(binding, "layer_count"));
}

// A subject that is too long for its column pushes the others to the next line.
static void add_first_columns(struct explain_page *page, const json_t *binding)
{
    struct strbuf subject = { 0 };
    const char *op = explain_string(binding, "op");
    add_subject(&subject, binding);
    strbuf_add_format(page->out, "%-*s", EXPLAIN_INDENT, op);
    if (strlen(op) >= EXPLAIN_INDENT)
        strbuf_add_format(page->out, "\n%*s", EXPLAIN_INDENT, "");
    strbuf_add_format(page->out, "%-*s ", FOR_WIDTH, strbuf_text(&subject));
    if (subject.len > FOR_WIDTH)
        strbuf_add_format(page->out, "\n%*s", TOKENS_AT, "");
    strbuf_free(&subject);
}

static void add_binding(struct explain_page *page, const json_t *binding)
{
    size_t i;
    const json_t *load;
    add_first_columns(page, binding);
    json_array_foreach (json_object_get(binding, "kernels"), i, load) {
        const json_t *kernel = json_object_get(load, "kernel");
        strbuf_add_format(page->out, "%*s%-*s %s\n", i ? TOKENS_AT : 0, "", TOKENS_WIDTH,
                          explain_string(load, "tokens"),
                          json_is_string(kernel) ? json_string_value(kernel) : "fused into a neighbour");
    }
}

static void add_table(struct explain_page *page)
{
    size_t i;
    const json_t *binding;
    strbuf_add_format(page->out, "%s%-*s%-*s %-*s %s%s\n", page->style.colour ? "\033[1m" : "", EXPLAIN_INDENT,
                      "kernels", FOR_WIDTH, "for", TOKENS_WIDTH, "tokens", "kernel",
                      page->style.colour ? "\033[0m" : "");
    json_array_foreach (json_object_get(page->plan, "bindings"), i, binding)
        if (page->style.verbose || is_heavy(explain_string(binding, "op")))
            add_binding(page, binding);
}

// ---- how linear layers compute ----

static void add_formats(struct strbuf *out, const char *words, const json_t *formats)
{
    if (!json_array_size(formats))
        return;
    strbuf_add_format(out, "%s%s ", out->len ? "; " : "", words);
    explain_add_words(out, formats);
}

static void add_rounding(struct explain_page *page)
{
    static const struct {
        const char *key, *words;
    } kinds[] = {
        { "int16_activations", "activations in 16 bits (exact) for weights in" },
        { "int8_activations", "activations rounded to int8 for weights in" },
        { "nvfp4_activations", "activations rounded to 4 bits for weights in" },
        { "dequantised", "dequantised in registers:" },
    };
    const json_t *weights = json_object_get(page->plan, "weights");
    struct strbuf line = { 0 };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        add_formats(&line, kinds[i].words, json_object_get(weights, kinds[i].key));
    if (json_array_size(json_object_get(weights, "nvfp4_activations")))
        strbuf_add_text(&line,
                        " if cuBLASLt has such products, which it is asked when the model is loaded; without "
                        "--linear-kernel, other kernels serve");
    explain_add_line(page, "numbers", &line);
}

static void add_fused(struct explain_page *page)
{
    const char *step;
    const json_t *ops;
    struct strbuf line = { 0 };
    json_object_foreach ((json_t *)json_object_get(page->plan, "fused"), step, ops)
        add_formats(&line, !strcmp(step, "decode") ? "in decode" : "in prefill", ops);
    if (line.len)
        strbuf_add_text(&line, ", into neighbouring kernels");
    explain_add_line(page, "fused", &line);
}

static void add_experts(struct explain_page *page)
{
    const json_t *experts = json_object_get(page->plan, "experts");
    struct strbuf line = { 0 };
    if (!experts)
        return;
    strbuf_add_format(&line, "top %lld of %lld experts; a token reads ", explain_number(experts, "top_k"),
                      explain_number(experts, "count"));
    explain_add_size(&line, (double)explain_number(experts, "bytes_per_token"));
    strbuf_add_text(&line, " of their ");
    explain_add_size(&line, (double)explain_number(experts, "bytes"));
    explain_add_line(page, "routing", &line);
}

// A GPU's launches besides those of ops.
static void add_sampling(struct explain_page *page)
{
    const json_t *functions = json_object_get(page->plan, "sampling");
    struct strbuf line = { 0 };
    explain_add_words(&line, functions);
    if (functions && !line.len)
        strbuf_add_format(&line, "by the CPU: kernels draw from vocabularies of up to %d tokens",
                          CUDA_SAMPLING_VOCABULARY_MAX);
    explain_add_line(page, "sampling", &line);
}

static void add_slow(struct explain_page *page)
{
    size_t i;
    const json_t *slow;
    json_array_foreach (json_object_get(page->plan, "slow"), i, slow) {
        struct strbuf line = { 0 };
        strbuf_add_text(&line, json_string_value(slow));
        explain_add_line(page, "slow", &line);
    }
}

// ---- rejected kernels ----

enum { REJECTED_SHOWN = 3 };

static bool is_rejected_alike(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "op"), json_object_get(b, "op"))
        && json_equal(json_object_get(a, "reasons"), json_object_get(b, "reasons"));
}

// Marks the entries with the same reasons. Returns how many kernels they name; entries of one are neighbours.
static int mark_rejected(const json_t *list, size_t first, bool *done)
{
    int kernels = 0;
    const char *last = "";
    for (size_t i = first; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        if (done[i] || !is_rejected_alike(json_array_get(list, first), entry))
            continue;
        done[i] = true;
        kernels += strcmp(last, explain_string(entry, "kernel")) != 0;
        last = explain_string(entry, "kernel");
    }
    return kernels;
}

static void add_rejected_line(struct explain_page *page, const json_t *entry, int others)
{
    struct strbuf line = { 0 };
    strbuf_add_text(&line, explain_string(entry, "kernel"));
    if (others)
        strbuf_add_format(&line, " (and %d more)", others);
    strbuf_add_text(&line, ": ");
    size_t i;
    const json_t *reason;
    json_array_foreach (json_object_get(entry, "reasons"), i, reason)
        strbuf_add_format(&line, "%s%s", i ? "; " : "", json_string_value(reason));
    explain_add_line(page, "rejected:", &line);
}

// Kernels that are for other work, or that a better one outranks. They would have made no difference, so only --verbose
// names them.
static bool is_for_other_work(const json_t *entry)
{
    static const char *const phrases[] = {
        "does not read", "is for head size", "has head sizes", "reads latents alone", "reads weights in another order",
        "has priority"
    };
    size_t i;
    const json_t *reason;
    json_array_foreach (json_object_get(entry, "reasons"), i, reason)
        for (size_t j = 0; j < sizeof phrases / sizeof *phrases; j++)
            if (strstr(json_string_value(reason), phrases[j]))
                return true;
    return false;
}

// The kernel to name next: with the fewest reasons against it, and of those the one with the highest priority. Returns
// the size of the list where none is left.
static size_t next_rejected(const struct explain_page *page, const json_t *list, const bool *done)
{
    size_t best = json_array_size(list), least = SIZE_MAX, i;
    long long highest = 0;
    const json_t *entry;
    json_array_foreach (list, i, entry) {
        size_t reasons = json_array_size(json_object_get(entry, "reasons"));
        long long priority = explain_number(entry, "priority");
        bool hidden = !page->style.verbose && (!is_heavy(explain_string(entry, "op")) || is_for_other_work(entry));
        if (done[i] || hidden || reasons > least || (reasons == least && priority <= highest))
            continue;
        best = i;
        least = reasons;
        highest = priority;
    }
    return best;
}

static void add_rejected(struct explain_page *page)
{
    const json_t *list = json_object_get(page->plan, "passed_over");
    size_t count = json_array_size(list), next;
    bool *done = memory_new(count + 1, sizeof *done);
    int shown = 0;
    for (; page->style.verbose || shown < REJECTED_SHOWN; shown++) {
        if ((next = next_rejected(page, list, done)) == count)
            break;
        int alike = mark_rejected(list, next, done);
        add_rejected_line(page, json_array_get(list, next), alike - 1);
    }
    if (count && !page->style.verbose)
        strbuf_add_format(page->out, "rejected: %s; --verbose lists all\n",
                          shown ? "beside kernels for other work" : "only kernels for other work");
    free(done);
}

void explain_text_kernels(struct explain_page *page)
{
    add_table(page);
    add_rounding(page);
    add_experts(page);
    add_sampling(page);
    add_fused(page);
    add_slow(page);
    add_rejected(page);
}
