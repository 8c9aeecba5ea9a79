// SPDX-License-Identifier: Apache-2.0
// Bytes are a template, rendered with a small conversation that has one of everything.
#include "text/template.h"

static const char conversation[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"S\\u00e9\"},"
                                   "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \" <b>\"}]},"
                                   "{\"role\": \"assistant\", \"content\": null, \"tool_calls\":"
                                   " [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, true]}}}]}],"
                                   "\"tools\": [], \"add_generation_prompt\": true, \"bos_token\": \"<s>\","
                                   "\"n\": -7, \"l\": [3, 1, 2], \"s\": \"a-b c\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct template *template = template_parse((struct bytes){ (const char *)data, size }, &err);
    if (template) {
        json_t *variables = json_loads(conversation, 0, NULL);
        struct strbuf out = { 0 };
        template_render(template, variables, &(struct template_limits){ .now = 1700000000 }, &out, &err);
        strbuf_free(&out);
        json_decref(variables);
    }
    template_free(template);
    return 0;
}
