# SPDX-License-Identifier: Apache-2.0
"""What shows the inside of a step: `run --trace ops`, NIBBLE_DUMP and `bench --ops` (doc/debugging.md)."""

import collections
import json
import os
import shutil
import subprocess

import gguf
import numpy as np
import pytest

import small_model
from ranks import MPI_SETTINGS

LAYER = ["norm", "linear", "rope", "kv_write", "attention", "linear2", "add", "norm2", "linear3", "act_mul", "linear4", "add2"]
NAMES = ["embed", *(f"0.{name}" for name in LAYER), "pick", "norm", "linear"]
SHORT, LONG = "one two", "one two three four five six seven eight nine ten eleven twelve"  # decode's kernels, and prefill's

Line = collections.namedtuple("Line", "step tokens op kernel shape rms checksum us")


@pytest.fixture(scope="module")
def small(smollm2, tmp_path_factory):
    return str(small_model.write(smollm2, tmp_path_factory.mktemp("trace") / "small.gguf"))


@pytest.fixture
def run(nibble, small, tmp_path):
    def run(prompt, *flags, tokens=3, **environment):
        return subprocess.run([nibble, "run", small, prompt, "--raw", "--device", "cpu", "--temperature", "0", "--max-tokens", str(tokens),
                               *map(str, flags)], capture_output=True, text=True, timeout=60, cwd=tmp_path,
                              env={**os.environ, **MPI_SETTINGS, **environment})
    return run


def lines_of(done):
    assert done.returncode == 0, done.stderr
    rows = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("trace ")]
    assert rows[0] == list(Line._fields)
    return [Line(*row) for row in rows[1:]]


def steps_of(lines):
    steps = collections.defaultdict(list)
    for line in lines:
        steps[int(line.step)].append(line)
    return [steps[number] for number in range(1, len(steps) + 1)]


def refused(done):
    assert done.returncode and not done.stdout
    sentence, = (line for line in done.stderr.splitlines() if line.startswith("nibble: "))
    return sentence


# ---- the trace -----------------------------------------------------------------------------------------------------


def bound(kernels, op, load):
    """The row of an op; of one that has several, that for 1 to 8 tokens or for more."""
    return kernels.get(op) or kernels[f"{op} {'1-8' if load == 'decode' else '9+'}"]


@pytest.mark.parametrize("prompt, load", [(SHORT, "decode"), (LONG, "prefill")])
def test_the_ops_are_the_plan(nibble, small, run, prompt, load):
    plan = json.loads(subprocess.check_output([nibble, "plan", small, "--device", "cpu", "--json"], text=True))
    kernels = plan["layers"][0]["kernels"]
    first, *others = steps_of(lines_of(run(prompt, "--trace", "ops")))
    assert int(first[0].tokens) > 1 and len(others) == 2
    for step, word in (first, load), *((other, "decode") for other in others):
        assert [line.op for line in step] == NAMES
        by_op = {line.op: line for line in step}
        assert by_op["0.attention"].kernel == bound(kernels, "attention", word) and by_op["0.kv_write"].kernel == kernels["kv_write"]
        assert by_op["0.linear"].kernel == bound(kernels, "linear", word)
        assert all(line.kernel.startswith(line.op.removeprefix("0.").rstrip("234")) for line in step)
        tokens = step[0].tokens
        assert by_op["0.linear"].shape == f"q:{tokens}x64,k:{tokens}x32,v:{tokens}x32" and by_op["0.kv_write"].shape == "-"
        assert by_op["linear"].shape.startswith("1x") and all(float(line.us) >= 0 for line in step)
        assert all((line.rms == line.checksum == "-") == (line.op == "0.kv_write") for line in step)


def test_only_times_differ(run):
    first, *others = ([line[:-1] for line in lines_of(run(LONG, "--trace", "ops", "--threads", threads))] for threads in (1, 1, 2))
    assert all(other == first for other in others)


def test_a_change_shows_where_it_begins(run):
    honest = lines_of(run(LONG, "--trace", "ops"))
    lying = lines_of(run(LONG, "--trace", "ops", "--no-self-test", NIBBLE_FAULT=honest[7].kernel))
    changed = [own.op for own, other in zip(honest, lying) if own.checksum != other.checksum]
    assert changed[0] == "0.add" == honest[7].op and "0.norm2" in changed


def test_the_answer_is_the_same(run):
    traced, plain = run(LONG, "--trace", "ops"), run(LONG)
    assert traced.stdout == plain.stdout and "trace " not in plain.stderr


# ---- dumps ---------------------------------------------------------------------------------------------------------


def load(folder, name):
    values = np.load(folder / name)
    assert values.dtype == np.float32 and values.flags.c_contiguous
    return values


def test_embed_is_a_gather(nibble, small, run, tmp_path):
    ids = [int(word) for word in subprocess.check_output([nibble, "tokenize", small, SHORT], text=True).split()]
    done = run(SHORT, tokens=2, NIBBLE_DUMP="embed")
    assert done.returncode == 0 and "wrote embed.step1.npy\n" in done.stderr
    table, = (tensor.data for tensor in gguf.GGUFReader(small).tensors if tensor.name == "token_embd.weight")
    assert np.array_equal(load(tmp_path, "embed.step1.npy"), table[ids].astype(np.float32))
    assert load(tmp_path, "embed.step2.npy").shape == (1, small_model.WIDTH)


def test_the_last_op_has_the_logits(small, run, tmp_path):
    """They are what the answer is drawn from: each token of it is looked up in the next step."""
    for name in "linear", "embed":
        assert run(LONG, NIBBLE_DUMP=name).returncode == 0
    table, = (tensor.data for tensor in gguf.GGUFReader(small).tensors if tensor.name == "token_embd.weight")
    for step in 1, 2:
        logits = load(tmp_path, f"linear.step{step}.npy")
        assert logits.shape == (1, len(table))
        assert np.array_equal(load(tmp_path, f"embed.step{step + 1}.npy")[0], table[logits.argmax()].astype(np.float32))


def test_several_results_are_several_files(run, tmp_path):
    done = run(LONG, "--trace", "ops", tokens=1, NIBBLE_DUMP="0.linear")
    tokens = int(lines_of(done)[0].tokens)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"0.linear.{name}.step1.npy" for name in "kqv"]
    assert [load(tmp_path, f"0.linear.{name}.step1.npy").shape for name in "qkv"] == [(tokens, 64), (tokens, 32), (tokens, 32)]


def test_a_dump_has_the_traced_values(run, tmp_path):
    line, = (line for line in lines_of(run(LONG, "--trace", "ops", tokens=1, NIBBLE_DUMP="0.norm2")) if line.op == "0.norm2")
    values, checksum = load(tmp_path, "0.norm2.step1.npy"), 0xcbf29ce484222325
    for word in values.view(np.uint32).ravel().tolist():
        checksum = (checksum ^ word) * 0x100000001b3 % 2**64
    assert f"{checksum:016x}" == line.checksum and "x".join(map(str, values.shape)) == line.shape
    assert float(line.rms) == pytest.approx(np.sqrt(np.mean(values.astype(float) ** 2)), rel=1e-3)


# ---- what cannot be ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["0.nonsense", "nonsense", "1.norm", "0.transform", "-1.norm", "0.norm3"])
def test_a_wrong_name(run, name):
    sentence = refused(run(SHORT, NIBBLE_DUMP=name))
    assert f'NIBBLE_DUMP: no op is called "{name}"' in sentence and ", ".join(NAMES[1:-3]) in sentence and "embed, pick, norm, linear" in sentence


def test_the_cache_is_no_array(run):
    assert "0.kv_write writes to the KV cache" in refused(run(SHORT, NIBBLE_DUMP="0.kv_write"))


def test_a_file_that_cannot_be_written(run, tmp_path):
    (tmp_path / "embed.step1.npy").mkdir()
    done = run(SHORT, NIBBLE_DUMP="embed")
    assert done.returncode and "embed.step1.npy cannot be written: Is a directory" in done.stderr


def test_an_unknown_trace(run):
    done = run(SHORT, "--trace", "kernels")
    assert done.returncode == 2 and 'option --trace takes none or ops, not "kernels"' in done.stderr


@pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no MPI")
def test_ranks_are_not_traced(run):
    done = run(SHORT, "-tp", 2, "--trace", "ops")
    assert done.returncode and "ops can be traced and dumped in one process only, not in 2 ranks" in done.stderr


# ---- the roofline --------------------------------------------------------------------------------------------------


def test_roofline(nibble, small):
    done = subprocess.run([nibble, "bench", small, "-p", "16", "-n", "4", "-r", "1", "--ops", "--device", "cpu"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    machine, prefill, decode = done.stdout.split("\n\n")
    listed = json.loads(subprocess.run([nibble, "kernels", "--json"], capture_output=True, text=True).stdout)
    op_of = {row["name"]: row["op"] for row in listed["kernels"]}
    assert "GB/s read" in machine
    for table, title in (prefill, "prefill, 16 tokens after 0"), (decode, "decode, 4 tokens in each of 1 sequences after 0"):
        first, header, *rows = table.splitlines()
        assert first.startswith(title) and header.split()[:2] == ["op", "kernel"]
        by_op = {row.split()[0]: row.split() for row in rows}
        assert list(by_op) == ["embed", "norm", "linear", "rope", "kv_write", "attention", "add", "act_mul", "pick", "all"]
        assert all(op_of[row[1]] == op for op, row in by_op.items() if op != "all")
        calls = {op: int(row[1 if op == "all" else 2]) for op, row in by_op.items()}
        assert calls["linear"] == 5 and calls["norm"] == 3 and calls["all"] == len(NAMES)
        megabytes, megaflops, us, share, gb_per_s, gflop_per_s, bound = map(float, by_op["linear"][3:-1])
        assert megabytes > 0 and megaflops > 0 and 0 < share <= 100 and bound > 0
        assert gb_per_s == pytest.approx(1e3 * megabytes / us, rel=0.05) and gflop_per_s == pytest.approx(1e3 * megaflops / us, rel=0.05)


@pytest.mark.parametrize("flag", ["--json", "--html=page.html"])
def test_the_roofline_is_a_table(nibble, small, tmp_path, flag):
    done = subprocess.run([nibble, "bench", small, "--ops", flag], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2 and f"cannot be combined with {flag.split('=')[0]}" in done.stdout + done.stderr
