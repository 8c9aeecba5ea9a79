// SPDX-License-Identifier: Apache-2.0
// A matcher accepts tokens, and closes the answer by a shortest completion when the token budget gets short.
#include "text/grammar/matcher.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

struct matcher *matcher_open(const struct grammar *grammar, const struct grammar_vocabulary *vocabulary)
{
    struct matcher *matcher = memory_new(1, sizeof *matcher);
    match_open(&matcher->match, grammar);
    matcher->vocabulary = vocabulary;
    matcher->first = true;
    matcher->now = match_start(&matcher->match);
    matcher->allowed = memory_new(vocabulary->mask_words + 1, sizeof *matcher->allowed);
    matcher->spare = memory_new(vocabulary->mask_words + 1, sizeof *matcher->spare);
    return matcher;
}

void matcher_close(struct matcher *matcher)
{
    if (!matcher)
        return;
    match_close(&matcher->match);
    tokens_free(&matcher->rest);
    strbuf_free(&matcher->state);
    free(matcher->allowed);
    free(matcher->spare);
    free(matcher);
}

bool matcher_done(const struct matcher *matcher)
{
    if (matcher->forced)
        return matcher->rest_at == matcher->rest.count;
    return matcher->ended || (matcher->now.final && !matcher->now.count);
}

bool matcher_forced(const struct matcher *matcher) { return matcher->forced; }

// The threads behind a token, appended to match.threads.
static struct thread_set follow(struct matcher *matcher, int32_t id)
{
    struct strbuf text = { 0 };
    struct thread_set set = matcher->now;
    vocabulary_write(matcher->vocabulary->tokenizer, id, matcher->first, &text);
    for (size_t i = 0; i < text.len; i++)
        set = match_byte(&matcher->match, set, (uint8_t)text.data[i]);
    if (!text.len && !matcher->first)
        set = (struct thread_set){ 0 };
    strbuf_free(&text);
    return set;
}

bool matcher_write_rest(const struct matcher *matcher, struct thread_set set, bool first, struct tokens *out)
{
    uint32_t thread = 0;
    struct strbuf text = { 0 };
    strbuf_add_text(&text, "");
    if (match_closing(&matcher->match, set, &thread) > 0)
        match_write_closing(&matcher->match, &matcher->match.threads[thread], &text);
    bool ok = vocabulary_cut(matcher->vocabulary, strbuf_bytes(&text), first, out);
    strbuf_free(&text);
    return ok;
}

// Can an answer at `set` be completed with so many tokens? At worst each byte is a token.
static bool can_finish(const struct matcher *matcher, struct thread_set set, int tokens)
{
    struct tokens rest = { 0 };
    uint32_t thread, bytes = match_is_dead(&set) ? RULES_NEVER : match_closing(&matcher->match, set, &thread);
    if (bytes > RULES_CLOSING_BYTES_MAX || bytes > (uint64_t)tokens * matcher->vocabulary->longest)
        return false;
    if (bytes <= (uint32_t)tokens)
        return true;
    bool ok = matcher_write_rest(matcher, set, false, &rest) && rest.count <= (size_t)tokens;
    tokens_free(&rest);
    return ok;
}

int32_t matcher_choose(struct matcher *matcher, int tokens_left, int32_t drawn)
{
    const struct grammar_vocabulary *vocabulary = matcher->vocabulary;
    if (!matcher->forced && !matcher->ended) {
        bool ok;
        if (tokenizer_is_end(vocabulary->tokenizer, drawn)) {
            ok = matcher->now.final;
        } else {
            uint32_t threads = matcher->match.thread_count, stacks = matcher->match.stack_count;
            ok = can_finish(matcher, follow(matcher, drawn), tokens_left > 0 ? tokens_left - 1 : 0);
            matcher->match.thread_count = threads;
            matcher->match.stack_count = stacks;
        }
        if (ok)
            return drawn;
        if (!matcher_write_rest(matcher, matcher->now, matcher->first, &matcher->rest))
            return drawn; // a vocabulary that cannot write it: grammar_shortest has said so
        matcher->forced = true;
    }
    bool over = matcher->ended || matcher->rest_at == matcher->rest.count;
    return over ? vocabulary->end : matcher->rest.ids[matcher->rest_at];
}

void matcher_accept(struct matcher *matcher, int32_t id)
{
    if (tokenizer_is_end(matcher->vocabulary->tokenizer, id)) {
        assert(matcher_done(matcher) || matcher->now.final);
        matcher->ended = true;
    } else if (matcher->forced) {
        assert(!matcher_done(matcher) && id == matcher->rest.ids[matcher->rest_at]);
        matcher->rest_at++;
    } else {
        struct thread_set next = follow(matcher, id);
        assert(!match_is_dead(&next));
        matcher->now = match_keep(&matcher->match, next);
    }
    matcher->first = false;
}

static struct thread_set follow_text(struct matcher *matcher, struct bytes text)
{
    struct thread_set set = matcher->now;
    for (size_t i = 0; i < text.len; i++)
        set = match_byte(&matcher->match, set, (uint8_t)text.data[i]);
    return set;
}

bool matcher_takes(struct matcher *matcher, struct bytes text)
{
    uint32_t threads = matcher->match.thread_count, stacks = matcher->match.stack_count;
    struct thread_set next = follow_text(matcher, text);
    matcher->match.thread_count = threads;
    matcher->match.stack_count = stacks;
    return !match_is_dead(&next);
}

bool matcher_accept_text(struct matcher *matcher, struct bytes text)
{
    if (!matcher_takes(matcher, text))
        return false;
    matcher->first = false;
    matcher->now = match_keep(&matcher->match, follow_text(matcher, text));
    return true;
}

// Uses the completion that a matcher would take, so that the count is exact.
int grammar_shortest(const struct grammar *grammar, const struct grammar_vocabulary *vocabulary)
{
    struct tokens tokens = { 0 };
    if (!vocabulary_suffices(vocabulary, grammar))
        return INT_MAX;
    struct matcher *matcher = matcher_open(grammar, vocabulary);
    bool ok = matcher_write_rest(matcher, matcher->now, true, &tokens);
    int count = ok ? (int)tokens.count : INT_MAX;
    tokens_free(&tokens);
    matcher_close(matcher);
    return count;
}
