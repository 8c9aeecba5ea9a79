#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the container fuzzers into corpus/NAME/: small files with one of everything in them."""
import json
import math
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    return string(name) + struct.pack("<I", kind) + value


def array(name, kind, count, values):
    return key(name, 9, struct.pack("<IQ", kind, count) + values)


def tensor(name, dims, kind, offset):
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(version, keys=(), tensors=(), data=b"", alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data if tensors else head


NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
SCALARS = [key("general.architecture", 8, string("llama"))]
SCALARS += [key(f"k{kind}", kind, struct.pack(f"<{code}", 1)) for kind, code in NUMBERS.items()]
VOCABULARY = [
    array("tokenizer.ggml.tokens", 8, 3, string("<s>") + string("a") + string("")),
    array("tokenizer.ggml.scores", 6, 3, struct.pack("<3f", 0, -1, -2)),
    array("tokenizer.ggml.token_type", 5, 3, struct.pack("<3i", 3, 1, 1)),
    array("flags", 7, 2, b"\x01\x00"),
]
TENSORS = [
    tensor("token_embd.weight", (4, 2), 0, 0),
    tensor("blk.0.attn_q.weight", (32, 2), 2, 32),
    tensor("scalar", (), 1, 96),
]
ALIGNMENT = [key("general.alignment", 4, struct.pack("<I", 8))]
GGUF = {
    "empty": gguf(3),
    "keys": gguf(2, SCALARS),
    "vocabulary": gguf(3, SCALARS + VOCABULARY),
    "tensors": gguf(3, SCALARS, TENSORS, bytes(98)),
    "aligned": gguf(3, ALIGNMENT, [tensor("a", (1, 1, 1, 2), 0, 0)], bytes(8), 8),
}


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


ENTRIES = {
    "a": entry("F32", [2], 0, 8),
    "b": entry("BF16", [1, 2], 8, 12),
    "c": entry("I64", [], 12, 20),
    "d": entry("F8_E4M3", [0, 4], 20, 20),
}
SAFETENSORS = {
    "empty": safetensors({}),
    "metadata": safetensors({"__metadata__": {"format": "pt"}}),
    "tensors": safetensors(ENTRIES, bytes(20)),
    "spaces": safetensors(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}     ', b"x"),
}
JSON = {
    "config": b'{"architectures": ["LlamaForCausalLM"], "rope_theta": 1e6, "eps": 1e-05, "tie": false, "x": null}',
    "constants": b"[NaN, Infinity, -Infinity, 1e400, -1e400]",
    "integers": b"[0, -1, 9223372036854775807, 9223372036854775808, 1000000000000000019884624838656]",
    "mark": b'\xef\xbb\xbf{"a": "\\u00e9\\ud83d\\ude00\\n\\\\\\""}',
    "surrogate": b'["\\ud800"]',
    "nested": b"[" * 40 + b"]" * 40,
}
NVFP4 = 8  # DTYPE_NVFP4


def calibration(centres, ways):
    # For the model of calibration_fuzz.c: centres of 8 and 2 values, and for each way 4 errors of two layers.
    head = b"nibble kv keys 2" + b"k" * 32 + struct.pack("<i", len(ways))
    return head + struct.pack("<10f", *centres) + b"".join(struct.pack("<3i8f", *way, *range(8)) for way in ways)


CALIBRATION = {
    "no_ways": calibration(range(10), []),
    "no_centre": calibration([math.nan] * 8 + [1, 2], [(NVFP4, 16, 1)]),
    "ways": calibration(range(10), [(NVFP4, 16, 1), (NVFP4, 0, 1), (-1, -1, -1)]),
}


def main():
    for name, seeds in {"gguf": GGUF, "safetensors": SAFETENSORS, "json": JSON, "calibration": CALIBRATION}.items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed, data in seeds.items():
            (folder / seed).write_bytes(data)


if __name__ == "__main__":
    main()
