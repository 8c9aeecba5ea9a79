// SPDX-License-Identifier: Apache-2.0
// kernel/cuda/linear_many_wgmma.cu: linear for many tokens with quantised weights on sm_90a, at the speed of its tensor
// cores.
//   (1) x is first brought into the order of the weights' records (linear_arrange), as the tiles that tensor cores
//       read: for each tile of tokens and each record two panels, (tokens, 64 values), swizzled
//   (2) a block has a tile of rows, sixteen per warp, and a tile of tokens. Records of weights and x come into a ring
//       of stages; its first warp sees to that. All unpack their rows' weights into registers, half a record at a time,
//       while the products of the half before run
#include "kernel/cuda/linear_many.cuh"
#include "kernel/cuda/linear_wgmma.cuh"

enum { GROUP_THREADS = 128, STAGES_MAX = LINEAR_WGMMA_STAGES_MAX, HALF_PRODUCTS = 4 };

// ---- bringing ----

// The stages' memory and their barriers, 8 bytes each: addresses in shared memory.
struct ring {
    uint32_t memory, stage_bytes, full, empty;
    int stages;
};

// A place in the ring, and how often, modulo two, it has been there before.
struct place {
    int stage, parity;

    MEMBER void next(const struct ring &ring)
    {
        bool last = stage + 1 == ring.stages;
        stage = last ? 0 : stage + 1;
        parity ^= last;
    }
};

template <class Packed, int TOKENS> struct bringer {
    static constexpr uint32_t X_BYTES = TOKENS * LINEAR_RECORD * 2;

    const uint8_t *weights, *x; // of the first record, the weights of the lane's group
    int groups;                 // of the block that there are

    MEMBER void bring_weights(const struct ring &ring, int stage, int record) const
    {
        int lane = lane_index();
        if (lane == 0)
            barrier_expect(ring.full + stage * 8, (uint32_t)groups * Packed::BYTES + X_BYTES);
        __syncwarp();
        if (lane < groups)
            copy_bulk(ring.memory + stage * ring.stage_bytes + X_BYTES + lane * Packed::BYTES,
                      weights + (size_t)record * Packed::BYTES, Packed::BYTES, ring.full + stage * 8);
    }

    MEMBER void bring_x(const struct ring &ring, int stage, int record) const
    {
        if (lane_index() == 0)
            copy_bulk(ring.memory + stage * ring.stage_bytes, x + (size_t)record * X_BYTES, X_BYTES,
                      ring.full + stage * 8);
    }
};

// ---- multiplying ----

// While the products of one half run, the next is unpacked. Those of the record before are done when the first half's
// are under way: then nobody needs its stage, whose barrier is `before` (0: there was none).
template <class Packed, int TOKENS>
DEVICE void multiply_record(float sums[TOKENS / 8][4], const uint8_t *record, uint32_t x, bool first, uint32_t before)
{
    int lane = lane_index();
    Packed packed[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i == 0)
            packed[0].load_scales(record, lane);
        else
            packed[i] = packed[0];
        packed[i].load_piece(record, lane, i);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t a[HALF_PRODUCTS][4];
#pragma unroll
        for (int j = 0; j < HALF_PRODUCTS; j++) {
            packed[half * 2 + j / 2].operand(half * HALF_PRODUCTS + j, a[j]);
            operand_hold(a[j]);
        }
        products_begin();
#pragma unroll
        for (int j = 0; j < HALF_PRODUCTS; j++)
            product<TOKENS>(sums, a[j], x_operand(x + half * TOKENS * 128 + j * 32), !first || half > 0 || j > 0);
        products_commit();
        products_wait<1>();
        if (half == 0 && before && lane_index() == 0)
            barrier_arrive(before);
    }
}

// A stage is filled again two records after it was used, or one if there are but two.
template <class Packed, int TOKENS>
DEVICE void multiply_records(float sums[TOKENS / 8][4], const uint8_t *memory, const struct ring &ring,
                             const struct bringer<Packed, TOKENS> &bringer, int records)
{
    struct place now = {}, again = {};
    int lag = ring.stages > 2 ? 2 : 1;
    uint32_t before = 0;
    for (int i = 0; i < records; i++, now.next(ring)) {
        if (warp_index() == 0 && i >= lag && i - lag + ring.stages < records) {
            barrier_wait(ring.empty + again.stage * 8, again.parity);
            bringer.bring_weights(ring, again.stage, i - lag + ring.stages);
            bringer.bring_x(ring, again.stage, i - lag + ring.stages);
            again.next(ring);
        }
        barrier_wait(ring.full + now.stage * 8, now.parity);
        uint32_t x_at = now.stage * ring.stage_bytes;
        uint32_t weights_at = x_at + bringer.X_BYTES + warp_index() * Packed::BYTES;
        multiply_record<Packed, TOKENS>(sums, memory + weights_at, ring.memory + x_at, i == 0, before);
        before = ring.empty + now.stage * 8;
        if (lag > 1)
            continue;
        products_wait<0>();
        if (lane_index() == 0)
            barrier_arrive(before);
        before = 0;
    }
    products_wait<0>();
}

// ---- the kernels ----

template <class Packed, int TOKENS> DEVICE void many_tokens(const struct cuda_linear_many &q)
{
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    const struct cuda_linear &p = q.linear;
    launch_next();
    struct many_tile tile = many_tile_of(q, block_warps() * LINEAR_ROWS, TOKENS);
    uint8_t *memory = shared + (uint32_t)-(int32_t)shared_address(shared) % LINEAR_WGMMA_ALIGNMENT;
    uint32_t stage_bytes = (uint32_t)linear_wgmma_stage_bytes(Packed::BYTES, block_warps(), TOKENS);
    struct ring ring = { shared_address(memory), stage_bytes, shared_address(barriers),
                         shared_address(barriers + STAGES_MAX), q.stages };
    if (threadIdx.x == 0) {
        for (int i = 0; i < q.stages; i++) {
            barrier_init(ring.full + i * 8, 1);
            barrier_init(ring.empty + i * 8, block_warps());
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    const cuda_linear_output &output = p.output[tile.output];
    int ahead = tile.records < q.stages ? tile.records : q.stages, all = (p.in + LINEAR_RECORD - 1) / LINEAR_RECORD;
    int group = tile.row / LINEAR_ROWS, left = (output.rows + LINEAR_ROWS - 1) / LINEAR_ROWS - group;
    struct bringer<Packed, TOKENS> bringer = {
        output.weight + ((size_t)(group + lane_index()) * all + tile.record) * Packed::BYTES,
        q.x + ((size_t)blockIdx.x * all + tile.record) * (TOKENS * LINEAR_RECORD * 2),
        left < block_warps() ? left : block_warps() };
    for (int i = 0; i < ahead && warp_index() == 0; i++)
        bringer.bring_weights(ring, i, i);
    wait_for_previous();
    for (int i = 0; i < ahead && warp_index() == 0; i++)
        bringer.bring_x(ring, i, i);

    int tokens = *p.rows;
    float sums[TOKENS / 8][4]; // the first product is not added
    multiply_records<Packed, TOKENS>(sums, memory, ring, bringer, tile.token < tokens ? tile.records : ahead);
    __syncthreads();
    many_finish<1, TOKENS>(q, tile, &sums, memory, tokens);
}

#define KERNEL(kind, tokens, groups, blocks, ...)                                              \
    extern "C" __global__ void __launch_bounds__(groups * GROUP_THREADS, blocks)               \
        linear_wgmma_##kind##_##tokens(const __grid_constant__ struct cuda_linear_many p)      \
    {                                                                                          \
        many_tokens<packed_weights<__VA_ARGS__>, tokens>(p);                                   \
    }
#define X(kind, ...)                     \
    KERNEL(kind, 32, 2, 2, __VA_ARGS__)  \
    KERNEL(kind, 64, 2, 2, __VA_ARGS__)  \
    KERNEL(kind, 128, 4, 1, __VA_ARGS__) \
    KERNEL(kind, 256, 2, 1, __VA_ARGS__)
LINEAR_KINDS(X)
#undef X

// A thread has one chunk of eight values: of a token (y) and a record, two values from each of four lanes' runs.
extern "C" __global__ void __launch_bounds__(256) linear_arrange(const __grid_constant__ struct cuda_linear_many q)
{
    const struct cuda_linear &p = q.linear;
    kernel_begin();
    int records = (p.in + LINEAR_RECORD - 1) / LINEAR_RECORD, token = (int)blockIdx.y;
    int index = (int)(blockIdx.x * blockDim.x + threadIdx.x), record = index / 16, chunk = index % 16;
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
