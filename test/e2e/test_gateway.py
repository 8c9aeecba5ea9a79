# SPDX-License-Identifier: Apache-2.0
"""The Gateway API Inference Extension's endpoint picker, played by a test: it reads what its protocol asks of a server
(golden/gateway/protocol.json) while that server is under load, and sends prompts where their beginnings are."""

import collections
import contextlib
import hashlib
import json
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import ROOT
from serving import DEVICE, PAGE_TOKENS, Server, user

PROTOCOL = json.loads((ROOT / "test" / "golden" / "gateway" / "protocol.json").read_text())
BUSY_TOKENS = 1500 if DEVICE == "cuda" else 400
SEATS = 2
STORY = "Once upon a time, in a village between the river and the hills, there lived a clockmaker who never slept. "


def scrape(server):
    """Each signal of the protocol, read and checked as it is defined."""
    families = {family.name: family for family in text_string_to_metric_families(server.get(PROTOCOL["scrape"]["path"]))}
    signals = {}
    for metric in PROTOCOL["metrics"]:
        family = families[metric["name"]]
        sample, = family.samples
        value = int(sample.labels[metric["label"]]) if "label" in metric else sample.value
        least, most = metric["range"]
        assert family.type == metric["type"] and sample.name == metric["name"] and sample.timestamp is None
        assert least <= value and (most is None or value <= most), (metric["signal"], value)
        assert not metric.get("whole") or value == int(value), (metric["signal"], value)
        signals[metric["signal"]] = value
    assert not {metric["name"] for metric in PROTOCOL["not_served"]} & set(families)
    return signals


def load(server):
    signals = scrape(server)
    return signals["TotalRunningRequests"], signals["TotalQueuedRequests"]


@pytest.fixture(scope="module")
def narrow(nibble, smollm2):
    with Server(nibble, smollm2, "--max-num-seqs", SEATS, "--max-model-len", 2048) as server:
        yield server


def test_an_idle_server(narrow):
    narrow.wait_idle()
    signals = scrape(narrow)
    assert load(narrow) == (0, 0) and signals["KVCacheUtilization"] == 0
    assert signals["BlockSize"] == PAGE_TOKENS
    assert signals["BlockSize"] * signals["NumGPUBlocks"] == pytest.approx(narrow.metric("nibble:cache_tokens"), abs=PAGE_TOKENS)


@pytest.mark.parametrize("path", PROTOCOL["apis"])
def test_apis(narrow, path):
    request = {"messages": user("Hi")} if "chat" in path else {"prompt": "Hi"}
    assert narrow.ask(path, {**request, "model": narrow.model, "max_tokens": 1}).json["choices"]


def test_a_queue_that_grows_and_empties(narrow):
    """A request that goes from its reader to the scheduler is counted in neither for a moment, so the load has to settle."""
    answered = []

    def ask(number):
        answered.append(narrow.complete(f"{number}. {STORY}", max_tokens=BUSY_TOKENS, ignore_eos=True))

    narrow.wait_idle()
    threads = [threading.Thread(target=ask, args=[number], daemon=True) for number in range(SEATS + 3)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        narrow.wait_until(lambda: sum(load(narrow)) == count or answered)
    narrow.wait_until(lambda: all(load(narrow) == (SEATS, 3) and not time.sleep(0.05) for _ in range(6)))
    assert 0 < scrape(narrow)["KVCacheUtilization"] <= 1
    seen = []
    while any(thread.is_alive() for thread in threads):
        signals = scrape(narrow)
        seen.append(signals["TotalQueuedRequests"])
        assert signals["TotalRunningRequests"] <= SEATS
        time.sleep(PROTOCOL["scrape"]["interval_ms"] / 1000)
    assert seen == sorted(seen, reverse=True) and {3, 2, 1, 0} >= set(seen) >= {0}
    assert len(answered) == len(threads)
    narrow.wait_idle()


# ---- prefixes ------------------------------------------------------------------------------------------------------

class Picker:
    """Knows which beginnings it has sent where, in blocks of so many bytes, each hashed with the one before it."""

    def __init__(self, servers):
        self.servers = servers
        self.block_bytes = scrape(servers[0])["BlockSize"] * PROTOCOL["prefix"]["bytes_per_token"]
        self.places = collections.defaultdict(set)

    def blocks(self, messages):
        text = "".join(message["role"] + message["content"] for message in messages).encode()
        block = self.servers[0].model.encode()
        for start in range(0, len(text) - self.block_bytes + 1, self.block_bytes):
            block = hashlib.blake2b(block + text[start:start + self.block_bytes], digest_size=8).digest()
            yield block

    def pick(self, messages):
        known = [0] * len(self.servers)
        blocks = list(self.blocks(messages))
        for block in blocks:
            for place in self.places[block]:
                known[place] += 1
        held = [sum(place in places for places in self.places.values()) for place in range(len(self.servers))]
        best = max(range(len(self.servers)), key=lambda place: (known[place], -held[place]))
        for block in blocks:
            self.places[block].add(best)
        return self.servers[best]


def test_conversations_return_to_their_pages(nibble, smollm2):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(nibble, smollm2, "--max-model-len", 2048)) for _ in range(2)]
        picker = Picker(servers)
        talks = [user(f"{name} asks: tell me more of this. {STORY}") for name in ("Anna", "Boris", "Clara", "David")]
        chosen = []
        for turn in range(3):
            for talk in talks:
                server = picker.pick(talk)
                answer = server.chat(talk, max_tokens=8, ignore_eos=True)
                cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                if turn:
                    before = server.ask("/tokenize", {"messages": talk[:-2]}).json["count"]
                    assert cached >= before - 2 * PAGE_TOKENS, (turn, cached, before)
                chosen.append(server)
                talk += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
                         {"role": "user", "content": f"And then? Tell me what happened on day {turn + 2}."}]
        assert chosen[:4] == chosen[4:8] == chosen[8:] and len(set(map(id, chosen))) == 2
