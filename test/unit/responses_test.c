// SPDX-License-Identifier: Apache-2.0
// /v1/responses without a server: requests as the chats they become, answers made of parts by hand as objects and as
// events, in slices and in bits, and the store.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include "format/json.h"
#include "server/answer.h"
#include "server/parts.h"
#include "server/responses.h"

#include <cmocka.h>

#include "tokenizer_open.h"

static const char *const names[] = { "model" };
static struct api api = {
    .names = names, .name_count = 1, .fingerprint = "fp-test", .max_model_len = 4096, .logits = 256
};

static int open_api(void **state)
{
    (void)state;
    api.tokenizer = open_byte_level("", "", "");
    return 0;
}

static int close_api(void **state)
{
    (void)state;
    tokenizer_close((struct tokenizer *)api.tokenizer);
    return 0;
}

// ---- reading ------------------------------------------------------------------------------------------------------

static struct job *read_job_of(struct response_store *store, const char *body)
{
    struct job *job = job_new(&api, JOB_RESPONSE, "/v1/responses");
    job->response_store = store;
    job->json = read_quoted(body);
    if (!responses_translate(job) && !job->error.status)
        fail_msg("refused without an error");
    return job;
}

static void assert_json(const json_t *got, const char *want)
{
    json_t *value = read_quoted(want);
    char *text = json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!json_equal(got, value))
        fail_msg("%s, expected %s", text, want);
    free(text);
    json_decref(value);
}

static void test_messages(void **state)
{
    static const struct {
        const char *body, *messages;
    } rows[] = {
        { "{'input':'Hi'}", "[{'role':'user','content':'Hi'}]" },
        { "{'input':'Hi','instructions':'A'}", "[{'role':'system','content':'A'},{'role':'user','content':'Hi'}]" },
        { "{'instructions':'A','input':[{'role':'developer','content':[{'type':'input_text','text':'B'}]},"
          "{'role':'user','content':'Hi'}]}",
          "[{'role':'system','content':'A\\n\\nB'},{'role':'user','content':'Hi'}]" },
        { "{'input':[{'role':'user','content':[{'type':'input_text','text':'a'},{'type':'input_text','text':'b'}]}]}",
          "[{'role':'user','content':[{'type':'text','text':'a'},{'type':'text','text':'b'}]}]" },
        { "{'input':[{'type':'reasoning','id':'r','summary':[],'content':[{'type':'reasoning_text','text':'T'}]},"
          "{'type':'message','role':'assistant','content':[{'type':'output_text','text':'a','annotations':[]}]},"
          "{'type':'function_call','call_id':'1','name':'f','arguments':'{}'},"
          "{'type':'function_call','call_id':'2','name':'g','arguments':'{}'},"
          "{'type':'function_call_output','call_id':'1','output':'x'},"
          "{'type':'function_call_output','call_id':'2','output':[{'type':'input_text','text':'y'}]}]}",
          "[{'role':'assistant','content':[{'type':'text','text':'a'}],'reasoning_content':'T','tool_calls':["
          "{'id':'1','type':'function','function':{'name':'f','arguments':'{}'}},"
          "{'id':'2','type':'function','function':{'name':'g','arguments':'{}'}}]},"
          "{'role':'tool','tool_call_id':'1','content':'x'},"
          "{'role':'tool','tool_call_id':'2','content':[{'type':'text','text':'y'}]}]" },
        { "{'input':[{'role':'user','content':'q'},"
          "{'type':'reasoning','summary':[{'type':'summary_text','text':'S'}],'encrypted_content':null},"
          "{'type':'function_call','call_id':'1','name':'f','arguments':'{}'}]}",
          "[{'role':'user','content':'q'},{'role':'assistant','content':'','reasoning_content':'S','tool_calls':["
          "{'id':'1','type':'function','function':{'name':'f','arguments':'{}'}}]}]" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job *job = read_job_of(NULL, rows[i].body);
        assert_int_equal(job->error.status, 0);
        assert_json(json_object_get(job->json, "messages"), rows[i].messages);
        job_free(job);
    }
}

static void test_chat_fields(void **state)
{
    static const struct {
        const char *fields, *name, *value;
    } rows[] = {
        { "'max_output_tokens':5", "max_tokens", "5" },
        { "'text':{'format':{'type':'json_object'}}", "response_format", "{'type':'json_object'}" },
        { "'text':{'format':{'type':'json_schema','name':'n','schema':{'type':'object'},'strict':true}}",
          "response_format",
          "{'type':'json_schema','json_schema':{'name':'n','schema':{'type':'object'},'strict':true}}" },
        { "'include':['message.output_text.logprobs'],'top_logprobs':2", "top_logprobs", "2" },
        { "'include':['message.output_text.logprobs']", "logprobs", "true" },
        { "'tools':[{'type':'function','name':'f','parameters':null,'strict':true}]", "tools",
          "[{'type':'function','function':{'name':'f','strict':true}}]" },
        { "'tools':[{'type':'function','name':'f'}],'tool_choice':{'type':'function','name':'f'}", "tool_choice",
          "{'type':'function','function':{'name':'f'}}" },
        { "'tools':[{'type':'function','name':'f'},{'type':'function','name':'g'}],'tool_choice':{'type':"
          "'allowed_tools','mode':'required','tools':[{'type':'function','name':'g'}]}",
          "tools", "[{'type':'function','function':{'name':'g'}}]" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct strbuf body = { 0 };
        strbuf_add_format(&body, "{'input':'x',%s}", rows[i].fields);
        struct job *job = read_job_of(NULL, body.data);
        assert_int_equal(job->error.status, 0);
        assert_json(json_object_get(job->json, rows[i].name), rows[i].value);
        strbuf_free(&body);
        job_free(job);
    }
}

// ---- answers of parts made by hand --------------------------------------------------------------------------------

static struct job *new_job(bool stream, int top_logprobs)
{
    struct job *job = read_job_of(NULL, "{'input':'x','instructions':'be \\'brief\\''}");
    job_drop_json(job);
    job->params = (struct request_params){ .request = { .top_logprobs = top_logprobs }, .n = 1, .stream = stream };
    job->prompts = calloc(1, sizeof *job->prompts);
    job->prompts[0] = (struct prompt){ calloc(3, sizeof(int32_t)), 3 };
    job->prompt_count = 1;
    job_make_choices(job);
    return job;
}

static struct answer_part *add_part(struct job *job, enum part_kind kind, const char *text)
{
    struct choice *choice = &job->choices[0];
    struct answer_part *parts = calloc((size_t)choice->part_count + 1, sizeof *parts);
    if (choice->part_count)
        memcpy(parts, choice->parts, (size_t)choice->part_count * sizeof *parts);
    free(choice->parts);
    choice->parts = parts;
    parts += choice->part_count++;
    parts->kind = kind;
    strbuf_add_text(&parts->text, text);
    if (kind == PART_CALL) {
        parts->call = choice->call_count++;
        snprintf(parts->id, sizeof parts->id, "call_%d", parts->call);
        strbuf_add_text(&parts->name, "get_\"weather\"");
    }
    return parts;
}

static void finish(struct job *job, enum nibble_finish reason)
{
    struct output *answer = &job->choices[0].answer;
    answer->finished = true;
    answer->reason = reason;
    answer->stop_string = answer->stop_id = -1;
    job->released = true;
}

// A value more than a slice: a text of a slice whose bytes are all escaped.
enum { SLICE_MOST = 8 * ANSWER_SLICE_BYTES };

static struct strbuf write_all(struct job *job, bool (*write)(struct job *job, struct strbuf *out))
{
    struct strbuf all = { 0 }, slice = { 0 };
    for (bool complete = false; !complete;) {
        slice.len = 0;
        complete = write(job, &slice);
        assert_true(slice.len <= SLICE_MOST);
        assert_true(complete || slice.len >= ANSWER_SLICE_BYTES);
        strbuf_add(&all, slice.data, slice.len);
    }
    strbuf_free(&slice);
    return all;
}

static json_t *parse(struct bytes text)
{
    struct error err;
    json_t *value = NULL;
    if (!json_read_strict(text, 1 << 20, &value, &err))
        fail_msg("%s: %.200s", err.text, text.data);
    return value;
}

// All events of a stream (new reference); their names and numbers are checked.
static json_t *events_of(struct bytes text)
{
    json_t *events = json_array();
    while (text.len) {
        const char *data = strstr(text.data, "\ndata: "), *end = strstr(text.data, "\n\n");
        assert_true(bytes_start_with(text, bytes_of("event: ")) && data && end && data < end);
        json_t *event = parse((struct bytes){ data + 7, (size_t)(end - data) - 7 });
        struct bytes name = { text.data + 7, (size_t)(data - text.data) - 7 };
        assert_true(bytes_equal(name, json_bytes(json_object_get(event, "type"))));
        assert_int_equal(json_integer_value(json_object_get(event, "sequence_number")), json_array_size(events));
        json_array_append_new(events, event);
        text = bytes_from(text, (size_t)(end - text.data) + 2);
    }
    return events;
}

// Deltas make the text of each done event, items that are done are those of the response at the end (borrowed).
static json_t *check_events(json_t *events)
{
    struct strbuf text = { 0 };
    json_t *event, *items = json_array();
    size_t index;
    json_array_foreach (events, index, event) {
        const char *type = json_string_value(json_object_get(event, "type"));
        struct bytes delta = json_bytes(json_object_get(event, "delta"));
        json_t *whole = json_object_get(event, "text");
        whole = whole ? whole : json_object_get(event, "arguments");
        strbuf_add(&text, delta.data, delta.len);
        if (!strcmp(type, "response.output_item.added"))
            text.len = 0;
        if (whole)
            assert_true(bytes_equal(json_bytes(whole), strbuf_bytes(&text)));
        if (!strcmp(type, "response.output_item.done")) {
            assert_int_equal(json_integer_value(json_object_get(event, "output_index")), json_array_size(items));
            json_array_append(items, json_object_get(event, "item"));
        }
    }
    strbuf_free(&text);
    json_t *response = json_object_get(json_array_get(events, json_array_size(events) - 1), "response");
    assert_true(json_equal(json_object_get(response, "output"), items));
    json_decref(items);
    return response;
}

static void add_all_kinds(struct job *job)
{
    add_part(job, PART_REASONING, "I \"think\"\n");
    add_part(job, PART_CONTENT, "\n\n");
    add_part(job, PART_CONTENT, "\n\nGr\xc3\xbc\xc3\x9f");
    add_part(job, PART_CALL, "{\"city\": \"Oslo\"}");
    add_part(job, PART_CONTENT, "\n");
    add_part(job, PART_CALL, "{}");
}

static const char all_kinds[] = "['reasoning','message','function_call','function_call']";

static json_t *types_of(const json_t *response)
{
    json_t *types = json_array(), *item;
    size_t index;
    json_array_foreach (json_object_get(response, "output"), index, item)
        json_array_append(types, json_object_get(item, "type"));
    return types;
}

static void test_whole(void **state)
{
    (void)state;
    struct job *job = new_job(false, -1);
    add_all_kinds(job);
    finish(job, NIBBLE_FINISH_STOP);
    struct strbuf text = write_all(job, answer_whole);
    json_t *response = parse(strbuf_bytes(&text)), *types = types_of(response);
    assert_json(types, all_kinds);
    json_t *output = json_object_get(response, "output");
    assert_json(json_object_get(json_array_get(output, 0), "content"),
                "[{'type':'reasoning_text','text':'I \\\"think\\\"\\n'}]");
    assert_json(json_object_get(json_array_get(output, 2), "call_id"), "'call_0'");
    assert_json(json_object_get(json_array_get(output, 2), "arguments"), "'{\\\"city\\\": \\\"Oslo\\\"}'");
    assert_json(json_object_get(response, "status"), "'completed'");
    assert_json(json_object_get(response, "instructions"), "'be \\\"brief\\\"'");
    json_decref(types);
    json_decref(response);
    strbuf_free(&text);
    job_free(job);
}

// An answer in one bit and one in bits of a byte have the same items.
static void test_stream(void **state)
{
    (void)state;
    json_t *outputs[2];
    for (int bits = 0; bits < 2; bits++) {
        struct job *job = new_job(true, -1), *whole = new_job(true, -1);
        struct strbuf text = { 0 };
        add_all_kinds(whole);
        for (int i = 0; bits && i < whole->choices[0].part_count; i++) {
            struct answer_part *from = &whole->choices[0].parts[i], *to = add_part(job, from->kind, "");
            for (size_t at = 0; at < from->text.len; at++) {
                strbuf_add_byte(&to->text, from->text.data[at]);
                assert_true(from->text.data[at] & 0x80 || responses_stream(job, &text)); // text comes in characters
            }
        }
        if (!bits)
            add_all_kinds(job);
        assert_true(responses_stream(job, &text));
        finish(job, NIBBLE_FINISH_LENGTH);
        assert_true(responses_stream(job, &text));
        assert_true(responses_stream(job, &text)); // nothing more
        json_t *events = events_of(strbuf_bytes(&text)), *response = check_events(events), *types = types_of(response);
        assert_json(types, all_kinds);
        assert_json(json_object_get(response, "incomplete_details"), "{'reason':'max_output_tokens'}");
        outputs[bits] = json_object_get(response, "output");
        json_t *item;
        size_t index;
        json_array_foreach (outputs[bits], index, item)
            json_object_del(item, "id"); // has the response's in it
        json_incref(outputs[bits]);
        json_decref(types);
        json_decref(events);
        strbuf_free(&text);
        job_free(whole);
        job_free(job);
    }
    assert_true(json_equal(outputs[0], outputs[1]));
    json_decref(outputs[0]);
    json_decref(outputs[1]);
}

static void add_tokens(struct job *job, struct answer_part *part, int count)
{
    for (int i = 0; i < count; i++) {
        struct nibble_candidate top[2] = { { i % 100, -0.5f }, { 7, -1 } };
        struct nibble_token token = { .id = i % 100, .scored = true, .logprob = -0.5f, .top = top, .top_count = 2 };
        output_add(&job->choices[0].answer, &token, i);
    }
    part->token_end = job->choices[0].answer.token_count;
}

// Texts and logprobs of megabytes are made in slices, whole and streamed, and are the same.
static void test_slices(void **state)
{
    enum { BYTES = 400000, TOKENS = 3000 };
    (void)state;
    char *long_text = malloc(BYTES + 1);
    memset(long_text, '"', BYTES);
    long_text[BYTES] = 0;
    json_t *outputs[2];
    for (int stream = 0; stream < 2; stream++) {
        struct job *job = new_job(stream, 2);
        for (int i = 0; i < 3; i++) {
            struct answer_part *part = add_part(job, (enum part_kind)i, long_text);
            if (part->kind == PART_CONTENT)
                add_tokens(job, part, TOKENS);
        }
        struct strbuf *echo = &job->response->record->echo;
        strbuf_add_text(echo, ",\"long\":\"");
        for (int i = 0; i < 5 * ANSWER_SLICE_BYTES; i++)
            strbuf_add_byte(echo, 'x');
        strbuf_add_byte(echo, '"');
        finish(job, NIBBLE_FINISH_STOP);
        struct strbuf text = write_all(job, stream ? responses_stream : answer_whole);
        json_t *value = stream ? events_of(strbuf_bytes(&text)) : parse(strbuf_bytes(&text));
        outputs[stream] = json_incref(json_object_get(stream ? check_events(value) : value, "output"));
        json_t *message = json_array_get(outputs[stream], 1), *item;
        size_t index;
        json_t *part = json_array_get(json_object_get(message, "content"), 0);
        assert_int_equal(json_array_size(json_object_get(part, "logprobs")), TOKENS);
        json_array_foreach (outputs[stream], index, item)
            json_object_del(item, "id");
        json_decref(value);
        strbuf_free(&text);
        job_free(job);
    }
    assert_true(json_equal(outputs[0], outputs[1]));
    json_decref(outputs[0]);
    json_decref(outputs[1]);
    free(long_text);
}

static void test_ends(void **state)
{
    static const struct {
        enum nibble_finish reason;
        const char *event, *status;
    } rows[] = {
        { NIBBLE_FINISH_STOP, "'response.completed'", "'completed'" },
        { NIBBLE_FINISH_LENGTH, "'response.incomplete'", "'incomplete'" },
        { NIBBLE_FINISH_CANCELLED, "'response.incomplete'", "'cancelled'" },
        { NIBBLE_FINISH_FAILED, "'response.failed'", "'failed'" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int parts = 0; parts < 2; parts++) {
            struct job *job = new_job(true, -1);
            if (parts)
                add_part(job, PART_CONTENT, "Hi");
            if (rows[i].reason == NIBBLE_FINISH_FAILED)
                api_fail(&job->error, 500, NULL, "broken");
            finish(job, rows[i].reason);
            struct strbuf text = write_all(job, responses_stream);
            json_t *events = events_of(strbuf_bytes(&text)), *response = check_events(events);
            assert_json(json_object_get(response, "status"), rows[i].status);
            assert_json(json_object_get(json_array_get(events, json_array_size(events) - 1), "type"), rows[i].event);
            bool failed = rows[i].reason == NIBBLE_FINISH_FAILED;
            assert_int_equal(json_array_size(json_object_get(response, "output")), !failed || parts);
            assert_int_equal(json_is_object(json_object_get(response, "error")), failed);
            json_decref(events);
            strbuf_free(&text);
            job_free(job);
        }
    }
}

// ---- the store ----------------------------------------------------------------------------------------------------

static const unsigned char ada[1], bob[1];

static struct response_record *add_record(struct response_store *store, const char *digits, size_t bytes,
                                          struct response_record *previous)
{
    struct response_record *record = response_record_new(digits, ada, 1);
    for (size_t i = 0; i < bytes; i++)
        strbuf_add_byte(&record->echo, 'x');
    record->previous = previous;
    if (!response_store_add(store, record)) {
        response_record_release(record);
        return NULL;
    }
    atomic_store(&record->status, RESPONSE_COMPLETED);
    response_record_release(record); // the store has it
    return record;
}

static bool has(struct response_store *store, const char *id, const unsigned char *owner)
{
    struct response_record *record = response_store_find(store, bytes_of(id), owner);
    response_record_release(record);
    return record;
}

static void test_store_by_count(void **state)
{
    struct response_store store;
    (void)state;
    response_store_open(&store, 1 << 20, 3);
    assert_non_null(add_record(&store, "aaa1", 5, NULL));
    assert_non_null(add_record(&store, "aaa2", 5, NULL));
    assert_non_null(add_record(&store, "bbb3", 5, NULL));
    assert_true(has(&store, "resp_aaa1", ada) && !has(&store, "resp_aaa1", bob) && !has(&store, "resp_aaa1", NULL));
    assert_non_null(add_record(&store, "ccc4", 5, NULL));
    assert_true(has(&store, "resp_aaa1", ada) && !has(&store, "resp_aaa2", ada) && has(&store, "resp_bbb3", ada));
    assert_false(has(&store, "", ada) || has(&store, "resp_", ada) || has(&store, "resp_\xff\xff\xff", ada));
    struct response_record *running = response_record_new("ddd5", ada, 1);
    assert_true(response_store_add(&store, running));
    assert_true(response_store_grow(running, 10));
    assert_false(response_store_grow(running, 2 << 20)); // and it is forgotten
    assert_false(has(&store, "resp_ddd5", ada));
    response_record_release(running);
    response_store_close(&store);
    assert_int_equal(budget_used(&store.budget), 0);
    response_store_open(&store, 1 << 20, 0);
    assert_null(add_record(&store, "aaa1", 5, NULL));
    response_store_close(&store);
}

// The records of a chain stay, and are charged, as long as the last one.
static void test_store_by_bytes(void **state)
{
    enum { TURNS = 20000, BYTES = 16 << 20 };
    struct response_store store;
    char digits[16], id[32];
    (void)state;
    response_store_open(&store, BYTES, TURNS + 1);
    assert_null(add_record(&store, "aaaa", BYTES, NULL));
    struct response_record *last = NULL;
    for (int turn = 0; turn < TURNS; turn++) {
        snprintf(digits, sizeof digits, "%08x", turn);
        struct response_record *record = response_record_new(digits, ada, 1);
        record->previous = last;
        assert_true(response_store_add(&store, record));
        atomic_store(&record->status, RESPONSE_COMPLETED);
        last = record; // with our reference
    }
    size_t used = budget_used(&store.budget);
    assert_true(used >= TURNS * sizeof *last);
    for (int turn = 0; turn < TURNS - 1; turn++) {
        snprintf(id, sizeof id, "resp_%08x", turn);
        struct response_record *record = response_store_find(&store, bytes_of(id), ada);
        response_store_remove(record);
        response_record_release(record);
    }
    assert_int_equal(budget_used(&store.budget), used);
    response_record_release(last);
    assert_null(add_record(&store, "bbbb", BYTES - 100, NULL)); // all must go for it, and it is too large yet
    assert_non_null(add_record(&store, "cccc", BYTES / 4, NULL));
    assert_false(has(&store, id, ada));
    response_store_close(&store);
    assert_int_equal(budget_used(&store.budget), 0);
}

// A response is looked up with what its answer had, and one whose job ends without an answer is forgotten.
static void test_stored(void **state)
{
    struct response_store store;
    (void)state;
    response_store_open(&store, 1 << 20, 10);
    for (int answered = 0; answered < 2; answered++) {
        struct job *job = read_job_of(&store, "{'input':'x'}");
        job_drop_json(job);
        job->prompts = calloc(1, sizeof *job->prompts);
        job->prompt_count = 1;
        job->params.n = 1;
        job->params.request.top_logprobs = -1;
        job_make_choices(job);
        char id[RESPONSE_ID_BYTES];
        snprintf(id, sizeof id, "%s", job->id);
        assert_true(has(&store, id, NULL));
        struct strbuf text = { 0 };
        if (answered) {
            add_part(job, PART_CONTENT, "Hi");
            finish(job, NIBBLE_FINISH_STOP);
            text = write_all(job, answer_whole);
        }
        job_free(job);
        assert_int_equal(has(&store, id, NULL), answered);
        if (answered) {
            struct job *get = job_new(&api, JOB_RESPONSE_GET, "/v1/responses/");
            get->response_store = &store;
            get->target = bytes_of(id);
            assert_false(responses_get(get));
            json_t *first = parse(strbuf_bytes(&text)), *second = parse(strbuf_bytes(&get->reply));
            assert_true(json_equal(first, second));
            json_decref(first);
            json_decref(second);
            job_free(get);
        }
        strbuf_free(&text);
    }
    response_store_close(&store);
    assert_int_equal(budget_used(&store.budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),       cmocka_unit_test(test_chat_fields),    cmocka_unit_test(test_whole),
        cmocka_unit_test(test_stream),         cmocka_unit_test(test_slices),         cmocka_unit_test(test_ends),
        cmocka_unit_test(test_store_by_count), cmocka_unit_test(test_store_by_bytes), cmocka_unit_test(test_stored),
    };
    return cmocka_run_group_tests(tests, open_api, close_api);
}
