// SPDX-License-Identifier: Apache-2.0
// Strings: their length, their pattern, their format.
#include "format/json.h"
#include "text/grammar/pattern.h"
#include "text/grammar/schema.h"

#define DATE "(?:19|20)\\d\\d-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|" \
             "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,4}"

// Formats that the standard defines, as patterns of what is certainly valid; NULL: nothing to be enforced with. Words
// that the standard does not know are annotations.
static const struct format {
    const char *name, *pattern;
} formats[] = {
    { "date", "^" DATE "$" },
    { "time", "^" TIME "$" },
    { "date-time", "^" DATE "T" TIME "$" },
    { "duration", "^P(?:\\d{1,4}W|\\d{1,4}D|(?:\\d{1,4}D)?T(?:\\d{1,4}H)?\\d{1,4}M(?:\\d{1,4}S)?|"
                  "(?:\\d{1,4}D)?T\\d{1,4}[HMS])$" },
    { "uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$" },
    { "ipv4", "^" OCTET "(?:\\." OCTET "){3}$" },
    { "ipv6", "^[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}$" },
    { "hostname", "^" HOST "$" },
    { "email", "^[a-zA-Z0-9_+-]{1,32}(?:\\.[a-zA-Z0-9_+-]{1,16}){0,2}@" HOST "$" },
    { "uri", "^https?://" HOST "(?::[1-9]\\d{0,3})?(?:/[a-zA-Z0-9._~-]*)*(?:\\?[a-zA-Z0-9._~=&-]*)?"
             "(?:#[a-zA-Z0-9._~-]*)?$" },
    { "idn-email", NULL }, { "idn-hostname", NULL }, { "iri", NULL }, { "iri-reference", NULL },
    { "json-pointer", NULL }, { "regex", NULL }, { "relative-json-pointer", NULL }, { "uri-reference", NULL },
    { "uri-template", NULL },
};

// The pattern of a format, NULL when there is nothing to enforce; false with a sentence when it cannot be.
static bool format_pattern(struct schema *schema, const char *name, const char **out)
{
    *out = NULL;
    for (size_t i = 0; name && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) {
            *out = formats[i].pattern;
            return *out || fail(schema->err, "the format '%s' cannot be enforced", name);
        }
    return true;
}

static bool accept(struct schema *schema, const char *pattern, bool both, struct machine *machine)
{
    return pattern_compile(bytes_of(pattern), PATTERN_STRING, both, &schema->grammar->work, machine, schema->err)
           || fail_within(schema->err, "'pattern'");
}

static bool limit_length(struct schema *schema, struct machine *machine, uint32_t low, uint32_t high)
{
    struct machine limited;
    bool ok = machine_limit_length(machine, low, high, &schema->grammar->work, &limited);
    machine_free(machine);
    *machine = ok ? limited : *machine;
    return ok || fail(schema->err, "minLength and maxLength are too much beside 'pattern' or 'format'; "
                                   "put the length into the pattern");
}

static uint32_t compile_machine(struct schema *schema, const char *pattern, const char *format, uint32_t low,
                                uint32_t high)
{
    struct machine machine = { 0 };
    struct strbuf name = { 0 };
    uint32_t node = RULES_NONE;
    strbuf_add_format(&name, "string %u %u %s %s", low, high, format ? format : "", pattern ? pattern : "");
    if (rules_known(schema->grammar, name.data, &node)) {
        strbuf_free(&name);
        return node;
    }
    bool ok = (!pattern || accept(schema, pattern, false, &machine))
              && (!format || accept(schema, format, pattern, &machine))
              && ((low == 0 && high == RULES_UNBOUNDED) || limit_length(schema, &machine, low, high));
    if (ok && !machine.count)
        ok = fail(schema->err, "it cannot be met: no string has that pattern, format and length");
    if (!ok)
        machine_free(&machine);
    else
        node = rules_machine(schema->grammar, &machine, schema->err);
    if (node != RULES_NONE)
        rules_remember(schema->grammar, name.data, node);
    strbuf_free(&name);
    return node;
}

uint32_t schema_string(struct schema *schema, const json_t *json)
{
    uint32_t low, high;
    const char *pattern = NULL, *format = NULL;
    if (!schema_counts(schema, json, "minLength", &low, "maxLength", &high)
        || !json_get_text(json, "pattern", &pattern, schema->err)
        || !format_pattern(schema, json_string_value(json_object_get(json, "format")), &format))
        return RULES_NONE;
    if (pattern || format)
        return compile_machine(schema, pattern, format, low, high);
    return rules_string(schema->grammar, low, high, schema->err);
}
