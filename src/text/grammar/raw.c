// SPDX-License-Identifier: Apache-2.0
// Raw strings as automata: a JSON string's automaton that runs over unescaped text, with a KMP matcher of the closing
// text beside it.
#include "text/grammar/raw.h"

#include <string.h>

// The automaton of a raw string and what closes it. It runs that of the JSON string with the same value. Bytes that may
// belong to the closing text are kept from it until it shows that they do not.
struct raw {
    const struct dfa *json;
    struct bytes close, inner; // inner: without the line breaks that it begins with; it must not come without them
    bool plain;                // it must not begin like a list or an object
};

struct raw_state {
    uint16_t json;
    uint8_t matched, inner; // bytes of the closing texts
    bool begun, closed;
};

enum { CLOSE_BYTES_MAX = 250 };

// The state behind one byte of the value, which JSON may want escaped; DFA_DEAD: no such string is valid.
static uint16_t step_json(const struct dfa *json, uint16_t at, uint8_t byte)
{
    static const char digits[] = "0123456789abcdef";
    const char escaped[] = { '\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15], 0 };
    const char *control = byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : byte == '\r' ? "\\r" : escaped;
    bool quoted = byte == '"' || byte == '\\';
    const char plain[] = { quoted ? '\\' : (char)byte, quoted ? (char)byte : 0, 0 };
    for (const char *text = byte < 0x20 ? control : plain; *text && at; text++)
        at = json->states[at].next[(uint8_t)*text];
    return at;
}

// How much of `close` ends the text that had `matched` bytes of it, and this byte.
static size_t match_on(struct bytes close, size_t matched, uint8_t byte)
{
    char read[CLOSE_BYTES_MAX + 1];
    size_t len = matched + 1, kept = len;
    memcpy(read, close.data, matched);
    read[matched] = (char)byte;
    while (kept && memcmp(read + len - kept, close.data, kept) != 0)
        kept--;
    return kept;
}

static bool raw_accepts(const void *context, const void *state)
{
    (void)context;
    return ((const struct raw_state *)state)->closed;
}

// May the value end in this state of the JSON string?
static bool ends_value(const struct raw *raw, uint16_t at)
{
    uint16_t end = raw->json->states[at].next['"'];
    return end && raw->json->states[end].accepts;
}

// May the value go on with the first bytes of the closing text?
static bool runs_on(const struct raw *raw, uint16_t at, size_t count)
{
    for (size_t i = 0; i < count && at; i++)
        at = step_json(raw->json, at, (uint8_t)raw->close.data[i]);
    return at;
}

static bool raw_step(const void *context, const void *state, uint8_t byte, void *next)
{
    const struct raw *raw = context;
    const struct raw_state *at = state;
    if (at->closed || (raw->plain && !at->begun && (byte == '[' || byte == '{')))
        return false;
    size_t kept = match_on(raw->close, at->matched, byte), inner = match_on(raw->inner, at->inner, byte);
    size_t passed = at->matched + 1 - kept; // bytes that turn out to be the value's
    struct raw_state to = { .json = at->json, .begun = at->begun || !bytes_is_space((char)byte) || !raw->plain };
    for (size_t i = 0; i < passed && to.json; i++)
        to.json = step_json(raw->json, to.json, i < at->matched ? (uint8_t)raw->close.data[i] : byte);
    if (!to.json)
        return false;
    if (kept && !ends_value(raw, to.json) && !runs_on(raw, to.json, kept))
        return false;
    if (kept < raw->close.len) {
        to.matched = (uint8_t)kept;
        to.inner = (uint8_t)inner;
        memcpy(next, &to, sizeof to);
        return inner < raw->inner.len;
    }
    struct raw_state closed = { .closed = true };
    memcpy(next, &closed, sizeof closed);
    return ends_value(raw, to.json);
}

uint32_t raw_node(struct grammar *grammar, const struct dfa *json, struct bytes close, bool plain)
{
    struct raw raw = { json, close, bytes_from(close, strspn(close.data, "\n")), plain };
    struct dfa_source source = { &raw, sizeof(struct raw_state), raw_accepts, raw_step };
    struct raw_state start = { .json = json->states[DFA_START].next['"'] };
    struct dfa dfa = { 0 };
    struct error ignored;
    if (!start.json || !dfa_build(&source, &start, &grammar->work, &dfa) || !dfa.count)
        return RULES_NONE;
    return rules_dfa(grammar, &dfa, &ignored);
}
