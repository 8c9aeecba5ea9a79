// SPDX-License-Identifier: Apache-2.0
// server/responses_lookup.c: what is asked of stored responses: the object, its input items, and to forget or to cancel
// it; and what a new request takes from them.
#include "server/responses.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "format/json.h"
#include "server/admission.h"
#include "server/json_writer.h"
#include "server/http_parse.h"
#include "server/reader.h"

// ---- for new requests ---------------------------------------------------------------------------------------------

// Reads a stored list of items to the end of another one.
static bool add_items(struct job *job, const struct strbuf *text, json_t *items)
{
    json_t *list = NULL;
    struct error cause;
    if (!text->len)
        return true;
    job->recalled_bytes += text->len;
    job->leaves_lane = job->in_small_lane && job->recalled_bytes > READER_SMALL_BYTES;
    if (job->leaves_lane)
        return false;
    if (!admission_read_more(job, strbuf_bytes(text)))
        return false;
    if (!json_read(strbuf_bytes(text), &list, &cause))
        return api_fail(&job->error, 500, NULL, "a stored response cannot be read: %s", cause.text);
    json_array_extend(items, list);
    json_decref(list);
    return true;
}

static bool is_over(const struct response_record *record)
{
    return atomic_load(&record->status) != RESPONSE_IN_PROGRESS;
}

json_t *responses_history(struct job *job, const struct response_record *record)
{
    size_t count = 0;
    for (const struct response_record *at = record; at; at = at->previous)
        count++;
    const struct response_record **chain = memory_new(count + 1, sizeof *chain);
    for (size_t i = count; record; record = record->previous)
        chain[--i] = record;
    json_t *items = json_array();
    bool ok = true;
    for (size_t i = 0; ok && i < count && !atomic_load(&job->cancelled); i++)
        ok = add_items(job, &chain[i]->input, items)
            && (!is_over(chain[i]) || add_items(job, &chain[i]->output, items));
    free(chain);
    if (ok && !atomic_load(&job->cancelled))
        return items;
    json_decref(items);
    return NULL;
}

// Adds the items of a response to the table of those that can be referred to.
static bool recall(struct job *job, const char *name)
{
    struct response_record *record = response_store_find(job->response_store, bytes_of(name), job->owner);
    json_t *table = job->response->recalled, *items = json_array(), *item;
    size_t index;
    bool ok = record && add_items(job, &record->input, items)
        && (!is_over(record) || add_items(job, &record->output, items));
    json_array_foreach (items, index, item)
        if (ok && json_is_string(json_object_get(item, "id")))
            json_object_set(table, json_string_value(json_object_get(item, "id")), item);
    json_object_set_new(table, name, json_null()); // it is not read again
    json_decref(items);
    response_record_release(record);
    return ok;
}

// An item's id has the digits of its response's id in the middle: "msg_DIGITS_0".
json_t *responses_find_item(struct job *job, struct bytes id)
{
    const char *begin = id.len ? memchr(id.data, '_', id.len) : NULL, *end = begin;
    char name[RESPONSE_ID_BYTES];
    for (size_t i = 0; begin && i < id.len; i++)
        end = id.data[i] == '_' ? id.data + i : end;
    if (!begin || end == begin || !job->response_store || end - begin > RESPONSE_ID_BYTES - 8)
        return NULL;
    if (!job->response->recalled)
        job->response->recalled = json_object();
    json_t *table = job->response->recalled;
    snprintf(name, sizeof name, "resp_%.*s", (int)(end - begin - 1), begin + 1);
    if (!json_object_get(table, name) && !recall(job, name))
        return NULL;
    json_t *item = json_object_getn(table, id.data, id.len);
    return json_is_object(item) ? json_incref(item) : NULL;
}

// ---- by id --------------------------------------------------------------------------------------------------------

// A reference to the response that the path names. NULL: refused.
static struct response_record *find_named(struct job *job)
{
    struct response_record *record = response_store_find(job->response_store, job->target, job->owner);
    if (!record)
        responses_fail_unknown(job, job->target);
    return record;
}

// Writes the object as it is stored; one that is in progress has no output yet, and may just have been cancelled.
static void write_record(const struct response_record *record, bool over, struct strbuf *out)
{
    responses_open_object(record, true, out);
    json_write(out, "%s,\"output\":%s", strbuf_text(&record->echo), over ? strbuf_text(&record->output) : "[]");
    if (over) {
        strbuf_add(out, record->end.data, record->end.len);
    } else {
        responses_write_status(atomic_load(&record->cancelled) ? RESPONSE_CANCELLED : RESPONSE_IN_PROGRESS, NULL, out);
        strbuf_add_text(out, ",\"usage\":null");
    }
    strbuf_add_byte(out, '}');
}

static bool fail_query(struct job *job, const char *name, const char *sentence)
{
    return api_fail(&job->error, 400, name, "\"%.60s\" in the query %s", name, sentence);
}

// Harmless options: all that can be included is there anyway, and the others shape a stream, which there is not.
static bool is_idle_option(const char *name, const char *value)
{
    return !strcmp(name, "include") || !strcmp(name, "include[]") || !strcmp(name, "include_obfuscation")
        || (!strcmp(name, "stream") && (!strcmp(value, "false") || !strcmp(value, "False")));
}

// Reads the query, option by option.
static bool read_query(struct job *job,
                       bool (*read)(struct job *job, const char *name, const char *value, void *context), void *context)
{
    struct bytes query = job->query;
    struct strbuf name = { 0 }, value = { 0 };
    bool ok = true;
    while (ok && http_query_next(&query, &name, &value))
        ok = read(job, strbuf_text(&name), strbuf_text(&value), context);
    strbuf_free(&name);
    strbuf_free(&value);
    return ok;
}

static bool read_get_option(struct job *job, const char *name, const char *value, void *context)
{
    (void)context;
    return is_idle_option(name, value) || fail_query(job, name, "is not supported; the response is given whole");
}

bool responses_get(struct job *job)
{
    struct response_record *record = read_query(job, read_get_option, NULL) ? find_named(job) : NULL;
    if (record)
        write_record(record, is_over(record), &job->reply);
    response_record_release(record);
    return false;
}

bool responses_delete(struct job *job)
{
    struct response_record *record = find_named(job);
    if (!record)
        return false;
    response_store_remove(record);
    strbuf_add_format(&job->reply, "{\"id\":\"%s\",\"object\":\"response\",\"deleted\":true}", record->id);
    response_record_release(record);
    return false;
}

// The answer of a response that is cancelled ends with the worker's next step.
bool responses_cancel(struct job *job)
{
    struct response_record *record = find_named(job);
    if (!record)
        return false;
    enum response_status status = (enum response_status)atomic_load(&record->status);
    if (status == RESPONSE_IN_PROGRESS) {
        atomic_store(&record->cancelled, true);
        write_record(record, false, &job->reply);
    } else {
        api_fail(&job->error, 400, NULL, "Cannot cancel %s %s response.", status == RESPONSE_INCOMPLETE ? "an" : "a",
                 response_status_words[status]);
    }
    response_record_release(record);
    return false;
}

// ---- input items --------------------------------------------------------------------------------------------------

struct page {
    struct strbuf after;
    int limit;
    bool ascending;
};

static bool read_limit(struct job *job, const char *text, struct page *page)
{
    enum { MOST = 100 };
    char *end;
    errno = 0;
    long limit = strtol(text, &end, 10);
    page->limit = (int)limit;
    return (*text && !*end && !errno && limit >= 1 && limit <= MOST)
        || fail_query(job, "limit", "is a number from 1 to 100");
}

static bool read_page_option(struct job *job, const char *name, const char *text, void *context)
{
    struct page *page = context;
    if (!strcmp(name, "limit"))
        return read_limit(job, text, page);
    if (!strcmp(name, "order")) {
        page->ascending = !strcmp(text, "asc");
        return page->ascending || !strcmp(text, "desc") || fail_query(job, "order", "is asc or desc");
    }
    if (!strcmp(name, "after")) {
        page->after.len = 0;
        strbuf_add_text(&page->after, text);
        return true;
    }
    return !strcmp(name, "include") || !strcmp(name, "include[]")
        || fail_query(job, name, "is not known; there are after, limit, order and include");
}

static struct bytes id_of(const json_t *item) { return json_bytes(json_object_get(item, "id")); }

// Writes the page of a list whose order is the ascending one.
static bool write_page(struct job *job, const json_t *items, const struct page *page)
{
    size_t count = json_array_size(items), at = 0;
    const json_t *first = NULL, *last = NULL;
    if (page->after.len) {
        while (at < count
               && !bytes_equal(id_of(json_array_get(items, page->ascending ? at : count - 1 - at)),
                               strbuf_bytes(&page->after)))
            at++;
        if (at++ == count)
            return api_fail_code(&job->error, 404, "after", "not_found", "Item with id '%.100s' not found.",
                                 page->after.data);
    }
    strbuf_add_text(&job->reply, "{\"object\":\"list\",\"data\":[");
    for (int written = 0; at < count && written < page->limit; at++, written++) {
        last = json_array_get(items, page->ascending ? at : count - 1 - at);
        first = first ? first : last;
        strbuf_add_text(&job->reply, written ? "," : "");
        api_dump(last, &job->reply);
    }
    json_write(&job->reply, "],\"first_id\":%b,\"last_id\":%b,\"has_more\":%s}", id_of(first), id_of(last),
               at < count ? "true" : "false");
    return true;
}

// The items that the model saw: those of the responses that were continued, and the request's own.
bool responses_list_items(struct job *job)
{
    enum { USUAL = 20 };
    struct page page = { .limit = USUAL };
    struct response_record *record = read_query(job, read_page_option, &page) ? find_named(job) : NULL;
    if (record) {
        json_t *items = responses_history(job, record->previous);
        if (items && add_items(job, &record->input, items))
            write_page(job, items, &page);
        json_decref(items);
        job->recalled_bytes = 0;
    }
    response_record_release(record);
    strbuf_free(&page.after);
    return false;
}
