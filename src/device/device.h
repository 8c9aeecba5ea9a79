// SPDX-License-Identifier: Apache-2.0
// device/device.h: the hardware as found: what it can do and how much memory it has.
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"

// CPU features that kernels may ask for, in ascending order, and where cpuid says whether they are there.
//    id               word            leaf sub reg bit
// clang-format off
#define CPU_FEATURES(X)                                  \
    X(SSE41,           "sse4.1",          1, 0, ECX, 19) \
    X(FMA,             "fma",             1, 0, ECX, 12) \
    X(F16C,            "f16c",            1, 0, ECX, 29) \
    X(AVX,             "avx",             1, 0, ECX, 28) \
    X(BMI2,            "bmi2",            7, 0, EBX,  8) \
    X(AVX2,            "avx2",            7, 0, EBX,  5) \
    X(AVX512F,         "avx512f",         7, 0, EBX, 16) \
    X(AVX512DQ,        "avx512dq",        7, 0, EBX, 17) \
    X(AVX512BW,        "avx512bw",        7, 0, EBX, 30) \
    X(AVX512VL,        "avx512vl",        7, 0, EBX, 31) \
    X(AVX512VBMI,      "avx512vbmi",      7, 0, ECX,  1) \
    X(AVX512VNNI,      "avx512vnni",      7, 0, ECX, 11) \
    X(AVX512BF16,      "avx512bf16",      7, 1, EAX,  5) \
    X(AVXVNNI,         "avxvnni",         7, 1, EAX,  4) \
    X(AMXBF16,         "amx-bf16",        7, 0, EDX, 22) \
    X(AMXTILE,         "amx-tile",        7, 0, EDX, 24) \
    X(AMXINT8,         "amx-int8",        7, 0, EDX, 25)
// clang-format on

enum cpu_feature_index {
#define X(id, ...) CPU_INDEX_##id,
    CPU_FEATURES(X)
#undef X
        CPU_FEATURE_COUNT
};

enum {
#define X(id, ...) CPU_##id = 1 << CPU_INDEX_##id,
    CPU_FEATURES(X)
#undef X
};

enum device_kind { DEVICE_CPU, DEVICE_CUDA, DEVICE_NONE };

// The hardware a plan is made for: found here, or imagined from a word.
struct device {
    enum device_kind kind;
    char word[16]; // as users name it: "cpu", "cpu:avx2", "sm_90"
    char name[96]; // its maker's; "" for an imagined one
    bool imagined;
    char note[160];     // DEVICE_NONE: why what was asked for is not there; "" otherwise
    uint32_t features;  // CPU: CPU_* bits, after NIBBLE_FEATURES
    int sm;             // CUDA: 90 for compute capability 9.0
    int ordinal;        // CUDA: which of this machine's; what follows is 0 where an imagined one's is not known
    int driver_version; // 13000 for CUDA 13.0
    int multiprocessors;
    int shared_bytes;    // that one block may have
    int cores;           // that this process may run on
    size_t memory_bytes; // installed, or the control group's limit where that is lower; 0: no limit (imagined)
    size_t memory_free_bytes;
};

// Any device word: cpu, cpu:ref, cpu:avx2, cpu:avx512, cpu:amx, cpu:neon, sm_NN, cuda, cuda:N, none. The local CPU and
// GPUs are as found, the others imagined. An unknown word is a usage error; a GPU that is not there is no error here:
// it is DEVICE_NONE with a note, and no plan fits it.
bool device_parse(struct device *device, const char *word, struct error *err);

// The words that name a kind of CPU or GPU, for suggestions and for planning elsewhere; ends in NULL.
extern const char *const device_words[];

// The CPU this process runs on. NIBBLE_FEATURES=avx2 (or =none) masks a bigger machine down to a smaller one;
// a word in it that is no feature is an error.
bool device_open_cpu(struct device *device, struct error *err);

// "avx2 fma" for a set of features; "none" for the empty one.
const char *device_feature_words(struct arena *arena, uint32_t features);

// NVIDIA GPUs as the driver reports them. Never fails: without a driver the reason is in `note`.
enum { CUDA_DEVICES_MAX = 16 };
struct cuda_report {
    char note[160];     // "" when all is well, else why there are no devices
    int driver_version; // 13000 for CUDA 13.0; 0: unknown
    int count;
    struct cuda_device {
        int ordinal; // its number among the driver's
        char name[96];
        int major, minor; // compute capability
        int multiprocessors, shared_bytes;
        size_t memory_bytes;
    } devices[CUDA_DEVICES_MAX];
};
void device_probe_cuda(struct cuda_report *report);

// What is free on a GPU once it is in use by this process; that takes a moment. False: it cannot be used.
bool device_cuda_memory_free(int ordinal, size_t *bytes, struct error *err);

#endif
