# SPDX-License-Identifier: Apache-2.0
"""embed.py PAGE OUT: the page as C, for the program to carry (src/server/page.h). Run by the build."""

import sys

page, out = sys.argv[1:]
with open(page, "rb") as file:
    data = file.read()
lines = ['"%s"' % "".join("\\%03o" % byte for byte in data[i:i + 24]) for i in range(0, len(data), 24)]
with open(out, "w") as file:
    file.write('#include "server/page.h"\n\nconst char page_html[] =\n%s;\nconst size_t page_html_len = sizeof page_html - 1;\n'
               % "\n".join(lines))
