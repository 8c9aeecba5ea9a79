// SPDX-License-Identifier: Apache-2.0
// cli/cache_options.h: the options of every command that has a cache, so where it is and in what form, and of those
// that have room for many sequences.
#ifndef CLI_CACHE_OPTIONS_H
#define CLI_CACHE_OPTIONS_H

#include "base/strbuf.h"
#include "cli/options.h"
#include "nibble.h"

struct cache_options {
    const char *dtype, *scale, *sink_pages, *transform, *calibration, *attention_kernel, *linear_kernel, *device;
    const char *plan;        // a file of `nibble tune`
    const char *activations; // exact or int8
    double gpu_share;
    struct strbuf skip_layers; // to be freed
    long long max_model_len;
    long long sequences, batch_tokens, state_tokens; // of the commands that serve many
    long long ranks;                                 // processes that share the model; 0: not said
    struct nibble_ranks *joined;                     // those that do; to be closed
    size_t bytes;
};

// Rows for an option table; `cache` is a struct cache_options.
#define CACHE_OPTION_ROWS(cache)                                   \
    { "--kv-cache-dtype", OPTION_TEXT, &(cache).dtype, "FORMAT",   \
      "cache format; K/V and ranges: 0-3:bfloat16,4-:fp8/nvfp4" }, \
        CACHE_FURTHER_ROWS(cache)

// All but the format, for a command that takes several of them.
#define CACHE_FURTHER_ROWS(cache)                                                                                      \
    { "--kv-cache-dtype-skip-layers", OPTION_LIST, &(cache).skip_layers, "L",                                          \
      "layers kept in 16 bit: 0 1 28-29 sliding_window" },                                                             \
        { "--kv-transform", OPTION_TEXT, &(cache).transform, "T",                                                      \
          "of keys: none, rotate, centre, centre+rotate (auto: as measured)" },                                        \
        { "--kv-calibration", OPTION_TEXT, &(cache).calibration, "FILE", "the text to measure keys on (built in)" },   \
        { "--kv-scale", OPTION_TEXT, &(cache).scale, "WAY", "scales of nvfp4: search (least square error) or amax" },  \
        { "--kv-sink-pages", OPTION_TEXT, &(cache).sink_pages, "N",                                                    \
          "first pages of a sequence in 16 bit (1 for 4-bit keys, else 0)" },                                          \
        { "--kv-plan", OPTION_TEXT, &(cache).plan, "FILE", "formats as `nibble tune` found them" },                    \
        { "--attention-kernel", OPTION_TEXT, &(cache).attention_kernel, "NAME", "use this kernel or refuse" },         \
        { "--linear-kernel", OPTION_TEXT, &(cache).linear_kernel, "NAME", "the same for linear layers that it fits" }, \
        { "--activations", OPTION_TEXT, &(cache).activations, "P",                                                     \
          "CPU: exact (16 bits) or int8 (rounded, faster) (exact)" },                                                  \
        { "--max-model-len",                                                                                           \
          OPTION_INT,                                                                                                  \
          &(cache).max_model_len,                                                                                      \
          "N",                                                                                                         \
          "longest sequence in tokens (the model's own)",                                                              \
          1,                                                                                                           \
          1 << 28 },                                                                                                   \
        { "--device", OPTION_TEXT, &(cache).device, "D", "auto, cpu, cuda, cuda:1 (auto: a GPU if it can be used)" }

// Further rows for commands that serve, or plan to.
#define SERVING_OPTION_ROWS(cache)                                                                                   \
    {                                                                                                                \
        "--gpu-memory-utilization",                                                                                  \
        OPTION_REAL,                                                                                                 \
        &(cache).gpu_share,                                                                                          \
        "X",                                                                                                         \
        "share of a GPU's memory to use (0.92)",                                                                     \
        0.01,                                                                                                        \
        1                                                                                                            \
    },                                                                                                               \
        { "--kv-cache-memory-bytes", OPTION_SIZE, &(cache).bytes, "BYTES", "of the cache (what N sequences need)" }, \
        { "--max-num-seqs", OPTION_INT, &(cache).sequences, "N", "sequences running at once", 1, 4096 },             \
        { "--max-num-batched-tokens",                                                                                \
          OPTION_INT,                                                                                                \
          &(cache).batch_tokens,                                                                                     \
          "N",                                                                                                       \
          "tokens read in one step (512; ranks on CPUs: 256)",                                                       \
          1,                                                                                                         \
          4096 },                                                                                                    \
        { "--mamba-block-size",                                                                                      \
          OPTION_INT,                                                                                                \
          &(cache).state_tokens,                                                                                     \
          "N",                                                                                                       \
          "tokens between states that are kept (chosen)",                                                            \
          16,                                                                                                        \
          1 << 20 }

// A row for commands that run a model, or plan to, which several processes can do together.
#define RANKS_OPTION_ROW(cache)                                                                               \
    { "--tensor-parallel-size", OPTION_INT, &(cache).ranks, "N", "processes that share the model (1)", 1, 64, \
      .short_name = "-tp" }

static inline void cache_options_apply(const struct cache_options *cache, struct nibble_options *out)
{
    out->kv_cache_dtype = cache->dtype;
    out->kv_cache_dtype_skip_layers = cache->skip_layers.data;
    out->kv_transform = cache->transform;
    out->kv_calibration = cache->calibration;
    out->kv_scale = cache->scale;
    out->kv_sink_pages = cache->sink_pages;
    out->kv_plan = cache->plan;
    out->attention_kernel = cache->attention_kernel;
    out->linear_kernel = cache->linear_kernel;
    out->activations = cache->activations;
    out->device = cache->device;
    out->gpu_memory_utilization = cache->gpu_share;
    out->max_model_len = (int)cache->max_model_len;
    out->max_num_seqs = (int)cache->sequences;
    out->batch_tokens = (int)cache->batch_tokens;
    out->mamba_block_size = (int)cache->state_tokens;
    out->kv_cache_bytes = cache->bytes;
    out->tensor_parallel = (int)cache->ranks;
    out->ranks = cache->joined;
}

#endif
