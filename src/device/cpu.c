// SPDX-License-Identifier: Apache-2.0
// device/cpu.c: detects this machine's CPU features (cpuid), cores and memory (/proc, cgroup).
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/strbuf.h"
#include "device/device.h"

static const char *const feature_words[CPU_FEATURE_COUNT] = {
#define X(id, word, ...) word,
    CPU_FEATURES(X)
#undef X
};

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

enum { EAX, EBX, ECX, EDX };

static bool cpuid_bit(uint32_t leaf, uint32_t subleaf, int reg, int bit)
{
    uint32_t out[4];
    if ((uint32_t)__get_cpuid_max(0, NULL) < leaf) // clang has it as int
        return false;
    __cpuid_count(leaf, subleaf, out[EAX], out[EBX], out[ECX], out[EDX]);
    return out[reg] >> bit & 1;
}

// XCR0: the vector registers that the operating system saves. Others are not usable.
static uint64_t enabled_state(void)
{
    if (!cpuid_bit(1, 0, ECX, 27))
        return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

// Linux saves AMX registers only for processes that request it.
static bool request_amx(void)
{
    enum { ARCH_REQUEST_STATE = 0x1023, STATE_TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQUEST_STATE, STATE_TILE_DATA) == 0;
}

static uint32_t detect_features(void)
{
    enum { STATE_AVX = 0x6, STATE_AVX512 = 0xE6, STATE_AMX = 0x60000 };
    const uint32_t avx = CPU_FMA | CPU_F16C | CPU_AVX | CPU_AVX2 | CPU_AVXVNNI;
    const uint32_t avx512 = CPU_AVX512F | CPU_AVX512DQ | CPU_AVX512BW | CPU_AVX512VL | CPU_AVX512VBMI | CPU_AVX512VNNI
        | CPU_AVX512BF16;
    const uint32_t amx = CPU_AMXBF16 | CPU_AMXTILE | CPU_AMXINT8;
    uint32_t features = 0;
#define X(id, word, leaf, subleaf, reg, bit) \
    if (cpuid_bit(leaf, subleaf, reg, bit))  \
        features |= CPU_##id;
    CPU_FEATURES(X)
#undef X
    uint64_t state = enabled_state();
    if ((state & STATE_AVX) != STATE_AVX)
        features &= ~avx;
    if ((state & STATE_AVX512) != STATE_AVX512)
        features &= ~avx512;
    if ((state & STATE_AMX) != STATE_AMX || (features & amx && !request_amx()))
        features &= ~amx;
    return features;
}

static void processor_name(char *out, size_t size)
{
    uint32_t brand[12] = { 0 };
    if ((uint32_t)__get_cpuid_max(0x80000000, NULL) >= 0x80000004)
        for (uint32_t i = 0; i < 3; i++)
            __cpuid(0x80000002 + i, brand[4 * i], brand[4 * i + 1], brand[4 * i + 2], brand[4 * i + 3]);
    char text[sizeof brand + 1] = { 0 };
    memcpy(text, brand, sizeof brand);
    const char *start = text + strspn(text, " ");
    snprintf(out, size, "%s", *start ? start : "x86-64");
}
#else
static uint32_t detect_features(void) { return 0; }
static void processor_name(char *out, size_t size) { snprintf(out, size, "unknown processor"); }
#endif

static bool mask_features(uint32_t *features, struct error *err)
{
    const char *words = getenv("NIBBLE_FEATURES");
    if (!words || !*words)
        return true;
    uint32_t allowed = 0;
    for (const char *word = words; *word;) {
        size_t len = strcspn(word, ", ");
        int index = 0;
        while (index < CPU_FEATURE_COUNT
               && !(strlen(feature_words[index]) == len && !memcmp(word, feature_words[index], len)))
            index++;
        if (index < CPU_FEATURE_COUNT)
            allowed |= (2u << index) - 1; // a feature includes all features above it in CPU_FEATURES
        else if (len && !(len == 4 && !memcmp(word, "none", 4)))
            return fail(err,
                        "NIBBLE_FEATURES names \"%.*s\", which is no CPU feature; `nibble env` lists this machine's",
                        (int)len, word);
        word += len + strspn(word + len, ", ");
    }
    *features &= allowed;
    return true;
}

// The number after `key` in a file of "key: N kB" lines; with key NULL the file's first number.
static size_t read_number(const char *path, const char *key)
{
    char text[4096];
    file_read_start(path, text, sizeof text);
    const char *line = text;
    while (key && line && strncmp(line, key, strlen(key))) {
        const char *end = strchr(line, '\n');
        line = end ? end + 1 : NULL;
    }
    return line ? strtoull(line + (key ? strlen(key) : 0), NULL, 10) : 0;
}

static void find_memory(struct device *device)
{
    device->memory_bytes = read_number("/proc/meminfo", "MemTotal:") * 1024;
    device->memory_free_bytes = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    size_t limit = read_number("/sys/fs/cgroup/memory.max", NULL); // "max" reads as 0
    size_t used = read_number("/sys/fs/cgroup/memory.current", NULL);
    if (limit && limit < device->memory_bytes)
        device->memory_bytes = limit;
    size_t left = limit > used ? limit - used : 0;
    if (limit && left < device->memory_free_bytes)
        device->memory_free_bytes = left;
}

bool device_open_cpu(struct device *device, struct error *err)
{
    *device = (struct device){ .word = "cpu", .features = detect_features(), .cores = 1 };
    processor_name(device->name, sizeof device->name);
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        device->cores = CPU_COUNT(&allowed);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0) // more CPUs than fit a cpu_set_t
        device->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    find_memory(device);
    return mask_features(&device->features, err);
}

const char *device_feature_words(struct arena *arena, uint32_t features)
{
    struct strbuf words = { 0 };
    for (int i = 0; i < CPU_FEATURE_COUNT; i++)
        if (features >> i & 1)
            strbuf_add_format(&words, "%s%s", words.len ? " " : "", feature_words[i]);
    const char *text = words.len ? arena_text(arena, words.data, words.len) : "none";
    strbuf_free(&words);
    return text;
}
