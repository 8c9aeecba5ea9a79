// SPDX-License-Identifier: Apache-2.0
// kernel/x86/linear_tile.h: y = W x for sixteen rows of W and a few tokens, the definition that all x86 kernels share,
// down to the order of their roundings. A lane is a row, so the sum over k does not depend on the number of tokens.
//   int8 formats: activations are rounded in blocks of 32 (kernel/int8.h). For each sub-block, in the order of k:
//       sum = fma(exact integer dot product, scale of W * scale of x, sum), and where the format has minima
//       sum = fma(minimum, scale of x * integer sum of x, sum)
//   floats: the products of 32 consecutive k are summed by fma from zero, then added to the sum
//   FP8_32: the products of 16 consecutive k are summed by fma from zero, then sum = fma(these, scale of W, sum)
// A file that includes this one defines its vectors and what is done with them first:
//   LANES, HALVES, floats, integers; zero, add, multiply, multiply_add, to_floats, shift_left, splat, splat_integer and
//   store; load_f32, load_f16, load_bf16, load_u8, load_i8, load_half_e8m0 and load_half_e4m3: LANES values as floats;
//   load_e4m3: 256ths of sixteen values; TILE_TOKENS, the most tokens of a tile; dequantise() for the codes of a block,
// and   dot() of these with TOKENS_AT_ONCE
#ifndef KERNEL_X86_LINEAR_TILE_H
#define KERNEL_X86_LINEAR_TILE_H

_Static_assert(HALVES *LANES == PACKED_ROWS, "the vectors of a group are its halves, or it is one");

// ---- scales ----

TILE_INLINE floats small_scale(struct packed_format f, const uint8_t *small)
{
    return f.scale == PACKED_F16_U8 ? load_u8(small)
        : f.scale == PACKED_F16_I8  ? load_i8(small)
        : f.scale == PACKED_E8M0    ? load_half_e8m0(small)
                                    : load_half_e4m3(small);
}

// Of sub-block `sub` of a record, for the rows of one half.
TILE_INLINE floats scale_of(struct packed_format f, const uint8_t *record, int sub, int half)
{
    const uint8_t *small = record + packed_small_scales_at(f) + sub * PACKED_ROWS + half * LANES;
    if (f.scale == PACKED_E8M0 || f.scale == PACKED_E4M3)
        return small_scale(f, small);
    floats scale = load_f16(record + 2 * half * LANES);
    return f.scale == PACKED_F16 ? scale : multiply(scale, small_scale(f, small));
}

TILE_INLINE floats min_of(struct packed_format f, const uint8_t *record, int sub, int half)
{
    floats min = load_f16(record + packed_min_at(f) + 2 * half * LANES);
    if (f.min == PACKED_ADD_F16)
        return min;
    return multiply(min, load_u8(record + packed_small_mins_at(f) + sub * PACKED_ROWS + half * LANES));
}

// What a minimum is multiplied by: the sum of the sub-block's activations, negated where minima are subtracted.
TILE_INLINE floats sum_of(struct packed_format f, const uint8_t *x, int tokens, int part, int token)
{
    if (f.min == PACKED_ADD_F16)
        return splat(tile_part(x, tokens, TILE_SUM, token));
    return multiply(splat(tile_part(x, tokens, TILE_SCALE, token)),
                    to_floats(splat_integer(tile_part(x, tokens, tile_minus(f, part), token))));
}

// ---- tiles ----

// What a sub-block's weights share.
struct shared {
    floats scale[HALVES], min[HALVES];
};

TILE_INLINE struct shared shared_of(struct packed_format f, const uint8_t *record, int sub)
{
    struct shared shared;
    for (int half = 0; half < HALVES; half++) {
        shared.scale[half] = scale_of(f, record, sub, half);
        shared.min[half] = f.min ? min_of(f, record, sub, half) : zero();
    }
    return shared;
}

// The dot product of one token's sub-block joins its sum: `part` of the block of 32 at x.
TILE_INLINE void add_dot(struct packed_format f, const struct shared *w, int part, const uint8_t *x, int tokens,
                         int token, const integers dot[HALVES], floats sum[HALVES])
{
    for (int half = 0; half < HALVES; half++) {
        floats factor = multiply(w->scale[half], splat(tile_part(x, tokens, TILE_SCALE, token)));
        sum[half] = multiply_add(to_floats(dot[half]), factor, sum[half]);
        if (f.min)
            sum[half] = multiply_add(w->min[half], sum_of(f, x, tokens, part, token), sum[half]);
    }
}

// One sub-block: `part` of the block of 32 that begins at `codes` and x.
TILE_INLINE void add_sub_block(struct packed_format f, int tokens, const uint8_t *record, int sub, const uint8_t *codes,
                               int part, const uint8_t *x, floats sums[TILE_TOKENS][HALVES])
{
    struct shared shared = shared_of(f, record, sub);
    struct dequantised dequantised = dequantise(f, codes, part);
    UNROLL for (int first = 0; first < tokens; first += TOKENS_AT_ONCE)
    {
        integers dots[TOKENS_AT_ONCE][HALVES];
        int count = tokens < TOKENS_AT_ONCE ? tokens : TOKENS_AT_ONCE;
        dot(f, &dequantised, part, x, tokens, first, count, dots);
        UNROLL for (int i = 0; i < count; i++)
            add_dot(f, &shared, part, x, tokens, first + i, dots[i], sums[first + i]);
    }
}

TILE_INLINE void clear(int tokens, floats sums[TILE_TOKENS][HALVES])
{
    UNROLL for (int i = 0; i < tokens; i++) for (int half = 0; half < HALVES; half++) sums[i][half] = zero();
}

TILE_INLINE void store_sums(int tokens, const floats sums[TILE_TOKENS][HALVES], float *out)
{
    UNROLL for (int i = 0; i < tokens; i++) for (int half = 0; half < HALVES; half++)
        store(out + i * PACKED_ROWS + half * LANES, sums[i][half]);
}

// out[token][row] for the sixteen rows of a group and the tokens of a tile, over `in` values.
TILE_INLINE void int8_tile(struct packed_format f, int tokens, const uint8_t *w, const uint8_t *x, int in, float *out)
{
    floats sums[TILE_TOKENS][HALVES];
    clear(tokens, sums);
    for (int k = 0; k < in; k += f.block, w += packed_record_bytes(f)) {
        const uint8_t *codes = w + packed_codes_at(f);
        for (int block = 0; block < f.block / INT8_BLOCK; block++) {
            UNROLL for (int part = 0; part < INT8_BLOCK / f.sub; part++)
                add_sub_block(f, tokens, w, block * (INT8_BLOCK / f.sub) + part, codes, part, x, sums);
            codes += packed_codes_bytes(f);
            x += tokens * TILE_INT8_BYTES;
        }
    }
    store_sums(tokens, sums, out);
}

TILE_INLINE floats load_plain(enum dtype dtype, const uint8_t *w)
{
    return dtype == DTYPE_F32 ? load_f32(w) : dtype == DTYPE_F16 ? load_f16(w) : load_bf16(w);
}

TILE_INLINE void plain_tile(enum dtype dtype, int tokens, const uint8_t *w, const uint8_t *x, int in, float *out)
{
    int value_bytes = dtype == DTYPE_F32 ? 4 : 2;
    floats sums[TILE_TOKENS][HALVES], parts[TILE_TOKENS][HALVES];
    clear(tokens, sums);
    while (in > 0) {
        int count = in < FLOAT_BLOCK ? in : FLOAT_BLOCK;
        clear(tokens, parts);
        for (int k = 0; k < count; k++, w += PACKED_ROWS * value_bytes, x += tokens * TILE_FLOAT_BYTES)
            for (int half = 0; half < HALVES; half++) {
                floats weights = load_plain(dtype, w + half * LANES * value_bytes);
                UNROLL for (int i = 0; i < tokens; i++)
                    parts[i][half] = multiply_add(weights, splat(x + i * TILE_FLOAT_BYTES), parts[i][half]);
            }
        UNROLL for (int i = 0; i < tokens; i++) for (int half = 0; half < HALVES; half++)
            sums[i][half] = add(sums[i][half], parts[i][half]);
        in -= count;
    }
    store_sums(tokens, sums, out);
}

// The sixteen k of a record of FP8_32 whose codes are low bytes, and the sixteen whose codes are high bytes: both at
// once where there are registers for it, for neither waits for the other.
TILE_INLINE void add_fp8_runs(int first, int end, int tokens, const uint8_t *record, const uint8_t *x,
                              floats sums[TILE_TOKENS][HALVES])
{
    const int run_bytes = FP8_RUN * tokens * TILE_FLOAT_BYTES;
    const uint8_t *codes = record + FP8_SCALES_BYTES;
    floats parts[2][TILE_TOKENS][HALVES];
    UNROLL for (int run = first; run < end; run++) clear(tokens, parts[run]);
    for (int k = 0; k < FP8_RUN; k++, codes += 2 * PACKED_ROWS, x += tokens * TILE_FLOAT_BYTES)
        UNROLL for (int run = first; run < end; run++)
        {
            floats weights[HALVES];
            load_e4m3(codes, run, weights);
            for (int half = 0; half < HALVES; half++)
                UNROLL for (int i = 0; i < tokens; i++) parts[run][i][half] = multiply_add(
                    weights[half], splat(x + run * run_bytes + i * TILE_FLOAT_BYTES), parts[run][i][half]);
        }
    UNROLL for (int run = first; run < end; run++)
        UNROLL for (int i = 0; i < tokens; i++) for (int half = 0; half < HALVES; half++)
            sums[i][half] = multiply_add(parts[run][i][half], load_f32(record + half * LANES * 4), sums[i][half]);
}

TILE_INLINE void fp8_tile(int tokens, const uint8_t *w, const uint8_t *x, int in, float *out)
{
    floats sums[TILE_TOKENS][HALVES];
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

TILE_INLINE void float_tile(enum dtype dtype, int tokens, const uint8_t *w, const uint8_t *x, int in, float *out)
{
    if (dtype == DTYPE_FP8_32)
        fp8_tile(tokens, w, x, in, out);
    else
        plain_tile(dtype, tokens, w, x, in, out);
}

#endif
