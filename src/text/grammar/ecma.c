// SPDX-License-Identifier: Apache-2.0
// A wrapper of PCRE2 with the options that ECMA 262 needs.
#include "text/grammar/ecma.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/pcre.h"

enum { PATTERN_BYTES_MAX = 1 << 16 };

struct ecma {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

static bool is_beyond(int code)
{
    return code == PCRE2_ERROR_QUANTIFIER_TOO_BIG || code == PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH
        || code == PCRE2_ERROR_LOOKBEHIND_TOO_COMPLICATED || code == PCRE2_ERROR_LOOKBEHIND_TOO_LONG;
}

struct ecma *ecma_new(struct bytes pattern, bool *beyond, struct error *err)
{
    // As ECMA 262 has it with the flag u: $ is the very end, \uXXXX a character, [] nothing and [^] anything.
    const uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_ALLOW_EMPTY_CLASS
        | PCRE2_MATCH_UNSET_BACKREF | PCRE2_NEVER_BACKSLASH_C;
    char message[PCRE_MESSAGE_BYTES];
    int code;
    if (beyond)
        *beyond = false;
    if (pattern.len > PATTERN_BYTES_MAX)
        return fail(err, "it is not a regex of at most %d bytes", PATTERN_BYTES_MAX), NULL;
    pcre2_code *compiled = pcre_compile(pattern.data ? pattern : bytes_of(""), options, &code, message);
    if (!compiled && beyond)
        *beyond = is_beyond(code);
    if (!compiled)
        return fail(err, "it is not a regex: %s", message), NULL;
    struct ecma *ecma = memory_new(1, sizeof *ecma);
    *ecma = (struct ecma){ compiled, pcre2_match_data_create(1, pcre_memory()),
                           pcre2_match_context_create(pcre_memory()) };
    pcre2_set_match_limit(ecma->context, ECMA_STEPS_MAX);
    pcre2_set_depth_limit(ecma->context, ECMA_STEPS_MAX);
    pcre2_set_heap_limit(ecma->context, ECMA_HEAP_KIB_MAX);
    return ecma;
}

void ecma_free(struct ecma *ecma)
{
    if (!ecma)
        return;
    pcre2_code_free(ecma->code);
    pcre2_match_data_free(ecma->data);
    pcre2_match_context_free(ecma->context);
    free(ecma);
}

enum ecma_match ecma_search(const struct ecma *ecma, struct bytes text)
{
    int found = pcre2_match(ecma->code, (PCRE2_SPTR)(text.data ? text.data : ""), text.len, 0, 0, ecma->data,
                            ecma->context);
    return found >= 0 ? ECMA_FOUND : found == PCRE2_ERROR_NOMATCH ? ECMA_ABSENT : ECMA_GAVE_UP;
}
