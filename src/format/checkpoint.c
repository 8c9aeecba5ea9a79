// SPDX-License-Identifier: Apache-2.0
#include "format/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "format/hub.h"
#include "format/json.h"
#include "format/safetensors.h"

enum { SPLIT_PARTS_MAX = 99999 }; // five digits in the name

// ---- files and tensors of any container ----

// Maps a file and adds it to checkpoint->files. The mapping does not move when that array is reallocated.
static bool map_file(struct checkpoint *checkpoint, const char *path, struct bytes *content, struct error *err)
{
    struct file file;
    if (!file_open(&file, path, err))
        return false;
    checkpoint->files = memory_grow(checkpoint->files, checkpoint->file_count + 1, sizeof file);
    checkpoint->files[checkpoint->file_count++] = file;
    *content = file.content;
    return true;
}

static bool add_tensors(struct checkpoint *checkpoint, const struct tensor *tensors, size_t count, struct error *err)
{
    struct tensor *all = memory_grow((void *)checkpoint->tensors, checkpoint->tensor_count + count, sizeof *all);
    checkpoint->tensors = all;
    for (size_t i = 0; i < count; i++) {
        int64_t earlier;
        struct bytes name = bytes_of(tensors[i].name);
        if (map_get(&checkpoint->names, name, &earlier))
            return fail(err, "tensor '%s' is in another file of the checkpoint, too; download it again", name.data);
        name.data = arena_text(&checkpoint->arena, name.data, name.len);
        map_put(&checkpoint->names, name, (int64_t)checkpoint->tensor_count);
        all[checkpoint->tensor_count] = tensors[i];
        all[checkpoint->tensor_count++].name = name.data;
    }
    return true;
}

// ---- GGUF ----

// The size of everything before the first tensor's data.
static size_t header_bytes(struct bytes content, const struct gguf *gguf)
{
    size_t bytes = content.len;
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        size_t offset = (size_t)(gguf->tensors[i].data - content.data);
        bytes = offset < bytes ? offset : bytes;
    }
    return bytes;
}

// Copies the header to private memory: keys, vocabulary and template are small, and are used while the checkpoint is
// open.
static bool keep_header(struct checkpoint *checkpoint, struct bytes content, const struct gguf *gguf, struct error *err)
{
    return file_keep(&checkpoint->files[checkpoint->file_count - 1], header_bytes(content, gguf), err);
}

// Opens one part of a split GGUF; `number` counts from 1. An unsplit model is part 1 of 1.
static bool open_part(struct checkpoint *checkpoint, const char *path, int number, struct gguf *gguf, struct error *err)
{
    struct bytes content;
    if (!map_file(checkpoint, path, &content, err))
        return false;
    if (!bytes_start_with(content, bytes_of("GGUF")))
        return fail(err, "%s: not a GGUF file; checkpoints of other kinds are opened by their folder", path);
    int64_t split = 0;
    if (!gguf_parse(content, gguf, err) || !add_tensors(checkpoint, gguf->tensors, gguf->tensor_count, err)
        || !gguf_get_int(gguf, "split.no", 0, SPLIT_PARTS_MAX, &split, err))
        return fail_within(err, "%s", path);
    if (!keep_header(checkpoint, content, gguf, err))
        return false;
    if (split != number - 1)
        return fail(err,
                    "%s: holds part %lld of the model, expected part %d; give the first part, and download the "
                    "others again if they were renamed",
                    path, (long long)split + 1, number);
    return true;
}

// Split GGUF: NAME-00001-of-00003.gguf and so on. The first part has the keys; each part has its own tensors.
static bool open_other_parts(struct checkpoint *checkpoint, int parts, struct error *err)
{
    const char *ending = arena_format(&checkpoint->arena, "-00001-of-%05d.gguf", parts);
    int stem = (int)strlen(checkpoint->path) - (int)strlen(ending);
    if (stem < 0 || strcmp(checkpoint->path + stem, ending))
        return fail(err, "%s: the first of %d parts; its name must end in %s for the others to be found",
                    checkpoint->path, parts, ending);
    for (int number = 2; number <= parts; number++) {
        const char *path = arena_format(&checkpoint->arena, "%.*s-%05d-of-%05d.gguf", stem, checkpoint->path, number,
                                        parts);
        struct gguf gguf = { 0 };
        bool ok = open_part(checkpoint, path, number, &gguf, err);
        gguf_free(&gguf);
        if (!ok)
            return false;
    }
    return true;
}

static bool open_gguf(struct checkpoint *checkpoint, enum checkpoint_need need, struct error *err)
{
    checkpoint->gguf = ARENA_NEW(&checkpoint->arena, struct gguf, 1);
    if (!open_part(checkpoint, checkpoint->path, 1, checkpoint->gguf, err))
        return false;
    int64_t parts = 1;
    if (!gguf_get_int(checkpoint->gguf, "split.count", 0, SPLIT_PARTS_MAX, &parts, err))
        return fail_within(err, "%s", checkpoint->path);
    return parts <= 1 || need == CHECKPOINT_TEXT || open_other_parts(checkpoint, (int)parts, err);
}

// The only .gguf model in a folder; *path is NULL if there is none.
static bool find_gguf(struct checkpoint *checkpoint, const char **path, struct error *err)
{
    *path = NULL;
    DIR *folder = opendir(checkpoint->path);
    if (!folder)
        return fail(err, "%s: cannot be opened (%s)", checkpoint->path, strerror(errno));
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        bool later_part = !fnmatch("*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9]*.gguf", entry->d_name, 0)
            && fnmatch("*-00001-of-*.gguf", entry->d_name, 0);
        if (!fnmatch("*.gguf", entry->d_name, FNM_PERIOD) && !later_part && ++count == 1)
            *path = arena_format(&checkpoint->arena, "%s/%s", checkpoint->path, entry->d_name);
    }
    closedir(folder);
    return count <= 1 || fail(err, "%s: holds %zu .gguf files; give the path of one of them", checkpoint->path, count);
}

// ---- Hugging Face folders ----

static const char *path_in(struct checkpoint *checkpoint, const char *name)
{
    return arena_format(&checkpoint->arena, "%s/%s", checkpoint->path, name);
}

static bool open_shard(struct checkpoint *checkpoint, const char *path, struct error *err)
{
    struct bytes content;
    struct safetensors shard;
    if (!map_file(checkpoint, path, &content, err))
        return false;
    if (!safetensors_parse(content, &shard, err))
        return fail_within(err, "%s", path);
    bool ok = add_tensors(checkpoint, shard.tensors, shard.tensor_count, err) || fail_within(err, "%s", path);
    safetensors_free(&shard);
    return ok;
}

// Opens every shard that the index names, once. `shards` maps a file's name to its index in checkpoint->files.
static bool open_shards(struct checkpoint *checkpoint, json_t *weight_map, struct map *shards, struct error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach (weight_map, tensor, value) {
        struct bytes name = { json_string_value(value), json_string_length(value) };
        int64_t known;
        if (map_get(shards, name, &known))
            continue;
        if (!name.len || name.data[0] == '.' || memchr(name.data, '/', name.len) || memchr(name.data, '\0', name.len))
            return fail(err, "tensor '%.255s' is said to be in '%.100s', which cannot be a file of this folder", tensor,
                        name.len ? name.data : "");
        const char *path = path_in(checkpoint, name.data);
        if (!file_exists(path))
            return fail(err, "names %.255s, which is not in the folder; download that file", name.data);
        map_put(shards, name, (int64_t)checkpoint->file_count);
        if (!open_shard(checkpoint, path, err))
            return false;
    }
    return true;
}

static bool check_shards(const struct checkpoint *checkpoint, json_t *weight_map, const struct map *shards,
                         struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach (weight_map, name, value) {
        int64_t index = 0;
        map_get(shards, (struct bytes){ json_string_value(value), json_string_length(value) }, &index);
        struct bytes content = checkpoint->files[index].content;
        const struct tensor *tensor = checkpoint_find(checkpoint, name);
        if (!tensor || tensor->data < content.data || tensor->data + tensor->bytes > content.data + content.len)
            return fail(err, "tensor '%.255s' should be in %.255s and is not; download both files again", name,
                        json_string_value(value));
    }
    return true;
}

static bool open_index(struct checkpoint *checkpoint, const char *path, struct error *err)
{
    json_t *index;
    struct map shards = { 0 };
    if (!json_read_file(path, &index, err))
        return false;
    json_t *weight_map = json_object_get(index, "weight_map");
    bool ok = json_is_object(weight_map) || fail(err, "has no \"weight_map\"; download it again");
    ok = ok && open_shards(checkpoint, weight_map, &shards, err) && check_shards(checkpoint, weight_map, &shards, err);
    map_free(&shards);
    json_decref(index);
    return ok || fail_within(err, "%s", path);
}

static bool open_weights(struct checkpoint *checkpoint, enum checkpoint_need need, struct error *err)
{
    const char *single = path_in(checkpoint, "model.safetensors");
    if (file_exists(single))
        return open_shard(checkpoint, single, err);
    const char *index = path_in(checkpoint, "model.safetensors.index.json");
    if (file_exists(index))
        return open_index(checkpoint, index, err);
    return need == CHECKPOINT_HEADERS
        || fail(err,
                "%s: holds no weights: neither model.safetensors nor model.safetensors.index.json is there; "
                "download the model again, or convert it to safetensors",
                checkpoint->path);
}

#define BIT(need) (1u << CHECKPOINT_##need)

static const struct {
    const char *name;
    size_t field; // a json_t * in struct checkpoint
    unsigned needs;
} documents[] = {
    { "config.json", offsetof(struct checkpoint, config), BIT(TEXT) | BIT(HEADERS) | BIT(ALL) },
    { "generation_config.json", offsetof(struct checkpoint, generation_config), BIT(TEXT) | BIT(HEADERS) | BIT(ALL) },
    { "hf_quant_config.json", offsetof(struct checkpoint, hf_quant_config), BIT(HEADERS) | BIT(ALL) },
    { "tokenizer.json", offsetof(struct checkpoint, tokenizer), BIT(TEXT) | BIT(ALL) },
    { "tokenizer_config.json", offsetof(struct checkpoint, tokenizer_config), BIT(TEXT) | BIT(ALL) },
};

enum { DOCUMENT_COUNT = sizeof documents / sizeof *documents };

static json_t **document_of(struct checkpoint *checkpoint, size_t index)
{
    return (json_t **)((char *)checkpoint + documents[index].field);
}

static bool open_documents(struct checkpoint *checkpoint, enum checkpoint_need need, struct error *err)
{
    for (size_t i = 0; i < DOCUMENT_COUNT; i++) {
        const char *path = path_in(checkpoint, documents[i].name);
        json_t **document = document_of(checkpoint, i);
        if (!(documents[i].needs & 1u << need) || !file_exists(path))
            continue;
        if (!json_read_file(path, document, err))
            return false;
        if (!json_is_object(*document))
            return fail(err, "%s: holds JSON that is no object; download it again", path);
    }
    const char *template = path_in(checkpoint, "chat_template.jinja");
    if (need == CHECKPOINT_HEADERS || !file_exists(template))
        return true;
    struct bytes *content = &checkpoint->chat_template;
    return map_file(checkpoint, template, content, err)
        && file_keep(&checkpoint->files[checkpoint->file_count - 1], content->len, err);
}

static bool open_folder(struct checkpoint *checkpoint, enum checkpoint_need need, struct error *err)
{
    if (!file_exists(path_in(checkpoint, "config.json"))) {
        const char *gguf;
        if (!find_gguf(checkpoint, &gguf, err))
            return false;
        if (gguf) {
            checkpoint->path = gguf;
            return open_gguf(checkpoint, need, err);
        }
    }
    if (!open_documents(checkpoint, need, err))
        return false;
    if (need == CHECKPOINT_TEXT)
        return checkpoint->tokenizer || checkpoint->tokenizer_config || checkpoint->chat_template.data
            || fail(err, "%s: holds no tokenizer.json, tokenizer_config.json or chat_template.jinja", checkpoint->path);
    if (!checkpoint->config)
        return fail(err, "%s: holds no config.json and no .gguf file, so it is no model; download it again",
                    checkpoint->path);
    return open_weights(checkpoint, need, err);
}

// ---- opening and closing ----

static bool open_path(struct checkpoint *checkpoint, const char *model, enum checkpoint_need need, struct error *err)
{
    struct stat info;
    if (stat(model, &info) < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return fail(err, "%.300s: cannot be opened (%s)", model, strerror(errno));
        return hub_find(model, &checkpoint->arena, &checkpoint->path, err) && open_folder(checkpoint, need, err);
    }
    checkpoint->path = arena_text(&checkpoint->arena, model, strlen(model));
    if (S_ISDIR(info.st_mode))
        return open_folder(checkpoint, need, err);
    return open_gguf(checkpoint, need, err); // refuses other than regular files
}

bool checkpoint_open(struct checkpoint *out, const char *model, enum checkpoint_need need, struct error *err)
{
    *out = (struct checkpoint){ 0 };
    bool ok = open_path(out, model, need, err);
    if (!ok)
        checkpoint_close(out);
    return ok;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    for (size_t i = 0; i < DOCUMENT_COUNT; i++)
        json_decref(*document_of(checkpoint, i));
    if (checkpoint->gguf)
        gguf_free(checkpoint->gguf);
    for (size_t i = 0; i < checkpoint->file_count; i++)
        file_close(&checkpoint->files[i]);
    free(checkpoint->files);
    free((void *)checkpoint->tensors);
    map_free(&checkpoint->names);
    arena_free(&checkpoint->arena);
    *checkpoint = (struct checkpoint){ 0 };
}

bool checkpoint_check(const struct checkpoint *checkpoint, struct error *err)
{
    for (size_t i = 0; i < checkpoint->file_count; i++)
        if (!file_check(&checkpoint->files[i], err))
            return false;
    return true;
}

void checkpoint_release(const struct checkpoint *checkpoint, const struct tensor *tensor)
{
    for (size_t i = 0; i < checkpoint->file_count; i++) {
        struct bytes content = checkpoint->files[i].content;
        if (tensor->data >= content.data && tensor->data < content.data + content.len)
            file_release(&checkpoint->files[i], (struct bytes){ tensor->data, tensor->bytes });
    }
}

const struct tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name)
{
    int64_t index;
    return map_get(&checkpoint->names, bytes_of(name), &index) ? &checkpoint->tensors[index] : NULL;
}
