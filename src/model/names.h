// SPDX-License-Identifier: Apache-2.0
// model/names.h: what a weight is called, in safetensors and in GGUF.
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

// Rows of a layer get "model.layers.N." or "blk.N." in front, the others "model." or nothing; lm_head stands alone.
//    id               safetensors                      GGUF
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
    X(FFN_NORM,        "post_attention_layernorm",      "ffn_norm")                   \
    X(GATE,            "mlp.gate_proj",                 "ffn_gate")                   \
    X(UP,              "mlp.up_proj",                   "ffn_up")                     \
    X(DOWN,            "mlp.down_proj",                 "ffn_down")                   \
    X(GEMMA_ATTENTION_POST_NORM, "post_attention_layernorm",   "post_attention_norm") \
    X(GEMMA_FFN_NORM,            "pre_feedforward_layernorm",  "ffn_norm")            \
    X(GEMMA_FFN_POST_NORM,       "post_feedforward_layernorm", "post_ffw_norm")

enum weight_name {
#define X(id, ...) W_##id,
    WEIGHTS(X)
#undef X
    W_COUNT
};

#endif
