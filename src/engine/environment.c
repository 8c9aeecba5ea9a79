// SPDX-License-Identifier: Apache-2.0
// engine/environment.c: the environment report (nibble_environment): the machine, the drivers and the build, as found.
// It cannot fail; the report says which things are missing.
#include <jansson.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <utf8proc.h>

#include "base/public.h"
#include "base/strbuf.h"
#include "device/device.h"
#include "ranks/mpi.h"
#include "ranks/nccl.h"
#include "kernel/cuda/images.h"
#include "kernel/kernel.h"

static json_t *describe_cpu(const struct error *err, const struct device *device, struct arena *arena)
{
    json_t *cpu = json_pack("{s:s, s:i, s:s, s:I, s:I}", "name", device->name, "cores", device->cores, "features",
                            device_feature_words(arena, device->features), "memory_bytes",
                            (json_int_t)device->memory_bytes, "memory_free_bytes",
                            (json_int_t)device->memory_free_bytes);
    if (err->text[0])
        json_object_set_new(cpu, "note", json_string(err->text));
    return cpu;
}

static json_t *describe_cuda(void)
{
    struct cuda_report report;
    device_probe_cuda(&report);
    json_t *devices = json_array();
    for (int i = 0; i < report.count; i++) {
        char architecture[16];
        snprintf(architecture, sizeof architecture, "sm_%d%d", report.devices[i].major, report.devices[i].minor);
        json_array_append_new(devices,
                              json_pack("{s:s, s:s, s:i, s:I}", "name", report.devices[i].name, "architecture",
                                        architecture, "multiprocessors", report.devices[i].multiprocessors,
                                        "memory_bytes", (json_int_t)report.devices[i].memory_bytes));
    }
    json_t *cuda = json_pack("{s:o}", "devices", devices);
    if (report.driver_version)
        json_object_set_new(
            cuda, "driver",
            json_sprintf("CUDA %d.%d", report.driver_version / 1000, report.driver_version % 1000 / 10));
    if (report.note[0])
        json_object_set_new(cuda, "note", json_string(report.note));
    return cuda;
}

// The libraries by which several processes, or their GPUs, would compute a model together: MPI and NCCL.
static json_t *describe_ranks(void)
{
    char path[MPI_PATH_MAX], words[MPI_TEXT_MAX];
    struct error err;
    int nccl = nccl_version();
    const struct mpi_module *module = mpi_load(path, &err);
    json_t *ranks = json_pack("{s:s}", "module", path[0] ? path : "none");
    if (module)
        module->library(words);
    json_object_set_new(ranks, module ? "mpi" : "note", json_string(module ? words : err.text));
    json_object_set_new(ranks, "mpirun", json_string(mpi_find_launcher(path) ? path : "none"));
    json_object_set_new(
        ranks, "nccl",
        nccl ? json_sprintf("%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100) : json_string("none"));
    return ranks;
}

static json_t *describe_system(void)
{
    struct utsname name;
    if (uname(&name) < 0)
        return json_pack("{s:s}", "note", "the system does not say its name");
    return json_pack("{s:s, s:s, s:s}", "kernel", name.sysname, "release", name.release, "machine", name.machine);
}

static json_t *describe_build(void)
{
    int kernels = 0;
    struct strbuf cuda = { 0 };
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel))
        kernels++;
    for (const int *sm = cuda_architectures; *sm; sm++)
        strbuf_add_format(&cuda, "%ssm_%d", cuda.len ? " " : "", *sm);
    if (cuda_ptx_architecture)
        strbuf_add_format(&cuda, "%scompute_%d", cuda.len ? " " : "", cuda_ptx_architecture);
    json_t *build = json_pack("{s:s, s:s, s:s, s:i, s:s}", "version", NIBBLE_VERSION, "compiler", NIBBLE_COMPILER,
                              "buildtype", NIBBLE_BUILDTYPE, "kernels", kernels, "cuda",
                              cuda.len ? strbuf_text(&cuda) : "none");
    strbuf_free(&cuda);
    return build;
}

static json_t *describe_libraries(void)
{
    char pcre2[64] = "unknown";
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) <= (int)sizeof pcre2)
        pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    return json_pack("{s:s, s:s, s:s}", "jansson", jansson_version_str(), "pcre2", pcre2, "utf8proc",
                     utf8proc_version());
}

// "key.key: value" lines, one per leaf.
static void print_lines(const json_t *value, const char *prefix, struct strbuf *out)
{
    const char *key;
    json_t *member;
    size_t index;
    char path[128];
    json_object_foreach ((json_t *)value, key, member) {
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        print_lines(member, path, out);
    }
    json_array_foreach (value, index, member) {
        snprintf(path, sizeof path, "%s.%zu", prefix, index);
        print_lines(member, path, out);
    }
    if (json_is_array(value) && !json_array_size(value))
        strbuf_add_format(out, "%-30s none\n", prefix);
    if (json_is_string(value))
        strbuf_add_format(out, "%-30s %s\n", prefix, json_string_value(value));
    if (json_is_integer(value))
        strbuf_add_format(out, "%-30s %lld\n", prefix, (long long)json_integer_value(value));
    if (json_is_boolean(value))
        strbuf_add_format(out, "%-30s %s\n", prefix, json_is_true(value) ? "yes" : "no");
}

void nibble_environment(struct nibble_text *out, bool json)
{
    struct arena arena = { 0 };
    struct error err = { 0 };
    struct device device;
    device_open_cpu(&device, &err);
    json_t *report = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "build", describe_build(), "system", describe_system(),
                               "cpu", describe_cpu(&err, &device, &arena), "cuda", describe_cuda(), "ranks",
                               describe_ranks(), "libraries", describe_libraries());
    struct strbuf buf = public_text_borrow(out);
    if (json) {
        char *text = json_dumps(report, JSON_INDENT(2));
        strbuf_add_format(&buf, "%s\n", text);
        free(text);
    } else {
        print_lines(report, "", &buf);
    }
    public_text_return(out, &buf);
    json_decref(report);
    arena_free(&arena);
}
