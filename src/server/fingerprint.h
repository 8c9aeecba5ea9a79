// SPDX-License-Identifier: Apache-2.0
// server/fingerprint.h: OpenAI's system_fingerprint: a hash of the checkpoint, the plan and the build. Where it is the
// same, a request with a seed has the same answer.
#ifndef SERVER_FINGERPRINT_H
#define SERVER_FINGERPRINT_H

#include "base/bytes.h"
#include "format/checkpoint.h"

// Writes "fp_" and 16 hexadecimal digits. `plan` is the plan as JSON; of the weights only samples are read.
void fingerprint_print(const struct checkpoint *checkpoint, struct bytes plan, char *out, size_t size);

#endif
