// SPDX-License-Identifier: Apache-2.0
// ranks/rendezvous.h: one connection between rank 0 and each of the others, by which they know of each other's life.
// Rank 0 listens and says where and with which secret (MPI carries that); the others come, show it and say their rank.
// On one host nothing but the loopback is listened on, and never for longer than the meeting takes.
#ifndef RANKS_RENDEZVOUS_H
#define RANKS_RENDEZVOUS_H

#include <stdint.h>

#include "base/error.h"

enum { MEET_ADDRESSES_MAX = 8, MEET_SECRET_BYTES = 16 };

struct meet_point {
    uint16_t port;
    uint16_t address_count;
    struct meet_address {
        uint16_t family; // AF_INET, AF_INET6
        uint8_t bytes[16];
    } addresses[MEET_ADDRESSES_MAX];
    uint8_t secret[MEET_SECRET_BYTES];
};

// Rank 0: a socket that listens, or -1.
int meet_listen(struct meet_point *point, bool one_host, struct error *err);

// Rank 0: sockets[1 .. ranks) are everybody's connections, or -1; `socket` listens no more.
bool meet_welcome(int socket, const struct meet_point *point, int ranks, int *sockets, struct error *err);

// The others: the connection to rank 0, or -1.
int meet_come(const struct meet_point *point, int rank, struct error *err);

#endif
