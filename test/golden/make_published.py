# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files of published.py: python make_published.py [NAME...]; needs torch and transformers.

Where the compressed-tensors package is installed, its own decompression must give the same values, once rounded to
bfloat16, which is what it returns.
"""

import argparse
import base64
import json
import re
import tempfile

import numpy as np
import torch
import transformers

import published

REMOVED = ["compressed_int4_order"]  # the package no longer reads its own older checkpoints
PARTS = ["weight", "weight_packed", "weight_scale", "weight_global_scale", "weight_zero_point", "weight_g_idx", "weight_shape"]
TORCH = {"F8_E4M3": torch.float8_e4m3fn, "BF16": torch.bfloat16}


def run(name, values):
    """Logits that transformers computes of the weights as they are meant, in float32."""
    config = {key: value for key, value in published.config_of(name).items() if key != "quantization_config"}
    tensors = {key: ("F32", value.astype("<f4")) for key, value in values.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = published.pathlib.Path(folder)
        published.write_safetensors(tensors, path / "model.safetensors")
        (path / "config.json").write_text(json.dumps({**config, "torch_dtype": "float32"}))
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    with torch.no_grad():
        return model(input_ids=torch.tensor([published.ids(name)])).logits[0].numpy()


def to_torch(kind, array):
    array = np.ascontiguousarray(array)
    if kind == "F16":
        array = array.astype(np.float32)  # it multiplies in the scales' own type
    tensor = torch.from_numpy(array.view(np.int16) if kind == "BF16" else array)
    return tensor.view(TORCH[kind]) if kind in TORCH else tensor


def check_decompression(name, stored, values):
    """compressed-tensors itself, module by module."""
    try:
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationScheme
    except ImportError:
        return "not checked"
    declared = published.config_of(name)["quantization_config"]
    checked = 0
    for group in declared["config_groups"].values():
        if group["targets"] == ["LlamaAttention"]:
            continue
        scheme = QuantizationScheme.model_validate(group)
        compressor = BaseCompressor.get_value_from_registry(group.get("format") or declared["format"])
        for key, value in values.items():
            module = key.removesuffix(".weight")
            parts = {suffix: to_torch(*stored[f"{module}.{suffix}"]) for suffix in PARTS if f"{module}.{suffix}" in stored}
            if "weight_scale" not in parts or not matches(group, module):
                continue
            got = compressor.decompress(parts, scheme)["weight"]
            want = torch.from_numpy(published.bf16(value)[1].astype(np.float32))
            assert torch.equal(got.to(torch.bfloat16).float(), want), (name, module, (got.float() - want).abs().max())
            checked += 1
    return f"{checked} matrices as compressed-tensors has them"


def matches(group, module):
    return any(target == "Linear" or re.match(target[3:], module) for target in group["targets"])


def make(name):
    stored, values = published.draw(name)
    logits = run(name, values)
    checks = name.startswith("compressed") and name not in REMOVED
    checked = check_decompression(name, stored, values) if checks else ""
    text = base64.b64encode(logits[published.POSITIONS].astype("<f4").tobytes()).decode()
    published.HERE.mkdir(exist_ok=True)
    golden = {"made_with": {"transformers": transformers.__version__}, "logits": text}
    (published.HERE / f"{name}.json").write_text(json.dumps(golden) + "\n")
    print(f"{name}: logits of deviation {logits.std():.2f}, {np.abs(logits).max():.2f} at most {checked}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="schemes to make; default: all")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in parser.parse_args().names or published.SCHEMES:
        make(name)


if __name__ == "__main__":
    main()
