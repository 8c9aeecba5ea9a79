# SPDX-License-Identifier: Apache-2.0
"""Broken and hostile input, under ASan and UBSan: one clear sentence and status 1, no crash, leak or hang."""

import json
import os
import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import tiny  # noqa: E402

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest.fixture
def run(nibble_asan):
    def run(*arguments, stdin=b""):
        return subprocess.run([nibble_asan, *map(str, arguments)], input=stdin, capture_output=True, timeout=120)
    return run


def check_refused(result, *words, status=1):
    text = result.stderr.decode()
    assert result.returncode == status, f"status {result.returncode}: {text}"
    assert text.startswith("nibble: ") and text.count("\n") <= 2, text
    assert "Sanitizer" not in text and "runtime error" not in text, text
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"
    assert result.stdout == b""


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    return pathlib.Path(tiny.write_gguf(tiny.load("llama"), tmp_path_factory.mktemp("gguf") / "model.gguf"))


@pytest.fixture
def folder(tmp_path):
    return pathlib.Path(tiny.write_safetensors(tiny.load("llama"), tmp_path))


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def edit_header(folder, change):
    """Rewrites the header of model.safetensors with what change(header) makes of it."""
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    text = json.dumps(change(header) or header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])


# ---- files ----------------------------------------------------------------------------------------------------------

def test_good_input_is_accepted(run, gguf, folder):
    assert run("plan", gguf).returncode == 0 and run("plan", folder).returncode == 0


@pytest.mark.parametrize("content", [b"", b"G", b"GGUF", b"not a model\n", b"\0" * 4096, b"GGUF" + b"\xff" * 200])
def test_files_that_are_no_model(run, tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    check_refused(run("plan", path))


def test_nothing_there(run, tmp_path):
    check_refused(run("plan", tmp_path / "missing.gguf"), "missing.gguf")
    check_refused(run("plan", "no-such/model"), "no-such/model")
    check_refused(run("plan", tmp_path))
    os.mkfifo(tmp_path / "pipe.gguf")
    check_refused(run("plan", tmp_path / "pipe.gguf"))


def test_gguf_cut_anywhere(run, gguf, tmp_path):
    data = gguf.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, 64, 5), *range(64, 6000, 397), len(data) // 2, len(data) - 1]:
        cut.write_bytes(data[:length])
        check_refused(run("plan", cut))


def test_safetensors_cut_anywhere(run, folder):
    data = (folder / "model.safetensors").read_bytes()
    for length in [0, 1, 7, 8, 9, 100, 1000, 5000, len(data) // 2, len(data) - 1]:
        (folder / "model.safetensors").write_bytes(data[:length])
        check_refused(run("plan", folder))


def test_missing_shard(run, tmp_path):
    folder = pathlib.Path(tiny.write_safetensors(tiny.load("llama"), tmp_path, shards=3))
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    check_refused(run("plan", folder), shard.name)


def test_shard_outside_the_folder(run, tmp_path):
    folder = pathlib.Path(tiny.write_safetensors(tiny.load("llama"), tmp_path, shards=2))
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"] = {name: "../../etc/passwd" for name in content["weight_map"]}
    index.write_text(json.dumps(content))
    check_refused(run("plan", folder), "../../etc/passwd")


def test_overlapping_tensors(run, folder):
    def overlap(header):
        names = [name for name in header if name.endswith("_proj.weight")]
        header[names[0]]["data_offsets"] = header[names[1]]["data_offsets"]
    edit_header(folder, overlap)
    check_refused(run("plan", folder))


def test_offsets_past_the_file(run, folder):
    def move(header):
        header["lm_head.weight" if "lm_head.weight" in header else "model.norm.weight"]["data_offsets"] = [2**62, 2**62 + 64]
    edit_header(folder, move)
    check_refused(run("plan", folder))


def test_missing_tensor(run, folder):
    edit_header(folder, lambda header: {k: v for k, v in header.items() if k != "model.layers.1.mlp.up_proj.weight"})
    check_refused(run("plan", folder), "model.layers.1.mlp.up_proj.weight", "missing")


def test_wrong_shape(run, folder):
    def reshape(header):
        tensor = header["model.layers.0.self_attn.k_proj.weight"]
        tensor["shape"] = [tensor["shape"][0] * 2, tensor["shape"][1] // 2]
    edit_header(folder, reshape)
    check_refused(run("plan", folder), "model.layers.0.self_attn.k_proj.weight", "shape")


def test_wrong_type(run, folder):
    def retype(header):
        tensor = header["model.norm.weight"]
        tensor["dtype"] = {"F32": "I32", "BF16": "I16", "F16": "I16"}[tensor["dtype"]]
    edit_header(folder, retype)
    check_refused(run("plan", folder), "model.norm.weight")


def test_unknown_tensor_type(run, gguf, tmp_path):
    data = bytearray(gguf.read_bytes())
    at = data.index(b"output_norm.weight") + len(b"output_norm.weight")
    rank = struct.unpack_from("<I", data, at)[0]
    struct.pack_into("<I", data, at + 4 + 8 * rank, 999)
    (tmp_path / "model.gguf").write_bytes(data)
    check_refused(run("plan", tmp_path / "model.gguf"), "output_norm.weight", "999")


def test_weights_that_are_not_finite(run, folder):
    data = bytearray((folder / "model.safetensors").read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(bytes(data[8:8 + size]))
    begin, end = header["model.norm.weight"]["data_offsets"]
    data[8 + size + begin:8 + size + end] = b"\xff" * (end - begin)
    (folder / "model.safetensors").write_bytes(bytes(data))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    check_refused(run("run", folder, "--raw", "ab"), "model.norm.weight", "finite")


# ---- config ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("changes, word", [
    ({"model_type": "mamba9000"}, "mamba9000"),
    ({"model_type": None}, "model_type"),
    ({"num_hidden_layers": 0}, "num_hidden_layers"),
    ({"num_hidden_layers": 2**40}, "num_hidden_layers"),
    ({"num_hidden_layers": "many"}, "num_hidden_layers"),
    ({"hidden_size": -64}, "hidden_size"),
    ({"num_key_value_heads": 3}, "3"),
    ({"head_dim": 100000}, "head_dim"),
    ({"rms_norm_eps": "small"}, "rms_norm_eps"),
    ({"hidden_act": "relu"}, "relu"),
    ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 10000}}, "spiral"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": -4, "rope_theta": 10000}}, "rope"),
])
def test_configs_that_make_no_sense(run, folder, changes, word):
    edit_config(folder, **changes)
    check_refused(run("plan", folder), word)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"[" * 100000, b"\xff\xfe{}", b'{"a": 1e999999999}x'])
def test_broken_config(run, folder, content):
    (folder / "config.json").write_bytes(content)
    check_refused(run("plan", folder), "config.json")


def test_config_with_infinity_loads(run, folder):
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("{", '{"time_step_limit": [0.0, Infinity], "x": NaN,', 1))
    assert run("plan", folder).returncode == 0


# ---- tokenizer and template -----------------------------------------------------------------------------------------

TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "post_processor": None,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "unk_token": None},
}


def write_tokenizer(folder, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps({**TOKENIZER, **changes}))
    return folder


def test_tokenizer_works(run, tmp_path):
    result = run("tokenize", write_tokenizer(tmp_path), "abab")
    assert (result.returncode, result.stdout) == (0, b"2 2\n"), result.stderr


@pytest.mark.parametrize("changes", [
    {"model": None}, {"model": []}, {"model": {"type": "Magic"}}, {"model": {"type": "BPE"}},
    {"model": {"type": "BPE", "vocab": [], "merges": []}}, {"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}},
    {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, {"model": {"type": "BPE", "vocab": {"a": 2**40}, "merges": []}},
    {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}}, {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [1]}},
    {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": False}},
    {"pre_tokenizer": {"type": "Shredder"}}, {"normalizer": {"type": "Shouting"}}, {"decoder": {"type": "Enigma"}},
    {"added_tokens": [{"id": 2**40, "content": "x", "special": True}]}, {"added_tokens": {"a": 1}},
])
def test_broken_tokenizers(run, tmp_path, changes):
    check_refused(run("tokenize", write_tokenizer(tmp_path, **changes), "ab"))


@pytest.mark.parametrize("source", [
    "{% for %}", "{% if %}{% endif %}", "{{ messages[ }}", "{% for m in messages %}", "{{ 1 / 0 }}", "{{ none.x.y }}",
    "{% for a in range(100000000) %}{% for b in range(100000000) %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "{{ 'x' * 100000000000 }}", "{{ range(10**12) | list }}", "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{% include 'x' %}", "{{ ''.__class__.__mro__ }}",
])
def test_templates_that_fail_or_never_end(run, tmp_path, source):
    (tmp_path / "template.jinja").write_text(source)
    check_refused(run("render", "--chat-template", tmp_path / "template.jinja", "-", stdin=b'[{"role": "user", "content": "Hi"}]'))


@pytest.mark.parametrize("messages", [b"", b"{", b"3", b'"hello"', b'{"messages": 3}', b"[" * 10000, b"\xff\xff"])
def test_broken_messages(run, tmp_path, messages):
    (tmp_path / "template.jinja").write_text(CHATML)
    check_refused(run("render", "--chat-template", tmp_path / "template.jinja", "-", stdin=messages))


def test_exception_of_a_template_is_passed_on(run, tmp_path):
    (tmp_path / "template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    check_refused(run("render", "--chat-template", tmp_path / "template.jinja", "-", stdin=b"[]"), "roles must alternate")


# ---- prompts --------------------------------------------------------------------------------------------------------

def test_prompt_longer_than_the_context(run, smollm2):
    check_refused_after_plan(run("run", smollm2, "--raw", "--max-model-len", "32", "word " * 100), "32")


def check_refused_after_plan(result, *words):
    """run prints its plan and how it samples first."""
    lines = result.stderr.decode().splitlines(keepends=True)
    assert lines[0].startswith("plan: ") and lines[1].startswith("sampling: "), lines
    result.stderr = "".join(lines[2:]).encode()
    check_refused(result, *words)


def test_empty_prompt(run, smollm2):
    check_refused_after_plan(run("run", smollm2, "--raw", ""), "no tokens")
    check_refused_after_plan(run("run", smollm2, "--raw", "-"), "no tokens")


def test_prompt_that_is_not_utf8(run, smollm2):
    check_refused_after_plan(run("run", smollm2, "-", stdin=b"caf\xe9"), "UTF-8")


def test_text_shorter_than_a_chunk(run, smollm2, tmp_path):
    (tmp_path / "text").write_text("too short")
    check_refused(run("eval", smollm2, "--text", tmp_path / "text"), "2048")
    check_refused(run("eval", smollm2, "--text", tmp_path / "missing"), "missing")


def test_token_ids_that_do_not_exist(run, smollm2):
    check_refused(run("tokenize", smollm2, "--decode", "1 2 99999999"), "99999999")
    check_refused(run("tokenize", smollm2, "--decode", "1 x"), "x")


def test_random_bytes_are_tokenised_and_come_back(run, gemma3):
    data = np.random.RandomState(1).bytes(20000)
    ids = run("tokenize", gemma3, "--no-special", "-", stdin=data)
    assert ids.returncode == 0
    assert run("tokenize", gemma3, "--decode", "-", stdin=ids.stdout).stdout == data
