// SPDX-License-Identifier: Apache-2.0
// format/checkpoint.h: one face for every way a model lies on disk: a .gguf file, a folder with config.json and
// safetensors (one file, or shards with an index), or `org/name` in the local Hugging Face cache. Opening reads
// headers only, of which it keeps a copy; weights stay in the mapped files until somebody touches them.
#ifndef FORMAT_CHECKPOINT_H
#define FORMAT_CHECKPOINT_H

#include <jansson.h>

#include "base/error.h"
#include "base/file.h"
#include "base/map.h"
#include "base/memory.h"
#include "format/gguf.h"
#include "format/tensor.h"

struct checkpoint {
    const char *path;          // the file or folder that was found
    struct gguf *gguf;         // a GGUF checkpoint, else NULL and the folder's files below
    json_t *config;            // config.json; NULL for GGUF
    json_t *generation_config; // each of these may be absent: NULL; those that are there are objects
    json_t *hf_quant_config;
    json_t *tokenizer; // tokenizer.json
    json_t *tokenizer_config;
    struct bytes chat_template; // chat_template.jinja; .data NULL when absent

    const struct tensor *tensors; // all of them, whatever file they are in
    size_t tensor_count;
    struct map names; // name -> index into tensors

    struct file *files; // what is mapped; everything above may point into it
    size_t file_count;
    struct arena arena;
};

// What the caller needs of a folder; the rest is not read and need not be there. A GGUF file has everything inside.
enum checkpoint_need {
    CHECKPOINT_TEXT,    // tokenizer and template, config.json if it is there: tokenize, render
    CHECKPOINT_HEADERS, // config.json and the tensors' headers, no text; without weights tensor_count is 0: plan
    CHECKPOINT_ALL,     // both, and the weights must be there: serve, run
};

// On false nothing needs closing.
bool checkpoint_open(struct checkpoint *out, const char *model, enum checkpoint_need need, struct error *err);
void checkpoint_close(struct checkpoint *checkpoint);

// Whether every file is still what was opened.
bool checkpoint_check(const struct checkpoint *checkpoint, struct error *err);

// Gives back the memory behind a tensor that is not going to be read again soon.
void checkpoint_release(const struct checkpoint *checkpoint, const struct tensor *tensor);

const struct tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name); // NULL when absent

#endif
