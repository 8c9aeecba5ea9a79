// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_blas.h"

#include <dlfcn.h>

#include "device/cuda_library.h"

static const char *const library_names[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL };

bool cuda_blas_open(struct blas *blas, struct error *err)
{
    const struct {
        const char *symbol;
        void **slot;
    } calls[] = {
#define X(name, symbol, ...) { symbol, (void **)&blas->name },
        BLAS_CALLS(X)
#undef X
            { "cublasLtGetStatusName", (void **)&blas->status_name },
    };
    void *library = cuda_library_open(library_names);
    if (!library)
        return fail(err,
                    "cuBLASLt, which multiplies large 16-bit matrices, is not installed: libcublasLt.so.13 or "
                    ".so.12 is neither where the loader looks nor in /usr/local/cuda nor among Python's packages. "
                    "`pip install nvidia-cublas` has it; LD_LIBRARY_PATH may name its folder");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!(*calls[i].slot = dlsym(library, calls[i].symbol)))
            return fail(err, "cuBLASLt lacks %s: it is too old, 12 or later is needed", calls[i].symbol);
    return true;
}
