// SPDX-License-Identifier: Apache-2.0
// GPT-2's bytes_to_unicode, and names of byte tokens such as <0x0A>.
#include "text/tokenizer/bytemap.h"

#include <stdio.h>

#include "base/utf8.h"

// The three runs of bytes without a letter of their own, and the letter each run starts with.
static const struct {
    uint32_t first, last, letter;
} moved[] = {
    { 0x00, 0x20, 0x100 },
    { 0x7F, 0xA0, 0x121 },
    { 0xAD, 0xAD, 0x143 },
};

enum { MOVED_COUNT = sizeof moved / sizeof *moved };

uint32_t bytemap_letter(unsigned char byte)
{
    for (int i = 0; i < MOVED_COUNT; i++)
        if (byte >= moved[i].first && byte <= moved[i].last)
            return byte - moved[i].first + moved[i].letter;
    return byte;
}

int bytemap_byte(uint32_t letter)
{
    for (int i = 0; i < MOVED_COUNT; i++)
        if (letter >= moved[i].letter && letter <= moved[i].letter + moved[i].last - moved[i].first)
            return (int)(letter - moved[i].letter + moved[i].first);
    return letter < 0x100 && bytemap_letter((unsigned char)letter) == letter ? (int)letter : -1;
}

void bytemap_encode(struct bytes text, struct strbuf *out)
{
    for (size_t i = 0; i < text.len; i++)
        strbuf_add_codepoint(out, bytemap_letter((unsigned char)text.data[i]));
}

bool bytemap_decode(struct bytes letters, struct strbuf *out)
{
    size_t start = out->len;
    for (size_t at = 0; at < letters.len;) {
        uint32_t letter;
        size_t length = utf8_decode(bytes_from(letters, at), &letter);
        int byte = length ? bytemap_byte(letter) : -1;
        if (byte < 0) {
            out->len = start;
            return false;
        }
        strbuf_add_byte(out, (char)byte);
        at += length;
    }
    return true;
}

void bytemap_hex_name(unsigned char byte, char out[BYTEMAP_HEX_BYTES + 1])
{
    snprintf(out, BYTEMAP_HEX_BYTES + 1, "<0x%02X>", byte);
}

int bytemap_hex(struct bytes piece)
{
    if (piece.len != BYTEMAP_HEX_BYTES || !bytes_start_with(piece, bytes_of("<0x")) || piece.data[5] != '>')
        return -1;
    int high = bytes_hex_digit(piece.data[3]), low = bytes_hex_digit(piece.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}
