// SPDX-License-Identifier: Apache-2.0
#include "ranks/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"

enum { RENDEZVOUS_SECONDS = 15, CONNECT_MS = 2000, GREETING_MS = 1000 };

// A connecting rank sends this first; rank 0 sends it back.
struct greeting {
    uint8_t secret[RENDEZVOUS_SECRET_BYTES];
    uint32_t rank;
};

static void disable_nagle(int socket)
{
    int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

// Receives all bytes within `ms`, or fails.
static bool receive(int socket, void *data, size_t bytes, int ms)
{
    size_t got = 0;
    for (double end = clock_now() + ms * 1e-3; got < bytes && clock_now() < end;) {
        struct pollfd ready = { .fd = socket, .events = POLLIN };
        poll(&ready, 1, (int)((end - clock_now()) * 1e3) + 1);
        ssize_t count = recv(socket, (char *)data + got, bytes - got, MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        got += count > 0 ? (size_t)count : 0;
    }
    return got == bytes;
}

static bool send_greeting(int socket, const struct greeting *greeting)
{
    return send(socket, greeting, sizeof *greeting, MSG_NOSIGNAL) == (ssize_t)sizeof *greeting;
}

// ---- rank 0 --------------------------------------------------------------------------------------------------------

static void add_address(struct rendezvous_point *point, int family, const void *bytes, size_t size)
{
    if (point->address_count == RENDEZVOUS_ADDRESSES_MAX)
        return;
    struct rendezvous_address *address = &point->addresses[point->address_count++];
    address->family = (uint16_t)family;
    memcpy(address->bytes, bytes, size);
}

static void find_addresses(struct rendezvous_point *point)
{
    struct ifaddrs *found = NULL;
    if (getifaddrs(&found) < 0)
        return;
    for (const struct ifaddrs *at = found; at; at = at->ifa_next) {
        const struct sockaddr_in *four = (const void *)at->ifa_addr;
        const struct sockaddr_in6 *six = (const void *)at->ifa_addr;
        if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK))
            continue;
        if (at->ifa_addr->sa_family == AF_INET)
            add_address(point, AF_INET, &four->sin_addr, sizeof four->sin_addr);
        else if (at->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
            add_address(point, AF_INET6, &six->sin6_addr, sizeof six->sin6_addr);
    }
    freeifaddrs(found);
}

// One dual-stack socket if the host has IPv6, otherwise IPv4.
static int listen_everywhere(void)
{
    int no = 0;
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT };
    struct sockaddr_in four = { .sin_family = AF_INET };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0
        && bind(fd, (struct sockaddr *)&six, sizeof six) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&four, sizeof four) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int listen_here(struct rendezvous_point *point)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    add_address(point, AF_INET, &four.sin_addr, sizeof four.sin_addr);
    if (fd < 0 || bind(fd, (struct sockaddr *)&four, sizeof four) == 0)
        return fd;
    close(fd);
    return -1;
}

int rendezvous_listen(struct rendezvous_point *point, bool one_host, struct error *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } bound;
    socklen_t size = sizeof bound;
    *point = (struct rendezvous_point){ 0 };
    int fd = one_host ? listen_here(point) : listen_everywhere();
    if (!one_host)
        find_addresses(point);
    if (fd < 0 || listen(fd, SOMAXCONN) < 0 || getsockname(fd, &bound.any, &size) < 0
        || getrandom(point->secret, sizeof point->secret, 0) != (ssize_t)sizeof point->secret) {
        fail(err, "the other ranks cannot be listened for (%s)", strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    point->port = ntohs(bound.any.sa_family == AF_INET ? bound.four.sin_port : bound.six.sin6_port);
    return fd;
}

// Accepts a connection whose greeting has the secret and a rank that is not connected yet.
static void admit(int fd, const struct rendezvous_point *point, int ranks, int *sockets)
{
    struct greeting greeting;
    bool welcome = receive(fd, &greeting, sizeof greeting, GREETING_MS)
        && !memcmp(greeting.secret, point->secret, sizeof greeting.secret) && greeting.rank > 0
        && greeting.rank < (uint32_t)ranks && sockets[greeting.rank] < 0 && send_greeting(fd, &greeting);
    if (!welcome) {
        close(fd);
        return;
    }
    disable_nagle(fd);
    sockets[greeting.rank] = fd;
}

bool rendezvous_accept(int socket, const struct rendezvous_point *point, int ranks, int *sockets, struct error *err)
{
    int missing = 1;
    for (int rank = 0; rank < ranks; rank++)
        sockets[rank] = -1;
    for (double end = clock_now() + RENDEZVOUS_SECONDS; missing < ranks && clock_now() < end;) {
        struct pollfd ready = { .fd = socket, .events = POLLIN };
        if (poll(&ready, 1, (int)((end - clock_now()) * 1e3) + 1) > 0) {
            int fd = accept4(socket, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0)
                admit(fd, point, ranks, sockets);
        }
        while (missing < ranks && sockets[missing] >= 0)
            missing++;
    }
    close(socket);
    return missing == ranks
        || fail(err,
                "rank %d did not connect to port %u of rank 0 within %d s; is there a "
                "firewall between them?",
                missing, point->port, RENDEZVOUS_SECONDS);
}

// ---- other ranks --------------------------------------------------------------------------------------------------

static bool connect_within(int fd, const struct sockaddr *address, socklen_t size)
{
    int trouble = 0;
    socklen_t trouble_size = sizeof trouble;
    if (connect(fd, address, size) == 0)
        return true;
    if (errno != EINPROGRESS)
        return false;
    struct pollfd ready = { .fd = fd, .events = POLLOUT };
    if (poll(&ready, 1, CONNECT_MS) <= 0)
        return errno = ETIMEDOUT, false;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &trouble, &trouble_size) < 0 || trouble)
        return errno = trouble, false;
    return true;
}

static int connect_to(const struct rendezvous_address *address, uint16_t port)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    memcpy(&four.sin_addr, address->bytes, sizeof four.sin_addr);
    memcpy(&six.sin6_addr, address->bytes, sizeof six.sin6_addr);
    bool is_four = address->family == AF_INET;
    int fd = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0
        && connect_within(fd, is_four ? (struct sockaddr *)&four : (struct sockaddr *)&six,
                          is_four ? sizeof four : sizeof six))
        return fd;
    int trouble = errno;
    if (fd >= 0)
        close(fd);
    errno = trouble;
    return -1;
}

static bool exchange_greetings(int fd, const struct rendezvous_point *point, int rank)
{
    struct greeting greeting = { .rank = (uint32_t)rank }, answer;
    memcpy(greeting.secret, point->secret, sizeof greeting.secret);
    errno = ETIMEDOUT;
    return send_greeting(fd, &greeting) && receive(fd, &answer, sizeof answer, RENDEZVOUS_SECONDS * 1000)
        && !memcmp(&greeting, &answer, sizeof answer);
}

int rendezvous_connect(const struct rendezvous_point *point, int rank, struct error *err)
{
    char tried[INET6_ADDRSTRLEN] = "an address of its host";
    errno = EADDRNOTAVAIL;
    for (int i = 0; i < point->address_count; i++) {
        const struct rendezvous_address *address = &point->addresses[i];
        int fd = connect_to(address, point->port);
        if (fd >= 0 && exchange_greetings(fd, point, rank)) {
            disable_nagle(fd);
            return fd;
        }
        int trouble = errno;
        if (fd >= 0)
            close(fd);
        inet_ntop(address->family, address->bytes, tried, sizeof tried);
        errno = trouble;
    }
    fail(err, "rank %d cannot reach rank 0 at %s, port %u (%s)", rank, tried, point->port, strerror(errno));
    return -1;
}
