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
static const char first_rank[] = "rank 0 ("; // a message about rank 0 begins so

struct failure_detector {
    int rank, ranks;
    const struct rank_place *places;
    pthread_t thread;
    int notify_fd, lost_fd, wake_fd; // eventfds: the first wakes this thread, the others its clients
    atomic_bool stop, ending, gave_up, lost;
    char reason[FAILURE_TEXT_MAX];   // why this process gives up; written before gave_up is set
    char sentence[FAILURE_TEXT_MAX]; // written before lost is set
    bool first_lost;                 // rank 0 was lost; written before lost is set
    struct peer {
        int socket; // -1: none
        bool gone, ending;
        int missed; // own heartbeats since its last line
        size_t len;
        char line[FAILURE_TEXT_MAX];
    } *peers; // (ranks)
};

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void signal_fd(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one); // fails only if the counter is full, so it is readable
    (void)written;
}

static bool is_connected(const struct peer *peer) { return peer->socket >= 0 && !peer->gone; }

// ---- sending ------------------------------------------------------------------------------------------------------

// A line that does not fit the socket's buffer is dropped: a peer that does not read is found by its missed heartbeats.
static void send_line(struct failure_detector *detector, const char *line)
{
    char text[FAILURE_TEXT_MAX + 1];
    int len = snprintf(text, sizeof text, "%s\n", line);
    for (int rank = 0; rank < detector->ranks; rank++)
        if (detector->peers[rank].socket >= 0)
            send(detector->peers[rank].socket, text, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Ignores SIGTERM, which launchers send when a process dies: this process reports the loss first, then exits.
static void report_loss(struct failure_detector *detector, const char *sentence)
{
    if (atomic_load(&detector->lost))
        return;
    signal(SIGTERM, SIG_IGN);
    snprintf(detector->sentence, sizeof detector->sentence, "%s", sentence);
    detector->first_lost = !strncmp(sentence, first_rank, strlen(first_rank)); // found here, or by a peer
    send_line(detector, sentence);
    atomic_store(&detector->lost, true);
    signal_fd(detector->lost_fd);
}

static void report_lost_rank(struct failure_detector *detector, int rank, const char *why)
{
    char sentence[FAILURE_TEXT_MAX];
    const struct rank_place *place = &detector->places[rank];
    snprintf(sentence, sizeof sentence, "rank %d (%s, pid %d) %s", rank, place->host, place->pid, why);
    report_loss(detector, sentence);
}

// ---- receiving ----------------------------------------------------------------------------------------------------

static void handle_line(struct failure_detector *detector, struct peer *peer, const char *line)
{
    if (!strcmp(line, end_line))
        peer->ending = true;
    else if (!strcmp(line, wake_line))
        signal_fd(detector->wake_fd);
    else if (*line)
        report_loss(detector, line);
}

static void handle_bytes(struct failure_detector *detector, struct peer *peer, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != '\n') {
            peer->line[peer->len] = data[i];
            peer->len += peer->len + 1 < sizeof peer->line;
            continue;
        }
        peer->line[peer->len] = '\0';
        peer->len = 0;
        handle_line(detector, peer, peer->line);
    }
}

static void read_peer(struct failure_detector *detector, int rank)
{
    struct peer *peer = &detector->peers[rank];
    char data[FAILURE_TEXT_MAX], why[128];
    ssize_t len = recv(peer->socket, data, sizeof data, MSG_DONTWAIT);
    if (len > 0) {
        peer->missed = 0;
        handle_bytes(detector, peer, data, (size_t)len);
        return;
    }
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    snprintf(why, sizeof why, "is gone: its connection %s", len ? "broke" : "closed");
    peer->gone = true;
    if (!peer->ending || !atomic_load(&detector->ending))
        report_lost_rank(detector, rank, why);
}

static void send_heartbeat(struct failure_detector *detector)
{
    send_line(detector, "");
    for (int rank = 0; rank < detector->ranks; rank++)
        if (is_connected(&detector->peers[rank]) && ++detector->peers[rank].missed > HEARTBEATS_MISSED_MAX)
            report_lost_rank(detector, rank, "sends no heartbeat any more: it hangs, or the link to it is lost");
}

// Waits for lines from peers, or for a notification from this process, until `until_ms`.
static void poll_until(struct failure_detector *detector, int64_t until_ms, struct pollfd *ready)
{
    int64_t left = until_ms - now_ms();
    for (int rank = 0; rank < detector->ranks; rank++)
        ready[rank] = (struct pollfd){ .fd = is_connected(&detector->peers[rank]) ? detector->peers[rank].socket : -1,
                                       .events = POLLIN };
    ready[detector->ranks] = (struct pollfd){ .fd = detector->notify_fd, .events = POLLIN };
    if (poll(ready, (nfds_t)detector->ranks + 1, left > 0 ? (int)left : 0) <= 0)
        return;
    uint64_t woken;
    if (ready[detector->ranks].revents && read(detector->notify_fd, &woken, sizeof woken) < 0)
        return;
    for (int rank = 0; rank < detector->ranks; rank++)
        if (ready[rank].revents)
            read_peer(detector, rank);
}

// ---- the thread ----------------------------------------------------------------------------------------------------

// Exits after a grace period, whatever the other threads are doing.
static void exit_after_grace(struct failure_detector *detector)
{
    struct pollfd woken = { .fd = detector->notify_fd, .events = POLLIN };
    for (int64_t end = now_ms() + FAILURE_GRACE_MS, left; (left = end - now_ms()) > 0;) {
        uint64_t count;
        if (poll(&woken, 1, (int)left) > 0 && read(detector->notify_fd, &count, sizeof count) > 0
            && atomic_load(&detector->stop))
            return;
    }
    if (failure_detector_reports_loss(detector))
        fprintf(stderr, "nibble: %s\n", detector->sentence);
    _exit(1);
}

static void *detector_main(void *context)
{
    struct failure_detector *detector = context;
    struct pollfd *ready = memory_new((size_t)detector->ranks + 1, sizeof *ready);
    int beats_of_ending = 0;
    for (int64_t next = now_ms(); !atomic_load(&detector->stop) && !atomic_load(&detector->lost);) {
        poll_until(detector, next, ready);
        if (atomic_load(&detector->gave_up))
            report_loss(detector, detector->reason);
        if (now_ms() < next)
            continue;
        next = now_ms() + HEARTBEAT_MS;
        send_heartbeat(detector);
        if (atomic_load(&detector->ending) && ++beats_of_ending * HEARTBEAT_MS > FAILURE_END_SECONDS * 1000)
            report_loss(detector, "the ranks did not come to an end together");
    }
    free(ready);
    if (!atomic_load(&detector->stop))
        exit_after_grace(detector);
    return NULL;
}

// ---- opening and closing -------------------------------------------------------------------------------------------

static void release(struct failure_detector *detector)
{
    const int fds[] = { detector->notify_fd, detector->lost_fd, detector->wake_fd };
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (int rank = 0; rank < detector->ranks; rank++)
        if (detector->peers[rank].socket >= 0)
            close(detector->peers[rank].socket);
    free(detector->peers);
    free(detector);
}

// The detector's thread blocks all signals.
static int start_thread(struct failure_detector *detector)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int trouble = pthread_create(&detector->thread, NULL, detector_main, detector);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return trouble;
}

struct failure_detector *failure_detector_open(int rank, int ranks, const int *sockets, const struct rank_place *places,
                                               struct error *err)
{
    struct failure_detector *detector = memory_new(1, sizeof *detector);
    detector->rank = rank;
    detector->ranks = ranks;
    detector->places = places;
    detector->peers = memory_new((size_t)ranks, sizeof *detector->peers);
    for (int peer = 0; peer < ranks; peer++)
        detector->peers[peer].socket = sockets[peer];
    detector->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    detector->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    detector->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool ready = detector->notify_fd >= 0 && detector->lost_fd >= 0 && detector->wake_fd >= 0;
    int trouble = ready ? start_thread(detector) : errno;
    if (!trouble)
        return detector;
    fail(err, "the system does not let the ranks be watched (%s)", strerror(trouble));
    release(detector);
    return NULL;
}

void failure_detector_close(struct failure_detector *detector)
{
    atomic_store(&detector->stop, true);
    signal_fd(detector->notify_fd);
    pthread_join(detector->thread, NULL);
    release(detector);
}

const char *failure_detector_lost(const struct failure_detector *detector)
{
    return atomic_load_explicit(&detector->lost, memory_order_acquire) ? detector->sentence : NULL;
}

int failure_detector_fd(const struct failure_detector *detector) { return detector->lost_fd; }

bool failure_detector_reports_loss(const struct failure_detector *detector)
{
    return detector->rank == 0 || (detector->rank == 1 && failure_detector_lost(detector) && detector->first_lost);
}

void failure_detector_give_up(struct failure_detector *detector, const char *sentence)
{
    const struct rank_place *place = &detector->places[detector->rank];
    if (atomic_load(&detector->gave_up))
        return;
    snprintf(detector->reason, sizeof detector->reason, "rank %d (%s, pid %d): %s", detector->rank, place->host,
             place->pid, sentence);
    atomic_store(&detector->gave_up, true);
    signal_fd(detector->notify_fd);
    while (!failure_detector_lost(detector))
        nanosleep(&(struct timespec){ 0, 100000 }, NULL);
}

void failure_detector_announce_end(struct failure_detector *detector)
{
    atomic_store(&detector->ending, true);
    send_line(detector, end_line);
}

void failure_detector_wake(struct failure_detector *detector) { send_line(detector, wake_line); }

bool failure_detector_sleep(struct failure_detector *detector)
{
    struct pollfd fds[] = { { .fd = detector->wake_fd, .events = POLLIN },
                            { .fd = detector->lost_fd, .events = POLLIN } };
    uint64_t count;
    return poll(fds, 2, FAILURE_SLEEP_MS) > 0 && read(detector->wake_fd, &count, sizeof count) > 0;
}
