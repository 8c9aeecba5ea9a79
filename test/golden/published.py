# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints with quantised weights in every published layout, and what each of their numbers means.

Codes and scales are drawn from (checkpoint, tensor) as tiny.py draws weights; the layouts are written and taken apart
here in plain numpy and float64, by nobody's code but this. make_published.py has transformers compute the logits of the
weights so understood; the tests write the checkpoints and expect the same logits.
"""

import base64
import hashlib
import json
import math
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent / "published"
POSITIONS = [0, 1, 5, 16, 17, 31, 39]
TEXT_TOKENS = 40
VOCABULARY = 128

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    value = 2.0 ** -6 * mantissa / 8 if exponent == 0 else 2.0 ** (exponent - 7) * (1 + mantissa / 8)
    return -value if code & 128 else value


E4M3 = np.array([e4m3(code) for code in range(256)])


# ---- number formats of tensors: what is stored and what it means ----------------------------------------------------


def bf16(values):
    """Bits of the nearest bfloat16, and its value."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    bits = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def floats(kind, values):
    if kind == "BF16":
        bits, meant = bf16(values)
        return (kind, bits), meant
    stored = np.asarray(values, {"F32": "<f4", "F16": "<f2"}[kind])
    return (kind, stored), stored.astype(np.float64)


def per_block(values, rows, cols, block_rows, block_cols):
    return np.repeat(np.repeat(values, block_rows, 0), block_cols, 1)[:rows, :cols]


def about(random, shape, middle):
    """Scales around a size, over a factor of four."""
    return middle * 2.0 ** (2 * random.random_sample(shape) - 1)


# ---- the layouts: each returns tensors by suffix, and the values ----------------------------------------------------


def pack_pairs(codes):
    return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)


def nvfp4(random, rows, cols, size, codes="weight", overall="weight_scale_2", divides=False, kind="F32"):
    nibbles = random.randint(0, 16, (rows, cols)).astype(np.uint8)
    scales = random.randint(0x30, 0x48, (rows, cols // 16)).astype(np.uint8)
    factor = about(random, (), size / 5)
    stored, meant = floats(kind, [1 / factor if divides else factor])
    values = E2M1[nibbles] * np.repeat(E4M3[scales], 16, 1) * (1 / meant if divides else meant)
    shape = (1,) if divides else ()
    tensors = {codes: ("U8", pack_pairs(nibbles)), "weight_scale": ("F8_E4M3", scales),
               overall: (stored[0], stored[1].reshape(shape)),
               "input_global_scale" if divides else "input_scale": ("F32", np.full(shape, 0.01, "<f4"))}
    return tensors, values


def nvfp4_compressed(random, rows, cols, size):
    return nvfp4(random, rows, cols, size, "weight_packed", "weight_global_scale", True)


def mxfp4(random, rows, cols, size):
    nibbles = random.randint(0, 16, (rows, cols)).astype(np.uint8)
    middle = 127 + round(math.log2(size / 3))
    scales = random.randint(middle - 1, middle + 2, (rows, cols // 32)).astype(np.uint8)
    values = E2M1[nibbles] * np.repeat(2.0 ** (scales.astype(int) - 127), 32, 1)
    return {"weight_packed": ("U8", pack_pairs(nibbles)), "weight_scale": ("U8", scales)}, values


def e4m3_codes(random, shape):
    """All codes but NaN, mostly small."""
    codes = random.randint(0, 256, shape).astype(np.uint8)
    return np.where(codes & 127 == 127, 0, codes).astype(np.uint8)


def fp8(random, rows, cols, size, block=None, kind="F32", suffix="weight_scale", shape=None):
    """block: (rows, cols) that share a scale; None: all."""
    block_rows, block_cols = block or (rows, cols)
    codes = e4m3_codes(random, (rows, cols))
    lines, groups = -(-rows // block_rows), -(-cols // block_cols)
    rms = math.sqrt(np.mean(E4M3[np.arange(127)] ** 2))
    if kind == "E8M0":
        middle = 127 + round(math.log2(size / rms))
        scales = random.randint(middle - 1, middle + 2, (lines, groups)).astype(np.uint8)
        stored, meant = ("U8", scales), 2.0 ** (scales.astype(int) - 127)
    else:
        stored, meant = floats(kind, about(random, (lines, groups), size / rms))
    values = E4M3[codes] * per_block(meant, rows, cols, block_rows, block_cols)
    if shape:
        stored = (stored[0], stored[1].reshape(shape(lines, groups)))
    return {"weight": ("F8_E4M3", codes), suffix: stored}, values


def int8(random, rows, cols, size, block=None, kind="F32"):
    block_rows, block_cols = block or (rows, cols)
    codes = random.randint(-127, 128, (rows, cols)).astype(np.int8)
    stored, meant = floats(kind, about(random, (-(-rows // block_rows), -(-cols // block_cols)), size / 73))
    if block is None:
        stored = (stored[0], stored[1].reshape(1))
    return ({"weight": ("I8", codes), "weight_scale": stored},
            codes.astype(np.float64) * per_block(meant, rows, cols, block_rows, block_cols))


def pack_words(fields, bits, axis):
    """Unsigned fields, the first in the lowest bits of an int32, along an axis."""
    per = 32 // bits
    fields = np.moveaxis(np.asarray(fields, np.uint32), axis, -1)
    missing = -fields.shape[-1] % per
    fields = np.pad(fields, [(0, 0), (0, missing)]).reshape(fields.shape[0], -1, per)
    words = np.zeros(fields.shape[:2], np.uint32)
    for i in range(per):
        words |= fields[..., i] << np.uint32(bits * i)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view(np.int32)


def integers(random, rows, cols, size, bits, group, kind, zeros, ordered=False):
    """Codes, zero points, scales (by row and group), the group of each column, and the values."""
    groups = cols // group
    codes = random.randint(0, 2 ** bits, (rows, cols))
    points = (random.randint(2 ** bits // 4, 3 * 2 ** bits // 4, (rows, groups)) if zeros
              else np.full((rows, groups), 2 ** (bits - 1)))
    stored, meant = floats(kind, about(random, (rows, groups), size / (0.3 * 2 ** bits)))
    group_of = random.permutation(cols) // group if ordered else np.arange(cols) // group
    values = (codes - points[:, group_of]) * meant[:, group_of]
    return codes, points, stored, group_of.astype(np.int32), values


def packed(random, rows, cols, size, bits=4, group=32, kind="BF16", zeros=False, ordered=False):
    group = group or cols
    codes, points, scales, group_of, values = integers(random, rows, cols, size, bits, group, kind, zeros, ordered)
    tensors = {"weight_packed": ("I32", pack_words(codes, bits, 1)), "weight_scale": scales,
               "weight_shape": ("I64", np.array([rows, cols], "<i8"))}
    if zeros:
        tensors["weight_zero_point"] = ("I32", pack_words(points, bits, 0))
    if ordered:
        tensors["weight_g_idx"] = ("I32", group_of)
    return tensors, values


def gptq(random, rows, cols, size, bits=4, group=64, zeros=True, ordered=False, first_version=True):
    group = group or cols
    codes, points, scales, group_of, values = integers(random, rows, cols, size, bits, group, "F16", zeros, ordered)
    return {"qweight": ("I32", pack_words(codes.T, bits, 0)), "scales": ("F16", np.ascontiguousarray(scales[1].T)),
            "qzeros": ("I32", pack_words(points.T - first_version, bits, 1)), "g_idx": ("I32", group_of)}, values


def awq(random, rows, cols, size, group=64):
    codes, points, scales, _, values = integers(random, rows, cols, size, 4, group, "F16", True)
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # of eight neighbours, which one is in which nibble

    def pack(fields):  # (K or groups, N)
        mixed = fields.reshape(fields.shape[0], -1, 8)[..., order].reshape(fields.shape)
        return pack_words(mixed, 4, 1)

    return {"qweight": ("I32", pack(codes.T)), "qzeros": ("I32", pack(points.T)),
            "scales": ("F16", np.ascontiguousarray(scales[1].T))}, values


# ---- declarations ---------------------------------------------------------------------------------------------------


def modelopt(algorithm, **more):
    return {"quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"], **more}}


def compressed(form, weights, **more):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
                                    "config_groups": {"group_0": group}, "quantization_status": "compressed", **more}}


def weights(bits, kind, strategy, **more):
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False, **more}


def plain_layer_0(module):
    return module.startswith("model.layers.0.self_attn.")


MIXED = {f"language_model.model.layers.{layer}.{module}": {"quant_algo": algorithm, **more}
         for layer in range(2)
         for algorithm, more, modules in [("NVFP4", {"group_size": 16}, ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]),
                                          ("FP8", {}, ["self_attn.qkv_proj", "self_attn.o_proj"])]
         for module in modules}


def mixed(random, rows, cols, size, module):
    return (nvfp4 if ".mlp." in module else fp8)(random, rows, cols, size)


def two_formats(random, rows, cols, size, module):
    if ".mlp." in module:
        return packed(random, rows, cols, size, group=64)
    return fp8(random, rows, cols, size, (1, cols), "BF16")


TWO_GROUPS = {
    "group_0": {"targets": ["re:.*self_attn.*_proj$"], "weights": weights(8, "float", "channel"), "format": "float-quantized"},
    "group_1": {"targets": ["re:.*mlp.(gate|up|down)_proj"], "weights": weights(4, "int", "group", group_size=64),
                "format": "pack-quantized"},
    "group_2": {"targets": ["LlamaAttention"], "weights": weights(8, "float", "tensor"), "output_activations": {"num_bits": 8}},
}


def sizes(hidden, feed_forward):
    return {"hidden_size": hidden, "intermediate_size": feed_forward}


ODD = sizes(192, 224)  # no multiples of 128, nor all of 64
EVEN = sizes(256, 384)
EXPERTS = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 128, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
           **EVEN}


def router(module):
    return module.endswith("mlp.gate")


def row(**fields):
    return {"extra": {}, "plain": lambda module: False, **fields}


# name: config beyond the model's own, sizes, make(random, rows, cols, size), plain(module): left out
SCHEMES = {
    "modelopt_nvfp4": row(config=modelopt("NVFP4", group_size=16), sizes=EVEN, make=nvfp4),
    "modelopt_nvfp4_legacy": row(
        config={}, sizes=EVEN, make=nvfp4, plain=plain_layer_0,
        hf_quant={"producer": {"name": "modelopt"}, "quantization": {
            "quant_algo": "nvfp4", "kv_cache_quant_algo": None, "group_size": 16,
            "exclude_modules": ["lm_head", "model.layers.0.self_attn*"]}}),
    "modelopt_w4a16_nvfp4": row(config=modelopt("W4A16_NVFP4"), sizes=ODD,
                                make=lambda *a: nvfp4(*a, kind="BF16")),
    "modelopt_fp8": row(config=modelopt("FP8"), sizes=ODD, make=lambda *a: fp8(*a, shape=lambda n, k: ())),
    "modelopt_fp8_per_channel": row(
        config=modelopt("FP8_PER_CHANNEL_PER_TOKEN"), sizes=ODD,
        make=lambda r, n, k, s: fp8(r, n, k, s, (1, k), shape=lambda rows, _: (rows,))),
    "modelopt_fp8_pb_wo": row(config=modelopt("FP8_PB_WO"), sizes=EVEN,
                              make=lambda *a: fp8(*a, (128, 128), shape=lambda n, k: (n, 1, k, 1))),
    "modelopt_mxfp8": row(config=modelopt("MXFP8"), sizes=ODD, make=lambda *a: fp8(*a, (1, 32), "E8M0")),
    "modelopt_mixed": row(config=modelopt("MIXED_PRECISION", quantized_layers=MIXED), sizes=EVEN, make=mixed),
    "compressed_nvfp4": row(
        config=compressed("nvfp4-pack-quantized", weights(4, "float", "tensor_group", group_size=16),
                          ignore=["re:.*layers\\.0\\.self_attn\\..*", "lm_head"]),
        sizes=EVEN, make=nvfp4_compressed, plain=plain_layer_0),
    "compressed_mxfp4": row(config=compressed("mxfp4-pack-quantized", weights(4, "float", "group", group_size=32)),
                            sizes=ODD, make=mxfp4),
    "compressed_fp8_tensor": row(config=compressed("naive-quantized", weights(8, "float", "tensor")), sizes=ODD,
                                 make=lambda *a: fp8(*a, kind="BF16", shape=lambda n, k: (1,))),
    "compressed_fp8_channel": row(config=compressed("float-quantized", weights(8, "float", "channel")), sizes=ODD,
                                  make=lambda r, n, k, s: fp8(r, n, k, s, (1, k), "BF16")),
    "compressed_fp8_block": row(
        config=compressed("float-quantized", weights(8, "float", "block", block_structure=[128, 128])), sizes=ODD,
        make=lambda *a: fp8(*a, (128, 128), "F16")),
    "compressed_mxfp8": row(
        config=compressed("mxfp8-quantized", weights(8, "float", "group", group_size=32, scale_dtype="torch.uint8")),
        sizes=ODD, make=lambda *a: fp8(*a, (1, 32), "E8M0")),
    "compressed_int8_channel": row(config=compressed("int-quantized", weights(8, "int", "channel")), sizes=ODD,
                                   make=lambda r, n, k, s: int8(r, n, k, s, (1, k))),
    "compressed_int8_tensor": row(config=compressed("int-quantized", weights(8, "int", "tensor")), sizes=ODD,
                                  make=lambda *a: int8(*a, kind="BF16")),
    "compressed_int4": row(config=compressed("pack-quantized", weights(4, "int", "group", group_size=32)), sizes=ODD,
                           make=packed),
    "compressed_int4_zeros": row(
        config=compressed("pack-quantized", weights(4, "int", "group", group_size=128, symmetric=False)), sizes=EVEN,
        make=lambda *a: packed(*a, group=128, zeros=True)),
    "compressed_int4_float32": row(  # which no half can say
        config=compressed("pack-quantized", weights(4, "int", "group", group_size=64, symmetric=False)), sizes=EVEN,
        make=lambda *a: packed(*a, group=64, kind="F32", zeros=True)),
    "compressed_int4_channel": row(config=compressed("pack-quantized", weights(4, "int", "channel")), sizes=ODD,
                                   make=lambda *a: packed(*a, group=0)),
    "compressed_int4_order": row(
        config=compressed("pack-quantized", weights(4, "int", "group", group_size=64, actorder="group")), sizes=EVEN,
        make=lambda *a: packed(*a, group=64, ordered=True)),
    "compressed_int8_packed": row(config=compressed("pack-quantized", weights(8, "int", "channel")), sizes=ODD,
                                  make=lambda *a: packed(*a, bits=8, group=0)),
    "compressed_int8_zeros": row(
        config=compressed("pack-quantized", weights(8, "int", "group", group_size=32, symmetric=False)), sizes=ODD,
        make=lambda *a: packed(*a, bits=8, zeros=True)),
    "compressed_two_formats": row(config=compressed("mixed-precision", {}, config_groups=TWO_GROUPS), sizes=EVEN,
                                  make=two_formats),
    "fp8_block": row(
        config={"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                                        "weight_block_size": [128, 128]}},
        sizes=ODD, make=lambda *a: fp8(*a, (128, 128), suffix="weight_scale_inv")),
    "fp8_block_excluded": row(
        config={"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
                                        "weight_block_size": [64, 96],
                                        "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn"]}},
        sizes=ODD, make=lambda *a: fp8(*a, (64, 96), "BF16", "weight_scale_inv"), plain=plain_layer_0),
    "fp8_tensor": row(
        config={"quantization_config": {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}},
        sizes=ODD, make=lambda *a: fp8(*a, shape=lambda n, k: ())),
    "fbgemm_fp8": row(
        config={"quantization_config": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
                                        "modules_to_not_convert": ["lm_head"]}},
        sizes=ODD, make=lambda r, n, k, s: fp8(r, n, k, s, (1, k))),
    "awq": row(config={"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True,
                                               "version": "gemm", "modules_to_not_convert": None}},
               sizes=EVEN, make=awq),
    "gptq": row(config={"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False,
                                                "sym": True, "checkpoint_format": "gptq"}},
                sizes=EVEN, make=lambda *a: gptq(*a, zeros=False)),
    "gptq_zeros": row(config={"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128,
                                                      "desc_act": False, "sym": False}},
                      sizes=EVEN, make=lambda *a: gptq(*a, group=128)),
    "gptq_v2": row(config={"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": False,
                                                   "desc_act": False, "checkpoint_format": "gptq_v2"}},
                   sizes=EVEN, make=lambda *a: gptq(*a, group=0, first_version=False)),
    "gptq_order": row(config={"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64,
                                                      "desc_act": True, "sym": True}},
                      sizes=EVEN, make=lambda *a: gptq(*a, zeros=False, ordered=True)),
    "gptq_dynamic": row(
        config={"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": True,
                                        "dynamic": {"-:.*layers\\.0\\.self_attn": {}, "+:.*down_proj": {"bits": 8, "group_size": 32}}}},
        sizes=EVEN, plain=plain_layer_0, make=lambda r, n, k, s, module: gptq(
            r, n, k, s, zeros=False, **({"bits": 8, "group": 32} if "down_proj" in module else {}))),
    "modelopt_nvfp4_experts": row(config=modelopt("NVFP4", ignore=["lm_head", "model.layers.*.mlp.gate"]), sizes=EXPERTS,
                                  make=nvfp4, plain=router),
    "compressed_int4_experts": row(
        config=compressed("pack-quantized", weights(4, "int", "group", group_size=32), ignore=["lm_head", "re:.*mlp.gate$"]),
        sizes=EXPERTS, make=packed, plain=router),
    "fp8_block_experts": row(
        config={"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, sizes=EXPERTS,
        make=lambda *a: fp8(*a, (128, 128), suffix="weight_scale_inv"), plain=router),
}


# ---- checkpoints ----------------------------------------------------------------------------------------------------


def config_of(name):
    scheme = SCHEMES[name]
    base = dict(model_type="llama", architectures=["LlamaForCausalLM"], num_attention_heads=4, num_key_value_heads=2,
                head_dim=64, num_hidden_layers=2, vocab_size=VOCABULARY, max_position_embeddings=256, hidden_act="silu",
                tie_word_embeddings=False, rms_norm_eps=1e-5, torch_dtype="bfloat16", rope_theta=10000.0)
    return {**base, **scheme["sizes"], **scheme["config"]}


def generator(name, tensor):
    digest = hashlib.sha256(f"{name}:{tensor}".encode()).digest()
    return np.random.RandomState(int.from_bytes(digest[:4], "little"))


def ids(name):
    return generator(name, "ids").randint(0, VOCABULARY, TEXT_TOKENS).tolist()


def modules(config):
    """Every matrix: name, rows, cols, gain. Attention is mild, so that a small error stays one."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q, kv = config["num_attention_heads"] * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens", VOCABULARY, hidden, 2.0
    yield "lm_head", VOCABULARY, hidden, 2.0
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        yield from ((f"{at}.self_attn.{part}_proj", rows, cols, 1.0)
                    for part, rows, cols in [("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q)])
        if "num_experts" in config:
            inner = config["moe_intermediate_size"]
            yield f"{at}.mlp.gate", config["num_experts"], hidden, 1.0
        for mlp in [f"mlp.experts.{i}" for i in range(config.get("num_experts", 0))] or ["mlp"]:
            yield from ((f"{at}.{mlp}.{part}_proj", rows, cols, 1.0)
                        for part, rows, cols in [("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)])


def norms(config):
    for layer in range(config["num_hidden_layers"]):
        yield f"model.layers.{layer}.input_layernorm.weight", config["hidden_size"]
        yield f"model.layers.{layer}.post_attention_layernorm.weight", config["hidden_size"]
        if "num_experts" in config:
            yield from ((f"model.layers.{layer}.self_attn.{part}_norm.weight", config["head_dim"]) for part in "qk")
    yield "model.norm.weight", config["hidden_size"]


def draw(name):
    """What is stored, by tensor name: (type, array); and what the model's weights are, in float64."""
    scheme, config = SCHEMES[name], config_of(name)
    stored, values = {}, {}
    for module, rows, cols, gain in modules(config):
        random, size = generator(name, module), gain / math.sqrt(cols)
        if module in ("model.embed_tokens", "lm_head") or scheme["plain"](module):
            numbers = size * math.sqrt(3) * (2 * random.random_sample((rows, cols)) - 1)
            stored[f"{module}.weight"], values[f"{module}.weight"] = floats("BF16", numbers)
            continue
        takes_module = scheme["make"].__code__.co_varnames[4:5] == ("module",)
        tensors, values[f"{module}.weight"] = scheme["make"](random, rows, cols, size, *([module] if takes_module else []))
        stored.update({f"{module}.{suffix}": tensor for suffix, tensor in tensors.items()})
    for norm, width in norms(config):
        numbers = 1 + 0.3 * math.sqrt(3) * (2 * generator(name, norm).random_sample(width) - 1)
        stored[norm], values[norm] = floats("BF16", numbers)
    return stored, values


def write_safetensors(tensors, path):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write(name, folder, stored=None, config=None):
    """The checkpoint as published; parts of it may be others."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(draw(name)[0] if stored is None else stored, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config or config_of(name), indent=2))
    if "hf_quant" in SCHEMES[name]:
        (folder / "hf_quant_config.json").write_text(json.dumps(SCHEMES[name]["hf_quant"], indent=2))
    return folder


def logits(name):
    """The known logits: (positions, vocabulary)."""
    golden = json.loads((HERE / f"{name}.json").read_text())
    return np.frombuffer(base64.b64decode(golden["logits"]), "<f4").reshape(len(POSITIONS), VOCABULARY)
