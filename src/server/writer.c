// SPDX-License-Identifier: Apache-2.0
#include "server/writer.h"

#include "base/memory.h"
#include "server/admission.h"
#include "server/answer.h"
#include "server/parts.h"

enum { LARGE_BYTES = 1 << 20 };

// ---- metrics ------------------------------------------------------------------------------------------------------

// Observes the time between tokens.
static void observe_tokens(struct metrics *metrics, struct choice *choice)
{
    const struct output *delivered = &choice->delivered;
    for (int i = delivered->prompt_tokens; i < delivered->token_count; i++) {
        if (choice->token_at > 0)
            metrics_observe(metrics, METRIC_INTER_TOKEN_LATENCY, delivered->tokens[i].at - choice->token_at);
        choice->token_at = delivered->tokens[i].at;
    }
}

static void observe_choice(struct metrics *metrics, const struct choice *choice)
{
    const struct nibble_usage *usage = &choice->delivered.usage;
    const struct request_params *params = &choice->job->params;
    metrics_count_finish(metrics, choice->delivered.reason);
    if (!usage->first_token)
        return;
    double decode = usage->finished - usage->first_token;
    const struct {
        enum metric_histogram which;
        double value;
    } rows[] = {
        { METRIC_TIME_TO_FIRST_TOKEN, usage->first_token - usage->arrived },
        { METRIC_E2E_LATENCY, usage->finished - usage->arrived },
        { METRIC_QUEUE_TIME, usage->admitted - usage->arrived },
        { METRIC_INFERENCE_TIME, usage->finished - usage->admitted },
        { METRIC_PREFILL_TIME, usage->first_token - usage->admitted },
        { METRIC_DECODE_TIME, decode },
        { METRIC_PROMPT_TOKENS, usage->prompt_tokens },
        { METRIC_GENERATION_TOKENS, usage->answer_tokens },
        { METRIC_MAX_GENERATION_TOKENS, usage->answer_tokens },
        { METRIC_PARAMS_N, (double)params->n },
        { METRIC_PARAMS_MAX_TOKENS, (double)params->request.max_tokens },
        { METRIC_PREFILL_COMPUTED_TOKENS, usage->prompt_tokens - usage->cached_tokens },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        metrics_observe(metrics, rows[i].which, rows[i].value);
    if (usage->answer_tokens > 1)
        metrics_observe(metrics, METRIC_TIME_PER_OUTPUT_TOKEN, decode / (usage->answer_tokens - 1));
}

static void observe_output(struct metrics *metrics, struct job *job)
{
    for (int i = 0; i < job->choice_count; i++) {
        observe_tokens(metrics, &job->choices[i]);
        if (job->choices[i].delivered.finished)
            observe_choice(metrics, &job->choices[i]);
    }
}

// ---- jobs ---------------------------------------------------------------------------------------------------------

// Memory that is freed by another thread than allocated it stays with the allocator until memory_trim.
static bool is_large(const struct job *job)
{
    size_t bytes = job->reply.cap;
    for (int i = 0; i < job->choice_count; i++) {
        const struct choice *choice = &job->choices[i];
        bytes += parts_bytes(choice) + (size_t)choice->answer.token_capacity * sizeof *choice->answer.tokens
            + (size_t)choice->answer.top_capacity * sizeof *choice->answer.tops;
    }
    return bytes >= LARGE_BYTES;
}

// Writes the next slice of a reply that needed no engine and is text already.
static bool write_reply(struct job *job)
{
    size_t left = job->reply.len - job->cursor.at;
    size_t count = left < ANSWER_SLICE_BYTES ? left : ANSWER_SLICE_BYTES;
    strbuf_add(&job->text, job->reply.data + job->cursor.at, count);
    job->cursor.at += count;
    return count == left;
}

// The next slice that can be written now. True: there is no more for now.
static bool write_slice(struct job *job)
{
    if (!job->choice_count)
        return !job->released || job->error.status || write_reply(job);
    bool refused = job->released && job->error.status && !job->begun; // then the loop answers
    if (job->params.stream && !refused)
        return job->begun = true, answer_stream(job, &job->text);
    return !job->released || job->error.status || answer_whole(job, &job->text);
}

static bool may_write(struct job *job) { return atomic_load(&job->unsent_bytes) < ANSWER_SLICE_BYTES; }

// Stalls a job with too much unsent text: the loop sends it to the mailbox again (writer_sent), unless the client has
// taken it meanwhile.
static bool stall(struct job *job)
{
    atomic_store(&job->stalled, true);
    return !may_write(job) || !atomic_exchange(&job->stalled, false);
}

static void let_go(struct writer *writer, struct job *job)
{
    if (!mailbox_finish(writer->mailbox, job))
        return; // it will be taken again
    bool large = is_large(job);
    job_empty(job);
    outbox_put(writer->outbox, job, true);
    if (large)
        memory_trim();
}

static void write_job(struct writer *writer, struct job *job)
{
    bool wanted = !atomic_load(&job->cancelled), all = true;
    observe_output(writer->metrics, job);
    answer_take(job);
    admission_grow(job);
    if (wanted && !job->complete && (may_write(job) || !stall(job))) {
        all = write_slice(job);
        job->complete = all && job->released;
    }
    if (job->released && (job->complete || !wanted)) {
        let_go(writer, job);
        return;
    }
    if (job->text.len)
        outbox_put(writer->outbox, job, false);
    if (!all && (may_write(job) || !stall(job)))
        mailbox_resume(writer->mailbox, job); // behind the others
}

static void *write_jobs(void *context)
{
    struct writer *writer = context;
    struct job *job;
    while ((job = mailbox_take(writer->mailbox)))
        write_job(writer, job);
    return NULL;
}

bool writer_open(struct writer *writer, struct mailbox *mailbox, struct outbox *outbox, struct metrics *metrics,
                 struct error *err)
{
    *writer = (struct writer){ .mailbox = mailbox, .outbox = outbox, .metrics = metrics };
    int failure = pthread_create(&writer->thread, NULL, write_jobs, writer);
    return failure == 0 || fail(err, "the system gives no more threads (%s)", strerror(failure));
}

void writer_close(struct writer *writer)
{
    mailbox_end(writer->mailbox);
    pthread_join(writer->thread, NULL);
}

void writer_sent(struct writer *writer, struct job *job, size_t bytes)
{
    atomic_fetch_sub(&job->unsent_bytes, bytes);
    if (atomic_exchange(&job->stalled, false))
        mailbox_resume(writer->mailbox, job);
}
