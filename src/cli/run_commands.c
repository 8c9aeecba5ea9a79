// SPDX-License-Identifier: Apache-2.0
#include "cli/run_commands.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "cli/run_file.h"
#include "cli/run_print.h"
#include "cli/run_settings.h"
#include "text/messages.h"

enum { NAME_MAX_LEN = 16 };

struct command {
    const char *name, *argument, *help;
    bool (*run)(struct run_chat *chat, struct bytes argument, struct error *err);
    bool needs_chat; // it means nothing with --raw
    bool needs_argument;
    void (*complete)(struct terminal_words *out, struct bytes begun); // NULL: there is nothing to complete
};

static const struct command *first_command(void);

// ---- the commands -------------------------------------------------------------------------------------------------

static bool help(struct run_chat *chat, struct bytes argument, struct error *err)
{
    (void)chat, (void)argument, (void)err;
    for (const struct command *row = first_command(); row->name; row++) {
        char usage[48];
        snprintf(usage, sizeof usage, "/%s%s%s", row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        cli_print("  %-20s%s\n", usage, row->help);
    }
    cli_print("Several lines are one message between \"\"\" and \"\"\", with \\ at the end of each line, or pasted.\n"
              "A message that looks like a command: begin it with a space.\n"
              "Ctrl-C stops an answer; arrow keys recall messages; Tab completes commands.\n");
    return true;
}

static bool clear(struct run_chat *chat, struct bytes argument, struct error *err)
{
    const char *system = run_chat_system(chat);
    size_t keep = system ? 1 : 0;
    (void)argument, (void)err;
    while (json_array_size(chat->messages) > keep)
        json_array_remove(chat->messages, keep);
    free(chat->file);
    chat->file = NULL;
    cli_print("the conversation is forgotten%s\n", system ? "; the system message stays (/system - removes it)" : "");
    return true;
}

static bool set_system(struct run_chat *chat, struct bytes argument, struct error *err)
{
    const char *system = run_chat_system(chat);
    if (!argument.len) {
        cli_print("%s\n", system ? system : "there is no system message; /system TEXT sets one");
        return true;
    }
    bool none = bytes_equal(argument, bytes_of("-"));
    if (!run_chat_set_system(chat, none ? bytes_of("") : argument, err))
        return false;
    cli_print("the system message is %s from the next answer on\n", none ? "gone" : "set");
    return true;
}

static bool set(struct run_chat *chat, struct bytes argument, struct error *err)
{
    if (argument.len)
        return run_settings_set(chat->session, argument, err);
    run_settings_print(chat->session);
    return true;
}

static bool save(struct run_chat *chat, struct bytes argument, struct error *err)
{
    if (!run_file_save(chat, argument.data, err))
        return false;
    cli_print("%zu messages saved\n", json_array_size(chat->messages));
    return true;
}

static bool load(struct run_chat *chat, struct bytes argument, struct error *err)
{
    return run_file_load(chat, argument.data, err);
}

static bool check_last(const struct run_chat *chat, const char *name, struct error *err)
{
    return run_chat_last_message(chat).data || fail(err, "/%s: there is no message yet", name);
}

static bool regenerate(struct run_chat *chat, struct bytes argument, struct error *err)
{
    (void)argument;
    if (!check_last(chat, "regen", err))
        return false;
    if (chat->session->sampling.temperature == 0)
        cli_print("the temperature is 0, so the answer is the same; /set temperature 0.7 for another\n");
    return run_chat_answer_again(chat, err);
}

static bool edit(struct run_chat *chat, struct bytes argument, struct error *err)
{
    (void)argument;
    if (!check_last(chat, "edit", err))
        return false;
    chat->editing = true;
    terminal_prefill(chat->terminal, run_chat_last_message(chat).data);
    return true;
}

static bool bye(struct run_chat *chat, struct bytes argument, struct error *err)
{
    (void)argument, (void)err;
    chat->leaving = true;
    return true;
}

// ---- /show --------------------------------------------------------------------------------------------------------

static void show_model(struct run_chat *chat, struct error *err)
{
    struct nibble_text line = { 0 };
    (void)err;
    run_commands_describe_model(chat, &line);
    cli_print("%.*s\n", (int)line.len, line.data);
    free(line.data);
}

static void show_plan(struct run_chat *chat, struct error *err)
{
    struct nibble_text plan = { 0 };
    nibble_plan_print(nibble_engine_plan(chat->session->engine), NIBBLE_PLAN_FULL, 0, &plan);
    cli_write(plan.data, plan.len, err);
    free(plan.data);
}

static void show_settings(struct run_chat *chat, struct error *err)
{
    (void)err;
    session_print_sampling(chat->session);
    run_settings_print(chat->session);
}

static void show_system(struct run_chat *chat, struct error *err) { set_system(chat, bytes_of(""), err); }

static void show_chat(struct run_chat *chat, struct error *err)
{
    const json_t *message;
    size_t index;
    json_array_foreach (chat->messages, index, message) {
        const json_t *content = json_object_get(message, "content");
        struct run_print print;
        bool answer = message_has_role(message, "assistant");
        run_print_open(&print, chat->session);
        print.markdown = print.markdown && answer;
        if (!answer)
            run_print_add(&print, bytes_of(message_has_role(message, "user") ? "> " : "system: "), err);
        run_print_add(&print, (struct bytes){ json_string_value(content), json_string_length(content) }, err);
        run_print_finish(&print, err);
        run_print_close(&print);
    }
}

static const struct topic {
    const char *name;
    void (*show)(struct run_chat *chat, struct error *err);
} topics[] = { { "model", show_model },
               { "settings", show_settings },
               { "system", show_system },
               { "plan", show_plan },
               { "chat", show_chat } };
enum { TOPICS = sizeof topics / sizeof *topics };

static bool show(struct run_chat *chat, struct bytes argument, struct error *err)
{
    const char *names[TOPICS];
    for (int i = 0; i < TOPICS; i++) {
        names[i] = topics[i].name;
        if (bytes_equal(argument, bytes_of(topics[i].name)) || (!argument.len && i == 0)) {
            topics[i].show(chat, err);
            return true;
        }
    }
    const char *near = suggest(argument, names, TOPICS);
    return fail(err, "/show takes model, settings, system, plan or chat, not \"%.40s\"%s%s%s", argument.data,
                near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
}

// ---- completion ---------------------------------------------------------------------------------------------------

static void complete_setting(struct terminal_words *out, struct bytes begun)
{
    (void)begun;
    run_settings_complete(out);
}

static void complete_topic(struct terminal_words *out, struct bytes begun)
{
    (void)begun;
    for (int i = 0; i < TOPICS; i++)
        terminal_words_add(out, topics[i].name);
}

static void complete_file(struct terminal_words *out, struct bytes begun)
{
    glob_t found = { 0 };
    struct strbuf pattern = { 0 };
    strbuf_add(&pattern, begun.data, begun.len);
    strbuf_add_byte(&pattern, '*');
    if (glob(pattern.data, GLOB_MARK, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            terminal_words_add(out, found.gl_pathv[i]);
    globfree(&found);
    strbuf_free(&pattern);
}

// ---- the table ----------------------------------------------------------------------------------------------------

static const struct command commands[] = {
    { "help", NULL, "this list", help },
    { "clear", NULL, "forget the conversation", clear, .needs_chat = true },
    { "system", "[TEXT | -]", "show, set or remove the system message", set_system, .needs_chat = true },
    { "set", "[NAME VALUE]", "list settings, or change one", set, .complete = complete_setting },
    { "show", "[WHAT]", "model, settings, system, plan or chat", show, .complete = complete_topic },
    { "save", "FILE", "write the conversation to a file", save, true, true, complete_file },
    { "load", "FILE", "go on with the conversation in a file", load, true, true, complete_file },
    { "regen", NULL, "answer the last message again", regenerate, .needs_chat = true },
    { "edit", NULL, "change the last message, and have it answered", edit, .needs_chat = true },
    { "bye", NULL, "leave (also /exit, /quit and Ctrl-D)", bye },
    { 0 },
};
enum { COMMANDS = sizeof commands / sizeof *commands - 1 };

// Other programs' words.
static const struct {
    const char *word, *name;
} synonyms[] = { { "exit", "bye" }, { "quit", "bye" }, { "?", "help" } };

static const struct command *first_command(void) { return commands; }

static struct bytes name_in(struct bytes text)
{
    size_t len = 1;
    while (len < text.len && ((text.data[len] >= 'a' && text.data[len] <= 'z') || text.data[len] == '?'))
        len++;
    return (struct bytes){ text.data + 1, len - 1 };
}

bool run_commands_is_one(struct bytes text)
{
    if (!text.len || text.data[0] != '/' || memchr(text.data, '\n', text.len))
        return false;
    size_t len = 1 + name_in(text).len;
    return len > 1 && (len == text.len || text.data[len] == ' ');
}

static const struct command *find(struct bytes name, struct error *err)
{
    const char *names[COMMANDS];
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (bytes_equal(name, bytes_of(synonyms[i].word)))
            name = bytes_of(synonyms[i].name);
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (bytes_equal(name, bytes_of(commands[i].name)))
            return &commands[i];
    }
    const char *near = suggest(name, names, COMMANDS);
    fail(err, "there is no command /%.*s%s%s%s; /help lists them, and a message may begin with a space",
         (int)(name.len < NAME_MAX_LEN ? name.len : NAME_MAX_LEN), name.data, near ? ", did you mean /" : "",
         near ? near : "", near ? "?" : "");
    return NULL;
}

static struct bytes trimmed(struct bytes text)
{
    while (text.len && text.data[0] == ' ')
        text = bytes_from(text, 1);
    while (text.len && text.data[text.len - 1] == ' ')
        text.len--;
    return text;
}

bool run_commands_do(struct run_chat *chat, struct bytes text, struct error *err)
{
    struct bytes name = name_in(text), argument = trimmed(bytes_from(text, 1 + name.len));
    const struct command *command = find(name, err);
    if (!command)
        return false;
    if (command->needs_chat && !chat->session->chat)
        return fail(err, "/%s needs a conversation, and with --raw there is none", command->name);
    if (command->needs_argument && !argument.len)
        return fail(err, "/%s needs a %s", command->name, command->argument);
    if (!command->argument && argument.len)
        return fail(err, "/%s takes nothing behind it", command->name);
    struct strbuf copy = { 0 }; // with a terminator
    strbuf_add(&copy, argument.data, argument.len);
    bool ok = command->run(chat, strbuf_bytes(&copy), err);
    strbuf_free(&copy);
    return ok;
}

void run_commands_complete(struct bytes line, struct terminal_words *out)
{
    if (!line.len || line.data[0] != '/' || memchr(line.data, '\n', line.len))
        return;
    struct bytes name = name_in(line);
    if (1 + name.len == line.len) {
        out->from = 1;
        for (int i = 0; i < COMMANDS; i++)
            terminal_words_add(out, commands[i].name);
        return;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (bytes_equal(name, bytes_of(commands[i].name)) && commands[i].complete) {
            out->from = 1 + name.len;
            while (out->from < line.len && line.data[out->from] == ' ')
                out->from++;
            commands[i].complete(out, bytes_from(line, out->from));
        }
}

// ---- the model ----------------------------------------------------------------------------------------------------

static json_t *plan_of(const struct session *session)
{
    struct nibble_text text = { 0 };
    nibble_plan_print(nibble_engine_plan(session->engine), NIBBLE_PLAN_JSON, 0, &text);
    json_t *plan = json_loadb(text.data, text.len, 0, NULL);
    free(text.data);
    return plan;
}

// The format of all caches, "K/V" where it is two, or that there are several.
static void add_cache(struct strbuf *out, const json_t *layers)
{
    const json_t *layer;
    const char *k = NULL, *v = NULL;
    size_t index;
    bool several = false;
    json_array_foreach (layers, index, layer) {
        const char *own_k = json_string_value(json_object_get(layer, "k"));
        const char *own_v = json_string_value(json_object_get(layer, "v"));
        several |= k && v && own_k && own_v && (strcmp(k, own_k) || strcmp(v, own_v));
        k = own_k ? own_k : k;
        v = own_v ? own_v : v;
    }
    if (several)
        strbuf_add_text(out, "cache of several formats");
    else if (k && v && strcmp(k, v))
        strbuf_add_format(out, "%s/%s cache", k, v);
    else
        strbuf_add_format(out, "%s cache", k ? k : "no KV");
}

void run_commands_describe_model(const struct run_chat *chat, struct nibble_text *out)
{
    const struct session *session = chat->session;
    struct strbuf line = { 0 };
    json_t *plan = plan_of(session);
    const char *name = strrchr(session->model, '/');
    strbuf_add_format(&line, "%s on %s\ncontext: %d tokens, ", name && name[1] ? name + 1 : session->model,
                      nibble_engine_device(session->engine), nibble_engine_max_model_len(session->engine));
    add_cache(&line, json_object_get(plan, "layers"));
    json_decref(plan);
    *out = (struct nibble_text){ line.data, line.len, line.cap };
}
