// SPDX-License-Identifier: Apache-2.0
// device/device.h: descriptions of CPUs and GPUs, detected or imagined: features, sizes and memory.
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/memory.h"

// CPU features that kernels may need, in ascending order, and the cpuid bit of each.
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

// The hardware a plan is made for: a real device, or an imagined one given by a word such as sm_90.
struct device {
    enum device_kind kind;
    char word[16]; // as users name it: "cpu", "cpu:avx2", "sm_90"
    char name[96]; // the vendor's name; "" if imagined
    bool imagined;
    char note[160];     // DEVICE_NONE: why the requested device is missing; "" otherwise
    uint32_t features;  // CPU: CPU_* bits, after NIBBLE_FEATURES
    int sm;             // CUDA: 90 for compute capability 9.0
    int ordinal;        // CUDA ordinal; the following are 0 if unknown for an imagined device
    int driver_version; // 13000 for CUDA 13.0
    int multiprocessors;
    int shared_bytes;    // shared memory per block
    int cores;           // available to this process
    size_t memory_bytes; // installed, or the cgroup's limit if lower; 0: no limit (imagined)
    size_t memory_free_bytes;
};

// Parses a device word: cpu, cpu:ref, cpu:avx2, cpu:avx512, cpu:amx, cpu:neon, sm_NN, cuda, cuda:N, none. cpu and cuda
// are detected, the others imagined. An unknown word is a usage error. A missing GPU is no error here: the device
// becomes DEVICE_NONE with a note, and no plan fits it.
bool device_parse(struct device *device, const char *word, struct error *err);

// Whether a word is one of a device that exists; the error offers no imagined ones.
bool device_check_runs(const char *word, struct error *err);

// All device words but cuda:N, for suggestions; NULL-terminated.
extern const char *const device_words[];

// Detects this machine's CPU. NIBBLE_FEATURES=avx2 (or =none) masks its features, to run the kernels of a smaller CPU;
// an unknown feature is an error.
bool device_open_cpu(struct device *device, struct error *err);

// "avx2 fma" for a set of features; "none" for the empty one.
const char *device_feature_words(struct arena *arena, uint32_t features);

// Lists NVIDIA GPUs. Never fails: without a driver, `note` has the reason.
enum { CUDA_DEVICES_MAX = 16 };
struct cuda_report {
    char note[160];     // "", or the reason why there are no devices
    int driver_version; // 13000 for CUDA 13.0; 0: unknown
    int count;
    struct cuda_device {
        int ordinal; // CUDA ordinal
        char name[96];
        int major, minor; // compute capability
        int multiprocessors, shared_bytes;
        size_t memory_bytes;
    } devices[CUDA_DEVICES_MAX];
};
void device_probe_cuda(struct cuda_report *report);

// The free memory of a GPU, measured with this process's context created. False if the GPU cannot be used.
bool device_cuda_memory_free(int ordinal, size_t *bytes, struct error *err);

#endif
