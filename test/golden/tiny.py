# SPDX-License-Identifier: Apache-2.0
"""Tiny random checkpoints whose logits are known.

A golden file NAME.json holds a config, the tensors' names and shapes, token ids and the logits that transformers
computed for them. The weights are in no file: they are drawn from (checkpoint, tensor) with uniform numbers of
numpy's legacy generator, whose stream is frozen, and nothing but exact IEEE operations after it, so that every
machine draws the same bits. make.py, which writes the golden files, and the tests, which write the checkpoints to
disk in the two containers, draw from here.
"""

import base64
import hashlib
import json
import math
import pathlib
import re

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors import TensorSpec, serialize_file

import tiny_delta
import tiny_scan

HERE = pathlib.Path(__file__).parent
SAFETENSORS_DTYPE = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

# Block formats are drawn as random bytes with the scales put in afterwards. For each: the root mean square of a random
# block at scale 1, where its float16 scale lies, and where its float16 offset lies with the multiple of the scale that
# keeps the mean near zero. The two FP4 formats have byte scales: where, how many, and the range they are drawn from.
BLOCK_SCALES = {
    "Q4_0": (4.64, 0, None), "Q5_0": (9.25, 0, None), "Q8_0": (73.9, 0, None),
    "Q4_1": (4.61, 0, (2, -7.5)), "Q5_1": (9.23, 0, (2, -15.5)),
    "Q2_K": (14.5, 80, (82, 1.5)), "Q3_K": (42.3, 108, None), "Q6_K": (1366.0, 208, None),
    "Q4_K": (252.0, 0, (2, 7.5)), "Q5_K": (504.0, 0, (2, 15.5)),
    "IQ4_NL": (68.4, 0, None), "IQ4_XS": (1265.0, 0, None),
}
BYTE_SCALES = {"MXFP4": (0, 1, 120, 123), "NVFP4": (0, 4, 0x20, 0x60)}
RECURRENT = ("qwen3_next", "qwen3_5")  # model types that begin so have layers with a gated delta rule
NVFP4_GLOBAL_SCALE = 1.0 / 256  # a tensor of its own in GGUF, multiplied after the product


def names():
    return sorted(path.stem for path in HERE.glob("*.json") if path.stem != "perplexity")


def load(name):
    return json.loads((HERE / f"{name}.json").read_text())


def logits(golden):
    """The known logits: (positions, vocabulary)."""
    numbers = np.frombuffer(base64.b64decode(golden["logits"]), dtype="<f4")
    return numbers.reshape(len(golden["positions"]), -1)


def text_config(golden):
    return golden["config"].get("text_config", golden["config"])


def spread(golden, name, shape):
    """Centre and standard deviation of a tensor: logits near 2, attention far from uniform, norms far from 1."""
    kind = name.rsplit(".", 2)[-2]
    if name.endswith("bias"):
        return 0.0, 0.5
    if name.endswith(".sinks"):
        return 0.0, 1.0
    if name.endswith(".A_log"):
        return -2.5, 1.0
    if name.endswith("linear_attn.conv1d.weight"):  # sums that mostly cancel would be of few bits in bfloat16
        return 0.5, 0.3
    if inputs_first(golden, name):
        return 0.0, 1.0 / math.sqrt(shape[1])
    if kind in ("q_norm", "k_norm"):
        return (0.4 if is_from_one(golden, name) else 1.4), 0.3
    if len(shape) == 1:
        return (0.0 if is_from_one(golden, name) else 1.0), 0.3
    gain = {"embed_tokens": 2.0, "embeddings": 2.0, "lm_head": 2.0, "q_proj": 1.4, "k_proj": 1.4, "qkv_proj": 1.4,
            "in_proj_qkv": 2.0, "in_proj_qkvz": 2.0, "gate": 2.0, "router": 2.0}.get(kind, 1.0)
    return 0.0, gain / math.sqrt(shape[-1])


def inputs_first(golden, name):
    """gpt-oss has the matrices of its experts as (experts, inputs, outputs); in block formats, outputs come first."""
    return (text_config(golden)["model_type"] == "gpt_oss"
            and name.endswith((".experts.gate_up_proj", ".experts.down_proj")))


def is_from_one(golden, name):
    """Norm weights that are kept as differences from 1."""
    model_type = text_config(golden)["model_type"]
    return (model_type.startswith("gemma")
            or model_type.startswith(RECURRENT) and not name.endswith("linear_attn.norm.weight"))


def generator(golden, name):
    digest = hashlib.sha256(f"{golden['name']}:{name}".encode()).digest()
    return np.random.RandomState(int.from_bytes(digest[:4], "little"))


def draw(golden, tensor):
    """A tensor's stored bytes, one row of them per row of the tensor."""
    random = generator(golden, tensor["name"])
    centre, deviation = spread(golden, tensor["name"], tensor["shape"])
    if tensor["type"] in SAFETENSORS_DTYPE:
        uniform = 2.0 * random.random_sample(tensor["shape"]) - 1.0
        numbers = (centre + deviation * math.sqrt(3.0) * uniform).astype(np.float32)
        return gguf.quants.quantize(numbers, Type[tensor["type"]]).view(np.uint8)
    experts, inputs, outputs = tensor["shape"] if inputs_first(golden, tensor["name"]) else (None, None, None)
    shape = [experts, outputs, inputs] if experts else tensor["shape"]
    return draw_blocks(random, tensor["type"], shape, deviation)


def draw_blocks(random, type_name, shape, deviation):
    block, block_bytes = gguf.GGML_QUANT_SIZES[Type[type_name]]
    count = math.prod(shape) // block
    blocks = np.frombuffer(random.bytes(count * block_bytes), np.uint8).reshape(count, block_bytes).copy()
    if type_name in BYTE_SCALES:
        at, scales, low, high = BYTE_SCALES[type_name]
        blocks[:, at:at + scales] = random.randint(low, high, size=(count, scales))
    else:
        rms, at, offset = BLOCK_SCALES[type_name]
        scale = (0.5 + random.random_sample((count, 1))) * (deviation / rms)
        blocks[:, at:at + 2] = scale.astype("<f2").view(np.uint8)
        if offset:
            blocks[:, offset[0]:offset[0] + 2] = (offset[1] * scale).astype("<f2").view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def values(golden, tensor):
    """A tensor's numbers in float32, exactly what its stored bytes mean."""
    numbers = gguf.quants.dequantize(draw(golden, tensor), Type[tensor["type"]])
    if inputs_first(golden, tensor["name"]) and tensor["type"] not in SAFETENSORS_DTYPE:
        numbers = numbers.swapaxes(1, 2)
    numbers = numbers.reshape(tensor["shape"])
    return numbers * np.float32(NVFP4_GLOBAL_SCALE) if tensor["type"] == "NVFP4" else numbers


# ---- safetensors ----------------------------------------------------------------------------------------------------


def write_safetensors(golden, folder, shards=1, config="config"):
    """A folder as save_pretrained leaves it; block formats, which safetensors does not know, become float32."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(golden[config], indent=2))
    files = ["model.safetensors"] if shards == 1 else [
        f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    weight_map = {}
    for i, file in enumerate(files):
        part = golden["tensors"][i::shards]
        write_shard(golden, part, folder / file)
        weight_map.update((tensor["name"], file) for tensor in part)
    if shards > 1:
        size = sum((folder / file).stat().st_size for file in files)
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return folder


def write_shard(golden, tensors, path):
    arrays = {}
    for tensor in tensors:
        dtype = SAFETENSORS_DTYPE.get(tensor["type"])
        arrays[tensor["name"]] = (dtype or "float32", tensor["shape"],
                                  draw(golden, tensor) if dtype else values(golden, tensor))
    write_arrays(arrays, path)


def write_arrays(arrays, path):
    """name: (dtype, shape, the bytes in any shape)"""
    data = {name: np.ascontiguousarray(array) for name, (_, _, array) in arrays.items()}
    specs = {name: TensorSpec(dtype=dtype, shape=list(shape), data_ptr=data[name].ctypes.data,
                              data_len=data[name].nbytes)
             for name, (dtype, shape, _) in arrays.items()}
    serialize_file(specs, str(path), {"format": "pt"})


def write_mxfp4(golden, folder):
    """As gpt-oss is published: blocks of 32 neighbours, the first of each two in the low nibble, and their scales."""
    folder = pathlib.Path(folder)
    config = {**golden["config"], "quantization_config": {
        "quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                            "model.embed_tokens", "lm_head"]}}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    arrays = {}
    for tensor in golden["tensors"]:
        name, stored = tensor["name"], draw(golden, tensor)
        if tensor["type"] != "MXFP4":
            arrays[name] = SAFETENSORS_DTYPE[tensor["type"]], tensor["shape"], stored
            continue
        blocks = stored.reshape(*stored.shape[:2], -1, 17)
        codes = np.concatenate([blocks[..., 1:] & 15, blocks[..., 1:] >> 4], axis=-1)
        pairs = codes[..., 0::2] | codes[..., 1::2] << 4
        arrays[f"{name}_blocks"] = "uint8", pairs.shape, pairs
        arrays[f"{name}_scales"] = "uint8", blocks.shape[:3], blocks[..., 0]
    write_arrays(arrays, folder / "model.safetensors")
    return folder


# ---- GGUF, as llama.cpp's converter writes it -----------------------------------------------------------------------

GGUF_ARCH = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
             "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3", "olmo2": "olmo2", "granite": "granite",
             "smollm3": "smollm3", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss",
             "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "qwen3_next": "qwen3next",
             "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe"}
INTERLEAVED = ("llama", "granite", "smollm3")  # whose rope pairs stand side by side


def write_gguf(golden, path):
    config = text_config(golden)
    has_rope = config["model_type"] != "nemotron_h"
    arch = GGUF_ARCH[config["model_type"]] if has_rope else tiny_scan.arch(config)
    writer = gguf.GGUFWriter(str(path), arch)
    add_metadata(writer, arch, config) if has_rope else tiny_scan.add_metadata(writer, config)
    add_vocabulary(writer, config["vocab_size"])
    rope = rope_parameters(config) if has_rope else {"rope_type": "none"}
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, head_dim(config)))
    if rope["rope_type"] == "longrope":
        for kind in ("long", "short"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))
    for name, array, type_name in gguf_tensors(golden):
        add_tensor(writer, golden, arch, name, array, type_name)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rope_parameters(config):
    """Those of the layers with full attention; the base of windowed ones is a constant that GGUF does not carry."""
    rope = config["rope_parameters"]
    return rope.get("full_attention", rope)


def add_metadata(writer, arch, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    if "intermediate_size" in config:
        writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(1 if arch == "deepseek2" else config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if arch == "deepseek2":
        add_latents(writer, config)
    elif "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if arch in INTERLEAVED:
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(head_dim(config))
    if config["model_type"].startswith(RECURRENT):
        tiny_delta.add_metadata(writer, config)
    if arch == "phi3":
        writer.add_rope_dimension_count(int(head_dim(config) * rope_parameters(config)["partial_rotary_factor"]))
    if arch in ("phi3", "gpt-oss"):
        writer.add_sliding_window(config["sliding_window"] or 0)
    if arch == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if "num_local_experts" in config or "num_experts" in config:
        writer.add_expert_count(config.get("num_local_experts") or config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if arch in ("qwen3moe", "gpt-oss", "qwen3next", "qwen35moe"):
        writer.add_expert_feed_forward_length(config.get("moe_intermediate_size") or config["intermediate_size"])
    if arch != "gemma2":
        add_rope(writer, rope_parameters(config))
    if arch in ("gemma2", "gemma3"):
        writer.add_sliding_window(config["sliding_window"])
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def add_latents(writer, config):
    """DeepSeek: heads as the cache has them, and as they are without latents; and how experts are chosen."""
    latent, rotary = config["kv_lora_rank"], config["qk_rope_head_dim"]
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(latent)
    writer.add_key_length(latent + rotary)
    writer.add_value_length(latent)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rotary)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_rope_dimension_count(rotary)
    writer.add_rope_scaling_yarn_log_mul(0.1 * config["rope_parameters"]["mscale_all_dim"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if config["model_type"] == "deepseek_v3":
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def add_rope(writer, rope):
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "longrope":
        factor, original = rope["factor"], rope["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(factor) / math.log(original)))
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


def llama3_divisors(rope, dim):
    """What each frequency is divided by: 1 for short wavelengths, the factor for long ones, a blend between."""
    original = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = original / (2 * np.pi) * rope["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 / ((1 - blend) / rope["factor"] + blend)).astype(np.float32)


def add_vocabulary(writer, size):
    """A byte-level BPE vocabulary: the 256 bytes, then pairs of neighbours, each with its merge."""
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    letters = [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]
    pairs = [(letters[i], letters[i + 1]) for i in range(size - 256)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(letters + [a + b for a, b in pairs])
    writer.add_token_types([gguf.TokenType.NORMAL] * size)
    writer.add_token_merges([f"{a} {b}" for a, b in pairs])
    writer.add_add_bos_token(False)


def gguf_tensors(golden):
    """Names, arrays and types: experts that were apart are one tensor; gate and up that were one are apart."""
    stacks = {}
    for tensor in golden["tensors"]:
        name, shape = tensor["name"].removeprefix("language_model."), tensor["shape"]
        array, type_name = draw(golden, tensor), tensor["type"]
        expert = re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name)
        if expert:
            stem = re.sub(r"^backbone(.*)\.mixer\.", r"model\1.mlp.", expert[1])
            stacks.setdefault((f"{stem}.{expert[3]}", type_name), {})[int(expert[2])] = array
            continue
        if name.endswith("kv_b_proj.weight"):
            yield from latents_apart(golden, tensor)
            continue
        if ".linear_attn." in name:
            for part, numbers, plain in tiny_delta.parts_of(text_config(golden), name, values(golden, tensor)):
                yield part, numbers if plain else encoded(numbers, type_name), type_name
            continue
        changed = tiny_scan.part_of(text_config(golden), name, values(golden, tensor))
        if changed:
            yield *changed, "F32"
            continue
        if len(shape) == 1 or name.endswith("_bias"):
            array, type_name = values(golden, tensor), "F32"
        elif inputs_first(golden, name) and type_name in SAFETENSORS_DTYPE:
            array = encoded(values(golden, tensor).swapaxes(1, 2), type_name)
        suffix = ".bias" if name.endswith("_bias") else ".weight"
        if ".experts.gate_up_proj" in name:
            stem = name.partition("gate_up_proj")[0]
            interleaved = text_config(golden)["model_type"] == "gpt_oss"
            gate, up = (array[:, 0::2], array[:, 1::2]) if interleaved else np.split(array, 2, axis=1)
            yield f"{stem}gate_proj{suffix}", np.ascontiguousarray(gate), type_name
            yield f"{stem}up_proj{suffix}", np.ascontiguousarray(up), type_name
        elif name.endswith("e_score_correction_bias"):
            yield name.replace("_bias", ".bias"), array, type_name
        elif ".experts.down_proj" in name or name.endswith(".sinks"):
            yield name.removesuffix("_bias") + suffix, array, type_name
        else:
            yield name, array, type_name
    for (name, type_name), arrays in stacks.items():
        yield name, np.stack([arrays[i] for i in sorted(arrays)]), type_name


def latents_apart(golden, tensor):
    """w_uk, transposed, and w_uv of MLA, a matrix for each head."""
    config = text_config(golden)
    nope_dim = config["qk_nope_head_dim"]
    heads = values(golden, tensor).reshape(-1, nope_dim + config["v_head_dim"], config["kv_lora_rank"])
    for word, part in ("k_b", heads[:, :nope_dim].swapaxes(1, 2)), ("v_b", heads[:, nope_dim:]):
        yield tensor["name"].replace("kv_b", word), encoded(part, tensor["type"]), tensor["type"]


def encoded(numbers, type_name):
    return gguf.quants.quantize(np.ascontiguousarray(numbers), Type[type_name]).view(np.uint8)


def add_tensor(writer, golden, arch, name, array, type_name):
    config = text_config(golden)
    arch_id = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arch)
    layers = config.get("num_hidden_layers") or len(config["layers_block_type"])
    gguf_name = gguf.get_tensor_name_map(arch_id, layers).get_name(name, (".weight", ".bias"))
    if gguf_name is None:
        return  # the vision tower
    if array.dtype == np.float32:
        if is_from_one(golden, name) and name.endswith("norm.weight"):
            array = array + np.float32(1)
        writer.add_tensor(gguf_name, array)
        return
    if arch in INTERLEAVED and name.endswith(("q_proj.weight", "k_proj.weight")):
        array = interleave_halves(array, head_dim(config))
    writer.add_tensor(gguf_name, array, raw_dtype=Type[type_name])
    if type_name == "NVFP4":
        writer.add_tensor(gguf_name.replace(".weight", ".scale"), np.array([NVFP4_GLOBAL_SCALE], np.float32))


def interleave_halves(rows, dim):
    """Rope pairs of a head stand side by side in this architecture's files: 0, d/2, 1, d/2 + 1 ..."""
    heads = rows.reshape(-1, 2, dim // 2, rows.shape[-1])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(rows.shape)
