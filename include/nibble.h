// SPDX-License-Identifier: Apache-2.0
// nibble.h: the public C API of libnibble. The nibble command is written against this header alone.
//
//   checkpoint   a model on disk: headers, config, tokenizer and template files; weights are not read
//   tokenizer    text <-> token ids;   chat   messages -> prompt
//   plan         every layer's number format and kernel, decided from headers
//   engine       a plan made real: weights mapped, cache allocated, threads waiting
//   sequence     one text being read and continued
//
// Functions that can fail return NULL or false and leave a sentence in *error. A tokenizer, chat, plan or engine
// borrows its checkpoint, a sequence its engine: close them in the opposite order of opening. An engine and its
// sequences belong to one thread at a time; tokenizers and chats may be shared.
#ifndef NIBBLE_H
#define NIBBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct nibble_error {
    char text[4096];
    bool usage; // an option's value is wrong in itself, whatever the machine and the model's files
};

const char *nibble_version(void);

// A zeroed one is empty; release `data` with free(). Text is terminated, `len` does not count the terminator.
struct nibble_text {
    char *data;
    size_t len, capacity;
};

// ---- checkpoint ---------------------------------------------------------------------------------------------------

struct nibble_checkpoint;

enum nibble_need {
    NIBBLE_NEED_TEXT,    // tokenizer and template; weights may be missing
    NIBBLE_NEED_HEADERS, // config and tensor headers
    NIBBLE_NEED_ALL,
};

// A .gguf file, a folder with config.json and safetensors, or org/name in the local Hugging Face cache.
struct nibble_checkpoint *nibble_checkpoint_open(const char *model, enum nibble_need need, struct nibble_error *error);
void nibble_checkpoint_close(struct nibble_checkpoint *checkpoint);

// ---- text ---------------------------------------------------------------------------------------------------------

struct nibble_tokenizer;

enum nibble_tokenize_flags {
    NIBBLE_ADD_SPECIAL = 1,   // BOS / EOS as the tokenizer adds them
    NIBBLE_PARSE_SPECIAL = 2, // special tokens written out in the text are recognised
};

struct nibble_tokenizer *nibble_tokenizer_open(const struct nibble_checkpoint *checkpoint, struct nibble_error *error);
void nibble_tokenizer_close(struct nibble_tokenizer *tokenizer);

// Token ids on the heap in *ids, released with free(); their number, or -1 with a sentence in *error.
ptrdiff_t nibble_tokenize(const struct nibble_tokenizer *tokenizer, const char *text, size_t len, int flags,
                          int32_t **ids, struct nibble_error *error);
int nibble_vocabulary_size(const struct nibble_tokenizer *tokenizer);
// The vocabulary's own spelling of a token, borrowed and not terminated; NULL for an id without one.
const char *nibble_token_piece(const struct nibble_tokenizer *tokenizer, int32_t id, size_t *len);
bool nibble_token_ends_text(const struct nibble_tokenizer *tokenizer, int32_t id); // EOS, end of turn ...
bool nibble_tokenizer_adds_bos(const struct nibble_tokenizer *tokenizer);
int32_t nibble_token_bos(const struct nibble_tokenizer *tokenizer);                // -1: none

// Streaming the other way: appends what is certain to *out and never half a UTF-8 character.
struct nibble_decoder;
struct nibble_decoder *nibble_decoder_open(const struct nibble_tokenizer *tokenizer, bool skip_special);
void nibble_decoder_add(struct nibble_decoder *decoder, int32_t id, struct nibble_text *out);
void nibble_decoder_finish(struct nibble_decoder *decoder,
                           struct nibble_text *out); // what is pending, then back to the start
void nibble_decoder_close(struct nibble_decoder *decoder);

struct nibble_chat;

// The checkpoint's chat template, or the one in template_file; either may be NULL, not both. The checkpoint lends
// bos_token and eos_token.
struct nibble_chat *nibble_chat_open(const struct nibble_checkpoint *checkpoint, const char *template_file,
                                     struct nibble_error *error);
void nibble_chat_close(struct nibble_chat *chat);
// `json`: a list of messages, or an object with messages, tools, add_generation_prompt and further template variables.
bool nibble_chat_render(const struct nibble_chat *chat, const char *json, size_t len, struct nibble_text *out,
                        struct nibble_error *error);

// ---- plan and engine ----------------------------------------------------------------------------------------------

struct nibble_options {
    // As the flags of the same names; NULL: auto, none, the best, this machine's CPU.
    const char *kv_cache_dtype, *kv_cache_dtype_skip_layers, *attention_kernel, *device;
    size_t memory_bytes;        // bounds weights, workspace and cache; 0: what the device has
    int max_model_len;          // longest sequence in tokens; 0: the model's own
    int max_num_seqs;           // sequences open at once; 0: one
    int batch_tokens;           // tokens read in one pass; 0: 512
    int threads;                // 0: every core this process may use
    bool no_self_test;          // kernels are not asked a known question before they run
    void (*progress)(void *context, double done); // 0 .. 1 while weights are being read; may be NULL
    void *progress_context;
};

struct nibble_plan;

// NULL when the model or the options cannot be understood. A refusal is a plan, too: *error has its sentence with what
// would run instead, and it can be printed as JSON.
struct nibble_plan *nibble_plan_make(const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                                     struct nibble_error *error);
bool nibble_plan_accepted(const struct nibble_plan *plan);
void nibble_plan_close(struct nibble_plan *plan);

enum nibble_plan_form { NIBBLE_PLAN_SHORT, NIBBLE_PLAN_FULL, NIBBLE_PLAN_JSON };
enum nibble_plan_style { NIBBLE_PLAN_COLOUR = 1, NIBBLE_PLAN_VERBOSE = 2 }; // of NIBBLE_PLAN_FULL
void nibble_plan_print(const struct nibble_plan *plan, enum nibble_plan_form form, int style, struct nibble_text *out);

struct nibble_engine;

struct nibble_engine *nibble_engine_open(const struct nibble_checkpoint *checkpoint,
                                         const struct nibble_options *options, struct nibble_error *error);
void nibble_engine_close(struct nibble_engine *engine);
const struct nibble_plan *nibble_engine_plan(const struct nibble_engine *engine); // what runs; borrowed
int nibble_engine_vocabulary(const struct nibble_engine *engine);                 // logits per token
int nibble_engine_max_model_len(const struct nibble_engine *engine);

struct nibble_sequence;

struct nibble_sequence *nibble_sequence_open(struct nibble_engine *engine);
void nibble_sequence_close(struct nibble_sequence *sequence);

// Makes the sequence hold exactly these tokens. What its cache already has of them is kept, the rest is read when it is
// needed.
bool nibble_sequence_assign(struct nibble_sequence *sequence, const int32_t *ids, size_t count,
                            struct nibble_error *error);
size_t nibble_sequence_length(const struct nibble_sequence *sequence);
size_t nibble_sequence_cached(const struct nibble_sequence *sequence); // how many of its tokens the cache holds

struct nibble_sampling {
    double temperature;        // 0: the most likely token, ties to the lowest id
    double top_p, min_p;       // 1 and 0: off
    int top_k;                 // 0: off
    double repetition_penalty; // 1: off; over the sequence's tokens so far
    uint64_t seed;             // the draw depends on (seed, choice, position) and nothing else
    int choice;
};

// What the checkpoint's generation_config asks for, else temperature 1 and everything off.
bool nibble_sampling_defaults(const struct nibble_checkpoint *checkpoint, struct nibble_sampling *out,
                              struct nibble_error *error);

// Reads what has not been read, draws the next token and appends it.
bool nibble_sequence_next(struct nibble_sequence *sequence, const struct nibble_sampling *sampling, int32_t *id,
                          struct nibble_error *error);

// Appends `count` tokens, reads them and writes the logits after each of them: (count, vocabulary).
bool nibble_sequence_score(struct nibble_sequence *sequence, const int32_t *ids, size_t count, float *logits,
                           struct nibble_error *error);

// ---- the machine --------------------------------------------------------------------------------------------------

// A report of CPU, memory, GPUs, drivers, build and libraries. Never fails.
void nibble_environment(struct nibble_text *out, bool json);

enum nibble_kernels_action {
    NIBBLE_KERNELS_LIST,
    NIBBLE_KERNELS_TEST,  // against the reference, on random input
    NIBBLE_KERNELS_BENCH, // beside what the machine can do at best
};
enum nibble_form { NIBBLE_FORM_TEXT, NIBBLE_FORM_JSON, NIBBLE_FORM_MARKDOWN };

struct nibble_kernels_options {
    enum nibble_kernels_action action;
    enum nibble_form form;
    const char *name;     // of a kernel or an op; NULL: all
    const char *device;   // as the flag of the same name; NULL: this machine's CPU
    uint64_t seed;
    int threads;          // of NIBBLE_KERNELS_BENCH; 0: every core this process may use
    void (*progress)(void *context, double done); // 0 .. 1; may be NULL
    void *progress_context;
};

// A report of the kernels of this build, appended to *out. *failed: how many of them a test found wrong.
bool nibble_kernels(const struct nibble_kernels_options *options, struct nibble_text *out, int *failed,
                    struct nibble_error *error);

#ifdef __cplusplus
}
#endif

#endif
