// SPDX-License-Identifier: Apache-2.0
// server/ollama_models.c: Ollama's descriptions of the served model: /api/tags, /api/ps, /api/show, /api/version.
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "server/ollama.h"

// Plugins compare it with the version of Ollama that they need: that of the API that is spoken here.
static const char api_version[] = "0.13.0";

json_t *ollama_version(void) { return json_pack("{s:s}", "version", api_version); }

static json_t *details_of(const struct api *api)
{
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf", "family",
                     api->architecture, "families", api->architecture, "parameter_size", "", "quantization_level",
                     api->weight_format);
}

static json_t *time_text(time_t when)
{
    struct tm parts;
    char text[32];
    gmtime_r(&when, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return json_string(text);
}

// Two servers have the same digest where they have the same fingerprint.
static json_t *digest_of(const struct api *api)
{
    uint8_t digest[SHA256_BYTES];
    char text[2 * SHA256_BYTES + 1];
    sha256_of(bytes_of(api->fingerprint), digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return json_string(text);
}

// A model's entry in a list, under its name with a tag.
static json_t *card_of(const struct api *api, const char *name)
{
    json_t *tagged = strchr(name, ':') ? json_string(name) : json_sprintf("%s" API_DEFAULT_TAG, name);
    return json_pack("{s:O, s:o, s:o, s:I, s:o, s:o}", "name", tagged, "model", tagged, "modified_at",
                     time_text(api->created), "size", (json_int_t)api->weight_bytes, "digest", digest_of(api),
                     "details", details_of(api));
}

static json_t *cards_of(const struct api *api)
{
    json_t *cards = json_array();
    for (int i = 0; i < api->name_count; i++)
        json_array_append_new(cards, card_of(api, api->names[i]));
    return cards;
}

json_t *ollama_tags(const struct api *api) { return json_pack("{s:o}", "models", cards_of(api)); }

// The model is loaded for good.
json_t *ollama_ps(const struct api *api)
{
    enum { FOREVER = 4102444800 }; // the year 2100
    json_t *cards = cards_of(api), *card;
    size_t index;
    json_array_foreach (cards, index, card) {
        json_object_set_new(card, "expires_at", time_text((time_t)FOREVER));
        json_object_set_new(card, "size_vram", json_integer((json_int_t)api->weight_bytes));
        json_object_set_new(card, "context_length", json_integer(api->max_model_len));
    }
    return json_pack("{s:o}", "models", cards);
}

// Clients offer tools, thinking and a suffix where these words say that the model has them. Every chat has tools: they
// are put into words where the template has no place for them.
static json_t *capabilities_of(const struct api *api)
{
    static const char *const switches[] = { "enable_thinking", "thinking", "reasoning_effort" };
    json_t *capabilities = json_pack("[s]", "completion");
    bool thinks = false;
    for (size_t i = 0; api->chat && i < sizeof switches / sizeof *switches; i++)
        thinks |= chat_reads(api->chat, switches[i]);
    if (api->has_fim)
        json_array_append_new(capabilities, json_string("insert"));
    if (api->chat)
        json_array_append_new(capabilities, json_string("tools"));
    if (thinks)
        json_array_append_new(capabilities, json_string("thinking"));
    return capabilities;
}

static json_t *model_info_of(const struct api *api)
{
    char key[128];
    snprintf(key, sizeof key, "%s.context_length", api->architecture);
    return json_pack("{s:s, s:s, s:i}", "general.architecture", api->architecture, "general.basename", api->names[0],
                     key, api->max_model_len);
}

bool ollama_show(struct job *job)
{
    const struct api *api = job->api;
    struct bytes source = api->chat ? chat_source(api->chat) : bytes_of("");
    const json_t *name = json_object_get(job->json, "name");
    if (json_is_string(name) && !api_has_model(api, bytes_of(json_string_value(name))))
        return api_fail_model(api, json_string_value(name), &job->error);
    json_t *shown = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "modelfile", "", "parameters", "", "template",
                              api_text(source), "details", details_of(api), "model_info", model_info_of(api),
                              "capabilities", capabilities_of(api), "modified_at", time_text(api->created));
    api_dump(shown, &job->reply);
    json_decref(shown);
    return false;
}
