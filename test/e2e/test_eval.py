# SPDX-License-Identifier: Apache-2.0
"""`nibble eval` on real models: perplexity against transformers in float32, and what each cache format costs.

The figures in test/golden/perplexity.json were computed from the same GGUF files and the same text.
"""

import hashlib
import json
import math
import pathlib
import subprocess

import numpy as np
import pytest

import small_model
from report_page import check_layout, data_of

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
PROSE = GOLDEN / "prose.txt"
KNOWN = json.loads((GOLDEN / "perplexity.json").read_text())

# Tolerance of the perplexity, by the CPU's features. The 16-bit cache costs 0.001 at most, activations rounded to int8
# the rest.
ERROR_MAX = {"none": 0.005, "all": 0.01}
# Mean KL divergence of plain formats from a float32 cache on SmolLM2. Simulated in torch on the same chunk: 0.020, 0.0008, 0.101, 0.074;
# with keys in the order of the GGUF file, rope pairs side by side, nvfp4 would be 0.141 and nvfp4_4over6 0.121.
PLAIN = ["--kv-transform", "none", "--kv-scale", "amax", "--kv-sink-pages", "0"]
DIVERGENCE_MAX = {"fp8": 0.03, "int8_per_token_head": 0.005, "nvfp4": 0.13, "nvfp4_4over6": 0.1}


def evaluate(nibble, model, context, chunks, *flags):
    command = [nibble, "eval", model, "--json", "--text", PROSE, "--context", str(context), "--chunks", str(chunks)]
    done = subprocess.run([*command, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["chunks"] == chunks
    assert result["tokens"] == chunks * (context // 2 - 1)
    return result


@pytest.mark.parametrize("model_name", KNOWN)
def test_tokens_of_the_text(nibble, request, model_name):
    """A perplexity of other tokens would be another figure."""
    command = [nibble, "tokenize", request.getfixturevalue(model_name), "--no-special", "-"]
    done = subprocess.run(command, stdin=PROSE.open("rb"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ids = np.array(done.stdout.split(), "<i4")
    assert len(ids) == KNOWN[model_name]["tokens"]
    assert hashlib.sha256(ids.tobytes()).hexdigest() == KNOWN[model_name]["ids_sha256"]


@pytest.mark.parametrize("features", ERROR_MAX)
@pytest.mark.parametrize("model_name", KNOWN)
def test_perplexity(nibble, request, monkeypatch, model_name, features):
    if features == "none":
        monkeypatch.setenv("NIBBLE_FEATURES", features)
    result = evaluate(nibble, request.getfixturevalue(model_name), 512, 2, "--kv-cache-dtype", "bfloat16")
    want = math.exp(np.mean(KNOWN[model_name]["chunk_nll"]["512"][:2]))
    print(f"{model_name}: perplexity {result['perplexity']:.4f}, transformers {want:.4f}")
    assert result["kv_cache_dtype"] == "bfloat16"
    assert "against" not in result and "kld" not in result
    assert abs(result["perplexity"] / want - 1) <= ERROR_MAX[features]


@pytest.fixture(scope="module")
def divergences(nibble, smollm2):
    """Every format against float32 over one chunk of 2048 tokens. Heavy: two passes of the model for each."""
    return {word: evaluate(nibble, smollm2, 2048, 1, "--kv-cache-dtype", word, "--against", "float32", *PLAIN)
            for word in DIVERGENCE_MAX}


@pytest.mark.parametrize("word", DIVERGENCE_MAX)
def test_divergence(divergences, word):
    result = divergences[word]
    print(f"{word}: perplexity {result['perplexity']:.4f}, divergence {result['kld']}, top 1 {result['top1']:.4f}")
    assert (result["kv_cache_dtype"], result["against"]) == (word, "float32")
    assert 0 < result["kld"]["mean"] < DIVERGENCE_MAX[word]
    assert 0 <= result["kld"]["median"] <= result["kld"]["p99"] <= result["kld"]["max"]
    assert 0.5 < result["top1"] <= 1


def test_four_over_six_beats_plain_nvfp4(divergences):
    assert divergences["nvfp4_4over6"]["kld"]["mean"] < divergences["nvfp4"]["kld"]["mean"]


# ---- the page of a sweep ---------------------------------------------------------------------------------------------

def test_the_curve_can_be_read(nibble, smollm2, tmp_path, browser):
    """Formats of the same size have their points under each other: their labels are numbers, apart, and a legend names them."""
    model, page = small_model.write(smollm2, tmp_path / "small.gguf"), tmp_path / "page.html"
    done = subprocess.run([nibble, "eval", model, "--text", PROSE, "--context", "32", "--chunks", "1", "--sweep", "--json", "--html", page],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert data_of(page) == report
    shown = [cache for cache in report["caches"] if cache.get("kld", {"mean": 0})["mean"] > 0]
    assert len(shown) > 8
    labels = [label["text"].strip() for label in check_layout(browser, page, numbered=True)]
    assert all(str(i + 1) in labels for i in range(len(shown)))
    named = [f"{i + 1} {cache['kv_cache_dtype']} {cache['stored']}" for i, cache in enumerate(shown)]
    assert set(named) <= set(labels) and {"as planned", "stored as is"} <= set(labels)
    assert any(label.startswith("Pareto frontier") for label in labels)
