// SPDX-License-Identifier: Apache-2.0
#include "tools/report_page.h"

#include <assert.h>
#include <string.h>

#include "base/strbuf.h"

extern const char report_html[]; // web/report.html, put into the program by the build

// Within a script element only '<' can begin a tag or a comment, and in JSON it occurs in strings alone.
static void add_json(struct strbuf *out, const char *json)
{
    for (; *json; json++)
        if (*json == '<')
            strbuf_add_text(out, "\\u003c");
        else
            strbuf_add_byte(out, *json);
}

bool report_page_finish(struct output_file *file, const char *json, struct error *err)
{
    static const char slot[] = "@data";
    const char *at = strstr(report_html, slot);
    assert(at);
    struct strbuf page = { 0 };
    strbuf_add(&page, report_html, (size_t)(at - report_html));
    add_json(&page, json);
    strbuf_add_text(&page, at + strlen(slot));
    bool ok = output_file_finish(file, page.data, page.len, err);
    strbuf_free(&page);
    return ok;
}
