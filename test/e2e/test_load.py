# SPDX-License-Identifier: Apache-2.0
"""Many clients for a while: every answer right, none lost, memory flat, pages back; and what HTTP costs over the library.

NIBBLE_LOAD_SECONDS says how long (20). NIBBLE_HTTP_COST_MAX sets the bar for a machine that has nothing else to do.
"""

import asyncio
import json
import os
import random
import time

import pytest

import libnibble
from serving import DONE, QUESTIONS, Server

SECONDS = float(os.environ.get("NIBBLE_LOAD_SECONDS", 20))
HTTP_COST_MAX = float(os.environ.get("NIBBLE_HTTP_COST_MAX", 1.15))
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
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
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


def test_every_answer_is_right(busy, alone):
    answers, half = asyncio.run(run_clients(busy, alone, SECONDS * 0.6, 0))
    growth = busy.resident_bytes() - half
    print(f"{answers} answers, memory grew by {growth >> 10} KiB in the second half")
    assert answers >= CLIENTS
    assert growth < GROWTH_BYTES_MAX
    busy.wait_idle()


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


def test_http_costs_little(nibble, smollm2, library):
    """32 streams against the same 32 requests through the library, the better of two runs each."""
    count, tokens = 32, 20
    limits = {"max_model_len": 256, "max_num_seqs": count}
    flags = ("--max-model-len", 256, "--max-num-seqs", count, "--no-enable-prefix-caching", "--log-level", "warning")

    fields = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True, "skip_special_tokens": False}

    async def stream_all(server, prompts):
        return await asyncio.gather(*(stream(server, {"prompt": prompt, **fields}) for prompt in prompts))

    def best_of_two(run):
        seconds = []
        for _ in range(2):
            started = time.monotonic()
            result = run()
            seconds.append(time.monotonic() - started)
        return min(seconds), result

    with Server(nibble, smollm2, *flags) as server:
        texts = [f"Question {i}: {QUESTIONS[i % len(QUESTIONS)]} Answer:" for i in range(count)]
        prompts = [server.ask("/tokenize", {"prompt": text}).json["tokens"] for text in texts]
        over_http, streamed = best_of_two(lambda: asyncio.run(stream_all(server, prompts)))
        with libnibble.Model(libnibble.Library(library), smollm2, **limits) as model:
            directly, generated = best_of_two(
                lambda: model.generate(prompts, max_tokens=tokens, scheduling={"no_prefix_cache": True}))
        for text, answer in zip(streamed, generated):
            assert server.ask("/detokenize", {"tokens": answer.tokens}).json["prompt"] == text
    print(f"{over_http:.3f} s over HTTP, {directly:.3f} s through the library: {over_http / directly:.3f}")
    assert over_http / directly < HTTP_COST_MAX
