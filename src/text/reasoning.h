// SPDX-License-Identifier: Apache-2.0
// text/reasoning.h: reasoning (thinking, chain of thought) in a model's text: which markers it stands between, found in
// the chat template, and a streaming splitter that takes it apart from the answer (vLLM's reasoning parsers).
#ifndef TEXT_REASONING_H
#define TEXT_REASONING_H

#include "base/strbuf.h"
#include "text/tokenizer.h"

enum {
    REASONING_HELD_BYTES_MAX = 64 * 1024, // of a call inside a thought that may still be closed; longer, it is a call
    REASONING_TAGS_MAX = 2,
};

// A form of reasoning, a row of the table in reasoning_form.c. Texts that a family does not have are NULL.
struct reasoning_form {
    const char *name;
    const char *open, *close;
    const char *call[REASONING_TAGS_MAX];         // the beginning of a tool call, which may end an unclosed thought
    const char *answer_open[REASONING_TAGS_MAX];  // tags around the answer behind the thought, which are no part of it;
    const char *answer_close[REASONING_TAGS_MAX]; // the first open tag is written where a grammar follows
    const char *finish;                           // closes a thought whose token budget is used up
    bool reopens;        // its open marker is a token that no other text can spell: a further thought may come anywhere
    const char *channel; // messages with headers (gpt-oss): what a thought's header holds
    bool calls_in_headers;  // and that of a call is the call's: the reader of tool calls gets the text as it is
    const char *efforts;    // its template's words, from low to high, separated by spaces; NULL: any
    const char *effort_off; // and the one for no thought; NULL: there is none
    const char *vllm;       // the names of vLLM's reasoning parsers for it, separated by spaces
    const char *signs[REASONING_TAGS_MAX]; // texts of a template that has this form, all of them
};

// The form that a template's source asks for; NULL: there is none.
const struct reasoning_form *reasoning_find(struct bytes template_source);
// By a name of ours or of vLLM's; NULL, with a sentence that suggests another.
const struct reasoning_form *reasoning_named(const char *name, struct error *err);

// Writes the word of the form's template that is nearest to an effort as OpenAI names it, the lower of two. False: that
// is no such name, or the template has no words of its own.
enum { REASONING_EFFORT_BYTES_MAX = 16 };
bool reasoning_nearest_effort(const struct reasoning_form *form, const char *effort,
                              char word[REASONING_EFFORT_BYTES_MAX]);

// Does the answer to this rendered prompt begin inside a thought? True where the prompt ends with the open marker; a
// marker in a message has the end of its turn behind it.
bool reasoning_is_open(const struct reasoning_form *form, struct bytes prompt);

// Appends the special tokens among the markers, which a detokenizer has to show.
void reasoning_tokens(const struct reasoning_form *form, const struct tokenizer *tokenizer, struct tokens *out);

// ---- splitting ----------------------------------------------------------------------------------------------------

// Events of a streamed text; a callback may be NULL. They do not depend on where the text was cut into pieces, and time
// is linear in its length. All events together are the text: markers have a newline behind the open one, one before the
// close one, and the blank lines behind that.
struct reasoning_sink {
    void *context;
    void (*reasoning)(void *context, struct bytes text);
    void (*content)(void *context, struct bytes text);
    void (*marker)(void *context, struct bytes text);
};

struct reasoning_splitter;
struct reasoning_splitter *reasoning_open(const struct reasoning_form *form, struct bytes prompt,
                                          const struct reasoning_sink *sink);
void reasoning_close(struct reasoning_splitter *splitter);
// A tool call may end a thought that is not closed: for requests with tools. Until the close marker or the end of the
// text decides, such a call is held.
void reasoning_ends_with_call(struct reasoning_splitter *splitter);
void reasoning_add(struct reasoning_splitter *splitter, struct bytes text);
void reasoning_finish(struct reasoning_splitter *splitter); // a thought that is never closed is reasoning to its end

// The content of a whole text, appended to *out.
void reasoning_content(const struct reasoning_form *form, struct bytes prompt, struct bytes text, struct strbuf *out);

bool reasoning_is_thinking(const struct reasoning_splitter *splitter); // the next text belongs to a thought,
bool reasoning_comes_first(const struct reasoning_splitter *splitter); // or to what precedes an answer or a call
bool reasoning_may_open(const struct reasoning_splitter *splitter);    // nothing has come but blanks
size_t reasoning_held(const struct reasoning_splitter *splitter);      // bytes at the end that may be a marker's
// Would the thought that is open end within this text? *behind: where the answer begins in it.
bool reasoning_would_end(const struct reasoning_splitter *splitter, struct bytes text, size_t *behind);
// The text that closes the thought now: the rest of its close marker, or all of it. NULL: nothing is to be closed.
const char *reasoning_finishing(const struct reasoning_splitter *splitter);

#endif
