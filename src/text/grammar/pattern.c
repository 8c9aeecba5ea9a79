// SPDX-License-Identifier: Apache-2.0
// ECMA 262 regexes to automata, by way of a syntax tree. Look-ahead at the beginning is an intersection or a
// difference.
#include "text/grammar/pattern.h"

#include "text/grammar/regex.h"

// anchored: every alternative begins where the text does.
static bool compile_plain(struct bytes text, enum pattern_form form, bool anchored, bool *loose, size_t *work,
                          struct dfa *out, struct error *err)
{
    bool whole = form == PATTERN_WHOLE, wide = form == PATTERN_WIDE;
    struct regex_style style = {
        .ecma = true, .wide = wide, .search = true, .starts = whole || anchored, .ends = whole, .loose = loose
    };
    struct ebnf tree = { .err = err };
    struct nfa nfa = { 0 };
    if (text.len > PATTERN_BYTES_MAX)
        return fail(err, "it is %zu bytes long, and %d is the limit", text.len, PATTERN_BYTES_MAX);
    uint32_t node = regex_read(&tree, text, bytes_of(""), &style);
    bool ok = node != EBNF_NONE;
    if (ok) {
        uint32_t begin = whole ? NFA_START : nfa_state(&nfa), end = whole ? NFA_END : nfa_state(&nfa);
        if (!whole) {
            nfa_bytes(&nfa, NFA_START, begin, '"', '"');
            nfa_bytes(&nfa, end, NFA_END, '"', '"');
        }
        ebnf_to_nfa(&tree, node, !whole, &nfa, begin, end);
        ok = dfa_from_nfa(&nfa, work, out) || fail(err, "it is too intricate");
    }
    nfa_free(&nfa);
    ebnf_free(&tree);
    return ok;
}

// ---- look-ahead ----

// *dfa becomes its intersection with `by` or (`with` false) the difference.
static bool narrow(struct dfa *dfa, const struct dfa *by, bool with, size_t *work, struct error *err)
{
    struct dfa narrower = { 0 };
    bool ok = with ? dfa_intersect(dfa, by, work, &narrower) : dfa_subtract(dfa, by, work, &narrower);
    if (!ok)
        return fail(err, "it is too intricate beside another");
    dfa_free(dfa);
    *dfa = narrower;
    return true;
}

// `^(?!A)B` is B without what begins with A; `^(?=A)B` is B that begins with A, too. A negative one is read the other
// way about, wide in a narrow pattern, so that the result errs on the same side.
static bool look_ahead(struct bytes look, enum pattern_form form, size_t *work, bool *loose, struct dfa *dfa,
                       struct error *err)
{
    enum { LOOK_BYTES = 3 }; // (?= and (?!
    bool negative = look.data[LOOK_BYTES - 1] == '!';
    enum pattern_form opposite = form == PATTERN_WIDE ? PATTERN_STRING : PATTERN_WIDE;
    struct bytes text = { look.data + LOOK_BYTES, look.len - LOOK_BYTES - 1 };
    struct dfa ahead = { 0 };
    bool ok = compile_plain(text, negative ? opposite : form, true, negative ? NULL : loose, work, &ahead, err)
        && narrow(dfa, &ahead, !negative, work, err);
    dfa_free(&ahead);
    return ok;
}

static bool compile(struct bytes pattern, enum pattern_form form, size_t *work, struct dfa *out, bool *loose,
                    struct error *err)
{
    size_t begin = pattern.len && pattern.data[0] == '^', at = begin, end;
    if (form == PATTERN_WHOLE || regex_find(pattern, 0, '|')) // a look-ahead would belong to the first alternative
        begin = at = 0;
    while (at && at < pattern.len && regex_is_look_ahead(bytes_from(pattern, at))
           && (end = regex_find(pattern, at, ')')))
        at = end;
    if (!compile_plain(bytes_from(pattern, at), form, at, loose, work, out, err))
        return false;
    bool ok = true;
    for (; ok && begin < at; begin = end) {
        end = regex_find(pattern, begin, ')');
        ok = look_ahead((struct bytes){ pattern.data + begin, end - begin }, form, work, loose, out, err);
    }
    if (!ok)
        dfa_free(out);
    return ok;
}

bool pattern_compile(struct bytes pattern, enum pattern_form form, bool both, size_t *work, struct dfa *dfa,
                     bool *loose, struct error *err)
{
    struct dfa one = { 0 };
    bool ok = compile(pattern, form, work, &one, loose, err);
    if (ok && both)
        ok = narrow(dfa, &one, true, work, err);
    else if (ok)
        *dfa = one;
    if (both)
        dfa_free(&one);
    if (!ok)
        dfa_free(dfa);
    return ok;
}

bool pattern_exclude(struct bytes pattern, size_t *work, struct dfa *dfa, struct error *err)
{
    struct dfa one = { 0 };
    bool ok = compile(pattern, PATTERN_WIDE, work, &one, NULL, err) && narrow(dfa, &one, false, work, err);
    dfa_free(&one);
    return ok;
}
