# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: states are kept at the ends of their pages, and a sequence that continues from one gets the answer it would
have got by reading everything again."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import safetensors

from libnibble import PLAN_FULL, Checkpoint, Library, Model, Refused
from plan_text import unwrapped

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import tiny  # noqa: E402

BLOCK = 32  # tokens that a state covers in these tests
MODELS = ["nemotron_h", "nemotron_h_moe", "qwen3_next"]


@pytest.fixture(scope="module")
def lib(library):
    return Library(library)


@pytest.fixture(scope="module", params=MODELS)
def world(request, tmp_path_factory):
    golden = tiny.load(request.param)
    return tiny.write_safetensors(golden, tmp_path_factory.mktemp(request.param)), golden["ids"]


def open_model(lib, path, **options):
    return Model(lib, path, **{"kv_cache_dtype": "float32", "max_model_len": 256, "mamba_block_size": BLOCK, "no_self_test": True,
                               **options})


def score(model, ids, chunks=None):
    with model.sequence() as sequence:
        parts = np.split(ids, np.cumsum(chunks)) if chunks else [ids]
        return np.concatenate([sequence.score(part.tolist() if chunks else part) for part in parts if len(part)])


def test_the_size_of_pages_changes_no_bit(lib, world):
    path, ids = world
    with open_model(lib, path, mamba_block_size=512, max_model_len=512) as model:
        whole = score(model, ids)
    for block, chunks in (16, None), (32, [1, 30, 2, 31, 33]), (48, [7] * 18):
        with open_model(lib, path, mamba_block_size=block) as model:
            assert np.array_equal(score(model, ids, chunks), whole)


def test_going_back(lib, world):
    """To the state before the current one at most; from there on everything is read again."""
    path, ids = world
    other = [(token + 1) % 300 for token in ids]
    with open_model(lib, path) as model:
        for length in 0, 1, 31, 32, 70, 96, 127, 128, 129:
            text = ids[:length] + other[length:]
            want = score(model, text)[length:]
            with model.sequence() as sequence:
                sequence.score(ids)
                sequence.assign(text[:length])
                assert sequence.cached == (length // BLOCK * BLOCK if length >= len(ids) // BLOCK * BLOCK else 0)
                assert np.array_equal(sequence.score(text[length:]), want)


def answers(scheduler, prompts, max_tokens=9):
    added = [scheduler.add(prompt, max_tokens=max_tokens, top_logprobs=3) for prompt in prompts]
    scheduler.run()
    return added


def same(some, others):
    assert [(a.tokens, a.logprobs, a.top) for a in some] == [(a.tokens, a.logprobs, a.top) for a in others]


@pytest.fixture(scope="module")
def prompts(world):
    ids = world[1]
    return [ids[:100], ids[:70] + ids[20:60], ids[:33], ids[50:60], ids[:64]]


@pytest.fixture(scope="module")
def alone(lib, world, prompts):
    with open_model(lib, world[0]) as model:
        return [model.generate([prompt], scheduling={"no_prefix_cache": True}, max_tokens=9, top_logprobs=3)[0] for prompt in prompts]


def test_a_hit_is_as_good_as_reading(lib, world, prompts, alone):
    with open_model(lib, world[0], max_num_seqs=5, kv_cache_bytes=4 << 20) as model, model.scheduler() as scheduler:
        same(answers(scheduler, prompts), alone)
        again = answers(scheduler, prompts)
        same(again, alone)
        assert [answer.usage["cached_tokens"] for answer in again] == [(len(prompt) - 1) // BLOCK * BLOCK for prompt in prompts]


def test_preempted_chunked_and_on_one_thread(lib, world, prompts):
    """Answers outgrow what there is: of two states for each text, or of pages."""
    settings = {"max_model_len": 176, "batch_tokens": 16}
    with open_model(lib, world[0], **settings) as model:
        alone = [model.generate([prompt], max_tokens=60, top_logprobs=3)[0] for prompt in prompts]
        pools = json.loads(model.plan())["memory"]["pools"]
    least = sum(pool["pages"] * pool["page_bytes"] for pool in pools)
    with open_model(lib, world[0], max_num_seqs=5, threads=1, kv_cache_bytes=least + least // 3, **settings) as model:
        with model.scheduler() as scheduler:
            same(answers(scheduler, prompts, 60), alone)
            assert scheduler.stats.preemptions > 0


def test_the_plan_says_what_states_take(lib, world):
    with open_model(lib, world[0], max_num_seqs=3) as model:
        plan, text = json.loads(model.plan()), unwrapped(model.plan(PLAN_FULL))
    states = [layer for layer in plan["layers"] if layer["attention"] == "state"]
    assert states and all(layer["k"] is None and layer["bytes_per_token"] == 0 and "conv" in layer["kernels"] for layer in states)
    pool = plan["memory"]["pools"][-1]
    assert pool["class"] == "state float32" and pool["page_tokens"] == BLOCK and pool["pages"] >= 2
    assert pool["page_bytes"] == sum(layer["state_bytes"] for layer in states)
    assert f"one kept every {BLOCK} tokens" in text and "float32" in text


def test_formats_are_for_attention_alone(lib, world, nibble):
    path, _ = world
    plain = json.loads(subprocess.run([nibble, "plan", path, "--json"], capture_output=True, text=True, check=True).stdout)
    attention = [layer["index"] for layer in plain["layers"] if layer["k"]]
    for flag in "nvfp4", ",".join(f"{index}:nvfp4" for index in attention):
        made = subprocess.run([nibble, "plan", path, "--json", "--kv-cache-dtype", flag], capture_output=True, text=True, check=True)
        layers = json.loads(made.stdout)["layers"]
        assert [layer["index"] for layer in layers if layer["k"] == "nvfp4"] == attention
        assert [layer for layer in layers if not layer["k"]] == [layer for layer in plain["layers"] if not layer["k"]]


@pytest.mark.parametrize("size, sentence", [(33, "multiples of 16"), (-16, "1 to")])
def test_block_sizes_that_cannot_be(lib, world, size, sentence):
    with pytest.raises(Refused, match=sentence):
        open_model(lib, world[0], mamba_block_size=size)


def test_quantised(lib, tmp_path):
    """Linears become int8; what a state is made with stays as it is."""
    golden = tiny.load("nemotron_h")
    source, made = tiny.write_safetensors(golden, tmp_path / "source"), tmp_path / "made"
    made.mkdir()
    with Checkpoint(lib, source) as checkpoint:
        checkpoint.quantize(made, "int8")
    with safetensors.safe_open(made / "model.safetensors", "np") as file:
        types = {name.split(".", 3)[-1]: file.get_slice(name).get_dtype() for name in file.keys() if ".layers.0." in name}
    assert types["mixer.in_proj.weight"] == types["mixer.out_proj.weight"] == "I8"
    assert {types[f"mixer.{name}"] for name in ("conv1d.weight", "conv1d.bias", "A_log", "D", "dt_bias", "norm.weight")} == {"BF16"}
    with Model(lib, made, kv_cache_dtype="float32") as model:
        got = score(model, golden["ids"])[golden["positions"]]
    want = tiny.logits(golden)
    assert np.sqrt(np.mean((got - want) ** 2)) < 0.1 * np.sqrt(np.mean(want ** 2))


def test_layers_must_be_named(lib, tmp_path):
    golden = tiny.load("nemotron_h")
    for change, sentence in ({"layers_block_type": ["mamba", "what"]}, '"what" for layer 1'), ({"num_hidden_layers": 9}, "names 6 layers"), (
            {"mamba_num_heads": 7}, "7 heads in 2 groups"), ({"mlp_hidden_act": "gelu"}, "mlp_hidden_act"):
        tiny.write_safetensors({**golden, "config": {**golden["config"], **change}}, tmp_path)
        with pytest.raises(Refused, match=sentence):
            Model(lib, tmp_path)
