// SPDX-License-Identifier: Apache-2.0
#include "server/model.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "format/public.h"
#include "server/fingerprint.h"
#include "text/chat_builtin.h"

// A copy of the last part of a path. A link keeps its name; "." and "folder/" have the folder's.
static char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    char *whole = *last && strcmp(last, ".") && strcmp(last, "..") ? NULL : realpath(path, NULL);
    last = whole ? strrchr(whole, '/') + 1 : last;
    char *copy = memory_new(strlen(last) + 1, 1);
    strcpy(copy, last);
    free(whole);
    return copy;
}

static void cut_off(char *name, const char *pattern, size_t bytes)
{
    if (!fnmatch(pattern, name, 0))
        name[strlen(name) - bytes] = '\0';
}

// The name of a model that was given none: that of its file without .gguf and the number of its part, that of its
// folder, or org/name where it was asked for so.
static void set_own_name(struct served *served, const char *model)
{
    served->name = model;
    if (access(model, F_OK) != 0)
        return;
    served->name = served->own_name = last_part(model);
    cut_off(served->own_name, "?*.gguf", strlen(".gguf"));
    cut_off(served->own_name, "?*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]", strlen("-00001-of-00001"));
}

// A model without a template gets one that its vocabulary was made for, which is said; else chats are refused.
static void open_builtin_chat(struct served *served, const struct server_options *options)
{
    const struct checkpoint *checkpoint = &served->checkpoint->checkpoint;
    const struct chat_builtin *builtin = chat_builtin_find(served->tokenizer);
    if (builtin)
        served->chat = chat_open_source(checkpoint, builtin->source, &served->chat_error);
    if (served->chat)
        log_message(&options->log, LOG_WARNING, "chat",
                    "the model has no chat template; chats are written as %s, since "
                    "its vocabulary has %s; --chat-template FILE gives another",
                    builtin->family, builtin->begin);
    else
        fail(&served->chat_error,
             "the model has no chat template; start the server with --chat-template FILE, or use "
             "/v1/completions");
}

static bool open_text(struct served *served, const struct server_options *options, struct error *err)
{
    const struct checkpoint *checkpoint = &served->checkpoint->checkpoint;
    served->tokenizer = tokenizer_open(checkpoint, err);
    if (!served->tokenizer)
        return false;
    served->chat = chat_open(checkpoint, options->chat_template, &served->chat_error);
    if (!served->chat && options->chat_template)
        return *err = served->chat_error, false;
    if (!served->chat && !chat_has_template(checkpoint))
        open_builtin_chat(served, options);
    if (!served->chat)
        log_message(&options->log, LOG_WARNING, "chat", "chats will be refused: %s", served->chat_error.text);
    return true;
}

static bool open_engine(struct served *served, const struct server_options *options, struct error *err)
{
    served->engine = nibble_engine_open(served->checkpoint, &options->engine, err);
    if (!served->engine)
        return false;
    served->scheduler = nibble_scheduler_open(served->engine, &options->scheduler);
    nibble_plan_print(nibble_engine_plan(served->engine), NIBBLE_PLAN_JSON, 0, &served->plan);
    return true;
}

// Which ids end an answer, and how long tokens get.
static void survey_vocabulary(struct api *api)
{
    int size = tokenizer_size(api->tokenizer);
    size = size < api->logits ? size : api->logits;
    api->end_ids = memory_new((size_t)size, sizeof *api->end_ids);
    api->token_bytes_max = 1;
    for (int32_t id = 0; id < size; id++) {
        size_t len = tokenizer_piece(api->tokenizer, id).len;
        api->token_bytes_max = len > api->token_bytes_max ? len : api->token_bytes_max;
        if (tokenizer_is_end(api->tokenizer, id))
            api->end_ids[api->end_count++] = id;
    }
}

static bool describe(struct served *served, const struct server_options *options, struct error *err)
{
    struct api *api = &served->api;
    bool named = options->model_name_count;
    if (!named)
        set_own_name(served, options->model);
    *api = (struct api){
        .tokenizer = served->tokenizer,
        .chat = served->chat,
        .chat_error_text = served->chat_error.text,
        .vocabulary = &served->vocabulary,
        .has_seed = options->has_seed,
        .names = named ? options->model_names : &served->name,
        .name_count = named ? options->model_name_count : 1,
        .alias = named ? NULL : options->model,
        .root = options->model,
        .max_model_len = nibble_engine_max_model_len(served->engine),
        .logits = nibble_engine_vocabulary(served->engine),
        .created = time(NULL),
        .plan = served->plan.data,
        .plan_len = served->plan.len,
    };
    fingerprint_print(&served->checkpoint->checkpoint, (struct bytes){ served->plan.data, served->plan.len },
                      api->fingerprint, sizeof api->fingerprint);
    survey_vocabulary(api);
    if (!nibble_sampling_defaults(served->checkpoint, &api->defaults, err))
        return false;
    api->defaults.seed = options->seed;
    return true;
}

bool served_open(struct served *served, const struct server_options *options, struct error *err)
{
    *served = (struct served){ .vocabulary.lock = PTHREAD_MUTEX_INITIALIZER };
    served->checkpoint = nibble_checkpoint_open(options->model, NIBBLE_NEED_ALL, err);
    if (served->checkpoint && open_text(served, options, err) && open_engine(served, options, err)
        && describe(served, options, err))
        return true;
    served_close(served);
    return false;
}

void served_close(struct served *served)
{
    nibble_scheduler_close(served->scheduler);
    nibble_engine_close(served->engine);
    grammar_vocabulary_close(served->vocabulary.made);
    chat_close(served->chat);
    tokenizer_close(served->tokenizer);
    nibble_checkpoint_close(served->checkpoint);
    free(served->api.end_ids);
    free(served->plan.data);
    free(served->own_name);
    *served = (struct served){ 0 };
}
