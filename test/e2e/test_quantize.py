# SPDX-License-Identifier: Apache-2.0
"""`nibble quantize`: what it writes, read by nibble, by Python's own readers, and in float64 by hand."""

import json
import pathlib
import resource
import signal
import subprocess
import sys
import time

import gguf
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer

import small_model
from libnibble import Checkpoint, Library, Model

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import published  # noqa: E402
import tiny  # noqa: E402

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
PAGES = [GOLDEN / "tokenizer_page.txt", GOLDEN / "prose.txt"]
HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64  # SmolLM2-135M
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
E4M3 = np.array([(-1) ** (c >> 7) * ((c & 7) * 2.0**-9 if not c >> 3 & 15 else (8 + (c & 7)) * 2.0 ** ((c >> 3 & 15) - 10))
                 for c in range(256)])
NUMPY = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U8": np.uint8, "I8": np.int8, "F8_E4M3": np.uint8}


def run(nibble, *words, **options):
    return subprocess.run([nibble, *map(str, words)], capture_output=True, text=True, timeout=600, **options)


def quantize(nibble, model, out, *words):
    done = run(nibble, "quantize", model, out, "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read_folder(folder):
    """Every tensor by name: its type and its numbers as the file has them; each at a multiple of its element's size."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + length])
        assert length % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
        end = 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end_before, end = entry["data_offsets"][0], end, entry["data_offsets"][1]
            assert begin == end_before and begin % np.dtype(NUMPY[entry["dtype"]]).itemsize == 0 and name not in tensors
            data = np.frombuffer(content[8 + length + begin:8 + length + end], NUMPY[entry["dtype"]])
            tensors[name] = entry["dtype"], data.reshape(entry["shape"])
        assert end == len(content) - 8 - length
        with safe_open(path, "np") as file:
            assert set(file.keys()) == set(header)
    return tensors


def floats(kind, data):
    return (data.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else data.astype(np.float32)


def to_bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def decode(tensors, module):
    """A matrix in float64, from any of the layouts."""
    part = {name[len(module) + 1:]: floats(kind, data) if kind in ("F32", "F16", "BF16") else data
            for name, (kind, data) in tensors.items() if name.startswith(module + ".")}
    codes, scale = part.get("weight_packed", part.get("weight")), part.get("weight_scale")
    kind = tensors[f"{module}.weight_packed" if "weight_packed" in part else f"{module}.weight"][0]
    if kind == "BF16":
        return codes.astype(np.float64)
    if kind == "I8":
        return codes.astype(np.float64) * scale.reshape(-1, 1)
    if kind == "F8_E4M3":
        return E4M3[codes] * scale.astype(np.float64).reshape(-1, 1)
    values = E2M1[np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)]
    if "weight_global_scale" in part:
        return values * np.repeat(E4M3[scale], 16, 1) / float(part["weight_global_scale"][0])
    if "weight_scale_2" in part:
        return values * np.repeat(E4M3[scale], 16, 1) * float(part["weight_scale_2"])
    return values * np.repeat(2.0 ** (scale.astype(np.float64) - 127), 32, 1)


def source_matrices(path):
    """The GGUF's matrices under published names, q and k with their halves apart."""
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for tensor in gguf.GGUFReader(path).tensors:
        parts = tensor.name.split(".")
        if parts[0] != "blk" or parts[2] not in names:
            continue
        matrix = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape([int(n) for n in reversed(tensor.shape)])
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(parts[2])
        if heads:
            matrix = matrix.reshape(heads, HEAD_DIM // 2, 2, -1).transpose(0, 2, 1, 3).reshape(matrix.shape)
        yield f"model.layers.{parts[1]}.{names[parts[2]]}", matrix.astype(np.float64)


NEAREST = "--rounding", "nearest"  # where it does not matter, because that is quicker
FOLDERS = {"nvfp4": ("nvfp4",), "nearest": ("nvfp4", *NEAREST), "modelopt": ("nvfp4", "--layout", "modelopt"), "mxfp4": ("mxfp4",), "fp8": ("fp8",),
           "fp8_modelopt": ("fp8", "--layout", "modelopt", *NEAREST), "int8": ("int8",), "bf16": ("bf16",)}


@pytest.fixture(scope="module")
def made(nibble, smollm2, tmp_path_factory):
    """SmolLM2 in every format and layout, with the reports."""
    home = tmp_path_factory.mktemp("quantize")
    return {name: (home / name, quantize(nibble, smollm2, home / name, "--weights", *words)) for name, words in FOLDERS.items()}


@pytest.fixture(scope="module")
def lib(library):
    return Library(library)


# ---- numbers --------------------------------------------------------------------------------------------------------

# the relative error that each format has on these weights; it is larger where they make up for each other's errors
ERRORS = {"nvfp4": 0.15, "nearest": 0.095, "modelopt": 0.15, "mxfp4": 0.28, "fp8": 0.085, "fp8_modelopt": 0.0265, "int8": 0.035, "bf16": 0.002}


@pytest.mark.parametrize("name", FOLDERS)
def test_values_are_near_the_source(made, smollm2, name):
    folder, report = made[name]
    tensors, told = read_folder(folder), {entry["name"]: entry for entry in report["tensors"]}
    count = 0
    for module, want in source_matrices(smollm2):
        got = decode(tensors, module)
        error = np.sqrt(((got - want) ** 2).sum() / (want**2).sum())
        assert error < ERRORS[name], module
        assert told[f"{module}.weight"]["error"] == pytest.approx(error, rel=1e-3)
        count += 1
    assert count == len(told) == 210 and report["mean_error"] < ERRORS[name]
    assert report["gptq"] == (0 if name in ("nearest", "fp8_modelopt", "bf16") else 210) and report["why_nearest"] is None


def test_layouts_hold_the_same_numbers(made):
    one, other = (read_folder(made[name][0]) for name in ("nvfp4", "modelopt"))
    for module in {name.rsplit(".", 1)[0] for name in one if name.endswith("weight_packed")}:
        assert np.array_equal(one[f"{module}.weight_packed"][1], other[f"{module}.weight"][1])
        assert np.array_equal(one[f"{module}.weight_scale"][1], other[f"{module}.weight_scale"][1])
        assert 1 / one[f"{module}.weight_global_scale"][1][0] == other[f"{module}.weight_scale_2"][1]
        assert other[f"{module}.weight_scale_2"][1].shape == () and one[f"{module}.weight_global_scale"][1].shape == (1,)


def test_fused_projections_share_their_overall_scale(made):
    tensors = read_folder(made["modelopt"][0])
    for layer in range(30):
        for group in (["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["mlp.gate_proj", "mlp.up_proj"]):
            assert len({float(tensors[f"model.layers.{layer}.{name}.weight_scale_2"][1]) for name in group}) == 1


@pytest.mark.parametrize("name", ["compressed_nvfp4", "compressed_mxfp4", "compressed_fp8_channel", "compressed_int8_channel",
                                  "modelopt_w4a16_nvfp4"])
def test_what_the_layouts_mean(name):
    """decode() gives what compressed-tensors gave of the same tensors when the golden files were made of them."""
    stored, values = published.draw(name)
    modules = [name.removesuffix("_scale").rsplit(".", 1)[0] for name in stored if name.endswith(".weight_scale")]
    assert len(modules) >= 10
    for module in modules:
        np.testing.assert_allclose(decode(stored, module), values[f"{module}.weight"], rtol=1e-7)


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "fp8", "int8"])
def test_compressed_tensors_reads_the_same(made, name):
    """Bit for bit once rounded to bfloat16, which is what it returns for four bits. It needs torch, which is too much to
    install for every run of the tests: then the test before this one stands for it."""
    pytest.importorskip("compressed_tensors")
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    folder = made[name][0]
    declared = QuantizationConfig.model_validate(json.loads((folder / "config.json").read_text())["quantization_config"])
    compressor, tensors = BaseCompressor.get_value_from_registry(declared.format), read_folder(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        for module in (f"model.layers.{i}.{part}" for i in (0, 17) for part in ("self_attn.q_proj", "mlp.down_proj")):
            state = {key[len(module) + 1:]: file.get_tensor(key) for key in file.keys() if key.startswith(module + ".")}
            got = compressor.decompress(state, declared.config_groups["group_0"])["weight"]
            want = torch.from_numpy(decode(tensors, module)).to(torch.float32 if name in ("fp8", "int8") else torch.bfloat16)
            assert torch.equal(got.to(torch.bfloat16), want.to(torch.bfloat16)), module


# ---- files ----------------------------------------------------------------------------------------------------------


def test_declarations(made):
    configs = {name: json.loads((folder / "config.json").read_text()) for name, (folder, _) in made.items()}
    declared = {name: config.get("quantization_config") for name, config in configs.items()}
    assert declared["bf16"] is None
    for name, form in (("nvfp4", "nvfp4-pack-quantized"), ("mxfp4", "mxfp4-pack-quantized"), ("fp8", "float-quantized"), ("int8", "int-quantized")):
        assert declared[name]["quant_method"] == "compressed-tensors" and declared[name]["format"] == form
        assert declared[name]["ignore"] == ["lm_head"] and declared[name]["config_groups"]["group_0"]["targets"] == ["Linear"]
        assert (declared[name]["config_groups"]["group_0"]["input_activations"] is None) == name.endswith("fp4")
    for name, algorithm in (("modelopt", "W4A16_NVFP4"), ("fp8_modelopt", "FP8_PER_CHANNEL_PER_TOKEN")):
        legacy = json.loads((made[name][0] / "hf_quant_config.json").read_text())["quantization"]
        assert declared[name]["quant_algo"] == legacy["quant_algo"] == algorithm
        assert declared[name]["ignore"] == legacy["exclude_modules"] == ["lm_head"]
    config = configs["nvfp4"]
    assert config["model_type"] == "llama" and config["rope_theta"] == 100000 and config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"] and config["vocab_size"] == 49152 and config["eos_token_id"] == 2


def test_everything_but_linear_layers_stays(made):
    tensors = read_folder(made["nvfp4"][0])
    assert tensors["model.embed_tokens.weight"][0] == "BF16" and "lm_head.weight" not in tensors
    assert {kind for name, (kind, _) in tensors.items() if "norm" in name} == {"F32"}  # as the GGUF has them
    assert len(tensors) == 1 + 61 + 210 * 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_tokens_are_the_same(nibble, made, request, tmp_path, model, page):
    source, text = request.getfixturevalue(model), page.read_bytes()
    folder = made["bf16"][0]
    if model == "gemma3":
        folder = tmp_path / "gemma"
        quantize(nibble, source, folder, "--weights", "int8", *NEAREST)
    ids = [subprocess.run([nibble, "tokenize", place, "-"], input=text, capture_output=True, check=True).stdout
           for place in (source, folder)]
    assert ids[0] == ids[1]
    if model == "smollm2":
        theirs = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.decode("utf-8")).ids
        assert theirs == [int(word) for word in ids[0].split()]


def test_prompts_are_the_same(nibble, made, smollm2, tmp_path):
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": "What is a nibble?"}]))
    prompts = [run(nibble, "render", model, chat) for model in (smollm2, made["nvfp4"][0])]
    assert prompts[0].returncode == 0 and prompts[0].stdout == prompts[1].stdout


def test_shards(nibble, smollm2, made, tmp_path):
    report = quantize(nibble, smollm2, tmp_path / "out", "--weights", "nvfp4", "--shard-size", "20M", *NEAREST)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 2 and sorted(set(index["weight_map"].values())) == files
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors" and report["files"] == len(files) + 5
    whole, cut = read_folder(made["nearest"][0]), read_folder(tmp_path / "out")
    assert whole.keys() == cut.keys() == index["weight_map"].keys()
    assert all(np.array_equal(whole[name][1], cut[name][1]) for name in whole)
    assert index["metadata"]["total_size"] == sum(data.nbytes for _, data in cut.values())


# ---- architectures --------------------------------------------------------------------------------------------------

# nibble's words for what can be published from a GGUF
PUBLISHED = [name for name in tiny.names() if "gguf" in tiny.load(name)["containers"]
             and tiny.text_config(tiny.load(name))["model_type"] in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text")]


@pytest.fixture
def plain_arithmetic(monkeypatch):
    """The reference kernels alone, which round no activations."""
    monkeypatch.setenv("NIBBLE_FEATURES", "none")


def score(lib, path, golden):
    options = {"kv_cache_dtype": "float32", "device": "cpu", **golden.get("options", {})}
    with Model(lib, path, **options) as model, model.sequence() as sequence:
        return sequence.score(golden["ids"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_gguf_becomes_the_model_it_was_made_of(lib, plain_arithmetic, tmp_path, name):
    """Rows of q and k, norms, biases, tied heads, experts and every kind of rope: the logits stay. Weights that were not
    bfloat16 become it, which may send a token to another expert."""
    golden = tiny.load(name)
    source = tiny.write_gguf(golden, tmp_path / "model.gguf")
    (tmp_path / "out").mkdir()
    with Checkpoint(lib, source) as checkpoint:
        checkpoint.quantize(tmp_path / "out", "bf16")
    want, got = score(lib, source, golden), score(lib, tmp_path / "out", golden)
    if {tensor["type"] for tensor in golden["tensors"]} == {"BF16"}:
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.995


SAFETENSORS = [name for name in tiny.names() if "safetensors" in tiny.load(name)["containers"]]


@pytest.mark.parametrize("name", SAFETENSORS)
def test_weights_make_up_for_each_other_s_errors(lib, plain_arithmetic, tmp_path, name):
    """In every architecture, experts included: on the text that they learnt it on, logits come nearer. That is the median,
    and of four bits: a token that goes to another expert may be far off either way."""
    golden = tiny.load(name)
    source = tiny.write_safetensors(golden, tmp_path / "source")
    want, errors = score(lib, source, golden), []
    for ids in ([], golden["ids"]):
        out = tmp_path / f"out{len(ids)}"
        out.mkdir()
        with Checkpoint(lib, source) as checkpoint:
            checkpoint.quantize(out, "mxfp4", ids)
        errors.append(np.median(np.square(score(lib, out, golden) - want).sum(1)))
    assert errors[1] < errors[0]


@pytest.mark.parametrize("name", SAFETENSORS)
def test_a_folder_keeps_its_names(lib, plain_arithmetic, tmp_path, name):
    golden = tiny.load(name)
    source = tiny.write_safetensors(golden, tmp_path / "source")
    before = set(read_folder(source))
    for weights in ("bf16", "fp8"):
        (tmp_path / weights).mkdir()
        with Checkpoint(lib, source) as checkpoint:
            checkpoint.quantize(tmp_path / weights, weights)
    assert set(read_folder(tmp_path / "bf16")) == before
    after = read_folder(tmp_path / "fp8")
    assert {name for name in after if not name.endswith("weight_scale")} == before
    for module in ("self_attn.q_proj", "self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"):
        for name in (name for name in before if name.endswith(f"{module}.weight") and "vision" not in name):
            assert after[name][0] == "F8_E4M3", name
    want, got = score(lib, source, golden), score(lib, tmp_path / "fp8", golden)
    assert np.isfinite(got).all() and np.corrcoef(want.ravel(), got.ravel())[0, 1] > 0.9


# ---- from a folder --------------------------------------------------------------------------------------------------


def test_a_folder_s_other_files_and_tensors_come_along(nibble, made, tmp_path):
    source = tmp_path / "source"
    quantize(nibble, made["bf16"][0], source, "--weights", "bf16")
    assert (source / "model.safetensors").read_bytes() == (made["bf16"][0] / "model.safetensors").read_bytes()
    (source / "LICENSE").write_text("free")
    (source / "special_tokens_map.json").write_text("{}")
    (source / "pytorch_model.bin").write_bytes(b"no")
    report = quantize(nibble, source, tmp_path / "out", "--weights", "nvfp4", "--exclude", "model.layers.3*", *NEAREST)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"LICENSE", "special_tokens_map.json", "tokenizer.json", "generation_config.json"} <= names
    assert "pytorch_model.bin" not in names
    kept = {entry["name"] for entry in report["tensors"] if entry["kept"]}
    assert len(kept) == 7 and all(name.startswith("model.layers.3.") for name in kept)


def test_quantised_weights_become_plain_again(nibble, made, tmp_path):
    """Every stored value, rounded to bfloat16 and nothing else; and what was quantised is declared no more."""
    for name in ("nvfp4", "modelopt", "mxfp4", "fp8", "int8"):
        quantize(nibble, made[name][0], tmp_path / name, "--weights", "bf16")
        tensors, plain = read_folder(made[name][0]), read_folder(tmp_path / name)
        assert set(plain) == set(read_folder(made["bf16"][0]))
        module = "model.layers.11.mlp.up_proj"
        got, want = plain[f"{module}.weight"][1], decode(tensors, module)
        if name == "int8":  # is read as Q8_0, whose scales are float16
            assert np.abs(floats("BF16", got) - want).max() < 0.005 * np.abs(want).max()
        else:
            assert np.array_equal(got, to_bf16(want))
        assert "quantization_config" not in json.loads((tmp_path / name / "config.json").read_text())
        assert not (tmp_path / name / "hf_quant_config.json").exists()


# ---- excluded modules -----------------------------------------------------------------------------------------------

EXCLUDES = {  # patterns and how many of the 210 matrices they keep
    "a path": (["model.layers.7.mlp.down_proj"], 1),
    "a part": (["down_proj"], 30),
    "a layer": (["model.layers.2"], 7),
    "a wildcard": (["model.layers.0.self_attn*", "*.29.mlp.*"], 7),
    "a regex": ([r"re:.*\.layers\.[12]\..*k_proj$"], 2),
    "several": (["k_proj", "v_proj", "model.layers.0.mlp"], 63),
}


@pytest.mark.parametrize("name", EXCLUDES)
def test_exclude(nibble, smollm2, tmp_path, name):
    patterns, count = EXCLUDES[name]
    report = quantize(nibble, smollm2, tmp_path / "out", "--weights", "nvfp4", "--layout", "modelopt", *NEAREST, "--exclude", *patterns)
    kept = [entry["name"] for entry in report["tensors"] if entry["kept"]]
    ignored = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]["ignore"]
    assert len(kept) == count and sorted(ignored) == sorted([name.removesuffix(".weight") for name in kept] + ["lm_head"])
    assert run(nibble, "plan", tmp_path / "out", "--device", "cpu").returncode == 0
    tensors = read_folder(tmp_path / "out")
    assert all(tensors[name][0] == "BF16" for name in kept)


# ---- scales of the cache --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout, names", [("compressed-tensors", ("k_scale", "v_scale")),
                                           ("modelopt", ("k_proj.k_scale", "v_proj.v_scale"))])
def test_kv_scales(nibble, smollm2, tmp_path, layout, names):
    text = tmp_path / "text.txt"
    text.write_bytes(PAGES[1].read_bytes()[:3000])
    out = tmp_path / "out"
    quantize(nibble, smollm2, out, "--weights", "fp8", "--layout", layout, "--kv-scales", text, *NEAREST)
    tensors = read_folder(out)
    scales = np.array([[tensors[f"model.layers.{i}.self_attn.{name}"][1].reshape(()) for name in names] for i in range(30)])
    assert (scales > 1e-4).all() and (scales < 1).all() and (scales[:, 0] > scales[:, 1]).mean() > 0.8
    plan = json.loads(run(nibble, "plan", out, "--device", "cpu", "--json").stdout)
    assert {layer["k"] for layer in plan["layers"]} == {"fp8_e4m3"}


# ---- quality --------------------------------------------------------------------------------------------------------

NVFP4_COST_MAX, FP8_COST_MAX = 1.12, 1.01  # of the source's perplexity


def test_perplexity(nibble, smollm2, made, tmp_path):
    """Of the source, both layouts of NVFP4, Q4_0 of the same bits, and fp8."""
    shadow = tmp_path / "q4_0"
    shadow.mkdir()
    tensors = {}
    for name, (kind, data) in read_folder(made["bf16"][0]).items():
        values = floats(kind, data)
        if "_proj." in name:
            blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_0)
            values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0).reshape(values.shape)
        tensors[name] = values
    save_file(tensors, shadow / "model.safetensors")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (shadow / name).write_bytes((made["bf16"][0] / name).read_bytes())

    def perplexity(model):
        done = run(nibble, "eval", model, "--text", PAGES[1], "--context", 512, "--chunks", 6, "--device", "cpu", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["perplexity"]

    source, nvfp4, fp8 = perplexity(smollm2), perplexity(made["nvfp4"][0]), perplexity(made["fp8"][0])
    nearest, q4_0 = perplexity(made["nearest"][0]), perplexity(shadow)
    print(f"source {source:.3f}, fp8 {fp8 / source:.4f}, nvfp4 {nvfp4 / source:.4f}, to the nearest {nearest / source:.4f}, Q4_0 {q4_0 / source:.4f}")
    assert perplexity(made["modelopt"][0]) == nvfp4
    assert nvfp4 < nearest and nvfp4 < q4_0 and nvfp4 < NVFP4_COST_MAX * source and fp8 < FP8_COST_MAX * source


# ---- whole or not at all --------------------------------------------------------------------------------------------


def test_interrupted(nibble, gemma3, tmp_path):
    job = subprocess.Popen([nibble, "quantize", gemma3, tmp_path / "out", "--weights", "nvfp4", "--threads", "1"], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out.partial-*/*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not (tmp_path / "out").exists()
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=60)
    assert job.returncode == 1 and out == "" and "interrupted" in err and not list(tmp_path.iterdir())


def test_killed_leaves_nothing_that_loads(nibble, gemma3, tmp_path):
    job = subprocess.Popen([nibble, "quantize", gemma3, tmp_path / "out", "--weights", "nvfp4", "--threads", "1"])
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out.partial-*/*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    job.kill()
    job.wait()
    left = next(tmp_path.iterdir())
    assert left.name.startswith("out.partial-")
    assert "config.json" in run(nibble, "plan", left).stderr


def test_what_a_killed_run_left_is_removed_by_the_next(nibble, smollm2, tmp_path):
    model, left = small_model.write(smollm2, tmp_path / "model.gguf"), tmp_path / "out.partial-abcdef"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half of it")
    quantize(nibble, model, tmp_path / "out", "--weights", "bf16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.gguf", "out"]


def test_any_number_of_threads_gives_the_same_bytes(nibble, smollm2, tmp_path):
    model, text = small_model.write(smollm2, tmp_path / "model.gguf"), tmp_path / "text.txt"
    text.write_bytes(PAGES[1].read_bytes()[:4000])
    for threads in (1, 3):
        quantize(nibble, model, tmp_path / str(threads), "--weights", "nvfp4", "--calibration", text, "--threads", threads)
    assert (tmp_path / "1/model.safetensors").read_bytes() == (tmp_path / "3/model.safetensors").read_bytes()


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000_000, 40_000_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_no_room(nibble, smollm2, tmp_path):
    done = run(nibble, "quantize", smollm2, tmp_path / "out", "--weights", "nvfp4", preexec_fn=limit_files)
    assert done.returncode == 1 and "no room for its 0.1 GB" in done.stderr and not list(tmp_path.iterdir())


def test_what_is_there_is_not_overwritten(nibble, smollm2, tmp_path):
    (tmp_path / "out").mkdir()
    done = run(nibble, "quantize", smollm2, tmp_path / "out", "--weights", "fp8")
    assert done.returncode == 1 and "is there already" in done.stderr and not list((tmp_path / "out").iterdir())


# ---- what is refused ------------------------------------------------------------------------------------------------

WRONG = {  # words behind MODEL OUT, status, what the sentence says
    "no format": ([], 2, "needs a format: --weights"),
    "unknown format": (["--weights", "nvfp5"], 2, "did you mean nvfp4?"),
    "unknown layout": (["--weights", "fp8", "--layout", "awq"], 2, "takes compressed-tensors or modelopt"),
    "int8 for modelopt": (["--weights", "int8", "--layout", "modelopt"], 2, "--layout compressed-tensors has them"),
    "mxfp4 for modelopt": (["--weights", "mxfp4", "--layout", "modelopt"], 2, "--layout compressed-tensors has them"),
    "a layout for bf16": (["--weights", "bf16", "--layout", "modelopt"], 2, "leave --layout out"),
    "scales for bf16": (["--weights", "bf16", "--kv-scales", "text"], 2, "leave --kv-scales out"),
    "a pattern for nothing": (["--weights", "fp8", "--exclude", "model.layers.99"], 2, "matches none"),
    "a broken regex": (["--weights", "fp8", "--exclude", "re:("], 2, "no regular expression"),
    "a missing text": (["--weights", "fp8", "--kv-scales", "/nowhere"], 1, "cannot be read"),
    "too many words": (["third", "--weights", "fp8"], 2, "too many arguments"),
    "an unknown rounding": (["--weights", "fp8", "--rounding", "up"], 2, "takes gptq or nearest"),
    "a rounding for bf16": (["--weights", "bf16", "--rounding", "nearest"], 2, "leave --rounding out"),
    "a text for bf16": (["--weights", "bf16", "--calibration", "text"], 2, "leave --calibration out"),
    "a text for nothing": (["--weights", "fp8", "--rounding", "nearest", "--calibration", "text"], 2, "needs no text"),
    "a missing calibration": (["--weights", "fp8", "--calibration", "/nowhere"], 1, "cannot be read"),
    "an empty calibration": (["--weights", "fp8", "--calibration", "/dev/null"], 1, "holds no text"),
    "no threads": (["--weights", "fp8", "--threads", "0"], 2, "takes a whole number"),
    "no size": (["--weights", "fp8", "--shard-size", "big"], 2, "takes a size"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_words(nibble, smollm2, tmp_path, name):
    words, status, sentence = WRONG[name]
    done = run(nibble, "quantize", smollm2, tmp_path / "out", *words)
    assert done.returncode == status and sentence in done.stderr and done.stdout == "" and not list(tmp_path.iterdir())


def test_trouble_is_json_too(nibble, tmp_path):
    done = run(nibble, "quantize", tmp_path / "none", tmp_path / "out", "--weights", "fp8", "--json")
    assert done.returncode == 1 and "error" in json.loads(done.stdout) and not list(tmp_path.iterdir())


def test_no_place_for_the_output(nibble, smollm2, tmp_path):
    done = run(nibble, "quantize", smollm2, tmp_path / "none" / "out", "--weights", "fp8")
    assert done.returncode == 1 and "cannot be made (No such file or directory)" in done.stderr


def test_damaged_weights(nibble, smollm2, tmp_path):
    """A value that is no number is found before it spoils a scale."""
    model = small_model.write(smollm2, tmp_path / "model.gguf")
    quantize(nibble, model, tmp_path / "plain", "--weights", "bf16")
    path = tmp_path / "plain" / "model.safetensors"
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[:8], "little")
    begin = json.loads(content[8:8 + length])["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0]
    content[8 + length + begin + 128:8 + length + begin + 130] = b"\xc0\x7f"
    path.write_bytes(content)
    for rounding, words in (("nearest", "mlp.up_proj.weight holds a value that is no finite number, in row 1"),
                            ("gptq", "its weights are damaged")):
        for weights in ("nvfp4", "fp8"):
            done = run(nibble, "quantize", tmp_path / "plain", tmp_path / "out", "--weights", weights, "--rounding", rounding)
            assert done.returncode == 1 and words in done.stderr
            assert not (tmp_path / "out").exists()


def test_help(nibble):
    done = run(nibble, "quantize", "--help")
    assert done.returncode == 0 and "example: nibble quantize" in done.stdout and len(done.stdout.splitlines()) < 24
