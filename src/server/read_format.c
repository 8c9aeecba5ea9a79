// SPDX-License-Identifier: Apache-2.0
// server/read_format.c: reads structured outputs under all their names: response_format (OpenAI, and with
// llama-server's `schema` beside it), vLLM's structured_outputs and guided_*, SGLang's and llama-server's json_schema
// and regex.
#include "base/memory.h"
#include "format/json.h"
#include "server/check.h"
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

static bool use_schema(struct job *job, const json_t *value, struct answer_form *form)
{
    form->schema = schema_of(value);
    form->strict = true; // these fields have no word for anything less
    return form->schema
        || api_fail(&job->error, 400, form->field, "\"%s\" is a JSON schema: an object, or its text", form->field);
}

static bool use_pattern(struct job *job, const json_t *value, struct answer_form *form)
{
    struct error cause;
    struct bytes pattern = { json_string_value(value), json_string_length(value) };
    if (!pattern.len)
        return api_fail(&job->error, 400, form->field, "\"%s\" is a regex that the whole answer matches", form->field);
    form->grammar = grammar_from_pattern(pattern, &cause);
    return form->grammar
        || api_fail(&job->error, 400, form->field, "the regex in \"%s\" cannot be used: %s", form->field, cause.text);
}

static bool is_repeated(const json_t *list, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (json_equal(json_array_get(list, i), json_array_get(list, index)))
            return true;
    return false;
}

// The answer is one of a list of texts, word for word.
static bool use_choice(struct job *job, const json_t *list, struct answer_form *form)
{
    const char *name = form->field;
    enum { CHOICES_MAX = 256 };
    struct grammar_part texts[CHOICES_MAX];
    struct grammar_alternative alternatives[CHOICES_MAX];
    int count = 0;
    struct error cause;
    size_t index;
    const json_t *value;
    if (!json_array_size(list) || json_array_size(list) > CHOICES_MAX)
        return api_fail(&job->error, 400, name, "\"%s\" is a list of 1 to %d texts", name, CHOICES_MAX);
    json_array_foreach (list, index, value) {
        const char *text = json_string_value(value);
        if (!text || !*text || strlen(text) != json_string_length(value))
            return api_fail(&job->error, 400, name, "entry %zu of \"%s\" is no text that an answer can be", index,
                            name);
        if (is_repeated(list, index))
            continue;
        texts[count] = (struct grammar_part){ .literal = text };
        alternatives[count] = (struct grammar_alternative){ &texts[count], 1 };
        count++;
    }
    form->grammar = grammar_from_parts(&(struct grammar_parts){ alternatives, count }, &cause);
    return form->grammar || api_fail(&job->error, 400, name, "\"%s\" cannot be used: %s", name, cause.text);
}

static bool use_object(struct job *job, const json_t *value, struct answer_form *form)
{
    if (!json_is_true(value))
        return api_fail(&job->error, 400, form->field, "json_object in \"%s\" is true or absent", form->field);
    form->schema = json_pack("{s:s}", "type", "object");
    return true;
}

// OpenAI: {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": ...}}; llama-server and SGLang put
// the schema itself beside the type.
static bool use_response_format(struct job *job, const json_t *format, struct answer_form *form)
{
    static const char *const words[] = { "type", "json_schema", "schema", NULL };
    static const char *const schema_words[] = { "name", "description", "schema", "strict", NULL };
    const json_t *beside = json_object_get(format, "schema"), *own = json_object_get(format, "json_schema");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!fields_check_keys(format, form->field, words, &job->error)
        || !fields_check_keys(own, form->field, schema_words, &job->error))
        return false;
    bool any_object = type && !strcmp(type, "json_object"), has_schema = type && !strcmp(type, "json_schema");
    if (!any_object && !has_schema)
        return api_fail(&job->error, 400, form->field,
                        "\"response_format\" is an object whose type is text, json_object or json_schema");
    if (beside && !json_is_null(beside))
        return use_schema(job, beside, form);
    if (any_object)
        return use_object(job, json_true(), form);
    const json_t *schema = json_object_get(own, "schema");
    if (!schema)
        return api_fail(&job->error, 400, form->field, "\"response_format\" has no json_schema.schema");
    form->schema = json_incref((json_t *)schema);
    form->strict = json_is_true(json_object_get(own, "strict"));
    return true;
}

// vLLM: {"json" | "regex" | "choice" | "json_object": ...}.
static bool use_structured_outputs(struct job *job, const json_t *value, struct answer_form *form)
{
    const char *name = form->field;
    static const char *const words[] = { "json", "regex", "choice", "json_object", NULL };
    static bool (*const uses[])(struct job *, const json_t *, struct answer_form *) = { use_schema, use_pattern,
                                                                                        use_choice, use_object };
    const char *key;
    json_t *one, *chosen = NULL;
    size_t which = 0;
    if (!json_is_object(value))
        return api_fail(&job->error, 400, name, "\"%s\" is an object with json, regex, choice or json_object", name);
    json_object_foreach ((json_t *)value, key, one) {
        size_t word = 0;
        if (field_is_empty(one))
            continue;
        while (words[word] && strcmp(words[word], key))
            word++;
        if (!words[word] || chosen)
            return api_fail(&job->error, 400, name,
                            "\"%s\" takes one of json, regex, choice and json_object; %.60s is "
                            "%s",
                            name, key, chosen ? "a second one" : "none of them");
        chosen = one;
        which = word;
    }
    return !chosen || uses[which](job, chosen, form);
}

static const struct {
    const char *name;
    bool (*use)(struct job *job, const json_t *value, struct answer_form *form);
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

bool read_format(struct job *job, struct answer_form *form)
{
    bool (*use)(struct job *, const json_t *, struct answer_form *) = NULL;
    const json_t *value = NULL;
    *form = (struct answer_form){ 0 };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const json_t *given = json_object_get(job->json, forms[i].name);
        if (asks_nothing(given))
            continue;
        if (value)
            return api_fail(&job->error, 400, forms[i].name,
                            "\"%s\" and \"%s\" both say what the answer looks like; "
                            "send one of them",
                            form->field, forms[i].name);
        value = given;
        use = forms[i].use;
        form->field = forms[i].name;
    }
    return !value || use(job, value, form);
}

bool read_form_grammar(struct job *job, struct answer_form *form)
{
    struct error cause;
    job->grammar = form->schema ? grammar_from_schema(form->schema, &cause) : form->grammar;
    form->grammar = NULL;
    if (!form->schema)
        return true;
    if (!job->grammar)
        return api_fail(&job->error, 400, form->field, "the schema cannot be used: %s", cause.text);
    return check_prepare(job, form->schema, form->strict, form->field);
}

void read_form_free(struct answer_form *form)
{
    json_decref(form->schema);
    grammar_free(form->grammar);
}
