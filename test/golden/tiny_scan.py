# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp's converter makes of layers with a state space (Nemotron-H)."""

import numpy as np


def has_experts(config):
    return "moe" in config["layers_block_type"]


def arch(config):
    return "nemotron_h_moe" if has_experts(config) else "nemotron_h"


def add_metadata(writer, config):
    kinds = config["layers_block_type"]
    width = config["moe_intermediate_size" if has_experts(config) else "intermediate_size"]
    writer.add_block_count(len(kinds))
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length([width if kind in ("mlp", "moe") else 0 for kind in kinds])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv([config["num_key_value_heads"] if kind == "full_attention" else 0 for kind in kinds])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_state_size(config["ssm_state_size"])
    writer.add_ssm_group_count(config["n_groups"])
    writer.add_ssm_inner_size(config["mamba_num_heads"] * config["mamba_head_dim"])
    writer.add_ssm_time_step_rank(config["mamba_num_heads"])
    if has_experts(config):
        add_experts(writer, config)


def add_experts(writer, config):
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    if config.get("moe_latent_size"):
        writer.add_moe_latent_size(config["moe_latent_size"])


def part_of(config, name, values):
    """A tensor that becomes another: its name and its numbers, which are kept in full; None: it stays as it is."""
    if name.endswith(".mixer.conv1d.weight"):
        return name, np.ascontiguousarray(values[:, 0])
    if name.endswith(".mixer.A_log"):
        return name, -np.exp(values).reshape(-1, 1)
    if name.endswith(".mixer.D"):
        return name, values.reshape(-1, 1)
    if name.endswith(".mixer.dt_bias"):
        return name.replace("dt_bias", "dt.bias"), values
    if name.endswith(".mixer.norm.weight"):
        return name, values.reshape(config["n_groups"], -1)
    return None
