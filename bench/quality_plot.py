# SPDX-License-Identifier: Apache-2.0
"""Draws doc/img/quality.svg, quality against bits, from the first table of doc/quality.md.

    python bench/quality_plot.py [FILE]
"""

import pathlib
import re
import sys

import plot

ROOT = pathlib.Path(__file__).resolve().parents[1]
CURVES = ("plain cache of the same format", "as nibble plans it", "llama.cpp q4_0")


def measured(page):
    """(bits, divergence of each curve or None), ascending in bits, for the formats that are measured both ways."""
    rows = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        numbers = [re.search(r"\d+\.\d+$|^\d+(\.\d+)?$", cell) for cell in cells[1:]]
        if len(cells) == 5 and all(numbers[:3]):
            rows.append(tuple(number and float(number[0]) for number in numbers))
        elif rows:
            break
    return sorted(rows)


def panel():
    rows = measured((ROOT / "doc" / "quality.md").read_text())
    curves = {name: [row[1 + i] for row in rows] for i, name in enumerate(CURVES)}
    return plot.Panel("KL divergence from a float32 cache", "bits per value", [row[0] for row in rows], curves, logarithmic=True, by_position=True)


if __name__ == "__main__":
    plot.draw(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "doc" / "img" / "quality.svg", [panel()])
