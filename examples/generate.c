// SPDX-License-Identifier: Apache-2.0
// generate.c: continues a text.
//
//   cc generate.c -o generate $(pkg-config --cflags --libs nibble)
//   ./generate MODEL "Once upon a time" 32
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nibble.h>

struct printer {
    struct nibble_decoder *decoder;
    struct nibble_text text;
};

// Called for each token of the answer. Text comes out as soon as its characters are whole.
static bool print_token(void *context, const struct nibble_token *token)
{
    struct printer *printer = context;
    if (token->stop)
        return false;
    printer->text.len = 0;
    nibble_decoder_add(printer->decoder, token->id, &printer->text);
    fwrite(printer->text.data, 1, printer->text.len, stdout);
    fflush(stdout);
    return true;
}

static bool generate(struct nibble_engine *engine, const struct nibble_tokenizer *tokenizer,
                     const struct nibble_sampling *sampling, const char *prompt, int tokens, struct nibble_error *error)
{
    struct printer printer = { .decoder = nibble_decoder_open(tokenizer, true) };
    struct nibble_scheduler *scheduler = nibble_scheduler_open(engine, &(struct nibble_scheduler_options){ 0 });
    int32_t *ids = NULL, *stop_ids = NULL;
    ptrdiff_t count = nibble_tokenize(tokenizer, prompt, strlen(prompt), NIBBLE_ADD_SPECIAL, &ids, error);
    size_t stop_count = nibble_engine_stop_ids(engine, tokenizer, &stop_ids);
    struct nibble_request request = {
        .prompt = ids,
        .prompt_count = count > 0 ? (size_t)count : 0,
        .max_tokens = tokens,
        .sampling = *sampling,
        .stop_ids = stop_ids,
        .stop_count = stop_count,
        .top_logprobs = -1,
        .listener = { .context = &printer, .token = print_token },
    };
    bool ok = count > 0 && nibble_scheduler_add(scheduler, &request, error);
    struct nibble_step step;
    while (ok && nibble_scheduler_step(scheduler, &step))
        ;
    printf("\n");
    free(ids);
    free(stop_ids);
    free(printer.text.data);
    nibble_decoder_close(printer.decoder);
    nibble_scheduler_close(scheduler);
    return ok;
}

int main(int argc, char **argv)
{
    struct nibble_error error = { 0 };
    if (argc != 4)
        return fprintf(stderr, "usage: generate MODEL PROMPT TOKENS\n"), 2;
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(argv[1], NIBBLE_NEED_ALL, &error);
    struct nibble_tokenizer *tokenizer = checkpoint ? nibble_tokenizer_open(checkpoint, &error) : NULL;
    struct nibble_options options = { .max_model_len = 512 };
    struct nibble_engine *engine = tokenizer ? nibble_engine_open(checkpoint, &options, &error) : NULL;
    struct nibble_defaults defaults;
    bool ok = engine && nibble_sampling_defaults(checkpoint, &(struct nibble_defaults_options){ 0 }, &defaults, &error)
        && generate(engine, tokenizer, &defaults.sampling, argv[2], atoi(argv[3]), &error);
    if (!ok)
        fprintf(stderr, "generate: %s\n", error.text);
    nibble_engine_close(engine);
    nibble_tokenizer_close(tokenizer);
    nibble_checkpoint_close(checkpoint);
    return ok ? 0 : 1;
}
