# SPDX-License-Identifier: Apache-2.0
"""What needs a GPU: run by scripts/test-gpu, skipped everywhere else."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from libnibble import Library, Model, Refused
from ranks import environment
from report_page import data_of
from serving import QUESTIONS, Server, text_of, user
from test_golden import CHUNKS, CONTAINERS, cases, score

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "golden"))
import published  # noqa: E402
import tiny  # noqa: E402

pytestmark = pytest.mark.skipif(os.environ.get("NIBBLE_DEVICE") != "cuda", reason="no GPU: scripts/test-gpu runs these")

ERROR_MAX = 0.04  # of the largest logit: activations are bfloat16, which tiny models feel more than real ones
GREEDY_TOKENS = 32
STREAMS = 64
SETTLE_SECONDS = 10  # within which a process's memory is given back
MEMORY_SPREAD_MIB = 64


@pytest.fixture(scope="module")
def lib(library):
    return Library(library)


def open_on_gpu(lib, path, **options):
    """A model on the GPU; its head size may be one that no kernel there is compiled for."""
    try:
        return Model(lib, path, device="cuda", **options)
    except Refused as refused:
        if "head" in str(refused):
            pytest.skip(str(refused).splitlines()[0][:200])
        raise


# ---- logits ----


def has_experts(config):
    return any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))


def error_of(got, want, config):
    """The largest error of any position, in shares of the largest logit. Where experts are chosen, the median: of two that are
    nearly equal rounding chooses, and what the other one would have said is another thing. The same with the gated delta rule,
    whose results are normed even where they are next to nothing."""
    errors = np.abs(got - want).max(axis=-1) / np.abs(want).max()
    return np.median(errors) if has_experts(config) or "linear_num_value_heads" in config else errors.max()


@pytest.mark.parametrize("name, container", list(cases()))
def test_logits(lib, tmp_path, name, container):
    golden = tiny.load(name)
    with open_on_gpu(lib, CONTAINERS[container](golden, tmp_path), **golden.get("options", {})) as model:
        got = score(model, [golden["ids"]])[golden["positions"]]
    error = error_of(got, tiny.logits(golden), golden["config"])
    print(f"{name} {container}: error {error:.1e} of the largest logit")
    assert error <= ERROR_MAX


@pytest.mark.parametrize("name", published.SCHEMES)
def test_published_weights(lib, tmp_path, name):
    with open_on_gpu(lib, published.write(name, tmp_path)) as model:
        got = score(model, [published.ids(name)])[published.POSITIONS]
    error = error_of(got, published.logits(name), published.config_of(name))
    print(f"{name}: error {error:.1e} of the largest logit")
    assert error <= ERROR_MAX


@pytest.mark.parametrize("name", tiny.names())
def test_chunks_change_little(lib, tmp_path, name):
    golden = tiny.load(name)
    ends = np.cumsum(CHUNKS)
    parts = [golden["ids"][end - count:end] for end, count in zip(ends, CHUNKS)]
    with open_on_gpu(lib, CONTAINERS[golden["containers"][0]](golden, tmp_path), **golden.get("options", {})) as model:
        whole = score(model, [golden["ids"]])
        assert np.array_equal(score(model, [golden["ids"]]), whole), "the same text gives other logits the second time"
        error = error_of(score(model, parts), whole, golden["config"])
    print(f"{name}: chunks change {error:.1e} of the largest logit")
    assert error <= ERROR_MAX


@pytest.mark.parametrize("format", ["float16", "fp8", "fp8_e5m2", "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head",
                                    "nvfp4", "nvfp4_4over6", "fp8/nvfp4"])
@pytest.mark.parametrize("name", ["llama", "mistral_window", "gemma3", "gemma3_multimodal"])
def test_cache_formats(lib, tmp_path, name, format):
    """A cache of few bits has its own error; it is no larger than on the CPU."""
    golden = tiny.load(name)
    path = CONTAINERS["safetensors"](golden, tmp_path)
    logits = {}
    for device, word in (("cpu", "float32"), ("cpu", format), ("cuda", format)):
        with Model(lib, path, kv_cache_dtype=word, device=device) as model:
            logits[device, word] = score(model, [golden["ids"]])
    exact = logits["cpu", "float32"]
    on_cpu, on_gpu = (np.sqrt(np.square(logits[device, format] - exact).mean() / np.square(exact).mean()) for device in ("cpu", "cuda"))
    print(f"{name} {format}: {on_gpu:.1e} from float32, on the CPU {on_cpu:.1e}")
    assert on_gpu <= 1.3 * on_cpu + ERROR_MAX


@pytest.mark.parametrize("name", ["llama", "mistral_window", "gemma3"])
def test_steps_that_are_started_early_change_nothing(lib, tmp_path, name):
    """Requests that want logprobs keep all steps in turn. Others have theirs started before the last tokens are known."""
    golden = tiny.load(name)
    prompts = [golden["ids"][:count] for count in (3, 9, 16, 17, 20, 31)]
    with open_on_gpu(lib, CONTAINERS["safetensors"](golden, tmp_path), max_num_seqs=len(prompts)) as model:
        for settings in ({}, {"temperature": 1.0, "top_k": 5, "seed": 3}):
            settings["scheduling"] = {"no_prefix_cache": True}  # else the second time reads other chunks, which changes bits
            in_turn = model.generate(prompts, max_tokens=24, top_logprobs=0, **settings)
            early = model.generate(prompts, max_tokens=24, **settings)
            assert [answer.tokens for answer in early] == [answer.tokens for answer in in_turn]
            stop = in_turn[0].tokens[7]
            stopped = model.generate(prompts, max_tokens=24, stop_ids=[stop], **settings)
            for answer, whole in zip(stopped, in_turn):
                end = whole.tokens.index(stop) + 1 if stop in whole.tokens else len(whole.tokens)
                assert answer.tokens == whole.tokens[:end] and answer.usage["answer_tokens"] == end


# ---- text ----


def greedy(nibble, model, prompt, device, *flags):
    environment = {**os.environ, "NIBBLE_FEATURES": "none"}  # where the CPU does not round activations to 8 bits
    command = [nibble, "run", model, prompt, "--temperature", "0", "--max-tokens", str(GREEDY_TOKENS), "--device", device, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Answers whose every token is ahead of the next best by 0.2 in log probability or more: between near-equals rounding decides.
@pytest.mark.parametrize("prompt", ["What is the capital of Germany?", "Recite the numbers from 1 to 15.", "List the months of the year.",
                                    "Count from one to ten."])
def test_smollm2_says_what_it_says_on_the_cpu(nibble, smollm2, prompt):
    assert greedy(nibble, smollm2, prompt, "cuda") == greedy(nibble, smollm2, prompt, "cpu")


def test_gemma3_says_what_it_says_on_the_cpu(nibble, gemma3):
    prompt = "Monday, Tuesday, Wednesday, Thursday,"
    assert greedy(nibble, gemma3, prompt, "cuda", "--raw") == greedy(nibble, gemma3, prompt, "cpu", "--raw")


# ---- what is printed is what runs ----


@pytest.mark.parametrize("flags", [[], ["--kv-cache-dtype", "fp8"], ["--kv-cache-dtype", "nvfp4"]])
def test_what_is_launched_is_what_the_plan_names(nibble, smollm2, gemma3, tmp_path, flags):
    """Every function that the driver was asked to start is one of a row that the plan has and that the trace names."""
    drawing = {"sample_peaks", "sample_masses", "sample_draw"}
    for model in (smollm2, gemma3):
        plan = json.loads(subprocess.run([nibble, "plan", model, "--device", "cuda", *flags, "--json"], capture_output=True, text=True).stdout)
        rows = {row["kernel"]: row for row in plan["kernels"]}
        for words in (1, 20, 50, 100, 300):
            launches = tmp_path / f"launches_{words}"
            done = subprocess.run([nibble, "run", model, "word " * words, "--raw", "--max-tokens", "3", "--device", "cuda", "--trace", "ops",
                                   "--no-self-test", *flags], capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "NIBBLE_LAUNCHES": str(launches)})
            assert done.returncode == 0, done.stderr
            launched = {line.split()[0] for line in launches.read_text().splitlines()}
            assert launched <= {name for row in rows.values() for name in row["functions"]} | drawing
            named = {name for line in done.stderr.splitlines() for word in line.split() for name in word.split("+") if name in rows}
            assert named and all(rows[name]["functions"][0] in launched for name in named)
            assert launched <= {name for row in named for name in rows[row]["functions"]} | drawing


# ---- a kernel that lies ----


def rows_in_use(nibble, model):
    """The names of the GPU's rows that a plan has, and of all that there are for each of their ops."""
    run = lambda *command: json.loads(subprocess.run([nibble, *command, "--device", "cuda", "--json"], capture_output=True, text=True).stdout)
    rows = [row for row in run("kernels")["kernels"] if row["runs"]]
    used = {row["kernel"] for row in run("plan", model)["kernels"]}
    return used, {name: [row["name"] for row in rows if row["op"] == op["op"]] for op in rows for name in [op["name"]]}


def test_a_lying_kernel_never_serves_a_token(nibble, tmp_path):
    """Steps are captured, and the lie is told to checks alone: the start is refused, or goes on without the kernel."""
    model = CONTAINERS["gguf"](tiny.load("llama"), tmp_path)
    used, alike = rows_in_use(nibble, model)
    assert used
    for name in sorted(used):
        command = [nibble, "bench", model, "-p", "20", "-n", "2", "-r", "1", "--device", "cuda"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "NIBBLE_FAULT": name})
        assert name in done.stderr and "self-test" in done.stderr
        assert done.returncode == (0 if f"left out after a failed self-test: {name}" in done.stderr else 1)
        assert done.returncode == 1 or len(alike[name]) > 1


# ---- what was measured ----


def test_bench_names_the_gpu(nibble, tmp_path):
    command = [nibble, "bench", CONTAINERS["gguf"](tiny.load("llama"), tmp_path), "-p", "20", "-n", "2", "-r", "1", "--device", "cuda"]
    run = lambda *flags: subprocess.run([*command, *flags], capture_output=True, text=True, timeout=120, check=True).stdout
    report = json.loads(run("--json", "--html", tmp_path / "page.html"))
    assert data_of(tmp_path / "page.html") == report
    name = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    assert report["machine"]["name"] == name and report["machine"]["multiprocessors"] > 1
    assert report["machine"]["ceilings"][0].keys() == {"gb_per_s", "gflop_per_s"}
    assert all("threads" not in row for row in report["results"])
    text = run()
    assert name in text and "thread" not in text and " cores" not in text


# ---- serving ----


def test_many_streams(nibble, smollm2):
    with Server(nibble, smollm2, "--max-model-len", 2048, "--max-num-seqs", STREAMS, "--device", "cuda") as server:
        questions = [f"{QUESTIONS[i % len(QUESTIONS)]} ({i})" for i in range(STREAMS)]
        request = {"temperature": 0, "max_tokens": 48}
        alone = [text_of(server.events("/v1/chat/completions", {**request, "messages": user(question)})) for question in questions]
        together = [None] * STREAMS

        def ask(i):
            together[i] = text_of(server.events("/v1/chat/completions", {**request, "messages": user(questions[i])}))

        threads = [threading.Thread(target=ask, args=[i]) for i in range(STREAMS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert all(together)
        same = sum(a == b for a, b in zip(alone, together))
        print(f"{same} of {STREAMS} streams say the same as alone")
        assert same >= STREAMS * 3 // 4  # products of many rows are summed in another order
        server.wait_idle()


# ---- several ranks ----

needs_mpi = pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun")


@needs_mpi
def test_two_ranks_share_a_gpu(nibble, smollm2):
    """Through memory of the host, since NCCL wants a GPU for each."""
    prompt = "Once upon a time, in a village by the sea, there lived"
    assert greedy(nibble, smollm2, prompt, "cuda", "--raw", "-tp", "2") == greedy(nibble, smollm2, prompt, "cuda", "--raw")


@needs_mpi
def test_one_rank_speaks_to_itself_by_nccl(build, library, tmp_path):
    golden = tiny.load("llama_llama3")
    tiny.write_safetensors(golden, tmp_path)
    case = {"name": "one", "path": str(tmp_path), "ids": golden["ids"][:8], "new": 4, "options": {"device": "cuda"}}
    (tmp_path / "cases.json").write_text(json.dumps([case]))
    done = subprocess.run(["mpirun", "-n", "1", sys.executable, ROOT / "test" / "e2e" / "ranks_score.py", library,
                           tmp_path / "cases.json", tmp_path / "result.npz"], capture_output=True, text=True, timeout=120,
                          env=environment(build, NCCL_DEBUG="INFO"))
    if "NCCL INFO" not in done.stdout and done.returncode == 0:
        pytest.skip("NCCL is not installed")
    assert done.returncode == 0 and "nranks 1" in done.stdout and "Init COMPLETE" in done.stdout, done.stderr


# ---- what is left behind ----


def used_mib():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


@pytest.fixture(scope="module")
def large_model(tmp_path_factory):
    """Some gigabytes of noise, which take a moment to load."""
    path = tmp_path_factory.mktemp("large") / "model.gguf"
    subprocess.run([sys.executable, ROOT / "bench" / "gpu_model.py", "Q4_0", path, "--layers", "16"], check=True)
    yield path
    path.unlink()


@pytest.mark.parametrize("seconds", [0.3, 0.6, 1.0, 1.5])
def test_a_killed_process_leaves_nothing(nibble, large_model, seconds):
    before = used_mib()
    process = subprocess.Popen([nibble, "serve", large_model, "--port", "0", "--device", "cuda"], stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    end = time.monotonic() + SETTLE_SECONDS
    while used_mib() > before + MEMORY_SPREAD_MIB:
        assert time.monotonic() < end, f"{used_mib()} MiB are in use, {before} were before"
        time.sleep(0.2)


def test_a_gpu_that_is_not_there_gets_a_sentence(nibble, smollm2):
    done = subprocess.run([nibble, "run", smollm2, "hi", "--device", "cuda:15"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "GPU" in done.stderr and len(done.stderr.splitlines()) < 30


def test_a_cache_that_does_not_fit_is_refused(nibble, smollm2):
    command = [nibble, "plan", smollm2, "--device", "cuda", "--kv-cache-memory-bytes", "4000G"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == "" and "--kv-cache-memory-bytes" in done.stderr
