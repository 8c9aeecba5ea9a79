// SPDX-License-Identifier: Apache-2.0
// server/read_format.c: structured outputs under all their names: response_format (OpenAI, and with llama-server's
// `schema` beside it), vLLM's structured_outputs and guided_*, SGLang's and llama-server's json_schema and regex. Those
// that mean a JSON schema are turned into a response_format, so that one reader knows schemas.
#include <stdio.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/read.h"

// Schemas come as objects, or as JSON in a text. A new reference; NULL: neither.
static json_t *schema_of(const json_t *value)
{
    json_t *schema = NULL;
    struct error ignored;
    struct bytes text = { json_string_value(value), json_string_length(value) };
    if (!text.data)
        return json_is_object(value) || json_is_boolean(value) ? json_incref((json_t *)value) : NULL;
    return json_read_strict(text, API_CONTAINERS_MAX, &schema, &ignored) ? schema : NULL;
}

static bool use_schema(struct job *job, const json_t *value, const char *name)
{
    json_t *schema = schema_of(value);
    if (!schema)
        return api_fail(&job->error, 400, name, "\"%s\" is a JSON schema: an object, or its text", name);
    json_object_set_new(job->json, "response_format",
                        json_pack("{s:s, s:{s:s, s:o}}", "type", "json_schema", "json_schema", "name", "answer",
                                  "schema", schema));
    if (read_response_format(job))
        return true;
    snprintf(job->error.param, sizeof job->error.param, "%s", name); // the field as the client calls it
    return false;
}

static bool use_pattern(struct job *job, const json_t *value, const char *name)
{
    struct error trouble;
    struct bytes pattern = { json_string_value(value), json_string_length(value) };
    if (!pattern.len)
        return api_fail(&job->error, 400, name, "\"%s\" is a regex that the whole answer matches", name);
    job->grammar = grammar_from_pattern(pattern, &trouble);
    return job->grammar
        || api_fail(&job->error, 400, name, "the regex in \"%s\" cannot be used: %s", name, trouble.text);
}

static bool is_repeated(const json_t *list, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (json_equal(json_array_get(list, i), json_array_get(list, index)))
            return true;
    return false;
}

// One of a list of texts, word for word.
static bool use_choice(struct job *job, const json_t *list, const char *name)
{
    enum { CHOICES_MAX = 256 };
    struct grammar_part texts[CHOICES_MAX];
    struct grammar_alternative alternatives[CHOICES_MAX];
    int count = 0;
    struct error trouble;
    size_t index;
    const json_t *value;
    if (!json_array_size(list) || json_array_size(list) > CHOICES_MAX)
        return api_fail(&job->error, 400, name, "\"%s\" is a list of 1 to %d texts", name, CHOICES_MAX);
    json_array_foreach(list, index, value) {
        const char *text = json_string_value(value);
        if (!text || !*text || strlen(text) != json_string_length(value))
            return api_fail(&job->error, 400, name, "entry %zu of \"%s\" is no text that an answer can be", index, name);
        if (is_repeated(list, index))
            continue;
        texts[count] = (struct grammar_part){ .literal = text };
        alternatives[count] = (struct grammar_alternative){ &texts[count], 1 };
        count++;
    }
    job->grammar = grammar_from_parts(alternatives, count, false, NULL, &trouble);
    return job->grammar || api_fail(&job->error, 400, name, "\"%s\" cannot be used: %s", name, trouble.text);
}

static bool use_object(struct job *job, const json_t *value, const char *name)
{
    if (!json_is_true(value))
        return api_fail(&job->error, 400, name, "json_object in \"%s\" is true or absent", name);
    job->grammar = grammar_json_object();
    return true;
}

// {"type": "json_object" or "json_schema", "schema": ...} as llama-server and SGLang take it.
static bool use_response_format(struct job *job, const json_t *format, const char *name)
{
    static const char *const words[] = { "type", "json_schema", "schema", NULL };
    static const char *const schema_words[] = { "name", "description", "schema", "strict", NULL };
    const json_t *schema = json_object_get(format, "schema");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!fields_check_keys(format, name, words, &job->error)
        || !fields_check_keys(json_object_get(format, "json_schema"), name, schema_words, &job->error))
        return false;
    bool beside = schema && !json_is_null(schema) && type && (!strcmp(type, "json_object") || !strcmp(type, "json_schema"));
    return beside ? use_schema(job, schema, name) : read_response_format(job);
}

// vLLM: {"json" | "regex" | "choice" | "json_object": ...}.
static bool use_structured_outputs(struct job *job, const json_t *value, const char *name)
{
    static const char *const words[] = { "json", "regex", "choice", "json_object", NULL };
    static bool (*const uses[])(struct job *, const json_t *, const char *) = { use_schema, use_pattern, use_choice,
                                                                                use_object };
    const char *key;
    json_t *one, *chosen = NULL;
    size_t which = 0;
    if (!json_is_object(value))
        return api_fail(&job->error, 400, name, "\"%s\" is an object with json, regex, choice or json_object", name);
    json_object_foreach((json_t *)value, key, one) {
        size_t word = 0;
        if (field_is_empty(one))
            continue;
        while (words[word] && strcmp(words[word], key))
            word++;
        if (!words[word] || chosen)
            return api_fail(&job->error, 400, name, "\"%s\" takes one of json, regex, choice and json_object; %.60s is "
                            "%s", name, key, chosen ? "a second one" : "none of them");
        chosen = one;
        which = word;
    }
    return !chosen || uses[which](job, chosen, name);
}

static const struct {
    const char *name;
    bool (*use)(struct job *job, const json_t *value, const char *name);
} forms[] = {
    { "response_format", use_response_format },
    { "structured_outputs", use_structured_outputs },
    { "json_schema", use_schema },
    { "guided_json", use_schema },
    { "guided_choice", use_choice },
    { "guided_regex", use_pattern },
    { "regex", use_pattern },
};

static bool asks_nothing(const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return !value || json_is_null(value) || (type && !strcmp(type, "text") && json_object_size(value) == 1);
}

bool read_format(struct job *job)
{
    size_t chosen = 0;
    const json_t *value = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const json_t *given = json_object_get(job->json, forms[i].name);
        if (asks_nothing(given))
            continue;
        if (value)
            return api_fail(&job->error, 400, forms[i].name, "\"%s\" and \"%s\" both say what the answer looks like; "
                            "send one of them", forms[chosen].name, forms[i].name);
        value = given;
        chosen = i;
    }
    return !value || forms[chosen].use(job, value, forms[chosen].name);
}
