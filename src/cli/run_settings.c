// SPDX-License-Identifier: Apache-2.0
#include "cli/run_settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/cli.h"

enum kind { REAL, WHOLE, SEED, ON, OFF }; // ON: a bool that means what the word says; OFF: one that means the opposite

struct setting {
    const char *name;
    enum kind kind;
    size_t offset;
    double low, high;
    const char *help;
};

#define SETTING(member) offsetof(struct session, member)

static const struct setting settings[] = {
    { "temperature", REAL, SETTING(sampling.temperature), 0, 100, "0: always the most likely token" },
    { "top_p", REAL, SETTING(sampling.top_p), 1e-6, 1, "draw from the likeliest tokens that sum to this (1: off)" },
    { "top_k", WHOLE, SETTING(sampling.top_k), 0, 1 << 28, "draw from so many of the likeliest (0: off)" },
    { "min_p", REAL, SETTING(sampling.min_p), 0, 1, "drop tokens below this times the likeliest (0: off)" },
    { "repetition_penalty", REAL, SETTING(sampling.repetition_penalty), 1e-6, 100, "1: off" },
    { "presence_penalty", REAL, SETTING(sampling.presence_penalty), -100, 100, "0: off" },
    { "frequency_penalty", REAL, SETTING(sampling.frequency_penalty), -100, 100, "0: off" },
    { "seed", SEED, SETTING(sampling.seed), 0, 9007199254740991, "the same seed draws the same answer" },
    { "max_tokens", WHOLE, SETTING(max_tokens), 0, 1 << 28, "longest answer (0: what the context holds)" },
    { "verbose", ON, SETTING(figures), 0, 0, "tokens and their rate after each answer" },
    { "thoughts", OFF, SETTING(hide_thoughts), 0, 0, "show what the model thinks before it answers" },
    { "markdown", OFF, SETTING(plain_text), 0, 0, "headings, lists and code in colours" },
    { "wrap", OFF, SETTING(no_wrap), 0, 0, "break lines between words" },
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static const struct setting *find(struct bytes name, struct error *err)
{
    const char *names[SETTINGS];
    for (int i = 0; i < SETTINGS; i++) {
        names[i] = settings[i].name;
        if (bytes_equal(name, bytes_of(settings[i].name)))
            return &settings[i];
    }
    const char *near = suggest(name, names, SETTINGS);
    fail(err, "/set: there is no setting \"%.*s\"%s%s%s; /set alone lists them", (int)(name.len < 40 ? name.len : 40),
         name.data, near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
    return NULL;
}

static bool set_switch(struct session *session, const struct setting *setting, const char *value, struct error *err)
{
    bool on = !strcmp(value, "on");
    if (!on && strcmp(value, "off"))
        return fail(err, "/set %s takes on or off, not \"%.40s\"", setting->name, value);
    *(bool *)((char *)session + setting->offset) = on == (setting->kind == ON);
    return true;
}

static bool set_number(struct session *session, const struct setting *setting, const char *value, struct error *err)
{
    char *end;
    bool whole = setting->kind != REAL;
    errno = 0;
    long long integer = whole ? strtoll(value, &end, 10) : 0;
    double number = whole ? (double)integer : strtod(value, &end);
    if (end == value || *end || errno || !(number >= setting->low && number <= setting->high))
        return fail(err, "/set %s takes %s from %.15g to %.15g, not \"%.40s\"", setting->name,
                    whole ? "a whole number" : "a number", setting->low, setting->high, value);
    void *target = (char *)session + setting->offset;
    if (setting->kind == REAL)
        *(double *)target = number;
    else if (setting->kind == WHOLE)
        *(int *)target = (int)integer;
    else
        *(uint64_t *)target = (uint64_t)integer;
    session->seeded |= setting->kind == SEED;
    return true;
}

bool run_settings_set(struct session *session, struct bytes text, struct error *err)
{
    char value[64];
    size_t len = 0, from;
    while (len < text.len && text.data[len] != ' ')
        len++;
    for (from = len; from < text.len && text.data[from] == ' ';)
        from++;
    const struct setting *setting = find((struct bytes){ text.data, len }, err);
    if (!setting)
        return false;
    if (from == text.len)
        return fail(err, "/set %s needs a value: %s", setting->name, setting->help);
    snprintf(value, sizeof value, "%.*s", (int)(text.len - from), text.data + from);
    return setting->kind >= ON ? set_switch(session, setting, value, err) : set_number(session, setting, value, err);
}

static void print_value(const struct session *session, const struct setting *setting, char *out, size_t size)
{
    const void *value = (const char *)session + setting->offset;
    switch (setting->kind) {
    case REAL: snprintf(out, size, "%g", *(const double *)value); break;
    case WHOLE: snprintf(out, size, "%d", *(const int *)value); break;
    case SEED: snprintf(out, size, "%s", session->seeded ? "" : "random"); break;
    default: snprintf(out, size, "%s", *(const bool *)value == (setting->kind == ON) ? "on" : "off"); break;
    }
    if (setting->kind == SEED && session->seeded)
        snprintf(out, size, "%llu", (unsigned long long)*(const uint64_t *)value);
}

void run_settings_print(const struct session *session)
{
    for (int i = 0; i < SETTINGS; i++) {
        char value[64];
        print_value(session, &settings[i], value, sizeof value);
        cli_print("  %-20s%-8s%s\n", settings[i].name, value, settings[i].help);
    }
}

void run_settings_complete(struct terminal_words *out)
{
    for (int i = 0; i < SETTINGS; i++)
        terminal_words_add(out, settings[i].name);
}
