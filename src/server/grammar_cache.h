// SPDX-License-Identifier: Apache-2.0
// server/grammar_cache.h: an LRU cache of compiled grammars. Agents send the same tools and schemas with each request:
// equal ones are compiled once, and their answers share token masks. Entries are found by the SHA-256 of the kind and
// the canonical text of what was compiled, and bounded in bytes, apart from the budget for requests.
#ifndef SERVER_GRAMMAR_CACHE_H
#define SERVER_GRAMMAR_CACHE_H

#include "server/api.h"
#include "text/tools.h"

enum { GRAMMAR_CACHE_BYTES = 64 << 20, GRAMMAR_CACHE_ENTRIES = 256 };

struct grammar_cache;
struct grammar_cache *grammar_cache_open(size_t bytes_max);
void grammar_cache_close(struct grammar_cache *cache);

uint64_t grammar_cache_compiled(struct grammar_cache *cache); // how many had to be, so far

// A source to compile: JSON (a schema, a structural tag, a list of tools) or a text (a pattern, a grammar).
struct grammar_source {
    enum { GRAMMAR_SCHEMA, GRAMMAR_COMPACT_SCHEMA, GRAMMAR_PATTERN, GRAMMAR_TEXT, GRAMMAR_TAG, GRAMMAR_TOOLS } kind;
    const json_t *json;
    struct bytes text;
    const struct tool_form *form; // of tools, and the next
    const struct tools_choice *choice;
};

// A reference, to be released with grammar_free; NULL with a sentence. Without a cache (api->grammars is NULL) it is
// compiled.
struct grammar *grammar_cache_get(const struct api *api, const struct grammar_source *source, struct error *err);

#endif
