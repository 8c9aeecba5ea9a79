// SPDX-License-Identifier: Apache-2.0
#include "text/grammar/ecma.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdlib.h>

#include "base/memory.h"

enum { PATTERN_BYTES_MAX = 1 << 16, NEST_MAX = 100 };

struct ecma {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

// As ECMA 262 has it with the flag u: $ is the very end, \uXXXX a character, [] nothing and [^] anything.
static pcre2_code *compile(struct bytes pattern, struct error *err)
{
    const uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_ALLOW_EMPTY_CLASS
                             | PCRE2_MATCH_UNSET_BACKREF | PCRE2_NEVER_BACKSLASH_C;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    assert(context); // a few hundred bytes
    pcre2_set_newline(context, PCRE2_NEWLINE_ANYCRLF);
    pcre2_set_parens_nest_limit(context, NEST_MAX);
    pcre2_set_max_pattern_length(context, PATTERN_BYTES_MAX);
    int code;
    PCRE2_SIZE offset;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)(pattern.data ? pattern.data : ""), pattern.len, options, &code,
                                         &offset, context);
    pcre2_compile_context_free(context);
    if (!compiled) {
        char message[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        fail(err, "it is not a regex: %s", message);
    }
    return compiled;
}

struct ecma *ecma_new(struct bytes pattern, struct error *err)
{
    pcre2_code *code = compile(pattern, err);
    if (!code)
        return NULL;
    struct ecma *ecma = memory_new(1, sizeof *ecma);
    *ecma = (struct ecma){ code, pcre2_match_data_create(1, NULL), pcre2_match_context_create(NULL) };
    assert(ecma->data && ecma->context);
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
