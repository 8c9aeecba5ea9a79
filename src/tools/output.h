// SPDX-License-Identifier: Apache-2.0
// tools/output.h: files and folders that a command writes, each there whole or not at all (base/partial.h).
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include "base/error.h"
#include "base/partial.h"

// A file that a command writes besides its output. It is written beside its place and moved there when it is whole; it
// is opened before anything is measured, so that a path that cannot be written is refused at once.
struct output_file {
    const char *path; // NULL: none is wanted
    struct partial partial;
};

// `flag` is the option that named it. A path of NULL: nothing is opened, and finishing does nothing.
bool output_file_open(struct output_file *file, const char *path, const char *flag, struct error *err);
bool output_file_finish(struct output_file *file, const char *data, size_t len, struct error *err);
// Finishes the file with an HTML page, web/report.html, that draws `json`: the same text that --json prints.
bool output_file_finish_page(struct output_file *file, const char *json, struct error *err);
void output_file_close(struct output_file *file); // one that was not finished is gone

struct output_folder {
    const char *path;       // of the finished folder; borrowed
    struct partial partial; // where it is while it is being filled
};

bool output_folder_begin(struct output_folder *folder, const char *path, struct error *err); // refuses an existing path
bool output_folder_commit(struct output_folder *folder, struct error *err); // on false it has been given up
void output_folder_give_up(struct output_folder *folder);

// Counts the files in a folder and their bytes. False: it cannot be read.
bool output_folder_measure(const char *path, size_t *bytes, int *files, struct error *err);

#endif
