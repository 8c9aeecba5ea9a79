// SPDX-License-Identifier: Apache-2.0
#include "model/modules.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pcre.h"
#include "base/strbuf.h"

// Limits, far above any in use. The pattern's length bounds compilation, and the step limit bounds matching.
enum { NAME_BYTES_MAX = 1024, PATTERN_BYTES_MAX = 1024, PATTERNS_MAX = 4096, MATCH_STEPS_MAX = 100000, SPELLINGS = 4 };

struct modules_pattern {
    pcre2_code *code;
    int value;
    bool fused; // the pattern names fused modules; only such patterns are matched against fused names
};

static const char *skip_beginning(const char *path)
{
    static const char *const beginnings[] = { "model.language_model.", "language_model.model.", "language_model.",
                                              "model." };
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (bytes_start_with(bytes_of(path), bytes_of(beginnings[i])))
            return path + strlen(beginnings[i]);
    return path;
}

bool modules_add_regex(struct modules *modules, const char *regex, int value, struct error *err)
{
    int code;
    char message[PCRE_MESSAGE_BYTES];
    if (strlen(regex) > PATTERN_BYTES_MAX || modules->pattern_count == PATTERNS_MAX)
        return fail(err, "the pattern \"%.60s...\" is longer than %d bytes, or one of more than %d", regex,
                    PATTERN_BYTES_MAX, PATTERNS_MAX);
    pcre2_code *compiled = pcre_compile(bytes_of(regex), PCRE2_ANCHORED, &code, message);
    if (!compiled)
        return fail(err, "the pattern \"%.200s\" is no regular expression: %s", regex, message);
    modules->patterns = memory_grow(modules->patterns, modules->pattern_count + 1, sizeof *modules->patterns);
    bool fused = strstr(regex, "qkv_") || strstr(regex, "gate_up_");
    modules->patterns[modules->pattern_count++] = (struct modules_pattern){ compiled, value, fused };
    return true;
}

// A pattern with '*', which also matches modules below the match.
static bool add_wildcard(struct modules *modules, const char *name, int value, struct error *err)
{
    struct strbuf regex = { 0 };
    for (; *name; name++) {
        if (*name == '*')
            strbuf_add_text(&regex, ".*");
        else if (isalnum((unsigned char)*name) || *name == '_')
            strbuf_add_byte(&regex, *name);
        else
            strbuf_add_format(&regex, "\\x%02x", (unsigned char)*name);
    }
    strbuf_add_text(&regex, "(\\..*)?$");
    bool ok = modules_add_regex(modules, regex.data, value, err);
    strbuf_free(&regex);
    return ok;
}

bool modules_add(struct modules *modules, const char *name, int value, struct error *err)
{
    size_t len = strlen(name);
    if (len > NAME_BYTES_MAX)
        return fail(err, "the module name \"%.60s...\" is longer than %d bytes", name, NAME_BYTES_MAX);
    if (modules->way == MODULES_WHOLE && bytes_start_with(bytes_of(name), bytes_of("re:")))
        return modules_add_regex(modules, name + 3, value, err);
    if (modules->way == MODULES_PARTS) {
        len -= len > 0 && name[len - 1] == '*'; // X* means X and the modules below it, not X1
        len -= len > 0 && name[len - 1] == '.';
        if (memchr(name, '*', len))
            return add_wildcard(modules, name, value, err);
    }
    name = skip_beginning(arena_text(&modules->arena, name, len));
    int64_t known;
    if (*name && !map_get(&modules->names, bytes_of(name), &known))
        map_put(&modules->names, bytes_of(name), value);
    return true;
}

// Names of fused modules in engines that fuse them.
static const char *fused_name(const char *last)
{
    static const char *const pairs[][2] = { { "q_proj", "qkv_proj" },
                                            { "k_proj", "qkv_proj" },
                                            { "v_proj", "qkv_proj" },
                                            { "gate_proj", "gate_up_proj" },
                                            { "up_proj", "gate_up_proj" } };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!strcmp(last, pairs[i][0]))
            return pairs[i][1];
    return NULL;
}

// Looks up runs of whole components that start here, the shortest first.
static bool find_run(const struct map *names, const char *first, int64_t *value)
{
    for (size_t len = strcspn(first, ".");; len += 1 + strcspn(first + len + 1, ".")) {
        if (map_get(names, (struct bytes){ first, len }, value))
            return true;
        if (!first[len])
            return false;
    }
}

static int find_name(const struct modules *modules, const char *path)
{
    int64_t value;
    const char *first = skip_beginning(path);
    if (map_get(&modules->names, bytes_of(first), &value))
        return (int)value;
    for (; modules->way == MODULES_PARTS && first; first = strchr(first, '.') ? strchr(first, '.') + 1 : NULL)
        if (find_run(&modules->names, first, &value))
            return (int)value;
    return -1;
}

static bool match(const struct modules *modules, const char *path, bool fused, int *value, struct error *err)
{
    pcre2_match_data *data = pcre2_match_data_create(1, pcre_memory());
    pcre2_match_context *context = pcre2_match_context_create(pcre_memory());
    pcre2_set_match_limit(context, MATCH_STEPS_MAX);
    int result = PCRE2_ERROR_NOMATCH;
    for (size_t i = 0; i < modules->pattern_count && result == PCRE2_ERROR_NOMATCH; i++) {
        const struct modules_pattern *pattern = &modules->patterns[i];
        if (fused && !pattern->fused)
            continue;
        result = pcre2_match(pattern->code, (PCRE2_SPTR)path, strlen(path), 0, 0, data, context);
        if (result >= 0)
            *value = pattern->value;
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    return result >= 0 || result == PCRE2_ERROR_NOMATCH
        || fail(err, "a pattern for module names takes more than %d steps on \"%.200s\"", MATCH_STEPS_MAX, path);
}

// Tries the path as in the file and as in most configs, and both with the fused module's name.
bool modules_find(const struct modules *modules, const char *path, int *value, struct error *err)
{
    struct {
        char path[NAME_BYTES_MAX];
        bool fused;
    } spelling[SPELLINGS];
    const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path, *fused = fused_name(last);
    int count = 0;
    for (int i = 0; i < (fused ? 2 : 1); i++)
        for (int j = 0; j < (dot ? 2 : 1); j++, count++) {
            const char *stem = j ? skip_beginning(path) : path;
            spelling[count].fused = i;
            snprintf(spelling[count].path, NAME_BYTES_MAX, "%s%.*s%s", j ? "model." : "", (int)(last - stem), stem,
                     i ? fused : last);
        }
    *value = -1;
    for (int i = 0; i < count && *value < 0; i++)
        *value = find_name(modules, spelling[i].path);
    for (int i = 0; i < count && *value < 0 && modules->pattern_count; i++)
        if (!match(modules, spelling[i].path, spelling[i].fused, value, err))
            return false;
    return true;
}

void modules_free(struct modules *modules)
{
    for (size_t i = 0; i < modules->pattern_count; i++)
        pcre2_code_free(modules->patterns[i].code);
    free(modules->patterns);
    map_free(&modules->names);
    arena_free(&modules->arena);
    *modules = (struct modules){ 0 };
}
