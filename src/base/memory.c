// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"

#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENA_BLOCK_BYTES = 64 * 1024, HUGE_BYTES_MIN = 4 << 20 };

void memory_exhausted(size_t count, size_t size)
{
    fprintf(stderr, "nibble: out of memory (asked for %zu x %zu bytes)\n", count, size);
    exit(1);
}

void *memory_new(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory)
        memory_exhausted(count, size);
    return memory;
}

void *memory_allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        memory_exhausted(1, bytes);
    return memory;
}

void *memory_reallocate(void *old, size_t bytes) { return memory_grow(old, bytes, 1); }

void *memory_grow(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        memory_exhausted(count, size);
    void *memory = realloc(old, bytes ? bytes : 1);
    if (!memory)
        memory_exhausted(count, size);
    return memory;
}

char *memory_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(memory_allocate(bytes), text, bytes);
}

void memory_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void memory_disable_trim(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
}

void *memory_map_new(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_BYTES_MIN)
        madvise(memory, bytes, MADV_HUGEPAGE); // fewer TLB misses, if the system has huge pages
    return memory;
}

void memory_map_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    alignas(64) char bytes[];
};

void *arena_new(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
        memory_exhausted(count, size);
    bytes = (bytes + 15) & ~(size_t)15;
    struct arena_block *block = arena->blocks;
    if (!block || block->size - block->used < bytes) {
        size_t room = bytes > ARENA_BLOCK_BYTES ? bytes : ARENA_BLOCK_BYTES;
        size_t total = (sizeof *block + room + 63) & ~(size_t)63;
        block = aligned_alloc(64, total);
        if (!block)
            memory_exhausted(count, size);
        *block = (struct arena_block){ .next = arena->blocks, .size = room };
        arena->blocks = block;
    }
    char *memory = block->bytes + block->used;
    block->used += bytes;
    return memset(memory, 0, bytes);
}

char *arena_text(struct arena *arena, const char *text, size_t len)
{
    char *copy = arena_new(arena, len + 1, 1);
    if (len)
        memcpy(copy, text, len);
    return copy;
}

char *arena_format(struct arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        memory_exhausted(1, strlen(format));
    char *text = arena_new(arena, (size_t)length + 1, 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void arena_free(struct arena *arena)
{
    while (arena->blocks) {
        struct arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}
