// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_pack.c: from blocks as files have them to records as kernel/cuda/linear_packed.h has them. A
// lane's run of 32 values is the unit: every format's blocks are whole runs.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernel/cuda/linear.h"
#include "kernel/split.h"

enum { RUN_QUADS = LINEAR_LANE_VALUES / 4, RUN_SUBS_MAX = 2, RUNS_IN_RECORD = LINEAR_RECORD / LINEAR_LANE_VALUES };

static const struct linear_layout layouts[] = {
#define X(kind, ...) [LINEAR_##kind] = { __VA_ARGS__ },
    LINEAR_KINDS(X)
#undef X
};

// Holds the values of one row in a record that belong to a lane.
struct run {
    uint32_t quads[RUN_QUADS];
    float scales[RUN_SUBS_MAX], mins[RUN_SUBS_MAX];
    uint8_t small_scales[RUN_SUBS_MAX];
};

// ---- codes ----

// The first two and the last two bytes of a quad, in the halves of a word.
static inline uint32_t first_pair(uint32_t quad) { return (quad & 0xFF) | (quad & 0xFF00) << 8; }
static inline uint32_t last_pair(uint32_t quad) { return (quad >> 16 & 0xFF) | (quad >> 8 & 0xFF0000); }

static inline void put_word(uint8_t *plane_at, int plane, int lane, int i, uint32_t bits)
{
    uint32_t word;
    uint8_t *at = plane_at + linear_word_at(plane, lane, i);
    memcpy(&word, at, sizeof word);
    word |= bits;
    memcpy(at, &word, sizeof word);
}

// `upper`: the row is the lane's second.
static inline void put_codes(struct linear_layout f, const uint32_t *quads, int lane, int upper, uint8_t *record)
{
    for (int left = f.bits, plane; left > 0; left -= plane, record += linear_plane_bytes(plane)) {
        plane = linear_plane(left);
        int slots = 16 / plane; // of a word
        for (int i = 0; i < 2 * plane; i++) {
            uint32_t word = 0;
            for (int slot = i * slots + upper, at = upper * plane; slot < (i + 1) * slots; slot += 2, at += 2 * plane) {
                uint32_t quad = quad_bits(quads[slot / 4], left - plane, plane);
                word |= (slot & 2 ? last_pair(quad) : first_pair(quad)) << at;
            }
            put_word(record, plane, lane, i, word);
        }
    }
}

// A pair of E2M1 codes into the two words of eight slots.
static inline void place_e2m1(uint32_t pair, int slot, uint32_t words[2])
{
    uint64_t placed = (pair & 0x00080008) << 12 | (pair & 0x00070007) << 6;
    placed <<= linear_e2m1_rotation(slot);
    uint32_t bits = (uint32_t)(placed | placed >> 32), first = slot < 3 ? ~0u : slot < 6 ? 0 : LINEAR_E2M1_FIRST;
    words[0] |= bits & first;
    words[1] |= bits & ~first;
}

// Places two quads in the slots of the lane's first row, or its second.
static inline void place_quads(const uint32_t quads[2], int upper, uint32_t words[2])
{
    for (int j = 0; j < 2; j++) {
        place_e2m1(first_pair(quads[j]), 4 * j + upper, words);
        place_e2m1(last_pair(quads[j]), 4 * j + upper + 2, words);
    }
}

static inline void put_e2m1(const uint32_t *quads, int lane, int upper, uint8_t *record)
{
    for (int i = 0; i < RUN_QUADS; i += 2) {
        uint32_t words[2] = { 0, 0 };
        if (upper) // each with places that are known when it is compiled
            place_quads(quads + i, 1, words);
        else
            place_quads(quads + i, 0, words);
        put_word(record, 4, lane, i, words[0]);
        put_word(record, 4, lane, i + 1, words[1]);
    }
}

// ---- scales ----

static inline void put_bf16(uint8_t *at, float value)
{
    uint16_t code = f32_to_bf16(value);
    memcpy(at, &code, sizeof code);
}

static inline void put_scales(struct linear_layout f, const struct run *run, int lane, int upper, uint8_t *record)
{
    int subs = LINEAR_LANE_VALUES / f.block;
    uint8_t *scales = record + linear_scales_at(f), *mins = record + linear_mins_at(f);
    for (int s = 0; s < subs; s++) {
        int at = (lane * subs + s) * 2 + upper;
        if (f.small)
            scales[at] = run->small_scales[s];
        else if (f.floats && f.bits == 4)
            put_bf16(scales + 2 * at, fminf(run->scales[s], 0x1p28f) * 0x1p98f);
        else if (f.floats)
            put_bf16(scales + 2 * at, run->scales[s] * 0x1p92f);
        else
            put_bf16(scales + 2 * at, run->scales[s] * 0x1p105f / (float)(1 << (8 - f.bits)));
        if (f.min)
            put_bf16(mins + 2 * at, run->mins[s] * 0x1p-28f);
    }
}

// E4M3 without a sign as the scale of one byte that linear_packed.h defines.
static inline uint8_t small_scale(uint8_t code)
{
    static const uint8_t subnormals[8] = { 0, 1 << 3, 2 << 3, 2 << 3 | 4, 3 << 3, 3 << 3 | 2, 3 << 3 | 4, 3 << 3 | 6 };
    return (uint8_t)(code < 8 ? subnormals[code] : code + (3 << 3));
}

// ---- from a block to its runs ----

// Where the kind has a minimum and the format has not, its codes are about their middle.
static inline float min_of(struct packed_format from, const struct block_parts *parts, int s)
{
    return from.min ? parts_min(from, parts, s) : -parts_scale(from, parts, s) * (float)(1 << from.offset);
}

// Returns signed values and IQ4 levels biased by 128, so that -128 is a byte of 0; other codes stay as they are.
static inline uint32_t level_quad(struct packed_format from, uint32_t quad)
{
    static const int8_t iq4[16] = { IQ4_LEVELS };
    if (from.levels == PACKED_SIGNED)
        return quad ^ 0x80808080;
    if (from.levels != PACKED_IQ4)
        return quad;
    uint32_t levels = 0;
    for (int i = 0; i < 4; i++)
        levels |= (uint32_t)(uint8_t)(iq4[quad >> 8 * i & 15] + 128) << 8 * i;
    return levels;
}

// Run `index` of a block.
static inline void take_run(struct packed_format from, struct linear_layout f, const struct block_parts *parts,
                            int index, struct run *run)
{
    int subs = LINEAR_LANE_VALUES / f.block;
    for (int i = 0; i < RUN_QUADS; i++)
        run->quads[i] = level_quad(from, parts->quads[index * RUN_QUADS + i]);
    for (int s = 0; s < subs; s++) {
        int at = index * subs + s;
        run->scales[s] = parts_scale(from, parts, at);
        run->mins[s] = f.min ? min_of(from, parts, at) : 0;
        if (!f.small)
            continue;
        run->small_scales[s] = small_scale(parts->scales[at]);
        for (int i = 0; i < RUN_QUADS / subs && !parts->scales[at]; i++)
            run->quads[s * RUN_QUADS / subs + i] = 0; // a byte cannot say zero
    }
}

static inline void put_run(struct linear_layout f, const struct run *run, int row, int index, uint8_t *group)
{
    uint8_t *record = group + (size_t)(index / RUNS_IN_RECORD) * (size_t)linear_record_bytes(f);
    int lane = row % 8 * 4 + index % RUNS_IN_RECORD, upper = row / 8;
    if (f.floats && f.bits == 4)
        put_e2m1(run->quads, lane, upper, record);
    else
        put_codes(f, run->quads, lane, upper, record);
    put_scales(f, run, lane, upper, record);
}

// Packs `rows` rows of `cols` values, at most sixteen, into a group that is all zeros.
static void pack_FP8_32(const uint8_t *in, int rows, int cols, uint8_t *group)
{
    const struct FP8_32 *block = (const void *)in;
    for (int row = 0; row < rows; row++)
        for (int index = 0; index < cols / LINEAR_LANE_VALUES; index++, block++) {
            struct run run;
            memcpy(run.quads, block->codes, sizeof run.quads);
            run.scales[0] = fp8_scale(block);
            if (fabsf(run.scales[0]) > 0x1p34f) // what bfloat16 can hold of it
                run.scales[0] = copysignf(0x1p34f, run.scales[0]);
            put_run(layouts[LINEAR_e4m3_32], &run, row, index, group);
        }
}

#define X(id, ...) static const struct packed_format format_##id = PACKED_FORMAT(__VA_ARGS__);
PACKED_FORMATS(X)
#undef X

#define X(id, kind, of)                                                                     \
    static void pack_##id(const uint8_t *in, int rows, int cols, uint8_t *group)            \
    {                                                                                       \
        const struct id *block = (const void *)in;                                          \
        for (int row = 0; row < rows; row++)                                                \
            for (int index = 0; index < cols / LINEAR_LANE_VALUES; block++) {               \
                struct block_parts parts;                                                   \
                split_##id(block, &parts);                                                  \
                for (int i = 0; i < format_##id.block / LINEAR_LANE_VALUES; i++, index++) { \
                    struct run run;                                                         \
                    take_run(format_##id, layouts[LINEAR_##kind], &parts, i, &run);         \
                    put_run(layouts[LINEAR_##kind], &run, row, index, group);               \
                }                                                                           \
            }                                                                               \
    }
LINEAR_SPLIT(X, )
#undef X

static const struct {
    void (*pack)(const uint8_t *in, int rows, int cols, uint8_t *group);
    enum linear_kind kind;
} packers[DTYPE_COUNT] = {
#define X(id, kind, of) [DTYPE_##id] = { pack_##id, LINEAR_##kind },
    LINEAR_FORMATS(X, )
#undef X
};

enum linear_kind linear_kind_of(enum dtype dtype)
{
    assert(packers[dtype].pack);
    return packers[dtype].kind;
}

size_t linear_group_bytes(enum linear_kind kind, int cols)
{
    return (size_t)((cols + LINEAR_RECORD - 1) / LINEAR_RECORD) * (size_t)linear_record_bytes(layouts[kind]);
}

static int group_count(int rows) { return (rows + LINEAR_ROWS - 1) / LINEAR_ROWS; }

static size_t packed_bytes(enum dtype dtype, int rows, int cols)
{
    return (size_t)group_count(rows) * linear_group_bytes(linear_kind_of(dtype), cols);
}

static void pack_chunk(const struct weight *weight, int chunk, int chunks, void *out)
{
    size_t row_bytes = dtype_bytes(weight->dtype, (size_t)weight->cols);
    size_t group_bytes = linear_group_bytes(linear_kind_of(weight->dtype), weight->cols);
    int first, end;
    kernel_range(group_count(weight->rows), chunk, chunks, &first, &end);
    for (int group = first; group < end; group++) {
        int row = group * LINEAR_ROWS, rows = weight->rows - row < LINEAR_ROWS ? weight->rows - row : LINEAR_ROWS;
        const uint8_t *from = (const uint8_t *)weight->data + (size_t)row * row_bytes;
        uint8_t *to = (uint8_t *)out + (size_t)group * group_bytes;
        memset(to, 0, group_bytes);
        packers[weight->dtype].pack(from, rows, weight->cols, to);
    }
}

const struct kernel_packing linear_packing = { .name = "cuda", .bytes = packed_bytes, .pack = pack_chunk };
