// SPDX-License-Identifier: Apache-2.0
// ranks/rendezvous.h: TCP connections between rank 0 and each other rank, for the failure detector. Rank 0 listens, and
// its address and a secret are distributed by MPI; the other ranks connect and send the secret and their rank. Ranks on
// one host use the loopback interface only. The listening socket is closed once all have connected.
#ifndef RANKS_RENDEZVOUS_H
#define RANKS_RENDEZVOUS_H

#include <stdint.h>

#include "base/error.h"

enum { RENDEZVOUS_ADDRESSES_MAX = 8, RENDEZVOUS_SECRET_BYTES = 16 };

struct rendezvous_point {
    uint16_t port;
    uint16_t address_count;
    struct rendezvous_address {
        uint16_t family; // AF_INET, AF_INET6
        uint8_t bytes[16];
    } addresses[RENDEZVOUS_ADDRESSES_MAX];
    uint8_t secret[RENDEZVOUS_SECRET_BYTES];
};

// Rank 0: opens the listening socket; -1 on failure.
int rendezvous_listen(struct rendezvous_point *point, bool one_host, struct error *err);

// Rank 0: accepts a connection from every other rank, sockets[1 .. ranks), or -1; closes `socket`.
bool rendezvous_accept(int socket, const struct rendezvous_point *point, int ranks, int *sockets, struct error *err);

// Other ranks: connects to rank 0; -1 on failure.
int rendezvous_connect(const struct rendezvous_point *point, int rank, struct error *err);

#endif
