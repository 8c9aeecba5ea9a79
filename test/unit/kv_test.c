// SPDX-License-Identifier: Apache-2.0
// Pages: what their bytes mean, who owns them, which of them a sequence holds, and how they are found again.
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "container.h"
#include "kv/layout.h"
#include "kv/pool.h"
#include "kv/prefix.h"
#include "kv/table.h"

// ---- layout ----

// Bytes that one head's K and V of one token take together: per_dim * D / 8 + fixed.
static const struct {
    enum dtype dtype;
    int eighths_per_dim, fixed;
} published[] = {
    { DTYPE_F32, 64, 0 },      { DTYPE_F16, 32, 0 },         { DTYPE_BF16, 32, 0 },      { DTYPE_FP8_E4M3, 16, 0 },
    { DTYPE_FP8_E5M2, 16, 0 }, { DTYPE_INT8_TOKEN, 16, 8 },  { DTYPE_FP8_TOKEN, 16, 8 }, { DTYPE_INT4_TOKEN, 8, 8 },
    { DTYPE_NVFP4, 9, 0 },     { DTYPE_NVFP4_4OVER6, 9, 0 },
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

static void open_class(struct kv_pool *pool, struct kv_class class, size_t page_bytes, int pages)
{
    class.page_tokens = KV_PAGE_TOKENS;
    kv_pool_open(pool, memory_new((size_t)pages, page_bytes), class, page_bytes, pages);
    kv_pool_check(pool);
    assert_int_equal(pool->free_count, pages);
}

static void open_pool(struct kv_pool *pool, int window, size_t page_bytes, int pages)
{
    open_class(pool, (struct kv_class){ .window = window }, page_bytes, pages);
}

// All pages of a sequence, or the first few of them alone, or all but those.
static struct kv_class random_class(uint64_t *seed, int window)
{
    int kind = random_between(seed, 0, 2), cut = random_between(seed, 1, 4);
    return (struct kv_class){ .window = window, .begin = kind == 1 ? cut : 0, .end = kind == 2 ? cut : 0 };
}

static void close_pool(struct kv_pool *pool)
{
    free(pool->bytes);
    kv_pool_close(pool);
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
    open_pool(&pool, 0, BYTES, PAGES);
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
    close_pool(&pool);
}

// A key of its own for every number.
static struct kv_key key_of(int number)
{
    struct kv_key key = { { 0 } };
    memcpy(key.bytes, &number, sizeof number);
    return key;
}

static int32_t acquire_as(struct kv_pool *pool, int number)
{
    int32_t page = kv_pool_acquire(pool);
    struct kv_key key = key_of(number);
    kv_pool_remember(pool, page, &key);
    return page;
}

static int32_t find(const struct kv_pool *pool, int number)
{
    struct kv_key key = key_of(number);
    return kv_pool_find(pool, &key);
}

// Pages without a key go out first, the last released first; then the longest unused.
static void test_the_longest_unused_page_goes_first(void **state)
{
    (void)state;
    struct kv_pool pool;
    int32_t pages[6];
    open_pool(&pool, 0, 16, 6);
    for (int i = 0; i < 6; i++)
        pages[i] = i % 3 ? acquire_as(&pool, i) : kv_pool_acquire(&pool); // 0 and 3 have no key
    static const int order[] = { 4, 0, 1, 5, 3, 2 };
    for (int i = 0; i < 6; i++)
        kv_pool_release(&pool, pages[order[i]]);
    kv_pool_check(&pool);
    kv_pool_share(&pool, find(&pool, 1)); // used again: it becomes the newest
    kv_pool_release(&pool, find(&pool, 1));
    static const int expected[] = { 3, 0, 4, 5, 2, 1 };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(find(&pool, expected[i]), expected[i] % 3 ? pages[expected[i]] : KV_PAGE_NONE);
        assert_int_equal(kv_pool_acquire(&pool), pages[expected[i]]);
        assert_int_equal(find(&pool, expected[i]), KV_PAGE_NONE); // what it held is gone
        kv_pool_check(&pool);
    }
    assert_int_equal(kv_pool_acquire(&pool), KV_PAGE_NONE);
    close_pool(&pool);
}

static void test_the_first_page_of_a_key_stays(void **state)
{
    (void)state;
    struct kv_pool pool;
    open_pool(&pool, 0, 16, 3);
    int32_t first = acquire_as(&pool, 7), second = acquire_as(&pool, 7);
    assert_int_equal(find(&pool, 7), first);
    kv_pool_release(&pool, first);
    kv_pool_release(&pool, second);
    kv_pool_share(&pool, first); // out of the free list
    assert_int_equal(kv_pool_acquire(&pool), second);
    assert_int_equal(find(&pool, 7), first);
    kv_pool_check(&pool);
    kv_pool_forget(&pool);
    assert_int_equal(find(&pool, 7), KV_PAGE_NONE);
    kv_pool_check(&pool);
    close_pool(&pool);
}

// Against a plain list of (key, page), with keys that fall into few buckets.
static void test_keys_are_kept_and_forgotten(void **state)
{
    (void)state;
    enum { PAGES = 20, KEYS = 60 };
    struct kv_pool pool;
    uint64_t seed = 5;
    int32_t owned[PAGES], where[KEYS];
    int count = 0;
    memset(where, -1, sizeof where);
    open_pool(&pool, 0, 16, PAGES);
    for (int step = 0; step < 20000; step++) {
        int number = random_between(&seed, 0, KEYS - 1) * 8;
        int32_t page = find(&pool, number);
        assert_int_equal(page, where[number / 8]);
        if (page != KV_PAGE_NONE && count < PAGES && random_between(&seed, 0, 2) == 0) {
            kv_pool_share(&pool, page);
            owned[count++] = page;
        } else if (count < PAGES && random_between(&seed, 0, 1) && pool.free_count) {
            int32_t got = kv_pool_acquire(&pool);
            for (int i = 0; i < KEYS; i++)
                where[i] = where[i] == got ? KV_PAGE_NONE : where[i];
            struct kv_key key = key_of(number);
            kv_pool_remember(&pool, got, &key);
            where[number / 8] = where[number / 8] == KV_PAGE_NONE ? got : where[number / 8];
            owned[count++] = got;
        } else if (count) {
            int which = random_between(&seed, 0, count - 1);
            kv_pool_release(&pool, owned[which]);
            owned[which] = owned[--count];
        }
        kv_pool_check(&pool);
    }
    close_pool(&pool);
}

static void miscount_the_free(struct kv_pool *pool) { pool->free_count--; }
static void own_a_free_page(struct kv_pool *pool) { pool->pages[3].owners = 1; }
static void lose_a_page(struct kv_pool *pool) { pool->pages[2].newer = 4; }
static void close_the_list(struct kv_pool *pool) { pool->pages[7].newer = 0; }
static void list_no_page(struct kv_pool *pool) { pool->pages[7].newer = 99; }
static void release_a_free_page(struct kv_pool *pool) { kv_pool_release(pool, 2); }
static void share_a_page_without_a_key(struct kv_pool *pool) { kv_pool_share(pool, 2); }
static void key_without_a_bucket(struct kv_pool *pool) { pool->pages[7].keyed = true; }
static void change_a_key(struct kv_pool *pool) { pool->pages[acquire_as(pool, 1)].key.bytes[0] ^= 1; }
static void free_a_keyed_page_first(struct kv_pool *pool)
{
    kv_pool_release(pool, acquire_as(pool, 1));
    pool->pages[pool->oldest].keyed = true;
}

// Our own mistakes do not pass: the process stops.
static void test_mistakes_are_noticed(void **state)
{
    (void)state;
    static void (*const mistakes[])(struct kv_pool *) = {
        miscount_the_free,
        own_a_free_page,
        lose_a_page,
        close_the_list,
        list_no_page,
        release_a_free_page,
        share_a_page_without_a_key,
        key_without_a_bucket,
        change_a_key,
        free_a_keyed_page_first,
    };
    for (size_t i = 0; i < COUNT_OF(mistakes); i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            struct kv_pool pool;
            if (!freopen("/dev/null", "w", stderr))
                _exit(1);
            open_pool(&pool, 0, 64, 8);
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

// The expected content of a table, by position.
struct expected {
    struct kv_class class;
    int window, end;        // positions [0, end) have room or had it
    bool held[ENTRIES_MAX]; // entry by entry
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
    int count = entries(expected->end), most = expected->class.end;
    assert_int_equal(table->count, most && count > most ? most : count);
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
        expected->held[i] = i >= expected->class.begin && (!expected->class.end || i < expected->class.end);
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
        if (sees(expected->window, end, position) && !expected->held[position / KV_PAGE_TOKENS]
            && kv_table_has(&expected->class, position / KV_PAGE_TOKENS))
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
        expected.class = random_class(&seed, expected.window);
        open_class(&pool, expected.class, 64, ENTRIES_MAX);
        kv_table_open(&table, &pool, POSITIONS_MAX);
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
                assert_int_equal(kv_table_usable(&table, end), usable ? end : 0);
                kv_table_truncate(&table, end);
                if (!usable) {
                    assert_true(expect_truncate(&expected, 0));
                    kv_table_truncate(&table, 0);
                }
            }
            check_table(&table, &expected);
        }
        kv_table_close(&table);
        assert_int_equal(pool.free_count, pool.page_count);
        close_pool(&pool);
    }
}

static void test_an_empty_pool_keeps_what_was_acquired(void **state)
{
    (void)state;
    struct kv_pool pool;
    struct kv_table first, second;
    open_pool(&pool, 0, 64, 4);
    kv_table_open(&first, &pool, 128);
    kv_table_open(&second, &pool, 128);
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
    close_pool(&pool);
}

// Reads a text in batches and returns the most pages it held. The pool has just what was said to be needed.
static int read_text(struct kv_class class, int length, int batch, int needed, bool whole_batches, uint64_t *seed)
{
    struct kv_pool pool;
    struct kv_table table;
    int most = 0, expected = needed; // of what was held before, and is missing to the end
    open_class(&pool, class, 64, needed);
    kv_table_open(&table, &pool, length);
    for (int at = 0, count; at < length; at += count) {
        count = whole_batches ? batch : random_between(seed, 1, batch);
        count = count < length - at ? count : length - at;
        kv_table_evict(&table, at);
        int missing = kv_table_pages_missing(&table, length, batch), now = needed - pool.free_count + missing;
        assert_true(missing <= entries(length) - table.count);
        expected = now < expected ? now : expected;
        if (!kv_table_extend(&table, at + count))
            fail_msg("window %d, length %d, batch %d: %d pages do not suffice", class.window, length, batch, needed);
        int held = needed - pool.free_count;
        most = held > most ? held : most;
        assert_true(held <= expected);
    }
    kv_table_close(&table);
    close_pool(&pool);
    return most;
}

static int pages_needed(struct kv_class class, int length, int batch)
{
    class.page_tokens = KV_PAGE_TOKENS;
    return kv_table_pages_needed(&class, length, batch);
}

static void test_the_pages_needed_suffice(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int round = 0; round < 3000; round++) {
        int window = round % 5 ? random_between(&seed, 1, 200) : 0;
        int length = random_between(&seed, 1, 500), batch = random_between(&seed, 1, 70);
        struct kv_class class = random_class(&seed, window);
        int needed = pages_needed(class, length, batch);
        read_text(class, length, batch, needed, false, &seed);
        int most = read_text(class, length, batch, needed, true, &seed);
        assert_true(needed <= entries(length) && (!class.end || needed <= class.end));
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
                int needed = pages_needed((struct kv_class){ .window = windows[i] }, length, batch);
                assert_true(needed >= before && needed <= entries(length) + 1);
                before = needed;
            }
    assert_int_equal(pages_needed((struct kv_class){ .window = INT32_MAX }, 1 << 28, 4096), 1 << 24);
}

// ---- prefix ----

enum { CLASSES = 3, PREFIX_POSITIONS = 640, PREFIX_PAGES = PREFIX_POSITIONS / KV_PAGE_TOKENS };

struct shelf {
    struct kv_pool pools[CLASSES];
};

static void shelf_open(struct shelf *shelf, const struct kv_class *classes, int pages)
{
    for (int i = 0; i < CLASSES; i++)
        open_class(&shelf->pools[i], classes[i], 16, pages);
}

static void shelf_close(struct shelf *shelf)
{
    for (int i = 0; i < CLASSES; i++) {
        kv_pool_check(&shelf->pools[i]);
        assert_int_equal(shelf->pools[i].free_count, shelf->pools[i].page_count);
        close_pool(&shelf->pools[i]);
    }
}

// A text with its keys and its pages.
struct book {
    int32_t ids[PREFIX_POSITIONS];
    struct kv_prefix prefix;
    struct kv_table tables[CLASSES];
};

static void book_open(struct book *book, struct shelf *shelf, const char *salt)
{
    kv_prefix_open(&book->prefix, bytes_of(salt), PREFIX_POSITIONS);
    kv_prefix_extend(&book->prefix, book->ids, PREFIX_PAGES);
    for (int i = 0; i < CLASSES; i++)
        kv_table_open(&book->tables[i], &shelf->pools[i], PREFIX_POSITIONS);
}

static void book_close(struct book *book)
{
    for (int i = 0; i < CLASSES; i++)
        kv_table_close(&book->tables[i]);
    kv_prefix_close(&book->prefix);
}

// Reads and remembers `pages` pages.
static void book_read(struct book *book, int pages)
{
    for (int i = 0; i < CLASSES; i++)
        assert_true(kv_table_extend(&book->tables[i], pages * KV_PAGE_TOKENS));
    kv_prefix_remember(&book->prefix, book->tables, CLASSES, pages);
}

static void test_keys_name_a_text_from_its_start(void **state)
{
    (void)state;
    static const struct kv_class classes[CLASSES];
    struct shelf shelf;
    struct book a = { 0 }, b = { 0 }, salted = { 0 };
    uint64_t seed = 6;
    shelf_open(&shelf, classes, 1);
    for (int i = 0; i < PREFIX_POSITIONS; i++)
        a.ids[i] = b.ids[i] = salted.ids[i] = random_between(&seed, 0, 9);
    b.ids[100] ^= 1; // in page 6
    book_open(&a, &shelf, "");
    book_open(&b, &shelf, "");
    book_open(&salted, &shelf, "a tenant");
    for (int i = 0; i < PREFIX_PAGES; i++) {
        assert_int_equal(!memcmp(&a.prefix.keys[i], &b.prefix.keys[i], KV_KEY_BYTES), i < 6);
        assert_memory_not_equal(&a.prefix.keys[i], &salted.prefix.keys[i], KV_KEY_BYTES);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(&a.prefix.keys[i], &a.prefix.keys[j], KV_KEY_BYTES);
    }
    struct book piecewise = { 0 }; // keys do not depend on when they were asked for
    memcpy(piecewise.ids, a.ids, sizeof a.ids);
    kv_prefix_open(&piecewise.prefix, bytes_of(""), PREFIX_POSITIONS);
    for (int pages = 0; pages <= PREFIX_PAGES; pages += 3)
        kv_prefix_extend(&piecewise.prefix, piecewise.ids, pages);
    assert_memory_equal(piecewise.prefix.keys, a.prefix.keys, 39 * KV_KEY_BYTES);
    kv_prefix_close(&piecewise.prefix);
    book_close(&a);
    book_close(&b);
    book_close(&salted);
    shelf_close(&shelf);
}

// The longest beginning that can be had, said page by page.
static int expect_prefix(const struct book *book, int most)
{
    for (int pages = most; pages > 0; pages--) {
        bool usable = true;
        for (int i = 0; i < CLASSES; i++)
            for (int position = 0; position < pages * KV_PAGE_TOKENS; position++)
                if (sees(book->tables[i].pool->class.window, pages * KV_PAGE_TOKENS, position)
                    && kv_table_has(&book->tables[i].pool->class, position / KV_PAGE_TOKENS)
                    && kv_pool_find(book->tables[i].pool, &book->prefix.keys[position / KV_PAGE_TOKENS]) < 0)
                    usable = false;
        if (usable)
            return pages;
    }
    return 0;
}

static void test_the_longest_usable_beginning_is_found(void **state)
{
    (void)state;
    uint64_t seed = 7;
    int partial = 0;
    for (int round = 0; round < 300; round++) {
        struct kv_class classes[CLASSES];
        struct shelf shelf;
        struct book writer = { 0 }, other = { 0 }, reader;
        for (int i = 0; i < CLASSES; i++)
            classes[i] = random_class(&seed, random_between(&seed, 0, 2) ? random_between(&seed, 1, 200) : 0);
        shelf_open(&shelf, classes, PREFIX_PAGES + 8);
        for (int i = 0; i < PREFIX_POSITIONS; i++)
            other.ids[i] = 1 + (writer.ids[i] = random_between(&seed, 0, 99));
        reader = writer;
        book_open(&writer, &shelf, "");
        book_open(&other, &shelf, "");
        book_open(&reader, &shelf, "");
        book_read(&writer, random_between(&seed, 0, PREFIX_PAGES));
        for (int i = 0; i < CLASSES; i++) { // some pages leave before others, in each class as it happens
            kv_table_evict(&writer.tables[i], random_between(&seed, 0, PREFIX_POSITIONS));
            kv_table_truncate(&writer.tables[i], random_between(&seed, 0, PREFIX_POSITIONS));
            kv_table_extend(&other.tables[i], random_between(&seed, 0, 20 * KV_PAGE_TOKENS));
        }
        int most = random_between(&seed, 0, PREFIX_PAGES);
        int found = kv_prefix_find(&reader.prefix, reader.tables, CLASSES, most);
        assert_int_equal(found, expect_prefix(&reader, most));
        partial += found > 0 && found < most;
        kv_prefix_take(&reader.prefix, reader.tables, CLASSES, found);
        for (int i = 0; i < CLASSES; i++) {
            kv_pool_check(&shelf.pools[i]);
            int most_here = classes[i].end && classes[i].end < found ? classes[i].end : found;
            assert_int_equal(reader.tables[i].count, most_here);
            for (int page = 0; page < most_here; page++) {
                bool visible = page >= kv_table_first_visible(&shelf.pools[i].class, found * KV_PAGE_TOKENS);
                assert_int_equal(reader.tables[i].pages[page],
                                 visible ? kv_pool_find(&shelf.pools[i], &reader.prefix.keys[page]) : KV_PAGE_NONE);
            }
        }
        book_close(&reader);
        book_close(&other);
        book_close(&writer);
        shelf_close(&shelf);
    }
    assert_true(partial > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_the_published_ones),
        cmocka_unit_test(test_every_byte_of_a_layer_has_one_meaning),
        cmocka_unit_test(test_formats_say_what_they_cannot_hold),
        cmocka_unit_test(test_owners_are_counted),
        cmocka_unit_test(test_the_longest_unused_page_goes_first),
        cmocka_unit_test(test_the_first_page_of_a_key_stays),
        cmocka_unit_test(test_keys_are_kept_and_forgotten),
        cmocka_unit_test(test_mistakes_are_noticed),
        cmocka_unit_test(test_tables_hold_what_is_visible),
        cmocka_unit_test(test_an_empty_pool_keeps_what_was_acquired),
        cmocka_unit_test(test_the_pages_needed_suffice),
        cmocka_unit_test(test_more_text_needs_no_fewer_pages),
        cmocka_unit_test(test_keys_name_a_text_from_its_start),
        cmocka_unit_test(test_the_longest_usable_beginning_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
