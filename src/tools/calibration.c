// SPDX-License-Identifier: Apache-2.0
#include "tools/calibration.h"

#include <stdlib.h>

#include "cli/cli.h"

ptrdiff_t calibration_ids(const struct nibble_checkpoint *checkpoint, const char *path, int32_t **ids,
                          struct error *err)
{
    struct nibble_text file = { 0 };
    struct nibble_tokenizer *tokenizer = nibble_tokenizer_open(checkpoint, err);
    ptrdiff_t count = -1;
    if (tokenizer && (!path || cli_read(path, &file, err))) {
        size_t len = file.len;
        const char *text = path ? file.data : nibble_calibration_text(&len);
        count = nibble_tokenize(tokenizer, text, len, NIBBLE_ADD_SPECIAL, ids, err);
    }
    if (!count) {
        fail(err, "%s holds no text to measure the model with", path);
        count = -1;
    }
    free(file.data);
    nibble_tokenizer_close(tokenizer);
    return count;
}
