// SPDX-License-Identifier: Apache-2.0
// text/reasoning.c: the streaming splitter, byte by byte. Markers are searched by Knuth-Morris-Pratt, so that no byte
// is read twice; a possible part of one is held.
#include "text/reasoning.h"

#include <stdlib.h>

#include "base/memory.h"

enum step {
    BEFORE,  // blanks; then the open marker, a tag of the answer, or the answer
    OPENED,  // behind the open marker, whose newline may come
    THOUGHT, // until a close marker, or a call
    CALL,    // a call inside the thought, all of it held: what comes later says whether it is one
    BEHIND,  // newlines behind the close marker; then as BEFORE
    ANSWER,
    HEADER,   // of a message, in forms with headers
    ANALYSIS, // a message that is thought
    PREAMBLE, // commentary for the user, behind which more comes
    MESSAGE,  // the answer, or a call
};

enum kind { REASONING, CONTENT, MARKER };

enum {
    SEARCHES_MAX = 6,
    BLANKS_MAX = 64,  // in front of a thought; more are an answer
    HEADER_MAX = 256, // bytes of a message's header; a longer one is content
};

struct search {
    const char *marker;
    size_t matched; // the longest beginning of the marker that the text ends in
};

struct reasoning_splitter {
    const struct reasoning_form *form;
    struct reasoning_sink sink;
    enum step step;
    bool with_calls;
    int tags; // bits of the answer's close tags that may still come
    struct search searches[SEARCHES_MAX];
    int search_count;
    struct strbuf held;
    struct strbuf out; // not given to the sink yet
    enum kind out_kind;
};

// ---- events -------------------------------------------------------------------------------------------------------

static void flush(struct reasoning_splitter *splitter)
{
    void (*const events[])(void *, struct bytes) = { [REASONING] = splitter->sink.reasoning,
                                                     [CONTENT] = splitter->sink.content,
                                                     [MARKER] = splitter->sink.marker };
    if (splitter->out.len && events[splitter->out_kind])
        events[splitter->out_kind](splitter->sink.context, strbuf_bytes(&splitter->out));
    splitter->out.len = 0;
}

static void emit(struct reasoning_splitter *splitter, enum kind kind, const char *text, size_t len)
{
    if (!len)
        return;
    if (splitter->out_kind != kind)
        flush(splitter);
    splitter->out_kind = kind;
    strbuf_add(&splitter->out, text, len);
}

static void emit_held(struct reasoning_splitter *splitter, enum kind kind, size_t count)
{
    emit(splitter, kind, splitter->held.data, count);
    splitter->held.len -= count;
    if (splitter->held.len)
        memmove(splitter->held.data, splitter->held.data + count, splitter->held.len);
}

static enum kind kind_of(enum step step)
{
    return step == THOUGHT || step == OPENED || step == CALL || step == ANALYSIS ? REASONING : CONTENT;
}

// ---- searching ----------------------------------------------------------------------------------------------------

// The longest proper beginning of the marker's first `matched` bytes that also ends them.
static size_t border(const char *marker, size_t matched)
{
    for (size_t length = matched - 1; length; length--)
        if (!memcmp(marker, marker + matched - length, length))
            return length;
    return 0;
}

static size_t extend(const char *marker, size_t matched, char byte)
{
    while (matched && marker[matched] != byte)
        matched = border(marker, matched);
    return matched + (marker[matched] == byte);
}

static void add_search(struct reasoning_splitter *splitter, const char *marker)
{
    if (marker)
        splitter->searches[splitter->search_count++] = (struct search){ .marker = marker };
}

// Goes to another step, with what may end it.
static void go(struct reasoning_splitter *splitter, enum step step)
{
    const struct reasoning_form *form = splitter->form;
    static const char *const ends[] = { "<|end|>", "<|start|>", "<|channel|>", "<|call|>", "<|return|>", "<|eom|>" };
    splitter->step = step;
    splitter->search_count = 0;
    if (step == THOUGHT || step == CALL)
        add_search(splitter, form->close);
    for (int i = 0; i < REASONING_TAGS_MAX && step == THOUGHT && splitter->with_calls; i++)
        add_search(splitter, form->call[i]);
    for (int i = 0; i < REASONING_TAGS_MAX && step == ANSWER; i++)
        add_search(splitter, splitter->tags >> i & 1 ? form->answer_close[i] : NULL);
    if (step == ANSWER && form->reopens)
        add_search(splitter, form->open);
    for (size_t i = 0; i < sizeof ends / sizeof *ends && step >= ANALYSIS; i++)
        add_search(splitter, ends[i]);
}

// Which marker ends with this byte, NULL: none. *open: how many bytes at the end may begin one.
static const char *search_byte(struct reasoning_splitter *splitter, char byte, size_t *open)
{
    const char *found = NULL;
    *open = 0;
    for (int i = 0; i < splitter->search_count; i++) {
        struct search *search = &splitter->searches[i];
        search->matched = extend(search->marker, search->matched, byte);
        if (!search->marker[search->matched])
            found = search->marker;
        *open = search->matched > *open ? search->matched : *open;
    }
    return found;
}

// ---- inside -------------------------------------------------------------------------------------------------------

// `held` ends with this marker, which ends the step; the newline before it is the marker's.
static void end_step(struct reasoning_splitter *splitter, const char *marker)
{
    const struct reasoning_form *form = splitter->form;
    enum step step = splitter->step;
    struct strbuf *held = &splitter->held;
    size_t text = held->len - strlen(marker);
    if (form->channel) {
        emit_held(splitter, kind_of(step), text);
        go(splitter, HEADER);
        return;
    }
    bool call = step == THOUGHT && marker != form->close;
    text -= text && held->data[text - 1] == '\n' && marker != form->open;
    emit_held(splitter, kind_of(step), text);
    if (call) { // the rest stays held
        go(splitter, CALL);
        return;
    }
    emit_held(splitter, MARKER, held->len);
    for (int i = 0; i < REASONING_TAGS_MAX; i++)
        splitter->tags &= step == ANSWER && marker == form->answer_close[i] ? ~(1 << i) : ~0;
    go(splitter, kind_of(step) == REASONING ? BEHIND : marker == form->open ? OPENED : ANSWER);
}

// Text until one of the step's markers.
static void add_inside(struct reasoning_splitter *splitter, char byte)
{
    struct strbuf *held = &splitter->held;
    size_t open;
    strbuf_add_byte(held, byte);
    const char *found = search_byte(splitter, byte, &open);
    if (found) {
        end_step(splitter, found);
        return;
    }
    if (splitter->step == CALL) {
        if (held->len > REASONING_HELD_BYTES_MAX) {
            emit_held(splitter, CONTENT, held->len);
            go(splitter, ANSWER);
        }
        return;
    }
    size_t before = held->len - open; // and a newline in front, which would be the marker's
    before -= before && held->data[before - 1] == '\n';
    emit_held(splitter, kind_of(splitter->step), before);
}

// ---- before the answer --------------------------------------------------------------------------------------------

static void add(struct reasoning_splitter *splitter, char byte);

// Whether `text` begins `marker` (1) or is all of it (2).
static int begins(struct bytes text, const char *marker)
{
    size_t len = marker ? strlen(marker) : 0;
    if (!text.len || text.len > len || memcmp(marker, text.data, text.len) != 0)
        return 0;
    return text.len < len ? 1 : 2;
}

// Returns 0 for text that begins the answer, 1 for a part of a marker, 2 for a whole one: *tag is -1 for the open one.
static int look(const struct reasoning_splitter *splitter, struct bytes text, int *tag)
{
    const struct reasoning_form *form = splitter->form;
    int result = splitter->step == BEFORE || form->reopens ? begins(text, form->open) : 0;
    *tag = -1;
    for (int i = 0; i < REASONING_TAGS_MAX && result < 2; i++) {
        int other = begins(text, form->answer_open[i]);
        *tag = other == 2 ? i : *tag;
        result = other > result ? other : result;
    }
    return result;
}

// The held text is the answer's.
static void begin_answer(struct reasoning_splitter *splitter)
{
    struct strbuf again = splitter->held;
    splitter->held = (struct strbuf){ 0 };
    go(splitter, ANSWER);
    for (size_t i = 0; i < again.len; i++)
        add(splitter, again.data[i]);
    strbuf_free(&again);
}

static void add_before(struct reasoning_splitter *splitter, char byte)
{
    struct strbuf *held = &splitter->held;
    size_t blanks = 0;
    int tag;
    if (splitter->step == BEHIND && !held->len && (byte == '\n' || byte == '\r')) {
        emit(splitter, MARKER, &byte, 1);
        return;
    }
    strbuf_add_byte(held, byte);
    while (splitter->step == BEFORE && blanks < held->len && bytes_is_space(held->data[blanks]))
        blanks++;
    if (blanks == held->len && blanks < BLANKS_MAX)
        return;
    switch (blanks == held->len ? 0 : look(splitter, (struct bytes){ held->data + blanks, held->len - blanks }, &tag)) {
    case 0: begin_answer(splitter); return;
    case 1: return;
    default: break;
    }
    emit_held(splitter, MARKER, held->len);
    if (tag >= 0)
        splitter->tags = (1 << REASONING_TAGS_MAX) - 1;
    go(splitter, tag >= 0 ? ANSWER : OPENED);
    if (tag >= 0)
        splitter->step = BEHIND; // newlines behind the tag are its own
}

static void add_opened(struct reasoning_splitter *splitter, char byte)
{
    go(splitter, THOUGHT);
    if (byte == '\n')
        emit(splitter, MARKER, &byte, 1);
    else
        add(splitter, byte);
}

// ---- messages with headers (harmony) -------------------------------------------------------------------------------

// A call, commentary for the user and the final channel are not thought.
static bool is_thought(struct bytes header, const char *channel)
{
    return bytes_hold(header, channel) && (bytes_hold(bytes_of(channel), "to=") || !bytes_hold(header, "to="));
}

static void add_header(struct reasoning_splitter *splitter, char byte)
{
    struct strbuf *held = &splitter->held;
    strbuf_add_byte(held, byte);
    if (bytes_end_with(strbuf_bytes(held), bytes_of("<|message|>"))) {
        bool thought = is_thought(strbuf_bytes(held), splitter->form->channel);
        bool preamble = bytes_hold(strbuf_bytes(held), "<|channel|>commentary")
            && !bytes_hold(strbuf_bytes(held), "to=");
        emit_held(splitter, MARKER, held->len);
        go(splitter, thought ? ANALYSIS : preamble ? PREAMBLE : MESSAGE);
    } else if (held->len > HEADER_MAX) {
        emit_held(splitter, CONTENT, held->len);
        go(splitter, MESSAGE);
    }
}

// ---- the splitter -------------------------------------------------------------------------------------------------

static void add(struct reasoning_splitter *splitter, char byte)
{
    switch (splitter->step) {
    case BEFORE:
    case BEHIND: add_before(splitter, byte); break;
    case OPENED: add_opened(splitter, byte); break;
    case HEADER: add_header(splitter, byte); break;
    default: add_inside(splitter, byte); break;
    }
}

struct reasoning_splitter *reasoning_open(const struct reasoning_form *form, struct bytes prompt,
                                          const struct reasoning_sink *sink)
{
    struct reasoning_splitter *splitter = memory_new(1, sizeof *splitter);
    *splitter = (struct reasoning_splitter){ .form = form, .sink = *sink };
    bool open = reasoning_is_open(form, prompt);
    if (form->channel)
        go(splitter, open ? HEADER : MESSAGE);
    else
        go(splitter, !open ? BEFORE : bytes_end_with(prompt, bytes_of("\n")) ? THOUGHT : OPENED);
    for (int i = 0; i < REASONING_TAGS_MAX; i++)
        if (form->answer_open[i] && bytes_end_with(prompt, bytes_of(form->answer_open[i])))
            splitter->tags = (1 << REASONING_TAGS_MAX) - 1;
    return splitter;
}

void reasoning_close(struct reasoning_splitter *splitter)
{
    if (!splitter)
        return;
    strbuf_free(&splitter->held);
    strbuf_free(&splitter->out);
    free(splitter);
}

void reasoning_ends_with_call(struct reasoning_splitter *splitter)
{
    splitter->with_calls = true;
    go(splitter, splitter->step);
}

void reasoning_add(struct reasoning_splitter *splitter, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (splitter->step == ANSWER && !splitter->search_count && !splitter->held.len) {
            emit(splitter, CONTENT, text.data + i, text.len - i);
            break;
        }
        add(splitter, text.data[i]);
    }
    flush(splitter);
}

void reasoning_finish(struct reasoning_splitter *splitter)
{
    struct strbuf *held = &splitter->held;
    bool header = splitter->step == HEADER && held->len && (held->data[0] == '<' || held->data[0] == ' ');
    if (splitter->step == CALL && held->len && held->data[0] == '\n')
        emit_held(splitter, MARKER, 1);
    emit_held(splitter, header ? MARKER : splitter->step == CALL ? CONTENT : kind_of(splitter->step), held->len);
    flush(splitter);
}

static void append(void *context, struct bytes text) { strbuf_add(context, text.data, text.len); }

void reasoning_content(const struct reasoning_form *form, struct bytes prompt, struct bytes text, struct strbuf *out)
{
    struct reasoning_splitter *splitter = reasoning_open(form, prompt,
                                                         &(struct reasoning_sink){ out, .content = append });
    reasoning_add(splitter, text);
    reasoning_finish(splitter);
    reasoning_close(splitter);
}

bool reasoning_is_thinking(const struct reasoning_splitter *splitter) { return kind_of(splitter->step) == REASONING; }

bool reasoning_comes_first(const struct reasoning_splitter *splitter)
{
    return reasoning_is_thinking(splitter) || splitter->step == HEADER || splitter->step == PREAMBLE;
}

bool reasoning_may_open(const struct reasoning_splitter *splitter) { return splitter->step == BEFORE; }

size_t reasoning_held(const struct reasoning_splitter *splitter) { return splitter->held.len; }

const char *reasoning_finishing(const struct reasoning_splitter *splitter)
{
    const struct reasoning_form *form = splitter->form;
    size_t matched = splitter->step == THOUGHT ? splitter->searches[0].matched : 0;
    if (!reasoning_is_thinking(splitter) || splitter->step == CALL)
        return NULL;
    return matched ? form->close + matched : form->finish;
}

bool reasoning_would_end(const struct reasoning_splitter *splitter, struct bytes text, size_t *behind)
{
    const char *close = splitter->form->close;
    bool inside = splitter->step == THOUGHT || splitter->step == CALL;
    size_t matched = inside ? splitter->searches[0].matched : 0;
    if (!inside && splitter->step != OPENED)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        matched = extend(close, matched, text.data[i]);
        if (close[matched])
            continue;
        for (i++; i < text.len && (text.data[i] == '\n' || text.data[i] == '\r'); i++)
            ;
        *behind = i;
        return true;
    }
    return false;
}
