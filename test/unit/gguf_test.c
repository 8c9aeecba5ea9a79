// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "container.h"
#include "format/gguf.h"

enum { TYPE_F32 = 0, TYPE_Q8_0 = 8 };

// ---- values ----

static void put_scalars(struct gguf_file *file)
{
    gguf_file_key(file, "u8", GGUF_U8);
    put(&file->keys, &(uint8_t){ 200 }, 1);
    gguf_file_key(file, "i8", GGUF_I8);
    put(&file->keys, &(int8_t){ -100 }, 1);
    gguf_file_key(file, "u16", GGUF_U16);
    put(&file->keys, &(uint16_t){ 60000 }, 2);
    gguf_file_key(file, "i16", GGUF_I16);
    put(&file->keys, &(int16_t){ -30000 }, 2);
    gguf_file_u32(file, "u32", 4000000000u);
    gguf_file_key(file, "i32", GGUF_I32);
    put(&file->keys, &(int32_t){ -2000000000 }, 4);
    gguf_file_key(file, "u64", GGUF_U64);
    put_u64(&file->keys, INT64_MAX);
    gguf_file_key(file, "i64", GGUF_I64);
    put(&file->keys, &(int64_t){ INT64_MIN }, 8);
    gguf_file_key(file, "f32", GGUF_F32);
    put(&file->keys, &(float){ 0.25f }, 4);
    gguf_file_key(file, "f64", GGUF_F64);
    put(&file->keys, &(double){ -1e300 }, 8);
    gguf_file_key(file, "nan", GGUF_F32);
    put(&file->keys, &(float){ NAN }, 4);
    gguf_file_key(file, "yes", GGUF_BOOL);
    put(&file->keys, &(uint8_t){ 1 }, 1);
    gguf_file_key(file, "text", GGUF_STRING);
    put_string(&file->keys, (struct bytes){ "a\0b", 3 });
    gguf_file_key(file, "empty", GGUF_STRING);
    put_string(&file->keys, bytes_of(""));
}

static void put_arrays(struct gguf_file *file)
{
    gguf_file_key(file, "i32s", GGUF_ARRAY);
    put_u32(&file->keys, GGUF_I32);
    put_u64(&file->keys, 3);
    put(&file->keys, (int32_t[]){ 1, -2, 3 }, 12);
    gguf_file_key(file, "f32s", GGUF_ARRAY);
    put_u32(&file->keys, GGUF_F32);
    put_u64(&file->keys, 2);
    put(&file->keys, (float[]){ 0.5f, -8 }, 8);
    gguf_file_key(file, "bools", GGUF_ARRAY);
    put_u32(&file->keys, GGUF_BOOL);
    put_u64(&file->keys, 3);
    put(&file->keys, (uint8_t[]){ 1, 0, 1 }, 3);
    gguf_file_key(file, "strings", GGUF_ARRAY);
    put_u32(&file->keys, GGUF_STRING);
    put_u64(&file->keys, 3);
    put_string(&file->keys, bytes_of("one"));
    put_string(&file->keys, bytes_of(""));
    put_string(&file->keys, bytes_of("three"));
    gguf_file_key(file, "nothing", GGUF_ARRAY);
    put_u32(&file->keys, GGUF_U8);
    put_u64(&file->keys, 0);
}

// A file with everything in it.
static struct strbuf whole_file(uint32_t version)
{
    struct gguf_file file = { .version = version };
    put_scalars(&file);
    put_arrays(&file);
    gguf_file_tensor(&file, (struct gguf_entry){ "b", 2, { 32, 2 }, TYPE_Q8_0, 32 });
    gguf_file_tensor(&file, (struct gguf_entry){ "a", 1, { 5 }, TYPE_F32, 0 });
    gguf_file_tensor(&file, (struct gguf_entry){ "scalar", 0, { 0 }, TYPE_F32, 128 });
    for (int i = 0; i < 132; i++)
        strbuf_add_byte(&file.data, (char)i);
    return gguf_file_finish(&file, 32);
}

static void check_int(const struct gguf *gguf, const char *key, int64_t expected)
{
    struct error err;
    int64_t value = 0;
    assert_true(gguf_get_int(gguf, key, INT64_MIN, INT64_MAX, &value, &err));
    assert_true(value == expected);
}

static void check_real(const struct gguf *gguf, const char *key, double expected)
{
    struct error err;
    double value = 0;
    assert_true(gguf_get_real(gguf, key, &value, &err));
    assert_true(value == expected);
}

static void check_scalars(const struct gguf *gguf)
{
    struct error err;
    check_int(gguf, "u8", 200);
    check_int(gguf, "i8", -100);
    check_int(gguf, "u16", 60000);
    check_int(gguf, "i16", -30000);
    check_int(gguf, "u32", 4000000000);
    check_int(gguf, "i32", -2000000000);
    check_int(gguf, "u64", INT64_MAX);
    check_int(gguf, "i64", INT64_MIN);
    check_real(gguf, "f32", 0.25);
    check_real(gguf, "f64", -1e300);
    check_real(gguf, "u16", 60000);
    bool yes = false;
    assert_true(gguf_get_bool(gguf, "yes", &yes, &err));
    assert_true(yes);
    struct bytes text;
    assert_true(gguf_get_string(gguf, "text", &text, &err));
    assert_true(bytes_equal(text, (struct bytes){ "a\0b", 3 }));
    assert_true(gguf_get_string(gguf, "empty", &text, &err));
    assert_int_equal(text.len, 0);
}

static void check_arrays(const struct gguf *gguf)
{
    struct error err;
    const struct gguf_value *array;
    assert_true(gguf_get_array(gguf, "i32s", GGUF_U32, &array, &err)); // any integer type will do
    assert_int_equal(array->count, 3);
    assert_int_equal(gguf_array_int(array, 1), -2);
    assert_true(gguf_get_array(gguf, "f32s", GGUF_F32, &array, &err));
    assert_true(gguf_array_real(array, 1) == -8);
    assert_true(gguf_get_array(gguf, "bools", GGUF_BOOL, &array, &err));
    assert_int_equal(gguf_array_int(array, 2), 1);
    assert_true(gguf_get_array(gguf, "strings", GGUF_STRING, &array, &err));
    assert_int_equal(array->count, 3);
    assert_true(bytes_equal(array->strings[2], bytes_of("three")));
    assert_true(gguf_get_array(gguf, "nothing", GGUF_U8, &array, &err));
    assert_int_equal(array->count, 0);
    assert_true(gguf_get_array(gguf, "absent", GGUF_U8, &array, &err));
    assert_null(array);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct strbuf file = whole_file(version);
        struct gguf gguf;
        struct error err;
        assert_true(gguf_parse(strbuf_bytes(&file), &gguf, &err));
        assert_int_equal(gguf.version, version);
        check_scalars(&gguf);
        check_arrays(&gguf);
        gguf_free(&gguf);
        strbuf_free(&file);
    }
}

static void test_wrong_types_are_named(void **state)
{
    (void)state;
    struct strbuf file = whole_file(3);
    struct gguf gguf;
    struct error err;
    int64_t integer = 7;
    double real = 7;
    bool boolean;
    struct bytes text;
    const struct gguf_value *array;
    assert_true(gguf_parse(strbuf_bytes(&file), &gguf, &err));

    assert_false(gguf_get_int(&gguf, "f32", 0, 9, &integer, &err));
    assert_says(err, "key 'f32' has type float32, expected an integer");
    assert_false(gguf_get_int(&gguf, "u8", 0, 9, &integer, &err));
    assert_says(err, "key 'u8' is 200, expected an integer from 0 to 9");
    assert_false(gguf_get_int(&gguf, "yes", 0, 9, &integer, &err));
    assert_true(gguf_get_int(&gguf, "absent", 0, 9, &integer, &err));
    assert_int_equal(integer, 7);
    assert_false(gguf_get_real(&gguf, "nan", &real, &err));
    assert_says(err, "expected a finite number");
    assert_false(gguf_get_real(&gguf, "text", &real, &err));
    assert_false(gguf_get_bool(&gguf, "u8", &boolean, &err));
    assert_false(gguf_get_string(&gguf, "i32s", &text, &err));
    assert_says(err, "key 'i32s' is an array of int32, expected a string");
    assert_false(gguf_get_array(&gguf, "text", GGUF_STRING, &array, &err));
    assert_false(gguf_get_array(&gguf, "i32s", GGUF_F32, &array, &err));
    assert_says(err, "key 'i32s' is an array of int32, expected an array of real numbers");
    gguf_free(&gguf);
    strbuf_free(&file);
}

// ---- tensors ----

static void test_tensors(void **state)
{
    (void)state;
    struct strbuf file = whole_file(3);
    struct gguf gguf;
    struct error err;
    assert_true(gguf_parse(strbuf_bytes(&file), &gguf, &err));
    assert_int_equal(gguf.tensor_count, 3);
    const struct tensor *b = &gguf.tensors[0], *a = &gguf.tensors[1], *scalar = &gguf.tensors[2];
    assert_string_equal(b->name, "b");
    assert_int_equal(b->dtype, DTYPE_Q8_0);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 2); // outermost first
    assert_int_equal(b->shape[1], 32);
    assert_int_equal(b->bytes, 68);
    assert_int_equal(b->data[0], 32);
    assert_int_equal(a->bytes, 20);
    assert_int_equal(a->data[0], 0);
    assert_int_equal(scalar->rank, 0);
    assert_int_equal(scalar->bytes, 4);
    assert_int_equal((unsigned char)scalar->data[3], 131);
    gguf_free(&gguf);
    strbuf_free(&file);
}

static void test_alignment(void **state)
{
    (void)state;
    static const struct {
        uint32_t alignment;
        const char *error;
    } cases[] = {
        { 8, NULL },
        { 64, NULL },
        { 4096, NULL },
        { 0, "expected an integer from 8" },
        { 4, "expected an integer from 8" },
        { 24, "expected a power of two" },
        { 0xFFFFFFFF, "expected an integer from 8" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct gguf_file file = { 0 };
        gguf_file_u32(&file, "general.alignment", cases[i].alignment);
        gguf_file_tensor(&file, (struct gguf_entry){ "a", 1, { 2 }, TYPE_F32, 0 });
        strbuf_add(&file.data, "datadata", 8);
        struct strbuf built = gguf_file_finish(&file, cases[i].error ? 32 : cases[i].alignment);
        struct gguf gguf;
        struct error err;
        bool ok = gguf_parse(strbuf_bytes(&built), &gguf, &err);
        assert_int_equal(ok, !cases[i].error);
        if (ok) {
            assert_memory_equal(gguf.tensors[0].data, "datadata", 8);
            gguf_free(&gguf);
        } else {
            assert_says(err, cases[i].error);
        }
        strbuf_free(&built);
    }
}

static void test_tensor_refusals(void **state)
{
    (void)state;
    static const struct {
        struct gguf_entry entries[2];
        const char *error;
    } cases[] = {
        { { { "a", 1, { 8 }, TYPE_F32, 0 }, { "b", 1, { 8 }, TYPE_F32, 0 } }, "tensors 'a' and 'b' overlap" },
        { { { "a", 1, { 8 }, TYPE_F32, 32 }, { "b", 1, { 9 }, TYPE_F32, 0 } }, "tensors 'b' and 'a' overlap" },
        { { { "a", 1, { 8 }, TYPE_F32, 0 }, { "a", 1, { 8 }, TYPE_F32, 32 } }, "tensor 'a' is there twice" },
        { { { "a", 1, { 32 }, 16, 0 } }, "tensor 'a' has type number 16, which nibble does not read; take a file in" },
        { { { "a", 1, { 32 }, 0xFFFFFFFF, 0 } }, "type number 4294967295" },
        { { { "a", 5, { 1, 1, 1, 1, 1 }, TYPE_F32, 0 } }, "tensor 'a' has 5 dimensions" },
        { { { "a", 2, { 8, 0 }, TYPE_F32, 0 } }, "tensor 'a' has a dimension of 0" },
        { { { "a", 1, { UINT64_MAX }, TYPE_F32, 0 } }, "tensor 'a' has a dimension of 18446744073709551615" },
        { { { "a", 2, { 1ull << 32, 1ull << 32 }, TYPE_F32, 0 } }, "more values than 64 bits can count" },
        { { { "a", 2, { 1ull << 31, 1ull << 31 }, TYPE_F32, 0 } }, "more bytes than 64 bits can count" },
        { { { "a", 2, { 1ull << 30, 1ull << 30 }, TYPE_F32, 0 } }, "it is incomplete" },
        { { { "a", 1, { 31 }, TYPE_Q8_0, 0 } }, "rows of 31 values, and Q8_0 comes in blocks of 32" },
        { { { "a", 2, { 16, 2 }, TYPE_Q8_0, 0 } }, "rows of 16 values" },
        { { { "a", 0, { 0 }, TYPE_Q8_0, 0 } }, "rows of 1 values" },
        { { { "a", 1, { 2 }, TYPE_F32, 4 } }, "tensor 'a' is not aligned to 32 bytes" },
        { { { "a", 1, { 17 }, TYPE_F32, 0 } }, "tensor 'a' has 68 bytes at" },
        { { { "a", 1, { 1 }, TYPE_F32, 96 } }, "it is incomplete" },
        { { { "a", 1, { 1 }, TYPE_F32, UINT64_MAX - 31 } }, "it is incomplete" },
        { { { "", 1, { 1 }, TYPE_F32, 0 } }, "the name of a tensor is empty" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct gguf_file file = { 0 };
        gguf_file_tensor(&file, cases[i].entries[0]);
        if (cases[i].entries[1].name)
            gguf_file_tensor(&file, cases[i].entries[1]);
        put_zeros(&file.data, 64);
        struct strbuf built = gguf_file_finish(&file, 32);
        struct gguf gguf;
        struct error err;
        assert_false(gguf_parse(strbuf_bytes(&built), &gguf, &err));
        assert_says(err, cases[i].error);
        strbuf_free(&built);
    }
}

// ---- damage ----

static void check_refused(struct strbuf *file, const char *error)
{
    struct gguf gguf;
    struct error err;
    struct bytes copy = exact_copy(strbuf_bytes(file));
    assert_false(gguf_parse(copy, &gguf, &err));
    assert_says(err, error);
    free((char *)copy.data);
    strbuf_free(file);
}

static void test_versions(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        const char *error;
    } cases[] = {
        { 1, "version 1, which is no longer in use" },
        { 4, "version 4; nibble reads versions 2 and 3" },
        { 0x03000000, "big-endian" },
        { 0x02000000, "big-endian" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct gguf_file file = { .version = cases[i].version };
        struct strbuf built = gguf_file_finish(&file, 32);
        check_refused(&built, cases[i].error);
    }
    struct strbuf text = { 0 };
    strbuf_add_text(&text, "{\"a\": 1}");
    check_refused(&text, "does not start with the letters GGUF");
}

static void test_counts_beyond_the_file(void **state)
{
    (void)state;
    static const uint64_t absurd[] = { 1, 1000, 1ull << 32, 1ull << 60, UINT64_MAX };
    for (size_t i = 0; i < COUNT_OF(absurd); i++) {
        struct gguf_file no_tensors = { .tensor_count = absurd[i] };
        struct strbuf built = gguf_file_finish(&no_tensors, 32);
        check_refused(&built, "tensors, more than the 24 bytes of the file can hold");
        struct gguf_file no_keys = { .key_count = absurd[i] };
        built = gguf_file_finish(&no_keys, 32);
        check_refused(&built, "keys, more than the 24 bytes of the file can hold");

        static const enum gguf_type elements[] = { GGUF_U8, GGUF_F64, GGUF_STRING };
        for (size_t k = 0; k < COUNT_OF(elements); k++) {
            struct gguf_file array = { 0 };
            gguf_file_key(&array, "a", GGUF_ARRAY);
            put_u32(&array.keys, elements[k]);
            put_u64(&array.keys, absurd[i]);
            built = gguf_file_finish(&array, 32);
            check_refused(&built, "key 'a' claims");
        }
        struct gguf_file string = { 0 };
        gguf_file_key(&string, "a", GGUF_STRING);
        put_u64(&string.keys, absurd[i]);
        built = gguf_file_finish(&string, 32);
        check_refused(&built, "inside key 'a'; it is incomplete");
    }
}

static void test_value_refusals(void **state)
{
    (void)state;
    struct gguf_file twice = { 0 };
    gguf_file_u32(&twice, "a", 1);
    gguf_file_u32(&twice, "a", 1);
    struct strbuf built = gguf_file_finish(&twice, 32);
    check_refused(&built, "key 'a' is there twice");

    struct gguf_file nested = { 0 };
    gguf_file_key(&nested, "a", GGUF_ARRAY);
    put_u32(&nested.keys, GGUF_ARRAY);
    put_zeros(&nested.keys, 32);
    built = gguf_file_finish(&nested, 32);
    check_refused(&built, "key 'a' is an array of arrays");

    struct gguf_file unknown = { 0 };
    gguf_file_key(&unknown, "a", (enum gguf_type)13);
    put_zeros(&unknown.keys, 32);
    built = gguf_file_finish(&unknown, 32);
    check_refused(&built, "key 'a' has the unknown value type 13");

    struct gguf_file boolean = { 0 };
    gguf_file_key(&boolean, "a", GGUF_BOOL);
    strbuf_add_byte(&boolean.keys, 2);
    built = gguf_file_finish(&boolean, 32);
    check_refused(&built, "key 'a' has 2 for a boolean");

    struct gguf_file large = { 0 };
    gguf_file_key(&large, "a", GGUF_ARRAY);
    put_u32(&large.keys, GGUF_U64);
    put_u64(&large.keys, 2);
    put_u64(&large.keys, 1);
    put_u64(&large.keys, (uint64_t)INT64_MAX + 1);
    built = gguf_file_finish(&large, 32);
    check_refused(&built, "key 'a' has 9223372036854775808, which is more than 63 bits hold");

    struct gguf_file terminated = { .key_count = 1 };
    put_string(&terminated.keys, (struct bytes){ "a\0b", 3 });
    put_zeros(&terminated.keys, 32);
    built = gguf_file_finish(&terminated, 32);
    check_refused(&built, "the name of a key is empty, longer than 255 bytes or no text");
}

static void test_truncation_at_every_byte(void **state)
{
    (void)state;
    struct strbuf file = whole_file(3);
    for (size_t len = 0; len < file.len; len++) {
        struct bytes cut = exact_copy((struct bytes){ file.data, len });
        struct gguf gguf;
        struct error err;
        assert_false(gguf_parse(cut, &gguf, &err));
        assert_says(err, "incomplete, download it again");
        free((char *)cut.data);
    }
    strbuf_free(&file);
}

static void check_invariants(const struct gguf *gguf, struct bytes in)
{
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        const struct tensor *tensor = &gguf->tensors[i];
        assert_true(tensor->data >= in.data && tensor->data + tensor->bytes <= in.data + in.len);
        assert_int_equal(tensor->bytes, dtype_bytes(tensor->dtype, (size_t)tensor_values(tensor)));
    }
}

static void test_every_byte_changed(void **state)
{
    (void)state;
    static const unsigned char values[] = { 0x00, 0x01, 0x7F, 0x80, 0xFF };
    struct strbuf file = whole_file(3);
    for (size_t i = 0; i < file.len * COUNT_OF(values); i++) {
        struct bytes damaged = exact_copy(strbuf_bytes(&file));
        ((char *)damaged.data)[i / COUNT_OF(values)] = (char)values[i % COUNT_OF(values)];
        struct gguf gguf;
        struct error err = { 0 };
        if (gguf_parse(damaged, &gguf, &err)) {
            check_invariants(&gguf, damaged);
            gguf_free(&gguf);
        } else {
            assert_true(err.text[0]);
        }
        free((char *)damaged.data);
    }
    strbuf_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_wrong_types_are_named),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_tensor_refusals),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_counts_beyond_the_file),
        cmocka_unit_test(test_value_refusals),
        cmocka_unit_test(test_truncation_at_every_byte),
        cmocka_unit_test(test_every_byte_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
