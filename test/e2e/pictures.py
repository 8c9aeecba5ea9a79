# SPDX-License-Identifier: Apache-2.0
"""pictures.py NIBBLE MODEL FOLDER: pictures of the page and of a terminal for the documentation, after real conversations. Run by scripts/pictures."""

import base64
import pathlib
import sys
import tempfile

from conftest import open_browser
from page import Page
from serving import Server
from tmux import Tmux, as_html

TALKS = [["What is the capital of Italy?"], ["List the three states of matter, with one example each."],
         ["Write a Python function that returns the factorial of n."]]
FLAGS = ["--kv-cache-dtype", "nvfp4", "--max-model-len", 2048, "--kv-cache-memory-bytes", "64M"]
MOST_BYTES = 300_000
MARGIN = 14  # beside an element, in pixels


def talk(page):
    for i, questions in enumerate(TALKS):
        if i:
            page.button("New chat").click()
            page.wait(lambda: not page.shown)
        for question in questions:
            page.ask(question)
    page.wait(lambda: "–" not in page.of_all("figure b", "element.innerText"))
    page.run("document.activeElement.blur(); document.querySelector('#log').scrollTop = 0; document.querySelector('#latest').hidden = true")


def take(page, path, width, height, scale=1, clip=None):
    """A picture of the window, or of an element."""
    size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.run("document.querySelector('#log').scrollTop = 0; document.querySelector('#latest').hidden = true")
    what = {}
    if clip:
        box = page.run("const { x, y, width, height } = arguments[0].getBoundingClientRect(); return { x, y, width, height }", page.find(clip))
        around = {"x": box["x"] - MARGIN, "y": box["y"], "width": box["width"] + 2 * MARGIN, "height": box["height"]}
        what = {"clip": {**around, "scale": 1}}
    data = base64.b64decode(page.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", **what})["data"])
    assert len(data) < MOST_BYTES, f"{path} has {len(data)} bytes"
    path.write_bytes(data)
    print(f"{path}: {len(data)} bytes")


def take_terminal(browser, path, screen):
    """A picture of what tmux shows."""
    page = f"<style>body {{ margin: 0 }} pre {{ margin: 0; padding: 14px; width: max-content; font: 13px/1.35 'DejaVu Sans Mono' }}</style><pre>{as_html(screen.rstrip())}</pre>"
    browser.get("data:text/html;base64," + base64.b64encode(b"<meta charset=utf-8>" + page.encode()).decode())
    box = browser.execute_script("const { width, height } = document.querySelector('pre').getBoundingClientRect(); return { width, height }")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**{name: round(size) for name, size in box.items()}, "deviceScaleFactor": 2, "mobile": False})
    data = base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
    assert len(data) < MOST_BYTES, f"{path} has {len(data)} bytes"
    path.write_bytes(data)
    print(f"{path}: {len(data)} bytes")


def take_terminals(browser, program, model, folder):
    program, home = pathlib.Path(program).resolve(), pathlib.Path(tempfile.mkdtemp())
    with Tmux([program, "plan", model, "--kv-cache-dtype", "0-3:bfloat16,4-:fp8/nvfp4"], home, height=40) as terminal:
        take_terminal(browser, folder / "terminal-plan.png", terminal.wait("ended with 0", colours=True).split("ended with")[0])
    with Tmux([program, "run", model, "--temperature", "0", "--max-tokens", "200"], home) as terminal:
        terminal.wait("> ")
        terminal.type("Write a Python function that returns the factorial of n.")
        take_terminal(browser, folder / "terminal-chat.png", terminal.wait("> ", 2, colours=True))


def main():
    program, model, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    browser = open_browser()
    try:
        with Server(program, model, *FLAGS, name="SmolLM2-135M-Instruct") as server:
            page = Page(browser, server.url, {"temperature": 0, "max_tokens": 200})
            page.resize(1280, 820)
            talk(page)
            take(page, folder / "page.png", 1280, 820)
            page.scheme("dark")
            take(page, folder / "page-dark.png", 1280, 820)
            page.scheme("light")
            take(page, folder / "page-phone.png", 390, 780, scale=2)
            page.resize(1280, 1100)
            page.run("document.querySelector('#why').open = true")
            take(page, folder / "plan.png", 1280, 1100, scale=2, clip="#panels > details")
        take_terminals(browser, program, model, folder)
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
