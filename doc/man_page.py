# SPDX-License-Identifier: Apache-2.0
"""man_page.py OUT HEADER VERSION: the man page nibble(3), made of the public header so that it lacks nothing. Run by the build."""

import pathlib
import re
import sys

SECTION = re.compile(r"^// -{4} (.*?) -+$", re.M)

BEGINNING = """.\\" Made of include/nibble.h by doc/man_page.py.
.TH NIBBLE 3 "" "nibble {version}" "C API"
.SH NAME
nibble \\- run large language models
.SH SYNOPSIS
.B #include <nibble.h>
.PP
.I cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs nibble)
.SH DESCRIPTION
"""
END = """.SH EXAMPLES
The folder
.I examples
of the source has programs that continue a text (generate.c), chat (chat.c), print a plan (plan.c) and answer many requests at
once (scheduler.c).
.SH SEE ALSO
.I doc/interface.md
and
.I doc/architecture.md
of the source.
"""


def escape(line):
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + line if line[:1] in (".", "'") else line


def prose(lines):
    """Comment lines as text: those that are indented keep their shape."""
    out, table = [], False
    for line in (line.removeprefix("//").removeprefix(" ") for line in lines):
        if line.startswith("  ") != table:
            table = not table
            out.append(".EX" if table else ".EE")
        out.append(escape(line) if line.strip() else ".PP")
    return out + [".EE"] * table


def code(lines):
    return [".EX", *(re.sub(r"\b(nibble_\w+)(?=\()", r"\\fB\1\\fP", escape(line)) for line in lines), ".EE"]


def block(text):
    """Declarations with the comment before them."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
    return [".PP", *prose(lines[:first]), *(code(lines[first:]) if lines[first:] else [])]


def page(header, version):
    comment, rest = header.split("#ifndef NIBBLE_H", 1)
    rest = rest.split('extern "C" {\n#endif\n', 1)[1].split("#ifdef __cplusplus", 1)[0]
    about = comment.splitlines()[1:]
    about[0] = about[0].replace("nibble.h: the", "The")
    out = [BEGINNING.format(version=version).rstrip("\n"), *prose(about)]
    first, *sections = SECTION.split(rest)
    for title, body in [("errors and text", first), *zip(sections[::2], sections[1::2])]:
        out.append(f".SH {title.upper()}")
        for text in re.split(r"\n\s*\n", body.strip("\n")):
            out += block(text)
    return "\n".join(out) + "\n" + END


def main():
    out, header = map(pathlib.Path, sys.argv[1:3])
    out.write_text(page(header.read_text(), sys.argv[3]))


if __name__ == "__main__":
    main()
