// SPDX-License-Identifier: Apache-2.0
// plan/explain_text_memory.c: where memory goes, in words: weights, the cost of a context, pools, ranks.
#include <string.h>

#include "plan/explain_parts.h"

static double real_of(const json_t *object, const char *key) { return (double)explain_number(object, key); }

// "weights 92.1 MiB": a word and the size of a member.
static void add_part(struct strbuf *out, const char *words, double bytes)
{
    strbuf_add_text(out, words);
    explain_add_size(out, bytes);
}

// ---- weights ----

// "Q4_1 63.3 MiB, float32 137.2 KiB"
void explain_add_weight_formats(struct strbuf *out, const json_t *weights)
{
    const char *format, *separator = "";
    json_t *bytes;
    json_object_foreach (json_object_get(weights, "by_format"), format, bytes) {
        strbuf_add_format(out, "%s%s ", separator, format);
        explain_add_size(out, (double)json_integer_value(bytes));
        separator = ", ";
    }
}

static bool is_shown_alike(double a, double b)
{
    struct strbuf first = { 0 }, second = { 0 };
    explain_add_size(&first, a);
    explain_add_size(&second, b);
    bool alike = !strcmp(first.data, second.data);
    strbuf_free(&first);
    strbuf_free(&second);
    return alike;
}

// Why weights take other than their formats' bytes in memory; nothing where the difference would not be seen.
static void add_packing(struct explain_page *page, const json_t *weights)
{
    double layout = real_of(weights, "layout_bytes"), copied = real_of(weights, "copied_bytes");
    long long copies = explain_number(weights, "copied_count");
    struct strbuf line = { 0 };
    if (is_shown_alike(real_of(weights, "listed_bytes"), real_of(weights, "bytes")))
        return;
    explain_add_size(&line, real_of(weights, "bytes"));
    add_part(&line, " in memory: ", layout < 0 ? -layout : layout);
    strbuf_add_format(&line, " %s in the layout that kernels read", layout < 0 ? "less" : "more");
    if (copied > 0) {
        add_part(&line, ", ", copied);
        strbuf_add_format(&line, " for a second copy of %s", explain_string(weights, "copied_first"));
        if (copies > 1)
            strbuf_add_format(&line, " and %lld more", copies - 1);
    }
    explain_add_line(page, "packed", &line);
}

static void add_weights(struct explain_page *page)
{
    const json_t *weights = json_object_get(page->plan, "weights");
    struct strbuf line = { 0 };
    explain_add_size(&line, real_of(weights, "listed_bytes"));
    strbuf_add_text(&line, ": ");
    explain_add_weight_formats(&line, weights);
    explain_add_line(page, "weights", &line);
    add_packing(page, weights);
}

// ---- the cache ----

// "context length 8192 tokens, cache capacity 65536 tokens"
void explain_add_lengths(struct strbuf *out, const json_t *memory)
{
    const char *note = explain_string(memory, "length_note");
    strbuf_add_format(out, "context length %lld tokens", explain_number(memory, "context_length"));
    strbuf_add_format(out, *note ? " (%s)" : "%s", note);
    strbuf_add_format(out, ", cache capacity %lld tokens", explain_number(memory, "tokens"));
}

// "1000 tokens of context take 6.2 MiB (K 3.1 MiB, V 3.1 MiB)"
static void add_costs(struct explain_page *page, const json_t *memory)
{
    struct strbuf line = { 0 };
    size_t i;
    const json_t *cost;
    json_array_foreach (json_object_get(memory, "sequence"), i, cost) {
        double k = real_of(cost, "k"), v = real_of(cost, "v"), state = real_of(cost, "state");
        strbuf_add_format(&line, i ? "; %lld take " : "%lld tokens of context take ", explain_number(cost, "tokens"));
        explain_add_size(&line, k + v + state);
        const char *opening = " (";
        if (v > 0) {
            add_part(&line, " (K ", k);
            add_part(&line, ", V ", v);
            opening = ", ";
        }
        if (state > 0 && k + v > 0) {
            strbuf_add_text(&line, opening);
            add_part(&line, "states ", state);
            opening = ", ";
        }
        strbuf_add_text(&line, strcmp(opening, ", ") ? "" : ")");
    }
    explain_add_line(page, "", &line);
}

static void add_cache(struct explain_page *page, const json_t *memory)
{
    struct strbuf line = { 0 };
    strbuf_add_format(&line, "%lld bytes per token (all layers), ", explain_number(memory, "bytes_per_token"));
    explain_add_lengths(&line, memory);
    strbuf_add_format(&line, " (%.4g x the context length)",
                      json_real_value(json_object_get(memory, "max_concurrency")));
    explain_add_line(page, "cache", &line);
    add_costs(page, memory);
}

static void add_pools(struct explain_page *page, const json_t *memory)
{
    size_t i;
    const json_t *pool;
    json_array_foreach (json_object_get(memory, "pools"), i, pool) {
        struct strbuf line = { 0 };
        char title[32];
        strbuf_add_format(&line, "%lld layers, %lld %s of ", explain_number(pool, "layers"),
                          explain_number(pool, "pages"),
                          json_is_true(json_object_get(pool, "state")) ? "states" : "pages");
        explain_add_size(&line, real_of(pool, "page_bytes"));
        strbuf_add_text(&line, strstr(explain_string(pool, "class"), "sink pages") ? ", sink pages" : "");
        snprintf(title, sizeof title, "pool %zu", i);
        explain_add_line(page, title, &line);
    }
}

static void add_memory(struct explain_page *page, const json_t *memory)
{
    struct strbuf line = { 0 };
    double weights = real_of(memory, "weights"), workspace = real_of(memory, "workspace");
    double cache = real_of(memory, "cache");
    add_part(&line, "weights ", weights);
    add_part(&line, " + workspace ", workspace);
    add_part(&line, " + KV cache ", cache);
    add_part(&line, " = ", weights + workspace + cache);
    explain_add_line(page, "memory", &line);
}

// ---- ranks ----

// "3-5 of 9" of the heads that a rank holds.
static void add_heads(struct strbuf *out, const char *words, long long first, long long count, long long all)
{
    strbuf_add_format(out, count > 1 ? "%s%lld-%lld of %lld" : "%s%lld", words, first, first + count - 1, all);
    if (count <= 1)
        strbuf_add_format(out, " of %lld", all);
}

static void add_rank(struct explain_page *page, const json_t *rank)
{
    const json_t *model = json_object_get(page->plan, "model");
    struct strbuf line = { 0 };
    char title[32];
    add_heads(&line, "query heads ", explain_number(rank, "first_head"), explain_number(rank, "heads"),
              explain_number(model, "heads"));
    add_heads(&line, explain_number(rank, "kv_heads") > 1 ? ", KV heads " : ", KV head ",
              explain_number(rank, "first_kv_head"), explain_number(rank, "kv_heads"),
              explain_number(model, "kv_heads"));
    add_part(&line, "; weights ", real_of(rank, "weights"));
    add_part(&line, ", workspace ", real_of(rank, "workspace"));
    add_part(&line, ", cache ", real_of(rank, "pools"));
    snprintf(title, sizeof title, "rank %lld", explain_number(rank, "rank"));
    explain_add_line(page, title, &line);
}

static const json_t *find_replica(const json_t *rank, const char *what)
{
    size_t i;
    const json_t *replica;
    json_array_foreach (json_object_get(rank, "replicated"), i, replica)
        if (!strcmp(explain_string(replica, "what"), what))
            return replica;
    return NULL;
}

// A line for what this rank is the first to have, with the bytes of one that has most of it.
static void add_copies(struct explain_page *page, const json_t *list, size_t rank)
{
    size_t i, j;
    const json_t *replica, *other;
    json_array_foreach (json_object_get(json_array_get(list, rank), "replicated"), i, replica) {
        const char *what = explain_string(replica, "what");
        double most = 0;
        bool is_first = true;
        json_array_foreach (list, j, other) {
            const json_t *theirs = find_replica(other, what);
            is_first &= !theirs || j >= rank;
            most = theirs && real_of(theirs, "bytes") > most ? real_of(theirs, "bytes") : most;
        }
        struct strbuf line = { 0 };
        if (!is_first)
            continue;
        strbuf_add_format(&line, "%s, ", what);
        explain_add_size(&line, most);
        strbuf_add_format(&line, ": %s", explain_string(replica, "why"));
        explain_add_line(page, "copies", &line);
    }
}

static void add_ranks(struct explain_page *page)
{
    const json_t *ranks = json_object_get(page->plan, "ranks"), *list = json_object_get(ranks, "list"), *rank;
    struct strbuf line = { 0 };
    size_t i;
    if (!ranks)
        return;
    strbuf_add_format(&line, "%lld; kernels, bytes per token and pools are rank %lld's", explain_number(ranks, "count"),
                      explain_number(ranks, "rank"));
    explain_add_line(page, "ranks", &line);
    json_array_foreach (list, i, rank)
        add_rank(page, rank);
    for (i = 0; i < json_array_size(list); i++)
        add_copies(page, list, i);
    add_part(&line, "each rank sends ", real_of(ranks, "sent_per_token"));
    add_part(&line, " per token and ", real_of(ranks, "sent_per_output"));
    strbuf_add_format(&line, " for the logits of one, %s", explain_string(ranks, "by"));
    explain_add_line(page, "exchange", &line);
}

void explain_text_memory(struct explain_page *page)
{
    const json_t *memory = json_object_get(page->plan, "memory");
    add_weights(page);
    add_cache(page, memory);
    add_pools(page, memory);
    add_memory(page, memory);
    add_ranks(page);
}
