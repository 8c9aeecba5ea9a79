# SPDX-License-Identifier: Apache-2.0
"""A chat as somebody has it: keys typed into a real terminal (a pty), pasted text, lines from a pipe, a context that fills up."""

import os
import re
import signal
import subprocess

import pytest

from terminal import Terminal

# Shows the template's input: this template raises it as an error, after which the chat continues.
ECHO = "{{ raise_exception('echoed ' ~ messages[-1]['content']|tojson) }}"

# A short template, which shows all user messages when it is asked to.
PLAIN = """{% if messages[-1].content == 'SHOW' -%}
{{ raise_exception('users: ' ~ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(' | ')) }}{% endif -%}
{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}assistant:"""


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    path = tmp_path_factory.mktemp("templates") / "echo.jinja"
    path.write_text(ECHO)
    return path


def echoed(text):
    return re.search(rb'echoed (".*?[^\\]")\r?\n', text)[1].decode()


# ---- in a terminal --------------------------------------------------------------------------------------------------

def test_an_answer_is_stopped_and_the_history_kept(nibble, smollm2, tmp_path):
    with Terminal([nibble, "run", smollm2, "--temperature", "0"], tmp_path) as terminal:
        terminal.read_until(b"> ")
        terminal.type(b"Write a long story about a dragon.\n")
        terminal.read_until(b" the ")
        os.kill(terminal.process.pid, signal.SIGINT)
        terminal.read_until(b" t/s; stopped\r\n")
        terminal.read_until(b"> ")
        assert terminal.leave() == 0
    assert "dragon" in (tmp_path / "nibble" / "history").read_text()


TYPED = {
    "letters of all kinds": ("Grüße 世界".encode(), '"Grüße 世界"'),
    "a wide letter taken back": ("Grüße 世界\x7f\x7f星!".encode(), '"Grüße 星!"'),
    "the cursor moved": ("üß\x1b[D\x02é".encode(), '"éüß"'),
    "a paste": ("\x1b[200~def f():\r\treturn 'ä'\r\rf()\x1b[201~".encode(), r'''"def f():\n\treturn 'ä'\n\nf()"'''),
    "a paste between words": (b"Explain: \x1b[200~one\rtwo\x1b[201~ please", r'"Explain: one\ntwo please"'),
    "keys within a paste are text": (b"\x1b[200~one\x15\x04\rtwo\x1b[201~", r'"one\u0015\u0004\ntwo"'),
    "quotes": (b'"""\none\ntwo\n"""', r'"one\ntwo"'),
    "a backslash": (b"one \\\ntwo", r'"one \ntwo"'),
}


@pytest.mark.parametrize("language", ["C.UTF-8", "C", None])
def test_what_is_typed_arrives(nibble, smollm2, echo, tmp_path, language):
    environment = {"LANG": language} if language else {}
    with Terminal([nibble, "run", smollm2, "--chat-template", echo], tmp_path, **environment) as terminal:
        terminal.read_until(b"> ")
        for name, (keys, message) in TYPED.items():
            for line in (keys + b"\n").splitlines(keepends=True) if b"\x1b[200~" not in keys else [keys + b"\n"]:
                terminal.type(line)
            assert echoed(terminal.read_until(b'"\r\n\x1b[?2004h> ')) == message, name
        assert terminal.leave() == 0


def screen_of(text):
    """Lines as a terminal shows them in the end: \\r goes back, and only an erasure takes away what is there."""
    lines, column = [""], 0
    for match in re.finditer(r"\x1b\[K|\r|\n|\x1b\[[?0-9;]*[a-z]|.", text):
        if match[0] == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif match[0] == "\r":
            column = 0
        elif match[0] == "\n":
            lines.append("")
        elif match[0][0] != "\x1b":
            lines[-1] = lines[-1][:column].ljust(column) + match[0] + lines[-1][column + 1:]
            column += 1
    return lines


def test_nothing_is_left_of_progress(nibble, smollm2, tmp_path):
    """In a terminal that is narrower than a bar would like to be, with two kinds of progress."""
    (tmp_path / "text").write_text("The quick brown fox jumps over the lazy dog. " * 8)
    words = [nibble, "run", smollm2, "Hi", "--max-tokens", "1", "--kv-cache-dtype", "nvfp4", "--max-model-len", "256",
             "--kv-calibration", tmp_path / "text"]
    with Terminal(words, tmp_path, columns=50, NIBBLE_CACHE=str(tmp_path)) as terminal:
        text = terminal.read_all().decode()
    bars = [part for part in re.split(r"[\r\n]", text) if "%" in part]
    assert {bar.split(" [")[0] for bar in bars} == {"calibrating the cache", "loading weights"}
    assert all(len(bar.replace("\x1b[K", "")) < 50 for bar in bars)
    assert not [line for line in screen_of(text) if "%" in line or "[" in line]


# ---- from a pipe ----------------------------------------------------------------------------------------------------

def chat(nibble, model, lines, *options):
    return subprocess.run([nibble, "run", model, *map(str, options)], input=lines, capture_output=True, text=True, timeout=300)


def test_messages_of_several_lines_from_a_pipe(nibble, smollm2, echo):
    result = chat(nibble, smollm2, 'one\ntwo \\\nthree\n"""\nfour\n\nfive"""\nno end \\\n', "--chat-template", echo)
    assert re.findall("echoed (.*)", result.stderr) == ['"one"', r'"two \nthree"', r'"four\n\nfive"', '"no end "']


def test_a_full_context_drops_the_oldest_turns(nibble, smollm2, tmp_path):
    (tmp_path / "plain.jinja").write_text(PLAIN)
    count = "one two three four five six seven eight"
    lines = [f"First: {count}", f"Second: {count}", f"Third: {count}", "SHOW", "long " * 200, "SHOW", "Fourth"]
    result = chat(nibble, smollm2, "\n".join(lines) + "\n", "--chat-template", tmp_path / "plain.jinja", "--max-model-len", 64,
                  "--max-tokens", 4, "--system", "Be brief.", "--temperature", 0)
    said = [line for line in result.stderr.splitlines() if not line.startswith("plan:")]
    summaries = [line for line in said if line.startswith("prompt ")]
    assert len(summaries) == 4 and all("answer 4 tokens" in line for line in summaries), result.stderr
    assert "the context of 64 tokens is full: the oldest turn was dropped" in said
    before, after = (line.split("users: ")[1] for line in said if "users: " in line)
    assert before == after and before.endswith(f"Third: {count} | SHOW") and "First" not in before
    assert any("the prompt has 2" in line and "the context holds 64" in line for line in said)


def test_a_template_that_refuses_what_is_left_of_a_chat(nibble, smollm2, tmp_path):
    """The turn is refused, nothing was dropped, and the chat goes on."""
    refusal = "{% if messages|length == 1 and messages[0].content == 'Again' %}{{ raise_exception('where is the rest?') }}{% endif %}"
    (tmp_path / "refusing.jinja").write_text(refusal + PLAIN)
    result = chat(nibble, smollm2, "word " * 35 + "\nAgain\nSHOW\n", "--chat-template", tmp_path / "refusing.jinja", "--max-model-len", 64,
                  "--max-tokens", 12, "--temperature", 0)
    assert result.returncode == 1 and "where is the rest?" in result.stderr and "users: word word" in result.stderr, result.stderr


def test_an_answer_that_the_context_cuts_off_says_so(nibble, smollm2):
    result = chat(nibble, smollm2, "Tell me a long story.\nGo on.\n", "--max-model-len", 64, "--temperature", 0)
    assert result.returncode == 0 and result.stderr.count("; cut off: the context is full") == 2, result.stderr
    assert "the oldest turn was dropped" in result.stderr
