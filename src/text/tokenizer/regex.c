// SPDX-License-Identifier: Apache-2.0
// PCRE2 with JIT, and limits on stack, heap and time.
#include "text/tokenizer/regex.h"

#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "base/pcre.h"
#include "base/utf8.h"
#include "text/tokenizer/regex_dialect.h"

enum {
    STACK_BYTES_MIN = 32 * 1024,
    STACK_BYTES_MAX = 8 * 1024 * 1024,
    HEAP_KIB_MAX = 512 * 1024,   // of PCRE2's interpreter
    MATCH_STEPS_MAX = 100000000, // of one match
    SCAN_SECONDS_MAX = 10,       // of one scan: a lookahead to the end of the text makes it quadratic
    MATCHES_PER_CLOCK = 256,
};

struct regex {
    pcre2_code *code;
};

static struct regex *compile(struct bytes pattern, uint32_t options, struct error *err)
{
    int code;
    char message[PCRE_MESSAGE_BYTES];
    pcre2_code *compiled = pcre_compile(pattern, PCRE2_UTF | options, &code, message);
    if (!compiled)
        return fail(err, "%s", message), NULL;
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); // where there is no JIT, matching falls back to the interpreter
    struct regex *regex = memory_new(1, sizeof *regex);
    regex->code = compiled;
    return regex;
}

struct regex *regex_new(struct bytes pattern, struct error *err)
{
    struct strbuf translated = { 0 };
    struct regex *regex = NULL;
    strbuf_add_text(&translated, "");
    if (regex_dialect_translate(pattern, &translated, err))
        regex = compile(strbuf_bytes(&translated), PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE, err);
    strbuf_free(&translated);
    if (!regex)
        fail_within(err, "the regex \"%.*s\"", (int)(pattern.len < 200 ? pattern.len : 200), pattern.data);
    return regex;
}

struct regex *regex_new_literal(struct bytes text, struct error *err) { return compile(text, PCRE2_LITERAL, err); }

void regex_free(struct regex *regex)
{
    if (regex)
        pcre2_code_free(regex->code);
    free(regex);
}

struct regex_scan {
    const struct regex *regex;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; // NULL until one is needed
    struct bytes text;
    size_t from;     // where the next search starts
    size_t last_end; // of the match before; SIZE_MAX: none yet
    unsigned matches;
    double seconds_at_open;
};

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct regex_scan *regex_scan_open(const struct regex *regex)
{
    struct regex_scan *scan = memory_new(1, sizeof *scan);
    scan->regex = regex;
    scan->data = pcre2_match_data_create(1, pcre_memory());
    scan->context = pcre2_match_context_create(pcre_memory());
    pcre2_set_match_limit(scan->context, MATCH_STEPS_MAX);
    pcre2_set_heap_limit(scan->context, HEAP_KIB_MAX);
    scan->seconds_at_open = thread_seconds();
    return scan;
}

void regex_scan_close(struct regex_scan *scan)
{
    if (!scan)
        return;
    pcre2_match_data_free(scan->data);
    pcre2_match_context_free(scan->context);
    pcre2_jit_stack_free(scan->stack);
    free(scan);
}

void regex_scan_start(struct regex_scan *scan, struct bytes text)
{
    scan->text = text.data ? text : bytes_of("");
    scan->from = 0;
    scan->last_end = SIZE_MAX;
}

static int match_with(struct regex_scan *scan, uint32_t options)
{
    return pcre2_match(scan->regex->code, (PCRE2_SPTR)scan->text.data, scan->text.len, scan->from,
                       PCRE2_NO_UTF_CHECK | options, scan->data, scan->context);
}

// Most matches do with the small stack that the JIT has of itself; then a big one, then the interpreter on the heap.
static int match(struct regex_scan *scan)
{
    int found = match_with(scan, 0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && !scan->stack) {
        scan->stack = pcre2_jit_stack_create(STACK_BYTES_MIN, STACK_BYTES_MAX, pcre_memory());
        pcre2_jit_stack_assign(scan->context, NULL, scan->stack);
        found = match_with(scan, 0);
    }
    return found == PCRE2_ERROR_JIT_STACKLIMIT ? match_with(scan, PCRE2_NO_JIT) : found;
}

static size_t next_character(struct bytes text, size_t at)
{
    uint32_t codepoint;
    size_t length = at < text.len ? utf8_decode(bytes_from(text, at), &codepoint) : 0;
    return at + (length ? length : 1);
}

enum regex_step regex_scan_next(struct regex_scan *scan, size_t *begin, size_t *end, struct error *err)
{
    while (scan->from <= scan->text.len) {
        if (++scan->matches % MATCHES_PER_CLOCK == 0 && thread_seconds() - scan->seconds_at_open > SCAN_SECONDS_MAX)
            return fail(err, "splitting the text takes longer than %d s; shorten it", SCAN_SECONDS_MAX), REGEX_FAILED;
        int found = match(scan);
        if (found == PCRE2_ERROR_NOMATCH)
            return REGEX_END;
        if (found < 0) {
            char message[PCRE_MESSAGE_BYTES];
            pcre2_get_error_message(found, (PCRE2_UCHAR *)message, sizeof message);
            return fail(err, "a regex of the tokenizer gives up on this text (%s); shorten it", message), REGEX_FAILED;
        }
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(scan->data);
        if (range[0] == range[1] && range[1] == scan->last_end) {
            scan->from = next_character(scan->text, scan->from);
            continue;
        }
        *begin = range[0], *end = range[1];
        scan->from = scan->last_end = range[1];
        return REGEX_MATCH;
    }
    return REGEX_END;
}

bool regex_replace(struct regex_scan *scan, struct bytes text, struct bytes content, size_t bytes_max,
                   struct strbuf *out, struct error *err)
{
    regex_scan_start(scan, text);
    text = scan->text;
    size_t done = 0, begin, end;
    enum regex_step step;
    while ((step = regex_scan_next(scan, &begin, &end, err)) == REGEX_MATCH) {
        strbuf_add(out, text.data + done, begin - done);
        strbuf_add(out, content.data, content.len);
        done = end;
        if (out->len > bytes_max)
            return fail(err, "the tokenizer makes the text longer than %zu bytes", bytes_max);
    }
    strbuf_add(out, text.data + done, text.len - done);
    return step == REGEX_END;
}
