// SPDX-License-Identifier: Apache-2.0
// server/query.h: the query of a URL (application/x-www-form-urlencoded), and percent-encoding.
#ifndef SERVER_QUERY_H
#define SERVER_QUERY_H

#include "base/strbuf.h"

// Decodes percent-encoding in a path: %2F is a slash.
void query_add_unescaped(struct strbuf *out, struct bytes text);

// Takes the next NAME=VALUE off the front of *query, decoded. False: there is none.
bool query_next(struct bytes *query, struct strbuf *name, struct strbuf *value);

#endif
