# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files: python make.py [NAME...]; needs torch and transformers, the tests need neither.

Each variant is a config and the number format of its weights. transformers saves a model of that config, which gives
config.json and the tensors' names and shapes; tiny.py draws the weights; transformers reads the folder back in float32
and computes the logits. Before a file is written, two things are proven: the older spelling of the config means the
same, bit for bit, and each change in `bites` moves the logits by far more than the tests allow.
"""

import argparse
import base64
import copy
import json
import math
import pathlib
import re
import tempfile

import numpy as np
import safetensors
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, SiglipVisionConfig
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

import tiny

TEXT_TOKENS = 130
POSITIONS = [0, 1, 2, 3, 7, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 63, 64, 65, 80, 96, 112, 127, 128, 129]
IDS_END = 300  # ids above are drawn by nobody; a multimodal vocabulary has its image tokens there
BITE_MIN = 0.03  # least change of the logits, relative to the largest

LOCAL_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
LEGACY_QUANTS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16"]
K_QUANTS = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]


def llama(hidden, heads, kv_heads, head_dim, **more):
    base = dict(model_type="llama", hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads,
                head_dim=head_dim, num_hidden_layers=3, intermediate_size=160, vocab_size=320,
                max_position_embeddings=512, tie_word_embeddings=False, rms_norm_eps=1e-5)
    return {**base, **more}


def qwen2(**more):
    config = llama(128, 2, 1, 64, model_type="qwen2", sliding_window=24, max_window_layers=1, **more)
    del config["head_dim"]
    return config


def gemma(model_type, **more):
    return {**llama(64, 2, 1, 64, model_type=model_type, tie_word_embeddings=True, rms_norm_eps=1e-6), **more}


def deepseek(model_type, **more):
    base = llama(64, 4, 4, None, model_type=model_type, rms_norm_eps=1e-6, qk_nope_head_dim=32, v_head_dim=48,
                 n_shared_experts=2, num_experts_per_tok=3, moe_intermediate_size=32, first_k_dense_replace=1)
    del base["head_dim"]
    return {**base, **more}


def qwen_next(model_type, **more):
    """Of four layers, three have a gated delta rule."""
    return {**llama(64, 4, 2, 32, model_type=model_type, num_hidden_layers=4, rms_norm_eps=1e-6,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
                    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=24,
                    linear_conv_kernel_dim=4), **more}


def qwen_experts(**more):
    return dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48, **more)


def nemotron_h(kinds, **more):
    """A letter for each layer: state space, attention, feed forward or experts."""
    words = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
    return dict(model_type="nemotron_h", layers_block_type=[words[kind] for kind in kinds], hidden_size=64,
                vocab_size=320, max_position_embeddings=512, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                intermediate_size=96, mamba_num_heads=6, mamba_head_dim=24, n_groups=2, ssm_state_size=16,
                chunk_size=32, **more)


def deepseek_yarn(mscale, mscale_all_dim):
    return {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64,
            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": mscale, "mscale_all_dim": mscale_all_dim}


def moe(model_type, **more):
    return llama(64, 4, 2, 32, model_type=model_type, num_experts_per_tok=2, **more)


def gpt_oss(**more):
    return moe("gpt_oss", num_local_experts=6, sliding_window=24, intermediate_size=64, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64,
        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}, **more)


def phi3(original, **more):
    config = llama(128, 4, 2, None, model_type="phi3", pad_token_id=0, original_max_position_embeddings=original,
                   rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                                    "factor": 512 / original, "original_max_position_embeddings": original,
                                    "short_factor": [1.0 + 0.05 * i for i in range(12)],
                                    "long_factor": [1.0 + 0.9 * i for i in range(12)]}, **more)
    del config["head_dim"]
    return config


def gemma3_rope(full):
    return {"full_attention": {"rope_theta": 1000000.0, **full}, "sliding_attention": LOCAL_ROPE}


# name: config, weights (one type, or several that take turns), containers, bites
VARIANTS = {
    "llama": dict(
        config=llama(128, 2, 2, 64), types=["F32"],
        bites=[{"rms_norm_eps": 0.1}, {"rope_parameters.rope_theta": 500.0}]),
    "llama_llama3": dict(
        config=llama(128, 4, 2, 64, tie_word_embeddings=True, rope_parameters={
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
        types=["BF16"], bites=[{"rope_parameters.rope_type": "default"}, {"rope_parameters.low_freq_factor": 2.0}]),
    "llama_linear": dict(
        config=llama(96, 2, 1, 128, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
        types=["F16"], bites=[{"rope_parameters.factor": 1.0}]),
    "llama_yarn": dict(
        config=llama(128, 4, 1, 32, max_position_embeddings=256, rope_parameters={
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 32,
            "beta_fast": 4.0, "beta_slow": 0.5}),
        types=["BF16"], bites=[{"rope_parameters.rope_type": "linear"}, {"rope_parameters.attention_factor": 1.0},
                               {"rope_parameters.beta_fast": 32.0, "rope_parameters.beta_slow": 1.0}]),
    "llama_legacy_quants": dict(
        config=llama(256, 4, 2, 64, intermediate_size=320), types=LEGACY_QUANTS, containers=["gguf"]),
    "llama_k_quants": dict(
        config=llama(256, 4, 2, 64, intermediate_size=512), types=K_QUANTS, containers=["gguf"]),
    "llama_fp4": dict(
        config=llama(256, 4, 2, 64, intermediate_size=512), types=["MXFP4", "NVFP4"], containers=["gguf"]),
    "mistral": dict(
        config=llama(128, 2, 1, 128, model_type="mistral", sliding_window=None), types=["BF16"]),
    "mistral_window": dict(
        config=llama(128, 4, 2, 64, model_type="mistral", sliding_window=32), types=["BF16"],
        containers=["safetensors"], bites=[{"sliding_window": None}, {"sliding_window": 31}]),
    "qwen2": dict(
        config=qwen2(tie_word_embeddings=True), types=["BF16"],
        bites=[{"use_sliding_window": True, "sliding_window": 24, "layer_types": None}]),
    "qwen2_window": dict(
        config=qwen2(use_sliding_window=True), types=["F32"], containers=["safetensors"],
        bites=[{"layer_types": ["full_attention"] * 3}, {"layer_types": ["sliding_attention"] * 3}]),
    "qwen3": dict(
        config=llama(64, 2, 1, 128, model_type="qwen3", tie_word_embeddings=True), types=["BF16"]),
    "gemma2": dict(
        config=gemma("gemma2", num_hidden_layers=4, query_pre_attn_scalar=64, sliding_window=24,
                     attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
        types=["BF16"], bites=[{"attn_logit_softcapping": None}, {"final_logit_softcapping": None},
                               {"sliding_window": 25}, {"layer_types": ["full_attention"] * 4},
                               {"layer_types": ["sliding_attention"] * 4}]),
    "gemma2_scale": dict(
        config=gemma("gemma2", query_pre_attn_scalar=24, sliding_window=16), types=["F32"], containers=["safetensors"],
        bites=[{"query_pre_attn_scalar": 64}]),
    "gemma3": dict(
        config=gemma("gemma3_text", num_hidden_layers=7, query_pre_attn_scalar=64, sliding_window=24,
                     rope_parameters=gemma3_rope({"rope_type": "default"})),
        types=["BF16"], bites=[{"sliding_window": 25}, {"layer_types": ["sliding_attention"] * 7},
                               {"rope_parameters.full_attention.rope_theta": 10000.0},
                               {"rope_parameters.sliding_attention.rope_theta": 1000000.0}]),
    "gemma3_linear": dict(
        config=gemma("gemma3_text", head_dim=128, num_hidden_layers=5, query_pre_attn_scalar=168, sliding_window=16,
                     sliding_window_pattern=3, rope_parameters=gemma3_rope({"rope_type": "linear", "factor": 8.0})),
        types=["F32"], containers=["safetensors"],
        bites=[{"rope_parameters.full_attention.factor": 1.0}, {"query_pre_attn_scalar": 128}]),
    "deepseek_v2": dict(
        config=deepseek("deepseek_v2", q_lora_rank=None, kv_lora_rank=512, qk_rope_head_dim=64, n_routed_experts=8,
                        rope_parameters=deepseek_yarn(0.707, 0.707)),
        types=["BF16"], bites=[{"rope_parameters.mscale_all_dim": 0.0}, {"num_experts_per_tok": 2}]),
    "deepseek_v2_groups": dict(
        config=deepseek("deepseek_v2", q_lora_rank=48, kv_lora_rank=96, qk_rope_head_dim=32, n_routed_experts=16,
                        topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=4.0,
                        rope_parameters=deepseek_yarn(1.0, 0.5)),
        types=["F32"], containers=["safetensors"],
        bites=[{"rope_parameters.mscale": 0.5}, {"topk_method": "greedy"}, {"topk_group": 1},
               {"routed_scaling_factor": 1.0}]),
    "deepseek_v3": dict(
        config=deepseek("deepseek_v3", q_lora_rank=48, kv_lora_rank=64, qk_rope_head_dim=16, n_routed_experts=16,
                        n_group=4, topk_group=2, num_experts_per_tok=4, routed_scaling_factor=2.5,
                        rope_parameters=deepseek_yarn(1.0, 1.0)),
        types=["BF16"], bites=[{"norm_topk_prob": False}, {"n_group": 1, "topk_group": 1}, {"n_group": 8},
                               {"rope_interleave": False}, {"routed_scaling_factor": 1.0}]),
    "qwen3_next": dict(
        config=qwen_next("qwen3_next", **qwen_experts(norm_topk_prob=True)), types=["BF16"],
        bites=[{"rope_parameters.partial_rotary_factor": 1.0}, {"norm_topk_prob": False}, {"num_experts_per_tok": 1}]),
    "qwen3_next_mixed": dict(
        config=qwen_next("qwen3_next", **qwen_experts(norm_topk_prob=False), full_attention_interval=2,
                         mlp_only_layers=[1], linear_num_key_heads=3, linear_num_value_heads=3,
                         linear_conv_kernel_dim=3), types=["F32"], containers=["safetensors"],
        bites=[{"norm_topk_prob": True}]),
    "qwen3_5": dict(
        config=qwen_next("qwen3_5_text", linear_num_value_heads=6, linear_key_head_dim=40, linear_value_head_dim=32,
                         tie_word_embeddings=True), types=["BF16"]),
    "qwen3_5_moe": dict(
        config=qwen_next("qwen3_5_moe_text", **qwen_experts()), types=["BF16"]),
    "nemotron_h": dict(
        config=nemotron_h("M-M*-M"), types=["BF16"],
        bites=[{"layer_norm_epsilon": 0.1}]),
    "nemotron_h_bias": dict(  # on everything that may have one, and a shorter convolution
        config=nemotron_h("*-MM", conv_kernel=3, use_bias=True, mlp_bias=True, use_conv_bias=False), types=["F32"],
        containers=["safetensors"]),
    "nemotron_h_moe": dict(
        config=nemotron_h("MEM*E", n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
                          moe_shared_expert_intermediate_size=48, n_group=4, topk_group=2, routed_scaling_factor=2.5),
        types=["BF16"], bites=[{"norm_topk_prob": False}, {"topk_group": 4}, {"routed_scaling_factor": 1.0}]),
    "nemotron_h_narrow": dict(  # experts on fewer channels than the stream has
        config=nemotron_h("ME*E", n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=64,
                          moe_shared_expert_intermediate_size=32, moe_latent_size=32), types=["F32"],
        bites=[{"num_experts_per_tok": 1}]),
    "phi3": dict(
        config=phi3(64), types=["BF16"],
        bites=[{"rope_parameters.long_factor": [1.0] * 12}, {"rope_parameters.attention_factor": 1.0}]),
    "phi3_short": dict(
        config=phi3(192, sliding_window=32), types=["F32"], options={"max_model_len": 192},
        bites=[{"rope_parameters.short_factor": [2.0] * 12}, {"sliding_window": 31}]),
    "olmo2": dict(config=llama(128, 4, 2, 32, model_type="olmo2", pad_token_id=0), types=["BF16"]),
    "granite": dict(
        config=llama(128, 4, 2, 32, model_type="granite", embedding_multiplier=3.0, attention_multiplier=0.1,
                     residual_multiplier=0.4, logits_scaling=2.0, tie_word_embeddings=True),
        types=["BF16"], bites=[{"embedding_multiplier": 1.0}, {"attention_multiplier": 0.2},
                               {"residual_multiplier": 1.0}, {"logits_scaling": 1.0}]),
    "smollm3": dict(
        config=llama(128, 4, 2, 32, model_type="smollm3", num_hidden_layers=5, pad_token_id=0,
                     tie_word_embeddings=True),
        types=["BF16"], bites=[{"no_rope_layers": [1] * 5}, {"no_rope_layers": [0] * 5}]),
    "mixtral": dict(
        config=moe("mixtral", num_local_experts=6, intermediate_size=96), types=["BF16"],
        bites=[{"num_experts_per_tok": 1}, {"num_experts_per_tok": 3}]),
    "mixtral_quants": dict(  # all experts are chosen: rounded activations cannot choose others
        config={**moe("mixtral", num_local_experts=3, intermediate_size=256), "num_experts_per_tok": 3},
        containers=["gguf"], types=["Q4_0", "Q8_0", "Q5_1"]),
    "qwen3_moe": dict(
        config=moe("qwen3_moe", num_experts=8, moe_intermediate_size=48, norm_topk_prob=True, mlp_only_layers=[1]),
        types=["BF16"], containers=["safetensors"], bites=[{"norm_topk_prob": False}, {"num_experts_per_tok": 1}]),
    "qwen3_moe_plain": dict(
        config=moe("qwen3_moe", num_experts=8, moe_intermediate_size=48, norm_topk_prob=True), types=["F32"]),
    "qwen3_moe_shares": dict(
        config=moe("qwen3_moe", num_experts=12, moe_intermediate_size=32, norm_topk_prob=False), types=["F32"],
        containers=["safetensors"], bites=[{"norm_topk_prob": True}]),
    "gpt_oss": dict(
        config=gpt_oss(num_hidden_layers=4), types=["BF16"],
        bites=[{"sliding_window": 25}, {"layer_types": ["full_attention"] * 4}, {"rope_parameters.truncate": True},
               {"swiglu_limit": 1.0}, {"num_experts_per_tok": 1}]),
    "gpt_oss_mxfp4": dict(
        config=gpt_oss(num_hidden_layers=2), types=["BF16"], experts="MXFP4", containers=["mxfp4", "gguf"]),
    "gemma3_multimodal": dict(
        config=gemma("gemma3_text", head_dim=256, num_hidden_layers=7, query_pre_attn_scalar=256, sliding_window=16,
                     rope_parameters=gemma3_rope({"rope_type": "linear", "factor": 8.0})),
        types=["BF16"], multimodal=True, bites=[{"text_config.rope_parameters.full_attention.factor": 1.0}]),
}


def model_of(config, multimodal):
    config = copy.deepcopy(config)
    text = AutoConfig.for_model(config.pop("model_type"), **config)
    if not multimodal:
        return AutoModelForCausalLM.from_config(text)
    vision = SiglipVisionConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                                image_size=16, patch_size=8)
    return Gemma3ForConditionalGeneration(Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=1, boi_token_index=317, eoi_token_index=318,
        image_token_index=319))


def saved(model, types, experts):
    """config.json and the tensors as save_pretrained writes them.

    Of several types the embedding has the first, the other matrices take turns (all of one name alike), and the rest
    is F32, routers too. `experts`: the type of those that are one tensor.
    """
    dtype = {"F16": torch.float16, "BF16": torch.bfloat16}.get(types[0] if len(types) == 1 else "F32", torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        model.to(dtype).save_pretrained(folder)
        config = json.loads(pathlib.Path(folder, "config.json").read_text())
        with safetensors.safe_open(f"{folder}/model.safetensors", "np") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
    tensors, turns = [], {}
    for name, shape in shapes.items():
        takes_turn = len(shape) > 1 and "embed_tokens" not in name
        turn = turns.setdefault(re.sub(r"experts\.\d+", "experts", name), len(turns)) if takes_turn else 0
        type_name = types[turn % len(types)]
        plain = len(shape) == 1 or name.endswith("moe.gate.weight")
        if (len(types) > 1 and plain) or name.endswith("e_score_correction_bias"):
            type_name = "F32"
        if experts and tiny.inputs_first({"config": config}, name):
            type_name = experts
        tensors.append({"name": name, "shape": shape, "type": type_name})
    return config, tensors


def old_spelling(config):
    """The config as it was written before rope_parameters, dtype and layer_types."""
    old = copy.deepcopy(config)
    if "text_config" in old:
        defaults = AutoConfig.for_model(old["text_config"]["model_type"]).to_dict()
        text = old_spelling(old["text_config"])
        defaults.update(rope_theta=1000000.0, rope_local_base_freq=10000.0, sliding_window_pattern=6)
        keep = {"model_type", "rope_scaling"}
        old["text_config"] = {key: value for key, value in text.items() if key in keep or defaults.get(key) != value}
    old["torch_dtype"] = old.pop("dtype", None)
    types = old.pop("layer_types", None)
    if old["model_type"].startswith(tiny.RECURRENT):
        old["full_attention_interval"] = types.index("full_attention") + 1
    if old["model_type"] == "nemotron_h":
        letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
        kinds = old.pop("layers_block_type")
        old.update(num_hidden_layers=len(kinds), hybrid_override_pattern="".join(letters[kind] for kind in kinds),
                   attention_head_dim=old["head_dim"], time_step_limit=[0.0, math.inf])
    if old.get("use_sliding_window") is False:
        old["sliding_window"] = 24  # published configs name a window that is not used
    if "_sliding_window_pattern" in old:
        old["sliding_window_pattern"] = old.pop("_sliding_window_pattern")
    if old["model_type"] == "llama" and old["head_dim"] * old["num_attention_heads"] == old["hidden_size"]:
        del old["head_dim"]
    rope = old.pop("rope_parameters", None)
    if rope and "full_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if rope:
        old["rope_theta"] = rope.pop("rope_theta")
        if old["model_type"].startswith(tiny.RECURRENT):
            old["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        if old["model_type"] == "phi3":
            old["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
            del rope["factor"], rope["original_max_position_embeddings"]
        if rope["rope_type"] in ("yarn", "longrope"):
            rope["type"] = rope.pop("rope_type")
        old["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    return old


def changed(config, change):
    config = copy.deepcopy(config)
    for path, value in change.items():
        *parents, key = path.split(".")
        place = config
        for parent in parents:
            place = place[parent]
        place[key] = value
    return config


def run(golden, config_key="config"):
    """Logits of every position, computed by transformers from the folder that tiny.py writes."""
    with tempfile.TemporaryDirectory() as folder:
        tiny.write_safetensors(golden, folder, config=config_key)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], (golden["name"], key, info[key])
    with torch.no_grad():
        return model(input_ids=torch.tensor([golden["ids"]])).logits[0].numpy()


def largest_change(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


def make(name, variant):
    config, tensors = saved(model_of(variant["config"], variant.get("multimodal")), variant["types"],
                            variant.get("experts"))
    golden = {
        "name": name,
        "made_with": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]},
        "containers": variant.get("containers", ["safetensors", "gguf"]),
        "options": variant.get("options", {}),
        "config": config,
        "config_old": old_spelling(config),
        "tensors": tensors,
        "ids": tiny.generator({"name": name}, "ids").randint(0, IDS_END, TEXT_TOKENS).tolist(),
        "positions": POSITIONS,
    }
    logits = run(golden)
    assert np.array_equal(logits, run(golden, "config_old")), f"{name}: the old spelling means something else"
    for change in variant.get("bites", []):
        by = largest_change(run({**golden, "config": changed(config, change)}), logits)
        print(f"  {change} changes logits by {by:.3f}")
        assert by > BITE_MIN, f"{name}: {change} hardly matters"
    golden["logits"] = base64.b64encode(logits[POSITIONS].astype("<f4").tobytes()).decode()
    (tiny.HERE / f"{name}.json").write_text(dump(golden))
    print(f"{name}: logits of deviation {logits.std():.2f}, {np.abs(logits).max():.2f} at most")


def dump(golden):
    """Configs spread out to be read; ids and tensors one to a line at most."""
    lines = [f' "{key}": {json.dumps(value, indent=2 if key.startswith("config") else None)}'
             for key, value in golden.items() if key != "tensors"]
    tensors = ",\n".join(f"  {json.dumps(tensor)}" for tensor in golden["tensors"])
    return "{\n" + ",\n".join([*lines, f' "tensors": [\n{tensors}\n ]']) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="variants to make; default: all")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in parser.parse_args().names or VARIANTS:
        make(name, VARIANTS[name])


if __name__ == "__main__":
    main()
