// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#define OPENSSL_SUPPRESS_DEPRECATED // the EVP interface allocates on every use
#include <openssl/sha.h>

_Static_assert(SHA256_BYTES == SHA256_DIGEST_LENGTH, "a digest has its own length");

void sha256_of(struct bytes in, uint8_t out[SHA256_BYTES])
{
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, in.data, in.len);
    SHA256_Final(out, &context);
}
