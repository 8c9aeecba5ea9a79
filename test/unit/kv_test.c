// SPDX-License-Identifier: Apache-2.0
// Pages: what their bytes mean, who owns them, and which of them a sequence holds.
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "container.h"
#include "kv/layout.h"
#include "kv/pool.h"
#include "kv/table.h"

// ---- layout ----

// Bytes that one head's K and V of one token take together: per_dim * D / 8 + fixed.
static const struct {
    enum dtype dtype;
    int eighths_per_dim, fixed;
} published[] = {
    { DTYPE_F32, 64, 0 },       { DTYPE_F16, 32, 0 },      { DTYPE_BF16, 32, 0 },      { DTYPE_FP8_E4M3, 16, 0 },
    { DTYPE_FP8_E5M2, 16, 0 },  { DTYPE_INT8_TOKEN, 16, 8 }, { DTYPE_FP8_TOKEN, 16, 8 }, { DTYPE_INT4_TOKEN, 8, 8 },
    { DTYPE_NVFP4, 9, 0 },      { DTYPE_NVFP4_4OVER6, 9, 0 },
};

static void test_bytes_are_the_published_ones(void **state)
{
    (void)state;
    uint64_t covered = 0, all = 0;
    for (int i = 0; i < DTYPE_COUNT; i++)
        all |= (uint64_t)(dtype_table[i].use & DTYPE_USE_KV ? 1 : 0) << i;
    for (size_t i = 0; i < COUNT_OF(published); i++) {
        covered |= (uint64_t)1 << published[i].dtype;
        for (int dim = 64; dim <= 256; dim *= 2)
            for (int heads = 1; heads <= 8; heads++) {
                struct kv_layout layout = kv_layout_make(published[i].dtype, published[i].dtype, heads, dim, dim);
                int bytes = published[i].eighths_per_dim * dim / 8 + published[i].fixed;
                assert_int_equal(layout.layer_bytes, heads * KV_PAGE_TOKENS * bytes);
                assert_int_equal(kv_layout_token_bytes(&layout), heads * bytes);
            }
    }
    assert_true(covered == all); // a new format needs its line above
}

static void mark_bytes(uint8_t *marks, size_t size, size_t offset, size_t count)
{
    assert_true(offset <= size && count <= size - offset);
    for (size_t i = offset; i < offset + count; i++) {
        assert_int_equal(marks[i], 0);
        marks[i] = 1;
    }
}

static void mark_side(uint8_t *marks, size_t size, const struct kv_side *side)
{
    for (int head = 0; head < side->heads; head++)
        for (int token = 0; token < KV_PAGE_TOKENS; token++) {
            mark_bytes(marks, size, kv_data_at(side, head, token), side->data_bytes);
            mark_bytes(marks, size, kv_scale_at(side, head, token), side->scale_bytes);
        }
}

static void test_every_byte_of_a_layer_has_one_meaning(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (size_t k = 0; k < COUNT_OF(published); k++)
        for (size_t v = 0; v < COUNT_OF(published); v++) {
            int heads = random_between(&seed, 1, 5);
            int k_dim = 16 << random_between(&seed, 0, 5), v_dim = 16 << random_between(&seed, 0, 5);
            struct kv_layout layout = kv_layout_make(published[k].dtype, published[v].dtype, heads, k_dim, v_dim);
            uint8_t *marks = calloc(layout.layer_bytes, 1);
            mark_side(marks, layout.layer_bytes, &layout.k);
            mark_side(marks, layout.layer_bytes, &layout.v);
            assert_null(memchr(marks, 0, layout.layer_bytes)); // and none has no meaning
            free(marks);
        }
}

static void test_formats_say_what_they_cannot_hold(void **state)
{
    (void)state;
    struct arena arena = { 0 };
    for (size_t i = 0; i < COUNT_OF(published); i++) {
        enum dtype dtype = published[i].dtype;
        for (int dim = 1; dim <= 1024; dim++) {
            bool fits = true;
            if (dtype == DTYPE_NVFP4 || dtype == DTYPE_NVFP4_4OVER6)
                fits = dim % 16 == 0;
            if (dtype == DTYPE_INT4_TOKEN)
                fits = dim >= 2 && dim <= 512 && (dim & (dim - 1)) == 0;
            const char *misfit = kv_format_misfit(&arena, dtype, dim);
            if (!misfit != fits)
                fail_msg("%s with %d channels: %s", dtype_word(dtype), dim, misfit ? misfit : "accepted");
            char number[16];
            snprintf(number, sizeof number, "not %d", dim);
            if (misfit)
                assert_true(strstr(misfit, dtype_word(dtype)) && strstr(misfit, number));
        }
    }
    arena_free(&arena);
}

// ---- pool ----

static void open_pool(struct kv_pool *pool, size_t page_bytes, int pages)
{
    struct error err;
    if (!kv_pool_open(pool, page_bytes, pages, &err))
        fail_msg("%s", err.text);
    kv_pool_check(pool);
    assert_int_equal(pool->free_count, pages);
}

// Pages carry a mark of their own while somebody owns them: two that shared bytes would be noticed.
static void check_mark(const struct kv_pool *pool, int32_t page)
{
    for (size_t i = 0; i < pool->page_bytes; i++)
        assert_int_equal(pool->bytes[(size_t)page * pool->page_bytes + i], page + 1);
}

static void test_owners_are_counted(void **state)
{
    (void)state;
    enum { PAGES = 37, BYTES = 48 };
    struct kv_pool pool;
    uint64_t seed = 2;
    int owners[PAGES] = { 0 }, in_use = 0;
    open_pool(&pool, BYTES, PAGES);
    for (int step = 0; step < 20000; step++) {
        bool filling = step / 1000 % 2 == 0;
        int32_t page = random_between(&seed, 0, PAGES - 1);
        if (random_between(&seed, 0, 9) < (filling ? 5 : 1)) {
            page = kv_pool_acquire(&pool);
            assert_int_equal(page == KV_PAGE_NONE, in_use == PAGES);
            if (page == KV_PAGE_NONE)
                continue;
            assert_in_range(page, 0, PAGES - 1);
            assert_int_equal(owners[page], 0);
            memset(pool.bytes + (size_t)page * BYTES, page + 1, BYTES);
            owners[page] = 1;
            in_use++;
        } else if (owners[page] && random_between(&seed, 0, 2) == 0) {
            kv_pool_share(&pool, page);
            owners[page]++;
        } else if (owners[page]) {
            check_mark(&pool, page);
            kv_pool_release(&pool, page);
            in_use -= --owners[page] == 0;
        }
        assert_int_equal(pool.free_count, PAGES - in_use);
        kv_pool_check(&pool);
    }
    kv_pool_close(&pool);
}

static void test_a_pool_that_the_system_does_not_give(void **state)
{
    (void)state;
    struct kv_pool pool;
    struct error err;
    assert_false(kv_pool_open(&pool, (size_t)1 << 40, 1 << 20, &err));
    assert_says(err, "1099511627776 MiB");
    assert_says(err, "--max-model-len");
    kv_pool_close(&pool);
}

static void take_one_from_the_stack(struct kv_pool *pool) { pool->free_count--; }
static void own_a_free_page(struct kv_pool *pool) { pool->owners[3] = 1; }
static void free_a_page_twice(struct kv_pool *pool) { pool->free_pages[0] = pool->free_pages[1]; }
static void list_no_page(struct kv_pool *pool) { pool->free_pages[0] = 99; }
static void release_a_free_page(struct kv_pool *pool) { kv_pool_release(pool, 2); }
static void share_a_free_page(struct kv_pool *pool) { kv_pool_share(pool, 2); }

// Our own mistakes do not pass: the process stops.
static void test_mistakes_are_noticed(void **state)
{
    (void)state;
    static void (*const mistakes[])(struct kv_pool *) = { take_one_from_the_stack, own_a_free_page, free_a_page_twice,
                                                          list_no_page, release_a_free_page, share_a_free_page };
    for (size_t i = 0; i < COUNT_OF(mistakes); i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            struct kv_pool pool;
            struct error err;
            if (!freopen("/dev/null", "w", stderr) || !kv_pool_open(&pool, 64, 8, &err))
                _exit(1);
            signal(SIGABRT, SIG_DFL);
            mistakes[i](&pool);
            kv_pool_check(&pool);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
            fail_msg("mistake %zu went unnoticed", i);
    }
}

// ---- table ----

enum { POSITIONS_MAX = 600, ENTRIES_MAX = (POSITIONS_MAX + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS };

// What a table should hold, said position by position.
struct expected {
    int window, end;         // positions [0, end) have room or had it
    bool held[ENTRIES_MAX];  // entry by entry
};

static int entries(int positions)
{
    int count = 0;
    while (count * KV_PAGE_TOKENS < positions)
        count++;
    return count;
}

static bool sees(int window, int token, int position)
{
    return position <= token && (!window || token - position < window);
}

// No token from `token` on sees any position of the entry.
static bool is_past(int window, int entry, int token)
{
    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        if (entry * KV_PAGE_TOKENS + i >= token || sees(window, token, entry * KV_PAGE_TOKENS + i))
            return false;
    return true;
}

static void check_table(const struct kv_table *table, const struct expected *expected)
{
    int held = 0;
    bool taken[ENTRIES_MAX] = { 0 };
    assert_int_equal(table->count, entries(expected->end));
    for (int i = 0; i < table->count; i++) {
        int32_t page = table->pages[i];
        assert_int_equal(page != KV_PAGE_NONE, expected->held[i]);
        if (page == KV_PAGE_NONE)
            continue;
        assert_in_range(page, 0, table->pool->page_count - 1);
        assert_false(taken[page]);
        taken[page] = true;
        held++;
    }
    assert_int_equal(table->pool->free_count, table->pool->page_count - held);
    kv_pool_check(table->pool);
}

static void expect_extend(struct expected *expected, int end)
{
    for (int i = entries(expected->end); i < entries(end); i++)
        expected->held[i] = true;
    expected->end = end > expected->end ? end : expected->end;
}

static void expect_evict(struct expected *expected, int token)
{
    for (int i = 0; i < entries(expected->end); i++)
        if (is_past(expected->window, i, token))
            expected->held[i] = false;
}

// Whether the token at `end` finds everything it sees, and room for itself.
static bool expect_truncate(struct expected *expected, int end)
{
    expected->end = end < expected->end ? end : expected->end;
    for (int position = 0; position <= end && position / KV_PAGE_TOKENS < entries(end); position++)
        if (sees(expected->window, end, position) && !expected->held[position / KV_PAGE_TOKENS])
            return false;
    return true;
}

static void test_tables_hold_what_is_visible(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 200; round++) {
        struct expected expected = { .window = round % 4 ? random_between(&seed, 1, 150) : 0 };
        struct kv_pool pool;
        struct kv_table table;
        open_pool(&pool, 64, ENTRIES_MAX);
        kv_table_open(&table, &pool, expected.window, POSITIONS_MAX);
        for (int step = 0; step < 100; step++) {
            if (random_between(&seed, 0, 4)) { // read some more
                int end = expected.end + random_between(&seed, 0, 40);
                end = end > POSITIONS_MAX ? POSITIONS_MAX : end;
                kv_table_evict(&table, expected.end);
                expect_evict(&expected, expected.end);
                assert_true(kv_table_extend(&table, end));
                expect_extend(&expected, end);
            } else { // go back
                int end = random_between(&seed, 0, expected.end);
                bool usable = expect_truncate(&expected, end);
                assert_int_equal(kv_table_truncate(&table, end), usable);
                if (!usable) {
                    assert_true(expect_truncate(&expected, 0));
                    assert_true(kv_table_truncate(&table, 0));
                }
            }
            check_table(&table, &expected);
        }
        kv_table_close(&table);
        assert_int_equal(pool.free_count, pool.page_count);
        kv_pool_close(&pool);
    }
}

static void test_an_empty_pool_keeps_what_was_acquired(void **state)
{
    (void)state;
    struct kv_pool pool;
    struct kv_table first, second;
    open_pool(&pool, 64, 4);
    kv_table_open(&first, &pool, 0, 128);
    kv_table_open(&second, &pool, 0, 128);
    assert_true(kv_table_extend(&first, 17));
    assert_false(kv_table_extend(&second, 49));
    assert_int_equal(second.count, 2);
    assert_false(kv_table_extend(&second, 49)); // asking again takes nothing
    assert_int_equal(pool.free_count, 0);
    kv_table_close(&first);
    assert_true(kv_table_extend(&second, 49));
    assert_int_equal(second.count, 4);
    kv_table_close(&second);
    assert_int_equal(pool.free_count, 4);
    kv_pool_check(&pool);
    kv_pool_close(&pool);
}

// Reads a text in batches and returns the most pages it held. The pool has just what was said to be needed.
static int read_text(int window, int length, int batch, int needed, bool whole_batches, uint64_t *seed)
{
    struct kv_pool pool;
    struct kv_table table;
    int most = 0;
    open_pool(&pool, 64, needed);
    kv_table_open(&table, &pool, window, length);
    for (int at = 0, count; at < length; at += count) {
        count = whole_batches ? batch : random_between(seed, 1, batch);
        count = count < length - at ? count : length - at;
        kv_table_evict(&table, at);
        if (!kv_table_extend(&table, at + count))
            fail_msg("window %d, length %d, batch %d: %d pages do not suffice", window, length, batch, needed);
        int held = needed - pool.free_count;
        most = held > most ? held : most;
    }
    kv_table_close(&table);
    kv_pool_close(&pool);
    return most;
}

static void test_the_pages_needed_suffice(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int round = 0; round < 3000; round++) {
        int window = round % 5 ? random_between(&seed, 1, 200) : 0;
        int length = random_between(&seed, 1, 500), batch = random_between(&seed, 1, 70);
        int needed = kv_table_pages_needed(window, length, batch);
        read_text(window, length, batch, needed, false, &seed);
        int most = read_text(window, length, batch, needed, true, &seed);
        assert_true(needed <= entries(length) + 1);
        if (!window || window >= length)
            assert_int_equal(needed, most);
        else
            assert_true(needed <= entries(window + batch) + 1); // hardly more than what is visible at once
    }
}

// A planner looks for the longest text that fits: more text may not need fewer pages.
static void test_more_text_needs_no_fewer_pages(void **state)
{
    (void)state;
    static const int windows[] = { 0, 1, 15, 16, 17, 100, 512, INT32_MAX };
    for (size_t i = 0; i < COUNT_OF(windows); i++)
        for (int batch = 1; batch <= 64; batch += 9)
            for (int length = 1, before = 0; length < 1000; length++) {
                int needed = kv_table_pages_needed(windows[i], length, batch);
                assert_true(needed >= before && needed <= entries(length) + 1);
                before = needed;
            }
    assert_int_equal(kv_table_pages_needed(INT32_MAX, 1 << 28, 4096), 1 << 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_the_published_ones),
        cmocka_unit_test(test_every_byte_of_a_layer_has_one_meaning),
        cmocka_unit_test(test_formats_say_what_they_cannot_hold),
        cmocka_unit_test(test_owners_are_counted),
        cmocka_unit_test(test_a_pool_that_the_system_does_not_give),
        cmocka_unit_test(test_mistakes_are_noticed),
        cmocka_unit_test(test_tables_hold_what_is_visible),
        cmocka_unit_test(test_an_empty_pool_keeps_what_was_acquired),
        cmocka_unit_test(test_the_pages_needed_suffice),
        cmocka_unit_test(test_more_text_needs_no_fewer_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
