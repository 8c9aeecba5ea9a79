// SPDX-License-Identifier: Apache-2.0
// An allocator with a fault (LD_PRELOAD): the n-th allocation of the process, counted from main on, gets no memory;
// all others do. NIBBLE_FAIL_ALLOCATION=n chooses it; with 0 none fails. NIBBLE_COUNT_ALLOCATIONS=FILE writes there,
// when the process ends, how many there were. malloc, calloc, realloc, aligned_alloc, posix_memalign and mmap count.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long count;
static long failing;
static bool in_main;
static int (*own_main)(int, char **, char **);

static bool is_failing(void)
{
    if (!in_main || atomic_fetch_add(&count, 1) + 1 != failing)
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) { return is_failing() ? NULL : __libc_malloc(bytes); }

void *calloc(size_t number, size_t size) { return is_failing() ? NULL : __libc_calloc(number, size); }

void *realloc(void *old, size_t bytes) { return is_failing() ? NULL : __libc_realloc(old, bytes); }

void *aligned_alloc(size_t alignment, size_t bytes) { return is_failing() ? NULL : __libc_memalign(alignment, bytes); }

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    *out = aligned_alloc(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    return is_failing() ? MAP_FAILED : next(address, length, protection, flags, fd, offset);
}

static void write_count(void)
{
    const char *path = getenv("NIBBLE_COUNT_ALLOCATIONS");
    char text[32];
    int length = snprintf(text, sizeof text, "%ld\n", atomic_load(&count));
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd < 0 || write(fd, text, (size_t)length) != length)
        return;
    close(fd);
}

static int counted_main(int argc, char **argv, char **environment)
{
    const char *text = getenv("NIBBLE_FAIL_ALLOCATION");
    failing = text ? atol(text) : 0;
    atexit(write_count);
    in_main = true;
    return own_main(argc, argv, environment);
}

// The C library's start of a program: what the loader did before is not counted.
int __libc_start_main(int (*program)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*loader_fini)(void), void *stack_end)
{
    int (*next)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
    *(void **)&next = dlsym(RTLD_NEXT, "__libc_start_main");
    own_main = program;
    return next(counted_main, argc, argv, init, fini, loader_fini, stack_end);
}
