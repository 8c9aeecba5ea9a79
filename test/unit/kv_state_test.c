// SPDX-License-Identifier: Apache-2.0
// Pages of states: which of them a sequence holds, to where it can go back, and which beginning of a text can be had
// when other classes have pages of their own.
#include "base/random.h"
#include "container.h"
#include "kv/layout.h"
#include "kv/prefix.h"

enum { POSITIONS_MAX = 800, PAGES = POSITIONS_MAX / KV_PAGE_TOKENS };

static void open_pool(struct kv_pool *pool, struct kv_class class, int pages)
{
    kv_pool_open(pool, memory_new((size_t)pages, 16), class, 16, pages);
}

static void close_pool(struct kv_pool *pool)
{
    kv_pool_check(pool);
    assert_int_equal(pool->free_count, pool->page_count);
    free(pool->bytes);
    kv_pool_close(pool);
}

static int smaller(int a, int b) { return a < b ? a : b; }

static void test_a_states_parts_lie_apart(void **state)
{
    (void)state;
    struct kv_state layout = kv_state_make(3, 100, 4, 16, 24);
    assert_true(layout.matrix_offset >= 3 * 100 * sizeof(float) && layout.matrix_offset % 64 == 0);
    assert_true(layout.layer_bytes >= layout.matrix_offset + 4 * 16 * 24 * sizeof(float));
    assert_int_equal(layout.layer_bytes % 64, 0);
}

// Reads as a scheduler does, never across a page's end, and goes back now and then.
static void test_the_last_two_states_are_held(void **state)
{
    (void)state;
    uint64_t seed = 11;
    int restored = 0;
    for (int round = 0; round < 200; round++) {
        int tokens = KV_PAGE_TOKENS * random_between(&seed, 1, 5), cached = 0;
        struct kv_pool pool;
        struct kv_table table;
        open_pool(&pool, kv_table_states(tokens),
                  kv_table_pages_needed(&(struct kv_class){ tokens, tokens + 1, true }, POSITIONS_MAX, 64));
        assert_int_equal(pool.page_count, 2);
        kv_table_open(&table, &pool, POSITIONS_MAX);
        for (int step = 0; step < 80; step++) {
            int left = smaller(tokens - cached % tokens, POSITIONS_MAX - cached);
            if (left && random_between(&seed, 0, 4)) {
                cached += random_between(&seed, 1, left);
                assert_true(kv_table_extend(&table, cached)); // two pages are enough
                kv_table_evict(&table, cached);
            } else {
                int end = random_between(&seed, 0, cached), begun = end / tokens * tokens;
                bool held = begun && table.pages[begun / tokens - 1] != KV_PAGE_NONE;
                int usable = kv_table_usable(&table, end);
                assert_int_equal(usable, held ? begun : 0);
                kv_table_truncate(&table, usable);
                cached = usable;
                restored += held;
            }
            int last = cached ? (cached - 1) / tokens : -1, first = cached / tokens - 1;
            for (int i = 0; i < table.count; i++)
                assert_int_equal(table.pages[i] != KV_PAGE_NONE, i >= first && i <= last);
            assert_int_equal(table.count, last + 1);
        }
        kv_table_close(&table);
        close_pool(&pool);
    }
    assert_true(restored > 100);
}

// ---- prefix ----

enum { CLASSES = 3 };

struct text {
    int32_t ids[POSITIONS_MAX];
    struct kv_prefix prefix;
    struct kv_table tables[CLASSES];
};

static void text_open(struct text *text, struct kv_pool *pools)
{
    kv_prefix_open(&text->prefix, bytes_of(""), POSITIONS_MAX);
    kv_prefix_extend(&text->prefix, text->ids, PAGES);
    for (int i = 0; i < CLASSES; i++)
        kv_table_open(&text->tables[i], &pools[i], POSITIONS_MAX);
}

static void text_close(struct text *text)
{
    for (int i = 0; i < CLASSES; i++)
        kv_table_close(&text->tables[i]);
    kv_prefix_close(&text->prefix);
}

// In steps, giving back what is no longer seen; what was read is remembered.
static void text_read(struct text *text, int positions, int step)
{
    for (int cached = 0; cached < positions;) {
        cached = smaller(cached + step, positions);
        for (int i = 0; i < CLASSES; i++)
            kv_table_extend(&text->tables[i], cached);
        kv_prefix_remember(&text->prefix, text->tables, CLASSES, cached / KV_PAGE_TOKENS);
        for (int i = 0; i < CLASSES; i++)
            kv_table_evict(&text->tables[i], cached);
    }
}

// Whether a class has all that the token behind `pages` pages needs.
static bool is_served(const struct text *text, const struct kv_pool *pool, int pages)
{
    int end = pages * KV_PAGE_TOKENS, window = pool->class.window;
    if (pool->class.state)
        return end % pool->class.page_tokens == 0 && kv_pool_find(pool, &text->prefix.keys[pages - 1]) >= 0;
    for (int position = window && end >= window ? end - window + 1 : 0; position < end; position++)
        if (kv_pool_find(pool, &text->prefix.keys[position / KV_PAGE_TOKENS]) < 0)
            return false;
    return true;
}

static int expect_found(const struct text *text, const struct kv_pool *pools, int most)
{
    for (int pages = most; pages > 0; pages--)
        if (is_served(text, &pools[0], pages) && is_served(text, &pools[1], pages) && is_served(text, &pools[2], pages))
            return pages;
    return 0;
}

static void test_a_beginning_ends_where_a_state_was_kept(void **state)
{
    (void)state;
    uint64_t seed = 12;
    int found_some = 0;
    for (int round = 0; round < 200; round++) {
        int tokens = KV_PAGE_TOKENS * random_between(&seed, 1, 5), states = random_between(&seed, 2, 12);
        struct kv_pool pools[CLASSES];
        struct text writer = { 0 }, other = { 0 }, reader;
        open_pool(&pools[0], (struct kv_class){ .page_tokens = KV_PAGE_TOKENS }, 2 * PAGES);
        open_pool(&pools[1], (struct kv_class){ KV_PAGE_TOKENS, .window = random_between(&seed, 1, 200) }, 2 * PAGES);
        open_pool(&pools[2], kv_table_states(tokens), states);
        for (int i = 0; i < POSITIONS_MAX; i++)
            other.ids[i] = 1 + (writer.ids[i] = random_between(&seed, 0, 99));
        reader = writer;
        text_open(&writer, pools);
        text_open(&other, pools);
        text_open(&reader, pools);
        text_read(&writer, random_between(&seed, 1, POSITIONS_MAX), tokens);
        text_close(&writer);
        text_read(&other, random_between(&seed, 1, POSITIONS_MAX / 4), tokens); // some of its states go
        text_close(&other);
        int most = random_between(&seed, 0, PAGES);
        int found = kv_prefix_find(&reader.prefix, reader.tables, CLASSES, most);
        assert_int_equal(found, expect_found(&reader, pools, most));
        kv_prefix_take(&reader.prefix, reader.tables, CLASSES, found);
        int own = found * KV_PAGE_TOKENS / tokens;
        assert_int_equal(reader.tables[2].count, own);
        assert_true(!own || reader.tables[2].pages[own - 1] == kv_pool_find(&pools[2], &reader.prefix.keys[found - 1]));
        found_some += found > 0;
        text_close(&reader);
        for (int i = 0; i < CLASSES; i++)
            close_pool(&pools[i]);
    }
    assert_true(found_some > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_states_parts_lie_apart),
        cmocka_unit_test(test_the_last_two_states_are_held),
        cmocka_unit_test(test_a_beginning_ends_where_a_state_was_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
