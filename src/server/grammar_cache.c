// SPDX-License-Identifier: Apache-2.0
#include "server/grammar_cache.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/sha256.h"

struct entry {
    uint8_t key[SHA256_BYTES];
    struct grammar *grammar; // NULL: free
    size_t bytes;
    uint64_t used; // the tick of its last use
};

struct grammar_cache {
    pthread_mutex_t lock;
    struct entry entries[GRAMMAR_CACHE_ENTRIES];
    size_t bytes, bytes_max;
    uint64_t tick, compiled;
};

struct grammar_cache *grammar_cache_open(size_t bytes_max)
{
    struct grammar_cache *cache = memory_new(1, sizeof *cache);
    pthread_mutex_init(&cache->lock, NULL);
    cache->bytes_max = bytes_max;
    return cache;
}

static void drop(struct grammar_cache *cache, struct entry *entry)
{
    grammar_free(entry->grammar);
    cache->bytes -= entry->bytes;
    *entry = (struct entry){ 0 };
}

void grammar_cache_close(struct grammar_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
        drop(cache, &cache->entries[i]);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

uint64_t grammar_cache_compiled(struct grammar_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t compiled = cache->compiled;
    pthread_mutex_unlock(&cache->lock);
    return compiled;
}

// ---- entries, under the lock ---------------------------------------------------------------------------------------

static struct grammar *find(struct grammar_cache *cache, const uint8_t *key)
{
    for (size_t i = 0; i < GRAMMAR_CACHE_ENTRIES; i++) {
        struct entry *entry = &cache->entries[i];
        if (!entry->grammar || memcmp(entry->key, key, SHA256_BYTES) != 0)
            continue;
        entry->used = ++cache->tick;
        return grammar_share(entry->grammar);
    }
    return NULL;
}

static struct entry *oldest(struct grammar_cache *cache)
{
    struct entry *oldest = NULL;
    for (size_t i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
        if (cache->entries[i].grammar && (!oldest || cache->entries[i].used < oldest->used))
            oldest = &cache->entries[i];
    return oldest;
}

static struct entry *free_entry(struct grammar_cache *cache)
{
    for (size_t i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
        if (!cache->entries[i].grammar)
            return &cache->entries[i];
    drop(cache, oldest(cache));
    return free_entry(cache);
}

// A grammar that is larger than the cache is not kept.
static void keep(struct grammar_cache *cache, const uint8_t *key, struct grammar *grammar, size_t bytes)
{
    if (bytes > cache->bytes_max)
        return;
    while (cache->bytes + bytes > cache->bytes_max)
        drop(cache, oldest(cache));
    struct entry *entry = free_entry(cache);
    *entry = (struct entry){ .grammar = grammar_share(grammar), .bytes = bytes, .used = ++cache->tick };
    memcpy(entry->key, key, SHA256_BYTES);
    cache->bytes += bytes;
}

// ---- all of it -----------------------------------------------------------------------------------------------------

static struct grammar *compile(const struct grammar_source *source, struct error *err)
{
    switch (source->kind) {
    case GRAMMAR_SCHEMA: return grammar_from_schema(source->json, err);
    case GRAMMAR_COMPACT_SCHEMA: return grammar_from_compact_schema(source->json, err);
    case GRAMMAR_PATTERN: return grammar_from_pattern(source->text, err);
    case GRAMMAR_TEXT: return grammar_from_text(source->text, err);
    case GRAMMAR_TAG: return grammar_from_structural_tag(source->json, err);
    default: return tools_grammar(source->form, source->json, source->choice, err);
    }
}

static int add_dumped(const char *data, size_t len, void *out)
{
    strbuf_add(out, data, len);
    return 0;
}

// The order of an object's members is kept: it is the order in which an answer writes them.
static void add_json(const json_t *value, struct strbuf *out)
{
    if (value)
        json_dump_callback(value, add_dumped, out, JSON_COMPACT | JSON_ENCODE_ANY);
    strbuf_add_byte(out, '\0'); // JSON text has none
}

static void find_key(const struct grammar_source *source, uint8_t out[SHA256_BYTES])
{
    struct strbuf text = { 0 };
    strbuf_add_byte(&text, (char)source->kind);
    add_json(source->json, &text);
    if (source->choice) {
        strbuf_add_format(&text, "%s %d ", tools_form_name(source->form), source->choice->parallel);
        add_json(source->choice->otherwise, &text);
        if (source->choice->name)
            strbuf_add_format(&text, "=%s", source->choice->name);
    }
    strbuf_add(&text, source->text.data, source->text.len);
    sha256_of(strbuf_bytes(&text), out);
    strbuf_free(&text);
}

// Two threads may compile the same at once; the first one's is kept.
struct grammar *grammar_cache_get(const struct api *api, const struct grammar_source *source, struct error *err)
{
    struct grammar_cache *cache = api->grammars;
    uint8_t key[SHA256_BYTES];
    if (!cache)
        return compile(source, err);
    find_key(source, key);
    pthread_mutex_lock(&cache->lock);
    struct grammar *found = find(cache, key);
    pthread_mutex_unlock(&cache->lock);
    if (found)
        return found;
    struct grammar *made = compile(source, err);
    pthread_mutex_lock(&cache->lock);
    cache->compiled++;
    found = made ? find(cache, key) : NULL;
    if (made && !found)
        keep(cache, key, made, grammar_bytes(made, tokenizer_size(api->tokenizer)));
    pthread_mutex_unlock(&cache->lock);
    if (found)
        grammar_free(made);
    return found ? found : made;
}
