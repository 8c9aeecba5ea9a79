// SPDX-License-Identifier: Apache-2.0
// text/tools/typed.h: values of tagged parameters. Their text does not say whether it is a string: the tool's schema
// does.
#ifndef TEXT_TOOLS_TYPED_H
#define TEXT_TOOLS_TYPED_H

#include <jansson.h>

#include "base/strbuf.h"

enum typed_kind {
    TYPED_TEXT,   // a string, as it stands
    TYPED_JSON,   // never a string
    TYPED_EITHER, // what reads as JSON and is valid is no string
};

// The schema of a property of the arguments, borrowed; NULL: nothing is said of it.
const json_t *typed_schema(const json_t *arguments, const char *name);
// `arguments`: the schema that $ref starts from.
enum typed_kind typed_kind(const json_t *arguments, const json_t *schema);

// Appends the text as JSON. What is not JSON may be a Python literal, and is a string otherwise.
void typed_add(const json_t *arguments, const json_t *schema, enum typed_kind kind, struct bytes text,
               struct strbuf *out);
void typed_add_escaped(struct bytes text, struct strbuf *out); // as the inside of a JSON string
void typed_add_string(struct bytes text, struct strbuf *out);

// Appends the JSON of MiniMax-M3's nested tags: <key>value</key>, list members in <item>, each behind `prefix`. False:
// the text is not of that form.
bool typed_add_nested(const json_t *arguments, const json_t *schema, struct bytes prefix, struct bytes text,
                      struct strbuf *out);

#endif
