# SPDX-License-Identifier: Apache-2.0
"""A model that is quick to ask even under a sanitizer: one layer of noise with the tokenizer and chat template of another."""

import gguf
import numpy as np

WIDTH, HEADS, KV_HEADS, CONTEXT = 64, 4, 2, 2048


def write(source, path, rename={}, **keys):
    """Writes the GGUF file `path` with the tokenizer of the GGUF file `source`, some of its tokens under other names, and more uint32 keys."""
    reader, writer = gguf.GGUFReader(source), gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            value = field.contents()
            if name == "tokenizer.ggml.tokens":
                value = [rename.get(token, token) for token in value]
            writer.add_key_value(name, value, *field.types[:2])
    for name, value in keys.items():
        writer.add_uint32(f"tokenizer.ggml.{name}", value)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    dice = np.random.default_rng(1)
    kv_width = WIDTH // HEADS * KV_HEADS
    rows = {"token_embd": len(reader.fields["tokenizer.ggml.tokens"].data), "blk.0.attn_k": kv_width, "blk.0.attn_v": kv_width,
            **dict.fromkeys(("blk.0.attn_q", "blk.0.attn_output", "blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down"), WIDTH)}
    for name, count in rows.items():
        writer.add_tensor(f"{name}.weight", (0.1 * dice.standard_normal((count, WIDTH))).astype(np.float16))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
