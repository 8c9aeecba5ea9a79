// SPDX-License-Identifier: Apache-2.0
// chat.c: a chat, one message per line of standard input. The model's chat template writes the prompt.
//
//   cc chat.c -o chat $(pkg-config --cflags --libs nibble)
//   ./chat MODEL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nibble.h>

struct chat {
    struct nibble_checkpoint *checkpoint;
    struct nibble_tokenizer *tokenizer;
    struct nibble_chat *template;
    struct nibble_engine *engine;
    struct nibble_scheduler *scheduler;
    struct nibble_defaults defaults;
    int32_t *stop_ids;
    size_t stop_count;
    struct nibble_decoder *decoder; // of the answer that streams
    struct nibble_text answer;
    char *messages; // JSON, without the closing bracket
};

// ---- messages as JSON ---------------------------------------------------------------------------------------------

static void append(char **to, const char *text)
{
    size_t len = *to ? strlen(*to) : 0;
    *to = realloc(*to, len + strlen(text) + 1);
    strcpy(*to + len, text);
}

static void append_quoted(char **to, const char *text)
{
    for (char part[8]; *text; text++) {
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
            snprintf(part, sizeof part, "\\u%04x", (unsigned char)*text);
        else
            snprintf(part, sizeof part, "%c", *text);
        append(to, part);
    }
}

static void add_message(struct chat *chat, const char *role, const char *content)
{
    append(&chat->messages, chat->messages ? "," : "[");
    append(&chat->messages, "{\"role\":\"");
    append(&chat->messages, role);
    append(&chat->messages, "\",\"content\":\"");
    append_quoted(&chat->messages, content);
    append(&chat->messages, "\"}");
}

// ---- an answer ----------------------------------------------------------------------------------------------------

static bool print_token(void *context, const struct nibble_token *token)
{
    struct chat *chat = context;
    size_t before = chat->answer.len;
    if (token->stop)
        return false;
    nibble_decoder_add(chat->decoder, token->id, &chat->answer);
    if (chat->answer.len > before)
        fwrite(chat->answer.data + before, 1, chat->answer.len - before, stdout);
    fflush(stdout);
    return true;
}

static bool stream(struct chat *chat, const int32_t *ids, size_t count, struct nibble_error *error)
{
    struct nibble_request request = {
        .prompt = ids,
        .prompt_count = count,
        .max_tokens = nibble_engine_max_model_len(chat->engine) - (int)count,
        .sampling = chat->defaults.sampling,
        .stop_ids = chat->stop_ids,
        .stop_count = chat->stop_count,
        .top_logprobs = -1,
        .listener = { .context = chat, .token = print_token },
    };
    struct nibble_step step;
    if (!nibble_scheduler_add(chat->scheduler, &request, error))
        return false;
    while (nibble_scheduler_step(chat->scheduler, &step))
        ;
    return true;
}

static bool answer(struct chat *chat, struct nibble_error *error)
{
    struct nibble_text prompt = { 0 };
    int32_t *ids = NULL;
    char *messages = NULL;
    append(&messages, chat->messages);
    append(&messages, "]");
    ptrdiff_t count = -1;
    if (nibble_chat_render(chat->template, messages, strlen(messages), &prompt, error))
        count = nibble_tokenize(chat->tokenizer, prompt.data, prompt.len, NIBBLE_PARSE_SPECIAL, &ids, error);
    chat->answer.len = 0;
    chat->decoder = nibble_decoder_open(chat->tokenizer, true);
    bool ok = count > 0 && stream(chat, ids, (size_t)count, error);
    nibble_decoder_close(chat->decoder);
    printf("\n");
    if (ok)
        add_message(chat, "assistant", chat->answer.len ? chat->answer.data : "");
    free(messages);
    free(prompt.data);
    free(ids);
    return ok;
}

// ---- the chat -----------------------------------------------------------------------------------------------------

static bool chat_open(struct chat *chat, const char *model, struct nibble_error *error)
{
    struct nibble_options options = { .max_model_len = 2048, .kv_cache_dtype = "fp8" };
    *chat = (struct chat){ 0 };
    if (!(chat->checkpoint = nibble_checkpoint_open(model, NIBBLE_NEED_ALL, error))
        || !(chat->tokenizer = nibble_tokenizer_open(chat->checkpoint, error))
        || !(chat->template = nibble_chat_open(chat->checkpoint, NULL, error))
        || !nibble_sampling_defaults(chat->checkpoint, &(struct nibble_defaults_options){ 0 }, &chat->defaults, error)
        || !(chat->engine = nibble_engine_open(chat->checkpoint, &options, error)))
        return false;
    chat->scheduler = nibble_scheduler_open(chat->engine, &(struct nibble_scheduler_options){ 0 });
    chat->stop_count = nibble_engine_stop_ids(chat->engine, chat->tokenizer, &chat->stop_ids);
    return true;
}

// In the opposite order of opening.
static void chat_close(struct chat *chat)
{
    free(chat->messages);
    free(chat->answer.data);
    free(chat->stop_ids);
    nibble_scheduler_close(chat->scheduler);
    nibble_engine_close(chat->engine);
    nibble_chat_close(chat->template);
    nibble_tokenizer_close(chat->tokenizer);
    nibble_checkpoint_close(chat->checkpoint);
}

int main(int argc, char **argv)
{
    struct nibble_error error = { 0 };
    struct chat chat;
    char line[4096];
    if (argc != 2)
        return fprintf(stderr, "usage: chat MODEL\n"), 2;
    bool ok = chat_open(&chat, argv[1], &error);
    while (ok && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        add_message(&chat, "user", line);
        ok = answer(&chat, &error);
    }
    if (!ok)
        fprintf(stderr, "chat: %s\n", error.text);
    chat_close(&chat);
    return ok ? 0 : 1;
}
