// SPDX-License-Identifier: Apache-2.0
#include "server/field_table.h"

#include <math.h>
#include <string.h>

#include "base/suggest.h"
#include "server/fields.h"

#define WITH_SCORES (ON_CHAT | ON_COMPLETION)
#define GENERATE (WITH_SCORES | ON_INFILL)
#define SAMPLE (GENERATE | ON_RESPONSES)
#define TEMPLATE (ON_CHAT | ON_TOKENIZE | ON_TEMPLATE)
#define CONVERSE (ON_CHAT | ON_TOKENIZE | ON_RESPONSES)
#define MESSAGES (ON_MESSAGES | ON_COUNT_TOKENS)
#define OLLAMA (ON_OLLAMA_CHAT | ON_OLLAMA_GENERATE)
#define ANYWHERE                                                                                            \
    (ON_CHAT | ON_COMPLETION | ON_TOKENIZE | ON_DETOKENIZE | ON_RESPONSES | ON_TEMPLATE | MESSAGES | OLLAMA \
     | ON_OLLAMA_SHOW)
#define AT(member) offsetof(struct request_params, member)
#define REQUEST(member) AT(request.member)
#define SAMPLING(member) AT(request.sampling.member)
#define INSTEAD(sentence) .instead = (sentence)
#define ONLY_WORD(word, sentence) .low = 1, .high = 0, .only = (word), .instead = (sentence) // and no number

static const char not_built[] = "this server does not have it";
static const char for_images[] = "this server reads and writes text alone";
static const char one_process[] = "this server neither sends its cache to others nor takes theirs";

// Rows with the same offset are aliases: where a request has several of them, the last row here counts.
const struct field field_table[] = {
    // ---- what is asked, and how long the answer may be
    { "model", ANYWHERE, FIELD_READ },
    { "messages", TEMPLATE, FIELD_READ },
    { "prompt", ON_COMPLETION | ON_TOKENIZE | ON_INFILL, FIELD_READ },
    { "input_prefix", ON_INFILL, FIELD_READ },
    { "input_suffix", ON_INFILL, FIELD_READ },
    { "input_extra", ON_INFILL, FIELD_READ },
    { "tokens", ON_DETOKENIZE, FIELD_READ },
    { "return_token_strs", ON_TOKENIZE, FIELD_READ },
    { "n_cmpl", GENERATE, FIELD_INT, AT(n), 1, API_CHOICES_MAX }, // llama-server's name of n
    { "n", GENERATE, FIELD_INT, AT(n), 1, API_CHOICES_MAX },
    { "n_predict", GENERATE, FIELD_INT, REQUEST(max_tokens), FIELDS_REST_OF_CONTEXT, INT32_MAX }, // llama-server's name
    { "max_tokens", GENERATE, FIELD_INT, REQUEST(max_tokens), FIELDS_REST_OF_CONTEXT, INT32_MAX },
    { "max_completion_tokens", GENERATE, FIELD_INT, REQUEST(max_tokens), FIELDS_REST_OF_CONTEXT, INT32_MAX },
    { "min_tokens", SAMPLE, FIELD_INT, REQUEST(min_tokens), 0, INT32_MAX },
    { "close_at_max_tokens", SAMPLE, FIELD_BOOL, AT(close_at_max_tokens) },
    { "suffix", ON_COMPLETION, FIELD_READ }, // where the model has tokens of fill in the middle
    { "echo", ON_COMPLETION, FIELD_BOOL, AT(echo) },
    { "add_special_tokens", GENERATE | ON_TOKENIZE, FIELD_BOOL, AT(add_special) },
    { "truncate_prompt_tokens", GENERATE, FIELD_INT, AT(truncate_prompt), -1, INT32_MAX },
    { "truncation_side", GENERATE, FIELD_READ },
    { "priority", SAMPLE, FIELD_INT, REQUEST(priority), INT32_MIN, INT32_MAX },
    { "cache_salt", SAMPLE, FIELD_READ },

    // ---- sampling
    { "temperature", SAMPLE, FIELD_REAL, SAMPLING(temperature), 0, 100 },
    { "top_p", SAMPLE, FIELD_REAL, SAMPLING(top_p), 0, 1 },
    { "top_k", SAMPLE, FIELD_INT, SAMPLING(top_k), -1, INT32_MAX }, // -1 and 0 are both off
    { "min_p", SAMPLE, FIELD_REAL, SAMPLING(min_p), 0, 1 },
    { "repeat_penalty", GENERATE, FIELD_REAL, SAMPLING(repetition_penalty), 0.01, 100 }, // llama-server's name
    { "repetition_penalty", SAMPLE, FIELD_REAL, SAMPLING(repetition_penalty), 0.01, 100 },
    { "presence_penalty", SAMPLE, FIELD_REAL, SAMPLING(presence_penalty), -2, 2 },
    { "frequency_penalty", SAMPLE, FIELD_REAL, SAMPLING(frequency_penalty), -2, 2 },
    { "rep_pen", GENERATE, FIELD_REAL, SAMPLING(repetition_penalty), 0.01, 100 }, // KoboldCpp's name
    { "repeat_last_n", GENERATE, FIELD_READ },
    { "dry_multiplier", GENERATE, FIELD_REAL, SAMPLING(dry_multiplier), 0, 100 },
    { "dry_base", GENERATE, FIELD_REAL, SAMPLING(dry_base), 1, 100 },
    { "dry_allowed_length", GENERATE, FIELD_INT, SAMPLING(dry_allowed_length), 0, INT32_MAX },
    { "dry_penalty_last_n", GENERATE, FIELD_READ },
    { "dry_sequence_breakers", GENERATE, FIELD_READ },
    { "top_n_sigma", GENERATE, FIELD_REAL, SAMPLING(top_n_sigma), -1000, 1000 },
    { "typical", GENERATE, FIELD_REAL, SAMPLING(typical_p), 0.001, 1 }, // KoboldCpp's name
    { "typical_p", GENERATE, FIELD_REAL, SAMPLING(typical_p), 0.001, 1 },
    { "top_a", GENERATE, FIELD_REAL, SAMPLING(top_a), 0, 1 },
    { "dynatemp_range", GENERATE, FIELD_REAL, SAMPLING(dynatemp_range), 0, 100 },
    { "dynatemp_exponent", GENERATE, FIELD_REAL, SAMPLING(dynatemp_exponent), 0, 100 },
    { "xtc_probability", GENERATE, FIELD_REAL, SAMPLING(xtc_probability), 0, 1 },
    { "xtc_threshold", GENERATE, FIELD_REAL, SAMPLING(xtc_threshold), 0, 1 },
    { "mirostat", GENERATE, FIELD_INT, SAMPLING(mirostat), 0, 2 },
    { "mirostat_tau", GENERATE, FIELD_REAL, SAMPLING(mirostat_tau), 0, 100 },
    { "mirostat_eta", GENERATE, FIELD_REAL, SAMPLING(mirostat_eta), 0, 1 },
    { "min_keep", GENERATE, FIELD_INT, SAMPLING(min_keep), 0, INT32_MAX },
    { "samplers", GENERATE, FIELD_READ },
    { "seed", SAMPLE, FIELD_READ },
    { "logit_bias", SAMPLE, FIELD_READ },
    { "allowed_token_ids", GENERATE, FIELD_READ },
    { "bad_words", GENERATE, FIELD_READ },

    // ---- where the answer ends
    { "stop", SAMPLE, FIELD_READ },
    { "stop_token_ids", SAMPLE, FIELD_READ },
    { "no_stop_trim", GENERATE, FIELD_BOOL, AT(include_stop) }, // SGLang's name
    { "include_stop_str_in_output", SAMPLE, FIELD_BOOL, AT(include_stop) },
    { "ignore_eos", SAMPLE, FIELD_BOOL, AT(ignore_eos) },

    // ---- how it comes
    { "stream", SAMPLE, FIELD_BOOL, AT(stream) },
    { "stream_options", WITH_SCORES | ON_RESPONSES, FIELD_READ },
    { "logprobs", WITH_SCORES, FIELD_READ },
    { "top_logprobs", ON_CHAT | ON_RESPONSES, FIELD_READ },
    { "prompt_logprobs", WITH_SCORES, FIELD_INT, AT(prompt_logprobs), 0, API_LOGPROBS_MAX },
    { "skip_special_tokens", SAMPLE, FIELD_BOOL, AT(skip_special) },
    { "return_token_ids", WITH_SCORES, FIELD_BOOL, AT(return_token_ids) },
    { "return_tokens_as_token_ids", WITH_SCORES, FIELD_BOOL, AT(tokens_as_ids) },

    // ---- its form
    { "response_format", GENERATE, FIELD_READ },
    { "structured_outputs", SAMPLE, FIELD_READ },
    { "json_schema", GENERATE, FIELD_READ },
    { "regex", GENERATE, FIELD_READ },
    { "guided_json", GENERATE, FIELD_READ },
    { "guided_choice", GENERATE, FIELD_READ },
    { "guided_regex", GENERATE, FIELD_READ },
    { "guided_grammar", GENERATE, FIELD_READ },
    { "grammar", GENERATE, FIELD_READ }, // llama-server's GBNF
    { "ebnf", GENERATE, FIELD_READ },    // SGLang's
    { "structural_tag", GENERATE, FIELD_READ },
    { "tools", CONVERSE, FIELD_READ },
    { "tool_choice", CONVERSE, FIELD_READ },
    { "parallel_tool_calls", CONVERSE, FIELD_READ },

    // ---- the chat template's
    { "add_generation_prompt", TEMPLATE, FIELD_READ },
    { "continue_final_message", TEMPLATE, FIELD_READ },
    { "chat_template", TEMPLATE, FIELD_READ },
    { "chat_template_kwargs", CONVERSE, FIELD_READ },
    { "documents", CONVERSE, FIELD_VARIABLE },

    // ---- thoughts
    { "enable_thinking", CONVERSE, FIELD_READ },
    { "thinking", CONVERSE, FIELD_READ },
    { "reasoning_effort", TEMPLATE, FIELD_READ },
    { "reasoning", TEMPLATE, FIELD_READ },        // OpenRouter's object
    { "reasoning_format", TEMPLATE, FIELD_READ }, // llama-server's
    { "separate_reasoning", ON_CHAT, FIELD_READ },
    { "include_reasoning", ON_CHAT, FIELD_BOOL, AT(include_reasoning) },
    { "stream_reasoning", ON_CHAT, FIELD_BOOL, AT(stream_reasoning) },
    { "thinking_budget_tokens", ON_CHAT, FIELD_INT, AT(max_reasoning_tokens), -1, INT32_MAX }, // llama-server's name
    { "thinking_token_budget", ON_CHAT, FIELD_INT, AT(max_reasoning_tokens), -1, INT32_MAX },  // vLLM's name
    { "max_reasoning_tokens", ON_CHAT, FIELD_INT, AT(max_reasoning_tokens), -1, INT32_MAX },

    // ---- of /v1/responses alone, or there another thing
    { "input", ON_RESPONSES, FIELD_READ },
    { "instructions", ON_RESPONSES, FIELD_READ },
    { "previous_response_id", ON_RESPONSES, FIELD_READ },
    { "store", ON_RESPONSES, FIELD_READ },
    { "truncation", ON_RESPONSES, FIELD_READ },
    { "max_output_tokens", ON_RESPONSES, FIELD_READ },
    { "max_tool_calls", ON_RESPONSES, FIELD_READ }, // of tools that OpenAI runs, of which there are none
    { "text", ON_RESPONSES, FIELD_READ },
    { "reasoning", ON_RESPONSES, FIELD_READ },
    { "include", ON_RESPONSES, FIELD_READ },
    { "metadata", ON_RESPONSES, FIELD_READ },
    { "background", ON_RESPONSES, FIELD_REFUSED, INSTEAD("use stream, and wait for the end") },
    { "conversation", ON_RESPONSES, FIELD_REFUSED, INSTEAD("use previous_response_id") },
    { "prompt", ON_RESPONSES, FIELD_REFUSED, INSTEAD("use instructions and input") },
    { "context_management", ON_RESPONSES, FIELD_REFUSED, INSTEAD("use truncation") },
    { "personality", ON_RESPONSES, FIELD_REFUSED, INSTEAD("use instructions") },
    { "access_programs", ON_RESPONSES, FIELD_REFUSED, INSTEAD(not_built) },
    { "image", ON_RESPONSES, FIELD_REFUSED, INSTEAD(for_images) },

    // ---- without influence: who asks, what for, from where, and hints about speed
    { "user", ANYWHERE, FIELD_HARMLESS },
    { "metadata", ANYWHERE, FIELD_HARMLESS },
    { "client_metadata", ON_RESPONSES, FIELD_HARMLESS }, // of Codex CLI: who asks
    { "store", GENERATE, FIELD_HARMLESS },
    { "service_tier", GENERATE, FIELD_HARMLESS },
    { "safety_identifier", GENERATE, FIELD_HARMLESS },
    { "prompt_cache_key", GENERATE, FIELD_HARMLESS },
    { "prompt_cache_retention", GENERATE, FIELD_HARMLESS },
    { "prompt_cache_options", GENERATE, FIELD_HARMLESS },
    { "prediction", ON_CHAT, FIELD_HARMLESS }, // of OpenAI: a draft for speculation
    { "request_id", ANYWHERE, FIELD_HARMLESS },
    { "rid", GENERATE, FIELD_HARMLESS },
    { "session_id", GENERATE, FIELD_HARMLESS },
    { "custom_labels", GENERATE, FIELD_HARMLESS }, // of SGLang's metrics
    { "stream_interval", GENERATE, FIELD_HARMLESS },
    { "sse_ping_interval", GENERATE, FIELD_HARMLESS },
    { "guided_decoding_backend", GENERATE, FIELD_HARMLESS },
    { "spaces_between_special_tokens", GENERATE, FIELD_HARMLESS }, // for tokenizers in Python; fast ones put none
    { "routed_dp_rank", GENERATE, FIELD_HARMLESS },
    { "data_parallel_rank", GENERATE, FIELD_HARMLESS },
    { "disagg_prefill_dp_rank", GENERATE, FIELD_HARMLESS },
    { "routed_experts_start_len", GENERATE, FIELD_HARMLESS }, // of return_routed_experts
    { "ngram_corpus_id", GENERATE, FIELD_HARMLESS },
    { "id_slot", GENERATE, FIELD_HARMLESS },
    { "cache_prompt", GENERATE, FIELD_HARMLESS }, // tokens do not depend on what the prefix cache has
    { "n_cache_reuse", GENERATE, FIELD_HARMLESS },
    { "n_keep", GENERATE, FIELD_HARMLESS }, // of a shifted context, which is never done
    { "n_discard", GENERATE, FIELD_HARMLESS },
    { "speculative.n_max", GENERATE, FIELD_HARMLESS },
    { "speculative.n_min", GENERATE, FIELD_HARMLESS },
    { "speculative.p_min", GENERATE, FIELD_HARMLESS },
    { "backend_sampling", GENERATE, FIELD_HARMLESS },
    { "adaptive_decay", GENERATE, FIELD_HARMLESS }, // of adaptive_target

    // ---- taken with the value that means off, or that asks for what is done anyway
    { "best_of", GENERATE, FIELD_ONLY, 0, 1, 1, INSTEAD("ask for n answers and choose among them") },
    { "length_penalty", GENERATE, FIELD_ONLY, 0, 1, 1, INSTEAD("it belongs to beam search, which is not built") },
    { "adaptive_target", GENERATE, FIELD_ONLY, 0, -INFINITY, -1e-9, INSTEAD("use mirostat 2") },
    { "tfs", GENERATE, FIELD_ONLY, 0, 1, 1, INSTEAD("use min_p") }, // tail-free sampling, which llama.cpp has dropped
    { "tfs_z", GENERATE, FIELD_ONLY, 0, 1, 1, INSTEAD("use min_p") },
    { "smoothing_factor", GENERATE, FIELD_ONLY, 0, 0, 0, INSTEAD("use dynatemp_range") },
    { "n_indent", GENERATE, FIELD_ONLY, 0, 0, 0, INSTEAD("put the indentation into the prompt") },
    { "n_probs", GENERATE, FIELD_ONLY, 0, 0, 0, INSTEAD("use logprobs") },
    { "t_max_predict_ms", GENERATE, FIELD_ONLY, 0, 0, 0, INSTEAD("use max_tokens, or close the connection") },
    { "parse_special", ON_TOKENIZE, FIELD_ONLY, 0, 1, 1, INSTEAD("special tokens are always recognised") },
    { "parse_tool_calls", ON_CHAT, FIELD_ONLY, 0, 1, 1, INSTEAD("send no tools, and calls stay text") },
    { "modalities", ON_CHAT, FIELD_ONLY, ONLY_WORD("text", for_images) },
    { "verbosity", ON_CHAT, FIELD_ONLY, ONLY_WORD("medium", "say in a system message how long answers are to be") },
    { "function_call", ON_CHAT, FIELD_ONLY, ONLY_WORD("none", "use tool_choice") },

    // ---- not built
    { "functions", ON_CHAT, FIELD_REFUSED, INSTEAD("use tools") },
    { "thinking_forced_open", ON_CHAT, FIELD_REFUSED, INSTEAD("use chat_template_kwargs") },
    { "guided_whitespace_pattern", GENERATE, FIELD_REFUSED, INSTEAD("use structured_outputs.disable_any_whitespace") },
    { "grammar_lazy", GENERATE, FIELD_REFUSED, INSTEAD("use structural_tag") },
    { "grammar_triggers", GENERATE, FIELD_REFUSED, INSTEAD("use structural_tag") },
    { "preserved_tokens", GENERATE, FIELD_REFUSED, INSTEAD("use skip_special_tokens") },
    { "stop_regex", GENERATE, FIELD_REFUSED, INSTEAD("use stop") },
    { "use_beam_search", GENERATE, FIELD_REFUSED, INSTEAD("ask for n answers and choose among them") },
    { "early_stopping", GENERATE, FIELD_REFUSED, INSTEAD("it belongs to beam search, which is not built") },
    { "prompt_embeds", ON_COMPLETION, FIELD_REFUSED, INSTEAD("send text or token ids") },
    { "input_ids", GENERATE, FIELD_REFUSED, INSTEAD("use /v1/completions with token ids as prompt") },
    { "content", ON_TOKENIZE, FIELD_REFUSED, INSTEAD("use prompt") },
    { "add_special", ON_TOKENIZE, FIELD_REFUSED, INSTEAD("use add_special_tokens") },
    { "with_pieces", ON_TOKENIZE, FIELD_REFUSED, INSTEAD("use return_token_strs") },
    { "logprob_token_ids", GENERATE, FIELD_REFUSED, INSTEAD("use top_logprobs") },
    { "post_sampling_probs", GENERATE, FIELD_REFUSED, INSTEAD("logprobs are the model's own") },
    { "return_tokens", GENERATE, FIELD_REFUSED, INSTEAD("use return_token_ids") },
    { "return_prompt_token_ids", GENERATE, FIELD_REFUSED, INSTEAD("use return_token_ids") },
    { "return_prompt_text", GENERATE, FIELD_REFUSED, INSTEAD("use nibble render") },
    { "return_hidden_states", GENERATE, FIELD_REFUSED, INSTEAD(not_built) },
    { "return_routed_experts", GENERATE, FIELD_REFUSED, INSTEAD(not_built) },
    { "return_cached_tokens_details", GENERATE, FIELD_REFUSED, INSTEAD("usage has cached_tokens") },
    { "return_meta_info", GENERATE, FIELD_REFUSED, INSTEAD(not_built) },
    { "return_progress", GENERATE, FIELD_REFUSED, INSTEAD(not_built) },
    { "timings_per_token", GENERATE, FIELD_REFUSED, INSTEAD("/metrics has times") },
    { "response_fields", GENERATE, FIELD_REFUSED, INSTEAD(not_built) },
    { "repetition_detection", GENERATE, FIELD_REFUSED, INSTEAD("use repetition_penalty and max_tokens") },
    { "logits_processors", GENERATE, FIELD_REFUSED, INSTEAD("use logit_bias") },
    { "custom_logit_processor", GENERATE, FIELD_REFUSED, INSTEAD("use logit_bias") },
    { "custom_params", GENERATE, FIELD_REFUSED, INSTEAD(not_built) },
    { "vllm_xargs", GENERATE, FIELD_REFUSED, INSTEAD(not_built) },
    { "lora", GENERATE, FIELD_REFUSED, INSTEAD("serve a model that the adapter is merged into") },
    { "lora_path", GENERATE, FIELD_REFUSED, INSTEAD("serve a model that the adapter is merged into") },
    { "session_params", GENERATE, FIELD_REFUSED, INSTEAD("send the whole conversation; its beginning is cached") },
    { "extra_key", GENERATE, FIELD_REFUSED, INSTEAD("use cache_salt") },
    { "task", ON_CHAT, FIELD_REFUSED, INSTEAD("put it into the prompt") },
    { "kv_transfer_params", GENERATE, FIELD_REFUSED, INSTEAD(one_process) },
    { "ec_transfer_params", GENERATE, FIELD_REFUSED, INSTEAD(one_process) },
    { "bootstrap_host", GENERATE, FIELD_REFUSED, INSTEAD(one_process) },
    { "bootstrap_port", GENERATE, FIELD_REFUSED, INSTEAD(one_process) },
    { "bootstrap_room", GENERATE, FIELD_REFUSED, INSTEAD(one_process) },
    { "audio", ON_CHAT, FIELD_REFUSED, INSTEAD(for_images) },
    { "mm_processor_kwargs", TEMPLATE, FIELD_REFUSED, INSTEAD(for_images) },
    { "media_io_kwargs", TEMPLATE, FIELD_REFUSED, INSTEAD(for_images) },
    { "images_config", GENERATE, FIELD_REFUSED, INSTEAD(for_images) },
    { "max_dynamic_patch", ON_CHAT, FIELD_REFUSED, INSTEAD(for_images) },
    { "min_dynamic_patch", ON_CHAT, FIELD_REFUSED, INSTEAD(for_images) },
    { "use_audio_in_video", ON_CHAT, FIELD_REFUSED, INSTEAD(for_images) },
    { "web_search_options", ON_CHAT, FIELD_REFUSED, INSTEAD("give the model a tool that searches") },
    { "moderation", ON_CHAT | ON_RESPONSES, FIELD_REFUSED, INSTEAD(not_built) },

    // ---- Anthropic's messages, read by messages_*.c
    { "messages", MESSAGES, FIELD_READ },
    { "system", MESSAGES, FIELD_READ },
    { "tools", MESSAGES, FIELD_READ },
    { "tool_choice", MESSAGES, FIELD_READ },
    { "thinking", MESSAGES, FIELD_READ },
    { "output_config", MESSAGES, FIELD_READ },
    { "output_format", MESSAGES, FIELD_READ }, // the name of output_config.format before
    { "context_management", MESSAGES, FIELD_READ },
    { "chat_template_kwargs", MESSAGES, FIELD_READ },
    { "max_tokens", ON_MESSAGES, FIELD_READ },
    { "stop_sequences", ON_MESSAGES, FIELD_READ },
    { "temperature", ON_MESSAGES, FIELD_READ },
    { "top_p", ON_MESSAGES, FIELD_READ },
    { "top_k", ON_MESSAGES, FIELD_READ },
    { "stream", ON_MESSAGES, FIELD_READ },
    { "cache_control", MESSAGES, FIELD_HARMLESS }, // the prefix cache takes what it can
    { "betas", MESSAGES, FIELD_HARMLESS },
    { "anthropic_beta", MESSAGES, FIELD_HARMLESS }, // headers that some clients put here
    { "anthropic_version", MESSAGES, FIELD_HARMLESS },
    { "billing_policy", MESSAGES, FIELD_HARMLESS },
    { "diagnostics", MESSAGES, FIELD_HARMLESS },
    { "fallback_credit_token", MESSAGES, FIELD_HARMLESS },
    { "inference_geo", MESSAGES, FIELD_HARMLESS },
    { "speed", MESSAGES, FIELD_HARMLESS },
    { "user_profile_id", MESSAGES, FIELD_HARMLESS },
    { "workspace_id", MESSAGES, FIELD_HARMLESS },
    { "compaction", MESSAGES, FIELD_REFUSED, INSTEAD("shorten the conversation before it is sent") },
    { "container", MESSAGES, FIELD_REFUSED, INSTEAD("run code on the client's side, as a tool") },
    { "fallbacks", MESSAGES, FIELD_REFUSED, INSTEAD("this server has one model") },
    { "mcp_servers", MESSAGES, FIELD_REFUSED, INSTEAD("call them on the client's side, as tools") },
    { "thread", MESSAGES, FIELD_REFUSED, INSTEAD("send the whole conversation; its beginning is cached") },

    // ---- Ollama's, read by ollama_*.c
    { "messages", ON_OLLAMA_CHAT, FIELD_READ },
    { "tools", ON_OLLAMA_CHAT, FIELD_READ },
    { "prompt", ON_OLLAMA_GENERATE, FIELD_READ },
    { "system", ON_OLLAMA_GENERATE, FIELD_READ },
    { "raw", ON_OLLAMA_GENERATE, FIELD_READ },
    { "options", OLLAMA, FIELD_READ },
    { "format", OLLAMA, FIELD_READ },
    { "think", OLLAMA, FIELD_READ },
    { "stream", OLLAMA, FIELD_READ },
    { "name", ON_OLLAMA_SHOW, FIELD_READ }, // the name of model before
    { "verbose", ON_OLLAMA_SHOW, FIELD_HARMLESS },
    { "keep_alive", OLLAMA, FIELD_HARMLESS }, // the model stays
    { "truncate", OLLAMA, FIELD_ONLY, 0, 0, 0, INSTEAD("a prompt that is too long is an error here") },
    { "shift", OLLAMA, FIELD_ONLY, 0, 0, 0, INSTEAD("an answer ends with the context here") },
    { "logprobs", OLLAMA, FIELD_REFUSED, INSTEAD("use /v1/chat/completions") },
    { "top_logprobs", OLLAMA, FIELD_REFUSED, INSTEAD("use /v1/chat/completions") },
    { "template", OLLAMA, FIELD_REFUSED, INSTEAD("start the server with --chat-template FILE") },
    { "context", ON_OLLAMA_GENERATE, FIELD_REFUSED, INSTEAD("send the conversation to /api/chat") },
    { "suffix", ON_OLLAMA_GENERATE, FIELD_REFUSED, INSTEAD("use raw with the model's own markers in the prompt") },
    { "images", ON_OLLAMA_GENERATE, FIELD_REFUSED, INSTEAD(for_images) },
    { "width", ON_OLLAMA_GENERATE, FIELD_REFUSED, INSTEAD(for_images) },
    { "height", ON_OLLAMA_GENERATE, FIELD_REFUSED, INSTEAD(for_images) },
    { "steps", ON_OLLAMA_GENERATE, FIELD_REFUSED, INSTEAD(for_images) },
};

const size_t field_count = sizeof field_table / sizeof *field_table;

const struct field *field_find(const char *name, enum endpoint endpoint)
{
    const struct field *other = NULL;
    for (size_t i = 0; i < field_count; i++) {
        if (strcmp(field_table[i].name, name))
            continue;
        if (field_table[i].endpoints & (int)endpoint)
            return &field_table[i];
        if (!other || field_table[i].kind == FIELD_HARMLESS)
            other = &field_table[i];
    }
    return other;
}

const char *field_endpoint(int endpoints)
{
    static const struct {
        enum endpoint endpoint;
        const char *path;
    } paths[] = {
        { ON_CHAT, "/v1/chat/completions" },
        { ON_COMPLETION, "/v1/completions" },
        { ON_RESPONSES, "/v1/responses" },
        { ON_TOKENIZE, "/tokenize" },
        { ON_DETOKENIZE, "/detokenize" },
        { ON_TEMPLATE, "/apply-template" },
        { ON_MESSAGES, "/v1/messages" },
        { ON_OLLAMA_CHAT, "/api/chat" },
        { ON_INFILL, "/infill" },
        { ON_OLLAMA_GENERATE, "/api/generate" },
        { ON_OLLAMA_SHOW, "/api/show" },
        { ON_COUNT_TOKENS, "/v1/messages/count_tokens" },
    };
    size_t i = 0;
    while (i + 1 < sizeof paths / sizeof *paths && !(endpoints & (int)paths[i].endpoint))
        i++;
    return paths[i].path;
}

const char *field_suggest(const char *name, enum endpoint endpoint)
{
    const char *names[sizeof field_table / sizeof *field_table];
    size_t count = 0;
    for (size_t i = 0; i < field_count; i++)
        if (field_table[i].kind < FIELD_HARMLESS && field_table[i].endpoints & (int)endpoint)
            names[count++] = field_table[i].name;
    return suggest(bytes_of(name), names, count);
}

json_t *field_of(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

int field_word(const json_t *object, const char *name, const char *const *words)
{
    const char *word = json_string_value(json_object_get(object, name));
    for (int i = 0; word && words[i]; i++)
        if (!strcmp(words[i], word))
            return i;
    return -1;
}

bool field_is(const json_t *object, const char *name, const char *word)
{
    return field_word(object, name, WORDS(word)) == 0;
}

bool field_is_empty(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value)
        || (json_is_string(value) && !json_string_length(value)) || (json_is_array(value) && !json_array_size(value))
        || (json_is_object(value) && !json_object_size(value));
}

bool field_is_usual(const struct field *field, const json_t *value)
{
    const json_t *single = json_array_size(value) == 1 ? json_array_get(value, 0) : value; // ["text"]
    if (json_is_string(single))
        return field->only && !strcmp(json_string_value(single), field->only);
    double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    return (json_is_number(value) || json_is_boolean(value)) && number >= field->low && number <= field->high;
}
