// SPDX-License-Identifier: Apache-2.0
#include "server/worker.h"

#include <string.h>

#include "server/generation.h"
#include "server/responses.h"

enum {
    JOB_SLOTS = 16,         // choices of a job that run at once
    JOB_SLOTS_PER_STEP = 2, // that it adds in one step: what comes behind it does not wait for all of their prompts
};

static void cancel(struct worker *worker, struct job *job)
{
    for (int i = 0; i < job->choice_count; i++)
        if (job->choices[i].name)
            nibble_scheduler_cancel(worker->scheduler, job->choices[i].name);
}

// Adds more of a job's choices to the scheduler, up to JOB_SLOTS: a job of a hundred answers must not occupy it before
// all others.
static void fill_slots(struct job *job)
{
    struct error err;
    generation_retry(job);
    for (int added = 0; added < JOB_SLOTS_PER_STEP && job->started < job->choice_count && job->running < JOB_SLOTS
         && !job->error.status;
         added++) {
        struct choice *choice = &job->choices[job->started];
        uint64_t first = choice->number ? choice[-choice->number].name : 0; // of its prompt, whose pages it shares
        if (!generation_start(choice, first, &err))
            api_fail(&job->error, 400, NULL, "%s", err.text);
        else
            job->running++;
        job->started++;
    }
}

static void start(struct worker *worker, struct job *job)
{
    job->worker = worker;
    atomic_store(&job->stage, JOB_RUNNING);
    job->next_run = worker->jobs;
    worker->jobs = job;
    job->touched = true; // accepted, or over
    fill_slots(job);
}

// Jobs that are cancelled or have failed start no more choices, and their running ones end.
static void care_for_jobs(struct worker *worker)
{
    for (struct job *job = worker->jobs; job; job = job->next_run) {
        if (!job->error.status && !atomic_load(&job->cancelled) && !response_is_cancelled(job)) {
            fill_slots(job);
            continue;
        }
        job->started = job->choice_count;
        generation_drop(job);
        cancel(worker, job);
    }
}

// Sends the step's output to the writer; jobs that are over leave the worker.
static void deliver(struct worker *worker)
{
    bool any = false;
    for (struct job **at = &worker->jobs, *job; (job = *at);) {
        bool over = !job->running && job->started == job->choice_count;
        if (over)
            *at = job->next_run;
        else
            at = &job->next_run;
        any |= job->touched || over;
        if (job->touched || over)
            mailbox_send(worker->mailbox, job, over); // the writer's, where it is over
        if (!over)
            job->touched = false;
    }
    if (any)
        mailbox_wake(worker->mailbox);
}

static void *run_jobs(void *context)
{
    struct worker *worker = context;
    struct job *job;
    while ((job = queue_pop(&worker->to_run, !worker->jobs)) || worker->jobs) {
        for (; job; job = queue_pop(&worker->to_run, false))
            start(worker, job);
        care_for_jobs(worker);
        struct nibble_step step = { 0 };
        struct nibble_scheduler_stats stats;
        nibble_scheduler_step(worker->scheduler, &step);
        nibble_scheduler_stats(worker->scheduler, &stats);
        mailbox_report(worker->mailbox, &stats, step.tokens);
        deliver(worker);
    }
    return NULL;
}

bool worker_open(struct worker *worker, struct nibble_scheduler *scheduler, struct mailbox *mailbox, int jobs_max,
                 struct error *err)
{
    *worker = (struct worker){ .scheduler = scheduler, .mailbox = mailbox };
    queue_open(&worker->to_run, jobs_max);
    int failure = pthread_create(&worker->thread, NULL, run_jobs, worker);
    if (!failure)
        return true;
    queue_free(&worker->to_run);
    return fail(err, "the system gives no more threads (%s)", strerror(failure));
}

void worker_close(struct worker *worker)
{
    queue_close(&worker->to_run);
    pthread_join(worker->thread, NULL);
    queue_free(&worker->to_run);
}
