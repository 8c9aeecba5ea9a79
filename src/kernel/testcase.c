// SPDX-License-Identifier: Apache-2.0
#include "kernel/testcase.h"

#include <math.h>
#include <string.h>

#include "kernel/ref/experts.h"
#include "kernel/testcase_draw.h"

enum { PACKED_ALIGNMENT = 64, PACKING_CHUNKS = 2 };
enum { LARGE_BYTES = 64 << 20, LARGE_WIDTH = 4096, LARGE_ROWS = LARGE_BYTES / LARGE_WIDTH / 4, GPU_LARGE_OUT = 28672 };

static int least(int a, int b) { return a < b ? a : b; }

static int greater(int a, int b) { return a > b ? a : b; }

// ---- any op, by the table ----

// The most columns that one of the ranks has.
static size_t columns_max(int width, int ranks)
{
    int units = (width + ALL_GATHER_UNIT - 1) / ALL_GATHER_UNIT;
    return (size_t)((units + ranks - 1) / ranks * ALL_GATHER_UNIT);
}

// The expressions of kernel/op.h use these macros. Each is a statement of its own: the order of draws is the list's.
#define WIDE LARGE_WIDTH
#define between(low, high, large) draw_size(draw, low, high, large)
#define coin draw_coin(draw)
#define DRAW(member, planned, drawn) a->member = drawn;
#define DRAWN_BY_OWN(member, planned)
#define DRAW_NUMBERS(id, word, ...)                         \
    static void draw_numbers_of_##word(struct draw *draw)   \
    {                                                       \
        const struct kernel *kernel = draw->kernel;         \
        struct word##_args *a = &draw->testcase->args.word; \
        (void)a, (void)kernel;                              \
        id##_NUMBERS(DRAW, DRAWN_BY_OWN)                    \
    }
OPS(DRAW_NUMBERS)
#undef between
#undef coin

static void draw_numbers(struct draw *draw)
{
#define ENTRY(id, word, ...) [OP_##id] = draw_numbers_of_##word,
    static void (*const numbers[OP_COUNT])(struct draw *) = { OPS(ENTRY) };
    numbers[draw->testcase->op](draw);
}

// The rows or the batch, which numbers may depend on.
static void draw_rows(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(testcase->op, &testcase->args, uses);
    for (int i = 0; i < count; i++)
        if (uses[i].operand->role == ROLE_ROWS) {
            *operand_pointer(&uses[i]) = &testcase->rows;
        } else if (uses[i].operand->role == ROLE_BATCH) {
            draw_batch(draw, draw_tokens(draw, LARGE_ROWS), 1);
            *operand_pointer(&uses[i]) = &testcase->batch;
        }
}

static int count_rows(const struct testcase *testcase, enum operand_rows rows)
{
    return rows == WHOLE ? 1 : rows == PER_TOKEN ? testcase->batch.tokens : testcase_rows(testcase);
}

static float *draw_vector(struct draw *draw, const struct operand_use *use)
{
    int width = (int)use->width;
    return use->operand->slot == SLOT_FREQUENCIES ? draw_frequencies(draw, width) : draw_values(draw, 1, width);
}

// Memory for an operand, with what is in it before the op runs.
static void *draw_operand(struct draw *draw, const struct operand_use *use, bool in_place)
{
    int rows = count_rows(draw->testcase, use->operand->rows), width = (int)use->width;
    switch (use->operand->role) {
    case ROLE_IN: return draw_values(draw, rows, width);
    case ROLE_OUT: return in_place ? draw_output_in_place(draw, rows, width) : draw_output(draw, rows, width);
    case ROLE_INOUT:
    case ROLE_SUM: return draw_output_in_place(draw, rows, width);
    case ROLE_VECTOR: return draw_vector(draw, use);
    case ROLE_OPTIONAL: return draw_coin(draw) ? draw_vector(draw, use) : NULL;
    default: return *operand_pointer(use);
    }
}

// Once the numbers are drawn. The result takes the place of the input of that name; NULL: it has a place of its own.
static void draw_operands(struct draw *draw, const char *replaced)
{
    struct operand_use uses[OP_OPERANDS_MAX], *input = NULL;
    int count = op_operands(draw->testcase->op, &draw->testcase->args, uses);
    for (int i = 0; i < count; i++)
        if (replaced && !strcmp(uses[i].operand->name, replaced))
            input = &uses[i];
        else
            *operand_pointer(&uses[i]) = draw_operand(draw, &uses[i], replaced);
    for (int i = 0; i < count && input; i++)
        if (uses[i].operand->role == ROLE_OUT)
            *operand_pointer(input) = *operand_pointer(&uses[i]);
}

static void draw_by_table(struct draw *draw)
{
    draw_rows(draw);
    draw_numbers(draw);
    draw_operands(draw, NULL);
}

// ---- ops whose result may take the place of an input ----

static void draw_norm(struct draw *draw)
{
    struct norm_args *args = &draw->testcase->args.norm;
    uint64_t x = draw->kernel->x; // what the row reads; 0: anything
    bool in_place = draw_coin(draw) && x != DTYPE_BIT(F32);
    draw_rows(draw);
    draw_numbers(draw);
    args->gap = in_place && draw_coin(draw) ? 8 * draw_size(draw, 1, 9, 0) : 0;
    args->f32_x = x ? x == DTYPE_BIT(F32) : !in_place; // as in models: what is normed in place are heads and results
    draw_operands(draw, in_place ? "x" : NULL);
}

static void draw_act_mul(struct draw *draw)
{
    bool in_place = draw_coin(draw);
    draw_rows(draw);
    draw_numbers(draw);
    bool sigmoid = draw->testcase->args.act_mul.act == ACT_SIGMOID; // in models it replaces what it gates
    draw_operands(draw, in_place ? sigmoid ? "up" : "gate" : NULL);
}

// ---- ops with weights ----

static void draw_embed(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct embed_args *args = &testcase->args.embed;
    enum dtype dtype = draw->wanted->weight;
    int block = dtype_table[dtype].block, vocabulary = draw_size(draw, 1, 50, LARGE_WIDTH);
    int width = block * draw_size(draw, 1, block > 1 ? 4 : 100, LARGE_WIDTH / block);
    int rest = draw_size(draw, 0, 10, 0); // tokens after those of the table
    args->first = draw_size(draw, 0, 10, 0);
    draw_batch(draw, draw_tokens(draw, LARGE_ROWS), args->first + vocabulary + rest);
    args->batch = &testcase->batch;
    args->table = draw_weight(draw, dtype, vocabulary, width);
    args->scale = draw_coin(draw) ? sqrtf((float)width) : 1;
    args->out = draw_output(draw, testcase->batch.tokens, width);
    testcase->bytes_moved += dtype_bytes(dtype, (size_t)testcase->batch.tokens * (size_t)width);
}

enum dtype draw_matrix_dtype(struct draw *draw, int index, int in)
{
    int start = draw_size(draw, 0, DTYPE_COUNT - 1, 0);
    for (int i = 0; index && i < DTYPE_COUNT; i++) {
        enum dtype other = (enum dtype)((start + i) % DTYPE_COUNT);
        if (draw->kernel->weights >> other & 1 && in % dtype_table[other].block == 0)
            return other;
    }
    return draw->wanted->weight;
}

static int draw_linear_rows(struct draw *draw, enum dtype dtype)
{
    bool decode = draw_is_decode(draw);
    int multiple = greater(draw->kernel->rows_multiple, 1);
    if (draw->kernel->device == DEVICE_CUDA)
        return multiple * draw_size(draw, 1, (draw_is_short(draw) ? 160 : 300) / multiple, GPU_LARGE_OUT / multiple);
    return draw_size(draw, 1, 40, decode ? LARGE_BYTES / (int)dtype_bytes(dtype, LARGE_WIDTH) : 1024);
}

// Between an op and a fused neighbour.
static float *new_values(struct draw *draw, int rows, int width)
{
    return ARENA_NEW(&draw->testcase->arena, float, (size_t)rows *(size_t)width);
}

static void draw_linear_output(struct draw *draw, int index, int in, int rows)
{
    struct testcase *testcase = draw->testcase;
    struct linear_output *output = &testcase->args.linear.output[index];
    bool passes_on = draw->wanted->fuses & (KERNEL_FUSES_ACT_MUL | KERNEL_FUSES_ADD);
    output->weight = draw_weight(draw, draw_matrix_dtype(draw, index, in), rows, in);
    output->bias = draw_coin(draw) ? draw_values(draw, 1, rows) : NULL;
    output->y = (passes_on ? new_values : draw_row_output)(draw, testcase->rows, rows);
    testcase->bytes_moved += dtype_bytes(output->weight.dtype, (size_t)rows * (size_t)in);
    testcase->flops += 2.0 * testcase->rows * rows * in;
}

// Draws the fused neighbours of a linear. If it has two outputs, the first is the gate.
static void draw_linear_neighbours(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct linear_args *args = &testcase->args.linear;
    const struct linear_output *output = args->output;
    uint32_t fuses = draw->wanted->fuses;
    if (fuses & KERNEL_FUSES_NORM) {
        testcase->before.norm = (struct norm_args){ .rows = &testcase->rows,
                                                    .x = args->x,
                                                    .groups = 1,
                                                    .width = args->in,
                                                    .weight = draw_values(draw, 1, args->in),
                                                    .epsilon = 1e-5f,
                                                    .f32_x = true,
                                                    .out = new_values(draw, testcase->rows, args->in) };
        args->norm = &testcase->before.norm;
        args->x = args->norm->out;
    }
    if (fuses & KERNEL_FUSES_ACT_MUL) {
        testcase->after.act_mul = (struct act_mul_args){ .rows = &testcase->rows,
                                                         .gate = output[0].y,
                                                         .up = output[1].y,
                                                         .out = draw_output(draw, testcase->rows,
                                                                            output[0].weight.rows),
                                                         .width = output[0].weight.rows,
                                                         .act = draw_coin(draw) ? ACT_GELU_TANH : ACT_SILU };
        args->act_mul = &testcase->after.act_mul;
    } else if (fuses & KERNEL_FUSES_ADD) {
        testcase->after.add = (struct add_args){ .rows = &testcase->rows,
                                                 .y = output[0].y,
                                                 .width = output[0].weight.rows,
                                                 .x = draw_output_in_place(draw, testcase->rows,
                                                                           output[0].weight.rows) };
        args->add = &testcase->after.add;
    }
}

static void draw_linear(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct linear_args *args = &testcase->args.linear;
    enum dtype dtype = draw->wanted->weight;
    uint32_t fuses = draw->wanted->fuses;
    int block = greater(dtype_table[dtype].block, draw->kernel->cols_multiple);
    testcase->rows = draw_tokens(draw, 64);
    args->rows = &testcase->rows;
    args->in = block * draw_size(draw, 1, block > 1 ? (512 + block) / block : 400, LARGE_WIDTH / block);
    args->x = draw_row_values(draw, testcase->rows, args->in);
    args->outputs = draw_size(draw, 1, LINEAR_OUTPUTS_MAX, 1);
    if (fuses & (KERNEL_FUSES_ACT_MUL | KERNEL_FUSES_ADD))
        args->outputs = fuses & KERNEL_FUSES_ACT_MUL ? 2 : 1;
    args->f32_y = args->outputs == 1 && testcase->rows % 2;
    int rows = 0;
    for (int i = 0; i < args->outputs; i++) {
        if (i == 0 || !(fuses & KERNEL_FUSES_ACT_MUL))
            rows = draw_linear_rows(draw, dtype);
        draw_linear_output(draw, i, args->in, rows);
    }
    draw_linear_neighbours(draw);
}

static void draw_per_head_linear(struct draw *draw)
{
    struct testcase *testcase = draw->testcase;
    struct per_head_linear_args *args = &testcase->args.per_head_linear;
    enum dtype dtype = draw->wanted->weight;
    int block = dtype_table[dtype].block;
    bool wide = draw_coin(draw);
    testcase->rows = draw_tokens(draw, 64);
    args->rows = &testcase->rows;
    args->heads = draw_size(draw, 1, 5, 128);
    args->in = block * draw_size(draw, 1, wide ? HEAD_DIM_MAX / block : (140 + block) / block, 128 / block);
    args->out = draw_size(draw, 1, wide ? 70 : 300, HEAD_DIM_MAX);
    args->rest = draw_coin(draw) ? 0 : draw_size(draw, 1, 64, 64);
    args->x = draw_values(draw, testcase->rows, args->heads * (args->in + args->rest));
    args->y = draw_output(draw, testcase->rows, args->heads * (args->out + args->rest));
    args->weight = draw_weight(draw, dtype, args->heads * args->out, args->in);
    testcase->bytes_moved += dtype_bytes(dtype, (size_t)args->heads * (size_t)args->out * (size_t)args->in);
    testcase->flops += 2.0 * testcase->rows * args->heads * args->out * args->in;
}

// Ops that need more than the table says; the others are drawn by it.
static void (*const drawers[OP_COUNT])(struct draw *) = {
    [OP_EMBED] = draw_embed,         [OP_NORM] = draw_norm,
    [OP_LINEAR] = draw_linear,       [OP_PER_HEAD_LINEAR] = draw_per_head_linear,
    [OP_TRANSFORM] = draw_transform, [OP_KV_WRITE] = draw_kv_write,
    [OP_ATTENTION] = draw_attention, [OP_ACT_MUL] = draw_act_mul,
    [OP_ROUTE] = draw_route,         [OP_EXPERTS] = draw_experts,
    [OP_COMBINE] = draw_combine,     [OP_CONV] = draw_conv,
    [OP_SSM_SCAN] = draw_ssm_scan,   [OP_GATED_DELTA] = draw_gated_delta,
};

// Activations that are read and written, each once, in the type that they have on the kernel's device.
static size_t count_bytes(const struct testcase *testcase, const struct kernel *kernel)
{
    struct operand_use uses[OP_OPERANDS_MAX];
    size_t bytes = 0;
    int count = op_operands(testcase->op, (void *)&testcase->args, uses);
    for (int i = 0; i < count; i++) {
        enum operand_role role = uses[i].operand->role;
        bool half = uses[i].type == VALUE_BF16 && kernel->device != DEVICE_CPU;
        size_t passes = (size_t)role_reads(role) + role_writes(role);
        bytes += passes * (size_t)count_rows(testcase, uses[i].operand->rows) * uses[i].width * (half ? 2 : 4);
    }
    return bytes;
}

// A step with just the test case in it.
static struct testcase_room room_of(const struct testcase *testcase)
{
    const struct batch *batch = &testcase->batch;
    struct testcase_room room = { .rows = testcase_rows(testcase),
                                  .tokens = batch->tokens,
                                  .sequences = batch->sequences };
    for (int i = 0; i < batch->sequences; i++)
        room.rows_each = greater(room.rows_each, batch->sequence[i].count);
    for (int i = 0; i < batch->tokens; i++)
        room.context = greater(room.context, batch->positions[i] + 1);
    if (!batch->tokens)
        room.tokens = testcase->rows;
    return room;
}

// Whether no more of it is made than has to be: a step may have gigabytes of rows.
static bool is_repeated(const struct kernel *kernel, const struct testcase_options *wanted)
{
    return wanted->step.sequences && (kernel->op == OP_ATTENTION || kernel->op == OP_LINEAR);
}

void testcase_open(struct testcase *testcase, const struct kernel *kernel, const struct testcase_options *wanted)
{
    struct draw draw = { testcase, kernel, wanted, wanted->seed };
    *testcase = (struct testcase){ .op = kernel->op, .repeats = is_repeated(kernel, wanted) };
    draw.is_long = kernel->device != DEVICE_CPU && wanted->size == TESTCASE_VARIED && draw_coin(&draw)
        && draw_coin(&draw);
    testcase->rows = draw_tokens(&draw, LARGE_ROWS);
    (drawers[kernel->op] ? drawers[kernel->op] : draw_by_table)(&draw);
    testcase->bytes_moved += count_bytes(testcase, kernel);
    testcase->room = room_of(testcase);
}

void testcase_close(struct testcase *testcase) { arena_free(&testcase->arena); }

static void *new_aligned(struct arena *arena, size_t bytes)
{
    uintptr_t memory = (uintptr_t)arena_new(arena, bytes + PACKED_ALIGNMENT, 1);
    return (void *)((memory + PACKED_ALIGNMENT - 1) / PACKED_ALIGNMENT * PACKED_ALIGNMENT);
}

struct packing_work {
    const struct kernel_packing *packing;
    struct weight weight;
    uint8_t *out;
};

static void pack_chunk(void *context, int step, int chunk, int chunks)
{
    const struct packing_work *work = context;
    (void)step;
    work->packing->pack(&work->weight, chunk, chunks, work->out);
}

// Packs `count` matrices that are not to be read as the file has them, one after the other.
static void bind_weight(struct testcase *testcase, const struct kernel *kernel, struct weight *weight, int count)
{
    if (!kernel->packing)
        return;
    size_t bytes = kernel->packing->bytes(weight->dtype, weight->rows, weight->cols);
    uint8_t *packed = new_aligned(&testcase->arena, bytes * (size_t)count);
    struct packing_work work = { kernel->packing, *weight, packed };
    for (int i = 0; i < count; i++, work.out += bytes) {
        if (testcase->pool)
            thread_pool_run(testcase->pool, &(struct thread_pool_work){ pack_chunk, &work, .steps = 1 });
        for (int chunk = 0; chunk < PACKING_CHUNKS && !testcase->pool; chunk++)
            pack_chunk(&work, 0, chunk, PACKING_CHUNKS);
        work.weight.data = (const char *)work.weight.data
            + dtype_bytes(weight->dtype, (size_t)weight->rows * (size_t)weight->cols);
    }
    weight->data = packed;
}

size_t draw_scratch_bytes(const struct testcase *testcase, const struct kernel *kernel)
{
    const struct testcase_room *room = &testcase->room;
    struct kernel_extent extent = { .rows = room->rows, .sequences = room->sequences, .context = room->context };
    if (!kernel->scratch_bytes)
        return 0;
    if (testcase->op == OP_EXPERTS) {
        const struct experts_args *args = &testcase->args.experts;
        extent.rows *= args->routes.top_k;
        extent.width = args->in;
        for (int i = 0; i < args->outputs; i++)
            extent.weights |= (uint64_t)1 << args->output[i].weight.dtype;
    } else if (testcase->op == OP_LINEAR) {
        const struct linear_args *args = &testcase->args.linear;
        extent.width = args->in;
        for (int i = 0; i < args->outputs; i++)
            extent.weights |= (uint64_t)1 << args->output[i].weight.dtype;
    } else {
        const struct attention_args *args = &testcase->args.attention;
        extent.heads = args->heads;
        extent.width = args->heads * args->cache.layout.v.dim;
    }
    return kernel->scratch_bytes(&extent);
}

static void *copy(struct testcase *testcase, const void *args, size_t bytes)
{
    return args ? memcpy(arena_new(&testcase->arena, bytes, 1), args, bytes) : NULL;
}

union op_args *testcase_copy_args(struct testcase *testcase, const union op_args *args)
{
    union op_args *copied = copy(testcase, args, sizeof *args);
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(testcase->op, copied, uses);
    for (int i = 0; i < count; i++)
        if (uses[i].operand->role == ROLE_FUSED_BEFORE || uses[i].operand->role == ROLE_FUSED_AFTER)
            *operand_pointer(&uses[i]) = copy(testcase, *operand_pointer(&uses[i]), sizeof *args);
    return copied;
}

union op_args *testcase_args_for(struct testcase *testcase, const struct kernel *kernel)
{
    union op_args *args = testcase_copy_args(testcase, &testcase->args);
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(testcase->op, args, uses);
    size_t bytes = draw_scratch_bytes(testcase, kernel);
    size_t here = kernel->device == DEVICE_CPU || !bytes ? bytes : 1; // an address that the host does not use
    for (int i = 0; i < count; i++)
        if (uses[i].operand->role == ROLE_SCRATCH && bytes)
            *operand_pointer(&uses[i]) = memset(new_aligned(&testcase->arena, here), NOTHING, here);
        else if (uses[i].operand->role == ROLE_WEIGHT)
            bind_weight(testcase, kernel, uses[i].member, (int)uses[i].width);
    return args;
}

int testcase_rows(const struct testcase *testcase)
{
    int count;
    const struct operand *operands = op_table[testcase->op].list(&count);
    for (int i = 0; i < count; i++)
        if (operands[i].rows == PER_OUTPUT)
            return testcase->batch.outputs;
    return testcase->batch.tokens ? testcase->batch.tokens : testcase->rows;
}

void testcase_cut(struct testcase *testcase, int tokens)
{
    struct batch *batch = &testcase->batch;
    if (moves_state(testcase)) // what a sequence leaves depends on all its rows
        tokens = testcase->sequence[0].count;
    testcase->rows = least(testcase->rows, tokens);
    batch->tokens = least(batch->tokens, tokens);
    batch->outputs = least(batch->outputs, tokens);
    while (batch->sequences && testcase->sequence[batch->sequences - 1].first >= tokens)
        batch->sequences--;
    for (int i = 0; i < batch->sequences; i++)
        testcase->sequence[i].count = least(testcase->sequence[i].count, tokens - testcase->sequence[i].first);
    if (testcase->op == OP_EXPERTS)
        experts_order(&testcase->args.experts.routes, testcase->rows);
}

static size_t result_bytes(const struct testcase *testcase, int output)
{
    return (size_t)testcase_rows(testcase) * (size_t)testcase->output[output].row_values * sizeof(float);
}

static bool is_pages(const struct testcase *testcase, int output) { return testcase->op == OP_KV_WRITE && output == 0; }

void testcase_read(const struct testcase *testcase, int output, float *values)
{
    if (is_pages(testcase, output))
        read_kv_write(testcase, values);
    else if (is_order(testcase, output))
        read_order(testcase, output, values);
    else if (is_state(testcase, output))
        read_state(testcase, values);
    else
        memcpy(values, testcase->output[output].data, result_bytes(testcase, output));
}

void testcase_undo(struct testcase *testcase, int output, const uint8_t *before)
{
    if (is_pages(testcase, output))
        undo_kv_write(testcase, before);
    else if (is_order(testcase, output))
        memcpy(testcase->output[output].data, before, testcase->output[output].bytes);
    else if (is_state(testcase, output))
        undo_state(testcase, before);
    else
        memcpy(testcase->output[output].data, before, result_bytes(testcase, output));
}
