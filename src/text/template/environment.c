// SPDX-License-Identifier: Apache-2.0
// Lookup in the tables of filters, tests, methods and global functions.
#include "text/template/environment.h"

#define ROW(name, function, what, required, parameters) { name, function, what, required, parameters },
#define FORBIDDEN(name) { name, NULL, 0, 0, "*" },

static const struct builtin filters[] = { TEMPLATE_FILTERS(ROW) };
static const struct builtin tests[] = { TEMPLATE_TESTS(ROW) };
static const struct builtin globals[] = { TEMPLATE_GLOBALS(ROW) };
static const struct builtin string_methods[] = { TEMPLATE_STRING_METHODS(ROW) };
static const struct builtin list_methods[] = { TEMPLATE_LIST_METHODS(ROW) TEMPLATE_FORBIDDEN_LIST_METHODS(FORBIDDEN) };
static const struct builtin dict_methods[] = { TEMPLATE_DICT_METHODS(ROW) TEMPLATE_FORBIDDEN_DICT_METHODS(FORBIDDEN) };
static const struct builtin loop_methods[] = { TEMPLATE_LOOP_METHODS(ROW) };

struct table {
    const struct builtin *rows;
    size_t count;
};

#define TABLE(rows) { rows, sizeof(rows) / sizeof *(rows) }

static const struct table methods[VALUE_TYPE_COUNT] = {
    [VALUE_STRING] = TABLE(string_methods),
    [VALUE_LIST] = TABLE(list_methods),
    [VALUE_DICT] = TABLE(dict_methods),
    [VALUE_LOOP] = TABLE(loop_methods),
};

static const struct builtin *find(struct table table, struct bytes name)
{
    for (size_t i = 0; i < table.count; i++)
        if (bytes_equal(bytes_of(table.rows[i].name), name))
            return &table.rows[i];
    return NULL;
}

const struct builtin *filter_find(struct bytes name) { return find((struct table)TABLE(filters), name); }
const struct builtin *test_find(struct bytes name) { return find((struct table)TABLE(tests), name); }
const struct builtin *global_find(struct bytes name) { return find((struct table)TABLE(globals), name); }
const struct builtin *method_find(enum value_type type, struct bytes name) { return find(methods[type], name); }

bool method_exists(struct bytes name)
{
    for (int type = 0; type < VALUE_TYPE_COUNT; type++)
        if (method_find(type, name))
            return true;
    return false;
}
