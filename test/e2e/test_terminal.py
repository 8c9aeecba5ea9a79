# SPDX-License-Identifier: Apache-2.0
"""A chat as somebody has it: keys typed into a real terminal (a pty), pasted text, lines from a pipe, a context that fills up."""

import json
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
        terminal.read_until(b"stopped, after ")
        terminal.read_until(b"> ")
        terminal.await_editor()
        os.kill(terminal.process.pid, signal.SIGINT)
        terminal.read_until(b"/bye or Ctrl-D leaves\r\n")
        terminal.read_until(b"> ")
        assert terminal.leave() == 0
    history = tmp_path / "nibble" / "chats" / os.path.basename(smollm2)
    assert "dragon" in history.read_text() and history.stat().st_mode & 0o777 == 0o600


def test_a_chat_begins_with_what_it_is(nibble, smollm2, tmp_path):
    with Terminal([nibble, "run", smollm2, "--max-model-len", "256", "--kv-cache-dtype", "fp8"], tmp_path) as terminal:
        greeting = terminal.read_until(b"> ").decode()
    for part in (os.path.basename(smollm2), "context: 256 tokens, fp8_e4m3 cache", "sampling: temperature 0.2, top_p 0.9 (as advised for SmolLM2)",
                 "/help", "Ctrl-C", "Ctrl-D"):
        assert part in greeting, greeting


# An answer that no small model can be relied on to give: it comes from a file, and /show prints it as it prints a new one.
MARKDOWN = "# A title\n\nSome **bold** and *slanted* words, `code`, and\n- a list with 世界 and enough words to need a second line\n\n```c\nint x;\n```\n"


def shown(nibble, model, folder, columns=40, **environment):
    chat = folder / "chat.json"
    chat.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": MARKDOWN}]}))
    with Terminal([nibble, "run", model, "--max-model-len", "256"], folder, columns=columns, **environment) as terminal:
        terminal.read_until(b"> ")
        terminal.type(f"/load {chat}\n".encode())
        terminal.read_until(b"> ")
        terminal.type(b"/show chat\n")
        terminal.read_until(b"> Hi\r\n")
        text = terminal.read_until(b"\x1b[?2004h").decode().replace("\r\n", "\n")
        assert terminal.leave() == 0
    return text


def test_markdown_on_a_terminal(nibble, smollm2, tmp_path):
    text = shown(nibble, smollm2, tmp_path)
    for part in ("\x1b[1mA title\x1b[22m", "\x1b[1mbold\x1b[22m", "\x1b[3mslanted\x1b[23m", "\x1b[36mcode\x1b[39m", "• a list with 世界 and enough words to\n  need a second line",
                 "\x1b[2m```c\x1b[22m", "\x1b[36mint x;\x1b[39m"):
        assert part in text, text


def test_no_colours_where_they_are_not_wanted(nibble, smollm2, tmp_path):
    text = shown(nibble, smollm2, tmp_path, NO_COLOR="1")
    assert "\x1b" not in text.removesuffix("\x1b[?2004h") and "# A title" in text and "**bold**" in text and "```c\nint x;\n```" in text
    assert "second line" in text and "enough words to need a second" not in text, "words wrap all the same"


def test_commands_are_completed(nibble, smollm2, tmp_path):
    with Terminal([nibble, "run", smollm2, "--max-model-len", "256"], tmp_path) as terminal:
        terminal.read_until(b"> ")
        terminal.type(b"/sh\t")
        terminal.read_until(b"ow ")
        terminal.type(b"\x15/s\t")
        terminal.read_until(b"system  set  show  save")
        terminal.type(b"\x15/set pres\t0.5\n")
        terminal.read_until(b"> ")
        terminal.type(b"\x15/set\n")
        assert b"presence_penalty    0.5" in terminal.read_until(b"wrap")
        assert terminal.leave() == 0


def test_a_message_is_edited_and_answered_anew(nibble, smollm2, echo, tmp_path):
    (tmp_path / "plain.jinja").write_text(PLAIN)
    with Terminal([nibble, "run", smollm2, "--chat-template", tmp_path / "plain.jinja", "--max-tokens", "2"], tmp_path) as terminal:
        terminal.read_until(b"> ")
        terminal.type("Grüße an die Wälder\n".encode())
        terminal.read_until(b"after 2 tokens")
        terminal.read_until(b"> ")
        terminal.type(b"/edit\n")
        terminal.read_until("Wälder".encode())
        terminal.type("\x7f\x7f und 世界\n".encode())
        terminal.read_until(b"after 2 tokens")
        terminal.read_until(b"> ")
        terminal.type(b"SHOW\n")
        assert "users: Grüße an die Wäld und 世界 | SHOW\r\n" in terminal.read_until(b"SHOW\r\n\x1b[?2004h").decode()
        assert terminal.leave() == 0


def test_a_window_that_becomes_narrow(nibble, smollm2, echo, tmp_path):
    """The editor redraws the line for the new width: what is typed after it arrives whole."""
    with Terminal([nibble, "run", smollm2, "--chat-template", echo], tmp_path, columns=100) as terminal:
        terminal.read_until(b"> ")
        terminal.type("eine Zeile, die länger ist als dreißig Spalten, ".encode())
        terminal.resize(30)
        terminal.type(b"and more\x01\x05!\n")
        assert echoed(terminal.read_until(b'"\r\n')) == '"eine Zeile, die länger ist als dreißig Spalten, and more!"'


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


COMMANDS = [  # a line, and what is said to it
    ("/hlep", "there is no command /hlep, did you mean /help?"),
    ("/regen", "/regen: there is no message yet"),
    ("/edit", "/edit: there is no message yet"),
    ("/set temp 1", 'there is no setting "temp", did you mean temperature?'),
    ("/set temperature hot", '/set temperature takes a number from 0 to 100, not "hot"'),
    ("/set top_k 1.5", '/set top_k takes a whole number from 0 to 268435456, not "1.5"'),
    ("/set verbose maybe", '/set verbose takes on or off, not "maybe"'),
    ("/set seed", "/set seed needs a value: the same seed draws the same answer"),
    ("/show settngs", 'not "settngs", did you mean settings?'),
    ("/system", "there is no system message; /system TEXT sets one"),
    ("/system Be brief.", "the system message is set from the next answer on"),
    ("/system", "Be brief."),
    ("/system -", "the system message is gone from the next answer on"),
    ("/clear now", "/clear takes nothing behind it"),
    ("/load", "/load needs a FILE"),
    ("/load /there/is/none.json", "/load: /there/is/none.json"),
    ("/clear", "the conversation is forgotten"),
    ("/?", "/regen"),
]


def test_commands(nibble, smollm2, echo):
    result = chat(nibble, smollm2, "\n".join(line for line, _ in COMMANDS) + "\n /hlep\n/etc/passwd\n/bye\nnot read\n", "--chat-template", echo)
    at = 0
    for line, said in COMMANDS:
        found = result.stderr.find(said, at)
        assert found >= 0, (line, said, result.stderr[at:])
        at = found + len(said)
    assert re.findall("echoed (.*)", result.stderr[at:]) == ['" /hlep"', '"/etc/passwd"']
    assert result.returncode == 1 and result.stdout == ""


def test_a_conversation_is_saved_and_loaded(nibble, smollm2, tmp_path):
    (tmp_path / "plain.jinja").write_text(PLAIN)
    flags = ("--chat-template", tmp_path / "plain.jinja", "--max-tokens", 3, "--seed", 5, "--temperature", 2)
    file = tmp_path / "chat.json"
    lines = f"/system Be brief.\nOne\n/regen\n/save {file}\n/save {file}\n/clear\n/save {file}\nTwo\n/load {file}\nSHOW\n"
    result = chat(nibble, smollm2, lines, *flags)
    messages = json.loads(file.read_text())["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant"] and file.stat().st_mode & 0o777 == 0o600
    assert result.stderr.count("3 messages saved") == 2 and "is there already; give another name" in result.stderr
    assert "users: One | SHOW" in result.stderr
    first, second, _ = result.stdout.splitlines()[:3]
    assert messages[2]["content"].splitlines()[0] == second != first, "another draw, which is the one that stays"
    rendered = subprocess.run([nibble, "render", smollm2, file], capture_output=True, text=True)
    assert rendered.returncode == 0 and "Be brief." in rendered.stdout
    for wrong, sentence in (("[]", "none"), ("{}", "a list of messages is expected"), ('[{"role": "tool", "content": "x"}]', "message 1 is not the text of a user"), ("{", "/load: ")):
        file.write_text(wrong)
        assert sentence in chat(nibble, smollm2, f"/load {file}\n", *flags).stderr


def test_files_as_standard_input(nibble, smollm2, echo, tmp_path):
    file = tmp_path / "text"
    file.write_text("Grüße\naus dem Wald\n")
    with open(file) as text:
        result = subprocess.run([nibble, "run", smollm2, "Summarise:", "--chat-template", echo], stdin=text, capture_output=True, text=True)
    assert echoed(result.stderr.encode()) == r'"Summarise:\n\nGrüße\naus dem Wald\n"'
    result = subprocess.run([nibble, "run", smollm2, "-", "--chat-template", echo], input="from a pipe", capture_output=True, text=True)
    assert echoed(result.stderr.encode()) == '"from a pipe"'
    result = subprocess.run([nibble, "run", smollm2, "Summarise:", "--max-model-len", "64"], input="word " * 500, capture_output=True, text=True)
    assert result.returncode == 1 and re.search(r"the prompt has 5\d\d tokens, and the context holds 64.*--max-model-len", result.stderr), result.stderr


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
