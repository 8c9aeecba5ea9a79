// SPDX-License-Identifier: Apache-2.0
// text/template/from_json.c: JSON as template values, and the filter from_json (Python's json.loads).
#include "format/json.h"
#include "text/template/environment.h"

// Strings are borrowed from the JSON, or copied where it does not outlive the rendering.
static struct value string_from(struct render *render, struct bytes text, bool copied)
{
    char *copy = copied && text.len ? render_room(render, text.len, 1) : NULL;
    if (copy)
        memcpy(copy, text.data, text.len);
    return value_string(copied ? (struct bytes){ copy ? copy : "", copy ? text.len : 0 } : text);
}

static struct value from_array(struct render *render, const json_t *array, bool copied)
{
    size_t count = json_array_size(array);
    struct list *list = list_new(render, count);
    for (size_t i = 0; i < count && !render->failed; i++)
        list_add(render, list, value_from_json(render, json_array_get(array, i), copied));
    return value_list(list);
}

static struct value from_object(struct render *render, const json_t *object, bool copied)
{
    struct dict *dict = dict_new(render, json_object_size(object));
    json_t *unconst = (json_t *)object; // jansson's iterators are not const, but reading changes nothing
    for (void *at = json_object_iter(unconst); at && !render->failed; at = json_object_iter_next(unconst, at)) {
        struct value key = string_from(render, bytes_of(json_object_iter_key(at)), copied);
        dict_append(render, dict, key, value_from_json(render, json_object_iter_value(at), copied));
    }
    return value_dict(dict);
}

struct value value_from_json(struct render *render, const json_t *json, bool copied)
{
    if (!render_enter(render))
        return value_none();
    struct value value = value_none();
    switch (json_typeof(json)) {
    case JSON_OBJECT: value = from_object(render, json, copied); break;
    case JSON_ARRAY: value = from_array(render, json, copied); break;
    case JSON_STRING: value = string_from(render, json_bytes(json), copied); break;
    case JSON_INTEGER: value = value_int(json_integer_value(json)); break;
    case JSON_REAL: value = value_float(json_real_value(json)); break;
    case JSON_TRUE: value = value_bool(true); break;
    case JSON_FALSE: value = value_bool(false); break;
    case JSON_NULL: break;
    }
    render_leave(render);
    return value;
}

struct value filter_from_json(struct call *call)
{
    struct render *render = call->render;
    struct error cause;
    json_t *json;
    if (call->self.type != VALUE_STRING)
        return render_fail_kind(render, "from_json takes a string", call->self);
    struct bytes text = call->self.string;
    if (json_memory(text) > RENDER_MEMORY_BYTES_MAX - render->memory_used)
        return render_fail(render, "the template needs more than %d MB of memory", RENDER_MEMORY_BYTES_MAX >> 20);
    if (!render_step_characters(render, text.len))
        return value_none();
    if (!json_read(text, &json, &cause))
        return render_fail(render, "from_json: %s", cause.text);
    struct value value = value_from_json(render, json, true);
    json_decref(json);
    return value;
}
