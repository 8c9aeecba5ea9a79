# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint in the shape of an 8B Llama whose weights are random, to measure with.

    gpu_model.py bf16|NVFP4|Q4_0 PATH [--layers N]

bf16 is a folder with safetensors, the others are GGUF files. The weights repeat one block of random numbers, so that 16 GB
take seconds; what a model of noise says means nothing, how long it takes does.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import struct

import numpy as np

HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY, CONTEXT = 4096, 14336, 32, 8, 128, 128256, 131072
BLOCK_BYTES = 1 << 28  # of random numbers
CHUNK_BYTES = 576 << 17  # of one write: a multiple of every format's block, as are the starts
GGUF_ALIGNMENT = 32
GGUF_TYPES = {"F32": 0, "Q4_0": 2, "BF16": 30, "NVFP4": 40}
BLOCKS = {"F32": (1, 4), "BF16": (1, 2), "Q4_0": (32, 18), "NVFP4": (64, 36)}  # values, bytes
NVFP4_SCALE = 1 / 256  # of a whole matrix, in a tensor of its own

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FEED_FORWARD,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "hidden_act": "silu",
}

# In a layer: its name in safetensors, in GGUF, and its shape.
LAYER = [
    ("input_layernorm", "attn_norm", (HIDDEN,)),
    ("self_attn.q_proj", "attn_q", (HEADS * HEAD_DIM, HIDDEN)),
    ("self_attn.k_proj", "attn_k", (KV_HEADS * HEAD_DIM, HIDDEN)),
    ("self_attn.v_proj", "attn_v", (KV_HEADS * HEAD_DIM, HIDDEN)),
    ("self_attn.o_proj", "attn_output", (HIDDEN, HEADS * HEAD_DIM)),
    ("post_attention_layernorm", "ffn_norm", (HIDDEN,)),
    ("mlp.gate_proj", "ffn_gate", (FEED_FORWARD, HIDDEN)),
    ("mlp.up_proj", "ffn_up", (FEED_FORWARD, HIDDEN)),
    ("mlp.down_proj", "ffn_down", (HIDDEN, FEED_FORWARD)),
]


def tensors(layers):
    """Pairs of names and the shape of every tensor."""
    yield "model.embed_tokens", "token_embd", (VOCABULARY, HIDDEN)
    for i in range(layers):
        for name, gguf_name, shape in LAYER:
            yield f"model.layers.{i}.{name}", f"blk.{i}.{gguf_name}", shape
    yield "model.norm", "output_norm", (HIDDEN,)
    yield "lm_head", "output", (VOCABULARY, HIDDEN)


def noise(kind):
    """Random numbers of about the size that keeps a model's activations around 1, as stored."""
    dice = np.random.default_rng(1)
    if kind == "BF16":  # 2^-7 to 2^-5, of either sign
        return (dice.integers(0, 1 << 16, BLOCK_BYTES // 2, np.uint16) & 0x80FF | 0x3C00).view(np.uint8)
    values, size = BLOCKS[kind]
    blocks = dice.integers(0, 256, (BLOCK_BYTES // size, size), np.uint8)
    if kind == "Q4_0":  # a scale of 2^-9 to 2^-8 in float16
        blocks[:, 1] = blocks[:, 1] & 0x03 | 0x18
    else:  # four scales of 1 to 2 in E4M3
        blocks[:, :4] = blocks[:, :4] & 0x07 | 0x38
    return blocks.reshape(-1)


def size_of(kind, shape):
    values, size = BLOCKS[kind]
    return int(np.prod(shape)) // values * size


def write_data(path, places):
    """Fills a file with (offset, kind, bytes) places; `F32` and `BF16` of one row are ones."""
    ones = {"BF16": np.full(HIDDEN, 0x3F80, np.uint16).tobytes(), "F32": np.ones(HIDDEN, np.float32).tobytes()}
    blocks = {kind: noise(kind) for kind in {kind for _, kind, size in places} - {"F32"}}
    file = os.open(path, os.O_WRONLY)

    def write(place):
        offset, kind, size = place
        if kind == "F32" or size == len(ones.get(kind, b"")):
            os.pwrite(file, ones[kind][:size], offset)
            return
        block = blocks[kind]
        for at in range(0, size, CHUNK_BYTES):
            count = min(CHUNK_BYTES, size - at)
            start = at % (len(block) - CHUNK_BYTES) // 576 * 576
            os.pwrite(file, block[start:start + count], offset + at)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(write, places))
    os.close(file)


def write_safetensors(folder, layers):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    header, places, at = {}, [], 0
    for name, _, shape in tensors(layers):
        size = size_of("BF16", shape)
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        places.append((at, "BF16", size))
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = folder / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    write_data(path, [(8 + len(text) + offset, kind, size) for offset, kind, size in places])


# ---- GGUF ----


def text_of(text):
    return struct.pack("<Q", len(text)) + text.encode()


def field(key, value):
    kind, packed = {int: (4, "<I"), float: (6, "<f")}.get(type(value), (8, None))
    return text_of(key) + struct.pack("<I", kind) + (struct.pack(packed, value) if packed else text_of(value))


def aligned(size):
    return -(-size // GGUF_ALIGNMENT) * GGUF_ALIGNMENT


def gguf_tensors(kind, layers):
    """Name, type and shape of every tensor."""
    for _, name, shape in tensors(layers):
        if len(shape) == 1:
            yield f"{name}.weight", "F32", shape
        elif name == "token_embd":
            yield f"{name}.weight", "BF16", shape
        else:
            yield f"{name}.weight", kind, shape
            if kind == "NVFP4":
                yield f"{name}.scale", "F32", (1,)


def write_gguf(path, kind, layers):
    fields = {
        "general.architecture": "llama", "general.alignment": GGUF_ALIGNMENT, "llama.block_count": layers,
        "llama.context_length": CONTEXT, "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FEED_FORWARD,
        "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 500000.0,
        "llama.rope.dimension_count": HEAD_DIM, "llama.vocab_size": VOCABULARY,
    }
    listed, places, scales, at = list(gguf_tensors(kind, layers)), [], [], 0
    infos = b""
    for name, type_name, shape in listed:
        infos += text_of(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos += struct.pack("<IQ", GGUF_TYPES[type_name], at)
        (scales if shape == (1,) else places).append((at, type_name, size_of(type_name, shape)))
        at += aligned(size_of(type_name, shape))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(fields))
    header += b"".join(field(key, value) for key, value in fields.items()) + infos
    start = aligned(len(header))
    with path.open("wb") as file:
        file.write(header)
        file.truncate(start + at)
        for offset, _, _ in scales:
            file.seek(start + offset)
            file.write(struct.pack("<f", NVFP4_SCALE))
    write_data(path, [(start + offset, type_name, size) for offset, type_name, size in places])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["bf16", "NVFP4", "Q4_0"])
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=32)
    given = parser.parse_args()
    if given.kind == "bf16":
        write_safetensors(given.path, given.layers)
    else:
        write_gguf(given.path, given.kind, given.layers)


if __name__ == "__main__":
    main()
