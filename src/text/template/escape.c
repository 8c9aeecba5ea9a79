// SPDX-License-Identifier: Apache-2.0
// text/template/escape.c: the backslash escapes of string literals, as Python reads them.
#include "base/utf8.h"
#include "text/template/lex.h"
#include "text/template/unicode.h"

// Exactly `digits` hexadecimal ones.
static bool read_hex(struct bytes text, size_t digits, uint32_t *codepoint)
{
    if (text.len < digits)
        return false;
    *codepoint = 0;
    for (size_t i = 0; i < digits; i++) {
        int digit = bytes_hex_digit(text.data[i]);
        if (digit < 0)
            return false;
        *codepoint = *codepoint << 4 | (uint32_t)digit;
    }
    return true;
}

static size_t read_octal(struct bytes text, uint32_t *codepoint)
{
    size_t length = 0;
    *codepoint = 0;
    while (length < 3 && length < text.len && text.data[length] >= '0' && text.data[length] <= '7')
        *codepoint = *codepoint * 8 + (uint32_t)(text.data[length++] - '0');
    return length;
}

// Escapes that stand for one character.
static bool simple_escape(char letter, char *out)
{
    static const char letters[] = "abfnrtv\\'\"", meanings[] = "\a\b\f\n\r\t\v\\'\"";
    const char *at = letter ? strchr(letters, letter) : NULL;
    if (at)
        *out = meanings[at - letters];
    return at;
}

// Reads an escape behind its backslash into *codepoint. Returns its length, 0 when it is no escape.
static size_t read_escape(struct bytes text, uint32_t *codepoint, const char **why)
{
    char plain;
    if (simple_escape(text.data[0], &plain))
        return *codepoint = (unsigned char)plain, 1;
    size_t digits = text.data[0] == 'x' ? 2 : text.data[0] == 'u' ? 4 : text.data[0] == 'U' ? 8 : 0;
    if (digits) {
        if (!read_hex(bytes_from(text, 1), digits, codepoint))
            *why = "a \\x, \\u or \\U in a string has too few hexadecimal digits";
        else if (*codepoint > 0x10FFFF || (*codepoint >= 0xD800 && *codepoint <= 0xDFFF))
            *why = "a \\u or \\U in a string names no character";
        return 1 + digits;
    }
    if (text.data[0] == 'N')
        *why = "\\N{...} in a string is not supported; write the character itself";
    return read_octal(text, codepoint);
}

const char *escape_decode(struct bytes text, struct arena *arena, struct bytes *out)
{
    char *plain = arena_new(arena, text.len + 1, 1); // no escape is shorter than what it stands for
    size_t used = 0;
    for (size_t i = 0; i < text.len;) {
        if (text.data[i] != '\\' || i + 1 == text.len) {
            plain[used++] = text.data[i++];
            continue;
        }
        if (text.data[i + 1] == '\n') { // a line that goes on
            i += 2;
            continue;
        }
        const char *why = NULL;
        uint32_t codepoint;
        size_t length = read_escape(bytes_from(text, i + 1), &codepoint, &why);
        if (why)
            return why;
        if (!length) {
            plain[used++] = text.data[i++];
            continue;
        }
        used += utf8_encode(codepoint, plain + used);
        i += 1 + length;
    }
    *out = (struct bytes){ plain, used };
    return NULL;
}
