# SPDX-License-Identifier: Apache-2.0
"""embed.py OUT NAME PAGE PART...: the page as a C string of that name, for the program to carry. Run by the build.

A line `@include NAME` of the page is replaced by the part of that name: what the program gives out is one file.
"""

import pathlib
import re
import sys


def assemble(page, parts):
    """The page as it is given out."""
    texts = {part.name: part.read_text() for part in parts}
    return re.sub(r"^@include (\S+)\n", lambda line: texts[line[1]], page.read_text(), flags=re.M)


def main():
    name = sys.argv[2]
    out, page, *parts = map(pathlib.Path, sys.argv[1:2] + sys.argv[3:])
    data = assemble(page, parts).encode()
    lines = ['"%s"' % "".join("\\%03o" % byte for byte in data[i:i + 24]) for i in range(0, len(data), 24)]
    out.write_text("#include <stddef.h>\n\nconst char %s[] =\n%s;\nconst size_t %s_len = sizeof %s - 1;\n"
                   % (name, "\n".join(lines), name, name))


if __name__ == "__main__":
    main()
