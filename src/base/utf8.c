// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

// Decodes the first byte: the sequence's length, and the smallest code point that may have that length.
static size_t sequence_length(unsigned char first, uint32_t *bits, uint32_t *smallest)
{
    if (first < 0x80)
        return *bits = first, *smallest = 0, 1;
    if (first >= 0xC2 && first < 0xE0)
        return *bits = first & 0x1F, *smallest = 0x80, 2;
    if (first >= 0xE0 && first < 0xF0)
        return *bits = first & 0x0F, *smallest = 0x800, 3;
    if (first >= 0xF0 && first < 0xF5)
        return *bits = first & 0x07, *smallest = 0x10000, 4;
    return 0;
}

static bool is_scalar(uint32_t codepoint)
{
    return codepoint <= 0x10FFFF && (codepoint < 0xD800 || codepoint > 0xDFFF);
}

size_t utf8_decode(struct bytes in, uint32_t *codepoint)
{
    uint32_t bits, smallest;
    size_t length = in.len ? sequence_length((unsigned char)in.data[0], &bits, &smallest) : 0;
    if (!length || length > in.len)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if (((unsigned char)in.data[i] & 0xC0) != 0x80)
            return 0;
        bits = bits << 6 | ((unsigned char)in.data[i] & 0x3F);
    }
    if (bits < smallest || !is_scalar(bits))
        return 0;
    *codepoint = bits;
    return length;
}

bool utf8_is_partial(struct bytes in)
{
    uint32_t bits, smallest;
    size_t length = in.len ? sequence_length((unsigned char)in.data[0], &bits, &smallest) : 0;
    if (length <= in.len)
        return false;
    // The lowest and the highest continuation bytes give the range of all completions.
    uint32_t low = bits, high = bits;
    for (size_t i = 1; i < length; i++) {
        bool given = i < in.len;
        if (given && ((unsigned char)in.data[i] & 0xC0) != 0x80)
            return false;
        low = low << 6 | (given ? (unsigned char)in.data[i] & 0x3F : 0);
        high = high << 6 | (given ? (unsigned char)in.data[i] & 0x3F : 0x3F);
    }
    return high >= smallest && low <= 0x10FFFF && !(low >= 0xD800 && high <= 0xDFFF);
}

bool utf8_is_valid(struct bytes text)
{
    uint32_t codepoint;
    size_t length = 1;
    for (; text.len && length; text = bytes_from(text, length))
        length = utf8_decode(text, &codepoint);
    return length;
}

size_t utf8_count(struct bytes text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return count;
}

size_t utf8_encode(uint32_t codepoint, char out[UTF8_BYTES_MAX])
{
    if (!is_scalar(codepoint))
        codepoint = UTF8_REPLACEMENT;
    if (codepoint < 0x80)
        return out[0] = (char)codepoint, 1;
    size_t length = codepoint < 0x800 ? 2 : codepoint < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, codepoint >>= 6)
        out[i] = (char)(0x80 | (codepoint & 0x3F));
    static const unsigned char lead[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    out[0] = (char)(lead[length] | codepoint);
    return length;
}
