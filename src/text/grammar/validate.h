// SPDX-License-Identifier: Apache-2.0
// text/grammar/validate.h: a JSON Schema validator (draft 2020-12, with the older spellings that masks understand), for
// answers whose grammar does not enforce all of their schema. The work is bounded: a check that takes too long is
// undecided.
#ifndef TEXT_GRAMMAR_VALIDATE_H
#define TEXT_GRAMMAR_VALIDATE_H

#include <jansson.h>

#include "base/error.h"

enum {
    VALIDATE_WORK_MAX = 1 << 18, // schemas, values and characters looked at
    VALIDATE_DEPTH_MAX = 200,    // schemas within schemas
    VALIDATE_REGEXES_MAX = 256,  // different ones in one check
};

enum validity { VALID, INVALID, UNDECIDED };

// INVALID and UNDECIDED come with a sentence that names the keyword, where it stands in the schema and where in the
// value. `root` is what $ref starts from: the whole schema.
enum validity validate(const json_t *root, const json_t *schema, const json_t *value, struct error *err);

// Is this a keyword that the validator knows? Those that only describe (title, default ...) are not among them.
bool validate_supports(const char *keyword);

#endif
