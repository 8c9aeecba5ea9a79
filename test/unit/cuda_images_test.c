// SPDX-License-Identifier: Apache-2.0
// The compiled kernels that this build carries: one image of each file per architecture, with the same kernels in all.
#include <string.h>

#include "container.h"
#include "kernel/cuda/attention_shapes.h"
#include "kernel/cuda/images.h"

static bool has_ptx(void)
{
    const struct cuda_image *image = cuda_images;
    while (image->name && image->architecture)
        image++;
    return image->name != NULL;
}

static bool is_for_all(const char *name)
{
    int images = 0, architectures = has_ptx();
    for (const struct cuda_image *image = cuda_images; image->name; image++)
        images += !strcmp(image->name, name);
    for (const int *sm = cuda_architectures; *sm; sm++)
        architectures++;
    return images == architectures;
}

static void test_images_of_a_file_are_alike(void **state)
{
    (void)state;
    for (const struct cuda_image *image = cuda_images; image->name; image++) {
        assert_true(image->size > 0 && image->functions[0].name);
        if (!is_for_all(image->name))
            assert_int_equal(image->architecture, 90); // wgmma
        for (const struct cuda_image *other = image + 1; other->name && !strcmp(other->name, image->name); other++) {
            assert_int_not_equal(image->architecture, other->architecture);
            for (int i = 0; image->functions[i].name || other->functions[i].name; i++)
                assert_string_equal(image->functions[i].name, other->functions[i].name);
        }
    }
}

static void test_architectures_are_exact(void **state)
{
    (void)state;
    static const int only[] = { 90, 0 }, none[] = { 0 };
    struct device imagined = { .kind = DEVICE_CUDA, .imagined = true }, real = { .kind = DEVICE_CUDA };
    imagined.sm = real.sm = 90;
    assert_true(cuda_runs_on(only, &imagined));
    assert_int_equal(cuda_runs_on(only, &real), cuda_is_listed(cuda_architectures, 90));
    assert_false(cuda_runs_on(none, &real));
    imagined.sm = real.sm = 91; // of the same family
    assert_false(cuda_runs_on(only, &imagined) || cuda_runs_on(only, &real));
    imagined.sm = real.sm = 999;
    assert_false(cuda_runs_on(only, &real) || cuda_runs_on(cuda_all_architectures, &imagined));
    assert_int_equal(cuda_runs_on(cuda_all_architectures, &real), has_ptx());
    for (const int *sm = cuda_architectures; *sm; sm++)
        assert_int_equal(cuda_code_sm(*sm), *sm);
    assert_int_equal(cuda_code_sm(999), has_ptx() ? CUDA_PTX_SM : 999);
    assert_int_equal(cuda_ptx_architecture != 0, has_ptx());
    assert_int_equal(cuda_images[0].name != NULL, cuda_driver_needed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_of_a_file_are_alike),
        cmocka_unit_test(test_architectures_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
