// SPDX-License-Identifier: Apache-2.0
// The automaton of a JSON string (RFC 8259, section 7) over UTF-8, by hand: its states have names that masks rely on.
#include "text/grammar/string.h"

#include <string.h>

#include "base/bytes.h"

const char *const string_closings[STRING_STATE_COUNT] = {
#define X(id, closing) [STRING_##id] = closing,
    STRING_STATES(X)
#undef X
};

static enum string_state step_body(uint8_t byte)
{
    if (byte < 0x80)
        return byte == '"' ? STRING_CLOSED : byte == '\\' ? STRING_ESCAPE : byte < ' ' ? STRING_DEAD : STRING_BODY;
    if (byte < 0xC2 || byte > 0xF4)
        return STRING_DEAD;
    if (byte < 0xE0)
        return STRING_REST_1;
    if (byte < 0xF0)
        return byte == 0xE0 ? STRING_LOW_E0 : byte == 0xED ? STRING_HIGH_ED : STRING_REST_2;
    return byte == 0xF0 ? STRING_LOW_F0 : byte == 0xF4 ? STRING_HIGH_F4 : STRING_REST_3;
}

static enum string_state step_hex(enum string_state state, uint8_t byte)
{
    static const enum string_state next[] = { [STRING_HEX_4] = STRING_HEX_3,  [STRING_HEX_3] = STRING_HEX_2,
                                              [STRING_HEX_2] = STRING_HEX_1,  [STRING_HEX_1] = STRING_BODY,
                                              [STRING_ZERO_3] = STRING_HEX_2, [STRING_ZERO_2] = STRING_HEX_1,
                                              [STRING_ZERO_1] = STRING_BODY,  [STRING_D_3] = STRING_HEX_2 };
    int digit = bytes_hex_digit((char)byte);
    if (digit < 0 || (state == STRING_D_3 && digit > 7) || (state == STRING_ZERO_1 && !digit))
        return STRING_DEAD;
    if (state == STRING_HEX_4 && digit == 0xD)
        return STRING_D_3;
    if (!digit && (state == STRING_HEX_4 || state == STRING_ZERO_3 || state == STRING_ZERO_2))
        return state == STRING_HEX_4 ? STRING_ZERO_3 : state + 1;
    return next[state];
}

enum string_state string_step(enum string_state state, uint8_t byte)
{
    bool continues = (byte & 0xC0) == 0x80;
    switch (state) {
    case STRING_OPEN: return byte == '"' ? STRING_BODY : STRING_DEAD;
    case STRING_BODY: return step_body(byte);
    case STRING_ESCAPE:
        return byte == 'u' ? STRING_HEX_4 : byte && strchr("\"\\/bfnrt", byte) ? STRING_BODY : STRING_DEAD;
    case STRING_REST_3: return continues ? STRING_REST_2 : STRING_DEAD;
    case STRING_REST_2: return continues ? STRING_REST_1 : STRING_DEAD;
    case STRING_REST_1: return continues ? STRING_BODY : STRING_DEAD;
    case STRING_LOW_E0: return continues && byte >= 0xA0 ? STRING_REST_1 : STRING_DEAD;
    case STRING_HIGH_ED: return continues && byte < 0xA0 ? STRING_REST_1 : STRING_DEAD;
    case STRING_LOW_F0: return continues && byte >= 0x90 ? STRING_REST_2 : STRING_DEAD;
    case STRING_HIGH_F4: return continues && byte < 0x90 ? STRING_REST_2 : STRING_DEAD;
    case STRING_DEAD:
    case STRING_CLOSED:
    case STRING_STATE_COUNT: return STRING_DEAD;
    default: return step_hex(state, byte);
    }
}
