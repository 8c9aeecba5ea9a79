# SPDX-License-Identifier: Apache-2.0
"""One model over several processes: the same answers as one process gives, and one ending whatever happens to a rank.

NIBBLE_KILLS is the number of times that a rank is killed in the midst of serving (12; the seeds are 0, 1, ...).
"""

import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import small_model
import test_golden
from ranks import END_SECONDS, MPI_SETTINGS, Group, Hosts, descendants, environment, is_alive, job_of, left_behind, ranks_below, wait_gone
from serving import DONE, Server, end_with_the_test
from terminal import Terminal

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import tiny  # noqa: E402

ERROR_MAX = 1e-3  # of the largest logit
GREEDY_TOKENS = 32
PROSE = pathlib.Path(__file__).parent.parent / "golden" / "prose.txt"

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun")


@pytest.fixture(scope="module")
def program(build):
    path = build / "test" / "ranks_test"
    if not path.exists():
        pytest.skip("this build has no MPI module")
    return path


@pytest.fixture
def hosts(tmp_path):
    if not Hosts.possible():
        pytest.skip("the system gives no network namespaces")
    two = Hosts(tmp_path)
    yield two
    two.close()


@pytest.fixture(scope="module")
def small(smollm2, tmp_path_factory):
    """A model that loads at once."""
    return small_model.write(smollm2, tmp_path_factory.mktemp("small") / "small.gguf")


# ---- the ranks by themselves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4])
def test_all_bytes_arrive(build, program, count):
    with Group([program, "agree"], count, environment(build)) as group:
        assert group.end() == 0, group.err


def test_gathers_are_quick(build, program):
    with Group([program, "speed"], 2, environment(build)) as group:
        assert group.end() == 0, group.err
    print(group.out)
    assert float(group.out[0].split()[2]) < 50  # us for 2304 bytes; 1 to 2 where both cores are free


# Killed or stopped while all exchange, while nothing happens, and while nobody but the watch could notice.
ENDS = [(deed, victim, signal.SIGKILL) for deed in ("work", "idle", "stuck") for victim in (0, 1, 2)]
ENDS += [("work", 1, signal.SIGSTOP), ("idle", 0, signal.SIGSTOP), ("stuck", 2, signal.SIGSTOP)]


@pytest.mark.parametrize("deed, victim, how", ENDS)
def test_a_lost_rank(build, program, deed, victim, how):
    with Group([program, deed], 3, environment(build)) as group:
        job = job_of(group.pids[0])
        time.sleep(0.2)
        began = time.monotonic()
        os.kill(group.pids[victim], how)
        assert not wait_gone(group.pids.values(), END_SECONDS)
        assert group.end(END_SECONDS) != 0
        print(f"{time.monotonic() - began:.2f} s")
    assert f"rank {victim} (" in group.err and f"pid {group.pids[victim]})" in group.err
    assert ("is gone" if how == signal.SIGKILL else "sends no heartbeat") in group.err
    assert not left_behind(job)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_lost_rank_on_another_host(build, program, hosts, victim):
    with Group([program, "work"], 2, environment(build), hosts.mpirun) as group:
        below = descendants(group.process.pid)
        os.kill(group.pids[victim], signal.SIGKILL)
        assert not wait_gone([*below, group.process.pid], END_SECONDS)
        group.end()
    assert f"rank {victim} ({hosts.NAMES[victim]}, pid {group.pids[victim]}) is gone" in group.err


@pytest.mark.parametrize("deed", ["work", "idle"])
def test_a_lost_link(build, program, hosts, deed):
    """The ranks end on both sides; mpirun and its helper there wait for each other as long as TCP does."""
    with Group([program, deed], 2, environment(build), hosts.mpirun) as group:
        below = descendants(group.process.pid)
        time.sleep(0.2)
        hosts.cut()
        assert not wait_gone(group.pids.values(), END_SECONDS)
        for pid in filter(is_alive, [*below, group.process.pid]):
            os.kill(pid, signal.SIGKILL)
        group.end()
    assert f"rank 1 ({hosts.NAMES[1]}, pid {group.pids[1]}) sends no heartbeat any more" in group.err


def test_a_rank_that_gives_up(build, program):
    with Group([program, "refuse"], 3, environment(build)) as group:
        assert group.end(END_SECONDS) == 1
    assert f"rank 1 ({os.uname().nodename}, pid {group.pids[1]}): the device is on fire" in group.err
    assert group.err.count("on fire") == 1


def test_stopped_and_continued_together(build, program):
    """A whole group that was asleep (a laptop, a debugger) has lost nobody."""
    with Group([program, "work"], 2, environment(build)) as group:
        for pid in group.pids.values():
            os.kill(pid, signal.SIGSTOP)
        time.sleep(3.5)
        for pid in group.pids.values():
            os.kill(pid, signal.SIGCONT)
        time.sleep(1)
        assert all(map(is_alive, group.pids.values()))


def test_what_is_found(build, nibble, program):
    def ranks(**more):
        return json.loads(subprocess.run([nibble, "env", "--json"], capture_output=True, check=True, env={**os.environ, **more}).stdout)["ranks"]

    found = ranks()
    assert found["module"] == str(build / "nibble-mpi.so") and "MPI" in found["mpi"] and found["mpirun"] == shutil.which("mpirun")
    assert found["nccl"] == "none" or found["nccl"].startswith("2.")
    missing = ranks(NIBBLE_MPI="/nowhere/nibble-mpi.so", PATH="/nowhere")
    assert "install" in missing["note"] and "mpi" not in missing and missing["mpirun"] == "none"


# ---- the same answers ----------------------------------------------------------------------------------------------


def score_cases(smollm2, gemma3, folder):
    """Every tiny checkpoint, the two real models, and the options to compute them with.

    Activations stay as they are: rounded to 8 bits they make of the last bit of a sum, whose order is that of the
    ranks, as much as the rounding itself does.
    """
    exact = {"kv_cache_dtype": "float32", "threads": 1}
    for name in tiny.names():
        golden = tiny.load(name)
        path = folder / name
        path.mkdir()
        path = test_golden.CONTAINERS[golden["containers"][0]](golden, path)
        yield {"name": name, "path": str(path), "ids": golden["ids"], "new": GREEDY_TOKENS,
               "options": {**exact, **golden.get("options", {})}}
    real = {"SmolLM2": (smollm2, [1, 504, 3575, 282, 4649, 314]), "Gemma 3": (gemma3, [2, 818, 5279, 529, 7001, 563])}
    for name, (path, ids) in real.items():
        yield {"name": name, "path": path, "ids": ids, "new": GREEDY_TOKENS, "options": {**exact, "max_model_len": 256}}


@pytest.fixture(scope="module")
def cases(smollm2, gemma3, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    path = folder / "cases.json"
    path.write_text(json.dumps(list(score_cases(smollm2, gemma3, folder))))
    return path


def score(library, cases, build, result, launcher):
    words = [sys.executable, pathlib.Path(__file__).parent / "ranks_score.py", library, cases, result]
    done = subprocess.run([*launcher, *map(str, words)], env=environment(build), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(np.load(result))


@pytest.fixture(scope="module")
def alone(library, cases, build, tmp_path_factory):
    return score(library, cases, build, tmp_path_factory.mktemp("alone") / "scores.npz", [])


def compare(cases, alone, together):
    """A model that cannot be divided so says into how many it can."""
    computed, wrong = [], []
    for name in (case["name"] for case in json.loads(cases.read_text())):
        if f"{name}.refused" in together:
            print(f"{name}: {together[f'{name}.refused']}")
            assert "it can among" in str(together[f"{name}.refused"])
            continue
        want, got = alone[f"{name}.logits"], together[f"{name}.logits"]
        error = np.abs(got - want).max() / np.abs(want).max()
        same = np.array_equal(alone[f"{name}.tokens"], together[f"{name}.tokens"])
        print(f"{name}: largest error {error:.1e}, text {'equal' if same else 'differs'}")
        computed.append(name)
        if error > ERROR_MAX or not same:
            wrong.append(name)
    assert not wrong
    assert {"SmolLM2", "Gemma 3"} <= set(computed)


@pytest.mark.parametrize("count", [2, 4])
def test_logits_and_text(library, cases, build, alone, program, tmp_path, count):
    compare(cases, alone, score(library, cases, build, tmp_path / "scores.npz", ["mpirun", "-n", str(count)]))


def test_logits_and_text_on_two_hosts(library, cases, build, alone, program, tmp_path, hosts):
    compare(cases, alone, score(library, cases, build, tmp_path / "scores.npz", [*hosts.mpirun, "-n", "2"]))


def plan_of(nibble, model, *flags):
    return json.loads(subprocess.run([nibble, "plan", model, "--device", "cpu", "--json", *flags], check=True,
                                     capture_output=True).stdout)


def test_each_holds_its_share(nibble, smollm2, gemma3):
    for path in (smollm2, gemma3):
        whole = plan_of(nibble, path)["weights"]["bytes"]
        for rank in plan_of(nibble, path, "-tp", "2")["ranks"]["list"]:
            assert rank["weights"] <= 0.6 * whole, (path, rank)


# ---- serving -------------------------------------------------------------------------------------------------------


def start(nibble, model, *flags, count=2):
    return Server(nibble, model, "-tp", count, "--threads", 1, "--max-model-len", 2048, "--no-self-test", *flags)


def test_a_command_that_is_not_alone(nibble, small, program):
    """Output, standard input and the exit status are those of rank 0, with its own mpirun or another's."""
    words = [nibble, "run", small, "-", "--raw", "--temperature", "0", "--max-tokens", "8", "--no-self-test", "--device", "cpu"]

    def run(*words):
        return subprocess.run([*map(str, words)], input="Once upon a time", capture_output=True, text=True, timeout=60,
                              env={**os.environ, **MPI_SETTINGS})

    one, two, own = run(*words), run(*words, "-tp", 2), run("mpirun", "-n", 2, *words)
    assert one.returncode == two.returncode == own.returncode == 0, two.stderr + own.stderr
    assert one.stdout == two.stdout == own.stdout
    assert two.stderr.count("plan:") == own.stderr.count("plan:") == 1
    other = run("mpirun", "-n", 2, *words, "-tp", 3)
    assert other.returncode == 2 and "2 processes were started" in other.stderr and other.stderr.count("nibble:") == 1
    missing = run("env", "PATH=/nowhere", *words, "-tp", 2)
    assert missing.returncode == 1 and "mpirun" in missing.stderr and "install" in missing.stderr


def test_a_chat_in_a_terminal(nibble, smollm2, program, tmp_path):
    """What is typed reaches rank 0, Ctrl-C stops its answer, Ctrl-D ends all."""
    words = [nibble, "run", smollm2, "--temperature", "0", "-tp", "2", "--threads", "1", "--device", "cpu"]
    with Terminal(words, tmp_path) as terminal:
        terminal.read_until(b"plan:")
        os.write(terminal.master, b"Write a long story about a dragon.\n")
        terminal.read_until(b" the ")
        below = descendants(terminal.process.pid)
        os.write(terminal.master, b"\x03")
        terminal.read_until(b"; stopped")
        os.write(terminal.master, b"\x04")
        assert terminal.process.wait(20) == 0
    assert not wait_gone(below, 1)


@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGINT])
def test_a_server_drains(nibble, small, program, word):
    with start(nibble, small) as server:
        below = descendants(server.process.pid)
        events = server.events("/v1/completions", {"prompt": "Once", "max_tokens": 400, "temperature": 0, "ignore_eos": True})
        got = [next(events)]
        server.process.send_signal(word)
        got += events
        assert got[-1] == DONE and got[-2]["choices"][0]["finish_reason"] == "length"
        assert server.wait() == 0, "".join(server.log)
        assert len(below) >= 3 and not wait_gone(below, 5)


def test_a_launcher_that_is_killed(nibble, small, program):
    with start(nibble, small) as server:
        below = descendants(server.process.pid)
        server.process.kill()
        assert not wait_gone(below, END_SECONDS)


def test_the_servers_own_tests(build, program):
    """Those of test_serve.py, with two processes behind each server. NIBBLE_RANKS=2 does the same with any others."""
    here = pathlib.Path(__file__).parent
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", here / "test_serve.py"], cwd=here,
                          env={**os.environ, "NIBBLE_RANKS": "2", "NIBBLE_BUILD": str(build)}, capture_output=True, text=True)
    print(done.stdout[-5000:])
    assert done.returncode == 0


def watch_an_end(nibble, model, seed):
    """A rank is killed at some moment while a server answers, or waits."""
    dice = random.Random(seed)
    count = dice.choice([2, 3])
    victim, moment = dice.randrange(count), dice.random() * 0.6
    with start(nibble, model, count=count) as server:
        below = descendants(server.process.pid)
        ranks = ranks_below(server.process.pid, nibble)
        assert sorted(ranks) == list(range(count))
        job = job_of(ranks[0])
        request = {"prompt": "Once upon", "max_tokens": 2000, "temperature": 0, "ignore_eos": True}
        streams = [server.events("/v1/completions", request) for _ in range(dice.randrange(3))]
        for stream in streams:
            next(stream)
        time.sleep(moment)
        os.kill(ranks[victim], signal.SIGKILL)
        killed = time.monotonic()
        ends = [read_to_end(stream) for stream in streams]
        status = server.wait(END_SECONDS)
        assert not wait_gone(below, END_SECONDS - (time.monotonic() - killed))
    log = "".join(server.log)
    assert status == 1, log
    assert f"rank {victim} (" in log and f"pid {ranks[victim]}) is gone" in log, log
    broken = [end for end in ends if not end or "error" in end or not end["choices"][0]["finish_reason"]]
    if victim > 0:  # with rank 0 its connections are gone
        assert all(f"rank {victim} (" in end["error"]["message"] for end in broken), broken
    assert not left_behind(job)
    return victim, len(streams), len(broken), time.monotonic() - killed


def read_to_end(stream):
    """The last event that came, but for DONE."""
    last = None
    try:
        for event in stream:
            last = last if event == DONE else event
    except (OSError, http.client.HTTPException):
        pass
    return last


@pytest.mark.parametrize("seed", range(int(os.environ.get("NIBBLE_KILLS", 12))))
def test_a_killed_rank(nibble, small, program, seed):
    print("rank %d, %d streams, %d broke off, %.2f s" % watch_an_end(nibble, small, seed))


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_killed_at_the_start(nibble, small, program, seed):
    """Before they have met, while they meet, while weights are read."""
    dice = random.Random(seed)
    process = subprocess.Popen([nibble, "serve", small, "--port", "0", "--device", "cpu", "-tp", "2", "--threads", "1"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=end_with_the_test)
    while len(ranks := ranks_below(process.pid, nibble)) < 2:
        time.sleep(0.005)
    time.sleep(dice.random() * 0.5)
    below = descendants(process.pid)
    os.kill(ranks[dice.randrange(2)], signal.SIGKILL)
    assert process.wait(END_SECONDS) == 1
    assert not wait_gone(below, END_SECONDS)
    assert "nibble: " in process.stderr.read()
