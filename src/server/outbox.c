// SPDX-License-Identifier: Apache-2.0
#include "server/outbox.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool outbox_open(struct outbox *outbox, struct error *err)
{
    *outbox = (struct outbox){ .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    STAILQ_INIT(&outbox->jobs);
    pthread_mutex_init(&outbox->lock, NULL);
    return outbox->wake_fd >= 0 || fail(err, "the system gives no event descriptor (%s)", strerror(errno));
}

void outbox_close(struct outbox *outbox)
{
    pthread_mutex_destroy(&outbox->lock);
    if (outbox->wake_fd >= 0)
        close(outbox->wake_fd);
}

static void wake(const struct outbox *outbox)
{
    uint64_t one = 1;
    while (write(outbox->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

// Text that the loop has not taken yet stays in front.
static void move_text(struct strbuf *from, struct strbuf *to)
{
    if (!to->len) {
        struct strbuf spare = *to;
        *to = *from;
        *from = spare;
    } else {
        strbuf_add(to, from->data, from->len);
    }
    from->len = 0;
}

void outbox_put(struct outbox *outbox, struct job *job, bool over)
{
    atomic_fetch_add(&job->unsent_bytes, job->text.len);
    pthread_mutex_lock(&outbox->lock);
    bool was_empty = STAILQ_EMPTY(&outbox->jobs);
    move_text(&job->text, &job->outgoing);
    job->over_outgoing |= over;
    if (!job->in_outbox)
        STAILQ_INSERT_TAIL(&outbox->jobs, job, in_outbox_list);
    job->in_outbox = true;
    pthread_mutex_unlock(&outbox->lock);
    if (was_empty)
        wake(outbox);
}

void outbox_clear_wake(struct outbox *outbox)
{
    uint64_t count;
    while (read(outbox->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

struct job *outbox_take(struct outbox *outbox, struct strbuf *text)
{
    pthread_mutex_lock(&outbox->lock);
    struct job *job = STAILQ_FIRST(&outbox->jobs);
    if (job) {
        STAILQ_REMOVE_HEAD(&outbox->jobs, in_outbox_list);
        job->in_outbox = false;
        job->over |= job->over_outgoing;
        *text = job->outgoing;
        job->outgoing = (struct strbuf){ 0 };
    }
    pthread_mutex_unlock(&outbox->lock);
    return job;
}
