// SPDX-License-Identifier: Apache-2.0
#include "cli/config.h"

#include <stdlib.h>
#include <strings.h>
#include <yaml.h>

#include "base/file.h"

// The YAML events are read without recursion: each function stops at the first event that it does not expect.
struct config_reader {
    yaml_parser_t parser;
    yaml_event_t event;
    const struct option_row *options;
    struct config *out;
    struct error *err;
};

struct config_entry {
    const struct option_row *row;
    const char *key; // as it is written
    bool opposite;   // no-NAME of a switch
    size_t line;
};

static size_t line_of(const struct config_reader *reader) { return reader->event.start_mark.line + 1; }

static bool next(struct config_reader *reader)
{
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event))
        return true;
    const char *problem = reader->parser.problem;
    if (reader->parser.error == YAML_MEMORY_ERROR)
        return fail(reader->err, "there is no memory to read it");
    return fail(reader->err, "line %zu: not valid YAML%s%s", reader->parser.problem_mark.line + 1, problem ? ": " : "",
                problem ? problem : "");
}

static bool same_option(const char *a, const char *b)
{
    size_t len = strcspn(a, "=");
    return len == strcspn(b, "=") && !memcmp(a, b, len);
}

static bool add_argument(struct config_reader *reader, char *argument)
{
    if (reader->out->count == CONFIG_ARGUMENTS_MAX)
        return fail_usage(reader->err, "line %zu: more than %d values", line_of(reader), CONFIG_ARGUMENTS_MAX);
    reader->out->arguments[reader->out->count++] = argument;
    return true;
}

// ---- values -------------------------------------------------------------------------------------------------------

static bool add_boolean(struct config_reader *reader, const struct config_entry *entry, const char *value)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {
        { "true", true }, { "yes", true }, { "on", true }, { "false", false }, { "no", false }, { "off", false },
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(value, words[i].word))
            continue;
        bool set = words[i].value != entry->opposite;
        if (!set && entry->row->kind == OPTION_FLAG)
            return true;
        return add_argument(reader,
                            arena_format(&reader->out->arena, "--%s%s", set ? "" : "no-", entry->row->name + 2));
    }
    return fail_usage(reader->err, "line %zu: %s takes true or false, not \"%.40s\"", entry->line, entry->key, value);
}

static bool is_null(const char *value) { return !*value || !strcmp(value, "~") || !strcasecmp(value, "null"); }

static bool add_value(struct config_reader *reader, const struct config_entry *entry)
{
    const char *value = (const char *)reader->event.data.scalar.value;
    if (strlen(value) != reader->event.data.scalar.length)
        return fail_usage(reader->err, "line %zu: %s has a zero byte in its value", line_of(reader), entry->key);
    if (reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE && is_null(value))
        return true;
    if (entry->row->kind == OPTION_FLAG || entry->row->kind == OPTION_SWITCH)
        return add_boolean(reader, entry, value);
    return add_argument(reader, arena_format(&reader->out->arena, "%s=%s", entry->row->name, value));
}

static bool read_item(struct config_reader *reader, const struct config_entry *entry)
{
    if (reader->event.type == YAML_SCALAR_EVENT)
        return add_value(reader, entry);
    if (reader->event.type == YAML_ALIAS_EVENT)
        return fail_usage(reader->err, "line %zu: %s is an alias, and aliases are not read; write the value",
                          line_of(reader), entry->key);
    return fail_usage(reader->err, "line %zu: %s holds something nested; it takes a value or a list of values",
                      line_of(reader), entry->key);
}

static bool read_value(struct config_reader *reader, const struct config_entry *entry)
{
    if (reader->event.type != YAML_SEQUENCE_START_EVENT)
        return read_item(reader, entry);
    bool repeats = entry->row->kind == OPTION_LIST || entry->row->kind == OPTION_TEXTS;
    for (int count = 0; next(reader) && reader->event.type != YAML_SEQUENCE_END_EVENT; count++) {
        if (count && !repeats)
            return fail_usage(reader->err, "line %zu: %s takes one value, not a list", line_of(reader), entry->key);
        if (!read_item(reader, entry))
            return false;
    }
    return reader->event.type == YAML_SEQUENCE_END_EVENT;
}

// ---- keys ---------------------------------------------------------------------------------------------------------

static bool find_entry(struct config_reader *reader, struct config_entry *out)
{
    struct arena *arena = &reader->out->arena;
    struct bytes key = { (const char *)reader->event.data.scalar.value, reader->event.data.scalar.length };
    out->line = line_of(reader);
    out->key = arena_text(arena, key.data, key.len);
    char *name = arena_format(arena, "--%s", out->key);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    const char *near = NULL;
    out->row = strlen(out->key) == key.len ? option_find(reader->options, bytes_of(name), &near) : NULL;
    if (!out->row)
        return fail_usage(reader->err, "line %zu: there is no option \"%.60s\"%s%s%s", out->line, out->key,
                          near ? ", did you mean " : "", near ? near + 2 : "", near ? "?" : "");
    out->opposite = strcmp(name, out->row->name) != 0;
    if (!strcmp(name, "--config"))
        return fail_usage(reader->err, "line %zu: a configuration cannot name another", out->line);
    for (int i = 0; i < reader->out->count; i++)
        if (same_option(reader->out->arguments[i], out->row->name))
            return fail_usage(reader->err, "line %zu: %s is there a second time", out->line, out->key);
    return true;
}

static bool read_entries(struct config_reader *reader)
{
    while (next(reader) && reader->event.type != YAML_MAPPING_END_EVENT) {
        struct config_entry entry = { 0 };
        if (reader->event.type != YAML_SCALAR_EVENT)
            return fail_usage(reader->err, "line %zu: an option's name was expected", line_of(reader));
        if (!find_entry(reader, &entry) || !next(reader) || !read_value(reader, &entry))
            return false;
    }
    return reader->event.type == YAML_MAPPING_END_EVENT;
}

static bool read_stream(struct config_reader *reader)
{
    if (!next(reader) || !next(reader)) // the stream's start, then a document's
        return false;
    if (reader->event.type == YAML_STREAM_END_EVENT)
        return true;
    if (!next(reader))
        return false;
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return fail_usage(reader->err, "line %zu: lines of the form `option: value` were expected", line_of(reader));
    if (!read_entries(reader) || !next(reader) || !next(reader)) // the document's end, and then the stream's
        return false;
    return reader->event.type == YAML_STREAM_END_EVENT
        || fail_usage(reader->err, "line %zu: a second document begins; one is read", line_of(reader));
}

bool config_parse(struct bytes in, const struct option_row *options, struct config *out, struct error *err)
{
    *out = (struct config){ 0 };
    if (in.len > CONFIG_BYTES_MAX)
        return fail(err, "it has %zu bytes, and a configuration may have %d", in.len, CONFIG_BYTES_MAX);
    struct config_reader reader = { .options = options, .out = out, .err = err };
    if (!yaml_parser_initialize(&reader.parser))
        return fail(err, "there is no memory to read it");
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)(in.len ? in.data : ""), in.len);
    bool ok = read_stream(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return ok;
}

void config_free(struct config *config)
{
    arena_free(&config->arena);
    *config = (struct config){ 0 };
}

// ---- the command line ---------------------------------------------------------------------------------------------

static const char *config_path(int argc, char **argv)
{
    static const char name[] = "--config";
    const char *path = NULL;
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (!same_option(argv[i], name))
            continue;
        const char *equals = strchr(argv[i], '=');
        path = equals ? equals + 1 : argv[i + 1]; // argv ends in NULL, which the options' parser will call missing
    }
    return path;
}

static bool on_command_line(const char *argument, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (same_option(argument, argv[i]))
            return true;
    return false;
}

static bool read_file(struct config *config, const char *path, const struct option_row *options, struct error *err)
{
    struct file file;
    if (!file_open(&file, path, err))
        return false;
    bool ok = config_parse(file.content, options, config, err) || fail_within(err, "%s", path);
    file_close(&file);
    return ok;
}

char **config_apply(struct config *config, const struct option_row *options, int *argc, char **argv, struct error *err)
{
    *config = (struct config){ 0 };
    const char *path = config_path(*argc, argv);
    if (path && !read_file(config, path, options, err))
        return NULL;
    char **merged = ARENA_NEW(&config->arena, char *, config->count + *argc + 1);
    int count = 0;
    merged[count++] = argv[0];
    for (int i = 0; i < config->count; i++)
        if (!on_command_line(config->arguments[i], *argc, argv))
            merged[count++] = config->arguments[i];
    memcpy(merged + count, argv + 1, (size_t)(*argc - 1) * sizeof *merged);
    *argc = count + *argc - 1;
    return merged;
}
