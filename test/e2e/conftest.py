# SPDX-License-Identifier: Apache-2.0
"""Where things are: built by scripts/test, fetched into its cache. NIBBLE_BUILD names another build folder.

With NIBBLE_OFFLINE, on a machine that can fetch nothing, tests of what is not there are skipped.
"""

import os
import pathlib
import shutil

import pytest

from serving import Server

# `nibble run` reads a pipe that is its standard input, and pytest may have been started with one: commands get an empty one.
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("NIBBLE_CACHE", pathlib.Path.home() / ".cache" / "nibble"))


def existing(path):
    path = pathlib.Path(path)
    if not path.exists() and os.environ.get("NIBBLE_OFFLINE"):
        pytest.skip(f"{path} is not there")
    assert path.exists(), f"{path} is not there; scripts/test makes it"
    return path


@pytest.fixture(scope="session")
def build():
    return existing(os.environ.get("NIBBLE_BUILD", ROOT / "build"))


@pytest.fixture(scope="session")
def nibble(build):
    return str(existing(build / "nibble"))


@pytest.fixture(scope="session")
def nibble_asan():
    """The same program under ASan and UBSan, for input that is out to break it."""
    return str(existing(ROOT / "build-asan" / "nibble"))


@pytest.fixture(scope="session")
def library(build):
    return str(existing(build / "libnibble_internal.so"))


@pytest.fixture(scope="session")
def smollm2():
    return str(existing(os.environ.get("NIBBLE_TEST_SMOLLM2", CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf")))


@pytest.fixture(scope="session")
def gemma3():
    return str(existing(os.environ.get("NIBBLE_TEST_GEMMA3", CACHE / "models" / "gemma-3-270m-q4_k_m.gguf")))


@pytest.fixture(scope="session")
def llama_source():
    """models/ of llama.cpp's source: vocabularies with expected ids, chat templates."""
    return existing(os.environ.get("NIBBLE_TEST_LLAMA_SOURCE", CACHE / "llama-cpp-python-0.3.36"))


@pytest.fixture(scope="session")
def cache():
    folder = CACHE / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def server(nibble, smollm2):
    """A server that many tests share; a test that changes what it serves starts its own."""
    with Server(nibble, smollm2, "--max-model-len", 2048, "--max-num-seqs", 64, "--kv-cache-memory-bytes", "512M") as shared:
        yield shared


@pytest.fixture(scope="module")
def guarded_server(nibble, smollm2):
    with Server(nibble, smollm2, "--max-model-len", 512, "--api-key", "first-key", "--api-key", "second-key") as guarded:
        guarded.key = "first-key"
        yield guarded


def open_browser():
    """Chromium without a window."""
    from selenium import webdriver  # where there is a browser alone

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert program and driver, "chromium and chromedriver are not there; scripts/setup.sh installs them"
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1360,940"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


@pytest.fixture(scope="session")
def browser():
    if not (shutil.which("chromium") and shutil.which("chromedriver")) and os.environ.get("NIBBLE_OFFLINE"):
        pytest.skip("chromium is not there")
    browser = open_browser()
    yield browser
    browser.quit()
