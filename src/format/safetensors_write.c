// SPDX-License-Identifier: Apache-2.0
#include "format/safetensors_write.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "format/json.h"

enum { HEADER_ALIGNMENT = 8, LENGTH_BYTES = 8 };

struct safetensors_entry {
    const char *name;
    enum dtype dtype;
    int rank;
    int64_t shape[TENSOR_RANK_MAX];
    size_t bytes;
    size_t shard;
    uint64_t offset; // from the start of the shard's data
};

struct safetensors_shard {
    char *path;
    int fd;
    uint64_t data;  // the data's offset in the file
    uint64_t bytes; // size of the data
};

void safetensors_out_open(struct safetensors_out *out, const char *folder)
{
    *out = (struct safetensors_out){ 0 };
    out->folder = arena_text(&out->arena, folder, strlen(folder));
}

size_t safetensors_out_add(struct safetensors_out *out, const char *name, enum dtype dtype, int rank,
                           const int64_t *shape)
{
    assert(dtype_table[dtype].safetensors && rank <= TENSOR_RANK_MAX && !out->shards);
    if (out->count == out->capacity) {
        out->capacity = out->capacity ? out->capacity * 2 : 256;
        out->entries = memory_grow(out->entries, out->capacity, sizeof *out->entries);
    }
    struct safetensors_entry *entry = &out->entries[out->count];
    *entry =
        (struct safetensors_entry){ .name = arena_text(&out->arena, name, strlen(name)), .dtype = dtype, .rank = rank };
    size_t values = 1;
    for (int i = 0; i < rank; i++) {
        entry->shape[i] = shape[i];
        values *= (size_t)shape[i]; // does not overflow: tensors come from a mapped file
    }
    entry->bytes = dtype_bytes(dtype, values);
    return out->count++;
}

// ---- places ----

// Assigns tensors to shards in order, as many to a shard as fit.
static void choose_shards(struct safetensors_out *out, size_t shard_bytes)
{
    uint64_t filled = 0;
    size_t shard = 0;
    for (size_t i = 0; i < out->count; i++) {
        if (filled && filled + out->entries[i].bytes > shard_bytes)
            shard++, filled = 0;
        filled += out->entries[i].bytes;
        out->entries[i].shard = shard;
    }
    out->shard_count = shard + 1;
    out->shards = memory_new(out->shard_count, sizeof *out->shards);
    for (size_t i = 0; i < out->shard_count; i++)
        out->shards[i].fd = -1;
}

static void choose_offsets(struct safetensors_out *out)
{
    static const int widths[] = { 8, 4, 2, 1 };
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (size_t i = 0; i < out->count; i++) {
            struct safetensors_entry *entry = &out->entries[i];
            if (dtype_table[entry->dtype].block_bytes != widths[w])
                continue;
            entry->offset = out->shards[entry->shard].bytes;
            out->shards[entry->shard].bytes += entry->bytes;
        }
}

// ---- files ----

static json_t *describe(const struct safetensors_entry *entry)
{
    json_t *shape = json_array();
    for (int i = 0; i < entry->rank; i++)
        json_array_append_new(shape, json_integer(entry->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_table[entry->dtype].safetensors, "shape", shape,
                     "data_offsets", (json_int_t)entry->offset, (json_int_t)(entry->offset + entry->bytes));
}

// The JSON header, padded with spaces so that the data is aligned. On the heap.
static char *make_header(const struct safetensors_out *out, size_t shard, uint64_t *length)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (size_t i = 0; i < out->count; i++)
        if (out->entries[i].shard == shard)
            json_object_set_new(header, out->entries[i].name, describe(&out->entries[i]));
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    size_t bytes = text ? strlen(text) : 0;
    *length = (bytes + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    char *padded = memory_new(*length + 1, 1);
    memset(padded, ' ', *length);
    memcpy(padded, text ? text : "", bytes);
    free(text);
    return padded;
}

static bool begin_file(struct safetensors_out *out, size_t index, struct error *err)
{
    struct safetensors_shard *shard = &out->shards[index];
    uint64_t length;
    shard->path = out->shard_count == 1
        ? arena_format(&out->arena, "%s/model.safetensors", out->folder)
        : arena_format(&out->arena, "%s/model-%05zu-of-%05zu.safetensors", out->folder, index + 1, out->shard_count);
    shard->fd = open(shard->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (shard->fd < 0)
        return fail(err, "%s: cannot be made (%s)", shard->path, strerror(errno));
    char *header = make_header(out, index, &length);
    shard->data = LENGTH_BYTES + length;
    if (fallocate(shard->fd, 0, 0, (off_t)(shard->data + shard->bytes)) < 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
        free(header);
        return fail(err, "%s: no room for its %.1f GB (%s)", shard->path, (double)shard->bytes * 1e-9, strerror(errno));
    }
    bool ok = file_write_at(shard->fd, 0, &length, LENGTH_BYTES, shard->path, err)
        && file_write_at(shard->fd, LENGTH_BYTES, header, length, shard->path, err);
    free(header);
    return ok;
}

bool safetensors_out_begin(struct safetensors_out *out, size_t shard_bytes, struct error *err)
{
    choose_shards(out, shard_bytes);
    choose_offsets(out);
    for (size_t i = 0; i < out->shard_count; i++)
        if (!begin_file(out, i, err))
            return false;
    return true;
}

bool safetensors_out_put(struct safetensors_out *out, size_t entry, size_t offset, const void *data, size_t bytes,
                         struct error *err)
{
    const struct safetensors_entry *place = &out->entries[entry];
    const struct safetensors_shard *shard = &out->shards[place->shard];
    assert(offset <= place->bytes && bytes <= place->bytes - offset);
    return file_write_at(shard->fd, shard->data + place->offset + offset, data, bytes, shard->path, err);
}

static bool write_index(const struct safetensors_out *out, struct error *err)
{
    uint64_t total = 0;
    json_t *map = json_object();
    for (size_t i = 0; i < out->count; i++) {
        const char *path = out->shards[out->entries[i].shard].path;
        json_object_set_new(map, out->entries[i].name, json_string(strrchr(path, '/') + 1));
        total += out->entries[i].bytes;
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    bool ok = json_save(index, out->folder, "model.safetensors.index.json", err);
    json_decref(index);
    return ok;
}

bool safetensors_out_finish(struct safetensors_out *out, struct error *err)
{
    for (size_t i = 0; i < out->shard_count; i++)
        if (fsync(out->shards[i].fd) < 0)
            return fail(err, "%s: cannot be written (%s)", out->shards[i].path, strerror(errno));
    return out->shard_count == 1 || write_index(out, err);
}

void safetensors_out_close(struct safetensors_out *out)
{
    for (size_t i = 0; i < out->shard_count && out->shards; i++)
        if (out->shards[i].fd >= 0)
            close(out->shards[i].fd);
    free(out->shards);
    free(out->entries);
    arena_free(&out->arena);
    *out = (struct safetensors_out){ 0 };
}
