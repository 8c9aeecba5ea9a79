// SPDX-License-Identifier: Apache-2.0
#include "kernel/check.h"

#include <math.h>
#include <string.h>

#include "kernel/fault.h"
#include "kernel/int8.h"

enum { CHECK_PARTS = 3 };

// Sums may run in another order and exponentials be computed in another way; what moves or stores numbers is exact.
static const float tolerances[OP_COUNT] = {
    [OP_EMBED] = 1e-6f,     [OP_NORM] = 1e-5f,   [OP_LINEAR] = 1e-5f, [OP_ROPE] = 1e-5f, [OP_KV_WRITE] = 0,
    [OP_ATTENTION] = 2e-5f, [OP_ACT_MUL] = 1e-5f, [OP_ADD] = 0,       [OP_PICK] = 0,     [OP_SOFTCAP] = 1e-5f,
};

// ---- cases ----

static bool lists(uint64_t formats, int dtype)
{
    return formats >> dtype & 1;
}

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
    for (int load = KERNEL_FEW; load <= KERNEL_MANY; load++) {
        wanted.load = (enum kernel_load)load;
        if (kernel->load & load && sample_is_possible(kernel, &wanted))
            out[count++] = wanted;
    }
    return count;
}

int check_cases(const struct kernel *kernel, struct sample_case out[CHECK_CASES_MAX])
{
    int count = 0;
    if (!kernel->weights && !kernel->k)
        count += add_case(kernel, (struct sample_case){ 0 }, out);
    for (int i = 0; i < DTYPE_COUNT; i++) {
        enum dtype dtype = (enum dtype)i;
        if (lists(kernel->weights, i))
            count += add_case(kernel, (struct sample_case){ .weight = dtype }, out + count);
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

// Runs the call on the sample as it was `before`, the last part first. Leaves the sample as it was.
static struct picture run_call(struct sample *sample, struct kernel_call call, int parts, const struct picture *before,
                               bool *strayed)
{
    struct picture values;
    for (int part = parts - 1; part >= 0 && call.prepare; part--)
        call.prepare(call.args, part, parts);
    for (int part = parts - 1; part >= 0; part--)
        call.run(call.args, part, parts);
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

// The input of a linear as kernels see it that round it to 8 bits.
static const float *rounded_input(struct sample *sample)
{
    const struct linear_args *args = &sample->args.linear;
    size_t count = (size_t)sample->rows * (size_t)args->in;
    float *rounded = ARENA_NEW(&sample->arena, float, count);
    for (size_t i = 0; i + INT8_BLOCK <= count; i += INT8_BLOCK) {
        int8_t codes[INT8_BLOCK];
        float scale = int8_round(args->x + i, codes);
        for (int j = 0; j < INT8_BLOCK; j++)
            rounded[i + (size_t)j] = scale * (float)codes[j];
    }
    return rounded;
}

// What the reference makes of the sample. Where the kernel says that it rounds activations, they are rounded for the
// reference, too: a kernel is held to what it says.
static struct picture run_reference(struct sample *sample, const struct kernel *kernel, const struct picture *before)
{
    struct kernel_call call = { .run = kernel_reference(kernel->op)->run, .args = &sample->args };
    struct picture expected = run_call(sample, call, 1, before, &(bool){ false });
    if (!kernel->int8)
        return expected;
    struct linear_args args = sample->args.linear;
    args.x = rounded_input(sample);
    call.args = &args;
    struct picture rounded = run_call(sample, call, 1, before, &(bool){ false });
    for (int i = 0; i < args.outputs; i++)
        if (lists(kernel->int8, args.output[i].weight.dtype))
            expected.output[i] = rounded.output[i];
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

void check_run(const struct kernel *kernel, const struct sample_case *wanted, struct check_result *out)
{
    struct sample sample;
    sample_open(&sample, kernel, wanted);
    struct picture before = take_bytes(&sample);
    struct kernel_call call = fault_bind(kernel, sample_args_for(&sample, kernel), &sample.arena);
    bool strayed = false;
    struct picture expected = run_reference(&sample, kernel, &before);
    struct picture found = run_call(&sample, call, 1, &before, &strayed);
    struct picture in_parts = run_call(&sample, call, CHECK_PARTS, &before, &strayed);

    *out = (struct check_result){ .tolerance = kernel->tolerance > 0 ? kernel->tolerance : tolerances[kernel->op] };
    for (int i = 0; i < sample.outputs; i++)
        out->error = fmax(out->error, difference(found.output[i], expected.output[i], value_count(&sample, i)));
    bool by_parts = !same_bits(&sample, &found, &in_parts);
    sample_cut(&sample, wanted->load == KERNEL_FEW ? 1 : KERNEL_FEW_TOKENS_MAX + 1);
    struct picture alone = run_call(&sample, call, 1, &before, &strayed);
    bool by_neighbours = !same_bits(&sample, &found, &alone);
    out->flaw = strayed               ? "it writes beside its result"
              : !isfinite(out->error) ? "it gives NaN or infinity, and the reference does not"
              : by_parts              ? "its bits depend on the number of threads"
              : by_neighbours         ? "a token's bits depend on the tokens beside it"
                                      : NULL;
    out->ok = !out->flaw && out->error <= out->tolerance;
    sample_close(&sample);
}
