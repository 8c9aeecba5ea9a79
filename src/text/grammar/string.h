// SPDX-License-Identifier: Apache-2.0
// text/grammar/string.h: a JSON string, byte by byte. Its bytes are valid UTF-8 without control characters; \u escapes
// name neither half of a surrogate pair nor NUL, which readers disagree about.
#ifndef TEXT_GRAMMAR_STRING_H
#define TEXT_GRAMMAR_STRING_H

#include <stdbool.h>
#include <stdint.h>

//    id       the shortest bytes that bring it back to BODY
// clang-format off
#define STRING_STATES(X)                                                                                  \
    X(DEAD,    "")                                                                                        \
    X(OPEN,    "\"")           /* the opening quote is to come */                                         \
    X(BODY,    "")             /* between characters */                                                   \
    X(CLOSED,  "")                                                                                        \
    X(ESCAPE,  "n")            /* behind a backslash */                                                   \
    X(HEX_4,   "0020")         /* behind \u: so many digits to come */                                    \
    X(ZERO_3,  "020")          /* the same, and all digits so far were 0 */                               \
    X(ZERO_2,  "20")                                                                                      \
    X(ZERO_1,  "9")                                                                                       \
    X(D_3,     "000")          /* behind \ud */                                                           \
    X(HEX_3,   "000")                                                                                     \
    X(HEX_2,   "00")                                                                                      \
    X(HEX_1,   "0")                                                                                       \
    X(REST_3,  "\x80\x80\x80") /* of a UTF-8 sequence: so many bytes to come */                           \
    X(REST_2,  "\x80\x80")                                                                                \
    X(REST_1,  "\x80")                                                                                    \
    X(LOW_E0,  "\xA0\x80")     /* behind the first bytes that do not let every second byte follow */      \
    X(HIGH_ED, "\x80\x80")                                                                                \
    X(LOW_F0,  "\x90\x80\x80")                                                                            \
    X(HIGH_F4, "\x80\x80\x80")
// clang-format on

enum string_state {
#define X(id, closing) STRING_##id,
    STRING_STATES(X)
#undef X
        STRING_STATE_COUNT
};

enum string_state string_step(enum string_state state, uint8_t byte);

// A step from BODY begins a character unless it ends the string.
static inline bool string_begins_character(enum string_state from, enum string_state to)
{
    return from == STRING_BODY && to != STRING_CLOSED;
}

extern const char *const string_closings[STRING_STATE_COUNT];

#endif
