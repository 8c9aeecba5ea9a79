// SPDX-License-Identifier: Apache-2.0
// Bytes are a request: a head, and behind it a body in chunks. Byte by byte or at once, they must mean the same.
#include <assert.h>

#include "base/strbuf.h"
#include "server/http_parse.h"

static size_t find_end(struct bytes in, size_t step)
{
    size_t scanned = 0, length = 0;
    for (size_t len = 0; len < in.len && !length;) {
        len = in.len - len < step ? in.len : len + step;
        length = http_head_length((struct bytes){ in.data, len }, &scanned);
    }
    return length;
}

// The status, and how many bytes were taken. (A refused byte is not taken.)
static int read_body(struct bytes in, size_t step, struct strbuf *body, size_t *taken)
{
    struct http_chunks chunks = { 0 };
    struct error err;
    int status = 0;
    *taken = 0;
    while (*taken < in.len && !status && chunks.state != HTTP_CHUNKS_DONE) {
        size_t len = in.len - *taken < step ? in.len - *taken : step;
        struct bytes piece = { in.data + *taken, len }, data;
        status = http_chunks_read(&chunks, &piece, &data, &err);
        if (!status)
            strbuf_add(body, data.data, data.len);
        *taken += len - piece.len;
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = { (const char *)data, size };
    size_t length = find_end(in, size ? size : 1);
    assert(length == find_end(in, 1));
    struct http_head head;
    struct error err;
    if (http_parse_head((struct bytes){ in.data, length ? length : in.len }, &head, &err) == 0)
        assert(length && head.method.len && head.path.len && head.field_count <= HTTP_FIELDS_MAX);

    struct bytes rest = { in.data + length, in.len - length };
    struct strbuf whole = { 0 }, pieces = { 0 };
    size_t whole_taken, pieces_taken;
    int status = read_body(rest, rest.len ? rest.len : 1, &whole, &whole_taken);
    assert(read_body(rest, 1, &pieces, &pieces_taken) == status && pieces_taken == whole_taken);
    assert(bytes_equal(strbuf_bytes(&whole), strbuf_bytes(&pieces)));
    strbuf_free(&whole);
    strbuf_free(&pieces);
    return 0;
}
