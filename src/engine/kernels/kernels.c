// SPDX-License-Identifier: Apache-2.0
// engine/kernels/kernels.c: nibble_kernels, and the table of the kernels themselves.
#include "engine/kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "base/public.h"
#include "base/suggest.h"
#include "kernel/cuda/images.h"

enum { NAMES_MAX = 1024, COLUMNS = 100 };

// ---- what all reports share ----

static bool is_asked_for(const struct kernels_query *query, const struct kernel *kernel)
{
    return !query->name || !strcmp(query->name, kernel->name) || !strcmp(query->name, op_word(kernel->op));
}

const struct kernel *kernels_next(const struct kernels_query *query, const struct kernel *kernel)
{
    do
        kernel = kernel_next(kernel);
    while (kernel && !is_asked_for(query, kernel));
    return kernel;
}

int kernels_count(const struct kernels_query *query)
{
    int count = 0;
    for (const struct kernel *kernel = kernels_next(query, NULL); kernel; kernel = kernels_next(query, kernel))
        count++;
    return count;
}

static const char *architecture_words(const int *architectures, struct arena *arena)
{
    const char *words = "";
    for (const int *sm = architectures; *sm; sm++)
        words = arena_format(arena, "%s%ssm_%d", words, *words ? " " : "", *sm);
    return *words ? words : "a build with nvcc";
}

const char *kernels_missing(const struct kernel *kernel, const struct device *device, struct arena *arena)
{
    static const char *const kinds[] = { [DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "cuda", [DEVICE_NONE] = "none" };
    uint32_t missing = kernel->needs & ~device->features;
    if (kernel->device != device->kind)
        return kinds[kernel->device];
    if (kernel->device == DEVICE_CUDA && !cuda_runs_on(kernel->architectures, device))
        return architecture_words(kernel->architectures, arena);
    if (kernel->device == DEVICE_CUDA && device->sm < kernel->sm_min)
        return arena_format(arena, "sm_%d or later", kernel->sm_min);
    if (device->shared_bytes && kernel->shared_bytes > device->shared_bytes)
        return arena_format(arena, "%d KB of shared memory", kernel->shared_bytes >> 10);
    return missing ? device_feature_words(arena, missing) : NULL;
}

const char *kernels_load_word(enum kernel_load load, struct arena *arena)
{
    int least = kernel_loads_least(load), most = kernel_loads_most(load);
    if (most == INT32_MAX)
        return least == 1 ? "any" : arena_format(arena, "%d+", least);
    return arena_format(arena, least == most ? "%d" : "%d-%d", least, most);
}

const char *kernels_format_words(const struct kernel *kernel, const struct sample_case *wanted, struct arena *arena)
{
    if (!kernel->weights && !kernel->k && !kernel->latents)
        return "-";
    if (wanted->latent)
        return arena_format(arena, "%s latent", dtype_word(wanted->k));
    if (kernel->k && wanted->k != wanted->v)
        return arena_format(arena, "%s/%s", dtype_word(wanted->k), dtype_word(wanted->v));
    return dtype_word(kernel->k ? wanted->k : wanted->weight);
}

void kernels_progress(const struct kernels_query *query, double done)
{
    if (query->progress)
        query->progress(query->progress_context, done);
}

// ---- the table ----

static json_t *format_list(uint64_t formats)
{
    json_t *list = json_array();
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (formats >> i & 1)
            json_array_append_new(list, json_string(dtype_word((enum dtype)i)));
    return list;
}

// A kernel for every GPU that a build is made for needs just that, whatever they are.
static json_t *need_list(const struct kernel *kernel, struct arena *arena)
{
    json_t *list = json_array();
    for (uint32_t bit = 1; bit && bit <= kernel->needs; bit <<= 1)
        if (kernel->needs & bit)
            json_array_append_new(list, json_string(device_feature_words(arena, bit)));
    if (kernel->device == DEVICE_CUDA && kernel->architectures == cuda_all_architectures)
        json_array_append_new(list, json_string("cuda"));
    else if (kernel->device == DEVICE_CUDA)
        json_array_append_new(list, json_string(architecture_words(kernel->architectures, arena)));
    return list;
}

static json_t *describe(const struct kernel *kernel, const struct device *device, struct arena *arena)
{
    const char *missing = kernels_missing(kernel, device, arena);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:o, s:i, s:b, s:s?}", "name",
                     kernel->name, "op", op_word(kernel->op), "tokens", kernels_load_word(kernel->load, arena),
                     "weights", format_list(kernel->weights), "int16_activations", format_list(kernel->int16),
                     "int8_activations", format_list(kernel->int8), "k", format_list(kernel->k), "v",
                     format_list(kernel->v), "latents", format_list(kernel->latents), "head_dim_multiple",
                     kernel->head_dim_multiple, "head_dim_max", kernel->head_dim_max, "needs", need_list(kernel, arena),
                     "priority", kernel->priority, "runs", !missing, "missing", missing);
}

static uint64_t formats_of(enum dtype_use use)
{
    uint64_t formats = 0;
    for (int i = 0; i < DTYPE_COUNT; i++)
        formats |= (uint64_t)((dtype_table[i].use & use) != 0) << i;
    return formats;
}

static void cell_formats(const json_t *row, const char *key, struct strbuf *out)
{
    uint64_t all = !strcmp(key, "weights") ? formats_of(DTYPE_USE_W)
        : !strcmp(key, "latents")          ? KV_LATENT_FORMATS
                                           : formats_of(DTYPE_USE_KV);
    if (json_array_size(json_object_get(row, key)) == (size_t)__builtin_popcountll(all))
        strbuf_add_text(out, "all");
    else
        grid_cell(row, key, out);
}

// The formats that are read with rounded activations: all whose codes are small integers, or some of them.
static void cell_integers(const json_t *row, const char *key, struct strbuf *out)
{
    size_t integers = 0, count = json_array_size(json_object_get(row, key));
    for (int i = 0; i < DTYPE_COUNT; i++)
        integers += dtype_table[i].use & DTYPE_USE_W && dtype_table[i].block > 1 && i != DTYPE_FP8_32;
    if (count == integers)
        strbuf_add_format(out, "all with blocks but %s", dtype_word(DTYPE_FP8_32));
    else
        grid_cell(row, key, out);
}

static void cell_head_sizes(const json_t *row, const char *key, struct strbuf *out)
{
    size_t start = out->len;
    long long multiple = json_integer_value(json_object_get(row, key));
    long long largest = json_integer_value(json_object_get(row, "head_dim_max"));
    if (multiple)
        strbuf_add_format(out, "multiples of %lld", multiple);
    if (largest)
        strbuf_add_format(out, "%sup to %lld", multiple ? ", " : "", largest);
    if (out->len == start)
        strbuf_add_byte(out, '-');
}

static void cell_runs(const json_t *row, const char *key, struct strbuf *out)
{
    strbuf_add_text(out, json_is_true(json_object_get(row, key)) ? "yes" : "no");
}

bool kernels_list(const struct kernels_query *query, struct kernels_report *report, struct error *err)
{
    static const struct grid_column columns[] = {
        { "name", "name" },
        { "op", "op" },
        { "tokens", "tokens" },
        { "priority", "priority" },
        { "runs", "runs", cell_runs },
        { "lacks", "missing", .below = true },
        { "weights", "weights", cell_formats, .below = true },
        { "int16 activations", "int16_activations", cell_integers, .below = true },
        { "int8 activations", "int8_activations", cell_integers, .below = true },
        { "K", "k", cell_formats, .below = true },
        { "V", "v", cell_formats, .below = true },
        { "latents", "latents", cell_formats, .below = true },
        { "head sizes", "head_dim_multiple", cell_head_sizes, .below = true },
        { "needs", "needs", .below = true },
        { 0 },
    };
    struct arena arena = { 0 };
    json_t *rows = json_array();
    (void)err;
    for (const struct kernel *kernel = kernels_next(query, NULL); kernel; kernel = kernels_next(query, kernel))
        json_array_append_new(rows, describe(kernel, &query->device, &arena));
    report->json = json_pack("{s:s, s:o}", "device", query->device.word, "kernels", rows);
    report->columns = columns;
    arena_free(&arena);
    return true;
}

// ---- forms ----

static void add_format_words(struct strbuf *out, const char *what, uint64_t formats)
{
    strbuf_add_format(out, "- %s:", what);
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (formats >> i & 1)
            strbuf_add_format(out, " `%s`", dtype_word((enum dtype)i));
    strbuf_add_byte(out, '\n');
}

// doc/kernels.md: the same on every machine.
static void print_markdown(const struct kernels_report *report, struct strbuf *out)
{
    static const struct grid_column columns[] = {
        { "name", "name" },
        { "op", "op" },
        { "tokens", "tokens" },
        { "weights", "weights", cell_formats },
        { "int16 activations", "int16_activations", cell_integers },
        { "int8 activations", "int8_activations", cell_integers },
        { "K", "k", cell_formats },
        { "V", "v", cell_formats },
        { "latents", "latents", cell_formats },
        { "head sizes", "head_dim_multiple", cell_head_sizes },
        { "needs", "needs" },
        { "priority", "priority" },
        { 0 },
    };
    strbuf_add_text(out,
                    "# Kernels\n\n"
                    "Written by `nibble kernels --markdown`. Of the rows that list an op's formats, head size and "
                    "load, the planner takes\nthe one of the highest priority whose needs the device meets; "
                    "priority 0 is the reference. \"all\" stands for:\n\n");
    add_format_words(out, "weights", formats_of(DTYPE_USE_W));
    add_format_words(out, "K and V", formats_of(DTYPE_USE_KV));
    add_format_words(out, "latents, where V lies in K", KV_LATENT_FORMATS);
    strbuf_add_byte(out, '\n');
    grid_markdown(json_object_get(report->json, "kernels"), columns, out);
}

static void print_json(const struct kernels_report *report, struct strbuf *out)
{
    char *text = json_dumps(report->json, JSON_INDENT(2));
    strbuf_add_format(out, "%s\n", text);
    free(text);
}

static void print_text(const struct kernels_report *report, struct strbuf *out)
{
    strbuf_add_text(out, strbuf_text(&report->above));
    grid_text(json_object_get(report->json, "kernels"), report->columns, report->width, out);
    strbuf_add_text(out, strbuf_text(&report->below));
}

// ---- nibble_kernels ----

static bool check_name(const struct kernels_query *query, struct error *err)
{
    const char *names[NAMES_MAX + OP_COUNT];
    size_t count = 0;
    if (kernels_next(query, NULL))
        return true;
    for (int op = 0; op < OP_COUNT; op++)
        names[count++] = op_word((enum op_kind)op);
    for (const struct kernel *kernel = kernel_next(NULL); kernel && count < NAMES_MAX; kernel = kernel_next(kernel))
        names[count++] = kernel->name;
    const char *near = suggest(bytes_of(query->name), names, count);
    return fail_usage(err, "no kernel and no op is called \"%.60s\"%s%s%s; `nibble kernels` lists them", query->name,
                      near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
}

// What is run is run here: on a device like the one that was asked for, as far as this machine goes.
static bool open_device(struct kernels_query *query, const char *word, bool runs, struct error *err)
{
    struct device *device = &query->device, here;
    if (!device_parse(device, word ? word : "cpu", err) || !device_open_cpu(&here, err))
        return false;
    device->cores = here.cores;
    if (!runs)
        return true;
    device->features &= here.features;
    if (device->kind == DEVICE_CUDA && device->imagined)
        device->kind = DEVICE_NONE;
    return device->kind != DEVICE_CUDA
        || ((query->cuda = cuda_open(device->ordinal, err)) && cuda_load_images(query->cuda, err));
}

bool nibble_kernels(const struct nibble_kernels_options *options, struct nibble_text *out, int *failed,
                    struct nibble_error *error)
{
    static bool (*const make[])(const struct kernels_query *, struct kernels_report *, struct error *) = {
        [NIBBLE_KERNELS_LIST] = kernels_list,
        [NIBBLE_KERNELS_TEST] = kernels_test,
        [NIBBLE_KERNELS_BENCH] = kernels_bench,
    };
    static void (*const print[])(const struct kernels_report *, struct strbuf *) = {
        [NIBBLE_FORM_TEXT] = print_text,
        [NIBBLE_FORM_JSON] = print_json,
        [NIBBLE_FORM_MARKDOWN] = print_markdown,
    };
    struct kernels_query query = { .name = options->name,
                                   .seed = options->seed,
                                   .quick = options->quick,
                                   .threads = options->threads,
                                   .progress = options->progress,
                                   .progress_context = options->progress_context };
    struct kernels_report report = { .width = options->columns ? options->columns : COLUMNS };
    struct error err;
    bool ok = open_device(&query, options->device, options->action != NIBBLE_KERNELS_LIST, &err)
        && check_name(&query, &err) && make[options->action](&query, &report, &err);
    if (ok) {
        struct strbuf buf = public_text_borrow(out);
        print[options->form](&report, &buf);
        public_text_return(out, &buf);
    } else {
        public_error(error, &err);
    }
    *failed = report.failed;
    cuda_close(query.cuda);
    json_decref(report.json);
    strbuf_free(&report.above);
    strbuf_free(&report.below);
    return ok;
}
