# SPDX-License-Identifier: Apache-2.0
"""`nibble serve` before it serves: help, options, the configuration file, the default model."""

import os
import subprocess

import pytest


@pytest.fixture
def serve(nibble):
    """Only for what is refused: nothing here opens a port."""
    def serve(*arguments, **environment):
        return subprocess.run([nibble, "serve", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                              env={**os.environ, **environment})
    return serve


def test_help_fits_a_tall_screen_and_has_an_example(serve):
    result = serve("--help")
    lines = result.stdout.splitlines()
    assert result.returncode == 0 and result.stderr == "" and len(lines) <= 72 and max(map(len, lines)) <= 110
    assert lines[0].startswith("usage: nibble serve") and lines[-1].startswith("example: ")


@pytest.mark.parametrize("arguments, words", [
    (["m", "n"], ["too many"]), (["m", "--prot", "1"], ["did you mean --port"]),
    (["m", "--port", "70000"], ["whole number", "65535"]), (["m", "--scheduling-policy", "fifo"], ["fcfs or priority"]),
    (["m", "--log-level", "eror"], ["did you mean error"]), (["m", "--api-key", ""], ["empty"]),
    (["m", "--no-enable-prefix-caching=1"], ["takes no value"]), (["m", "--max-body-bytes", "8X"], ["a size"]),
    (["m", "--config"], ["needs a value"]),
])
def test_usage_errors(serve, arguments, words):
    result = serve(*arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert all(word in result.stderr for word in words), result.stderr


@pytest.mark.parametrize("text, status, words", [
    ("port: 1\nmax_model_length: 8\n", 2, ["line 2", "max_model_length", "did you mean max-model-len"]),
    ("port: {a: 1}\n", 2, ["line 1", "nested"]), ("port: [1\n", 1, ["not valid YAML"]),
    ("port: many\n", 2, ["--port", "whole number", "many"]), ("a: *b\n", 2, ["line 1"]),
    ("api-key: [''] # empty\n", 2, ["empty"]), ("x" * 100000, 1, ["100000 bytes"]),
])
def test_configuration_errors(serve, tmp_path, text, status, words):
    (tmp_path / "nibble.yaml").write_text(text)
    result = serve("no-such-model", "--config", tmp_path / "nibble.yaml")
    assert result.returncode == status and result.stdout == ""
    assert all(word in result.stderr for word in words), result.stderr


def test_configuration_names_the_model_and_the_command_line_wins(serve, tmp_path):
    (tmp_path / "nibble.yaml").write_text("model: from-the-file.gguf\n")
    assert "from-the-file.gguf" in serve("--config", tmp_path / "nibble.yaml").stderr
    assert "from-the-line.gguf" in serve("from-the-line.gguf", "--config", tmp_path / "nibble.yaml").stderr


@pytest.mark.parametrize("variable, folder", [("NIBBLE_CACHE", ""), ("XDG_CACHE_HOME", "nibble/")])
def test_default_model_that_is_not_there(serve, tmp_path, variable, folder):
    result = serve(**{"NIBBLE_CACHE": "", variable: str(tmp_path)})
    assert result.returncode == 1 and result.stdout == "" and "scripts/quickstart" in result.stderr
    assert f"{tmp_path}/{folder}models/SmolLM2-135M-Instruct.Q4_1.gguf" in result.stderr
