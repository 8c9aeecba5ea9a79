// SPDX-License-Identifier: Apache-2.0
// Rows for GPUs, as far as a machine without one goes. This file is the GPU: its memory is the host's, and its kernels
// are the functions below. The rows below, right and wrong, show what the check of a row on a device finds.
#include <math.h>

#include "container.h"
#include "engine/kernels/cuda.h"
#include "kernel/minifloat.h"
#include "kernel/ref/table.h"

enum { SEEDS = 4, SHARED_BYTES_ANYWHERE = 99 << 10 };

// ---- the GPU ----

struct cuda {
    int live;         // allocations
    int launches;     // of all, so far
    bool broken;      // launches fail
    int shared_bytes; // that one block may have
};

struct cuda_function {
    const char *name;
    void (*run)(const void *params, int launches);
};

int cuda_sm(const struct cuda *cuda)
{
    (void)cuda;
    return 90;
}

int cuda_multiprocessors(const struct cuda *cuda)
{
    (void)cuda;
    return 132;
}

int cuda_shared_bytes(const struct cuda *cuda) { return cuda->shared_bytes; }

int cuda_driver_version(const struct cuda *cuda)
{
    (void)cuda;
    return 13000;
}

void *cuda_new(struct cuda *cuda, size_t bytes, const char *what, struct error *err)
{
    (void)what, (void)err;
    cuda->live++;
    return calloc(1, bytes ? bytes : 1);
}

void cuda_free(struct cuda *cuda, void *memory)
{
    cuda->live -= memory != NULL;
    free(memory);
}

bool cuda_upload(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err)
{
    (void)cuda, (void)err;
    memcpy(to, from, bytes);
    return true;
}

bool cuda_download(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err)
{
    return cuda_upload(cuda, to, from, bytes, err);
}

bool cuda_copy(struct cuda *cuda, void *to, const void *from, size_t bytes, struct error *err)
{
    return cuda_upload(cuda, to, from, bytes, err);
}

bool cuda_wait(struct cuda *cuda, struct error *err)
{
    (void)cuda, (void)err;
    return true;
}

bool cuda_load_image(struct cuda *cuda, const void *image, size_t bytes, const char *name, struct error *err)
{
    (void)cuda, (void)image, (void)bytes, (void)name, (void)err;
    return true;
}

bool cuda_multiply(struct cuda *cuda, const struct cuda_product *product, struct error *err)
{
    (void)cuda, (void)product;
    return (fail)(err, "this GPU has no cuBLASLt");
}

bool cuda_launch(struct cuda *cuda, const struct cuda_launch *launch, struct error *err)
{
    if (cuda->broken)
        return (fail)(err, "this GPU is broken");
    launch->function->run(launch->params, cuda->launches++);
    return true;
}

// ---- its kernels ----

static uint16_t rounded(float value) { return f32_to_bf16(value); }

static void add_right(const void *params, int launches)
{
    const struct cuda_add *p = params;
    (void)launches;
    for (int i = 0; i < *p->rows * p->width; i++)
        p->x[i] += bf16_to_f32(p->y[i]);
}

static void add_too_far(const void *params, int launches)
{
    const struct cuda_add *p = params;
    add_right(params, launches);
    p->x[*p->rows * p->width] = 0; // where the step has room for no more
}

static void add_by_chance(const void *params, int launches)
{
    const struct cuda_add *p = params;
    add_right(params, launches);
    p->x[0] *= 1 + 0x1p-23f * (float)(launches % 2);
}

static void add_by_rows(const void *params, int launches)
{
    const struct cuda_add *p = params;
    add_right(params, launches);
    p->x[0] *= 1 + 0x1p-23f * (float)*p->rows;
}

static void add_unfinished(const void *params, int launches)
{
    struct cuda_add p = *(const struct cuda_add *)params;
    int32_t rows = *p.rows - 1;
    p.rows = &rows;
    add_right(&p, launches);
}

static void norm_row(const float *x, const float *weight, int width, float epsilon, float *out)
{
    float sum = 0;
    for (int i = 0; i < width; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < width; i++)
        out[i] = x[i] / sqrtf(sum / (float)width + epsilon) * weight[i];
}

static float activated(float x, int act)
{
    float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
    return act == ACT_SILU ? x / (1 + expf(-x)) : 0.5f * x * (1 + tanhf(inner));
}

// One row of a linear with everything that it may do in passing; weights are bfloat16 as in a file.
static void linear_row(const struct cuda_linear *p, int row, float *x, float *y[3])
{
    for (int i = 0; i < p->in; i++)
        x[i] = p->norm_weight ? ((const float *)p->x)[row * p->in + i]
                              : bf16_to_f32(((const uint16_t *)p->x)[row * p->in + i]);
    if (p->norm_weight)
        norm_row(x, p->norm_weight, p->in, p->epsilon, x);
    for (int m = 0; m < p->outputs; m++)
        for (int j = 0; j < p->output[m].rows; j++) {
            float sum = 0;
            for (int i = 0; i < p->in; i++) {
                uint16_t code;
                memcpy(&code, p->output[m].weight + 2 * ((size_t)j * (size_t)p->in + (size_t)i), sizeof code);
                sum += bf16_to_f32(code) * x[i];
            }
            y[m][j] = sum * p->output[m].scale + (p->output[m].bias ? p->output[m].bias[j] : 0);
        }
}

static void linear_right(const void *params, int launches)
{
    const struct cuda_linear *p = params;
    float *x = calloc((size_t)p->in, sizeof *x), *y[3];
    (void)launches;
    for (int m = 0; m < p->outputs; m++)
        y[m] = calloc((size_t)p->output[m].rows, sizeof *y[m]);
    for (int row = 0; row < *p->rows; row++) {
        linear_row(p, row, x, y);
        for (int m = 0; m < (p->act >= 0 ? 1 : p->outputs); m++)
            for (int j = 0; j < p->output[m].rows; j++) {
                float value = p->act >= 0 ? activated(y[0][j], p->act) * y[1][j] : y[m][j];
                size_t at = (size_t)row * (size_t)p->output[m].rows + (size_t)j;
                if (p->residual)
                    ((float *)p->output[m].y)[at] += value;
                else if (p->f32_out)
                    ((float *)p->output[m].y)[at] = value;
                else
                    ((uint16_t *)p->output[m].y)[at] = rounded(value);
            }
    }
    for (int m = 0; m < p->outputs; m++)
        free(y[m]);
    free(x);
}

static struct cuda_function own_functions[] = {
    { "add_right", add_right },     { "add_too_far", add_too_far },       { "add_by_chance", add_by_chance },
    { "add_by_rows", add_by_rows }, { "add_unfinished", add_unfinished }, { "linear_right", linear_right },
};

struct cuda_function *cuda_find(struct cuda *cuda, const char *name, struct error *err)
{
    (void)cuda;
    for (size_t i = 0; i < COUNT_OF(own_functions); i++)
        if (!strcmp(own_functions[i].name, name))
            return &own_functions[i];
    return (fail)(err, "no kernel is called %s", name), NULL;
}

// ---- their rows ----

static const char *add_function; // which of them the row starts

static struct cuda_call call_of(const char *function, const void *params, size_t bytes)
{
    struct cuda_call call = { .function = function, .grid = { 1, 1, 1 }, .block = 32, .params_bytes = bytes };
    memcpy(call.params, params, bytes);
    return call;
}

static int describe_add(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                        struct cuda_call calls[CUDA_CALLS_MAX])
{
    const struct add_args *args = arguments;
    (void)kernel;
    const struct cuda_add params = { args->rows, args->x, (const uint16_t *)(const void *)args->y, args->width };
    (void)shape;
    calls[0] = call_of(add_function, &params, sizeof params);
    return 1;
}

static bool forgets_bias; // a linear that does not know its matrices' biases

static int describe_linear(const struct kernel *kernel, const void *arguments, const struct cuda_shape *shape,
                           struct cuda_call calls[CUDA_CALLS_MAX])
{
    const struct linear_args *args = arguments;
    struct cuda_linear p = { .rows = args->rows,
                             .x = args->norm ? args->norm->x : args->x,
                             .in = args->in,
                             .outputs = args->outputs,
                             .act = args->act_mul ? (int)args->act_mul->act : -1,
                             .residual = args->add != NULL,
                             .f32_out = args->f32_y };
    (void)kernel;
    (void)shape;
    if (args->norm) {
        p.norm_weight = args->norm->weight;
        p.epsilon = args->norm->epsilon;
    }
    for (int i = 0; i < args->outputs; i++) {
        const struct linear_output *output = &args->output[i];
        p.output[i].weight = output->weight.data;
        p.output[i].bias = forgets_bias ? NULL : output->bias;
        p.output[i].y = args->act_mul ? args->act_mul->out : args->add ? args->add->x : output->y;
        p.output[i].rows = output->weight.rows;
        p.output[i].scale = output->weight.scale;
    }
    calls[0] = call_of("linear_right", &p, sizeof p);
    return 1;
}

static const int only_90[] = { 90, 0 };
static const struct kernel add_row = { .name = "add_there",
                                       .device = DEVICE_CUDA,
                                       .op = OP_ADD,
                                       .load = KERNEL_ANY,
                                       .architectures = only_90,
                                       .describe = describe_add };
static const struct kernel linear_rows = {
    .name = "linear_there",
    .device = DEVICE_CUDA,
    .op = OP_LINEAR,
    .load = KERNEL_ANY,
    .architectures = only_90,
    .weights = DTYPE_BIT(BF16),
    .describe = describe_linear,
    .fuses = KERNEL_FUSES_NORM | KERNEL_FUSES_ACT_MUL | KERNEL_FUSES_ADD,
};

// What the check says of a row, over its cases and neighbours: the flaw of the last that is wrong, "" for none.
static int count_wrong(struct cuda *cuda, const struct kernel *kernel, struct check_result *last)
{
    struct kernels_cuda on_gpu = kernels_cuda_on(cuda);
    struct sample_case cases[CHECK_CASES_MAX];
    uint32_t fused[CHECK_FUSED_MAX];
    int wrong = 0, count = check_cases(kernel, cases), sets = check_fused(kernel, fused);
    assert_in_range(count, 1, CHECK_CASES_MAX);
    for (int i = 0; i < count * sets * SEEDS; i++) {
        struct sample_case wanted = cases[i % count];
        struct check_result result;
        wanted.fuses = fused[i / count % sets];
        wanted.seed = (uint64_t)(i / count / sets);
        check_run(kernel, &wanted, &on_gpu.device, &result);
        wrong += !result.ok;
        *last = result.ok ? *last : result;
        assert_int_equal(cuda->live, 0);
    }
    return wrong;
}

static void test_right_rows_are_right(void **state)
{
    struct cuda cuda = { 0 };
    struct check_result last;
    (void)state;
    add_function = "add_right";
    forgets_bias = false;
    assert_int_equal(count_wrong(&cuda, &add_row, &last), 0);
    if (count_wrong(&cuda, &linear_rows, &last))
        fail_msg("error %g of %g, %s", last.error, last.tolerance, last.flaw ? last.flaw : "no flaw");
}

static void test_wrong_rows_are_found(void **state)
{
    static const char *const wrong[][2] = {
        { "add_too_far", "beside its result" },
        { "add_by_chance", "run to run" },
        { "add_by_rows", "tokens beside it" },
        { "add_unfinished", "tokens beside it" },
    };
    struct cuda cuda = { 0 };
    struct check_result last = { 0 };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        add_function = wrong[i][0];
        if (!count_wrong(&cuda, &add_row, &last))
            fail_msg("%s passes", add_function);
        if (!last.flaw || !strstr(last.flaw, wrong[i][1]))
            fail_msg("%s: %s", add_function, last.flaw ? last.flaw : "no flaw");
    }
    forgets_bias = true;
    assert_true(count_wrong(&cuda, &linear_rows, &last));
    assert_null(last.flaw);
}

static void test_a_lie_is_found(void **state)
{
    struct cuda cuda = { 0 };
    struct check_result last;
    (void)state;
    uint32_t fused[CHECK_FUSED_MAX];
    add_function = "add_right";
    forgets_bias = false;
    setenv("NIBBLE_FAULT", "add_there", 1);
    assert_int_equal(count_wrong(&cuda, &add_row, &last), 2 * SEEDS);
    setenv("NIBBLE_FAULT", "linear_there", 1); // whatever it does in passing
    assert_int_equal(count_wrong(&cuda, &linear_rows, &last), 2 * SEEDS * check_fused(&linear_rows, fused));
    unsetenv("NIBBLE_FAULT");
    assert_int_equal(count_wrong(&cuda, &linear_rows, &last), 0);
}

static void test_trouble_is_told(void **state)
{
    struct cuda cuda = { .broken = true };
    struct check_result last;
    (void)state;
    assert_int_equal(count_wrong(&cuda, &add_row, &last), 2 * SEEDS);
    assert_string_equal(last.trouble.text, "this GPU is broken");
    assert_false(last.ok);
}

// ---- the build's rows ----

// The same launches on a copy, whose operands lie elsewhere.
static void check_copied(struct cuda *cuda, const struct kernel *kernel, const struct sample_case *wanted)
{
    struct sample sample;
    struct gpu_sample there, copy;
    struct error err;
    sample_open(&sample, kernel, wanted);
    assert_true(gpu_sample_open(&there, cuda, kernel, &sample, &err));
    assert_in_range(there.call_count, 1, CUDA_CALLS_MAX);
    assert_true(gpu_sample_copy(&copy, &there, kernel, &err));
    assert_int_equal(copy.call_count, there.call_count);
    assert_memory_not_equal(&copy.calls[0], &there.calls[0], sizeof copy.calls[0]);
    gpu_sample_close(&copy);
    gpu_sample_close(&there);
    assert_int_equal(cuda->live, 0);
    sample_close(&sample);
}

static void test_samples_can_be_copied(void **state)
{
    struct cuda cuda = { 0 };
    (void)state;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel)) {
        struct sample_case cases[CHECK_CASES_MAX];
        uint32_t fused[CHECK_FUSED_MAX];
        int count = kernel->device == DEVICE_CUDA ? check_cases(kernel, cases) : 0;
        int sets = check_fused(kernel, fused);
        cuda.shared_bytes = kernel->shared_bytes ? kernel->shared_bytes : SHARED_BYTES_ANYWHERE;
        for (int i = 0; i < count * sets; i++) {
            struct sample_case wanted = cases[i % count];
            wanted.fuses = fused[i / count];
            wanted.seed = (uint64_t)i;
            check_copied(&cuda, kernel, &wanted);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_rows_are_right),  cmocka_unit_test(test_wrong_rows_are_found),
        cmocka_unit_test(test_a_lie_is_found),        cmocka_unit_test(test_trouble_is_told),
        cmocka_unit_test(test_samples_can_be_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
