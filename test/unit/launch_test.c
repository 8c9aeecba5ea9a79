// SPDX-License-Identifier: Apache-2.0
// Launch test: GPUs and CPUs run the kernels that a plan prints. Engines of many shapes, formats and architectures run
// steps on both sides of each load's bound, and each launch of an op must be listed by a row that the plan binds to
// that op and load. The driver is fake_cuda.c; launches are recorded where the engine queues them, and functions of
// CPUs where the thread pool calls them. No GPU, no CUDA build and no particular CPU is needed: nothing is computed.
#include <dlfcn.h>

#include "container.h"
#include "engine/gpu/internal.h"
#include "engine/program.h"
#include "base/file.h"
#include "fake_cuda.h"
#include "format/json.h"
#include "kernel/cuda/images.h"
#include "kernel/cuda/sample.h"
#include "plan/explain.h"

enum { SEQUENCES = 256, TOKENS = 512, LENGTH = 512, PAGES = LENGTH / KV_PAGE_TOKENS, RECORDED_MAX = 4096 };
enum { ZEROS = 1 << 20, DECODE_ROWS_MAX = 8 };

static struct fake_cuda *fake;
static char zeros[ZEROS]; // of every tensor

// ---- recording ----

static const char *recorded[RECORDED_MAX];
static int recorded_count;

// In the place of the function of kernel/cuda/images.c (test/meson.build).
bool __wrap_cuda_call_queue(struct cuda *cuda, const struct cuda_call *call, struct error *err);
bool __wrap_cuda_call_queue(struct cuda *cuda, const struct cuda_call *call, struct error *err)
{
    (void)cuda;
    (void)err;
    assert_true(recorded_count < RECORDED_MAX);
    recorded[recorded_count++] = call->function ? call->function : cuda_product_name(call->product.dtype);
    return true;
}

// ---- what the plan says ----

// The number of a load, said once more.
static int load_of(int rows)
{
    return rows == 1 ? 0 : rows <= 8 ? 1 : rows <= 32 ? 2 : rows <= 64 ? 3 : rows <= 128 ? 4 : 5;
}

struct step {
    int sequences, rows; // of each
    int last;            // rows of one more sequence; 0: there is none
};

static const struct step steps[] = {
    { 1, 1, 0 },   { 2, 1, 0 },   { 8, 1, 0 },   { 9, 1, 0 },   { 32, 1, 0 },  { 33, 1, 0 },  { 64, 1, 0 },
    { 65, 1, 0 },  { 128, 1, 0 }, { 129, 1, 0 }, { 256, 1, 0 }, { 1, 2, 0 },   { 1, 8, 0 },   { 1, 9, 0 },
    { 1, 32, 0 },  { 1, 33, 0 },  { 1, 64, 0 },  { 1, 65, 0 },  { 1, 128, 0 }, { 1, 129, 0 }, { 1, 256, 0 },
    { 3, 1, 200 }, { 2, 8, 9 },   { 5, 1, 33 },  { 2, 30, 6 },
};

static int larger(int a, int b) { return a > b ? a : b; }

// The loads of an op in a step: of attention those of the sequences that are decoded and of the others.
static int loads_of(const struct op *op, const struct step *step, int loads[2])
{
    int outputs = step->sequences + (step->last > 0), tokens = step->sequences * step->rows + step->last;
    int each = larger(step->rows, step->last), decoded = step->rows <= DECODE_ROWS_MAX ? step->rows : 0, count = 0;
    if (step->last <= DECODE_ROWS_MAX)
        decoded = larger(decoded, step->last);
    switch (op->kind) {
    case OP_ATTENTION:
        if (decoded)
            loads[count++] = load_of(decoded);
        if (each > DECODE_ROWS_MAX)
            loads[count++] = load_of(each);
        return count;
    case OP_CONV:
    case OP_SSM_SCAN:
    case OP_GATED_DELTA: loads[0] = load_of(each); return 1;
    default: loads[0] = load_of(op->on_outputs ? outputs : tokens); return 1;
    }
}

static bool lists(const struct kernel *row, const char *name)
{
    for (int i = 0; row && i < KERNEL_FUNCTIONS_MAX && row->functions[i]; i++)
        if (!strcmp(row->functions[i], name))
            return true;
    return false;
}

static bool was_launched(const struct kernel *row)
{
    for (int i = 0; i < recorded_count; i++)
        if (row && !strcmp(recorded[i], row->functions[0]))
            return true;
    return false;
}

// ---- an engine ----

typedef void cpu_function(const void *args, int chunk, int chunks);

static struct world {
    struct engine engine;
    const struct step *step;
    char what[160];
    json_t *plan;                    // as `nibble plan --json` prints it
    int checked;                     // ops
    cpu_function *ran[RECORDED_MAX]; // on a CPU
    int ran_count;
} world;

// One op has been launched.
static void after(void *context, const struct engine *engine, int index, int chunk, int chunks)
{
    const struct op *op = &engine->model.ops[index];
    const struct plan_op *bound = &engine->plan.ops[index];
    int loads[2], count = loads_of(op, world.step, loads);
    (void)context, (void)chunk, (void)chunks;
    for (int i = 0; i < recorded_count; i++) {
        bool found = false;
        for (int j = 0; j < count * LINEAR_OUTPUTS_MAX; j++)
            found |= lists(bound->rows[loads[j % count]][j / count], recorded[i]);
        bool small = op->kind == OP_ATTENTION && loads[0] <= 1 && lists(bound->rows[KERNEL_LOAD_SMALL][0], recorded[i]);
        if (!found && !small)
            fail_msg("%s, %d x %d + %d: %s launches %s, which is of no row that the plan has there", world.what,
                     world.step->sequences, world.step->rows, world.step->last, op_word(op->kind), recorded[i]);
    }
    for (int j = 0; j < count * LINEAR_OUTPUTS_MAX; j++) {
        const struct kernel *row = bound->rows[loads[j % count]][j / count];
        bool small = op->kind == OP_ATTENTION && loads[j % count] <= 1
            && was_launched(bound->rows[KERNEL_LOAD_SMALL][0]);
        if (row && !small && !was_launched(row))
            fail_msg("%s, %d x %d + %d: %s does not launch %s of the plan's %s", world.what, world.step->sequences,
                     world.step->rows, world.step->last, op_word(op->kind), row->functions[0], row->name);
    }
    recorded_count = 0;
    world.checked++;
}

static const struct engine_watch watch = { .ops = UINT32_MAX, .results = true, .after = after };

static void need(bool ok, const struct error *err)
{
    if (!ok)
        fail_msg("%s: %s", world.what, err->text);
}

static void give_tensor(const struct tensor *const_tensor)
{
    struct tensor *tensor = (struct tensor *)const_tensor;
    if (!tensor)
        return;
    tensor->data = zeros;
    tensor->source = NULL;
}

// Weights are never read; norms and biases are, and are zeros.
static void give_data(struct model *model)
{
    for (int i = 0; i < model->op_count; i++) {
        const struct op *op = &model->ops[i];
        give_tensor(op->vector);
        for (int j = 0; j < OP_VECTORS_MAX; j++)
            give_tensor(op->more[j]);
        for (int j = 0; j < op->matrices; j++) {
            give_tensor(op->matrix[j].bias);
        }
    }
}

// Gives the matrices these formats round-robin, as far as a matrix's columns are whole blocks of the format.
static void set_formats(struct model *model, const enum dtype *formats, int count)
{
    int next = 0;
    for (int i = 0; i < model->op_count && count; i++)
        for (int j = 0; j < model->ops[i].matrices; j++) {
            struct tensor *tensor = (struct tensor *)model->ops[i].matrix[j].tensor;
            enum dtype dtype = formats[next++ % count];
            if (model->ops[i].kind == OP_PER_HEAD_LINEAR || tensor->source
                || tensor->shape[tensor->rank - 1] % dtype_table[dtype].block)
                continue;
            tensor->dtype = dtype;
            tensor->bytes = dtype_bytes(dtype, (size_t)tensor_values(tensor));
        }
}

static float *address(int number) { return (float *)(intptr_t)(number << 20); }

static void open_engine(const struct device *device)
{
    struct engine *engine = &world.engine;
    struct error err;
    if (device->kind == DEVICE_CUDA) {
        fake->sm = device->sm;
        fake->multiprocessors = device->multiprocessors ? device->multiprocessors : 132;
        fake->shared_bytes = device->shared_bytes;
        engine->gpu = memory_new(1, sizeof *engine->gpu);
        need((engine->gpu->cuda = cuda_open(0, &err)), &err);
    }
    size_t logits = (size_t)engine->plan.outputs * (size_t)engine->model.config.vocabulary;
    for (int i = 0; i < BUFFER_COUNT; i++)
        engine->buffers[i] = address(i + 1);
    engine->buffers[BUFFER_LOGITS] = memory_new(logits, sizeof(float));
    engine->scratch = (void *)address(BUFFER_COUNT + 1);
    engine->placed = (void *)address(BUFFER_COUNT + 2);
    for (int i = 0; i < engine->plan.class_count; i++)
        engine->pools[i].bytes = (void *)address(BUFFER_COUNT + 3 + i);
    engine->ids = ARENA_NEW(&engine->arena, int32_t, TOKENS);
    engine->positions = ARENA_NEW(&engine->arena, int32_t, TOKENS);
    engine->output_rows = ARENA_NEW(&engine->arena, int32_t, TOKENS);
    engine->batch_sequences = ARENA_NEW(&engine->arena, struct batch_sequence, SEQUENCES + 1);
    engine->batch = (struct batch){ .ids = engine->ids,
                                    .positions = engine->positions,
                                    .sequence = engine->batch_sequences,
                                    .output_rows = engine->output_rows };
    for (int i = 0; i < engine->plan.class_count; i++) {
        engine->batch.page_tokens[i] = engine->plan.classes[i].kind.page_tokens;
        engine->batch.pages_end[i] = engine->plan.classes[i].kind.end;
    }
    need(!engine->gpu || gpu_open_batch(engine->gpu, engine, &err), &err);
    need(program_bind(engine, &err), &err);
    need((engine->pool = thread_pool_open(1, &err)), &err);
}

static void close_engine(void)
{
    free(world.engine.buffers[BUFFER_LOGITS]);
    gpu_close(world.engine.gpu);
    thread_pool_close(world.engine.pool);
    arena_free(&world.engine.arena);
    assert_int_equal(fake->live, 0);
}

static void add_sequence(struct batch *batch, int rows)
{
    static int32_t pages[PAGES];
    struct batch_sequence sequence = { .first = batch->tokens, .count = rows };
    for (int i = 0; i < KV_CLASSES_MAX; i++)
        sequence.pages[i] = pages;
    for (int i = 0; i < rows; i++)
        world.engine.positions[batch->tokens++] = 100 + i;
    world.engine.output_rows[batch->outputs++] = batch->tokens - 1;
    world.engine.batch_sequences[batch->sequences++] = sequence;
}

static void run_step(const struct step *step)
{
    struct batch *batch = &world.engine.batch;
    struct engine_result result;
    struct error err;
    batch->tokens = batch->sequences = batch->outputs = 0;
    for (int i = 0; i < step->sequences; i++)
        add_sequence(batch, step->rows);
    if (step->last)
        add_sequence(batch, step->last);
    world.step = step;
    recorded_count = 0;
    int number = engine_start(&world.engine, &err);
    need(number, &err);
    need(engine_finish(&world.engine, number, &result, &err), &err);
}

// Whether the plan says that the function draws tokens.
static bool draws(const char *name)
{
    size_t i;
    const json_t *function;
    json_array_foreach (json_object_get(world.plan, "sampling"), i, function)
        if (!strcmp(json_string_value(function), name))
            return true;
    return false;
}

// A captured step has no ops to tell apart: each launch is of some row of the plan, or draws tokens. Tokens are drawn.
static void check_captured(void)
{
    const struct plan *plan = &world.engine.plan;
    size_t drawn = 0;
    for (int i = 0; i < recorded_count; i++) {
        bool found = draws(recorded[i]);
        drawn += found;
        for (int op = 0; op < plan->model->op_count && !found; op++)
            for (int load = 0; load < KERNEL_LOADS; load++)
                for (int j = 0; j < LINEAR_OUTPUTS_MAX; j++)
                    found |= !plan->ops[op].fused[load] && lists(plan->ops[op].rows[load][j], recorded[i]);
        if (!found)
            fail_msg("%s: a captured step launches %s, which is of no row of the plan", world.what, recorded[i]);
    }
    assert_int_equal(drawn, json_array_size(json_object_get(world.plan, "sampling")));
}

// ---- CPUs ----

// In the place of a step of a program, whose own function it notes instead of calling it.
static void record_function(const void *args, int chunk, int chunks)
{
    (void)chunks;
    assert_true(world.ran_count < RECORDED_MAX);
    if (chunk == 0)
        world.ran[world.ran_count++] = ((const struct program_step *)args)->run;
}

static void record_program(struct program *program)
{
    struct program_step *own = ARENA_NEW(&world.engine.arena, struct program_step, program->count);
    memcpy(own, program->steps, (size_t)program->count * sizeof *own);
    for (int i = 0; i < program->count; i++)
        program->steps[i] = (struct program_step){ record_function, &own[i] };
}

static void expect_function(cpu_function *function, const struct kernel *row, int *next)
{
    if (!function)
        return;
    if (*next >= world.ran_count || world.ran[*next] != function)
        fail_msg("%s, %d x %d + %d: function %d of the step is not that of the plan's %s", world.what,
                 world.step->sequences, world.step->rows, world.step->last, *next, row->name);
    ++*next;
}

// Every op in order: what prepares for the row that the plan binds it to, and the row itself.
static void check_functions(void)
{
    const struct plan *plan = &world.engine.plan;
    int load = load_of(world.engine.batch.tokens), next = 0;
    for (int i = 0; i < plan->model->op_count; i++) {
        const struct kernel *row = plan->ops[i].rows[load][0];
        if (plan->ops[i].left_out)
            continue;
        expect_function(row->prepare, row, &next);
        expect_function(row->run, row, &next);
        world.checked++;
    }
    assert_int_equal(next, world.ran_count);
}

static void run_cpu_steps(void)
{
    record_program(&world.engine.decode);
    record_program(&world.engine.prefill);
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        world.ran_count = 0;
        run_step(&steps[i]);
        check_functions();
    }
}

static void run_steps(void)
{
    if (world.engine.plan.device.kind == DEVICE_CPU) {
        run_cpu_steps();
        return;
    }
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        world.engine.watch = &watch;
        run_step(&steps[i]);
        world.engine.watch = NULL;
        if (steps[i].rows > 1 || steps[i].last)
            continue;
        run_step(&steps[i]);
        assert_true(recorded_count > 0);
        check_captured();
    }
}

// False: the plan is refused.
static bool try_engine(json_t *config, const char *device_word, const char *cache, const enum dtype *formats, int count)
{
    struct checkpoint checkpoint = { .config = config };
    struct device device;
    struct error err;
    struct engine *engine = &world.engine;
    struct plan_options options = { .user.kv_cache_dtype = cache,
                                    .user.max_model_len = LENGTH,
                                    .user.max_num_seqs = SEQUENCES,
                                    .user.batch_tokens = TOKENS };
    *engine = (struct engine){ .checkpoint = &checkpoint };
    world.checked = 0;
    snprintf(world.what, sizeof world.what, "%s on %s, cache %s, weights %s",
             json_string_value(json_object_get(config, "model_type")), device_word, cache,
             count ? dtype_word(formats[0]) : "as they are");
    need(device_parse(&device, device_word, &err), &err);
    need(model_describe(&engine->model, &checkpoint, &err), &err);
    give_data(&engine->model);
    set_formats(&engine->model, formats, count);
    bool planned = plan_make(&engine->plan, &engine->model, &device, &options, &err);
    if (planned) {
        struct strbuf text = { 0 };
        explain_json(&engine->plan, &text);
        assert_non_null(world.plan = json_loads(strbuf_text(&text), 0, NULL));
        strbuf_free(&text);
        open_engine(&device);
        run_steps();
        assert_true(world.checked > (int)COUNT_OF(steps));
        close_engine();
        json_decref(world.plan);
    }
    plan_free(&engine->plan);
    model_free(&engine->model);
    map_free(&checkpoint.names);
    arena_free(&checkpoint.arena);
    return planned;
}

// ---- what is tried ----

static const char *const devices[] = { "cpu:ref", "cpu:avx2", "cpu:avx512", "cpu:amx", "sm_80",  "sm_86",
                                       "sm_89",   "sm_90",    "sm_100",     "sm_103",  "sm_120", "sm_121" };

static json_t *config_of_head(int head_dim)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", "llama", "num_hidden_layers", 2,
                     "hidden_size", 512, "num_attention_heads", 4, "num_key_value_heads", 2, "head_dim", head_dim,
                     "intermediate_size", 768, "max_position_embeddings", LENGTH, "vocab_size", 512);
}

static void test_cache_formats_and_head_sizes(void **state)
{
    static const int heads[] = { 64, 80, 96, 112, 128, 160, 192, 256, 384, 512 };
    int planned = 0;
    (void)state;
    for (size_t d = 0; d < COUNT_OF(devices); d++)
        for (size_t h = 0; h < COUNT_OF(heads); h++)
            for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
                if (!(dtype_table[dtype].use & DTYPE_USE_CACHE))
                    continue;
                json_t *config = config_of_head(heads[h]);
                planned += try_engine(config, devices[d], dtype_word((enum dtype)dtype), NULL, 0);
                json_decref(config);
            }
    assert_true(planned > (int)(COUNT_OF(devices) * COUNT_OF(heads)));
}

static void test_weight_formats(void **state)
{
    static const enum dtype mixed[] = { DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_BF16, DTYPE_Q8_0, DTYPE_F32 };
    (void)state;
    for (size_t d = 0; d < COUNT_OF(devices); d++)
        for (int i = 0; i <= DTYPE_COUNT; i++) {
            enum dtype dtype = (enum dtype)i;
            json_t *config = config_of_head(64);
            if (i == DTYPE_COUNT)
                assert_true(try_engine(config, devices[d], "auto", mixed, COUNT_OF(mixed)));
            else if (dtype_table[i].use & DTYPE_USE_W)
                try_engine(config, devices[d], "auto", &dtype, 1);
            json_decref(config);
        }
}

static void test_golden_models(void **state)
{
    static const char *const names[] = { GOLDEN_MODELS };
    int planned = 0;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct file file;
        struct error err;
        json_t *golden = NULL;
        if (!file_open(&file, names[i], &err) || !json_read(file.content, &golden, &err))
            fail_msg("%s: %s", names[i], err.text);
        file_close(&file);
        json_t *config = json_object_get(golden, "config");
        for (size_t d = 0; d < COUNT_OF(devices) && config; d++)
            planned += try_engine(config, devices[d], "auto", NULL, 0);
        json_decref(golden);
    }
    assert_true(planned > (int)(COUNT_OF(names) * COUNT_OF(devices)) / 2);
}

static int find_fake(void **state)
{
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || !(fake = dlsym(library, "fake_cuda")))
        fail_msg("libcuda.so.1 is not the one of this test: LD_LIBRARY_PATH names it in test/meson.build");
    *fake = (struct fake_cuda)FAKE_CUDA_WELL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_formats_and_head_sizes),
        cmocka_unit_test(test_weight_formats),
        cmocka_unit_test(test_golden_models),
    };
    return cmocka_run_group_tests(tests, find_fake, NULL);
}
