// SPDX-License-Identifier: Apache-2.0
// server/request_id.h: request ids (X-Request-Id), by which a client and the log refer to a request.
#ifndef SERVER_REQUEST_ID_H
#define SERVER_REQUEST_ID_H

#include "base/bytes.h"

enum { REQUEST_ID_BYTES_MAX = 128, REQUEST_ID_RANDOM_DIGITS = 32 };

// A name that stays what it is in a header, a log line and JSON: letters, digits and -_.:/+=@, not too many of them.
bool request_id_is_sane(struct bytes id);

// Hexadecimal digits that are a name and no secret.
void request_id_random(char digits[REQUEST_ID_RANDOM_DIGITS + 1]);

#endif
