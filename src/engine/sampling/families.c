// SPDX-License-Identifier: Apache-2.0
#include "engine/sampling/families.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "format/json.h"

// From model cards, or the generation_config.json that is published beside the weights. The first row that fits counts.
static const struct sampling_family families[] = {
    // name, words, temperature, top_p, top_k, repetition_penalty, presence_penalty
    { "DeepSeek R1", { "deepseekr1" }, 0.6, 0.95 },
    { "DeepSeek V2", { "deepseekv2" }, 0.3, 0.95 },
    { "DeepSeek", { "deepseek" }, 0.6, 0.95 },
    { "QwQ", { "qwq" }, 0.6, 0.95, 40 },
    { "Qwen3 Coder", { "qwen3coder" }, 0.7, 0.8, 20, 1.05 },
    { "Qwen3.5", { "qwen35" }, 1.0, 0.95, 20, 0, 1.5 },
    { "Qwen3 Instruct", { "qwen3", "instruct" }, 0.7, 0.8, 20 },
    { "Qwen3", { "qwen3" }, 0.6, 0.95, 20 },
    { "Qwen2", { "qwen2" }, 0.7, 0.8, 20, 1.05 },
    { "Nemotron 3", { "nemotron3" }, 1.0, 1.0 },
    { "Nemotron", { "nemotron" }, 0.6, 0.95 },
    { "Llama 3", { "llama3" }, 0.6, 0.9 },
    { "Llama 2", { "llama2" }, 0.6, 0.9 },
    { "Gemma 3", { "gemma3" }, 1.0, 0.95, 64 },
    { "SmolLM3", { "smollm3" }, 0.6, 0.95 },
    { "SmolLM2", { "smollm2" }, 0.2, 0.9 },
    { "SmolLM", { "smollm" }, 0.2, 0.9 },
    { "Magistral", { "magistral" }, 0.7, 0.95 },
    { "Devstral", { "devstral" }, 0.15, 1.0 },
    { "Mistral Small", { "mistralsmall" }, 0.15, 1.0 },
    { "Mistral Nemo", { "mistralnemo" }, 0.3, 1.0 },
    { "Mistral", { "mistral" }, 0.7, 1.0 },
    { "Mixtral", { "mixtral" }, 0.7, 1.0 },
    { "gpt-oss", { "gptoss" }, 1.0, 1.0 },
    { "Phi-4 reasoning", { "phi4", "reasoning" }, 0.8, 0.95, 50 },
    { "Phi-4", { "phi4" }, 0.0, 1.0 },
    { "Phi-3", { "phi3" }, 0.0, 1.0 },
    { "Granite", { "granite" }, 0.0, 1.0 },
};

// Names are compared by their letters and digits alone: "Qwen3-0.6B", "qwen3_moe", "SmolLM2 135M".
static const struct sampling_family *find_in(struct bytes name)
{
    struct strbuf letters = { 0 };
    const struct sampling_family *found = NULL;
    for (size_t i = 0; i < name.len; i++)
        if (isalnum((unsigned char)name.data[i]))
            strbuf_add_byte(&letters, (char)tolower((unsigned char)name.data[i]));
    for (size_t i = 0; i < sizeof families / sizeof *families && !found; i++) {
        const struct sampling_family *family = &families[i];
        if (strstr(strbuf_text(&letters), family->words[0])
            && (!family->words[1] || strstr(strbuf_text(&letters), family->words[1])))
            found = family;
    }
    strbuf_free(&letters);
    return found;
}

static const struct sampling_family *find_by_keys(const struct gguf *gguf)
{
    static const char *const keys[] = { "general.basename", "general.name", "general.base_model.0.name" };
    struct strbuf names = { 0 };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct gguf_value *value = gguf_find(gguf, keys[i]);
        if (value && value->type == GGUF_STRING) {
            strbuf_add(&names, value->string.data, value->string.len);
            strbuf_add_byte(&names, ' ');
        }
    }
    const struct sampling_family *found = find_in(strbuf_bytes(&names));
    strbuf_free(&names);
    return found;
}

// The last part of a path, or what stands for it in the Hugging Face cache: models--ORG--NAME/snapshots/REVISION.
static const struct sampling_family *find_by_path(const char *path)
{
    const char *cached = strstr(path, "/models--"), *name = strrchr(path, '/');
    if (cached)
        return find_in((struct bytes){ cached, strcspn(cached + 1, "/") + 1 });
    return find_in(bytes_of(name ? name : path));
}

static const struct sampling_family *find_by_architecture(const struct checkpoint *checkpoint)
{
    const struct gguf_value *value = checkpoint->gguf ? gguf_find(checkpoint->gguf, "general.architecture") : NULL;
    if (value)
        return value->type == GGUF_STRING ? find_in(value->string) : NULL;
    return find_in(json_bytes(json_object_get(checkpoint->config, "model_type")));
}

const struct sampling_family *sampling_family_of(const struct checkpoint *checkpoint)
{
    const struct sampling_family *found;
    if (checkpoint->gguf)
        found = find_by_keys(checkpoint->gguf);
    else
        found = find_in(json_bytes(json_object_get(checkpoint->config, "_name_or_path")));
    if (!found) {
        char *path = realpath(checkpoint->path, NULL);
        found = find_by_path(path ? path : checkpoint->path);
        free(path);
    }
    return found ? found : find_by_architecture(checkpoint);
}
