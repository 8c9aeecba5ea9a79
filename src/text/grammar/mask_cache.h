// SPDX-License-Identifier: Apache-2.0
// text/grammar/mask_cache.h: token masks of a grammar by the state of the matcher that asked, least recently used out
// first. The answers of one request are often in the same state, and most steps of one answer are inside some string:
// a mask is computed once, by whichever thread comes first; others that need it meanwhile wait for it.
#ifndef TEXT_GRAMMAR_MASK_CACHE_H
#define TEXT_GRAMMAR_MASK_CACHE_H

#include "base/strbuf.h"

#include <stdint.h>

enum { MASK_CACHE_MAX = 128 }; // masks: an answer of a few hundred tokens has so many states

struct mask_cache;
struct mask_cache *mask_cache_open(void);
void mask_cache_close(struct mask_cache *cache);

// True: *mask, of `words` words, has been restricted to what was computed for this state. False: it is for the caller
// to compute, and to put unless *slot is -1.
bool mask_cache_apply(struct mask_cache *cache, struct bytes state, uint32_t *mask, size_t words, int *slot);
void mask_cache_put(struct mask_cache *cache, int slot, const uint32_t *allowed, size_t words);

uint64_t mask_cache_computed(struct mask_cache *cache); // how many had to be, so far

#endif
