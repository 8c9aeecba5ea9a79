// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/attention_step.cuh: one step of decode attention in a warp: scores, online softmax, weighted sum of V. S
// = K Q is an m16n8k16 product with 16 tokens as rows and the queries as its 8 columns; O = V P has channels of V as
// rows and probabilities as columns, which `movmatrix` transposes into that operand.
//   (1) g = lane / 4, t = lane % 4. A lane has of K the tokens g and g + 8 and channels [t D/4, (t+1) D/4), of V the
//       tokens 2t, 2t+1, 2t+8, 2t+9 and channels [g D/8, (g+1) D/8), and of columns 2t and 2t+1 all else
//   (2) the running maximum of a column is a whole number, so that what it weighs loses no bits, and moves only when a
//       probability would exceed PROB_MAX; columns are independent
//   (3) scores, maxima and sinks are multiplied by log2 e: exponentials are powers of two
#ifndef KERNEL_CUDA_ATTENTION_STEP_CUH
#define KERNEL_CUDA_ATTENTION_STEP_CUH

#include "kernel/cuda/attention_feed.cuh"
#include "kernel/ref/kv_codec.h"

#define PROB_MAX 256.0f
#define SCORE_NONE (-1e30f) // below all scores, and finite: differences are numbers
#define SCORE_ALL 1e30f     // above all
#define LOG2_E 1.4426950408889634f

template <int D> struct running {
    float maximum[2], sum[2]; // lanes with the same t each have a sum of their own
    float out[D / 16][4];     // [4h + i][c]: channel g D/8 + 8h + i, plus 4 where c > 1; column 2t + c % 2
    float unbias[4];          // what is still to be added to out[.][c] if codes of V are biased
};

DEVICE float power_of_two(float x)
{
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// 2^(own - top) for two maxima, exactly; 0 where it is below the smallest normal float.
DEVICE float weight_of(float own, float top) { return __int_as_float(max((int)(own - top) + 127, 0) << 23); }

template <bool BF16>
DEVICE void multiply(float d[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    if (BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Subtracts the bias of a product with biased codes (dequantise.cuh), which is the same in all its rows.
DEVICE void multiply_unbias(float d[4], uint32_t b0, uint32_t b1)
{
    multiply<false>(d, INT8_UNBIAS, INT8_UNBIAS, INT8_UNBIAS, INT8_UNBIAS, b0, b1);
}

DEVICE uint32_t transpose(uint32_t pair)
{
    uint32_t out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
    return out;
}

// ---- queries ----

template <int D> struct query {
    uint32_t pairs[D / 8];
    float start[4]; // what scores begin with: not 0 if codes of K are biased
};

// y = H s x (kernel/ref/kv_codec.h) of a vector whose quarters are in four neighbouring lanes.
template <int D> DEVICE void rotate_query(float x[D / 4])
{
    int t = lane_index() % 4, first = t * (D / 4);
    uint64_t signs = kv_rotation_signs(first / 64) >> first % 64;
#pragma unroll
    for (int i = 0; i < D / 4; i++)
        x[i] = __uint_as_float(__float_as_uint(x[i]) ^ (uint32_t)(signs >> i) << 31);
#pragma unroll
    for (int stride = 1; stride < D / 4; stride *= 2)
#pragma unroll
        for (int i = 0; i < D / 4; i++)
            if (!(i & stride)) {
                float a = x[i], b = x[i + stride];
                x[i] = a + b;
                x[i + stride] = a - b;
            }
#pragma unroll
    for (int stride = 1; stride < 4; stride *= 2)
#pragma unroll
        for (int i = 0; i < D / 4; i++) {
            float other = __shfl_xor_sync(WARP_ALL, x[i], stride);
            x[i] = t & stride ? other - x[i] : x[i] + other;
        }
}

// Loads column g's query, channels [t D/4, (t+1) D/4), ahead of its use; zeros if the column is empty.
template <class W> DEVICE void query_load(const uint16_t *vector, struct query<W::D> *query)
{
#pragma unroll
    for (int i = 0; i < W::D / 32; i++) {
        uint4 x = vector ? ((const uint4 *)(vector + lane_index() % 4 * (W::D / 4)))[i] : make_uint4(0, 0, 0, 0);
        uint32_t *pairs = query->pairs + 4 * i;
        pairs[0] = x.x, pairs[1] = x.y, pairs[2] = x.z, pairs[3] = x.w;
    }
}

// Converts it to the type and the order of K's pairs.
template <class W> DEVICE void query_convert(struct query<W::D> *query)
{
    constexpr int COUNT = W::D / 4;
    uint32_t *pairs = query->pairs;
    if constexpr (W::K != FORM_BF16) {
        float x[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            x[i] = i % 2 ? bf16_high(pairs[i / 2]) : bf16_low(pairs[i / 2]);
        if constexpr (W::K == FORM_INT4)
            rotate_query<W::D>(x);
#pragma unroll
        for (int i = 0; i < COUNT / 2; i++)
            pairs[i] = f16_pair(x[i / 4 * UNIT + pair_channel<W::K>(i % 4, 0)],
                                x[i / 4 * UNIT + pair_channel<W::K>(i % 4, 1)]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        query->start[i] = 0;
    if constexpr (form<W::K>::BIASED)
#pragma unroll
        for (int i = 0; i < COUNT / 2; i += 2)
            multiply_unbias(query->start, pairs[i], pairs[i + 1]);
}

// ---- scores ----

template <class W> DEVICE void k_scales(const uint8_t *scales, int row, struct unit_scale out[W::D / 32])
{
    constexpr int UNITS = W::D / 32;
    if constexpr (form<W::K>::BY_BLOCK) {
        const uint8_t *at = scales + row * W::K_SCALE + lane_index() % 4 * (UNITS / 2);
        uint32_t bytes = 0;
        if (UNITS == 4)
            bytes = *(const uint16_t *)at;
        else if (UNITS == 8)
            bytes = *(const uint32_t *)at;
        else
#pragma unroll
            for (int i = 0; i < UNITS / 2; i++)
                bytes |= (uint32_t)at[i] << 8 * i;
#pragma unroll
        for (int i = 0; i < UNITS; i += 4) { // two blocks, each for both halves of a pair
            uint32_t low, high;
            e4m3_pairs(__byte_perm(bytes, 0, i ? 0x3322 : 0x1100), &low, &high);
            out[i].low = out[i + 1].low = low;
            if (i + 2 < UNITS)
                out[i + 2].low = out[i + 3].low = high;
        }
    } else if constexpr (W::K == FORM_INT4) {
        uint32_t bits = ((const uint32_t *)scales)[row];
#pragma unroll
        for (int i = 0; i < UNITS; i++)
            out[i] = int4_scale(bits, bits);
    }
}

// score[0..1]: token g, score[2..3]: token g + 8, of columns 2t and 2t + 1.
template <class W>
DEVICE void page_scores(const uint8_t *rows, const uint8_t *scales, const struct query<W::D> &query, float score[4])
{
    constexpr int UNITS = W::D / 32, WORDS = form<W::K>::WORDS;
    int g = lane_index() / 4, t = lane_index() % 4;
    uint32_t low[UNITS * WORDS], high[UNITS * WORDS];
    struct unit_scale low_scale[UNITS], high_scale[UNITS];
    load_words<W::K_ROW, UNITS * WORDS>(rows, g, t * UNITS * WORDS, low);
    load_words<W::K_ROW, UNITS * WORDS>(rows, g + 8, t * UNITS * WORDS, high);
    k_scales<W>(scales, g, low_scale);
    k_scales<W>(scales, g + 8, high_scale);
#pragma unroll
    for (int i = 0; i < 4; i++)
        score[i] = query.start[i];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const uint32_t *q = query.pairs + 4 * u;
        uint32_t a[4], b[4];
        dequantise_k<W::K>(low + u * WORDS, low_scale[u], a);
        dequantise_k<W::K>(high + u * WORDS, high_scale[u], b);
        multiply<W::K == FORM_BF16>(score, a[0], b[0], a[1], b[1], q[0], q[1]);
        multiply<W::K == FORM_BF16>(score, a[2], b[2], a[3], b[3], q[2], q[3]);
    }
}

// The f32 scale of a token, 1 if only the layer has one.
template <int FORM> DEVICE float token_scale(const uint8_t *scales, int row, bool scaled)
{
    uint32_t bits = ((const uint32_t *)scales)[row];
    return scaled ? __uint_as_float(FORM == FORM_INT4 ? bits & ~15u : bits) : 1.0f;
}

DEVICE float cap(float score, float softcap)
{
    return softcap * (1 - __fdividef(2, 1 + power_of_two(2 * LOG2_E / softcap * score)));
}

// ---- the weighted sum of V ----

// The scales of tokens 2t and 2t + 1, and of 2t + 8 and 2t + 9.
template <class W> DEVICE void v_scales(const uint8_t *scales, int unit, struct unit_scale out[2])
{
    int row = lane_index() % 4 * 2;
    if constexpr (form<W::V>::BY_BLOCK) {
        const uint8_t *at = scales + row * W::V_SCALE + unit / 2;
        uint32_t low = __byte_perm(at[0], at[W::V_SCALE], 0x0040);
        uint32_t high = __byte_perm(at[8 * W::V_SCALE], at[9 * W::V_SCALE], 0x0040);
        e4m3_pairs(__byte_perm(low, high, 0x5410), &out[0].low, &out[1].low);
    } else if constexpr (W::V == FORM_INT4) {
        uint2 low = *(const uint2 *)(scales + row * 4), high = *(const uint2 *)(scales + (row + 8) * 4);
        out[0] = int4_scale(low.x, low.y);
        out[1] = int4_scale(high.x, high.y);
    }
}

// Adds P V of a page. prob[i]: tokens 2t + 8i and 2t + 8i + 1 of column g.
template <class W>
DEVICE void page_sum(const uint8_t *rows, const uint8_t *scales, const uint32_t prob[2], struct running<W::D> *state)
{
    constexpr int UNITS = W::D / 64, WORDS = form<W::V>::WORDS;
    int g = lane_index() / 4, t = lane_index() % 4;
    uint32_t words[4][UNITS * WORDS];
#pragma unroll
    for (int i = 0; i < 4; i++)
        load_words<W::V_ROW, UNITS * WORDS>(rows, 2 * t + i % 2 + i / 2 * 8, g * UNITS * WORDS, words[i]);
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        uint32_t a[UNIT], b[UNIT];
        struct unit_scale scale[2];
        v_scales<W>(scales, g * UNITS + u, scale);
        dequantise_v<W::V>(words[0] + u * WORDS, words[1] + u * WORDS, scale[0], a);
        dequantise_v<W::V>(words[2] + u * WORDS, words[3] + u * WORDS, scale[1], b);
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply<W::V == FORM_BF16>(state->out[4 * u + i], a[i], a[i + 4], b[i], b[i + 4], prob[0], prob[1]);
    }
    if constexpr (form<W::V>::BIASED)
        multiply_unbias(state->unbias, prob[0], prob[1]);
}

// After each split, so that no sum grows far beyond its addends.
template <class W> DEVICE void unbias(struct running<W::D> *state)
{
    if constexpr (form<W::V>::BIASED)
#pragma unroll
        for (int c = 0; c < 4; c++) {
#pragma unroll
            for (int i = 0; i < W::D / 16; i++)
                state->out[i][c] += state->unbias[c];
            state->unbias[c] = 0;
        }
}

// Slots without a token may hold anything, and 0 times that may be NaN in some formats: they become 0.
template <class W> DEVICE void clear_unseen(uint8_t *stage, int base, const struct work_tile &tile)
{
    constexpr int ROW = W::V_ROW / 16;
    if constexpr (!form<W::V>::FOUR_BITS && W::V != FORM_INT8)
#pragma unroll
        for (int i = lane_index(); i < W::TOKENS * ROW; i += WARP) {
            int token = i / ROW;
            uint8_t *rows = stage + token / PAGE_TOKENS * W::PAGE_BYTES + PAGE_TOKENS * W::K_ROW;
            if (base + token < tile.start || base + token > tile.last)
                *(uint4 *)(rows + chunk_place<W::V_ROW>(token % PAGE_TOKENS, i % ROW) * 16) = make_uint4(0, 0, 0, 0);
        }
    if constexpr (W::V_SCALE > 0) {
        int token = lane_index();
        uint8_t *scales = stage + W::PAGES * W::PAGE_BYTES + token / PAGE_TOKENS * W::PAGE_SCALES
            + PAGE_TOKENS * W::K_SCALE + token % PAGE_TOKENS * W::V_SCALE;
        if (token < W::TOKENS && (base + token < tile.start || base + token > tile.last))
#pragma unroll
            for (int i = 0; i < W::V_SCALE; i += 4)
                *(uint32_t *)(scales + i) = 0;
    }
    __syncwarp();
}

// Scores of tokens that a column does not see become -inf.
template <class W>
DEVICE void mask_unseen(const struct cuda_attention &p, int base, const struct work_tile &tile, float score[][4])
{
#pragma unroll
    for (int c = 0; c < 2; c++) {
        int row = column_of(p, tile, lane_index() % 4 * 2 + c).row, position = tile.last - tile.rows + 1 + row;
        int from = max(first_seen(p, position), sink_tokens(p)), to = row < tile.rows ? position : -1;
#pragma unroll
        for (int i = c; i < W::PAGES * 4; i += 2) {
            int token = base + i / 4 * PAGE_TOKENS + i % 4 / 2 * 8 + lane_index() / 4;
            if (token < from || token > to)
                score[i / 4][i % 4] = -INFINITY;
        }
    }
}

// Raises the maxima of columns whose probabilities have become too large, and rescales their sums. `best` includes log2
// of V's scale.
template <class W> DEVICE void renew(struct running<W::D> *state, const float largest[2], const float best[2])
{
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float prob = largest[c], score = best[c];
#pragma unroll
        for (int step = 4; step < WARP; step *= 2) {
            prob = fmaxf(prob, __shfl_xor_sync(WARP_ALL, prob, step));
            score = fmaxf(score, __shfl_xor_sync(WARP_ALL, score, step));
        }
        if (prob > PROB_MAX) {
            float top = floorf(score), keep = weight_of(state->maximum[c], top);
            state->maximum[c] = top;
            state->sum[c] *= keep;
            state->unbias[c] *= keep;
            state->unbias[c + 2] *= keep;
#pragma unroll
            for (int i = 0; i < W::D / 16; i++) {
                state->out[i][c] *= keep;
                state->out[i][c + 2] *= keep;
            }
        }
    }
}

// Online softmax: scores become probabilities times V's scale, and their sums are updated. v_scale[2i], v_scale[2i +
// 1]: of page i's tokens g and g + 8.
template <class W>
DEVICE void probs(struct running<W::D> *state, const float score[][4], const float *v_scale, float prob[][4])
{
    constexpr bool SCALED = form<W::V>::BY_TOKEN;
    float sum[2], largest[2];
#pragma unroll
    for (int attempt = 0; attempt < 2; attempt++) {
        sum[0] = sum[1] = largest[0] = largest[1] = 0;
#pragma unroll
        for (int i = 0; i < W::PAGES * 4; i++) {
            float x = power_of_two(score[i / 4][i % 4] - state->maximum[i % 2]);
            sum[i % 2] += x;
            prob[i / 4][i % 4] = SCALED ? x * v_scale[i / 2] : x;
            largest[i % 2] = fmaxf(largest[i % 2], prob[i / 4][i % 4]);
        }
        if (attempt || !__any_sync(WARP_ALL, fmaxf(largest[0], largest[1]) > PROB_MAX))
            break;
        float best[2] = { -INFINITY, -INFINITY };
#pragma unroll
        for (int i = 0; i < W::PAGES * 4; i++)
            best[i % 2] = fmaxf(best[i % 2], score[i / 4][i % 4] + (SCALED ? __log2f(v_scale[i / 2]) : 0));
        renew<W>(state, largest, best);
    }
    state->sum[0] += sum[0];
    state->sum[1] += sum[1];
}

// Bounds of the first token of steps whose tokens all columns see.
struct seen_by_all {
    int from, to;
};

template <class W> DEVICE struct seen_by_all seen_by_all(const struct cuda_attention &p, const struct work_tile &tile)
{
    return { max(first_seen(p, tile.last), sink_tokens(p)), tile.last - tile.rows + 2 - W::TOKENS };
}

template <class W>
DEVICE void attend_step(const struct cuda_attention &p, uint8_t *stage, int step, const struct work_tile &tile,
                        const struct seen_by_all &seen, float score_scale, const struct query<W::D> &query,
                        struct running<W::D> *state)
{
    const uint8_t *all_scales = stage + W::PAGES * W::PAGE_BYTES;
    int g = lane_index() / 4, base = step * W::TOKENS;
    bool partly = base < seen.from || base > seen.to;
    if (partly)
        clear_unseen<W>(stage, base, tile);

    float score[W::PAGES][4], prob[W::PAGES][4], v_scale[W::PAGES * 2];
#pragma unroll
    for (int i = 0; i < W::PAGES; i++) {
        const uint8_t *scales = all_scales + i * W::PAGE_SCALES;
        page_scores<W>(stage + i * W::PAGE_BYTES, scales, query, score[i]);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float scale = score_scale;
            if constexpr (form<W::K>::BY_TOKEN)
                scale *= token_scale<W::K>(scales, g + 8 * j, p.cache.k.scale_bytes > 0);
            if constexpr (form<W::V>::BY_TOKEN)
                v_scale[2 * i + j] = token_scale<W::V>(scales + PAGE_TOKENS * W::K_SCALE, g + 8 * j,
                                                       p.cache.v.scale_bytes > 0);
            score[i][2 * j] *= scale;
            score[i][2 * j + 1] *= scale;
        }
    }
    if (p.softcap > 0)
#pragma unroll
        for (int i = 0; i < W::PAGES * 4; i++)
            score[i / 4][i % 4] = cap(score[i / 4][i % 4], p.softcap * LOG2_E);
    if (partly)
        mask_unseen<W>(p, base, tile, score);
    probs<W>(state, score, v_scale, prob);
#pragma unroll
    for (int i = 0; i < W::PAGES; i++) {
        uint32_t transposed[2];
#pragma unroll
        for (int j = 0; j < 2; j++)
            transposed[j] = transpose(W::V == FORM_BF16 ? bf16_pair(prob[i][2 * j], prob[i][2 * j + 1])
                                                        : f16_pair(prob[i][2 * j], prob[i][2 * j + 1]));
        page_sum<W>(stage + i * W::PAGE_BYTES + PAGE_TOKENS * W::K_ROW,
                    all_scales + i * W::PAGE_SCALES + PAGE_TOKENS * W::K_SCALE, transposed, state);
    }
}

#endif
