#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds to a target's corpus (test/fuzz/corpus/TARGET) those inputs from other folders that cover more, as few bytes as that
takes, and sets its floor (test/fuzz/floors) to 85 % of what the corpus covers then.

    test/fuzz/minimise.py build-fuzz TARGET [FOLDER ...]

Inputs that are there already stay.
"""

import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ADDED_BYTES_MAX = 200_000
COUNTER_BUCKETS = 8  # libFuzzer's features of one edge: how often it was taken, in eight steps
FLOOR = 0.85
LIMITS = ["-max_len=32768", "-timeout=60", "-rss_limit_mb=4096"]


def new_edges(program, corpus, folders):
    """The inputs of the folders and how many edges each covers that neither the corpus nor the inputs before it do.

    That is how libFuzzer merges: the corpus first, then the others from the smallest to the largest.
    """
    with tempfile.TemporaryDirectory() as scratch:
        control, known = pathlib.Path(scratch) / "control", pathlib.Path(scratch) / "corpus"
        shutil.copytree(corpus, known)
        scratched = [f"-merge_control_file={control}", f"-artifact_prefix={scratch}/"]  # it reports slow inputs as files
        subprocess.run([program, "-merge=1", *LIMITS, *scratched, known, *folders], check=True, capture_output=True)
        lines = control.read_text().splitlines()
    count, known_count = int(lines[0]), int(lines[1])
    covered = set()
    for line in lines[2 + count:]:
        words = line.split()
        if words and words[0] == "FT":
            found = {int(feature) // COUNTER_BUCKETS for feature in words[2:]} - covered
            covered |= found
            if found and int(words[1]) >= known_count:
                yield pathlib.Path(lines[2 + int(words[1])]), len(found)


def choose(gains):
    """Those with the most edges for their bytes, as many as there is room for."""
    room = ADDED_BYTES_MAX
    for path, gain in sorted(gains, key=lambda row: row[1] / row[0].stat().st_size, reverse=True):
        if (size := path.stat().st_size) <= room:
            room -= size
            yield path


def count_edges(program, corpus):
    """What scripts/test reads of a run's log."""
    done = subprocess.run([program, "-runs=0", *LIMITS, corpus], check=True, capture_output=True, text=True)
    return int(re.search(r"INITED *cov: (\d+)", done.stderr).group(1))


def set_floor(target, covered):
    path = HERE / "floors"
    rows = [line for line in path.read_text().splitlines() if line.split()[0] != target]
    head = [line for line in rows if line.startswith("#")]
    rows = [line for line in rows if not line.startswith("#")] + [f"{target} {int(covered * FLOOR)}"]
    path.write_text("\n".join(head + sorted(rows)) + "\n")


def main(build, target, *folders):
    program, corpus = pathlib.Path(build) / "test" / f"{target}_fuzz", HERE / "corpus" / target
    corpus.mkdir(exist_ok=True)
    before, added = count_edges(program, corpus), list(choose(new_edges(program, corpus, folders)))
    for path in added:
        content = path.read_bytes()
        (corpus / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
    total = count_edges(program, corpus)
    set_floor(target, total)
    size = sum(path.stat().st_size for path in corpus.iterdir())
    print(f"{target}: cov {before}, with {len(added)} more inputs {total}; {size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
