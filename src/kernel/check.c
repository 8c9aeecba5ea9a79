// SPDX-License-Identifier: Apache-2.0
#include "kernel/check.h"

#include <math.h>
#include <string.h>

#include "kernel/fault.h"
#include "kernel/int16.h"
#include "kernel/nvfp4.h"

enum { CHECK_PARTS = 3, ROOMY = 3 };

// Sums may run in another order and exponentials be computed in another way; what moves or stores numbers is exact.
static const float tolerances[OP_COUNT] = {
    [OP_EMBED] = 1e-6f,   [OP_NORM] = 1e-5f,      [OP_LINEAR] = 1e-5f,          [OP_ROPE] = 1e-5f,
    [OP_KV_WRITE] = 0,    [OP_ATTENTION] = 2e-5f, [OP_ACT_MUL] = 1e-5f,         [OP_ADD] = 0,
    [OP_PICK] = 0,        [OP_SOFTCAP] = 1e-5f,   [OP_ROUTE] = 1e-5f,           [OP_EXPERTS] = 1e-5f,
    [OP_COMBINE] = 1e-5f, [OP_COPY] = 0,          [OP_PER_HEAD_LINEAR] = 1e-5f, [OP_TRANSFORM] = 0,
    [OP_CONV] = 1e-5f,    [OP_SSM_SCAN] = 0,      [OP_GATED_DELTA] = 1e-5f,     [OP_ALL_REDUCE] = 0,
    [OP_ALL_GATHER] = 0,
};

// On a GPU results are bfloat16, and so is what tensor cores multiply; the stream and the logits are f32.
static const float gpu_tolerances[OP_COUNT] = {
    [OP_EMBED] = 1e-6f,    [OP_NORM] = 0.005f,     [OP_LINEAR] = 0.01f,          [OP_ROPE] = 0.005f,
    [OP_KV_WRITE] = 0.01f, [OP_ATTENTION] = 0.01f, [OP_ACT_MUL] = 0.005f,        [OP_ADD] = 1e-6f,
    [OP_PICK] = 0,         [OP_SOFTCAP] = 1e-3f,   [OP_ROUTE] = 1e-5f,           [OP_EXPERTS] = 0.01f,
    [OP_COMBINE] = 0.005f, [OP_COPY] = 0.005f,     [OP_PER_HEAD_LINEAR] = 0.01f, [OP_TRANSFORM] = 0.005f,
    [OP_CONV] = 0.005f,    [OP_SSM_SCAN] = 0.005f, [OP_GATED_DELTA] = 0.005f,    [OP_ALL_REDUCE] = 0.005f,
    [OP_ALL_GATHER] = 0,
};
static const float changed_tolerance = 0.05f; // the last bit of a turned key may be another step of a small format

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

static int add_case(const struct kernel *kernel, struct sample_case wanted, struct sample_case *out)
{
    int count = 0;
    bool any = !kernel->sink_beside;
    bool beside = any || (lists(kernel->sink_beside, wanted.k) && lists(kernel->sink_beside, wanted.v));
    wanted.sink = beside ? kernel->sink : 0;
    static const enum kernel_load loads[] = { KERNEL_DECODE, KERNEL_PREFILL };
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        wanted.load = kernel->load & loads[i];
        if (wanted.load && sample_is_possible(kernel, &wanted))
            out[count++] = wanted;
    }
    return count;
}

int check_cases(const struct kernel *kernel, struct sample_case out[CHECK_CASES_MAX])
{
    int count = 0;
    if (!kernel->weights && !kernel->k && !kernel->latents)
        count += add_case(kernel, (struct sample_case){ 0 }, out);
    for (int i = 0; i < DTYPE_COUNT; i++) {
        enum dtype dtype = (enum dtype)i;
        if (lists(kernel->weights, i))
            count += add_case(kernel, (struct sample_case){ .weight = dtype }, out + count);
        if (lists(kernel->latents, i))
            count += add_case(kernel, (struct sample_case){ .k = dtype, .v = dtype, .latent = true }, out + count);
        if (!lists(kernel->k, i))
            continue;
        enum dtype other = next_format(kernel->v, dtype);
        if (lists(kernel->v, i))
            count += add_case(kernel, (struct sample_case){ .k = dtype, .v = dtype }, out + count);
        if (other != dtype)
            count += add_case(kernel, (struct sample_case){ .k = dtype, .v = other }, out + count);
    }
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

// What the outputs held at some moment, as bytes, or what a run made of them, as values.
struct picture {
    void *output[SAMPLE_OUTPUTS_MAX];
};

static size_t value_count(const struct sample *sample, int output)
{
    return (size_t)sample_rows(sample) * (size_t)sample->output[output].row_values;
}

static struct picture take_bytes(struct sample *sample)
{
    struct picture bytes;
    for (int i = 0; i < sample->outputs; i++)
        bytes.output[i] = memcpy(arena_new(&sample->arena, sample->output[i].bytes, 1), sample->output[i].data,
                                 sample->output[i].bytes);
    return bytes;
}

// What has just been written to the sample, which is then as it was `before`.
static struct picture take_values(struct sample *sample, const struct picture *before, bool *strayed)
{
    struct picture values;
    for (int i = 0; i < sample->outputs; i++) {
        struct sample_output *output = &sample->output[i];
        values.output[i] = arena_new(&sample->arena, value_count(sample, i), sizeof(float));
        sample_read(sample, i, values.output[i]);
        sample_undo(sample, i, before->output[i]);
        *strayed |= memcmp(output->data, before->output[i], output->bytes) != 0;
        memcpy(output->data, before->output[i], output->bytes);
    }
    *strayed |= !sample_guards_intact(sample);
    return values;
}

// The last part comes first.
static struct picture run_call(struct sample *sample, struct kernel_call call, int parts, const struct picture *before,
                               bool *strayed)
{
    for (int part = parts - 1; part >= 0 && call.prepare; part--)
        call.prepare(call.args, part, parts);
    for (int part = parts - 1; part >= 0; part--)
        call.run(call.args, part, parts);
    return take_values(sample, before, strayed);
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
static const float *rounded_input(struct sample *sample, const struct kernel *kernel, const float *x, size_t count)
{
    float *rounded = ARENA_NEW(&sample->arena, float, count);
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

// What changes keys in place before they are stored, on a copy: the sample is to keep them.
static void run_before_storing(const struct sample *sample, struct kv_write_args *args, struct arena *arena, int part,
                               int parts)
{
    const struct kv_side *side = &args->cache.layout.k;
    size_t count = (size_t)(sample->batch.tokens * side->heads * side->dim);
    float *k = ARENA_NEW(arena, float, count);
    if (!args->rope && !args->transform)
        return;
    args->k = memcpy(k, args->k, count * sizeof *k);
    if (args->rope) {
        struct rope_args rope = *args->rope;
        rope.k = k;
        kernel_reference(OP_ROPE)->run(&rope, part, parts);
    }
    if (args->transform) {
        struct transform_args transform = *args->transform;
        transform.k = k;
        kernel_reference(OP_TRANSFORM)->run(&transform, part, parts);
    }
}

// The op of a sample as it is defined, with the neighbours that a kernel is to do in passing.
static void run_defined(const void *arguments, int part, int parts)
{
    const struct sample *sample = arguments;
    union op_args args = sample->args;
    const struct linear_args *linear = sample->op == OP_LINEAR ? &args.linear : NULL;
    struct arena arena = { 0 };
    if (sample->op == OP_KV_WRITE)
        run_before_storing(sample, &args.kv_write, &arena, part, parts);
    if (linear && linear->norm)
        kernel_reference(OP_NORM)->run(linear->norm, part, parts);
    if (kernel_reference(sample->op)->prepare)
        kernel_reference(sample->op)->prepare(&args, part, parts);
    kernel_reference(sample->op)->run(&args, part, parts);
    if (linear && linear->act_mul)
        kernel_reference(OP_ACT_MUL)->run(linear->act_mul, part, parts);
    if (linear && linear->add)
        kernel_reference(OP_ADD)->run(linear->add, part, parts);
    arena_free(&arena);
}

// What the reference makes of the sample. Where the kernel says that it rounds activations, they are rounded for the
// reference, too: a kernel is held to what it says.
static struct picture run_reference(struct sample *sample, const struct kernel *kernel, const struct picture *before)
{
    struct kernel_call call = { .run = run_defined, .args = sample };
    struct picture expected = run_call(sample, call, 1, before, &(bool){ false });
    const uint64_t rounding = kernel->int16 | kernel->int8 | kernel->nvfp4;
    if (!rounding)
        return expected;
    const union op_args args = sample->args;
    bool experts = sample->op == OP_EXPERTS;
    int in = experts ? args.experts.in : args.linear.in, outputs = experts ? args.experts.outputs : args.linear.outputs;
    size_t rows = (size_t)(sample->rows * (experts && args.experts.x_per_slot ? args.experts.routes.chosen : 1));
    if (experts)
        sample->args.experts.x = rounded_input(sample, kernel, args.experts.x, rows * (size_t)in);
    else
        sample->args.linear.x = rounded_input(sample, kernel, args.linear.x, rows * (size_t)in);
    struct picture rounded = run_call(sample, call, 1, before, &(bool){ false });
    sample->args = args;
    for (int i = 0; i < outputs; i++) {
        enum dtype dtype = (experts ? args.experts.output[i].weight : args.linear.output[i].weight).dtype;
        if (lists(rounding, dtype))
            expected.output[i] = rounded.output[i];
    }
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

// Whether the first rows, as many as the sample has, are equal bit for bit.
static bool same_bits(const struct sample *sample, const struct picture *a, const struct picture *b)
{
    for (int i = 0; i < sample->outputs; i++)
        if (memcmp(a->output[i], b->output[i], value_count(sample, i) * sizeof(float)))
            return false;
    return true;
}

static double largest_difference(const struct sample *sample, const struct picture *found,
                                 const struct picture *expected)
{
    double largest = 0;
    for (int i = 0; i < sample->outputs; i++)
        largest = fmax(largest, difference(found->output[i], expected->output[i], value_count(sample, i)));
    return largest;
}

static void check_here(struct sample *sample, const struct kernel *kernel, const struct sample_case *wanted,
                       struct check_result *out)
{
    struct picture before = take_bytes(sample);
    struct kernel_call call = fault_bind(kernel, sample_args_for(sample, kernel), &sample->arena);
    bool strayed = false;
    struct picture expected = run_reference(sample, kernel, &before);
    struct picture found = run_call(sample, call, 1, &before, &strayed);
    struct picture in_parts = run_call(sample, call, CHECK_PARTS, &before, &strayed);
    out->tolerance = tolerances[kernel->op];
    out->error = largest_difference(sample, &found, &expected);
    bool by_parts = !same_bits(sample, &found, &in_parts);
    sample_cut(sample, kernel_loads_least(wanted->load));
    struct picture alone = run_call(sample, call, 1, &before, &strayed);
    bool by_neighbours = !same_bits(sample, &found, &alone);
    out->flaw = strayed         ? "it writes beside its result"
        : !isfinite(out->error) ? "it gives NaN or infinity, and the reference does not"
        : by_parts              ? "its bits depend on the number of threads"
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

static bool visit_device(struct sample *sample, struct visit *visit, struct picture *values)
{
    if (!visit->device->run(visit->device, visit->kernel, sample, &visit->strayed, visit->err))
        return false;
    fault_apply(visit->kernel, &sample->args);
    *values = take_values(sample, visit->before, &visit->strayed);
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

static double device_difference(const struct sample *sample, const struct picture *found,
                                const struct picture *expected)
{
    if (sample->op != OP_KV_WRITE)
        return largest_difference(sample, found, expected);
    double largest = 0;
    for (int i = 0; i < sample->outputs; i++)
        largest = fmax(largest, together(found->output[i], expected->output[i], value_count(sample, i)));
    return largest;
}

static int least(int a, int b) { return a < b ? a : b; }

// More room than the sample needs, as far as these loads go, on so small a device that blocks have several pieces of
// work each.
static void widen(struct sample_room *room, enum op_kind op, enum kernel_load loads)
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
static void check_there(struct sample *sample, const struct kernel *kernel, const struct sample_case *wanted,
                        const struct check_device *device, struct check_result *out)
{
    sample_round(sample, kernel);
    struct picture before = take_bytes(sample), found, again, roomy, alone;
    struct visit visit = { kernel, device, &before, .err = &out->trouble };
    struct picture expected = run_reference(sample, kernel, &before);
    bool changed = wanted->fuses & (KERNEL_FUSES_ROPE | KERNEL_FUSES_TRANSFORM);
    out->tolerance = changed ? changed_tolerance : gpu_tolerances[kernel->op];
    out->error = INFINITY;
    out->flaw = "the device did not run it";
    struct sample_room room = sample->room;
    if (!visit_device(sample, &visit, &found) || !visit_device(sample, &visit, &again))
        return;
    widen(&sample->room, sample->op, wanted->load);
    if (!visit_device(sample, &visit, &roomy))
        return;
    out->error = fmax(device_difference(sample, &found, &expected), device_difference(sample, &roomy, &expected));
    bool by_chance = !same_bits(sample, &found, &again);
    sample->room = room;
    // Another launch may be for sequences as short as one becomes that is cut: of attention whole ones are left out.
    int cut = kernel_loads_least(wanted->load);
    sample_cut(sample, sample->op == OP_ATTENTION ? sample->sequence[0].count : cut);
    if (!visit_device(sample, &visit, &alone))
        return;
    bool by_neighbours = !same_bits(sample, &found, &alone);
    out->flaw = visit.strayed   ? "it writes beside its result"
        : !isfinite(out->error) ? "it gives NaN or infinity, and the reference does not"
        : by_chance             ? "its bits change from run to run"
        : by_neighbours         ? "a token's bits depend on the tokens beside it"
                                : NULL;
}

void check_run(const struct kernel *kernel, const struct sample_case *wanted, const struct check_device *device,
               struct check_result *out)
{
    struct sample sample;
    *out = (struct check_result){ 0 };
    sample_open(&sample, kernel, wanted);
    if (kernel->device == DEVICE_CPU)
        check_here(&sample, kernel, wanted, out);
    else
        check_there(&sample, kernel, wanted, device, out);
    if (kernel->tolerance > 0)
        out->tolerance = kernel->tolerance;
    if (wanted->fuses & KERNEL_FUSES_ACT_MUL) // the product of two results
        out->tolerance *= 2;
    out->ok = !out->flaw && out->error <= out->tolerance;
    sample_close(&sample);
}
