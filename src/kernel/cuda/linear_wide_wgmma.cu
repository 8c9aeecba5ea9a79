// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_wide_wgmma.cu: mixed-precision GEMM for prefill on Hopper (sm_90a): quantised weights are
// dequantised in registers, wgmma multiplies, work is cut by Stream-K.
//   (1) x is first arranged in the order of the weights' records (linear_arrange), as the tiles that tensor cores
//       read: for each tile of tokens and each record two panels, (tokens, 64 values), swizzled
//   (2) a block has a range of the work: records of tiles of rows, one tile after another, cut evenly wherever tiles
//       end, so that no multiprocessor has more to do than another. Each of its warps has sixteen rows of a tile
//   (3) a warp copies its own weights into its own ring of records, which no other warp waits for; x, which all read,
//       is copied into another by the warps round-robin. Weights of one step's products are dequantised into
//       registers while those of the step before run
//   (4) a tile in several ranges is finished by the one that has its first record, which adds what the others have
//       left, in order. Small matrices are cut so that ranges are equal parts of a tile; linear_wide_add adds these
#include "kernel/cuda/linear_wide.cuh"
#include "kernel/cuda/linear_wgmma.cuh"

enum { RECORD_PRODUCTS = 8 };

template <class Packed, int TOKENS> struct wgmma_shape {
    static constexpr int WARPS = linear_wgmma_warps(TOKENS), STAGES = linear_wgmma_stages(Packed::BYTES, TOKENS);
    static_assert(STAGES >= 2 && STAGES <= WARPS, "before the first unit, each warp copies the x of at most one");
};

// ---- ranges ----

// Where a range begins, in units: records of all tiles, one tile after another.
DEVICE int range_first(const struct cuda_linear_wide &q, int index)
{
    return index * q.each + (int)((unsigned)index * (unsigned)q.rest / (unsigned)q.ranges);
}

// A block works on one range of records, which may begin and end within tiles (Stream-K).
struct range {
    int index, first, end;
    int records; // of a tile

    MEMBER range(const struct cuda_linear_wide &q, int index)
        : index(index), first(range_first(q, index)), end(range_first(q, index + 1)),
          records((q.linear.in + LINEAR_RECORD - 1) / LINEAR_RECORD)
    {
    }

    // The number of units from this one on that are of its tile and in the range.
    MEMBER int count_from(int unit) const
    {
        int left = records - unit % records;
        return left < end - unit ? left : end - unit;
    }
};

// ---- weights ----

// A warp's ring of weights: copies of records into stages, ahead of use and across tiles.
template <class Packed, int TOKENS> struct weight_ring {
    static constexpr int WARPS = wgmma_shape<Packed, TOKENS>::WARPS, STAGES = wgmma_shape<Packed, TOKENS>::STAGES;

    const uint8_t *from; // of the next record, what this lane copies first
    uint32_t to, begin;  // where that goes, and where in the first stage
    int unit, left;      // the next tile's first; records of this one that are to be copied

    // A warp whose rows are past the matrix has those of the last group, and its sums go nowhere.
    MEMBER void begin_tile(const struct cuda_linear_wide &q, const struct range &range)
    {
        struct wide_tile tile = wide_tile_of(q.linear, unit / range.records, WARPS * LINEAR_ROWS);
        const cuda_linear_output &output = q.linear.output[tile.output];
        int group = tile.row / LINEAR_ROWS + warp_index(), last = (output.rows - 1) / LINEAR_ROWS;
        size_t record = (size_t)(group < last ? group : last) * range.records + unit % range.records;
        from = output.weight + record * Packed::BYTES + lane_index() * 16;
        left = range.count_from(unit);
        unit += left;
    }

    MEMBER void next(const struct cuda_linear_wide &q, const struct range &range)
    {
        if (left == 0 && unit < range.end)
            begin_tile(q, range);
        bool there = left > 0;
#pragma unroll
        for (int i = 0; i < Packed::BYTES; i += WARP * 16)
            copy_16_if(there && lane_index() * 16 < Packed::BYTES - i, to + i, from + i);
        from += Packed::BYTES;
        left -= there;
        copies_commit();
        to = to - begin < (STAGES - 1) * Packed::BYTES ? to + Packed::BYTES : begin;
    }
};

// ---- x ----

// The stages of x and their barriers, 8 bytes each: addresses in shared memory.
template <class Packed, int TOKENS> struct x_ring {
    static constexpr int STAGES = wgmma_shape<Packed, TOKENS>::STAGES;
    static constexpr uint32_t BYTES = TOKENS * LINEAR_RECORD * 2;
    uint32_t memory, full, empty;

    MEMBER void init() const
    {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * BARRIER_BYTES, 1);
            barrier_init(empty + i * BARRIER_BYTES, wgmma_shape<Packed, TOKENS>::WARPS);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }

    // Starts the copy of a unit's x into the stage of one that is no longer needed. One lane does it.
    MEMBER void copy(const uint8_t *x, const struct range &range, int unit) const
    {
        int nth = unit - range.first, stage = nth % STAGES, round = nth / STAGES;
        if (round > 0)
            barrier_wait(empty + stage * BARRIER_BYTES, (round - 1) % 2);
        barrier_expect(full + stage * BARRIER_BYTES, BYTES);
        copy_bulk(memory + stage * BYTES, x + (size_t)(unit % range.records) * BYTES, BYTES,
                  full + stage * BARRIER_BYTES);
    }
};

// ---- multiplying ----

// While the products of one step run, the next is dequantised. When the first step's are under way, those of the record
// before are done and its x is free, whose barrier is `before` (0: there was none).
template <class Packed, int TOKENS>
DEVICE void multiply_record(float sums[TOKENS / 8][4], const uint8_t *record, uint32_t x, uint32_t full, int parity,
                            bool first, uint32_t before)
{
    constexpr int STEP = TOKENS > 64 ? 2 : 4; // products, as registers allow
    int lane = lane_index();
    Packed packed[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i == 0)
            packed[0].load_scales(record, lane);
        else
            packed[i] = packed[0];
        packed[i].load_chunk(record, lane, i);
    }
    uint32_t b = __shfl_sync(WARP_ALL, x_operand(x), 0); // the compiler then knows that all lanes have the same
#pragma unroll
    for (int step = 0; step < RECORD_PRODUCTS; step += STEP) {
        uint32_t a[STEP][4];
#pragma unroll
        for (int j = 0; j < STEP; j++) {
            packed[(step + j) / 2].operand(step + j, a[j]);
            operand_hold(a[j]);
        }
        if (step == 0)
            barrier_wait(full, parity);
        products_begin();
#pragma unroll
        for (int j = step; j < step + STEP; j++)
            product<TOKENS>(sums, a[j - step], b + j / 4 * TOKENS * 8 + j % 4 * 2, !first || j > 0);
        products_commit();
        products_wait<1>();
        if (step == 0 && before && lane == 0)
            barrier_arrive(before);
    }
}

// ---- sums of several ranges ----

// Where a range leaves the sums of a tile whose first record it does not have: a thread's, by its number.
template <int TOKENS, int WARPS> DEVICE float4 *left_sums(const struct cuda_linear_wide &q, int index)
{
    return (float4 *)q.partials + (size_t)index * (TOKENS / 8 * WARPS * WARP) + threadIdx.x;
}

template <int TOKENS, int WARPS>
DEVICE void leave_sums(const struct cuda_linear_wide &q, int index, const float sums[TOKENS / 8][4])
{
    float4 *to = left_sums<TOKENS, WARPS>(q, index);
#pragma unroll
    for (int n = 0; n < TOKENS / 8; n++)
        to[n * WARPS * WARP] = make_float4(sums[n][0], sums[n][1], sums[n][2], sums[n][3]);
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(q.left + index), "r"(1) : "memory");
}

template <int TOKENS, int WARPS>
DEVICE void take_sums(const struct cuda_linear_wide &q, int index, float sums[TOKENS / 8][4])
{
    if (threadIdx.x == 0) {
        int left;
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(left) : "l"(q.left + index) : "memory");
        while (!left);
    }
    __syncthreads();
    const float4 *from = left_sums<TOKENS, WARPS>(q, index);
#pragma unroll
    for (int n = 0; n < TOKENS / 8; n++) {
        float4 more = __ldcg(from + n * WARPS * WARP);
        sums[n][0] += more.x, sums[n][1] += more.y, sums[n][2] += more.z, sums[n][3] += more.w;
    }
}

// ---- the kernels ----

// A warp on its way through the range: where it is in both rings, and in how many units it copies x. A stage that
// x had is filled again LAG units later.
template <class Packed, int TOKENS> struct multiplier {
    static constexpr int WARPS = wgmma_shape<Packed, TOKENS>::WARPS, STAGES = wgmma_shape<Packed, TOKENS>::STAGES;
    static constexpr int LAG = STAGES > 3 ? 2 : 1;

    const uint8_t *ring;
    struct x_ring<Packed, TOKENS> x;
    const uint8_t *x_from;
    int stage, parity, countdown;

    MEMBER void multiply_tile(const struct cuda_linear_wide &q, const struct range &range,
                              struct weight_ring<Packed, TOKENS> &weights, int unit, int end, float sums[TOKENS / 8][4])
    {
        uint32_t before = 0;
        for (int first = unit; unit < end; unit++) {
            copies_wait<STAGES - 2>();
            __syncwarp(); // all lanes' copies are there, and all have read the stage before
            weights.next(q, range);
            multiply_record<Packed, TOKENS>(sums, ring + stage * Packed::BYTES, x.memory + stage * x.BYTES,
                                            x.full + stage * BARRIER_BYTES, parity, unit == first, before);
            before = x.empty + stage * BARRIER_BYTES;
            stage = stage + 1 < STAGES ? stage + 1 : 0;
            parity ^= stage == 0;
            if (countdown-- == 0) {
                countdown = WARPS - 1;
                int next = unit - LAG + STAGES;
                if (lane_index() == 0 && unit - LAG >= range.first && next < range.end)
                    x.copy(x_from, range, next);
                __syncwarp();
            }
        }
        products_wait<0>();
        if (lane_index() == 0)
            barrier_arrive(before);
    }
};

template <class Packed, int TOKENS>
DEVICE void multiply_range(const struct cuda_linear_wide &q, const struct range &range,
                           struct weight_ring<Packed, TOKENS> &weights, struct multiplier<Packed, TOKENS> &multiplier)
{
    constexpr int WARPS = wgmma_shape<Packed, TOKENS>::WARPS;
    for (int unit = range.first, end; unit < range.end; unit = end) {
        float sums[TOKENS / 8][4]; // the first product is not added
        end = unit + range.count_from(unit);
        multiplier.multiply_tile(q, range, weights, unit, end, sums);
        int index = unit / range.records, tile_first = index * range.records;
        if (q.left && unit > tile_first) {
            leave_sums<TOKENS, WARPS>(q, range.index, sums);
            continue;
        }
        for (int i = range.index + 1; q.left && range_first(q, i) < tile_first + range.records; i++)
            take_sums<TOKENS, WARPS>(q, i, sums);
        struct wide_tile tile = wide_tile_of(q.linear, index, WARPS * LINEAR_ROWS);
        tile.token = (int)blockIdx.x * TOKENS;
        wide_finish<TOKENS>(q, tile, range.index % q.splits, tile.row + warp_index() * LINEAR_ROWS, sums,
                            *q.linear.rows);
    }
}

template <class Packed, int TOKENS> DEVICE void wide_tokens(const struct cuda_linear_wide &q)
{
    using shape = wgmma_shape<Packed, TOKENS>;
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ uint64_t barriers[2 * shape::STAGES];
    launch_next();
    struct range range(q, q.ranges - 1 - (int)blockIdx.y); // blocks that wait for others' sums begin after these
    uint8_t *memory = shared + (uint32_t)-(int32_t)shared_address(shared) % LINEAR_WGMMA_ALIGNMENT;
    struct x_ring<Packed, TOKENS> x = {
        shared_address(memory), shared_address(barriers), shared_address(barriers + shape::STAGES)
    };
    uint8_t *ring = memory + shape::STAGES * (x.BYTES + warp_index() * Packed::BYTES);
    if (threadIdx.x == 0)
        x.init();
    uint32_t to = shared_address(ring) + lane_index() * 16;
    struct weight_ring<Packed, TOKENS> weights = { NULL, to, to, range.first, 0 };
#pragma unroll 1
    for (int i = 0; i < shape::STAGES - 1; i++)
        weights.next(q, range);
    __syncthreads();
    wait_for_previous();
    if ((int)blockIdx.x * TOKENS < *q.linear.rows) {
        const uint8_t *x_from = q.x + (size_t)blockIdx.x * range.records * x.BYTES;
        if (warp_index() < shape::STAGES && warp_index() < range.end - range.first && lane_index() == 0)
            x.copy(x_from, range, range.first + warp_index());
        __syncwarp();
        int countdown = (warp_index() + shape::WARPS - range.first % shape::WARPS) % shape::WARPS;
        struct multiplier<Packed, TOKENS> multiplier = {
            ring, x, x_from, 0, 0, countdown
        };
        multiply_range<Packed, TOKENS>(q, range, weights, multiplier);
    }
    copies_wait<0>();
}

#define KERNEL(kind, tokens, ...)                                                         \
    extern "C" __global__ void __launch_bounds__(linear_wgmma_warps(tokens) * WARP, 1)    \
        linear_wgmma_##kind##_##tokens(const __grid_constant__ struct cuda_linear_wide p) \
    {                                                                                     \
        wide_tokens<packed_weights<__VA_ARGS__>, tokens>(p);                              \
    }
#define X(kind, ...)               \
    KERNEL(kind, 32, __VA_ARGS__)  \
    KERNEL(kind, 64, __VA_ARGS__)  \
    KERNEL(kind, 128, __VA_ARGS__) \
    KERNEL(kind, 256, __VA_ARGS__)
LINEAR_KINDS(X)
#undef X

// A thread has one chunk of eight values: of a token (y) and a record, two values from each of four lanes' runs.
extern "C" __global__ void __launch_bounds__(256) linear_arrange(const __grid_constant__ struct cuda_linear_wide q)
{
    const struct cuda_linear &p = q.linear;
    kernel_begin();
    int records = (p.in + LINEAR_RECORD - 1) / LINEAR_RECORD, token = (int)blockIdx.y;
    int index = (int)(blockIdx.x * blockDim.x + threadIdx.x), record = index / 16, chunk = index % 16;
    if (blockIdx.x == 0 && blockIdx.y == 0) // no range has left its sums
        for (int i = (int)threadIdx.x; i < LINEAR_RANGES_MAX; i += (int)blockDim.x)
            q.left[i] = 0;
    if (record >= records)
        return;
    uint32_t words[4] = {};
    int k = record * LINEAR_RECORD + chunk / 2 * 4 + chunk % 2 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (token < *p.rows && k + i * LINEAR_LANE_VALUES < p.in)
            words[i] = *(const uint32_t *)((const uint16_t *)p.x + (size_t)token * p.in + k + i * LINEAR_LANE_VALUES);
    int row = token % q.tokens;
    uint8_t *tile = q.x + ((size_t)(token / q.tokens) * records + record) * (size_t)(q.tokens * LINEAR_RECORD * 2);
    uint8_t *panel = tile + (chunk / 8 * q.tokens + row) * 128;
    *(uint4 *)(panel + ((chunk ^ row) & 7) * 16) = make_uint4(words[0], words[1], words[2], words[3]);
}
