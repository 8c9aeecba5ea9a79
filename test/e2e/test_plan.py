# SPDX-License-Identifier: Apache-2.0
"""The plan: what it prints for many models and devices, what it refuses, and that what it offers instead is accepted.

Expected texts are in test/golden/plans; NIBBLE_UPDATE=1 writes them anew, and the difference is read by a person.
"""

import itertools
import json
import os
import pathlib
import re
import resource
import subprocess
import sys

import pytest

import small_model
from libnibble import Library, Model, Refused
from plan_text import unwrapped
from serving import Server

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
sys.path.insert(0, str(GOLDEN))
import tiny  # noqa: E402

DEVICES = ["cpu:ref", "cpu:avx2", "cpu:avx512", "cpu:amx", "cpu:neon"]
GPUS = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"]
NO_GPU_OF_OURS = "sm_75"  # no build has kernels for it
WORDS = ["float32", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", "fp8_per_token_head",
         "int4_per_token_head", "nvfp4", "nvfp4_4over6"]
REFUSED_WORDS = ["fp8_inc", "fp8_ds_mla", "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"]


def llama(layers, hidden, heads, kv_heads, feed_forward, **more):
    return {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "intermediate_size": feed_forward, "max_position_embeddings": 131072, "vocab_size": 128256,
            "rms_norm_eps": 1e-5, "dtype": "bfloat16", "tie_word_embeddings": False, **more}


def hybrid(windows_in, **more):
    types = ["full_attention" if i % windows_in == windows_in - 1 else "sliding_attention" for i in range(more["num_hidden_layers"])]
    return {**llama(0, 0, 0, 0, 0), "model_type": "gemma3_text", "layer_types": types, "tie_word_embeddings": True, **more}


def nemotron(pattern, **more):
    return {"model_type": "nemotron_h", "num_hidden_layers": len(pattern), "hybrid_override_pattern": pattern, "head_dim": 128,
            "max_position_embeddings": 131072, "vocab_size": 131072, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
            "layer_norm_epsilon": 1e-5, "dtype": "bfloat16", "tie_word_embeddings": False, **more}


# Big public shapes, as config.json alone.
CONFIGS = {
    "8b": llama(32, 4096, 32, 8, 14336),
    "70b": llama(80, 8192, 64, 8, 28672),
    "hybrid-27b": hybrid(6, num_hidden_layers=62, hidden_size=5376, num_attention_heads=32, num_key_value_heads=16, head_dim=128,
                         intermediate_size=21504, sliding_window=1024, vocab_size=262208),
    "nemotron-9b": nemotron("M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", hidden_size=4480, num_attention_heads=40,
                            num_key_value_heads=8, intermediate_size=15680, mamba_num_heads=128, mamba_head_dim=80),
    "nemotron-30b": nemotron("MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", hidden_size=2688, num_attention_heads=32,
                             num_key_value_heads=2, intermediate_size=1856, mamba_num_heads=64, mamba_head_dim=64, n_routed_experts=128,
                             num_experts_per_tok=6, moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712,
                             n_shared_experts=1, routed_scaling_factor=2.5),
    **{f"head-{dim}": llama(4, 16 * dim, 16, 4, 4096, head_dim=dim) for dim in (64, 80, 96, 128, 192, 256)},
}


@pytest.fixture
def plan(nibble, tmp_path):
    """Of models that were never loaded: what was measured then would be part of the plan."""
    def plan(model, *flags, **environment):
        unmeasured = {**os.environ, "NIBBLE_CACHE": str(tmp_path), **environment}
        return subprocess.run([nibble, "plan", str(model), *flags], capture_output=True, text=True, timeout=60, env=unmeasured)
    return plan


@pytest.fixture(scope="session")
def models(tmp_path_factory, smollm2, gemma3):
    """Every model by name: real ones, tiny ones of each architecture, config.json alone."""
    folder = tmp_path_factory.mktemp("models")
    paths = {"smollm2": smollm2, "gemma3": gemma3}
    for name in tiny.names():
        golden = tiny.load(name)
        (folder / f"tiny-{name}").mkdir()
        writer = tiny.write_safetensors if "safetensors" in golden["containers"] else lambda g, f: tiny.write_gguf(g, f / "model.gguf")
        paths[f"tiny-{name}"] = writer(golden, folder / f"tiny-{name}")
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        paths[name] = folder / name
    return paths


@pytest.fixture(scope="module")
def small(smollm2, tmp_path_factory):
    """A model of one layer that is quick to run."""
    return small_model.write(smollm2, tmp_path_factory.mktemp("small") / "small.gguf")


# ---- expected texts -------------------------------------------------------------------------------------------------

def scenes():
    for model in ["smollm2", "gemma3", *CONFIGS]:
        yield f"{model}-devices", [(model, ["--device", device]) for device in DEVICES]
        yield f"{model}-gpus", [(model, ["--device", device]) for device in [*GPUS, NO_GPU_OF_OURS, "none"]]
    for model in ["gemma3", "8b", "head-80", "head-192"]:
        yield f"{model}-formats-gpus", [(model, ["--device", device, "--kv-cache-dtype", word])
                                        for device in ("sm_90", "sm_120") for word in (*WORDS, "fp8/nvfp4")]
    for model in ["smollm2", "gemma3", "70b", "head-80", "head-192"]:
        yield f"{model}-formats", [(model, ["--device", "cpu:avx2", "--kv-cache-dtype", word]) for word in WORDS + REFUSED_WORDS + ["fp8/nvfp4"]]
    windows = ["--device", "cpu:ref", "--max-model-len", "8192"]
    yield "gemma3-windows", [
        ("gemma3", [*windows, "--kv-cache-dtype", "nvfp4", "--kv-cache-dtype-skip-layers", "sliding_window"]),
        ("gemma3", [*windows, "--kv-cache-dtype", "nvfp4", "--kv-cache-dtype-skip-layers", "5", "11", "17"]),
        ("gemma3", [*windows, "--kv-cache-dtype", "fp8/nvfp4"]),
        ("gemma3", [*windows, "--kv-cache-dtype", "0-4:fp8/nvfp4,5-:bfloat16", "--verbose"]),
    ]
    yield "tiny", [(f"tiny-{name}", ["--device", "cpu:ref", "--kv-cache-dtype", "fp8"]) for name in tiny.names()]
    yield "memory", [("8b", ["--device", "cpu:avx2", "--memory", size]) for size in ("12G", "16G", "20G", "80G")]
    yield "memory-length", [("8b", ["--device", "cpu:avx2", "--memory", "20G", "--max-model-len", "131072", *flags])
                            for flags in ([], ["--kv-cache-dtype", "nvfp4"], ["--max-num-seqs", "64", "--kv-cache-dtype", "fp8"])]
    many = ["--device", "cpu:avx2", "--max-num-seqs", "64"]
    yield "serving", [
        ("8b", [*many, "--memory", "40G", "--max-model-len", "8192"]), ("8b", [*many, "--memory", "40G", "--max-num-batched-tokens", "2048"]),
        ("8b", [*many, "--kv-cache-memory-bytes", "12G", "--max-model-len", "32768"]),
        ("hybrid-27b", [*many, "--memory", "100G", "--max-model-len", "16384"]), ("hybrid-27b", [*many, "--kv-cache-memory-bytes", "30G"]),
        ("8b", [*many, "--kv-cache-memory-bytes", "1G", "--max-model-len", "32768"]), ("8b", [*many, "--memory", "40G", "--kv-cache-memory-bytes", "38G"]),
        ("nemotron-30b", [*many, "--memory", "100G", "--kv-cache-dtype", "nvfp4"]), ("nemotron-9b", [*many, "--memory", "60G", "--mamba-block-size", "512"]),
    ]


NO_CODE = re.compile(r"^code      this build holds no (sm_\d+) code: build with -Dcuda-archs=(\d+)a? to run it\n", re.M)


def has_code(nibble):
    """Whether a build has code for a GPU: its own, or PTX of an older one than every GPU that the build knows."""
    lines = subprocess.run([nibble, "env"], capture_output=True, text=True, check=True).stdout.splitlines()
    built = next(line.split()[1:] for line in lines if line.startswith("build.cuda "))
    own = [int(word.removeprefix("sm_")) for word in built if re.fullmatch(r"sm_\d+", word)]
    ptx = any(word.startswith("compute_") for word in built)
    return lambda device: int(device.removeprefix("sm_")) in own or (ptx and int(device.removeprefix("sm_")) > max(own, default=0))


@pytest.mark.parametrize("name, calls", list(scenes()), ids=lambda value: value if isinstance(value, str) else "")
def test_expected_text(nibble, plan, models, name, calls):
    """Every build prints the same, but for the line that says what code it does not hold."""
    code, text = has_code(nibble), ""
    for model, flags in calls:
        result = plan(models[model], *flags)
        device = flags[flags.index("--device") + 1]
        missing = result.returncode == 0 and device in GPUS and not code(device)
        assert [match[0] for match in NO_CODE.findall(result.stdout)] == ([device] if missing else [])
        text += f"$ nibble plan {model} {' '.join(flags)}\n{NO_CODE.sub('', result.stdout)}{result.stderr}"
        text += f"-> {result.returncode}\n\n"
    path = GOLDEN / "plans" / f"{name}.txt"
    if os.environ.get("NIBBLE_UPDATE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("model", ["70b", "8b", "gemma3"])
def test_planning_is_quick(plan, models, model):
    """In CPU time, which other programs on the machine do not lengthen much: 0.02 s on a quiet one."""
    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    times = [spent()]
    for _ in range(5):
        plan(models[model], "--device", "cpu:avx2")
        times.append(spent())
    assert min(after - before for before, after in itertools.pairwise(times)) < 0.2


# ---- for people ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("flags", [[], ["--verbose"]], ids=["short", "verbose"])
def test_plans_fit_eighty_columns(plan, models, flags):
    for model in models:
        for device in ("cpu:amx", "sm_90"):
            text = plan(models[model], "--device", device, *flags).stdout
            assert text and not [line for line in text.splitlines() if len(line) > 80 and " " in line[10:].strip()], text


def test_the_text_says_what_the_json_says(plan, models):
    """Kernels by tokens, what a context costs, what was rejected and what to try next."""
    flags = ["--device", "cpu:avx512", "--max-model-len", "4096"]
    found, text = json.loads(plan(models["smollm2"], *flags, "--json").stdout), unwrapped(plan(models["smollm2"], *flags).stdout)
    linear = next(binding for binding in found["bindings"] if binding["op"] == "linear")
    for load in linear["kernels"]:
        assert re.search(rf" {re.escape(load['tokens'])} +{load['kernel']}$", text, re.M)
    thousand, whole = found["memory"]["sequence"]
    assert (thousand["tokens"], whole["tokens"]) == (1000, 4096) and whole["k"] + whole["v"] == 4096 * found["memory"]["bytes_per_token"]
    assert "1000 tokens of context take " in text and "; 4096 take " in text
    assert re.search(r"^rejected: linear_amx_prefill: needs amx-tile amx-int8$", text, re.M)
    assert found["next"]["flags"] == ["--kv-cache-dtype", "nvfp4"] and found["next"]["tokens_factor"] > 3
    assert text.splitlines()[-1].startswith("next      --kv-cache-dtype nvfp4 would fit 3.")


@pytest.mark.parametrize("flags, origins", [
    ([], {"auto: the model's own type"}), (["--kv-cache-dtype", "nvfp4"], {"--kv-cache-dtype"}),
    (["--kv-cache-dtype", "nvfp4", "--kv-cache-dtype-skip-layers", "0", "29"], {"--kv-cache-dtype", "--kv-cache-dtype-skip-layers"}),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_each_layer_says_where_its_format_comes_from(plan, models, flags, origins):
    found = json.loads(plan(models["smollm2"], *flags, "--json").stdout)
    assert {layer["format_origin"] for layer in found["layers"]} == origins
    assert all(origin in unwrapped(plan(models["smollm2"], *flags).stdout) for origin in origins)


def test_what_is_suggested_next_is_accepted(plan, models):
    for model in models:
        for device in ("cpu:avx2", "sm_80"):
            step = json.loads(plan(models[model], "--device", device, "--json").stdout)["next"]
            if step:
                assert plan(models[model], "--device", device, *step["flags"]).returncode == 0
    assert json.loads(plan(models["8b"], "--device", "sm_90", "--kv-cache-dtype", "nvfp4", "--json").stdout)["next"] is None


def test_layers_are_grouped(plan, models):
    text = plan(models["hybrid-27b"], "--device", "sm_90").stdout
    assert len(re.findall(r"(window 1024|full) +bfloat16", text)) == 2 and "\n52 of 62 window 1024 " in text


# ---- figures add up -------------------------------------------------------------------------------------------------

SIZE = r"([\d.]+ [KMGT]?i?B)"
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def bytes_of(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


@pytest.mark.parametrize("device", ["cpu:ref", "cpu:avx2", "cpu:amx", "sm_90"])
@pytest.mark.parametrize("model", ["smollm2", "gemma3", "tiny-llama_k_quants", "8b", "nemotron-9b"])
def test_weights_add_up(nibble, plan, models, model, device):
    """What the formats sum to, the layout and second copies are what weights take, for programs and in the text."""
    found = json.loads(plan(models[model], "--device", device, "--json").stdout)
    weights = found["weights"]
    listed = sum(weights["by_format"].values())
    assert listed + weights["layout_bytes"] + weights["copied_bytes"] == weights["bytes"] == found["memory"]["weights"]
    text = unwrapped(plan(models[model], "--device", device).stdout)
    listed_text = re.search(rf"^weights   {SIZE}: ", text, re.M)[1]
    memory_text = re.search(rf"^memory    weights {SIZE} ", text, re.M)[1]
    packed = re.search(r"^packed    (.*)$", text, re.M)
    assert bytes_of(listed_text) == pytest.approx(listed, rel=0.05)
    assert (packed is None) == (listed_text == memory_text), text
    if packed:
        in_memory, *parts = re.findall(SIZE, packed[1])
        sign = -1 if " less " in packed[1] else 1
        whole = bytes_of(listed_text) + sign * bytes_of(parts[0]) + sum(map(bytes_of, parts[1:]))
        assert in_memory == memory_text and bytes_of(in_memory) == pytest.approx(whole, rel=0.01)


def test_tokens_and_bytes_are_named(nibble, small, plan):
    """The same words for the same figures in the plan, in a refusal and in the line that says a server is ready."""
    flags = ["--max-model-len", "512", "--max-num-seqs", "4"]
    found = json.loads(plan(small, *flags, "--json").stdout)
    per_token = sum(layer["bytes_per_token"] for layer in found["layers"])
    text = unwrapped(plan(small, *flags).stdout)
    words = f"context length 512 tokens, cache capacity {found['memory']['tokens']} tokens"
    assert f"{per_token} bytes per token (all layers), {words}" in text and "bytes/token/layer" in text
    assert f"({per_token} bytes per token, all layers)" in plan(small, "--device", "none").stderr
    with Server(nibble, small, *flags) as server:
        assert found["memory"]["tokens"] == 2048
        assert words in next(line for line in server.log if "ready on" in line)
        assert words in next(line for line in server.log if line.startswith("plan: "))


def test_heads_in_the_words_of_the_field(plan, models):
    for model, words in (("smollm2", "9 query heads, 3 KV heads (GQA 3:1), head size 64"), ("gemma3", "4 query heads, 1 KV head (MQA), head size 256"),
                         ("tiny-llama", "2 query heads, as many KV heads (MHA), head size 64"), ("tiny-deepseek_v2", "MLA latents of 512 channels and 64 rotary ones")):
        assert re.search(rf"^heads     .*{re.escape(words)}$", plan(models[model], "--device", "cpu:ref").stdout, re.M)


# ---- refusals offer what runs ---------------------------------------------------------------------------------------

def replaced(flags, flag, value):
    """The flags with one in place of, or beside, those of the same name."""
    kept, skip = [], False
    for word in flags:
        skip = word == flag if word.startswith("--") else skip
        if not skip:
            kept.append(word)
    return [*kept, flag, *value.split()]


@pytest.mark.parametrize("model, flags", [
    ("smollm2", ["--device", NO_GPU_OF_OURS, "--kv-cache-dtype", "nvfp4"]), ("8b", ["--device", "none"]),
    ("head-80", ["--device", "cpu:avx2", "--kv-cache-dtype", "int4_per_token_head"]),
    ("head-192", ["--device", "cpu:ref", "--kv-cache-dtype", "int4_per_token_head/fp8"]),
    ("8b", ["--device", "cpu:avx2", "--memory", "20G", "--max-model-len", "131072"]),
    ("8b", ["--device", "cpu:avx2", "--kv-cache-memory-bytes", "2G", "--max-num-seqs", "16"]),
    ("8b", ["--device", "cpu:avx2", "--memory", "40G", "--kv-cache-memory-bytes", "38G"]),
    ("hybrid-27b", ["--device", "cpu:avx2", "--kv-cache-memory-bytes", "3G", "--max-model-len", "32768"]),
    *[("gemma3", ["--device", "cpu:ref", "--kv-cache-dtype", word]) for word in REFUSED_WORDS],
])
def test_every_alternative_is_accepted(plan, models, model, flags):
    result = plan(models[model], *flags, "--json")
    refusal = json.loads(result.stdout)
    if result.returncode == 0:
        pytest.fail("this was meant to be refused")
    assert refusal["accepted"] is False and refusal["flag"] in result.stderr and refusal["alternatives"], refusal
    assert set(refusal) >= {"flag", "value", "device", "layers", "candidates", "alternatives"}
    for alternative in refusal["alternatives"]:
        flag, value = alternative["flags"]
        assert f"  {flag} {value}  (" in result.stderr
        accepted = json.loads(plan(models[model], *replaced(flags, flag, value), "--json").stdout)
        assert accepted["accepted"], alternative
        assert sum(layer["bytes_per_token"] for layer in accepted["layers"]) == alternative["bytes_per_token"]


def offered_by(result):
    assert result.returncode == 1 and "what would run:" in result.stderr, result.stderr
    return re.findall(r"^  (--\S+) (.+?)  \(", result.stderr, re.M)


@pytest.mark.parametrize("flags", [["--device", "cuda:15"], ["--kv-cache-dtype", "fp8_ds_mla"]], ids=" ".join)
def test_what_run_offers_it_takes(nibble, small, flags):
    """A device that can only be planned for is no alternative to one that is not there."""
    command = [nibble, "run", small, "--raw", "a", "--max-tokens", "1", "--threads", "1", "--temperature", "0"]
    alternatives = offered_by(subprocess.run([*command, *flags], capture_output=True, text=True))
    assert alternatives
    for flag, value in alternatives:
        done = subprocess.run([*command, *replaced(flags, flag, value)], capture_output=True, text=True)
        assert done.returncode == 0, (flag, value, done.stderr)


@pytest.mark.parametrize("flags", [["--device", "cuda:15"], ["--kv-cache-memory-bytes", "1000"]], ids=" ".join)
def test_what_serve_offers_it_takes(nibble, small, flags):
    command = [nibble, "serve", small, "--port", "0", "--max-num-seqs", "2", *flags]
    alternatives = offered_by(subprocess.run(command, capture_output=True, text=True))
    assert alternatives
    for flag, value in alternatives:
        with Server(nibble, small, "--max-num-seqs", "2", *replaced(flags, flag, value)) as server:
            assert server.model


@pytest.mark.parametrize("command", ["run", "eval", "bench", "tune", "serve"])
def test_no_command_that_runs_a_model_offers_an_imagined_device(nibble, small, command):
    needed = {"run": ["a"], "serve": ["--port", "0"], "eval": ["--text", "/nowhere"], "tune": ["--text", "/nowhere", "--bits", "8"]}
    done = subprocess.run([nibble, command, small, *needed.get(command, []), "--device", "cuda:15"], capture_output=True, text=True)
    devices = {value for flag, value in offered_by(done) if flag == "--device"}
    assert "cpu" in devices and devices <= {"cpu", "cuda"}
    for word in ("cpu:avx2", "cpu:avx", "sm_9", "none"):  # imagined ones, and near misses of them
        done = subprocess.run([nibble, command, small, *needed.get(command, []), "--device", word], capture_output=True, text=True)
        assert done.returncode in (1, 2) and "there are cpu, cuda and cuda:N\n" in done.stderr and "did you mean" not in done.stderr, done.stderr


def test_a_kv_plan_leaves_no_room_for_its_flags(plan, models, tmp_path):
    """Beside the file they would be refused."""
    (tmp_path / "kv.json").write_text(json.dumps({"kv_plan": 1, "architecture": "llama", "layers": 32, "kv_cache_dtype": "bfloat16"}))
    flags = ["--kv-plan", str(tmp_path / "kv.json"), "--device", "cpu:avx2", "--memory", "20G", "--max-model-len", "131072"]
    alternatives = offered_by(plan(models["8b"], *flags))
    assert [flag for flag, _ in alternatives] == ["--max-model-len"]
    assert plan(models["8b"], *replaced(flags, *alternatives[0])).returncode == 0


# ---- what is wrong is said before anything is read or loaded -------------------------------------------------------

@pytest.mark.parametrize("command, flags", [
    ("eval", ["--text", "/nowhere", "--kv-cache-dtype", "foo"]), ("eval", ["--text", "/nowhere", "--against", "foo"]),
    ("eval", ["--text", "/nowhere", "--sweep", "--kv-cache-dtype", "fp8,foo"]), ("eval", ["--text", "/nowhere", "--sweep", "--against", "foo"]),
    ("eval", ["--text", "/nowhere", "--sweep", "--kv-transform", "foo"]), ("tune", ["--text", "/nowhere", "--bits", "8", "--kv-transform", "foo"]),
    ("bench", ["--kv-cache-dtype", "bfloat16,foo"]), ("serve", ["--port", "0", "--quality-gate", "1", "--kv-cache-dtype", "foo"]),
], ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_a_wrong_word_costs_nothing(nibble, models, command, flags):
    """Of a model without a tokenizer, a text that is not there and a wrong word, the word is what is complained about."""
    short = {"eval": ["--context", "16"], "tune": ["--context", "16"], "bench": ["-p", "4", "-n", "0"]}.get(command, [])
    done = subprocess.run([nibble, command, models["tiny-llama"], *short, *flags], capture_output=True, text=True)
    assert done.returncode == 2 and '"foo" is' in done.stderr, done.stderr
    assert "plan: " not in done.stderr, "something was loaded before"


def test_nearest_in_bytes_comes_first(plan, models):
    for word, first in (("fp8_inc", {"fp8_e4m3", "fp8_e5m2"}), ("turboquant_4bit_nc", {"nvfp4", "nvfp4_4over6", "int4_per_token_head"})):
        refusal = json.loads(plan(models["8b"], "--device", "cpu:avx2", "--kv-cache-dtype", word, "--json").stdout)
        assert refusal["alternatives"][0]["flags"][1] in first


# ---- the situations this grew from ----------------------------------------------------------------------------------

def test_format_without_a_kernel_on_the_device_is_refused_at_once(plan, models):
    result = plan(models["smollm2"], "--device", NO_GPU_OF_OURS, "--kv-cache-dtype", "nvfp4")
    assert result.returncode == 1 and result.stdout == ""
    assert NO_GPU_OF_OURS in result.stderr and "--device cpu" in result.stderr


def test_likeness_admits_nothing(nibble, plan, models):
    """Each row takes exactly the words it lists: one question per (row, word)."""
    rows = json.loads(subprocess.run([nibble, "kernels", "--json"], capture_output=True, text=True).stdout)["kernels"]
    attention = [row for row in rows if row["op"] == "attention" and row["runs"]]
    assert attention
    for row in attention:
        for word in [*WORDS, *REFUSED_WORDS]:
            result = plan(models["smollm2"], "--kv-cache-dtype", word, "--attention-kernel", row["name"], "--json")
            canonical = "fp8_e4m3" if word == "fp8" else word
            listed = canonical in row["k"] and canonical in row["v"]
            assert json.loads(result.stdout)["accepted"] == listed, (row["name"], word)


def test_a_plan_binds_only_what_rows_list(nibble, plan, models):
    rows = {row["name"]: row for row in json.loads(subprocess.run([nibble, "kernels", "--json"], capture_output=True, text=True).stdout)["kernels"]}
    for model in ("smollm2", "gemma3", "70b", "head-80", "tiny-qwen3"):
        for word in ("auto", "fp8/nvfp4", "int8_per_token_head", "nvfp4_4over6"):
            for layer in json.loads(plan(models[model], "--device", "cpu:amx", "--kv-cache-dtype", word, "--json").stdout)["layers"]:
                bound = [rows[name] for op, name in layer["kernels"].items() if op.split()[0] in ("attention", "kv_write")]
                assert len(bound) >= 2 and all(layer["k"] in row["k"] and layer["v"] in row["v"] for row in bound)


def test_pinned_kernel(plan, models):
    assert plan(models["smollm2"], "--attention-kernel", "attention_ref").returncode == 0
    result = plan(models["smollm2"], "--attention-kernel", "atention_ref")
    assert result.returncode == 2 and "did you mean attention_ref?" in result.stderr


@pytest.mark.parametrize("flags, words", [
    (["--kv-cache-dtype-skip-layers", "30"], ["30", "0 to 29"]), (["--kv-cache-dtype-skip-layers", "sliding_window"], ["no layer", "window"]),
    (["--kv-cache-dtype-skip-layers", "first"], ["first"]), (["--device", "sm90"], ["sm90", "did you mean sm_90"]),
    (["--device", "gpu"], ["did you mean cuda?", "there are cpu"]), (["--device", "cpu:avx3"], ["did you mean cpu:avx2"]),
    (["--memory", "lots"], ["--memory"]),
])
def test_flags_that_make_no_sense(plan, models, flags, words):
    result = plan(models["smollm2"], *flags)
    assert result.returncode == 2 and all(word in result.stderr for word in words), result.stderr


def test_no_gpu_is_an_ordinary_refusal(plan, models):
    result = plan(models["smollm2"], "--device", "cuda:15", "--json")
    refusal = json.loads(result.stdout)
    assert result.returncode == 1 and refusal["flag"] == "--device" and refusal["reason"]
    assert ["--device", "cpu"] in [alternative["flags"] for alternative in refusal["alternatives"]]


@pytest.mark.parametrize("device, word", [("cpu:avx2", "imagined"), ("sm_120", "imagined"), ("cuda:15", "--device cuda:15")])
def test_an_engine_runs_on_what_is_here_or_not_at_all(library, smollm2, device, word):
    with pytest.raises(Refused, match=word):
        Model(Library(library), smollm2, device=device)


def run(nibble, model, *flags):
    command = [nibble, "run", model, "--raw", "The old lighthouse keeper", "--temperature", "0", "--max-tokens", "16", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def test_skipped_layers_run_in_their_own_formats(nibble, gemma3):
    windows = "0-4:bfloat16,5:nvfp4,6-10:bfloat16,11:nvfp4,12-16:bfloat16,17:nvfp4"
    plain = ["--kv-transform", "none", "--kv-scale", "amax", "--kv-sink-pages", "0"] # so that four bits show
    skipped = run(nibble, gemma3, "--kv-cache-dtype", "nvfp4", "--kv-cache-dtype-skip-layers", "sliding_window", *plain)
    assert skipped == run(nibble, gemma3, "--kv-cache-dtype", windows, *plain)
    everything = run(nibble, gemma3, "--kv-cache-dtype", "nvfp4", "--kv-cache-dtype-skip-layers", "0-17")
    assert everything == run(nibble, gemma3, "--kv-cache-dtype", "bfloat16") and everything != skipped


# ---- what the checkpoint declares -----------------------------------------------------------------------------------

@pytest.mark.parametrize("file, content, formats", [
    ("config.json", {"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}}, "fp8_e4m3"),
    ("config.json", {"quantization_config": {"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 4, "type": "float"}}}, "nvfp4"),
    ("config.json", {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
    ("hf_quant_config.json", {"quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8_e4m3"),
    ("hf_quant_config.json", {"quantization": {"kv_cache_quant_algo": None}}, "bfloat16"),
])
def test_auto_follows_the_declaration(plan, tmp_path, file, content, formats):
    config = llama(4, 256, 4, 2, 512)
    (tmp_path / "config.json").write_text(json.dumps({**config, **(content if file == "config.json" else {})}))
    if file != "config.json":
        (tmp_path / file).write_text(json.dumps(content))
    layers = json.loads(plan(tmp_path, "--device", "cpu:ref", "--json").stdout)["layers"]
    assert {layer["k"] for layer in layers} == {layer["v"] for layer in layers} == {formats}
    skipped = json.loads(plan(tmp_path, "--device", "cpu:ref", "--kv-cache-dtype-skip-layers", "1", "--json").stdout)["layers"]
    assert skipped[1]["k"] == "bfloat16" and skipped[0]["k"] == formats


def test_auto_follows_each_layers_declaration(plan, tmp_path):
    layers = {"model.layers.0.self_attn": "FP8", "model.layers.3.self_attn": {"quant_algo": "NVFP4"}}
    config = llama(4, 256, 4, 2, 512, quantization_config={"quant_method": "modelopt", "kv_cache_quantized_layers": layers})
    (tmp_path / "config.json").write_text(json.dumps(config))
    planned = json.loads(plan(tmp_path, "--device", "cpu:ref", "--json").stdout)["layers"]
    assert [layer["k"] for layer in planned] == ["fp8_e4m3", "bfloat16", "bfloat16", "nvfp4"]


def test_unknown_declaration_refuses_auto_alone(plan, tmp_path):
    config = llama(4, 256, 4, 2, 512, quantization_config={"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 3, "type": "int"}})
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = plan(tmp_path, "--device", "cpu:ref")
    assert result.returncode == 1 and "num_bits" in result.stderr and "--kv-cache-dtype fp8" in result.stderr
    assert plan(tmp_path, "--device", "cpu:ref", "--kv-cache-dtype", "fp8").returncode == 0


def test_config_alone_is_planned_and_marked(plan, models, nibble):
    planned = json.loads(plan(models["70b"], "--device", "cpu:avx2", "--json").stdout)
    assert planned["accepted"] and planned["servable"] is False
    assert abs(planned["weights"]["bytes"] / 2 / 70.55e9 - 1) < 0.01
    assert subprocess.run([nibble, "run", str(models["70b"]), "hi"], capture_output=True).returncode == 1


# ---- a kernel that lies ---------------------------------------------------------------------------------------------

def test_a_corrupted_kernel_never_serves_a_token(nibble, smollm2):
    rows = json.loads(subprocess.run([nibble, "kernels", "--json"], capture_output=True, text=True).stdout)["kernels"]
    plan = json.loads(subprocess.run([nibble, "plan", smollm2, "--json"], capture_output=True, text=True).stdout)
    used = {name for layer in plan["layers"] for name in layer["kernels"].values()}
    for op in ("embed", "norm", "rope", "act_mul"):
        used.add(max((row for row in rows if row["op"] == op and row["runs"]), key=lambda row: row["priority"])["name"])
    priorities = {row["name"]: row["priority"] for row in rows}
    assert used <= priorities.keys()
    for name in sorted(used):
        result = subprocess.run([nibble, "run", smollm2, "--raw", "Once", "--max-tokens", "2"], capture_output=True, text=True,
                                env={**os.environ, "NIBBLE_FAULT": name})
        if priorities[name]:
            assert result.returncode == 0 and f"left out after a failed self-test: {name}" in result.stderr
        else:  # the reference, with nothing behind it
            assert result.returncode == 1 and result.stdout == "" and name in result.stderr and "self-test" in result.stderr
