# SPDX-License-Identifier: Apache-2.0
"""`nibble tune` and the plans it writes. The gains of tuning are in doc/quality.md."""

import json
import pathlib
import subprocess

import pytest

PROSE = pathlib.Path(__file__).parent.parent / "golden" / "prose.txt"


def run(nibble, *command):
    return subprocess.run([nibble, *map(str, command)], capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def tuned(nibble, smollm2, tmp_path_factory):
    """On short chunks, so that all layers are measured in a minute."""
    path = tmp_path_factory.mktemp("tune") / "plan.json"
    done = run(nibble, "tune", smollm2, "--text", PROSE, "--context", 96, "--chunks", 2, "--bits", 6, "-o", path)
    assert done.returncode == 0, done.stderr
    return path, done.stdout


def test_what_is_written(tuned):
    path, text = tuned
    plan = json.loads(path.read_text())
    assert (plan["kv_plan"], plan["architecture"], plan["layers"]) == (1, "llama", 30)
    assert plan["bits"] <= 6 + 1e-9
    assert plan["kld"] > 0 and set(plan["uniform"]) == {"nvfp4", "fp8", "bfloat16"}
    assert f"--kv-cache-dtype {plan['kv_cache_dtype']}" in text
    assert "what nvfp4 costs most: keys of layer" in text


def test_the_plan_is_followed(nibble, smollm2, tuned):
    path, _ = tuned
    plan = json.loads(path.read_text())
    shown = [json.loads(run(nibble, "plan", smollm2, "--json", *flags).stdout)["layers"]
             for flags in (("--kv-plan", path), ("--kv-cache-dtype", plan["kv_cache_dtype"]))]
    origins = [{layer.pop("format_origin") for layer in layers} for layers in shown]
    assert shown[0] == shown[1] and origins == [{"--kv-plan"}, {"--kv-cache-dtype"}]
    bits = [layer[side] for layer in shown[0] for side in ("k_bits", "v_bits")]
    assert sum(bits) / len(bits) == pytest.approx(plan["bits"])
    assert len({(layer["k"], layer["v"]) for layer in shown[0]}) > 1


@pytest.mark.parametrize("content, words", [
    ("", "empty where JSON was expected"),
    ("[]", 'it has no "kv_plan"'),
    ('{"kv_plan": 2}', "version 2"),
    ('{"kv_plan": "x"}', '"kv_plan"'),
    ('{"kv_plan": 1}', 'lacks "architecture"'),
    ('{"kv_plan": 1, "architecture": "llama", "layers": 12, "kv_cache_dtype": "fp8"}', "is for a llama of 12 layers"),
    ('{"kv_plan": 1, "architecture": "qwen3", "layers": 30, "kv_cache_dtype": "fp8"}', "is for a qwen3"),
    ('{"kv_plan": 1, "architecture": "llama", "layers": 30, "kv_cache_dtype": "fp9"}', '"fp9" is not a cache format'),
])
def test_other_files_are_refused(nibble, smollm2, tmp_path, content, words):
    path = tmp_path / "plan.json"
    path.write_text(content)
    done = run(nibble, "plan", smollm2, "--kv-plan", path)
    assert done.returncode in (1, 2) and words in done.stderr, done.stderr


def test_flags_beside_a_plan_are_refused(nibble, smollm2, tuned):
    for flag, value in (("--kv-cache-dtype", "fp8"), ("--kv-sink-pages", "1"), ("--kv-scale", "amax")):
        done = run(nibble, "plan", smollm2, "--kv-plan", tuned[0], flag, value)
        assert done.returncode == 2 and f"--kv-plan says what {flag} would say" in done.stderr


@pytest.mark.parametrize("flags, words", [
    ((), "needs a text"),
    (("--text", PROSE), "needs one aim"),
    (("--text", PROSE, "--bits", 5, "--kld-max", 0.1), "needs one aim"),
    (("--text", "/dev/null", "--bits", 5, "--context", 96), "less than one chunk"),
    (("--text", "/nosuch", "--bits", 5, "--context", 1 << 20), "the model has 8192 at most"),
    (("--text", PROSE, "--bits", 5, "--context", 96, "--chunks", 1), "--chunks"),
    (("--text", PROSE, "--bits", 4, "--context", 96, "--chunks", 2), "4 bits cannot be had"),
    (("--text", PROSE, "--bits", 5, "-o", "/"), "no ordinary file"),
    (("--text", "/nosuch", "--bits", 5), "/nosuch: cannot be read"),
])
def test_what_tune_refuses(nibble, smollm2, flags, words):
    done = run(nibble, "tune", smollm2, *flags)
    assert done.returncode in (1, 2) and words in done.stderr, done.stderr
