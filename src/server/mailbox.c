// SPDX-License-Identifier: Apache-2.0
#include "server/mailbox.h"

void post_open(struct post *post)
{
    *post = (struct post){ 0 };
    pthread_mutex_init(&post->lock, NULL);
    pthread_cond_init(&post->filled, NULL);
}

void post_close(struct post *post)
{
    pthread_cond_destroy(&post->filled);
    pthread_mutex_destroy(&post->lock);
}

void post_end(struct post *post)
{
    pthread_mutex_lock(&post->lock);
    post->closed = true;
    pthread_cond_broadcast(&post->filled);
    pthread_mutex_unlock(&post->lock);
}

static void append(struct post *post, struct job *job)
{
    if (job->posted)
        return;
    job->posted = true;
    job->next_posted = NULL;
    if (post->last)
        post->last->next_posted = job;
    else
        post->first = job;
    post->last = job;
}

void post_send(struct post *post, struct job *job, bool over)
{
    pthread_mutex_lock(&post->lock);
    for (int i = 0; i < job->choice_count; i++)
        mail_move(&job->choices[i].draft, &job->choices[i].mail);
    job->begun_mail = true;
    job->over_mail = over;
    if (over)
        atomic_store(&job->stage, JOB_WRITING);
    append(post, job);
    pthread_mutex_unlock(&post->lock);
}

void post_wake(struct post *post) { pthread_cond_signal(&post->filled); }

void post_report(struct post *post, const struct nibble_scheduler_stats *stats, int step_tokens)
{
    pthread_mutex_lock(&post->lock);
    post->stats = *stats;
    if (step_tokens)
        histogram_observe(&post->step_tokens, step_tokens);
    pthread_mutex_unlock(&post->lock);
}

void post_resume(struct post *post, struct job *job)
{
    pthread_mutex_lock(&post->lock);
    if (job->begun_mail && !job->written)
        append(post, job);
    pthread_mutex_unlock(&post->lock);
    pthread_cond_signal(&post->filled);
}

struct job *post_take(struct post *post)
{
    pthread_mutex_lock(&post->lock);
    while (!post->first && !post->closed)
        pthread_cond_wait(&post->filled, &post->lock);
    struct job *job = post->first;
    if (job) {
        post->first = job->next_posted;
        if (!post->first)
            post->last = NULL;
        job->posted = false;
        job->released |= job->over_mail;
        for (int i = 0; i < job->choice_count; i++)
            mail_move(&job->choices[i].mail, &job->choices[i].news);
        atomic_fetch_add(&post->taken_count, 1);
    }
    pthread_mutex_unlock(&post->lock);
    return job;
}

bool post_finish(struct post *post, struct job *job)
{
    pthread_mutex_lock(&post->lock);
    job->written = !job->posted;
    pthread_mutex_unlock(&post->lock);
    return job->written;
}

bool post_is_waiting(struct post *post)
{
    pthread_mutex_lock(&post->lock);
    bool waiting = post->first;
    pthread_mutex_unlock(&post->lock);
    return waiting;
}

void post_read(struct post *post, struct nibble_scheduler_stats *stats, struct histogram *step_tokens)
{
    pthread_mutex_lock(&post->lock);
    *stats = post->stats;
    *step_tokens = post->step_tokens;
    pthread_mutex_unlock(&post->lock);
}
