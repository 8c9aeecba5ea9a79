// SPDX-License-Identifier: Apache-2.0
// server/http_idle.c: idle connections, longest idle first (LRU), and their eviction when a new client needs a place.
#include <sys/socket.h>

#include "base/clock.h"
#include "server/http_connection.h"

enum { EVICT_LOOKS_MAX = 16 }; // idle connections that are looked at for one that has sent nothing

static const double stalled_seconds = 0.5; // of a body, before its connection may be closed for a new one

void http_idle_leave(struct http_connection *connection)
{
    if (connection->idle_queue)
        TAILQ_REMOVE(connection->idle_queue, connection, idle);
    connection->idle_queue = NULL;
}

// Moves an active connection to the end of its queue. Surplus connections are in none: they have no place to give up.
void http_idle_join(struct http_connection *connection)
{
    enum http_idle which = connection->state == HTTP_BODY ? HTTP_IDLE_BODY
        : connection->known                               ? HTTP_IDLE_KNOWN
                                                          : HTTP_IDLE_STRANGER;
    http_idle_leave(connection);
    if (connection->surplus)
        return;
    connection->idle_queue = &connection->server->idle[which];
    connection->idle_since = clock_now();
    TAILQ_INSERT_TAIL(connection->idle_queue, connection, idle);
}

void http_connection_set_state(struct http_connection *connection, enum http_state state)
{
    connection->state = state;
    if (state == HTTP_ANSWERING || state == HTTP_SENDING)
        http_idle_leave(connection);
    else
        http_idle_join(connection);
}

// Whether the socket holds bytes of a request that were not read yet.
static bool has_sent(const struct http_connection *connection)
{
    char byte;
    return connection->state != HTTP_LINGERING && recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool http_connection_evict(struct http_server *server)
{
    int looks = 0;
    for (size_t i = 0; i < HTTP_IDLE_QUEUES; i++) {
        struct http_connection *connection;
        while ((connection = TAILQ_FIRST(&server->idle[i])) && looks++ < EVICT_LOOKS_MAX) {
            if (i == HTTP_IDLE_BODY && clock_now() - connection->idle_since < stalled_seconds)
                return false;
            if (has_sent(connection)) {
                http_idle_join(connection);
                continue;
            }
            http_connection_close(connection);
            server->counts.evicted++;
            return true;
        }
    }
    return false;
}
