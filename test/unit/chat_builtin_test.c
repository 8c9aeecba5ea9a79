// SPDX-License-Identifier: Apache-2.0
// Built-in chat templates: chosen by the vocabulary's tokens of turns, and rendered as the families write them.
#include "text/chat.h"
#include "text/chat_builtin.h"
#include "tokenizer_open.h"

enum { NORMAL = 1, CONTROL = 3 }; // token types of GGUF

static struct tokenizer *with_tokens(const char *begin, const char *end, int32_t type)
{
    const char *pieces[] = { "<s>", "</s>", "a", begin, end, NULL };
    const int32_t types[] = { CONTROL, CONTROL, NORMAL, type, type };
    return must_open_gguf(
        &(struct gguf_vocabulary){ .model = "llama", .pieces = pieces, .types = types, .add_bos = -1 });
}

static const struct chat_builtin *find(const char *begin, const char *end, int32_t type)
{
    struct tokenizer *tokenizer = with_tokens(begin, end, type);
    const struct chat_builtin *builtin = chat_builtin_find(tokenizer);
    tokenizer_close(tokenizer);
    return builtin;
}

static const char conversation[] = "{'messages': [{'role': 'system', 'content': 'Be kind.'}, {'role': 'user', "
                                   "'content': 'Hi'},"
                                   " {'role': 'assistant', 'content': 'Ho'}, {'role': 'user', 'content': 'Hey'}], "
                                   "'bos_token': '<s>'}";

static const struct {
    const char *family, *begin, *end, *rendered;
} families[] = {
    { "ChatML", "<|im_start|>", "<|im_end|>",
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"
      "<|im_start|>user\nHey<|im_end|>\n<|im_start|>assistant\n" },
    { "Llama 3", "<|start_header_id|>", "<|eot_id|>",
      "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\nHo<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\nHey<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n" },
    { "Gemma", "<start_of_turn>", "<end_of_turn>",
      "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHo<end_of_turn>\n"
      "<start_of_turn>user\nHey<end_of_turn>\n<start_of_turn>model\n" },
};

static void test_families(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        const struct chat_builtin *builtin = find(families[i].begin, families[i].end, CONTROL);
        struct strbuf text = { 0 };
        struct error err;
        assert_non_null(builtin);
        assert_string_equal(builtin->family, families[i].family);
        struct chat *chat = chat_open_source(NULL, bytes_of(builtin->source), &err);
        json_t *request = read_quoted(conversation);
        assert_non_null(chat);
        assert_true(chat_render(chat, request, &text, &err));
        assert_string_equal(strbuf_text(&text), families[i].rendered);
        assert_true(chat_reads(chat, "messages") && chat_reads(chat, "add_generation_prompt"));
        assert_false(chat_reads(chat, "enable_thinking"));
        json_decref(request);
        chat_close(chat);
        strbuf_free(&text);
    }
}

static void test_vocabularies_that_say_nothing(void **state)
{
    (void)state;
    assert_null(find("<begin>", "<end>", CONTROL));
    assert_null(find("<|im_start|>", "<end>", CONTROL));     // and what would end an answer?
    assert_null(find("<|im_start|>", "<|im_end|>", NORMAL)); // a text like any other
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_vocabularies_that_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
