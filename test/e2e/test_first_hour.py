# SPDX-License-Identifier: Apache-2.0
"""The first hour of a newcomer: the README's commands word for word, a chat in tmux, the same questions on the page."""

import re
import shlex
import subprocess

import pytest

import small_model
from conftest import ROOT, open_browser
from page import Page
from serving import DEVICE, RANKS, Server
from test_defaults import QUESTIONS, check
from tmux import Tmux

README = (ROOT / "README.md").read_text()
COMMANDS = [row.replace("\\|", "|") for row in re.findall(r"^\|[^|]*\| `(nibble (?:[^`|]|\\\|)*)`", README, re.M)]

pytestmark = pytest.mark.skipif(DEVICE != "cpu" or RANKS > 1, reason="the README's own defaults")


@pytest.fixture(scope="module")
def folder(smollm2, tmp_path_factory):
    """What the README's words stand for: a model that is quick, a text, messages."""
    folder = tmp_path_factory.mktemp("hour")
    small_model.write(smollm2, folder / "MODEL")
    (folder / "FILE").write_text((ROOT / "test" / "golden" / "prose.txt").read_text()[:12000])
    (folder / "messages.json").write_text('[{"role": "user", "content": "Grüße"}]')
    return folder


def words_of(command, nibble):
    """Optional parts, which stand in brackets, are left out."""
    return [nibble, *shlex.split(re.sub(r"\[.*?\]|< FILE", "", command))[1:]]


def test_the_readme_has_commands():
    assert len(COMMANDS) >= 16 and {shlex.split(command)[1] for command in COMMANDS} >= {
        "serve", "run", "plan", "kernels", "bench", "eval", "tune", "quantize", "tokenize", "render", "env"}


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith("nibble serve")])
def test_commands_of_the_readme(nibble, folder, smollm2, command):
    words = words_of(command, nibble)
    if words[1] in ("plan", "run"):  # the one needs more than a layer, the other more than noise
        words[2] = smollm2
    if words[1] in ("eval", "tune"):
        words += ["--context", "512"]  # of a text that is short
    if words[1] == "run":
        words += ["--max-tokens", "24"]
    given = (folder / "FILE").read_text()[:400] if "< FILE" in command else ""
    done = subprocess.run(words, cwd=folder, input=given, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout, (command, done.stderr)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("nibble serve")])
def test_servers_of_the_readme(nibble, folder, command):
    _, _, model, *flags = words_of(command, nibble)
    with Server(nibble, folder / model, *flags) as server:
        assert server.ask("/").status == 200
        assert server.ask("/v1/completions", {"prompt": "Hi", "max_tokens": 2}).status == 200


@pytest.mark.parametrize("words", [["serve", "MODEL", "--kv-cache-dtyp", "nvfp4"], ["run", "MODLE", "Hi"], ["plan", "MODEL", "--device", "sm_75"],
                                   ["srve", "MODEL"], ["run", "MODEL", "--temperature", "warm", "Hi"]], ids=" ".join)
def test_wrong_words_end_with_one_sentence(nibble, folder, words):
    done = subprocess.run([nibble, *words], cwd=folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    first = done.stderr.splitlines()[0]
    assert done.returncode in (1, 2) and done.stdout == "" and first.startswith("nibble: ") and len(first) < 300, done.stderr


def test_a_chat_in_tmux(nibble, smollm2, tmp_path):
    with Tmux([nibble, "run", smollm2, "--temperature", "0", "--max-model-len", "256", "--max-tokens", "24"], tmp_path) as chat:
        greeting = chat.wait("> ")
        assert "SmolLM2" in greeting and "/help" in greeting and "256" in greeting
        chat.type("What is the capital of France?")
        chat.wait("Paris")
        chat.wait("> ", 2)
        chat.type("Grüße 世界")
        assert "> Grüße 世界" in chat.wait("> ", 3)
        chat.paste("one\ntwo\nthree")
        chat.key("Enter")
        chat.wait("> ", 4)
        chat.type("/nosuch")
        assert "/help" in chat.wait("/nosuch", 2)
        chat.type("Tell me a very long story. " * 14)  # more than what is left of the context
        chat.wait("the context of 256 tokens is full: the oldest")
        chat.key("C-c")
        chat.key("C-c")
        chat.type("/bye")
        chat.wait("ended with 0")


@pytest.mark.parametrize("sampling", [{"seed": 1}, {"temperature": 0}], ids=str)
def test_ten_questions_on_the_page(server, sampling):
    browser = open_browser()
    try:
        page = Page(browser, server.url, {**sampling, "max_tokens": 48})
        for question, words in QUESTIONS:
            page.button("New chat").click()
            page.ask(question)
            check(question, words, page.run("return document.querySelector('#log').innerText"))
        browser.refresh()
        page.wait(lambda: QUESTIONS[-1][0] in page.run("return document.body.innerText"))
    finally:
        browser.quit()
