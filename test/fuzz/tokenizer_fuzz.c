// SPDX-License-Identifier: Apache-2.0
// A tokenizer out of the bytes, a fixed text through it and back. The first byte chooses the format and the flags.
#include "format/json.h"
#include "text/tokenizer.h"

static const char text[] = "Hello w\xC3\xB6rld's  12345\n\t<s>\xE2\x96\x81<|im_end|> \xE6\xBC\xA2\xE5\xAD\x97 "
                           "e\xCC\x81 \xF0\x9F\x98\x80\xFF aaaaaaaa";

static void use(const struct tokenizer *tokenizer, int flags)
{
    struct detokenizer state = { .tokenizer = tokenizer, .skip_special = flags & 4 };
    struct tokens tokens = { 0 };
    struct strbuf out = { 0 };
    struct error err;
    if (tokenizer_encode(tokenizer, (struct bytes){ text, sizeof text - 1 }, flags & 3, &tokens, &err))
        for (size_t i = 0; i < tokens.count; i++)
            detokenizer_add(&state, tokens.ids[i], &out);
    detokenizer_finish(&state, &out);
    strbuf_free(&out);
    tokens_free(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = { (const char *)data + 1, size - 1 };
    struct checkpoint checkpoint = { .path = "fuzz" };
    struct gguf gguf;
    struct error err;
    if (!size)
        return 0;
    bool is_gguf = data[0] & 8;
    if (is_gguf ? !gguf_parse(in, &gguf, &err) : !json_read(in, &checkpoint.tokenizer, &err))
        return 0;
    checkpoint.gguf = is_gguf ? &gguf : NULL;
    struct tokenizer *tokenizer = tokenizer_open(&checkpoint, &err);
    if (tokenizer)
        use(tokenizer, data[0]);
    tokenizer_close(tokenizer);
    json_decref(checkpoint.tokenizer);
    if (is_gguf)
        gguf_free(&gguf);
    return 0;
}
