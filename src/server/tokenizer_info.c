// SPDX-License-Identifier: Apache-2.0
#include "server/tokenizer_info.h"

#include "format/checkpoint.h"

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

void tokenizer_info_write(const struct api *api, struct strbuf *out)
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
