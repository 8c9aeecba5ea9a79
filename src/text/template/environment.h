// SPDX-License-Identifier: Apache-2.0
// text/template/environment.h: the Jinja environment of chat templates: tables of all filters, tests, methods and
// global functions. Published chat templates use most of them. A name that is not here is an error that names it.
//
// A row: name, function, number of parameters without a default, names of the parameters separated by spaces
// ("/" in front: they are positional only; "*": any, in call->all).
#ifndef TEXT_TEMPLATE_ENVIRONMENT_H
#define TEXT_TEMPLATE_ENVIRONMENT_H

#include "text/template/builtin.h"

// clang-format off
#define TEMPLATE_FILTERS(X) \
    X("abs", filter_abs, 0, "") \
    X("capitalize", filter_capitalize, 0, "") \
    X("count", filter_length, 0, "") \
    X("d", filter_default, 0, "default_value boolean") \
    X("default", filter_default, 0, "default_value boolean") \
    X("dictsort", filter_dictsort, 0, "case_sensitive by reverse") \
    X("first", filter_first, 0, "") \
    X("float", filter_float, 0, "default") \
    X("from_json", filter_from_json, 0, "") \
    X("indent", filter_indent, 0, "width first blank") \
    X("int", filter_int, 0, "default") \
    X("items", filter_items, 0, "") \
    X("join", filter_join, 0, "d attribute") \
    X("last", filter_last, 0, "") \
    X("length", filter_length, 0, "") \
    X("list", filter_list, 0, "") \
    X("lower", filter_lower, 0, "") \
    X("map", filter_map, 0, "*") \
    X("max", filter_max, 0, "case_sensitive attribute") \
    X("min", filter_min, 0, "case_sensitive attribute") \
    X("reject", filter_reject, 0, "*") \
    X("rejectattr", filter_rejectattr, 0, "*") \
    X("replace", filter_replace, 2, "old new count") \
    X("reverse", filter_reverse, 0, "") \
    X("round", filter_round, 0, "precision method") \
    X("safe", filter_safe, 0, "") \
    X("select", filter_select, 0, "*") \
    X("selectattr", filter_selectattr, 0, "*") \
    X("sort", filter_sort, 0, "reverse case_sensitive attribute") \
    X("string", filter_string, 0, "") \
    X("sum", filter_sum, 0, "attribute start") \
    X("title", filter_title, 0, "") \
    X("tojson", filter_tojson, 0, "ensure_ascii indent separators sort_keys") \
    X("trim", filter_trim, 0, "chars") \
    X("unique", filter_unique, 0, "case_sensitive attribute") \
    X("upper", filter_upper, 0, "")

#define TEMPLATE_TESTS(X) \
    X("boolean", test_boolean, 0, "") \
    X("defined", test_defined, 0, "") \
    X("divisibleby", test_divisibleby, 1, "num") \
    X("even", test_even, 0, "") \
    X("false", test_false, 0, "") \
    X("float", test_float, 0, "") \
    X("in", test_in, 1, "seq") \
    X("integer", test_integer, 0, "") \
    X("iterable", test_iterable, 0, "") \
    X("mapping", test_mapping, 0, "") \
    X("none", test_none, 0, "") \
    X("number", test_number, 0, "") \
    X("odd", test_odd, 0, "") \
    X("sameas", test_sameas, 1, "other") \
    X("sequence", test_sequence, 0, "") \
    X("string", test_string, 0, "") \
    X("true", test_true, 0, "") \
    X("undefined", test_undefined, 0, "") \
    X("==", test_eq, 1, "/other") X("eq", test_eq, 1, "/other") X("equalto", test_eq, 1, "/other") \
    X("!=", test_ne, 1, "/other") X("ne", test_ne, 1, "/other") \
    X("<", test_lt, 1, "/other") X("lt", test_lt, 1, "/other") X("lessthan", test_lt, 1, "/other") \
    X("<=", test_le, 1, "/other") X("le", test_le, 1, "/other") \
    X(">", test_gt, 1, "/other") X("gt", test_gt, 1, "/other") X("greaterthan", test_gt, 1, "/other") \
    X(">=", test_ge, 1, "/other") X("ge", test_ge, 1, "/other")

#define TEMPLATE_GLOBALS(X) \
    X("dict", global_dict, 0, "*") \
    X("namespace", global_namespace, 0, "*") \
    X("raise_exception", global_raise_exception, 1, "message") \
    X("range", global_range, 1, "/first stop step") \
    X("strftime_now", global_strftime_now, 1, "format")

#define TEMPLATE_STRING_METHODS(X) \
    X("capitalize", string_capitalize, 0, "") \
    X("endswith", string_endswith, 1, "/suffix") \
    X("find", string_find, 1, "/part") \
    X("format", string_format, 0, "*") \
    X("join", string_join, 1, "/items") \
    X("lower", string_lower, 0, "") \
    X("lstrip", string_lstrip, 0, "/characters") \
    X("removeprefix", string_removeprefix, 1, "/prefix") \
    X("removesuffix", string_removesuffix, 1, "/suffix") \
    X("replace", string_replace, 2, "/old new count") \
    X("rfind", string_rfind, 1, "/part") \
    X("rsplit", string_rsplit, 0, "sep maxsplit") \
    X("rstrip", string_rstrip, 0, "/characters") \
    X("split", string_split, 0, "sep maxsplit") \
    X("splitlines", string_splitlines, 0, "keepends") \
    X("startswith", string_startswith, 1, "/prefix") \
    X("strip", string_strip, 0, "/characters") \
    X("title", string_title, 0, "") \
    X("upper", string_upper, 0, "")

#define TEMPLATE_DICT_METHODS(X) \
    X("get", dict_get, 1, "/key default") \
    X("items", dict_items, 0, "") \
    X("keys", dict_keys, 0, "") \
    X("values", dict_values, 0, "")

#define TEMPLATE_LOOP_METHODS(X) \
    X("cycle", loop_cycle, 0, "*")

// Kimi K2's template keeps the ids of calls in a list that it appends to and pops from.
#define TEMPLATE_LIST_METHODS(X) \
    X("append", list_append, 1, "/item") \
    X("pop", list_pop, 0, "/index")

// Other methods that would change a list or a dict, which the sandbox (jinja2's ImmutableSandboxedEnvironment) forbids.
#define TEMPLATE_FORBIDDEN_LIST_METHODS(X) \
    X("clear") X("extend") X("insert") X("remove") X("reverse") X("sort")
#define TEMPLATE_FORBIDDEN_DICT_METHODS(X) \
    X("clear") X("pop") X("popitem") X("setdefault") X("update")
// clang-format on

#define X(name, function, required, parameters) struct value function(struct call *call);
TEMPLATE_FILTERS(X)
TEMPLATE_TESTS(X)
TEMPLATE_GLOBALS(X)
TEMPLATE_STRING_METHODS(X)
TEMPLATE_LIST_METHODS(X)
TEMPLATE_DICT_METHODS(X)
TEMPLATE_LOOP_METHODS(X)
#undef X

#endif
