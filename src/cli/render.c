// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/options.h"

static bool render(const char *model, const char *template_file, const char *messages, struct nibble_text *out,
                   struct nibble_error *error)
{
    struct nibble_checkpoint *checkpoint = model ? nibble_checkpoint_open(model, NIBBLE_NEED_TEXT, error) : NULL;
    struct nibble_chat *chat = checkpoint || !model ? nibble_chat_open(checkpoint, template_file, error) : NULL;
    struct nibble_text json = { 0 };
    bool ok = chat && cli_read(messages, &json, error) && nibble_chat_render(chat, json.data, json.len, out, error);
    free(json.data);
    nibble_chat_close(chat);
    nibble_checkpoint_close(checkpoint);
    return ok;
}

int command_render(int argc, char **argv)
{
    const char *template_file = NULL;
    const struct option_row options[] = {
        { "--chat-template", OPTION_TEXT, &template_file, "FILE", "a Jinja template to use instead of the model's" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble render (MODEL | --chat-template FILE) MESSAGES.json",
        .about =
            "Prints the prompt that a chat becomes. MESSAGES.json (- for standard input) is a list of messages, or an\n"
            "object with messages, tools, add_generation_prompt (true) and any further variable of the template.",
        .example = "echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | nibble render model.gguf -",
        .options = options,
        .required = { "MESSAGES.json" },
        .positional_max = 2,
    };
    int count;
    int parsed = options_parse(&line, argc, argv, &count);
    if (parsed >= 0)
        return parsed;
    struct nibble_text prompt = { 0 };
    struct nibble_error error = {
        .text = "render needs a model, or a template with --chat-template FILE, before MESSAGES.json", .usage = true
    };
    bool enough = count == 2 || template_file;
    int status = enough && render(count == 2 ? argv[0] : NULL, template_file, argv[count - 1], &prompt, &error)
        ? EXIT_DONE
        : cli_fail(&error, false);
    if (status == EXIT_DONE)
        status = cli_output(prompt.data, prompt.len);
    free(prompt.data);
    return status;
}
