# SPDX-License-Identifier: Apache-2.0
"""Plans for several ranks: what each of them holds, byte for byte, what they exchange, and what cannot be divided."""

import json
import pathlib
import subprocess
import sys

import pytest

from plan_text import unwrapped

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
sys.path.insert(0, str(GOLDEN))
import tiny  # noqa: E402

FLAG = "--tensor-parallel-size"
PAGE_TOKENS = 16
SHAPES = {  # layers, hidden, heads, KV heads, channels of a head, feed forward, vocabulary
    "70b": (80, 8192, 64, 8, 128, 28672, 128256),
    "odd": (3, 576, 9, 3, 64, 1544, 32064),
    "thirds": (3, 576, 3, 3, 64, 1544, 32064),
}


@pytest.fixture
def plan(nibble, tmp_path):
    def plan(model, *flags):
        return subprocess.run([nibble, "plan", str(model), *map(str, flags)], capture_output=True, text=True, timeout=60,
                              env={"NIBBLE_CACHE": str(tmp_path)})
    return plan


@pytest.fixture
def accepted(plan):
    def accepted(model, *flags):
        result = plan(model, "--json", *flags)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)
    return accepted


@pytest.fixture
def shape(tmp_path):
    def shape(name):
        layers, hidden, heads, kv_heads, head_dim, feed_forward, vocabulary = SHAPES[name]
        (tmp_path / "config.json").write_text(json.dumps({
            "model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": feed_forward, "vocab_size": vocabulary,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "dtype": "bfloat16", "tie_word_embeddings": False}))
        return tmp_path
    return shape


# ---- byte for byte --------------------------------------------------------------------------------------------------

def share(units, rank, ranks):
    """First and count of a rank's part of so many units."""
    first, end = units * rank // ranks, units * (rank + 1) // ranks
    return first, end - first


def aligned(count):
    return (count + 255) // 256 * 256


def heads_in(unit, heads, group, rank, ranks):
    first, count = (unit * units for units in share(heads // unit, rank, ranks))
    return first, count, first // group, -(-(first + count) // group) - first // group


def heads_of(heads, kv_heads, rank, ranks):
    """First head, heads, first KV head, KV heads. The heads of a KV head stay together unless the rank with most has fewer otherwise."""
    group = heads // kv_heads
    apart, together = ([heads_in(unit, heads, group, other, ranks) for other in range(ranks)] for unit in (1, group))
    most = [[max(own[i] for own in dealt) for i in (1, 3)] for dealt in (apart, together)]
    fairer = most[0][0] < most[1][0] and most[0][1] <= most[1][1]
    return (apart if fairer or kv_heads < ranks else together)[rank]


def vocabulary_of(vocabulary, rank, ranks):
    first, count = share(-(-vocabulary // 16), rank, ranks)
    return min((first + count) * 16, vocabulary) - first * 16


def width_of(name, rank, ranks):
    """Columns of the feed forward, in units of eight."""
    return 8 * share(SHAPES[name][5] // 8, rank, ranks)[1]


def expected_rank(name, rank, ranks, sequences, length, gpu):
    layers, hidden, heads, kv_heads, head_dim, feed_forward, vocabulary = SHAPES[name]
    first_head, own_heads, first_kv_head, own_kv_heads = heads_of(heads, kv_heads, rank, ranks)
    q, kv, width = own_heads * head_dim, own_kv_heads * head_dim, width_of(name, rank, ranks)
    own_vocabulary = vocabulary_of(vocabulary, rank, ranks)

    rows = [q * hidden, kv * hidden, kv * hidden, width * hidden, width * hidden]
    columns = [hidden * q, hidden * width]  # copied out of the file wherever they are read
    placed = layers * sum(aligned(2 * values) for values in columns)
    others = [*rows * layers, own_vocabulary * hidden, own_vocabulary * hidden]
    weights = placed + sum(aligned(2 * values) if gpu else 2 * values for values in others)
    weights += 2 * hidden * (2 * layers + 1)

    tokens, outputs = 512 if gpu else 256, max(min(sequences, 512), 128)
    part = max(vocabulary_of(vocabulary, other, ranks) for other in range(ranks))
    narrow, wide = 2 if gpu else 4, 4
    buffers = [(tokens, hidden, wide), (tokens, hidden, narrow), (tokens, q, narrow), (tokens, kv, narrow), (tokens, kv, narrow),
               (tokens, q, narrow), (tokens, width, narrow), (tokens, width, narrow), (outputs, hidden, wide),
               (outputs, vocabulary, wide), (tokens, ranks * hidden, wide), (outputs, ranks * -(-part // 16) * 16, wide)]
    pages = sequences * -(-length // PAGE_TOKENS)
    return {"first_head": first_head, "heads": own_heads, "first_kv_head": first_kv_head, "kv_heads": own_kv_heads, "weights": weights,
            "workspace": sum(aligned(count * values * size) for count, values, size in buffers),
            "pools": pages * layers * PAGE_TOKENS * 2 * kv * 2}


@pytest.mark.parametrize("device", ["cpu:ref", "sm_90"])
@pytest.mark.parametrize("name, ranks", [("70b", 2), ("70b", 8), ("70b", 16), ("odd", 2), ("odd", 4), ("thirds", 2)])
def test_bytes(nibble, accepted, shape, name, ranks, device):
    layers, hidden, *_, vocabulary = SHAPES[name]
    sequences, length = 64, 8192
    found = accepted(shape(name), "-tp", ranks, "--device", device, "--max-num-seqs", sequences, "--max-model-len", length, "--memory", "4000G")
    assert found["ranks"]["count"] == ranks == len(found["ranks"]["list"])
    for rank, held in enumerate(found["ranks"]["list"]):
        expected = expected_rank(name, rank, ranks, sequences, length, device == "sm_90")
        expected["workspace"] += held["scratch"]
        assert {key: held[key] for key in expected} == expected
    part = max(vocabulary_of(vocabulary, rank, ranks) for rank in range(ranks))
    assert found["ranks"]["sent_per_token"] == (ranks - 1) * 4 * hidden * (2 * layers + 1)
    assert found["ranks"]["sent_per_output"] == (ranks - 1) * 4 * (-(-part // 16) * 16)
    assert found["weights"]["bytes"] == found["ranks"]["list"][0]["weights"]


def test_least_of_all(accepted, shape):
    """A rank with two KV heads of three has room for fewer pages, and all have as many as that one."""
    memory = 200 << 20
    found = accepted(shape("thirds"), "-tp", 2, "--device", "cpu:ref", "--memory", memory, "--max-num-seqs", 64)
    light, heavy = found["ranks"]["list"]
    pool = found["memory"]["pools"][0]
    assert 2 * light["pools"] == heavy["pools"] == pool["pages"] * 2 * pool["page_bytes"]
    room = memory - heavy["weights"] - heavy["workspace"]
    assert room - 2 * pool["page_bytes"] < heavy["pools"] <= room


def test_states(accepted, tmp_path):
    """Whatever part of the keys and values a rank has, states are kept after as many tokens as in one process."""
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "nemotron_h", "num_hidden_layers": 2, "hybrid_override_pattern": "M*", "hidden_size": 512, "num_attention_heads": 6,
        "num_key_value_heads": 3, "head_dim": 128, "intermediate_size": 512, "vocab_size": 4096, "max_position_embeddings": 8192,
        "mamba_num_heads": 32, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "dtype": "bfloat16"}))
    whole, part = (accepted(tmp_path, "-tp", ranks, "--device", "cpu:ref")["memory"]["pools"] for ranks in (1, 2))
    assert [pool["page_tokens"] for pool in whole] == [pool["page_tokens"] for pool in part] == [PAGE_TOKENS, 1024]


# ---- real models ----------------------------------------------------------------------------------------------------

def test_weights_are_divided(accepted, smollm2):
    whole = accepted(smollm2)["weights"]["bytes"]
    halves = [rank["weights"] for rank in accepted(smollm2, "-tp", 2)["ranks"]["list"]]
    assert all(half <= 0.6 * whole for half in halves)
    assert whole <= sum(halves) <= 1.05 * whole


def test_text(plan, smollm2):
    text = unwrapped(plan(smollm2, f"{FLAG}=4", "--device", "cpu:ref").stdout)
    assert "ranks     4" in text and "exchange  each rank sends 411.8 KiB per token" in text
    assert "rank 1    query heads 2-3 of 9, KV heads 0-1 of 3" in text
    assert "copies    key/value heads, 2.6 MiB: the query heads of one are divided among ranks" in text
    assert plan(smollm2, "--device", "cpu:ref").stdout == plan(smollm2, "--device", "cpu:ref", "-tp", 1).stdout


COPIES = {"olmo2": "attention", "deepseek_v2": "latents", "nemotron_h": "recurrent blocks", "mixtral": "routers", "gemma2": "norms"}


@pytest.mark.parametrize("name", tiny.names())
def test_architectures(plan, accepted, tmp_path, name):
    golden = tiny.load(name)
    write = tiny.write_safetensors if "safetensors" in golden["containers"] else lambda g, f: tiny.write_gguf(g, f / "model.gguf")
    model = write(golden, tmp_path)
    halves = accepted(model, "-tp", 2, "--device", "cpu:ref")["ranks"]["list"]
    assert name not in COPIES or COPIES[name] in [entry["what"] for entry in halves[0]["replicated"]]
    result = plan(model, "--json", "-tp", 4, "--device", "cpu:ref")
    if result.returncode:  # too few heads, or blocks
        assert json.loads(result.stdout)["alternatives"][0]["flags"] == [FLAG, "2"]
    if "safetensors" in golden["containers"]:
        config = golden["config"].get("text_config", golden["config"])
        assert (result.returncode == 0) == (config["num_attention_heads"] >= 4)


# ---- refusals -------------------------------------------------------------------------------------------------------

def test_refused(plan, accepted, smollm2):
    result = plan(smollm2, "--json", "-tp", 10)
    refusal = json.loads(result.stdout)
    assert result.returncode == 1 and not refusal["accepted"]
    assert (refusal["flag"], refusal["value"]) == (FLAG, "10")
    assert "it has 9 heads" in refusal["reason"] and refusal["reason"].endswith("it can among 1-9")
    assert [entry["flags"] for entry in refusal["alternatives"]] == [[FLAG, str(ranks)] for ranks in (9, 8, 7, 6)]
    for entry in refusal["alternatives"]:
        assert accepted(smollm2, *entry["flags"])["ranks"]["count"] == int(entry["flags"][1])
    assert f"{FLAG} 9" in result.stderr


def test_memory_of_a_rank(plan, accepted, shape):
    """What one rank refuses is refused for all, and what it offers instead is accepted."""
    model, flags = shape("70b"), ["-tp", "8", "--device", "cpu:ref", "--memory", "18G"]
    refusal = json.loads(plan(model, "--json", *flags, "--max-model-len", 131072).stdout)
    assert refusal["flag"] == "--max-model-len"
    for entry in refusal["alternatives"][:2]:
        accepted(model, *flags, *([] if entry["flags"][0] == "--max-model-len" else ["--max-model-len", 131072]), *entry["flags"])


@pytest.mark.parametrize("value", ["0", "65", "-1", "two", ""])
def test_not_a_number_of_ranks(plan, smollm2, value):
    result = plan(smollm2, "-tp", value)
    assert result.returncode == 2 and "takes a whole number from 1 to 64" in result.stderr
