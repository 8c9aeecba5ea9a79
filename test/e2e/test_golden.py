# SPDX-License-Identifier: Apache-2.0
"""Logits of tiny checkpoints, every architecture and container, against transformers (test/golden)."""

import pathlib
import sys

import numpy as np
import pytest

from libnibble import Library, Model

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import tiny  # noqa: E402

ERROR_MAX = 1e-3  # of the largest logit; float32 sums in another order give 1e-5
INT8_ERROR_MAX = 0.06  # with activations rounded to 8 bits, which tiny models feel more than real ones
QUANTISED = ["gpt_oss_mxfp4", "llama_fp4", "llama_k_quants", "llama_legacy_quants",
             "mixtral_quants"]  # all or some weights in blocks
CHUNKS = [1, 2, 3, 50, 16, 7, 51]  # of the same text, uneven and across windows and pages

CONTAINERS = {
    "safetensors": lambda golden, folder: tiny.write_safetensors(golden, folder),
    "sharded": lambda golden, folder: tiny.write_safetensors(golden, folder, shards=3),
    "old_config": lambda golden, folder: tiny.write_safetensors(golden, folder, config="config_old"),
    "gguf": lambda golden, folder: tiny.write_gguf(golden, folder / "model.gguf"),
    "mxfp4": lambda golden, folder: tiny.write_mxfp4(golden, folder),
}


def cases():
    for name in tiny.names():
        containers = tiny.load(name)["containers"]
        if "safetensors" in containers:
            containers.append("old_config")
        if name == "llama":
            containers.append("sharded")
        yield from ((name, container) for container in containers)


@pytest.fixture(scope="module")
def lib(library):
    return Library(library)


def open_model(lib, golden, path, **options):
    known = golden.get("options", {})
    return Model(lib, path, **{"kv_cache_dtype": "float32", "threads": 2, **known, **options})


def score(model, parts):
    with model.sequence() as sequence:
        return np.concatenate([sequence.score(ids) for ids in parts])


@pytest.mark.parametrize("features", ["none", "avx2", ""])
@pytest.mark.parametrize("name, container", list(cases()))
def test_logits(lib, tmp_path, monkeypatch, name, container, features):
    """With the reference alone, as on an older machine, and with all that this one has."""
    monkeypatch.setenv("NIBBLE_FEATURES", features)
    golden = tiny.load(name)
    with open_model(lib, golden, CONTAINERS[container](golden, tmp_path)) as model:
        assert model.vocabulary == tiny.text_config(golden)["vocab_size"]
        got = score(model, [golden["ids"]])[golden["positions"]]
    want = tiny.logits(golden)
    error = np.abs(got - want).max() / np.abs(want).max()
    print(f"{name} {container} {features}: largest error {error:.1e} of the largest logit")
    assert error <= (INT8_ERROR_MAX if name in QUANTISED and features != "none" else ERROR_MAX)


@pytest.mark.parametrize("name", tiny.names())
def test_chunks_and_threads_change_no_bit(lib, tmp_path, name):
    golden = tiny.load(name)
    container = golden["containers"][0]
    path = CONTAINERS[container](golden, tmp_path)
    ids = golden["ids"]
    ends = np.cumsum(CHUNKS)
    assert ends[-1] == len(ids)
    parts = [ids[end - count:end] for end, count in zip(ends, CHUNKS)]
    with open_model(lib, golden, path) as model:
        whole = score(model, [ids])
        assert np.array_equal(score(model, parts), whole), "the text in chunks gives other logits than at once"
    with open_model(lib, golden, path, threads=1) as model:
        assert np.array_equal(score(model, [ids]), whole), "one thread gives other logits than two"
    with open_model(lib, golden, path, batch_tokens=32) as model:
        assert np.array_equal(score(model, [ids]), whole), "a smaller batch gives other logits than one pass"
