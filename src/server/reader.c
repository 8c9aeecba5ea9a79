// SPDX-License-Identifier: Apache-2.0
#include "server/reader.h"

#include <assert.h>

#include "server/read.h"

static const int lane_threads[LANE_COUNT] = { [LANE_SMALL] = 2, [LANE_LARGE] = 1 };

static void add(struct readers *readers, enum reader_lane lane, struct job *job)
{
    bool room = queue_push(&readers->lanes[lane].queue, job);
    assert(room); // as many as there may be jobs
    (void)room;
}

static void *read_jobs(void *context)
{
    struct lane *lane = context;
    struct readers *readers = lane->readers;
    struct job *job;
    while ((job = queue_pop(&lane->queue, true))) {
        bool runs = !atomic_load(&job->cancelled) && read_job(job);
        atomic_fetch_add(&lane->read_count, 1);
        if (job->leaves_lane) {
            job->leaves_lane = job->in_small_lane = false;
            add(readers, LANE_LARGE, job);
            continue;
        }
        if (runs) {
            atomic_store(&job->stage, JOB_READ);
            queue_push(readers->to_run, job);
        } else {
            mailbox_send(readers->mailbox, job, true);
            mailbox_wake(readers->mailbox);
        }
    }
    return NULL;
}

static int start_threads(struct readers *readers)
{
    for (int i = 0; i < LANE_COUNT; i++) {
        for (int count = 0; count < lane_threads[i]; count++) {
            assert(readers->thread_count < READER_THREADS_MAX);
            int failure = pthread_create(&readers->threads[readers->thread_count], NULL, read_jobs, &readers->lanes[i]);
            if (failure)
                return failure;
            readers->thread_count++;
        }
    }
    return 0;
}

bool readers_open(struct readers *readers, struct mailbox *mailbox, struct queue *to_run, int jobs_max,
                  struct error *err)
{
    *readers = (struct readers){ .mailbox = mailbox, .to_run = to_run };
    for (int i = 0; i < LANE_COUNT; i++) {
        readers->lanes[i].readers = readers;
        queue_open(&readers->lanes[i].queue, jobs_max);
    }
    int failure = start_threads(readers);
    if (!failure)
        return true;
    readers_close(readers);
    return fail(err, "the system gives no more threads (%s)", strerror(failure));
}

void readers_close(struct readers *readers)
{
    for (int i = 0; i < LANE_COUNT; i++)
        queue_close(&readers->lanes[i].queue);
    for (int i = 0; i < readers->thread_count; i++)
        pthread_join(readers->threads[i], NULL);
    for (int i = 0; i < LANE_COUNT; i++)
        queue_free(&readers->lanes[i].queue);
}

enum reader_lane readers_lane(const struct job *job)
{
    return job->body_bytes <= READER_SMALL_BYTES ? LANE_SMALL : LANE_LARGE;
}

void readers_add(struct readers *readers, struct job *job)
{
    job->in_small_lane = readers_lane(job) == LANE_SMALL;
    add(readers, readers_lane(job), job);
}
