// SPDX-License-Identifier: Apache-2.0
#include "format/hub.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"

enum { NAME_BYTES_MAX = 255 };

// True for a path component that the hub allows; such a name cannot lead out of the cache.
static bool is_plain_name(struct bytes name)
{
    if (!name.len || name.len > NAME_BYTES_MAX || name.data[0] == '.')
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (!isalnum((unsigned char)name.data[i]) && !memchr("-_.", name.data[i], 3))
            return false;
    return true;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

// The hub cache's folder, found as huggingface_hub does; NULL if no variable is set.
static const char *cache_folder(struct arena *arena)
{
    static const struct {
        const char *variable, *format;
    } places[] = {
        { "HF_HUB_CACHE", "%s" },
        { "HF_HOME", "%s/hub" },
        { "XDG_CACHE_HOME", "%s/huggingface/hub" },
        { "HOME", "%s/.cache/huggingface/hub" },
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = from_environment(places[i].variable);
        if (value)
            return arena_format(arena, places[i].format, value);
    }
    return NULL;
}

// The snapshot that refs/main names, or NULL.
static const char *main_snapshot(const char *repository, struct arena *arena)
{
    struct file file;
    struct error ignored;
    if (!file_open(&file, arena_format(arena, "%s/refs/main", repository), &ignored))
        return NULL;
    struct bytes name = file.content;
    while (name.len && isspace((unsigned char)name.data[name.len - 1]))
        name.len--;
    const char *folder = NULL;
    if (is_plain_name(name))
        folder = arena_format(arena, "%s/snapshots/%.*s", repository, (int)name.len, name.data);
    file_close(&file);
    return folder && is_folder(folder) ? folder : NULL;
}

// The only snapshot, or NULL if there are none or several.
static const char *only_snapshot(const char *repository, struct arena *arena)
{
    const char *snapshots = arena_format(arena, "%s/snapshots", repository), *found = NULL;
    DIR *folder = opendir(snapshots);
    size_t count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (is_plain_name(bytes_of(entry->d_name)) && ++count == 1)
            found = arena_format(arena, "%s/%s", snapshots, entry->d_name);
    if (folder)
        closedir(folder);
    return count == 1 && is_folder(found) ? found : NULL;
}

bool hub_find(const char *model, struct arena *arena, const char **folder, struct error *err)
{
    static const char meaning[] = "MODEL is a .gguf file, a folder with config.json and safetensors, or org/name of a "
                                  "model that was downloaded into the Hugging Face cache";
    const char *slash = strchr(model, '/');
    struct bytes org = { model, slash ? (size_t)(slash - model) : 0 };
    if (!is_plain_name(org) || !is_plain_name(bytes_of(slash + 1)))
        return fail(err, "there is no file or folder '%.200s'; %s", model, meaning);
    const char *cache = cache_folder(arena);
    if (!cache)
        return fail(err, "there is no file or folder '%.200s', and without HOME there is no cache to look in; %s",
                    model, meaning);

    const char *repository = arena_format(arena, "%s/models--%.*s--%s", cache, (int)org.len, model, slash + 1);
    if (!is_folder(repository))
        return fail(err, "there is no file or folder '%.200s', nor a model of that name in %.300s; %s", model, cache,
                    meaning);
    *folder = main_snapshot(repository, arena);
    if (!*folder)
        *folder = only_snapshot(repository, arena);
    return *folder
        || fail(err,
                "%.600s: refs/main names no snapshot that is there, and there is not exactly one to "
                "take in its place; download the model again",
                repository);
}
