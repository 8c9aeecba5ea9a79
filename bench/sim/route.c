// SPDX-License-Identifier: Apache-2.0
#include "sim/route.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "kv/layout.h"

// The best score's server; of several with the same, any.
static int pick_best(struct router *router)
{
    int best = 0, equals = 1;
    for (int i = 1; i < router->servers; i++) {
        if (router->scores[i] < router->scores[best])
            continue;
        equals = router->scores[i] > router->scores[best] ? 1 : equals + 1;
        if (random_between(&router->seed, 1, equals) == 1)
            best = i;
    }
    return best;
}

static int round_robin(struct router *router, const int32_t *prompt, int count)
{
    (void)prompt, (void)count;
    int server = router->next;
    router->next = (server + 1) % router->servers;
    return server;
}

// ---- by queue ----

// The fewest requests; ties go to the emptiest cache.
static int by_queue(struct router *router, const int32_t *prompt, int count)
{
    (void)prompt, (void)count;
    for (int i = 0; i < router->servers; i++) {
        const struct view *view = &router->views[i];
        router->scores[i] = -(view->waiting + view->running + view->sent) - view->cache_use / 2;
    }
    return pick_best(router);
}

// ---- by prefix ----

// How many of the first blocks a server's table has. A block is never older there than the one after it: what has a
// block has all that come before.
static int blocks_known(const struct kv_pool *known, const struct kv_prefix *prefix)
{
    int low = 0, high = prefix->count;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (kv_pool_find(known, &prefix->keys[middle - 1]) != KV_PAGE_NONE)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// From the last block to the first, which thus goes out last.
static void remember_blocks(struct kv_pool *known, const struct kv_prefix *prefix)
{
    for (int i = prefix->count - 1; i >= 0; i--) {
        int32_t page = kv_pool_find(known, &prefix->keys[i]);
        if (page != KV_PAGE_NONE) {
            kv_pool_share(known, page);
        } else {
            page = kv_pool_acquire(known);
            kv_pool_remember(known, page, &prefix->keys[i]);
        }
        kv_pool_release(known, page);
    }
}

static int queue_of(const struct view *view) { return view->waiting + view->sent; }

static int by_prefix(struct router *router, const int32_t *prompt, int count)
{
    struct kv_prefix prefix;
    kv_prefix_open(&prefix, (struct bytes){ 0 }, count);
    kv_prefix_extend(&prefix, prompt, prefix.capacity < ROUTE_BLOCKS_MAX ? prefix.capacity : ROUTE_BLOCKS_MAX);
    int shortest = queue_of(router->views), longest = shortest;
    for (int i = 1; i < router->servers; i++) {
        int queue = queue_of(&router->views[i]);
        shortest = queue < shortest ? queue : shortest;
        longest = queue > longest ? queue : longest;
    }
    for (int i = 0; i < router->servers; i++) {
        const struct view *view = &router->views[i];
        double share = prefix.count ? (double)blocks_known(&router->known[i], &prefix) / prefix.count : 0;
        double shortness = longest > shortest ? (double)(longest - queue_of(view)) / (longest - shortest) : 1;
        router->scores[i] = ROUTE_PREFIX_WEIGHT * share + ROUTE_QUEUE_WEIGHT * shortness
            + ROUTE_CACHE_WEIGHT * (1 - view->cache_use);
    }
    int server = pick_best(router);
    remember_blocks(&router->known[server], &prefix);
    kv_prefix_close(&prefix);
    return server;
}

// ---- all of them ----

const char *const route_policies[] = { "round-robin", "queue", "prefix", NULL };

static int (*const picks[])(struct router *, const int32_t *, int) = { round_robin, by_queue, by_prefix };

void router_open(struct router *router, const struct router_options *options)
{
    size_t servers = (size_t)options->servers;
    *router = (struct router){ .policy = options->policy,
                               .servers = options->servers,
                               .seed = options->seed,
                               .counts_sent = options->counts_sent };
    router->views = memory_new(servers, sizeof *router->views);
    router->scores = memory_new(servers, sizeof *router->scores);
    if (picks[options->policy] != by_prefix)
        return;
    router->known = memory_new(servers, sizeof *router->known);
    for (size_t i = 0; i < servers; i++)
        kv_pool_open(&router->known[i], NULL, (struct kv_class){ .page_tokens = KV_PAGE_TOKENS }, 0, options->pages);
}

void router_close(struct router *router)
{
    for (int i = 0; router->known && i < router->servers; i++)
        kv_pool_close(&router->known[i]);
    free(router->known);
    free(router->views);
    free(router->scores);
    *router = (struct router){ 0 };
}

int router_pick(struct router *router, const int32_t *prompt, int count)
{
    int server = picks[router->policy](router, prompt, count);
    router->views[server].sent += router->counts_sent;
    return server;
}
