// SPDX-License-Identifier: Apache-2.0
// ranks/ranks.h: the processes that compute one model together, as MPI started them. MPI comes as a module that is
// loaded when it is asked for; what the processes say to each other is two things: all give as many bytes and all get
// everybody's (gather), and rank 0 tells the others what to do (tell, hear). Every call that fails says which rank was
// to blame and why; after that nothing more is to be had from the others. A process that has lost one of the others is
// ended within a second or so, whatever it does (ranks/failure_detector.h).
#ifndef RANKS_RANKS_H
#define RANKS_RANKS_H

#include "base/error.h"
#include "base/strbuf.h"

enum { RANKS_MAX = 64 };

struct ranks;

// How many processes the launcher started together with this one, by its environment; 1: none did.
int ranks_launched(void);

// Joins them. NULL: there is no module or no MPI for it, or they did not come together.
struct ranks *ranks_open(struct error *err);

// Rank 0 has told the others what it had to tell by then.
void ranks_close(struct ranks *ranks);

int ranks_rank(const struct ranks *ranks);
int ranks_size(const struct ranks *ranks);
int ranks_here(const struct ranks *ranks); // of them, on this host; they share its cores
const char *ranks_host(const struct ranks *ranks, int rank);
const char *ranks_words(const struct ranks *ranks); // what carries the bytes: "Open MPI v4.1.4"

// The moment a rank is lost, here or elsewhere, computing or not: this becomes readable, ranks_lost is a sentence and
// not NULL, and every call fails with it. ranks_speaks: it is for this process to say so, no rank before it is left.
int ranks_lost_fd(const struct ranks *ranks);
const char *ranks_lost(const struct ranks *ranks);
bool ranks_speaks(const struct ranks *ranks);

// This process cannot go on, for this reason: all ranks lose it.
void ranks_give_up(struct ranks *ranks, const char *sentence);

// Every rank gives `bytes` bytes; those of rank r then are at `all` + r * stride.
bool ranks_gather(struct ranks *ranks, const void *mine, void *all, size_t bytes, size_t stride, struct error *err);

// From rank 0 to the others. Hearing waits as long as it takes, without keeping a core busy for long.
bool ranks_tell(struct ranks *ranks, const void *message, size_t bytes, struct error *err);
bool ranks_hear(struct ranks *ranks, struct strbuf *message, struct error *err); // its content is replaced

#endif
