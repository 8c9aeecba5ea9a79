# SPDX-License-Identifier: Apache-2.0
"""Qwen3-Next and Qwen3.5: the ways their files lie, what is refused, and that nothing around a text changes its bits."""

import json
import pathlib
import subprocess
import sys

import gguf
import numpy as np
import pytest
import safetensors

from libnibble import Checkpoint, Library, Model
from test_latent import in_blocks

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import tiny  # noqa: E402

NAMES = ["qwen3_next", "qwen3_next_mixed", "qwen3_5", "qwen3_5_moe"]
PUBLISHED = {  # Qwen3-Next-80B-A3B
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "intermediate_size": 5120, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 512,
    "num_experts_per_tok": 10, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "full_attention_interval": 4,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_scaling": None, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262144, "vocab_size": 151936, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


@pytest.fixture(scope="module")
def lib(library):
    return Library(library)


def score(lib, path, ids, **options):
    with Model(lib, path, **{"kv_cache_dtype": "float32", "threads": 2, **options}) as model, model.sequence() as sequence:
        return sequence.score(ids)


def plan(nibble, path, *flags):
    return subprocess.run([nibble, "plan", str(path), *flags], capture_output=True, text=True, timeout=60, check=False)


# ---- the ways files lie ----------------------------------------------------------------------------------------------


def stacked(golden):
    """Experts as Qwen3.5 publishes them: gate and up of all in one tensor, down in another."""
    arrays, layers = {}, {}
    for tensor in golden["tensors"]:
        name, values = tensor["name"], tiny.values(golden, tensor)
        stem, _, rest = name.partition(".experts.")
        if not rest:
            arrays[name] = values
            continue
        number, word, _ = rest.split(".")
        layers.setdefault(stem, {}).setdefault(word, {})[int(number)] = values
    for stem, words in layers.items():
        gate, up, down = (np.stack([words[word][i] for i in sorted(words[word])]) for word in ("gate_proj", "up_proj", "down_proj"))
        arrays[f"{stem}.experts.gate_up_proj"] = np.concatenate([gate, up], axis=1)
        arrays[f"{stem}.experts.down_proj"] = down
    return arrays


def write_published(golden, folder):
    """Beside what sees and what guesses ahead, under another prefix, experts in stacks."""
    arrays = {name.replace("model.", "model.language_model.", 1): values for name, values in stacked(golden).items()}
    arrays["model.visual.patch_embed.proj.weight"] = arrays["mtp.fc.weight"] = np.zeros((4, 4), np.float32)
    folder.mkdir()
    tiny.write_arrays({name: ("float32", values.shape, values) for name, values in arrays.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_5_moe", "text_config": golden["config"]}))
    return folder


def check_logits(lib, golden, path):
    want = tiny.logits(golden)
    got = score(lib, path, golden["ids"])[golden["positions"]]
    error = np.abs(got - want).max() / np.abs(want).max()
    print(f"largest error {error:.1e} of the largest logit")
    assert error <= 1e-3


def test_qwen3_5_as_published(nibble, lib, tmp_path):
    golden = tiny.load("qwen3_5_moe")
    path = write_published(golden, tmp_path / "published")
    check_logits(lib, golden, path)
    result = plan(nibble, path)
    assert result.returncode == 0 and "multi-token prediction" in result.stdout and "images" in result.stdout and "not used" not in result.stdout


def test_stacked_experts_are_written_one_by_one(lib, tmp_path):
    golden = tiny.load("qwen3_5_moe")
    with Checkpoint(lib, write_published(golden, tmp_path / "published")) as checkpoint:
        (tmp_path / "bf16").mkdir()
        checkpoint.quantize(tmp_path / "bf16", "bf16")
    names = set(safetensors.safe_open(tmp_path / "bf16" / "model.safetensors", "np").keys())
    assert "model.language_model.layers.0.mlp.experts.7.up_proj.weight" in names and not any("gate_up" in name for name in names)
    check_logits(lib, golden, tmp_path / "bf16")


def test_first_ggufs_have_four_in_one(lib, tmp_path):
    """q, k, v and z of each key head, and the shared expert's gate as a vector."""
    golden = tiny.load("qwen3_next")
    config, path = golden["config"], tmp_path / "model.gguf"
    reader = gguf.GGUFReader(tiny.write_gguf(golden, tmp_path / "new.gguf"))
    writer = gguf.GGUFWriter(str(path), "qwen3next")
    tiny.add_metadata(writer, "qwen3next", config)
    tiny.add_vocabulary(writer, config["vocab_size"])
    fused = {tensor["name"].split(".")[2]: tensor for tensor in golden["tensors"] if "in_proj_qkvz" in tensor["name"]}
    for layer, tensor in fused.items():
        writer.add_tensor(f"blk.{layer}.ssm_in.weight", tiny.values(golden, tensor))
    for tensor in reader.tensors:
        if not tensor.name.endswith(("attn_qkv.weight", "attn_gate.weight")):
            data = tensor.data.reshape(-1) if "gate_inp_shexp" in tensor.name else tensor.data
            writer.add_tensor(tensor.name, np.array(data), raw_dtype=tensor.tensor_type)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    check_logits(lib, golden, path)


def test_native_fp8_is_cut_up_by_rows(lib, tmp_path, monkeypatch):
    """As Qwen3-Next is published in FP8: what is in one tensor is taken apart with its scales."""
    monkeypatch.setenv("NIBBLE_FEATURES", "none")
    golden = tiny.load("qwen3_next")
    stored, plain = {}, {}
    for tensor in golden["tensors"]:
        name, shape, values = tensor["name"], tensor["shape"], tiny.values(golden, tensor)
        if name.endswith(("proj.weight", "in_proj_qkvz.weight")):
            codes, scales, values = in_blocks(values)
            stored[name] = "float8_e4m3fn", shape, codes
            stored[f"{name}_scale_inv"] = "float32", scales.shape, scales
        plain[name] = "float32", shape, values.astype(np.float32)
    quantised = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                 "modules_to_not_convert": ["lm_head", "model.embed_tokens", *(tensor["name"].removesuffix(".weight") for tensor in golden["tensors"]
                                            if "in_proj_ba" in tensor["name"] or "mlp.gate." in tensor["name"] or "expert_gate" in tensor["name"])]}
    logits = []
    for folder, config, arrays in (("stored", {"quantization_config": quantised}, {**plain, **stored}), ("plain", {}, plain)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps({**golden["config"], **config}))
        tiny.write_arrays(arrays, tmp_path / folder / "model.safetensors")
        logits.append(score(lib, tmp_path / folder, golden["ids"]))
    error = np.abs(logits[0] - logits[1]).max() / np.abs(logits[1]).max()
    print(f"largest error {error:.1e} of the largest logit")
    assert error <= 1e-3


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, change, says", [
    ("qwen3_next", {"linear_num_value_heads": 3}, "3 heads with values of 24 and 2 with keys of 16"),
    ("qwen3_next", {"linear_key_head_dim": 300}, "linear_key_head_dim"), ("qwen3_next", {"linear_value_head_dim": 0}, "linear_value_head_dim"),
    ("qwen3_next", {"linear_conv_kernel_dim": 99}, "linear_conv_kernel_dim"), ("qwen3_next", {"linear_conv_kernel_dim": 3}, "conv1d.weight has shape (160, 1, 4)"),
    ("qwen3_next", {"linear_key_head_dim": 32}, "in_proj_qkvz"), ("qwen3_next", {"layer_types": ["mamba"] * 4}, "\"mamba\" for layer 0"),
    ("qwen3_next", {"layer_types": ["linear_attention"]}, "\"nothing\" for layer 1"), ("qwen3_next", {"hidden_act": "gelu"}, "hidden_act"),
    ("qwen3_next", {"shared_expert_intermediate_size": 32}, "shared_expert.gate_proj"), ("qwen3_5", {"intermediate_size": None}, "intermediate_size"),
    ("qwen3_5_moe", {"moe_intermediate_size": None, "intermediate_size": None}, "how wide its experts are"),
    ("qwen3_5_moe", {"num_experts": 0, "intermediate_size": None}, "neither experts"),
])
def test_configs_that_make_no_sense(nibble, tmp_path, name, change, says):
    golden = tiny.load(name)
    path = tiny.write_safetensors({**golden, "config": {**golden["config"], **change}}, tmp_path)
    result = plan(nibble, path)
    assert result.returncode == 1 and says in result.stderr, result.stdout + result.stderr


@pytest.mark.parametrize("name, without", [
    ("qwen3_next", "layers.0.linear_attn.A_log"), ("qwen3_next", "layers.2.linear_attn.in_proj_ba.weight"),
    ("qwen3_next", "layers.1.mlp.shared_expert_gate.weight"), ("qwen3_5", "layers.1.linear_attn.dt_bias"),
    ("qwen3_5", "layers.0.linear_attn.norm.weight"), ("qwen3_5", "layers.3.self_attn.q_norm.weight"),
])
def test_what_is_missing_is_named(nibble, tmp_path, name, without):
    golden = tiny.load(name)
    tensors = [tensor for tensor in golden["tensors"] if without not in tensor["name"]]
    result = plan(nibble, tiny.write_safetensors({**golden, "tensors": tensors}, tmp_path))
    assert result.returncode == 1 and f"{without} is missing" in result.stderr, result.stderr


def test_a_state_may_not_grow(lib, tmp_path):
    """A GGUF has what a state decays by, and that is negative."""
    golden = tiny.load("qwen3_5")
    path = tiny.write_gguf(golden, tmp_path / "model.gguf")
    reader = gguf.GGUFReader(path, "r+")
    next(tensor for tensor in reader.tensors if tensor.name == "blk.0.ssm_a").data[1] = 0.5
    reader.data.flush()
    with pytest.raises(Exception, match="blk.0.ssm_a.*would grow"):
        Model(lib, path)


# ---- plans and bits --------------------------------------------------------------------------------------------------


def test_published_shape_has_kernels_everywhere(nibble, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    built = subprocess.run([nibble, "env"], capture_output=True, text=True, check=True).stdout
    gpus = next(line.split()[1:] for line in built.splitlines() if line.startswith("build.cuda "))
    for device in ["cpu:ref", "cpu:avx2", "cpu:avx512", *(gpu for gpu in gpus if gpu.startswith("sm_"))]:
        result = plan(nibble, tmp_path, "--device", device)
        assert result.returncode == 0, result.stderr
        assert all(f" {op}_" in result.stdout for op in ("conv", "gated_delta", "attention", "experts")), result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_other_texts_change_no_bit(lib, tmp_path, name):
    golden = tiny.load(name)
    path = tiny.write_safetensors(golden, tmp_path)
    ids = golden["ids"]
    prompts = [ids[:70], ids[3:9], ids[:70] + ids[100:110], ids[40:41]]
    with Model(lib, path, max_model_len=256, threads=1) as model:
        alone = [model.generate([prompt], max_tokens=20, top_logprobs=2, scheduling={"no_prefix_cache": True})[0] for prompt in prompts]
    with Model(lib, path, max_model_len=256, threads=2, max_num_seqs=4, mamba_block_size=32) as model, model.scheduler() as scheduler:
        for again in range(2):  # the second time beginnings are known
            together = [scheduler.add(prompt, max_tokens=20, top_logprobs=2) for prompt in prompts]
            scheduler.run()
            assert [answer.tokens for answer in together] == [answer.tokens for answer in alone]
            assert [answer.top for answer in together] == [answer.top for answer in alone]
            assert again == 0 or [answer.usage["cached_tokens"] for answer in together] == [64, 0, 64, 0]
        ids = scheduler.add(prompts[0] + alone[0].tokens, max_tokens=1)  # a conversation goes on from its last whole block
        scheduler.run()
        assert ids.usage["cached_tokens"] == 64


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5"])
def test_blocks_of_states_change_no_bit(lib, tmp_path, name):
    golden = tiny.load(name)
    path = tiny.write_safetensors(golden, tmp_path)
    whole = score(lib, path, golden["ids"])
    for tokens in (16, 48, 128):
        assert np.array_equal(score(lib, path, golden["ids"], mamba_block_size=tokens), whole)
        assert np.array_equal(score(lib, path, golden["ids"], mamba_block_size=tokens, batch_tokens=16), whole)


def test_broken_rules_never_serve(lib, tmp_path, monkeypatch):
    monkeypatch.setenv("NIBBLE_FEATURES", "none")
    monkeypatch.setenv("NIBBLE_FAULT", "gated_delta_ref")
    with pytest.raises(Exception, match="gated_delta_ref"):
        Model(lib, tiny.write_safetensors(tiny.load("qwen3_5"), tmp_path))
