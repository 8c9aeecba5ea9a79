# SPDX-License-Identifier: Apache-2.0
"""The command as people and scripts use it: help, exit status, output, and text from real models."""

import json
import os
import re
import signal
import subprocess

import pytest

COMMANDS = ["run", "plan", "kernels", "eval", "tokenize", "render", "env"]


@pytest.fixture
def run(nibble):
    def run(*arguments, stdin="", **environment):
        return subprocess.run([nibble, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=300,
                              env={**os.environ, **environment})
    return run


# ---- help and usage -------------------------------------------------------------------------------------------------

def test_version_and_help(run):
    assert re.fullmatch(r"nibble \d+\.\d+\.\d+\n", run("--version").stdout)
    result = run("--help")
    assert result.returncode == 0 and all(command in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen_and_has_an_example(run, command):
    result = run(command, "--help")
    assert result.returncode == 0 and result.stderr == ""
    assert result.stdout.startswith(f"usage: nibble {command}") and "example: " in result.stdout
    assert result.stdout.count("\n") <= 40 and max(map(len, result.stdout.splitlines())) <= 110


def test_help_on_a_command(run):
    assert run("help").stdout == run("--help").stdout
    assert run("help", "run").stdout == run("run", "--help").stdout
    result = run("help", "rum")
    assert result.returncode == 2 and result.stdout == "" and "did you mean run?" in result.stderr


@pytest.mark.parametrize("command, sentence", [
    ("plan", "nibble: MODEL is missing; usage: nibble plan MODEL [options]\n"),
    ("quantize", "nibble: MODEL and OUT are missing; usage: nibble quantize MODEL OUT --weights FORMAT [options]\n"),
])
def test_what_is_missing_is_named(run, command, sentence):
    result = run(command)
    assert result.returncode == 2 and result.stderr == sentence


@pytest.mark.parametrize("arguments, word", [
    ([], "usage"), (["rum"], "did you mean run"), (["run"], "missing"), (["plan", "a", "b"], "too many"),
    (["run", "m", "--temprature", "1"], "did you mean --temperature"), (["run", "m", "--temperature"], "needs a value"),
    (["run", "m", "--temperature", "warm"], "a number"), (["run", "m", "--max-tokens", "-3"], "whole number"),
    (["run", "m", "--top-p", "nan"], "a number"), (["run", "m", "--raw=yes"], "takes no value"),
    (["eval", "m"], "--text"), (["render", "messages.json"], "--chat-template"),
])
def test_usage_errors(run, arguments, word):
    result = run(*arguments)
    assert result.returncode == 2 and result.stdout == "" and word in result.stderr


@pytest.mark.parametrize("arguments", [["--device", "tpu"], ["--kv-cache-dtype", "foo"], ["--stop", "x"]])
def test_no_suggestion_of_another_word(run, smollm2, arguments):
    result = run("plan", smollm2, *arguments)
    assert result.returncode == 2 and arguments[1 if arguments[0] != "--stop" else 0] in result.stderr
    assert "did you mean" not in result.stderr


@pytest.mark.parametrize("flag, status, words", [
    ("nvfp5", 2, ["nvfp5", "did you mean nvfp4"]), ("NVFP4", 2, ["NVFP4"]), ("", 2, []),
    ("fp8_inc", 1, ["fp8_inc", "Gaudi"]), ("turboquant_4bit_nc", 1, ["turboquant"]), ("fp8_ds_mla", 1, ["MLA"]),
    ("0-3:bfloat16", 2, ["4-29"]), ("0-40:fp8", 2, ["29"]), ("0-9:fp8,5-:nvfp4", 2, ["5", "twice"]),
    ("3-1:fp8,0-:fp8", 2, ["empty"]), ("a-b:fp8", 2, ["range"]), ("fp8,nvfp4", 2, ["RANGE"]), ("fp8/", 2, []),
])
def test_cache_format_errors(run, smollm2, flag, status, words):
    result = run("plan", smollm2, "--kv-cache-dtype", flag)
    assert result.returncode == status and result.stdout == "", result.stderr
    assert all(word in result.stderr for word in words), result.stderr


# ---- plan and env ---------------------------------------------------------------------------------------------------

def test_plan_text(run, gemma3):
    text = run("plan", gemma3, "--kv-cache-dtype", "0-4:fp8/nvfp4,5-:bfloat16").stdout
    assert "window 512" in text and "fp8_e4m3" in text and "nvfp4" in text and "attention_" in text


def test_plan_json(run, gemma3):
    plan = json.loads(run("plan", gemma3, "--kv-cache-dtype", "nvfp4", "--kv-sink-pages", "0", "--max-model-len", "4096", "--json").stdout)
    assert plan["accepted"] and len(plan["layers"]) == 18
    for index, layer in enumerate(plan["layers"]):
        full = (index + 1) % 6 == 0
        assert layer["index"] == index and layer["attention"] == ("full" if full else "window")
        assert layer["window"] == (None if full else 512)
        assert layer["k"] == layer["v"] == "nvfp4" and layer["bytes_per_token"] == 256 * 9 // 16 * 2
    full, window = sorted(plan["memory"]["pools"], key=lambda pool: -pool["pages"])
    assert full["pages"] == 4096 // 16 and window["pages"] < 100 and plan["memory"]["tokens"] == 4096


def test_plan_error_is_json_too(run, tmp_path):
    result = run("plan", tmp_path / "missing.gguf", "--json")
    assert result.returncode == 1 and "missing.gguf" in json.loads(result.stdout)["error"]


def test_context_past_the_models(run, smollm2, tmp_path):
    (tmp_path / "text").write_text("word " * 100000)
    for arguments in (["plan", smollm2, "--max-model-len", "9000"], ["eval", smollm2, "--text", tmp_path / "text", "--context", "9000"]):
        result = run(*arguments)
        assert result.returncode == 1 and "8192" in result.stderr, result.stderr


def test_env(run):
    report = json.loads(run("env", "--json").stdout)
    assert report["cpu"]["cores"] >= 1 and report["build"]["version"] and report["libraries"]["pcre2"]
    masked = json.loads(run("env", "--json", NIBBLE_FEATURES="none").stdout)
    assert masked["cpu"]["features"] == "none"
    odd = run("env", NIBBLE_FEATURES="warp-drive")
    assert odd.returncode == 0 and "warp-drive" in odd.stdout


# ---- run ------------------------------------------------------------------------------------------------------------

def test_smollm2_answers(run, smollm2):
    result = run("run", smollm2, "What is the capital of Germany?", "--temperature", "0", "--max-tokens", "24")
    assert result.returncode == 0 and "Berlin" in result.stdout
    assert result.stderr.startswith("plan: llama on cpu; KV cache bfloat16") and " t/s" in result.stderr


@pytest.mark.parametrize("dtype", ["float32", "fp8", "fp8_e5m2", "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head",
                                   "nvfp4", "nvfp4_4over6", "fp8/nvfp4", "0-9:nvfp4,10-:float16"])
def test_every_cache_format_answers(run, smollm2, dtype):
    result = run("run", smollm2, "What is the capital of Germany?", "--temperature", "0", "--max-tokens", "16", "--kv-cache-dtype", dtype)
    assert result.returncode == 0 and "Berlin" in result.stdout, result.stdout


def test_gemma3_continues(run, gemma3):
    result = run("run", gemma3, "Monday, Tuesday, Wednesday, Thursday,", "--raw", "--temperature", "0", "--max-tokens", "8")
    assert result.returncode == 0 and "Friday, Saturday" in result.stdout


def test_seed_repeats_and_threads_do_not_matter(run, smollm2):
    arguments = ["run", smollm2, "Once upon a time", "--raw", "--max-tokens", "12", "--top-p", "0.9"]
    first, again, other = (run(*arguments, "--seed", seed, "--threads", threads).stdout for seed, threads in ((7, 2), (7, 1), (8, 2)))
    assert first == again != other


def test_prompt_from_standard_input_and_system(run, smollm2):
    result = run("run", smollm2, "-", "--system", "You are a pirate.", "--temperature", "0", "--max-tokens", "4", stdin="Who are you?")
    assert result.returncode == 0 and result.stdout.strip()


RENDER_ERRORS = {
    "no JSON": ('[{"role": "user" "content"}]', "{{ messages }}", ["chat.json: line 1", "list of messages"]),
    "no chat": ('"Hello"', "{{ messages }}", ["chat.json: neither a list nor an object", "list of messages"]),
    "no list": ('{"messages": 3}', "{{ messages }}", ['chat.json: "messages" is not a list', "list of messages"]),
    "another key": ('{"mesages": []}', "{% for m in messages %}{% endfor %}", ["chat.jinja: ", 'chat.json has no list called "messages"']),
    "a template that refuses": ("[]", "{{ raise_exception('no messages') }}", ["chat.jinja: no messages\n"]),
}


@pytest.mark.parametrize("case", RENDER_ERRORS)
def test_render_names_the_file(run, tmp_path, case):
    messages, template, words = RENDER_ERRORS[case]
    (tmp_path / "chat.json").write_text(messages)
    (tmp_path / "chat.jinja").write_text(template)
    result = run("render", "--chat-template", tmp_path / "chat.jinja", tmp_path / "chat.json")
    assert result.returncode == 1 and result.stdout == "" and all(word in result.stderr for word in words), result.stderr


def test_chat_from_a_pipe_remembers(run, smollm2):
    result = run("run", smollm2, "--temperature", "0", "--max-tokens", "24", stdin="My name is Zebulon.\nWhat is my name?\n")
    assert result.returncode == 0 and "Zebulon" in result.stdout.splitlines()[-1]


def test_all_that_several_processes_lack_is_named_at_once(run, smollm2):
    result = run("run", smollm2, "Hi", "-tp", 2, PATH="/nowhere", NIBBLE_MPI="/nowhere/nibble-mpi.so")
    assert result.returncode == 1 and result.stderr.count("nibble: ") == 1
    assert all(word in result.stderr for word in ("mpirun", "/nowhere/nibble-mpi.so", "openmpi-bin")), result.stderr


# ---- models in other places -----------------------------------------------------------------------------------------

def test_model_in_the_hugging_face_cache(run, tmp_path, smollm2):
    snapshot = tmp_path / "hub" / "models--some--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    (snapshot / "model.gguf").symlink_to(smollm2)
    assert run("tokenize", "some/model", "Hello world", HF_HOME=str(tmp_path)).stdout == run("tokenize", smollm2, "Hello world").stdout != ""


def test_tokenize_pieces_and_back(run, smollm2):
    lines = run("tokenize", smollm2, "Hello world", "--pieces").stdout.splitlines()
    ids = [line.split("\t")[0] for line in lines]
    assert run("tokenize", smollm2, "Hello world").stdout.split() == ids
    assert run("tokenize", smollm2, "--decode", *ids).stdout == "Hello world"


@pytest.mark.parametrize("arguments", [["kernels"], ["plan", "MODEL"], ["env", "--json"], ["tokenize", "MODEL", "Hello"],
                                       ["run", "MODEL", "Hi", "--max-tokens", "2"], ["run", "MODEL", "--max-tokens", "2"]])
def test_a_reader_that_leaves_ends_it_quietly(nibble, smollm2, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run([nibble, *(smollm2 if word == "MODEL" else word for word in arguments)], input=b"One.\nTwo.\nThree.\n",
                             stdout=writing, stderr=subprocess.PIPE, timeout=300)
    os.close(writing)
    assert process.returncode == 128 + signal.SIGPIPE
    assert b"nibble:" not in process.stderr and b" t/s" not in process.stderr and b"Sanitizer" not in process.stderr
