# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp's converter makes of layers with a gated delta rule (Qwen3-Next and Qwen3.5)."""

import numpy as np


def add_metadata(writer, config):
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    if config["model_type"] == "qwen3_next":
        writer.add_full_attention_interval(config["layer_types"].index("full_attention") + 1)
    else:
        writer.add_array(f"{writer.arch}.attention.recurrent_layers",
                         [kind == "linear_attention" for kind in config["layer_types"]])
    rope = config["rope_parameters"]
    writer.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))
    if config["model_type"].startswith("qwen3_5"):
        writer.add_rope_dimension_sections([11, 11, 10, 0])
    if "num_experts" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def tiled(config, rows, each):
    """Qwen3.5: the value heads of a key head stand apart, those of all key heads take turns; along the first axis."""
    heads = config["linear_num_key_heads"]
    return rows.reshape(heads, -1, each, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def parts_of(config, name, values):
    """A tensor as its name, its numbers and whether they are kept in full; as several where it is taken apart."""
    k_dim, v_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
    keys = 2 * config["linear_num_key_heads"] * k_dim
    stem, _, word = name.removesuffix(".weight").rpartition(".")
    if word == "A_log":
        values = -np.exp(values)
    if word == "conv1d":
        values = values[:, 0]
    if word == "in_proj_qkvz":
        each = v_dim * config["linear_num_value_heads"] // config["linear_num_key_heads"]
        heads = values.reshape(config["linear_num_key_heads"], -1, values.shape[-1])
        q, k, v, z = (part.reshape(-1, values.shape[-1])
                      for part in np.split(heads, np.cumsum([k_dim, k_dim, each]), axis=1))
        yield f"{stem}.in_proj_qkv.weight", np.concatenate([q, k, v]), False
        yield f"{stem}.in_proj_z.weight", z, False
        return
    if config["model_type"].startswith("qwen3_5"):
        if word in ("in_proj_qkv", "conv1d"):
            values = np.concatenate([values[:keys], tiled(config, values[keys:], v_dim)])
        elif word == "in_proj_z":
            values = tiled(config, values, v_dim)
        elif word in ("in_proj_a", "in_proj_b", "A_log", "dt_bias"):
            values = tiled(config, values, 1)
        elif word == "out_proj":
            values = tiled(config, values.T, v_dim).T
    name = name.replace(".dt_bias", ".dt_proj.bias")
    yield name, np.ascontiguousarray(values), word in ("A_log", "dt_bias", "conv1d", "norm")
