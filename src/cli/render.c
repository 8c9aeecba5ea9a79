// SPDX-License-Identifier: Apache-2.0
// cli/render.c: `nibble render`: applies a chat template to messages and prints the prompt.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "format/json.h"

static const char expected[] = "a list of messages, [{\"role\": \"user\", \"content\": \"Hi\"}], was expected, or an "
                               "object that has one as \"messages\"";

// Puts the name of the file in front of the sentence and `more` after it. Always returns false.
static bool fail_about(struct error *err, const char *name, const char *more)
{
    struct error inner = *err;
    int room = (int)sizeof err->text - (int)strlen(name) - (int)strlen(more) - (int)sizeof ": ; ";
    snprintf(err->text, sizeof err->text, "%s: %.*s%s%s", name, room > 0 ? room : 0, inner.text, *more ? "; " : "",
             more);
    return false;
}

static const char *file_name(const char *path) { return strcmp(path, "-") ? path : "standard input"; }

// Reads and checks the messages before the template gets them, so that errors of the two can be distinguished. *listed:
// the object has a list of messages, which some templates do not need.
static bool read_messages(const char *path, struct nibble_text *json, bool *listed, struct error *err)
{
    json_t *root;
    if (!cli_read(path, json, err))
        return false;
    if (!json_read((struct bytes){ json->data, json->len }, &root, err))
        return fail_about(err, file_name(path), expected);
    const json_t *messages = json_is_array(root) ? root : json_object_get(root, "messages");
    bool ok = (json_is_array(root) || json_is_object(root))
        && (!messages || json_is_null(messages) || json_is_array(messages));
    *listed = json_is_array(messages);
    json_decref(root);
    if (!ok)
        fail(err, "%s", messages ? "\"messages\" is not a list" : "neither a list nor an object");
    return ok || fail_about(err, file_name(path), expected);
}

struct render_options {
    const char *template_file;
    bool as_served; // messages are what a client of the server sends
};

static bool render(const char *model, const struct render_options *options, const char *messages,
                   struct nibble_text *out, struct error *err)
{
    const char *template_file = options->template_file;
    struct nibble_checkpoint *checkpoint = model ? nibble_checkpoint_open(model, NIBBLE_NEED_TEXT, err) : NULL;
    struct nibble_chat *chat = checkpoint || !model ? nibble_chat_open(checkpoint, template_file, err) : NULL;
    struct nibble_text json = { 0 };
    bool listed;
    bool ok = chat && read_messages(messages, &json, &listed, err);
    if (ok
        && !(options->as_served ? nibble_chat_render_request : nibble_chat_render)(chat, json.data, json.len, out,
                                                                                   err)) {
        struct strbuf more = { 0 };
        if (!listed)
            strbuf_add_format(&more, "%s has no list called \"messages\"", file_name(messages));
        ok = fail_about(err, template_file ? template_file : model, strbuf_text(&more));
        strbuf_free(&more);
    }
    free(json.data);
    nibble_chat_close(chat);
    nibble_checkpoint_close(checkpoint);
    return ok;
}

int command_render(int argc, char **argv)
{
    struct render_options render_options = { 0 };
    const struct option_row options[] = {
        { "--chat-template", OPTION_TEXT, &render_options.template_file, "FILE",
          "a Jinja template to use instead of the model's" },
        { "--as-served", OPTION_FLAG, &render_options.as_served, NULL,
          "MESSAGES.json is a request to serve, and the prompt what serve makes of it" },
        { 0 },
    };
    const struct command_line line = {
        .usage = "nibble render (MODEL | --chat-template FILE) MESSAGES.json",
        .about = "Prints the prompt that a chat becomes. MESSAGES.json (- for standard input) is a list of messages, "
                 "or an\n"
                 "object with messages, tools, add_generation_prompt (true), continue_final_message (false) and any "
                 "further\n"
                 "variable of the template.",
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
    struct error err = { .text = "render needs a model, or a template with --chat-template FILE, before "
                                 "MESSAGES.json",
                         .usage = true };
    bool enough = count == 2 || render_options.template_file;
    int status = enough && render(count == 2 ? argv[0] : NULL, &render_options, argv[count - 1], &prompt, &err)
        ? EXIT_DONE
        : cli_fail(&err, false);
    if (status == EXIT_DONE)
        status = cli_output(prompt.data, prompt.len);
    free(prompt.data);
    return status;
}
