// SPDX-License-Identifier: Apache-2.0
#include "ranks/nccl.h"

#include <stdlib.h>

#include "device/cuda_library.h"
#include "device/cuda_parts.h"

enum { NCCL_INT8 = 0 };

// name, symbol, arguments. All return 0 for success.
// clang-format off
#define NCCL_CALLS(X)                                                                                                  \
    X(version, "ncclGetVersion", int *version)                                                                         \
    X(make_id, "ncclGetUniqueId", struct nccl_id *id)                                                                  \
    X(open, "ncclCommInitRank", void **communicator, int ranks, struct nccl_id id, int rank)                           \
    X(close, "ncclCommDestroy", void *communicator)                                                                    \
    X(begin, "ncclGroupStart", void)                                                                                   \
    X(end, "ncclGroupEnd", void)                                                                                       \
    X(send, "ncclSend", const void *from, size_t count, int type, int peer, void *communicator,                        \
      struct cuda_stream *stream)                                                                                      \
    X(receive, "ncclRecv", void *to, size_t count, int type, int peer, void *communicator, struct cuda_stream *stream)
// clang-format on

struct library {
#define X(name, symbol, ...) int (*name)(__VA_ARGS__);
    NCCL_CALLS(X)
#undef X
    const char *(*error_text)(int status);
};

struct nccl {
    struct library library;
    struct cuda *cuda; // borrowed
    void *communicator;
    int rank, ranks;
};

static bool open_library(struct library *library, struct error *err)
{
    static const char *const names[] = { "libnccl.so.2", NULL };
    const struct library_call calls[] = {
#define X(name, symbol, ...) { symbol, (void **)&library->name },
        NCCL_CALLS(X)
#undef X
            { "ncclGetErrorString", (void **)&library->error_text },
    };
    void *found = cuda_library_open(names);
    if (!found)
        return fail(err, "NCCL, by which GPUs speak to each other, is not installed (libnccl.so.2)");
    const char *missing = cuda_library_bind(found, calls, sizeof calls / sizeof *calls);
    return !missing || fail(err, "NCCL lacks %s: it is too old, 2.7 or later is needed", missing);
}

static bool check(const struct library *library, int status, const char *call, struct error *err)
{
    return !status || fail(err, "NCCL's %s failed: %s", call, library->error_text(status));
}

int nccl_version(void)
{
    struct library library;
    struct error ignored;
    int version = 0;
    return open_library(&library, &ignored) && !library.version(&version) ? version : 0;
}

bool nccl_make_id(struct nccl_id *id, struct error *err)
{
    struct library library;
    return open_library(&library, err) && check(&library, library.make_id(id), "ncclGetUniqueId", err);
}

struct nccl *nccl_open(struct cuda *cuda, const struct nccl_id *id, int rank, int ranks, struct error *err)
{
    struct nccl *nccl = memory_new(1, sizeof *nccl);
    *nccl = (struct nccl){ .cuda = cuda, .rank = rank, .ranks = ranks };
    cuda_enter(cuda);
    if (open_library(&nccl->library, err)
        && check(&nccl->library, nccl->library.open(&nccl->communicator, ranks, *id, rank), "ncclCommInitRank", err))
        return nccl;
    free(nccl);
    return NULL;
}

void nccl_close(struct nccl *nccl)
{
    if (!nccl)
        return;
    cuda_enter(nccl->cuda);
    nccl->library.close(nccl->communicator);
    free(nccl);
}

bool nccl_all_gather(struct nccl *nccl, void *all, size_t bytes, size_t stride, struct error *err)
{
    const struct library *library = &nccl->library;
    char *parts = all, *mine = parts + (size_t)nccl->rank * stride;
    int status = (cuda_enter(nccl->cuda), library->begin());
    for (int peer = 0; peer < nccl->ranks && !status; peer++)
        if (peer != nccl->rank || nccl->ranks == 1) // a single rank sends to itself
            if (!(status = library->send(mine, bytes, NCCL_INT8, peer, nccl->communicator, nccl->cuda->stream)))
                status = library->receive(parts + (size_t)peer * stride, bytes, NCCL_INT8, peer, nccl->communicator,
                                          nccl->cuda->stream);
    int ended = library->end();
    return check(library, status ? status : ended, "exchange", err);
}
