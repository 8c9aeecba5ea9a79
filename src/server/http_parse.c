// SPDX-License-Identifier: Apache-2.0
#include "server/http_parse.h"

// ---- words --------------------------------------------------------------------------------------------------------

static char lower(char byte) { return byte >= 'A' && byte <= 'Z' ? (char)(byte | 0x20) : byte; }

bool http_is_word(struct bytes text, const char *word)
{
    size_t i = 0;
    while (i < text.len && word[i] && lower(text.data[i]) == lower(word[i]))
        i++;
    return i == text.len && !word[i];
}

static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

static bool is_control(char byte) { return (unsigned char)byte < ' ' || byte == 0x7f; }

bool http_is_token_byte(char byte)
{
    return (lower(byte) >= 'a' && lower(byte) <= 'z') || is_digit(byte) || (byte && strchr("!#$%&'*+-.^_`|~", byte));
}

static bool is_token(struct bytes text)
{
    size_t i = 0;
    while (i < text.len && http_is_token_byte(text.data[i]))
        i++;
    return text.len && i == text.len;
}

// The text before the first `mark`; *rest is the text behind it. false: there is no mark.
static bool split(struct bytes text, char mark, struct bytes *first, struct bytes *rest)
{
    const char *at = text.len ? memchr(text.data, mark, text.len) : NULL;
    if (!at)
        return false;
    size_t length = (size_t)(at - text.data);
    *rest = bytes_from(text, length + 1);
    *first = (struct bytes){ text.data, length };
    return true;
}

static struct bytes trim(struct bytes text)
{
    while (text.len && (text.data[0] == ' ' || text.data[0] == '\t'))
        text = bytes_from(text, 1);
    while (text.len && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t'))
        text.len--;
    return text;
}

// ---- the request line ---------------------------------------------------------------------------------------------

static int parse_version(struct bytes text, struct http_head *head, struct error *err)
{
    if (text.len != 8 || memcmp(text.data, "HTTP/", 5) != 0 || !is_digit(text.data[5]) || text.data[6] != '.'
        || !is_digit(text.data[7]))
        return fail(err, "the request line does not end in a version like HTTP/1.1"), 400;
    if (text.data[5] != '1' || text.data[7] > '1')
        return fail(err, "HTTP version %.3s is not spoken here; use HTTP/1.1 or HTTP/1.0", text.data + 5), 505;
    head->minor = text.data[7] - '0';
    return 0;
}

// Parses the target: a path, or scheme, host and path as for a proxy, of which only the path is kept.
static int parse_target(struct bytes text, struct http_head *head, struct error *err)
{
    for (size_t i = 0; i < text.len; i++)
        if (is_control(text.data[i]) || (unsigned char)text.data[i] > 0x7f)
            return fail(err, "the request's path has a byte that must be percent-encoded"), 400;
    static const char *const schemes[] = { "http://", "https://" };
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t length = strlen(schemes[i]);
        if (text.len <= length || !http_is_word((struct bytes){ text.data, length }, schemes[i]))
            continue;
        text = bytes_from(text, length);
        while (text.len && text.data[0] != '/' && text.data[0] != '?')
            text = bytes_from(text, 1);
        if (!text.len || text.data[0] == '?')
            return head->path = bytes_of("/"), 0;
        break;
    }
    if (!text.len || text.data[0] != '/')
        return fail(err, "the request is not for a path; it must begin with /"), 400;
    if (!split(text, '?', &head->path, &head->query))
        head->path = text;
    return 0;
}

static int parse_request_line(struct bytes line, struct http_head *head, struct error *err)
{
    struct bytes method, target, rest;
    if (!split(line, ' ', &method, &rest) || !split(rest, ' ', &target, &rest) || !is_token(method))
        return fail(err, "the first line is not a request line like GET / HTTP/1.1"), 400;
    head->method = method;
    int status = parse_version(rest, head, err);
    return status ? status : parse_target(target, head, err);
}

// ---- header lines -------------------------------------------------------------------------------------------------

static int read_connection(struct bytes value, struct http_head *head, struct error *err)
{
    (void)err;
    struct bytes item;
    for (bool more = true; more;) {
        more = split(value, ',', &item, &value);
        if (!more)
            item = value;
        head->asks_close |= http_is_word(trim(item), "close");
        head->asks_keep_alive |= http_is_word(trim(item), "keep-alive");
    }
    return 0;
}

static int read_content_length(struct bytes value, struct http_head *head, struct error *err)
{
    uint64_t length = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (!is_digit(value.data[i]))
            return fail(err, "Content-Length is not a plain number"), 400;
        if (__builtin_mul_overflow(length, 10u, &length)
            || __builtin_add_overflow(length, (uint64_t)(value.data[i] - '0'), &length))
            return fail(err, "Content-Length is larger than any body"), 413;
    }
    if (!value.len)
        return fail(err, "Content-Length is empty"), 400;
    if (head->has_length && head->length != length)
        return fail(err, "Content-Length is given twice, with different numbers"), 400;
    head->has_length = true;
    head->length = length;
    return 0;
}

static int read_expect(struct bytes value, struct http_head *head, struct error *err)
{
    (void)err;
    head->expects_continue |= http_is_word(value, "100-continue");
    return 0;
}

static int read_host(struct bytes value, struct http_head *head, struct error *err)
{
    (void)value;
    if (head->has_host)
        return fail(err, "the header Host is given twice"), 400;
    head->has_host = true;
    return 0;
}

static int read_transfer_encoding(struct bytes value, struct http_head *head, struct error *err)
{
    if (head->chunked)
        return fail(err, "Transfer-Encoding is given twice"), 400;
    if (!http_is_word(value, "chunked"))
        return fail(err, "the body's Transfer-Encoding is not understood; only chunked is"), 501;
    head->chunked = true;
    return 0;
}

// Reads the headers that decide where a request ends and whether its connection is kept.
static const struct {
    const char *name;
    int (*read)(struct bytes value, struct http_head *head, struct error *err);
} known_fields[] = {
    { "connection", read_connection },
    { "content-length", read_content_length },
    { "expect", read_expect },
    { "host", read_host },
    { "transfer-encoding", read_transfer_encoding },
};

static int parse_field(struct bytes line, struct http_head *head, struct error *err)
{
    struct bytes name, value;
    if (line.data[0] == ' ' || line.data[0] == '\t')
        return fail(err, "a header continues on a second line, which HTTP no longer allows"), 400;
    if (!split(line, ':', &name, &value) || !is_token(name))
        return fail(err, "header line %d is not of the form Name: value", head->field_count + 1), 400;
    value = trim(value);
    for (size_t i = 0; i < value.len; i++)
        if (is_control(value.data[i]) && value.data[i] != '\t')
            return fail(err, "header line %d has a control byte in its value", head->field_count + 1), 400;
    if (head->field_count == HTTP_FIELDS_MAX)
        return fail(err, "the request has more than %d headers", HTTP_FIELDS_MAX), 431;
    head->fields[head->field_count++] = (struct http_field){ name, value };
    for (size_t i = 0; i < sizeof known_fields / sizeof *known_fields; i++)
        if (http_is_word(name, known_fields[i].name))
            return known_fields[i].read(value, head, err);
    return 0;
}

// Checks that need more than one header line.
static int check_fields(struct http_head *head, struct error *err)
{
    if (head->minor == 1 && !head->has_host)
        return fail(err, "the header Host is missing, which HTTP/1.1 requires"), 400;
    if (head->chunked && head->has_length)
        return fail(err, "Content-Length and Transfer-Encoding are both given; the body's end is unclear"), 400;
    if (head->chunked && head->minor == 0)
        return fail(err, "Transfer-Encoding is given in HTTP/1.0, which has none"), 400;
    head->keep_alive = !head->asks_close && (head->minor == 1 || head->asks_keep_alive);
    return 0;
}

// ---- the head -----------------------------------------------------------------------------------------------------

size_t http_head_length(struct bytes in, size_t *scanned)
{
    while (*scanned < in.len) {
        const char *found = memchr(in.data + *scanned, '\n', in.len - *scanned);
        *scanned = found ? (size_t)(found - in.data) : in.len;
        struct bytes rest = bytes_from(in, *scanned);
        if (rest.len >= 2 && rest.data[1] == '\n')
            return *scanned + 2;
        if (rest.len >= 3 && rest.data[1] == '\r' && rest.data[2] == '\n')
            return *scanned + 3;
        if (rest.len < 2 || (rest.len == 2 && rest.data[1] == '\r'))
            return 0; // the next byte decides
        ++*scanned;
    }
    return 0;
}

void http_head_clear(struct http_head *head)
{
    *head = (struct http_head){ .method = bytes_of(""), .path = bytes_of(""), .minor = 1 };
}

int http_parse_head(struct bytes in, struct http_head *head, struct error *err)
{
    http_head_clear(head);
    int status = 0;
    struct bytes line;
    for (int count = 0; !status && split(in, '\n', &line, &in); count++) {
        if (line.len && line.data[line.len - 1] == '\r')
            line.len--;
        if (count == 0)
            status = parse_request_line(line, head, err);
        else if (line.len)
            status = parse_field(line, head, err);
        else
            return check_fields(head, err);
    }
    return status ? status : (fail(err, "the request ends within its headers"), 400);
}

struct bytes http_head_field(const struct http_head *head, const char *name)
{
    for (int i = 0; i < head->field_count; i++)
        if (http_is_word(head->fields[i].name, name))
            return head->fields[i].value;
    return (struct bytes){ NULL, 0 };
}

// ---- chunks -------------------------------------------------------------------------------------------------------

enum { CHUNK_SIZE_BITS_MAX = 60 };

// Outside the sizes and the body's own bytes, each state waits for one mark.
static const struct chunk_rule {
    char mark;
    int next;  // behind the mark
    int skips; // where any other byte of a line leads, itself ignored; 0: none may stand here
    const char *bad;
} chunk_rules[] = {
#define BAD_SIZE "the size of a chunk of the body is not a hexadecimal number on its own line"
#define BAD_DATA "a chunk of the body is longer than its size says"
#define BAD_TRAILER "the lines behind the body's last chunk are not headers"
    [HTTP_CHUNK_EXTENSION] = { '\r', HTTP_CHUNK_SIZE_LF, HTTP_CHUNK_EXTENSION, BAD_SIZE },
    [HTTP_CHUNK_SIZE_LF] = { '\n', HTTP_CHUNK_DATA, 0, BAD_SIZE },
    [HTTP_CHUNK_DATA_CR] = { '\r', HTTP_CHUNK_DATA_LF, 0, BAD_DATA },
    [HTTP_CHUNK_DATA_LF] = { '\n', HTTP_CHUNK_SIZE, 0, BAD_DATA },
    [HTTP_CHUNK_TRAILER] = { '\r', HTTP_CHUNK_LAST_LF, HTTP_CHUNK_TRAILER_LINE, BAD_TRAILER },
    [HTTP_CHUNK_TRAILER_LINE] = { '\r', HTTP_CHUNK_TRAILER_LF, HTTP_CHUNK_TRAILER_LINE, BAD_TRAILER },
    [HTTP_CHUNK_TRAILER_LF] = { '\n', HTTP_CHUNK_TRAILER, 0, BAD_TRAILER },
    [HTTP_CHUNK_LAST_LF] = { '\n', HTTP_CHUNKS_DONE, 0, BAD_TRAILER },
};

static const char *take_size_byte(struct http_chunks *chunks, char byte)
{
    int digit = bytes_hex_digit(byte);
    if (digit < 0 && (chunks->line_bytes == 1 || (byte != ';' && byte != '\r')))
        return BAD_SIZE;
    if (digit < 0)
        return chunks->state = byte == ';' ? HTTP_CHUNK_EXTENSION : HTTP_CHUNK_SIZE_LF, NULL;
    if (chunks->left >> (CHUNK_SIZE_BITS_MAX - 4))
        return "a chunk of the body is larger than any body";
    chunks->left = chunks->left * 16 + (uint64_t)digit;
    return NULL;
}

// Takes a byte of the framing. NULL, or why it is not allowed here.
static const char *take_byte(struct http_chunks *chunks, char byte)
{
    bool in_trailer = chunks->state >= HTTP_CHUNK_TRAILER;
    if (++chunks->line_bytes > (in_trailer ? HTTP_TRAILER_BYTES_MAX : HTTP_CHUNK_LINE_BYTES_MAX))
        return in_trailer ? "the lines behind the body's last chunk are too long"
                          : "the size line of a chunk of the body is too long";
    if (chunks->state == HTTP_CHUNK_SIZE)
        return take_size_byte(chunks, byte);
    const struct chunk_rule *rule = &chunk_rules[chunks->state];
    if (byte != rule->mark) {
        chunks->state = rule->skips;
        return !rule->skips || (is_control(byte) && byte != '\t') ? rule->bad : NULL;
    }
    chunks->state = rule->next;
    if (byte == '\n' && !in_trailer)
        chunks->line_bytes = 0;
    if (chunks->state == HTTP_CHUNK_DATA && !chunks->left)
        chunks->state = HTTP_CHUNK_TRAILER;
    return NULL;
}

int http_chunks_read(struct http_chunks *chunks, struct bytes *in, struct bytes *data, struct error *err)
{
    *data = (struct bytes){ in->data, 0 };
    while (in->len && chunks->state != HTTP_CHUNKS_DONE) {
        if (chunks->state == HTTP_CHUNK_DATA) {
            *data = (struct bytes){ in->data, chunks->left < in->len ? (size_t)chunks->left : in->len };
            *in = bytes_from(*in, data->len);
            chunks->left -= data->len;
            if (!chunks->left)
                chunks->state = HTTP_CHUNK_DATA_CR;
            return 0;
        }
        const char *bad = take_byte(chunks, in->data[0]);
        if (bad)
            return fail(err, "%s", bad), 400;
        *in = bytes_from(*in, 1);
    }
    return 0;
}

// ---- URLs ---------------------------------------------------------------------------------------------------------

static void add_unescaped(struct strbuf *out, struct bytes text, bool plus_is_space)
{
    for (size_t i = 0; i < text.len; i++) {
        bool escaped = text.data[i] == '%' && i + 2 < text.len && bytes_hex_digit(text.data[i + 1]) >= 0
            && bytes_hex_digit(text.data[i + 2]) >= 0;
        int code = escaped ? bytes_hex_digit(text.data[i + 1]) * 16 + bytes_hex_digit(text.data[i + 2]) : text.data[i];
        strbuf_add_byte(out, !escaped && plus_is_space && code == '+' ? ' ' : (char)code);
        i += escaped ? 2 : 0;
    }
}

void http_add_unescaped(struct strbuf *out, struct bytes text) { add_unescaped(out, text, false); }

// Takes what is before the first `mark`, or all of it, off the front of *text.
static struct bytes take_until(struct bytes *text, char mark)
{
    struct bytes taken = *text;
    if (!split(*text, mark, &taken, text))
        *text = (struct bytes){ 0 };
    return taken;
}

bool http_query_next(struct bytes *query, struct strbuf *name, struct strbuf *value)
{
    struct bytes pair = { 0 };
    while (!pair.len && query->len)
        pair = take_until(query, '&');
    if (!pair.len)
        return false;
    struct bytes key = take_until(&pair, '=');
    name->len = value->len = 0;
    add_unescaped(name, key, true);
    add_unescaped(value, pair, true);
    return true;
}
