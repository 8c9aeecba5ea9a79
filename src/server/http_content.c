// SPDX-License-Identifier: Apache-2.0
#include "server/http_content.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/memory.h"

enum {
    ROOM_BYTES = 16 << 10,      // free at least, before anything is decoded
    GZIP_WINDOW_BITS = 15 + 16, // the largest window; + 16: a gzip header and no other
    GZIP_STATE_BYTES = 44 << 10,
    ZSTD_WINDOW_LOG_MAX = 23, // 8 MiB, what RFC 8878 asks every decoder to support
};

struct http_coding {
    const char *name;
    int (*decode)(struct http_content *content, struct bytes body, struct error *err);
    void (*close)(void *decoder);
};

// ---- memory -------------------------------------------------------------------------------------------------------

static int charge(struct http_content *content, size_t bytes, struct error *err)
{
    if (content->budget && !budget_take(content->budget, bytes))
        return fail(err,
                    "requests in flight hold all of the %zu bytes that this server has for them; try again in a "
                    "moment",
                    content->budget->limit_bytes),
               429;
    content->charged_bytes += bytes;
    return 0;
}

static void give_back(struct http_content *content, size_t bytes)
{
    if (content->budget)
        budget_give_back(content->budget, bytes);
    content->charged_bytes -= bytes;
}

// Makes room for so many bytes more. Content may grow to one byte above its limit, which shows that it is too long.
static int reserve(struct http_content *content, size_t more, struct error *err)
{
    struct strbuf *data = &content->data;
    size_t most = content->bytes_max + 2; // the byte too many and the terminator
    size_t need = more < most - data->len - 1 ? data->len + more + 1 : most;
    if (need <= data->cap)
        return 0;
    size_t doubled = 2 * data->cap < most ? 2 * data->cap : most;
    size_t cap = need > doubled ? need : doubled;
    int status = charge(content, cap - data->cap, err);
    if (status)
        return status;
    data->data = memory_grow(data->data, cap, 1);
    data->cap = cap;
    return 0;
}

// Free space; no more than zlib's counters hold.
static struct bytes room(const struct http_content *content)
{
    const struct strbuf *data = &content->data;
    size_t bytes = data->cap - data->len - 1;
    return (struct bytes){ data->data + data->len, bytes < INT_MAX ? bytes : INT_MAX };
}

// Called when so many bytes were written to the free space.
static int grown(struct http_content *content, size_t count, struct error *err)
{
    struct strbuf *data = &content->data;
    data->len += count;
    data->data[data->len] = '\0';
    return data->len <= content->bytes_max
        ? 0
        : (fail(err, "the body has more than the %zu bytes that are taken", content->bytes_max), 413);
}

static void close_decoder(struct http_content *content)
{
    if (!content->decoder)
        return;
    content->coding->close(content->decoder);
    content->decoder = NULL;
    give_back(content, content->decoder_bytes);
    content->decoder_bytes = 0;
}

static int charge_decoder(struct http_content *content, size_t bytes, struct error *err)
{
    size_t more = bytes > content->decoder_bytes ? bytes - content->decoder_bytes : 0;
    int status = charge(content, more, err);
    content->decoder_bytes += status ? 0 : more;
    return status;
}

// ---- gzip ---------------------------------------------------------------------------------------------------------

static void *gzip_new(void *context, unsigned count, unsigned size)
{
    (void)context;
    return memory_new(count, size);
}

static void gzip_free(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static void close_gzip(void *decoder)
{
    inflateEnd(decoder);
    free(decoder);
}

static int open_gzip(struct http_content *content, struct error *err)
{
    int status = charge_decoder(content, GZIP_STATE_BYTES, err);
    if (status)
        return status;
    z_stream *stream = memory_new(1, sizeof *stream);
    *stream = (z_stream){ .zalloc = gzip_new, .zfree = gzip_free };
    int opened = inflateInit2(stream, GZIP_WINDOW_BITS);
    assert(opened == Z_OK); // memory does not fail, and the library is the one of the header
    (void)opened;
    content->decoder = stream;
    return 0;
}

// Several compressed members, one behind the other, are one (RFC 1952, section 2.2).
static int decode_gzip(struct http_content *content, struct bytes body, struct error *err)
{
    int status = content->decoder ? 0 : open_gzip(content, err);
    z_stream *stream = content->decoder;
    while (!status) {
        if ((status = reserve(content, ROOM_BYTES, err)))
            break;
        struct bytes out = room(content);
        stream->next_in = (unsigned char *)body.data;
        stream->avail_in = (unsigned)body.len;
        stream->next_out = (unsigned char *)out.data;
        stream->avail_out = (unsigned)out.len;
        if (content->ended)
            inflateReset(stream);
        int result = inflate(stream, Z_NO_FLUSH);
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            return fail(err, "the body is not what its Content-Encoding says: gzip cannot read it"), 400;
        content->ended = result == Z_STREAM_END;
        body = (struct bytes){ body.data + body.len - stream->avail_in, stream->avail_in };
        bool full = !stream->avail_out;
        status = grown(content, out.len - stream->avail_out, err);
        if (!body.len && (!full || content->ended))
            break;
    }
    return status;
}

// ---- zstd ---------------------------------------------------------------------------------------------------------

static void close_zstd(void *decoder) { ZSTD_freeDStream(decoder); }

static int fail_zstd(size_t result, struct error *err)
{
    switch (ZSTD_getErrorCode(result)) {
    case ZSTD_error_memory_allocation:
        return fail(err, "there is no memory to decompress the body; try again in a moment"), 503;
    case ZSTD_error_frameParameter_windowTooLarge:
        return fail(err, "the body needs a zstd window above %d MiB; compress it without --long or --ultra",
                    1 << (ZSTD_WINDOW_LOG_MAX - 20)),
               400;
    default: return fail(err, "the body is not what its Content-Encoding says: zstd cannot read it"), 400;
    }
}

static int open_zstd(struct http_content *content, struct error *err)
{
    content->decoder = ZSTD_createDStream();
    if (!content->decoder)
        return fail(err, "there is no memory to decompress the body; try again in a moment"), 503;
    ZSTD_DCtx_setParameter(content->decoder, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    return 0;
}

static int decode_zstd(struct http_content *content, struct bytes body, struct error *err)
{
    int status = content->decoder ? 0 : open_zstd(content, err);
    ZSTD_inBuffer in = { body.data, body.len, 0 };
    while (!status) {
        if ((status = reserve(content, ROOM_BYTES, err)))
            break;
        struct bytes space = room(content);
        ZSTD_outBuffer out = { (void *)space.data, space.len, 0 };
        size_t result = ZSTD_decompressStream(content->decoder, &out, &in);
        if (ZSTD_isError(result))
            return fail_zstd(result, err);
        content->ended = result == 0;
        status = grown(content, out.pos, err);
        if (!status) // the window is allocated when its size has been read
            status = charge_decoder(content, ZSTD_sizeof_DStream(content->decoder), err);
        if (in.pos == in.size && (out.pos < out.size || content->ended))
            break;
    }
    return status;
}

static const struct http_coding codings[] = {
    { "gzip", decode_gzip, close_gzip },
    { "x-gzip", decode_gzip, close_gzip },
    { "zstd", decode_zstd, close_zstd },
};

// ---- all of them --------------------------------------------------------------------------------------------------

static int find_coding(struct http_content *content, const struct http_head *head, struct error *err)
{
    struct bytes name = http_head_field(head, "Content-Encoding");
    if (!name.data || !name.len || http_is_word(name, "identity"))
        return 0;
    for (size_t i = 0; i < sizeof codings / sizeof *codings && !content->coding; i++)
        if (http_is_word(name, codings[i].name))
            content->coding = &codings[i];
    return content->coding ? 0
                           : (fail(err,
                                   "the body's Content-Encoding is not understood; send it as it is, or with one "
                                   "of " HTTP_CODINGS),
                              415);
}

int http_content_open(struct http_content *content, const struct http_head *head, const struct http_limits *limits,
                      struct error *err)
{
    *content = (struct http_content){ .bytes_max = limits->body_bytes, .budget = limits->budget };
    int status = find_coding(content, head, err);
    if (status)
        return status;
    if (head->length > limits->body_bytes)
        return fail(err, "the body has %llu bytes; at most %zu are taken", (unsigned long long)head->length,
                    limits->body_bytes),
               413;
    if (!content->coding && head->has_length)
        content->bytes_max = (size_t)head->length;
    // The charge is given back at once: a body that is announced and never sent must not keep others out.
    size_t announced = head->length ? (size_t)head->length : 1;
    status = charge(content, announced, err);
    if (!status)
        give_back(content, announced);
    return status;
}

int http_content_add(struct http_content *content, struct bytes body, struct error *err)
{
    if (!body.len)
        return 0;
    if (content->coding)
        return content->coding->decode(content, body, err);
    if (body.len > content->bytes_max - content->data.len)
        return fail(err, "the body has more than the %zu bytes that are taken", content->bytes_max), 413;
    int status = reserve(content, body.len, err);
    if (!status)
        strbuf_add(&content->data, body.data, body.len);
    return status;
}

int http_content_end(struct http_content *content, struct error *err)
{
    close_decoder(content);
    return !content->coding || content->ended || !content->data.cap
        ? 0
        : (fail(err, "the compressed body ends in the middle; send all of it"), 400);
}

void http_content_free(struct http_content *content)
{
    close_decoder(content);
    give_back(content, content->charged_bytes);
    strbuf_free(&content->data);
}
