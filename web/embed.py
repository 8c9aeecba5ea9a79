# SPDX-License-Identifier: Apache-2.0
"""embed.py OUT NAME PAGE PART...: the page as a C string of that name, for the program to carry. Run by the build.

A line `@include NAME` of the page is replaced by the part of that name: what the program gives out is one file. In its
Content-Security-Policy `@scripts` and `@styles` become the hashes of its own scripts and style sheets, so that a browser
runs no others; the policy is a C string, too, NAME_policy, for servers to send, and so is the compressed page, NAME_gzip.
"""

import base64
import gzip
import hashlib
import pathlib
import re
import sys

POLICY = re.compile(r'(<meta http-equiv="Content-Security-Policy" content=")([^"]*)(">)')
SOURCES = {"@scripts": re.compile(r'<script(?: type="module")?>(.*?)</script>', re.S), "@styles": re.compile(r"<style>(.*?)</style>", re.S)}


def source_hash(text):
    return "'sha256-%s'" % base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def assemble(page, parts):
    """The page as it is given out, and its policy."""
    texts = {part.name: part.read_text() for part in parts}
    text = re.sub(r"^@include (\S+)\n", lambda line: texts[line[1]], page.read_text(), flags=re.M)
    policy = " ".join(POLICY.search(text)[2].split())
    for word, source in SOURCES.items():
        policy = policy.replace(word, " ".join(map(source_hash, source.findall(text))))
    return POLICY.sub(lambda meta: meta[1] + policy + meta[3], text), policy


def c_string(data):
    return "\n".join('"%s"' % "".join("\\%03o" % byte for byte in data[i:i + 24]) for i in range(0, len(data), 24))


def main():
    name = sys.argv[2]
    out, page, *parts = map(pathlib.Path, sys.argv[1:2] + sys.argv[3:])
    text, policy = assemble(page, parts)
    out.write_text("#include <stddef.h>\n\n" + "".join(
        f"const char {symbol}[] =\n{c_string(data)};\nconst size_t {symbol}_len = sizeof {symbol} - 1;\n"
        for symbol, data in ((name, text.encode()), (f"{name}_policy", policy.encode()), (f"{name}_gzip", gzip.compress(text.encode(), mtime=0)))))


if __name__ == "__main__":
    main()
