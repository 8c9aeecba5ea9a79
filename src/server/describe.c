// SPDX-License-Identifier: Apache-2.0
// server/describe.c: what the server says of itself and of its model, in the words of each API.
#include "server/describe.h"

#include <stdio.h>

#include "base/sha256.h"
#include "format/json.h"
#include "server/fields.h"
#include "server/job.h"

json_t *describe_version(const struct api *api)
{
    (void)api;
    return json_pack("{s:s}", "version", nibble_version());
}

// ---- models of OpenAI and Anthropic -------------------------------------------------------------------------------

static json_t *openai_card(const struct api *api, const char *name)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:i}", "id", name, "object", "model", "created",
                     (json_int_t)api->created, "owned_by", "nibble", "root", api->root, "parent", "max_model_len",
                     api->max_model_len);
}

// The same model in Anthropic's words.
static json_t *anthropic_card(const struct api *api, const char *name)
{
    char created[API_TIME_BYTES];
    api_format_time(api->created, created);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i}", "type", "model", "id", name, "display_name", name,
                     "created_at", created, "lifecycle", "active", "max_input_tokens", api->max_model_len, "max_tokens",
                     api->max_model_len);
}

json_t *describe_model(const struct api *api, const char *name, enum api_style style)
{
    return (style == API_ANTHROPIC ? anthropic_card : openai_card)(api, name);
}

json_t *describe_models(const struct api *api, enum api_style style)
{
    json_t *cards = json_array();
    for (int i = 0; i < api->name_count; i++)
        json_array_append_new(cards, describe_model(api, api->names[i], style));
    return style == API_ANTHROPIC ? json_pack("{s:o, s:s, s:s, s:b}", "data", cards, "first_id", api->names[0],
                                              "last_id", api->names[api->name_count - 1], "has_more", 0)
                                  : json_pack("{s:s, s:o}", "object", "list", "data", cards);
}

// ---- llama-server -------------------------------------------------------------------------------------------------

static json_t *sampling_of(const struct api *api)
{
    const struct nibble_sampling *defaults = &api->defaults;
    return json_pack("{s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:i}", "temperature", defaults->temperature, "top_k",
                     defaults->top_k, "top_p", defaults->top_p, "min_p", defaults->min_p, "repeat_penalty",
                     defaults->repetition_penalty, "presence_penalty", defaults->presence_penalty, "frequency_penalty",
                     defaults->frequency_penalty, "n_predict", FIELDS_REST_OF_CONTEXT, "max_tokens",
                     FIELDS_REST_OF_CONTEXT);
}

static json_t *slot_of(const struct api *api, int id, bool busy)
{
    return json_pack("{s:i, s:i, s:b, s:b, s:o}", "id", id, "n_ctx", api->max_model_len, "speculative", 0,
                     "is_processing", busy, "params", sampling_of(api));
}

static struct bytes special_of(const struct api *api, const char *name)
{
    const json_t *specials = api->chat ? chat_special_tokens(api->chat) : NULL;
    return json_bytes(json_object_get(specials, name));
}

json_t *describe_props(const struct api *api)
{
    bool supports_tools = false;
    if (api->chat)
        chat_tool_form(api->chat, &supports_tools);
    return json_pack("{s:o, s:i, s:s, s:s, s:o, s:{s:b, s:b}, s:o, s:o, s:{s:b, s:b}, s:s, s:b, s:b}",
                     "default_generation_settings", slot_of(api, 0, false), "total_slots", api->slots, "model_alias",
                     api->names[0], "model_path", api->root, "chat_template",
                     api_text(api->chat ? chat_source(api->chat) : bytes_of("")), "chat_template_caps",
                     "supports_tools", supports_tools, "supports_system_role", 1, "bos_token",
                     api_text(special_of(api, "bos_token")), "eos_token", api_text(special_of(api, "eos_token")),
                     "modalities", "vision", 0, "audio", 0, "build_info", "nibble-" NIBBLE_VERSION, "is_sleeping", 0,
                     "endpoint_slots", api->show_slots);
}

// A slot is a request that runs; which of them a request has has no meaning here.
json_t *describe_slots(const struct api *api, int running)
{
    json_t *slots = json_array();
    for (int i = 0; i < api->slots; i++)
        json_array_append_new(slots, slot_of(api, i, i < running));
    return slots;
}

// ---- Ollama -------------------------------------------------------------------------------------------------------

// Plugins compare it with the version of Ollama that they need: that of the API that is spoken here.
static const char api_version[] = "0.13.0";

json_t *describe_ollama(const struct api *api)
{
    (void)api;
    return json_pack("{s:s}", "version", api_version);
}

static json_t *details_of(const struct api *api)
{
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf", "family",
                     api->architecture, "families", api->architecture, "parameter_size", "", "quantization_level",
                     api->weight_format);
}

static json_t *time_text(time_t when)
{
    char text[API_TIME_BYTES];
    api_format_time(when, text);
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

json_t *describe_tags(const struct api *api) { return json_pack("{s:o}", "models", cards_of(api)); }

// The model is loaded for good.
json_t *describe_running(const struct api *api)
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

// Clients offer tools and thinking where these words say that the model has them. Every chat has tools: they are put
// into words where the template has no place for them.
static json_t *capabilities_of(const struct api *api)
{
    static const char *const switches[] = { "enable_thinking", "thinking", "reasoning_effort" };
    json_t *capabilities = json_pack("[s]", "completion");
    bool thinks = false;
    for (size_t i = 0; api->chat && i < sizeof switches / sizeof *switches; i++)
        thinks |= chat_reads(api->chat, switches[i]);
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

bool describe_show(struct job *job)
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

// ---- the tokenizer ------------------------------------------------------------------------------------------------

static json_t *plain(const json_t *value);

static json_t *plain_object(const json_t *object)
{
    json_t *text = json_object_get(object, "content"), *value;
    const char *key;
    if (json_is_string(text))
        return json_incref(text); // a token: its text without its flags
    json_t *own = json_object();
    json_object_foreach ((json_t *)object, key, value)
        json_object_set_new(own, key, plain(value));
    return own;
}

// The value with tokens as texts (new reference).
static json_t *plain(const json_t *value)
{
    if (json_is_object(value))
        return plain_object(value);
    if (!json_is_array(value))
        return json_incref((json_t *)value);
    json_t *own = json_array();
    for (size_t i = 0; i < json_array_size(value); i++)
        json_array_append_new(own, plain(json_array_get(value, i)));
    return own;
}

void describe_tokenizer(const struct api *api, struct strbuf *out)
{
    static const char *const paths[] = { "vocab_file", "merges_file", "tokenizer_file", "name_or_path" };
    const json_t *config = api->checkpoint->tokenizer_config;
    json_t *info = config ? plain(config) : json_object();
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        json_object_del(info, paths[i]);
    if (!json_is_string(json_object_get(info, "tokenizer_class")))
        json_object_set_new(info, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
    if (!json_is_number(json_object_get(info, "model_max_length")))
        json_object_set_new(info, "model_max_length", json_integer(api->max_model_len));
    if (api->chat) {
        struct bytes source = chat_source(api->chat);
        json_object_update_missing(info, chat_special_tokens(api->chat));
        json_object_set_new(info, "chat_template", json_stringn(source.data, source.len));
    }
    api_dump(info, out);
    json_decref(info);
}
