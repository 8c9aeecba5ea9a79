// SPDX-License-Identifier: Apache-2.0
// Each model family from a request to its answer: the published chat template, then a stub sampler that forces the
// tokens of an answer as the family writes it, through the stages of the server. The answer is whole or streamed, and
// its text comes in every split of its bytes into tokens, with markers as special tokens and as plain text.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "format/json.h"
#include "server/answer.h"
#include "server/generation.h"
#include "server/kind.h"
#include "server/read.h"
#include "text/tools/form.h"

#include <cmocka.h>

#include "tokenizer_open.h"

// In a script %t is a thought, %s is what is said to the user, and %c are the calls.
#define THOUGHT "H\xC3\xB6her? {\"a\": [1]}\n\nNo <b>: \\\""
#define SAID "Gut \xE2\x98\x83 <i>\\:"

struct family {
    const char *template; // its name in llama.cpp's models/templates, or the source itself
    const char *specials; // its special tokens, a blank between them
    const char *script;
    const char *end;    // the token that ends the turn
    const char *fields; // of the request, JSON with ' for "
    bool single;        // one call is all that it writes
};

#define BAR "\xEF\xBD\x9C"
#define LOW "\xE2\x96\x81"
#define DS(name) "<" BAR name BAR ">"
#define DS_TOOLS                                                                                            \
    DS("tool" LOW "calls" LOW "begin")                                                                      \
    " " DS("tool" LOW "calls" LOW "end") " " DS("tool" LOW "call" LOW "begin") " " DS("tool" LOW "call" LOW \
                                                                                      "end") " " DS("tool" LOW "sep")
#define DS_END DS("end" LOW "of" LOW "sentence")
#define THINK_TAGS "<think> </think>"
#define CALL_TAGS "<tool_call> </tool_call>"
#define HERMES_TAGS THINK_TAGS " " CALL_TAGS
#define ON "'enable_thinking': true"
// A template that llama.cpp has no file of: what its family's signs are, behind messages and tools.
#define SIGNS(text) "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}{% if false %}" text "{% endif %}"

static const struct family families[] = {
    // Hermes JSON.
    { "Qwen-Qwen3-0.6B", HERMES_TAGS, "<think>\n%t\n</think>\n\n%s\n%c", "<|im_end|>" },
    { "Qwen-Qwen3-0.6B", HERMES_TAGS, "%s\n%c", "<|im_end|>", "'enable_thinking': false" },
    { "Qwen-QwQ-32B", HERMES_TAGS, "%t\n</think>\n\n%s\n%c", "<|im_end|>", ON },
    { "Qwen-Qwen2.5-7B-Instruct", CALL_TAGS, "%s\n%c", "<|im_end|>" },
    { "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", CALL_TAGS, "%s\n%c", "<|im_end|>" },
    { "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", CALL_TAGS, "%s\n%c", "<|im_end|>" },
    { "MiMo-VL", CALL_TAGS, "%s\n%c", "<|im_end|>" },
    { "ibm-granite-granite-4.0", CALL_TAGS, "%s\n%c", "<|end_of_text|>" },
    { "ibm-granite-granite-4.1", CALL_TAGS, "%s\n%c", "<|end_of_text|>" },
    { "Bielik-11B-v3.0-Instruct", HERMES_TAGS, "%t\n</think>\n\n%s\n%c", "<|im_end|>", ON },
    { "Reka-Edge", HERMES_TAGS, "%t\n</think>\n\n%s\n%c", "<sep>", ON },
    { "HuggingFaceTB-SmolLM3-3B", HERMES_TAGS, "<think>\n%t\n</think>\n%s\n%c", "<|im_end|>" },
    { SIGNS("<tool_call></think><response>"), HERMES_TAGS " <response> </response>",
      "<think>\n%t\n</think>\n\n<response>\n%s\n</response>\n%c", "</s>" },
    // Qwen's XML.
    { "Qwen3-Coder", CALL_TAGS, "%s\n%c", "<|im_end|>" },
    { "Qwen3.5-4B", HERMES_TAGS, "%t\n</think>\n\n%s\n\n%c", "<|im_end|>" },
    { "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", HERMES_TAGS, "%t\n</think>\n%s\n%c", "<|im_end|>" },
    { "StepFun3.5-Flash", HERMES_TAGS, "%t\n</think>\n%s\n%c", "<|im_end|>" },
    { "ByteDance-Seed-OSS", "<seed:think> </seed:think> <seed:tool_call> </seed:tool_call>",
      "<seed:think>%t</seed:think>%s\n%c", "<seed:eos>" },
    // GLM and its kin.
    { "GLM-4.6", HERMES_TAGS " <arg_key> </arg_key> <arg_value> </arg_value>", "\n<think>%t</think>\n%s\n%c",
      "<|observation|>" },
    { "GLM-4.7-Flash", HERMES_TAGS " <arg_key> </arg_key> <arg_value> </arg_value>", "%t</think>%s%c",
      "<|observation|>" },
    { "inclusionai-ling-3.0-flash", HERMES_TAGS, "%t\n</think>\n\n%s\n%c", "<|role_end|>" },
    { "poolside-Laguna-S-2.1", HERMES_TAGS, "%t</think>%s%c", "</assistant>" },
    { "poolside-Laguna-XS-2.1", HERMES_TAGS, "%s\n%c", "</assistant>" },
    { "poolside-Laguna-XS.2", HERMES_TAGS, "%s\n%c", "</assistant>" },
    { "Spark2.5", HERMES_TAGS, "%t</think>%s%c", DS_END },
    { "tencent-Hy3", "<think:opensource> </think:opensource> <tool_calls:opensource> </tool_calls:opensource>",
      "%t</think:opensource>%s%c", "<eos>", "'reasoning_effort': 'high'" },
    // DeepSeek.
    { "llama-cpp-deepseek-r1", THINK_TAGS " " DS_TOOLS, "%t\n</think>\n\n%s%c", DS_END },
    { "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", THINK_TAGS " " DS_TOOLS, "%t\n</think>\n\n%s%c", DS_END },
    { "deepseek-ai-DeepSeek-V3.1", THINK_TAGS " " DS_TOOLS, "%t</think>%s%c", DS_END, ON },
    { "deepseek-ai-DeepSeek-V3.2", THINK_TAGS, "%t</think>%s\n\n%c", DS_END, ON },
    { "deepseek-ai-DeepSeek-V4", THINK_TAGS, "%t</think>%s\n\n%c", DS_END, ON },
    { "deepseek-ai-DeepSeek-V4-Flash-0731", THINK_TAGS, "%s\n\n%c", DS_END },
    // gpt-oss.
    { "openai-gpt-oss-120b", "<|channel|> <|message|> <|start|> <|end|> <|constrain|>",
      "<|channel|>analysis<|message|>%t<|end|><|start|>assistant<|channel|>commentary<|message|>%s<|end|>"
      "<|start|>assistant%c",
      "<|call|>", .single = true },
    // Kimi.
    { "Kimi-K2-Instruct",
      "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_argument_begin|> "
      "<|tool_call_end|>",
      "%s%c", "<|im_end|>" },
    { "moonshotai-Kimi-K2",
      "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_argument_begin|> "
      "<|tool_call_end|>",
      "%s%c", "<|im_end|>" },
    { "Kimi-K2-Thinking",
      THINK_TAGS " <|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> "
                 "<|tool_call_argument_begin|> <|tool_call_end|>",
      "<think>%t</think>%s%c", "<|im_end|>" },
    { "Kimi-K3", "<|open|> <|close|> <|sep|>",
      "%t<|close|>think<|sep|><|open|>response<|sep|>%s<|close|>response<|sep|>%c<|close|>message<|sep|>",
      "<|end_of_msg|>" },
    // Mistral.
    { "mistralai-Mistral-Nemo-Instruct-2407", "[TOOL_CALLS]", "%s%c", "</s>" },
    { "Mistral-Small-3.2-24B-Instruct-2506", "[TOOL_CALLS] [CALL_ID] [ARGS]", "%s%c", "</s>" },
    { "unsloth-mistral-Devstral-Small-2507", "[TOOL_CALLS] [ARGS]", "%s%c", "</s>" },
    { "mistralai-Ministral-3-14B-Reasoning-2512", "[THINK] [/THINK] [TOOL_CALLS] [ARGS]", "[THINK]%t[/THINK]%s%c",
      "</s>" },
    // MiniMax.
    { "MiniMax-M1", "", "%s\n%c", "<end_of_sentence>" },
    { "MiniMax-M2", THINK_TAGS " <minimax:tool_call> </minimax:tool_call>", "%t\n</think>\n\n%s\n\n%c", "[e~[" },
    { "MiniMax-M3", "<mm:think> </mm:think> ]<]minimax[>[", "<mm:think>%t</mm:think>%s\n%c", "[e~[" },
    // Llama.
    { "meta-llama-Llama-3.1-8B-Instruct", "<|python_tag|>", "%c", "<|eot_id|>", .single = true },
    { "meta-llama-Llama-3.2-3B-Instruct", "<|python_tag|>", "%c", "<|eom_id|>", .single = true },
    { "meta-llama-Llama-3.3-70B-Instruct", "", "%c", "<|eot_id|>", .single = true },
    { SIGNS("<|python_start|>"), "<|python_start|> <|python_end|>", "%c", "<|eot|>" },
    // Gemma.
    { "google-gemma-4-31B-it", "<|channel> <channel|> <|tool_call> <tool_call|> <|\"|>",
      "<|channel>thought\n%t\n<channel|>%s%c", "<|tool_response>", ON },
    { "google-gemma-4-31B-it-interleaved", "<|channel> <channel|> <|tool_call> <tool_call|> <|\"|>", "%s%c",
      "<turn|>" },
    { SIGNS("<start_function_call>"), "<start_function_call> <end_function_call> <escape>", "%s%c",
      "<start_function_response>" },
    // Cohere.
    { "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
      "<|START_THINKING|> <|END_THINKING|> <|START_ACTION|> <|END_ACTION|> <|START_RESPONSE|> <|END_RESPONSE|>",
      "<|START_THINKING|>%t<|END_THINKING|>%c", "<|END_OF_TURN_TOKEN|>", ON },
    { "Cohere2MoE", "<|START_THINKING|> <|END_THINKING|> <|START_ACTION|> <|END_ACTION|> <|START_TEXT|> <|END_TEXT|>",
      "%t<|END_THINKING|><|START_TEXT|>%s<|END_TEXT|>%c", "<|END_OF_TURN_TOKEN|>" },
    { SIGNS("Action: tool_name"), "", "%c", "<|END_OF_TURN_TOKEN|>" },
    // A family each.
    { "ibm-granite-granite-3.3-2B-Instruct", "<|tool_call|>", "<think>%t</think><response>%s</response>%c",
      "<|end_of_text|>", "'chat_template_kwargs': {'thinking': true}" },
    { "NVIDIA-Nemotron-Nano-v2", "<SPECIAL_12>", "%t\n</think>\n\n%s\n%c", "<SPECIAL_12>" },
    { "LFM2-8B-A1B", "<|tool_call_start|> <|tool_call_end|>", "%s%c", "<|im_end|>" },
    { "LFM2.5-8B-A1B", THINK_TAGS " <|tool_call_start|> <|tool_call_end|>", "<think>%t</think>%s%c", "<|im_end|>" },
    { "LFM2.5-Instruct", "<|tool_call_start|> <|tool_call_end|>", "%s%c", "<|im_end|>" },
    { "Apertus-8B-Instruct", "<|inner_prefix|> <|inner_suffix|> <|tools_prefix|> <|tools_suffix|>",
      "<|inner_prefix|>%t<|inner_suffix|>%s%c", "<|assistant_end|>" },
    { "unsloth-Apriel-1.5", "", "%s\n%c", "<|end|>" },
    { "Apriel-1.6-15b-Thinker-fixed", "", "%t\n[BEGIN FINAL RESPONSE]\n%s\n%c", "<|end|>" },
    { "upstage-Solar-Open-100B",
      "<|think|> <|content|> <|begin|> <|end|> <|tool_calls|> <|tool_call:begin|> <|tool_call:name|> "
      "<|tool_call:args|> "
      "<|tool_call:end|>",
      "<|think|>%t<|end|><|begin|>assistant<|content|>%s<|end|><|begin|>assistant%c", "<|calls|>" },
    { "upstage-Solar-Open-100B",
      "<|think|> <|content|> <|begin|> <|end|> <|tool_calls|> <|tool_call:begin|> <|tool_call:name|> "
      "<|tool_call:args|> "
      "<|tool_call:end|>",
      "<|think|>%t<|end|><|begin|>assistant%c", "<|calls|>" },
    { "openbmb-MiniCPM5-1B", THINK_TAGS, "<think>\n%t\n</think>\n\n%s\n%c", "<|im_end|>" },
    { "GigaChat3-10B-A1.8B", "<|role_sep|> <|message_sep|>", "%s<|message_sep|>\n\n%c", "</s>", .single = true },
    { "GigaChat3.1-10B-A1.8B", "<|function_call|>", "%s%c", "<|message_sep|>", .single = true },
    { "meetkai-functionary-medium-v3.1", "", "%s\n%c", "<|eom_id|>" },
    { "muse-glimmer", "<|start|> <|message|> <|eom|>",
      " to=self<|message|>%t<|eom|><|start|>assistant to=user<|message|>%s<|eom|><|start|>assistant "
      "to=get_weather<|message|>%c",
      "<|eot|>" },
    // Answers without a call.
    { "Qwen3.5-4B", HERMES_TAGS, "%t\n</think>\n\n%s", "<|im_end|>" },
    { "openai-gpt-oss-120b", "<|channel|> <|message|> <|start|> <|end|>",
      "<|channel|>analysis<|message|>%t<|end|><|start|>assistant<|channel|>final<|message|>%s", "<|return|>" },
    { "Kimi-K3", "<|open|> <|close|> <|sep|>",
      "%t<|close|>think<|sep|><|open|>response<|sep|>%s<|close|>response<|sep|><|close|>message<|sep|>",
      "<|end_of_msg|>" },
    { "Cohere2MoE", "<|START_THINKING|> <|END_THINKING|> <|START_TEXT|> <|END_TEXT|>",
      "%t<|END_THINKING|><|START_TEXT|>%s<|END_TEXT|>", "<|END_OF_TURN_TOKEN|>" },
    { "ibm-granite-granite-3.3-2B-Instruct", "", "<think>%t</think><response>%s</response>", "<|end_of_text|>",
      "'chat_template_kwargs': {'thinking': true}" },
    { "upstage-Solar-Open-100B", "<|think|> <|content|> <|begin|> <|end|>",
      "<|think|>%t<|end|><|begin|>assistant<|content|>%s<|end|>", "<|endoftext|>" },
    { "muse-glimmer", "<|start|> <|message|> <|eom|>",
      " to=self<|message|>%t<|eom|><|start|>assistant to=user<|message|>%s", "<|eot|>" },
    { "GigaChat3-10B-A1.8B", "<|role_sep|> <|message_sep|>", "%s", "<|message_sep|>" },
    // Without a published file.
    { SIGNS("<tool_calls>[</think><answer>"), THINK_TAGS " <answer> </answer>",
      "<think>\n%t\n</think>\n<answer>\n%s\n</answer>%c", "<eos>" },
    { SIGNS("functools"), "", "%c", "<|end|>" },
    { SIGNS("<function_calls>"), "", "%s\n%c", "<|im_end|>" },
    { SIGNS("<|action_start|><|plugin|>"), "<|action_start|> <|action_end|> <|plugin|>", "%s\n%c", "<|im_end|>",
      .single = true },
    { SIGNS("<longcat_tool_call></think>"), THINK_TAGS, "<think>\n%t\n</think>\n\n%s\n%c", "</s>" },
    { SIGNS("<dots_function_call>"), "", "%s\n%c", "<eos>" },
    { SIGNS("<steptml:invoke></think>"), THINK_TAGS, "<think>\n%t\n</think>\n%s\n%c", "<eos>" },
    { SIGNS("<function_call>"), "", "%s\n%c", "<eos>" },
};

// ---- the script ---------------------------------------------------------------------------------------------------

static const char calls_text[] = "[{'name': 'get_weather', 'arguments': {'city': 'Troms\xC3\xB8 \xF0\x9F\x8C\xA7\\n"
                                 "\\\\n <b>\\\"{}\\\" it\\u0027s', 'days': 2, 'deep': {'a': [1, null]}}},"
                                 "{'name': 'get_time', 'arguments': {}}]";
static const char tools_text[] = "[{'type': 'function', 'function': {'name': 'get_weather', 'description': 'Now.', "
                                 "'parameters': {'type': 'object',"
                                 "'properties': {'city': {'type': 'string', 'description': 'Where.'}, 'days': {'type': "
                                 "'integer', 'description': "
                                 "'How many.'}, 'deep': {'type': 'object', 'description': 'More.'}}, 'required': "
                                 "['city']}}},"
                                 "{'type': 'function', 'function': {'name': 'get_time', 'description': 'The time.', "
                                 "'parameters': {'type': 'object',"
                                 "'properties': {}, 'required': []}}}]";

// Describes the answer that is expected of a script.
struct expected {
    bool thought, said;
    json_t *calls; // NULL: none, since what looks like one is broken
};

static struct strbuf write_script(const struct family *family, const struct tool_form *form, const json_t *calls)
{
    struct strbuf script = { 0 };
    for (const char *at = family->script; *at; at++) {
        if (*at != '%')
            strbuf_add_byte(&script, *at);
        else if (*++at == 'c')
            tool_form_write(form, calls, &script);
        else
            strbuf_add_text(&script, *at == 't' ? THOUGHT : SAID);
    }
    return script;
}

// ---- the vocabulary -----------------------------------------------------------------------------------------------

// Bytes, the family's special tokens, and each piece of a script that a split may make.
struct vocabulary {
    struct tokenizer *tokenizer;
    struct bytes specials[16];
    int special_count;
    struct strbuf pieces; // JSON members of the vocabulary
    json_t *ids;          // by the piece in the byte alphabet
    int size;
};

// The name of a piece as test data has it: JSON in which a quote may not stand as itself.
static void add_name(struct strbuf *out, struct bytes letters)
{
    json_t *name = json_stringn(letters.data, letters.len);
    char *dumped = json_dumps(name, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    for (const char *at = dumped; *at; at++)
        strbuf_add_format(out, *at == '\'' ? "\\u%04x" : "%c", *at);
    free(dumped);
    json_decref(name);
}

// A piece's id: a byte's is the byte.
static int32_t id_of(struct vocabulary *vocabulary, struct bytes text)
{
    struct strbuf letters = { 0 };
    if (text.len == 1)
        return (unsigned char)text.data[0];
    bytemap_encode(text, &letters);
    json_t *known = json_object_getn(vocabulary->ids, letters.data, letters.len);
    if (!known) {
        strbuf_add_byte(&vocabulary->pieces, ',');
        add_name(&vocabulary->pieces, strbuf_bytes(&letters));
        strbuf_add_format(&vocabulary->pieces, ":%d", vocabulary->size);
        known = json_integer(vocabulary->size++);
        json_object_setn_new(vocabulary->ids, letters.data, letters.len, known);
    }
    strbuf_free(&letters);
    return (int32_t)json_integer_value(known);
}

// The special token that the text begins with; -1: none does.
static int special_at(const struct vocabulary *vocabulary, struct bytes text)
{
    for (int i = 0; i < vocabulary->special_count; i++) {
        struct bytes special = vocabulary->specials[i];
        if (text.len >= special.len && !memcmp(text.data, special.data, special.len))
            return i;
    }
    return -1;
}

enum { BYTEWISE = 0 };

// The script as tokens: special ones, and between them pieces that are as long as can be but for the cut.
static void split(struct vocabulary *vocabulary, struct bytes script, size_t cut, struct tokens *out)
{
    out->count = 0;
    for (size_t begin = 0, end; begin < script.len; begin = end) {
        int special = special_at(vocabulary, bytes_from(script, begin));
        end = begin + 1;
        if (special >= 0) {
            end = begin + vocabulary->specials[special].len;
            tokens_add(out, 256 + special);
            continue;
        }
        while (cut != BYTEWISE && end < script.len && end != cut && special_at(vocabulary, bytes_from(script, end)) < 0)
            end++;
        tokens_add(out, id_of(vocabulary, (struct bytes){ script.data + begin, end - begin }));
    }
}

static void add_special(struct vocabulary *vocabulary, struct bytes text, struct strbuf *json)
{
    if (special_at(vocabulary, text) >= 0)
        return;
    strbuf_add_text(json, vocabulary->special_count ? ",{'content':" : "'added_tokens':[{'content':");
    add_name(json, text);
    strbuf_add_format(json, ",'id':%d,'special':true}", vocabulary->size++);
    assert_true(vocabulary->special_count < (int)COUNT_OF(vocabulary->specials));
    vocabulary->specials[vocabulary->special_count++] = text;
}

// Opens a vocabulary for all splits of the script. plain: it has no special tokens.
static struct vocabulary open_vocabulary(const struct family *family, struct bytes script, bool plain)
{
    struct vocabulary vocabulary = { .ids = json_object(), .size = 256 };
    struct strbuf added = { 0 };
    struct tokens ignored = { 0 };
    for (const char *at = family->specials; *at && !plain; at += strcspn(at, " "), at += *at == ' ')
        add_special(&vocabulary, (struct bytes){ at, strcspn(at, " ") }, &added);
    if (!plain)
        add_special(&vocabulary, bytes_of(family->end), &added);
    strbuf_add_text(&added, plain ? "" : "],");
    for (size_t cut = 1; cut <= script.len; cut++)
        split(&vocabulary, script, cut, &ignored);
    vocabulary.tokenizer = open_byte_level(strbuf_text(&vocabulary.pieces), "", strbuf_text(&added));
    tokens_free(&ignored);
    strbuf_free(&added);
    return vocabulary;
}

static void close_vocabulary(struct vocabulary *vocabulary)
{
    tokenizer_close(vocabulary->tokenizer);
    strbuf_free(&vocabulary->pieces);
    json_decref(vocabulary->ids);
}

// ---- the model ----------------------------------------------------------------------------------------------------

static const char *const model_names[] = { "model" };
static int32_t end_id;
static struct api api = { .names = model_names,
                          .name_count = 1,
                          .fingerprint = "fp",
                          .max_model_len = 1 << 16,
                          .token_bytes_max = 1 << 10,
                          .max_reasoning_tokens = -1,
                          .defaults.sampling = { .temperature = 1,
                                                 .top_p = 1,
                                                 .repetition_penalty = 1,
                                                 .typical_p = 1,
                                                 .dry_base = 1.75,
                                                 .mirostat_tau = 5,
                                                 .mirostat_eta = 0.1 },
                          .end_ids = &end_id,
                          .end_count = 1 };

// Writes where llama.cpp's templates are; without a name their folder.
static void find_template(const char *name, struct strbuf *path)
{
    const char *source = getenv("NIBBLE_TEST_LLAMA_SOURCE"), *cache = getenv("NIBBLE_CACHE"), *home = getenv("HOME");
    if (source)
        strbuf_add_text(path, source);
    else
        strbuf_add_format(path, "%s%s/llama-cpp-python-0.3.36",
                          cache      ? cache
                              : home ? home
                                     : "",
                          cache ? "" : "/.cache/nibble");
    strbuf_add_format(path, "/models/templates/%s%s", name ? name : "", name ? ".jinja" : "");
}

static bool has_templates(void)
{
    struct strbuf path = { 0 };
    find_template(NULL, &path);
    bool there = !access(strbuf_text(&path), R_OK);
    strbuf_free(&path);
    return there;
}

static struct chat *open_chat(const struct family *family)
{
    static const char special_tokens[] = "{'bos_token': '<s>', 'eos_token': '</s>'}";
    struct checkpoint checkpoint = { .path = "test", .tokenizer_config = read_quoted(special_tokens) };
    struct error err = { "" };
    struct file file = { 0 };
    struct strbuf path = { 0 };
    bool inline_source = *family->template == '{';
    find_template(family->template, &path);
    if (!inline_source && !file_open(&file, strbuf_text(&path), &err))
        fail_msg("%s", err.text);
    struct chat *chat = chat_open_source(&checkpoint, inline_source ? bytes_of(family->template) : file.content, &err);
    if (!chat)
        fail_msg("%s: %s", family->template, err.text);
    file_close(&file);
    strbuf_free(&path);
    json_decref(checkpoint.tokenizer_config);
    return chat;
}

static void use_vocabulary(const struct vocabulary *vocabulary, bool plain)
{
    api.tokenizer = vocabulary->tokenizer;
    api.logits = tokenizer_size(vocabulary->tokenizer);
    end_id = plain ? -1 : 256 + vocabulary->special_count - 1;
    api.reasoning = chat_reasoning(api.chat);
    tokens_free(&api.reasoning_tokens);
    if (api.reasoning)
        reasoning_tokens(api.reasoning, api.tokenizer, &api.reasoning_tokens);
}

static struct job *read_request(const struct family *family, int choices, bool stream)
{
    struct job *job = job_new(&api, JOB_CHAT, "/v1/chat/completions");
    struct strbuf fields = { 0 };
    strbuf_add_format(&fields, "{'messages': [{'role': 'user', 'content': 'Weather?'}], 'tools': %s, 'n': %d, ",
                      tools_text, choices);
    strbuf_add_format(&fields, "'stream': %s, 'max_tokens': 512%s%s}", stream ? "true" : "false",
                      family->fields ? ", " : "", family->fields ? family->fields : "");
    job->json = read_quoted(strbuf_text(&fields));
    strbuf_free(&fields);
    if (!read_job(job))
        fail_msg("%s: %s", family->template, job->error.text);
    return job;
}

static bool ends_answer(const struct job *job, int32_t id)
{
    const struct nibble_request *request = &job->params.request;
    for (size_t i = 0; i < request->stop_count; i++)
        if (request->stop_ids[i] == id)
            return true;
    return id == end_id;
}

// Appends what can be written of the answer now.
static void write_slices(struct job *job, struct strbuf *out)
{
    for (bool all = false; !all;) {
        struct strbuf slice = { 0 };
        all = job->params.stream ? answer_stream(job, &slice) : answer_whole(job, &slice);
        strbuf_add(out, slice.data, slice.len);
        strbuf_free(&slice);
    }
}

enum { ANSWER_TOKENS = 512 };

// A choice whose tokens are still to be given.
struct run {
    struct nibble_listener listener;
    struct tokens script;
    size_t at;
    bool over;
};

// A step of the engine: the next token of a choice, or its end.
static void step(struct job *job, struct choice *choice, struct run *run)
{
    struct nibble_usage usage = { 0 };
    bool goes_on = run->at < run->script.count;
    if (goes_on) {
        int32_t drawn = run->script.ids[run->at], id = drawn;
        if (run->listener.choose_token)
            id = run->listener.choose_token(choice, ANSWER_TOKENS, drawn);
        run->at += id == drawn;
        struct nibble_token token = { .id = id, .stop = ends_answer(job, id) };
        goes_on = run->listener.token(choice, &token) && !token.stop;
    }
    run->over = !goes_on;
    if (run->over)
        run->listener.finished(choice, NIBBLE_FINISH_STOP, &usage, NULL);
    output_move(&choice->step_output, &choice->delivered);
}

// All steps of all choices, with what a stream writes behind each of them.
static void generate(struct job *job, struct run *runs, struct strbuf *out)
{
    while (job->running) {
        for (int i = 0; i < job->choice_count; i++)
            if (!runs[i].over)
                step(job, &job->choices[i], &runs[i]);
        answer_take(job);
        if (job->params.stream)
            write_slices(job, out);
    }
    job->released = true;
    write_slices(job, out);
}

// ---- the answer ---------------------------------------------------------------------------------------------------

static void append(json_t *object, const char *key, const json_t *delta)
{
    const char *more = json_string_value(json_object_get(delta, key)), *had;
    if (!more)
        return;
    had = json_string_value(json_object_get(object, key));
    json_object_set_new(object, key, json_sprintf("%s%s", had ? had : "", more));
}

static void append_call(json_t *message, const json_t *delta)
{
    json_t *calls = json_object_get(message, "tool_calls");
    size_t index = (size_t)json_integer_value(json_object_get(delta, "index"));
    if (!calls)
        json_object_set_new(message, "tool_calls", calls = json_array());
    if (index == json_array_size(calls)) { // the first delta has the name and the id
        assert_true(json_is_string(json_object_get(delta, "id")));
        json_array_append_new(calls,
                              json_pack("{s:O, s:{s:O}}", "id", json_object_get(delta, "id"), "function", "name",
                                        json_object_get(json_object_get(delta, "function"), "name")));
    }
    assert_true(index + 1 == json_array_size(calls));
    append(json_object_get(json_array_get(calls, index), "function"), "arguments", json_object_get(delta, "function"));
}

// The choices that the events of a stream add up to, as a whole answer has them.
static json_t *choices_of_stream(char *events, int count)
{
    json_t *choices = json_array(), *delta;
    size_t i;
    for (int n = 0; n < count; n++)
        json_array_append_new(choices, json_pack("{s:{}}", "message"));
    for (char *rest, *line = strtok_r(events, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *event = json_loads(line + strlen("data: "), 0, NULL);
        json_t *chunk = json_array_get(json_object_get(event, "choices"), 0);
        const json_t *given = json_object_get(chunk, "delta");
        json_t *choice = json_array_get(choices, (size_t)json_integer_value(json_object_get(chunk, "index")));
        json_t *message = json_object_get(choice, "message");
        append(message, "reasoning_content", given);
        append(message, "content", given);
        json_array_foreach (json_object_get(given, "tool_calls"), i, delta)
            append_call(message, delta);
        append(choice, "finish_reason", chunk);
        json_decref(event);
    }
    return choices;
}

static json_t *choices_of(struct job *job, struct strbuf *out)
{
    if (job->params.stream)
        return choices_of_stream((char *)strbuf_text(out), job->choice_count);
    json_t *answer = json_loadb(out->data, out->len, 0, NULL);
    json_t *choices = json_incref(json_object_get(answer, "choices"));
    assert_non_null(choices);
    json_decref(answer);
    return choices;
}

static bool has_text(const json_t *message, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(message, key));
    return !strcmp(value ? value : "", text);
}

static bool has_calls(const json_t *message, const json_t *calls)
{
    size_t i;
    json_t *call;
    bool same = json_array_size(json_object_get(message, "tool_calls")) == json_array_size(calls);
    json_array_foreach (json_object_get(message, "tool_calls"), i, call) {
        const json_t *function = json_object_get(call, "function"), *wanted = json_array_get(calls, i);
        json_t *arguments = json_loads(json_string_value(json_object_get(function, "arguments")), 0, NULL);
        same = same && json_equal(json_object_get(function, "name"), json_object_get(wanted, "name"))
            && json_equal(arguments, json_object_get(wanted, "arguments"))
            && json_string_length(json_object_get(call, "id"));
        json_decref(arguments);
    }
    return same;
}

static bool is_expected(const json_t *choice, const struct expected *expected)
{
    const json_t *message = json_object_get(choice, "message");
    const char *content = json_string_value(json_object_get(message, "content"));
    bool same = has_text(message, "reasoning_content", expected->thought ? THOUGHT : "")
        && has_calls(message, expected->calls)
        && has_text(choice, "finish_reason", json_array_size(expected->calls) ? "tool_calls" : "stop");
    if (expected->calls)
        return same && has_text(message, "content", expected->said ? SAID : "");
    return same && content && strstr(content, "get_nothing") && strstr(content, "days")
        && (!expected->said || !strncmp(content, SAID, strlen(SAID)));
}

// ---- together -----------------------------------------------------------------------------------------------------

// The answers to so many splits from `first` on, a choice each.
static json_t *answer_splits(struct job *job, struct vocabulary *vocabulary, struct bytes script, size_t first)
{
    struct run runs[API_CHOICES_MAX] = { 0 };
    struct strbuf out = { 0 };
    job->running = job->choice_count;
    for (int i = 0; i < job->choice_count; i++) {
        split(vocabulary, script, first + (size_t)i, &runs[i].script);
        if (end_id >= 0)
            tokens_add(&runs[i].script, end_id);
        generation_listen(&job->choices[i], &runs[i].listener);
        assert_null(runs[i].listener.restrict_tokens);
    }
    generate(job, runs, &out);
    json_t *choices = choices_of(job, &out);
    for (int i = 0; i < job->choice_count; i++)
        tokens_free(&runs[i].script);
    strbuf_free(&out);
    return choices;
}

static void check_splits(const struct family *family, struct vocabulary *vocabulary, struct bytes script, size_t first,
                         int count, bool stream, const struct expected *expected)
{
    struct job *job = read_request(family, count, stream);
    json_t *choices = answer_splits(job, vocabulary, script, first), *choice;
    size_t i;
    json_array_foreach (choices, i, choice)
        if (!is_expected(choice, expected))
            fail_msg("%s, %s, %s tokens, %s, cut at %zu of \"%.*s\": %s", family->template,
                     tools_form_name(job->tool_form), end_id < 0 ? "plain" : "special", stream ? "streamed" : "whole",
                     first + i, (int)script.len, script.data, json_dumps(choice, 0));
    if (!expected->calls && !job->tool_form->bare && !strstr(job->warning, "broken tool call"))
        fail_msg("%s: the log has no word of a broken call", family->template);
    json_decref(choices);
    job_free(job);
}

static void check_script(const struct family *family, struct bytes script, bool plain, const struct expected *expected)
{
    struct vocabulary vocabulary = open_vocabulary(family, script, plain);
    use_vocabulary(&vocabulary, plain);
    check_splits(family, &vocabulary, script, BYTEWISE, 1, false, expected);
    check_splits(family, &vocabulary, script, script.len, 1, false, expected);
    check_splits(family, &vocabulary, script, BYTEWISE, 1, true, expected);
    for (size_t first = 1; first <= script.len; first += API_CHOICES_MAX) {
        size_t left = script.len + 1 - first;
        int count = left < API_CHOICES_MAX ? (int)left : API_CHOICES_MAX;
        check_splits(family, &vocabulary, script, first, count, true, expected);
    }
    close_vocabulary(&vocabulary);
}

// A budget closes a thought that the model does not close, and what it writes on is content.
static void check_budget(const struct family *family)
{
    const char *thought = strstr(family->script, "%t");
    struct strbuf script = { 0 }, fields = { 0 };
    struct family bounded = *family;
    if (!thought)
        return;
    strbuf_add(&script, family->script, (size_t)(thought - family->script));
    strbuf_add_text(&script, "abcdefgh");
    strbuf_add_format(&fields, "%s%s'max_reasoning_tokens': 3", family->fields ? family->fields : "",
                      family->fields ? ", " : "");
    bounded.fields = strbuf_text(&fields);
    struct vocabulary vocabulary = open_vocabulary(family, strbuf_bytes(&script), false);
    use_vocabulary(&vocabulary, false);
    struct job *job = read_request(&bounded, 1, false);
    json_t *choices = answer_splits(job, &vocabulary, strbuf_bytes(&script), BYTEWISE);
    const json_t *message = json_object_get(json_array_get(choices, 0), "message");
    bool has_break = thought > family->script && thought[-1] == '\n'; // a token of the model's, behind its marker
    if (!has_text(message, "reasoning_content", has_break ? "ab" : "abc")
        || !has_text(message, "content", has_break ? "cdefgh" : "defgh"))
        fail_msg("%s: a budget of three tokens gives %s", family->template, json_dumps(message, 0));
    json_decref(choices);
    job_free(job);
    close_vocabulary(&vocabulary);
    strbuf_free(&script);
    strbuf_free(&fields);
}

static void check_family(const struct family *family)
{
    bool supports_tools;
    struct chat *chat = open_chat(family);
    api.chat = chat;
    const struct tool_form *form = chat_tool_form(chat, &supports_tools);
    json_t *calls = read_quoted(calls_text), *broken = json_deep_copy(calls);
    for (size_t i = 0; i < json_array_size(broken); i++)
        json_object_set_new(json_array_get(broken, i), "name", json_string("get_nothing"));
    bool calls_tools = strstr(family->script, "%c");
    if (!calls_tools)
        json_array_clear(calls);
    if (family->single) {
        json_array_remove(calls, 1);
        json_array_remove(broken, 1);
    }
    struct expected expected = { strstr(family->script, "%t"), strstr(family->script, "%s"), calls };
    struct expected lost = { expected.thought, expected.said, NULL };
    struct strbuf script = write_script(family, form, calls), other = write_script(family, form, broken);
    for (int plain = 0; plain < 2; plain++) {
        check_script(family, strbuf_bytes(&script), plain, &expected);
        if (!plain && calls_tools)
            check_script(family, strbuf_bytes(&other), plain, &lost);
    }
    check_budget(family);
    strbuf_free(&script);
    strbuf_free(&other);
    json_decref(calls);
    json_decref(broken);
    chat_close(chat);
}

static void test_families(void **state)
{
    (void)state;
    if (!has_templates())
        skip();
    for (size_t i = 0; i < COUNT_OF(families); i++)
        check_family(&families[i]);
    tokens_free(&api.reasoning_tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_families) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
