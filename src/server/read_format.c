// SPDX-License-Identifier: Apache-2.0
// server/read_format.c: reads structured outputs under all their names: response_format (OpenAI, and with
// llama-server's `schema` beside it), vLLM's structured_outputs and guided_*, SGLang's and llama-server's json_schema
// and regex, grammars as text (llama-server's grammar, SGLang's ebnf) and structural tags.
#include "format/json.h"
#include "server/check.h"
#include "server/grammar_cache.h"
#include "server/read.h"

// Schemas come as objects, or as JSON in a text. A new reference; NULL: neither.
static json_t *schema_of(const json_t *value)
{
    json_t *schema = NULL;
    struct error ignored;
    struct bytes text = json_bytes(value);
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

static bool compile(struct job *job, struct grammar_source source, const char *what, struct answer_form *form)
{
    struct error cause;
    form->grammar = grammar_cache_get(job->api, &source, &cause);
    return form->grammar
        || api_fail(&job->error, 400, form->field, "%s\"%s\" cannot be used: %s", what, form->field, cause.text);
}

static bool use_pattern(struct job *job, const json_t *value, struct answer_form *form)
{
    struct grammar_source source = { .kind = GRAMMAR_PATTERN, .text = json_bytes(value) };
    if (!source.text.len)
        return api_fail(&job->error, 400, form->field, "\"%s\" is a regex that the whole answer matches", form->field);
    return compile(job, source, "the regex in ", form);
}

// A context-free grammar: GBNF, EBNF or Lark.
static bool use_grammar(struct job *job, const json_t *value, struct answer_form *form)
{
    struct grammar_source source = { .kind = GRAMMAR_TEXT, .text = json_bytes(value) };
    if (!source.text.len)
        return api_fail(&job->error, 400, form->field, "\"%s\" is a grammar, as text in GBNF, EBNF or Lark",
                        form->field);
    if (!compile(job, source, "the grammar in ", form))
        return false;
    if (grammar_notice(form->grammar))
        check_warn(job, "grammar: %s", grammar_notice(form->grammar));
    return true;
}

// XGrammar's structural tag, as an object or its text.
static bool use_tag(struct job *job, const json_t *value, struct answer_form *form)
{
    json_t *tag = schema_of(value);
    bool ok = json_is_object(tag)
        ? compile(job, (struct grammar_source){ .kind = GRAMMAR_TAG, .json = tag }, "", form)
        : api_fail(&job->error, 400, form->field, "\"%s\" has a structural tag that is no object", form->field);
    json_decref(tag);
    return ok;
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

// Types that others have added to OpenAI's, with the key that has the form; NULL: the object itself is one.
static const struct {
    const char *type, *key;
    bool (*use)(struct job *job, const json_t *value, struct answer_form *form);
} typed_forms[] = {
    { "grammar", "grammar", use_grammar }, // Fireworks
    { "regex", "pattern", use_pattern },
    { "structural_tag", NULL, use_tag },
};

// OpenAI: {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": ...}}; llama-server and SGLang put
// the schema itself beside the type.
static bool use_response_format(struct job *job, const json_t *format, struct answer_form *form)
{
    const json_t *beside = field_of(format, "schema"), *own = json_object_get(format, "json_schema");
    for (size_t i = 0; i < sizeof typed_forms / sizeof *typed_forms; i++) {
        if (field_is(format, "type", typed_forms[i].type))
            return (!typed_forms[i].key
                    || fields_check_keys(format, form->field, WORDS("type", typed_forms[i].key), &job->error))
                && typed_forms[i].use(job, typed_forms[i].key ? json_object_get(format, typed_forms[i].key) : format,
                                      form);
    }
    if (!fields_check_keys(format, form->field, WORDS("type", "json_schema", "schema"), &job->error)
        || !fields_check_keys(own, form->field, WORDS("name", "description", "schema", "strict"), &job->error))
        return false;
    bool any_object = field_is(format, "type", "json_object");
    if (!any_object && !field_is(format, "type", "json_schema"))
        return api_fail(&job->error, 400, form->field,
                        "\"response_format\" is an object whose type is text, json_object, json_schema, regex, "
                        "grammar or structural_tag");
    if (beside)
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

// Keys of vLLM's structured_outputs: one form, and words about it.
static const struct {
    const char *word;
    bool (*use)(struct job *job, const json_t *value, struct answer_form *form); // NULL: it is no form
    const char *refusal;                                                         // NULL: it is read
} outputs[] = {
    { "json", use_schema, NULL },
    { "regex", use_pattern, NULL },
    { "choice", use_choice, NULL },
    { "grammar", use_grammar, NULL },
    { "json_object", use_object, NULL },
    { "structural_tag", use_tag, NULL },
    { "disable_any_whitespace", NULL, NULL },
    { "disable_fallback", NULL, NULL }, // there is one engine of grammars
    { "backend", NULL, NULL },
    { "whitespace_pattern", NULL, "leave it out, or use disable_any_whitespace" },
    { "disable_additional_properties", NULL, "write \"additionalProperties\": false into the schema" },
};

enum { OUTPUTS = sizeof outputs / sizeof *outputs };

static bool use_structured_outputs(struct job *job, const json_t *value, struct answer_form *form)
{
    const char *name = form->field, *key;
    json_t *one, *chosen = NULL;
    size_t which = 0;
    if (!json_is_object(value))
        return api_fail(&job->error, 400, name,
                        "\"%s\" is an object with json, regex, choice, grammar, json_object or structural_tag", name);
    json_object_foreach ((json_t *)value, key, one) {
        size_t word = 0;
        if (field_is_empty(one))
            continue;
        while (word < OUTPUTS && strcmp(outputs[word].word, key) != 0)
            word++;
        if (word < OUTPUTS && outputs[word].refusal)
            return api_fail(&job->error, 400, name, "%s of \"%s\" is not supported; %s", key, name,
                            outputs[word].refusal);
        if (word == OUTPUTS || (outputs[word].use && chosen))
            return api_fail(&job->error, 400, name,
                            "\"%s\" takes one of json, regex, choice, grammar, json_object and structural_tag; %.60s "
                            "is %s",
                            name, key, chosen ? "a second one" : "none of them");
        if (!outputs[word].use)
            continue;
        chosen = one;
        which = word;
    }
    form->compact = json_is_true(json_object_get(value, "disable_any_whitespace"));
    if (form->compact && chosen && outputs[which].use == use_tag)
        return api_fail(&job->error, 400, name, "disable_any_whitespace of \"%s\" does not reach into a structural_tag",
                        name);
    return !chosen || outputs[which].use(job, chosen, form);
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
    { "guided_grammar", use_grammar },
    { "regex", use_pattern },
    { "grammar", use_grammar },
    { "ebnf", use_grammar },
    { "structural_tag", use_tag },
};

static bool asks_nothing(const json_t *value)
{
    return !value || json_is_null(value) || (json_is_string(value) && !json_string_length(value))
        || (field_is(value, "type", "text") && json_object_size(value) == 1);
}

// guidance sends structured_outputs and vLLM's older name with the same value, for servers of every age.
static bool says_the_same(const json_t *request, const char *name, const json_t *value)
{
    static const char older[] = "guided_";
    const json_t *outputs_given = json_object_get(request, "structured_outputs");
    return !strncmp(name, older, strlen(older))
        && json_equal(json_object_get(outputs_given, name + strlen(older)), value);
}

bool read_format(struct job *job, struct answer_form *form)
{
    bool (*use)(struct job *, const json_t *, struct answer_form *) = NULL;
    const json_t *value = NULL;
    *form = (struct answer_form){ 0 };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const json_t *given = json_object_get(job->json, forms[i].name);
        if (asks_nothing(given) || says_the_same(job->json, forms[i].name, given))
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
    struct grammar_source source = { .kind = form->compact ? GRAMMAR_COMPACT_SCHEMA : GRAMMAR_SCHEMA,
                                     .json = form->schema };
    struct error cause;
    job->grammar = form->schema ? grammar_cache_get(job->api, &source, &cause) : form->grammar;
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
