# SPDX-License-Identifier: Apache-2.0
"""Fault injection: one allocation of a run gets no memory. A run that ends with status 0 all the same must have done exactly
what it does without the fault; any other ends with a sentence and status 1.

NIBBLE_FAULT_VALUES is how many allocations of each command are tried, spread over all that it makes; 200 take three minutes:

    NIBBLE_FAULT_VALUES=200 python -m pytest -s test/e2e/test_faults.py
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import time

import pytest

import small_model
from conftest import ROOT
from serving import Server
from terminal import Terminal

VALUES = int(os.environ.get("NIBBLE_FAULT_VALUES", 25))
DEADLOCK = 120  # seconds


@pytest.fixture(scope="module")
def allocator(build):
    path = build / "test" / "fail_malloc.so"
    if not path.exists():
        pytest.skip("a sanitizer's build has an allocator of its own")
    return path


@pytest.fixture(scope="module")
def gguf_file(smollm2, tmp_path_factory):
    return small_model.write(smollm2, tmp_path_factory.mktemp("faults") / "small.gguf")


@pytest.fixture(scope="module")
def folder(nibble, gguf_file):
    """The same model as a folder: its tokenizer is JSON, tens of thousands of values."""
    out = gguf_file.parent / "small"
    subprocess.run([nibble, "quantize", gguf_file, out, "--weights", "bf16"], check=True, capture_output=True)
    return out


def spread(count):
    """A third of the values evenly, where most allocations are a vocabulary's; the rest ever closer to both ends."""
    third = VALUES // 3
    near = [round(count ** (i / third)) for i in range(third)]
    even = [1 + i * (count - 1) // (VALUES - 2 * third) for i in range(VALUES - 2 * third)]
    return sorted([*near, *even, *(count + 1 - n for n in near)])


class Faults:
    """A command with one fault after the other. `attempt(environment)` runs it once and gives (status, output, stderr)."""

    def __init__(self, allocator, folder, attempt):
        self.folder, self.attempt = folder, attempt
        self.environment = {**os.environ, "LD_PRELOAD": str(allocator), "NIBBLE_CACHE": str(folder / "cache")}
        self.count_path = folder / "count"

    def at(self, n):
        return self.attempt({**self.environment, "NIBBLE_FAIL_ALLOCATION": str(n), "NIBBLE_COUNT_ALLOCATIONS": str(self.count_path)})

    def try_all(self, choose=spread, deaths=()):
        """`choose` gives the allocations that fail, by the number of all; `deaths` are signals that a library may end with."""
        self.at(0)  # what is measured once is in the cache from here on
        status, expected, log = self.at(0)
        assert status == 0, log
        count = int(self.count_path.read_text())
        assert count > 100
        survived, bad = 0, []
        for n in choose(count):
            status, output, log = self.at(n)
            survived += status == 0
            if status == 0 and output != expected:
                bad.append((n, "status 0 and another output"))
            elif status not in (0, 1, *deaths) or (status == 1 and not re.search("nibble: |Out of memory", log)):
                bad.append((n, status, log[-300:]))
        print(f"{count} allocations, {VALUES} faults, {survived} with status 0, {len(bad)} bad")
        assert not bad, (len(bad), bad[:5])


def run_with(environment, words):
    done = subprocess.run([*map(str, words)], env=environment, capture_output=True, timeout=DEADLOCK, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def parsed(text):
    """JSON as a value; what is none as it is, to be compared all the same."""
    try:
        return json.loads(text)
    except ValueError:
        return {"text": text}


def digest_of(folder):
    """Every file's name and content, in one number."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def test_run(nibble, folder, allocator, tmp_path):
    words = [nibble, "run", folder, "Hello there", "--temperature", "0", "--max-tokens", "4", "--threads", "2"]
    Faults(allocator, tmp_path, lambda environment: run_with(environment, words)).try_all()


def test_chat(nibble, gguf_file, allocator, tmp_path):
    """In a terminal, whose editor comes last. libedit and terminfo take no allocator, and die where they miss theirs."""
    words = [nibble, "run", gguf_file, "--temperature", "0", "--max-tokens", "4", "--threads", "2"]

    def attempt(environment):
        with Terminal(words, tmp_path, **{**environment, "LANG": "C.UTF-8"}) as terminal:
            try:
                terminal.read_until(b"> ")
                terminal.type("Grüße\n".encode())
                answer = terminal.read_until(b"cut off")
                terminal.read_until(b"> ")
                return terminal.leave(), answer.partition("Grüße".encode())[2], ""
            except OSError:  # it has ended
                return terminal.process.wait(DEADLOCK), None, terminal.unread.decode(errors="replace")

    last = 400
    Faults(allocator, tmp_path, attempt).try_all(lambda count: range(count - last, count, last // VALUES), [-signal.SIGSEGV])


def test_quantize(nibble, gguf_file, allocator, tmp_path):
    def attempt(environment):
        out = tmp_path / "out"
        subprocess.run(["rm", "-rf", out], check=True)
        words = [nibble, "quantize", gguf_file, out, "--weights", "int8", "--rounding", "nearest", "--threads", "2", "--json"]
        status, output, log = run_with(environment, words)
        if status:
            return status, None, log
        report = {key: value for key, value in parsed(output).items() if key != "seconds"}
        return status, (report, digest_of(out)), log
    Faults(allocator, tmp_path, attempt).try_all()


def test_serve(nibble, folder, allocator, tmp_path):
    def attempt(environment):
        try:
            server = Server(nibble, folder, "--threads", 2, environment=environment)
        except AssertionError as error:  # it did not get ready
            return 1, None, str(error)
        answer = None
        with server:
            try:
                reply = server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}],
                                                            "temperature": 0, "max_tokens": 4}, timeout=DEADLOCK)
                answer = reply.status, parsed(reply.body).get("choices")
            except OSError:  # it ended while it was asked
                pass
        return server.wait(), answer, "".join(server.log)
    Faults(allocator, tmp_path, attempt).try_all()


def test_a_build_with_the_thread_sanitizer_starts(tmp_path):
    """Functions in several versions (ifunc) are chosen before the sanitizer's runtime is ready: such a program dies at once."""
    program, source = tmp_path / "starts", tmp_path / "starts.c"
    source.write_text("""#include "kernel/ref/weight_encode.h"
int main(void) { return weight_amax((const float[]){ 1, -3, 2 }, 3) == 3 ? 0 : 1; }
""")
    subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-fsanitize=thread", f"-I{ROOT / 'src'}", source,
                    ROOT / "src/kernel/ref/weight_encode.c", "-lm", "-o", program], check=True)
    assert subprocess.run([program]).returncode == 0


def test_a_signal_removes_an_unfinished_report(nibble, gguf_file, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("A text that is long enough to be scored for as long as this test needs. " * 2000)
    words = [nibble, "eval", gguf_file, "--text", text, "--sweep", "--html", tmp_path / "page.html"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not list(tmp_path.glob("page.html.partial-*")):
            assert process.poll() is None
            time.sleep(0.005)
        process.terminate()
    assert process.returncode == -signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
