// SPDX-License-Identifier: Apache-2.0
// text/template/lex.h: a Jinja lexer with white space control: trim_blocks and lstrip_blocks
// are on, one trailing newline is dropped, and every line end is \n.
#ifndef TEXT_TEMPLATE_LEX_H
#define TEXT_TEMPLATE_LEX_H

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"

enum {
    TEMPLATE_SOURCE_BYTES_MAX = 256 * 1024,
    TEMPLATE_BRACKETS_MAX = 128, // open at once
};

// Operators, in the order they are tried: longer ones first.
// clang-format off
#define TOKEN_OPERATORS(X)   \
    X(FLOOR_DIVIDE, "//")    \
    X(EQUAL, "==")           \
    X(NOT_EQUAL, "!=")       \
    X(GREATER_EQUAL, ">=")   \
    X(LESS_EQUAL, "<=")      \
    X(ADD, "+")              \
    X(SUBTRACT, "-")         \
    X(DIVIDE, "/")           \
    X(MULTIPLY, "*")         \
    X(MODULO, "%")           \
    X(TILDE, "~")            \
    X(BRACKET_OPEN, "[")     \
    X(BRACKET_CLOSE, "]")    \
    X(PAREN_OPEN, "(")       \
    X(PAREN_CLOSE, ")")      \
    X(BRACE_OPEN, "{")       \
    X(BRACE_CLOSE, "}")      \
    X(GREATER, ">")          \
    X(LESS, "<")             \
    X(ASSIGN, "=")           \
    X(DOT, ".")              \
    X(COLON, ":")            \
    X(PIPE, "|")             \
    X(COMMA, ",")            \
    X(SEMICOLON, ";")
// clang-format on

enum token_type {
    TOKEN_END, // of the template
    TOKEN_DATA,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
#define X(id, text) TOKEN_##id,
    TOKEN_OPERATORS(X)
#undef X
};

struct token {
    enum token_type type;
    int line;
    struct bytes text; // of a string: unescaped
    union {
        int64_t integer;
        double number;
    };
};

// Decodes backslash escapes of a string literal; *out lives in the arena. Returns NULL, or what is wrong with them.
const char *escape_decode(struct bytes text, struct arena *arena, struct bytes *out);
const char *token_name(enum token_type type); // for sentences

// A heap array that ends in TOKEN_END, for the caller to free; NULL on failure. Texts live in the arena.
struct token *template_lex(struct bytes source, struct arena *arena, struct error *err);

#endif
