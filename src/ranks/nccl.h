// SPDX-License-Identifier: Apache-2.0
// ranks/nccl.h: all-gather between the GPUs of several ranks by NCCL, which is opened at run time.
#ifndef RANKS_NCCL_H
#define RANKS_NCCL_H

#include "device/cuda.h"

struct nccl;

// 22809 for 2.28.9; 0 if NCCL is not installed.
int nccl_version(void);

// ncclUniqueId: made by rank 0, and used by all ranks to open the communicator.
enum { NCCL_ID_BYTES = 128 };
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};
bool nccl_make_id(struct nccl_id *id, struct error *err);

// Blocks until all ranks have called it. Each rank needs a GPU of its own.
struct nccl *nccl_open(struct cuda *cuda, const struct nccl_id *id, int rank, int ranks, struct error *err);
void nccl_close(struct nccl *nccl);

// All-gather in place, queued on the stream: rank r's `bytes` bytes at `all` + r * stride go there on every rank.
bool nccl_all_gather(struct nccl *nccl, void *all, size_t bytes, size_t stride, struct error *err);

#endif
