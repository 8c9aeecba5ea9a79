// SPDX-License-Identifier: Apache-2.0
// ranks/ranks.h: the processes (ranks) of one model, started by MPI's launcher, and their collectives: all_gather, and
// broadcast from rank 0. MPI is a module that is loaded on demand. An error names the rank that failed and why; no call
// succeeds after that. A process that has lost another rank is ended within about a second (ranks/failure_detector.h).
#ifndef RANKS_RANKS_H
#define RANKS_RANKS_H

#include "base/error.h"
#include "base/strbuf.h"

enum { RANKS_MAX = 64 };

struct ranks;

// The number of processes that the launcher started, from its environment; 1 without a launcher.
int ranks_launched(void);

// Initialises MPI and connects the ranks. NULL if the module or MPI is missing, or a rank does not connect.
struct ranks *ranks_open(struct error *err);

// Collective: all ranks close.
void ranks_close(struct ranks *ranks);

int ranks_rank(const struct ranks *ranks);
int ranks_size(const struct ranks *ranks);
int ranks_here(const struct ranks *ranks); // ranks on this host; they share its cores
const char *ranks_host(const struct ranks *ranks, int rank);
const char *ranks_library(const struct ranks *ranks); // "Open MPI v4.1.4"

// When any rank is lost, ranks_lost_fd becomes readable, ranks_lost returns the message instead of NULL, and every call
// fails with it. ranks_reports_loss is true on the lowest rank left, which prints the message.
int ranks_lost_fd(const struct ranks *ranks);
const char *ranks_lost(const struct ranks *ranks);
bool ranks_reports_loss(const struct ranks *ranks);

// Ends all ranks with this message.
void ranks_give_up(struct ranks *ranks, const char *sentence);

// All-gather: rank r's `bytes` bytes are at `all` + r * stride on every rank afterwards.
bool ranks_all_gather(struct ranks *ranks, const void *mine, void *all, size_t bytes, size_t stride, struct error *err);

// Broadcast from rank 0. ranks_receive blocks until a message comes; it polls for a few milliseconds, then sleeps.
bool ranks_broadcast(struct ranks *ranks, const void *message, size_t bytes, struct error *err);
bool ranks_receive(struct ranks *ranks, struct strbuf *message, struct error *err); // replaces the content

#endif
