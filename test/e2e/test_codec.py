# SPDX-License-Identifier: Apache-2.0
"""weight_decode against the gguf package's own reader, for every GGUF type that nibble computes with."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p

import gguf
import numpy as np
import pytest

BLOCKS = 2048
USE_WEIGHTS = 1
# Where the f16 numbers of a block are.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "IQ4_XS": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
NAMES = ["F32", "F16", "BF16", *HALVES, "MXFP4", "NVFP4"]


class Row(ctypes.Structure):
    """struct dtype_info"""
    _fields_ = [("word", c_char_p), ("use", c_int), ("bits", c_int), ("block", c_int), ("block_bytes", c_int),
                ("scale", c_int), ("gguf", c_int), ("safetensors", c_char_p)]


class Codec:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.weight_decode.argtypes = [c_int, c_void_p, c_size_t, c_void_p]
        self.library.weight_decode.restype = None
        self.library.dtype_from_gguf.argtypes = [c_uint32, POINTER(c_int)]
        self.library.dtype_from_gguf.restype = ctypes.c_bool

    def row(self, type_number):
        """The number and the row of a GGUF type that weights may have, else None."""
        dtype = c_int()
        if not self.library.dtype_from_gguf(type_number, byref(dtype)):
            return None
        row = (Row * (dtype.value + 1)).in_dll(self.library, "dtype_table")[dtype.value]
        return (dtype.value, row) if row.use & USE_WEIGHTS else None

    def decode(self, type_number, blocks):
        dtype, row = self.row(type_number)
        values = np.empty((len(blocks), row.block), np.float32)
        source = np.empty(blocks.size + 1, np.uint8)[1:]  # an odd address, as in a mapped file
        source[:] = blocks.ravel()
        self.library.weight_decode(dtype, source.ctypes.data, values.size, values.ctypes.data)
        return values


@pytest.fixture(scope="module")
def codec(library):
    return Codec(library)


def random_blocks(name, seed):
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    return np.random.default_rng(seed).integers(0, 256, (BLOCKS, size), np.uint8)


def sane_blocks(name):
    """Random codes under scales of the size that weights have."""
    blocks = random_blocks(name, 1)
    scales = np.random.default_rng(2).normal(0, 0.02, (BLOCKS, len(HALVES.get(name, [])))).astype(np.float16)
    for i, offset in enumerate(HALVES.get(name, [])):
        blocks[:, offset:offset + 2] = scales[:, i:i + 1].view(np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = 100 + blocks[:, 0] % 40
    if name == "NVFP4":
        blocks[:, :4] %= 0x7F
    return blocks


def check(codec, name, blocks):
    """Equal bit for bit where the reader's answer is finite, but for the sign of zero; returns how many were."""
    number = gguf.GGMLQuantizationType[name]
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(blocks, number).reshape(len(blocks), -1)
    got = codec.decode(number, blocks)
    assert got.shape == want.shape
    finite = np.isfinite(want)
    assert np.array_equal(got[finite], want[finite])
    return finite.sum()


def test_every_gguf_type_of_weights_is_compared(codec):
    known = {t.name for t in gguf.GGMLQuantizationType if codec.row(t)}
    assert known == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_sane_blocks(codec, name):
    blocks = sane_blocks(name)
    if name == "F32":
        blocks = np.random.default_rng(3).normal(0, 1, BLOCKS).astype(np.float32).view(np.uint8).reshape(-1, 4)
    assert check(codec, name, blocks) > 0.9 * BLOCKS


@pytest.mark.parametrize("name", NAMES)
def test_random_bytes(codec, name):
    blocks = random_blocks(name, 4)
    if name == "MXFP4":
        blocks[:, 0] %= 255  # 255 is NaN by the standard, and a number to the package
    assert check(codec, name, blocks) > 0.5 * BLOCKS


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_code_of_16_bits(codec, name):
    codes = np.arange(65536, dtype=np.uint16)
    got = codec.decode(gguf.GGMLQuantizationType[name], codes.view(np.uint8).reshape(-1, 2)).ravel()
    want = codes.view(np.float16) if name == "F16" else (codes.astype(np.uint32) << 16).view(np.float32)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(want))


def test_mxfp4_scale_255_is_nan(codec):
    assert np.isnan(codec.decode(gguf.GGMLQuantizationType.MXFP4, np.full((1, 17), 255, np.uint8))).all()
