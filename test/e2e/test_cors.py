# SPDX-License-Identifier: Apache-2.0
"""Which pages of a browser, names and keys a server on loopback answers to; in Chromium as well as by its headers."""

import contextlib
import gzip
import http.server
import json
import socket
import threading

import pytest

from serving import PAGE_TOKENS, Server, read_all, user

CHAT = "/v1/chat/completions"
REQUEST = {"messages": user("Hi"), "max_tokens": 1, "temperature": 0}
# Headers that openai-js sends.
OPENAI_JS = {"Authorization": "Bearer first-key", "Content-Type": "application/json", "X-Stainless-Lang": "js",
             "X-Stainless-Package-Version": "4.104.0", "X-Stainless-OS": "Unknown", "X-Stainless-Arch": "unknown",
             "X-Stainless-Runtime": "browser:chrome", "X-Stainless-Runtime-Version": "120.0.0", "X-Stainless-Retry-Count": "0",
             "X-Stainless-Timeout": "600"}


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a page</title>")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def site():
    """A page on a port of its own; its origin."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def origins():
    """One that is allowed, and a stranger."""
    with site() as friend, site() as stranger:
        yield friend, stranger


@pytest.fixture(scope="module")
def guarded(nibble, smollm2, origins):
    with Server(nibble, smollm2, "--max-model-len", 512, "--api-key", "first-key", "--api-key", "second-key", "--allowed-origins",
                origins[0], "https://chat.example", "--allowed-hosts", "gpu1.example") as server:
        server.key = "first-key"
        yield server


# ---- in a browser ---------------------------------------------------------------------------------------------------

FETCH = """
const [url, options, done] = arguments
fetch(url, options).then(async answer => done({ status: answer.status, id: answer.headers.get('x-request-id'), text: await answer.text() }),
                         error => done({ refused: String(error) }))
"""


def fetch(browser, origin, url, **options):
    """What a page of that origin gets."""
    browser.get(origin)
    return browser.execute_async_script(FETCH, url, options)


def test_pages_in_a_browser(browser, guarded, origins):
    friend, stranger = origins
    call = {"method": "POST", "headers": OPENAI_JS, "body": json.dumps(REQUEST)}
    answer = fetch(browser, friend, guarded.url + CHAT, **call)
    assert answer["status"] == 200 and json.loads(answer["text"])["choices"] and answer["id"]
    assert fetch(browser, friend, guarded.url + "/nowhere", **call)["status"] == 404  # and not a failed preflight
    stream = {**call, "body": json.dumps({**REQUEST, "stream": True})}
    assert "[DONE]" in fetch(browser, friend, guarded.url + CHAT, **stream)["text"]
    bad = {**call, "headers": {**OPENAI_JS, "Authorization": "Bearer wrong"}}
    assert fetch(browser, friend, guarded.url + CHAT, **bad)["status"] == 401

    before = guarded.metric("nibble:http_foreign_requests_total")
    assert "refused" in fetch(browser, stranger, guarded.url + CHAT, **call)
    assert "refused" in fetch(browser, stranger, guarded.url + "/version")
    # A simple request needs no preflight, and a page does not care whether it may read the answer.
    simple = {"method": "POST", "mode": "no-cors", "headers": {"Content-Type": "text/plain"}, "body": json.dumps(REQUEST)}
    assert fetch(browser, stranger, guarded.url + CHAT, **simple)["status"] == 0  # opaque
    assert guarded.metric("nibble:http_foreign_requests_total") == before + 2
    own = fetch(browser, guarded.url, guarded.url + CHAT, **call)
    assert own["status"] == 200


# ---- by headers -----------------------------------------------------------------------------------------------------

def preflight(server, origin, path=CHAT, **headers):
    return server.ask(path, method="OPTIONS", headers={"Origin": origin, "Access-Control-Request-Method": "POST", **headers})


def test_preflight(guarded, origins):
    for origin in (origins[0], "https://chat.example", guarded.url):
        for path in (CHAT, "/nowhere"):
            asked = "authorization,content-type,x-stainless-os,x-anything"
            answer = preflight(guarded, origin, path, **{"Access-Control-Request-Headers": asked})
            assert answer.status == 204 and answer.headers["Access-Control-Allow-Origin"] == origin
            assert answer.headers["Access-Control-Allow-Headers"] == asked and "POST" in answer.headers["Access-Control-Allow-Methods"]
            assert "Origin" in ", ".join(answer.headers.get_all("Vary"))
            assert "Access-Control-Allow-Private-Network" not in answer.headers
    private = {"Access-Control-Request-Private-Network": "true"}
    assert preflight(guarded, origins[0], **private).headers["Access-Control-Allow-Private-Network"] == "true"
    for origin in (origins[1], "https://chat.example.evil", "http://chat.example", "null"):
        answer = preflight(guarded, origin, **private)
        assert answer.status == 403 and origin in answer.error["message"]
        assert not [name for name in answer.headers if name.startswith("Access-Control")]


def test_requests_of_foreign_pages(guarded, origins):
    finished = guarded.metric("vllm:request_success_total")
    for origin in (origins[1], "null"):
        answer = guarded.ask(CHAT, REQUEST, headers={"Origin": origin})
        assert answer.status == 403 and "--allowed-origins" in answer.error["message"]
        answer = guarded.ask("/v1/models", headers={"Origin": origin})
        assert answer.status == 200 and "Access-Control-Allow-Origin" not in answer.headers and answer.headers["Vary"] == "Origin"
    assert guarded.metric("vllm:request_success_total") == finished
    for origin in (origins[0], guarded.url):
        for path, request, status in ((CHAT, REQUEST, 200), (CHAT, {}, 400), ("/nowhere", {}, 404)):
            answer = guarded.ask(path, request, headers={"Origin": origin})
            assert answer.status == status and answer.headers["Access-Control-Allow-Origin"] == origin


def test_names_of_the_server(guarded):
    """A name that resolves to 127.0.0.1 and is not ours: a page of that name would be of our own origin (DNS rebinding)."""
    for host in ("localhost", f"localhost:{guarded.port}", "127.0.0.1", "[::1]:8000", "GPU1.example"):
        assert guarded.ask("/version", headers={"Host": host}).status == 200, host
    for host in ("evil.example", f"evil.example:{guarded.port}", "localhost.evil.example"):
        assert guarded.ask("/health", headers={"Host": host}).status == 200, "monitors have names of their own for it"
        for path in ("/version", "/", CHAT):
            answer = guarded.ask(path, headers={"Host": host, "Origin": f"http://{host}"})
            assert answer.status == 403 and "evil.example" in answer.error["message"]


def test_any_page(nibble, smollm2):
    with Server(nibble, smollm2, "--max-model-len", 256, "--allowed-origins", "*", "--allowed-hosts", "*") as server:
        headers = {"Origin": "http://example.org", "Host": "example.org:99"}
        assert server.ask("/tokenize", {"prompt": "Hi"}, headers=headers).headers["Access-Control-Allow-Origin"] == "*"


# ---- keys -----------------------------------------------------------------------------------------------------------

def test_ways_to_send_a_key(guarded):
    guarded.key = None
    try:
        for headers in ({"Authorization": "Bearer second-key"}, {"Authorization": "bearer second-key"}, {"x-api-key": "second-key"},
                        {"AUTHORIZATION": "BEARER second-key"}):
            assert guarded.ask("/v1/models", headers=headers).status == 200, headers
        for headers in ({}, {"Authorization": "Basic second-key"}, {"x-api-key": "third-key"}, {"Authorization": "second-key"}):
            assert guarded.ask("/v1/models", headers=headers).status == 401, headers
    finally:
        guarded.key = "first-key"


def test_the_key_is_checked_before_the_body(guarded):
    """Nobody has to send a body to be told that it is not wanted, and nothing of it is stored."""
    for head, status in ((b"POST %s HTTP/1.1\r\nAuthorization: Bearer wrong\r\n", 401), (b"POST /nowhere%.0s HTTP/1.1\r\n", 404),
                         (b"PUT %s HTTP/1.1\r\n", 405), (b"POST %s HTTP/1.1\r\nX-Api-Key: first-key\r\nContent-Encoding: br\r\n", 415)):
        with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as client:
            client.sendall(head % CHAT.encode() + b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 8000000\r\n\r\n")
            answer = read_all(client)
            assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as client:
        client.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: first-key\r\nExpect: 100-continue\r\n"
                       b"Connection: close\r\nContent-Length: 16\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 100 ")
        client.sendall(b'{"prompt": "Hi"}')
        assert read_all(client).startswith(b"HTTP/1.1 200 ")


def cached(server, key, salt=None):
    prompt = "One two three four five six seven eight nine ten. " * 5
    server.key = key
    answer = server.complete(prompt, max_tokens=1, **({"cache_salt": salt} if salt else {}))
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_keys_do_not_share_a_prefix_cache(guarded, nibble, smollm2):
    """What is cached says what another tenant has asked."""
    try:
        assert [cached(guarded, key) > 0 for key in ("first-key", "second-key", "first-key", "second-key")] == [False, False, True, True]
        assert [cached(guarded, key, "mine") > 0 for key in ("first-key", "second-key", "first-key")] == [False, False, True]
    finally:
        guarded.key = "first-key"
    with Server(nibble, smollm2, "--max-model-len", 256, "--api-key", "a", "--api-key", "b", "--share-prefix-cache") as server:
        assert cached(server, "a") == 0 and cached(server, "b") >= PAGE_TOKENS


# ---- compressed bodies ----------------------------------------------------------------------------------------------

def test_compressed_bodies(guarded):
    plain = json.dumps({"prompt": "Hello there, world!"}).encode()
    want = guarded.ask("/tokenize", plain).json
    assert guarded.ask("/tokenize", gzip.compress(plain), headers={"Content-Encoding": "gzip"}).json == want
    bomb = gzip.compress(b" " * (9 << 20))
    answer = guarded.ask("/tokenize", bomb, headers={"Content-Encoding": "gzip"})
    assert len(bomb) < 20000 and answer.status == 413 and answer.error["code"] == "request_too_large"
    answer = guarded.ask("/tokenize", plain, headers={"Content-Encoding": "gzip"})
    assert answer.status == 400 and "gzip" in answer.error["message"]
    answer = guarded.ask("/tokenize", plain, headers={"Content-Encoding": "br"})
    assert answer.status == 415 and answer.headers["Accept-Encoding"] == "gzip, zstd"
