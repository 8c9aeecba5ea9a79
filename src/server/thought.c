// SPDX-License-Identifier: Apache-2.0
#include "server/thought.h"

#include <string.h>

#include "server/answer.h"
#include "server/job.h"

// ---- tokens that are put into the answer --------------------------------------------------------------------------

static bool is_forcing(const struct thought *thought) { return thought->forced_at < thought->forced.count; }

static int32_t force(struct choice *choice, const char *text)
{
    struct tokens *forced = &choice->thought.forced;
    struct error ignored; // a marker is short
    forced->count = choice->thought.forced_at = 0;
    tokenizer_encode(choice->job->api->tokenizer, bytes_of(text), TOKENIZE_PARSE_SPECIAL, forced, &ignored);
    return forced->count ? forced->ids[0] : -1;
}

// How many tokens it takes to close the thought and to write the shortest answer behind it.
static int tokens_to_finish(const struct choice *choice)
{
    const struct job *job = choice->job;
    struct tokens close = { 0 };
    struct error ignored;
    tokenizer_encode(job->api->tokenizer, bytes_of(job->reasoning->finish), TOKENIZE_PARSE_SPECIAL, &close, &ignored);
    int count = (int)close.count + job->shortest_answer;
    tokens_free(&close);
    return count;
}

// ---- before the matcher has the answer ----------------------------------------------------------------------------

// Where a call's name stands in a header, the grammar of calls has the header, too, and begins with the answer.
static bool is_gated(const struct choice *choice)
{
    const struct job *job = choice->job;
    bool has_headers = job->reasoning && job->reasoning->calls_in_headers && job->tools;
    return choice->matcher && choice->thought.splitter && !choice->thought.behind && !has_headers;
}

// The first token of the open marker, where the model may still write it and the grammar has no other use for it; -1.
static int32_t opening_token(struct choice *choice, const uint32_t *mask)
{
    const struct api *api = choice->job->api;
    struct tokens ids = { 0 };
    struct error ignored;
    if (!reasoning_may_open(choice->thought.splitter) || !choice->job->may_think)
        return -1;
    tokenizer_encode(api->tokenizer, bytes_of(choice->job->reasoning->open), TOKENIZE_PARSE_SPECIAL, &ids, &ignored);
    int32_t id = ids.count ? ids.ids[0] : -1;
    tokens_free(&ids);
    return id >= 0 && !(mask && mask[id / 32] >> id % 32 & 1) ? id : -1;
}

// An answer of a given form cannot end inside a thought.
static void forbid_ends(const struct api *api, uint32_t *mask)
{
    for (int i = 0; i < api->end_count; i++)
        mask[api->end_ids[i] / 32] &= ~(UINT32_C(1) << api->end_ids[i] % 32);
}

bool thought_restrict(struct choice *choice, uint32_t *mask, uint64_t *work)
{
    struct thought *thought = &choice->thought;
    *work = 0;
    if (!is_gated(choice))
        return false;
    if (is_forcing(thought))
        return true;
    if (reasoning_comes_first(thought->splitter)) {
        forbid_ends(choice->job->api, mask);
        return true;
    }
    *work = matcher_restrict(choice->matcher, mask);
    int32_t opening = opening_token(choice, mask);
    if (opening >= 0)
        mask[opening / 32] |= UINT32_C(1) << opening % 32;
    return true;
}

// The thought would end with this token, and the text behind its end cannot begin the answer.
static bool ends_badly(struct choice *choice, int32_t id)
{
    struct strbuf text = { 0 };
    size_t behind;
    answer_token_bytes(choice->job->api, id, &text);
    bool bad = reasoning_would_end(choice->thought.splitter, strbuf_bytes(&text), &behind) && behind < text.len
        && !matcher_takes(choice->matcher, bytes_from(strbuf_bytes(&text), behind));
    strbuf_free(&text);
    return bad;
}

// The token begins a call inside the thought. The grammar has to write it, and begins behind the thought.
static bool calls_early(const struct choice *choice, int32_t id)
{
    struct strbuf text = { 0 };
    bool calls = false;
    if (!choice->job->tools)
        return false;
    answer_token_bytes(choice->job->api, id, &text);
    for (int i = 0; i < REASONING_TAGS_MAX && choice->job->reasoning->call[i]; i++)
        calls |= strstr(strbuf_text(&text), choice->job->reasoning->call[i]) != NULL;
    strbuf_free(&text);
    return calls;
}

// Is the thought to be closed now?
static bool is_too_long(const struct choice *choice, int tokens_left)
{
    const struct job *job = choice->job;
    const struct thought *thought = &choice->thought;
    if (job->max_reasoning_tokens >= 0 && thought->count + thought->uncertain >= job->max_reasoning_tokens)
        return true;
    return choice->matcher && job->params.close_at_max_tokens && tokens_left <= tokens_to_finish(choice) + 1;
}

static bool begins_thought(struct choice *choice, int32_t id)
{
    struct strbuf text = { 0 };
    if (!is_gated(choice) || id != opening_token(choice, NULL))
        return false;
    answer_token_bytes(choice->job->api, id, &text);
    bool begins = !matcher_takes(choice->matcher, strbuf_bytes(&text));
    strbuf_free(&text);
    return begins;
}

int32_t thought_choose(struct choice *choice, int tokens_left, int32_t drawn, bool *free)
{
    struct thought *thought = &choice->thought;
    *free = false;
    if (is_forcing(thought))
        return thought->forced.ids[thought->forced_at];
    const char *finish = reasoning_finishing(thought->splitter);
    int32_t id = -1;
    if (finish
        && (is_too_long(choice, tokens_left)
            || (is_gated(choice) && (ends_badly(choice, drawn) || calls_early(choice, drawn)))))
        id = force(choice, finish);
    else if (begins_thought(choice, drawn))
        id = force(choice, choice->job->reasoning->open);
    *free = id < 0 && !(is_gated(choice) && reasoning_comes_first(thought->splitter));
    return id < 0 ? drawn : id;
}

bool thought_chooses(const struct choice *choice)
{
    return choice->thought.splitter && (choice->matcher || choice->job->max_reasoning_tokens >= 0);
}

// ---- taking in ----------------------------------------------------------------------------------------------------

static void count_uncertain(struct choice *choice)
{
    struct thought *thought = &choice->thought;
    choice->step_output.reasoning_tokens += thought->uncertain;
    thought->count += thought->uncertain;
    thought->uncertain = 0;
}

// Counts a token inside a thought, unless it was forced. Tokens whose text is held may be those of the close marker.
static void count(struct choice *choice, bool forced, size_t text_bytes)
{
    struct thought *thought = &choice->thought;
    size_t held = reasoning_held(thought->splitter);
    if (!reasoning_is_thinking(thought->splitter)) {
        thought->uncertain = 0; // they were
        return;
    }
    if (held <= text_bytes)
        count_uncertain(choice);
    thought->uncertain += !forced;
    if (!held)
        count_uncertain(choice);
}

// A token has ended the thought. Its text behind the end is the answer's first. Forms with tags around the answer get
// the open one: the grammar does not know it.
static void pass_end(struct choice *choice, struct bytes behind)
{
    if (behind.len && matcher_accept_text(choice->matcher, behind))
        choice->thought.behind = true;
    else
        choice->thought.tag_due = choice->job->reasoning->answer_open[0] && !choice->job->tools;
}

static void force_tag(struct choice *choice)
{
    if (!choice->thought.tag_due || is_forcing(&choice->thought))
        return;
    choice->thought.tag_due = false;
    force(choice, choice->job->reasoning->answer_open[0]);
}

static bool feed_matcher(struct choice *choice, int32_t id)
{
    matcher_accept(choice->matcher, id);
    choice->thought.behind = true;
    return !matcher_done(choice->matcher);
}

// As thought_take, for an answer whose matcher may not have begun.
static bool take_gated(struct choice *choice, int32_t id, struct bytes text)
{
    struct thought *thought = &choice->thought;
    struct strbuf own = { 0 };
    size_t behind = 0;
    bool forced = is_forcing(thought), first = reasoning_comes_first(thought->splitter);
    thought->forced_at += forced;
    answer_token_bytes(choice->job->api, id, &own);
    bool ends = reasoning_would_end(thought->splitter, strbuf_bytes(&own), &behind);
    reasoning_add(thought->splitter, text);
    if (ends)
        pass_end(choice, bytes_from(strbuf_bytes(&own), behind));
    strbuf_free(&own);
    force_tag(choice);
    return forced || first || feed_matcher(choice, id);
}

bool thought_take(struct choice *choice, const struct nibble_token *token, struct bytes text)
{
    struct thought *thought = &choice->thought;
    bool was = reasoning_is_thinking(thought->splitter) && !token->stop, forced = is_forcing(thought), goes_on = true;
    if (is_gated(choice) && !token->stop) {
        goes_on = take_gated(choice, token->id, text);
    } else {
        thought->forced_at += forced;
        reasoning_add(thought->splitter, text);
        if (choice->matcher && !token->stop)
            goes_on = feed_matcher(choice, token->id);
    }
    if (was)
        count(choice, forced, text.len);
    return goes_on;
}

void thought_finish(struct choice *choice, struct bytes rest)
{
    struct thought *thought = &choice->thought;
    if (rest.len)
        reasoning_add(thought->splitter, rest);
    if (reasoning_finishing(thought->splitter)) // never closed: all of it was thought
        count_uncertain(choice);
    reasoning_finish(thought->splitter);
}

// ---- the beginning and the end ------------------------------------------------------------------------------------

void thought_begin(struct choice *choice, const struct reasoning_sink *sink)
{
    const struct job *job = choice->job;
    thought_end(&choice->thought);
    if (!job->reasoning)
        return;
    choice->thought.splitter = reasoning_open(job->reasoning, job->prompt_end, sink);
    if (job->tools && !job->grammar)
        reasoning_ends_with_call(choice->thought.splitter);
}

void thought_end(struct thought *thought)
{
    reasoning_close(thought->splitter);
    tokens_free(&thought->forced);
    *thought = (struct thought){ 0 };
}
