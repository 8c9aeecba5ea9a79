// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "model/modules.h"

#include <cmocka.h>

// The match of a path with a list of one name.
static bool means(enum modules_way way, const char *name, const char *path)
{
    struct modules modules = { .way = way };
    struct error err;
    int value;
    assert_true(modules_add(&modules, name, 7, &err));
    assert_true(modules_find(&modules, path, &value, &err));
    assert_true(value == 7 || value == -1);
    modules_free(&modules);
    return value == 7;
}

#define Q "model.layers.1.self_attn.q_proj"

static void paths(void **state)
{
    (void)state;
    assert_true(means(MODULES_WHOLE, Q, Q));
    assert_true(means(MODULES_WHOLE, "lm_head", "lm_head"));
    assert_false(means(MODULES_WHOLE, "model.layers.1", Q));
    assert_false(means(MODULES_WHOLE, "layers.1.self_attn.q", Q));
}

static void beginnings_stand_for_each_other(void **state)
{
    (void)state;
    static const char *const beginnings[] = { "model.", "language_model.model.", "model.language_model.", "" };
    char name[96], path[96];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            snprintf(name, sizeof name, "%slayers.1.mlp", beginnings[i]);
            snprintf(path, sizeof path, "%slayers.1.mlp.up_proj", beginnings[j]);
            assert_true(means(MODULES_PARTS, name, path));
        }
    assert_true(means(MODULES_WHOLE, "language_model.lm_head", "lm_head"));
}

static void parts_are_whole_components(void **state)
{
    (void)state;
    assert_true(means(MODULES_PARTS, "model.layers.1", Q));
    assert_true(means(MODULES_PARTS, "self_attn", Q));
    assert_true(means(MODULES_PARTS, "q_proj", Q));
    assert_false(means(MODULES_PARTS, "model.layers.1", "model.layers.10.self_attn.q_proj"));
    assert_false(means(MODULES_PARTS, "mlp.gate", "model.layers.1.mlp.gate_proj"));
    assert_true(means(MODULES_PARTS, "mlp.gate", "model.layers.1.mlp.gate"));
}

static void wildcards(void **state)
{
    (void)state;
    assert_true(means(MODULES_PARTS, "model.layers.1.self_attn*", Q));
    assert_true(means(MODULES_PARTS, "model.layers.1.*", Q));
    assert_false(means(MODULES_PARTS, "model.layers.1*", "model.layers.10.self_attn.q_proj"));
    assert_true(means(MODULES_PARTS, "*self_attn*", Q));
    assert_true(means(MODULES_PARTS, "model.layers.*.self_attn", Q));
    assert_false(means(MODULES_PARTS, "model.layers.*.mlp", Q));
    assert_true(means(MODULES_PARTS, "model.layers.*.q_proj", Q));
}

static void expressions(void **state)
{
    (void)state;
    assert_true(means(MODULES_WHOLE, "re:.*self_attn\\.q_proj$", Q));
    assert_true(means(MODULES_WHOLE, "re:model\\.layers\\.[01]\\.", Q)); // to the end it need not match
    assert_false(means(MODULES_WHOLE, "re:self_attn", Q));               // from the beginning it must
    assert_true(means(MODULES_WHOLE, "re:.*\\.(gate|up)_proj", "model.layers.0.mlp.up_proj"));
}

static void fused_names_cover_their_parts(void **state)
{
    (void)state;
    assert_true(means(MODULES_WHOLE, "model.layers.1.self_attn.qkv_proj", Q));
    assert_true(means(MODULES_PARTS, "qkv_proj", "model.layers.3.self_attn.v_proj"));
    assert_true(means(MODULES_WHOLE, "re:.*gate_up_proj$", "model.layers.3.mlp.gate_proj"));
    assert_false(means(MODULES_WHOLE, "model.layers.1.self_attn.qkv_proj", "model.layers.1.self_attn.o_proj"));
    assert_false(means(MODULES_WHOLE, "re:.*up_proj$", "model.layers.3.mlp.gate_proj")); // gate_up_proj ends so, too
    assert_false(means(MODULES_PARTS, "*v_proj", Q));
}

static void trouble(void **state)
{
    (void)state;
    struct modules modules = { .way = MODULES_WHOLE };
    struct error err;
    int value;
    assert_false(modules_add(&modules, "re:(", 0, &err));
    assert_non_null(strstr(err.text, "no regular expression"));
    assert_true(modules_add(&modules, "re:(a+)+$", 0, &err)); // would take forever
    assert_false(modules_find(&modules, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", &value, &err));
    assert_non_null(strstr(err.text, "steps"));
    modules_free(&modules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths),
        cmocka_unit_test(beginnings_stand_for_each_other),
        cmocka_unit_test(parts_are_whole_components),
        cmocka_unit_test(wildcards),
        cmocka_unit_test(expressions),
        cmocka_unit_test(fused_names_cover_their_parts),
        cmocka_unit_test(trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
