# SPDX-License-Identifier: Apache-2.0
"""Many clients for a while: every answer right, none lost, memory flat, pages back; and what HTTP costs over the library.

NIBBLE_LOAD_SECONDS says how long (20). NIBBLE_HTTP_COST_MAX sets the bar for a machine that has nothing else to do.
"""

import asyncio
import json
import os
import random
import re
import selectors
import socket
import time

import pytest

import libnibble
import small_model
from serving import DONE, QUESTIONS, RANKS, Server, equal_bits, one_process, user

SECONDS = float(os.environ.get("NIBBLE_LOAD_SECONDS", 20))
HTTP_COST_MAX = float(os.environ.get("NIBBLE_HTTP_COST_MAX", 1.15))
HTTP_ROUNDS, HTTP_ROUNDS_MAX = 3, 12
CLIENTS = 64
GROWTH_BYTES_MAX = 8 << 20


async def read_events(reader):
    """The events of a chunked answer, as they are."""
    text = b""
    while size := int(await reader.readline(), 16):
        text += (await reader.readexactly(size + 2))[:-2]
        *events, text = text.split(b"\n\n")
        for event in events:
            assert event.startswith(b"data: "), event
            yield event[6:].decode()


async def stream(server, request, leave_after=None):
    """The text of a streamed completion; or hangs up after so many events, which gives None."""
    body = json.dumps({**request, "stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        text, taken = "", 0
        async for event in read_events(reader):
            if event == DONE:
                return text
            if taken == leave_after:
                writer.transport.abort()
                return None
            text += json.loads(event)["choices"][0]["text"]
            taken += 1
        raise AssertionError("a stream ended without its last event")
    finally:
        writer.close()


def requests():
    """Twenty of mixed lengths, some sampled with a seed, some with a long beginning in common."""
    common = "The following questions are short, and so are the answers. " * 6
    return [{"prompt": (common if i % 4 == 0 else "") + f"Question: {question} Answer:", "max_tokens": 4 + 5 * i % 21, "ignore_eos": True,
             "temperature": 0.9 if i % 3 == 0 else 0, "seed": i} for i, question in enumerate(QUESTIONS)]


@pytest.fixture(scope="module")
def busy(nibble, smollm2):
    """A server whose cache is too small for what comes, and so small that all of it is in use before memory is measured."""
    with Server(nibble, smollm2, "--max-model-len", 512, "--max-num-seqs", 48, "--kv-cache-memory-bytes", "32M",
                "--log-level", "warning") as server:
        yield server


@pytest.fixture(scope="module")
def alone(busy):
    """Each request with the answer that it has when nothing else runs."""
    return [(request, busy.complete(**request)["choices"][0]["text"]) for request in requests()]


async def run_clients(server, alone, seconds, leaving):
    """Clients that ask and ask until the time is over. How many answers came, and the memory after half the time."""
    end = time.monotonic() + seconds
    dice = random.Random(5)
    answers, resident = 0, None

    async def run(leaves):
        nonlocal answers
        while time.monotonic() < end:
            request, want = dice.choice(alone)
            text = await stream(server, request, dice.randrange(4) if leaves else None)
            assert text is None if leaves else text == want
            answers += 1

    async def watch():
        nonlocal resident
        await asyncio.sleep(seconds / 2)
        resident = server.resident_bytes()

    await asyncio.gather(watch(), *(run(i < leaving) for i in range(CLIENTS)))
    return answers, resident


@equal_bits
def test_every_answer_is_right(busy, alone):
    answers, half = asyncio.run(run_clients(busy, alone, SECONDS * 0.6, 0))
    growth = busy.resident_bytes() - half
    print(f"{answers} answers, memory grew by {growth >> 10} KiB in the second half")
    assert answers >= CLIENTS
    assert growth < GROWTH_BYTES_MAX
    busy.wait_idle()


@equal_bits
def test_half_of_them_leave(busy, alone):
    answers, half = asyncio.run(run_clients(busy, alone, SECONDS * 0.4, CLIENTS // 2))
    busy.wait_idle(1)
    growth = busy.resident_bytes() - half
    print(f"{answers} answers and departures, memory grew by {growth >> 10} KiB in the second half")
    assert answers >= CLIENTS and growth < GROWTH_BYTES_MAX
    assert busy.metric("vllm:request_success_total", finished_reason="abort") > 10
    assert busy.metric("vllm:request_success_total", finished_reason="error") == 0
    for request, want in alone[:3]:
        assert busy.complete(**request)["choices"][0]["text"] == want


# ---- all kinds of requests -----------------------------------------------------------------------------------------

PAIR = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 9}}, "required": ["a", "b"]}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": PAIR}}]

KINDS = [
    {"max_tokens": 100, "ignore_eos": True},
    {"max_tokens": 20, "n": 4},
    {"max_tokens": 48, "n": 2, "response_format": {"type": "json_schema", "json_schema": {"name": "pair", "schema": PAIR}}},
    {"max_tokens": 64, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    {"max_tokens": 20, "tools": TOOLS},
    {"max_tokens": 10, "logprobs": True, "top_logprobs": 3},
    {"max_tokens": 30, "stop": ["e", "th "], "ignore_eos": True},
    {"max_tokens": 30, "cache_salt": "mine", "priority": -1},
    {"max_tokens": 1, "priority": 5},
]


def mixed_requests():
    """Each kind of chat with a short and a long prompt."""
    return [{"messages": user("Hello " * words), "seed": words, "temperature": 1, **kind} for kind in KINDS for words in (1, 30, 150)]


async def fetch(server, request, leave_after=None):
    """A chat's choices, without what differs from call to call; or hangs up after so many seconds, which gives None."""
    body = json.dumps(request).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        if leave_after is not None:
            await asyncio.sleep(leave_after)
            writer.transport.abort()
            return None
        head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), (head, answer)
        return json.loads(re.sub(rb'"call_\w+"', b'"call"', answer))["choices"]
    finally:
        writer.close()


def test_all_kinds_at_once(nibble_asan, smollm2, tmp_path):
    """Under ASan and UBSan, with a cache so small that requests are preempted, and clients who leave."""
    memory = f"{80 // RANKS}K"  # of each
    flags = f"--max-model-len 512 --max-num-seqs 12 --kv-cache-memory-bytes {memory} --max-num-batched-tokens 48 --scheduling-policy priority"
    dice = random.Random(7)

    async def run(server, alone, end):
        while time.monotonic() < end:
            request, want = dice.choice(alone)
            leaves = dice.random() < 0.3
            choices = await fetch(server, {**request, "stream": leaves}, dice.choice([0, 0.01, 0.1, 0.5]) if leaves else None)
            assert leaves or choices == want

    async def run_all(server, alone):
        await asyncio.gather(*(run(server, alone, time.monotonic() + SECONDS * 0.5) for _ in range(CLIENTS // 2)))

    with Server(nibble_asan, str(small_model.write(smollm2, tmp_path / "small.gguf")), *flags.split()) as server:
        alone = [(request, asyncio.run(fetch(server, request))) for request in mixed_requests()]
        asyncio.run(run_all(server, alone))
        server.wait_idle()
        assert server.metric("vllm:num_preemptions_total") > 0
        assert server.stop() == 0


# ---- what HTTP costs -----------------------------------------------------------------------------------------------

def read_together(server, bodies):
    """The raw answers of so many streams, read by a client that takes as little of the machine as it can."""
    answers, ready = {}, selectors.DefaultSelector()
    for body in bodies:
        client = socket.create_connection(("127.0.0.1", server.port))
        data = json.dumps(body).encode()
        client.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        answers[client] = []
        ready.register(client, selectors.EVENT_READ)
    left = len(answers)
    while left:
        for key, _ in ready.select():
            piece = key.fileobj.recv(65536)
            answers[key.fileobj].append(piece)
            if not piece:
                ready.unregister(key.fileobj)
                key.fileobj.close()
                left -= 1
    return [b"".join(pieces) for pieces in answers.values()]


def text_of(raw):
    events = [line[6:] for line in raw.decode().split("\r\n\r\n", 1)[1].split("\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


@equal_bits
@one_process
def test_http_costs_little(nibble, smollm2, library):
    """32 streams against the same 32 requests through the library, in turn, the best run of each: others may use the machine."""
    count, tokens = 32, 128  # so many that it does not matter that the streams begin one after the other
    limits = {"max_model_len": 256, "max_num_seqs": count}
    flags = ("--max-model-len", 256, "--max-num-seqs", count, "--no-enable-prefix-caching", "--log-level", "warning")
    fields = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True, "skip_special_tokens": False}

    def stream_all(server, prompts):
        return read_together(server, [{"model": server.model, "stream": True, "prompt": prompt, **fields} for prompt in prompts])

    def timed(run):
        started = time.monotonic()
        result = run()
        return time.monotonic() - started, result

    over_http = directly = float("inf")
    with Server(nibble, smollm2, *flags) as server, libnibble.Model(libnibble.Library(library), smollm2, **limits) as model:
        texts = [f"Question {i}: {QUESTIONS[i % len(QUESTIONS)]} Answer:" for i in range(count)]
        prompts = [server.ask("/tokenize", {"prompt": text}).json["tokens"] for text in texts]
        for done in range(1, HTTP_ROUNDS_MAX + 1):
            seconds, streamed = timed(lambda: stream_all(server, prompts))
            over_http = min(over_http, seconds)
            seconds, generated = timed(lambda: model.generate(prompts, max_tokens=tokens, scheduling={"no_prefix_cache": True}))
            directly = min(directly, seconds)
            if done >= HTTP_ROUNDS and over_http / directly < HTTP_COST_MAX:
                break
        for raw, answer in zip(streamed, generated):
            assert server.ask("/detokenize", {"tokens": answer.tokens}).json["prompt"] == text_of(raw)
    print(f"{over_http:.3f} s over HTTP, {directly:.3f} s through the library: {over_http / directly:.3f}")
    assert over_http / directly < HTTP_COST_MAX
