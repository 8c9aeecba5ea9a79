# SPDX-License-Identifier: Apache-2.0
"""What somebody gets who sets nothing: sensible answers, sampled as the model's makers advise, the same in run and serve."""

import json
import re
import subprocess

import pytest

from serving import Server

# Questions that a model of 135M parameters can answer, and words that a sensible answer has. README asks the first.
QUESTIONS = [
    ("What is a byte?", "8 bits|eight bits"),
    ("Why is the sky blue?", "scatter"),
    ("What is 2+2?", r"\b4\b|four"),
    ("What is the opposite of hot?", "cold"),
    ("How many days are in a week?", r"\b7\b|seven"),
    ("What is the capital of Japan?", "Tokyo"),
    ("Who wrote Romeo and Juliet?", "Shakespeare"),
    ("What is photosynthesis?", "light"),
    ("What is the first month of the year?", "January"),
    ("What is the largest ocean on Earth?", "Pacific"),
]
ADVISED = "sampling: temperature 0.2, top_p 0.9 (as advised for SmolLM2)"


def check(question, words, answer):
    assert re.search(words, answer, re.IGNORECASE), f"{question} {answer}"


@pytest.mark.parametrize("flags", [("--seed", "1"), ("--temperature", "0")])
def test_questions_through_run(nibble, smollm2, flags):
    lines = "".join(f"{question}\n/show chat\n/clear\n" for question, _ in QUESTIONS)
    done = subprocess.run([nibble, "run", smollm2, "--max-tokens", "48", *flags], input=lines, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and (ADVISED in done.stderr or "--temperature" in flags), done.stderr
    at = 0
    for question, words in QUESTIONS:
        answer, at = done.stdout[at:].split(f"> {question}\n")[0], done.stdout.index(f"> {question}\n", at) + len(question) + 3
        check(question, words, answer)
        at += len(answer)


@pytest.mark.parametrize("fields", [{"seed": 1}, {"temperature": 0}])
def test_questions_through_serve(server, fields):
    assert any(ADVISED in line for line in server.log)
    for question, words in QUESTIONS:
        answer = server.chat(question, **{"temperature": None, "max_tokens": 48, **fields})
        check(question, words, answer["choices"][0]["message"]["content"])


def test_the_readme_question_ten_times(server):
    question, words = QUESTIONS[0]
    choices = server.chat(question, temperature=None, max_tokens=40, n=10, seed=1)["choices"]
    answers = [choice["message"]["content"] for choice in choices]
    assert len(answers) == 10 and len(set(answers)) > 1
    for answer in answers:
        check(question, words, answer)


def test_flags(nibble, smollm2, tmp_path):
    """The page and clients of llama-server read the defaults at /props."""
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.9, "max_new_tokens": 7}')
    flags = ("--max-model-len", 256, "--generation-config", tmp_path, "--override-generation-config", '{"top_k": 5}')
    with Server(nibble, smollm2, *flags) as server:
        params = json.loads(server.get("/props"))["default_generation_settings"]["params"]
        assert (params["temperature"], params["top_p"], params["top_k"], params["max_tokens"]) == (0.9, 1, 5, 7)
        lengths = [server.chat("Tell me a story.", max_tokens=asked)["usage"]["completion_tokens"] for asked in (None, 9)]
        assert lengths == [7, 9]
        assert any("--override-generation-config" in line and f"{tmp_path}/generation_config.json" in line for line in server.log)


@pytest.mark.parametrize("command", ["run", "serve"])
@pytest.mark.parametrize("flags, sentence", [
    (("--override-generation-config", '{"temperatur": 1}'), 'there is no parameter "temperatur", did you mean temperature?'),
    (("--override-generation-config", '{"top_p": 0}'), "top-p 0: more than 0 and at most 1"),
    (("--generation-config", "/there/is/none"), "--generation-config takes auto, vllm or a folder with generation_config.json"),
])
def test_what_is_refused(nibble, smollm2, command, flags, sentence):
    words = [nibble, command, smollm2, *(["Hi"] if command == "run" else ["--port", "0"]), *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and sentence in done.stderr and "plan:" not in done.stderr, done.stderr
