// SPDX-License-Identifier: Apache-2.0
// test/fuzz/byte_tokenizer.h: a tokenizer with a token for each byte, one that ends an answer, and a few longer ones
// that cross the joints of JSON.
#ifndef FUZZ_BYTE_TOKENIZER_H
#define FUZZ_BYTE_TOKENIZER_H

#include <stdlib.h>

#include "format/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer/bytemap.h"

// Never NULL.
static inline struct tokenizer *byte_tokenizer_open(void)
{
    static const char *const more[] = {
        "\\\"}", "{\\\"", "\\\":", "true", "ab", "null", "\\\",", "12", "]}", "\\\\\\\""
    };
    struct checkpoint checkpoint = { .path = "fuzz" };
    struct strbuf json = { 0 };
    struct error err;
    strbuf_add_text(&json,
                    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"},"
                    "\"added_tokens\":[{\"id\":256,\"content\":\"<|im_end|>\",\"special\":true}],"
                    "\"model\":{\"merges\":[],\"vocab\":{\"<|im_end|>\":256");
    for (int byte = 0; byte < 256; byte++)
        strbuf_add_format(&json, ",\"\\u%04x\":%d", bytemap_letter((unsigned char)byte), byte);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        strbuf_add_format(&json, ",\"%s\":%zu", more[i], 257 + i);
    strbuf_add_text(&json, "}}}");
    if (!json_read(strbuf_bytes(&json), &checkpoint.tokenizer, &err))
        abort();
    struct tokenizer *tokenizer = tokenizer_open(&checkpoint, &err);
    json_decref(checkpoint.tokenizer);
    strbuf_free(&json);
    if (!tokenizer)
        abort();
    return tokenizer;
}

#endif
