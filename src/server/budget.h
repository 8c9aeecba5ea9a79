// SPDX-License-Identifier: Apache-2.0
// server/budget.h: admission control by memory. One number of bytes for everything that requests in flight hold
// (bodies, JSON values, tokens, answers, logprobs, what waits to be sent), taken before the work that needs it begins;
// a request for which nothing is left is answered 429. Any thread may take and give back.
#ifndef SERVER_BUDGET_H
#define SERVER_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct budget {
    size_t limit_bytes;
    atomic_size_t used_bytes;
};

// The limit where none is given: an eighth of the machine's free memory, 64 MiB at least and 2 GiB at most.
size_t budget_default_bytes(void);

void budget_open(struct budget *budget, size_t limit_bytes);
bool budget_take(struct budget *budget, size_t bytes);  // false: it would pass the limit, and nothing was taken
void budget_force(struct budget *budget, size_t bytes); // takes it in any case: for what cannot be refused any more
void budget_give_back(struct budget *budget, size_t bytes);
size_t budget_used(const struct budget *budget);

#endif
