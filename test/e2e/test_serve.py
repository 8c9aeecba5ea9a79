# SPDX-License-Identifier: Apache-2.0
"""The server as its operator knows it: how it starts and ends, what it logs, what it does when it is short of room."""

import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

import libnibble
from serving import DEVICE, DONE, PAGE_TOKENS, QUESTIONS, Server, equal_bits, on_any_port, one_process, read_all, text_of, user

SMALL = ("--max-model-len", 256, "--kv-cache-memory-bytes", "64M")
ON_GPU = DEVICE == "cuda"
A_WHILE = 1500 if ON_GPU else 48  # tokens, half a second's
LOGPROB_ERROR_MAX = 2e-2 if ON_GPU else 1e-3  # between chunks of other sizes
SPEED_SLACK = 0.75 if ON_GPU else 0.25  # of the first token's time, which is no longer that of reading
SMOLLM2_PAGE_KIB = 360
END_SECONDS = 20  # for what must not wait for anything, on a machine that may be busy


def refuse_to_start(nibble, *words, environment=None):
    """Status and sentence of a server that must not come up."""
    done = subprocess.run([nibble, "serve", *on_any_port(words)], capture_output=True, text=True, timeout=30, env=environment)
    assert done.returncode != 0 and "ready on" not in done.stderr and done.stdout == ""
    assert "\n  #" not in done.stderr and len(done.stderr.splitlines()) < 30
    return done.returncode, done.stderr


class Stream:
    """A chat that streams in the background. `events` are those that have come so far."""

    def __init__(self, server, content="Tell me a very long story.", **fields):
        self.events, self.seconds = [], None
        self.request = {"messages": user(content), "temperature": 0, "max_tokens": 48, "ignore_eos": True, **fields}
        self.thread = threading.Thread(target=self.read, args=[server], daemon=True)
        self.thread.start()
        server.wait_until(lambda: self.events or not self.thread.is_alive())

    def read(self, server):
        started = time.monotonic()
        for event in server.events("/v1/chat/completions", self.request):
            self.events.append(event)
        self.seconds = time.monotonic() - started

    def finish(self):
        self.thread.join(60)
        return self.events


def start_and_leave(server, request, streamed_bytes=0, path="/v1/chat/completions"):
    """Sends a request, takes so many bytes of its answer, and hangs up."""
    body = json.dumps(request).encode()
    client = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    client.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
    taken = 0
    while taken < streamed_bytes:
        taken += len(client.recv(4096))
    return client


# ---- the start -----------------------------------------------------------------------------------------------------

def test_start(nibble, smollm2):
    with Server(nibble, smollm2, "--max-model-len", 2048) as server:
        print(f"ready after {server.start_seconds:.2f} s")
        ready = [line for line in server.log if "ready on" in line]
        assert len(ready) == 1 and re.search(r"cache capacity \d+ tokens", ready[0])
        assert any("bfloat16" in line for line in server.log), "the plan in short"
        assert server.ask("/health").status == 200
        assert server.stop() == 0


def test_a_port_in_use(nibble, smollm2, server):
    status, sentence = refuse_to_start(nibble, smollm2, *SMALL, "--port", server.port)
    assert status == 1 and str(server.port) in sentence and "in use" in sentence
    # Before the model is so much as looked for.
    status, sentence = refuse_to_start(nibble, "no-such-model.gguf", "--port", server.port)
    assert status == 1 and "in use" in sentence


@one_process
def test_the_limit_of_open_files(nibble, smollm2, tmp_path):
    """It is raised to what the connections need; where it cannot be, the start says so."""
    def limited(soft, hard):
        program = tmp_path / f"nibble-{soft}"
        program.write_text(f'#!/bin/sh\nulimit -S -n {soft} && ulimit -H -n {hard} && exec {nibble} "$@"\n')
        program.chmod(0o755)
        return str(program)

    with Server(limited(100, 2048), smollm2, *SMALL, "--max-connections", 1000) as server:
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] > 1000
        assert not any("ulimit" in line for line in server.log)
    with Server(limited(101, 300), smollm2, *SMALL, "--max-connections", 1000) as server:
        assert any("ulimit -n" in line and "--max-connections" in line for line in server.log)


def test_a_unix_socket(nibble, smollm2, tmp_path):
    path = tmp_path / "nibble.sock"
    with Server(nibble, smollm2, *SMALL, "--uds", path) as server:
        assert server.url == f"unix:{path}"
        command = ["curl", "-sS", "--unix-socket", path, "http://nibble/v1/models"]
        models = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert models["data"][0]["id"] == server.model
        status, sentence = refuse_to_start(nibble, smollm2, *SMALL, "--uds", path)
        assert status == 1 and str(path) in sentence
        assert server.stop() == 0
    assert not path.exists()


def test_a_configuration(nibble, smollm2, tmp_path):
    file = tmp_path / "nibble.yaml"
    file.write_text(f"model: {smollm2}\nmax-model-len: 192\nport: 1\nkv-cache-dtype: fp8\napi-key: [one, two]\nlog_level: warning\n")
    with Server(nibble, None, "--config", file, "--max-num-seqs", 3) as server:
        server.key = "two"
        assert server.ask("/v1/models").json["data"][0]["max_model_len"] == 192
        assert server.ask("/v1/plan").json["layers"][0]["k"] == "fp8_e4m3"
        assert not any("request:" in line for line in server.log)


def test_the_default_model(nibble, smollm2, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(smollm2)
    with Server(nibble, None, *SMALL, name=None, environment={**os.environ, "NIBBLE_CACHE": str(tmp_path)}) as server:
        assert server.ask("/v1/models").json["data"][0]["id"] == "SmolLM2-135M-Instruct"


def test_several_names(nibble, smollm2):
    with Server(nibble, smollm2, *SMALL, "--served-model-name", "second", name="first") as server:
        assert [card["id"] for card in server.ask("/v1/models").json["data"]] == ["first", "second"]
        assert server.chat("Hi", model="second", max_tokens=1)["model"] == "first"


def test_a_plan_that_cannot_be(nibble, smollm2):
    started = time.monotonic()
    status, sentence = refuse_to_start(nibble, smollm2, "--port", 0, "--kv-cache-dtype", "turboquant_k8v4")
    assert status == 1 and "--kv-cache-dtype" in sentence
    assert time.monotonic() - started < END_SECONDS, "a refusal needs no weights"
    assert refuse_to_start(nibble, smollm2, "--port", 0, "--kv-cache-dtype", "nvfp5")[0] == 2
    assert refuse_to_start(nibble, "no-such-model.gguf", "--port", 0)[0] == 1


def test_a_cache_too_small_names_what_fits(nibble, smollm2):
    words = ("--kv-cache-memory-bytes", f"{20 * SMOLLM2_PAGE_KIB}K", "--port", 0)
    status, sentence = refuse_to_start(nibble, smollm2, *words, "--max-model-len", 2048)
    assert status == 1
    length = int(re.search(r"--max-model-len (\d+)", sentence).group(1))
    assert 256 <= length <= 320
    with Server(nibble, smollm2, *words, "--max-model-len", length) as server:
        assert server.complete("Hello", max_tokens=1)
    assert refuse_to_start(nibble, smollm2, *words, "--max-model-len", length + PAGE_TOKENS)[0] == 1


# ---- the end -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("word", ["SIGTERM", "SIGINT"])
def test_an_idle_server_ends_at_once(nibble, smollm2, word):
    with Server(nibble, smollm2, *SMALL) as server:
        connection, response = server.send("/health")  # kept open
        response.read()
        started = time.monotonic()
        server.process.send_signal(getattr(signal, word))
        assert server.wait() == 0
        assert time.monotonic() - started < END_SECONDS
        connection.close()


def test_a_running_stream_is_finished(nibble, smollm2):
    with Server(nibble, smollm2, "--max-model-len", 2048) as server:
        stream = Stream(server, max_tokens=A_WHILE)
        server.terminate()
        time.sleep(0.1)
        answer = server.ask("/v1/chat/completions", {"messages": user("Hi"), "max_tokens": 1})
        assert answer.status == 503 and answer.error["code"] == "service_unavailable" and answer.headers["Retry-After"]
        for path, status, sentence in (("", 503, b"shutting down"), ("/ready", 503, b"shutting down"), ("/live", 200, b"")):
            answer = server.ask("/health" + path)
            assert answer.status == status and sentence in answer.body
        assert server.wait() == 0
        events = stream.finish()
        assert events[-1] == DONE and events[-2]["choices"][0]["finish_reason"] == "length"
        assert len(text_of(events)) > 50


@pytest.mark.parametrize("signals, flags", [(1, ["--drain-seconds", 0.3]), (2, [])])
def test_a_stream_that_takes_too_long(nibble, smollm2, signals, flags):
    with Server(nibble, smollm2, "--max-model-len", 2048, *flags) as server:
        stream = Stream(server, max_tokens=1500)
        whole = concurrent.futures.ThreadPoolExecutor(1).submit(
            server.ask, "/v1/chat/completions", {"messages": user("Count."), "ignore_eos": True, "max_tokens": 1500})
        server.wait_until(lambda: server.load[0] == 2)
        started = time.monotonic()
        for _ in range(signals):
            server.terminate()
            time.sleep(0.1)
        assert server.wait() == 0
        assert time.monotonic() - started < END_SECONDS
        events = stream.finish()
        assert events[-1] == DONE and events[-2]["error"]["code"] == "service_unavailable"
        assert whole.result(10).error["code"] == "service_unavailable"


# ---- clients -------------------------------------------------------------------------------------------------------

def curl(server, *words):
    done = subprocess.run(["curl", "-sS", "-N", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl(server):
    request = {"model": server.model, "messages": user("What is two plus two?"), "max_tokens": 8, "temperature": 0}
    words = [f"{server.url}/v1/chat/completions", "-H", "Content-Type: application/json"]
    whole = json.loads(curl(server, *words, "-d", json.dumps(request)))["choices"][0]["message"]["content"]
    lines = curl(server, *words, "-d", json.dumps({**request, "stream": True})).splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert text_of(events) == whole and lines[-2] == "data: [DONE]"


def test_a_large_body_with_expect_continue(server, tmp_path):
    """curl asks before it sends more than a megabyte, and here waits a minute when nobody answers."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"prompt": "Hi", "max_tokens": 1, "user": "x" * (2 << 20)}))
    started = time.monotonic()
    assert json.loads(curl(server, f"{server.url}/v1/completions", "-H", "Expect: 100-continue", "--expect100-timeout", "60", "-d", f"@{file}"))["choices"]
    assert time.monotonic() - started < END_SECONDS


def test_one_connection_many_requests(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for stream in (False, True, False, True):
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "Hi", "max_tokens": 2, "stream": stream}))
        response = connection.getresponse()
        assert response.status == 200 and response.read()
    local = connection.sock.getsockname()
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200 and connection.sock.getsockname() == local
    connection.close()


def test_an_old_client(server):
    """HTTP/1.0 knows no chunks: the stream ends with the connection."""
    body = json.dumps({"prompt": "Hi", "max_tokens": 3, "stream": True}).encode()
    head, _, data = server.exchange(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body).partition(b"\r\n\r\n")
    assert b"200" in head.splitlines()[0] and b"chunked" not in head.lower()
    assert data.startswith(b"data: {") and data.endswith(b"data: [DONE]\n\n")


def test_pages_come_back_when_clients_leave(server):
    server.wait_idle()
    long = {"messages": user("Write a novel about the sea."), "max_tokens": 1500, "ignore_eos": True}
    for request, taken in ((long, 0), ({**long, "stream": True}, 2000), ({**long, "n": 3, "stream": True}, 2000)):
        clients = [start_and_leave(server, request, taken) for _ in range(3)]
        server.wait_until(lambda: server.load[0] == 3 * request.get("n", 1))
        assert server.load[2] > 0
        for client in clients:
            client.close()
        server.wait_idle(1)


# ---- logs ----------------------------------------------------------------------------------------------------------

SECRETS = ("xylophone", "zebra-key", "wrong-key", "quetzal")


def ask_secretly(server):
    """Requests that go well and badly, with words that no log may hold. The id of the first."""
    server.key = "zebra-key"
    identity = server.chat("Say xylophone.", max_tokens=3, stop=["quetzal"])["id"]
    server.refuse("/v1/chat/completions", {"messages": user("xylophone"), "temperature": "xylophone"})
    server.refuse("/v1/chat/completions", {"messages": user("xylophone"), "model": "no-such-model"}, 404)
    server.refuse("/v1/completions", b'{"xylophone')
    server.key = "wrong-key"
    server.refuse("/v1/chat/completions", {"messages": user("xylophone")}, 401)
    server.refuse("/nowhere", {"messages": user("xylophone")}, 404)
    server.ask("/v1/completions")
    return identity


def test_log_lines(nibble, smollm2):
    with Server(nibble, smollm2, *SMALL, "--api-key", "zebra-key", "--log-level", "debug") as server:
        identity = ask_secretly(server)
        server.stop()
        text = "".join(server.log)
        (line,) = [line for line in server.log if identity in line]
        assert re.search(r"request: .*\bin=\d+ .*\bout=3 ", line) and "cached=" in line and "length" in line
        for field in ("queue", "first", "total"):
            assert re.search(rf"{field}\w*=[\d.]+s", line), (field, line)
        assert not [word for word in SECRETS if word in text]
        for refusal in ("status=401 error=.*API key", "path=/nowhere status=404 ", "method=GET path=/v1/completions status=405 "):
            assert any(re.search("refused: .*" + refusal, line) for line in server.log), refusal
        assert re.search(r"request: .*status=400 param=temperature error=.*temperature", text)
        assert re.search(r"request: .*status=404 param=model error=.*no-such-model", text)


def test_log_as_json(nibble, smollm2):
    """Every line, from the first one on; those of a start that is refused, too."""
    with Server(nibble, smollm2, *SMALL, "--api-key", "zebra-key", "--log-json", "--quality-gate", 1) as server:
        identity = ask_secretly(server)
        server.stop()
        lines = [json.loads(line) for line in server.log]
        (line,) = [line for line in lines if line.get("id") == identity]
        assert line["event"] == "request" and line["out"] == 3 and line["level"] == "info" and line["status"] == 200
        assert all({"time", "level", "event"} <= set(line) for line in lines)
        assert [line["event"] for line in lines[:4]] == ["quality", "plan", "sampling", "ready"]
        assert not [word for word in SECRETS if word in "".join(server.log)]
    for words in (["no-such-model.gguf", "--port", 0], [smollm2, "--port", 0, "--kv-cache-dtype", "turboquant_k8v4"],
                  [smollm2, "--port", 0, "--allowed-origins", "example.org"], [smollm2, "--host", "203.0.113.7"]):
        _, text = refuse_to_start(nibble, *words, "--log-json")
        assert {json.loads(line)["level"] for line in text.splitlines()} == {"error"}


def test_request_ids(server):
    """The client's own name for a request is in the answer and in the log; one that could harm the log is replaced."""
    for path, request in (("/v1/completions", {"prompt": "Hi", "max_tokens": 1}), ("/tokenize", b"{"), ("/nowhere", None)):
        assert server.ask(path, request, headers={"X-Request-Id": "order-66"}).headers["X-Request-Id"] == "order-66"
    assert "order-66" not in (server.ask("/health").headers["X-Request-Id"], None)
    hostile = server.ask("/nowhere", headers={"X-Request-Id": 'a" level=error b'}).headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f]{32}", hostile)
    assert server.wait_until(lambda: [line for line in server.log if "request_id=order-66 " in line][2:]
                             and any(f"request_id={hostile} " in line for line in server.log))


def test_nobody_reads_the_log(nibble, smollm2):
    """A pipe that is full stops neither answers nor the end; what was lost is counted."""
    reader, writer = os.pipe()
    command = [nibble, "serve", smollm2, *map(str, SMALL), "--port", "0", "--device", DEVICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True) as process:
        os.close(writer)
        try:
            port = int(re.search(r":(\d+) ", process.stdout.readline()).group(1))
            request = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n" % (b"x" * 240)
            for _ in range(4):
                with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                    data = (request + b"\r\n") * 1000 + request + b"Connection: close\r\n\r\n"
                    threading.Thread(target=client.sendall, args=[data], daemon=True).start()
                    assert read_all(client).count(b"HTTP/1.1 404 ") == 1001
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            assert float(re.search(r"^nibble:log_lines_dropped_total (\S+)$", text, re.M).group(1)) > 0
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
            os.close(reader)


# ---- the prefix cache ----------------------------------------------------------------------------------------------

def test_a_second_turn(nibble, smollm2):
    """The second turn of a conversation reads only what is new, at the speed that implies."""
    story = " ".join(f"In year {year} the village by the lake had {year * 7 % 90} boats and a new bridge." for year in range(20))
    with Server(nibble, smollm2, "--max-model-len", 1024) as server:
        messages = [{"role": "system", "content": story}, *user("Tell me about the village.")]

        def ask():
            started = time.monotonic()
            events, first = [], None
            for event in server.events("/v1/chat/completions", {"messages": messages, "max_tokens": 32, "temperature": 0,
                                                                "stream_options": {"include_usage": True}}):
                if first is None and event != DONE and event["choices"] and event["choices"][0]["delta"].get("content"):
                    first = time.monotonic() - started
                events.append(event)
            return text_of(events), events[-2]["usage"], first

        text, usage, first = ask()
        messages += [{"role": "assistant", "content": text}, *user("And what else?")]
        hits = server.metric("vllm:prefix_cache_hits_total")
        second_text, second_usage, second_first = ask()
        cached = second_usage["prompt_tokens_details"]["cached_tokens"]
        print(f"first token after {first:.3f} s of {usage['prompt_tokens']} tokens; {second_first:.3f} s of "
              f"{second_usage['prompt_tokens']}, {cached} of them cached")
        assert usage["prompt_tokens"] > 400 and usage["prompt_tokens_details"]["cached_tokens"] == 0
        assert cached >= usage["total_tokens"] - 2 * PAGE_TOKENS
        assert server.metric("vllm:prefix_cache_hits_total") == hits + cached
        share = (second_usage["prompt_tokens"] - cached) / usage["prompt_tokens"]
        assert second_first < first * (share + SPEED_SLACK)
        assert second_text


def test_without_the_prefix_cache(nibble, smollm2):
    with Server(nibble, smollm2, *SMALL, "--no-enable-prefix-caching") as server:
        question = "Name ten animals that live in the sea, and ten that live on land, please, in two lists."
        first, second = (server.chat(question, max_tokens=4) for _ in range(2))
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert first["choices"] == second["choices"]


# ---- short of room -------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def narrow(nibble, smollm2):
    """One request at a time, two more may wait."""
    with Server(nibble, smollm2, *SMALL, "--max-num-seqs", 1, "--max-queue", 2, "--scheduling-policy", "priority") as server:
        yield server


def test_a_full_queue(narrow):
    stream = Stream(narrow, max_tokens=60)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(narrow.chat, "Hi", max_tokens=1) for _ in range(2)]
        narrow.wait_until(lambda: narrow.load[1] == 2)
        answer = narrow.ask("/v1/chat/completions", {"messages": user("Hi"), "max_tokens": 1})
        assert answer.status == 429 and int(answer.headers["Retry-After"]) >= 1 and answer.error["code"] == "rate_limit_exceeded"
        assert narrow.ask("/health").status == 200
        assert stream.finish()[-1] == DONE
        assert all(one.result()["choices"] for one in waiting)
    narrow.wait_idle()


def test_priorities(narrow):
    """Of those that wait, the lower number goes first."""
    order = []

    def ask(priority):
        narrow.chat(QUESTIONS[0], max_tokens=2, priority=priority)
        order.append(priority)

    stream = Stream(narrow, max_tokens=200, priority=-10)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        late = pool.submit(ask, 5)
        narrow.wait_until(lambda: narrow.load[1] == 1)
        early = pool.submit(ask, 1)
        late.result(), early.result()
    assert stream.finish()[-1] == DONE and order == [1, 5]


def test_a_client_that_leaves_the_queue(narrow):
    stream = Stream(narrow, max_tokens=60)
    client = start_and_leave(narrow, {"messages": user("Hi")})
    narrow.wait_until(lambda: narrow.load[:2] == (1, 1))
    client.close()
    narrow.wait_until(lambda: narrow.load[:2] == (1, 0), 2)
    assert stream.finish()[-1] == DONE
    narrow.wait_idle(1)


@equal_bits
@one_process
def test_preemption(nibble, smollm2, server):
    """A cache of ten pages, and four requests that need three each: some start again, and say the same."""
    prompts = [f"{question} The answer is" for question in QUESTIONS[:4]]
    fields = {"max_tokens": 36, "ignore_eos": True, "logprobs": 1}
    alone = [server.complete(prompt, cache_salt="alone", **fields)["choices"] for prompt in prompts]
    with Server(nibble, smollm2, "--max-model-len", 128, "--kv-cache-memory-bytes", f"{10 * SMOLLM2_PAGE_KIB}K") as small:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda prompt: small.complete(prompt, **fields)["choices"], prompts))
        assert together == alone
        assert small.metric("vllm:num_preemptions_total") > 0
        small.wait_idle()


@one_process
def test_windows(nibble, gemma3, library):
    """Gemma's sliding windows: a prompt longer than the pool of the windowed layers, the same as the library reads it."""
    prompt = " ".join(f"{number} squared is {number * number}." for number in range(60))
    fields = {"max_tokens": 6, "logprobs": 1, "return_token_ids": True}
    with Server(nibble, gemma3, "--max-model-len", 1024, "--max-num-seqs", 1, "--max-num-batched-tokens", 64) as server:
        first, second = (server.complete(prompt, **fields) for _ in range(2))
        pools = {pool["class"]: pool["pages"] for pool in server.ask("/v1/plan").json["memory"]["pools"]}
        server.wait_idle()
    choice = first["choices"][0]
    length = first["usage"]["prompt_tokens"]
    windowed = next(pages for name, pages in pools.items() if name.startswith("window"))
    assert windowed * PAGE_TOKENS < length < 1000
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= length - 2 * PAGE_TOKENS
    assert second["choices"] == first["choices"]
    with libnibble.Model(libnibble.Library(library), gemma3, max_model_len=1024) as model, model.sequence() as sequence:
        sequence.assign(choice["prompt_token_ids"][:-1])
        token = choice["prompt_token_ids"][-1]
        for want, logprob in zip(choice["token_ids"], choice["logprobs"]["token_logprobs"]):
            logits = sequence.score([token])[0].astype(np.float64)
            token = int(logits.argmax())
            assert token == want
            assert abs(logits[token] - logits.max() - np.log(np.exp(logits - logits.max()).sum()) - logprob) < LOGPROB_ERROR_MAX


# ---- the same request, bit for bit ---------------------------------------------------------------------------------

@equal_bits
@pytest.mark.parametrize("flags", [(), ("--kv-cache-dtype", "nvfp4")])
def test_the_same_bits(nibble, smollm2, flags):
    """Alone or among 32 others, on one thread or two, read at once, in chunks or found in the cache: the same numbers."""
    prompt = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 6

    def ask(server, salt):
        answer = server.complete(prompt, max_tokens=10, logprobs=5, cache_salt=salt)
        return answer["choices"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def ask_in_a_crowd(server, salt):
        with concurrent.futures.ThreadPoolExecutor(33) as pool:
            others = [pool.submit(server.chat, QUESTIONS[i % 20], max_tokens=6 + i % 9) for i in range(32)]
            found = pool.submit(ask, server, salt).result()
            assert all(other.result() for other in others)
        return found

    common = ("--max-model-len", 512, "--kv-cache-memory-bytes", "128M", *flags)
    with Server(nibble, smollm2, *common, "--threads", 2) as two:
        want, none = ask(two, "a")
        hit, some = ask(two, "a")
        crowd, nothing = ask_in_a_crowd(two, "b")
        crowd_hit, again = ask_in_a_crowd(two, "b")
        assert (none, nothing) == (0, 0) and some == again > 80
    with Server(nibble, smollm2, *common, "--threads", 1, "--max-num-batched-tokens", 32) as one:
        chunked, _ = ask(one, "a")
    assert want[0]["logprobs"]["token_logprobs"][0] < 0
    for found in (hit, crowd, crowd_hit, chunked):
        assert found == want


# ---- memory and health ---------------------------------------------------------------------------------------------

def test_memory_for_requests(nibble, smollm2):
    """Beyond --max-inflight-bytes a request is refused before any work, and what was charged comes back."""
    request = {"prompt": "Once upon", "max_tokens": 400, "ignore_eos": True, "logprobs": 20}
    with Server(nibble, smollm2, "--max-model-len", 512, "--max-inflight-bytes", "8M", "--log-level", "debug") as server:
        assert any("may hold 8388608 bytes" in line for line in server.log)
        error = server.refuse("/v1/completions", {"prompt": "Hi", "metadata": [0] * 300000}, 413)  # 600 KB, 14 MB of values
        assert "8388608" in error["message"]
        error = server.refuse("/v1/completions", {**request, "n": 64})  # would not fit if it were alone
        assert "8388608" in error["message"] and error["param"] == "max_tokens"
        connection, response = server.send("/v1/completions", {**request, "n": 32, "stream": True})
        assert response.status == 200
        second = server.ask("/v1/completions", {**request, "n": 32})
        assert second.status == 429 and second.headers["Retry-After"] and "8388608" in second.error["message"]
        assert server.complete("Hi", max_tokens=1)  # small ones find room
        connection.close()
        server.wait_idle()
        connection, response = server.send("/v1/completions", {**request, "n": 32, "stream": True})
        assert response.status == 200
        connection.close()


@contextlib.contextmanager
def stopped(threads):
    """Threads of another process stand still, as on a device that does not answer; they go on afterwards."""
    seize, interrupt, detach = 0x4206, 0x4207, 17  # ptrace(2)
    ptrace = ctypes.CDLL(None).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for thread in threads:
        assert ptrace(seize, thread, None, None) == 0 and ptrace(interrupt, thread, None, None) == 0
    try:
        yield
    finally:
        for thread in threads:
            ptrace(detach, thread, None, None)


@one_process
def test_health_sees_what_is_stuck(nibble, smollm2):
    """All threads but the loop's stand still while an answer is generated, and then while another request is to be read."""
    def says(path, status, words=b""):
        def answer():
            found = server.ask(path)
            return found.status == status and words in found.body
        server.wait_until(answer, 60)

    with Server(nibble, smollm2, *SMALL, "--stall-seconds", 1) as server:
        connection, response = server.send("/v1/completions", {"prompt": "Once", "max_tokens": 200, "n": 64, "ignore_eos": True, "stream": True})
        assert response.read(1)  # it runs
        with stopped([int(name) for name in os.listdir(f"/proc/{server.process.pid}/task") if int(name) != server.process.pid]):
            for path in ("/health", "/health/ready", "/health/live"):
                says(path, 503, b"the engine has work")
            small = start_and_leave(server, {"prompt": "Hi"}, path="/tokenize")
            says("/health", 503, b"the reader of small requests has work")
        for path in ("/health", "/health/live"):
            says(path, 200)
        small.close()
        connection.close()


@pytest.mark.skipif(ON_GPU, reason="the CPU's kernel lies")
def test_health_sees_logits_that_are_no_numbers(nibble, smollm2):
    with Server(nibble, smollm2, *SMALL, "--no-self-test", environment={**os.environ, "NIBBLE_FAULT": "embed_ref:nan"}) as server:
        for count in range(3):
            assert server.ask("/health").status == 200
            assert "not finite" in server.refuse("/v1/completions", {"prompt": f"Hi {count}", "max_tokens": 1}, 500)["message"]
        for path in ("/health", "/health/ready", "/health/live"):
            answer = server.ask(path)
            assert answer.status == 503 and b"not finite" in answer.body
        assert server.metric("vllm:corrupted_requests_total") == 3
