// SPDX-License-Identifier: Apache-2.0
#include "kernel/check.h"

#include <math.h>
#include <string.h>

#include "kernel/fault.h"
#include "kernel/int16.h"
#include "kernel/nvfp4.h"

enum { CHECK_CHUNKS = 3, ROOMY = 3 };

static const float changed_tolerance = 0.05f; // the last bit of a rotated key may be another step of a small format

// ---- cases ----

static bool lists(uint64_t formats, int dtype) { return formats >> dtype & 1; }

// The format that comes after this one in a set, round and round.
static enum dtype next_format(uint64_t formats, enum dtype dtype)
{
    int next = dtype;
    do
        next = (next + 1) % DTYPE_COUNT;
    while (!lists(formats, next));
    return (enum dtype)next;
}

static int add_case(const struct kernel *kernel, struct testcase_options wanted, struct testcase_options *out)
{
    int count = 0;
    bool any = !kernel->sink_beside;
    bool beside = any || (lists(kernel->sink_beside, wanted.k) && lists(kernel->sink_beside, wanted.v));
    wanted.sink = beside ? kernel->sink : 0;
    static const enum kernel_load loads[] = { KERNEL_DECODE, KERNEL_PREFILL };
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        wanted.load = kernel->load & loads[i];
        if (wanted.load && testcase_is_possible(kernel, &wanted))
            out[count++] = wanted;
    }
    return count;
}

int check_cases(const struct kernel *kernel, struct testcase_options out[CHECK_CASES_MAX])
{
    int count = 0;
    uint64_t values = 0; // formats that a case has
    if (!kernel->weights && !kernel->k && !kernel->latents)
        count += add_case(kernel, (struct testcase_options){ 0 }, out);
    for (int i = 0; i < DTYPE_COUNT; i++) {
        enum dtype dtype = (enum dtype)i;
        if (lists(kernel->weights, i))
            count += add_case(kernel, (struct testcase_options){ .weight = dtype }, out + count);
        if (lists(kernel->latents, i))
            count += add_case(kernel, (struct testcase_options){ .k = dtype, .v = dtype, .latent = true }, out + count);
        if (!lists(kernel->k, i))
            continue;
        enum dtype other = next_format(kernel->v, dtype);
        if (lists(kernel->v, i))
            count += add_case(kernel, (struct testcase_options){ .k = dtype, .v = dtype }, out + count);
        if (other != dtype)
            count += add_case(kernel, (struct testcase_options){ .k = dtype, .v = other }, out + count);
        values |= (uint64_t)1 << other | (lists(kernel->v, i) ? (uint64_t)1 << i : 0);
    }
    for (int i = 0; i < DTYPE_COUNT && kernel->k; i++) // of values alone, where keys have other formats
        if (lists(kernel->v & ~values, i))
            count += add_case(
                kernel, (struct testcase_options){ .k = next_format(kernel->k, (enum dtype)i), .v = (enum dtype)i },
                out + count);
    return count;
}

int check_fused(const struct kernel *kernel, uint32_t out[CHECK_FUSED_MAX])
{
    static const uint32_t sets[] = {
        0,
        KERNEL_FUSES_NORM,
        KERNEL_FUSES_ACT_MUL,
        KERNEL_FUSES_NORM | KERNEL_FUSES_ACT_MUL,
        KERNEL_FUSES_ADD,
        KERNEL_FUSES_ROPE,
        KERNEL_FUSES_TRANSFORM,
        KERNEL_FUSES_ROPE | KERNEL_FUSES_TRANSFORM,
    };
    int count = 0;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (!(sets[i] & ~kernel->fuses))
            out[count++] = sets[i];
    return count;
}

// ---- one case ----

// Holds a copy of the outputs at some moment, as bytes, or the results of a run, as values.
struct picture {
    void *output[TESTCASE_OUTPUTS_MAX];
};

static size_t value_count(const struct testcase *testcase, int output)
{
    return (size_t)testcase_rows(testcase) * (size_t)testcase->output[output].row_values;
}

static struct picture take_bytes(struct testcase *testcase)
{
    struct picture bytes;
    for (int i = 0; i < testcase->outputs; i++)
        bytes.output[i] = memcpy(arena_new(&testcase->arena, testcase->output[i].bytes, 1), testcase->output[i].data,
                                 testcase->output[i].bytes);
    return bytes;
}

// Takes the values that a run has just written to the test case, whose outputs are then as they were `before`.
static struct picture take_values(struct testcase *testcase, const struct picture *before, bool *strayed)
{
    struct picture values;
    for (int i = 0; i < testcase->outputs; i++) {
        struct testcase_output *output = &testcase->output[i];
        values.output[i] = arena_new(&testcase->arena, value_count(testcase, i), sizeof(float));
        testcase_read(testcase, i, values.output[i]);
        testcase_undo(testcase, i, before->output[i]);
        *strayed |= memcmp(output->data, before->output[i], output->bytes) != 0;
        memcpy(output->data, before->output[i], output->bytes);
    }
    *strayed |= !testcase_guards_intact(testcase);
    return values;
}

// The last chunk comes first.
static struct picture run_call(struct testcase *testcase, struct kernel_call call, int chunks,
                               const struct picture *before, bool *strayed)
{
    for (int chunk = chunks - 1; chunk >= 0 && call.prepare; chunk--)
        call.prepare(call.args, chunk, chunks);
    for (int chunk = chunks - 1; chunk >= 0; chunk--)
        call.run(call.args, chunk, chunks);
    return take_values(testcase, before, strayed);
}

static void round_nvfp4(const float *x, size_t count, float *rounded)
{
    for (size_t i = 0; i + NVFP4_RUN <= count; i += NVFP4_RUN) {
        uint8_t codes[NVFP4_RUN / 2];
        float scale = e4m3_to_f32(nvfp4_round(x + i, codes));
        for (int j = 0; j < NVFP4_RUN; j++)
            rounded[i + (size_t)j] = scale * e2m1_to_f32(codes[j / 2] >> j % 2 * 4 & 15);
    }
}

// The input of a linear, or of experts, as kernels see it that round it to 16, 8 or 4 bits.
static const float *rounded_input(struct testcase *testcase, const struct kernel *kernel, const float *x, size_t count)
{
    float *rounded = ARENA_NEW(&testcase->arena, float, count);
    if (kernel->nvfp4)
        return round_nvfp4(x, count, rounded), rounded;
    for (size_t i = 0; i + INT8_BLOCK <= count; i += INT8_BLOCK) {
        int8_t codes[INT8_BLOCK], low[INT8_BLOCK];
        float scale = kernel->int8 ? int8_round(x + i, codes) : int16_round(x + i, codes, low);
        for (int j = 0; j < INT8_BLOCK; j++)
            rounded[i + (size_t)j] = scale * (float)(kernel->int8 ? codes[j] : codes[j] * (1 << INT16_SHIFT) + low[j]);
    }
    return rounded;
}

// Runs the ops that change keys in place before they are stored, on a copy: the test case is to keep them.
static void run_before_storing(const struct testcase *testcase, struct kv_write_args *args, struct arena *arena,
                               int chunk, int chunks)
{
    const struct kv_side *side = &args->cache.layout.k;
    size_t count = (size_t)(testcase->batch.tokens * side->heads * side->dim);
    float *k = ARENA_NEW(arena, float, count);
    if (!args->rope && !args->transform)
        return;
    args->k = memcpy(k, args->k, count * sizeof *k);
    if (args->rope) {
        struct rope_args rope = *args->rope;
        rope.k = k;
        kernel_reference(OP_ROPE)->run(&rope, chunk, chunks);
    }
    if (args->transform) {
        struct transform_args transform = *args->transform;
        transform.k = k;
        kernel_reference(OP_TRANSFORM)->run(&transform, chunk, chunks);
    }
}

// The reference of a linear's fused neighbours, before or after it.
static void run_fused(enum op_kind op, union op_args *args, enum operand_role role, int chunk, int chunks)
{
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(op, args, uses);
    for (int i = 0; i < count; i++)
        if (uses[i].operand->role == role && *operand_pointer(&uses[i]))
            kernel_reference((enum op_kind)uses[i].operand->fused)->run(*operand_pointer(&uses[i]), chunk, chunks);
}

// The op of a test case as it is defined, with the neighbours that a kernel fuses.
static void run_defined(const void *arguments, int chunk, int chunks)
{
    const struct testcase *testcase = arguments;
    union op_args args = testcase->args;
    const struct kernel *reference = kernel_reference(testcase->op);
    struct arena arena = { 0 };
    if (testcase->op == OP_KV_WRITE)
        run_before_storing(testcase, &args.kv_write, &arena, chunk, chunks);
    else
        run_fused(testcase->op, &args, ROLE_FUSED_BEFORE, chunk, chunks);
    if (reference->prepare)
        reference->prepare(&args, chunk, chunks);
    reference->run(&args, chunk, chunks);
    run_fused(testcase->op, &args, ROLE_FUSED_AFTER, chunk, chunks);
    arena_free(&arena);
}

// The first operand of that role; there is one.
static int find_role(const struct operand_use *uses, enum operand_role role)
{
    int i = 0;
    while (uses[i].operand->role != role)
        i++;
    return i;
}

// The reference's results. Where the kernel says that it rounds activations, they are rounded for the reference, too,
// for the matrices whose format is read so: a kernel is held to what it says.
static struct picture run_reference(struct testcase *testcase, const struct kernel *kernel,
                                    const struct picture *before)
{
    struct kernel_call call = { .run = run_defined, .args = testcase };
    struct picture expected = run_call(testcase, call, 1, before, &(bool){ false });
    const uint64_t rounding = kernel->int16 | kernel->int8 | kernel->nvfp4;
    if (!rounding)
        return expected;
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(testcase->op, &testcase->args, uses);
    const struct operand_use *x = &uses[find_role(uses, ROLE_IN)];
    void *exact = *operand_pointer(x);
    *operand_pointer(x) = (void *)rounded_input(testcase, kernel, exact, (size_t)testcase->rows * x->width);
    struct picture rounded = run_call(testcase, call, 1, before, &(bool){ false });
    *operand_pointer(x) = exact;
    for (int i = 0; i < count; i++)
        if (uses[i].operand->role == ROLE_WEIGHT && lists(rounding, ((const struct weight *)uses[i].member)->dtype))
            expected.output[uses[i].matrix] = rounded.output[uses[i].matrix];
    return expected;
}

static double difference(const float *found, const float *expected, size_t count)
{
    double largest = 0, difference = 0;
    for (size_t i = 0; i < count; i++) {
        double apart = memcmp(&found[i], &expected[i], sizeof *found) ? fabs((double)found[i] - expected[i]) : 0;
        difference = apart <= difference ? difference : isfinite(apart) ? apart : INFINITY;
        if (isfinite(expected[i]))
            largest = fmax(largest, fabs(expected[i]));
    }
    return difference == 0 ? 0 : largest > 0 ? difference / largest : INFINITY;
}

// Whether the first rows, as many as the test case has, are equal bit for bit.
static bool same_bits(const struct testcase *testcase, const struct picture *a, const struct picture *b)
{
    for (int i = 0; i < testcase->outputs; i++)
        if (memcmp(a->output[i], b->output[i], value_count(testcase, i) * sizeof(float)))
            return false;
    return true;
}

static double largest_difference(const struct testcase *testcase, const struct picture *found,
                                 const struct picture *expected)
{
    double largest = 0;
    for (int i = 0; i < testcase->outputs; i++)
        largest = fmax(largest, difference(found->output[i], expected->output[i], value_count(testcase, i)));
    return largest;
}

static void check_here(struct testcase *testcase, const struct kernel *kernel, const struct testcase_options *wanted,
                       struct check_result *out)
{
    struct picture before = take_bytes(testcase);
    struct kernel_call call = fault_bind(kernel, testcase_args_for(testcase, kernel), &testcase->arena);
    bool strayed = false;
    struct picture expected = run_reference(testcase, kernel, &before);
    struct picture found = run_call(testcase, call, 1, &before, &strayed);
    struct picture in_chunks = run_call(testcase, call, CHECK_CHUNKS, &before, &strayed);
    out->tolerance = op_table[kernel->op].tolerance;
    out->error = largest_difference(testcase, &found, &expected);
    bool by_chunks = !same_bits(testcase, &found, &in_chunks);
    testcase_cut(testcase, kernel_loads_least(wanted->load));
    struct picture alone = run_call(testcase, call, 1, &before, &strayed);
    bool by_neighbours = !same_bits(testcase, &found, &alone);
    out->flaw = strayed         ? "it writes beside its result"
        : !isfinite(out->error) ? "it gives NaN or infinity, and the reference does not"
        : by_chunks             ? "its bits depend on the number of threads"
        : by_neighbours         ? "a token's bits depend on the tokens beside it"
                                : NULL;
}

// ---- on a device ----

struct visit {
    const struct kernel *kernel;
    const struct check_device *device;
    const struct picture *before;
    bool strayed;
    struct error *err;
};

static bool visit_device(struct testcase *testcase, struct visit *visit, struct picture *values)
{
    if (!visit->device->run(visit->device, visit->kernel, testcase, &visit->strayed, visit->err))
        return false;
    fault_apply(visit->kernel, &testcase->args);
    *values = take_values(testcase, visit->before, &visit->strayed);
    return true;
}

// Where values are stored in few bits, the last bit of a sum may be a whole step: then all errors count together.
static double together(const float *found, const float *expected, size_t count)
{
    double apart = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        apart += ((double)found[i] - expected[i]) * ((double)found[i] - expected[i]);
        all += (double)expected[i] * expected[i];
    }
    return apart == 0 ? 0 : isfinite(apart) ? sqrt(apart / all) : INFINITY;
}

static double device_difference(const struct testcase *testcase, const struct picture *found,
                                const struct picture *expected)
{
    if (testcase->op != OP_KV_WRITE)
        return largest_difference(testcase, found, expected);
    double largest = 0;
    for (int i = 0; i < testcase->outputs; i++)
        largest = fmax(largest, together(found->output[i], expected->output[i], value_count(testcase, i)));
    return largest;
}

static int least(int a, int b) { return a < b ? a : b; }

// More room than the test case needs, as far as these loads go, on so small a device that blocks have several work
// tiles each.
static void widen(struct testcase_room *room, enum op_kind op, enum kernel_load loads)
{
    int most = kernel_loads_most(loads), all = kernel_walks_sequences(op) ? INT32_MAX : most;
    room->rows = least(ROOMY * room->rows + 1, all);
    room->tokens = least(ROOMY * room->tokens + 1, all);
    room->sequences = least(ROOMY * room->sequences, room->tokens);
    room->rows_each = least(ROOMY * room->rows_each, most);
    room->context = ROOMY * room->context;
    room->multiprocessors = 1;
}

// Runs the kernel as it is, again, in a larger step, and with other tokens left out.
static void check_there(struct testcase *testcase, const struct kernel *kernel, const struct testcase_options *wanted,
                        const struct check_device *device, struct check_result *out)
{
    testcase_round(testcase, kernel);
    struct picture before = take_bytes(testcase), found, again, roomy, alone;
    struct visit visit = { kernel, device, &before, .err = &out->trouble };
    struct picture expected = run_reference(testcase, kernel, &before);
    bool changed = wanted->fuses & (KERNEL_FUSES_ROPE | KERNEL_FUSES_TRANSFORM);
    out->tolerance = changed ? changed_tolerance : op_table[kernel->op].gpu_tolerance;
    out->error = INFINITY;
    out->flaw = "the device did not run it";
    struct testcase_room room = testcase->room;
    if (!visit_device(testcase, &visit, &found) || !visit_device(testcase, &visit, &again))
        return;
    widen(&testcase->room, testcase->op, wanted->load);
    if (!visit_device(testcase, &visit, &roomy))
        return;
    out->error = fmax(device_difference(testcase, &found, &expected), device_difference(testcase, &roomy, &expected));
    bool by_chance = !same_bits(testcase, &found, &again);
    testcase->room = room;
    // Another launch may be for sequences as short as one becomes that is cut: of attention whole ones are left out.
    int cut = kernel_loads_least(wanted->load);
    testcase_cut(testcase, testcase->op == OP_ATTENTION ? testcase->sequence[0].count : cut);
    if (!visit_device(testcase, &visit, &alone))
        return;
    bool by_neighbours = !same_bits(testcase, &found, &alone);
    out->flaw = visit.strayed   ? "it writes beside its result"
        : !isfinite(out->error) ? "it gives NaN or infinity, and the reference does not"
        : by_chance             ? "its bits change from run to run"
        : by_neighbours         ? "a token's bits depend on the tokens beside it"
                                : NULL;
}

void check_run(const struct kernel *kernel, const struct testcase_options *wanted, const struct check_device *device,
               struct check_result *out)
{
    struct testcase testcase;
    *out = (struct check_result){ 0 };
    testcase_open(&testcase, kernel, wanted);
    if (kernel->device == DEVICE_CPU)
        check_here(&testcase, kernel, wanted, out);
    else
        check_there(&testcase, kernel, wanted, device, out);
    if (kernel->tolerance > 0)
        out->tolerance = kernel->tolerance;
    if (wanted->fuses & KERNEL_FUSES_ACT_MUL) // the product of two results
        out->tolerance *= 2;
    out->ok = !out->flaw && out->error <= out->tolerance;
    testcase_close(&testcase);
}
