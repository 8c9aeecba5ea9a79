// SPDX-License-Identifier: Apache-2.0
// text/public.c: nibble_tokenizer_*, nibble_token*, nibble_decoder_*, nibble_chat_* and nibble_text_save.
#include <stdlib.h>

#include "base/memory.h"
#include "base/public.h"
#include "format/json.h"
#include "format/public.h"
#include "text/chat_continue.h"
#include "text/save.h"
#include "text/tokenizer.h"

// The public handles are our own objects under another name.
static const struct tokenizer *own(const struct nibble_tokenizer *tokenizer)
{
    return (const struct tokenizer *)tokenizer;
}

struct nibble_tokenizer *nibble_tokenizer_open(const struct nibble_checkpoint *checkpoint, struct error *err)
{
    return (struct nibble_tokenizer *)tokenizer_open(&checkpoint->checkpoint, err);
}

void nibble_tokenizer_close(struct nibble_tokenizer *tokenizer) { tokenizer_close((struct tokenizer *)tokenizer); }

ptrdiff_t nibble_tokenize(const struct nibble_tokenizer *tokenizer, const char *text, size_t len, int flags,
                          int32_t **ids, struct error *err)
{
    int own_flags = (flags & NIBBLE_ADD_SPECIAL ? TOKENIZE_ADD_SPECIAL : 0)
        | (flags & NIBBLE_PARSE_SPECIAL ? TOKENIZE_PARSE_SPECIAL : 0);
    struct tokens tokens = { 0 };
    if (!tokenizer_encode(own(tokenizer), (struct bytes){ text, len }, own_flags, &tokens, err)) {
        tokens_free(&tokens);
        return -1;
    }
    *ids = tokens.ids;
    return (ptrdiff_t)tokens.count;
}

int nibble_vocabulary_size(const struct nibble_tokenizer *tokenizer) { return tokenizer_size(own(tokenizer)); }

const char *nibble_token_piece(const struct nibble_tokenizer *tokenizer, int32_t id, size_t *len)
{
    if (id < 0 || id >= tokenizer_size(own(tokenizer)))
        return NULL;
    struct bytes piece = tokenizer_piece(own(tokenizer), id);
    *len = piece.len;
    return piece.data;
}

bool nibble_token_ends_text(const struct nibble_tokenizer *tokenizer, int32_t id)
{
    return tokenizer_is_end(own(tokenizer), id);
}

bool nibble_tokenizer_adds_bos(const struct nibble_tokenizer *tokenizer) { return tokenizer_adds_bos(own(tokenizer)); }

int32_t nibble_token_bos(const struct nibble_tokenizer *tokenizer) { return tokenizer_bos(own(tokenizer)); }

struct nibble_decoder *nibble_decoder_open(const struct nibble_tokenizer *tokenizer, bool skip_special)
{
    struct detokenizer *state = memory_new(1, sizeof *state);
    *state = (struct detokenizer){ .tokenizer = own(tokenizer), .skip_special = skip_special };
    return (struct nibble_decoder *)state;
}

void nibble_decoder_add(struct nibble_decoder *decoder, int32_t id, struct nibble_text *out)
{
    struct strbuf buf = public_text_borrow(out);
    detokenizer_add((struct detokenizer *)decoder, id, &buf);
    public_text_return(out, &buf);
}

void nibble_decoder_finish(struct nibble_decoder *decoder, struct nibble_text *out)
{
    struct detokenizer *state = (struct detokenizer *)decoder;
    struct strbuf buf = public_text_borrow(out);
    detokenizer_finish(state, &buf);
    public_text_return(out, &buf);
    *state = (struct detokenizer){ .tokenizer = state->tokenizer, .skip_special = state->skip_special };
}

void nibble_decoder_close(struct nibble_decoder *decoder) { free(decoder); }

struct nibble_chat *nibble_chat_open(const struct nibble_checkpoint *checkpoint, const char *template_file,
                                     struct error *err)
{
    return (struct nibble_chat *)chat_open(checkpoint ? &checkpoint->checkpoint : NULL, template_file, err);
}

void nibble_chat_close(struct nibble_chat *chat) { chat_close((struct chat *)chat); }

static bool render(const struct nibble_chat *chat, const json_t *request, struct nibble_text *out, struct error *err)
{
    struct strbuf buf = public_text_borrow(out);
    bool ok = chat_render((const struct chat *)chat, request, &buf, err);
    public_text_return(out, &buf);
    return ok;
}

bool nibble_chat_render(const struct nibble_chat *chat, const char *json, size_t len, struct nibble_text *out,
                        struct error *err)
{
    json_t *request;
    if (!json_read((struct bytes){ json, len }, &request, err))
        return false;
    bool ok = render(chat, request, out, err);
    json_decref(request);
    return ok;
}

// Puts messages in the template's shape in place of the request's own.
static bool normalise(const struct nibble_chat *chat, json_t *request, struct error *err)
{
    bool continues;
    if (!chat_asks_to_continue(request, &continues, err))
        return false;
    json_t *tools = json_object_get(request, "tools");
    if (json_is_null(tools))
        tools = NULL;
    if (tools && !tools_check(tools, err))
        return false;
    json_t *messages = chat_normalise((const struct chat *)chat, json_object_get(request, "messages"), tools, err);
    if (!messages)
        return false;
    json_t *own_tools = chat_tools((const struct chat *)chat, tools);
    json_object_set_new(request, "messages", messages);
    json_object_set_new(request, "tools", own_tools ? own_tools : json_null());
    return true;
}

bool nibble_chat_render_request(const struct nibble_chat *chat, const char *json, size_t len, struct nibble_text *out,
                                struct error *err)
{
    json_t *request;
    if (!json_read((struct bytes){ json, len }, &request, err))
        return false;
    if (json_is_array(request))
        request = json_pack("{s:o}", "messages", request);
    bool ok = normalise(chat, request, err) && render(chat, request, out, err);
    json_decref(request);
    return ok;
}

// ---- reasoning ----------------------------------------------------------------------------------------------------

struct nibble_reasoning {
    const struct reasoning_form *form;
    struct reasoning_splitter *splitter;
    struct tokens shown;
    struct nibble_text *thought, *answer; // of the call under way
};

static void append(struct nibble_text *out, struct bytes text)
{
    struct strbuf buf = public_text_borrow(out);
    strbuf_add(&buf, text.data, text.len);
    public_text_return(out, &buf);
}

static void on_reasoning(void *context, struct bytes text)
{
    append(((struct nibble_reasoning *)context)->thought, text);
}

static void on_content(void *context, struct bytes text) { append(((struct nibble_reasoning *)context)->answer, text); }

const char *nibble_chat_reasoning(const struct nibble_chat *chat)
{
    const struct reasoning_form *form = chat_reasoning((const struct chat *)chat);
    return form ? form->name : NULL;
}

struct nibble_reasoning *nibble_reasoning_open(const struct nibble_chat *chat, const char *prompt, size_t len)
{
    const struct reasoning_form *form = chat_reasoning((const struct chat *)chat);
    if (!form)
        return NULL;
    struct nibble_reasoning *reasoning = memory_new(1, sizeof *reasoning);
    struct reasoning_sink sink = { reasoning, .reasoning = on_reasoning, .content = on_content };
    reasoning->form = form;
    reasoning->splitter = reasoning_open(form, (struct bytes){ prompt, len }, &sink);
    return reasoning;
}

void nibble_reasoning_add(struct nibble_reasoning *reasoning, const char *text, size_t len, struct nibble_text *thought,
                          struct nibble_text *answer)
{
    if (!reasoning) {
        append(answer, (struct bytes){ text, len });
        return;
    }
    reasoning->thought = thought;
    reasoning->answer = answer;
    reasoning_add(reasoning->splitter, (struct bytes){ text, len });
}

void nibble_reasoning_finish(struct nibble_reasoning *reasoning, struct nibble_text *thought,
                             struct nibble_text *answer)
{
    reasoning->thought = thought;
    reasoning->answer = answer;
    reasoning_finish(reasoning->splitter);
}

void nibble_reasoning_close(struct nibble_reasoning *reasoning)
{
    if (!reasoning)
        return;
    reasoning_close(reasoning->splitter);
    tokens_free(&reasoning->shown);
    free(reasoning);
}

void nibble_decoder_show(struct nibble_decoder *decoder, const struct nibble_tokenizer *tokenizer,
                         struct nibble_reasoning *reasoning)
{
    reasoning_tokens(reasoning->form, own(tokenizer), &reasoning->shown);
    ((struct detokenizer *)decoder)->shown = &reasoning->shown;
}

bool nibble_text_save(const struct nibble_checkpoint *checkpoint, const char *folder, struct error *err)
{
    return text_save(&checkpoint->checkpoint, folder, err);
}
