// SPDX-License-Identifier: Apache-2.0
// base/sha256.h: SHA-256 of a byte slice. libcrypto's SHA256() allocates, and on failure leaves the digest unset; this
// function needs no memory and cannot fail.
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include "base/bytes.h"

enum { SHA256_BYTES = 32 };

void sha256_of(struct bytes in, uint8_t out[SHA256_BYTES]);

#endif
