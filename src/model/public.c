// SPDX-License-Identifier: Apache-2.0
// model/public.c: nibble_quantize.
#include "base/public.h"
#include "format/public.h"
#include "model/quantize/quantize.h"

bool nibble_quantize(const struct nibble_checkpoint *checkpoint, const char *folder,
                     const struct nibble_quantize_options *options, struct nibble_error *error)
{
    struct error err = { 0 };
    bool ok = quantize(&checkpoint->checkpoint, folder, options, &err);
    if (!ok)
        public_error(error, &err);
    return ok;
}
