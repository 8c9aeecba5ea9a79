# SPDX-License-Identifier: Apache-2.0
"""Model files that somebody cuts, overwrites or replaces while they are in use."""

import os
import pathlib
import shutil
import subprocess

import pytest

import small_model
from serving import DONE, Server

LONG = {"temperature": 0, "max_tokens": 2000, "ignore_eos": True, "n": 64}  # it runs until the change, however late that comes


@pytest.fixture(scope="module")
def original(smollm2, tmp_path_factory):
    return small_model.write(smollm2, tmp_path_factory.mktemp("changed") / "small.gguf")


@pytest.fixture
def model(original, tmp_path):
    return pathlib.Path(shutil.copy(original, tmp_path / "small.gguf"))


def cut(path):
    os.truncate(path, path.stat().st_size // 8)


def overwrite(path):
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\0" * 4096)


@pytest.mark.parametrize("change", [cut, overwrite])
def test_the_server_ends_with_a_sentence(nibble, model, change):
    with Server(nibble, model) as server:
        streams = [server.events("/v1/completions", {"prompt": prompt, **LONG}) for prompt in ("Once", "Twice")]
        for stream in streams:
            next(stream)  # it runs
        change(model)
        for stream in streams:
            last = [event for event in stream if event != DONE][-1]
            assert str(model) in last["error"]["message"]
        assert server.wait() == 1
    assert str(model) in server.log[-1] and server.log[-1].startswith("nibble: ")


def test_an_idle_server_answers_nothing_from_changed_files(nibble, model):
    with Server(nibble, model) as server:
        assert server.complete("Once")["choices"]
        overwrite(model)
        assert str(model) in server.refuse("/v1/completions", {"prompt": "Once", "max_tokens": 4}, 500)["message"]
        assert server.wait() == 1


def test_a_file_renamed_into_place_does_no_harm(nibble, model):
    with Server(nibble, model) as server:
        before = server.complete("Once")["choices"]
        new = model.with_suffix(".new")
        new.write_bytes(b"another model")
        new.rename(model)
        assert server.complete("Once")["choices"] == before
        assert server.stop() == 0


@pytest.mark.parametrize("change", [cut, overwrite])
def test_run_says_which_file(nibble, model, change):
    with subprocess.Popen([nibble, "run", model, "--max-tokens", "4", "--temperature", "0"], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write("Hello\n")
        process.stdin.flush()
        assert process.stdout.read(1)  # the first turn is being answered, so the model is loaded
        change(model)
        log = process.communicate("Hello again, and what else is there to say?\n", timeout=60)[1]
    assert process.returncode == 1 and str(model) in log
