// SPDX-License-Identifier: Apache-2.0
#include "server/translate.h"

bool translate_json(struct job *job, bool (*translate)(struct job *job, json_t *body))
{
    json_t *body = json_object();
    bool ok = translate(job, body);
    json_decref(ok ? job->json : body);
    job->json = ok ? body : job->json;
    return ok;
}

json_t *translate_text(struct strbuf *text)
{
    json_t *value = json_stringn(strbuf_text(text), text->len);
    strbuf_free(text);
    return value;
}

// ---- the messages of a chat ---------------------------------------------------------------------------------------

json_t *translate_last(const json_t *messages, const char *role)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return field_is(last, "role", role) ? last : NULL;
}

json_t *translate_part(json_t *text) { return json_pack("{s:s, s:O}", "type", "text", "text", text); }

void translate_call(json_t *message, json_t *id, json_t *name, json_t *arguments)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls)
        json_object_set_new(message, "tool_calls", calls = json_array());
    json_array_append_new(calls,
                          json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name", name,
                                    "arguments", arguments));
}

void translate_result(json_t *messages, json_t *id, json_t *content, json_t *name)
{
    json_array_append_new(
        messages,
        json_pack("{s:s, s:O, s:o, s:O*}", "role", "tool", "tool_call_id", id, "content", content, "name", name));
}

// ---- its fields ---------------------------------------------------------------------------------------------------

json_t *translate_schema(const char *name, const json_t *schema)
{
    return json_pack("{s:s, s:{s:s, s:b, s:O}}", "type", "json_schema", "json_schema", "name", name, "strict", 1,
                     "schema", schema);
}

json_t *translate_named_tool(const json_t *name)
{
    return json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
}
