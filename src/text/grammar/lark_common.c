// SPDX-License-Identifier: Apache-2.0
// The terminals that Lark's grammar "common" has, as regexes.
#include "text/grammar/regex.h"

static const struct {
    const char *name, *regex;
} common[] = {
    { "DIGIT", "[0-9]" },
    { "HEXDIGIT", "[0-9a-fA-F]" },
    { "INT", "[0-9]+" },
    { "SIGNED_INT", "[+-]?[0-9]+" },
    { "DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+" },
    { "FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?" },
    { "SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)" },
    { "NUMBER", "([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?" },
    { "SIGNED_NUMBER", "[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?" },
    { "ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\"" },
    { "LCASE_LETTER", "[a-z]" },
    { "UCASE_LETTER", "[A-Z]" },
    { "LETTER", "[a-zA-Z]" },
    { "WORD", "[a-zA-Z]+" },
    { "CNAME", "[_a-zA-Z][_a-zA-Z0-9]*" },
    { "WS_INLINE", "[ \\t]+" },
    { "WS", "[ \\t\\f\\r\\n]+" },
    { "CR", "\\r" },
    { "LF", "\\n" },
    { "NEWLINE", "(\\r?\\n)+" },
    { "SH_COMMENT", "#[^\\n]*" },
    { "CPP_COMMENT", "//[^\\n]*" },
    { "C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/" },
    { "SQL_COMMENT", "--[^\\n]*" },
};

bool lark_import(struct ebnf *tree, struct bytes name, struct bytes as)
{
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        if (!bytes_equal(name, bytes_of(common[i].name)))
            continue;
        uint32_t rule = ebnf_rule(tree, as);
        return ebnf_define(
            tree, rule, tree->line,
            regex_read(tree, bytes_of(common[i].regex), bytes_of(""), &(struct regex_style){ .ecma = false }));
    }
    return ebnf_fail(tree, "common.%.*s is not known here; define the terminal in the grammar",
                     name.len > 60 ? 60 : (int)name.len, name.data);
}
