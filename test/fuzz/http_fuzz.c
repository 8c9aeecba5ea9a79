// SPDX-License-Identifier: Apache-2.0
// Bytes are a request: a head, and behind it a body in chunks; or a compressed body. Byte by byte or at once, they must
// mean the same.
#include <assert.h>

#include "base/strbuf.h"
#include "server/http_content.h"
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

enum { CONTENT_BYTES_MAX = 4096, BUDGET_BYTES = 64 << 20 };

// The status, with the content that was decoded; a charge must not be left.
static int decode(const struct http_head *head, struct bytes in, size_t step, struct strbuf *out)
{
    struct budget budget;
    struct http_content content;
    struct error err;
    budget_open(&budget, BUDGET_BYTES);
    const struct http_limits limits = { .body_bytes = CONTENT_BYTES_MAX, .budget = &budget };
    int status = http_content_open(&content, head, &limits, &err);
    for (size_t at = 0; at < in.len && !status; at += step) {
        size_t len = in.len - at < step ? in.len - at : step;
        status = http_content_add(&content, (struct bytes){ in.data + at, len }, &err);
    }
    if (!status)
        status = http_content_end(&content, &err);
    assert(status || content.data.len <= CONTENT_BYTES_MAX);
    if (!status)
        strbuf_add(out, content.data.data, content.data.len);
    http_content_free(&content);
    assert(budget_used(&budget) == 0);
    return status;
}

static void read_compressed(const char *coding, struct bytes in)
{
    struct http_head head;
    struct strbuf whole = { 0 }, pieces = { 0 };
    http_head_clear(&head);
    head.chunked = true;
    head.fields[head.field_count++] = (struct http_field){ bytes_of("Content-Encoding"), bytes_of(coding) };
    int status = decode(&head, in, in.len ? in.len : 1, &whole);
    int other = decode(&head, in, 1, &pieces);
    // libzstd compares the announced size with the true one only where it has the whole frame at once.
    assert(!status == !other || !strcmp(coding, "zstd"));
    assert(status || other || bytes_equal(strbuf_bytes(&whole), strbuf_bytes(&pieces)));
    strbuf_free(&whole);
    strbuf_free(&pieces);
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
    read_compressed("gzip", in);
    read_compressed("zstd", in);
    return 0;
}
