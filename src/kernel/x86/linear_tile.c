// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_tile.c: GEMM micro-kernels, y = W x for sixteen rows of W and a register tile of tokens, with
// weights dequantised in registers. All instruction sets share the definition, down to the order of roundings. A lane
// is a row, so the sum over k does not depend on the number of tokens.
//   block formats: activations are integers in blocks of 32, of 8 or 16 bits (kernel/int8.h, kernel/int16.h). For each
//       sub-block, in the order of k:
//       sum = fma(exact integer dot product, scale of W * scale of x, sum), and where the format has minima
//       sum = fma(minimum, scale of x * integer sum of x, sum)
//   floats: the products of 32 consecutive k are summed by fma from zero, then added to the sum
//   FP8_32: the products of 16 consecutive k are summed by fma from zero, then sum = fma(these, scale of W, sum)
// An instruction set has its own dequantise() for the codes of a block, dot() of these with up to TOKENS_AT_ONCE tokens
// (half as many of int16), and load_e4m3() for 256ths of sixteen values.
#include "kernel/x86/linear_tile.h"

#include "kernel/x86/vector.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__OPTIMIZE__)
#define UNROLL _Pragma("GCC unroll 16")
#else
#define UNROLL
#endif

enum { HALVES = PACKED_ROWS / LANES }; // vectors of a group of rows
enum { FLOAT_BLOCK = 32 };             // products per partial sum

// ---- loads ----

// The activations of a tile: a block of 32 k of so many tokens.
struct tile {
    int planes, tokens;
    const uint8_t *block;
};

ALWAYS_INLINE const uint8_t *tile_part(struct tile x, enum tile_part part, int token)
{
    return x.block + tile_part_at(x.planes, x.tokens, part, token);
}

// Four k of one token.
ALWAYS_INLINE const uint8_t *tile_quad(struct tile x, int plane, int token, int quad)
{
    return x.block + (plane * x.tokens + token) * INT8_BLOCK + 4 * quad;
}

// The tile_part that has the sum of a sub-block's activations.
ALWAYS_INLINE enum tile_part tile_minus(struct packed_format f, int part)
{
    return f.sub == INT8_BLOCK ? TILE_MINUS : part ? TILE_MINUS_HIGH : TILE_MINUS_LOW;
}

ALWAYS_INLINE vec splat(const uint8_t *x) { return vec_set(*(const float *)(const void *)x); }
ALWAYS_INLINE ivec splat_int(const uint8_t *x) { return ivec_set(*(const int32_t *)(const void *)x); }

ALWAYS_INLINE vec load_f32(const uint8_t *w) { return vec_load((const void *)w); }
ALWAYS_INLINE vec load_f16(const uint8_t *w) { return vec_from_f16(half_load(w)); }
ALWAYS_INLINE vec load_bf16(const uint8_t *w) { return vec_from_bf16(half_load(w)); }
ALWAYS_INLINE vec load_u8(const uint8_t *w) { return vec_from_int(ivec_from_u8(w)); }
ALWAYS_INLINE vec load_i8(const uint8_t *w) { return vec_from_int(ivec_from_i8(w)); }

// E8M0 is an f32 exponent; the smallest, 2^-127, is subnormal and clamped.
ALWAYS_INLINE vec load_half_e8m0(const uint8_t *w)
{
    ivec bits = ivec_left(ivec_from_u8(w), F32_MANTISSA);
    return vec_mul(vec_from_bits(ivec_max(bits, ivec_set(1 << (F32_MANTISSA - 1)))), vec_set(0.5f));
}

// E4M3 shifted left by seven is an f16 of 1/256 of the value.
ALWAYS_INLINE vec load_half_e4m3(const uint8_t *w)
{
    return vec_mul(vec_from_f16(half_left(half_from_u8(w), 7)), vec_set(128));
}

// ---- codes ----

// The initial value of the sum: minus the offset times the sum of a sub-block's activations.
ALWAYS_INLINE ivec offset_of(struct packed_format f, int part, struct tile x, int token)
{
    return ivec_left(splat_int(tile_part(x, tile_minus(f, part), token)), (unsigned)f.offset);
}

// The plane's part of quad i, moved to bit `to`.
ALWAYS_INLINE ivec plane_bits(const uint8_t *plane, int width, int i, int to)
{
    ivec vector = ivec_load(plane + i % width * PACKED_VECTOR);
    int shift = i / width * width - to;
    if (width == 8)
        return vector;
    vector = shift > 0 ? MM(srli_epi16)(vector, shift) : MM(slli_epi16)(vector, -shift);
    return ivec_and(vector, MM(set1_epi8)((char)(((1 << width) - 1) << to)));
}

// The codes of quad i, one per byte.
ALWAYS_INLINE ivec quad_codes(struct packed_format f, const uint8_t *codes, int i)
{
    int width = packed_plane(f.bits), rest = f.bits - width;
    ivec quad = plane_bits(codes, width, i, 0);
    return rest ? ivec_or(quad, plane_bits(codes + width * PACKED_VECTOR, rest, i, width)) : quad;
}

ALWAYS_INLINE __m128i level_table(struct packed_format f)
{
    static const int8_t iq4[16] = { IQ4_LEVELS }, e2m1[16] = { E2M1_DOUBLED };
    return _mm_loadu_si128((const void *)(f.levels == PACKED_IQ4 ? iq4 : e2m1));
}

#if defined(__AVX512F__)
#include "kernel/x86/linear_dot_avx512.h"
#else
#include "kernel/x86/linear_dot_avx2.h"
#endif

// ---- scales ----

ALWAYS_INLINE vec small_scale(struct packed_format f, const uint8_t *small)
{
    return f.scale == PACKED_F16_U8 ? load_u8(small)
        : f.scale == PACKED_F16_I8  ? load_i8(small)
        : f.scale == PACKED_E8M0    ? load_half_e8m0(small)
                                    : load_half_e4m3(small);
}

// The scale of a record's sub-block `sub`, for the rows of one half.
ALWAYS_INLINE vec scale_of(struct packed_format f, const uint8_t *record, int sub, int half)
{
    const uint8_t *small = record + packed_small_scales_at(f) + sub * PACKED_ROWS + half * LANES;
    if (f.scale == PACKED_E8M0 || f.scale == PACKED_E4M3)
        return small_scale(f, small);
    vec scale = load_f16(record + 2 * half * LANES);
    return f.scale == PACKED_F16 ? scale : vec_mul(scale, small_scale(f, small));
}

ALWAYS_INLINE vec min_of(struct packed_format f, const uint8_t *record, int sub, int half)
{
    vec min = load_f16(record + packed_min_at(f) + 2 * half * LANES);
    if (f.min == PACKED_ADD_F16)
        return min;
    return vec_mul(min, load_u8(record + packed_small_mins_at(f) + sub * PACKED_ROWS + half * LANES));
}

// The factor of a minimum: the sum of the sub-block's activations, negated if minima are subtracted.
ALWAYS_INLINE vec sum_of(struct packed_format f, struct tile x, int part, int token)
{
    if (f.min == PACKED_ADD_F16)
        return splat(tile_part(x, TILE_SUM, token));
    return vec_mul(splat(tile_part(x, TILE_SCALE, token)),
                   vec_from_int(splat_int(tile_part(x, tile_minus(f, part), token))));
}

// ---- tiles ----

// A sub-block's scale and minimum.
struct shared {
    vec scale[HALVES], min[HALVES];
};

ALWAYS_INLINE struct shared shared_of(struct packed_format f, const uint8_t *record, int sub)
{
    struct shared shared;
    for (int half = 0; half < HALVES; half++) {
        shared.scale[half] = scale_of(f, record, sub, half);
        shared.min[half] = f.min ? min_of(f, record, sub, half) : vec_set(0);
    }
    return shared;
}

// Adds one token's dot product for a sub-block to its sum: `part` of the block of 32 at x.
ALWAYS_INLINE void add_dot(struct packed_format f, const struct shared *w, int part, struct tile x, int token,
                           const ivec dot[HALVES], vec sum[HALVES])
{
    for (int half = 0; half < HALVES; half++) {
        vec factor = vec_mul(w->scale[half], splat(tile_part(x, TILE_SCALE, token)));
        sum[half] = vec_fma(vec_from_int(dot[half]), factor, sum[half]);
        if (f.min)
            sum[half] = vec_fma(w->min[half], sum_of(f, x, part, token), sum[half]);
    }
}

// Adds one sub-block: `part` of the block of 32 at `codes` and x.
ALWAYS_INLINE void add_sub_block(struct packed_format f, const uint8_t *record, int sub, const uint8_t *codes, int part,
                                 struct tile x, vec sums[TILE_TOKENS][HALVES])
{
    struct shared shared = shared_of(f, record, sub);
    struct dequantised dequantised = dequantise(f, codes, part);
    const int at_once = TOKENS_AT_ONCE / x.planes ? TOKENS_AT_ONCE / x.planes : 1;
    UNROLL for (int first = 0; first < x.tokens; first += at_once)
    {
        ivec dots[TOKENS_AT_ONCE][HALVES];
        int count = x.tokens < at_once ? x.tokens : at_once;
        dot(f, &dequantised, part, x, first, count, dots);
        UNROLL for (int i = 0; i < count; i++) add_dot(f, &shared, part, x, first + i, dots[i], sums[first + i]);
    }
}

ALWAYS_INLINE void clear(int tokens, vec sums[TILE_TOKENS][HALVES])
{
    UNROLL for (int i = 0; i < tokens; i++) for (int half = 0; half < HALVES; half++) sums[i][half] = vec_set(0);
}

ALWAYS_INLINE void store_sums(int tokens, const vec sums[TILE_TOKENS][HALVES], float *out)
{
    UNROLL for (int i = 0; i < tokens; i++) for (int half = 0; half < HALVES; half++)
        vec_store(out + i * PACKED_ROWS + half * LANES, sums[i][half]);
}

// out[token][row] for the sixteen rows of a group and the tokens of a tile, over `in` values.
ALWAYS_INLINE void integer_tile(struct packed_format f, const uint8_t *w, struct tile x, int in, float *out)
{
    vec sums[TILE_TOKENS][HALVES];
    clear(x.tokens, sums);
    for (int k = 0; k < in; k += f.block, w += packed_record_bytes(f)) {
        const uint8_t *codes = w + packed_codes_at(f);
        for (int block = 0; block < f.block / INT8_BLOCK; block++) {
            UNROLL for (int part = 0; part < INT8_BLOCK / f.sub; part++)
                add_sub_block(f, w, block * (INT8_BLOCK / f.sub) + part, codes, part, x, sums);
            codes += packed_codes_bytes(f);
            x.block += x.tokens * tile_integer_bytes(x.planes);
        }
    }
    store_sums(x.tokens, sums, out);
}

ALWAYS_INLINE vec load_plain(enum dtype dtype, const uint8_t *w)
{
    return dtype == DTYPE_F32 ? load_f32(w) : dtype == DTYPE_F16 ? load_f16(w) : load_bf16(w);
}

ALWAYS_INLINE void plain_tile(enum dtype dtype, int tokens, const uint8_t *w, const uint8_t *x, int in, float *out)
{
    int value_bytes = dtype == DTYPE_F32 ? 4 : 2;
    vec sums[TILE_TOKENS][HALVES], parts[TILE_TOKENS][HALVES];
    clear(tokens, sums);
    while (in > 0) {
        int count = in < FLOAT_BLOCK ? in : FLOAT_BLOCK;
        clear(tokens, parts);
        for (int k = 0; k < count; k++, w += PACKED_ROWS * value_bytes, x += tokens * TILE_FLOAT_BYTES)
            for (int half = 0; half < HALVES; half++) {
                vec weights = load_plain(dtype, w + half * LANES * value_bytes);
                UNROLL for (int i = 0; i < tokens; i++)
                    parts[i][half] = vec_fma(weights, splat(x + i * TILE_FLOAT_BYTES), parts[i][half]);
            }
        UNROLL for (int i = 0; i < tokens; i++) for (int half = 0; half < HALVES; half++)
            sums[i][half] = vec_add(sums[i][half], parts[i][half]);
        in -= count;
    }
    store_sums(tokens, sums, out);
}

// FP8_32: runs of sixteen k whose codes are low bytes or high bytes of the record's words; both at once if registers
// allow, for more parallelism.
ALWAYS_INLINE void add_fp8_runs(int first, int end, int tokens, const uint8_t *record, const uint8_t *x,
                                vec sums[TILE_TOKENS][HALVES])
{
    const int run_bytes = FP8_RUN * tokens * TILE_FLOAT_BYTES;
    const uint8_t *codes = record + FP8_SCALES_BYTES;
    vec parts[2][TILE_TOKENS][HALVES];
    UNROLL for (int run = first; run < end; run++) clear(tokens, parts[run]);
    for (int k = 0; k < FP8_RUN; k++, codes += 2 * PACKED_ROWS, x += tokens * TILE_FLOAT_BYTES)
        UNROLL for (int run = first; run < end; run++)
        {
            vec weights[HALVES];
            load_e4m3(codes, run, weights);
            for (int half = 0; half < HALVES; half++)
                UNROLL for (int i = 0; i < tokens; i++) parts[run][i][half] = vec_fma(
                    weights[half], splat(x + run * run_bytes + i * TILE_FLOAT_BYTES), parts[run][i][half]);
        }
    UNROLL for (int run = first; run < end; run++)
        UNROLL for (int i = 0; i < tokens; i++) for (int half = 0; half < HALVES; half++)
            sums[i][half] = vec_fma(parts[run][i][half], load_f32(record + half * LANES * 4), sums[i][half]);
}

ALWAYS_INLINE void fp8_tile(int tokens, const uint8_t *w, const uint8_t *x, int in, float *out)
{
    vec sums[TILE_TOKENS][HALVES];
    clear(tokens, sums);
    for (int k = 0; k < in; k += 2 * FP8_RUN, w += FP8_RECORD_BYTES, x += 2 * FP8_RUN * tokens * TILE_FLOAT_BYTES)
        if (2 * tokens <= TILE_TOKENS) {
            add_fp8_runs(0, 2, tokens, w, x, sums);
        } else {
            add_fp8_runs(0, 1, tokens, w, x, sums);
            add_fp8_runs(1, 2, tokens, w, x, sums);
        }
    store_sums(tokens, sums, out);
}

ALWAYS_INLINE void float_tile(enum dtype dtype, int tokens, const uint8_t *w, const uint8_t *x, int in, float *out)
{
    if (dtype == DTYPE_FP8_32)
        fp8_tile(tokens, w, x, in, out);
    else
        plain_tile(dtype, tokens, w, x, in, out);
}

// ---- every format and width ----

#if defined(__AMX_TILE__)
#include "kernel/x86/linear_amx.h"
#else
#define any_integer_tile integer_tile
bool ISA_NAME(linear_begin)(uint64_t formats, int tokens) { return (void)formats, (void)tokens, false; }
void ISA_NAME(linear_end)(bool begun) { (void)begun; }
#endif

#define INTEGER_TILE(tokens, planes, id, ...)                                                                         \
    static void tile_##id##_##planes##_##tokens(const uint8_t *w, const uint8_t *x, int in, float *out)               \
    {                                                                                                                 \
        any_integer_tile((struct packed_format)PACKED_FORMAT(__VA_ARGS__), w, (struct tile){ planes, tokens, x }, in, \
                         out);                                                                                        \
    }
#define FLOAT_TILE(tokens, id)                                                               \
    static void tile_##id##_##tokens(const uint8_t *w, const uint8_t *x, int in, float *out) \
    {                                                                                        \
        float_tile(DTYPE_##id, tokens, w, x, in, out);                                       \
    }
#define INTEGER_TILE_NAME(tokens, planes, id) tile_##id##_##planes##_##tokens,
#define FLOAT_TILE_NAME(tokens, id) tile_##id##_##tokens,

#define X(id, ...) TILE_WIDTHS(INTEGER_TILE, 1, id, __VA_ARGS__) TILE_WIDTHS(INTEGER_TILE, 2, id, __VA_ARGS__)
PACKED_FORMATS(X)
#undef X
#define X(id) TILE_WIDTHS(FLOAT_TILE, id)
PACKED_FLOATS(X)
#undef X

tile_run *const ISA_NAME(linear_tiles)[TILE_PLANES_MAX][DTYPE_COUNT][TILE_WIDTH_COUNT] = {
#define X(id, ...) [TILE_INT8 - 1][DTYPE_##id] = { TILE_WIDTHS(INTEGER_TILE_NAME, 1, id) },
    PACKED_FORMATS(X)
#undef X
#define X(id, ...) [TILE_INT16 - 1][DTYPE_##id] = { TILE_WIDTHS(INTEGER_TILE_NAME, 2, id) },
        PACKED_FORMATS(X)
#undef X
#define X(id) [0][DTYPE_##id] = { TILE_WIDTHS(FLOAT_TILE_NAME, id) },
            PACKED_FLOATS(X)
#undef X
};
