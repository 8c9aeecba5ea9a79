// SPDX-License-Identifier: Apache-2.0
// Reasoning forms of model families: the table, and detection in a chat template.
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/suggest.h"
#include "text/reasoning.h"
#include "text/template/lex.h"

#define THINK "<think>", "</think>"
#define THINK_FINISH "\n</think>\n\n"

// The first row whose signs are all in the template is its form: special spellings come before plain think tags.
static const struct reasoning_form forms[] = {
    { "harmony", "<|channel|>analysis<|message|>", "<|end|>", .channel = "<|channel|>analysis",
      .calls_in_headers = true, .efforts = "low medium high",
      .finish = "<|end|><|start|>assistant<|channel|>final<|message|>", .vllm = "openai_gptoss gpt_oss",
      .signs = { "<|channel|>", "<|message|>" } },
    { "muse_glimmer", " to=self<|message|>", "<|eom|>", .channel = " to=self",
      .finish = "<|eom|><|start|>assistant to=user<|message|>", .vllm = "muse_glimmer", .signs = { "to=self" } },
    { "minimax_m3", "<mm:think>", "</mm:think>", .finish = "</mm:think>", .vllm = "minimax_m3",
      .signs = { "mm:think" } },
    { "seed_oss", "<seed:think>", "</seed:think>", .finish = "</seed:think>", .vllm = "seed_oss",
      .signs = { "<seed:think>" } },
    { "mistral", "[THINK]", "[/THINK]", .finish = "[/THINK]", .reopens = true, .vllm = "mistral",
      .signs = { "[THINK]" } },
    { "cohere_command4", "<|START_THINKING|>", "<|END_THINKING|>", .answer_open = { "<|START_TEXT|>" },
      .answer_close = { "<|END_TEXT|>" }, .effort_off = "none", .finish = "<|END_THINKING|>", .reopens = true,
      .vllm = "cohere_command4", .signs = { "START_THINKING", "START_TEXT" } },
    { "cohere_command3", "<|START_THINKING|>", "<|END_THINKING|>", .answer_open = { "<|START_RESPONSE|>" },
      .answer_close = { "<|END_RESPONSE|>" }, .finish = "<|END_THINKING|>", .reopens = true, .vllm = "cohere_command3",
      .signs = { "START_THINKING" } },
    { "gemma4", "<|channel>thought", "<channel|>", .finish = "\n<channel|>", .reopens = true, .vllm = "gemma4",
      .signs = { "<|channel>", "<channel|>" } },
    { "apertus", "<|inner_prefix|>", "<|inner_suffix|>", .finish = "<|inner_suffix|>", .reopens = true,
      .vllm = "apertus", .signs = { "inner_prefix" } },
    { "solar", "<|think|>", "<|end|>", .answer_open = { "<|begin|>assistant<|content|>", "<|content|>" },
      .answer_close = { "<|end|>" }, .efforts = "minimal low medium high", .effort_off = "minimal", .finish = "<|end|>",
      .vllm = "solar_open", .signs = { "<|think|>", "<|content|>" } },
    { "kimi_k3", "<|open|>think<|sep|>", "<|close|>think<|sep|>", .answer_open = { "<|open|>response<|sep|>" },
      .answer_close = { "<|close|>response<|sep|>", "<|close|>message<|sep|>" }, .efforts = "low high max",
      .finish = "<|close|>think<|sep|>", .vllm = "kimi_k3", .signs = { "<|open|>", "<|close|>" } },
    { "apriel", "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", .finish = "\n[BEGIN FINAL RESPONSE]\n",
      .signs = { "[BEGIN FINAL RESPONSE]" } },
    { "hy_v3", "<think:opensource>", "</think:opensource>", .efforts = "low high", .effort_off = "no_think",
      .finish = "</think:opensource>", .vllm = "hy_v3", .signs = { "<think{}>" } },
    { "minimax_m2", THINK, .finish = THINK_FINISH, .vllm = "minimax_m2 minimax_m2_append_think",
      .signs = { "</think>", "<minimax:tool_call>" } },
    { "granite", THINK, .answer_open = { "<response>" }, .answer_close = { "</response>" }, .finish = "</think>",
      .vllm = "ernie45", .signs = { "</think>", "<response>" } },
    { "hunyuan_a13b", THINK, .answer_open = { "<answer>" }, .answer_close = { "</answer>" }, .finish = THINK_FINISH,
      .vllm = "hunyuan_a13b", .signs = { "</think>", "<answer>" } },
    { "kimi_k2", THINK, .call = { "<|tool_calls_section_begin|>", "<|tool_call_begin|>" }, .finish = "</think>",
      .vllm = "kimi_k2", .signs = { "</think>", "<|tool_calls_section_begin|>" } },
    { "qwen3", THINK, .call = { "<tool_call>" }, .finish = THINK_FINISH,
      .vllm = "glm45 nemotron_v3 step3p5 mimo ling3 poolside_v1 holo2", .signs = { "</think>", "<tool_call>" } },
    { "think", THINK, .finish = THINK_FINISH, .vllm = "deepseek_r1 deepseek_v3 deepseek_v4 step3 minicpm5",
      .signs = { "</think>" } },
};

enum { FORMS = sizeof forms / sizeof *forms };

// ---- by the template ----------------------------------------------------------------------------------------------

// A bit for each sign of each row that this text holds.
static void note_signs(struct bytes text, unsigned char *seen)
{
    for (int i = 0; i < FORMS; i++)
        for (int j = 0; j < REASONING_TAGS_MAX && forms[i].signs[j]; j++)
            if (bytes_hold(text, forms[i].signs[j]))
                seen[i] |= (unsigned char)(1 << j);
}

// Looks at what a template writes and compares with, not at its comments.
const struct reasoning_form *reasoning_find(struct bytes template_source)
{
    struct arena arena = { 0 };
    struct error ignored; // a template that cannot be read has no form of its own
    unsigned char seen[FORMS] = { 0 };
    struct token *tokens = template_lex(template_source, &arena, &ignored);
    for (const struct token *token = tokens; token && token->type != TOKEN_END; token++)
        if (token->type == TOKEN_DATA || token->type == TOKEN_STRING)
            note_signs(token->text, seen);
    free(tokens);
    arena_free(&arena);
    for (int i = 0; i < FORMS; i++)
        if (seen[i] == (forms[i].signs[1] ? 3 : 1))
            return &forms[i];
    return NULL;
}

// ---- by name ------------------------------------------------------------------------------------------------------

static const char *suggest_form(const char *name)
{
    const char *names[FORMS];
    for (int i = 0; i < FORMS; i++)
        names[i] = forms[i].name;
    return suggest(bytes_of(name), names, FORMS);
}

const struct reasoning_form *reasoning_named(const char *name, struct error *err)
{
    struct strbuf all = { 0 };
    for (int i = 0; i < FORMS; i++)
        if (!strcmp(name, forms[i].name) || bytes_is_word(forms[i].vllm, bytes_of(name)))
            return &forms[i];
    const char *near = suggest_form(name);
    for (int i = 0; i < FORMS; i++)
        strbuf_add_format(&all, "%s%s", i ? ", " : "", forms[i].name);
    if (near)
        fail(err, "there is no reasoning parser \"%.60s\"; did you mean \"%s\"?", name, near);
    else
        fail(err, "there is no reasoning parser \"%.60s\"; there are %s, and vLLM's names for them", name,
             strbuf_text(&all));
    strbuf_free(&all);
    return NULL;
}

// ---- efforts ------------------------------------------------------------------------------------------------------

static int effort_rank(struct bytes word)
{
    static const char *const efforts[] = { "none", "minimal", "low", "medium", "high", "xhigh", "max" };
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (bytes_equal(bytes_of(efforts[i]), word))
            return (int)i;
    return -1;
}

bool reasoning_nearest_effort(const struct reasoning_form *form, const char *effort,
                              char word[REASONING_EFFORT_BYTES_MAX])
{
    int wanted = effort_rank(bytes_of(effort)), best = -1;
    if (wanted < 0)
        return false;
    const char *efforts = form->efforts;
    for (struct bytes one; bytes_next_word(&efforts, &one);) {
        int distance = abs(effort_rank(one) - wanted);
        if (best >= 0 && distance >= best)
            continue;
        best = distance;
        snprintf(word, REASONING_EFFORT_BYTES_MAX, "%.*s", (int)one.len, one.data);
    }
    return best >= 0;
}

// ---- markers ------------------------------------------------------------------------------------------------------

bool reasoning_is_open(const struct reasoning_form *form, struct bytes prompt)
{
    if (form->channel)
        return !bytes_end_with(prompt, bytes_of("<|message|>"));
    while (prompt.len && bytes_is_space(prompt.data[prompt.len - 1]))
        prompt.len--;
    return bytes_end_with(prompt, bytes_of(form->open));
}

static void add_special(const char *text, const struct tokenizer *tokenizer, struct tokens *out)
{
    struct tokens ids = { 0 };
    struct error ignored; // a marker is short
    tokenizer_encode(tokenizer, bytes_of(text ? text : ""), TOKENIZE_PARSE_SPECIAL, &ids, &ignored);
    for (size_t i = 0; i < ids.count; i++)
        if (tokenizer_is_special(tokenizer, ids.ids[i]))
            tokens_add(out, ids.ids[i]);
    tokens_free(&ids);
}

void reasoning_tokens(const struct reasoning_form *form, const struct tokenizer *tokenizer, struct tokens *out)
{
    add_special(form->open, tokenizer, out);
    add_special(form->close, tokenizer, out);
    add_special(form->finish, tokenizer, out);
    for (int i = 0; i < REASONING_TAGS_MAX; i++) {
        add_special(form->answer_open[i], tokenizer, out);
        add_special(form->answer_close[i], tokenizer, out);
    }
}
