// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/suggest.h"
#include "cli/cli.h"

enum { OPTIONS_MAX = 64, HELP_COLUMN = 34 };

static void print_help(const struct command_line *line)
{
    printf("usage: %s\n%s\n\n", line->usage, line->about);
    for (const struct option_row *row = line->options; row->name; row++) {
        if (row->kind == OPTION_HEADING) {
            printf("%s:\n", row->name);
            continue;
        }
        bool opposite = row->kind == OPTION_SWITCH;
        int width = printf("  %s%s%s%s%s%s", opposite ? "--[no-]" : "", row->name + (opposite ? 2 : 0),
                           row->short_name ? ", " : "", row->short_name ? row->short_name : "",
                           row->argument ? " " : "", row->argument ? row->argument : "");
        printf("%*s%s\n", width < HELP_COLUMN ? HELP_COLUMN - width : 1, "", row->help);
    }
    printf("  %-*s%s\n\nexample: %s\n", HELP_COLUMN - 2, "--help", "show this", line->example);
}

static bool wrong(const struct command_line *line, const char *what, const char *name, size_t name_len,
                  const char *hint)
{
    fprintf(stderr, "nibble: %s %.*s%s; usage: %s\n", what, (int)name_len, name, hint, line->usage);
    return false;
}

static bool is_opposite(const struct option_row *row, struct bytes name)
{
    struct bytes no = bytes_of("--no-");
    return row->kind == OPTION_SWITCH && bytes_start_with(name, no)
        && bytes_equal((struct bytes){ name.data + no.len, name.len - no.len }, bytes_of(row->name + 2));
}

const struct option_row *option_find(const struct option_row *options, struct bytes name, const char **near)
{
    const char *names[OPTIONS_MAX];
    size_t count = 0;
    for (const struct option_row *row = options; row->name; row++) {
        if (row->kind == OPTION_HEADING)
            continue;
        if (bytes_equal(bytes_of(row->name), name) || is_opposite(row, name)
            || (row->short_name && bytes_equal(bytes_of(row->short_name), name)))
            return row;
        assert(count < OPTIONS_MAX);
        names[count++] = row->name;
    }
    *near = suggest(name, names, count);
    return NULL;
}

static bool set_number(const struct command_line *line, const struct option_row *row, const char *value)
{
    char *end, hint[160];
    errno = 0;
    long long integer = row->kind == OPTION_INT ? strtoll(value, &end, 10) : 0;
    double real = row->kind == OPTION_INT ? (double)integer : strtod(value, &end);
    if (end == value || *end || errno || !(real >= row->low && real <= row->high)) {
        snprintf(hint, sizeof hint, " takes %s from %.15g to %.15g, not \"%.40s\"",
                 row->kind == OPTION_INT ? "a whole number" : "a number", row->low, row->high, value);
        return wrong(line, "option", row->name, strlen(row->name), hint);
    }
    if (row->kind == OPTION_INT)
        *(long long *)row->target = integer;
    else
        *(double *)row->target = real;
    return true;
}

// "64G", "512M", "100K" or plain bytes.
static bool set_size(const struct command_line *line, const struct option_row *row, const char *value)
{
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (end == value || *value == '-' || errno || (*end && (!unit || end[1])) || number > (SIZE_MAX >> shift)
        || !number)
        return wrong(line, "option", row->name, strlen(row->name), " takes a size such as 512M or 24G");
    *(size_t *)row->target = (size_t)number << shift;
    return true;
}

static bool wrong_word(const struct command_line *line, const struct option_row *row, const char *value)
{
    struct strbuf hint = { 0 };
    size_t count = 0;
    strbuf_add_text(&hint, " takes ");
    for (; row->words[count]; count++)
        strbuf_add_format(&hint, "%s%s", !count ? "" : row->words[count + 1] ? ", " : " or ", row->words[count]);
    const char *near = suggest(bytes_of(value), row->words, count);
    strbuf_add_format(&hint, ", not \"%.40s\"", value);
    if (near)
        strbuf_add_format(&hint, ", did you mean %s?", near);
    wrong(line, "option", row->name, strlen(row->name), hint.data);
    strbuf_free(&hint);
    return false;
}

static bool set_word(const struct command_line *line, const struct option_row *row, const char *value)
{
    for (int i = 0; row->words[i]; i++)
        if (!strcmp(row->words[i], value)) {
            *(int *)row->target = i;
            return true;
        }
    return wrong_word(line, row, value);
}

static bool add_text(const struct command_line *line, const struct option_row *row, const char *value)
{
    struct option_texts *texts = row->target;
    if (texts->count == OPTION_TEXTS_MAX)
        return wrong(line, "too many of option", row->name, strlen(row->name), "");
    texts->items[texts->count++] = value;
    return true;
}

static bool set_option(const struct command_line *line, const struct option_row *row, const char *value)
{
    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)row->target = value;
        return true;
    case OPTION_TEXTS:
        return add_text(line, row, value);
    case OPTION_WORD:
        return set_word(line, row, value);
    case OPTION_LIST:
        strbuf_add_format(row->target, "%s ", value);
        return true;
    case OPTION_SIZE:
        return set_size(line, row, value);
    default:
        return set_number(line, row, value);
    }
}

// A list goes on with words that can only be its own: layers, ranges and what windowed layers are called; and a list of
// texts with whatever is not an option, once every positional is there.
static bool continues_list(const struct option_row *row, const char *word, bool positionals_full)
{
    if (row->kind == OPTION_TEXTS)
        return positionals_full && *word != '-';
    return row->kind == OPTION_LIST
        && ((*word >= '0' && *word <= '9' && strspn(word, "0123456789-,") == strlen(word))
            || !strncmp(word, "sliding", 7));
}

static bool unknown_option(const struct command_line *line, struct bytes name, const char *near)
{
    char hint[128] = "";
    if (near)
        snprintf(hint, sizeof hint, ", did you mean %s?", near);
    return wrong(line, "unknown option", name.data, name.len, hint);
}

// The option at argv[*at], which moves past its value.
static bool take_option(const struct command_line *line, int argc, char **argv, int *at, bool positionals_full)
{
    const char *word = argv[*at], *equals = strchr(word, '=');
    struct bytes name = { word, equals ? (size_t)(equals - word) : strlen(word) };
    const char *near;
    const struct option_row *row = option_find(line->options, name, &near);
    if (!row)
        return unknown_option(line, name, near);
    if (row->kind == OPTION_FLAG || row->kind == OPTION_SWITCH) {
        *(bool *)row->target = !is_opposite(row, name);
        return !equals || wrong(line, "option", row->name, strlen(row->name), " takes no value");
    }
    if (!equals && *at + 1 >= argc)
        return wrong(line, "option", row->name, strlen(row->name), " needs a value");
    bool ok = set_option(line, row, equals ? equals + 1 : argv[++*at]);
    while (ok && !equals && *at + 1 < argc && continues_list(row, argv[*at + 1], positionals_full))
        ok = set_option(line, row, argv[++*at]);
    return ok;
}

int options_parse(const struct command_line *line, int argc, char **argv, int *count)
{
    bool options_over = false;
    *count = 0;
    for (int at = 1; at < argc; at++) {
        const char *word = argv[at];
        if (options_over || word[0] != '-' || !word[1]) {
            argv[(*count)++] = argv[at];
        } else if (!strcmp(word, "--")) {
            options_over = true;
        } else if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            print_help(line);
            return EXIT_DONE;
        } else if (!take_option(line, argc, argv, &at, *count == line->positional_max)) {
            return EXIT_USAGE;
        }
    }
    if (*count < line->positional_min)
        wrong(line, "something is missing", "", 0, "");
    else if (line->positional_max >= 0 && *count > line->positional_max)
        wrong(line, "too many arguments from", argv[line->positional_max], strlen(argv[line->positional_max]), " on");
    else
        return -1;
    return EXIT_USAGE;
}
