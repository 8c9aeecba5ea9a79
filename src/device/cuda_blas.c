// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_blas.h"

#include "device/cuda_library.h"

static const char *const library_names[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL };

bool cuda_blas_open(struct blas *blas, struct error *err)
{
    const struct library_call calls[] = {
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
    const char *missing = cuda_library_bind(library, calls, sizeof calls / sizeof *calls);
    return !missing || fail(err, "cuBLASLt lacks %s: it is too old, 12 or later is needed", missing);
}
