# SPDX-License-Identifier: Apache-2.0
"""What a cache does to each layer (`eval --layers`), and a server that starts only if it does little (--quality-gate)."""

import json
import os
import pathlib
import re
import subprocess

import pytest

from serving import DEVICE, Server

PROSE = pathlib.Path(__file__).parent.parent / "golden" / "prose.txt"
NVFP4 = ["--kv-cache-dtype", "nvfp4", "--max-model-len", "512"]
GATE = 0.04  # nvfp4 has 0.024 on the built-in text


def run(nibble, *command, **environment):
    return subprocess.run([nibble, *map(str, command)], capture_output=True, text=True, timeout=600, env={**os.environ, **environment})


def refused(nibble, *flags, **environment):
    """The sentence of a server that does not start."""
    command = [nibble, "serve", *map(str, flags), "--port", "0", "--device", DEVICE]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    said = ""
    for line in server.stderr:
        said += line
        if "ready on" in line:
            server.terminate()
    assert server.wait() == 1 and "ready on" not in said, said
    return said


def test_a_good_cache_is_served(nibble, smollm2):
    with Server(nibble, smollm2, *NVFP4, "--quality-gate", GATE) as server:
        line = next(line for line in server.log if line.startswith("quality: "))
        assert 0 < float(re.search(r"KL divergence ([0-9.]+)", line).group(1)) <= GATE
        assert server.send("/v1/models")[1].status == 200


def test_a_bad_one_is_not(nibble, smollm2):
    sentence = refused(nibble, smollm2, *NVFP4, "--quality-gate", 1e-6)
    assert "--quality-gate 1e-06: the KL divergence of the planned cache is 0.02" in sentence
    named = re.search(r"furthest off: (\d+ \(\d+\.\d %\)(, )?){4};", sentence)
    assert named and "what would pass: --kv-cache-dtype " in sentence, sentence


def test_flags_that_cost_are_named(nibble, smollm2):
    plain = ["--kv-transform", "none", "--kv-scale", "amax", "--kv-sink-pages", "0"]
    sentence = refused(nibble, smollm2, *NVFP4, *plain, "--quality-gate", GATE)
    assert "what would pass: leave out --kv-transform" in sentence


@pytest.mark.parametrize("value", ["0", "-1", "x", "1e9"])
def test_limits_of_the_limit(nibble, smollm2, value):
    done = run(nibble, "serve", smollm2, "--port", "0", "--quality-gate", value)
    assert done.returncode == 2 and "--quality-gate" in done.stderr


@pytest.mark.skipif(DEVICE != "cpu", reason="names kernels of CPUs")
def test_a_wrong_transform_is_caught(nibble, smollm2):
    """By the self-test, and without it by the gate, which passes when the kernel is right."""
    rows = {line.split()[0] for line in run(nibble, "kernels", "transform").stdout.splitlines() if line.endswith(" yes")}
    fault = next(name for name in ["transform_avx512", "transform_avx2", "transform_ref"] if name in rows)
    sentence = refused(nibble, smollm2, *NVFP4, "--quality-gate", GATE, "--no-self-test", NIBBLE_FAULT=fault)
    assert f"--quality-gate {GATE}: the KL divergence" in sentence
    with Server(nibble, smollm2, *NVFP4, "--quality-gate", GATE, environment={**os.environ, "NIBBLE_FAULT": fault}) as server:
        assert any(f"left out after a failed self-test: {fault}" in line for line in server.log), server.log


# ---- layers ---------------------------------------------------------------------------------------------------------


def evaluated(nibble, model, *flags):
    done = run(nibble, "eval", model, "--text", PROSE, "--context", 256, "--chunks", 1, "--layers", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_errors_of_layers(nibble, smollm2):
    layers = {dtype: json.loads(evaluated(nibble, smollm2, "--kv-cache-dtype", dtype, "--json"))["layers"]
              for dtype in ["0-1:bfloat16,2-:nvfp4", "fp8/nvfp4"]}
    mixed, pair = layers.values()
    assert len(mixed) == len(pair) == 30 and all(set(layer) == {"k", "v", "attention"} for layer in mixed)
    assert all(0 < layer[name] < 0.005 for layer in mixed[:2] for name in layer), "16 bits"
    assert all(0.02 < layer["k"] < 0.2 and 0.02 < layer["v"] < 0.2 for layer in mixed[2:])
    for four, eight in zip(mixed[2:], pair[2:]):
        assert eight["k"] < 0.6 * four["k"] and eight["attention"] < four["attention"]


def test_the_table_of_layers(nibble, smollm2):
    lines = evaluated(nibble, smollm2, "--kv-cache-dtype", "nvfp4").splitlines()
    assert lines[0].startswith("perplexity ") and lines[1].split() == ["layer", "keys", "values", "attention"]
    assert len(lines) == 32 and re.fullmatch(r" +29( +\d+\.\d\d %){3}", lines[31])


def test_layers_of_one_cache(nibble, smollm2):
    done = run(nibble, "eval", smollm2, "--text", PROSE, "--layers", "--sweep")
    assert done.returncode == 2 and "--layers" in done.stderr
    done = run(nibble, "eval", smollm2, "--text", PROSE, "--layers", "--context", 8, "--chunks", 1)
    assert done.returncode == 1 and "too few" in done.stderr
