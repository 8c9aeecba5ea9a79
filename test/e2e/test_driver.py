# SPDX-License-Identifier: Apache-2.0
"""NVIDIA drivers and GPUs that are missing, too old, broken or full: a sentence each before anything is loaded, and the program goes on without."""

import json
import os
import subprocess

import pytest

from conftest import ROOT

# The content of libcuda.so.1: C source, or None for an empty file, or what the stand-in of the unit tests is told; what
# is said of it; whether it is noticed by a build without kernels for GPUs.
DRIVERS = {
    "broken": (None, "no NVIDIA driver", True),
    "lacks calls": ("int cuInit(unsigned flags) { return (int)flags; }", "lacks cuDriverGetVersion: it is too old", True),
    "does not start": ({"failing": '"cuInit"', "status": 999}, "the NVIDIA driver does not start: CUDA_ERROR_FAKE", True),
    "no device": ({"failing": '"cuInit"', "status": 100}, "the NVIDIA driver finds no device", True),
    "no devices": ({"devices": 0}, "the NVIDIA driver finds no device", True),
    "too old": ({"version": 12080}, "its driver is one for CUDA 12.8, and this build needs one for CUDA 13.0 or later", False),
    "in use": ({"failing": '"cuDevicePrimaryCtxRetain"', "status": 2}, "GPU 0 cannot be used: CUDA_ERROR_FAKE (a fake error)", True),
    "full": ({"free_bytes": 50 << 20}, "MiB", False),
}


@pytest.fixture(params=DRIVERS)
def driver(request, nibble, tmp_path):
    source, words, by_any_build = DRIVERS[request.param]
    report = json.loads(subprocess.run([nibble, "env", "--json"], capture_output=True, text=True, check=True).stdout)
    if not by_any_build and report["build"]["cuda"] == "none":
        pytest.skip("this build has no kernels for GPUs")
    library = tmp_path / "libcuda.so.1"
    if source is None:
        library.write_bytes(b"")
    else:
        if isinstance(source, dict):
            settings = "".join(f"fake_cuda.{name} = {value}; " for name, value in source.items())
            source = f'#include "fake_cuda.c"\n__attribute__((constructor)) static void configure(void) {{ {settings}}}\n'
        flags = ["-Dnibble_error=error", *(f"-I{ROOT / folder}" for folder in ("src", "include", "test/unit"))]
        subprocess.run(["cc", "-shared", "-fPIC", *flags, "-x", "c", "-", "-o", library], input=source, text=True, check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, words


def test_a_sentence_each(nibble, smollm2, driver):
    environment, words = driver
    run = lambda *arguments: subprocess.run([nibble, *arguments], capture_output=True, text=True, env=environment, timeout=60)
    report = run("env", "--json")
    assert report.returncode == 0
    if not json.loads(report.stdout)["cuda"].get("devices"):
        assert words in json.loads(report.stdout)["cuda"]["note"]
    for command in (["plan", smollm2], ["run", smollm2, "hi"], ["serve", smollm2, "--port", "0"]):
        refused = run(*command, "--device", "cuda")
        assert refused.returncode == 1 and words in refused.stderr, command
        assert len(refused.stderr.splitlines()) < 30 and "loading" not in refused.stderr
    plan = run("plan", smollm2, "--device", "cuda", "--json")
    assert plan.returncode == 1 and not json.loads(plan.stdout)["accepted"]


def test_the_cpu_is_taken_instead(nibble, smollm2, driver):
    environment, words = driver
    if words == "MiB":
        pytest.skip("a GPU that is full is one that somebody uses: it is named, not passed over")
    done = subprocess.run([nibble, "plan", smollm2, "--json"], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0 and json.loads(done.stdout)["device"].startswith("cpu")
