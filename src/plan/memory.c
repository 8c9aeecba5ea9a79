// SPDX-License-Identifier: Apache-2.0
// plan/memory.c: weights, workspace and pools against what there is: how long and how many sequences fit.

#include "kv/table.h"
#include "plan/decide.h"

static size_t workspace_bytes(const struct plan *plan)
{
    size_t bytes = plan->scratch_bytes;
    for (int i = 0; i < BUFFER_COUNT; i++) {
        size_t values = (size_t)plan_buffer_rows(plan, (enum buffer)i) * (size_t)plan->model->buffer_width[i];
        bytes += plan_align(values * plan_value_bytes(plan, (enum buffer)i));
    }
    return bytes;
}

// Returns the bytes for weights, cache and workspace: those asked for, else the free ones, or the share of a GPU's
// memory that may be used, if that is less.
static size_t usable_bytes(const struct device *device, const struct plan_options *options)
{
    double share = options->user.gpu_memory_utilization > 0 ? options->user.gpu_memory_utilization : PLAN_GPU_SHARE;
    size_t usable = (size_t)((double)device->memory_bytes * share);
    if (options->user.memory_bytes)
        return options->user.memory_bytes;
    return device->kind == DEVICE_CUDA && usable < device->memory_free_bytes ? usable : device->memory_free_bytes;
}

// Bytes of so many pages of each class; SIZE_MAX for more than that.
static size_t bytes_of_pages(const struct plan *plan, const int *pages)
{
    size_t bytes = 0, of_class;
    for (int i = 0; i < plan->class_count; i++)
        if (__builtin_mul_overflow((size_t)pages[i], plan->classes[i].page_bytes, &of_class)
            || __builtin_add_overflow(bytes, of_class, &bytes))
            return SIZE_MAX;
    return bytes;
}

// Pages of each class for one sequence of `length` tokens, one at least; returns their bytes.
static size_t size_sequence(const struct plan *plan, int length, int *pages)
{
    for (int i = 0; i < plan->class_count; i++) {
        int needed = kv_table_pages_needed(&plan->classes[i].kind, length, plan->batch_tokens);
        pages[i] = needed > 0 ? needed : 1;
    }
    return bytes_of_pages(plan, pages);
}

struct plan_sequence_cost plan_sequence_cost(const struct plan *plan, int tokens)
{
    struct plan_sequence_cost cost = { 0 };
    int pages[KV_CLASSES_MAX];
    size_sequence(plan, tokens, pages);
    for (int i = 0; i < plan->class_count; i++) {
        const struct plan_class *class = &plan->classes[i];
        const struct kv_side *k = &class->layout.k, *v = &class->layout.v;
        size_t bytes = (size_t)pages[i] * class->page_bytes;
        size_t k_vector = k->data_bytes + k->scale_bytes, v_vector = v->data_bytes + v->scale_bytes;
        size_t of_values = class->layout.latent || class->kind.state ? 0 : bytes * v_vector / (k_vector + v_vector);
        *(class->kind.state ? &cost.state_bytes : &cost.k_bytes) += bytes - of_values;
        cost.v_bytes += of_values;
    }
    return cost;
}

size_t plan_sequence_bytes(const struct plan *plan, int tokens)
{
    struct plan_sequence_cost cost = plan_sequence_cost(plan, tokens);
    return cost.k_bytes + cost.v_bytes + cost.state_bytes;
}

// The longest sequence whose pages fit into `room`, 0 when not even one page of each class does.
static int longest_fit(const struct plan *plan, size_t room)
{
    int low = 0, high = plan->model->config.context, pages[KV_CLASSES_MAX];
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (size_sequence(plan, middle, pages) <= room)
            low = middle;
        else
            high = middle - 1;
    }
    return low < plan->model->config.context ? low / KV_PAGE_TOKENS * KV_PAGE_TOKENS : low; // whole pages
}

// ---- pools ----

// Pages of one sequence: of the greatest length, and of one that many have.
struct needs {
    int longest[KV_CLASSES_MAX], typical[KV_CLASSES_MAX];
    int most;                 // of `typical`
    int left[KV_CLASSES_MAX]; // by the longest, for others to find
    bool sinks_for_all;       // the pools of sink pages have them for every sequence that may run
};

// Pools for sequences of typical length that have `units` pages in the class where they have most, and as many in
// proportion elsewhere. Each holds one sequence of the greatest length, and no more of them than may run. Sink pages
// are few, and short sequences have as many as long ones: there are enough for all that may run, if that is not too
// much, and more where that lets beginnings be found again. Returns the bytes.
static size_t size_pools(const struct plan *plan, const struct needs *needs, int64_t units, int *pages)
{
    for (int i = 0; i < plan->class_count; i++) {
        int64_t wanted = (units * needs->typical[i] + needs->most - 1) / needs->most;
        int64_t least = needs->longest[i], most = (int64_t)needs->left[i] * plan->max_num_seqs;
        if (plan->classes[i].kind.end) {
            least = needs->sinks_for_all ? most : least;
            most = INT32_MAX;
        }
        wanted = wanted < least ? least : wanted > most ? most : wanted;
        pages[i] = wanted < INT32_MAX ? (int)wanted : INT32_MAX;
    }
    return bytes_of_pages(plan, pages);
}

// Sink pages of as many sequences as may run.
static size_t sink_bytes(const struct plan *plan, const struct needs *needs)
{
    int pages[KV_CLASSES_MAX];
    for (int i = 0; i < plan->class_count; i++)
        pages[i] = plan->classes[i].kind.end ? needs->longest[i] * plan->max_num_seqs : 0;
    return bytes_of_pages(plan, pages);
}

// A sequence goes through states and holds the last ones alone, but others start from the rest.
static void count_states(const struct plan *plan, int typical, struct needs *needs)
{
    for (int i = 0; i < plan->class_count; i++) {
        int tokens = plan->classes[i].kind.page_tokens, all = (plan->max_model_len + tokens - 1) / tokens;
        needs->left[i] = plan->classes[i].kind.state ? all : needs->longest[i];
        if (plan->classes[i].kind.state)
            needs->typical[i] = (typical + tokens - 1) / tokens;
    }
}

// The largest pools of at most `room` bytes, or those of one sequence of the greatest length if they take more.
static void decide_pools(struct plan *plan, size_t room)
{
    struct needs needs = { 0 };
    int pages[KV_CLASSES_MAX];
    int typical = plan->max_model_len < PLAN_TYPICAL_TOKENS ? plan->max_model_len : PLAN_TYPICAL_TOKENS;
    size_sequence(plan, plan->max_model_len, needs.longest);
    size_sequence(plan, typical, needs.typical);
    count_states(plan, typical, &needs);
    for (int i = 0; i < plan->class_count; i++)
        needs.most = needs.typical[i] > needs.most ? needs.typical[i] : needs.most;
    needs.sinks_for_all = sink_bytes(plan, &needs) <= room / PLAN_SINK_SHARE;
    int64_t low = 0, high = 0;
    for (int i = 0; i < plan->class_count; i++) { // up to where no pool grows any more, but for those of sink pages
        if (plan->classes[i].kind.end)
            continue;
        int64_t enough = (int64_t)needs.left[i] * plan->max_num_seqs * needs.most / needs.typical[i] + 1;
        high = enough > high ? enough : high;
    }
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (size_pools(plan, &needs, middle, pages) <= room)
            low = middle;
        else
            high = middle - 1;
    }
    plan->pool_bytes = size_pools(plan, &needs, low, pages);
    plan->concurrency = plan->max_num_seqs;
    for (int i = 0; i < plan->class_count; i++) {
        plan->classes[i].pages = pages[i];
        double held = (double)pages[i] / needs.longest[i];
        plan->concurrency = held < plan->concurrency ? held : plan->concurrency;
    }
}

// ---- refusals ----

static const char *what_fits(struct plan *plan)
{
    return plan->max_model_len
        ? arena_format(&plan->arena, "the longest context length that fits is %d tokens", plan->max_model_len)
        : "not even the shortest context length fits";
}

static bool refuse_memory(struct plan *plan, int length, struct error *err)
{
    int pages[KV_CLASSES_MAX];
    size_t fixed = plan->weight_bytes + plan->workspace_bytes;
    size_t cache = size_sequence(plan, length ? length : 1, pages);
    const char *reason = arena_format(
        &plan->arena,
        "weights take %zu MiB, workspace %zu MiB and the cache %zu MiB, %zu MiB more than the %zu MiB that %s; %s",
        plan->weight_bytes >> 20, plan->workspace_bytes >> 20, cache >> 20, (fixed + cache - plan->memory_bytes) >> 20,
        plan->memory_bytes >> 20, plan->memory_bytes == plan->device.memory_free_bytes ? "are free here" : "there are",
        what_fits(plan));
    return refuse(plan, err, "--max-model-len", arena_format(&plan->arena, "%d", length), reason);
}

static bool refuse_cache_bytes(struct plan *plan, size_t cache, size_t room, int length, struct error *err)
{
    int pages[KV_CLASSES_MAX];
    const char *reason = cache > room
        ? arena_format(&plan->arena, "only %zu bytes are free besides weights and workspace", room)
        : arena_format(&plan->arena, "one sequence of %d tokens takes %zu bytes; %s", length,
                       size_sequence(plan, length, pages), what_fits(plan));
    return refuse(plan, err, "--kv-cache-memory-bytes", arena_format(&plan->arena, "%zu", cache), reason);
}

bool decide_memory(struct plan *plan, const struct plan_options *options, struct error *err)
{
    plan->max_model_len = options->user.max_model_len ? options->user.max_model_len
                                                      : plan->model->config.context; // at most
    decide_weights(plan);
    plan->workspace_bytes = workspace_bytes(plan);
    plan->memory_bytes = usable_bytes(&plan->device, options);

    size_t fixed = plan->weight_bytes + plan->workspace_bytes, room = SIZE_MAX, cache = options->user.kv_cache_bytes;
    if (plan->memory_bytes)
        room = plan->memory_bytes > fixed ? plan->memory_bytes - fixed : 0;
    int context = plan->model->config.context, longest = longest_fit(plan, cache && cache < room ? cache : room);
    int wanted = options->user.max_model_len ? options->user.max_model_len : cache ? context : longest;
    plan->max_model_len = longest;
    if (cache && (cache > room || wanted > longest))
        return refuse_cache_bytes(plan, cache, room, wanted, err);
    if (!longest || wanted > longest)
        return refuse_memory(plan, options->user.max_model_len ? wanted : context, err);
    plan->max_model_len = wanted;
    if (!options->user.max_model_len && longest < context)
        plan->length_note = arena_format(&plan->arena, "the model's %d do not fit in memory", context);
    decide_pools(plan, cache ? cache : plan->device.kind == DEVICE_CUDA ? room : room / PLAN_CACHE_SHARE);
    return true;
}
