// SPDX-License-Identifier: Apache-2.0
#include "base/pcre.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"

enum { LARGE_BYTES = 1 << 20 };

static pthread_once_t made = PTHREAD_ONCE_INIT;
static pcre2_general_context *memory;

static void *allocate(size_t bytes, void *context)
{
    (void)context;
    return bytes < LARGE_BYTES ? memory_allocate(bytes) : malloc(bytes);
}

static void release(void *block, void *context)
{
    (void)context;
    free(block);
}

static void make_memory(void) { memory = pcre2_general_context_create(allocate, release, NULL); }

pcre2_general_context *pcre_memory(void)
{
    pthread_once(&made, make_memory);
    return memory;
}

pcre2_code *pcre_compile(struct bytes pattern, uint32_t options, int *code, char message[PCRE_MESSAGE_BYTES])
{
    PCRE2_SIZE offset;
    pcre2_compile_context *context = pcre2_compile_context_create(pcre_memory());
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern.data, pattern.len, options, code, &offset, context);
    pcre2_compile_context_free(context);
    if (!compiled)
        pcre2_get_error_message(*code, (PCRE2_UCHAR *)message, PCRE_MESSAGE_BYTES);
    return compiled;
}
