// SPDX-License-Identifier: Apache-2.0
// base/memory.h: allocation: malloc that never fails, arenas, anonymous mappings.
// Small allocations (names, tables, parse trees) never fail: the process ends with an error instead. Sizes that come
// from files must be checked against the file first. Big allocations (weights, pages) go through memory_map_new, which
// can fail.
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>

void *memory_new(size_t count, size_t size) __attribute__((malloc, returns_nonnull));     // zeroed; release with free()
void *memory_grow(void *old, size_t count, size_t size) __attribute__((returns_nonnull)); // new bytes are not zeroed

// Makes room for one more item in an array that grows by doubling.
#define MEMORY_RESERVE(items, count, capacity)                           \
    do {                                                                 \
        if ((count) == (capacity)) {                                     \
            (capacity) = (capacity) ? (capacity) * 2 : 64;               \
            (items) = memory_grow((items), (capacity), sizeof *(items)); \
        }                                                                \
    } while (0)

char *memory_text(const char *text) __attribute__((malloc, returns_nonnull)); // a copy; release with free()

// malloc and realloc that never return NULL, for libraries (PCRE2, libevent): some go on when they get no memory.
void *memory_allocate(size_t bytes) __attribute__((malloc, returns_nonnull));
void *memory_reallocate(void *old, size_t bytes) __attribute__((returns_nonnull));

void memory_exhausted(size_t count, size_t size) __attribute__((noreturn)); // prints the error and exits with status 1

void memory_trim(void);         // malloc_trim: returns freed memory to the system, if the C library can
void memory_disable_trim(void); // keeps memory freed from now on, for repeated large allocations

// Anonymous zero pages from mmap, at least 64-byte aligned; NULL if there are none.
void *memory_map_new(size_t bytes);
void memory_map_free(void *memory, size_t bytes);

// An arena (bump allocator) gives zeroed memory that is freed all at once; one per lifetime (model, request, step).
struct arena {
    struct arena_block *blocks; // newest first
};

void *arena_new(struct arena *arena, size_t count, size_t size) __attribute__((malloc, returns_nonnull));
char *arena_text(struct arena *arena, const char *text, size_t len)
    __attribute__((returns_nonnull)); // a terminated copy
char *arena_format(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3), returns_nonnull));
void arena_free(struct arena *arena);

#define ARENA_NEW(arena, type, count) ((type *)arena_new((arena), (size_t)(count), sizeof(type)))

#endif
