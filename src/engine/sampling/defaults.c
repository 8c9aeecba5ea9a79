// SPDX-License-Identifier: Apache-2.0
// engine/sampling/defaults.c: where a model's sampling parameters come from, each source before the next:
//   (1) --generation-config FOLDER's generation_config.json, or `vllm`: all samplers off
//   (2) the checkpoint's generation_config.json, where it has a sampling parameter at all
//   (3) a GGUF's general.sampling keys
//   (4) what the makers of its family advise (families.c)
//   (5) temperature 0.7 and top_p 0.9
// --override-generation-config replaces single values of whichever it was.
#include "engine/sampling/defaults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/public.h"
#include "base/suggest.h"
#include "engine/sampling/families.h"
#include "engine/sampling/sampler.h"
#include "format/json.h"

enum { ANSWER_TOKENS_MAX = 1 << 28 };

// A parameter by its name in generation_config.json and in GGUF files (llama.cpp's; NULL: it has none).
struct parameter {
    const char *name, *gguf_key;
    bool whole; // an int; else a double
    size_t offset;
    double low, high; // of whole ones; the rest is sampler_check's
};

#define SAMPLING(member) offsetof(struct nibble_defaults, sampling.member)

static const struct parameter parameters[] = {
    { "temperature", "general.sampling.temp", false, SAMPLING(temperature) },
    { "top_p", "general.sampling.top_p", false, SAMPLING(top_p) },
    { "top_k", "general.sampling.top_k", true, SAMPLING(top_k), -1, INT32_MAX },
    { "min_p", "general.sampling.min_p", false, SAMPLING(min_p) },
    { "repetition_penalty", "general.sampling.penalty_repeat", false, SAMPLING(repetition_penalty) },
    { "presence_penalty", NULL, false, SAMPLING(presence_penalty) },
    { "frequency_penalty", NULL, false, SAMPLING(frequency_penalty) },
    { "typical_p", NULL, false, SAMPLING(typical_p) },
    { "xtc_probability", "general.sampling.xtc_probability", false, SAMPLING(xtc_probability) },
    { "xtc_threshold", "general.sampling.xtc_threshold", false, SAMPLING(xtc_threshold) },
    { "mirostat", "general.sampling.mirostat", true, SAMPLING(mirostat), 0, 2 },
    { "mirostat_tau", "general.sampling.mirostat_tau", false, SAMPLING(mirostat_tau) },
    { "mirostat_eta", "general.sampling.mirostat_eta", false, SAMPLING(mirostat_eta) },
    { "max_new_tokens", NULL, true, offsetof(struct nibble_defaults, max_tokens), 1, ANSWER_TOKENS_MAX },
};
enum { PARAMETERS = sizeof parameters / sizeof *parameters };

static void set_whole(struct nibble_defaults *out, const struct parameter *parameter, int64_t value)
{
    *(int *)((char *)out + parameter->offset) = value > 0 ? (int)value : 0; // a top_k of -1 is off, too
}

static double *real_of(struct nibble_defaults *out, const struct parameter *parameter)
{
    return (double *)((char *)out + parameter->offset);
}

static void turn_off(struct nibble_defaults *out)
{
    *out = (struct nibble_defaults){ .sampling = { .temperature = 1,
                                                   .top_p = 1,
                                                   .repetition_penalty = 1,
                                                   .typical_p = 1,
                                                   .dry_base = 1.75,
                                                   .dry_allowed_length = 2,
                                                   .dynatemp_exponent = 1,
                                                   .xtc_threshold = 0.1,
                                                   .mirostat_tau = 5,
                                                   .mirostat_eta = 0.1 } };
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

// Absent and null leave the parameter as it is.
static bool read_member(const json_t *config, const struct parameter *parameter, struct nibble_defaults *out,
                        struct error *err)
{
    const json_t *value = json_object_get(config, parameter->name);
    int64_t whole = 0;
    if (!value || json_is_null(value))
        return true;
    if (!parameter->whole)
        return json_get_real(config, parameter->name, real_of(out, parameter), err);
    if (!json_get_int(config, parameter->name, (int64_t)parameter->low, (int64_t)parameter->high, &whole, err))
        return false;
    set_whole(out, parameter, whole);
    return true;
}

static bool read_json(const json_t *config, struct nibble_defaults *out, struct error *err)
{
    for (int i = 0; i < PARAMETERS; i++)
        if (!read_member(config, &parameters[i], out, err))
            return false;
    return sampler_check(&out->sampling, err);
}

// Whether a generation_config.json is about sampling at all; many have token ids alone.
static bool has_sampling(const json_t *config)
{
    bool found = false;
    for (int i = 0; i < PARAMETERS; i++) {
        const json_t *value = json_object_get(config, parameters[i].name);
        found |= parameters[i].offset != offsetof(struct nibble_defaults, max_tokens) && json_is_number(value);
    }
    return found;
}

static bool read_file(const json_t *config, const char *file, struct nibble_defaults *out, struct error *err)
{
    snprintf(out->origin, sizeof out->origin, "from %.400s", file);
    if (read_json(config, out, err))
        return true;
    fail_within(err, "%s", file);
    size_t len = strlen(err->text);
    snprintf(err->text + len, sizeof err->text - len, "; --generation-config vllm leaves the file out");
    return false;
}

static bool read_folder(const char *folder, struct nibble_defaults *out, struct error *err)
{
    char path[4096];
    json_t *config = NULL;
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    bool ok = json_read_file(path, &config, err) && (json_is_object(config) || fail(err, "%s is no object", path));
    if (!ok) {
        fail_within(err, "--generation-config takes auto, vllm or a folder with generation_config.json");
        err->usage = true;
    }
    ok = ok && read_file(config, path, out, err);
    json_decref(config);
    return ok;
}

// ---- GGUF ---------------------------------------------------------------------------------------------------------

static bool read_key(const struct gguf *gguf, const struct parameter *parameter, struct nibble_defaults *out,
                     struct error *err)
{
    int64_t whole = 0;
    double real = 0;
    char decimal[32];
    if (parameter->whole) {
        if (!gguf_get_int(gguf, parameter->gguf_key, (int64_t)parameter->low, (int64_t)parameter->high, &whole, err))
            return false;
        set_whole(out, parameter, whole);
        return true;
    }
    if (!gguf_get_real(gguf, parameter->gguf_key, &real, err))
        return false;
    snprintf(decimal, sizeof decimal, "%.6g", real); // a float32 that stands for 0.95 is 0.95
    *real_of(out, parameter) = strtod(decimal, NULL);
    return true;
}

static bool read_gguf(const struct gguf *gguf, struct nibble_defaults *out, bool *found, struct error *err)
{
    *found = false;
    for (int i = 0; gguf && i < PARAMETERS; i++) {
        if (!parameters[i].gguf_key || !gguf_find(gguf, parameters[i].gguf_key))
            continue;
        *found = true;
        if (!read_key(gguf, &parameters[i], out, err))
            return false;
    }
    snprintf(out->origin, sizeof out->origin, "from the file's general.sampling keys");
    return sampler_check(&out->sampling, err);
}

// ---- neither ------------------------------------------------------------------------------------------------------

static void advise(const struct checkpoint *checkpoint, struct nibble_defaults *out)
{
    const struct sampling_family *family = sampling_family_of(checkpoint);
    out->sampling.temperature = family ? family->temperature : 0.7;
    out->sampling.top_p = family ? family->top_p : 0.9;
    if (!family) {
        snprintf(out->origin, sizeof out->origin, "nibble's own, as no file of the model says any");
        return;
    }
    out->sampling.top_k = family->top_k;
    out->sampling.repetition_penalty = family->repetition_penalty > 0 ? family->repetition_penalty : 1;
    out->sampling.presence_penalty = family->presence_penalty;
    snprintf(out->origin, sizeof out->origin, "as advised for %s", family->name);
}

static bool read_checkpoint(const struct checkpoint *checkpoint, struct nibble_defaults *out, struct error *err)
{
    bool found;
    if (has_sampling(checkpoint->generation_config))
        return read_file(checkpoint->generation_config, "generation_config.json", out, err);
    if (!read_gguf(checkpoint->gguf, out, &found, err))
        return fail_within(err, "general.sampling");
    if (!found)
        advise(checkpoint, out);
    return true;
}

// ---- all of it ----------------------------------------------------------------------------------------------------

static bool check_keys(json_t *config, struct error *err)
{
    const char *names[PARAMETERS], *key;
    struct strbuf all = { 0 };
    json_t *value;
    bool ok = true;
    for (int i = 0; i < PARAMETERS; i++) {
        names[i] = parameters[i].name;
        strbuf_add_format(&all, "%s%s", i ? ", " : "", names[i]);
    }
    json_object_foreach (config, key, value) {
        const char *near = suggest(bytes_of(key), names, PARAMETERS);
        bool known = near && !strcmp(near, key);
        ok = ok
            && (known
                || fail_usage(err, "there is no parameter \"%.60s\"%s%s%s; known are %s", key,
                              near ? ", did you mean " : "", near ? near : "", near ? "?" : "", all.data));
    }
    strbuf_free(&all);
    return ok;
}

static bool override(const char *text, struct nibble_defaults *out, struct error *err)
{
    json_t *config = NULL;
    bool ok = json_read(bytes_of(text), &config, err);
    ok = ok && (json_is_object(config) || fail(err, "a JSON object is expected, such as {\"temperature\": 0.5}"));
    ok = ok && check_keys(config, err) && read_json(config, out, err);
    size_t len = strlen(out->origin);
    if (ok)
        snprintf(out->origin + len, sizeof out->origin - len, ", and --override-generation-config");
    else
        fail_within(err, "--override-generation-config");
    err->usage = err->usage || !ok;
    json_decref(config);
    return ok;
}

bool sampling_defaults(const struct checkpoint *checkpoint, const struct nibble_defaults_options *options,
                       struct nibble_defaults *out, struct error *err)
{
    const char *source = options->generation_config ? options->generation_config : "auto";
    bool ok = true;
    turn_off(out);
    if (!strcmp(source, "auto"))
        ok = read_checkpoint(checkpoint, out, err);
    else if (!strcmp(source, "vllm"))
        snprintf(out->origin, sizeof out->origin, "vLLM's own, for --generation-config vllm");
    else
        ok = read_folder(source, out, err);
    return ok && (!options->override_generation_config || override(options->override_generation_config, out, err));
}

// ---- in words -----------------------------------------------------------------------------------------------------

void sampling_print(const struct nibble_sampling *sampling, struct nibble_text *out)
{
    struct nibble_defaults off;
    struct nibble_defaults shown = { .sampling = *sampling };
    struct strbuf line = public_text_borrow(out);
    turn_off(&off);
    strbuf_add_format(&line, "temperature %g", sampling->temperature);
    for (int i = 1; i < PARAMETERS; i++) {
        const struct parameter *parameter = &parameters[i];
        int whole = parameter->whole ? *(int *)((char *)&shown + parameter->offset) : 0;
        double value = parameter->whole ? whole : *real_of(&shown, parameter);
        double none = parameter->whole ? 0 : *real_of(&off, parameter);
        if (value != none)
            strbuf_add_format(&line, ", %s %g", parameter->name, value);
    }
    public_text_return(out, &line);
}
