// SPDX-License-Identifier: Apache-2.0
// engine/public.c: the C API of engines: nibble_plan_*, nibble_engine_*, nibble_sequence_*, nibble_sampling_* and
// nibble_scheduler_*.
#include <stdlib.h>

#include "base/file.h"
#include "base/public.h"
#include "engine/calibration/calibration.h"
#include "engine/calibration/text.h"
#include "engine/kernels/ceiling.h"
#include "engine/sampling/defaults.h"
#include "engine/schedule/generate.h"
#include "engine/gpu/gpu.h"
#include "engine/calibration/kv_amax.h"
#include "engine/calibration/layer_error.h"
#include "engine/ranks/public.h"
#include "engine/reader.h"
#include "engine/trace.h"
#include "format/public.h"
#include "plan/cost.h"
#include "plan/explain.h"

struct nibble_plan {
    struct engine_plan own; // empty in an engine's plan, which borrows the engine's
    struct kv_calibration calibration;
    const struct plan *plan;
};

struct nibble_engine {
    struct engine engine;
    struct trace *trace; // NULL: none
    struct nibble_plan plan;
};

struct nibble_sequence {
    struct reader reader;
};

struct nibble_scheduler {
    struct generator generator;
};

const char *nibble_version(void) { return NIBBLE_VERSION; }

static struct plan_options plan_options_of(const struct nibble_options *options)
{
    return (struct plan_options){ .user = *options, .apart = options->trace && options->trace->dump };
}

static struct engine_options engine_options_of(const struct nibble_options *options)
{
    return (struct engine_options){ .plan = plan_options_of(options) };
}

// ---- calibration ----

// The checkpoint's own tokenizer, opened for this alone.
static ptrdiff_t tokens_of(void *checkpoint, struct bytes text, int32_t **ids, struct error *err)
{
    struct nibble_tokenizer *tokenizer = nibble_tokenizer_open(checkpoint, err);
    ptrdiff_t count = tokenizer ? nibble_tokenize(tokenizer, text.data, text.len, NIBBLE_ADD_SPECIAL, ids, err) : -1;
    nibble_tokenizer_close(tokenizer);
    return count;
}

// Finds the calibration that a plan needs in a file or, with `measures`, by measuring.
static bool find_calibration(struct kv_calibration *out, const struct nibble_checkpoint *checkpoint,
                             const struct plan *plan, const struct nibble_options *options, bool measures,
                             struct error *err)
{
    const struct engine_options engine_options = engine_options_of(options);
    struct file given = { 0 };
    if (options->kv_calibration && !file_open(&given, options->kv_calibration, err))
        return fail_within(err, "--kv-calibration");
    struct calibration_source source = {
        .text = options->kv_calibration ? given.content : (struct bytes){ calibration_text, calibration_text_len },
        .given = options->kv_calibration,
        .tokens = measures ? tokens_of : NULL,
        .context = (void *)checkpoint,
    };
    bool ok = !plan->wants_calibration
        || calibration_find(out, &checkpoint->checkpoint, plan, &engine_options, &source, err);
    file_close(&given);
    return ok;
}

// ---- plans and engines ----

// Keys are measured on the whole model by this process alone, whatever ranks will share it. Where that is not possible
// and no flag demands one, they are stored as they are.
static bool calibrate_whole(struct kv_calibration *out, const struct nibble_checkpoint *checkpoint,
                            const struct device *device, const struct nibble_options *options, bool measures,
                            struct error *err)
{
    struct plan_options plan_options = plan_options_of(options);
    struct model model = { 0 };
    struct plan plan = { 0 };
    bool ok = model_describe(&model, &checkpoint->checkpoint, err)
        && plan_make(&plan, &model, device, &plan_options, err)
        && find_calibration(out, checkpoint, &plan, options, measures, err);
    bool insists = options->kv_calibration || (options->kv_transform && strcmp(options->kv_transform, "auto"));
    if (!ok && !insists)
        out->warning = arena_format(&out->arena, "the cache is not calibrated (%s): keys are stored as they are",
                                    err->text);
    plan_free(&plan);
    model_free(&model);
    return ok || !insists;
}

// The context of calibrate_plan.
struct calibrating {
    struct kv_calibration *calibration;
    const struct nibble_checkpoint *checkpoint;
    const struct nibble_options *options;
    bool measures;
};

static bool calibrate_plan(void *context, const struct plan *plan, const struct kv_calibration **out, struct error *err)
{
    const struct calibrating *calibrating = context;
    *out = calibrating->calibration;
    return find_calibration(calibrating->calibration, calibrating->checkpoint, plan, calibrating->options,
                            calibrating->measures, err);
}

// Makes a model and its plan. With several ranks the plan is rank 0's.
static bool decide(struct nibble_plan *plan, const struct nibble_checkpoint *checkpoint, const struct device *device,
                   const struct plan_options *options, int ranks, struct error *err)
{
    struct engine_plan *own = &plan->own;
    plan_free(&own->plan);
    model_free(&own->model);
    if (ranks > 1)
        return plan_make_ranks(&own->plan, &own->model, &checkpoint->checkpoint, ranks, device, options, err);
    return model_describe(&own->model, &checkpoint->checkpoint, err)
        && plan_make(&own->plan, &own->model, device, options, err);
}

// Ranks share the calibration of the whole model, with which their plans are made again.
static bool decide_ranks(struct nibble_plan *plan, const struct calibrating *calibrating, const struct device *whole,
                         const struct device *device, struct plan_options *options, int ranks, struct error *err)
{
    if (!decide(plan, calibrating->checkpoint, device, options, ranks, err)
        || !calibrate_whole(&plan->calibration, calibrating->checkpoint, whole, calibrating->options,
                            calibrating->measures, err))
        return false;
    options->calibration = &plan->calibration;
    return !plan->own.plan.wants_calibration || decide(plan, calibrating->checkpoint, device, options, ranks, err);
}

// The purpose of a plan. A plan that is to run needs a device of this machine; for one that runs now, keys that have no
// calibration yet are measured.
enum purpose { TO_LOOK_AT, TO_RUN, TO_RUN_NOW };

static struct nibble_plan *make_plan(const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                                     enum purpose purpose, struct error *err)
{
    struct nibble_plan *plan = memory_new(1, sizeof *plan);
    struct plan_options plan_options = plan_options_of(options);
    int ranks = options->ranks ? nibble_ranks_size(options->ranks) : options->tensor_parallel;
    int here = options->ranks ? group_here(&options->ranks->group) : ranks, sharers;
    struct device device, part;
    struct calibrating calibrating = { &plan->calibration, checkpoint, options, purpose == TO_RUN_NOW };
    plan_options.runs_here = purpose != TO_LOOK_AT;
    plan_options.find_calibration = ranks > 1 ? NULL : calibrate_plan;
    plan_options.find_context = &calibrating;
    bool ok = (plan_options.runs_here ? engine_choose_device : plan_choose_device)(&device, options->device, err)
        && (part = device, group_share_device(&part, options->device, here, &sharers, err))
        && (ranks > 1 ? decide_ranks(plan, &calibrating, &device, &part, &plan_options, ranks, err)
                      : decide(plan, checkpoint, &part, &plan_options, ranks, err));
    plan->plan = &plan->own.plan;
    if (ok || plan->plan->refusal.flag)
        return plan;
    nibble_plan_close(plan);
    return NULL;
}

struct nibble_plan *nibble_plan_make(const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                                     struct error *err)
{
    return make_plan(checkpoint, options, TO_LOOK_AT, err);
}

bool nibble_plan_accepted(const struct nibble_plan *plan) { return !plan->plan->refusal.flag; }

void nibble_plan_close(struct nibble_plan *plan)
{
    if (!plan)
        return;
    plan_free(&plan->own.plan);
    model_free(&plan->own.model);
    calibration_free(&plan->calibration);
    free(plan);
}

void nibble_plan_print(const struct nibble_plan *plan, enum nibble_plan_form form, int style, struct nibble_text *out)
{
    struct explain_style own = { .colour = style & NIBBLE_PLAN_COLOUR, .verbose = style & NIBBLE_PLAN_VERBOSE };
    struct strbuf buf = public_text_borrow(out);
    if (form == NIBBLE_PLAN_JSON)
        explain_json(plan->plan, &buf);
    else if (form == NIBBLE_PLAN_SHORT)
        explain_short(plan->plan, &buf);
    else
        explain_full(plan->plan, own, &buf);
    public_text_return(out, &buf);
}

void nibble_plan_cost(const struct nibble_plan *plan, int sequences, int depth, int tokens, struct nibble_cost *out)
{
    struct plan_cost cost = plan_cost(plan->plan, sequences, depth, tokens);
    *out = (struct nibble_cost){ cost.read_bytes, cost.flops, cost.int8_ops, cost.activation_bytes };
}

bool nibble_engine_check(const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                         struct error *err)
{
    struct nibble_plan *plan = make_plan(checkpoint, options, TO_RUN, err);
    bool ok = plan && nibble_plan_accepted(plan);
    nibble_plan_close(plan);
    return ok;
}

// Ranks other than this one would have to be watched as well.
static bool open_trace(struct nibble_engine *engine, const struct plan *plan, const struct nibble_options *options,
                       struct engine_options *out, struct error *err)
{
    int ranks = options->ranks ? nibble_ranks_size(options->ranks) : 1;
    if (!options->trace)
        return true;
    if (ranks > 1)
        return fail(err,
                    "ops can be traced and dumped in one process only, not in %d ranks; leave --tensor-parallel-size "
                    "out",
                    ranks);
    engine->trace = trace_open(options->trace, plan, err);
    out->watch = engine->trace ? trace_watch(engine->trace) : NULL;
    return engine->trace;
}

struct nibble_engine *nibble_engine_open(const struct nibble_checkpoint *checkpoint,
                                         const struct nibble_options *options, struct error *err)
{
    struct nibble_plan *first = make_plan(checkpoint, options, TO_RUN_NOW, err);
    if (!first || !nibble_plan_accepted(first))
        return nibble_plan_close(first), NULL;
    struct nibble_engine *engine = memory_new(1, sizeof *engine);
    struct engine_options engine_options = engine_options_of(options);
    bool traced = open_trace(engine, first->plan, options, &engine_options, err);
    struct engine_plan decided = first->own;
    engine->plan.calibration = first->calibration;
    first->own = (struct engine_plan){ 0 };
    first->calibration = (struct kv_calibration){ 0 };
    nibble_plan_close(first);
    engine_options.plan.calibration = decided.plan.calibration = &engine->plan.calibration;
    engine_options.group = options->ranks ? &options->ranks->group : NULL;
    engine_options.decided = group_size(engine_options.group) == 1 ? &decided : NULL;
    bool ok = traced && engine_open(&engine->engine, &checkpoint->checkpoint, &engine_options, err);
    plan_free(&decided.plan);
    model_free(&decided.model);
    if (!ok) {
        if (options->progress)
            options->progress(options->progress_context, 1);
        trace_close(engine->trace);
        calibration_free(&engine->plan.calibration);
        free(engine);
        return NULL;
    }
    engine->plan.plan = &engine->engine.plan;
    return engine;
}

void nibble_engine_close(struct nibble_engine *engine)
{
    if (!engine)
        return;
    engine_close(&engine->engine);
    trace_close(engine->trace);
    calibration_free(&engine->plan.calibration);
    free(engine);
}

const struct nibble_plan *nibble_engine_plan(const struct nibble_engine *engine) { return &engine->plan; }

int nibble_engine_vocabulary(const struct nibble_engine *engine) { return engine->engine.model.config.vocabulary; }

size_t nibble_engine_stop_ids(const struct nibble_engine *engine, const struct nibble_tokenizer *tokenizer,
                              int32_t **ids)
{
    int logits = nibble_engine_vocabulary(engine), size = nibble_vocabulary_size(tokenizer);
    size_t count = 0;
    size = size < logits ? size : logits;
    *ids = memory_new((size_t)size + 1, sizeof **ids);
    for (int32_t id = 0; id < size; id++)
        if (nibble_token_ends_text(tokenizer, id))
            (*ids)[count++] = id;
    *ids = memory_grow(*ids, count + 1, sizeof **ids);
    return count;
}

int nibble_engine_layers(const struct nibble_engine *engine) { return engine->engine.model.config.layers; }

int nibble_engine_max_model_len(const struct nibble_engine *engine) { return engine->engine.plan.max_model_len; }

const char *nibble_engine_device(const struct nibble_engine *engine) { return engine->engine.plan.device.name; }

int nibble_engine_threads(const struct nibble_engine *engine)
{
    return engine->engine.gpu ? 0 : thread_pool_size(engine->engine.pool);
}

bool nibble_engine_ceiling(struct nibble_engine *engine, struct nibble_ceiling *out, struct error *err)
{
    struct gpu *gpu = engine->engine.gpu;
    return gpu ? ceiling_measure_cuda(out, gpu_cuda(gpu), err)
               : ceiling_measure(out, engine->engine.pool, &engine->engine.plan.device, err);
}

const char *nibble_calibration_text(size_t *len)
{
    *len = calibration_text_len;
    return calibration_text;
}

bool nibble_layer_errors(const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                         const int32_t *ids, size_t count, struct nibble_layer_error *errors, struct error *err)
{
    const struct engine_options engine_options = engine_options_of(options);
    struct nibble_plan *plan = make_plan(checkpoint, options, true, err);
    bool ok = plan && nibble_plan_accepted(plan)
        && layer_errors(&checkpoint->checkpoint, plan->plan, &engine_options, ids, count, errors, err);
    nibble_plan_close(plan);
    return ok;
}

// ---- sequences ----

struct nibble_sequence *nibble_sequence_open(struct nibble_engine *engine)
{
    struct nibble_sequence *sequence = memory_new(1, sizeof *sequence);
    reader_open(&sequence->reader, &engine->engine);
    return sequence;
}

void nibble_sequence_close(struct nibble_sequence *sequence)
{
    if (!sequence)
        return;
    reader_close(&sequence->reader);
    free(sequence);
}

bool nibble_sequence_assign(struct nibble_sequence *sequence, const int32_t *ids, size_t count, struct error *err)
{
    return reader_assign(&sequence->reader, ids, count, err);
}

size_t nibble_sequence_length(const struct nibble_sequence *sequence)
{
    return (size_t)sequence->reader.sequence.count;
}

size_t nibble_sequence_cached(const struct nibble_sequence *sequence)
{
    return (size_t)sequence->reader.sequence.cached;
}

bool nibble_sequence_score(struct nibble_sequence *sequence, const int32_t *ids, size_t count, float *logits,
                           struct error *err)
{
    const float *ignored;
    struct reader *reader = &sequence->reader;
    bool ok = reader->sequence.cached == reader->sequence.count || reader_read(reader, &ignored, err);
    return ok && reader_append(reader, ids, count, err) && reader_score(reader, logits, err);
}

void nibble_sequence_kv_amax(const struct nibble_sequence *sequence, size_t from, float *k, float *v)
{
    kv_amax(sequence->reader.engine, &sequence->reader.sequence, (int)from, k, v);
}

// ---- sampling and scheduler ----

bool nibble_sampling_defaults(const struct nibble_checkpoint *checkpoint, const struct nibble_defaults_options *options,
                              struct nibble_defaults *out, struct error *err)
{
    return sampling_defaults(&checkpoint->checkpoint, options, out, err);
}

void nibble_sampling_print(const struct nibble_sampling *sampling, struct nibble_text *out)
{
    sampling_print(sampling, out);
}

struct nibble_scheduler *nibble_scheduler_open(struct nibble_engine *engine,
                                               const struct nibble_scheduler_options *options)
{
    struct nibble_scheduler *scheduler = memory_new(1, sizeof *scheduler);
    generator_open(&scheduler->generator, &engine->engine, options);
    return scheduler;
}

void nibble_scheduler_close(struct nibble_scheduler *scheduler)
{
    if (!scheduler)
        return;
    generator_close(&scheduler->generator);
    free(scheduler);
}

uint64_t nibble_scheduler_add(struct nibble_scheduler *scheduler, const struct nibble_request *request,
                              struct error *err)
{
    return generator_add(&scheduler->generator, request, err);
}

void nibble_scheduler_cancel(struct nibble_scheduler *scheduler, uint64_t name)
{
    generator_cancel(&scheduler->generator, name);
}

bool nibble_scheduler_step(struct nibble_scheduler *scheduler, struct nibble_step *step)
{
    return generator_step(&scheduler->generator, step);
}

void nibble_scheduler_stats(const struct nibble_scheduler *scheduler, struct nibble_scheduler_stats *out)
{
    generator_stats(&scheduler->generator, out);
}

uint32_t nibble_scheduler_progress(const struct nibble_scheduler *scheduler)
{
    return thread_pool_progress(scheduler->generator.engine->pool);
}

void nibble_scheduler_clear_cache(struct nibble_scheduler *scheduler) { generator_forget(&scheduler->generator); }
