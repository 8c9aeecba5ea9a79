// SPDX-License-Identifier: Apache-2.0
// device/parse.c: parses the --device word into a detected or imagined device.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/suggest.h"
#include "device/device.h"

const char *const device_words[] = {
    "cpu",   "cpu:ref", "cpu:avx2", "cpu:avx512", "cpu:amx", "cpu:neon", "sm_80", "sm_86", "sm_89",
    "sm_90", "sm_100",  "sm_103",   "sm_120",     "sm_121",  "cuda",     "none",  NULL,
};

// Imagined CPUs: a feature and all features above it in CPU_FEATURES.
static const struct {
    const char *word;
    uint32_t features;
} cpus[] = {
    { "cpu:ref", 0 },
    { "cpu:neon", 0 },
    { "cpu:avx2", 2 * CPU_AVX2 - 1 },
    { "cpu:avx512", 2 * CPU_AVX512BF16 - 1 },
    { "cpu:amx", 2 * CPU_AMXINT8 - 1 },
};

// Shared memory per block of known GPUs.
static const struct {
    int sm, shared_bytes;
} gpus[] = {
    { 80, 163 << 10 },  { 86, 99 << 10 },   { 89, 99 << 10 },  { 90, 227 << 10 },
    { 100, 227 << 10 }, { 103, 227 << 10 }, { 120, 99 << 10 }, { 121, 99 << 10 },
};

// Words of other programs, too far from nibble's for suggest().
static const struct {
    const char *word, *ours;
} meanings[] = {
    { "gpu", "cuda" },
    { "nvidia", "cuda" },
};

// The words of devices that exist, in front of cuda:N.
static const char *const existing_words[] = { "cpu", "cuda", NULL };

static const char *find_meant(const char *word, const char *const *words)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (!strcasecmp(word, meanings[i].word))
            return meanings[i].ours;
    while (words[count])
        count++;
    return suggest(bytes_of(word), words, count);
}

static bool unknown_word(const char *word, bool runs, struct error *err)
{
    const char *near = find_meant(word, runs ? existing_words : device_words);
    return fail_usage(err, "--device: \"%.40s\" is no device%s%s%s; there are cpu, cuda and cuda:N%s", word,
                      near ? ", did you mean " : "", near ? near : "", near ? "?" : "",
                      runs ? ""
                           : ", and imagined ones to plan for: cpu:ref, cpu:avx2, cpu:avx512, cpu:amx, cpu:neon, sm_80 "
                             "to sm_121 and none");
}

// Detects a GPU; without one the device becomes DEVICE_NONE with the reason.
static void open_cuda(struct device *device, int ordinal)
{
    struct cuda_report report;
    device_probe_cuda(&report);
    device->imagined = false;
    if (report.note[0] || ordinal >= report.count) {
        device->kind = DEVICE_NONE;
        if (report.note[0])
            snprintf(device->note, sizeof device->note, "%s", report.note);
        else if (report.count == 1)
            snprintf(device->note, sizeof device->note, "this machine has one GPU, cuda:0");
        else
            snprintf(device->note, sizeof device->note, "this machine's GPUs are cuda:0 to cuda:%d", report.count - 1);
        return;
    }
    const struct cuda_device *found = &report.devices[ordinal];
    device->kind = DEVICE_CUDA;
    device->sm = found->major * 10 + found->minor;
    device->ordinal = found->ordinal;
    device->driver_version = report.driver_version;
    device->multiprocessors = found->multiprocessors;
    device->shared_bytes = found->shared_bytes;
    device->memory_bytes = found->memory_bytes;
    snprintf(device->word, sizeof device->word, "sm_%d", device->sm);
    snprintf(device->name, sizeof device->name, "%s", found->name);
    struct error err;
    if (device_cuda_memory_free(found->ordinal, &device->memory_free_bytes, &err))
        return;
    device->kind = DEVICE_NONE;
    snprintf(device->note, sizeof device->note, "%.*s", (int)sizeof device->note - 1, err.text);
}

// "sm_" and two or three digits.
static bool parse_sm(const char *word, int *sm)
{
    if (strncmp(word, "sm_", 3))
        return false;
    size_t digits = strspn(word + 3, "0123456789");
    *sm = atoi(word + 3);
    return (digits == 2 || digits == 3) && !word[3 + digits];
}

static void imagine_gpu(struct device *device)
{
    device->kind = DEVICE_CUDA;
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (gpus[i].sm == device->sm)
            device->shared_bytes = gpus[i].shared_bytes;
}

bool device_parse(struct device *device, const char *word, struct error *err)
{
    *device = (struct device){ .imagined = true, .cores = 1 };
    snprintf(device->word, sizeof device->word, "%s", word);
    if (!strcmp(word, "cpu"))
        return device_open_cpu(device, err);
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++)
        if (!strcmp(word, cpus[i].word))
            return device->features = cpus[i].features, true;
    if (!strcmp(word, "none"))
        return device->kind = DEVICE_NONE, true;
    if (parse_sm(word, &device->sm))
        return imagine_gpu(device), true;
    if (!strcmp(word, "cuda"))
        return open_cuda(device, 0), true;
    if (!strncmp(word, "cuda:", 5) && word[5] >= '0' && word[5] <= '9' && strlen(word) <= 7)
        return open_cuda(device, atoi(word + 5)), true;
    return unknown_word(word, false, err);
}

bool device_check_runs(const char *word, struct error *err)
{
    struct device device;
    struct error ignored;
    if (!device_parse(&device, word, &ignored))
        return unknown_word(word, true, err);
    return !device.imagined
        || fail(err, "--device %s is imagined: it can be planned, not run; there are cpu, cuda and cuda:N", word);
}
