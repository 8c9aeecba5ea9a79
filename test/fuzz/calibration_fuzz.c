// SPDX-License-Identifier: Apache-2.0
// Any file in place of a calibration, under a hash that is right; what was read can be written and read again.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/calibration/measure.h"
#include "engine/calibration/file.h"

static void use(struct bytes content, const struct calibration_key *key, const struct plan *wanted)
{
    struct kv_calibration found, again;
    struct strbuf printed = { 0 };
    struct error err;
    if (!calibration_parse(&found, content, key, wanted, &err))
        return;
    calibration_apply(&found, wanted);
    calibration_suffices(&found, wanted);
    calibration_print(&found, key, wanted, &printed);
    assert(printed.len == content.len);
    bool ok = calibration_parse(&again, strbuf_bytes(&printed), key, wanted, &err);
    assert(ok && again.way_count == found.way_count);
    calibration_free(&again);
    calibration_free(&found);
    strbuf_free(&printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { LAYERS = 4 };
    struct layer layers[LAYERS] = { { .kind = LAYER_ATTENTION, .kv_heads = 2, .head_dim = 4 },
                                    { .kind = LAYER_STATE },
                                    { .kind = LAYER_ATTENTION, .kv_heads = 1, .head_dim = 8, .latent = 4 },
                                    { .kind = LAYER_ATTENTION, .kv_heads = 1, .head_dim = 2 } };
    struct plan_layer planned[LAYERS] = { { .sink_class = 1, .undecided = true },
                                          { .class_index = PLAN_NO_CLASS, .sink_class = PLAN_NO_CLASS },
                                          { .sink_class = PLAN_NO_CLASS },
                                          { .sink_class = PLAN_NO_CLASS, .undecided = true } };
    const struct model model = { .config.layers = LAYERS, .layer = layers };
    const struct plan wanted = { .model = &model,
                                 .layer = planned,
                                 .scale_search = true,
                                 .class_count = 2,
                                 .classes = { { .layout.k.dtype = DTYPE_NVFP4 }, { .kind.end = 1 } } };
    struct calibration_key key;
    struct strbuf content = { 0 };
    memset(key.bytes, 'k', sizeof key.bytes);
    use((struct bytes){ (const char *)data, size }, &key, &wanted);
    strbuf_add(&content, (const char *)data, size);
    calibration_seal(&content);
    char *exact = memory_new(content.len, 1); // so that a byte too far is noticed
    memcpy(exact, content.data, content.len);
    use((struct bytes){ exact, content.len }, &key, &wanted);
    free(exact);
    strbuf_free(&content);
    return 0;
}
