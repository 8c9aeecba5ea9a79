# SPDX-License-Identifier: Apache-2.0
"""The fleet simulation's traffic, sent to a real `nibble serve` on loopback: what it takes there is what one simulated server
must take. Texts are made of token ids; a turn goes on from what the server really answered to the one before.
"""

import asyncio
import dataclasses
import hashlib
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

START_SECONDS = 60
ANSWER_SECONDS = 300
FIRST_ID, LAST_ID = 1000, 40000  # ordinary tokens of the models that are measured


@dataclasses.dataclass
class Replay:
    """What one server is told and what is sent to it; the same for the simulated one."""
    context: int = 1024
    sequences: int = 32
    batch_tokens: int = 512
    cache_bytes: str = "1G"
    pages: int = 8192  # enough that nothing is ever driven out
    traffic: tuple = ("--sessions", "60", "--rate", "6", "--turns", "4", "--think", "0.5", "--systems", "4", "--greet", "0.5",
                      "--system-tokens", "150", "--user-tokens", "40", "--answer-tokens", "40", "--seed", "1")

    def flags(self):
        return [*self.traffic, "--context", str(self.context)]

    def simulated(self):
        return [*self.flags(), "--running", str(self.sequences), "--batch-tokens", str(self.batch_tokens), "--pages", str(self.pages)]

    def served(self):
        return ["--max-model-len", str(self.context), "--max-num-seqs", str(self.sequences), "--max-num-batched-tokens",
                str(self.batch_tokens), "--kv-cache-memory-bytes", self.cache_bytes]


# ---- texts ----


def text(name, count):
    """Token ids that are always the same for a name, and its own."""
    data = hashlib.shake_128(name.encode()).digest(4 * count)
    span = LAST_ID - FIRST_ID
    return [FIRST_ID + int.from_bytes(data[i:i + 4], "little") % span for i in range(0, len(data), 4)]


# ---- one conversation ----


async def complete(port, prompt, answer):
    """The tokens of an answer, and when its first and last came."""
    body = json.dumps({"prompt": prompt, "max_tokens": answer, "ignore_eos": True, "temperature": 0, "stream": True,
                       "return_token_ids": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    ids, first, last = [], None, None
    try:
        status = await reader.readline()
        if b" 200 " not in status:
            raise ConnectionError(f"the server answered {status.decode().strip()}")
        async for line in reader:
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[6:]).get("choices", []):
                if choice.get("token_ids"):
                    last = time.monotonic()
                    first = first or last
                    ids += choice["token_ids"]
    finally:
        writer.close()
    if len(ids) != answer:
        raise ConnectionError(f"{len(ids)} tokens came where {answer} were asked for")
    return ids, first, last


async def converse(port, name, session, begin, done):
    prompt = text(f"system {session['system']}", session["system_tokens"])
    await asyncio.sleep(begin + session["begin"] - time.monotonic())
    for number, turn in enumerate(session["turns"]):
        await asyncio.sleep(turn["think"])
        prompt = prompt + text(f"session {name} turn {number}", turn["user"])
        asked = time.monotonic()
        ids, first, last = await asyncio.wait_for(complete(port, prompt, turn["answer"]), ANSWER_SECONDS)
        done.append({"first_token_s": first - asked, "tokens": len(ids), "end": last,
                     "token_s": (last - first) / (len(ids) - 1) if len(ids) > 1 else None})
        prompt = prompt + ids


async def converse_all(port, sessions):
    done, begin = [], time.monotonic() + 0.05
    await asyncio.gather(*(converse(port, i, session, begin, done) for i, session in enumerate(sessions)))
    return done, begin


# ---- both sides ----


def metric(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))


def replay(port, sessions):
    """What the server gave and took, in the words of fleet-sim."""
    names = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "vllm:num_preemptions_total"
    before = [metric(port, name) for name in names]
    done, begin = asyncio.run(converse_all(port, sessions))
    hits, queries, preemptions = (metric(port, name) - was for name, was in zip(names, before))
    seconds = max(answer["end"] for answer in done) - begin
    gaps = [answer["token_s"] for answer in done if answer["token_s"] is not None]
    return {"requests": len(done), "seconds": seconds, "hit_rate": hits / queries, "preemptions": preemptions,
            "answer_tokens_per_s": sum(answer["tokens"] for answer in done) / seconds,
            "first_token_s": {"mean": statistics.fmean(answer["first_token_s"] for answer in done)},
            "token_s": {"mean": statistics.fmean(gaps)}}


def serve_and_replay(nibble, model, threads, wanted, sessions):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [nibble, "serve", model, "--port", port, "--threads", threads, "--log-level", "error", *wanted.served()]
    server = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_SECONDS
        while not is_healthy(port):
            if server.poll() is not None or time.monotonic() > end:
                sys.exit("fleet: nibble serve did not get ready")
            time.sleep(0.05)
        return replay(port, sessions)
    finally:
        server.terminate()
        server.wait()


def is_healthy(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def simulate(program, *flags):
    """fleet-sim's lines of JSON."""
    done = subprocess.run([str(program), *map(str, flags)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"fleet: fleet-sim {' '.join(map(str, flags))} ended with status {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def sessions_of(program, wanted):
    return simulate(pathlib.Path(program), *wanted.flags(), "--print-traffic")
