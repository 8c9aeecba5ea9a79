# SPDX-License-Identifier: Apache-2.0
"""NVIDIA drivers that are missing, too old or broken: a sentence each, and the program goes on without."""

import json
import os
import subprocess

import pytest

DRIVERS = {  # C source of libcuda.so.1, None: an empty file; what is said
    "broken": (None, "no NVIDIA driver"),
    "too old": ("int cuInit(unsigned flags) { return (int)flags; }", "lacks cuDriverGetVersion: it is too old"),
}


@pytest.fixture(params=DRIVERS)
def driver(request, tmp_path):
    source, words = DRIVERS[request.param]
    library = tmp_path / "libcuda.so.1"
    if source is None:
        library.write_bytes(b"")
    else:
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, text=True, check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, words


def test_a_sentence_each(nibble, smollm2, driver):
    environment, words = driver
    run = lambda *arguments: subprocess.run([nibble, *arguments], capture_output=True, text=True, env=environment)
    report = run("env", "--json")
    assert report.returncode == 0
    assert words in json.loads(report.stdout)["cuda"]["note"]
    refused = run("plan", smollm2, "--device", "cuda")
    assert refused.returncode == 1 and words in refused.stderr
    assert run("plan", smollm2).returncode == 0
