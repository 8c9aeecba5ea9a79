// SPDX-License-Identifier: Apache-2.0
// base/sha256.h: SHA-256 of one run of bytes. libcrypto's own function of that name allocates, and where that fails it
// leaves the digest as it was; this one needs no memory and cannot fail.
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include "base/bytes.h"

enum { SHA256_BYTES = 32 };

void sha256_of(struct bytes in, uint8_t out[SHA256_BYTES]);

#endif
