# SPDX-License-Identifier: Apache-2.0
"""A program in tmux, a terminal as people have it: keys and pastes go in, and the screen is read as it is shown."""

import html
import os
import re
import shlex
import subprocess
import time

COLOURS = ["#24292f", "#cf222e", "#1a7f37", "#9a6700", "#0969da", "#8250df", "#1b7c83", "#6e7781"]


class Tmux:
    """`folder` keeps the socket and the chat's history. The locale is UTF-8."""

    def __init__(self, words, folder, width=80, height=24, **environment):
        self.socket = str(folder / "tmux")
        inherited = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": str(folder), **environment}
        command = shlex.join(str(word) for word in words) + "; echo ended with $?; sleep 600"
        self.call("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), command, env=inherited)

    def call(self, *words, **options):
        return subprocess.run(["tmux", "-S", self.socket, *words], check=True, capture_output=True, text=True, timeout=60, **options).stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True, timeout=60)

    def type(self, text):
        self.call("send-keys", "-l", text)
        self.key("Enter")

    def key(self, name):
        self.call("send-keys", name)

    def paste(self, text):
        """As a terminal pastes: in brackets where the program asked for them."""
        self.call("set-buffer", text)
        self.call("paste-buffer", "-p")

    def screen(self, colours=False):
        """All lines so far, those that have scrolled away too; wrapped ones in one piece."""
        return self.call("capture-pane", "-p", "-J", "-S", "-", *(["-e"] if colours else []))

    def wait(self, text, count=1, seconds=120, colours=False):
        """Until a text is there so often; the screen."""
        end = time.monotonic() + seconds
        while self.screen().count(text) < count and time.monotonic() < end:
            time.sleep(0.05)
        screen = self.screen()
        assert screen.count(text) >= count, screen
        return self.screen(colours)


def as_html(screen):
    """A captured screen with its colours, for a browser."""
    out, style = [], {}
    for part in re.split(r"(\x1b\[[\d;]*m)", screen):
        code = re.fullmatch(r"\x1b\[([\d;]*)m", part)
        if not code:
            css = ";".join(f"{name}:{value}" for name, value in style.items())
            out.append(f'<span style="{css}">{html.escape(part)}</span>' if css else html.escape(part))
            continue
        for number in (int(word or 0) for word in code[1].split(";")):
            if number == 0:
                style = {}
            elif number in (1, 2, 3):
                style[["font-weight", "opacity", "font-style"][number - 1]] = ["bold", "0.6", "italic"][number - 1]
            elif 30 <= number <= 37:
                style["color"] = COLOURS[number - 30]
            elif number == 39:
                style.pop("color", None)
    return "".join(out)
