// SPDX-License-Identifier: Apache-2.0
#include "model/quantised.h"

#include <string.h>
#include <strings.h>

#include "base/strbuf.h"
#include "format/json.h"

const json_t *quantised_declaration(const struct checkpoint *checkpoint)
{
    const json_t *places[] = {
        json_object_get(checkpoint->config, "quantization_config"),
        json_object_get(json_object_get(checkpoint->config, "text_config"), "quantization_config"),
        json_object_get(checkpoint->config, "compression_config"), // old compressed-tensors
        checkpoint->hf_quant_config,
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (json_is_object(places[i]))
            return places[i];
    return NULL;
}

const json_t *quantised_key(const json_t *declaration, const char *key)
{
    const json_t *inner = json_object_get(json_object_get(declaration, "quantization"), key);
    const json_t *value = inner && !json_is_null(inner) ? inner : json_object_get(declaration, key);
    return json_is_null(value) ? NULL : value;
}

static const struct {
    const char *method;
    bool (*read)(struct quantised *quantised, const json_t *declaration, struct error *err);
} methods[] = {
    { "modelopt", quantised_read_modelopt }, { "compressed-tensors", quantised_read_compressed },
    { "fp8", quantised_read_fp8 },           { "fbgemm_fp8", quantised_read_fbgemm },
    { "mxfp4", quantised_read_mxfp4 },       { "gptq", quantised_read_gptq },
    { "awq", quantised_read_awq },
};
enum { METHODS = sizeof methods / sizeof *methods };

static bool refuse_method(const char *method, struct error *err)
{
    struct strbuf known = { 0 };
    for (int i = 0; i < METHODS; i++)
        strbuf_add_format(&known, "%s%s", i ? ", " : "", methods[i].method);
    fail(err, "quant_method \"%.60s\" is one that nibble does not read; it reads %s", method, known.data);
    strbuf_free(&known);
    return false;
}

// `method` is the default if quant_method is absent.
static bool read_declaration(struct quantised *quantised, const json_t *declaration, const char *method,
                             struct error *err)
{
    if (!json_get_text(declaration, "quant_method", &method, err))
        return false;
    if (!method)
        return fail(err, "there is no quant_method, so nothing says how the weights lie");
    if (!strncasecmp(method, "modelopt", strlen("modelopt"))) // also modelopt_fp4 and others
        method = "modelopt";
    for (int i = 0; i < METHODS; i++)
        if (!strcasecmp(method, methods[i].method)) {
            quantised->producer = methods[i].method;
            return methods[i].read(quantised, declaration, err);
        }
    return refuse_method(method, err);
}

bool quantised_read(struct quantised *quantised, const struct checkpoint *checkpoint, struct arena *arena,
                    struct error *err)
{
    const json_t *declaration = quantised_declaration(checkpoint);
    *quantised = (struct quantised){ .arena = arena, .chosen_only = !declaration };
    bool own_file = declaration == checkpoint->hf_quant_config;
    bool modelopt = own_file || json_object_get(declaration, "quant_algo"); // only ModelOpt writes that
    return !declaration || read_declaration(quantised, declaration, modelopt ? "modelopt" : NULL, err)
        || fail_within(err, own_file ? "hf_quant_config.json" : "config.json: quantization_config");
}

void quantised_free(struct quantised *quantised)
{
    modules_free(&quantised->excluded);
    modules_free(&quantised->chosen);
}

bool quantised_find(const struct quantised *quantised, const char *module, const char *class,
                    const struct scheme **scheme, struct error *err)
{
    const char *const names[] = { module, class };
    int value = -1;
    *scheme = NULL;
    for (int i = 0; i < 2 && value < 0; i++)
        if (!modules_find(&quantised->excluded, names[i], &value, err))
            return false;
    if (value >= 0 || !quantised->scheme_count)
        return true;
    for (int i = 0; i < 2 && value < 0; i++)
        if (!modules_find(&quantised->chosen, names[i], &value, err))
            return false;
    if (value < 0 && !quantised->chosen_only && !strcmp(class, "Linear"))
        value = 0;
    if (value >= 0 && quantised->schemes[value].layout)
        *scheme = &quantised->schemes[value];
    return true;
}

static bool same_scheme(const struct scheme *a, const struct scheme *b)
{
    return a->layout == b->layout && a->bits == b->bits && a->group == b->group && a->rows_each == b->rows_each
        && a->zeros == b->zeros && a->ordered == b->ordered && a->zero_bias == b->zero_bias;
}

bool quantised_add_scheme(struct quantised *quantised, struct scheme scheme, int *number, struct error *err)
{
    for (*number = 0; *number < quantised->scheme_count; (*number)++)
        if (same_scheme(&quantised->schemes[*number], &scheme))
            return true;
    if (*number == QUANTISED_SCHEMES_MAX)
        return fail(err, "more than %d different schemes are declared", QUANTISED_SCHEMES_MAX);
    scheme.word = arena_format(quantised->arena, "%s (%s)", scheme.word, quantised->producer);
    quantised->schemes[quantised->scheme_count++] = scheme;
    return true;
}

bool quantised_add_modules(struct modules *modules, const json_t *object, const char *key, int value, struct error *err)
{
    const json_t *list = json_object_get(object, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name)
            return fail(err, "%s holds something that is no text", key);
        if (!modules_add(modules, name, value, err))
            return fail_within(err, "%s", key);
    }
    return !list || json_is_array(list) || json_is_null(list) || fail(err, "%s is no list", key);
}
