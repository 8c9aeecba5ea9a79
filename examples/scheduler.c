// SPDX-License-Identifier: Apache-2.0
// scheduler.c: many requests at once, with a callback for each: continuous batching on one thread. A request is
// cancelled on the way, and the prefix cache has what the others share.
//
//   cc scheduler.c -o scheduler $(pkg-config --cflags --libs nibble)
//   ./scheduler MODEL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nibble.h>

enum { REQUESTS = 4, ANSWER_TOKENS = 12, CANCELLED = 2, CANCELLED_AFTER = 4 };

// Sixteen tokens make a page of the cache: these have their first ones in common.
#define SHARED "The lighthouse keeper climbed the two hundred and twelve steps to the lamp every single evening, and "
static const char *const prompts[REQUESTS] = { SHARED "one night", SHARED "his daughter", SHARED "the sea",
                                               SHARED "then" };

struct answer {
    int number, tokens;
    struct nibble_decoder *decoder;
    struct nibble_text text;
    struct nibble_usage usage;
    enum nibble_finish reason;
};

static bool take_token(void *context, const struct nibble_token *token)
{
    struct answer *answer = context;
    answer->tokens++;
    nibble_decoder_add(answer->decoder, token->id, &answer->text);
    return true;
}

static void finish(void *context, enum nibble_finish reason, const struct nibble_usage *usage, const char *error)
{
    struct answer *answer = context;
    answer->reason = reason;
    answer->usage = *usage;
    if (error)
        fprintf(stderr, "scheduler: request %d: %s\n", answer->number, error);
}

static uint64_t add(struct nibble_scheduler *scheduler, const struct nibble_tokenizer *tokenizer, struct answer *answer,
                    struct nibble_error *error)
{
    const char *prompt = prompts[answer->number];
    int32_t *ids = NULL;
    ptrdiff_t count = nibble_tokenize(tokenizer, prompt, strlen(prompt), NIBBLE_ADD_SPECIAL, &ids, error);
    struct nibble_request request = {
        .prompt = ids,
        .prompt_count = count > 0 ? (size_t)count : 0,
        .max_tokens = ANSWER_TOKENS,
        .sampling = { .top_p = 1, .repetition_penalty = 1 }, // temperature 0: the likeliest token
        .top_logprobs = -1,
        .listener = { .context = answer, .token = take_token, .finished = finish },
    };
    uint64_t name = count > 0 ? nibble_scheduler_add(scheduler, &request, error) : 0;
    free(ids);
    return name;
}

static bool serve(struct nibble_scheduler *scheduler, const struct nibble_tokenizer *tokenizer, struct answer *answers,
                  struct nibble_error *error)
{
    uint64_t names[REQUESTS];
    struct nibble_step step;
    for (int i = 0; i < REQUESTS; i++)
        if (!(names[i] = add(scheduler, tokenizer, &answers[i], error)))
            return false;
    while (nibble_scheduler_step(scheduler, &step))
        if (answers[CANCELLED].tokens == CANCELLED_AFTER)
            nibble_scheduler_cancel(scheduler, names[CANCELLED]);
    return true;
}

static void print(struct answer *answers, const struct nibble_scheduler *scheduler)
{
    static const char *const reasons[] = { "stop", "length", "cancelled", "failed" };
    struct nibble_scheduler_stats stats;
    for (int i = 0; i < REQUESTS; i++)
        printf("%d %s, %d tokens, %d of the prompt cached: %.*s\n", i, reasons[answers[i].reason],
               answers[i].usage.answer_tokens, answers[i].usage.cached_tokens, (int)answers[i].text.len,
               answers[i].text.data);
    nibble_scheduler_stats(scheduler, &stats);
    printf("%llu steps for %llu tokens\n", (unsigned long long)stats.steps, (unsigned long long)stats.answer_tokens);
}

int main(int argc, char **argv)
{
    struct nibble_error error = { 0 };
    struct answer answers[REQUESTS] = { 0 };
    if (argc != 2)
        return fprintf(stderr, "usage: scheduler MODEL\n"), 2;
    struct nibble_options options = { .max_model_len = 256, .max_num_seqs = REQUESTS };
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(argv[1], NIBBLE_NEED_ALL, &error);
    struct nibble_tokenizer *tokenizer = checkpoint ? nibble_tokenizer_open(checkpoint, &error) : NULL;
    struct nibble_engine *engine = tokenizer ? nibble_engine_open(checkpoint, &options, &error) : NULL;
    struct nibble_scheduler *scheduler = engine ? nibble_scheduler_open(engine, &(struct nibble_scheduler_options){ 0 })
                                                : NULL;
    for (int i = 0; scheduler && i < REQUESTS; i++)
        answers[i] = (struct answer){ .number = i, .decoder = nibble_decoder_open(tokenizer, true) };
    bool ok = scheduler && serve(scheduler, tokenizer, answers, &error);
    if (ok)
        print(answers, scheduler);
    else
        fprintf(stderr, "scheduler: %s\n", error.text);
    for (int i = 0; scheduler && i < REQUESTS; i++) {
        nibble_decoder_close(answers[i].decoder);
        free(answers[i].text.data);
    }
    nibble_scheduler_close(scheduler);
    nibble_engine_close(engine);
    nibble_tokenizer_close(tokenizer);
    nibble_checkpoint_close(checkpoint);
    return ok ? 0 : 1;
}
