// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <assert.h>

const struct dtype_info dtype_table[DTYPE_COUNT] = {
#define X(id, word, use, bits, block, bytes, scale, gguf, safetensors) \
    [DTYPE_##id] = { word, DTYPE_USE_##use, bits, block, bytes, DTYPE_SCALE_##scale, gguf, safetensors },
    DTYPES(X)
#undef X
};

bool dtype_from_gguf(uint32_t type, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (dtype_table[i].gguf >= 0 && (uint32_t)dtype_table[i].gguf == type)
            return *out = (enum dtype)i, true;
    return false;
}

bool dtype_from_safetensors(struct bytes name, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (dtype_table[i].safetensors && bytes_equal(name, bytes_of(dtype_table[i].safetensors)))
            return *out = (enum dtype)i, true;
    return false;
}

bool dtype_from_kv_word(struct bytes word, enum dtype *out)
{
    if (bytes_equal(word, bytes_of("fp8")))
        return *out = DTYPE_FP8_E4M3, true;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (dtype_table[i].use & DTYPE_USE_CACHE && bytes_equal(word, bytes_of(dtype_table[i].word)))
            return *out = (enum dtype)i, true;
    return false;
}

static const struct refused_word {
    const char *word;
    int bits;
    const char *reason;
} refused_words[] = {
#define X(word, bits, reason) { word, bits, reason },
    KV_WORDS_REFUSED(X)
#undef X
};

static const struct refused_word *find_refused(struct bytes word)
{
    for (size_t i = 0; i < sizeof refused_words / sizeof *refused_words; i++)
        if (bytes_equal(word, bytes_of(refused_words[i].word)))
            return &refused_words[i];
    return NULL;
}

const char *dtype_kv_word_refusal(struct bytes word)
{
    const struct refused_word *found = find_refused(word);
    return found ? found->reason : NULL;
}

int dtype_kv_word_refused_bits(struct bytes word)
{
    const struct refused_word *found = find_refused(word);
    return found ? found->bits : 0;
}

size_t dtype_bytes(enum dtype dtype, size_t values)
{
    const struct dtype_info *info = &dtype_table[dtype];
    assert(values % (size_t)info->block == 0);
    return values / (size_t)info->block * (size_t)info->block_bytes;
}
