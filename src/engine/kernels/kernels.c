// SPDX-License-Identifier: Apache-2.0
// engine/kernels/kernels.c: the kernel reports (nibble_kernels), and the list of all kernels.
#include "engine/kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "base/public.h"
#include "base/suggest.h"
#include "engine/kernels/ops_page.h"
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

const char *kernels_format_words(const struct kernel *kernel, const struct testcase_options *wanted,
                                 struct arena *arena)
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

// Rows of a GPU's family stand together, have one function that describes their launches, and run on the same devices.
struct family {
    struct kernel all; // what they list together, under the name that they share: "linear_wgmma_*"
    json_t *head_dims; // those that they are for, where each is for one
};

static bool are_family(const struct kernel *a, const struct kernel *b)
{
    return a->device == DEVICE_CUDA && b->device == DEVICE_CUDA && a->op == b->op && a->describe == b->describe
        && a->architectures == b->architectures;
}

static const char *shared_name(const char *a, const char *b, struct arena *arena)
{
    size_t length = 0, end = 0;
    for (; a[length] && a[length] == b[length]; length++)
        if (a[length] == '_')
            end = length + 1;
    if (!a[length] && b[length] == '_')
        end = length;
    return arena_format(arena, "%.*s*", (int)end, a);
}

static void add_head_dim(json_t *list, int head_dim)
{
    size_t i;
    const json_t *known;
    json_array_foreach (list, i, known)
        if (json_integer_value(known) == head_dim)
            return;
    if (head_dim)
        json_array_append_new(list, json_integer(head_dim));
}

static void join_family(struct family *family, const struct kernel *kernel, struct arena *arena)
{
    struct kernel *all = &family->all;
    all->name = shared_name(all->name, kernel->name, arena);
    all->load |= kernel->load;
    all->weights |= kernel->weights;
    all->k |= kernel->k;
    all->v |= kernel->v;
    all->latents |= kernel->latents;
    all->priority = kernel->priority > all->priority ? kernel->priority : all->priority;
    if (!kernel->head_dim_max || kernel->head_dim_max > all->head_dim_max)
        all->head_dim_max = all->head_dim_max ? kernel->head_dim_max : 0;
    if (kernel->shared_bytes < all->shared_bytes)
        all->shared_bytes = kernel->shared_bytes;
    add_head_dim(family->head_dims, kernel->head_dim);
}

static json_t *describe(const struct kernel *kernel, json_t *head_dims, const struct device *device,
                        struct arena *arena)
{
    const char *missing = kernels_missing(kernel, device, arena);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:o, s:i, s:b, s:s?}", "name",
                     kernel->name, "op", op_word(kernel->op), "tokens", kernels_load_word(kernel->load, arena),
                     "weights", format_list(kernel->weights), "int16_activations", format_list(kernel->int16),
                     "int8_activations", format_list(kernel->int8), "k", format_list(kernel->k), "v",
                     format_list(kernel->v), "latents", format_list(kernel->latents), "head_dims", head_dims,
                     "head_dim_multiple", kernel->head_dim_multiple, "head_dim_max", kernel->head_dim_max, "needs",
                     need_list(kernel, arena), "priority", kernel->priority, "runs", !missing, "missing", missing);
}

static json_t *describe_row(const struct kernel *kernel, const char *family, const struct device *device,
                            struct arena *arena)
{
    json_t *head_dims = json_array(), *functions = json_array();
    add_head_dim(head_dims, kernel->head_dim);
    for (int i = 0; i < KERNEL_FUNCTIONS_MAX && kernel->functions[i]; i++)
        json_array_append_new(functions, json_string(kernel->functions[i]));
    json_t *row = describe(kernel, head_dims, device, arena);
    json_object_set_new(row, "functions", functions);
    json_object_set_new(row, "family", json_string(family));
    json_object_set_new(row, "slow", kernel->slow ? json_string(kernel->slow) : json_null());
    return row;
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
    if (json_array_size(json_object_get(row, "head_dims"))) {
        grid_cell(row, "head_dims", out);
        return;
    }
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
    report->table = json_array();
    for (const struct kernel *kernel = kernels_next(query, NULL), *next; kernel; kernel = next) {
        struct family family = { *kernel, json_array() };
        add_head_dim(family.head_dims, kernel->head_dim);
        for (next = kernels_next(query, kernel); next && !query->name && are_family(kernel, next);)
            join_family(&family, next, &arena), next = kernels_next(query, next);
        json_array_append_new(report->table, describe(&family.all, family.head_dims, &query->device, &arena));
        for (const struct kernel *row = kernel; row != next; row = kernels_next(query, row))
            json_array_append_new(rows, describe_row(row, family.all.name, &query->device, &arena));
    }
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
                    "priority 0 is the reference.\nRows of a GPU that differ in format, size or tile stand together "
                    "under the "
                    "name that they share; `nibble kernels --json`\nlists them one by one. \"all\" stands for:\n\n");
    add_format_words(out, "weights", formats_of(DTYPE_USE_W));
    add_format_words(out, "K and V", formats_of(DTYPE_USE_KV));
    add_format_words(out, "latents, where V lies in K", KV_LATENT_FORMATS);
    strbuf_add_byte(out, '\n');
    grid_markdown(report->table, columns, out);
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
    const json_t *rows = report->table ? report->table : json_object_get(report->json, "kernels");
    grid_text(rows, report->columns, report->width, out);
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

// Opens the device for a report. A report that runs kernels runs them on this machine, so the device is then limited to
// the features that this machine has, too.
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
                    struct error *err)
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
    *failed = 0;
    if (options->action == NIBBLE_KERNELS_OPS) {
        struct strbuf page = public_text_borrow(out);
        ops_page_print(&page);
        public_text_return(out, &page);
        return true;
    }
    bool ok = open_device(&query, options->device, options->action != NIBBLE_KERNELS_LIST, err)
        && check_name(&query, err) && make[options->action](&query, &report, err);
    if (ok) {
        struct strbuf buf = public_text_borrow(out);
        print[options->form](&report, &buf);
        public_text_return(out, &buf);
    }
    *failed = report.failed;
    cuda_close(query.cuda);
    json_decref(report.json);
    json_decref(report.table);
    strbuf_free(&report.above);
    strbuf_free(&report.below);
    return ok;
}
