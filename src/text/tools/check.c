// SPDX-License-Identifier: Apache-2.0
// text/tools/check.c: the tools that a client sends: whether they are well formed, and the schemas of their arguments.
#include "format/json.h"
#include "text/tools/form.h"

// ---- what clients send --------------------------------------------------------------------------------------------

static bool check_tool(const json_t *tool, size_t index, struct error *err)
{
    const json_t *type = json_object_get(tool, "type"), *function = json_object_get(tool, "function");
    if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
        return fail(err, "tools[%zu].type is not \"function\", the only kind of tool there is here", index);
    if (!json_is_object(function))
        return fail(err, "tools[%zu].function is not an object", index);
    const json_t *name = json_object_get(function, "name");
    size_t length = json_string_length(name);
    if (!length || length > TOOL_NAME_BYTES_MAX || strlen(json_string_value(name)) != length)
        return fail(err, "tools[%zu].function.name is not a string of 1 to %d bytes", index, TOOL_NAME_BYTES_MAX);
    const json_t *description = json_object_get(function, "description");
    if (description && !json_is_null(description) && !json_is_string(description))
        return fail(err, "tools[%zu].function.description is not a string", index);
    const json_t *parameters = json_object_get(function, "parameters");
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return fail(err, "tools[%zu].function.parameters is not an object (a JSON schema)", index);
    return true;
}

const json_t *tool_name(const json_t *tools, size_t index)
{
    return json_object_get(json_object_get(json_array_get(tools, index), "function"), "name");
}

bool tools_check(const json_t *tools, struct error *err)
{
    if (!json_is_array(tools))
        return fail(err, "tools is not a list; write [{\"type\": \"function\", \"function\": {...}}]");
    if (json_array_size(tools) > TOOLS_MAX)
        return fail(err, "there are %zu tools; at most %d are allowed", json_array_size(tools), TOOLS_MAX);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (!check_tool(json_array_get(tools, i), i, err))
            return false;
        for (size_t earlier = 0; earlier < i; earlier++)
            if (json_equal(tool_name(tools, earlier), tool_name(tools, i)))
                return fail(err, "tools[%zu] and tools[%zu] are both named %s; give each its own name", earlier, i,
                            json_string_value(tool_name(tools, i)));
    }
    return true;
}

// ---- what a call must be ------------------------------------------------------------------------------------------

// The schema of a tool's arguments (new reference), an object by default. A tool without parameters takes none.
static json_t *schema_of(const json_t *function)
{
    json_t *parameters = json_object_get(function, "parameters");
    if (!json_object_size(parameters))
        return json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties", 0);
    if (json_object_get(parameters, "type") || !json_object_get(parameters, "properties"))
        return json_incref(parameters);
    json_t *schema = json_copy(parameters);
    json_object_set_new(schema, "type", json_string("object"));
    return schema;
}

json_t *tools_schema(const json_t *tools, struct bytes name, bool *strict)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function"), *own = tool_name(tools, i);
        struct bytes text = json_bytes(own);
        *strict = json_is_true(json_object_get(function, "strict"));
        if (bytes_equal(text, name))
            return schema_of(function);
    }
    return NULL;
}
