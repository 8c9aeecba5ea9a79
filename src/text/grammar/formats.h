// SPDX-License-Identifier: Apache-2.0
// text/grammar/formats.h: the values of `format` in JSON Schema, as regexes: those of the standard (2020-12), and those
// that pydantic writes for Python's types. Any other word is an annotation and constrains nothing.
#ifndef TEXT_GRAMMAR_FORMATS_H
#define TEXT_GRAMMAR_FORMATS_H

struct string_format {
    const char *name;
    const char *enforced; // the regex of masks, narrower than the format; NULL: any string
    const char *checked;  // the regex of the validator; NULL: `enforced`, or where that is NULL too, any valid regex
};

const struct string_format *format_find(const char *name); // NULL: an annotation

#endif
