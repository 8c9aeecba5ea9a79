// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static bool check_id(int32_t id, int vocabulary, const char *what, struct error *err)
{
    return (id >= 0 && id < vocabulary)
        || fail_usage(err, "%s: token id %d; this model has 0 to %d", what, id, vocabulary - 1);
}

static bool check_sequences(struct nibble_token_sequences sequences, int vocabulary, const char *what,
                            struct error *err)
{
    for (size_t i = 0; i < sequences.count; i++)
        if (sequences.ids[i] != NIBBLE_SEQUENCE_END && !check_id(sequences.ids[i], vocabulary, what, err))
            return false;
    return !sequences.count || sequences.ids[sequences.count - 1] == NIBBLE_SEQUENCE_END
        || fail_usage(err, "%s is a sequence of tokens without an end", what);
}

bool sampling_params_check(const struct nibble_request *request, int vocabulary, struct error *err)
{
    for (size_t i = 0; i < request->bias_count; i++)
        if (!check_id(request->bias[i].id, vocabulary, "a bias", err))
            return false;
        else if (!isfinite(request->bias[i].bias))
            return fail_usage(err, "the bias of token %d is %g; a number is possible", request->bias[i].id,
                              request->bias[i].bias);
    for (size_t i = 0; i < request->allowed_count; i++)
        if (!check_id(request->allowed_ids[i], vocabulary, "the list of allowed tokens", err))
            return false;
    return check_sequences(request->bad_words, vocabulary, "a bad word", err)
        && check_sequences(request->dry_breakers, vocabulary, "a breaker of DRY", err)
        && sampler_check(&request->sampling, err);
}

static void *copied(const void *items, size_t count, size_t size)
{
    void *copy = memory_new(count, size);
    if (count)
        memcpy(copy, items, count * size);
    return copy;
}

void sampling_params_open(struct sampling_params *params, const struct nibble_request *request, int vocabulary)
{
    *params = (struct sampling_params){
        .sampling = request->sampling,
        .bias = copied(request->bias, request->bias_count, sizeof *request->bias),
        .bias_count = request->bias_count,
        .bad_words = copied(request->bad_words.ids, request->bad_words.count, sizeof *request->bad_words.ids),
        .bad_word_ids = request->bad_words.count,
        .mirostat_mu = 2 * request->sampling.mirostat_tau,
    };
    if (request->sampling.dry_multiplier != 0)
        dry_breakers_open(&params->breakers, request->dry_breakers, vocabulary);
    if (request->allowed_count)
        params->allowed = memory_new(((size_t)vocabulary + 31) / 32, sizeof *params->allowed);
    for (size_t i = 0; i < request->allowed_count; i++)
        params->allowed[request->allowed_ids[i] / 32] |= UINT32_C(1) << request->allowed_ids[i] % 32;
}

void sampling_params_free(struct sampling_params *params)
{
    free(params->bias);
    free(params->allowed);
    free(params->bad_words);
    dry_breakers_free(&params->breakers);
    *params = (struct sampling_params){ 0 };
}

bool sampling_params_are_plain(const struct sampling_params *params)
{
    const struct nibble_sampling *sampling = &params->sampling;
    return !params->bias_count && !params->allowed && !params->bad_word_ids && sampler_is_usual(sampling)
        && sampling->repetition_penalty == 1 && sampling->presence_penalty == 0 && sampling->frequency_penalty == 0;
}

struct draw sampling_params_draw(struct sampling_params *params)
{
    return (struct draw){ .sampling = &params->sampling,
                          .bias = params->bias,
                          .bias_count = params->bias_count,
                          .allowed = params->allowed,
                          .bad_words = { params->bad_words, params->bad_word_ids },
                          .breakers = &params->breakers,
                          .mirostat_mu = &params->mirostat_mu };
}
