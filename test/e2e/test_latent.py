# SPDX-License-Identifier: Apache-2.0
"""Latent attention (DeepSeek): cache formats of latents, what the plan says of them, and what lies beside the model."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from libnibble import Library, Model, Refused

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import published  # noqa: E402
import tiny  # noqa: E402

# The root mean square of what a cache format changes in the logits, as a part of theirs: what was measured, and a
# quarter more.
FORMATS = {"float32": 1e-5, "bfloat16": 0.007, "float16": 0.001, "fp8": 0.12, "fp8_ds_mla": 0.08,
           "fp8_per_token_head": 0.12, "int8_per_token_head": 0.045}
TOKEN_BYTES = {"float32": 2304, "bfloat16": 1152, "fp8": 576, "fp8_ds_mla": 656, "nvfp4": 324}
CHUNKS = [1, 2, 3, 50, 16, 7, 51]

V3 = {"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128,
      "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
      "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True, "routed_scaling_factor": 2.5,
      "first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840, "vocab_size": 129280,
      "rms_norm_eps": 1e-6, "rope_theta": 10000, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
      "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
                       "mscale": 1.0, "mscale_all_dim": 1.0}}


@pytest.fixture(scope="module")
def lib(library):
    return Library(library)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One with latents of 512 + 64 channels."""
    golden = tiny.load("deepseek_v2")
    return golden, tiny.write_safetensors(golden, tmp_path_factory.mktemp("deepseek"))


def score(lib, path, parts, **options):
    with Model(lib, path, threads=2, **options) as opened, opened.sequence() as sequence:
        return np.concatenate([sequence.score(ids) for ids in parts])


def plan(nibble, path, *flags):
    return subprocess.run([nibble, "plan", str(path), *flags], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("features", ["none", ""])
def test_errors_of_formats(lib, model, monkeypatch, features):
    monkeypatch.setenv("NIBBLE_FEATURES", features)
    golden, path = model
    want, errors = tiny.logits(golden), {}
    for word in FORMATS:
        got = score(lib, path, [golden["ids"]], kv_cache_dtype=word)[golden["positions"]]
        errors[word] = np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean())
        print(f"{word} {features}: {errors[word]:.4f}")
    assert all(errors[word] <= FORMATS[word] for word in FORMATS)
    assert errors["fp8_ds_mla"] < errors["fp8"], "scales of groups are worth their bytes"


@pytest.mark.parametrize("word", ["bfloat16", "fp8_ds_mla"])
def test_chunks_and_threads_change_no_bit(lib, model, word):
    golden, path = model
    ids, ends = golden["ids"], np.cumsum(CHUNKS)
    whole = score(lib, path, [ids], kv_cache_dtype=word)
    parts = [ids[end - count:end] for end, count in zip(ends, CHUNKS)]
    assert np.array_equal(score(lib, path, parts, kv_cache_dtype=word), whole)
    assert np.array_equal(score(lib, path, [ids], kv_cache_dtype=word, batch_tokens=32), whole)


def test_plan_says_latent(nibble, model):
    _, path = model
    for word, size in TOKEN_BYTES.items():
        result = plan(nibble, path, "--kv-cache-dtype", word, "--device", "cpu:avx2")
        assert result.returncode == 0 and "latent 512+64" in result.stdout and f" {size}\n" in result.stdout
    layer = json.loads(plan(nibble, path, "--json").stdout)["layers"][0]
    assert (layer["attention"], layer["latent"], layer["bytes_per_token"]) == ("mla", [512, 64], 1152)
    assert (layer["k"], layer["k_bits"], layer["v_bits"]) == ("bfloat16", 16, 0)


@pytest.mark.parametrize("word, says", [
    ("int4_per_token_head", "rotates whole vectors, and of latents a part is read by itself"),
    ("fp8/bfloat16", "a latent is key and value at once and has one format"),
])
def test_formats_that_hold_no_latents(nibble, model, word, says):
    result = plan(nibble, model[1], "--kv-cache-dtype", word)
    assert result.returncode == 1 and says in result.stderr and "--kv-cache-dtype fp8_ds_mla" in result.stderr


def test_the_record_is_for_latents_of_its_size(nibble, lib, tmp_path):
    small = tiny.write_safetensors(tiny.load("deepseek_v3"), tmp_path / "small")
    assert "not 64 + 16" in plan(nibble, small, "--kv-cache-dtype", "fp8_ds_mla").stderr
    llama = tiny.write_safetensors(tiny.load("llama"), tmp_path / "llama")
    with pytest.raises(Refused, match="holds MLA latents, and there are none"):
        Model(lib, llama, kv_cache_dtype="fp8_ds_mla")


def test_published_shape_has_kernels_everywhere(nibble, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(V3))
    built = subprocess.run([nibble, "env"], capture_output=True, text=True, check=True).stdout
    gpus = next(line.split()[1:] for line in built.splitlines() if line.startswith("build.cuda "))
    for device in ["cpu:ref", "cpu:avx2", "cpu:avx512", *(gpu for gpu in gpus if gpu.startswith("sm_"))]:
        for word in ("bfloat16", "fp8", "fp8_ds_mla"):
            result = plan(nibble, tmp_path, "--device", device, "--kv-cache-dtype", word)
            assert result.returncode == 0, result.stderr
            assert "0-60     latent 512+64" in result.stdout and " per_head_linear_" in result.stdout


def test_what_guesses_ahead_is_left_alone(nibble, lib, tmp_path):
    """Layers behind the last are for predicting further tokens."""
    golden = tiny.load("deepseek_v3")
    layer = [{**tensor, "name": tensor["name"].replace("layers.1.", "layers.3.")}
             for tensor in golden["tensors"] if "layers.1." in tensor["name"]]
    more = {**golden, "tensors": [*golden["tensors"], *layer, {"name": "model.layers.3.eh_proj.weight", "shape": [64, 128], "type": "BF16"}]}
    path = tiny.write_safetensors(more, tmp_path)
    result = plan(nibble, path)
    assert result.returncode == 0 and "multi-token prediction" in result.stdout and "not used" not in result.stdout
    got = score(lib, path, [golden["ids"]], kv_cache_dtype="float32")[golden["positions"]]
    assert np.abs(got - tiny.logits(golden)).max() <= 1e-3 * np.abs(tiny.logits(golden)).max()


def in_blocks(values):
    """E4M3 codes, a scale for each 128 x 128 of them, and what they mean."""
    scales = np.zeros([-(-extent // 128) for extent in values.shape], np.float32)
    codes, meant = np.zeros(values.shape, np.uint8), np.zeros(values.shape, np.float32)
    for i, j in np.ndindex(scales.shape):
        part = np.s_[128 * i:128 * (i + 1), 128 * j:128 * (j + 1)]
        scales[i, j] = np.abs(values[part]).max() / 448
        near = np.abs(np.abs(values[part] / scales[i, j])[..., None] - published.E4M3[:127]).argmin(-1)
        codes[part] = near | np.where(values[part] < 0, 128, 0)
        meant[part] = published.E4M3[codes[part]] * scales[i, j]
    return codes, scales, meant


def test_native_fp8_is_cut_up_by_heads(lib, tmp_path, monkeypatch):
    """As V3 is published; what brings queries to latents is made of codes and scales when it is loaded."""
    monkeypatch.setenv("NIBBLE_FEATURES", "none")
    golden = tiny.load("deepseek_v3")
    stored, plain = {}, {}
    for tensor in golden["tensors"]:
        name, shape, values = tensor["name"], tensor["shape"], tiny.values(golden, tensor)
        if name.endswith("proj.weight") or "_proj_with_mqa" in name:
            codes, scales, values = in_blocks(values)
            stored[name] = "float8_e4m3fn", shape, codes
            stored[f"{name}_scale_inv"] = "float32", scales.shape, scales
        plain[name] = "float32", shape, values.astype(np.float32)
    quantised = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    logits = []
    for folder, config, arrays in (("stored", {"quantization_config": quantised}, {**plain, **stored}), ("plain", {}, plain)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps({**golden["config"], **config}))
        tiny.write_arrays(arrays, tmp_path / folder / "model.safetensors")
        logits.append(score(lib, tmp_path / folder, [golden["ids"]], kv_cache_dtype="float32"))
    error = np.abs(logits[0] - logits[1]).max() / np.abs(logits[1]).max()
    print(f"largest error {error:.1e} of the largest logit")
    assert error <= 1e-3


@pytest.mark.parametrize("change, says", [
    ({"kv_lora_rank": 520}, "520"), ({"qk_rope_head_dim": 20}, "rotated ones"), ({"n_group": 5}, "groups"), ({"topk_group": 9}, "groups"),
    ({"num_experts_per_tok": 12}, "groups"), ({"topk_method": "best"}, "\"best\""), ({"scoring_func": "relu"}, "\"relu\""),
    ({"qk_nope_head_dim": 0}, "qk_nope_head_dim"), ({"v_head_dim": 100000}, "v_head_dim"), ({"num_attention_heads": 8}, "kv_b_proj"),
    ({"moe_layer_freq": 0}, "moe_layer_freq"), ({"kv_lora_rank": 32}, "kv_b_proj"),
])
def test_configs_that_make_no_sense(nibble, tmp_path, change, says):
    golden = tiny.load("deepseek_v3")
    path = tiny.write_safetensors({**golden, "config": {**golden["config"], **change}}, tmp_path)
    result = plan(nibble, path)
    assert result.returncode == 1 and says in result.stderr, result.stdout + result.stderr
