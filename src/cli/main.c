// SPDX-License-Identifier: Apache-2.0
// cli/main.c: the entry point: finds the command and runs it.
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/mapping.h"
#include "base/suggest.h"
#include "cli/cli.h"

static const struct {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "serve", "answer many at once over the OpenAI API, with a page to chat", command_serve },
    { "run", "answer a prompt, or chat in the terminal", command_run },
    { "plan", "what would run: every layer's format and kernel", command_plan },
    { "kernels", "what this build can compute where; tests and timings", command_kernels },
    { "bench", "tokens per second, beside what the machine can do", command_bench },
    { "eval", "perplexity of a text, and what a cache format costs", command_eval },
    { "tune", "cache formats for each layer, found by measuring", command_tune },
    { "quantize", "a checkpoint with smaller weights, as published", command_quantize },
    { "tokenize", "text to token ids and back", command_tokenize },
    { "render", "the prompt a chat becomes", command_render },
    { "env", "a report of this machine", command_env },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out)
{
    fprintf(out, "nibble %s runs large language models with weights and KV cache of 16, 8 or 4 bits.\n\n",
            nibble_version());
    fprintf(out, "usage: nibble COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].about);
    fprintf(out,
            "\nMODEL is a .gguf file, a folder with config.json and safetensors, or org/name in the\n"
            "Hugging Face cache. `nibble help COMMAND` has the options, `nibble --version` the version.\n\n"
            "example: nibble run SmolLM2-135M-Instruct.Q4_1.gguf \"What is a nibble?\"\n");
}

static int unknown_command(const char *word)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    const char *near = suggest(bytes_of(word), names, COMMANDS);
    fprintf(stderr, "nibble: there is no command \"%.60s\"%s%s%s; `nibble --help` lists them\n", word,
            near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
    return EXIT_USAGE;
}

// All text is UTF-8. The line editor takes the encoding from the locale and drops bytes that it cannot read, so the
// locale is set even where the environment has none (ssh, cron and containers). LC_CTYPE alone: numbers keep their
// point.
static void choose_encoding(void)
{
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8"))
        setlocale(LC_CTYPE, "C.UTF-8");
}

static int run_command(const char *name, int argc, char **argv)
{
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(name, commands[i].name))
            return commands[i].run(argc, argv);
    return unknown_command(name);
}

// `nibble help COMMAND` is `nibble COMMAND --help`.
static int help_on(char *name)
{
    char *argv[] = { name, "--help", NULL };
    return run_command(name, 2, argv);
}

static bool is_help(const char *word)
{
    return !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); // a closed pipe or socket is an error of write, not a death
    choose_encoding();
    mapping_guard();
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (is_help(argv[1]) && argc > 2 && !is_help(argv[2]))
        return help_on(argv[2]);
    if (is_help(argv[1])) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("nibble %s\n", nibble_version());
        return EXIT_DONE;
    }
    return run_command(argv[1], argc - 1, argv + 1);
}
