// SPDX-License-Identifier: Apache-2.0
// ranks/failure_detector.h: a heartbeat failure detector for ranks, active whether or not anything is computed. A
// thread sends a heartbeat on each connection (ranks/rendezvous.h) and reads the peers' lines: an empty line is a
// heartbeat, "wake" wakes failure_detector_sleep, "end" announces an orderly close, anything else is the reason why all
// ranks must end.
//   (1) a rank is lost when its connection closes without "end", or after HEARTBEATS_MISSED_MAX of this process's own
//       heartbeats without a line from it; so stopping all processes together loses none
//   (2) a loss is global: rank 0 forwards it to all ranks
//   (3) a process that has lost a rank exits, by itself within FAILURE_GRACE_MS, or else by this thread with status 1;
//       SIGTERM, which launchers send at once, is ignored meanwhile
#ifndef RANKS_FAILURE_DETECTOR_H
#define RANKS_FAILURE_DETECTOR_H

#include "base/error.h"

enum {
    HEARTBEAT_MS = 500,
    HEARTBEATS_MISSED_MAX = 5,
    FAILURE_GRACE_MS = 500, // until the thread exits the process
    FAILURE_END_SECONDS = 30,
    FAILURE_SLEEP_MS = 100,
    RANK_HOST_MAX = 64,
    FAILURE_TEXT_MAX = 1024,
};

struct failure_detector;

struct rank_place {
    int pid;
    char host[RANK_HOST_MAX];
};

// sockets[r] is the connection to rank r, or -1; the detector owns the sockets from now on, even on failure. The places
// are borrowed.
struct failure_detector *failure_detector_open(int rank, int ranks, const int *sockets, const struct rank_place *places,
                                               struct error *err);

const char *failure_detector_lost(const struct failure_detector *detector);  // the message; NULL if no rank is lost
int failure_detector_fd(const struct failure_detector *detector);            // becomes readable when a rank is lost
bool failure_detector_reports_loss(const struct failure_detector *detector); // this rank prints the message

// Ends all ranks with this message. Returns once they have been notified.
void failure_detector_give_up(struct failure_detector *detector, const char *sentence);

// Wakes ranks in failure_detector_sleep: a message is about to come by MPI, which can only be polled.
void failure_detector_wake(struct failure_detector *detector);
bool failure_detector_sleep(struct failure_detector *detector); // false on timeout, or if a rank is lost

// Announces an orderly close; the other ranks must follow within FAILURE_END_SECONDS.
void failure_detector_announce_end(struct failure_detector *detector);

void failure_detector_close(struct failure_detector *detector);

#endif
