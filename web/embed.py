# SPDX-License-Identifier: Apache-2.0
"""embed.py OUT PAGE PART...: the page as C, for the program to carry (src/server/page.h). Run by the build.

A line `@include NAME` of the page is replaced by the part of that name: what the server gives out is one file.
"""

import pathlib
import re
import sys


def assemble(page, parts):
    """The page as it is served."""
    texts = {part.name: part.read_text() for part in parts}
    return re.sub(r"^@include (\S+)\n", lambda line: texts[line[1]], page.read_text(), flags=re.M)


def main():
    out, page, *parts = map(pathlib.Path, sys.argv[1:])
    data = assemble(page, parts).encode()
    lines = ['"%s"' % "".join("\\%03o" % byte for byte in data[i:i + 24]) for i in range(0, len(data), 24)]
    out.write_text('#include "server/page.h"\n\nconst char page_html[] =\n%s;\nconst size_t page_html_len = sizeof page_html - 1;\n'
                   % "\n".join(lines))


if __name__ == "__main__":
    main()
