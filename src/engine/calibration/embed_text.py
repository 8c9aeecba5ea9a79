# SPDX-License-Identifier: Apache-2.0
"""embed_text.py OUT TEXT: the calibration text as C (src/engine/calibration_text.h). Run by the build."""

import pathlib
import sys


def main():
    out, text = map(pathlib.Path, sys.argv[1:])
    data = text.read_bytes()
    lines = ['"%s"' % "".join("\\%03o" % byte for byte in data[i:i + 24]) for i in range(0, len(data), 24)]
    out.write_text('#include "engine/calibration/text.h"\n\nconst char calibration_text[] =\n%s;\n'
                   "const size_t calibration_text_len = sizeof calibration_text - 1;\n" % "\n".join(lines))


if __name__ == "__main__":
    main()
