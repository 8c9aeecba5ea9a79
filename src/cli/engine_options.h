// SPDX-License-Identifier: Apache-2.0
// cli/engine_options.h: rows of an option table that fill a struct nibble_options: the KV cache, kernels and the device
// for every command that plans or runs a model, and what commands that serve or share a model have besides.
#ifndef CLI_ENGINE_OPTIONS_H
#define CLI_ENGINE_OPTIONS_H

#include "cli/options.h"
#include "nibble.h"

// clang-format off

// `options` is a struct nibble_options.
#define ENGINE_OPTION_ROWS(options)                                                                                    \
    { "--kv-cache-dtype", OPTION_TEXT, &(options).kv_cache_dtype, "FORMAT",                                            \
      "cache format; K/V and ranges: 0-3:bfloat16,4-:fp8/nvfp4" },                                                     \
    ENGINE_FURTHER_ROWS(options)

// All but the format, for a command that takes several of them.
#define ENGINE_FURTHER_ROWS(options)                                                                                   \
    { "--kv-cache-dtype-skip-layers", OPTION_LIST, &(options).kv_cache_dtype_skip_layers, "L",                         \
      "layers kept in 16 bit: 0 1 28-29 sliding_window" },                                                             \
    { "--kv-transform", OPTION_TEXT, &(options).kv_transform, "T",                                                     \
      "of keys: none, rotate, centre, centre+rotate (auto: as measured)" },                                            \
    { "--kv-calibration", OPTION_TEXT, &(options).kv_calibration, "FILE", "the text to measure keys on (built in)" },  \
    { "--kv-scale", OPTION_TEXT, &(options).kv_scale, "WAY", "scales of nvfp4: search (least square error) or amax" }, \
    { "--kv-sink-pages", OPTION_TEXT, &(options).kv_sink_pages, "N",                                                   \
      "sink pages: the first of a sequence, in 16 bits (1 for 4-bit keys, else 0)" },                                  \
    { "--kv-plan", OPTION_TEXT, &(options).kv_plan, "FILE", "formats as `nibble tune` found them" },                   \
    { "--attention-kernel", OPTION_TEXT, &(options).attention_kernel, "NAME", "use this kernel or refuse" },           \
    { "--linear-kernel", OPTION_TEXT, &(options).linear_kernel, "NAME", "the same for linear layers that it fits" },   \
    { "--activations", OPTION_TEXT, &(options).activations, "P",                                                       \
      "CPU: exact (16 bits) or int8 (rounded, faster in prefill) (exact)" },                                           \
    { "--max-model-len", OPTION_INT, &(options).max_model_len, "N", "longest sequence in tokens (the model's own)",    \
      1, 1 << 28 },                                                                                                    \
    { "--device", OPTION_TEXT, &(options).device, "D", "auto, cpu, cuda, cuda:1 (auto: a GPU if it can be used)" }

// Further rows for commands that serve, or plan to.
#define SERVING_OPTION_ROWS(options)                                                                                   \
    { "--gpu-memory-utilization", OPTION_REAL, &(options).gpu_memory_utilization, "X",                                 \
      "share of a GPU's memory to use (0.92)", 0.01, 1 },                                                              \
    { "--kv-cache-memory-bytes", OPTION_SIZE, &(options).kv_cache_bytes, "BYTES",                                      \
      "of the cache (what N sequences need)" },                                                                        \
    { "--max-num-seqs", OPTION_INT, &(options).max_num_seqs, "N", "sequences running at once", 1, 4096 },              \
    { "--max-num-batched-tokens", OPTION_INT, &(options).batch_tokens, "N",                                            \
      "tokens read in one step (512; ranks on CPUs: 256)", 1, 4096 },                                                  \
    { "--mamba-block-size", OPTION_INT, &(options).mamba_block_size, "N",                                              \
      "tokens between states that are kept (chosen)", 16, 1 << 20 }

// A row for commands that run a model, or plan to, which several processes can do together.
#define RANKS_OPTION_ROW(options)                                                                                      \
    { "--tensor-parallel-size", OPTION_INT, &(options).tensor_parallel, "N", "processes that share the model (1)",     \
      1, 64, .short_name = "-tp" }

// Rows for commands that answer: the sampling parameters of requests that say nothing else. `from` is a struct
// nibble_defaults_options.
#define DEFAULTS_OPTION_ROWS(from)                                                                                     \
    { "--generation-config", OPTION_TEXT, &(from).generation_config, "FROM",                                           \
      "sampling: auto (the model's), vllm (all off) or a folder (auto)" },                                             \
    { "--override-generation-config", OPTION_TEXT, &(from).override_generation_config, "JSON",                         \
      "values that win over it: {\"temperature\": 0.5}" }

// clang-format on

#endif
