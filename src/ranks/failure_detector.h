// SPDX-License-Identifier: Apache-2.0
// ranks/failure_detector.h: who of the ranks is still alive, whether or not anything is being computed. A thread of its
// own sends a beat along each connection (ranks/rendezvous.h) and listens for the others'. What they say are lines: an
// empty one is a beat, "wake" wakes who sleeps there, "end" announces that the connection will end in order, anything
// else says why all is lost.
//   (1) a rank is lost when its connection ends without announcement, or when it is silent for RANKS_WATCH_SILENT_BEATS
//       beats of this process's own: to be stopped together with all others is not to lose them
//   (2) what one rank has lost all have lost: the others tell rank 0, rank 0 tells the others
//   (3) a process that has lost a rank ends: by itself or, after a moment, by this thread with status 1; SIGTERM, which
//       launchers send at once, does not hurry it
#ifndef RANKS_FAILURE_DETECTOR_H
#define RANKS_FAILURE_DETECTOR_H

#include "base/error.h"

enum {
    RANKS_WATCH_BEAT_MS = 500,
    RANKS_WATCH_SILENT_BEATS = 5,
    RANKS_WATCH_GRACE_MS = 500, // to end by itself
    RANKS_WATCH_END_SECONDS = 30,
    RANKS_WATCH_SLEEP_MS = 100,
    RANKS_WATCH_HOST_MAX = 64,
    RANKS_WATCH_TEXT_MAX = 1024,
};

struct ranks_watch;

struct ranks_watch_place {
    int pid;
    char host[RANKS_WATCH_HOST_MAX];
};

// sockets[r]: the connection to rank r, or -1; they are the watch's from now on, in any case. The places are borrowed.
struct ranks_watch *ranks_watch_open(int rank, int ranks, const int *sockets, const struct ranks_watch_place *places,
                                     struct error *err);

const char *ranks_watch_lost(const struct ranks_watch *watch); // the sentence; NULL: all are there
int ranks_watch_fd(const struct ranks_watch *watch);           // becomes readable when a rank is lost
bool ranks_watch_speaks(const struct ranks_watch *watch);      // no rank before this one is left to say what happened

// This process cannot go on: everybody is lost, for this reason. Returns when they have been told.
void ranks_watch_give_up(struct ranks_watch *watch, const char *sentence);

// Something is about to come by MPI, which nobody can wait for but by asking: who has gone to sleep shall ask again.
void ranks_watch_wake(struct ranks_watch *watch);
bool ranks_watch_sleep(struct ranks_watch *watch); // until then; false: a rank is lost, or nothing came for a while

// From now on the others may end as well; they are given RANKS_WATCH_END_SECONDS for it.
void ranks_watch_announce_end(struct ranks_watch *watch);

void ranks_watch_close(struct ranks_watch *watch);

#endif
