// SPDX-License-Identifier: Apache-2.0
#include "server/post.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool post_open(struct post *post, struct error *err)
{
    *post = (struct post){ .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    pthread_mutex_init(&post->lock, NULL);
    return post->wake_fd >= 0 || fail(err, "the system gives no event descriptor (%s)", strerror(errno));
}

void post_close(struct post *post)
{
    pthread_mutex_destroy(&post->lock);
    if (post->wake_fd >= 0)
        close(post->wake_fd);
}

void post_send(struct post *post, struct job *job, bool over)
{
    pthread_mutex_lock(&post->lock);
    for (int i = 0; i < job->choice_count; i++)
        mail_move(&job->choices[i].draft, &job->choices[i].mail);
    job->accepted_mail |= job->choice_count > 0;
    job->over_mail = over;
    if (!job->posted) {
        job->posted = true;
        job->next_posted = NULL;
        if (post->last)
            post->last->next_posted = job;
        else
            post->first = job;
        post->last = job;
    }
    pthread_mutex_unlock(&post->lock);
}

void post_wake(struct post *post)
{
    uint64_t one = 1;
    while (write(post->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void post_report(struct post *post, const struct nibble_scheduler_stats *stats, int step_tokens)
{
    pthread_mutex_lock(&post->lock);
    post->stats = *stats;
    if (step_tokens)
        histogram_observe(&post->step_tokens, step_tokens);
    pthread_mutex_unlock(&post->lock);
}

void post_hear(struct post *post)
{
    uint64_t count;
    while (read(post->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

struct job *post_take(struct post *post)
{
    pthread_mutex_lock(&post->lock);
    struct job *job = post->first;
    if (job) {
        post->first = job->next_posted;
        if (!post->first)
            post->last = NULL;
        job->posted = false;
        job->accepted |= job->accepted_mail;
        job->over |= job->over_mail;
        for (int i = 0; i < job->choice_count; i++)
            mail_move(&job->choices[i].mail, &job->choices[i].news);
    }
    pthread_mutex_unlock(&post->lock);
    return job;
}

void post_read(struct post *post, struct nibble_scheduler_stats *stats, struct histogram *step_tokens)
{
    pthread_mutex_lock(&post->lock);
    *stats = post->stats;
    *step_tokens = post->step_tokens;
    pthread_mutex_unlock(&post->lock);
}
