# SPDX-License-Identifier: Apache-2.0
"""The tarball that scripts/bundle makes, unpacked somewhere else."""

import json
import os
import re
import subprocess
import tarfile

import pytest

from conftest import ROOT

MEGABYTES_MAX = 60
GLIBC = re.compile(r"(linux-vdso|ld-linux-x86-64|libc|libm)\.so")


@pytest.fixture(scope="module")
def bundle(build, tmp_path_factory):
    made = subprocess.run([ROOT / "scripts" / "bundle", build], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    path = made.stdout.strip()
    assert re.search(r"/nibble-\d+\.\d+\.\d+-linux-x86_64\.tar\.gz$", path)
    assert os.path.getsize(path) < MEGABYTES_MAX << 20
    folder = tmp_path_factory.mktemp("a place with spaces")
    with tarfile.open(path) as tar:
        tar.extractall(folder)
    os.remove(path)
    return next(folder.iterdir())


def run(bundle, *arguments):
    return subprocess.run([bundle / "bin" / "nibble", *arguments], capture_output=True, text=True, timeout=60,
                          env={"PATH": "/usr/bin:/bin"})


def test_all_but_glibc_comes_along(bundle):
    listed = subprocess.run(["ldd", bundle / "bin" / "nibble"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        name = line.split()[0].split("/")[-1]
        assert GLIBC.match(name) or f"=> {bundle}/" in line, line
    libraries = {path.name for path in (bundle / "lib").iterdir() if path.is_file()}
    assert libraries and not any(GLIBC.match(name) for name in libraries)
    assert len(list((bundle / "licences").iterdir())) >= len(libraries) - 1  # a package may have two of them


def test_it_runs(bundle, smollm2):
    assert re.fullmatch(r"nibble \d+\.\d+\.\d+\n", run(bundle, "--version").stdout)
    report = json.loads(run(bundle, "env", "--json").stdout)
    assert report["build"]["version"] in (bundle / "README").read_text()
    plan = run(bundle, "plan", smollm2, "--device", "cpu", "--json")
    assert plan.returncode == 0 and json.loads(plan.stdout)["accepted"]


def test_two_processes(bundle, smollm2):
    if not (bundle / "lib" / "nibble" / "nibble-mpi.so").exists():
        pytest.skip("this build has no MPI module")
    answer = run(bundle, "run", smollm2, "What is a nibble?", "--device", "cpu", "-tp", "2", "--max-tokens", "4")
    assert answer.returncode == 0 and answer.stdout.strip(), answer.stderr
