// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/sample.cu: sampling (temperature, top_k, top_p, min_p) as engine/sampling/sampler.c does it, in three
// launches: the largest logit of each chunk of the vocabulary; the sum of probabilities of each chunk, for rows that
// need it; the draw, one block per row. The vocabulary is never sorted: at least k logits reach the k-th largest of the
// chunks' maxima, and not many more do; these are listed in shared memory. The cut of top_p is looked up in a histogram
// of probabilities first. If too many tokens are left for a list, a radix search over the row finds the cut. The result
// may differ from the host's in the last bit of an exponential, and so of a sum: one token in 10^8.
#include "kernel/cuda/sample_block.cuh"

// ---- the first two launches: a warp has a chunk at a time ----

DEVICE int first_chunk() { return (int)blockIdx.y * block_warps() + warp_index(); }
DEVICE int chunk_step() { return (int)gridDim.y * block_warps(); }

// The peak of a chunk with a value that is not finite is NaN.
extern "C" __global__ void __launch_bounds__(256) sample_peaks(const __grid_constant__ struct cuda_sampling p)
{
    int row = (int)blockIdx.x, bin = (int)threadIdx.x;
    bool there = row < *p.outputs && !p.rows[row].on_host;
    kernel_begin();
    if (there && blockIdx.y == 0 && bin < BINS) {
        p.bin_masses[row * BINS + bin] = 0;
        p.bin_counts[row * BINS + bin] = 0;
    }
    for (int chunk = first_chunk(); there && chunk < p.chunks; chunk += chunk_step()) {
        float peak = -INFINITY;
        bool finite = true;
        visit_chunk(p.logits + (size_t)row * (size_t)p.vocabulary, p.vocabulary, chunk, [&](int id, float logit) {
            peak = fmaxf(peak, logit);
            finite = finite && (fabsf(logit) < INFINITY || id >= p.vocabulary);
        });
        peak = lanes_max(peak);
        finite = __all_sync(WARP_ALL, finite);
        if (lane_index() == 0)
            p.peaks[(size_t)row * (size_t)p.chunks + (size_t)chunk] = finite ? peak : NAN;
    }
}

// The largest peak; NaN if one of them is. `copy` gets all of them as ordered integers, unless it is NULL.
DEVICE float highest_of(const float *peaks, int chunks, uint32_t *copy)
{
    float highest = -INFINITY;
    int broken = 0;
    for (int i = (int)threadIdx.x; i < chunks; i += (int)blockDim.x) {
        float peak = peaks[i];
        highest = fmaxf(highest, peak);
        broken |= isnan(peak);
        if (copy)
            copy[i] = ordered(peak);
    }
    highest = block_max(highest);
    return __syncthreads_or(broken) ? NAN : highest;
}

DEVICE void add_mass(uint64_t *sum, uint64_t mass) { atomicAdd((unsigned long long *)sum, (unsigned long long)mass); }

extern "C" __global__ void __launch_bounds__(256) sample_masses(const __grid_constant__ struct cuda_sampling p)
{
    __shared__ uint64_t bin_masses[BINS];
    __shared__ int bin_counts[BINS];
    int row = (int)blockIdx.x, bin = (int)threadIdx.x;
    bool there = row < *p.outputs && !p.rows[row].on_host && p.rows[row].temperature > 0
        && !is_cut(p.rows[row], p.vocabulary);
    kernel_begin();
    if (!there)
        return;
    size_t first = (size_t)row * (size_t)p.chunks;
    if (bin < BINS)
        bin_masses[bin] = bin_counts[bin] = 0; // for all to see when the highest is found
    const struct rule rule = rule_of(p.rows[row], highest_of(p.peaks + first, p.chunks, NULL), p.vocabulary);
    bool binned = p.rows[row].top_p < 1;
    for (int chunk = first_chunk(); chunk < p.chunks; chunk += chunk_step()) {
        uint64_t mass = 0;
        visit_chunk(p.logits + (size_t)row * (size_t)p.vocabulary, p.vocabulary, chunk, [&](int, float logit) {
            float probability = probability_of(rule, logit);
            uint64_t weight = weight_of_probability(rule, probability);
            mass += weight;
            if (binned && weight && bin_of(probability) < BINS) {
                add_mass(&bin_masses[bin_of(probability)], weight);
                atomicAdd(&bin_counts[bin_of(probability)], 1);
            }
        });
        mass = lanes_total(mass);
        if (lane_index() == 0)
            p.masses[first + (size_t)chunk] = mass;
    }
    __syncthreads();
    if (bin < BINS && bin_counts[bin]) {
        add_mass(&p.bin_masses[row * BINS + bin], bin_masses[bin]);
        atomicAdd(&p.bin_counts[row * BINS + bin], bin_counts[bin]);
    }
}

// ---- lists ----

// An ordered logit that at least k peaks reach, and few more; 0 if there are fewer. A radix search: each warp tries
// another value of a digit; five digits are the sign, the exponent and enough of the mantissa.
DEVICE uint32_t find_peak(const struct draw &draw, int k)
{
    __shared__ int counts[WARPS];
    uint32_t bound = 0;
    for (int shift = 32 - WARPS_BITS; shift >= 32 - 5 * WARPS_BITS && k <= draw.chunks; shift -= WARPS_BITS) {
        uint32_t tried = bound | (uint32_t)warp_index() << shift;
        int count = 0;
        for (int i = lane_index(); i < draw.chunks; i += WARP)
            count += draw.peaks[i] >= tried;
        count = __reduce_add_sync(WARP_ALL, count);
        if (lane_index() == 0)
            counts[warp_index()] = count;
        __syncthreads();
        uint32_t enough = __ballot_sync(WARP_ALL, lane_index() < WARPS && counts[lane_index() % WARPS] >= k);
        bound |= (uint32_t)(31 - __clz((int)enough)) << shift;
        __syncthreads();
    }
    return bound;
}

// Sorts the keys in descending order (bitonic); the list behind them is overwritten. One warp sorts a short list.
DEVICE void list_sort(uint64_t *list, int count)
{
    int size = 2;
    while (size < count)
        size *= 2;
    for (int i = count + (int)threadIdx.x; i < size; i += THREADS)
        list[i] = 0;
    __syncthreads();
    bool is_short = size <= 4 * WARP;
    int threads = is_short ? WARP : THREADS;
    for (int run = 2; run <= size && (int)threadIdx.x < threads; run *= 2)
        for (int apart = run / 2; apart > 0; apart /= 2) {
            for (int i = (int)threadIdx.x; i < size / 2; i += threads) {
                int low = 2 * i - (i & (apart - 1)), high = low + apart;
                uint64_t a = list[low], b = list[high];
                if ((a < b) == !(low & run)) {
                    list[low] = b;
                    list[high] = a;
                }
            }
            if (is_short)
                __syncwarp();
            else
                __syncthreads();
        }
    __syncthreads();
}

// Lists the tokens that are wanted(key, logit), the greatest key first, of chunks whose peak is `bound` at least.
// Returns how many there are; if that is more than LIST_MAX, the list is incomplete.
template <class Wanted> DEVICE int list_where(const struct draw &draw, uint32_t bound, Wanted wanted)
{
    __shared__ int chunks, count;
    if (threadIdx.x == 0)
        chunks = count = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < draw.chunks; i += THREADS)
        if (draw.peaks[i] >= bound)
            draw.chosen[atomicAdd(&chunks, 1)] = (uint16_t)i;
    __syncthreads();
    for (int i = warp_index(); i < chunks; i += WARPS)
        visit_chunk(draw.logits, draw.vocabulary, draw.chosen[i], [&](int id, float logit) {
            uint64_t key = key_of(draw.rule, logit, id);
            if (logit == -INFINITY || !wanted(key, logit))
                return;
            int at = atomicAdd(&count, 1);
            if (at < LIST_MAX)
                draw.list[at] = key;
        });
    __syncthreads();
    int found = count;
    __syncthreads();
    if (found <= LIST_MAX)
        list_sort(draw.list, found);
    return found;
}

// Lists all tokens from a logit on that k peaks reach, at least k of them. Returns the same as list_where.
DEVICE int list_likeliest(const struct draw &draw, int k)
{
    if (k > draw.chunks && draw.vocabulary > LIST_MAX)
        return draw.vocabulary;
    uint32_t bound = find_peak(draw, k);
    return list_where(draw, bound, [=](uint64_t, float logit) { return ordered(logit) >= bound; });
}

DEVICE void list_weights(const struct draw &draw, int count, uint64_t weights[LIST_EACH])
{
#pragma unroll
    for (int i = 0; i < LIST_EACH; i++) {
        int at = (int)threadIdx.x * LIST_EACH + i;
        weights[i] = at < count ? key_weight(draw.rule, draw.list[at]) : 0;
    }
}

// Draws from the top_k most likely tokens, in that order; -1: the list does not hold them.
DEVICE int draw_top_k(const struct draw &draw)
{
    int top_k = draw.row.top_k, count = list_likeliest(draw, top_k);
    if (count > LIST_MAX)
        return -1;
    uint64_t weights[LIST_EACH];
    list_weights(draw, count < top_k ? count : top_k, weights);
    uint64_t total = cross<LIST_EACH>(weights, NOWHERE).total;
    if (draw.row.top_p < 1) // the tokens behind it may stay: the draw does not reach them
        total = cross<LIST_EACH>(weights, top_p_part(draw.row, total)).through;
    return key_id(draw.list[cross<LIST_EACH>(weights, drawn_part(draw.row, total)).index]);
}

// Draws from the first `count` tokens of the list in the order of ids: the halves of the keys are swapped for sorting.
DEVICE int draw_listed_by_id(const struct draw &draw, int count, uint64_t total)
{
    for (int i = (int)threadIdx.x; i < count; i += THREADS)
        draw.list[i] = (draw.list[i] & (IDS - 1)) << 32 | key_rank(draw.list[i]);
    __syncthreads();
    list_sort(draw.list, count);
    for (int i = (int)threadIdx.x; i < count; i += THREADS)
        draw.list[i] = (uint64_t)(uint32_t)draw.list[i] << ID_BITS | draw.list[i] >> 32;
    __syncthreads();
    uint64_t weights[LIST_EACH];
    list_weights(draw, count, weights);
    return key_id(draw.list[cross<LIST_EACH>(weights, drawn_part(draw.row, total)).index]);
}

// ---- over the whole row ----

struct selection {
    uint64_t key, through; // the sum of all keys from it on
};

// A histogram over the next digit of a key: the number of tokens and the sum of their weights.
struct tally {
    uint64_t sum[DIGITS];
    int count[DIGITS];
};

// Counts the keys from `floor` on that agree with `key` above the digit at `shift`. Each counts as one, or its weight.
DEVICE void tally_digit(const struct draw &draw, uint64_t floor, uint64_t key, int shift, bool counting,
                        struct tally *out)
{
    __shared__ struct tally parts[WARPS];
    struct tally own = {};
    for (int chunk = warp_index(); chunk < draw.chunks; chunk += WARPS)
        visit_chunk(draw.logits, draw.vocabulary, chunk, [&](int id, float logit) {
            uint64_t other = key_of(draw.rule, logit, id);
            if (logit == -INFINITY || other < floor || other >> shift >> DIGIT_BITS != key >> shift >> DIGIT_BITS)
                return;
            uint64_t weight = counting ? 1 : key_weight(draw.rule, other);
#pragma unroll
            for (int i = 0; i < DIGITS; i++)
                if ((other >> shift & (DIGITS - 1)) == i) {
                    own.sum[i] += weight;
                    own.count[i]++;
                }
        });
#pragma unroll
    for (int i = 0; i < DIGITS; i++) {
        own.sum[i] = lanes_total(own.sum[i]);
        own.count[i] = __reduce_add_sync(WARP_ALL, own.count[i]);
    }
    if (lane_index() == 0)
        parts[warp_index()] = own;
    __syncthreads();
    *out = {};
    for (int warp = 0; warp < WARPS; warp++)
#pragma unroll
        for (int i = 0; i < DIGITS; i++) {
            out->sum[i] += parts[warp].sum[i];
            out->count[i] += parts[warp].count[i];
        }
    __syncthreads();
}

// The state of a radix search for a key: its digits above `shift`, the sum of all greater keys, and the number of
// tokens with these digits.
struct lead {
    uint64_t key, above;
    int shift, count;
};

// No digit is known, except for probabilities: those that have a weight are above 2^-63, which fixes the first digit.
DEVICE struct lead lead_of(const struct rule &rule)
{
    int shift = rule.cut ? KEY_BITS : KEY_BITS - DIGIT_BITS;
    return { rule.cut ? 0 : (uint64_t)1 << shift, 0, shift, LIST_MAX + 1 };
}

// The greatest key whose sum with all greater ones reaches `goal`, among keys from `floor` on: digit by digit, until a
// list holds the rest.
DEVICE struct selection find_key(const struct draw &draw, struct lead lead, uint64_t floor, uint64_t goal,
                                 bool counting)
{
    int shift = lead.shift, count = lead.count;
    uint64_t key = lead.key, above = lead.above;
    while (shift > 0 && count > LIST_MAX) {
        struct tally tally;
        shift -= DIGIT_BITS;
        tally_digit(draw, floor, key, shift, counting, &tally);
        int digit = DIGITS - 1;
        bool passed = false;
#pragma unroll
        for (int i = DIGITS - 1; i >= 0; i--)
            if (!passed) {
                passed = i == 0 || above + tally.sum[i] >= goal;
                above += passed ? 0 : tally.sum[i];
                count = tally.count[i];
                digit = i;
            }
        key |= (uint64_t)digit << shift;
    }
    count = list_where(draw, 0,
                       [=](uint64_t other, float) { return other >= floor && other >> shift == key >> shift; });
    uint64_t weights[LIST_EACH];
#pragma unroll
    for (int i = 0; i < LIST_EACH; i++) {
        int at = (int)threadIdx.x * LIST_EACH + i;
        weights[i] = at >= count ? 0 : counting ? 1 : key_weight(draw.rule, draw.list[at]);
    }
    struct crossing found = cross<LIST_EACH>(weights, goal - above);
    struct selection result = { draw.list[found.index], above + found.through };
    __syncthreads(); // before the list is used again
    return result;
}

// The mass of each chunk from the key `floor` on; overwrites the list.
DEVICE void weigh_chunks(const struct draw &draw, uint64_t floor)
{
    for (int chunk = warp_index(); chunk < draw.chunks; chunk += WARPS) {
        uint64_t mass = 0;
        visit_chunk(draw.logits, draw.vocabulary, chunk, [&](int id, float logit) {
            uint64_t key = key_of(draw.rule, logit, id);
            mass += key >= floor ? key_weight(draw.rule, key) : 0;
        });
        mass = lanes_total(mass);
        if (lane_index() == 0)
            draw.list[chunk] = mass;
    }
    __syncthreads();
}

// Draws from the top_k most likely tokens if a list does not hold them.
DEVICE int draw_wide(const struct draw &draw)
{
    struct lead lead = lead_of(draw.rule);
    uint64_t floor = find_key(draw, lead, 0, (uint64_t)draw.row.top_k, true).key;
    weigh_chunks(draw, floor);
    uint64_t total = sum_masses(draw.list, draw.chunks);
    if (draw.row.top_p < 1) {
        struct selection last = find_key(draw, lead, floor, top_p_part(draw.row, total), false);
        floor = last.key;
        total = last.through;
    }
    return key_id(find_key(draw, lead, floor, drawn_part(draw.row, total), false).key);
}

// ---- top_p ----

// The bin in which the prefix sum over the most likely tokens reaches `goal`, and the number of tokens up to its end;
// false: it lies beyond the bins.
DEVICE bool find_bin(const struct draw &draw, uint64_t goal, struct lead *lead, int *bin, int *through)
{
    int own = (int)threadIdx.x;
    uint64_t mass = own < BINS ? draw.bin_masses[own] : 0;
    struct crossing found = cross<1>(&mass, goal);
    uint64_t count = own <= found.index ? (uint64_t)draw.bin_counts[own] : 0;
    *through = (int)cross<1>(&count, NOWHERE).total;
    *bin = found.index;
    if (found.index < 0)
        return false;
    *lead = { (uint64_t)bin_rank(found.index) << ID_BITS, found.through - draw.bin_masses[found.index],
              BIN_BITS + ID_BITS, draw.bin_counts[found.index] };
    return true;
}

// An ordered logit such that all tokens of this rank or a greater one reach it.
DEVICE uint32_t bound_of(const struct draw &draw, uint32_t rank)
{
    float apart = (float)draw.row.temperature * (logf(__uint_as_float(rank)) - 0.01f);
    return ordered(draw.rule.highest + apart - (fabsf(draw.rule.highest) + fabsf(apart)) * 0x1p-20f);
}

// Draws from the most likely tokens that make up top_p, in the order of ids.
DEVICE int draw_top_p(const struct draw &draw)
{
    uint64_t part = top_p_part(draw.row, sum_masses(draw.masses, draw.chunks)), weights[LIST_EACH];
    struct lead lead = lead_of(draw.rule);
    int bin, through;
    if (find_bin(draw, part, &lead, &bin, &through) && through <= LIST_MAX) {
        uint32_t least = bin_rank(bin);
        int count = list_where(draw, bound_of(draw, least),
                               [=](uint64_t key, float) { return key_rank(key) >= least; });
        list_weights(draw, count, weights);
        struct crossing last = cross<LIST_EACH>(weights, part);
        if (count <= LIST_MAX)
            return draw_listed_by_id(draw, last.index + 1, last.through);
    }
    uint64_t floor = find_key(draw, lead, 0, part, false).key;
    weigh_chunks(draw, floor);
    return draw_by_id(draw, draw.list, floor);
}

DEVICE int draw_token(const struct draw &draw)
{
    if (isnan(draw.rule.highest))
        return CUDA_SAMPLING_NOT_FINITE;
    if (draw.row.temperature == 0)
        return most_likely(draw);
    if (!draw.rule.cut && draw.row.top_p >= 1)
        return draw_by_id(draw, draw.masses, 0);
    if (!draw.rule.cut)
        return draw_top_p(draw);
    int token = draw_top_k(draw);
    return token >= 0 ? token : draw_wide(draw);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) sample_draw(const __grid_constant__ struct cuda_sampling p)
{
    __shared__ uint64_t list[LIST_MAX];
    __shared__ uint32_t peaks[CHUNKS_MAX];
    __shared__ uint16_t chosen[CHUNKS_MAX];
    int row = (int)blockIdx.x;
    bool there = row < *p.outputs && !p.rows[row].on_host;
    kernel_begin();
    if (!there)
        return;
    size_t first = (size_t)row * (size_t)p.chunks;
    struct draw draw = { p.rows[row],
                         {},
                         p.logits + (size_t)row * (size_t)p.vocabulary,
                         p.masses + first,
                         p.bin_masses + row * BINS,
                         p.bin_counts + row * BINS,
                         p.vocabulary,
                         p.chunks,
                         peaks,
                         chosen,
                         list };
    draw.rule = rule_of(draw.row, highest_of(p.peaks + first, p.chunks, peaks), p.vocabulary);
    int token = draw_token(draw);
    if (threadIdx.x == 0)
        p.tokens[row] = token;
}
