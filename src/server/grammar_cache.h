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

// Each returns a reference, to be released with grammar_free; NULL with a sentence. Without a cache (api->grammars is
// NULL) they compile.
struct grammar *grammar_cache_schema(const struct api *api, const json_t *schema, bool compact, struct error *err);
struct grammar *grammar_cache_pattern(const struct api *api, struct bytes pattern, struct error *err);
struct grammar *grammar_cache_text(const struct api *api, struct bytes text, struct error *err);
struct grammar *grammar_cache_tag(const struct api *api, const json_t *tag, struct error *err);
struct grammar *grammar_cache_tools(const struct api *api, const struct tool_form *form, const json_t *tools,
                                    const struct tools_choice *choice, struct error *err);

#endif
