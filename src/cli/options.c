// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
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

__attribute__((format(printf, 2, 3))) static bool wrong(const struct command_line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "nibble: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "; usage: %s\n", line->usage);
    va_end(args);
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
    char *end;
    errno = 0;
    bool whole = row->kind != OPTION_REAL;
    long long integer = whole ? strtoll(value, &end, 10) : 0;
    double real = whole ? (double)integer : strtod(value, &end);
    if (end == value || *end || errno || !(real >= row->low && real <= row->high))
        return wrong(line, "option %s takes %s from %.15g to %.15g, not \"%.40s\"", row->name,
                     whole ? "a whole number" : "a number", row->low, row->high, value);
    if (row->kind == OPTION_INT)
        *(int *)row->target = (int)integer;
    else if (row->kind == OPTION_LONG)
        *(int64_t *)row->target = integer;
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
        return wrong(line, "option %s takes a size such as 512M or 24G, not \"%.40s\"", row->name, value);
    *(size_t *)row->target = (size_t)number << shift;
    return true;
}

static bool wrong_word(const struct command_line *line, const struct option_row *row, const char *value)
{
    struct strbuf words = { 0 };
    size_t count = 0;
    for (; row->words[count]; count++)
        strbuf_add_format(&words, "%s%s", !count ? "" : row->words[count + 1] ? ", " : " or ", row->words[count]);
    const char *near = suggest(bytes_of(value), row->words, count);
    wrong(line, "option %s takes %s, not \"%.40s\"%s%s%s", row->name, words.data, value, near ? ", did you mean " : "",
          near ? near : "", near ? "?" : "");
    strbuf_free(&words);
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
        return wrong(line, "option %s is given more than %d times", row->name, OPTION_TEXTS_MAX);
    texts->items[texts->count++] = value;
    return true;
}

// Like all other texts of options, which stand in argv, a list lives as long as the process.
static void add_to_list(const char **list, const char *value)
{
    static struct arena lists;
    *list = arena_format(&lists, "%s%s ", *list ? *list : "", value);
}

static bool set_option(const struct command_line *line, const struct option_row *row, const char *value)
{
    switch (row->kind) {
    case OPTION_TEXT: *(const char **)row->target = value; return true;
    case OPTION_TEXTS: return add_text(line, row, value);
    case OPTION_WORD: return set_word(line, row, value);
    case OPTION_LIST: add_to_list(row->target, value); return true;
    case OPTION_SIZE: return set_size(line, row, value);
    default: return set_number(line, row, value);
    }
}

// A list continues with words that can only belong to it: layers, ranges and "sliding_window"; a list of texts with any
// word that is not an option, once every positional is there.
static bool continues_list(const struct option_row *row, const char *word, bool positionals_full)
{
    if (row->kind == OPTION_TEXTS)
        return positionals_full && *word != '-';
    return row->kind == OPTION_LIST
        && ((*word >= '0' && *word <= '9' && strspn(word, "0123456789-,") == strlen(word))
            || !strncmp(word, "sliding", 7));
}

// Parses the option at argv[*at] and moves past its value.
static bool take_option(const struct command_line *line, int argc, char **argv, int *at, bool positionals_full)
{
    const char *word = argv[*at], *equals = strchr(word, '=');
    struct bytes name = { word, equals ? (size_t)(equals - word) : strlen(word) };
    const char *near;
    const struct option_row *row = option_find(line->options, name, &near);
    if (!row)
        return wrong(line, "unknown option %.*s%s%s%s", (int)name.len, name.data, near ? ", did you mean " : "",
                     near ? near : "", near ? "?" : "");
    if (row->kind == OPTION_FLAG || row->kind == OPTION_SWITCH) {
        *(bool *)row->target = !is_opposite(row, name);
        return !equals || wrong(line, "option %s takes no value", row->name);
    }
    if (!equals && *at + 1 >= argc)
        return wrong(line, "option %s needs a value", row->name);
    bool ok = set_option(line, row, equals ? equals + 1 : argv[++*at]);
    while (ok && !equals && *at + 1 < argc && continues_list(row, argv[*at + 1], positionals_full))
        ok = set_option(line, row, argv[++*at]);
    return ok;
}

// Says which positionals are missing, all in one sentence.
static bool lacks_positionals(const struct command_line *line, int count)
{
    struct strbuf names = { 0 };
    int required = 0, missing = 0;
    while (line->required[required])
        required++;
    for (int i = count; i < required; i++, missing++)
        strbuf_add_format(&names, "%s%s", !missing ? "" : i + 1 < required ? ", " : " and ", line->required[i]);
    if (missing)
        wrong(line, "%s %s missing", names.data, missing > 1 ? "are" : "is");
    strbuf_free(&names);
    return missing;
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
    if (lacks_positionals(line, *count))
        return EXIT_USAGE;
    if (line->positional_max >= 0 && *count > line->positional_max)
        wrong(line, "too many arguments from %s on", argv[line->positional_max]);
    else
        return -1;
    return EXIT_USAGE;
}
