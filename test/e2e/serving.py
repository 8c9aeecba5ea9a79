# SPDX-License-Identifier: Apache-2.0
"""`nibble serve` as a test starts, asks and stops it: on loopback, on a free port, never left behind.

NIBBLE_DEVICE=cuda serves on a GPU (scripts/test-gpu); on the CPU otherwise. NIBBLE_RANKS=2 serves with two processes.
"""

import ctypes
import dataclasses
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

DEVICE = os.environ.get("NIBBLE_DEVICE", "cpu")
RANKS = int(os.environ.get("NIBBLE_RANKS", 1))
# On a GPU a step of more rows may multiply in another way (doc/architecture.md), and near-equal tokens change places.
equal_bits = pytest.mark.skipif(DEVICE == "cuda", reason="on a GPU the last bits depend on the number of rows in a step")
one_process = pytest.mark.skipif(RANKS > 1, reason="a comparison with what one process holds and computes")
READY = re.compile(r"nibble: ready on (\S+) \((.*)\)")
DONE = "[DONE]"  # the last event of a stream
PAGE_TOKENS = 16  # the prefix cache knows whole pages only
QUESTIONS = [
    "What is the capital of Italy?", "Name three fruits.", "How many legs does a spider have?", "What colour is the sky?",
    "Write a sentence about the sea.", "Who wrote Romeo and Juliet?", "What is two plus two?", "Give a synonym of happy.",
    "What do bees make?", "Is the sun a star?", "Translate 'good morning' into Spanish.", "What is the boiling point of water?",
    "Tell me about volcanoes.", "What is a haiku?", "Why do leaves fall in autumn?", "Which planet is the largest?",
    "How do I boil an egg?", "What is the opposite of cold?", "Name a river in Africa.", "What is gravity?",
]


@dataclasses.dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The `error` of a refusal, which always has the same shape."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"] and (error["code"] is None or isinstance(error["code"], str))
        return error


def body_of(request):
    return request if isinstance(request, bytes) else json.dumps(request).encode()


def user(text):
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def text_of(events):
    """What the first choice of a stream says, of a chat or a completion."""
    choices = [event["choices"][0] for event in events if event != DONE and event.get("choices")]
    return "".join(choice["text"] if "text" in choice else choice["delta"].get("content") or "" for choice in choices)


def end_with_the_test():
    """In the child: a signal when its parent dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def on_any_port(words):
    """Of serve, which binds before it loads: two of them at once must not meet on the default port."""
    words = [str(word) for word in words]
    return words if any(word.startswith("--port") or word == "--help" for word in words) else [*words, "--port", "0"]


class Server:
    """A running server. `url`, `model` (the served name), `process`, `log` (lines of stderr so far), `start_seconds`.

    Without a model or a name the server chooses them. `key` is sent with each request.
    """

    def __init__(self, program, model, *flags, name="test-model", environment=None, patience=60):
        self.model = name
        self.key = None
        self.log = []
        words = [program, "serve", *([model] if model else []), "--port", "0", *(["--served-model-name", name] if name else [])]
        words += [] if "--device" in flags else ["--device", DEVICE]
        words += [] if "-tp" in flags or RANKS == 1 else ["-tp", str(RANKS)]
        if RANKS > 1:  # what MPI's libraries leave behind is not ours
            environment = {**(environment or os.environ), "ASAN_OPTIONS": "detect_leaks=0"}
        started = time.monotonic()
        self.process = subprocess.Popen([*words, *map(str, flags)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, errors="replace", env=environment, preexec_fn=end_with_the_test)
        self.ready = threading.Event()
        self.url = None
        self.reader = threading.Thread(target=self.follow, daemon=True)
        self.reader.start()
        if not self.ready.wait(patience) or not self.url:
            self.stop()
            raise AssertionError("the server did not get ready:\n" + "".join(self.log))
        self.start_seconds = time.monotonic() - started

    def follow(self):
        for line in self.process.stderr:
            self.log.append(line)
            match = READY.search(line)
            if match:
                self.url = match.group(1)
                self.ready.set()
        self.ready.set()

    @property
    def port(self):
        return int(self.url.rsplit(":", 1)[1])

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self, patience=30):
        """Asks it to end and gives its exit status."""
        if self.process.poll() is None:
            self.terminate()
        return self.wait(patience)

    def wait(self, patience=30):
        """Its exit status, once it has ended."""
        try:
            status = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the server did not end within %d s" % patience)
        self.reader.join(5)
        complaints = [line for line in self.log if "Sanitizer" in line or "runtime error" in line]
        assert not complaints, "".join(self.log)[-5000:]
        return status

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stop()

    # ---- requests --------------------------------------------------------------------------------------------------

    def send(self, path, request=None, method=None, headers=None, timeout=60):
        """An exchange whose answer has begun: its connection and the response, to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        body = None if request is None else body_of(request)
        sent = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        connection.request(method or ("GET" if body is None else "POST"), path, body, {**sent, **(headers or {})})
        return connection, connection.getresponse()

    def ask(self, path, request=None, method=None, headers=None, timeout=60):
        connection, response = self.send(path, request, method, headers, timeout)
        answer = Answer(response.status, response.headers, response.read())
        connection.close()
        return answer

    def events(self, path, request, timeout=60):
        """A stream's events as they come, the last one DONE."""
        connection, response = self.send(path, {**request, "stream": True}, timeout=timeout)
        assert response.status == 200, response.read()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        try:
            for line in response:
                if line.strip():
                    assert line.startswith(b"data: "), line
                    data = line[6:].strip().decode()
                    yield data if data == DONE else json.loads(data)
        finally:
            connection.close()

    def chat(self, messages, **fields):
        """A greedy answer to messages, or to a text of the user's."""
        messages = user(messages) if isinstance(messages, str) else messages
        request = {"messages": messages, "temperature": 0, "max_tokens": 16, **fields}
        answer = self.ask("/v1/chat/completions", request)
        assert answer.status == 200, answer.body
        return answer.json

    def complete(self, prompt, **fields):
        """A greedy completion."""
        answer = self.ask("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 16, **fields})
        assert answer.status == 200, answer.body
        return answer.json

    def refuse(self, path, request, status=400, timeout=60):
        """The error of a request that must be refused."""
        answer = self.ask(path, request, timeout=timeout)
        assert answer.status == status, (answer.status, answer.body[:1000])
        return answer.error

    def exchange(self, data, patience=20):
        """Bytes as they are, and all that comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience) as client:
            client.sendall(data)
            return read_all(client)

    # ---- what it says of itself ------------------------------------------------------------------------------------

    def get(self, path, timeout=10):
        with urllib.request.urlopen(self.url + path, timeout=timeout) as answer:
            return answer.read().decode()

    def metric(self, name, **labels):
        """The sum of a metric's samples that have these labels."""
        total, found = 0.0, False
        for line in self.get("/metrics").splitlines():
            match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", line)
            if match and match.group(1) == name:
                given = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match.group(2) or ""))
                if all(given.get(key) == value for key, value in labels.items()):
                    total, found = total + float(match.group(3)), True
        assert found, f"there is no metric {name} {labels}"
        return total

    @property
    def load(self):
        """Requests running and waiting, and the share of the cache that they hold."""
        return tuple(self.metric(f"vllm:{name}") for name in ("num_requests_running", "num_requests_waiting",
                                                              "kv_cache_usage_perc"))

    def wait_until(self, condition, patience=20):
        """Asks again and again; the condition's value once it is true."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError("it did not come to that within %g s" % patience)

    def wait_idle(self, patience=30):
        """Nothing runs or waits, and every page is free."""
        self.wait_until(lambda: self.load == (0, 0, 0), patience)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096


def read_all(client):
    """Everything until the other side closes, a reset included."""
    data = b""
    try:
        while piece := client.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data
