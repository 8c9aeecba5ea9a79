// SPDX-License-Identifier: Apache-2.0
// tools/output_file.h: a file that a command writes besides its output. It is written beside its place and moved there
// when it is whole (base/partial.h); it is opened before anything is measured, so that a path that cannot be
// written is refused at once.
#ifndef TOOLS_OUTPUT_FILE_H
#define TOOLS_OUTPUT_FILE_H

#include "base/partial.h"
#include "nibble.h"

struct output_file {
    const char *path; // NULL: none is wanted
    struct partial partial;
};

// `flag` is the option that named it. A path of NULL: nothing is opened, and finishing does nothing.
bool output_file_open(struct output_file *file, const char *path, const char *flag, struct error *err);
bool output_file_finish(struct output_file *file, const char *data, size_t len, struct error *err);
void output_file_close(struct output_file *file); // one that was not finished is gone

#endif
