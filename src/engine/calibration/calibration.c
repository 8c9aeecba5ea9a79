// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration/calibration.h"

#include <stdlib.h>

#include "base/file.h"
#include "engine/calibration/file.h"

static void warn(struct kv_calibration *calibration, const char *format, const char *path, const char *reason)
{
    const char *before = calibration->warning;
    const char *text = arena_format(&calibration->arena, format, path, reason);
    calibration->warning = before ? arena_format(&calibration->arena, "%s; %s", before, text) : text;
}

// False: there is none; one that cannot be used leaves its reason in *err.
static bool load(struct kv_calibration *out, const char *path, const struct calibration_key *key,
                 const struct plan *wanted, struct error *err)
{
    struct file file;
    err->text[0] = 0;
    if (!path || !file_exists(path) || !file_open(&file, path, err))
        return false;
    bool ok = calibration_parse(out, file.content, key, wanted, err);
    file_close(&file);
    return ok;
}

static bool measure(struct kv_calibration *out, const struct checkpoint *checkpoint, const struct plan *wanted,
                    const struct engine_options *options, const struct calibration_source *source, struct error *err)
{
    int32_t *ids = NULL;
    ptrdiff_t count = source->tokens(source->context, source->text, &ids, err);
    bool ok = count >= 0 && calibrate(out, checkpoint, wanted, options, ids, (size_t)count, err);
    free(ids);
    if (!ok)
        calibration_free(out);
    return ok;
}

static void save(struct kv_calibration *calibration, const char *path, const struct calibration_key *key,
                 const struct plan *wanted)
{
    struct strbuf content = { 0 };
    struct error err = { 0 };
    calibration_print(calibration, key, wanted, &content);
    if (!path)
        warn(calibration, "the calibration of the cache is not kept: %s is set%s", "neither NIBBLE_CACHE nor HOME", "");
    else if (!file_replace(path, strbuf_bytes(&content), &err))
        warn(calibration, "the calibration of the cache is not kept%s: %s", "", err.text);
    strbuf_free(&content);
}

static bool find(struct kv_calibration *out, const char *path, const struct calibration_key *key,
                 const struct checkpoint *checkpoint, const struct plan *wanted, const struct engine_options *options,
                 const struct calibration_source *source, struct error *err)
{
    struct error unusable;
    if (load(out, path, key, wanted, &unusable))
        calibration_apply(out, wanted);
    if (calibration_suffices(out, wanted) || !source->tokens)
        return true;
    bool ok = measure(out, checkpoint, wanted, options, source, err);
    bool asked = source->given || (options->plan.user.kv_transform && strcmp(options->plan.user.kv_transform, "auto"));
    if (!ok && asked)
        return false;
    if (unusable.text[0])
        warn(out, "%s %s and was measured anew", path, unusable.text);
    if (ok)
        save(out, path, key, wanted);
    else
        warn(out, "the cache is not calibrated%s (%s): keys are stored as they are", "", err->text);
    return true;
}

bool calibration_find(struct kv_calibration *out, const struct checkpoint *checkpoint, const struct plan *wanted,
                      const struct engine_options *options, const struct calibration_source *source, struct error *err)
{
    struct calibration_key key = calibration_key_of(checkpoint, wanted, source->text);
    char *path = calibration_path(&key);
    *out = (struct kv_calibration){ 0 };
    bool ok = find(out, path, &key, checkpoint, wanted, options, source, err);
    free(path);
    return ok;
}
