# SPDX-License-Identifier: Apache-2.0
"""What a client may do to hurt the others: each gets a refusal or a close, while a companion's streams go on undisturbed.

Everything runs twice: against the program as it is, and under ASan and UBSan with a smaller model and smaller sizes.
"""

import gzip
import http.client
import io
import json
import random
import socket
import threading
import time

import pytest

import small_model
from serving import Server, body_of, read_all, user

HEADER_SECONDS, BODY_SECONDS = 1, 2
CONNECTIONS = 48
CACHE_BYTES = 64 << 20  # resident once it has been written, so it counts into what a healthy server may grow by
CHAT = "/v1/chat/completions"


class Companion:
    """An ordinary client on one connection, who streams the same short answer again and again."""

    REQUEST = {"messages": user("Name three colours."), "temperature": 0, "max_tokens": 8, "ignore_eos": True}

    def __init__(self, server):
        self.want = server.chat(**self.REQUEST)["choices"][0]["message"]["content"]
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.trouble, self.answers, self.longest = None, 0, 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def read(self):
        """One answer; notes the longest time without output."""
        text, last = "", time.monotonic()
        self.connection.request("POST", CHAT, body_of({**self.REQUEST, "stream": True}))
        for line in self.connection.getresponse():
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now
            if line.startswith(b"data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
        return text

    def run(self):
        try:
            while not self.over.is_set():
                text = self.read()
                assert text == self.want, (text, self.want)
                self.answers += 1
                self.over.wait(0.05)
        except Exception as trouble:
            self.trouble = trouble

    def check(self, patience):
        """All is well and has been since the last time, and another answer comes now."""
        before, end = self.answers, time.monotonic() + patience
        while self.answers == before and not self.trouble and time.monotonic() < end:
            time.sleep(0.01)
        assert not self.trouble, self.trouble
        assert self.answers > before, "the companion's stream stalls"
        longest, self.longest = self.longest, 0
        assert longest < patience, f"the companion waited {longest:.1f} s for a token"


@pytest.fixture(scope="module", params=["plain", "sanitized"])
def target(request, smollm2, tmp_path_factory):
    sanitized = request.param == "sanitized"
    program = request.getfixturevalue("nibble_asan" if sanitized else "nibble")
    model = str(small_model.write(smollm2, tmp_path_factory.mktemp("abuse") / "small.gguf")) if sanitized else smollm2
    server = Server(program, model, "--max-model-len", 512, "--header-seconds", HEADER_SECONDS, "--body-seconds", BODY_SECONDS,
                    "--max-connections", CONNECTIONS, "--max-num-seqs", 16, "--kv-cache-memory-bytes", CACHE_BYTES,
                    "--log-level", "warning", patience=120)
    server.scale = 0.1 if sanitized else 1
    server.patience = 20 if sanitized else 8
    yield server
    assert server.stop(60) == 0


@pytest.fixture(scope="module")
def companion(target):
    companion = Companion(target)
    before = target.resident_bytes()
    yield companion
    companion.over.set()
    companion.thread.join(60)
    companion.connection.close()
    target.wait_idle()
    growth = target.resident_bytes() - before
    print(f"memory grew by {growth >> 20} MiB")
    assert target.scale < 1 or growth < CACHE_BYTES + (64 << 20)


@pytest.fixture(autouse=True)
def undisturbed(companion, target):
    yield
    companion.check(target.patience)


def scaled(target, count):
    return max(2, int(count * target.scale))


def status_of(answer):
    """Of the first response among these bytes; None: it was closed without a word."""
    return int(answer.split(b" ", 2)[1]) if answer else None


def post(target, body, path=CHAT):
    """A request's answer, which must come soon."""
    started = time.monotonic()
    answer = target.ask(path, body)
    assert time.monotonic() - started < 2 * target.patience
    return answer


# ---- HTTP ----------------------------------------------------------------------------------------------------------

NOISE = random.Random(1).randbytes(4000)
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

RAW = {
    "noise": (b"\x80" + NOISE, 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + NOISE[:500], 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505)),
    "no version": (b"GET /\r\n\r\n", 400),
    "no path": (b"GET HTTP/1.1\r\n\r\n", 400),
    "no colon": (b"GET / HTTP/1.1\r\nHost x\r\n\r\n", 400),
    "space before the colon": (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    "a zero byte": (b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "a folded header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c\r\n\r\n", 400),
    "a long header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 100000, 431),
    "a long path": (b"GET /" + b"a" * 100000, 431),
    "many headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20000 + b"\r\n", 431),
    "thousands of headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 5000 + b"\r\n", (400, 431)),
    "two lengths": (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "a length below nothing": (HEAD + b"Content-Length: -1\r\n\r\n", 400),
    "a length with a sign": (HEAD + b"Content-Length: +2\r\n\r\n{}", 400),
    "a length in words": (HEAD + b"Content-Length: two\r\n\r\n{}", 400),
    "a length past counting": (HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n", (400, 413)),
    "a body too large": (HEAD + b"Content-Length: 8388609\r\n\r\n", 413),
    "length and chunks": (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "unknown coding": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", (400, 501)),
    "a chunk that is none": (CHUNKED + b"xyz\r\n", 400),
    "a chunk past counting": (CHUNKED + b"fffffffffffffffff\r\n", (400, 413)),
    "a chunk too large": (CHUNKED + b"800001\r\n", 413),
    "a chunk without its end": (CHUNKED + b"2\r\n{}x\r\n0\r\n\r\n", 400),
    "a chunk's long extension": (CHUNKED + b"2;" + b"a" * 100000, (400, 413, 431)),
    "long trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n" + b"A: b\r\n" * 20000, (400, 413, 431)),
}


@pytest.mark.parametrize("name", RAW)
def test_what_is_not_http(target, name):
    data, want = RAW[name]
    started = time.monotonic()
    status = status_of(target.exchange(data))
    assert status in (want if isinstance(want, tuple) else (want,)), status
    assert time.monotonic() - started < target.patience


def test_chunks_beyond_the_limit(target):
    """A body that says nothing of its length is cut off when it has become too long."""
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", target.port), timeout=20) as client:
        try:
            client.sendall(CHUNKED)
            for _ in range(160):
                client.sendall(chunk)
        except OSError:
            pass
        assert status_of(read_all(client)) == 413


def drip(target, data, pause):
    """A byte at a time, until the server has had enough. Its answer, and how long it took."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", target.port), timeout=20) as client:
        client.settimeout(pause)
        for byte in data:
            try:
                client.send(bytes([byte]))
                answer = client.recv(4096)
            except TimeoutError:
                continue
            except OSError:
                answer = b""
            return answer, time.monotonic() - started
    raise AssertionError("the server took all of it")


def test_a_byte_at_a_time(target):
    answer, seconds = drip(target, b"GET / HTTP/1.1\r\nHost: " + b"x" * 1000, 0.1)
    assert status_of(answer) == 408 and HEADER_SECONDS * 0.9 < seconds < HEADER_SECONDS + target.patience
    answer, seconds = drip(target, HEAD + b"Content-Length: 1000\r\n\r\n" + b" " * 1000, 0.01)
    assert status_of(answer) == 408 and seconds < HEADER_SECONDS + BODY_SECONDS + target.patience


def test_half_requests(target):
    whole = HEAD + b"Content-Length: 30\r\n\r\n" + b'{"prompt": "Hi", "max_tokens": 1}'
    for cut in range(1, len(whole) - 4, 7):
        with socket.create_connection(("127.0.0.1", target.port), timeout=20) as client:
            client.sendall(whole[:cut])
    for cut in (10, len(HEAD), len(whole) - 10):
        with socket.create_connection(("127.0.0.1", target.port), timeout=20) as client:
            client.sendall(whole[:cut])
            assert status_of(read_all(client)) == 408


class Replayed:
    """Bytes in place of a socket, for one response after the other."""

    def __init__(self, data):
        self.file = io.BytesIO(data)
        self.file.close = lambda: None

    def makefile(self, *_):
        return self.file


def read_responses(data):
    source = Replayed(data)
    while source.file.tell() < len(data):
        response = http.client.HTTPResponse(source)
        response.begin()
        yield response.status, response.read()


def test_pipelined_requests(target):
    """Answered in their order, the slow ones too."""
    def request(path, body=None, last=False):
        head = (f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\n" + ("Connection: close\r\n" if last else "")).encode()
        text = json.dumps(body).encode() if body else b""
        return head + (b"Content-Length: %d\r\n" % len(text) if text else b"") + b"\r\n" + text

    slow = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    data = (request("/version") + request("/v1/completions", slow) + request("/nowhere")
            + request("/v1/completions", {**slow, "stream": True}) + request("/tokenize", {"prompt": "Hi"})
            + request("/v1/models", last=True))
    answers = list(read_responses(target.exchange(data, 60)))
    assert [status for status, _ in answers] == [200, 200, 404, 200, 200, 200]
    assert b"version" in answers[0][1] and b"text_completion" in answers[1][1] and b"[DONE]" in answers[3][1]
    assert b"tokens" in answers[4][1] and b"owned_by" in answers[5][1]


def test_a_flood_of_pipelined_requests(target):
    count = scaled(target, 2000)
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    data = target.exchange((request + b"\r\n") * count + request + b"Connection: close\r\n\r\n", 60)
    assert data.count(b"HTTP/1.1 200 OK") == count + 1


def test_too_many_connections(target):
    clients = [socket.create_connection(("127.0.0.1", target.port), timeout=20) for _ in range(4 * CONNECTIONS)]
    for client in clients:
        try:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        except OSError:
            pass
    answers = []
    for client in clients:
        try:
            answers.append(status_of(client.recv(4096)))
        except OSError:
            answers.append(None)
        client.close()
    assert 1 <= answers.count(200) <= CONNECTIONS and set(answers) <= {200, 503, None}
    target.wait_until(lambda: target.ask("/health").status == 200, 5)


def test_silent_connections(target):
    """Those that say nothing, or half a head, hold no place that others need: the longest silent ones give way."""
    evicted = target.metric("nibble:http_connections_evicted_total")
    clients = [socket.create_connection(("127.0.0.1", target.port), timeout=20) for _ in range(CONNECTIONS)]
    for client in clients[::2]:
        client.sendall(b"GET /hea")
    for _ in range(CONNECTIONS // 2):
        with socket.create_connection(("127.0.0.1", target.port), timeout=20) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert status_of(client.recv(4096)) == 200
    assert target.metric("nibble:http_connections_evicted_total") > evicted
    for client in clients:
        client.close()


BOMBS = {
    "one bomb": gzip.compress(b" " * (64 << 20)),
    "a thousand empty members": gzip.compress(b"") * 1000,
    "a bomb in members": gzip.compress(b" " * (1 << 20)) * 64,
    "half a stream": gzip.compress(b'{"prompt": "Hi"}')[:-4],
    "noise": NOISE,
}


@pytest.mark.parametrize("name", BOMBS)
def test_compressed_bodies(target, name):
    before = target.resident_bytes()
    answer = target.ask("/tokenize", BOMBS[name], headers={"Content-Encoding": "gzip"})
    assert answer.status in (400, 413) and answer.error
    assert target.scale < 1 or target.resident_bytes() - before < 32 << 20


def test_clients_that_never_read(target):
    body = body_of({"messages": user("Write a long story."), "max_tokens": scaled(target, 400), "ignore_eos": True, "stream": True,
                    "logprobs": True, "top_logprobs": 20})
    clients = []
    for _ in range(6):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", target.port))
        client.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
        clients.append(client)
    target.wait_until(lambda: target.load[0] >= 6)
    time.sleep(1)
    for client in clients:
        client.close()
    target.wait_until(lambda: target.load[0] <= 1, target.patience)


# ---- JSON ----------------------------------------------------------------------------------------------------------

def with_field(text):
    return b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, ' + text + b"}"


JSON = {
    "deep arrays": b"[" * 100000,
    "deep objects": b'{"a":' * 100000,
    "deep and whole": with_field(b'"x": ' + b"[" * 500 + b"]" * 500),
    "many arrays": with_field(b'"x": [' + b"[]," * 500000 + b"[]]"),
    "NaN": with_field(b'"temperature": NaN'),
    "infinity": with_field(b'"temperature": Infinity'),
    "past a double": with_field(b'"temperature": 1e999'),
    "past an int": with_field(b'"seed": ' + b"9" * 400),
    "invalid UTF-8": with_field(b'"x": "\xff\xfe"'),
    "an overlong zero": with_field(b'"x": "\xc0\x80"'),
    "a lone surrogate": with_field(b'"x": "\\ud800"'),
    "a control byte": with_field(b'"x": "\x01"'),
    "no end": with_field(b'"x": "')[:-1],
    "a key twice": b'{"messages": 1, "messages": [], "max_tokens": 2}',
    "a comment": with_field(b'"x": 1 /* no */'),
    "a comma too many": with_field(b'"x": 1,'),
    "a body of spaces": b" " * (1 << 20),
}


@pytest.mark.parametrize("name", JSON)
def test_what_is_not_json(target, name):
    assert post(target, JSON[name]).status == 400


def chat_of(content="Hi", **fields):
    return {"messages": user(content), "max_tokens": 2, **fields}


def nested(depth, inner):
    for _ in range(depth):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    return inner


def doubled(count):
    """Each definition is two of the one before: small to write, huge when it is written out."""
    names = {"d0": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
    for i in range(count):
        ref = {"$ref": f"#/$defs/d{i}"}
        both = {"type": "array", "prefixItems": [ref, ref]}, {"type": "object", "properties": {"l": ref, "r": ref}}
        names[f"d{i + 1}"] = {"anyOf": [*both, ref]}
    return {"$ref": f"#/$defs/d{count}", "$defs": names}


SCHEMAS = {
    "deep": nested(60, {"type": "integer"}),
    "a reference to itself": {"$ref": "#"},
    "references in a circle": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
    "an object that never ends": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
                                                                       "required": ["a"]}}},
    "a tree": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
    "doubled thirty times": doubled(30),
    "allOf of many": {"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}] * 500},
    "a large enum": {"enum": [f"word {i}" for i in range(50000)]},
    "many properties": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(20000)}},
    "many required properties": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(2000)},
                                 "required": [f"p{i}" for i in range(2000)]},
    "many optional objects": {"type": "object", "properties": {f"p{i}": nested(3, {"type": "integer"}) for i in range(500)}},
    "anyOf of many": {"anyOf": [{"type": "object", "properties": {f"p{i}": {"type": "integer"}}} for i in range(5000)]},
    "anyOf of the same": {"anyOf": [nested(4, {"type": "string"})] * 1000},
    "a long string": {"type": "string", "minLength": 10**6},
    "a string past counting": {"type": "string", "minLength": 10**18, "maxLength": 10**18},
    "a string that may be long": {"type": "string", "maxLength": 10**9},
    "many items": {"type": "array", "items": {"type": "integer"}, "minItems": 10**7},
    "many items of many items": {"type": "array", "minItems": 10**4, "items": {"type": "array", "minItems": 10**4, "items": {"const": 1}}},
    "a number between": {"type": "number", "minimum": 0.1234567890123456789, "maximum": 0.12345678901234568},
    "integers past counting": {"type": "integer", "minimum": 10**300, "maximum": 10**301},
    "a pattern that repeats": {"type": "string", "pattern": "^((a{1,1000}){1,1000}){1,1000}$"},
    "a pattern that backtracks": {"type": "string", "pattern": "^(a+)+(b|c*)*$"},
    "a pattern with much state": {"type": "string", "pattern": "^(a|b)*a(a|b){30}$"},
    "a deep pattern": {"type": "string", "pattern": "(" * 20000 + "a" + ")" * 20000},
    "a pattern of all letters": {"type": "string", "pattern": "^[\\w\\s\\p{L}]{0,500}$"},
    "a long const": {"const": "x" * (1 << 20)},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas(target, name):
    form = {"type": "json_schema", "json_schema": {"name": "bomb", "schema": SCHEMAS[name]}}
    answer = post(target, chat_of(response_format=form, max_tokens=24, close_at_max_tokens=True))
    if answer.status == 200:
        json.loads(answer.json["choices"][0]["message"]["content"])
    else:
        assert answer.status == 400 and answer.error["param"] in ("response_format", "max_tokens")


FIELDS = {
    "a zero byte": (chat_of("a\0b", model="test-model\0"), (200, 400, 404)),
    "ten thousand messages": ({"messages": user("Hi") * 10000}, 400),
    "a prompt of megabytes": (chat_of("word " * 1_500_000), 400),
    "one word of megabytes": (chat_of("a" * 8_000_000), 400),
    "spaces": (chat_of(" " * 8_000_000), 400),
    "emoji": (chat_of("🦊" * 600_000), 400),
    "a long word": (chat_of("a" * 20000), 400),
    "a word of special tokens": (chat_of("<|im_end|>" * 2000), 400),
    "half special tokens": (chat_of("<|im_en" * 3000), 400),
    "huge stop list": (chat_of(stop=["x" * 100] * 10000), 400),
    "huge stop string": (chat_of(stop="x" * 100000), 400),
    "stop strings that almost match": (chat_of(stop=["a" * 4000 + chr(98 + i) for i in range(20)]), 200),
    "huge n": (chat_of(n=10**9), 400),
    "many choices": (chat_of(n=16, max_tokens=1), 200),
    "negative ids": (chat_of(stop_token_ids=[-1]), 400),
    "many biases": (chat_of(logit_bias={str(i): 1 for i in range(49152)}), 400),
    "tools by the thousand": (chat_of(tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(5000)]), 400),
    "a tool's long name": (chat_of(tools=[{"type": "function", "function": {"name": "f" * 10**6}}]), 400),
    "deep variables": (chat_of(chat_template_kwargs=nested(40, {"b": ["x"] * 1000})), (200, 400)),
    "variables that hide functions": (chat_of(chat_template_kwargs={"range": 5, "raise_exception": "x", "loop": {}}), (200, 400)),
    "variables that are no object": (chat_of(chat_template_kwargs=[1]), (200, 400)),
    "a long variable": (chat_of(chat_template_kwargs={"add_generation_prompt": "x" * 10**6, "bos_token": "x" * 10**6}), (200, 400)),
    "a role of megabytes": ({"messages": [{"role": "r" * 10**6, "content": "Hi"}]}, 400),
    "messages of everything": ({"messages": [{"role": "user", "content": {"a": [1]}}]}, 400),
    "a call without a name": ({"messages": [*user("Hi"), {"role": "assistant", "tool_calls": [{}]}], "max_tokens": 1}, (200, 400)),
    "calls that are text": ({"messages": [*user("Hi"), {"role": "assistant", "tool_calls": "x"}], "max_tokens": 1}, (200, 400)),
    "arguments that are no JSON": ({"messages": [{"role": "assistant", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": "{" * 1000}}]}], "max_tokens": 1}, (200, 400)),
    "priority past counting": (chat_of(priority=10**30), 400),
    "a long salt": (chat_of(cache_salt="s" * 10**6), 400),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields(target, name):
    request, want = FIELDS[name]
    answer = post(target, request)
    assert answer.status in (want if isinstance(want, tuple) else (want,)), (answer.status, answer.body[:500])
    assert answer.status == 200 or answer.error


@pytest.mark.parametrize("request_of", [
    lambda count: ("/tokenize", {"prompt": "a b" * count}),
    lambda count: ("/detokenize", {"tokens": [5] * count}),
    lambda count: ("/v1/completions", {"prompt": [5] * count}),
    lambda count: ("/v1/completions", {"prompt": [[5]] * count}),
    lambda count: ("/v1/completions", {"prompt": ["x"] * count}),
    lambda count: ("/v1/completions", {"prompt": [[5, -1]] * 3}),
])
def test_long_lists(target, request_of):
    path, request = request_of(scaled(target, 1_500_000))
    answer = post(target, request, path)
    assert answer.status in (200, 400)


def test_noise_as_bodies(target):
    """Valid requests with bytes changed at random."""
    dice = random.Random(3)
    tools = [{"type": "function", "function": {"name": "f", "parameters": nested(2, {"type": "string", "maxLength": 3})}}]
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": nested(2, {"enum": [1, "a"]})}}
    bodies = [body_of(chat_of(tools=tools, tool_choice="required", max_tokens=20)), body_of(chat_of(response_format=form, max_tokens=20)),
              body_of(chat_of(stop=["a"], logit_bias={"5": 1}, logprobs=True, top_logprobs=2, seed=1, n=2))]
    for _ in range(scaled(target, 150)):
        body = bytearray(dice.choice(bodies))
        for _ in range(dice.randrange(1, 4)):
            body[dice.randrange(len(body))] = dice.choice(b'{}[]",:0123456789aeE+-.\\ \0\xff')
        assert post(target, bytes(body)).status in (200, 400, 404)


# ---- what is slow to read, large to hold or large to write -----------------------------------------------------------

def in_background(function, *arguments, **keywords):
    """A thread that does it, and a list with its result once it is there."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments, **keywords)), daemon=True)
    thread.start()
    return thread, results


def test_slow_reading_keeps_nobody_waiting(target):
    """Texts that take long to tokenise, one after the other: small requests pass them, and of nine the first that is too long
    is the last that is read."""
    small = {"prompt": "Hi", "max_tokens": 1, "temperature": 0}
    hostile = body_of({"prompt": [" " * 60000] * 9})  # as long as 512 of the longest tokens: only tokenising shows that it is too long
    slow = [in_background(target.ask, "/v1/completions", hostile) for _ in range(max(6, scaled(target, 16)))]
    target.wait_until(lambda: target.load[1] >= 2)
    answer = post(target, small, "/v1/completions")
    unanswered = sum(not results for _, results in slow)
    assert answer.status == 200
    for thread, _ in slow:
        thread.join(60)
    assert unanswered, "the small request was answered last"
    assert all(results[0].status == 400 and "maximum context length" in results[0].error["message"] for _, results in slow)


def test_too_many_ids(target):
    error = target.refuse("/detokenize", {"tokens": [1] * 100000})
    assert error["param"] == "tokens" and "100000" in error["message"] and "65536" in error["message"]


@pytest.mark.parametrize("value", ["0,", "null,", '"",'])
def test_fields_that_nobody_reads_hold_nothing(target, value):
    """Before the answer to a body of megabytes has ended, that body is gone: each token is a moment at which it may be."""
    body = (b'{"prompt": "Once", "max_tokens": 100, "ignore_eos": true, "stream": true, "metadata": ['
            + value.encode() * scaled(target, 1500000) + b"0]}")
    before = target.resident_bytes()
    connection, response = target.send("/v1/completions", body)
    assert response.status == 200
    growth = min(target.resident_bytes() - before for line in response if line.startswith(b"data: {"))
    connection.close()
    assert target.scale < 1 or growth < (24 << 20), f"it holds {growth >> 20} MiB"


def test_a_large_answer_that_nobody_takes(target):
    """n x top_logprobs make megabytes of JSON: they are written as the client takes them, and others are answered meanwhile."""
    body = body_of({**chat_of("Hi", n=scaled(target, 6), logprobs=True, top_logprobs=20, ignore_eos=True, seed=1), "max_tokens": 60})
    small = {"prompt": "Hi", "max_tokens": 1, "temperature": 0}
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", target.port))
        client.settimeout(60)
        client.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
        data = client.recv(1)  # the answer has begun
        before = target.resident_bytes()
        assert post(target, small, "/v1/completions").status == 200 and target.ask("/health").status == 200
        assert target.scale < 1 or target.resident_bytes() - before < (8 << 20)
        data += read_all(client)
    (status, text), = read_responses(data)
    assert status == 200 and b"Transfer-Encoding: chunked" in data[:1000]
    choices = json.loads(text)["choices"]
    assert len(choices) == scaled(target, 6)
    assert all(len(choice["logprobs"]["content"]) == 60 for choice in choices)

