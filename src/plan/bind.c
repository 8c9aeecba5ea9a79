// SPDX-License-Identifier: Apache-2.0
// plan/bind.c: of the rows that fit a request, the one of the highest priority for each load. All of them read the same
// packing, that of the best row for one token as long as there are rows for all other loads beside it.
#include "plan/bind.h"

#include <string.h>

#include "plan/decide.h"

// A row of the request's op and of the plan's kind of device.
struct candidate {
    const struct kernel *kernel;
    enum kernel_load loads; // that it may be bound for
    const char *reason;     // why it is bound for none, or NULL
    bool tried;             // its packing
};

struct bind_answer {
    struct fit_request request;
    struct bind_rows rows;
    int count;
    struct candidate *candidates;
    bool *layers; // that ask this, [0] for ops outside the layers
};

// ---- candidates ----

const char *bind_pin_flag(enum op_kind op) { return op == OP_LINEAR ? "--linear-kernel" : "--attention-kernel"; }

static const struct kernel *pinned_for(const struct bind *bind, enum op_kind op)
{
    return op == OP_LINEAR ? bind->linear : op == OP_ATTENTION ? bind->attention : NULL;
}

// The loads at which a row that was asked for stands in the way of others. One for linears need not fit all of them.
static enum kernel_load pinned_loads(const struct bind *bind, const struct fit_request *request)
{
    const struct kernel *pinned = pinned_for(bind, request->op);
    if (!pinned || (pinned->op == OP_LINEAR && fit_reasons(pinned, request, &bind->plan->device, &bind->plan->arena)))
        return 0;
    return pinned->load;
}

// Examines one kernel for an op. A kernel that rounds activations to 4 bits is used only where a flag pins it.
static struct candidate examine(const struct bind *bind, const struct kernel *kernel, const struct fit_request *request,
                                enum kernel_load taken)
{
    struct arena *arena = &bind->plan->arena;
    const struct kernel *pinned = pinned_for(bind, request->op);
    struct candidate out = { .kernel = kernel, .loads = kernel->load & kernel_loads_of(kernel->op) };
    out.reason = fit_reasons(kernel, request, &bind->plan->device, arena);
    if (!out.reason && decide_has_failed(bind->options, kernel))
        out.reason = "failed its self-test on this machine";
    if (kernel == pinned)
        return out;
    out.loads &= ~taken;
    if (!out.reason && !out.loads)
        out.reason = arena_format(arena, "%s %s was asked for", bind_pin_flag(kernel->op), pinned->name);
    if (!out.reason && kernel->nvfp4)
        out.reason = arena_format(arena, "rounds activations to 4 bits, which %s %s asks for",
                                  bind_pin_flag(kernel->op), kernel->name);
    return out;
}

static void find_candidates(const struct bind *bind, struct bind_answer *answer)
{
    const struct fit_request *request = &answer->request;
    enum kernel_load taken = pinned_loads(bind, request);
    int most = 0;
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel))
        most += kernel->op == request->op && kernel->device == bind->plan->device.kind;
    answer->candidates = ARENA_NEW(&bind->plan->arena, struct candidate, most);
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel))
        if (kernel->op == request->op && kernel->device == bind->plan->device.kind)
            answer->candidates[answer->count++] = examine(bind, kernel, request, taken);
}

// ---- rows ----

static const struct kernel *best_row(const struct bind_answer *answer, int load, const struct kernel_packing *packing)
{
    const struct kernel *best = NULL;
    for (int i = 0; i < answer->count; i++) {
        const struct candidate *candidate = &answer->candidates[i];
        if (!candidate->reason && candidate->loads >> load & 1 && candidate->kernel->packing == packing
            && (!best || candidate->kernel->priority > best->priority))
            best = candidate->kernel;
    }
    return best;
}

// False: some load has no row that reads this packing.
static bool find_rows(const struct bind_answer *answer, const struct kernel_packing *packing, struct bind_rows *out)
{
    enum kernel_load loads = kernel_loads_of(answer->request.op);
    *out = (struct bind_rows){ 0 };
    for (int load = 0; load < KERNEL_LOADS; load++)
        if (loads >> load & 1 && !(out->row[load] = best_row(answer, load, packing)))
            return false;
    return true;
}

// The best row for one token among those that were not tried.
static struct candidate *next_for_one(const struct bind_answer *answer)
{
    struct candidate *best = NULL;
    for (int i = 0; i < answer->count; i++) {
        struct candidate *candidate = &answer->candidates[i];
        if (!candidate->reason && !candidate->tried && candidate->loads & KERNEL_ROWS_1
            && (!best || candidate->kernel->priority > best->kernel->priority))
            best = candidate;
    }
    if (best)
        best->tried = true;
    return best;
}

static void choose_rows(struct bind_answer *answer)
{
    const struct candidate *first;
    while ((first = next_for_one(answer)))
        if (find_rows(answer, first->kernel->packing, &answer->rows))
            return;
    answer->rows = (struct bind_rows){ 0 };
}

// ---- rows that are passed over ----

static bool is_bound(const struct bind_answer *answer, const struct kernel *kernel)
{
    for (int load = 0; load < KERNEL_LOADS; load++)
        if (answer->rows.row[load] == kernel)
            return true;
    return false;
}

// Why a row that fits is bound nowhere.
static const char *reason_against(const struct bind_answer *answer, const struct candidate *candidate,
                                  struct arena *arena)
{
    const struct kernel *kernel = candidate->kernel, *one = answer->rows.row[0];
    int least = kernel_loads_least(candidate->loads), most = kernel_loads_most(candidate->loads);
    if (!one)
        return most == INT32_MAX ? arena_format(arena, "is for %d rows and more", least)
                                 : arena_format(arena, "is for %d to %d rows", least, most);
    if (one->packing != kernel->packing)
        return arena_format(arena, "reads weights in another order than %s", one->name);
    return arena_format(arena, "%s has priority", answer->rows.row[__builtin_ctz(candidate->loads)]->name);
}

static struct bind_answer *find_answer(struct bind *bind, const struct fit_request *request)
{
    struct arena *arena = &bind->plan->arena;
    for (int i = 0; i < bind->count; i++)
        if (!memcmp(&bind->answers[i]->request, request, sizeof *request))
            return bind->answers[i];
    struct bind_answer *answer = ARENA_NEW(arena, struct bind_answer, 1);
    memcpy(&answer->request, request, sizeof *request); // padding, too
    answer->layers = ARENA_NEW(arena, bool, bind->plan->model->config.layers + 1);
    find_candidates(bind, answer);
    choose_rows(answer);
    for (int i = 0; i < answer->count; i++)
        if (!answer->candidates[i].reason && !is_bound(answer, answer->candidates[i].kernel))
            answer->candidates[i].reason = reason_against(answer, &answer->candidates[i], arena);
    if (bind->count == bind->capacity) {
        int capacity = bind->capacity ? 2 * bind->capacity : 16;
        struct bind_answer **answers = ARENA_NEW(arena, struct bind_answer *, capacity);
        if (bind->count)
            memcpy(answers, bind->answers, (size_t)bind->count * sizeof(struct bind_answer *));
        bind->answers = answers;
        bind->capacity = capacity;
    }
    return bind->answers[bind->count++] = answer;
}

const struct bind_rows *bind_request(struct bind *bind, const struct fit_request *request, int layer)
{
    struct bind_answer *answer = find_answer(bind, request);
    answer->layers[layer + 1] = true;
    return &answer->rows;
}

static void keep_reason(struct plan *plan, struct plan_reason reason)
{
    if (plan->reason_count == plan->reason_capacity) {
        plan->reason_capacity = plan->reason_capacity ? plan->reason_capacity * 2 : 64;
        plan->reasons = memory_grow(plan->reasons, (size_t)plan->reason_capacity, sizeof *plan->reasons);
    }
    plan->reasons[plan->reason_count++] = reason;
}

// Keeps the reasons against one row: every reason once for each run of layers that it is given in.
static void keep_reasons(const struct bind *bind, const struct kernel *kernel, bool *done)
{
    int layers = bind->plan->model->config.layers;
    const char *text;
    memset(done, 0, (size_t)bind->count);
    do {
        bool *unfit = ARENA_NEW(&bind->plan->arena, bool, layers + 1);
        text = NULL;
        for (int i = 0; i < bind->count; i++)
            for (int j = 0; j < bind->answers[i]->count && !done[i]; j++) {
                const struct candidate *candidate = &bind->answers[i]->candidates[j];
                if (candidate->kernel != kernel)
                    continue;
                if (!candidate->reason) {
                    done[i] = true;
                } else if (!text || !strcmp(text, candidate->reason)) {
                    text = candidate->reason;
                    done[i] = true;
                    for (int layer = 0; layer <= layers; layer++)
                        unfit[layer] |= bind->answers[i]->layers[layer];
                }
            }
        for (int first = 0, last; first <= layers && text; first = last + 1) {
            for (last = first; first && last < layers && unfit[last] && unfit[last + 1];)
                last++;
            if (unfit[first])
                keep_reason(bind->plan, (struct plan_reason){ kernel, first - 1, last - 1, text });
        }
    } while (text);
}

void bind_note_reasons(struct bind *bind)
{
    bool *done = ARENA_NEW(&bind->plan->arena, bool, bind->count);
    for (const struct kernel *kernel = kernel_next(NULL); kernel; kernel = kernel_next(kernel))
        if (kernel->device == bind->plan->device.kind)
            keep_reasons(bind, kernel, done);
}

int plan_reasons_alike(const struct plan_reason *reasons, int count, int first, bool *done)
{
    const struct plan_reason *reason = &reasons[first];
    int alike = 0;
    for (int i = first; i < count; i++) {
        const struct plan_reason *other = &reasons[i];
        if (other->kernel->op != reason->kernel->op || other->first_layer != reason->first_layer
            || other->last_layer != reason->last_layer || strcmp(other->text, reason->text))
            continue;
        done[i] = true;
        alike++;
    }
    return alike;
}
