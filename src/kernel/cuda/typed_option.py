#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what -DNAME=... said, where Meson takes an option but keeps its name for itself (cuda_archs: names that begin
with a language). Meson notes what was typed in the build folder; the first time it is still on its command line."""
import configparser
import os
import sys

name, build = sys.argv[1:]
noted = configparser.ConfigParser(interpolation=None)
noted.read(os.path.join(build, "meson-private", "cmd_line.txt"))
with open(f"/proc/{os.getppid()}/cmdline") as file:
    words = file.read().split("\0")
typed = [word.split("=", 1)[1] for word in words if word.removeprefix("-D").startswith(name + "=")]
print(typed[-1] if typed else noted.get("options", name, fallback=""))
