// SPDX-License-Identifier: Apache-2.0
// tools/eval_report.c: reports of `nibble eval --sweep` as a table and as JSON.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "tools/eval.h"

const char *sweep_stored(const struct sweep_row *row) { return row->plain ? "as is" : "planned"; }

static double tokens_per_gib(const struct sweep_row *row) { return 1073741824.0 / row->size.token_bytes; }

void sweep_print_table(const struct sweep *sweep, struct strbuf *out)
{
    int width = (int)strlen("cache");
    for (int i = 0; i < sweep->count; i++)
        if ((int)strlen(sweep->rows[i].format) > width)
            width = (int)strlen(sweep->rows[i].format);
    strbuf_add_format(out, "%d x %d tokens, KL divergence from a cache of %s\n", sweep->chunks, sweep->context,
                      sweep->against);
    strbuf_add_format(out, "%-*s  %-7s  %6s  %9s  %7s  %10s  %12s  %8s%s\n", width, "cache", "stored", "bits", "KLD",
                      "top 1", "perplexity", "tokens / GiB", "t/s", sweep->needle ? "  recall" : "");
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_row *row = &sweep->rows[i];
        if (row->refused) {
            strbuf_add_format(out, "%-*s  refused: %s\n", width, row->format, row->refused);
            continue;
        }
        strbuf_add_format(out, "%-*s  %-7s  %6.3f  %9.6f  %5.2f %%  %10.4f  %12.0f  %8.1f", width, row->format,
                          sweep_stored(row), row->size.bits, row->score.mean, 100 * row->score.top1,
                          row->score.perplexity, tokens_per_gib(row), row->decode);
        if (sweep->needle)
            strbuf_add_format(out, "  %6.4f", row->needle.mean);
        strbuf_add_byte(out, '\n');
    }
}

static json_t *json_of_row(const struct sweep *sweep, const struct sweep_row *row)
{
    if (row->refused)
        return json_pack("{s:s, s:s}", "kv_cache_dtype", row->format, "refused", row->refused);
    const struct quality_score *score = &row->score;
    json_t *json = json_pack("{s:s, s:s, s:f, s:f, s:f, s:o, s:f, s:f, s:f}", "kv_cache_dtype", row->format, "stored",
                             sweep_stored(row), "bits", row->size.bits, "bytes_per_token", row->size.token_bytes,
                             "perplexity", score->perplexity, "kld", quality_json_kld(score), "top1", score->top1,
                             "tokens_per_gib", tokens_per_gib(row), "decode", row->decode);
    if (sweep->needle)
        json_object_set_new(json, "recall", needle_json(&row->needle));
    return json;
}

void sweep_print_json(const struct sweep *sweep, struct strbuf *out)
{
    json_t *rows = json_array();
    for (int i = 0; i < sweep->count; i++)
        json_array_append_new(rows, json_of_row(sweep, &sweep->rows[i]));
    json_t *root = json_pack("{s:s, s:s, s:i, s:i, s:o}", "model", sweep->model, "against", sweep->against, "context",
                             sweep->context, "chunks", sweep->chunks, "caches", rows);
    cli_add_json(out, root, JSON_REAL_PRECISION(9));
}
