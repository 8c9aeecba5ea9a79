// SPDX-License-Identifier: Apache-2.0
// One regex that masks enforce and one that the validator checks, for each format.
#include "text/grammar/formats.h"

#include <stddef.h>
#include <string.h>

#define MONTH_DAY                                                                         \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
    "02-(?:0[1-9]|1\\d|2[0-8]))"
#define LEAP "(?:0[48]|[2468][048]|[13579][26])" // of a century
#define DATE "(?:(?:19|20)\\d\\d-" MONTH_DAY "|(?:(?:19|20)" LEAP "|2000)-02-29)"
#define ANY_DATE "(?:\\d{4}-" MONTH_DAY "|(?:\\d\\d" LEAP "|(?:[02468][048]|[13579][26])00)-02-29)"
#define ZONE "(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?" ZONE
#define ANY_TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:(?:[0-5]\\d|60)(?:\\.\\d+)?(?:[Zz]|" ZONE ")"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define GROUP "[0-9a-fA-F]{1,4}"
#define GROUPS(before, after) "(?:" GROUP ":){1," #before "}(?::" GROUP "){1," #after "}"
#define IPV6                                                                                                         \
    "(?:(?:" GROUP ":){7}" GROUP "|(?:" GROUP ":){1,7}:|" GROUPS(6, 1) "|" GROUPS(5, 2) "|" GROUPS(4, 3) "|" GROUPS( \
        3, 4) "|" GROUPS(2, 5) "|" GROUPS(1, 6) "|:(?::" GROUP "){1,7}|::)"
#define MIXED "(?:(?:" GROUP ":){6}|::(?:" GROUP ":){0,5}|(?:" GROUP ":){1,5}:)" IPV4
// A mask counts neither groups nor labels as far as the standards do: it would take hundreds of states.
#define FEW_GROUPS                                                                 \
    "(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}|[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,2}::" \
    "(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,2})?|::(?:[0-9a-f]{1,4})?)"
#define LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,4}"
#define ANY_LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define ANY_HOST "(?=.{1,253}$)" ANY_LABEL "(?:\\." ANY_LABEL ")*"
#define HEX(count) "[0-9a-fA-F]{" #count "}"
#define UUID(version) HEX(8) "-" HEX(4) "-" #version HEX(3) "-[89abAB]" HEX(3) "-" HEX(12)
#define PATH_WORD "[a-zA-Z0-9._~-]"
#define QUERY "(?:\\?[a-zA-Z0-9._~=&-]*)?(?:#" PATH_WORD "*)?"
#define HTTP "https?://" HOST "(?::[1-9]\\d{0,3})?(?:/" PATH_WORD "*)*" QUERY
#define REFERENCE "(?:" HTTP "|(?:\\.{0,2}/)?" PATH_WORD "+(?:/" PATH_WORD "*)*" QUERY ")"
#define ESCAPED "%[0-9a-fA-F]{2}"
#define URI_TEXT "(?:[a-zA-Z0-9._~:/?#\\[\\]@!$&'()*+,;=-]|" ESCAPED ")*"
#define IRI_TEXT "(?:[a-zA-Z0-9._~:/?#\\[\\]@!$&'()*+,;=-]|[^\\x00-\\x7F]|" ESCAPED ")*"
#define SCHEME "[a-zA-Z][a-zA-Z0-9+.-]*:"
#define VARIABLE "(?:[a-zA-Z0-9_.]|" ESCAPED ")+(?::[1-9]\\d{0,3}|\\*)?"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define ANY_POINTER "(?:/(?:[^~/]|~[01]|[\\n\\r])*)*"
#define MAILBOX "[a-zA-Z0-9_+-]{1,32}(?:\\.[a-zA-Z0-9_+-]{1,16}){0,2}"
#define ANY_MAILBOX "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+)*"
#define DURATION                                                                    \
    "P(?:\\d{1,4}W|\\d{1,4}D|(?:\\d{1,4}D)?T(?:\\d{1,4}H)?\\d{1,4}M(?:\\d{1,4}S)?|" \
    "(?:\\d{1,4}D)?T\\d{1,4}[HMS])"
#define ANY_DURATION                                                                      \
    "P(?:\\d+W|(?=\\d|T\\d)(?:\\d+Y)?(?:\\d+M)?(?:\\d+D)?(?:T(?=\\d)(?:\\d+H)?(?:\\d+M)?" \
    "(?:\\d+(?:\\.\\d+)?S)?)?)"
#define NETWORK \
    "(?:" OCTET "\\.0\\.0\\.0/8|" OCTET "\\." OCTET "\\.0\\.0/16|" OCTET "(?:\\." OCTET "){2}\\.0/24|" IPV4 "/32)"
#define BASE64(plus_slash)                                                   \
    "(?:[a-zA-Z0-9" plus_slash "]{4})*(?:[a-zA-Z0-9" plus_slash "][AQgw]==|" \
    "[a-zA-Z0-9" plus_slash "]{2}[AEIMQUYcgkosw048]=)?"

static const struct string_format formats[] = {
    { "date", "^" DATE "$", "^" ANY_DATE "$" },
    { "time", "^" TIME "$", "^" ANY_TIME "$" },
    { "date-time", "^" DATE "T" TIME "$", "^" ANY_DATE "[Tt ]" ANY_TIME "$" },
    { "duration", "^" DURATION "$", "^" ANY_DURATION "$" },
    { "email", "^" MAILBOX "@" HOST "$", "^" ANY_MAILBOX "@" ANY_HOST "$" },
    { "idn-email", "^" MAILBOX "@" HOST "$", "^[^\\s@]+@[^\\s@]+$" },
    { "hostname", "^" HOST "$", "^" ANY_HOST "$" },
    { "idn-hostname", "^" HOST "$", "^[^\\s.@/]{1,63}(?:\\.[^\\s.@/]{1,63})*$" },
    { "ipv4", "^" IPV4 "$", NULL },
    { "ipv6", "^" FEW_GROUPS "$", "^(?:" IPV6 "|" MIXED ")$" },
    { "uri", "^" HTTP "$", "^" SCHEME URI_TEXT "$" },
    { "uri-reference", "^" REFERENCE "$", "^" URI_TEXT "$" },
    { "iri", "^" HTTP "$", "^" SCHEME IRI_TEXT "$" },
    { "iri-reference", "^" REFERENCE "$", "^" IRI_TEXT "$" },
    { "uri-template", "^" HTTP "(?:\\{[a-zA-Z0-9_]{1,16}\\})?$",
      "^(?:[^\\x00-\\x20\"'<>\\\\^`{|}%]|" ESCAPED "|\\{[+#./;?&=,!@|]?" VARIABLE "(?:," VARIABLE ")*\\})*$" },
    { "uuid", "^" HEX(8) "-" HEX(4) "-" HEX(4) "-" HEX(4) "-" HEX(12) "$", NULL },
    { "json-pointer", "^" POINTER "$", "^" ANY_POINTER "$" },
    { "relative-json-pointer", "^(?:0|[1-9]\\d{0,4})(?:#|" POINTER ")$", "^(?:0|[1-9]\\d*)(?:#|" ANY_POINTER ")$" },
    { "regex", NULL, NULL },

    // pydantic's
    { "uuid1", "^" UUID(1) "$", NULL },
    { "uuid3", "^" UUID(3) "$", NULL },
    { "uuid4", "^" UUID(4) "$", NULL },
    { "uuid5", "^" UUID(5) "$", NULL },
    { "uuid6", "^" UUID(6) "$", NULL },
    { "uuid7", "^" UUID(7) "$", NULL },
    { "uuid8", "^" UUID(8) "$", NULL },
    { "ipvanyaddress", "^" IPV4 "$", "^(?:" IPV4 "|" IPV6 "|" MIXED ")$" },
    { "ipv4interface", "^" IPV4 "/(?:[12]?\\d|3[0-2])$", "^" IPV4 "(?:/(?:[12]?\\d|3[0-2]))?$" },
    { "ipv6interface", "^" FEW_GROUPS "/(?:[1-9]?\\d|1[01]\\d|12[0-8])$",
      "^(?:" IPV6 "|" MIXED ")(?:/(?:[1-9]?\\d|1[01]\\d|12[0-8]))?$" },
    { "ipvanyinterface", "^" IPV4 "/(?:[12]?\\d|3[0-2])$", "^[0-9a-fA-F.:]+(?:/\\d{1,3})?$" },
    { "ipv4network", "^" NETWORK "$", "^" IPV4 "(?:/(?:[12]?\\d|3[0-2]))?$" },
    { "ipv6network", "^[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,2}::/64$", "^(?:" IPV6 "|" MIXED ")(?:/\\d{1,3})?$" },
    { "ipvanynetwork", "^" NETWORK "$", "^[0-9a-fA-F.:]+(?:/\\d{1,3})?$" },
    { "base64", "^" BASE64("+/") "$", "^[a-zA-Z0-9+/\\s]*={0,2}\\s*$" },
    { "base64url", "^" BASE64("_-") "$", "^[a-zA-Z0-9_-]*={0,2}$" },
};

const struct string_format *format_find(const char *name)
{
    for (size_t i = 0; name && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}
