// SPDX-License-Identifier: Apache-2.0
#include "base/mapping.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/memory.h"

// The signal handler walks this list while other threads change it, so entries are never freed: an entry whose `begin`
// is 0 is reused for the next file. The handler reads the path of a mapping only for a fault inside it, which cannot
// happen after its owner has removed it.
struct mapping {
    atomic_uintptr_t begin, end;
    atomic_bool lost;
    char *path;
    struct mapping *next;
};

static _Atomic(struct mapping *) mappings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards adding and removing
static atomic_bool goes_on;
static struct sigaction action_before;

static struct mapping *free_entry(void)
{
    struct mapping *entry = atomic_load(&mappings);
    while (entry && atomic_load(&entry->begin))
        entry = entry->next;
    if (entry)
        return entry;
    entry = memory_new(1, sizeof *entry);
    entry->next = atomic_load(&mappings);
    atomic_store(&mappings, entry);
    return entry;
}

struct mapping *mapping_add(struct bytes content, const char *path)
{
    pthread_mutex_lock(&lock);
    struct mapping *entry = free_entry();
    entry->path = memory_text(path);
    atomic_store(&entry->lost, false);
    atomic_store(&entry->end, (uintptr_t)content.data + content.len);
    atomic_store(&entry->begin, (uintptr_t)content.data);
    pthread_mutex_unlock(&lock);
    return entry;
}

void mapping_remove(struct mapping *mapping)
{
    if (!mapping)
        return;
    pthread_mutex_lock(&lock);
    atomic_store(&mapping->begin, 0);
    free(mapping->path);
    mapping->path = NULL;
    pthread_mutex_unlock(&lock);
}

const char *mapping_path(const struct mapping *mapping) { return mapping->path; }

bool mapping_is_lost(const struct mapping *mapping) { return atomic_load(&mapping->lost); }

// ---- the signal handler: async-signal-safe calls only ----

static struct mapping *find(uintptr_t address)
{
    struct mapping *entry = atomic_load(&mappings);
    for (; entry; entry = entry->next) {
        uintptr_t begin = atomic_load(&entry->begin);
        if (begin && address >= begin && address < atomic_load(&entry->end))
            break;
    }
    return entry;
}

static _Noreturn void end_with_a_sentence(const struct mapping *mapping)
{
    static const char before[] = "nibble: ";
    static const char after[] = ": cannot be read any more: it was cut, or its disk failed, while it was in use; "
                                "restore the file and start again\n";
    const struct iovec parts[] = { { (char *)before, sizeof before - 1 },
                                   { mapping->path, strlen(mapping->path) },
                                   { (char *)after, sizeof after - 1 } };
    ssize_t written = writev(STDERR_FILENO, parts, sizeof parts / sizeof *parts); // one write: not interleaved
    (void)written;
    _exit(1);
}

// Maps zero pages over the rest of the file: everything behind a truncation is unreadable, too.
static bool put_zeros(const struct mapping *mapping, uintptr_t address)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = address / page * page;
    size_t bytes = atomic_load(&mapping->end) - first;
    return mmap((void *)first, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    struct mapping *mapping = find((uintptr_t)info->si_addr);
    if (!mapping) { // not a file of ours: the instruction runs again and faults into the previous handler
        sigaction(number, &action_before, NULL);
        return;
    }
    if (!atomic_load(&goes_on))
        end_with_a_sentence(mapping);
    atomic_store(&mapping->lost, true);
    if (!put_zeros(mapping, (uintptr_t)info->si_addr))
        end_with_a_sentence(mapping);
}

void mapping_guard(void)
{
    const struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
    sigaction(SIGBUS, &action, &action_before);
}

void mapping_go_on(void) { atomic_store(&goes_on, true); }
