// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/cuda.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cuda/images.h"
#include "kernel/minifloat.h"

enum { GUARD_BYTES = 256, GUARD = 0xA5, NOTHING = 0xFF };

// ---- the batch ----

// Where arguments have the batch, or the number of rows; those of fused neighbours, too.
static void set_rows(const struct gpu_testcase *there, enum op_kind op, void *args)
{
    struct operand_use uses[OP_OPERANDS_MAX];
    int count = op_operands(op, args, uses);
    for (int i = 0; i < count; i++) {
        void **pointer = operand_pointer(&uses[i]);
        switch (uses[i].operand->role) {
        case ROLE_ROWS: *pointer = (void *)&there->view.counts[CUDA_TOKENS]; break;
        case ROLE_BATCH: *pointer = (void *)&there->batch; break;
        case ROLE_FUSED_BEFORE:
        case ROLE_FUSED_AFTER:
            if (*pointer)
                set_rows(there, (enum op_kind)uses[i].operand->fused, *pointer);
            break;
        default: break;
        }
    }
}

static int greater(int a, int b) { return a > b ? a : b; }

static bool open_batch(struct gpu_testcase *there, struct error *err)
{
    const struct testcase *testcase = there->testcase;
    const struct testcase_room *room = &testcase->room;
    there->batch = testcase->batch;
    if (!there->batch.tokens)
        there->batch.tokens = testcase->rows;
    struct cuda_batch_block block = { .tokens = greater(room->tokens, there->batch.tokens),
                                      .sequences = greater(room->sequences, 1),
                                      .outputs = greater(room->rows, there->batch.outputs),
                                      .classes = KV_CLASSES_MAX };
    for (int i = 0; i < KV_CLASSES_MAX; i++)
        block.pages += cuda_batch_pages(&there->batch, i);
    cuda_batch_measure(&block);
    if (!(there->batch_memory = cuda_new(there->cuda, block.bytes, "a batch", err)))
        return false;
    void *host = memory_new(block.bytes, 1);
    size_t bytes = cuda_batch_fill(&block, &there->batch, host);
    bool ok = cuda_upload(there->cuda, there->batch_memory, host, bytes, err);
    free(host);
    there->view = cuda_batch_view(&block, there->batch_memory);
    there->batch.on_device = &there->view;
    return ok;
}

// ---- operands ----

static size_t type_bytes(enum testcase_type type)
{
    static const size_t bytes[] = {
        [TESTCASE_F32] = 4, [TESTCASE_BF16] = 2, [TESTCASE_BYTES] = 1, [TESTCASE_SCRATCH] = 1
    };
    return bytes[type];
}

static size_t value_count(const struct testcase_operand *operand)
{
    return operand->width * (size_t)(operand->rows ? operand->rows : 1);
}

static void to_device(const struct gpu_buffer *buffer, uint8_t *out)
{
    const float *values = buffer->host;
    size_t count = value_count(&buffer->operand);
    if (buffer->operand.type == TESTCASE_SCRATCH) {
        memset(out, NOTHING, count);
        return;
    }
    if (buffer->operand.type != TESTCASE_BF16) {
        memcpy(out, buffer->host, count * type_bytes(buffer->operand.type));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t code = f32_to_bf16(values[i]);
        memcpy(out + 2 * i, &code, sizeof code);
    }
}

static void from_device(const struct gpu_buffer *buffer, const uint8_t *in, uint8_t *out)
{
    size_t count = value_count(&buffer->operand);
    if (buffer->operand.type != TESTCASE_BF16) {
        memcpy(out, in, count * type_bytes(buffer->operand.type));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t code;
        memcpy(&code, in + 2 * i, sizeof code);
        float value = bf16_to_f32(code);
        memcpy(out + 4 * i, &value, sizeof value);
    }
}

static const struct gpu_buffer *find_buffer(const struct gpu_testcase *there, const void *host)
{
    for (int i = 0; i < there->buffer_count; i++)
        if (there->buffers[i].host == host)
            return &there->buffers[i];
    return NULL;
}

static int find_output(const struct testcase *testcase, const void *host)
{
    for (int i = 0; i < testcase->outputs; i++)
        if (testcase->output[i].data == host)
            return i;
    return -1;
}

static size_t guard_bytes(const struct gpu_buffer *buffer) { return buffer->output >= 0 ? GUARD_BYTES : 0; }

// Uploads one operand, between guard bytes if the row writes it. Rows of a larger step, beyond the test case's own,
// hold NaN (all bits set).
static bool upload_buffer(struct gpu_testcase *there, struct gpu_buffer *buffer, struct error *err)
{
    size_t guard = guard_bytes(buffer), all = buffer->bytes + 2 * guard;
    size_t given = value_count(&buffer->operand) * type_bytes(buffer->operand.type);
    if (!(buffer->memory = cuda_new(there->cuda, all, "a testcase", err)))
        return false;
    buffer->address = buffer->memory + guard + buffer->lead;
    if (there->testcase->repeats && buffer->operand.type == TESTCASE_SCRATCH) // zeros will do
        return true;
    uint8_t *image = memory_grow(NULL, all, 1);
    memset(image, GUARD, guard);
    to_device(buffer, image + guard);
    memset(image + guard + given, NOTHING, buffer->bytes - given);
    memset(image + guard + buffer->bytes, GUARD, guard);
    bool ok = cuda_upload(there->cuda, buffer->memory, image, all, err);
    free(image);
    return ok;
}

// Fills `all` bytes by doubling: copies the bytes that are already there to behind them, until none is missing.
static bool repeat(struct gpu_testcase *there, uint8_t *address, size_t filled, size_t all, struct error *err)
{
    bool ok = true;
    for (; ok && filled < all; filled *= 2)
        ok = cuda_copy(there->cuda, address + filled, address, filled < all - filled ? filled : all - filled, err);
    return ok;
}

// Uploads the distinct values of an operand once and fills the rest of it with copies of them.
static bool repeat_values(struct gpu_testcase *there, struct gpu_buffer *buffer, struct error *err)
{
    struct gpu_buffer first = *buffer;
    size_t guard = guard_bytes(buffer), filled = TESTCASE_DISTINCT * type_bytes(buffer->operand.type);
    first.operand.rows = 1;
    first.operand.width = TESTCASE_DISTINCT;
    if (!(buffer->memory = cuda_new(there->cuda, buffer->bytes + 2 * guard, "a testcase", err)))
        return false;
    buffer->address = buffer->memory + guard;
    uint8_t *image = memory_grow(NULL, filled, 1);
    to_device(&first, image);
    bool ok = cuda_upload(there->cuda, buffer->address, image, filled, err)
        && repeat(there, buffer->address, filled, buffer->bytes, err);
    free(image);
    return ok;
}

static bool repeat_pages(struct gpu_testcase *there, struct gpu_buffer *buffer, struct error *err)
{
    const struct testcase *testcase = there->testcase;
    size_t filled = testcase->pages_bytes - buffer->lead, all = testcase->pages_there - buffer->lead;
    if (!(buffer->memory = cuda_new(there->cuda, testcase->pages_there, "pages", err)))
        return false;
    buffer->address = buffer->memory + buffer->lead;
    buffer->bytes = testcase->pages_there;
    return cuda_upload(there->cuda, buffer->memory, testcase->pages, testcase->pages_bytes, err)
        && repeat(there, buffer->address, filled, all, err);
}

static bool open_operand(struct gpu_testcase *there, const struct testcase_operand *operand, struct error *err)
{
    struct testcase *testcase = there->testcase;
    const uint8_t *host = *operand->slot;
    size_t lead = 0;
    if (testcase->pages && host >= testcase->pages && host < testcase->pages + testcase->pages_bytes)
        lead = (size_t)(host - testcase->pages);
    const struct gpu_buffer *known = find_buffer(there, host - lead);
    if (!known) {
        struct gpu_buffer *buffer = &there->buffers[there->buffer_count++];
        *buffer = (struct gpu_buffer){
            .host = host - lead, .lead = lead, .operand = *operand, .output = find_output(testcase, host - lead)
        };
        int extra = operand->rows ? testcase->room.rows - testcase_rows(testcase) : 0;
        buffer->bytes = (value_count(operand) + (size_t)greater(extra, 0) * operand->width) * type_bytes(operand->type);
        bool repeated = testcase->repeats && operand->rows && value_count(operand) > TESTCASE_DISTINCT;
        if (!(lead && testcase->pages_there ? repeat_pages
                  : repeated                ? repeat_values
                                            : upload_buffer)(there, buffer, err))
            return false;
        known = buffer;
    }
    assert(known->operand.type == operand->type);
    *operand->slot = known->address - known->lead + lead;
    return true;
}

static struct cuda_shape shape_of(const struct gpu_testcase *there)
{
    const struct testcase_room *room = &there->testcase->room;
    return (struct cuda_shape){
        .rows = room->rows,
        .tokens = room->tokens,
        .sequences = room->sequences,
        .rows_each = room->rows_each,
        .context = room->context,
        .sm = cuda_sm(there->cuda),
        .multiprocessors = room->multiprocessors ? room->multiprocessors : cuda_multiprocessors(there->cuda),
        .shared_bytes = cuda_shared_bytes(there->cuda),
    };
}

static void describe(struct gpu_testcase *there, const struct kernel *kernel)
{
    struct cuda_shape shape = shape_of(there);
    set_rows(there, there->testcase->op, there->args);
    there->call_count = kernel->describe(kernel, there->args, &shape, there->calls);
}

bool gpu_testcase_open(struct gpu_testcase *there, struct cuda *cuda, const struct kernel *kernel,
                       struct testcase *testcase, struct error *err)
{
    struct testcase_operand operands[TESTCASE_OPERANDS_MAX];
    *there = (struct gpu_testcase){ .cuda = cuda, .testcase = testcase, .args = testcase_args_for(testcase, kernel) };
    int count = testcase_operands(testcase, kernel, there->args, operands);
    bool ok = open_batch(there, err);
    for (int i = 0; i < count && ok; i++)
        ok = open_operand(there, &operands[i], err);
    if (!ok)
        return gpu_testcase_close(there), false;
    describe(there, kernel);
    return true;
}

static bool copy_buffer(struct gpu_testcase *there, struct gpu_buffer *buffer, struct error *err)
{
    const uint8_t *from = buffer->memory;
    size_t all = buffer->bytes + 2 * guard_bytes(buffer), offset = (size_t)(buffer->address - buffer->memory);
    if (!(buffer->memory = cuda_new(there->cuda, all, "a testcase", err)))
        return false;
    buffer->address = buffer->memory + offset;
    return cuda_copy(there->cuda, buffer->memory, from, all, err);
}

bool gpu_testcase_copy(struct gpu_testcase *there, const struct gpu_testcase *from, const struct kernel *kernel,
                       struct error *err)
{
    struct testcase_operand operands[TESTCASE_OPERANDS_MAX];
    *there = *from;
    there->batch.on_device = &there->view;
    there->batch_memory = NULL; // `from` keeps it
    there->args = testcase_copy_args(from->testcase, from->args);
    bool ok = true;
    for (int i = 0; i < there->buffer_count; i++) {
        if (ok)
            ok = copy_buffer(there, &there->buffers[i], err);
        else
            there->buffers[i].memory = NULL; // it is the other's
    }
    if (!ok)
        return gpu_testcase_close(there), false;
    int count = testcase_operands(there->testcase, kernel, there->args, operands);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < from->buffer_count; j++)
            if (*operands[i].slot == from->buffers[j].address)
                *operands[i].slot = there->buffers[j].address;
    describe(there, kernel);
    return true;
}

void gpu_testcase_close(struct gpu_testcase *there)
{
    for (int i = 0; i < there->buffer_count; i++)
        cuda_free(there->cuda, there->buffers[i].memory);
    cuda_free(there->cuda, there->batch_memory);
}

// ---- running ----

bool gpu_testcase_launch(const struct gpu_testcase *there, struct error *err)
{
    for (int i = 0; i < there->call_count; i++)
        if (!cuda_call_queue(there->cuda, &there->calls[i], err))
            return false;
    return true;
}

static bool is_filled(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != GUARD)
            return false;
    return true;
}

static bool download_buffer(const struct gpu_testcase *there, const struct gpu_buffer *buffer, bool *strayed,
                            struct error *err)
{
    size_t all = buffer->bytes + 2 * GUARD_BYTES;
    uint8_t *image = memory_new(all, 1);
    bool ok = cuda_download(there->cuda, image, buffer->memory, all, err) && cuda_wait(there->cuda, err);
    if (ok) {
        *strayed |= !is_filled(image, GUARD_BYTES) || !is_filled(image + all - GUARD_BYTES, GUARD_BYTES);
        from_device(buffer, image + GUARD_BYTES, there->testcase->output[buffer->output].data);
    }
    free(image);
    return ok;
}

bool gpu_testcase_read(const struct gpu_testcase *there, bool *strayed, struct error *err)
{
    bool ok = cuda_wait(there->cuda, err);
    for (int i = 0; i < there->buffer_count && ok; i++)
        ok = there->buffers[i].output < 0 || download_buffer(there, &there->buffers[i], strayed, err);
    return ok;
}

static bool run(const struct check_device *device, const struct kernel *kernel, struct testcase *testcase,
                bool *strayed, struct error *err)
{
    const struct kernels_cuda *kernels = (const struct kernels_cuda *)device;
    struct gpu_testcase there;
    if (!gpu_testcase_open(&there, kernels->cuda, kernel, testcase, err))
        return false;
    bool ok = gpu_testcase_launch(&there, err) && gpu_testcase_read(&there, strayed, err);
    gpu_testcase_close(&there);
    return ok;
}

struct kernels_cuda kernels_cuda_on(struct cuda *cuda) { return (struct kernels_cuda){ { run }, cuda }; }
