// SPDX-License-Identifier: Apache-2.0
// kernel/testcase_state.c: test cases of the recurrent ops. Some sequences are new, some begin a page, from the state
// of the page before it, and some go on within one. States that a kernel may not read are NaN.
#include <math.h>
#include <string.h>

#include "kernel/testcase_draw.h"
#include "kernel/state.h"

enum { CLASS = 1, SPARE_PAGES = 2, STATE_SEQUENCES_MAX = 4, LARGE_OLD = 100 };
enum { STATE_OUT, STATE_POOL }; // outputs

// ---- drawing ----

// Tokens that came before the batch: none, whole pages, or a part of one that leaves room for the rows.
static int draw_old(struct draw *draw, int page_tokens, int count)
{
    int pages = draw_size(draw, 0, 3, 1), within = draw_size(draw, 0, page_tokens - count, LARGE_OLD);
    return pages * page_tokens + (draw_coin(draw) ? within : 0);
}

static void draw_tables(struct draw *draw, struct batch_sequence *sequences, int32_t *positions, int page_tokens)
{
    struct testcase *testcase = draw->testcase;
    int count = testcase->batch.sequences, next = 0;
    int32_t *numbers = ARENA_NEW(&testcase->arena, int32_t, 2 * count + SPARE_PAGES);
    for (int i = 0; i < 2 * count + SPARE_PAGES; i++)
        numbers[i] = i;
    random_shuffle(&draw->seed, numbers, 2 * count + SPARE_PAGES);
    for (int s = 0; s < count; s++) {
        int old = draw_old(draw, page_tokens, sequences[s].count), last = old / page_tokens;
        int32_t *table = ARENA_NEW(&testcase->arena, int32_t, last + 1);
        for (int i = 0; i <= last; i++)
            table[i] = i + 1 < last ? -1 : numbers[next++];
        for (int row = 0; row < sequences[s].count; row++)
            positions[sequences[s].first + row] = old + row;
        sequences[s].pages[CLASS] = table;
    }
}

static void draw_sequences(struct draw *draw, struct state_place *place)
{
    struct testcase *testcase = draw->testcase;
    const struct testcase_step *step = &draw->wanted->step;
    bool each_has_one = !step->sequences && kernel_loads_most(draw->wanted->load) == 1;
    int tokens = each_has_one ? draw_size(draw, 1, STATE_SEQUENCES_MAX, 1) : draw_tokens(draw, 64);
    int least = each_has_one ? tokens : 1, most = tokens < STATE_SEQUENCES_MAX ? tokens : STATE_SEQUENCES_MAX;
    int count = step->sequences ? step->sequences : draw_size(draw, least, most, 1), largest = 0;
    int32_t *positions = ARENA_NEW(&testcase->arena, int32_t, tokens);
    struct batch_sequence *sequences = step->sequences ? ARENA_NEW(&testcase->arena, struct batch_sequence, count)
                                                       : testcase->sequence;
    for (int s = 0; s < count; s++) {
        int first = tokens * s / count, end = tokens * (s + 1) / count;
        sequences[s] = (struct batch_sequence){ .first = first, .count = end - first };
        largest = end - first > largest ? end - first : largest;
    }
    place->page_tokens = (largest + LARGE_OLD + KV_PAGE_TOKENS) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    place->class_index = CLASS;
    testcase->batch =
        (struct batch){ .tokens = tokens, .positions = positions, .sequences = count, .sequence = sequences };
    testcase->batch.page_tokens[CLASS] = place->page_tokens;
    draw_tables(draw, sequences, positions, place->page_tokens);
}

// The pool, with the states that the sequences go on from.
static void draw_pool(struct draw *draw, struct state_place *place)
{
    struct testcase *testcase = draw->testcase;
    int layers = draw_size(draw, 1, 3, 1), count = testcase->batch.sequences;
    size_t layer_bytes = place->layout.layer_bytes, values = layer_bytes / sizeof(float);
    place->page_bytes = (size_t)layers * layer_bytes;
    place->layer_offset = (size_t)draw_size(draw, 0, layers - 1, 0) * layer_bytes;
    place->pool = draw_output_bytes(draw, (size_t)(2 * count + SPARE_PAGES) * place->page_bytes, (int)values);
    for (int s = 0; s < count; s++) {
        uint8_t *before = (uint8_t *)state_before(place, &testcase->batch, &testcase->batch.sequence[s]);
        if (before)
            memcpy(before, draw_values(draw, 1, (int)values), layer_bytes);
    }
}

void draw_conv(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct conv_args *args = &testcase->args.conv;
    int most = draw->kernel->conv_kernel_max ? draw->kernel->conv_kernel_max : CONV_KERNEL_MAX;
    int inputs = draw_size(draw, 1, draw_coin(draw) ? most - 1 : 3, 3);
    int channels = draw_size(draw, 1, 300, 6144);
    args->state.layout = kv_state_make(inputs, channels, 1, draw_size(draw, 1, 9, 1), 1);
    draw_sequences(draw, &args->state);
    int tokens = testcase->batch.tokens;
    args->batch = &testcase->batch;
    args->x = draw_values(draw, tokens, channels);
    args->out = draw_output(draw, tokens, channels);
    args->kernel = draw_values(draw, inputs + 1, channels);
    args->bias = draw_coin(draw) ? draw_values(draw, 1, channels) : NULL;
    draw_pool(draw, &args->state);
    testcase->bytes_moved += 2 * (size_t)testcase->batch.sequences * (size_t)(inputs * channels) * sizeof(float);
}

// Draws a decay (A) of each head that is at most 0, so that no state grows.
static const float *draw_decay(struct draw *draw, int heads)
{
    float *a = draw_values(draw, 1, heads);
    for (int i = 0; i < heads; i++)
        a[i] = -fabsf(a[i]);
    return a;
}

// The next number that the row's multiple divides.
static int rounded(const struct draw *draw, int count)
{
    int multiple = draw->kernel->keys_multiple ? draw->kernel->keys_multiple : 1;
    return (count + multiple - 1) / multiple * multiple;
}

static int draw_keys(struct draw *draw, int most, int large)
{
    int keys_max = draw->kernel->keys_max;
    return rounded(draw, draw_size(draw, 1, keys_max && keys_max < most ? keys_max : most, large));
}

void draw_ssm_scan(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct ssm_scan_args *args = &testcase->args.ssm_scan;
    int groups = draw_size(draw, 1, 3, 8), heads = groups * draw_size(draw, 1, 3, 8);
    int keys = draw_keys(draw, 70, 128), values = draw_size(draw, 1, 90, 64);
    args->state.layout = kv_state_make(draw_size(draw, 1, 4, 3), draw_size(draw, 1, 30, 1), heads, keys, values);
    args->groups = groups;
    draw_sequences(draw, &args->state);
    int tokens = testcase->batch.tokens, width = heads * values + 2 * groups * keys;
    args->batch = &testcase->batch;
    args->a = draw_decay(draw, heads);
    args->d = draw_values(draw, 1, heads);
    args->dt_bias = draw_values(draw, 1, heads);
    args->dt_min = draw_coin(draw) ? 0.5f : 0;
    args->dt_max = draw_coin(draw) ? 1.5f : INFINITY;
    args->mixed = draw_values(draw, tokens, width);
    args->dt = draw_values(draw, tokens, heads);
    args->out = draw_output(draw, tokens, heads * values);
    draw_pool(draw, &args->state);
    testcase->bytes_moved += 2 * (size_t)testcase->batch.sequences * (size_t)(heads * keys * values) * sizeof(float);
    testcase->flops += 6.0 * tokens * heads * keys * values;
}

void draw_gated_delta(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct gated_delta_args *args = &testcase->args.gated_delta;
    int groups = draw_size(draw, 1, 3, 16), heads = groups * draw_size(draw, 1, 3, 2);
    int keys = draw_keys(draw, 140, 128), values = rounded(draw, draw_size(draw, 1, 90, 128));
    args->state.layout = kv_state_make(draw_size(draw, 1, 4, 3), draw_size(draw, 1, 30, 1), heads, keys, values);
    args->groups = groups;
    args->interleaved = draw_coin(draw);
    draw_sequences(draw, &args->state);
    int tokens = testcase->batch.tokens, width = heads * values + 2 * groups * keys;
    args->batch = &testcase->batch;
    args->a = draw_decay(draw, heads);
    args->dt_bias = draw_values(draw, 1, heads);
    args->mixed = draw_values(draw, tokens, width);
    args->dt = draw_values(draw, tokens, heads);
    args->beta = draw_values(draw, tokens, heads);
    args->out = draw_output(draw, tokens, heads * values);
    draw_pool(draw, &args->state);
    testcase->bytes_moved += 2 * (size_t)testcase->batch.sequences * (size_t)(heads * keys * values) * sizeof(float);
    testcase->flops += 7.0 * tokens * heads * keys * values;
}

// ---- what was left ----

// The operand of that role; NULL: the op has none.
static const struct state_place *find_place(const struct testcase *testcase)
{
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(testcase->op, (void *)&testcase->args, uses);
    for (int i = 0; i < count; i++)
        if (uses[i].operand->role == ROLE_STATE)
            return uses[i].member;
    return NULL;
}

bool moves_state(const struct testcase *testcase) { return find_place(testcase) != NULL; }

bool is_state(const struct testcase *testcase, int output) { return moves_state(testcase) && output == STATE_POOL; }

// The part of a layer's state that the op moves on.
static void find_part(const struct testcase *testcase, size_t *at, size_t *bytes)
{
    const struct kv_state *layout = &find_place(testcase)->layout;
    bool matrix = testcase->op != OP_CONV;
    *at = matrix ? layout->matrix_offset : 0;
    *bytes = sizeof(float)
        * (matrix ? (size_t)layout->heads * (size_t)layout->keys * (size_t)layout->values
                  : (size_t)layout->inputs * (size_t)layout->channels);
}

// A sequence's state stands at its last row; everything else is 0.
void read_state(const struct testcase *testcase, float *values)
{
    const struct state_place *place = find_place(testcase);
    size_t each = place->layout.layer_bytes / sizeof(float), at, bytes;
    find_part(testcase, &at, &bytes);
    memset(values, 0, (size_t)testcase->batch.tokens * place->layout.layer_bytes);
    for (int s = 0; s < testcase->batch.sequences; s++) {
        const struct batch_sequence *sequence = &testcase->batch.sequence[s];
        size_t row = (size_t)(sequence->first + sequence->count - 1);
        memcpy(values + row * each, state_after(place, &testcase->batch, sequence) + at, bytes);
    }
}

void undo_state(struct testcase *testcase, const uint8_t *before)
{
    const struct state_place *place = find_place(testcase);
    size_t at, bytes;
    find_part(testcase, &at, &bytes);
    for (int s = 0; s < testcase->batch.sequences; s++) {
        uint8_t *part = state_after(place, &testcase->batch, &testcase->batch.sequence[s]) + at;
        memcpy(part, before + (part - testcase->output[STATE_POOL].data), bytes);
    }
}
