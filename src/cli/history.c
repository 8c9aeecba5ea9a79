// SPDX-License-Identifier: Apache-2.0
#include "cli/history.h"

#include "base/strbuf.h"
#include "cli/cli.h"
#include "text/messages.h"

bool history_add(json_t *messages, const char *role, const char *content, size_t len, struct error *err)
{
    json_t *text = json_stringn(content ? content : "", len);
    if (!text)
        return fail(err, "the %s's text is not UTF-8, and a chat is; use --raw for other bytes", role);
    return json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", text)) == 0;
}

void history_add_reply(json_t *messages, const struct nibble_text *answer)
{
    struct strbuf text = { 0 };
    struct error ignored;
    strbuf_add_clean(&text, (struct bytes){ answer->data, answer->len });
    history_add(messages, "assistant", text.data, text.len, &ignored);
    strbuf_free(&text);
}

bool history_drop_oldest_turn(json_t *messages)
{
    size_t count = json_array_size(messages), first = count && message_has_role(json_array_get(messages, 0), "system");
    size_t next = first + 1;
    while (next < count && !message_has_role(json_array_get(messages, next), "user"))
        next++;
    if (next >= count)
        return false;
    for (size_t i = first; i < next; i++)
        json_array_remove(messages, first);
    return true;
}
