// SPDX-License-Identifier: Apache-2.0
#include "server/job.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "server/kind.h"
#include "server/parts.h"
#include "server/responses.h"

// ---- output ---------------------------------------------------------------------------------------------------------

// Makes room for `more` entries after the first `count`.
static void *make_room(void *items, int count, int more, int *capacity, size_t size)
{
    if (count + more <= *capacity)
        return items;
    *capacity = 2 * (count + more);
    return memory_grow(items, (size_t)*capacity, size);
}

static void add_tops(struct output *output, const struct nibble_candidate *tops, int count)
{
    output->tops = make_room(output->tops, output->top_count, count, &output->top_capacity, sizeof *output->tops);
    if (count)
        memcpy(output->tops + output->top_count, tops, (size_t)count * sizeof *tops);
    output->top_count += count;
}

static struct answer_token *add_token(struct output *output)
{
    output->tokens = make_room(output->tokens, output->token_count, 1, &output->token_capacity, sizeof *output->tokens);
    return &output->tokens[output->token_count++];
}

void output_add(struct output *output, const struct nibble_token *token, double at)
{
    *add_token(output) = (struct answer_token){ .id = token->id,
                                                .scored = token->scored,
                                                .stop = token->stop,
                                                .logprob = token->logprob,
                                                .rank = token->rank,
                                                .top_first = output->top_count,
                                                .top_count = token->top_count,
                                                .at = at };
    add_tops(output, token->top, token->top_count);
}

static void add_run(struct output *output, bool reasoning, size_t len)
{
    struct output_run *last = output->run_count ? &output->runs[output->run_count - 1] : NULL;
    if (last && last->reasoning == reasoning) {
        last->len += len;
    } else if (len) {
        output->runs = make_room(output->runs, output->run_count, 1, &output->run_capacity, sizeof *output->runs);
        output->runs[output->run_count++] = (struct output_run){ reasoning, len };
    }
}

void output_mark(struct output *output, bool reasoning, size_t len)
{
    if (!reasoning && !output->run_count)
        return;
    if (!output->run_count)
        add_run(output, false, output->text.len - len);
    add_run(output, reasoning, len);
}

void output_add_text(struct output *output, bool reasoning, struct bytes text)
{
    strbuf_add(&output->text, text.data, text.len);
    output_mark(output, reasoning, text.len);
}

static void move_text(const struct output *from, struct output *to)
{
    struct bytes rest = strbuf_bytes(&from->text);
    for (int i = 0; i < from->run_count; i++) {
        struct output_run run = from->runs[i];
        output_add_text(to, run.reasoning, (struct bytes){ rest.data, run.len });
        rest = bytes_from(rest, run.len);
    }
    if (rest.len)
        output_add_text(to, false, rest);
}

void output_move(struct output *from, struct output *to)
{
    move_text(from, to);
    for (int i = 0; i < from->token_count; i++) {
        struct answer_token *added = add_token(to);
        *added = from->tokens[i];
        added->top_first += to->top_count;
    }
    add_tops(to, from->tops, from->top_count);
    to->prompt_tokens += from->prompt_tokens;
    to->reasoning_tokens += from->reasoning_tokens;
    to->discarded_tokens += from->discarded_tokens;
    if (from->finished) {
        to->finished = true;
        to->reason = from->reason;
        to->stop_string = from->stop_string;
        to->stop_id = from->stop_id;
        to->usage = from->usage;
    }
    output_clear(from);
}

void output_clear(struct output *output)
{
    output->text.len = 0;
    output->token_count = output->top_count = output->prompt_tokens = output->discarded_tokens = 0;
    output->run_count = output->reasoning_tokens = 0;
    output->finished = false;
}

// Frees the buffers; the fields about the end stay.
static void output_free_buffers(struct output *output)
{
    strbuf_free(&output->text);
    free(output->tokens);
    free(output->tops);
    free(output->runs);
    output->tokens = NULL;
    output->tops = NULL;
    output->runs = NULL;
    output->run_count = output->run_capacity = 0;
    output->token_count = output->token_capacity = output->top_count = output->top_capacity = output->prompt_tokens = 0;
}

// ---- jobs ---------------------------------------------------------------------------------------------------------

struct job *job_new(const struct api *api, enum job_kind kind, const char *path)
{
    struct job *job = memory_new(1, sizeof *job);
    char digits[REQUEST_ID_RANDOM_DIGITS + 1];
    *job = (struct job){ .api = api, .kind = kind, .path = path, .created = time(NULL) };
    request_id_random(digits);
    snprintf(job->id, sizeof job->id, "%s%s", kinds[kind].id_prefix, digits);
    return job;
}

static void empty_choice(struct choice *choice)
{
    stop_free(&choice->stop);
    matcher_close(choice->matcher);
    thought_end(&choice->thought);
    tool_reader_close(choice->call_watch);
    tool_reader_close(choice->tools);
    parts_free(choice);
    choice->matcher = NULL;
    choice->call_watch = NULL;
    choice->tools = NULL;
    output_free_buffers(&choice->step_output);
    output_free_buffers(&choice->withheld);
    output_free_buffers(&choice->prompt_scores);
    output_free_buffers(&choice->queued_output);
    output_free_buffers(&choice->delivered);
    output_free_buffers(&choice->answer);
}

void job_drop_json(struct job *job)
{
    json_decref(job->json);
    job->json = NULL;
    strbuf_free(&job->body);
    chat_close(job->own_chat);
    job->own_chat = NULL;
}

void job_empty(struct job *job)
{
    for (int i = 0; i < job->choice_count; i++)
        empty_choice(&job->choices[i]);
    for (int i = 0; i < job->prompt_count; i++)
        free(job->prompts[i].ids);
    free(job->prompts);
    job->prompts = NULL;
    job->prompt_count = 0;
    grammar_free(job->grammar);
    job->grammar = NULL;
    job_drop_json(job);
    json_decref(job->kept_tools);
    job->tools = job->kept_tools = NULL;
    json_decref(job->schema);
    job->schema = NULL;
    response_free(job);
    strbuf_free(&job->reply);
    job_charge(job, 0);
}

void job_free(struct job *job)
{
    if (!job)
        return;
    job_empty(job);
    free(job->choices);
    fields_free(&job->params);
    arena_free(&job->kept);
    strbuf_free(&job->text);
    strbuf_free(&job->outgoing);
    free(job);
}

bool job_charge(struct job *job, size_t total_bytes)
{
    size_t had = job->charged_bytes;
    if (!job->budget)
        return true;
    if (total_bytes > had && !budget_take(job->budget, total_bytes - had))
        return false;
    if (total_bytes < had)
        budget_give_back(job->budget, had - total_bytes);
    job->charged_bytes = total_bytes;
    return true;
}

void job_make_choices(struct job *job)
{
    int each = (int)job->params.n;
    job->choice_count = job->prompt_count * each;
    job->choices = memory_new((size_t)job->choice_count, sizeof *job->choices);
    for (int i = 0; i < job->choice_count; i++)
        job->choices[i] = (struct choice){
            .job = job, .index = i, .number = i % each, .prompt = &job->prompts[i / each], .stop_hit = -1, .stop_id = -1
        };
}
