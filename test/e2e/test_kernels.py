# SPDX-License-Identifier: Apache-2.0
"""The table of kernels, their test against the reference, their timing, and a kernel that lies."""

import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def run(nibble):
    def run(*arguments, **environment):
        return subprocess.run([nibble, *map(str, arguments)], capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    return run


@pytest.fixture
def table(run):
    return json.loads(run("kernels", "--json").stdout)["kernels"]


def test_names_come_first(run, table):
    """Rows of a GPU's family are one line, under the name that they share."""
    lines = run("kernels").stdout.splitlines()
    key = lambda row: (row["family"], row["needs"])
    families = [row["family"] for before, row in zip([{"family": None, "needs": None}, *table], table) if key(row) != key(before)]
    assert [line.split()[0] for line in lines if line[0] != " "] == ["name"] + families and len(families) < len(table) / 2
    assert all(row["name"].startswith(row["family"].rstrip("*")) for row in table)
    assert max(map(len, lines)) <= 100
    assert len({row["name"] for row in table}) == len(table)


def test_every_op_has_a_reference(table):
    for op in ("embed", "norm", "linear", "rope", "kv_write", "attention", "act_mul", "add", "pick", "softcap", "copy",
               "route", "experts", "combine"):
        reference, = [row for row in table if row["op"] == op and row["priority"] == 0]
        assert reference["runs"] and reference["missing"] is None and reference["needs"] == [] and reference["tokens"] == "any"


def test_no_function_is_chosen_where_launches_are_described(table):
    """Functions are named in tables alone: what a describe launches is what its row lists."""
    names = {name for row in table for name in row["functions"]}
    assert len(names) > 150
    for path in sorted((ROOT / "src" / "kernel" / "cuda").glob("*.c")):
        code = re.sub(r"^#define.*(?:\\\n.*)*", "", path.read_text(), flags=re.M)
        for body in re.findall(r"^\{\n(.*?)^\}$", code, flags=re.M | re.S):
            assert not names & set(re.findall(r'"([^"]*)"', body)), path


def test_the_page_is_fresh(run):
    assert (ROOT / "doc" / "kernels.md").read_text() == run("kernels", "--markdown").stdout
    assert run("kernels", "--markdown", NIBBLE_FEATURES="none").stdout == run("kernels", "--markdown").stdout


def test_the_page_of_ops_is_fresh(run):
    assert (ROOT / "doc" / "ops.md").read_text() == run("kernels", "--ops-markdown").stdout


def test_some_of_them(run):
    assert {row["op"] for row in json.loads(run("kernels", "attention", "--json").stdout)["kernels"]} == {"attention"}
    assert [row["name"] for row in json.loads(run("kernels", "linear_ref", "--json").stdout)["kernels"]] == ["linear_ref"]


def test_other_devices(run):
    rows = json.loads(run("kernels", "--device", "none", "--json").stdout)["kernels"]
    assert rows and not any(row["runs"] for row in rows) and all(row["missing"] for row in rows)
    rows = json.loads(run("kernels", "--device", "cpu:ref", "--json").stdout)["kernels"]
    assert all(row["runs"] == (row["needs"] == []) for row in rows)


@pytest.mark.parametrize("arguments, word", [
    (["attnetion"], "did you mean attention"), (["a", "b"], "too many"), (["--test", "--bench"], "--bench"), (["--seed", "-1"], "whole number"),
    (["--markdown", "--test"], "--markdown"), (["--ops-markdown", "--test"], "--ops-markdown"), (["--device", "cpu:avx3"], "cpu:avx2"), (["--bench", "--threads", "0"], "whole number"),
])
def test_usage_errors(run, arguments, word):
    result = run("kernels", *arguments)
    assert result.returncode == 2 and result.stdout == "" and word in result.stderr


@pytest.mark.parametrize("features", [None, "none"])
def test_all_are_right(run, table, features):
    environment = {"NIBBLE_FEATURES": features} if features else {}
    result = run("kernels", "--test", **environment)
    assert result.returncode == 0, result.stdout
    passed, failed, not_run = (int(part.split()[0]) for part in result.stdout.splitlines()[-1].split(","))
    assert failed == 0 and passed + not_run == len(table) and (features is None or passed == sum(row["needs"] == [] for row in table))


def test_report_of_a_test(run):
    report = json.loads(run("kernels", "--test", "--json", "--seed", 7, "kv_write").stdout)
    ran = [row for row in report["kernels"] if row["result"] != "not run"]
    assert report["seed"] == 7 and report["passed"] == len(ran) > 0 and report["failed"] == 0
    assert report["not_run"] == len(report["kernels"]) - len(ran)
    for row in ran:
        assert row["result"] == "ok" and row["cases"] >= 4 and row["error"] <= row["tolerance"] and row["note"] is None


def test_what_cannot_run_is_not_run(run, table):
    result = run("kernels", "--test", "--device", "none")
    assert result.returncode == 0 and result.stdout.splitlines()[-1] == f"0 passed, 0 failed, {len(table)} not run"


def test_a_lie_is_named(run, table):
    for name in (row["name"] for row in table if row["priority"] == 0):
        result = run("kernels", "--test", name, NIBBLE_FAULT=name)
        assert result.returncode == 1 and result.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 not run"
    result = run("kernels", "--test", NIBBLE_FAULT="attention_ref")
    failed, = [line for line in result.stdout.splitlines() if "FAILED" in line]
    assert result.returncode == 1 and failed.startswith("attention_ref ")


def test_a_liar_answers_nobody(run, smollm2):
    arguments = ["run", smollm2, "Once upon a time", "--raw", "--temperature", "0", "--max-tokens", "4"]
    result = run(*arguments, NIBBLE_FAULT="embed_ref")  # which nothing stands behind
    assert result.returncode == 1 and result.stdout == "" and "embed_ref" in result.stderr
    honest, lying = run(*arguments), run(*arguments, "--no-self-test", NIBBLE_FAULT="embed_ref")
    assert honest.returncode == lying.returncode == 0 and honest.stdout != lying.stdout


def test_bench(run):
    report = json.loads(run("kernels", "--bench", "norm_ref", "--threads", 1, "--json").stdout)
    row, = report["kernels"]
    assert report["threads"] == 1 and report["ceiling"]["gb_per_s"] > 0 and report["ceiling"]["gflop_per_s"] > 0
    assert row["name"] == "norm_ref" and row["bound"] == "memory" and row["seconds"] > 0
    assert 0 < row["share"] <= 1.0001 * row["gb_per_s"] / report["ceiling"]["gb_per_s"]  # of memory, or of a cache
    lines = run("kernels", "--bench", "norm_ref").stdout.splitlines()
    assert lines[0].startswith("ceiling with ") and lines[2].startswith("norm_ref ") and "GB/s" in lines[2] and lines[2].endswith(" %")
