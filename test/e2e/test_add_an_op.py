# SPDX-License-Identifier: Apache-2.0
"""doc/add-an-op.md, done: its code blocks are applied to a copy of the tree, which is built and tested."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = re.compile(r"^In `([^`]+)`, before `([^`]+)`:\n\n```c\n(.*?)```\n", re.M | re.S)
LEFT_OUT = shutil.ignore_patterns(".git", "build*", "corpus", "golden", "__pycache__", "node_modules")


def copy_tree(build, to):
    """The sources, and the build folder at the same place beside them with its times, so that little is built again."""
    shutil.copytree(ROOT, to, ignore=LEFT_OUT)
    shutil.copytree(build, to / build.relative_to(ROOT), symlinks=True, ignore=shutil.ignore_patterns("*_test", "meson-logs"))
    return to / build.relative_to(ROOT)


def apply(tree, steps):
    for name, anchor, block in steps:
        text = (tree / name).read_text()
        at = text.index(anchor)
        at = text.rindex("\n", 0, at) + 1
        (tree / name).write_text(text[:at] + block + text[at:])


@pytest.fixture(scope="module")
def steps():
    return STEP.findall((ROOT / "doc" / "add-an-op.md").read_text())


@pytest.fixture(scope="module")
def grown(build, steps, tmp_path_factory):
    """A build folder in which the op of the page is there."""
    build = pathlib.Path(build).resolve()
    if ROOT not in build.parents:
        pytest.skip("the build folder is not in the tree")
    folder = copy_tree(build, tmp_path_factory.mktemp("op") / "tree")
    apply(folder.parent, steps)
    result = subprocess.run(["ninja", "-C", folder, "nibble", "test/kernel_test"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-4000:]
    assert "warning" not in result.stdout.replace("unused parameter", ""), result.stdout[-4000:]
    return folder


def test_few_files(steps):
    files = {name for name, _, _ in steps}
    assert files == {"src/kernel/op.h", "src/kernel/ref/elementwise.c", "test/unit/kernel_test.c"}  # and an architecture's


def run(*arguments, **environment):
    return subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True,
                          env={**os.environ, **environment})


def test_the_op_works(grown):
    assert run(grown / "test" / "kernel_test").returncode == 0
    result = run(grown / "nibble", "kernels", "--test", "layer_norm")
    assert result.returncode == 0 and result.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 not run", result.stdout
    page = run(grown / "nibble", "kernels", "--ops-markdown").stdout
    assert "## layer_norm" in page and "| `bias` | vector or none | (width) | f32 | f32 | more[0] |" in page


def test_a_fault_is_found(grown):
    result = run(grown / "nibble", "kernels", "--test", "layer_norm", NIBBLE_FAULT="layer_norm_ref")
    assert result.returncode == 1 and "FAILED" in result.stdout
