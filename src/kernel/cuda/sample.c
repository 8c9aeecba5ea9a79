// SPDX-License-Identifier: Apache-2.0
#include "kernel/cuda/sample.h"

#include <assert.h>

#include "kernel/cuda/describe.h"

enum { CHUNK_THREADS = 256, CHUNKS_AT_ONCE = CHUNK_THREADS / 32, DRAW_THREADS = 512, BLOCKS_WANTED = 2048 };

const char *const cuda_sampling_functions[CUDA_SAMPLING_CALLS] = { "sample_peaks", "sample_masses", "sample_draw" };

bool cuda_sampling_fits(int vocabulary) { return vocabulary <= CUDA_SAMPLING_VOCABULARY_MAX; }

static int chunks_of(int vocabulary)
{
    assert(vocabulary > 0 && cuda_sampling_fits(vocabulary));
    return (vocabulary + CUDA_SAMPLING_CHUNK - 1) / CUDA_SAMPLING_CHUNK;
}

size_t cuda_sampling_bytes(int rows, int vocabulary)
{
    size_t chunk = sizeof(uint64_t) + sizeof(float), bin = sizeof(uint64_t) + sizeof(int32_t);
    return (size_t)rows * ((size_t)chunks_of(vocabulary) * chunk + CUDA_SAMPLING_BINS * bin);
}

int cuda_sampling_describe(const struct cuda_sampling *sampling, void *scratch, int rows,
                           struct cuda_call calls[CUDA_CALLS_MAX])
{
    struct cuda_sampling params = *sampling;
    params.chunks = chunks_of(sampling->vocabulary);
    params.masses = scratch;
    params.bin_masses = params.masses + (size_t)rows * (size_t)params.chunks;
    params.bin_counts = (int32_t *)(params.bin_masses + (size_t)rows * CUDA_SAMPLING_BINS);
    params.peaks = (float *)(params.bin_counts + (size_t)rows * CUDA_SAMPLING_BINS);
    unsigned all = cuda_blocks(rows, 1), blocks = cuda_blocks(params.chunks, CHUNKS_AT_ONCE);
    unsigned enough = cuda_blocks(BLOCKS_WANTED, all); // a block too many costs more than a longer one
    blocks = blocks < enough ? blocks : enough;
    calls[0] = cuda_call_make(cuda_sampling_functions[0], all, blocks, CHUNK_THREADS, &params, sizeof params);
    calls[1] = cuda_call_make(cuda_sampling_functions[1], all, blocks, CHUNK_THREADS, &params, sizeof params);
    calls[2] = cuda_call_make(cuda_sampling_functions[2], all, 1, DRAW_THREADS, &params, sizeof params);
    return CUDA_SAMPLING_CALLS;
}
