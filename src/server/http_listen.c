// SPDX-License-Identifier: Apache-2.0
// server/http_listen.c: listening sockets (TCP and Unix). An address that cannot be used is refused with a sentence.
// Where the system has no descriptor left, an idle connection gives up its own, or a reserved one is used to answer
// 503; then there is a moment's rest, so that the loop does not spin.
#include <assert.h>
#include <errno.h>
#include <dirent.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/memory.h"
#include "server/http_connection.h"

enum {
    BACKLOG = 1024,           // connections the system keeps until they are accepted
    TURNED_AWAY_AT_ONCE = 64, // by one reserved descriptor, before a moment's rest
    FILES_BESIDE = 128,       // surplus connections and what the rest of the program opens
};

static const double pause_seconds = 0.1; // after an accept that failed

struct http_listener {
    struct http_listener *next;
    int fd;                        // bound; until `events` has it
    struct evconnlistener *events; // NULL: it does not listen yet
    char *name;                    // of its address, for sentences; owned
    char *path;                    // of a UNIX socket, owned
    struct stat file;
};

static void on_accept(struct evconnlistener *events, int fd, struct sockaddr *address, int length, void *context)
{
    (void)events, (void)address, (void)length;
    http_connection_open(context, fd);
}

static void open_reserve(struct http_server *server) { server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC); }

// Answers waiting connections one after the other, each with the reserved descriptor.
static void turn_away(struct http_server *server, int listening_fd)
{
    for (int i = 0; i < TURNED_AWAY_AT_ONCE && server->reserve_fd >= 0; i++) {
        close(server->reserve_fd);
        int fd = accept4(listening_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            http_connection_turn_away(server, fd, "this server has no more file descriptors; try again in a moment");
        open_reserve(server);
        if (fd < 0)
            break;
    }
}

static void on_accept_failed(struct evconnlistener *events, void *context)
{
    struct http_server *server = context;
    struct timeval wait = http_seconds(pause_seconds);
    if (errno == EMFILE || errno == ENFILE) {
        if (http_connection_evict(server))
            return;
        turn_away(server, evconnlistener_get_fd(events));
    }
    evconnlistener_disable(events);
    evtimer_add(&server->resume, &wait);
}

static void on_resume(int fd, short what, void *context)
{
    (void)fd, (void)what;
    struct http_server *server = context;
    if (server->reserve_fd < 0)
        open_reserve(server);
    for (struct http_listener *listener = server->listeners; listener; listener = listener->next)
        if (listener->events)
            evconnlistener_enable(listener->events);
}

void http_listeners_open(struct http_server *server)
{
    evtimer_assign(&server->resume, server->base, on_resume, server);
    open_reserve(server);
}

void http_listeners_close(struct http_server *server)
{
    event_del(&server->resume);
    if (server->reserve_fd >= 0)
        close(server->reserve_fd);
    while (server->listeners) {
        struct http_listener *listener = server->listeners;
        server->listeners = listener->next;
        if (listener->events)
            evconnlistener_free(listener->events);
        else
            close(listener->fd);
        struct stat now; // the file may be another server's by now
        if (listener->path && lstat(listener->path, &now) == 0 && now.st_ino == listener->file.st_ino
            && now.st_dev == listener->file.st_dev)
            unlink(listener->path);
        free(listener->name);
        free(listener->path);
        free(listener);
    }
}

static struct http_listener *add_listener(struct http_server *server, int fd, const char *name)
{
    struct http_listener *listener = memory_new(1, sizeof *listener);
    *listener = (struct http_listener){ .next = server->listeners, .fd = fd, .name = memory_new(strlen(name) + 1, 1) };
    strcpy(listener->name, name);
    server->listeners = listener;
    return listener;
}

static void set_reuse(int fd, bool reuse)
{
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ reuse }, sizeof(int));
}

// 0 with the descriptor, or errno. With SO_REUSEADDR, two sockets that do not listen yet could both have the address:
// it is set only where connections of an earlier server are in TIME_WAIT, and no longer than that takes.
static int bind_at(const struct sockaddr *address, socklen_t length, int *out)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int reason = bind(fd, address, length) == 0 ? 0 : errno;
    if (reason == EADDRINUSE && address->sa_family != AF_UNIX) {
        set_reuse(fd, true);
        reason = bind(fd, address, length) == 0 ? 0 : errno;
        set_reuse(fd, false);
    }
    if (reason)
        close(fd);
    else
        *out = fd;
    return reason;
}

bool http_listen(struct http_server *server, struct error *err)
{
    for (struct http_listener *listener = server->listeners; listener; listener = listener->next) {
        if (listener->events)
            continue;
        set_reuse(listener->fd, true); // accepted sockets inherit it, and do not keep the next server from the port
        if (listen(listener->fd, BACKLOG) != 0)
            return fail(err, "cannot listen at %s: %s", listener->name, strerror(errno));
        listener->events = evconnlistener_new(server->base, on_accept, server,
                                              LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, listener->fd);
        assert(listener->events);
        evconnlistener_set_error_cb(listener->events, on_accept_failed);
    }
    return true;
}

// ---- descriptors --------------------------------------------------------------------------------------------------

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

int http_raise_file_limit(int connections)
{
    struct rlimit limit;
    rlim_t beside = (rlim_t)open_files() + FILES_BESIDE, need = beside + (rlim_t)connections;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return connections;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return connections;
    return limit.rlim_cur > beside ? (int)(limit.rlim_cur - beside) : 1;
}

// ---- a port -------------------------------------------------------------------------------------------------------

static bool fail_port(struct error *err, const char *host, int port, int reason)
{
    switch (reason) {
    case EADDRINUSE:
        return fail(err,
                    "port %d on %s is already in use, perhaps by another nibble serve; stop it or choose another "
                    "with --port",
                    port, host);
    case EACCES:
        return fail(err, "port %d on %s is reserved for the administrator; choose one from 1024 on with --port", port,
                    host);
    case EADDRNOTAVAIL:
        return fail(err,
                    "%s is not an address of this machine; with --host, choose 127.0.0.1 for this machine alone "
                    "or 0.0.0.0 for its networks too",
                    host);
    default: return fail(err, "cannot listen on port %d of %s: %s", port, host, strerror(reason));
    }
}

static in_port_t *port_of(struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)address)->sin6_port
                                          : &((struct sockaddr_in *)address)->sin_port;
}

// Binds one address; *port is the one that was bound.
static int bind_port(struct http_server *server, const char *host, const struct addrinfo *address, int *port)
{
    int fd;
    char name[NI_MAXHOST + 32];
    int reason = bind_at(address->ai_addr, address->ai_addrlen, &fd);
    if (reason)
        return reason;
    socklen_t length = address->ai_addrlen;
    getsockname(fd, address->ai_addr, &length);
    *port = ntohs(*port_of(address->ai_addr));
    snprintf(name, sizeof name, "port %d of %.*s", *port, NI_MAXHOST, host);
    add_listener(server, fd, name);
    return 0;
}

// Skips duplicates: resolvers return an address twice when it is in two of their files.
static bool came_before(const struct addrinfo *list, const struct addrinfo *address)
{
    for (; list != address; list = list->ai_next)
        if (list->ai_addrlen == address->ai_addrlen
            && memcmp(list->ai_addr, address->ai_addr, address->ai_addrlen) == 0)
            return true;
    return false;
}

bool http_bind(struct http_server *server, const char *host, int port, int *bound, struct error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list;
    assert(port >= 0 && port <= UINT16_MAX);
    int unknown = getaddrinfo(host, NULL, &hints, &list);
    if (unknown)
        return fail(err, "the host \"%s\" cannot be found (%s); give an address of this machine with --host", host,
                    gai_strerror(unknown));
    int bound_count = 0, reason = 0;
    *bound = port;
    for (struct addrinfo *address = list; address; address = address->ai_next) {
        *port_of(address->ai_addr) = htons((uint16_t)*bound);
        if (came_before(list, address))
            continue;
        int failure = bind_port(server, host, address, bound);
        bound_count += !failure;
        reason = failure ? failure : reason;
        if (failure && failure != EADDRNOTAVAIL && failure != EAFNOSUPPORT)
            break;
    }
    freeaddrinfo(list);
    // A name may stand for addresses of a family that this machine does not have.
    if (bound_count && (!reason || reason == EADDRNOTAVAIL || reason == EAFNOSUPPORT))
        return true;
    return fail_port(err, host, port, reason);
}

// ---- a path -------------------------------------------------------------------------------------------------------

// A socket whose server ended without removing it is removed; one that is served, or any other file, is not.
static bool make_way(const struct sockaddr_un *address, struct error *err)
{
    const char *path = address->sun_path;
    struct stat file;
    if (lstat(path, &file) != 0)
        return true; // whatever else is wrong with the path, bind will say
    if (!S_ISSOCK(file.st_mode))
        return fail(err, "%s exists and is not a socket; remove it or choose another path with --uds", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(err, "cannot open a UNIX socket: %s", strerror(errno));
    int reason = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    close(fd);
    if (reason == 0 || reason == EAGAIN)
        return fail(err,
                    "%s is already in use, perhaps by another nibble serve; stop it or choose another path with "
                    "--uds",
                    path);
    if (reason == ECONNREFUSED && unlink(path) == 0)
        return true;
    return fail(err, "%s exists and cannot be replaced: %s", path, strerror(reason == ECONNREFUSED ? errno : reason));
}

bool http_bind_unix(struct http_server *server, const char *path, struct error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (!path[0] || strlen(path) >= sizeof address.sun_path)
        return fail(err, "the socket's path has %zu bytes; 1 to %zu are possible, choose another with --uds",
                    strlen(path), sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    if (!make_way(&address, err))
        return false;
    int fd;
    int reason = bind_at((const struct sockaddr *)&address, sizeof address, &fd);
    if (!reason && listen(fd, BACKLOG) != 0) // at once: a socket that does not listen looks like a dead server's
        reason = errno, close(fd);
    if (reason)
        return fail(err, "cannot listen at %s: %s; choose another path with --uds", path, strerror(reason));
    struct http_listener *listener = add_listener(server, fd, path);
    listener->path = memory_new(strlen(path) + 1, 1);
    strcpy(listener->path, path);
    (void)lstat(path, &listener->file);
    return true;
}
