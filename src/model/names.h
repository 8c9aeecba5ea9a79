// SPDX-License-Identifier: Apache-2.0
// model/names.h: the names of weights in safetensors and GGUF.
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

// Names in a layer get the prefix "model.layers.N." or "blk.N."; others "model." or none; lm_head has none.
//    id               safetensors                      GGUF
// clang-format off
#define WEIGHTS(X)                                                                    \
    X(EMBED,           "embed_tokens",                  "token_embd")                 \
    X(FINAL_NORM,      "norm",                          "output_norm")                \
    X(HEAD,            "lm_head",                       "output")                     \
    X(ATTENTION_NORM,  "input_layernorm",               "attn_norm")                  \
    X(Q,               "self_attn.q_proj",              "attn_q")                     \
    X(K,               "self_attn.k_proj",              "attn_k")                     \
    X(V,               "self_attn.v_proj",              "attn_v")                     \
    X(O,               "self_attn.o_proj",              "attn_output")                \
    X(Q_NORM,          "self_attn.q_norm",              "attn_q_norm")                \
    X(K_NORM,          "self_attn.k_norm",              "attn_k_norm")                \
    X(Q_A,             "self_attn.q_a_proj",            "attn_q_a")                   \
    X(Q_A_NORM,        "self_attn.q_a_layernorm",       "attn_q_a_norm")              \
    X(Q_B,             "self_attn.q_b_proj",            "attn_q_b")                   \
    X(KV_A,            "self_attn.kv_a_proj_with_mqa",  "attn_kv_a_mqa")              \
    X(KV_A_NORM,       "self_attn.kv_a_layernorm",      "attn_kv_a_norm")             \
    X(KV_B,            "self_attn.kv_b_proj",           "attn_kv_b")                  \
    X(K_B,             "self_attn.k_b_proj",            "attn_k_b")                   \
    X(V_B,             "self_attn.v_b_proj",            "attn_v_b")                   \
    X(FFN_NORM,        "post_attention_layernorm",      "ffn_norm")                   \
    X(GATE,            "mlp.gate_proj",                 "ffn_gate")                   \
    X(UP,              "mlp.up_proj",                   "ffn_up")                     \
    X(DOWN,            "mlp.down_proj",                 "ffn_down")                   \
    X(POST_ATTENTION_NORM, "post_attention_layernorm",  "post_attention_norm")        \
    X(PRE_FFN_NORM,    "pre_feedforward_layernorm",     "ffn_norm")                   \
    X(POST_FFN_NORM,   "post_feedforward_layernorm",    "post_ffw_norm")              \
    X(QKV,             "self_attn.qkv_proj",            "attn_qkv")                   \
    X(GATE_UP,         "mlp.gate_up_proj",              "ffn_up")                     \
    X(SINKS,           "self_attn.sinks",               "attn_sinks")                 \
    X(ROUTER,          "mlp.gate",                      "ffn_gate_inp")               \
    X(EXPERTS_GATE,    "mlp.experts.*.gate_proj",       "ffn_gate_exps")              \
    X(EXPERTS_UP,      "mlp.experts.*.up_proj",         "ffn_up_exps")                \
    X(EXPERTS_DOWN,    "mlp.experts.*.down_proj",       "ffn_down_exps")              \
    X(ROUTER_BIAS,     "mlp.gate",                      "exp_probs_b")                \
    X(SHARED_GATE,     "mlp.shared_experts.gate_proj",  "ffn_gate_shexp")             \
    X(SHARED_UP,       "mlp.shared_experts.up_proj",    "ffn_up_shexp")               \
    X(SHARED_DOWN,     "mlp.shared_experts.down_proj",  "ffn_down_shexp")             \
    X(MIXTRAL_ROUTER,  "block_sparse_moe.gate",         "ffn_gate_inp")               \
    X(MIXTRAL_GATE,    "block_sparse_moe.experts.*.w1", "ffn_gate_exps")              \
    X(MIXTRAL_UP,      "block_sparse_moe.experts.*.w3", "ffn_up_exps")                \
    X(MIXTRAL_DOWN,    "block_sparse_moe.experts.*.w2", "ffn_down_exps")              \
    X(FUSED_GATE_UP,   "mlp.experts.gate_up_proj",      "ffn_gate_up_exps")           \
    X(FUSED_DOWN,      "mlp.experts.down_proj",         "ffn_down_exps")              \
    X(QWEN_SHARED_GATE, "mlp.shared_expert.gate_proj",  "ffn_gate_shexp")             \
    X(QWEN_SHARED_UP,  "mlp.shared_expert.up_proj",     "ffn_up_shexp")               \
    X(QWEN_SHARED_DOWN, "mlp.shared_expert.down_proj",  "ffn_down_shexp")             \
    X(QWEN_SHARED_SHARE, "mlp.shared_expert_gate",      "ffn_gate_inp_shexp")         \
    X(NARROW_DOWN,     "mixer.fc1_latent_proj",         "ffn_latent_down")            \
    X(NARROW_UP,       "mixer.fc2_latent_proj",         "ffn_latent_up")              \
    X(SCAN_IN,         "mixer.in_proj",                 "ssm_in")                     \
    X(SCAN_CONV,       "mixer.conv1d",                  "ssm_conv1d")                 \
    X(SCAN_DECAY,      "mixer.A_log",                   "ssm_a")                      \
    X(SCAN_SKIP,       "mixer.D",                       "ssm_d")                      \
    X(SCAN_TIME_BIAS,  "mixer.dt_bias",                 "ssm_dt")                     \
    X(SCAN_NORM,       "mixer.norm",                    "ssm_norm")                   \
    X(SCAN_OUT,        "mixer.out_proj",                "ssm_out")                    \
    X(DELTA_QKVZ,      "linear_attn.in_proj_qkvz",      "ssm_in")                     \
    X(DELTA_BA,        "linear_attn.in_proj_ba",        "ssm_ba")                     \
    X(DELTA_QKV,       "linear_attn.in_proj_qkv",       "attn_qkv")                   \
    X(DELTA_Z,         "linear_attn.in_proj_z",         "attn_gate")                  \
    X(DELTA_B,         "linear_attn.in_proj_b",         "ssm_beta")                   \
    X(DELTA_A,         "linear_attn.in_proj_a",         "ssm_alpha")                  \
    X(DELTA_CONV,      "linear_attn.conv1d",            "ssm_conv1d")                 \
    X(DELTA_DECAY,     "linear_attn.A_log",             "ssm_a")                      \
    X(DELTA_TIME_BIAS, "linear_attn.dt_bias",           "ssm_dt")                     \
    X(DELTA_NORM,      "linear_attn.norm",              "ssm_norm")                   \
    X(DELTA_OUT,       "linear_attn.out_proj",          "ssm_out")                    \
    X(GPT_OSS_ROUTER,  "mlp.router",                    "ffn_gate_inp")               \
    X(GPT_OSS_GATE_UP, "mlp.experts.gate_up_proj",      "ffn_gate_exps")              \
    X(GPT_OSS_DOWN,    "mlp.experts.down_proj",         "ffn_down_exps")
// clang-format on

enum weight_name {
#define X(id, ...) W_##id,
    WEIGHTS(X)
#undef X
        W_COUNT
};

#endif
