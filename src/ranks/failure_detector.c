// SPDX-License-Identifier: Apache-2.0
#include "ranks/failure_detector.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

static const char end_line[] = "end", wake_line[] = "wake";

struct ranks_watch {
    int rank, ranks;
    const struct ranks_watch_place *places;
    pthread_t thread;
    int stir_fd, lost_fd, wake_fd; // the first is for this thread, the others for who waits
    atomic_bool stop, ending, gives_up, lost;
    char reason[RANKS_WATCH_TEXT_MAX];   // of this process; written before gives_up is set
    char sentence[RANKS_WATCH_TEXT_MAX]; // written before lost is set
    bool first_lost;                     // it is rank 0 that is lost; as the sentence
    struct peer {
        int socket; // -1: none
        bool gone, ending;
        int silent; // beats of our own since it was heard last
        size_t len;
        char line[RANKS_WATCH_TEXT_MAX];
    } *peers; // (ranks)
};

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void raise_fd(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one); // fails only when it is raised already
    (void)written;
}

static bool is_there(const struct peer *peer) { return peer->socket >= 0 && !peer->gone; }

// ---- saying -------------------------------------------------------------------------------------------------------

// What does not fit into a connection's buffer is for somebody who does not listen: he will be found silent.
static void say(struct ranks_watch *watch, const char *line)
{
    char text[RANKS_WATCH_TEXT_MAX + 1];
    int len = snprintf(text, sizeof text, "%s\n", line);
    for (int rank = 0; rank < watch->ranks; rank++)
        if (watch->peers[rank].socket >= 0)
            send(watch->peers[rank].socket, text, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The launcher asks everybody to end now; this process will, and has something to say first.
static void lose(struct ranks_watch *watch, const char *sentence)
{
    if (atomic_load(&watch->lost))
        return;
    signal(SIGTERM, SIG_IGN);
    snprintf(watch->sentence, sizeof watch->sentence, "%s", sentence);
    say(watch, sentence);
    atomic_store(&watch->lost, true);
    raise_fd(watch->lost_fd);
}

static void lose_rank(struct ranks_watch *watch, int rank, const char *why)
{
    char sentence[RANKS_WATCH_TEXT_MAX];
    const struct ranks_watch_place *place = &watch->places[rank];
    snprintf(sentence, sizeof sentence, "rank %d (%s, pid %d) %s", rank, place->host, place->pid, why);
    watch->first_lost = watch->first_lost || rank == 0;
    lose(watch, sentence);
}

// ---- hearing ------------------------------------------------------------------------------------------------------

static void take_line(struct ranks_watch *watch, struct peer *peer, const char *line)
{
    if (!strcmp(line, end_line))
        peer->ending = true;
    else if (!strcmp(line, wake_line))
        raise_fd(watch->wake_fd);
    else if (*line)
        lose(watch, line);
}

static void take_bytes(struct ranks_watch *watch, struct peer *peer, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != '\n') {
            peer->line[peer->len] = data[i];
            peer->len += peer->len + 1 < sizeof peer->line;
            continue;
        }
        peer->line[peer->len] = '\0';
        peer->len = 0;
        take_line(watch, peer, peer->line);
    }
}

static void hear(struct ranks_watch *watch, int rank)
{
    struct peer *peer = &watch->peers[rank];
    char data[RANKS_WATCH_TEXT_MAX], why[128];
    ssize_t len = recv(peer->socket, data, sizeof data, MSG_DONTWAIT);
    if (len > 0) {
        peer->silent = 0;
        take_bytes(watch, peer, data, (size_t)len);
        return;
    }
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    snprintf(why, sizeof why, "is gone: its connection %s", len ? "broke" : "closed");
    peer->gone = true;
    if (!peer->ending || !atomic_load(&watch->ending))
        lose_rank(watch, rank, why);
}

static void beat(struct ranks_watch *watch)
{
    say(watch, "");
    for (int rank = 0; rank < watch->ranks; rank++)
        if (is_there(&watch->peers[rank]) && ++watch->peers[rank].silent > RANKS_WATCH_SILENT_BEATS)
            lose_rank(watch, rank, "is not heard of any more: it hangs, or the link to it is lost");
}

// Waits for something to be said, to us or by us, until then.
static void listen_until(struct ranks_watch *watch, int64_t until_ms, struct pollfd *ready)
{
    int64_t left = until_ms - now_ms();
    for (int rank = 0; rank < watch->ranks; rank++)
        ready[rank] = (struct pollfd){ .fd = is_there(&watch->peers[rank]) ? watch->peers[rank].socket : -1,
                                       .events = POLLIN };
    ready[watch->ranks] = (struct pollfd){ .fd = watch->stir_fd, .events = POLLIN };
    if (poll(ready, (nfds_t)watch->ranks + 1, left > 0 ? (int)left : 0) <= 0)
        return;
    uint64_t woken;
    if (ready[watch->ranks].revents && read(watch->stir_fd, &woken, sizeof woken) < 0)
        return;
    for (int rank = 0; rank < watch->ranks; rank++)
        if (ready[rank].revents)
            hear(watch, rank);
}

// ---- the thread ---------------------------------------------------------------------------------------------------

// A process that has lost a rank may be computing, loading, waiting for somebody to type: it does not matter.
static void end_process(struct ranks_watch *watch)
{
    struct pollfd woken = { .fd = watch->stir_fd, .events = POLLIN };
    for (int64_t end = now_ms() + RANKS_WATCH_GRACE_MS, left; (left = end - now_ms()) > 0;) {
        uint64_t count;
        if (poll(&woken, 1, (int)left) > 0 && read(watch->stir_fd, &count, sizeof count) > 0
            && atomic_load(&watch->stop))
            return;
    }
    if (ranks_watch_speaks(watch))
        fprintf(stderr, "nibble: %s\n", watch->sentence);
    _exit(1);
}

static void *watch_main(void *context)
{
    struct ranks_watch *watch = context;
    struct pollfd *ready = memory_new((size_t)watch->ranks + 1, sizeof *ready);
    int beats_of_ending = 0;
    for (int64_t next = now_ms(); !atomic_load(&watch->stop) && !atomic_load(&watch->lost);) {
        listen_until(watch, next, ready);
        if (atomic_load(&watch->gives_up))
            lose(watch, watch->reason);
        if (now_ms() < next)
            continue;
        next = now_ms() + RANKS_WATCH_BEAT_MS;
        beat(watch);
        if (atomic_load(&watch->ending) && ++beats_of_ending * RANKS_WATCH_BEAT_MS > RANKS_WATCH_END_SECONDS * 1000)
            lose(watch, "the ranks did not come to an end together");
    }
    free(ready);
    if (!atomic_load(&watch->stop))
        end_process(watch);
    return NULL;
}

// ---- opening and closing ------------------------------------------------------------------------------------------

static void release(struct ranks_watch *watch)
{
    const int fds[] = { watch->stir_fd, watch->lost_fd, watch->wake_fd };
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (int rank = 0; rank < watch->ranks; rank++)
        if (watch->peers[rank].socket >= 0)
            close(watch->peers[rank].socket);
    free(watch->peers);
    free(watch);
}

// Signals are for the other threads.
static int start_thread(struct ranks_watch *watch)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int trouble = pthread_create(&watch->thread, NULL, watch_main, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return trouble;
}

struct ranks_watch *ranks_watch_open(int rank, int ranks, const int *sockets, const struct ranks_watch_place *places,
                                     struct error *err)
{
    struct ranks_watch *watch = memory_new(1, sizeof *watch);
    watch->rank = rank;
    watch->ranks = ranks;
    watch->places = places;
    watch->peers = memory_new((size_t)ranks, sizeof *watch->peers);
    for (int peer = 0; peer < ranks; peer++)
        watch->peers[peer].socket = sockets[peer];
    watch->stir_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool ready = watch->stir_fd >= 0 && watch->lost_fd >= 0 && watch->wake_fd >= 0;
    int trouble = ready ? start_thread(watch) : errno;
    if (!trouble)
        return watch;
    fail(err, "the system does not let the ranks be watched (%s)", strerror(trouble));
    release(watch);
    return NULL;
}

void ranks_watch_close(struct ranks_watch *watch)
{
    atomic_store(&watch->stop, true);
    raise_fd(watch->stir_fd);
    pthread_join(watch->thread, NULL);
    release(watch);
}

const char *ranks_watch_lost(const struct ranks_watch *watch)
{
    return atomic_load_explicit(&watch->lost, memory_order_acquire) ? watch->sentence : NULL;
}

int ranks_watch_fd(const struct ranks_watch *watch) { return watch->lost_fd; }

bool ranks_watch_speaks(const struct ranks_watch *watch)
{
    return watch->rank == 0 || (watch->rank == 1 && ranks_watch_lost(watch) && watch->first_lost);
}

void ranks_watch_give_up(struct ranks_watch *watch, const char *sentence)
{
    const struct ranks_watch_place *place = &watch->places[watch->rank];
    if (atomic_load(&watch->gives_up))
        return;
    snprintf(watch->reason, sizeof watch->reason, "rank %d (%s, pid %d): %s", watch->rank, place->host, place->pid,
             sentence);
    atomic_store(&watch->gives_up, true);
    raise_fd(watch->stir_fd);
    while (!ranks_watch_lost(watch))
        nanosleep(&(struct timespec){ 0, 100000 }, NULL);
}

void ranks_watch_announce_end(struct ranks_watch *watch)
{
    atomic_store(&watch->ending, true);
    say(watch, end_line);
}

void ranks_watch_wake(struct ranks_watch *watch) { say(watch, wake_line); }

bool ranks_watch_sleep(struct ranks_watch *watch)
{
    struct pollfd fds[] = { { .fd = watch->wake_fd, .events = POLLIN }, { .fd = watch->lost_fd, .events = POLLIN } };
    uint64_t count;
    return poll(fds, 2, RANKS_WATCH_SLEEP_MS) > 0 && read(watch->wake_fd, &count, sizeof count) > 0;
}
