// SPDX-License-Identifier: Apache-2.0
#include "engine/ranks/protocol.h"

#include <assert.h>
#include <string.h>

// ---- bytes ----

static void put(struct strbuf *message, const void *value, size_t bytes) { strbuf_add(message, value, bytes); }

static void put_number(struct strbuf *message, int32_t number) { put(message, &number, sizeof number); }

// NULL and "" differ.
static void put_text(struct strbuf *message, const char *text)
{
    put_number(message, text ? (int32_t)strlen(text) : -1);
    put(message, text, text ? strlen(text) : 0);
}

static bool take(struct bytes *rest, void *out, size_t bytes)
{
    if (rest->len < bytes)
        return false;
    memcpy(out, rest->data, bytes);
    *rest = (struct bytes){ rest->data + bytes, rest->len - bytes };
    return true;
}

static bool take_number(struct bytes *rest, int low, int high, int32_t *out)
{
    return take(rest, out, sizeof *out) && *out >= low && *out <= high;
}

static bool take_text(struct bytes *rest, struct arena *arena, const char **out)
{
    int32_t length;
    *out = NULL;
    if (!take_number(rest, -1, INT32_MAX, &length))
        return false;
    if (length < 0)
        return true;
    if ((size_t)length > rest->len)
        return false;
    char *text = ARENA_NEW(arena, char, (size_t)length + 1);
    *out = text;
    return take(rest, text, (size_t)length);
}

bool protocol_read_head(struct bytes *message, struct protocol_head *out)
{
    return take(message, out, sizeof *out) && out->kind >= PROTOCOL_OPEN && out->kind <= PROTOCOL_END
        && out->engine >= 0;
}

void protocol_write_head(struct strbuf *message, enum protocol_kind kind, int engine)
{
    message->len = 0;
    put(message, &(struct protocol_head){ .kind = (int32_t)kind, .engine = engine }, sizeof(struct protocol_head));
}

// ---- an engine to open ----

// Texts of the options, in the order in which they are sent.
static const size_t texts[] = {
    offsetof(struct engine_options, plan.user.device),
    offsetof(struct engine_options, plan.user.kv_cache_dtype),
    offsetof(struct engine_options, plan.user.kv_plan),
    offsetof(struct engine_options, plan.user.kv_cache_dtype_skip_layers),
    offsetof(struct engine_options, plan.user.kv_transform),
    offsetof(struct engine_options, plan.user.kv_scale),
    offsetof(struct engine_options, plan.user.kv_sink_pages),
    offsetof(struct engine_options, plan.user.attention_kernel),
    offsetof(struct engine_options, plan.user.linear_kernel),
    offsetof(struct engine_options, plan.user.activations),
};
enum { TEXTS = sizeof texts / sizeof *texts, LAYERS_MAX = 1 << 16, CENTRE_MAX = 1 << 24 };

static const char **text_at(struct engine_options *options, int i)
{
    return (const char **)(void *)((char *)options + texts[i]);
}

// Writes the calibration of the layers' keys. The errors of other ways to store them stay with rank 0, since worker
// ranks do not use them.
static void put_calibration(struct strbuf *message, const struct kv_calibration *known)
{
    put_number(message, known ? known->layers : 0);
    for (int i = 0; known && i < known->layers; i++) {
        const struct kv_calibrated *layer = &known->layer[i];
        struct protocol_layer sent = { .k = (int32_t)layer->k,
                                       .centre_count = layer->centre ? (int32_t)layer->centre_count : 0 };
        memcpy(sent.error, layer->error, sizeof sent.error);
        put(message, &sent, sizeof sent);
        put(message, layer->centre, (size_t)sent.centre_count * sizeof *layer->centre);
    }
}

static bool take_layer(struct bytes *rest, struct arena *arena, struct kv_calibrated *layer)
{
    struct protocol_layer sent;
    if (!take(rest, &sent, sizeof sent) || sent.k < 0 || sent.k >= DTYPE_COUNT || sent.centre_count < 0
        || sent.centre_count > CENTRE_MAX || rest->len / sizeof(float) < (size_t)sent.centre_count)
        return false;
    float *centre = ARENA_NEW(arena, float, (size_t)sent.centre_count + 1);
    *layer = (struct kv_calibrated){ .centre = sent.centre_count ? centre : NULL,
                                     .k = (enum dtype)sent.k,
                                     .centre_count = (size_t)sent.centre_count };
    memcpy(layer->error, sent.error, sizeof sent.error);
    return take(rest, centre, (size_t)sent.centre_count * sizeof *centre);
}

static bool take_calibration(struct bytes *rest, struct arena *arena, const struct kv_calibration **out)
{
    struct kv_calibration *known = ARENA_NEW(arena, struct kv_calibration, 1);
    int32_t layers;
    *out = known;
    if (!take_number(rest, 0, LAYERS_MAX, &layers))
        return false;
    known->layers = layers;
    known->layer = ARENA_NEW(arena, struct kv_calibrated, (size_t)layers + 1);
    for (int i = 0; i < layers; i++)
        if (!take_layer(rest, arena, &known->layer[i]))
            return false;
    return true;
}

static struct protocol_open pack_numbers(const struct engine_options *options)
{
    const struct nibble_options *user = &options->plan.user;
    return (struct protocol_open){ .memory_bytes = user->memory_bytes,
                                   .kv_cache_bytes = user->kv_cache_bytes,
                                   .gpu_memory_utilization = user->gpu_memory_utilization,
                                   .max_model_len = user->max_model_len,
                                   .max_num_seqs = user->max_num_seqs,
                                   .batch_tokens = user->batch_tokens,
                                   .mamba_block_size = user->mamba_block_size,
                                   .threads = user->threads,
                                   .apart = options->plan.apart,
                                   .runs_here = options->plan.runs_here,
                                   .no_self_test = user->no_self_test };
}

static void take_numbers(const struct protocol_open *sent, struct engine_options *out)
{
    *out = (struct engine_options){ .plan = { .user = { .memory_bytes = sent->memory_bytes,
                                                        .kv_cache_bytes = sent->kv_cache_bytes,
                                                        .gpu_memory_utilization = sent->gpu_memory_utilization,
                                                        .max_model_len = sent->max_model_len,
                                                        .max_num_seqs = sent->max_num_seqs,
                                                        .batch_tokens = sent->batch_tokens,
                                                        .mamba_block_size = sent->mamba_block_size,
                                                        .threads = sent->threads,
                                                        .no_self_test = sent->no_self_test },
                                              .apart = sent->apart,
                                              .runs_here = sent->runs_here } };
}

void protocol_write_open(struct strbuf *message, const char *path, const struct engine_options *options)
{
    struct engine_options copy = *options;
    struct protocol_open numbers = pack_numbers(options);
    put_text(message, path);
    for (int i = 0; i < TEXTS; i++)
        put_text(message, *text_at(&copy, i));
    put_calibration(message, options->plan.calibration);
    put(message, &numbers, sizeof numbers);
}

bool protocol_read_open(struct bytes message, struct arena *arena, const char **path, struct engine_options *options)
{
    const char *found[TEXTS];
    const struct kv_calibration *known;
    struct protocol_open numbers;
    if (!take_text(&message, arena, path) || !*path)
        return false;
    for (int i = 0; i < TEXTS; i++)
        if (!take_text(&message, arena, &found[i]))
            return false;
    if (!take_calibration(&message, arena, &known) || !take(&message, &numbers, sizeof numbers) || message.len)
        return false;
    take_numbers(&numbers, options);
    for (int i = 0; i < TEXTS; i++)
        *text_at(options, i) = found[i];
    options->plan.calibration = known;
    return true;
}

// ---- a step ----

void protocol_open_tables(struct protocol_tables *tables, const struct plan *plan, struct arena *arena)
{
    size_t sequences = (size_t)plan->max_num_seqs;
    for (int i = 0; i < plan->class_count; i++) {
        tables->capacity[i] = plan->max_model_len / plan->classes[i].kind.page_tokens + 1;
        tables->pages[i] = ARENA_NEW(arena, int32_t, sequences *(size_t)tables->capacity[i]);
        tables->counts[i] = ARENA_NEW(arena, int, sequences);
    }
}

// Entries that the rows of a sequence may look at.
static int entries_of(const struct batch *batch, const struct batch_sequence *sequence, int class_index)
{
    int last = batch->positions[sequence->first + sequence->count - 1];
    int entries = last / batch->page_tokens[class_index] + 1, end = batch->pages_end[class_index];
    return end && entries > end ? end : entries;
}

static void put_table(struct strbuf *message, const struct engine *engine, struct protocol_tables *tables, int sequence,
                      int class_index)
{
    const struct batch_sequence *wanted = &engine->batch.sequence[sequence];
    const int32_t *pages = wanted->pages[class_index];
    int32_t *known = tables->pages[class_index] + (size_t)sequence * (size_t)tables->capacity[class_index];
    int *count = &tables->counts[class_index][sequence], entries = entries_of(&engine->batch, wanted, class_index);
    int kept = 0;
    while (kept < *count && kept < entries && known[kept] == pages[kept])
        kept++;
    put_number(message, kept);
    put(message, pages + kept, (size_t)(entries - kept) * sizeof *pages);
    memcpy(known + kept, pages + kept, (size_t)(entries - kept) * sizeof *pages);
    *count = entries;
}

void protocol_write_step(struct strbuf *message, const struct engine *engine, struct protocol_tables *tables)
{
    const struct batch *batch = &engine->batch;
    put(message, &(struct protocol_step){ batch->tokens, batch->sequences, batch->outputs },
        sizeof(struct protocol_step));
    put(message, batch->ids, (size_t)batch->tokens * sizeof *batch->ids);
    put(message, batch->positions, (size_t)batch->tokens * sizeof *batch->positions);
    put(message, batch->output_rows, (size_t)batch->outputs * sizeof *batch->output_rows);
    for (int i = 0; i < batch->sequences; i++) {
        put_number(message, batch->sequence[i].count);
        for (int j = 0; j < engine->plan.class_count; j++)
            put_table(message, engine, tables, i, j);
    }
}

static bool take_table(struct bytes *rest, struct engine *engine, struct protocol_tables *tables, int sequence,
                       int class_index)
{
    struct batch_sequence *out = &engine->batch_sequences[sequence];
    int capacity = tables->capacity[class_index], entries = entries_of(&engine->batch, out, class_index);
    int32_t *known = tables->pages[class_index] + (size_t)sequence * (size_t)capacity, kept;
    out->pages[class_index] = known;
    return entries <= capacity && take_number(rest, 0, entries, &kept)
        && take(rest, known + kept, (size_t)(entries - kept) * sizeof *known);
}

static bool is_within(int32_t number, int most) { return number >= 0 && number <= most; }

bool protocol_read_step(struct bytes message, struct engine *engine, struct protocol_tables *tables)
{
    struct batch *batch = &engine->batch;
    const struct plan *plan = &engine->plan;
    struct protocol_step sent;
    if (!take(&message, &sent, sizeof sent) || !is_within(sent.tokens, plan->batch_tokens)
        || !is_within(sent.sequences, plan->max_num_seqs) || !is_within(sent.outputs, plan->outputs))
        return false;
    batch->tokens = sent.tokens;
    batch->sequences = sent.sequences;
    batch->outputs = sent.outputs;
    if (!take(&message, engine->ids, (size_t)batch->tokens * sizeof *engine->ids)
        || !take(&message, engine->positions, (size_t)batch->tokens * sizeof *engine->positions)
        || !take(&message, engine->output_rows, (size_t)batch->outputs * sizeof *engine->output_rows))
        return false;
    for (int i = 0, first = 0; i < batch->sequences; i++) {
        int32_t count;
        if (!take_number(&message, 1, batch->tokens - first, &count))
            return false;
        engine->batch_sequences[i] = (struct batch_sequence){ .first = first, .count = count };
        first += count;
        for (int j = 0; j < plan->class_count; j++)
            if (!take_table(&message, engine, tables, i, j))
                return false;
    }
    return message.len == 0;
}
