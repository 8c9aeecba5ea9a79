// SPDX-License-Identifier: Apache-2.0
#include "container.h"
#include "format/safetensors.h"

static const char whole_header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                   "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
                                   "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                                   "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[20,28]},"
                                   "\"none\":{\"dtype\":\"F8_E8M0\",\"shape\":[4,0],\"data_offsets\":[28,28]},"
                                   "\"patch\":{\"dtype\":\"U8\",\"shape\":[1,2,1,1,2],\"data_offsets\":[28,32]}}   ";
static const char whole_data[] = "aaaaaaaabbbbbbbbbbbbssssssss0123";

static void test_round_trip(void **state)
{
    (void)state;
    struct strbuf file = safetensors_file(whole_header, bytes_of(whole_data));
    struct safetensors parsed;
    struct error err;
    assert_true(safetensors_parse(strbuf_bytes(&file), &parsed, &err));
    assert_int_equal(parsed.tensor_count, 5);
    const struct tensor *b = &parsed.tensors[0], *a = &parsed.tensors[1], *scalar = &parsed.tensors[2];
    assert_string_equal(b->name, "b");
    assert_int_equal(b->dtype, DTYPE_BF16);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_memory_equal(b->data, "bbbbbbbbbbbb", 12);
    assert_memory_equal(a->data, "aaaaaaaa", 8);
    assert_int_equal(scalar->rank, 0);
    assert_memory_equal(scalar->data, "ssssssss", 8);
    assert_int_equal(parsed.tensors[3].bytes, 0);
    assert_int_equal(parsed.tensors[4].rank, 5);
    assert_memory_equal(parsed.tensors[4].data, "0123", 4);
    safetensors_free(&parsed);
    strbuf_free(&file);
}

static void check_refused(const char *header, const char *error)
{
    struct strbuf file = safetensors_file(header, bytes_of("0123456789abcdef"));
    struct safetensors parsed;
    struct error err;
    if (safetensors_parse(strbuf_bytes(&file), &parsed, &err))
        fail_msg("%s was accepted", header);
    assert_says(err, error);
    strbuf_free(&file);
}

#define ENTRY(dtype, shape, offsets) "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *header, *error;
    } cases[] = {
        { "", "the header: empty" },
        { "{", "the header: line 1, column 1: not valid JSON" },
        { "[]", "its header is no JSON object" },
        { "{\"t\":1}", "tensor 't' has no \"dtype\"" },
        { "{\"t\":" ENTRY("1", "[2]", "[0,8]") "}", "tensor 't' has no \"dtype\"" },
        { "{\"t\":" ENTRY("\"F4\"", "[2]", "[0,8]") "}", "tensor 't' has type F4, which nibble does not read" },
        { "{\"t\":" ENTRY("\"F32\"", "2", "[0,8]") "}", "tensor 't' has no \"shape\"" },
        { "{\"t\":" ENTRY("\"F32\"", "[-2]", "[0,8]") "}", "tensor 't' has a dimension that is no whole number" },
        { "{\"t\":" ENTRY("\"F32\"", "[2.0]", "[0,8]") "}", "tensor 't' has a dimension that is no whole number" },
        { "{\"t\":" ENTRY("\"F32\"", "[\"2\"]", "[0,8]") "}", "tensor 't' has a dimension that is no whole number" },
        { "{\"t\":" ENTRY("\"F32\"", "[1,1,1,1,1,1]", "[0,4]") "}", "tensor 't' has 6 dimensions" },
        { "{\"t\":" ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,8]") "}", "more values than 64 bits" },
        { "{\"t\":" ENTRY("\"F32\"", "[9223372036854775807]", "[0,8]") "}", "more bytes than 64 bits" },
        { "{\"t\":" ENTRY("\"F32\"", "[99999999999999999999]", "[0,8]") "}", "no whole number" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "8") "}", "tensor 't' has no two \"data_offsets\"" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[0]") "}", "tensor 't' has no two \"data_offsets\"" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[0,8,9]") "}", "tensor 't' has no two \"data_offsets\"" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[8,0]") "}", "tensor 't' lies from 8 to 0" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[-8,0]") "}", "tensor 't' lies from -8 to 0" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[12,20]") "}", "tensor 't' ends 4 bytes past the end of the file" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[0,9223372036854775807]") "}", "past the end of the file" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[0,4]") "}", "tensor 't' has 4 bytes where its type and shape need 8" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[0,9]") "}", "tensor 't' has 9 bytes where its type and shape need 8" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[0,8]") ",\"u\":" ENTRY("\"F32\"", "[2]", "[4,12]") "}", "overlap" },
        { "{\"t\":" ENTRY("\"F32\"", "[2]", "[0,8]") ",\"u\":" ENTRY("\"F32\"", "[0]", "[4,4]") "}", "overlap" },
        { "{\"\":" ENTRY("\"F32\"", "[2]", "[0,8]") "}", "name is empty" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_refused(cases[i].header, cases[i].error);
}

static void test_header_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *error;
    } cases[] = {
        { 3, "inside its header of 3" },
        { 100000000, "inside its header of 100000000" },
        { 100000001, "not a safetensors file" },
        { UINT64_MAX, "not a safetensors file" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct strbuf file = { 0 };
        put_u64(&file, cases[i].length);
        strbuf_add_text(&file, "{}");
        struct safetensors parsed;
        struct error err;
        assert_false(safetensors_parse(strbuf_bytes(&file), &parsed, &err));
        assert_says(err, cases[i].error);
        strbuf_free(&file);
    }
}

static void test_truncation_at_every_byte(void **state)
{
    (void)state;
    struct strbuf file = safetensors_file(whole_header, bytes_of(whole_data));
    for (size_t len = 0; len < file.len; len++) {
        struct bytes cut = exact_copy((struct bytes){ file.data, len });
        struct safetensors parsed;
        struct error err;
        assert_false(safetensors_parse(cut, &parsed, &err));
        assert_says(err, "it is incomplete, download it again");
        free((char *)cut.data);
    }
    strbuf_free(&file);
}

static void test_every_byte_changed(void **state)
{
    (void)state;
    static const char values[] = "\x00\x7F\xFF\"9[{,";
    struct strbuf file = safetensors_file(whole_header, bytes_of(whole_data));
    size_t header_end = file.len - strlen(whole_data);
    for (size_t i = 0; i < header_end * (sizeof values - 1); i++) {
        struct bytes damaged = exact_copy(strbuf_bytes(&file));
        ((char *)damaged.data)[i / (sizeof values - 1)] = values[i % (sizeof values - 1)];
        struct safetensors parsed;
        struct error err = { 0 };
        if (safetensors_parse(damaged, &parsed, &err)) {
            for (size_t t = 0; t < parsed.tensor_count; t++)
                assert_true(parsed.tensors[t].data >= damaged.data
                            && parsed.tensors[t].data + parsed.tensors[t].bytes <= damaged.data + damaged.len);
            safetensors_free(&parsed);
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
        cmocka_unit_test(test_round_trip),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_header_lengths),     cmocka_unit_test(test_truncation_at_every_byte),
        cmocka_unit_test(test_every_byte_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
