// SPDX-License-Identifier: Apache-2.0
// test/unit/container.h: small checkpoint files built in memory, well formed or with the one flaw a test is about.
#ifndef TEST_CONTAINER_H
#define TEST_CONTAINER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "format/gguf.h"

#include <cmocka.h> // last: it has a macro called fail

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

#define assert_says(err, part)                                                  \
    do {                                                                        \
        if (!strstr((err).text, part))                                          \
            fail_msg("the error is \"%s\", expected \"%s\"", (err).text, part); \
    } while (0)

static inline void put(struct strbuf *out, const void *data, size_t bytes) { strbuf_add(out, data, bytes); }
static inline void put_u32(struct strbuf *out, uint32_t value) { put(out, &value, sizeof value); }
static inline void put_u64(struct strbuf *out, uint64_t value) { put(out, &value, sizeof value); }

static inline void put_zeros(struct strbuf *out, size_t count)
{
    while (count--)
        strbuf_add_byte(out, 0);
}

static inline void put_string(struct strbuf *out, struct bytes text)
{
    put_u64(out, text.len);
    put(out, text.data, text.len);
}

// The bytes on the heap with nothing behind them, so that a sanitizer sees a read past the end.
static inline struct bytes exact_copy(struct bytes in)
{
    char *data = malloc(in.len ? in.len : 1);
    memcpy(data, in.data, in.len);
    return (struct bytes){ data, in.len };
}

struct gguf_file {
    uint32_t version; // 0: 3
    uint64_t key_count, tensor_count;
    struct strbuf keys, tensors, data;
};

// The value itself is put into file->keys by the caller.
static inline void gguf_file_key(struct gguf_file *file, const char *name, enum gguf_type type)
{
    file->key_count++;
    put_string(&file->keys, bytes_of(name));
    put_u32(&file->keys, type);
}

static inline void gguf_file_u32(struct gguf_file *file, const char *name, uint32_t value)
{
    gguf_file_key(file, name, GGUF_U32);
    put_u32(&file->keys, value);
}

struct gguf_entry {
    const char *name;
    uint32_t rank;
    uint64_t dims[5]; // innermost first, as the file has them
    uint32_t type;
    uint64_t offset;
};

static inline void gguf_file_tensor(struct gguf_file *file, struct gguf_entry entry)
{
    file->tensor_count++;
    put_string(&file->tensors, bytes_of(entry.name));
    put_u32(&file->tensors, entry.rank);
    for (uint32_t i = 0; i < entry.rank; i++)
        put_u64(&file->tensors, entry.dims[i]);
    put_u32(&file->tensors, entry.type);
    put_u64(&file->tensors, entry.offset);
}

// The whole file; the builder is empty afterwards.
static inline struct strbuf gguf_file_finish(struct gguf_file *file, size_t alignment)
{
    struct strbuf out = { 0 };
    put(&out, "GGUF", 4);
    put_u32(&out, file->version ? file->version : 3);
    put_u64(&out, file->tensor_count);
    put_u64(&out, file->key_count);
    struct strbuf *parts[] = { &file->keys, &file->tensors, &file->data };
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (parts[i] == &file->data && file->data.len)
            put_zeros(&out, (alignment - out.len % alignment) % alignment);
        put(&out, parts[i]->data, parts[i]->len);
        strbuf_free(parts[i]);
    }
    return out;
}

static inline struct strbuf safetensors_file(const char *header, struct bytes data)
{
    struct strbuf out = { 0 };
    put_string(&out, bytes_of(header));
    put(&out, data.data, data.len);
    return out;
}

#endif
