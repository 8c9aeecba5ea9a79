// SPDX-License-Identifier: Apache-2.0
// ranks/nccl.h: GPUs of several ranks that give each other what they have, by NVIDIA's NCCL, opened at run time.
#ifndef RANKS_NCCL_H
#define RANKS_NCCL_H

#include "device/cuda.h"

struct nccl;

// 22809 for 2.28.9; 0: it is not installed.
int nccl_version(void);

// By which ranks find each other: rank 0 makes one, all open with it.
enum { NCCL_ID_BYTES = 128 };
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};
bool nccl_make_id(struct nccl_id *id, struct error *err);

// Waits for all ranks, each of which has a GPU of its own.
struct nccl *nccl_open(struct cuda *cuda, const struct nccl_id *id, int rank, int ranks, struct error *err);
void nccl_close(struct nccl *nccl);

// Queued: rank r's `bytes` bytes, which it has at `all` + r * stride, go there on every rank.
bool nccl_gather(struct nccl *nccl, void *all, size_t bytes, size_t stride, struct error *err);

#endif
