# SPDX-License-Identifier: Apache-2.0
"""The fleet simulation (bench/fleet): a run is its seed's, byte by byte; routing by prefix finds more than round-robin; and one
simulated server takes what a real one takes, as nearly as a shared machine allows. How near without others: doc/scale.md.
"""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from conftest import ROOT, existing
from serving import DEVICE

sys.path.insert(0, str(ROOT / "bench"))
import fleet_bench  # noqa: E402
import fleet_replay  # noqa: E402
import fleet_steps  # noqa: E402
import plot  # noqa: E402

POLICIES = "round-robin", "queue", "prefix"
FEW = {"prompts": (16, 64, 256), "batches": (1, 4, 16), "depths": (0, 256), "new": 8}
SHORT = fleet_replay.Replay(context=512, sequences=16, cache_bytes="256M", pages=4096, traffic=(
    "--sessions", "14", "--rate", "6", "--turns", "3", "--think", "0.3", "--systems", "3", "--greet", "1",
    "--system-tokens", "80", "--user-tokens", "30", "--answer-tokens", "20", "--seed", "7"))
NEAR, ATTEMPTS = 0.25, 4


@pytest.fixture(scope="module")
def fleet_sim(build):
    program = existing(build / "bench" / "fleet-sim")

    def run(*flags, status=0):
        done = subprocess.run([program, *map(str, flags)], capture_output=True, text=True, timeout=120)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr
    run.program = program
    return run


def fleet(policy, seed=1):
    return ("--servers", 4, "--rate", 12, "--variation", 3, "--seconds", 30, "--warm-up", 10, "--systems", 16, "--pages", 4096,
            "--context", 4096, "--running", 64, "--step-seconds", "1:0.004 512:0.013", "--context-seconds", 3e-8, "--pair-seconds", 1e-9,
            "--policy", policy, "--seed", seed)


def test_a_run_is_its_seeds(fleet_sim):
    for policy in POLICIES:
        for flags in ((), ("--count-sent",)):
            first = fleet_sim(*fleet(policy), *flags)
            assert fleet_sim(*fleet(policy), *flags) == first
            assert fleet_sim(*fleet(policy, seed=2), *flags) != first
    traffic = fleet_sim(*fleet("queue"), "--print-traffic")
    assert traffic == fleet_sim(*fleet("prefix"), "--print-traffic") != fleet_sim(*fleet("queue", seed=2), "--print-traffic")


def test_traffic_follows_its_options(fleet_sim):
    lines = fleet_sim("--sessions", 4000, "--rate", 5, "--variation", 2, "--turns", 3, "--think", 7, "--systems", 10, "--context", 100000,
                      "--pages", 10000, "--user-tokens", 50, "--answer-tokens", 90, "--print-traffic")
    sessions = [json.loads(line) for line in lines.splitlines()]
    all_turns = [turn for session in sessions for turn in session["turns"]]
    thinks = [turn["think"] for session in sessions for turn in session["turns"][1:]]
    gaps = [later["begin"] - earlier["begin"] for earlier, later in zip(sessions, sessions[1:])]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert len(sessions) == 4000
    assert mean == pytest.approx(1 / 5, rel=0.1) and variance ** 0.5 / mean == pytest.approx(2, rel=0.15)
    assert len(all_turns) / len(sessions) == pytest.approx(3, rel=0.05) and sum(thinks) / len(thinks) == pytest.approx(7, rel=0.05)
    for name, median in ("user", 50), ("answer", 90):
        assert sorted(turn[name] for turn in all_turns)[len(all_turns) // 2] == pytest.approx(median, rel=0.1)
    counts = [sum(session["system"] == system for session in sessions) for system in range(10)]
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.2) and min(counts) > 0
    assert all(len({session["system_tokens"] for session in sessions if session["system"] == system}) == 1 for system in range(10))


def test_surges(fleet_sim):
    def begins(*flags):
        lines = fleet_sim("--sessions", 20000, "--rate", 10, "--turns", 1, *flags, "--print-traffic").splitlines()
        return [json.loads(line)["begin"] for line in lines]

    def counts(begins):
        found = [0] * (int(begins[-1]) + 1)
        for begin in begins:
            found[int(begin)] += 1
        return sorted(found)

    calm, surging = begins(), begins("--surge", 5)
    assert calm[-1] == pytest.approx(2000, rel=0.05) and surging[-1] == pytest.approx(2000, rel=0.15)
    calm, surging = counts(calm), counts(surging)
    assert surging[len(surging) * 95 // 100] > 1.5 * calm[len(calm) * 95 // 100] and surging[len(surging) // 2] < 10


def test_routing(fleet_sim):
    results = {policy: json.loads(fleet_sim(*fleet(policy), "--count-sent")) for policy in POLICIES}
    assert results["prefix"]["hit_rate"] > results["round-robin"]["hit_rate"] + 0.1
    assert results["prefix"]["first_token_s"]["mean"] < results["round-robin"]["first_token_s"]["mean"]
    for result in results.values():
        assert result["requests"] > 500 and 0 < result["hit_rate"] < 1 and 1 <= result["busiest"] < 1.5
        assert 0 < result["first_token_s"]["p50"] <= result["first_token_s"]["p99"] and result["token_s"]["mean"] > 0.004


def test_a_cache_too_small_preempts(fleet_sim):
    tight = json.loads(fleet_sim("--sessions", 200, "--rate", 50, "--pages", 100, "--context", 1000))
    roomy = json.loads(fleet_sim("--sessions", 200, "--rate", 50, "--pages", 20000, "--context", 1000))
    assert tight["requests"] == roomy["requests"] and tight["preemptions"] > 0 == roomy["preemptions"]
    assert tight["hit_rate"] < roomy["hit_rate"] and tight["first_token_s"]["mean"] > roomy["first_token_s"]["mean"]


@pytest.mark.parametrize("flags, words", [
    ((), "--sessions or --seconds"),
    (("--sessions", 1, "--step-seconds", "8:0.1 4:0.2"), "by rising rows"),
    (("--sessions", 1, "--step-seconds", ""), "by rising rows"),
    (("--sessions", 1, "--step-seconds", "nan:1"), "by rising rows"),
    (("--sessions", 1, "--pages", 2), "does not fit the cache"),
    (("--seconds", 1, "--warm-up", 2), "no request came that counts"),
    (("--sessions", 1, "--policy", "best"), "--policy"),
])
def test_what_cannot_be_simulated(fleet_sim, flags, words):
    assert words in fleet_sim(*flags, status=2)


def test_the_fit_finds_what_steps_were_made_of():
    made = fleet_steps.StepTime([(1, 0.01), (8, 0.012), (64, 0.03), (512, 0.2)], 1e-4, 2e-6, 3e-7)
    steps = [fleet_steps.Step(rows, outputs, context, pairs, 0) for rows in (1, 8, 64, 512) for outputs in (1, rows)
             for context, pairs in ((0, 0), (900, 0), (0, 7000), (500, 300))]
    for step in steps:
        step.seconds = made.seconds(step)
    found = fleet_steps.fit(steps)
    assert fleet_steps.errors(found, steps)[1] < 1e-6
    assert (found.output, found.context, found.pair) == pytest.approx((made.output, made.context, made.pair), rel=1e-5)
    between = fleet_steps.Step(100, 3, 40, 50, 0)
    assert found.seconds(between) == pytest.approx(made.seconds(between), rel=1e-6)


def test_the_documentation_agrees_with_itself():
    """doc/scale.md computes with the figures of bench/README.md's first table, and with the step times of bench/fleet."""
    scale, bench = ((ROOT / path).read_text().replace(",", "") for path in ("doc/scale.md", "bench/README.md"))
    before, setup, rest = re.split("(### Setup.*?)(?=### By size)", scale, flags=re.S)
    speeds = re.findall(r"([0-9.]+) t/s", before + rest)
    headlines = bench.split("The sections below")[0]
    assert speeds and all(f" {speed} t/s" in headlines for speed in speeds), speeds
    (_, alone), (_, batch), (_, prompt) = fleet_bench.H200.curve
    for words in (f"| {1e3 * alone:.2f}", f" {1e3 * batch:.2f}", f" {1e3 * prompt:.2f} ms", f"| {1e9 * fleet_bench.H200_CONTEXT:.1f} ns",
                  f"| {1e9 * fleet_bench.H200_PAIR:.2f} ns", f"({fleet_bench.H200_PAGES} pages)"):
        assert words in setup, words
    steps = re.search(r"takes (\S+) ms for one token (\S+) for 128 and (\S+) for 512", before.replace("\n", " ")).groups()
    assert list(map(float, steps)) == pytest.approx([1e3 * alone, 1e3 * batch, 1e3 * prompt], abs=0.05)


def test_plots_are_svg(tmp_path):
    curves = {"a & b": [0.5, 0.75], "c": [0.25, 1]}
    panels = [plot.Panel("share", "servers", (1, 256), curves, percent=True, by_position=True),
              plot.Panel("time", "load", (3, 18), curves, logarithmic=True)]
    plot.draw(tmp_path / "plot.svg", panels)
    root = xml.etree.ElementTree.parse(tmp_path / "plot.svg").getroot()
    lines = root.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 4 and "a & b" in "".join(root.itertext())
    points = [tuple(map(float, point.split(","))) for line in lines for point in line.get("points").split()]
    assert len(points) == 8 and all(0 <= x <= plot.PANEL_WIDTH and 0 <= y <= plot.PANEL_HEIGHT for x, y in points)


def test_the_chart_of_quality_is_fresh(tmp_path):
    subprocess.run([sys.executable, ROOT / "bench" / "quality_plot.py", tmp_path / "quality.svg"], check=True)
    assert (tmp_path / "quality.svg").read_text() == (ROOT / "doc" / "img" / "quality.svg").read_text()


@pytest.mark.skipif(DEVICE != "cpu", reason="step times are measured on the CPU")
def test_one_server_is_like_a_real_one(fleet_sim, nibble, smollm2):
    sessions = fleet_replay.sessions_of(fleet_sim.program, SHORT)
    for _ in range(ATTEMPTS):  # others may use the machine between measuring and serving
        steps = fleet_steps.bench(nibble, smollm2, 1, 1, FEW)
        real = fleet_replay.serve_and_replay(nibble, smollm2, 1, SHORT, sessions)
        time = fleet_steps.fit(steps + fleet_steps.bench(nibble, smollm2, 1, 1, FEW))
        made, = fleet_replay.simulate(fleet_sim.program, *SHORT.simulated(), *time.flags())
        assert made["requests"] == real["requests"] and made["preemptions"] == real["preemptions"] == 0
        ratios = [made["answer_tokens_per_s"] / real["answer_tokens_per_s"],
                  made["first_token_s"]["mean"] / real["first_token_s"]["mean"]]
        same_hits = made["hit_rate"] == pytest.approx(real["hit_rate"], abs=1e-8)
        if same_hits and all(1 - NEAR < ratio < 1 / (1 - NEAR) for ratio in ratios):
            return
    pytest.fail(f"tokens per second and time to the first are {ratios} times the real ones, hits {made['hit_rate']} for {real['hit_rate']}")
