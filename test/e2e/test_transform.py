# SPDX-License-Identifier: Apache-2.0
"""What keys are stored as (--kv-transform): words and plans, the calibration at first load and the file it leaves, and what it is for."""

import json
import pathlib
import re
import subprocess

import pytest

import small_model
from libnibble import Library, Model

PROSE = pathlib.Path(__file__).parent.parent / "golden" / "prose.txt"
FORMAT = ["--kv-cache-dtype", "nvfp4"]


@pytest.fixture(scope="module")
def small(smollm2, tmp_path_factory):
    return str(small_model.write(smollm2, tmp_path_factory.mktemp("small") / "small.gguf"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Where calibrations are kept, empty at first."""
    monkeypatch.setenv("NIBBLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "calibration"


def run(nibble, *arguments):
    return subprocess.run([nibble, *map(str, arguments)], capture_output=True, text=True)


def answer(nibble, model, *flags):
    done = run(nibble, "run", model, "The harbour", "--raw", "--max-tokens", "4", "--temperature", "0", *flags)
    assert done.returncode == 0, done.stderr
    return done


def layers(nibble, model, *flags):
    done = run(nibble, "plan", model, "--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["layers"]


def test_words(nibble, small, home):
    for word, near in [("rotat", "did you mean rotate?"), ("center", "did you mean centre?"), ("Rotate", "auto none rotate centre centre+rotate")]:
        done = run(nibble, "plan", small, "--kv-transform", word)
        assert done.returncode == 2 and near in done.stderr
    for word in ["none", "rotate", "centre", "centre+rotate"]:
        assert {layer["transform"] for layer in layers(nibble, small, "--kv-transform", word)} == {word}
    assert layers(nibble, small)[0]["transform"] == "none", "a 16-bit cache gains nothing"
    assert layers(nibble, small, "--kv-cache-dtype", "bfloat16/nvfp4")[0]["transform"] == "none", "nor do 16-bit keys"
    assert not home.exists(), "a plan measures nothing"


@pytest.mark.parametrize("command", ["run", "serve", "plan", "eval", "bench"])
def test_every_command_with_a_cache_has_it(nibble, command):
    help_text = run(nibble, command, "--help").stdout
    assert "--kv-transform" in help_text and "--kv-calibration" in help_text


def test_the_first_load_decides_and_is_remembered(nibble, small, home):
    assert layers(nibble, small, *FORMAT)[0]["transform"] == "auto"
    assert "chosen by measuring when the model is first loaded" in run(nibble, "plan", small, *FORMAT).stdout
    first = answer(nibble, small, *FORMAT)
    files = list(home.iterdir())
    assert len(files) == 1
    kept = (files[0].read_bytes(), files[0].stat().st_mtime_ns)
    layer = layers(nibble, small, *FORMAT)[0]
    assert layer["transform"] == min(layer["transform_errors"], key=layer["transform_errors"].get)
    assert answer(nibble, small, *FORMAT).stdout == first.stdout
    assert (files[0].read_bytes(), files[0].stat().st_mtime_ns) == kept, "it is not measured again"
    answer(nibble, small)
    answer(nibble, small, *FORMAT, "--kv-transform", "rotate")
    answer(nibble, small, "--kv-cache-dtype", "bfloat16/fp8")
    assert (files[0].read_bytes(), files[0].stat().st_mtime_ns) == kept, "who needs none makes none"


def test_formats_share_a_file(nibble, smollm2, home):
    """A format is measured in all layers at once, so that mixtures of known ones need nothing more."""
    answer(nibble, smollm2, "--kv-cache-dtype", "0:nvfp4,1-:bfloat16")
    path, = home.iterdir()
    alone = path.read_bytes()
    errors = layers(nibble, smollm2, *FORMAT)[1]["transform_errors"]
    assert errors, "measured where it was not stored"
    answer(nibble, smollm2, "--kv-cache-dtype", "0:bfloat16,1-:nvfp4/fp8")
    assert path.read_bytes() == alone
    assert layers(nibble, smollm2, "--kv-cache-dtype", "fp8")[0]["transform"] == "auto", "not measured yet"
    answer(nibble, smollm2, "--kv-cache-dtype", "0:fp8,1-:nvfp4")
    assert list(home.iterdir()) == [path] and len(path.read_bytes()) > len(alone)
    assert layers(nibble, smollm2, *FORMAT)[1]["transform_errors"] == errors
    assert layers(nibble, smollm2, "--kv-cache-dtype", "fp8")[1]["transform"] != "auto"
    both = path.read_bytes()
    answer(nibble, smollm2, "--kv-cache-dtype", "0:nvfp4,1-:fp8")
    assert path.read_bytes() == both


@pytest.mark.parametrize("spoil", [lambda data: data[:100], lambda data: b"", lambda data: data[:90] + b"\x55" + data[91:], lambda data: data + b"\0",
                                   lambda data: b"x" * len(data)])
def test_a_damaged_file_is_made_anew(nibble, small, home, spoil):
    answer(nibble, small, *FORMAT)
    path, = home.iterdir()
    whole = path.read_bytes()
    path.write_bytes(spoil(whole))
    done = answer(nibble, small, *FORMAT)
    assert "warning: " in done.stderr and "measured anew" in done.stderr
    assert path.read_bytes() == whole
    assert "warning" not in answer(nibble, small, *FORMAT).stderr


def test_a_folder_that_cannot_be_written_is_a_warning(nibble, small, tmp_path, monkeypatch):
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("NIBBLE_CACHE", str(tmp_path / "no folder"))
    assert "is not kept" in answer(nibble, small, *FORMAT).stderr
    for name in ["NIBBLE_CACHE", "XDG_CACHE_HOME", "HOME"]:
        monkeypatch.delenv(name, raising=False)
    assert "is not kept" in answer(nibble, small, *FORMAT).stderr


def test_own_texts(nibble, small, home, tmp_path):
    done = run(nibble, "run", small, "x", *FORMAT, "--kv-calibration", tmp_path / "none.txt")
    assert done.returncode == 1 and "--kv-calibration" in done.stderr and "none.txt" in done.stderr
    (tmp_path / "short.txt").write_text("short")
    done = run(nibble, "run", small, "x", *FORMAT, "--kv-calibration", tmp_path / "short.txt")
    assert done.returncode == 1 and "too few" in done.stderr
    answer(nibble, small, *FORMAT, "--kv-calibration", PROSE)
    answer(nibble, small, *FORMAT)
    assert len(list(home.iterdir())) == 2


@pytest.mark.parametrize("word", ["rotate", "centre+rotate"])
def test_a_wrong_kernel_is_found(nibble, small, home, monkeypatch, word):
    tested = run(nibble, "kernels", "transform", "--test", "--quick").stdout
    wrong = next(name for name in ["transform_avx512", "transform_avx2", "transform_ref"]
                 if re.search(rf"^{name} .* ok ", tested, re.M))
    monkeypatch.setenv("NIBBLE_FAULT", wrong)
    done = run(nibble, "run", small, "x", "--max-tokens", "1", "--temperature", "0", *FORMAT, "--kv-transform", word)
    assert wrong in done.stderr, "left out, or refused"


# ---- answers --------------------------------------------------------------------------------------------------------

PROMPTS = [list(range(100, 140)), list(range(100, 120)) + list(range(900, 920)), list(range(500, 520))]


def answers(model, prompts):
    with model.scheduler() as scheduler:
        found = [scheduler.add(prompt, max_tokens=30, top_logprobs=2) for prompt in prompts]
        scheduler.run()
        again = scheduler.add(prompts[0], max_tokens=30, top_logprobs=2)
        scheduler.run()
        return [(answer.tokens, answer.logprobs) for answer in found], (again.tokens, again.logprobs), scheduler.stats


@pytest.mark.parametrize("word", [b"none", b"rotate", b"centre+rotate", b"auto"])
def test_bits_do_not_depend_on_company(library, small, home, word):
    """Alone, together, from the prefix cache, in small chunks and after preemption."""
    lib, options = Library(library), {"kv_cache_dtype": "nvfp4", "kv_transform": word}
    with Model(lib, small, max_model_len=80, **options) as model:
        alone = [answers(model, [prompt])[0][0] for prompt in PROMPTS]
    with Model(lib, small, max_model_len=80, max_num_seqs=3, threads=2, **options) as model:
        together, again, stats = answers(model, PROMPTS)
        assert together == alone and again == alone[0] and stats.prefix_hits > 0
    with Model(lib, small, max_model_len=80, batch_tokens=16, **options) as model:
        pool = sum(pool["pages"] * pool["page_bytes"] for pool in json.loads(model.plan())["memory"]["pools"])
    with Model(lib, small, max_model_len=80, max_num_seqs=3, batch_tokens=16, threads=1, kv_cache_bytes=pool + pool // 3, **options) as model:
        squeezed, again, stats = answers(model, PROMPTS)
        assert squeezed == alone and again == alone[0] and stats.preemptions > 0


def divergence(nibble, model, *flags):
    done = run(nibble, "eval", model, "--json", "--text", PROSE, "--context", 1024, "--chunks", 1, "--against", "float32", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["kld"]["mean"]


def test_nothing_changes_where_nothing_is_lost(nibble, smollm2, home):
    """Scores differ by a constant at most: with keys in float32, answers are those of keys as they are."""
    flags = ["--kv-cache-dtype", "float32", "--kv-transform", "centre+rotate"]
    assert divergence(nibble, smollm2, *flags) < 1e-5


# SmolLM2, which has large constants in its keys: with scales and first pages as others store them, both parts help. On two
# chunks of 2048 tokens nvfp4 has 0.114, rotated 0.075, centred and rotated 0.063.
@pytest.mark.parametrize("dtype, share", [("nvfp4", 0.75), ("fp8", 0.6)])
def test_less_is_lost(nibble, smollm2, home, dtype, share):
    flags = ["--kv-cache-dtype", dtype, "--kv-scale", "amax", "--kv-sink-pages", "0"]
    plain, best = (divergence(nibble, smollm2, *flags, "--kv-transform", word) for word in ["none", "auto"])
    print(f"{dtype}: {plain:.4f} as it is, {best:.4f} transformed")
    assert best < share * plain


def test_soft_caps_and_latents(nibble, tmp_path, home):
    """Where softmax would see the constant, or keys are values, too, the rest is refused by name."""
    configs = {
        "gemma2": {"model_type": "gemma2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "head_dim": 32, "intermediate_size": 64, "max_position_embeddings": 512, "vocab_size": 100, "attn_logit_softcapping": 50.0,
                   "sliding_window": 64},
        "deepseek": {"model_type": "deepseek_v2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 64,
                     "max_position_embeddings": 512, "vocab_size": 100, "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
                     "v_head_dim": 16, "q_lora_rank": None, "n_routed_experts": None, "moe_intermediate_size": 32, "first_k_dense_replace": 2},
    }
    for name, refused, accepted, why in [("gemma2", "centre", "rotate", "soft cap"), ("deepseek", "rotate", "none", "keys and values at once")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(configs[name]))
        done = run(nibble, "plan", tmp_path / name, "--kv-transform", refused)
        assert done.returncode == 1 and why in done.stderr and f"--kv-transform {accepted} " in done.stderr, done.stderr
        assert {layer["transform"] for layer in layers(nibble, tmp_path / name, "--kv-transform", accepted)} == {accepted}
        assert {layer["transform"] for layer in layers(nibble, tmp_path / name)} == {"none"}
