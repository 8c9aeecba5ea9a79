// SPDX-License-Identifier: Apache-2.0
// nibble.h: the public C API of libnibble. The nibble command is written against this header alone.
//
//   checkpoint   a model on disk: headers, config, tokenizer and template files; weights are not read
//   tokenizer    text <-> token ids;   chat   messages -> prompt
//   plan         every layer's number format and kernel, decided from headers
//   engine       a plan made real: weights mapped, cache allocated, threads waiting
//   sequence     one text being read and scored
//   scheduler    many texts being continued at once
//   ranks        several processes that compute one model together
//   quantize     a checkpoint written anew, with smaller weights
//
// Functions that can fail return NULL or false and leave a sentence in *error. A tokenizer, chat, plan or engine
// borrows its checkpoint, a sequence or a scheduler its engine: close them in the opposite order of opening. An engine
// with its sequences and scheduler belongs to one thread at a time; tokenizers and chats may be shared.
//
// Memory for weights and caches can be refused. For small things it cannot: a failed allocation ends the process with
// a sentence and exit status 1. jansson has one allocator in a process, so this holds for all of its users while
// libnibble is loaded; a program that gives jansson another (json_set_alloc_funcs) gives one that does not fail,
// released by free().
//
// The ABI is stable within a minor version (0.2) before 1.0, and within a major version afterwards: no function is
// removed or changed, and no structure changes its layout. The shared library's name says which ABI it is
// (libnibble.so.0.2), and so do symbol versions (NIBBLE_0.2): a program runs with later patch versions as it is, and is
// refused by the loader with others. Initialise structures by the names of their members: what is not named is zero,
// the default, and members that a later version adds are so, too.
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
// Whether the files on disk are still those that were opened: not truncated and not written to. A program that computes
// from them for long checks before it uses the result.
bool nibble_checkpoint_check(const struct nibble_checkpoint *checkpoint, struct nibble_error *error);
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
int32_t nibble_token_bos(const struct nibble_tokenizer *tokenizer); // -1: none

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
// continue_final_message true: the prompt ends where the last message's content ends.
bool nibble_chat_render(const struct nibble_chat *chat, const char *json, size_t len, struct nibble_text *out,
                        struct nibble_error *error);
// The same for messages and tools as clients of the server send them: brought into the shape that the template wants.
bool nibble_chat_render_request(const struct nibble_chat *chat, const char *json, size_t len, struct nibble_text *out,
                                struct nibble_error *error);

// A model's thoughts (reasoning) apart from its answers, in the form that its chat template has.
struct nibble_reasoning;

const char *nibble_chat_reasoning(const struct nibble_chat *chat); // the form's name; NULL: there is none
// For the answer to a rendered prompt, which may open a thought; NULL: the template has no form.
struct nibble_reasoning *nibble_reasoning_open(const struct nibble_chat *chat, const char *prompt, size_t len);
// Appends what has become certain. NULL as reasoning: all text is answer.
void nibble_reasoning_add(struct nibble_reasoning *reasoning, const char *text, size_t len, struct nibble_text *thought,
                          struct nibble_text *answer);
void nibble_reasoning_finish(struct nibble_reasoning *reasoning, struct nibble_text *thought,
                             struct nibble_text *answer);
void nibble_reasoning_close(struct nibble_reasoning *reasoning);
// The decoder shows the special tokens that thoughts stand between. The reasoning stays open as long as the decoder.
void nibble_decoder_show(struct nibble_decoder *decoder, const struct nibble_tokenizer *tokenizer,
                         struct nibble_reasoning *reasoning);

// ---- plan and engine ----------------------------------------------------------------------------------------------

struct nibble_ranks;

struct nibble_options {
    // As the flags of the same names; NULL: auto, none, the best, this machine's GPU or CPU.
    const char *kv_cache_dtype, *kv_cache_dtype_skip_layers, *attention_kernel, *device;
    const char *linear_kernel;
    const char *kv_plan;
    const char *activations;              // of linear layers on CPUs: "exact" (16 bits) or "int8"; NULL: exact
    const char *kv_scale, *kv_sink_pages; // NULL: search; 1 where keys have four bits, else 0
    const char *kv_transform;             // "auto", "none", "rotate", "centre", "centre+rotate"; NULL: auto
    const char *kv_calibration;           // a text file to measure keys on; NULL: a built-in text
    size_t memory_bytes;                  // bounds weights, workspace and cache; 0: what the device has
    double gpu_memory_utilization;        // the share of a GPU's memory that may be used; 0: 0.92
    size_t kv_cache_bytes;      // of the cache's pools; 0: what max_num_seqs need, at most a share of what is free
    int max_model_len;          // longest sequence in tokens; 0: the model's own
    int max_num_seqs;           // sequences running at once; 0: one
    int batch_tokens;           // tokens read in one step; 0: 512, of ranks on CPUs 256
    int mamba_block_size;       // tokens that a kept state of recurrent layers covers; 0: chosen
    int threads;                // 0: every core this process may use
    bool no_self_test;          // kernels are not asked a known question before they run
    int tensor_parallel;        // ranks that a plan is for where there are no `ranks` yet; 0 or 1: one process
    struct nibble_ranks *ranks; // that compute it together, borrowed as long as the engine is open; NULL: this process
    // While weights are being read, and before that while keys are being measured: 0 .. 1, and 1 at last even where it
    // fails; may be NULL.
    void (*progress)(void *context, double done), (*calibrating)(void *context, double done);
    void *progress_context;
    const struct nibble_trace *trace; // shows what each op does, borrowed as long as the engine is open; NULL: none
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

// A lower bound of a step's cost on any device.
struct nibble_cost {
    double read_bytes;       // weights once, and what the cache holds of every sequence
    double flops;            // of matrix products and attention; a multiply-add is two
    double int8_ops;         // the same of matrix products whose activations are 8-bit integers
    double activation_bytes; // what ops read and write between each other, and what they add to the cache
};

// A step that reads `tokens` tokens of each of `sequences` sequences, which have `depth` in the cache before, and that
// wants logits after the last of each.
void nibble_plan_cost(const struct nibble_plan *plan, int sequences, int depth, int tokens, struct nibble_cost *out);

// An op that has run. Texts are there during the call.
struct nibble_op {
    int step, tokens; // the step's number, from 1 on, and its tokens
    const char *name; // "embed", "0.norm", "0.linear2": the layer, the kind of op, its number from the second on
    const char *kind; // "linear"
    const char *kernel;
    const char *shape; // of its results: "5x576", "q:5x576,k:5x192,v:5x192"; "-" where it writes to the cache alone
    double seconds;
    struct nibble_cost cost;
    bool has_values; // with nibble_trace.values, where it has results
    uint64_t checksum;
    double rms; // root mean square of the results, for devices whose last bits differ
};

// Calls back for every op in execution order; on a GPU this disables graph capture. Not available with several ranks.
struct nibble_trace {
    void (*op)(void *context, const struct nibble_op *op); // NULL: only one is dumped
    void (*dumped)(void *context, const char *path);       // a file was written; NULL: no callback
    void *context;
    bool values;      // results are read back for checksums
    const char *dump; // an op by its name: results go to NAME.stepN.npy in the current folder, of several results to
                      // NAME.RESULT.stepN.npy; with it no op is fused. NULL: none
};

struct nibble_engine;

// Whether an engine can be planned with these options on this machine, from headers alone: nothing is loaded or
// measured. False with the error that nibble_engine_open would give before it loads anything.
bool nibble_engine_check(const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                         struct nibble_error *error);
struct nibble_engine *nibble_engine_open(const struct nibble_checkpoint *checkpoint,
                                         const struct nibble_options *options, struct nibble_error *error);
void nibble_engine_close(struct nibble_engine *engine);
const struct nibble_plan *nibble_engine_plan(const struct nibble_engine *engine); // what runs; borrowed
int nibble_engine_vocabulary(const struct nibble_engine *engine);                 // logits per token
// The ids that end a text (EOS, end of turn ...), as a request's stop_ids take them: on the heap in *ids, released with
// free(); their number.
size_t nibble_engine_stop_ids(const struct nibble_engine *engine, const struct nibble_tokenizer *tokenizer,
                              int32_t **ids);
int nibble_engine_layers(const struct nibble_engine *engine);
int nibble_engine_max_model_len(const struct nibble_engine *engine);
const char *nibble_engine_device(const struct nibble_engine *engine); // its maker's name for it; borrowed
int nibble_engine_threads(const struct nibble_engine *engine);        // that compute; 0: a GPU does

enum {
    NIBBLE_CEILING_SIZES = 6,          // working sets that are measured: of 256 KiB, 1 MiB ... 256 MiB
    NIBBLE_CEILING_BYTES = 256 * 1024, // the smallest; each is four times the one before
};

// The machine's peak rates with the engine's threads (the roofline), measured in a second or two.
struct nibble_ceiling {
    double bytes_per_s;                            // read from memory, far beyond the caches
    double flops_per_s;                            // float32 multiply-adds, two each
    double int8_ops_per_s;                         // the same of 8-bit integers
    double read_bytes_per_s[NIBBLE_CEILING_SIZES]; // the smaller a working set, the nearer the cache that holds it
};
bool nibble_engine_ceiling(struct nibble_engine *engine, struct nibble_ceiling *out, struct nibble_error *error);
// The bandwidth at which a working set of so many bytes is read again and again.
double nibble_ceiling_read(const struct nibble_ceiling *ceiling, double bytes);

// The built-in text that models are measured on by default; terminated.
const char *nibble_calibration_text(size_t *len);

// How far off a layer is with the cache that the options plan, as a part of what it is without, root mean square: its
// keys and values as they are stored, and attention's result with both. Zeros where it has no keys and values of its
// own.
struct nibble_layer_error {
    double k, v, out;
};

// Measures each layer's error on a text's first tokens, at most 1024.
bool nibble_layer_errors(const struct nibble_checkpoint *checkpoint, const struct nibble_options *options,
                         const int32_t *ids, size_t count, struct nibble_layer_error *errors,
                         struct nibble_error *error);

struct nibble_sequence;

struct nibble_sequence *nibble_sequence_open(struct nibble_engine *engine);
void nibble_sequence_close(struct nibble_sequence *sequence);

// Sets the sequence's tokens. The cached common prefix is kept; other tokens are computed when needed.
bool nibble_sequence_assign(struct nibble_sequence *sequence, const int32_t *ids, size_t count,
                            struct nibble_error *error);
size_t nibble_sequence_length(const struct nibble_sequence *sequence);
size_t nibble_sequence_cached(const struct nibble_sequence *sequence); // how many of its tokens the cache holds

// Appends `count` tokens, reads them and writes the logits after each of them: (count, vocabulary).
bool nibble_sequence_score(struct nibble_sequence *sequence, const int32_t *ids, size_t count, float *logits,
                           struct nibble_error *error);

// Raises each layer's entry of k and v to the largest magnitude in the cache of the sequence's tokens from `from` on,
// except for evicted pages. CPU engines only.
void nibble_sequence_kv_amax(const struct nibble_sequence *sequence, size_t from, float *k, float *v);

// ---- many texts at once -------------------------------------------------------------------------------------------

// The samplers that can be put in an order, by llama.cpp's names.
enum nibble_sampler {
    NIBBLE_SAMPLERS_END,
    NIBBLE_SAMPLER_PENALTIES,
    NIBBLE_SAMPLER_DRY,
    NIBBLE_SAMPLER_TOP_N_SIGMA,
    NIBBLE_SAMPLER_TEMPERATURE,
    NIBBLE_SAMPLER_MIN_P,
    NIBBLE_SAMPLER_TOP_K,
    NIBBLE_SAMPLER_TYPICAL_P,
    NIBBLE_SAMPLER_TOP_P,
    NIBBLE_SAMPLER_TOP_A,
    NIBBLE_SAMPLER_XTC,
    NIBBLE_SAMPLERS, // how many, with the end
};

struct nibble_sampling {
    double temperature;                         // 0: the most likely token, ties to the lowest id
    double top_p, min_p;                        // 1 and 0: off
    int top_k;                                  // 0: off
    double repetition_penalty;                  // 1: off; over the prompt and the answer so far
    double presence_penalty, frequency_penalty; // 0: off; over the answer so far, once and per occurrence
    uint64_t seed;                              // the draw depends on (seed, choice, position) and nothing else
    int choice;

    // The following are 0 where they are off, and are drawn on the host.
    int penalty_last_n;                         // the three penalties look at so many of the last tokens; 0: at all
    double dry_multiplier, dry_base;            // "don't repeat yourself": multiplier * base ^ (repeated - allowed)
    int dry_allowed_length, dry_penalty_last_n; // the second as penalty_last_n
    double top_n_sigma;                         // in standard deviations of the logits below the highest
    double typical_p, top_a;
    double dynatemp_range, dynatemp_exponent; // the temperature follows the entropy, by so much up and down
    double xtc_probability, xtc_threshold;    // "exclude top choices"
    int mirostat;                             // 2: of the truncating samplers none but this; 1 is not built
    double mirostat_tau, mirostat_eta;
    int min_keep;                         // tokens that min_p, top_p, typical_p, top_a and XTC leave at least
    unsigned char order[NIBBLE_SAMPLERS]; // enum nibble_sampler, up to NIBBLE_SAMPLERS_END: these and no others;
                                          // empty: all, as they are listed above
};

// Where the parameters of requests that say nothing come from; as the flags of these names.
struct nibble_defaults_options {
    const char *generation_config; // "auto": the checkpoint's, else what the makers of its family advise, else
                                   // temperature 0.7 and top_p 0.9; "vllm": temperature 1 and all off; or a folder
                                   // with a generation_config.json. NULL: auto
    const char *override_generation_config; // a JSON object whose values win, {"temperature": 0.5}; NULL: none
};

struct nibble_defaults {
    struct nibble_sampling sampling;
    int max_tokens;   // of an answer (max_new_tokens); 0: nothing is said
    char origin[512]; // where they come from, for people: "from generation_config.json", "as advised for SmolLM2"
};

bool nibble_sampling_defaults(const struct nibble_checkpoint *checkpoint, const struct nibble_defaults_options *options,
                              struct nibble_defaults *out, struct nibble_error *error);
// Appends what is not off: "temperature 0.2, top_p 0.9".
void nibble_sampling_print(const struct nibble_sampling *sampling, struct nibble_text *out);

struct nibble_candidate {
    int32_t id;
    float logprob; // natural logarithm of the model's own probability: before penalties, bias, masks and temperature
};

// A token of an answer, or of a prompt that is scored. Lent for the call.
struct nibble_token {
    int32_t id;
    int position; // in its sequence, the prompt included
    bool stop;    // one of the request's stop_ids: the answer ends with it
    bool scored;  // logprob and top are there (a prompt's first token has none)
    float logprob;
    int rank; // of a prompt's token: 1 for the likeliest; 0 of an answer's
    int top_count;
    const struct nibble_candidate *top; // the likeliest, falling
};

enum nibble_finish {
    NIBBLE_FINISH_STOP,   // a stop id, or the listener said so
    NIBBLE_FINISH_LENGTH, // max_tokens
    NIBBLE_FINISH_CANCELLED,
    NIBBLE_FINISH_FAILED, // the model's logits were not finite
};

// A request's counts and times, in seconds of the scheduler's clock; 0 if that has not happened.
struct nibble_usage {
    int prompt_tokens, cached_tokens, answer_tokens; // cached: found in the prefix cache when first admitted
    int preemptions;
    double arrived, admitted, first_token, finished;
};

// Callbacks of a request, called from nibble_scheduler_step and _cancel. None may call the scheduler back.
struct nibble_listener {
    void *context;
    // Before a draw: clears the bits of tokens that may not come next. `mask` has a bit per token of the vocabulary,
    // all set; one at least must stay. tokens_left: how many the answer may still have, this one included. NULL: all
    // may. Called from any of the engine's threads, and for different requests at the same time; never twice for a
    // token, and never beside another call for the same request. Returns the work that it took, in steps of a few
    // nanoseconds: a step of the scheduler begins no further masks when they have taken too much, and the requests that
    // are left draw their token in a later step. The delay does not change the tokens.
    uint64_t (*restrict_tokens)(void *context, int tokens_left, uint32_t *mask);
    // After the draw: the token that is taken in its place. NULL: the one that was drawn.
    int32_t (*choose_token)(void *context, int tokens_left, int32_t drawn);
    // The prompt's tokens in order, when they are scored. NULL: no callback.
    void (*prompt_token)(void *context, const struct nibble_token *token);
    // An answer's token. False: the answer ends with it.
    bool (*token)(void *context, const struct nibble_token *token);
    // The last call. `error` is a sentence with NIBBLE_FINISH_FAILED, else NULL.
    void (*finished)(void *context, enum nibble_finish reason, const struct nibble_usage *usage, const char *error);
};

struct nibble_bias {
    int32_t id;
    float bias; // added to the token's logit
};

// Sequences of tokens, each followed by NIBBLE_SEQUENCE_END.
enum { NIBBLE_SEQUENCE_END = -1 };
struct nibble_token_sequences {
    const int32_t *ids;
    size_t count; // of ids, with the ends
};

// Everything but the listener's context is copied.
struct nibble_request {
    const int32_t *prompt;
    size_t prompt_count; // at least 1
    int max_tokens;      // of the answer; 0: the prompt is read and scored, nothing is drawn
    int min_tokens;      // no stop id before the answer has as many
    struct nibble_sampling sampling;
    const int32_t *stop_ids;
    size_t stop_count;
    const struct nibble_bias *bias;
    size_t bias_count;
    const int32_t *allowed_ids;                 // no other token may come
    size_t allowed_count;                       // 0: any may
    struct nibble_token_sequences bad_words;    // an answer has none of them
    struct nibble_token_sequences dry_breakers; // DRY sees no repetition across one of them
    int top_logprobs;       // how many of the likeliest tokens come with each, up to 128; -1: nothing is scored
    bool score_prompt;      // the prompt's tokens too; such a request takes nothing from the prefix cache
    int priority;           // lower goes first, where the scheduler goes by priority
    const char *cache_salt; // pages are shared among requests of the same salt only
    size_t cache_salt_len;
    uint64_t after; // wait until this request has read its prompt (the same, whose pages are then shared); 0
    struct nibble_listener listener;
};

struct nibble_scheduler_options {
    bool no_prefix_cache;
    bool by_priority;               // else first come, first served
    double (*clock)(void *context); // in seconds; NULL: the system's monotonic clock
    void *clock_context;
};

struct nibble_scheduler;

struct nibble_scheduler *nibble_scheduler_open(struct nibble_engine *engine,
                                               const struct nibble_scheduler_options *options);
void nibble_scheduler_close(struct nibble_scheduler *scheduler); // cancels what is left

// The request's name, or 0 with a sentence in *error: a token outside the vocabulary, a prompt and max_tokens longer
// than the context, a sampling value that makes no sense.
uint64_t nibble_scheduler_add(struct nibble_scheduler *scheduler, const struct nibble_request *request,
                              struct nibble_error *error);
// Its pages are free and `finished` has been called when this returns. Unknown names (finished ones) are ignored.
void nibble_scheduler_cancel(struct nibble_scheduler *scheduler, uint64_t name);

struct nibble_step {
    int tokens;  // read in this step
    int answers; // tokens drawn in this step
};

// One step of everything that is running: reads prompts, draws tokens, calls listeners. False: there is nothing to do.
bool nibble_scheduler_step(struct nibble_scheduler *scheduler, struct nibble_step *step);

struct nibble_scheduler_stats {
    int running, waiting;
    double cache_use;    // 0 .. 1: pages held by running requests, of the fullest class
    size_t cache_tokens; // tokens of context that the cache holds
    uint64_t steps, preemptions;
    uint64_t prompt_tokens, answer_tokens;
    uint64_t prefix_queries, prefix_hits; // in tokens
    bool failing;           // the device failed in the latest step, and with it the requests that were running
    uint64_t corrupted;     // requests that ended because their logits were not finite,
    int corrupted_in_a_row; // and how many of them since the latest good token
};
void nibble_scheduler_stats(const struct nibble_scheduler *scheduler, struct nibble_scheduler_stats *out);
void nibble_scheduler_clear_cache(struct nibble_scheduler *scheduler); // empties the prefix cache
// A number that moves on while a step computes on a CPU, with every op. Any thread may ask, at any time.
uint32_t nibble_scheduler_progress(const struct nibble_scheduler *scheduler);

// ---- several processes ---------------------------------------------------------------------------------------------

// How many processes a launcher has started together with this one, by its environment, which of them this is, and
// which of those on this host; 1 and 0: none did.
int nibble_ranks_launched(void);
int nibble_ranks_launched_rank(void);
int nibble_ranks_launched_here(void);

// Whether this machine has what starting several processes takes: mpirun, and the MPI module. False: the sentence names
// all that is missing.
bool nibble_ranks_can_launch(struct nibble_error *error);

// Joins the processes that mpirun, or another MPI launcher, has started; all must be the same build with the same
// `flags`. Rank 0 opens engines with the ranks in the options and uses them as without ranks; the others call
// nibble_ranks_work.
struct nibble_ranks *nibble_ranks_open(const char *flags, struct nibble_error *error);
int nibble_ranks_rank(const struct nibble_ranks *ranks);
int nibble_ranks_size(const struct nibble_ranks *ranks);

// Worker ranks (all but rank 0): execute rank 0's commands until it closes the ranks. False if rank 0 is lost, or this
// rank failed.
bool nibble_ranks_work(struct nibble_ranks *ranks, struct nibble_error *error);

// Which of them is gone and why: no engine of theirs can run any more. NULL: all are there. The moment it changes the
// descriptor becomes readable. nibble_ranks_reports: this process prints the error, as no rank before it is left.
const char *nibble_ranks_lost(const struct nibble_ranks *ranks);
int nibble_ranks_lost_fd(const struct nibble_ranks *ranks);
bool nibble_ranks_reports(const struct nibble_ranks *ranks);
void nibble_ranks_close(struct nibble_ranks *ranks);

// ---- checkpoints written anew ---------------------------------------------------------------------------------------

enum nibble_weights {
    NIBBLE_WEIGHTS_NVFP4,
    NIBBLE_WEIGHTS_MXFP4,
    NIBBLE_WEIGHTS_FP8,
    NIBBLE_WEIGHTS_INT8,
    NIBBLE_WEIGHTS_BF16, // not quantised; what was becomes plain again
};
enum nibble_layout { NIBBLE_LAYOUT_COMPRESSED_TENSORS, NIBBLE_LAYOUT_MODELOPT };

// The result for a linear layer; valid during the call.
struct nibble_quantized {
    const char *name; // "model.layers.0.mlp.up_proj.weight"
    int64_t rows, cols;
    const char *format; // "nvfp4", or what it was left in
    const char *kept;   // why it was not quantised, or NULL
    bool gptq;          // its weights make up for each other's errors; else each is the nearest that there is
    double error;       // root mean square of what was lost, over that of the values
};

struct nibble_quantize_options {
    enum nibble_weights weights;
    enum nibble_layout layout;
    const char *const *exclude; // modules that stay as they are: paths, parts of one, wildcards, re:REGEX
    size_t exclude_count;
    const float *k_scales, *v_scales; // a scale for each layer's keys and values in an fp8 cache; NULL: none
    size_t shard_bytes;               // of a file of weights; 0: 5 GB
    int threads;                      // 0: every core this process may use
    bool (*progress)(void *context, double done); // 0 .. 1; false: stop; may be NULL
    void *progress_context;
    void (*tensor)(void *context, const struct nibble_quantized *tensor); // may be NULL
    void *tensor_context;
    const int32_t *ids; // a text on which weights learn to make up for each other's errors: the model is
    size_t id_count;    // run over it on the CPU; 0: each is rounded to the nearest that there is
};

// Writes weights and config.json as published checkpoints have them into a folder that is there and empty. A folder
// without config.json, which comes last, is no checkpoint.
bool nibble_quantize(const struct nibble_checkpoint *checkpoint, const char *folder,
                     const struct nibble_quantize_options *options, struct nibble_error *error);

// The other files of such a folder: tokenizer, chat template, generation_config.json; copied, or made of a GGUF's keys.
bool nibble_text_save(const struct nibble_checkpoint *checkpoint, const char *folder, struct nibble_error *error);

// ---- the machine --------------------------------------------------------------------------------------------------

// A report of CPU, memory, GPUs, drivers, build and libraries. Never fails.
void nibble_environment(struct nibble_text *out, bool json);

enum nibble_kernels_action {
    NIBBLE_KERNELS_LIST,
    NIBBLE_KERNELS_TEST,  // against the reference, on random input
    NIBBLE_KERNELS_BENCH, // beside what the machine can do at best
    NIBBLE_KERNELS_OPS,   // the table of ops as a page of Markdown, whatever the form
};
enum nibble_form { NIBBLE_FORM_TEXT, NIBBLE_FORM_JSON, NIBBLE_FORM_MARKDOWN };

struct nibble_kernels_options {
    enum nibble_kernels_action action;
    enum nibble_form form;
    const char *name;   // of a kernel or an op; NULL: all
    const char *device; // as the flag of the same name; NULL: this machine's CPU
    uint64_t seed;
    bool quick;                                   // NIBBLE_KERNELS_TEST: one seed, small shapes
    int threads;                                  // of NIBBLE_KERNELS_BENCH; 0: every core this process may use
    int columns;                                  // of NIBBLE_FORM_TEXT: lists are wrapped to so many; 0: 100
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
