# SPDX-License-Identifier: Apache-2.0
"""libnibble as another program's developer meets it: an installed prefix, pkg-config, a man page, the examples, the ABI."""

import pathlib
import re
import subprocess
from ctypes import POINTER, byref, c_bool, c_int32, c_size_t, c_void_p

import pytest

from libnibble import Library, Model, Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = (ROOT / "include" / "nibble.h").read_text()
FUNCTIONS = set(re.findall(r"^[a-z][\w ]*[ *](nibble_\w+)\(", re.sub(r"//.*", "", HEADER), re.M))
VERSION = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
ABI = VERSION.rsplit(".", 1)[0]


def output(*words, **options):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(build, tmp_path_factory):
    """What `meson install` installs, in a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder], check=True, capture_output=True)
    return next(folder.rglob("include/nibble.h")).parents[1]


@pytest.fixture(scope="module")
def compiled(prefix, tmp_path_factory):
    """The examples, compiled as their first lines say."""
    folder = tmp_path_factory.mktemp("examples")
    (description,) = prefix.rglob("nibble.pc")
    flags = output("pkg-config", f"--define-variable=prefix={prefix}", "--cflags", "--libs", description).split()
    (library,) = prefix.rglob("libnibble.so")
    for source in sorted((ROOT / "examples").glob("*.c")):
        output("cc", "-Wall", "-Wextra", "-Werror", "-std=c11", source, "-o", folder / source.stem, *flags, f"-Wl,-rpath,{library.parent}")
    return folder


def test_pkg_config(prefix):
    (description,) = prefix.rglob("nibble.pc")
    assert output("pkg-config", "--modversion", description).strip() == VERSION
    assert "-lnibble" in output("pkg-config", "--libs", description).split()


def test_generate(compiled, smollm2):
    text = output(compiled / "generate", smollm2, "The capital of France is", 8)
    assert "Paris" in text
    done = subprocess.run([compiled / "generate", "no-such-model.gguf", "a", "1"], capture_output=True, text=True)
    assert done.returncode == 1 and "no-such-model.gguf" in done.stderr


def test_chat(compiled, smollm2):
    text = output(compiled / "chat", smollm2, input="What is a byte?\nSay \"hello\" in one word.\n")
    assert "8 bits" in text and len(text.splitlines()) >= 2 and "<|im_end|>" not in text


def test_plan(compiled, smollm2):
    text = output(compiled / "plan", smollm2, "nvfp4", "sm_90")
    assert "nvfp4" in text and re.search(r"a step of 8 sequences at 1024 tokens reads \d+\.\d MB", text)
    done = subprocess.run([compiled / "plan", smollm2, "turboquant_4bit_nc", "cpu"], capture_output=True, text=True)
    assert done.returncode == 1 and "what would run" in done.stderr


def test_scheduler(compiled, smollm2):
    lines = output(compiled / "scheduler", smollm2).splitlines()
    assert [line.split(",")[0] for line in lines[:4]] == ["0 length", "1 length", "2 cancelled", "3 length"]
    assert "2 cancelled, 4 tokens" in lines[2] and re.fullmatch(r"\d+ steps for 40 tokens", lines[4]), lines


def test_stop_ids(library, smollm2):
    """Those of the engine are those that the tokenizer names one by one."""
    with Model(Library(library), smollm2, max_model_len=64, no_self_test=True) as model, Tokenizer(model.checkpoint) as tokenizer:
        functions, ids = model.library.functions, POINTER(c_int32)()
        functions.nibble_engine_stop_ids.restype = c_size_t
        functions.nibble_token_ends_text.restype = c_bool
        count = functions.nibble_engine_stop_ids(c_void_p(model.pointer), c_void_p(tokenizer.pointer), byref(ids))
        ends = [id for id in range(49152) if functions.nibble_token_ends_text(c_void_p(tokenizer.pointer), c_int32(id))]
        assert ids[:count] == ends and 2 in ends
        model.library.free(ids)


def test_the_man_page_has_every_function(prefix):
    (page,) = prefix.rglob("nibble.3*")
    done = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, env={"MANWIDTH": "200", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and not done.stderr, done.stderr
    plain = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    assert not FUNCTIONS - set(re.findall(r"(nibble_\w+)\(", plain)) and len(FUNCTIONS) > 70
    for section in ("NAME", "SYNOPSIS", "CHECKPOINT", "PLAN AND ENGINE", "MANY TEXTS AT ONCE", "EXAMPLES"):
        assert re.search(f"^{section}$", plain, re.M), section


def test_symbols(prefix):
    """The header's functions and no others are exported, each with its version, under a name that carries the ABI's."""
    (library,) = prefix.rglob(f"libnibble.so.{VERSION}")
    rows = [line.split() for line in output("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines()]
    versions = dict(row[2].split("@@") for row in rows if row[1] == "T")
    assert set(versions) == FUNCTIONS and set(versions.values()) == {f"NIBBLE_{ABI}"}
    assert f"[libnibble.so.{ABI}]" in output("readelf", "-d", library)
    assert f"libnibble.so.{ABI}" in HEADER and f"NIBBLE_{ABI}" in HEADER
