# SPDX-License-Identifier: Apache-2.0
"""`nibble bench`: what it prints, as a table, as JSON and as a page; that its ceilings add up. Not how fast anything is."""

import json
import re
import signal
import stat
import statistics
import subprocess
import time

import pytest

from report_page import check_layout, data_of

SMALL = ["-p", "16", "-n", "4", "-r", "1"]


@pytest.fixture
def bench(nibble, smollm2):
    def bench(*arguments, model=smollm2):
        return subprocess.run([nibble, "bench", model, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    return bench


@pytest.fixture(scope="module")
def measured(nibble, smollm2, tmp_path_factory):
    """One run that has everything: its JSON and its page."""
    page = tmp_path_factory.mktemp("bench") / "page.html"
    command = [nibble, "bench", smollm2, "-p", "0,16", "-n", "3", "4", "-d", "0", "-d", "40", "--batch", "1,3", "-r", "2",
               "--kv-cache-dtype", "bfloat16,fp8/nvfp4", "0-3:bfloat16,4-:nvfp4", "--threads", "1", "--json", "--html", page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), page


def test_every_combination_is_measured(measured):
    report, _ = measured
    formats = ["bfloat16", "fp8/nvfp4", "0-3:bfloat16,4-:nvfp4"]
    found = [(row["kind"], row["prompt"], row["new"], row["depth"], row["batch"], row["kv_cache_dtype"]) for row in report["results"]]
    prefill = [("prefill", 16, 0, depth, 1, word) for depth in (0, 40) for word in formats]
    decode = [("decode", 0, new, depth, batch, word)
              for new in (3, 4) for depth in (0, 40) for batch in (1, 3) for word in formats]
    assert sorted(found) == sorted(prefill + decode)
    assert report["complete"] is True and report["model"].endswith(".gguf")


def test_figures(measured):
    report, _ = measured
    machine = report["machine"]
    ceiling, = machine["ceilings"]
    assert machine["cores"] >= 1 and machine["name"] and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}Z", machine["date"])
    assert ceiling["threads"] == 1 and min(ceiling["gb_per_s"], ceiling["gflop_per_s"], ceiling["int8_gop_per_s"]) > 0
    for row in report["results"]:
        assert row["threads"] == 1 and len(row["samples"]) == 2 and min(row["samples"]) > 0
        assert row["median"] == pytest.approx(statistics.median(row["samples"]))
        assert row["ceiling"] == pytest.approx(row["median"] / row["limit"]) and row["bound"] in ("memory", "cache", "arithmetic")


def test_limits(measured):
    """One sequence that decodes reads the weights and its cache once a token; a deeper or wider cache takes longer."""
    report, _ = measured
    ceiling, = report["machine"]["ceilings"]
    limits = {(row["kv_cache_dtype"], row["depth"]): row["limit"] for row in report["results"]
              if row["kind"] == "decode" and row["batch"] == 1 and row["new"] == 4}
    working_set = ceiling["read"][-2]  # the largest that is no larger than what a step reads
    assert working_set["bytes"] == 64 << 20
    weights = working_set["gb_per_s"] * 1e9 / limits["bfloat16", 0]
    assert 90e6 < weights < 100e6, "SmolLM2's weights are 96.6 MB"
    assert limits["bfloat16", 40] < limits["bfloat16", 0]
    assert limits["bfloat16", 40] < limits["fp8/nvfp4", 40]


DRAWN = """
    const figure = element => ({
        title: element.ariaLabel, bars: element.querySelectorAll('rect').length, names: element.querySelectorAll('.key li').length,
        looks: [...element.querySelectorAll('line.line')].map(line => `${line.getAttribute('class')} ${line.getAttribute('stroke')}`) });
    return { title: document.title, heading: document.querySelector('h1').textContent, about: document.querySelector('p').textContent,
             paper: getComputedStyle(document.body).backgroundColor, figures: [...document.querySelectorAll('figure')].map(figure),
             table: [...document.querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.textContent)) }
"""


def drawn(browser, page):
    browser.get(page.as_uri())
    return browser.execute_script(DRAWN)


def test_page(measured, browser):
    report, page = measured
    assert stat.S_IMODE(page.stat().st_mode) & stat.S_IRUSR and list(page.parent.iterdir()) == [page]
    assert data_of(page) == report
    found = drawn(browser, page)
    assert (found["title"], found["heading"]) == ("nibble bench", report["model"])
    assert report["machine"]["name"] in found["about"] and "ceiling with 1 thread: " in found["about"]
    bars, lines = found["figures"][:2], found["figures"][2:]
    assert [figure["title"].split()[0] for figure in bars + lines] == ["Prefill,", "Decode,", "Decode", "Decode"]
    counts = [sum(row["kind"] == kind for row in report["results"]) for kind in ("prefill", "decode")]
    assert [figure["bars"] - 1 for figure in bars] == counts, "a bar for each, and one in the legend"
    for figure in lines:
        assert figure["names"] == 12  # formats, new tokens, and batches or depths
        assert len(figure["looks"]) == 24 and len(set(figure["looks"])) == 12, "each line has a look of its own, in the plot and in the legend"
    columns, *rows = found["table"]
    for cells, row in zip(rows, report["results"], strict=True):
        cells = dict(zip(columns, cells, strict=True))
        assert (cells["kind"], cells["format"], cells["t/s"]) == (row["kind"], row["kv_cache_dtype"], f"{row['median']:.2f}")
        assert cells["lowest"] == f"{min(row['samples']):.2f}" and cells["ceiling"] == f"{row['limit']:.2f} ({row['bound']})"


AXES = """
    return [...document.querySelectorAll('figure')].filter(figure => figure.querySelector('.bar')).map(figure => {
        const bars = [...figure.querySelectorAll('.bar > svg')], axis = figure.querySelector('.bar .plot svg');
        return { title: axis.textContent, edges: [...bars, axis].map(element => { const { left, right } = element.getBoundingClientRect(); return [left, right]; }) };
    });
"""


@pytest.mark.parametrize("width", [1280, 360])
def test_bars_have_one_scale_and_an_axis(measured, browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(measured[1].as_uri())
    figures = browser.execute_script(AXES)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len(figures) == 2
    for figure in figures:
        assert figure["title"].endswith("tokens per second")
        assert all(edge == pytest.approx(figure["edges"][0], abs=0.6) for edge in figure["edges"]), "bars are as long as their axis says"


def test_a_share_above_the_ceiling_is_marked(measured, browser, tmp_path):
    """Faster than memory delivers: what is read stays in a cache. Beyond the arithmetic there is no such reason."""
    report, page = measured
    changed = [{**row, **extra} for row, extra in zip(report["results"], [{"bound": "cache", "ceiling": 1.3}, {"bound": "memory", "ceiling": 1.31},
                                                                         {"bound": "arithmetic", "ceiling": 1.32}], strict=False)]
    data = json.dumps({**report, "results": changed + report["results"][3:]})
    (tmp_path / "page.html").write_text(re.sub(r'(id="data">)[^<]*', lambda match: match[1] + data, page.read_text()))
    found = drawn(browser, tmp_path / "page.html")
    shares = [row[-1] for row in found["table"][1:]]
    assert shares[:3] == ["130 % (cache-resident)", "131 % (cache-resident)", "132 % (above the measured ceiling)"]
    marks = [mark.text for mark in browser.find_elements("css selector", ".bar small")]
    assert sorted(marks)[-2:] == ["cache-resident"] * 2 and "cache-resident: faster than memory" in browser.find_element("tag name", "body").text
    check_layout(browser, tmp_path / "page.html")


def test_page_in_the_dark(measured, browser):
    papers = []
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        papers.append(drawn(browser, measured[1])["paper"])
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert papers == ["rgb(248, 247, 244)", "rgb(21, 23, 27)"]


def test_page_on_a_phone(measured, browser):
    check_layout(browser, measured[1])


def test_near_depths_have_labels_apart(bench, browser, tmp_path):
    page = tmp_path / "page.html"
    assert bench("-p", 0, "-n", 1, "-d", "0,1,2,3,200", "-r", 1, "--no-self-test", "--html", page).returncode == 0
    labels = [label["text"] for label in check_layout(browser, page) if "over depth" in (label["figure"] or "")]
    assert {"0", "200"} <= set(labels)


def test_names_are_text_on_the_page(bench, smollm2, browser, tmp_path):
    model, page = tmp_path / "<!--<script><b>&\"'@data.gguf", tmp_path / "page.html"
    model.symlink_to(smollm2)
    assert bench("-p", 4, "-n", 0, "-r", 1, "--html", page, model=str(model)).returncode == 0
    assert data_of(page)["model"] == str(model)
    found = drawn(browser, page)
    assert found["heading"] == str(model) and len(found["table"]) == 2


def test_table(bench):
    result = bench(*SMALL, "--kv-cache-dtype", "nvfp4")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].startswith("ceiling with ")
    assert lines[2].split()[:7] == ["kind", "prompt", "new", "depth", "batch", "format", "threads"]
    assert [line.split()[:6] for line in lines[3:]] == [["prefill", "16", "0", "0", "1", "nvfp4"], ["decode", "0", "4", "0", "1", "nvfp4"]]
    assert all(re.search(r"\d+ % \((memory|cache|arithmetic)\)$", line) for line in lines[3:])
    assert "nvfp4" in result.stderr, "what runs is told"


def test_kinds_are_left_out(bench):
    kinds = [{row["kind"] for row in json.loads(bench(*flags, "-r", 1, "--json").stdout)["results"]}
             for flags in (["-p", 8, "-n", 0], ["-p", 0, "-n", 2])]
    assert kinds == [{"prefill"}, {"decode"}]


@pytest.mark.parametrize("arguments, word", [
    (["-p", "0", "-n", "0"], "nothing to measure"), (["-p", "x"], "-p takes whole numbers"), (["-p", "-5"], "-p takes whole numbers"),
    (["-n", "1.5"], "-n takes"), (["-d", ","], "-d takes"), (["--batch", "0"], "--batch takes"), (["--batch", "1000"], "512"),
    (["-r", "0"], "-r takes"), (["--threads", "999"], "--threads takes"), (["--bach", "1"], "--batch"),
    (["--kv-cache-dtype", "nvfp5"], "nvfp4"), (["--kv-cache-dtype", "0-3:bfloat16"], "4-29"),
    (["-p", ",".join(["1"] * 65)], "up to 64"), (["--threads", ",".join(["1"] * 64), "--kv-cache-dtype", "fp8,nvfp4"], "too many"),
])
def test_usage_errors(bench, arguments, word):
    result = bench(*arguments)
    assert result.returncode == 2 and result.stdout == "" and word in result.stderr, result.stderr


@pytest.mark.parametrize("arguments, word", [
    (["-d", "9000"], "8192"), (["--max-model-len", "8", *SMALL], "--max-model-len"),
    (["--max-num-seqs", "2", "--batch", "3", *SMALL], "--max-num-seqs"),
    (["--max-num-batched-tokens", "2", "--batch", "3", *SMALL], "--max-num-batched-tokens"),
    (["--kv-cache-memory-bytes", "4M", "--batch", "64", "-d", "16", *SMALL], "--kv-cache-memory-bytes"),
    (["--html", "/nowhere/page.html"], "/nowhere/page.html"), (["--html", "/dev/null"], "no ordinary file"),
    (["--html", "/"], "no ordinary file"),
])
def test_what_cannot_be(bench, arguments, word):
    result = bench(*arguments, "--json")
    assert result.returncode == 1 and word in result.stderr
    assert word in json.loads(result.stdout)["error"]


def test_a_failure_leaves_no_page(bench, tmp_path):
    (tmp_path / "page.html").write_text("as it was")
    assert bench("--html", tmp_path / "page.html", model="/nowhere.gguf").returncode == 1
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("page.html", "as it was")]


def interrupted_after(command, seconds):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while "Ctrl-C" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    return process.returncode, json.loads(out)


def test_interrupted(nibble, smollm2):
    """What was measured until then is printed."""
    command = [nibble, "bench", smollm2, "-p", "4", "-n", "1", "-r", "1000", "--json"]
    status, report = interrupted_after(command, 0)
    assert (status, list(report)) == (1, ["error"]) and "before anything" in report["error"]
    for seconds in (2, 8, 32):  # a round takes its time on a busy machine
        status, report = interrupted_after(command, seconds)
        if status == 0:
            break
    assert status == 0 and report["complete"] is False and report["results"]
    assert all(0 < len(row["samples"]) < 1000 for row in report["results"])
