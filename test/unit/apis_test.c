// SPDX-License-Identifier: Apache-2.0
// Readers and writers of Anthropic's messages and of Ollama's API: what a request becomes, and what an answer's parts
// become, whole and as a stream in pieces of any size; both have to say the same.
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/memory.h"
#include "server/answer.h"
#include "server/translate.h"

#include <cmocka.h>

static const char *const names[] = { "a \"model\"" };
static const struct api api = { .names = names,
                                .name_count = 1,
                                .max_model_len = 4096,
                                .architecture = "llama",
                                .weight_format = "Q4_1",
                                .slots = 2,
                                .root = "m.gguf",
                                .fingerprint = "fp" };

// Test data is JSON with ' for ".
static json_t *parse(const char *text)
{
    char *copy = memory_text(text);
    for (char *at = copy; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    json_t *value = json_loads(copy, JSON_DECODE_ANY, NULL);
    free(copy);
    assert_non_null(value);
    return value;
}

static void assert_json(const json_t *got, const char *want)
{
    json_t *expected = parse(want);
    if (!json_equal(got, expected)) {
        char *text = json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY);
        print_error("%s\n", text);
        free(text);
    }
    assert_true(json_equal(got, expected));
    json_decref(expected);
}

// ---- readers ------------------------------------------------------------------------------------------------------

static struct job *read_request(enum job_kind kind, const char *request, bool *ok)
{
    struct job *job = job_new(&api, kind, "/");
    job->json = parse(request);
    *ok = kinds[kind].translate(job);
    return job;
}

struct reading {
    const char *request, *becomes;
};

static void check_readings(enum job_kind kind, const struct reading *readings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool ok;
        struct job *job = read_request(kind, readings[i].request, &ok);
        if (!ok)
            print_error("%s: %s\n", readings[i].request, job->error.text);
        assert_true(ok);
        assert_json(job->json, readings[i].becomes);
        job_free(job);
    }
}

// `becomes` is a part of the error's sentence.
static void check_refusals(enum job_kind kind, const struct reading *readings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool ok;
        struct job *job = read_request(kind, readings[i].request, &ok);
        if (ok || !strstr(job->error.text, readings[i].becomes))
            print_error("%s: %s\n", readings[i].request, job->error.text);
        assert_false(ok);
        assert_int_equal(job->error.status, 400);
        assert_non_null(strstr(job->error.text, readings[i].becomes));
        job_free(job);
    }
}

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define ASK "'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'Hi'}]"
#define ASKED "'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'Hi'}]"

static void test_messages_fields(void **state)
{
    static const struct reading readings[] = {
        { "{" ASK "}", "{" ASKED "}" },
        { "{" ASK ", 'system': 'Be kind.', 'temperature': 0, 'top_p': 0.5, 'top_k': 3, 'stop_sequences': ['a', 'b'],"
          " 'stream': true, 'metadata': {'user_id': 'x'}, 'service_tier': 'auto', 'cache_control': {'type': "
          "'ephemeral'}}",
          "{'max_tokens': 5, 'messages': [{'role': 'system', 'content': 'Be kind.'}, {'role': 'user', 'content': "
          "'Hi'}],"
          " 'temperature': 0, 'top_p': 0.5, 'top_k': 3, 'stop': ['a', 'b'], 'stream': true}" },
        { "{" ASK ", 'tools': [{'name': 'f', 'input_schema': {'type': 'object'}}, {'type': 'custom', 'name': 'g',"
          " 'description': 'd', 'input_schema': {}, 'strict': true, 'cache_control': {'type': 'ephemeral', 'ttl': "
          "'1h'},"
          " 'defer_loading': true, 'eager_input_streaming': true, 'input_examples': [{'a': 1}]}]}",
          "{" ASKED ", 'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object'}}},"
          " {'type': 'function', 'function': {'name': 'g', 'description': 'd\\nExamples of its input: [{\\'a\\':1}]',"
          " 'parameters': {}, 'strict': true}}]}" },
        { "{" ASK ", 'tool_choice': {'type': 'auto'}}",
          "{" ASKED ", 'tool_choice': 'auto', 'parallel_tool_calls': true}" },
        { "{" ASK ", 'tool_choice': {'type': 'any', 'disable_parallel_tool_use': true}}",
          "{" ASKED ", 'tool_choice': 'required', 'parallel_tool_calls': false}" },
        { "{" ASK ", 'tool_choice': {'type': 'none'}}",
          "{" ASKED ", 'tool_choice': 'none', 'parallel_tool_calls': true}" },
        { "{" ASK ", 'tool_choice': {'type': 'tool', 'name': 'f'}}",
          "{" ASKED ", 'tool_choice': {'type': 'function', 'function': {'name': 'f'}}, 'parallel_tool_calls': true}" },
        { "{" ASK ", 'thinking': {'type': 'enabled', 'budget_tokens': 2000}}",
          "{" ASKED ", 'enable_thinking': true, 'thinking': true, 'max_reasoning_tokens': 2000}" },
        { "{" ASK ", 'thinking': {'type': 'disabled'}}", "{" ASKED ", 'enable_thinking': false, 'thinking': false}" },
        { "{" ASK ", 'thinking': {'type': 'adaptive', 'display': 'omitted'}}",
          "{" ASKED ", 'include_reasoning': false}" },
        { "{" ASK ", 'thinking': {'type': 'between_tools'}, 'output_config': {'effort': 'max'}}", "{" ASKED "}" },
        { "{" ASK ", 'output_config': {'format': {'type': 'json_schema', 'schema': {'type': 'null'}}}}",
          "{" ASKED ", 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'output', 'strict': true,"
          " 'schema': {'type': 'null'}}}}" },
        { "{" ASK ", 'output_format': {'type': 'json_schema', 'schema': {}}, 'context_management': {'edits':"
          " [{'type': 'clear_thinking_20251015', 'keep': 'all'}]}}",
          "{" ASKED ", 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'output', 'strict': true,"
          " 'schema': {}}}}" },
        { "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': "
          "'Well'}]}",
          "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Well'}],"
          " 'continue_final_message': true, 'add_generation_prompt': false}" },
    };
    (void)state;
    check_readings(JOB_MESSAGES, readings, COUNT(readings));
}

struct talk {
    const char *system, *messages, *becomes;
};

static void test_messages_conversations(void **state)
{
    static const struct talk talks[] = {
        { "[{'type': 'text', 'text': 'x-anthropic-billing-header: cc_version=2.1; cch=4f3a1;'},"
          " {'type': 'text', 'text': 'A'}, {'type': 'text', 'text': 'B', 'cache_control': {'type': 'ephemeral'}}]",
          "[{'role': 'user', 'content': [{'type': 'text', 'text': 'Hi', 'cache_control': null}]}]",
          "[{'role': 'system', 'content': [{'type': 'text', 'text': 'A'}, {'type': 'text', 'text': 'B'}]},"
          " {'role': 'user', 'content': 'Hi'}]" },
        { "'x-anthropic-billing-header: a\\nYou are'",
          "[{'role': 'user', 'content': []}, {'role': 'user', 'content': 'Hi'}]",
          "[{'role': 'system', 'content': 'You are'}, {'role': 'user', 'content': 'Hi'}]" },
        { "null",
          "[{'role': 'user', 'content': 'a'}, {'role': 'user', 'content': [{'type': 'text', 'text': 'b'}]},"
          " {'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 'T', 'signature': 's'},"
          " {'type': 'redacted_thinking', 'data': 'zzz'}, {'type': 'thinking', 'thinking': 'U', 'signature': ''},"
          " {'type': 'text', 'text': 'c', 'citations': null}, {'type': 'tool_use', 'id': 'i', 'name': 'f', 'input': "
          "{'x': [1]},"
          " 'cache_control': {'type': 'ephemeral'}}, {'type': 'tool_use', 'id': 'j', 'name': 'g', 'input': {}}]},"
          " {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'i', 'content': 'r'}, {'type': "
          "'tool_result',"
          " 'tool_use_id': 'j', 'is_error': true, 'content': [{'type': 'text', 'text': 'no'}, {'type': 'text', 'text': "
          "'go'}]},"
          " {'type': 'tool_result', 'tool_use_id': 'k'}, {'type': 'text', 'text': 'd'}]}]",
          "[{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]},"
          " {'role': 'assistant', 'reasoning_content': 'T\\nU', 'content': 'c', 'tool_calls': [{'id': 'i', 'type': "
          "'function',"
          " 'function': {'name': 'f', 'arguments': {'x': [1]}}}, {'id': 'j', 'type': 'function', 'function': {'name': "
          "'g',"
          " 'arguments': {}}}]}, {'role': 'tool', 'tool_call_id': 'i', 'name': 'f', 'content': 'r'},"
          " {'role': 'tool', 'tool_call_id': 'j', 'name': 'g', 'content': 'Error: no\\ngo'},"
          " {'role': 'tool', 'tool_call_id': 'k', 'content': ''}, {'role': 'user', 'content': 'd'}]" },
        { "''",
          "[{'role': 'user', 'content': ''}, {'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'i',"
          " 'name': 'f', 'input': {}}]}, {'role': 'system', 'content': 'now'}]",
          "[{'role': 'user', 'content': ''}, {'role': 'assistant', 'content': '', 'tool_calls': [{'id': 'i', 'type': "
          "'function',"
          " 'function': {'name': 'f', 'arguments': {}}}]}, {'role': 'user', 'content': "
          "'<system>\\nnow\\n</system>'}]" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(talks); i++) {
        struct job *job = job_new(&api, JOB_MESSAGES, "/");
        json_t *system = parse(talks[i].system), *messages = parse(talks[i].messages);
        json_t *got = messages_conversation(job, system, messages);
        assert_non_null(got);
        assert_json(got, talks[i].becomes);
        json_decref(got);
        json_decref(system);
        json_decref(messages);
        job_free(job);
    }
}

#define SAY(content) "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': 'a'}, " content "]}"

static void test_messages_refusals(void **state)
{
    static const struct reading readings[] = {
        { "{'messages': [{'role': 'user', 'content': 'Hi'}]}", "\"max_tokens\" is missing" },
        { "{'max_tokens': 0, 'messages': [{'role': 'user', 'content': 'Hi'}]}", "max_tokens" },
        { "{'max_tokens': 5}", "\"messages\" is a list" },
        { "{'max_tokens': 5, 'messages': {}}", "\"messages\" is a list" },
        { SAY("5"), "messages[1].role" },
        { SAY("{'role': 'tool', 'content': 'x'}"), "messages[1].role" },
        { SAY("{'role': 'user'}"), "messages[1].content is neither" },
        { SAY("{'role': 'user', 'content': [5]}"), "messages[1].content[0] has no type" },
        { SAY("{'role': 'user', 'content': 'x', 'name': 'y'}"), "\"name\"" },
        { SAY("{'role': 'user', 'content': [{'type': 'text', 'text': 5}]}"),
          "messages[1].content[0].text is no string" },
        { SAY("{'role': 'user', 'content': [{'type': 'text', 'txt': 'x'}]}"), "\"txt\"" },
        { SAY("{'role': 'user', 'content': [{'type': 'image', 'source': {}}]}"),
          "messages[1].content[0] is of type image" },
        { SAY("{'role': 'user', 'content': [{'type': 'document', 'source': {}}]}"), "reads text alone" },
        { SAY("{'role': 'user', 'content': [{'type': 'search_result'}]}"), "reads text alone" },
        { SAY("{'role': 'assistant', 'content': [{'type': 'server_tool_use'}]}"), "Anthropic's servers" },
        { SAY("{'role': 'user', 'content': [{'type': 'web_search_tool_result'}]}"), "Anthropic's servers" },
        { SAY("{'role': 'user', 'content': [{'type': 'tool_use', 'id': 'i', 'name': 'f', 'input': {}}]}"),
          "no user message" },
        { SAY("{'role': 'assistant', 'content': [{'type': 'tool_result', 'tool_use_id': 'i'}]}"),
          "no assistant message" },
        { SAY("{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'i', 'name': 'f', 'input': '{}'}]}"),
          "input is no object" },
        { SAY("{'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'i', 'content': [{'type': "
              "'image'}]}]}"),
          "messages[1].content[0].content[0] is of type image" },
        { SAY("{'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'i', 'content': 5}]}"),
          "neither a string" },
        { "{" ASK ", 'system': 5}", "\"system\"" },
        { "{" ASK ", 'system': [{'type': 'image'}]}", "\"system\"" },
        { "{" ASK ", 'tools': {}}", "\"tools\" is a list" },
        { "{" ASK ", 'tools': [5]}", "\"tools\"[0]" },
        { "{" ASK ", 'tools': [{'name': 'f'}]}", "\"tools\"[0] has no input_schema" },
        { "{" ASK ", 'tools': [{'type': 'web_search_20250305', 'name': 'web_search'}]}", "web_search_20250305" },
        { "{" ASK ", 'tools': [{'type': 'bash_20250124', 'name': 'bash'}]}", "bash_20250124" },
        { "{" ASK ", 'tools': [{'type': 'text_editor_20250728', 'name': 'x'}]}", "custom tool" },
        { "{" ASK ", 'tools': [{'type': 'computer_toolset_20260801', 'name': 'x'}]}", "custom tool" },
        { "{" ASK ", 'tool_choice': 'auto'}", "\"tool_choice\"" },
        { "{" ASK ", 'tool_choice': {'type': 'tool'}}", "\"tool_choice\"" },
        { "{" ASK ", 'tool_choice': {'type': 'any', 'force': 1}}", "\"force\"" },
        { "{" ASK ", 'thinking': {'type': 'on'}}", "\"thinking\"" },
        { "{" ASK ", 'thinking': {'type': 'enabled', 'budget_tokens': 'x'}}", "budget_tokens" },
        { "{" ASK ", 'thinking': {'type': 'enabled', 'display': 'x'}}", "display" },
        { "{" ASK ", 'output_config': {'effort': 'huge'}}", "effort" },
        { "{" ASK ", 'output_config': {'task_budget': {'type': 'tokens'}}}", "task_budget" },
        { "{" ASK ", 'output_config': {'format': {'type': 'grammar'}}}", "\"output_config\"" },
        { "{" ASK ", 'output_format': {'type': 'json_schema'}}", "\"output_format\"" },
        { "{" ASK ", 'context_management': {'edits': [{'type': 'compact_20260112'}]}}", "compact_20260112" },
        { "{" ASK ", 'context_management': 5}", "context_management" },
        { "{" ASK ", 'stop_sequences': 'x'}", "stop_sequences" },
    };
    (void)state;
    check_refusals(JOB_MESSAGES, readings, COUNT(readings));
}

#define HI "'messages': [{'role': 'user', 'content': 'Hi'}]"

static void test_ollama_fields(void **state)
{
    static const struct reading chats[] = {
        { "{" HI "}", "{" HI ", 'stream': true, 'max_tokens': -1}" },
        { "{" HI ", 'stream': false, 'think': false, 'keep_alive': '5m', 'format': '', 'options': {'temperature': 0.5, "
          "'top_k': 3,"
          " 'top_p': 0.9, 'min_p': 0.1, 'seed': 7, 'num_predict': 9, 'stop': ['x'], 'repeat_penalty': 1.1, 'num_ctx': "
          "4096,"
          " 'num_gpu': 99, 'repeat_last_n': -1, 'mirostat': 0, 'typical_p': 1.0, 'presence_penalty': 0.5, "
          "'num_thread': null}}",
          "{" HI ", 'stream': false, 'enable_thinking': false, 'thinking': false, 'temperature': 0.5, 'top_k': 3, "
          "'top_p': 0.9,"
          " 'min_p': 0.1, 'seed': 7, 'max_tokens': 9, 'stop': ['x'], 'repetition_penalty': 1.1, 'presence_penalty': "
          "0.5}" },
        { "{" HI ", 'format': 'json', 'think': 'high', 'options': {'num_predict': -2}, 'tools': [{'type': "
          "'function'}]}",
          "{" HI ", 'stream': true, 'max_tokens': -1, 'response_format': {'type': 'json_object'}, 'enable_thinking': "
          "true,"
          " 'thinking': true, 'tools': [{'type': 'function'}]}" },
        { "{'messages': [{'role': 'assistant', 'content': '', 'thinking': 'T', 'images': [], 'tool_calls': "
          "[{'function':"
          " {'name': 'f', 'arguments': {}}}]}, {'role': 'tool', 'content': 'r', 'tool_name': 'f'}], 'format': {'type': "
          "'null'}}",
          "{'messages': [{'role': 'assistant', 'content': '', 'reasoning_content': 'T', 'tool_calls': [{'function':"
          " {'name': 'f', 'arguments': {}}}]}, {'role': 'tool', 'content': 'r', 'name': 'f'}], 'stream': true, "
          "'max_tokens': -1,"
          " 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'format', 'strict': true,"
          " 'schema': {'type': 'null'}}}}" },
    };
    static const struct reading prompts[] = {
        { "{'prompt': 'Hi'}", "{" HI ", 'stream': true, 'max_tokens': -1}" },
        { "{'prompt': 'Hi', 'system': 'S', 'raw': false}",
          "{'messages': [{'role': 'system', 'content': 'S'}, {'role': 'user', 'content': 'Hi'}], 'stream': true, "
          "'max_tokens': -1}" },
        { "{'prompt': 'Hi', 'raw': true, 'options': {'num_predict': 3}}",
          "{'prompt': 'Hi', 'stream': true, 'max_tokens': 3}" },
    };
    (void)state;
    check_readings(JOB_OLLAMA_CHAT, chats, COUNT(chats));
    check_readings(JOB_OLLAMA_GENERATE, prompts, COUNT(prompts));
}

static void test_ollama_refusals(void **state)
{
    static const struct reading chats[] = {
        { "{" HI ", 'options': 5}", "\"options\" is an object" },
        { "{" HI ", 'options': {'temprature': 1}}", "\"options.temprature\" is no option" },
        { "{" HI ", 'options': {'num_ctx': 5000}}", "4096" },
        { "{" HI ", 'options': {'mirostat': 2}}", "\"options.mirostat\" is not supported" },
        { "{" HI ", 'options': {'repeat_last_n': 64}}", "options.repeat_last_n" },
        { "{" HI ", 'options': {'tfs_z': 'x'}}", "options.tfs_z" },
        { "{" HI ", 'format': 'xml'}", "\"format\"" },
        { "{" HI ", 'think': 'huge'}", "\"think\"" },
        { "{" HI ", 'stream': 'yes'}", "stream" },
        { "{'messages': 'Hi'}", "\"messages\" is a list" },
        { "{'messages': [5]}", "messages[0]" },
        { "{'messages': [{'role': 'user', 'content': 'x', 'images': ['abc']}]}", "messages[0] has images" },
        { "{'messages': [{'role': 'user', 'contents': 'x'}]}", "\"contents\"" },
    };
    static const struct reading prompts[] = {
        { "{'prompt': 5}", "\"prompt\"" },
        { "{'prompt': 'x', 'system': 5}", "\"system\"" },
        { "{'prompt': 'x', 'raw': 'yes'}", "raw" },
        { "{'prompt': 'x', 'raw': true, 'system': 'S'}", "\"system\"" },
    };
    (void)state;
    check_refusals(JOB_OLLAMA_CHAT, chats, COUNT(chats));
    check_refusals(JOB_OLLAMA_GENERATE, prompts, COUNT(prompts));
}

// A request without a prompt is how clients load a model.
static void test_ollama_loads(void **state)
{
    static const enum job_kind both[] = { JOB_OLLAMA_CHAT, JOB_OLLAMA_GENERATE };
    (void)state;
    for (size_t i = 0; i < COUNT(both); i++) {
        bool ok;
        struct job *job = read_request(both[i], "{'messages': [], 'prompt': '', 'keep_alive': -1}", &ok);
        assert_false(ok);
        assert_int_equal(job->error.status, 0);
        assert_non_null(strstr(strbuf_text(&job->reply), "\"done_reason\":\"load\""));
        job_free(job);
    }
}

// ---- writers ------------------------------------------------------------------------------------------------------

static struct job *new_job(enum job_kind kind, bool stream)
{
    struct job *job = job_new(&api, kind, "/");
    job->created = 1700000000;
    strcpy(job->id, "id");
    job->params =
        (struct request_params){ .request = { .max_tokens = 100, .top_logprobs = -1 }, .n = 1, .stream = stream };
    job->prompts = memory_new(1, sizeof *job->prompts);
    job->prompts[0] = (struct prompt){ memory_new(7, sizeof(int32_t)), 7 };
    job->prompt_count = 1;
    job_make_choices(job);
    return job;
}

// The parts that a model writes, in order. A name begins a call.
struct piece {
    enum part_kind kind;
    const char *name, *text;
};

static void add_piece(struct choice *choice, const struct piece *piece, const char *text, size_t len)
{
    struct answer_part *last = choice->part_count ? &choice->parts[choice->part_count - 1] : NULL;
    if (!last || last->kind != piece->kind || piece->name) {
        choice->parts = memory_grow(choice->parts, (size_t)choice->part_count + 1, sizeof *choice->parts);
        last = &choice->parts[choice->part_count++];
        *last = (struct answer_part){ .kind = piece->kind };
        if (piece->kind == PART_CALL) {
            last->call = choice->call_count++;
            snprintf(last->id, sizeof last->id, "call_%d", last->call);
            strbuf_add_text(&last->name, piece->name);
        }
    }
    strbuf_add(&last->text, text, len);
}

static void finish(struct job *job, enum nibble_finish reason, int stop_string)
{
    struct choice *choice = &job->choices[0];
    choice->answer.finished = true;
    choice->answer.reason = reason;
    choice->answer.stop_string = stop_string;
    choice->answer.stop_id = -1;
    choice->answer.usage = (struct nibble_usage){
        .prompt_tokens = 7, .cached_tokens = 4, .arrived = 1, .admitted = 1.5, .first_token = 2, .finished = 4
    };
    choice->generated = 9;
    job->released = true;
}

// All slices of what there is. Each is bounded.
static void write_all(struct job *job, bool stream, struct strbuf *out)
{
    enum { SLICE_MOST = 7 * ANSWER_SLICE_BYTES };
    for (bool all = false; !all;) {
        struct strbuf slice = { 0 };
        all = stream ? answer_stream(job, &slice) : answer_whole(job, &slice);
        assert_true(slice.len <= SLICE_MOST);
        strbuf_add(out, slice.data, slice.len);
        strbuf_free(&slice);
    }
}

static const struct piece answer_pieces[] = {
    { PART_REASONING, NULL, "Let me \"think\"." },
    { PART_CONTENT, NULL, "\n\n" },
    { PART_CONTENT, NULL, "\xe2\x98\x83 It is\n" },
    { PART_CALL, "get_weather", "{\"city\": \"Gr\xc3\xbc\xc3\x9f\", \"days\": 2}" },
    { PART_CONTENT, NULL, "\n" },
    { PART_CALL, "get_time", "{}" },
};

// Every piece, in parts of so many bytes, with a slice behind each; 0: all at once, behind the last.
static void play(struct job *job, const struct piece *pieces, size_t count, size_t step, struct strbuf *out)
{
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(pieces[i].text);
        struct piece piece = pieces[i];
        if (!len)
            add_piece(&job->choices[0], &piece, "", 0);
        for (size_t at = 0, some; at < len; at += some) {
            some = step && step < len - at ? step : len - at;
            while (((unsigned char)pieces[i].text[at + some] & 0xC0) == 0x80) // texts come in whole characters
                some++;
            add_piece(&job->choices[0], &piece, pieces[i].text + at, some);
            piece.name = NULL;
            if (step && job->params.stream)
                write_all(job, true, out);
        }
    }
}

static json_t *whole_of(enum job_kind kind, const struct piece *pieces, size_t count, enum nibble_finish reason,
                        int stop)
{
    static struct bytes stops[] = { { "END", 3 } };
    struct job *job = new_job(kind, false);
    struct strbuf out = { 0 };
    memcpy(job->params.stops, stops, sizeof stops);
    play(job, pieces, count, 0, NULL);
    finish(job, reason, stop);
    write_all(job, false, &out);
    json_t *value = json_loadb(out.data, out.len, 0, NULL);
    assert_non_null(value);
    strbuf_free(&out);
    job_free(job);
    return value;
}

#define USED \
    "'usage': {'input_tokens': 3, 'cache_creation_input_tokens': 0, 'cache_read_input_tokens': 4, 'output_tokens': 9}"
#define MESSAGE "'id': 'id', 'type': 'message', 'role': 'assistant', 'model': 'a \\'model\\'', " USED ", "

#define LINES_10 "\n\n\n\n\n\n\n\n\n\n"
#define LINES_80 LINES_10 LINES_10 LINES_10 LINES_10 LINES_10 LINES_10 LINES_10 LINES_10

static void test_message(void **state)
{
    static const struct {
        struct piece pieces[3];
        size_t count;
        enum nibble_finish reason;
        int stop;
        const char *becomes;
    } rows[] = {
        { { { 0 } },
          0,
          NIBBLE_FINISH_STOP,
          -1,
          "{" MESSAGE "'content': [], 'stop_reason': 'end_turn', 'stop_sequence': null}" },
        { { { PART_CONTENT, NULL, "\n" } },
          1,
          NIBBLE_FINISH_STOP,
          0,
          "{" MESSAGE "'content': [{'type': 'text', 'text': '\\n'}], 'stop_reason': 'stop_sequence', 'stop_sequence': "
          "'END'}" },
        { { { PART_CALL, "f", "{\"a\": [1, 2" } },
          1,
          NIBBLE_FINISH_LENGTH,
          -1,
          "{" MESSAGE "'content': [{'type': 'tool_use', 'id': 'call_0', 'name': 'f', 'input': {'incomplete': "
          "'{\\'a\\': [1, 2'}}],"
          " 'stop_reason': 'max_tokens', 'stop_sequence': null}" },
        { { { PART_CALL, "f", "" } },
          1,
          NIBBLE_FINISH_STOP,
          -1,
          "{" MESSAGE "'content': [{'type': 'tool_use', 'id': 'call_0', 'name': 'f', 'input': {'incomplete': ''}}],"
          " 'stop_reason': 'tool_use', 'stop_sequence': null}" },
        { { { PART_CALL, "f", "{}" }, { PART_CONTENT, NULL, LINES_80 }, { PART_CALL, "f", "{}" } }, // however many
          3,
          NIBBLE_FINISH_STOP,
          -1,
          "{" MESSAGE "'content': [{'type': 'tool_use', 'id': 'call_0', 'name': 'f', 'input': {}},"
          " {'type': 'tool_use', 'id': 'call_1', 'name': 'f', 'input': {}}],"
          " 'stop_reason': 'tool_use', 'stop_sequence': null}" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_t *got = whole_of(JOB_MESSAGES, rows[i].pieces, rows[i].count, rows[i].reason, rows[i].stop);
        assert_json(got, rows[i].becomes);
        json_decref(got);
    }
    json_t *got = whole_of(JOB_MESSAGES, answer_pieces, COUNT(answer_pieces), NIBBLE_FINISH_STOP, -1);
    assert_json(got,
                "{" MESSAGE "'stop_reason': 'tool_use', 'stop_sequence': null, 'content': ["
                "{'type': 'thinking', 'thinking': 'Let me \\'think\\'.', 'signature': ''},"
                "{'type': 'text', 'text': '\\n\\n\xe2\x98\x83 It is\\n'},"
                "{'type': 'tool_use', 'id': 'call_0', 'name': 'get_weather', 'input': {'city': 'Gr\xc3\xbc\xc3\x9f', "
                "'days': 2}},"
                "{'type': 'tool_use', 'id': 'call_1', 'name': 'get_time', 'input': {}}]}");
    json_decref(got);
}

static void append(json_t *block, const char *key, const json_t *delta, const char *from)
{
    const char *before = json_string_value(json_object_get(block, key));
    json_object_set_new(block, key,
                        json_sprintf("%s%s", before ? before : "", json_string_value(json_object_get(delta, from))));
}

static void add_delta(json_t *block, const json_t *delta)
{
    static const char *const rows[][3] = { { "text_delta", "text", "text" },
                                           { "thinking_delta", "thinking", "thinking" },
                                           { "signature_delta", "signature", "signature" },
                                           { "input_json_delta", "json", "partial_json" } };
    const char *type = json_string_value(json_object_get(delta, "type"));
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strcmp(rows[i][0], type))
            append(block, rows[i][1], delta, rows[i][2]);
}

static void stop_block(json_t *block)
{
    const char *text = json_string_value(json_object_get(block, "json"));
    if (text)
        json_object_set_new(block, "input", json_loads(text, 0, NULL));
    json_object_del(block, "json");
}

// A message as clients put it together of its events.
static json_t *message_of(const char *events)
{
    json_t *message = NULL;
    bool over = false;
    for (const char *at = events; (at = strstr(at, "event: ")); at++) {
        const char *data = strstr(at, "data: ") + 6, *end = strstr(data, "\n\n");
        json_t *event = json_loadb(data, (size_t)(end - data), 0, NULL);
        const char *type = json_string_value(json_object_get(event, "type"));
        assert_non_null(type);
        assert_memory_equal(at + 7, type, strlen(type));
        size_t index = (size_t)json_integer_value(json_object_get(event, "index"));
        json_t *content = json_object_get(message, "content");
        assert_false(over);
        if (!strcmp(type, "message_start"))
            message = json_incref(json_object_get(event, "message"));
        if (!strcmp(type, "content_block_start")) {
            assert_int_equal(index, json_array_size(content));
            json_array_append(content, json_object_get(event, "content_block"));
        }
        if (!strcmp(type, "content_block_delta")) {
            assert_int_equal(index + 1, json_array_size(content));
            add_delta(json_array_get(content, index), json_object_get(event, "delta"));
        }
        if (!strcmp(type, "content_block_stop"))
            stop_block(json_array_get(content, index));
        if (!strcmp(type, "message_delta")) {
            json_object_update(message, json_object_get(event, "delta"));
            json_object_set(message, "usage", json_object_get(event, "usage"));
        }
        over = !strcmp(type, "message_stop");
        json_decref(event);
    }
    assert_true(over);
    return message;
}

static void test_message_stream(void **state)
{
    static const size_t steps[] = { 1, 2, 3, 5, 100, 0 };
    json_t *want = whole_of(JOB_MESSAGES, answer_pieces, COUNT(answer_pieces), NIBBLE_FINISH_STOP, -1);
    (void)state;
    for (size_t i = 0; i < COUNT(steps); i++) {
        struct job *job = new_job(JOB_MESSAGES, true);
        struct strbuf out = { 0 };
        write_all(job, true, &out); // nothing has come yet
        assert_non_null(strstr(out.data, "event: message_start"));
        play(job, answer_pieces, COUNT(answer_pieces), steps[i], &out);
        finish(job, NIBBLE_FINISH_STOP, -1);
        write_all(job, true, &out);
        json_t *got = message_of(out.data);
        assert_true(json_equal(got, want));
        json_decref(got);
        strbuf_free(&out);
        job_free(job);
    }
    json_decref(want);
}

// A large answer comes in slices, whole and streamed.
static void test_large_answers(void **state)
{
    static const enum job_kind written[] = { JOB_MESSAGES, JOB_OLLAMA_CHAT, JOB_OLLAMA_GENERATE, JOB_LLAMA_COMPLETION };
    enum { BYTES = 1 << 20 };
    char *text = memory_new(BYTES + 1, 1);
    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        text[i] = i % 50 ? 'x' : '"';
    const struct piece piece = { PART_CONTENT, NULL, text };
    for (size_t i = 0; i < 2 * COUNT(written); i++) {
        bool stream = i % 2;
        struct job *job = new_job(written[i / 2], stream);
        struct strbuf out = { 0 };
        play(job, &piece, 1, 0, NULL);
        finish(job, NIBBLE_FINISH_LENGTH, -1);
        write_all(job, stream, &out);
        assert_true(out.len > BYTES);
        strbuf_free(&out);
        job_free(job);
    }
    free(text);
}

#define OLLAMA "'model': 'a \\'model\\'', 'created_at': '2023-11-14T22:13:20Z', "
#define OLLAMA_END                                                                           \
    "'done': true, 'done_reason': 'stop', 'total_duration': 3000000000, 'load_duration': 0," \
    " 'prompt_eval_count': 7, 'prompt_eval_duration': 500000000, 'eval_count': 9, 'eval_duration': 2000000000"

static void test_ollama_answers(void **state)
{
    (void)state;
    json_t *got = whole_of(JOB_OLLAMA_CHAT, answer_pieces, COUNT(answer_pieces), NIBBLE_FINISH_STOP, -1);
    assert_json(got,
                "{" OLLAMA OLLAMA_END ", 'message': {'role': 'assistant', 'content': '\\n\\n\xe2\x98\x83 It is\\n\\n',"
                " 'thinking': 'Let me \\'think\\'.', 'tool_calls': [{'id': 'call_0', 'function': {'index': 0,"
                " 'name': 'get_weather', 'arguments': {'city': 'Gr\xc3\xbc\xc3\x9f', 'days': 2}}}, {'id': 'call_1',"
                " 'function': {'index': 1, 'name': 'get_time', 'arguments': {}}}]}}");
    json_decref(got);
    got = whole_of(JOB_OLLAMA_RAW, answer_pieces + 2, 1, NIBBLE_FINISH_STOP, -1);
    assert_json(got, "{" OLLAMA OLLAMA_END ", 'response': '\xe2\x98\x83 It is\\n'}");
    json_decref(got);
}

// Lines of JSON, which together say what the whole answer does.
static void test_ollama_stream(void **state)
{
    (void)state;
    for (size_t step = 0; step <= 100; step += 5) {
        struct job *job = new_job(JOB_OLLAMA_CHAT, true);
        struct strbuf out = { 0 }, text = { 0 };
        int calls = 0, ends = 0;
        play(job, answer_pieces, COUNT(answer_pieces), step, &out);
        finish(job, NIBBLE_FINISH_STOP, -1);
        write_all(job, true, &out);
        for (char *at = out.data, *end; *at; at = end + 1) {
            end = strchr(at, '\n');
            json_t *line = json_loadb(at, (size_t)(end - at), 0, NULL), *message = json_object_get(line, "message");
            assert_non_null(message);
            strbuf_add_text(&text, json_string_value(json_object_get(message, "content")));
            calls += (int)json_array_size(json_object_get(message, "tool_calls"));
            ends += json_is_true(json_object_get(line, "done"));
            json_decref(line);
        }
        assert_string_equal(text.data, "\n\n\xe2\x98\x83 It is\n\n");
        assert_int_equal(calls, 2);
        assert_int_equal(ends, 1);
        strbuf_free(&out);
        strbuf_free(&text);
        job_free(job);
    }
}

static void test_failing_streams(void **state)
{
    static const struct {
        enum job_kind kind;
        const char *ends;
    } rows[] = {
        { JOB_MESSAGES,
          "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"it failed\"}}\n\n" },
        { JOB_OLLAMA_CHAT, "{\"error\":\"it failed\"}\n" },
        { JOB_LLAMA_COMPLETION,
          "\"it failed\",\"type\":\"InternalServerError\",\"param\":null,\"code\":\"server_error\"}}\n\n" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct job *job = new_job(rows[i].kind, true);
        struct strbuf out = { 0 };
        play(job, answer_pieces, 3, 0, &out);
        finish(job, NIBBLE_FINISH_FAILED, -1);
        api_fail(&job->error, 500, NULL, "it failed");
        write_all(job, true, &out);
        assert_true(out.len > strlen(rows[i].ends));
        assert_string_equal(out.data + out.len - strlen(rows[i].ends), rows[i].ends);
        strbuf_free(&out);
        job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_fields),   cmocka_unit_test(test_messages_conversations),
        cmocka_unit_test(test_messages_refusals), cmocka_unit_test(test_ollama_fields),
        cmocka_unit_test(test_ollama_refusals),   cmocka_unit_test(test_ollama_loads),
        cmocka_unit_test(test_message),           cmocka_unit_test(test_message_stream),
        cmocka_unit_test(test_large_answers),     cmocka_unit_test(test_ollama_answers),
        cmocka_unit_test(test_ollama_stream),     cmocka_unit_test(test_failing_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
