// SPDX-License-Identifier: Apache-2.0
// text/tokenizer/bytemap.h: the byte alphabet of GPT-2 and everything after it. Vocabularies are written in printable
// letters: the bytes that are printable in Latin-1 stand for themselves, the 68 others for U+0100 and up, in order.
#ifndef TEXT_BYTEMAP_H
#define TEXT_BYTEMAP_H

#include "base/bytes.h"
#include "base/strbuf.h"

uint32_t bytemap_letter(unsigned char byte);
int bytemap_byte(uint32_t letter); // -1: not of the alphabet

void bytemap_encode(struct bytes text, struct strbuf *out);
bool bytemap_decode(struct bytes letters, struct strbuf *out); // false: not all of the alphabet, and nothing added

// Vocabularies of plain text have tokens named <0x00> to <0xFF> for what they have no letter for.
enum { BYTEMAP_HEX_BYTES = 6 };
void bytemap_hex_name(unsigned char byte, char out[BYTEMAP_HEX_BYTES + 1]);
int bytemap_hex(struct bytes piece); // -1: the name is not of this form

#endif
