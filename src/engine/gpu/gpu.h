// SPDX-License-Identifier: Apache-2.0
// engine/gpu/gpu.h: the GPU executor, with CUDA graphs: the engine's device memory, the batch on the device, and the
// steps that it replays.
//
// A step is one upload (the batch, and how its rows are drawn), the launches that the plan's kernels describe, and one
// download: the tokens that were drawn there, and the logits of rows that the host wants to look at. Steps in which
// every sequence has one token are captured once for each size and replayed from then on.
//
// Everything goes through one queue, so that a step can be put behind one that is still running: it finds the cache as
// that one leaves it, takes the tokens it drew from where they are, and pages that the host has given to others in the
// meantime are not written before it is done with them. Each of the two has memory of its own on the host.
#ifndef ENGINE_GPU_GPU_H
#define ENGINE_GPU_GPU_H

#include "device/thread_pool.h"
#include "nibble.h"
#include "plan/plan.h"

struct engine;
struct engine_result;
struct gpu;

// The GPU of this device, with the kernels of this build loaded.
struct gpu *gpu_open(const struct device *device, struct error *err);
void gpu_close(struct gpu *gpu); // with everything that was given out

struct cuda *gpu_cuda(struct gpu *gpu);

// Device memory for the engine's own use. NULL: there is not so much.
void *gpu_new(struct gpu *gpu, size_t bytes, const char *what, struct error *err);

// A copy of a few values that kernels read; the same source gives the same copy. NULL gives NULL.
bool gpu_constant(struct gpu *gpu, const float *values, size_t count, const float **out, struct error *err);

// Where the batch of each step will be, for steps as large as the plan has them. Sets engine->batch.on_device.
bool gpu_open_batch(struct gpu *gpu, struct engine *engine, struct error *err);

// Takes the ops' arguments as bound, with device addresses, and links the arguments of fused ops.
void gpu_bind(struct gpu *gpu, const struct engine *engine, const union op_args *args);

// The rows that do an op in the step that is in engine->batch. Returns how many there are.
enum { GPU_ROWS_MAX = LINEAR_OUTPUTS_MAX };
int gpu_rows(const struct engine *engine, int op, const struct kernel *rows[GPU_ROWS_MAX]);

// Copies every placed matrix to engine->placed. The thread pool packs matrices into two buffers: while one is copied,
// the other is filled.
bool gpu_load_weights(struct gpu *gpu, struct engine *engine, void (*progress)(void *context, double done),
                      void *context, struct error *err);

// As engine_queue_sampling, engine_start, engine_may_follow and engine_finish.
bool gpu_queue_sampling(struct gpu *gpu, int row, const struct nibble_sampling *sampling, int count);
int gpu_start(struct gpu *gpu, struct engine *engine, struct error *err);
bool gpu_may_follow(const struct gpu *gpu, int step);
bool gpu_finish(struct gpu *gpu, int step, struct engine_result *result, struct error *err);

#endif
