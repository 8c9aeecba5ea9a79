# SPDX-License-Identifier: Apache-2.0
"""Quantised checkpoints as they are published: logits of every layout, what the plan says of them, and what is refused."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from libnibble import PLAN_SHORT, Library, Model, Refused
from plan_text import unwrapped

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import published  # noqa: E402

ERROR_MAX = 1e-3  # of the largest logit
INT8_ERROR_MAX = 0.06  # with activations rounded to 8 bits, which tiny models feel more than real ones


@pytest.fixture(scope="module")
def lib(library):
    return Library(library)


def score(lib, folder, ids, **options):
    with Model(lib, folder, **{"kv_cache_dtype": "float32", "threads": 2, **options}) as model:
        with model.sequence() as sequence:
            return sequence.score(ids)


@pytest.mark.parametrize("features", ["none", "avx2", ""])
@pytest.mark.parametrize("name", published.SCHEMES)
def test_logits(lib, tmp_path, monkeypatch, name, features):
    monkeypatch.setenv("NIBBLE_FEATURES", features)
    got = score(lib, published.write(name, tmp_path), published.ids(name))[published.POSITIONS]
    want = published.logits(name)
    error = np.abs(got - want).max() / np.abs(want).max()
    print(f"{name} {features}: largest error {error:.1e} of the largest logit")
    assert error <= (ERROR_MAX if features == "none" else INT8_ERROR_MAX)


def nested(config):
    return {"model_type": "several", "text_config": config}


def older(config):
    return {"compression_config" if key == "quantization_config" else key: value for key, value in config.items()}


@pytest.mark.parametrize("name, spelling", [("modelopt_nvfp4", nested), ("compressed_int4", older)])
def test_places_of_the_declaration(lib, tmp_path, name, spelling):
    want = score(lib, published.write(name, tmp_path / "a"), published.ids(name))
    other = published.write(name, tmp_path / "b", config=spelling(published.config_of(name)))
    assert np.array_equal(score(lib, other, published.ids(name)), want)


# ---- what the plan says ---------------------------------------------------------------------------------------------


@pytest.fixture
def plan(nibble):
    def plan(folder, *flags):
        done = subprocess.run([nibble, "plan", str(folder), *flags], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "NIBBLE_FEATURES": "none"})
        done.stdout = done.stdout if "--json" in flags else unwrapped(done.stdout)
        return done
    return plan


READ_AS = {
    "modelopt_nvfp4": [("NVFP4 (modelopt)", "NVFP4", None)],
    "modelopt_w4a16_nvfp4": [("W4A16_NVFP4 (modelopt)", "NVFP4", None),
                             ("W4A16_NVFP4 (modelopt)", "float16", "rows are no multiple of 64")],
    "modelopt_mixed": [("FP8 (modelopt)", "FP8", None), ("NVFP4 (modelopt)", "NVFP4", None)],
    "compressed_mxfp4": [("MXFP4 (compressed-tensors)", "MXFP4", None)],
    "compressed_two_formats": [("FP8 by channel (compressed-tensors)", "FP8", None),
                               ("int4 in groups of 64 (compressed-tensors)", "Q4_0", None)],
    "compressed_int4_zeros": [("int4 in groups of 128 with zero points (compressed-tensors)", "Q5_0", None)],
    "compressed_int4_float32": [("int4 in groups of 64 with zero points (compressed-tensors)", "FP8", "its scales are float32")],
    "compressed_int8_zeros": [("int8 in groups of 32 with zero points (compressed-tensors)", "float16",
                               "8-bit codes have zero points")],
    "compressed_int8_channel": [("int8 by channel (compressed-tensors)", "Q8_0", None)],
    "fp8_block": [("FP8 by block (fp8)", "FP8", None)],
    "awq": [("int4 in groups of 64 with zero points (awq)", "Q5_0", None)],
    "gptq": [("int4 in groups of 64 (gptq)", "Q4_0", None)],
    "gptq_order": [("int4 in groups of 64, reordered (gptq)", "float16", "its groups are in activation order")],
    "gptq_dynamic": [("int4 in groups of 64 (gptq)", "Q4_0", None), ("int8 in groups of 32 (gptq)", "Q8_0", None)],
}


@pytest.mark.parametrize("name", READ_AS)
def test_plan_says_what_lies_there_and_what_it_is_read_as(plan, tmp_path, name):
    folder = published.write(name, tmp_path)
    found = json.loads(plan(folder, "--json").stdout)
    assert sorted((kind["form"], kind["read_as"], kind["why"]) for kind in found["weights"]["stored"]) == sorted(
        READ_AS[name], key=lambda row: row[:2])
    assert found["checkpoint"]["warnings"] == []
    text = plan(folder).stdout
    for form, read_as, why in READ_AS[name]:
        assert f"stored    {form}, read as {read_as}{': ' + why if why else ''}\n" in text


def test_config_alone_is_planned_as_it_declares(plan, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(published.config_of("modelopt_nvfp4")))
    found = json.loads(plan(tmp_path, "--json").stdout)
    assert found["weights"]["stored"][0]["form"] == "NVFP4 (modelopt)"
    assert set(found["weights"]["by_format"]) == {"bfloat16", "NVFP4"}


# ---- what is refused, by name ---------------------------------------------------------------------------------------

UP = "model.layers.1.mlp.up_proj"


def declare(config, **keys):
    config["quantization_config"].update(keys)


def group(config):
    return config["quantization_config"]["config_groups"]["group_0"]


def plain(stored, module=UP):
    for suffix in ("weight", "weight_packed", "weight_scale", "weight_scale_2", "weight_global_scale"):
        stored.pop(f"{module}.{suffix}", None)
    stored[f"{module}.weight"] = ("BF16", np.zeros((384, 256), np.uint16))


# scheme, what is done to the tensors and the config, what the sentence has in it
REFUSED_BY_HEADERS = {
    "scale missing": ("modelopt_nvfp4", lambda t, c: t.pop(f"{UP}.weight_scale"),
                      f"tensor {UP}.weight_scale is missing; the checkpoint declares NVFP4 (modelopt)"),
    "overall scale missing": ("compressed_nvfp4", lambda t, c: t.pop(f"{UP}.weight_global_scale"),
                              f"tensor {UP}.weight_global_scale is missing"),
    "zero points missing": ("awq", lambda t, c: t.pop(f"{UP}.qzeros"), f"tensor {UP}.qzeros is missing"),
    "order missing": ("gptq_order", lambda t, c: t.pop(f"{UP}.g_idx"), f"tensor {UP}.g_idx is missing"),
    "scale of another type": (
        "modelopt_nvfp4", lambda t, c: t.update({f"{UP}.weight_scale": ("F32", np.zeros((384, 16), "<f4"))}),
        f"tensor {UP}.weight_scale is stored as float32; NVFP4 (modelopt), declared for this module, has it as fp8_e4m3"),
    "scale of another shape": (
        "fp8_block", lambda t, c: t.update({f"{UP}.weight_scale_inv": ("F32", np.ones((1, 2), "<f4"))}),
        f"tensor {UP}.weight_scale_inv has shape (2); (2, 2) was expected"),
    "codes of another shape": (
        "modelopt_nvfp4", lambda t, c: t.update({f"{UP}.weight": ("U8", np.zeros((384, 256), np.uint8))}),
        f"tensor {UP}.weight has shape (384, 256); (384, 128) was expected"),
    "left out and packed": ("modelopt_nvfp4", lambda t, c: declare(c, ignore=["lm_head", "*up_proj"]),
                            "up_proj.weight_scale_2 is there, and the checkpoint's quantisation config leaves this "
                            "module out"),
    "left out and fp8": ("modelopt_fp8", lambda t, c: declare(c, ignore=["lm_head", "up_proj"]),
                         "up_proj.weight is stored as fp8_e4m3, which nibble does not read as a weight; the checkpoint's "
                         "quantisation config leaves this module out"),
    "not declared": ("awq", lambda t, c: c.pop("quantization_config"),
                     "qweight is there, and the checkpoint's quantisation config is missing"),
    "left out and packed, compressed": (
        "compressed_int4", lambda t, c: declare(c, ignore=["lm_head", UP]),
        f"tensor {UP}.weight_packed is there, and the checkpoint's quantisation config leaves this module out"),
    "declared and plain": ("modelopt_nvfp4", lambda t, c: plain(t),
                           f"tensor {UP}.weight is stored as bfloat16; NVFP4 (modelopt), declared for this module, has it as uint8"),
    "declared and plain, compressed": (
        "compressed_nvfp4", lambda t, c: plain(t),
        f"tensor {UP}.weight is there alone, and the checkpoint declares NVFP4 (compressed-tensors)"),
    "two naming schemes": (
        "compressed_nvfp4", lambda t, c: t.update({f"{UP}.weight_scale_2": ("F32", np.ones((), "<f4"))}),
        f"tensor {UP}.weight_scale_2 is none of NVFP4 (compressed-tensors)"),
    "two naming schemes, other way": (
        "modelopt_nvfp4", lambda t, c: t.update({f"{UP}.weight_packed": ("U8", np.zeros((384, 128), np.uint8))}),
        f"tensor {UP}.weight_packed is none of NVFP4 (modelopt)"),
    "rows of broken groups": ("modelopt_nvfp4", lambda t, c: (t.clear(), c.update(intermediate_size=200)),
                              "down_proj.weight has rows of 200 values; NVFP4 (modelopt) needs a multiple of 16"),
    "method": ("awq", lambda t, c: declare(c, quant_method="bitsandbytes"), 'quant_method "bitsandbytes"'),
    "algorithm": ("modelopt_nvfp4", lambda t, c: declare(c, quant_algo="W4A8_AWQ"), 'quant_algo "W4A8_AWQ"'),
    "group size": ("modelopt_nvfp4", lambda t, c: declare(c, group_size=32), "NVFP4 in groups of 32"),
    "format": ("compressed_int4", lambda t, c: declare(c, format="marlin-24"), 'format "marlin-24"'),
    "bits": ("compressed_int4", lambda t, c: group(c)["weights"].update(num_bits=3), "of 3 bits"),
    "transform": ("compressed_nvfp4", lambda t, c: declare(c, transform_config={"config_groups": {"R1": {}}}),
                  "transform_config is declared"),
    "sparsity": ("compressed_nvfp4", lambda t, c: declare(c, sparsity_config={"format": "sparse-24-bitmask"}),
                 "sparsity_config is declared"),
    "output activations": ("compressed_nvfp4", lambda t, c: group(c).update(output_activations={"num_bits": 8}),
                           "output_activations is declared"),
    "awq version": ("awq", lambda t, c: declare(c, version="gemv"), 'version is "gemv"'),
    "gptq format": ("gptq", lambda t, c: declare(c, checkpoint_format="marlin"), 'checkpoint_format is "marlin"'),
    "gptq bits": ("gptq", lambda t, c: declare(c, bits=3), "codes of 3 bits"),
    "fp8 of another kind": ("fp8_block", lambda t, c: declare(c, fmt="e5m2"), 'fmt is "e5m2"'),
    "mixed without layers": ("modelopt_mixed", lambda t, c: declare(c, quantized_layers=None),
                             "MIXED_PRECISION comes without quantized_layers"),
    "pattern": ("compressed_nvfp4", lambda t, c: declare(c, ignore=["re:("]), "no regular expression"),
}


def changed(case, folder):
    name, change, _ = case
    stored, config = published.draw(name)[0], json.loads(json.dumps(published.config_of(name)))
    change(stored, config)
    return published.write(name, folder, stored, config)


@pytest.mark.parametrize("case", REFUSED_BY_HEADERS)
def test_refused_from_headers(plan, tmp_path, case):
    case = REFUSED_BY_HEADERS[case]
    result = plan(changed(case, tmp_path))
    assert result.returncode == 1 and result.stdout == ""
    assert case[2] in result.stderr and result.stderr.count("\n") == 1


def put(suffix, index, value):
    def change(stored, config):
        kind, array = stored[f"{UP}.{suffix}"]
        array = array.copy()
        array.reshape(-1)[index] = value
        stored[f"{UP}.{suffix}"] = (kind, array)
    return change


def reciprocal(suffix):
    def change(stored, config):
        kind, array = stored[f"{UP}.{suffix}"]
        stored[f"{UP}.{suffix}"] = (kind, (1 / array).astype("<f4"))
    return change


REFUSED_BY_BYTES = {
    "overall scale 0": ("modelopt_nvfp4", put("weight_scale_2", 0, 0), f"tensor {UP}.weight_scale_2 is 0;"),
    "overall scale negative": ("modelopt_nvfp4", put("weight_scale_2", 0, -1), f"tensor {UP}.weight_scale_2 is -1;"),
    "overall scale NaN": ("compressed_nvfp4", put("weight_global_scale", 0, np.nan), "weight_global_scale is nan;"),
    "overall scale infinite": ("compressed_nvfp4", put("weight_global_scale", 0, np.inf), "weight_global_scale is inf;"),
    "a divisor for a factor": ("modelopt_nvfp4", reciprocal("weight_scale_2"), "which looks like a divisor"),
    "a factor for a divisor": ("compressed_nvfp4", reciprocal("weight_global_scale"), "which looks like a factor"),
    "block scale NaN": ("modelopt_nvfp4", put("weight_scale", 3, 0x7F), f"tensor {UP}.weight_scale holds nan at 3"),
    "block scale negative": ("modelopt_nvfp4", put("weight_scale", 3, 0xB8), f"tensor {UP}.weight_scale holds -1 at 3"),
    "E8M0 NaN": ("compressed_mxfp4", put("weight_scale", 5, 255), f"tensor {UP}.weight_scale holds NaN at 5"),
    "E8M0 NaN of fp8": ("compressed_mxfp8", put("weight_scale", 5, 255), f"tensor {UP}.weight_scale holds nan at 5"),
    "fp8 scale infinite": ("fp8_block", put("weight_scale_inv", 2, np.inf), "weight_scale_inv holds inf at 2"),
    "shape said otherwise": ("compressed_int4", put("weight_shape", 1, 64), f"tensor {UP}.weight_shape says (224, 64)"),
    "order out of range": ("gptq_order", put("g_idx", 7, 4), f"tensor {UP}.g_idx has column 7 in group 4; there is no"),
    "order not declared": ("gptq", put("g_idx", 7, 1), f"tensor {UP}.g_idx has column 7 in group 1; the checkpoint decl"),
    "symmetric with zero points": ("gptq", put("qzeros", 0, 0), f"tensor {UP}.qzeros has zero points other than 7"),
}


@pytest.mark.parametrize("case", REFUSED_BY_BYTES)
def test_refused_when_loaded(lib, plan, tmp_path, case):
    case = REFUSED_BY_BYTES[case]
    folder = changed(case, tmp_path)
    assert plan(folder).returncode == 0  # which reads headers alone
    with pytest.raises(Refused) as refused:
        score(lib, folder, [1, 2, 3])
    assert case[2] in str(refused.value)


# ---- tensors without a use ------------------------------------------------------------------------------------------


def test_unused_tensors_are_named(lib, plan, tmp_path):
    stored = published.draw("modelopt_nvfp4")[0]
    for extra in ["model.layers.0.mlp.extra_proj.weight", "model.layers.0.mlp.more.weight", "a", "b",
                  "model.vision_tower.patch.weight", "model.layers.2.eh_proj.weight",
                  "model.layers.0.self_attn.rotary_emb.inv_freq"]:
        stored[extra] = ("F32", np.ones(4, "<f4"))
    folder = published.write("modelopt_nvfp4", tmp_path, stored)
    warning = ("4 tensors of the checkpoint are not used: model.layers.0.mlp.extra_proj.weight, "
               "model.layers.0.mlp.more.weight, a ...")
    text = plan(folder).stdout
    assert f"warning   {warning}\n" in text
    assert "unused    tensors: 1 of images and sound, 1 of multi-token prediction (MTP) layers\n" in text
    assert json.loads(plan(folder, "--json").stdout)["checkpoint"]["warnings"] == [warning]
    with Model(lib, folder) as model:  # what run and serve print when they start
        assert f"\nwarning: {warning}\n" in model.plan(PLAN_SHORT)


# ---- scales of the cache --------------------------------------------------------------------------------------------

K, V = 0.037, 0.011
SPELLINGS = ["self_attn.{0}_proj.{0}_scale", "self_attn.{0}_scale", "self_attn.attn.{0}_scale",
             "self_attn.qkv_proj.{0}_scale", "self_attn.{0}_cache.scale", "self_attn.{0}_proj.output_scale"]


def with_scales(folder, k=None, v=None, spelling=SPELLINGS[0], shape=(), kind="F32", **keys):
    """A checkpoint with scales for the cache, of each layer the same."""
    stored, config = published.draw("modelopt_nvfp4")[0], published.config_of("modelopt_nvfp4")
    config = {**config, "quantization_config": {**config["quantization_config"], **keys}}
    for layer in range(2):
        for side, value in [("k", k), ("v", v)]:
            if value is not None:
                stored[f"model.layers.{layer}.{spelling.format(side)}"] = published.floats(kind, np.full(shape, value))[0]
    return published.write("modelopt_nvfp4", folder, stored, config)


def fp8_logits(lib, folder, dtype="fp8"):
    return score(lib, folder, published.ids("modelopt_nvfp4"), kv_cache_dtype=dtype)


def test_cache_scales_by_all_their_names(lib, plan, tmp_path):
    without = fp8_logits(lib, with_scales(tmp_path / "none"))
    first = fp8_logits(lib, with_scales(tmp_path / "first", K, V))
    assert not np.array_equal(first, without)
    for i, spelling in enumerate(SPELLINGS[1:]):
        folder = with_scales(tmp_path / str(i), K, V, spelling, (1,))
        assert np.array_equal(fp8_logits(lib, folder), first), spelling
        assert "scales    of the cache for 2 layers in the checkpoint\n" in plan(folder, "--kv-cache-dtype", "fp8").stdout
    heads = with_scales(tmp_path / "heads", K, V, SPELLINGS[1], (2, 1, 1))
    assert np.array_equal(fp8_logits(lib, heads), first)
    assert fp8_logits(lib, with_scales(tmp_path / "half", K, V, kind="BF16")).shape == first.shape


def test_cache_scales_are_used_as_they_are(lib, tmp_path):
    """Within the range of its blocks any scale serves nvfp4; beyond, all is lost."""
    exact = fp8_logits(lib, with_scales(tmp_path / "none"), "float32")

    def error(name, scale):
        return np.abs(fp8_logits(lib, with_scales(tmp_path / name, scale, scale), "nvfp4") - exact).mean()

    usual = error("1", 1.0)
    assert 0.5 * usual < error("0.02", 0.02) < 1.5 * usual
    assert error("large", 1e4) > 2 * usual and error("small", 1e-5) > 2 * usual


def test_lone_cache_scales(lib, plan, tmp_path):
    k_alone = with_scales(tmp_path / "k", k=K)
    assert np.array_equal(fp8_logits(lib, k_alone), fp8_logits(lib, with_scales(tmp_path / "kk", K, K)))
    assert ("warning   model.layers.0.self_attn.k_proj.k_scale is there without a scale for values, in 2 layers: it "
            "serves both\n") in plan(k_alone).stdout
    older = with_scales(tmp_path / "older", k=K, spelling="self_attn.{0}v_scale")
    assert np.array_equal(fp8_logits(lib, older), fp8_logits(lib, k_alone))
    v_alone = with_scales(tmp_path / "v", v=V)
    assert np.array_equal(fp8_logits(lib, v_alone), fp8_logits(lib, with_scales(tmp_path / "1v", 1.0, V)))
    assert ("warning   model.layers.0.self_attn.v_proj.v_scale is there without a scale for keys, in 2 layers: keys are "
            "scaled by 1\n") in plan(v_alone).stdout


def test_missing_and_unused_cache_scales(lib, plan, tmp_path):
    declared = with_scales(tmp_path / "declared", kv_cache_scheme={"num_bits": 8, "type": "float", "dynamic": False})
    text = plan(declared).stdout
    assert "fp8_e4m3" in text and "formats   by auto: the checkpoint declares it for layers 0-1" in text and "has no scales (k_scale, v_scale) for it in 2 layers: 1 is used" in text
    unused = with_scales(tmp_path / "unused", K, V)
    assert ("scales    of the cache for 2 layers in the checkpoint, unused by 2 whose formats have none\n"
            in plan(unused).stdout)
    none = with_scales(tmp_path / "none")
    assert np.array_equal(fp8_logits(lib, unused, "bfloat16"), fp8_logits(lib, none, "bfloat16"))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_cache_scales_that_are_no_scales(lib, tmp_path, value):
    folder = with_scales(tmp_path, K, value)
    with pytest.raises(Refused) as refused:
        fp8_logits(lib, folder)
    assert f"tensor model.layers.0.self_attn.v_proj.v_scale is {value:g}; a scale of the cache must be" in str(refused.value)
    fp8_logits(lib, folder, "bfloat16")  # which has none


def test_cache_scales_of_another_shape_or_format(plan, tmp_path):
    three = plan(with_scales(tmp_path / "3", K, V, shape=(3,)))
    assert "is float32 of 3 values; a scale of the cache is one float" in three.stderr
    result = plan(with_scales(tmp_path / "e5m2", K, V), "--kv-cache-dtype", "fp8_e5m2")
    assert result.returncode == 1
    assert "the checkpoint's scales (model.layers.0.self_attn.k_proj.k_scale) are for fp8_e4m3" in result.stderr
