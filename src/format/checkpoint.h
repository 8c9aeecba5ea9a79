// SPDX-License-Identifier: Apache-2.0
// format/checkpoint.h: a model on disk, in any of three forms: a .gguf file (or its first part), a folder with
// config.json and safetensors (one file, or shards with an index), or `org/name` in the local Hugging Face cache.
// Opening reads the headers and copies them; weights stay in the mapped files until they are used.
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
    json_t *generation_config; // NULL if absent, like the next three; otherwise an object
    json_t *hf_quant_config;
    json_t *tokenizer; // tokenizer.json
    json_t *tokenizer_config;
    struct bytes chat_template; // chat_template.jinja; .data NULL when absent

    const struct tensor *tensors; // of all files
    size_t tensor_count;
    struct map names; // name -> index into tensors

    struct file *files; // mapped; everything above may point into them
    size_t file_count;
    struct arena arena;
};

// The parts of a folder that the caller needs; others are not read and may be missing. A GGUF file always has all
// parts.
enum checkpoint_need {
    CHECKPOINT_TEXT,    // tokenizer and template, config.json if it is there: tokenize, render
    CHECKPOINT_HEADERS, // config.json and the tensors' headers, no text; without weights tensor_count is 0: plan
    CHECKPOINT_ALL,     // both, and the weights must be there: serve, run
};

// On failure nothing needs closing.
bool checkpoint_open(struct checkpoint *out, const char *model, enum checkpoint_need need, struct error *err);
void checkpoint_close(struct checkpoint *checkpoint);

// False if any file changed since it was opened (file_check).
bool checkpoint_check(const struct checkpoint *checkpoint, struct error *err);

// Drops a tensor's pages from memory, once it has been packed or copied.
void checkpoint_release(const struct checkpoint *checkpoint, const struct tensor *tensor);

const struct tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name); // NULL when absent

#endif
