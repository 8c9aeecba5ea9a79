// SPDX-License-Identifier: Apache-2.0
#include "server/model.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/public.h"
#include "format/public.h"

static bool open_text(struct served *served, const struct server_options *options, struct nibble_error *error)
{
    const struct checkpoint *checkpoint = &served->checkpoint->checkpoint;
    struct error err;
    served->tokenizer = tokenizer_open(checkpoint, &err);
    if (!served->tokenizer)
        return public_error(error, &err), false;
    served->chat = chat_open(checkpoint, options->chat_template, &served->chat_error);
    if (!served->chat && options->chat_template)
        return public_error(error, &served->chat_error), false;
    return true;
}

static bool open_engine(struct served *served, const struct server_options *options, struct nibble_error *error)
{
    served->engine = nibble_engine_open(served->checkpoint, &options->engine, error);
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

static bool describe(struct served *served, const struct server_options *options, struct nibble_error *error)
{
    struct api *api = &served->api;
    *api = (struct api){
        .tokenizer = served->tokenizer, .chat = served->chat, .chat_trouble = served->chat_error.text,
        .vocabulary = &served->vocabulary, .has_seed = options->has_seed,
        .names = options->model_name_count ? options->model_names : &options->model,
        .name_count = options->model_name_count ? options->model_name_count : 1,
        .root = options->model,
        .max_model_len = nibble_engine_max_model_len(served->engine),
        .logits = nibble_engine_vocabulary(served->engine),
        .created = time(NULL), .plan = served->plan.data, .plan_len = served->plan.len,
    };
    survey_vocabulary(api);
    if (!nibble_sampling_defaults(served->checkpoint, &api->defaults, error))
        return false;
    api->defaults.seed = options->seed;
    return true;
}

bool served_open(struct served *served, const struct server_options *options, struct nibble_error *error)
{
    *served = (struct served){ .vocabulary.lock = PTHREAD_MUTEX_INITIALIZER };
    served->checkpoint = nibble_checkpoint_open(options->model, NIBBLE_NEED_ALL, error);
    if (served->checkpoint && open_text(served, options, error) && open_engine(served, options, error)
        && describe(served, options, error))
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
    *served = (struct served){ 0 };
}
