// SPDX-License-Identifier: Apache-2.0
#include "server/model.h"

#include <fnmatch.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/sha256.h"
#include "base/strbuf.h"
#include "engine/calibration/file.h"
#include "format/public.h"
#include "server/describe.h"
#include "server/grammar_cache.h"
#include "text/chat_builtin.h"

// Returns a copy of the last part of a path. A link keeps its name; "." and "folder/" have the folder's.
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

// Sets the default --served-model-name: the file's name without .gguf and its part number, the folder's name, or
// org/name as it was given.
static void set_own_name(struct served *served, const char *model)
{
    served->name = model;
    if (access(model, F_OK) != 0)
        return;
    served->name = served->own_name = last_part(model);
    cut_off(served->own_name, "?*.gguf", strlen(".gguf"));
    cut_off(served->own_name, "?*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]", strlen("-00001-of-00001"));
}

// A model without a chat template gets the one that its vocabulary was made for, with a warning; else chats are
// refused.
static void open_builtin_chat(struct served *served, const struct server_options *options)
{
    const struct checkpoint *checkpoint = &served->checkpoint->checkpoint;
    const struct chat_builtin *builtin = chat_builtin_find(served->tokenizer);
    if (builtin)
        served->chat = chat_open_source(checkpoint, bytes_of(builtin->source), &served->chat_error);
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
    if (served->chat && options->tool_call_parser && !chat_set_tool_form(served->chat, options->tool_call_parser, err))
        return fail_within(err, "--tool-call-parser");
    if (!served->chat)
        log_message(&options->log, LOG_WARNING, "chat", "chats will be refused: %s", served->chat_error.text);
    return true;
}

// Finds the form of reasoning, by the flag or the chat template.
static bool find_reasoning(struct served *served, const struct server_options *options, struct error *err)
{
    const struct reasoning_form *form = served->chat ? chat_reasoning(served->chat) : NULL;
    if (options->reasoning_parser)
        form = reasoning_named(options->reasoning_parser, err);
    if (options->reasoning_parser && !form)
        return err->usage = true, false;
    served->reasoning = options->no_reasoning ? NULL : form;
    return true;
}

static bool open_engine(struct served *served, const struct server_options *options, struct error *err)
{
    served->engine = nibble_engine_open(served->checkpoint, &options->engine, err);
    if (!served->engine)
        return false;
    served->scheduler = nibble_scheduler_open(served->engine, &options->scheduler);
    nibble_plan_print(nibble_engine_plan(served->engine), NIBBLE_PLAN_JSON, 0, &served->plan);
    served->plan_json = json_loadb(served->plan.data, served->plan.len, 0, NULL);
    return true;
}

// ---- the fingerprint ----------------------------------------------------------------------------------------------

// Adds the plan without its memory figures: answers do not depend on how much was free at the start.
static void add_plan(struct strbuf *out, struct bytes plan)
{
    json_t *json = json_loadb(plan.data, plan.len, 0, NULL);
    json_object_del(json, "memory");
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    strbuf_add_text(out, text ? text : "");
    free(text);
    json_decref(json);
}

static size_t note_padded(size_t len) { return (len + 3) / 4 * 4; }

// The linker's build id: a note named "GNU" of type NT_GNU_BUILD_ID.
static void add_build_id(struct strbuf *out, const char *at, size_t len)
{
    while (len >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const void *)at;
        size_t bytes = sizeof *note + note_padded(note->n_namesz) + note_padded(note->n_descsz);
        if (bytes > len)
            return;
        if (note->n_type == NT_GNU_BUILD_ID)
            strbuf_add(out, at, bytes);
        at += bytes;
        len -= bytes;
    }
}

static int add_program(struct dl_phdr_info *program, size_t size, void *out)
{
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &program->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE)
            add_build_id(out, (const char *)(program->dlpi_addr + segment->p_vaddr), segment->p_memsz);
    }
    return 1; // the first is the program itself
}

// OpenAI's system_fingerprint: "fp_" and a hash of the checkpoint (of its weights only samples are read), the plan and
// the build. Where it is the same, a request with a seed has the same answer.
static void print_fingerprint(const struct checkpoint *checkpoint, struct bytes plan, char *out, size_t size)
{
    struct calibration_key files = calibration_hash_checkpoint(checkpoint);
    uint8_t digest[SHA256_BYTES];
    struct strbuf all = { 0 };
    strbuf_add(&all, (const char *)files.bytes, sizeof files.bytes);
    strbuf_add_text(&all, NIBBLE_VERSION);
    dl_iterate_phdr(add_program, &all);
    add_plan(&all, plan);
    sha256_of(strbuf_bytes(&all), digest);
    strbuf_free(&all);
    uint64_t first;
    memcpy(&first, digest, sizeof first);
    snprintf(out, size, "fp_%016llx", (unsigned long long)first);
}

// ---- the model as the API sees it ---------------------------------------------------------------------------------

// Finds the ids that end an answer, and the length of the longest token.
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

static void describe_weights(struct api *api, json_t *plan)
{
    json_t *weights = json_object_get(plan, "weights"), *bytes;
    const char *format, *architecture = json_string_value(json_object_get(plan, "architecture"));
    json_int_t most = 0;
    api->architecture = architecture ? architecture : "unknown";
    api->weight_format = "unknown";
    api->weight_bytes = (size_t)json_integer_value(json_object_get(weights, "bytes"));
    json_object_foreach (json_object_get(weights, "by_format"), format, bytes) {
        if (json_integer_value(bytes) <= most)
            continue;
        most = json_integer_value(bytes);
        api->weight_format = format;
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
        .reasoning = served->reasoning,
        .no_reasoning = options->no_reasoning,
        .max_reasoning_tokens = options->max_reasoning_tokens,
        .checkpoint = &served->checkpoint->checkpoint,
        .trust_chat_template = options->trust_request_chat_template,
        .vocabulary = &served->vocabulary,
        .grammars = grammar_cache_open(GRAMMAR_CACHE_BYTES),
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
        .slots = options->engine.max_num_seqs ? options->engine.max_num_seqs : 1,
        .show_slots = options->slots,
    };
    describe_weights(api, served->plan_json);
    print_fingerprint(&served->checkpoint->checkpoint, (struct bytes){ served->plan.data, served->plan.len },
                      api->fingerprint, sizeof api->fingerprint);
    survey_vocabulary(api);
    if (api->reasoning)
        reasoning_tokens(api->reasoning, api->tokenizer, &api->reasoning_tokens);
    api->has_fim = fim_find(api->tokenizer, &api->fim);
    if (options->enable_tokenizer_info_endpoint) {
        describe_tokenizer(api, &served->tokenizer_info);
        api->tokenizer_info = strbuf_bytes(&served->tokenizer_info);
    }
    if (!nibble_sampling_defaults(served->checkpoint, &api->defaults, err))
        return false;
    api->defaults.seed = options->seed;
    return true;
}

bool served_open(struct served *served, const struct server_options *options, struct error *err)
{
    *served = (struct served){ .vocabulary.lock = PTHREAD_MUTEX_INITIALIZER };
    served->checkpoint = nibble_checkpoint_open(options->model, NIBBLE_NEED_ALL, err);
    if (served->checkpoint && open_text(served, options, err) && find_reasoning(served, options, err)
        && open_engine(served, options, err) && describe(served, options, err))
        return true;
    served_close(served);
    return false;
}

void served_close(struct served *served)
{
    nibble_scheduler_close(served->scheduler);
    nibble_engine_close(served->engine);
    grammar_cache_close(served->api.grammars);
    grammar_vocabulary_close(served->vocabulary.made);
    chat_close(served->chat);
    tokenizer_close(served->tokenizer);
    nibble_checkpoint_close(served->checkpoint);
    free(served->api.end_ids);
    tokens_free(&served->api.reasoning_tokens);
    free(served->plan.data);
    json_decref(served->plan_json);
    strbuf_free(&served->tokenizer_info);
    free(served->own_name);
    *served = (struct served){ 0 };
}
