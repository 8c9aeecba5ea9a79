// SPDX-License-Identifier: Apache-2.0
// Stop strings by Knuth-Morris-Pratt, one search per string, fed byte by byte.
#include "text/stop.h"

#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"

// One search: no byte of the text is read twice.
struct stop_search {
    struct bytes string;
    uint16_t *borders; // [n]: the longest proper prefix that also ends the first n + 1 bytes
    size_t matched;    // the longest prefix that the text ends in
};

static_assert(STOP_BYTES_MAX <= UINT16_MAX, "a border fits its type");

static size_t extend(const struct stop_search *search, size_t matched, char byte)
{
    while (matched && search->string.data[matched] != byte)
        matched = search->borders[matched - 1];
    return matched + (search->string.data[matched] == byte);
}

static void prepare(struct stop *stop)
{
    stop->searches = memory_new((size_t)stop->count, sizeof *stop->searches);
    for (int i = 0; i < stop->count; i++) {
        struct stop_search *search = &stop->searches[i];
        search->string = stop->strings[i];
        assert(search->string.len > 0 && search->string.len <= STOP_BYTES_MAX);
        search->borders = memory_new(search->string.len, sizeof *search->borders);
        for (size_t n = 1; n < search->string.len; n++)
            search->borders[n] = (uint16_t)extend(search, search->borders[n - 1], search->string.data[n]);
    }
}

// The string that ends with this byte, or -1; *open: how many bytes at the end may begin one.
static int search_byte(struct stop *stop, char byte, size_t *open)
{
    int hit = -1;
    *open = 0;
    for (int i = 0; i < stop->count; i++) {
        struct stop_search *search = &stop->searches[i];
        search->matched = extend(search, search->matched, byte);
        if (search->matched > *open)
            *open = search->matched;
        if (search->matched == search->string.len && (hit < 0 || search->string.len > stop->strings[hit].len))
            hit = i;
    }
    return hit;
}

// Emits the held text up to `end`. Emitted bytes leave the buffer when they are half of it or more, so that each byte
// is moved once on average.
static void emit(struct stop *stop, size_t end, struct strbuf *out)
{
    strbuf_add(out, stop->held.data + stop->emitted, end - stop->emitted);
    stop->emitted = end;
    if (stop->emitted * 2 >= stop->held.len) {
        stop->held.len -= stop->emitted;
        memmove(stop->held.data, stop->held.data + stop->emitted, stop->held.len);
        stop->emitted = 0;
    }
}

int stop_add(struct stop *stop, struct bytes piece, struct strbuf *out)
{
    if (!stop->count || !piece.len) {
        strbuf_add(out, piece.data, piece.len);
        return -1;
    }
    if (!stop->searches)
        prepare(stop);
    size_t open = 0;
    for (size_t i = 0; i < piece.len; i++) {
        strbuf_add_byte(&stop->held, piece.data[i]);
        int hit = search_byte(stop, piece.data[i], &open);
        if (hit >= 0) {
            emit(stop, stop->held.len - (stop->include ? 0 : stop->strings[hit].len), out);
            stop_free(stop);
            return hit;
        }
    }
    emit(stop, stop->held.len - open, out);
    return -1;
}

void stop_finish(struct stop *stop, struct strbuf *out)
{
    if (stop->held.len)
        emit(stop, stop->held.len, out);
    stop_free(stop);
}

void stop_free(struct stop *stop)
{
    for (int i = 0; stop->searches && i < stop->count; i++)
        free(stop->searches[i].borders);
    free(stop->searches);
    stop->searches = NULL;
    strbuf_free(&stop->held);
    stop->emitted = 0;
}
