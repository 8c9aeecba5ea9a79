# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: what the plan says of them, what is refused, and that a batch changes no token's bits."""

import json
import re
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from libnibble import Library, Model, Refused

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import tiny  # noqa: E402

NAMES = ["mixtral", "qwen3_moe", "gpt_oss"]


@pytest.fixture
def folder(tmp_path):
    """Writes a golden checkpoint with its config changed and some tensors left out."""
    def write(name, config=None, without=""):
        golden = tiny.load(name)
        golden["config"].update(config or {})
        if without:
            golden["tensors"] = [tensor for tensor in golden["tensors"] if without not in tensor["name"]]
        return tiny.write_safetensors(golden, tmp_path / name)
    return write


def plan(nibble, path, *flags):
    return subprocess.run([nibble, "plan", str(path), "--device", "cpu:avx2", *flags], capture_output=True, text=True)


@pytest.mark.parametrize("name, count, top_k", [("mixtral", 6, 2), ("qwen3_moe", 8, 2), ("gpt_oss", 6, 2)])
def test_the_plan_says_what_a_token_reads(nibble, folder, name, count, top_k):
    path = folder(name)
    answer = json.loads(plan(nibble, path, "--json").stdout)["experts"]
    assert (answer["count"], answer["top_k"]) == (count, top_k)
    assert answer["bytes_per_token"] == answer["bytes"] * top_k // count > 0
    text = plan(nibble, path).stdout
    assert f"routing   top {top_k} of {count} experts" in text
    assert re.search(r"^experts .* experts_avx2", text, re.M)


def test_models_without_experts_say_nothing_of_them(nibble, folder):
    path = folder("qwen3")
    assert "experts" not in plan(nibble, path).stdout
    assert "experts" not in json.loads(plan(nibble, path, "--json").stdout)


@pytest.mark.parametrize("name, config, words", [
    ("mixtral", {"num_local_experts": 0}, ["num_local_experts"]),
    ("mixtral", {"num_local_experts": 513}, ["num_local_experts", "513"]),
    ("mixtral", {"num_local_experts": "six"}, ["num_local_experts"]),
    ("mixtral", {"num_experts_per_tok": 7}, ["7 experts", "has 6"]),
    ("mixtral", {"num_experts_per_tok": None}, ["num_experts_per_tok"]),
    ("mixtral", {"num_local_experts": 7}, ["experts.6.w1.weight", "missing"]),
    ("qwen3_moe", {"moe_intermediate_size": 64}, ["experts.0.gate_proj.weight", "(48, 64)", "(64, 64)"]),
    ("gpt_oss", {"num_local_experts": 5}, ["experts.gate_up_proj"]),
    ("gpt_oss", {"swiglu_limit": 5.0}, ["swiglu_limit is 5"]),
    ("gpt_oss", {"num_attention_heads": 4, "head_dim": 16}, ["q_proj.weight"]),
])
def test_what_makes_no_sense_is_refused(nibble, folder, name, config, words):
    done = plan(nibble, folder(name, config))
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("name, without", [
    ("mixtral", "layers.1.block_sparse_moe.experts.3.w2"), ("mixtral", "layers.2.block_sparse_moe.gate"),
    ("qwen3_moe", "layers.0.mlp.experts.7.up_proj"), ("gpt_oss", "layers.3.mlp.experts.down_proj"),
    ("gpt_oss", "layers.0.self_attn.sinks"), ("gpt_oss", "layers.1.mlp.router.weight"),
])
def test_what_is_missing_is_named(nibble, folder, name, without):
    done = plan(nibble, folder(name, without=without))
    assert done.returncode == 1 and without in done.stderr and "missing" in done.stderr, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_other_sequences_change_no_bit(library, folder, name):
    """A token's experts are multiplied together with other tokens', whichever these are."""
    golden = tiny.load(name)
    ids = golden["ids"][:40]
    with Model(Library(library), str(folder(name)), threads=2) as model:
        def score(parts):
            with model.sequence() as sequence:
                return np.concatenate([sequence.score(part) for part in parts])
        alone = score([ids])
        assert np.array_equal(score([[token] for token in ids]), alone)
        assert np.array_equal(score([ids[:9], ids[9:10], ids[10:]]), alone)


def test_broken_experts_never_serve(library, folder, monkeypatch):
    monkeypatch.setenv("NIBBLE_FAULT", "route_ref")
    with pytest.raises(Refused, match="route_ref"):
        Model(Library(library), str(folder("mixtral")))
