// SPDX-License-Identifier: Apache-2.0
// text/template/environment.h: the Jinja environment of chat templates: tables of all filters, tests, methods and
// global functions. Published chat templates use most of them. A name that is not here is an error that names it.
//
// A row: name, function, what it is to do where one function serves several names (call->what), number of parameters
// without a default, names of the parameters separated by spaces ("/" in front: they are positional only; "*": any, in
// call->all).
#ifndef TEXT_TEMPLATE_ENVIRONMENT_H
#define TEXT_TEMPLATE_ENVIRONMENT_H

#include "text/template/builtin.h"
#include "text/template/lex.h"

enum { SELECT_OTHERS = 1, SELECT_BY_ATTRIBUTE = 2 }; // of select, reject and the like
enum { AT_START = 1, AT_END = 2 };                   // of a string
enum { CONVERT_CAPITALIZE, CONVERT_LOWER, CONVERT_TITLE, CONVERT_UPPER };

// clang-format off
#define TEMPLATE_FILTERS(X) \
    X("abs", filter_abs, 0, 0, "") \
    X("capitalize", filter_capitalize, 0, 0, "") \
    X("count", filter_length, 0, 0, "") \
    X("d", filter_default, 0, 0, "default_value boolean") \
    X("default", filter_default, 0, 0, "default_value boolean") \
    X("dictsort", filter_dictsort, 0, 0, "case_sensitive by reverse") \
    X("first", filter_first, 0, 0, "") \
    X("float", filter_float, 0, 0, "default") \
    X("from_json", filter_from_json, 0, 0, "") \
    X("indent", filter_indent, 0, 0, "width first blank") \
    X("int", filter_int, 0, 0, "default") \
    X("items", filter_items, 0, 0, "") \
    X("join", filter_join, 0, 0, "d attribute") \
    X("last", filter_last, 0, 0, "") \
    X("length", filter_length, 0, 0, "") \
    X("list", filter_list, 0, 0, "") \
    X("lower", filter_lower, 0, 0, "") \
    X("map", filter_map, 0, 0, "*") \
    X("max", filter_extreme, ORDER_GREATER, 0, "case_sensitive attribute") \
    X("min", filter_extreme, ORDER_LESS, 0, "case_sensitive attribute") \
    X("reject", filter_select, SELECT_OTHERS, 0, "*") \
    X("rejectattr", filter_select, SELECT_BY_ATTRIBUTE | SELECT_OTHERS, 0, "*") \
    X("replace", filter_replace, 0, 2, "old new count") \
    X("reverse", filter_reverse, 0, 0, "") \
    X("round", filter_round, 0, 0, "precision method") \
    X("safe", filter_safe, 0, 0, "") \
    X("select", filter_select, 0, 0, "*") \
    X("selectattr", filter_select, SELECT_BY_ATTRIBUTE, 0, "*") \
    X("sort", filter_sort, 0, 0, "reverse case_sensitive attribute") \
    X("string", filter_string, 0, 0, "") \
    X("sum", filter_sum, 0, 0, "attribute start") \
    X("title", filter_title, 0, 0, "") \
    X("tojson", filter_tojson, 0, 0, "ensure_ascii indent separators sort_keys") \
    X("trim", filter_trim, 0, 0, "chars") \
    X("unique", filter_unique, 0, 0, "case_sensitive attribute") \
    X("upper", filter_upper, 0, 0, "")

#define TEMPLATE_TESTS(X) \
    X("boolean", test_type, VALUE_BOOL, 0, "") \
    X("defined", test_defined, 0, 0, "") \
    X("divisibleby", test_divisibleby, 0, 1, "num") \
    X("even", test_parity, 0, 0, "") \
    X("false", test_truth, false, 0, "") \
    X("float", test_type, VALUE_FLOAT, 0, "") \
    X("in", test_in, 0, 1, "seq") \
    X("integer", test_type, VALUE_INT, 0, "") \
    X("iterable", test_iterable, 0, 0, "") \
    X("mapping", test_type, VALUE_DICT, 0, "") \
    X("none", test_type, VALUE_NONE, 0, "") \
    X("number", test_number, 0, 0, "") \
    X("odd", test_parity, 1, 0, "") \
    X("sameas", test_sameas, 0, 1, "other") \
    X("sequence", test_sequence, 0, 0, "") \
    X("string", test_type, VALUE_STRING, 0, "") \
    X("true", test_truth, true, 0, "") \
    X("undefined", test_type, VALUE_UNDEFINED, 0, "") \
    X("==", test_compare, TOKEN_EQUAL, 1, "/other") \
    X("eq", test_compare, TOKEN_EQUAL, 1, "/other") \
    X("equalto", test_compare, TOKEN_EQUAL, 1, "/other") \
    X("!=", test_compare, TOKEN_NOT_EQUAL, 1, "/other") \
    X("ne", test_compare, TOKEN_NOT_EQUAL, 1, "/other") \
    X("<", test_compare, TOKEN_LESS, 1, "/other") \
    X("lt", test_compare, TOKEN_LESS, 1, "/other") \
    X("lessthan", test_compare, TOKEN_LESS, 1, "/other") \
    X("<=", test_compare, TOKEN_LESS_EQUAL, 1, "/other") \
    X("le", test_compare, TOKEN_LESS_EQUAL, 1, "/other") \
    X(">", test_compare, TOKEN_GREATER, 1, "/other") \
    X("gt", test_compare, TOKEN_GREATER, 1, "/other") \
    X("greaterthan", test_compare, TOKEN_GREATER, 1, "/other") \
    X(">=", test_compare, TOKEN_GREATER_EQUAL, 1, "/other") \
    X("ge", test_compare, TOKEN_GREATER_EQUAL, 1, "/other")

#define TEMPLATE_GLOBALS(X) \
    X("dict", global_dict, 0, 0, "*") \
    X("namespace", global_namespace, 0, 0, "*") \
    X("raise_exception", global_raise_exception, 0, 1, "message") \
    X("range", global_range, 0, 1, "/first stop step") \
    X("strftime_now", global_strftime_now, 0, 1, "format")

#define TEMPLATE_STRING_METHODS(X) \
    X("capitalize", string_convert, CONVERT_CAPITALIZE, 0, "") \
    X("endswith", string_matches, AT_END, 1, "/suffix") \
    X("find", string_find, AT_START, 1, "/part") \
    X("format", string_format, 0, 0, "*") \
    X("join", string_join, 0, 1, "/items") \
    X("lower", string_convert, CONVERT_LOWER, 0, "") \
    X("lstrip", string_strip, AT_START, 0, "/characters") \
    X("removeprefix", string_remove, AT_START, 1, "/prefix") \
    X("removesuffix", string_remove, AT_END, 1, "/suffix") \
    X("replace", string_replace, 0, 2, "/old new count") \
    X("rfind", string_find, AT_END, 1, "/part") \
    X("rsplit", string_split, AT_END, 0, "sep maxsplit") \
    X("rstrip", string_strip, AT_END, 0, "/characters") \
    X("split", string_split, AT_START, 0, "sep maxsplit") \
    X("splitlines", string_splitlines, 0, 0, "keepends") \
    X("startswith", string_matches, AT_START, 1, "/prefix") \
    X("strip", string_strip, AT_START | AT_END, 0, "/characters") \
    X("title", string_convert, CONVERT_TITLE, 0, "") \
    X("upper", string_convert, CONVERT_UPPER, 0, "")

#define TEMPLATE_DICT_METHODS(X) \
    X("get", dict_get, 0, 1, "/key default") \
    X("items", dict_view, VIEW_ITEMS, 0, "") \
    X("keys", dict_view, VIEW_KEYS, 0, "") \
    X("values", dict_view, VIEW_VALUES, 0, "")

#define TEMPLATE_LOOP_METHODS(X) \
    X("cycle", loop_cycle, 0, 0, "*")

// Kimi K2's template keeps the ids of calls in a list that it appends to and pops from.
#define TEMPLATE_LIST_METHODS(X) \
    X("append", list_append, 0, 1, "/item") \
    X("pop", list_pop, 0, 0, "/index")

// Other methods that would change a list or a dict, which the sandbox (jinja2's ImmutableSandboxedEnvironment) forbids.
#define TEMPLATE_FORBIDDEN_LIST_METHODS(X) \
    X("clear") X("extend") X("insert") X("remove") X("reverse") X("sort")
#define TEMPLATE_FORBIDDEN_DICT_METHODS(X) \
    X("clear") X("pop") X("popitem") X("setdefault") X("update")
// clang-format on

#define X(name, function, what, required, parameters) struct value function(struct call *call);
TEMPLATE_FILTERS(X)
TEMPLATE_TESTS(X)
TEMPLATE_GLOBALS(X)
TEMPLATE_STRING_METHODS(X)
TEMPLATE_LIST_METHODS(X)
TEMPLATE_DICT_METHODS(X)
TEMPLATE_LOOP_METHODS(X)
#undef X

#endif
