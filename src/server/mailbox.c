// SPDX-License-Identifier: Apache-2.0
#include "server/mailbox.h"

void mailbox_open(struct mailbox *mailbox)
{
    *mailbox = (struct mailbox){ 0 };
    STAILQ_INIT(&mailbox->jobs);
    pthread_mutex_init(&mailbox->lock, NULL);
    pthread_cond_init(&mailbox->filled, NULL);
}

void mailbox_close(struct mailbox *mailbox)
{
    pthread_cond_destroy(&mailbox->filled);
    pthread_mutex_destroy(&mailbox->lock);
}

void mailbox_end(struct mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    mailbox->closed = true;
    pthread_cond_broadcast(&mailbox->filled);
    pthread_mutex_unlock(&mailbox->lock);
}

static void append(struct mailbox *mailbox, struct job *job)
{
    if (!job->in_mailbox)
        STAILQ_INSERT_TAIL(&mailbox->jobs, job, in_mailbox_list);
    job->in_mailbox = true;
}

void mailbox_send(struct mailbox *mailbox, struct job *job, bool over)
{
    pthread_mutex_lock(&mailbox->lock);
    for (int i = 0; i < job->choice_count; i++)
        output_move(&job->choices[i].step_output, &job->choices[i].queued_output);
    job->sent_to_writer = true;
    job->over_in_mailbox = over;
    if (over)
        atomic_store(&job->stage, JOB_WRITING);
    append(mailbox, job);
    pthread_mutex_unlock(&mailbox->lock);
}

void mailbox_wake(struct mailbox *mailbox) { pthread_cond_signal(&mailbox->filled); }

void mailbox_report(struct mailbox *mailbox, const struct nibble_scheduler_stats *stats, int step_tokens)
{
    pthread_mutex_lock(&mailbox->lock);
    mailbox->stats = *stats;
    if (step_tokens)
        histogram_observe(&mailbox->step_tokens, step_tokens);
    pthread_mutex_unlock(&mailbox->lock);
}

void mailbox_resume(struct mailbox *mailbox, struct job *job)
{
    pthread_mutex_lock(&mailbox->lock);
    if (job->sent_to_writer && !job->written)
        append(mailbox, job);
    pthread_mutex_unlock(&mailbox->lock);
    pthread_cond_signal(&mailbox->filled);
}

struct job *mailbox_take(struct mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    while (STAILQ_EMPTY(&mailbox->jobs) && !mailbox->closed)
        pthread_cond_wait(&mailbox->filled, &mailbox->lock);
    struct job *job = STAILQ_FIRST(&mailbox->jobs);
    if (job) {
        STAILQ_REMOVE_HEAD(&mailbox->jobs, in_mailbox_list);
        job->in_mailbox = false;
        job->released |= job->over_in_mailbox;
        for (int i = 0; i < job->choice_count; i++)
            output_move(&job->choices[i].queued_output, &job->choices[i].delivered);
        atomic_fetch_add(&mailbox->taken_count, 1);
    }
    pthread_mutex_unlock(&mailbox->lock);
    return job;
}

bool mailbox_finish(struct mailbox *mailbox, struct job *job)
{
    pthread_mutex_lock(&mailbox->lock);
    job->written = !job->in_mailbox;
    pthread_mutex_unlock(&mailbox->lock);
    return job->written;
}

bool mailbox_is_waiting(struct mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    bool waiting = !STAILQ_EMPTY(&mailbox->jobs);
    pthread_mutex_unlock(&mailbox->lock);
    return waiting;
}

void mailbox_read(struct mailbox *mailbox, struct nibble_scheduler_stats *stats, struct histogram *step_tokens)
{
    pthread_mutex_lock(&mailbox->lock);
    *stats = mailbox->stats;
    *step_tokens = mailbox->step_tokens;
    pthread_mutex_unlock(&mailbox->lock);
}
