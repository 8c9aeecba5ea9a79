// SPDX-License-Identifier: Apache-2.0
#include "engine/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/strbuf.h"

enum { PREAMBLE_BYTES = 10, ALIGNMENT = 64 };

// The magic word, the version, the length of the rest as two bytes, and a Python dictionary, padded so that the values
// are aligned. A tuple of one element ends in a comma, and longer ones may.
static void add_header(struct strbuf *out, const int *shape, int dimensions)
{
    struct strbuf text = { 0 };
    strbuf_add_format(&text, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < dimensions; i++)
        strbuf_add_format(&text, "%d, ", shape[i]);
    strbuf_add_format(&text, ")}");
    while ((PREAMBLE_BYTES + text.len + 1) % ALIGNMENT)
        strbuf_add_format(&text, " ");
    strbuf_add_format(&text, "\n");
    const char preamble[PREAMBLE_BYTES] = {
        '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(text.len & 255), (char)(text.len >> 8)
    };
    strbuf_add(out, preamble, sizeof preamble);
    strbuf_add(out, text.data, text.len);
    strbuf_free(&text);
}

bool npy_write(const char *path, const float *values, const int *shape, int dimensions, struct error *err)
{
    struct strbuf header = { 0 };
    size_t count = 1;
    for (int i = 0; i < dimensions; i++)
        count *= (size_t)shape[i];
    add_header(&header, shape, dimensions);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok = fd >= 0 || fail(err, "%s cannot be written: %s", path, strerror(errno));
    ok = ok && file_write_at(fd, 0, header.data, header.len, path, err)
        && file_write_at(fd, header.len, values, count * sizeof *values, path, err);
    if (fd >= 0 && close(fd) && ok)
        ok = fail(err, "%s cannot be written: %s", path, strerror(errno));
    strbuf_free(&header);
    return ok;
}
