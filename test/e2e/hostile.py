# SPDX-License-Identifier: Apache-2.0
"""The hostile catalogue: what a client can do to hurt the others, a function each, as `test_hostile.py` runs them.

An attack runs in a process of its own, so that its work does not delay the clients that measure. It is bounded in count
and time, and asserts the server's reaction: a refusal, a close, or an answer that is whole. Bodies are made before the
attack begins (`prepare`), because making them costs as much as reading them.
"""

import dataclasses
import gzip
import http.client
import json
import random
import socket
import struct
import threading
import time
import typing

from serving import read_all

CHAT, COMPLETIONS, TOKENIZE, DETOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"
RESPONSES = "/v1/responses"
MESSAGES, OLLAMA = "/v1/messages", "/api/chat"
BODY_BYTES = 8 << 20  # the server's default limit
PATIENCE = 300  # before it counts as a deadlock, however busy the machine is
CATALOGUE = {}


@dataclasses.dataclass
class Attack:
    name: str
    run: typing.Callable  # (port, prepared)
    prepare: typing.Callable  # () -> what `run` gets
    guarded: bool = False  # against the server that needs a key


def attack(prepare=lambda: None, guarded=False):
    def add(function):
        name = function.__name__
        CATALOGUE[name] = Attack(name, function, prepare, guarded)
        return function
    return add


def post(port, path, body, headers=None, timeout=PATIENCE):
    """Status and body; (None, b"") where the server closed without a word."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()
    except (ConnectionError, http.client.HTTPException):
        return None, b""
    finally:
        connection.close()


def bodies(name, path, prepare, expected, count=1, at_once=1, headers=None):
    """An attack that posts a body `count` times, `at_once` of them side by side."""
    def run(port, body):
        seen = []

        def send():
            for _ in range(count // at_once):
                seen.append(post(port, path, body, headers)[0])
        together([send] * at_once)
        assert set(seen) <= set(expected), (name, seen)
    CATALOGUE[name] = Attack(name, run, prepare)


def together(functions):
    """Runs them side by side; the first exception is raised here."""
    troubles = []

    def guarded(function):
        try:
            function()
        except Exception as trouble:
            troubles.append(trouble)
    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if troubles:
        raise troubles[0]


def as_json(**fields):
    return lambda: json.dumps(fields).encode()


def chat(content="Hi", **fields):
    return as_json(messages=[{"role": "user", "content": content}], **{"max_tokens": 4, **fields})


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def head(path, length, *lines, method="POST"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}", *lines, "", ""]).encode()


# ---- bodies that are large, deep or no JSON ---------------------------------------------------------------------------

REFUSED, FULL, LARGE = 400, 429, 413


def filled(entry, opening=b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "metadata": {"x": [', closing=b"]}}"):
    """A request whose harmless field is filled with an entry, up to the largest body."""
    count = (BODY_BYTES - len(opening) - len(closing)) // (len(entry) + 1)
    return lambda: opening + b",".join([entry] * count) + closing


bodies("unknown_fields_of_8_mb", CHAT, filled(b'"x"', b'{"messages": [], "no_such_field": ['), [REFUSED, FULL, LARGE])
bodies("unknown_fields_of_8_mb_16_at_once", CHAT, filled(b"1", b'{"messages": [], "no_such_field": ['), [REFUSED, FULL, LARGE], 16, 16)
bodies("four_million_numbers", CHAT, filled(b"1"), [200, REFUSED, FULL, LARGE], 2, 2)
bodies("two_million_empty_strings", CHAT, filled(b'""'), [200, REFUSED, FULL, LARGE], 2, 2)
bodies("two_million_empty_objects", CHAT, filled(b"{}"), [REFUSED, FULL, LARGE], 2, 2)
bodies("one_string_of_8_mb", CHAT, filled(b'"%s"' % (b"x" * (BODY_BYTES - 200))), [200, REFUSED, FULL, LARGE], 4, 4)
bodies("escapes_of_8_mb", CHAT, filled(b'"%s"' % (b"\\u0041" * (BODY_BYTES // 6 - 40))), [200, REFUSED, FULL, LARGE], 4, 4)
bodies("arrays_in_arrays", CHAT, lambda: b"[" * 200000, [REFUSED, FULL], 8, 4)
bodies("objects_in_objects", CHAT, lambda: b'{"a":' * 200000, [REFUSED, FULL], 8, 4)
bodies("a_key_twice", CHAT, lambda: b'{"messages": [], "n": 1, "n": 2}', [REFUSED], 50, 2)
bodies("not_utf_8", CHAT, lambda: b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', [REFUSED], 50, 2)
bodies("half_a_json", CHAT, lambda: b'{"messages": [{"role": "user", "con', [REFUSED], 50, 2)
bodies("noise", CHAT, lambda: random.Random(1).randbytes(1 << 20), [REFUSED], 8, 4)
bodies("numbers_beyond_reals", CHAT, lambda: b'{"messages": [], "temperature": 1e999, "seed": %s}' % (b"9" * 4000), [REFUSED], 50, 2)
bodies("surrogates_and_nul", CHAT, lambda: b'{"messages": [{"role": "user", "content": "\\ud800\\u0000"}]}', [REFUSED, 200], 50, 2)
bodies("nothing_at_all", CHAT, lambda: b"", [REFUSED], 50, 2)
bodies("100000_messages", CHAT, as_json(messages=[{"role": "user", "content": "x"}] * 100000), [REFUSED, FULL, LARGE], 2, 2)
bodies("a_message_of_7_mb", CHAT, chat("word " * 1400000), [REFUSED, FULL], 4, 2)
bodies("20000_parts_of_content", CHAT, chat([{"type": "text", "text": "x"}] * 20000), [REFUSED, FULL], 4, 2)
bodies("template_variables_of_many_values", CHAT, chat(chat_template_kwargs={"x": [[{"y": 1}] * 100] * 100}), [200, REFUSED, FULL], 8, 4)

# ---- prompts -------------------------------------------------------------------------------------------------------------

bodies("nine_prompts_of_spaces", COMPLETIONS, as_json(prompt=[" " * 900000] * 9), [REFUSED, FULL], 2, 2)
bodies("a_word_of_7_mb", COMPLETIONS, as_json(prompt="a" * 7000000), [REFUSED, FULL], 2, 2)
bodies("a_word_that_might_fit", COMPLETIONS, as_json(prompt="ab" * 6000, max_tokens=1), [200, REFUSED, FULL], 8, 4)
bodies("100000_prompts", COMPLETIONS, as_json(prompt=["x"] * 100000), [REFUSED, FULL], 4, 2)
bodies("prompts_within_prompts", COMPLETIONS, as_json(prompt=[[[[1]]]] * 1000), [REFUSED], 8, 4)
bodies("a_million_token_ids", COMPLETIONS, as_json(prompt=[1] * 1000000), [REFUSED, FULL], 4, 2)
bodies("token_ids_out_of_range", COMPLETIONS, as_json(prompt=[-1, 1 << 40]), [REFUSED], 50, 2)
bodies("tokenize_8_mb", TOKENIZE, as_json(prompt="The quick brown fox. " * 390000), [200, REFUSED, LARGE, FULL], 4, 2)
bodies("tokenize_emoji", TOKENIZE, as_json(prompt="👩‍👩‍👧‍👦" * 4000), [200, REFUSED, FULL], 8, 4)
bodies("detokenize_4_million_ids", DETOKENIZE, lambda: b'{"tokens": [' + b",".join([b"1"] * 4000000) + b"]}", [200, REFUSED, LARGE, FULL], 2, 2)
bodies("detokenize_half_characters", DETOKENIZE, as_json(tokens=[176, 177, 178] * 5000), [200, REFUSED, FULL], 8, 4)
bodies("a_prompt_scored_in_full", COMPLETIONS, as_json(prompt=[5] * 100, max_tokens=0, echo=True, logprobs=20), [200, FULL], 4, 1)

# ---- answers -------------------------------------------------------------------------------------------------------------

bodies("64_answers_with_logprobs", CHAT, chat(n=64, max_tokens=24, logprobs=True, top_logprobs=20, ignore_eos=True), [200, REFUSED, FULL])
bodies("128_answers", CHAT, chat(n=128, max_tokens=4, ignore_eos=True), [200, REFUSED, FULL], 1, 1)
bodies("1000_stop_strings", CHAT, chat(stop=["x" * 100] * 1000), [REFUSED], 8, 4)
bodies("a_bias_for_each_token", CHAT, chat(logit_bias={str(i): 1 for i in range(5000)}), [REFUSED], 8, 4)
bodies("a_thousand_biases", CHAT, chat(logit_bias={str(i): -1 for i in range(1000)}), [200, FULL], 8, 4)
bodies("numbers_out_of_range", CHAT, chat(n=1 << 40, top_p=-3, temperature=1e300), [REFUSED], 50, 2)


@attack(chat(max_tokens=200, ignore_eos=True, stream=True, n=2))
def clients_that_never_read(port, body):
    clients = [connect(port) for _ in range(4)]
    for client in clients:
        client.sendall(head(CHAT, len(body)) + body)
    time.sleep(1)
    for client in clients:
        client.close()


@attack(chat(max_tokens=100, ignore_eos=True, stream=True))
def clients_that_read_a_byte_at_a_time(port, body):
    clients = [connect(port) for _ in range(8)]
    for client in clients:
        client.sendall(head(CHAT, len(body)) + body)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for client in clients:
            client.recv(1)
        time.sleep(0.02)
    for client in clients:
        client.close()


def leave(port, body, count, after_bytes, path=CHAT):
    """Clients that send a request and go, with a reset, after so many bytes of the answer."""
    for _ in range(count):
        client = connect(port)
        client.sendall(head(path, len(body)) + body)
        if after_bytes:
            client.recv(after_bytes)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


@attack(chat(max_tokens=400, ignore_eos=True, stream=True))
def clients_that_leave_within_a_stream(port, body):
    together([lambda: leave(port, body, 25, 64)] * 2)


@attack(chat(max_tokens=400, ignore_eos=True))
def clients_that_leave_before_the_answer(port, body):
    together([lambda: leave(port, body, 50, 0)] * 2)


@attack(chat(max_tokens=400, ignore_eos=True, n=8))
def clients_that_half_close(port, body):
    for _ in range(20):
        client = connect(port)
        client.sendall(head(CHAT, len(body)) + body)
        client.shutdown(socket.SHUT_WR)
        client.close()


# ---- schemas and tools ---------------------------------------------------------------------------------------------------

def schema(content, **fields):
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": content}}, **fields)


def words(count):
    dice = random.Random(2)
    return ["".join(dice.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(12)) for _ in range(count)]


def nested(depth):
    inner = {"type": "string"}
    for _ in range(depth):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    return inner


ALTERNATIVES = {"anyOf": [{"type": "object", "properties": {word: {"type": "string", "pattern": f"^[a-z]*{word}[0-9]+$"}}, "required": [word]}
                          for word in words(200)]}
ACCEPTED_OR_NOT = [200, REFUSED, 422, FULL]
bodies("200_alternatives_16_answers", CHAT, schema(ALTERNATIVES, n=16, max_tokens=12), ACCEPTED_OR_NOT)
bodies("10000_words_of_an_enum", CHAT, schema({"enum": words(10000)}), ACCEPTED_OR_NOT, 4, 2)
bodies("a_schema_of_5_mb", CHAT, schema({"enum": words(300000)}), [REFUSED, FULL], 2, 2)
bodies("a_schema_in_itself", CHAT, schema({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
       ACCEPTED_OR_NOT, 20, 2)
bodies("a_pattern_that_backtracks", CHAT, schema({"type": "string", "pattern": "^(a+)+(b+)+(a|b)*$"}), ACCEPTED_OR_NOT, 8, 2)
bodies("a_pattern_of_a_million_letters", CHAT, schema({"type": "string", "pattern": "^[a-z]{1,1000000}$"}), ACCEPTED_OR_NOT, 8, 2)
bodies("a_pattern_with_many_states", CHAT, schema({"type": "string", "pattern": "^(.*a.{12}b.{12})+$"}), ACCEPTED_OR_NOT, 4, 2)
bodies("a_schema_of_depth_90", CHAT, schema(nested(90)), ACCEPTED_OR_NOT, 8, 2)
bodies("a_schema_of_depth_5000", CHAT, lambda: schema({})().replace(b'"schema": {}', b'"schema": ' + b'{"not":' * 5000 + b"{}" + b"}" * 5000),
       [REFUSED], 8, 2)
bodies("all_of_500", CHAT, schema({"allOf": [{"type": "object", "properties": {word: {}}, "required": [word]} for word in words(500)]}),
       ACCEPTED_OR_NOT, 4, 2)
bodies("one_of_100_that_overlap", CHAT, schema({"oneOf": [{"type": "object", "required": [word]} for word in words(100)]}), ACCEPTED_OR_NOT, 4, 2)
bodies("unique_items", CHAT, schema({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 2, "maxItems": 2}, max_tokens=16),
       ACCEPTED_OR_NOT, 4, 2)


def tool(name, parameters=None, description="x"):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters or {"type": "object"}}}


bodies("1000_tools", CHAT, chat(tools=[tool(word) for word in words(1000)]), [REFUSED, FULL], 4, 2)
bodies("a_tool_described_in_3_mb", CHAT, chat(tools=[tool("x", description="word " * 600000)]), [REFUSED, FULL], 4, 2)
bodies("four_forced_tools_16_answers", CHAT, chat(tools=[tool(word) for word in words(4)], tool_choice="required", n=16), ACCEPTED_OR_NOT, 2, 2)

# ---- /v1/responses and what it stores ---------------------------------------------------------------------------------------


def response(**fields):
    return as_json(**{"input": "Hi", "max_output_tokens": 2, **fields})


MISSING = 404
bodies("60000_items", RESPONSES, response(input=[{"role": "user", "content": "x"}] * 60000), [REFUSED, FULL, LARGE])
bodies("60000_items_to_be_cut", RESPONSES, response(input=[{"role": "user", "content": "x"}] * 60000, truncation="auto"), [200, REFUSED, FULL, LARGE])
bodies("an_input_of_7_mb_to_be_cut", RESPONSES, response(input="word " * 1400000, truncation="auto"), [REFUSED, FULL], 2, 2)
bodies("items_in_items", RESPONSES, lambda: b'{"input": ' + b'[{"content": ' * 5000 + b"1" + b"}]" * 5000 + b"}", [REFUSED], 8, 4)
bodies("60000_calls_and_reasoning", RESPONSES, response(input=[{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]},
                                                              {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}] * 15000),
       [REFUSED, FULL, LARGE])
bodies("references_to_nothing", RESPONSES, response(input=[{"type": "item_reference", "id": "msg_%032x_0" % i} for i in range(500)]), [MISSING], 20, 2)
bodies("an_id_of_a_megabyte", RESPONSES, response(previous_response_id="resp_" + "a" * 1000000), [MISSING], 8, 2)
bodies("stored_until_it_overflows", RESPONSES, response(tools=[{"type": "function", "name": "f", "description": "x" * 1000000}], tool_choice="none"),
       [200, FULL], 24, 2)
bodies("stored_megabytes", RESPONSES, response(tools=[{"type": "function", "name": "f", "description": "x" * 7000000}], tool_choice="none"),
       [200, FULL, REFUSED], 4, 2)


def answer_of(port, body):
    status, data = post(port, RESPONSES, json.dumps(body).encode())
    assert status in (200, FULL), (status, data[:300])
    return json.loads(data)


@attack()
def many_stored_responses(port, _):
    def store():
        for _ in range(30):
            answer_of(port, {"input": "Hi", "max_output_tokens": 1})
    together([store] * 4)


@attack()
def a_conversation_of_40_turns(port, _):
    last = None
    for _ in range(40):
        last = answer_of(port, {"input": "x", "max_output_tokens": 1, "previous_response_id": last, "truncation": "auto"}).get("id", last)


@attack(lambda: [{"role": "user", "content": "word " * 60}] * 9000)
def small_requests_that_recall_megabytes(port, items):
    """Each names a response whose input is as large as a body may be."""
    first = answer_of(port, {"input": items, "max_output_tokens": 1, "truncation": "auto"})

    def recall():
        body = {"input": "x", "max_output_tokens": 1, "previous_response_id": first.get("id"), "truncation": "auto"}
        assert post(port, RESPONSES, json.dumps(body).encode())[0] in (200, FULL, LARGE, MISSING)
        references = [{"type": "item_reference", "id": first["id"].replace("resp_", "msg_") + f"_i{at}"} for at in range(300)] if "id" in first else "x"
        body = {"input": references, "max_output_tokens": 1, "truncation": "auto"}
        assert post(port, RESPONSES, json.dumps(body).encode())[0] in (200, FULL, LARGE, REFUSED, MISSING)
    together([recall] * 3)


@attack(response(max_output_tokens=400, ignore_eos=True, stream=True))
def clients_that_leave_a_stored_stream(port, body):
    together([lambda: leave(port, body, 25, 64, RESPONSES)] * 2)

# ---- other APIs ----------------------------------------------------------------------------------------------------------


def message(*blocks, **fields):
    return as_json(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": blocks}], **{"max_tokens": 4, **fields})


bodies("100000_blocks_of_text", MESSAGES, message(*[{"type": "text", "text": "x"}] * 100000), [REFUSED, FULL, LARGE], 2, 2)
bodies("50000_thoughts_and_calls", MESSAGES, message(*[{"type": "thinking", "thinking": "x"}, {"type": "tool_use", "id": "i", "name": "f", "input": {}}] * 25000),
       [REFUSED, FULL, LARGE], 2, 2)
bodies("lines_of_accounting_of_7_mb", MESSAGES, message(system="x-anthropic-billing-header:\n" * 250000), [200, REFUSED, FULL, LARGE], 2, 2)
bodies("100000_options", OLLAMA, as_json(messages=[{"role": "user", "content": "x"}], options={f"{i}": i for i in range(100000)}), [REFUSED, FULL], 2, 2)

# ---- HTTP ----------------------------------------------------------------------------------------------------------------


def sends(name, data, count, expected):
    """An attack that sends bytes which are no proper request; the first line's status, or None for a close, is expected."""
    def run(port, _):
        for _ in range(count):
            with connect(port) as client:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                answer = read_all(client)
                status = int(answer.split(b" ", 2)[1]) if answer else None
                assert status in expected, (name, answer[:200])
    CATALOGUE[name] = Attack(name, run, lambda: None)


sends("a_tls_hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500, 50, [400, None])
sends("an_http_2_preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 50, [400, 403, 404, 405, 505, None])
sends("two_lengths", b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 50, [400])
sends("headers_of_a_megabyte", b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 20), 20, [431, None])
sends("10000_headers", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"".join(b"X-%d: 1\r\n" % i for i in range(10000)) + b"\r\n", 20, [400, 431, None])
sends("a_length_of_an_exabyte", head(CHAT, 1 << 60), 50, [413])
sends("a_host_of_somebody_else", b"GET /v1/models HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 50, [403])


@attack()
def silent_connections(port, _):
    """More than there is room for: newcomers are served all the same."""
    clients = [connect(port) for _ in range(150)]
    time.sleep(0.7)
    for client in clients:
        client.close()


@attack()
def headers_a_byte_at_a_time(port, _):
    clients = [connect(port) for _ in range(60)]
    for i, byte in enumerate(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: yes"):
        for client in clients:
            try:
                client.send(bytes([byte]))
            except ConnectionError:
                pass
        time.sleep(0.015)
    for client in clients:
        client.close()


@attack()
def bodies_that_never_come(port, _):
    clients = [connect(port) for _ in range(40)]
    for client in clients:
        client.sendall(head(CHAT, BODY_BYTES) + b"{")
    time.sleep(0.7)
    for client in clients:
        client.close()


@attack(lambda: b"x" * BODY_BYTES)
def bodies_for_nobody(port, body):
    """The path does not exist: refused on the header, whatever follows."""
    assert {post(port, "/v1/nothing", body)[0] for _ in range(8)} <= {404, None}


@attack(lambda: b"x" * BODY_BYTES, guarded=True)
def bodies_of_strangers(port, body):
    """Without the key no body is read: most of it never leaves the client."""
    def stranger():
        with connect(port) as client:
            client.sendall(head(CHAT, len(body)))
            assert b" 401 " in client.recv(65536)
    together([stranger] * 100)


@attack(lambda: body_in_chunks(100000))
def chunks_of_a_byte(port, data):
    with connect(port) as client:
        client.sendall(data)
        assert b" 400 " in read_all(client)[:20]


def body_in_chunks(count):
    lines = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    return lines + b"1\r\n \r\n" * count + b"0\r\n\r\n"


bodies("a_gzip_bomb", CHAT, lambda: gzip.compress(b"\0" * (512 << 20), 9), [LARGE, FULL], 4, 2, {"Content-Encoding": "gzip"})
bodies("half_a_gzip", CHAT, lambda: gzip.compress(random.Random(3).randbytes(1 << 20))[:-100], [400], 8, 2, {"Content-Encoding": "gzip"})
bodies("an_encoding_nobody_knows", CHAT, lambda: b"x" * 1000, [415], 50, 2, {"Content-Encoding": "xz"})
bodies("a_page_from_elsewhere", CHAT, chat(), [403], 50, 2, {"Origin": "https://elsewhere.example", "Content-Type": "text/plain"})
bodies("request_ids_of_60_kb", CHAT, chat(max_tokens=1), [200, FULL], 8, 2, {"X-Request-Id": "x" * 60000})


@attack()
def a_thousand_requests_in_a_row(port, _):
    """Pipelined on one connection."""
    with connect(port) as client:
        line = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        client.sendall(line * 999 + line.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert read_all(client).count(b"HTTP/1.1 200") == 1000


@attack()
def connections_that_come_and_go(port, _):
    for _ in range(500):
        connect(port).close()


@attack()
def connections_that_are_reset(port, _):
    for _ in range(300):
        client = connect(port)
        client.send(b"GET /hea")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


@attack()
def preflights(port, _):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    for i in range(300):
        connection.request("OPTIONS", f"/v1/nothing/{i}", headers={"Origin": "https://elsewhere.example",
                                                                  "Access-Control-Request-Headers": ", ".join(f"x-{j}" for j in range(200))})
        response = connection.getresponse()
        assert response.status in (204, 403) and not response.headers["Access-Control-Allow-Origin"]
        response.read()


@attack()
def methods_nobody_knows(port, _):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "BREW") * 40:
        connection.request(method, CHAT)
        response = connection.getresponse()
        assert response.status in (405, 501), response.status
        response.read()


@attack()
def metrics_all_the_time(port, _):
    def scrape():
        for _ in range(40):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/metrics")
            assert connection.getresponse().read()
            connection.close()
    together([scrape] * 2)
