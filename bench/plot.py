# SPDX-License-Identifier: Apache-2.0
"""Curves as small SVG files, two panels side by side: nothing but lines and words, on white."""

import math
from xml.sax.saxutils import escape

PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP = 330, 220, 56, 30, 80
COLOURS = ("#888888", "#e69f00", "#d55e00", "#56b4e9", "#0072b2")  # told apart by most eyes


class Panel:
    """One set of axes: x by its position in a list or as a number, y from 0 or by powers of ten."""

    def __init__(self, title, x_label, x_values, curves, percent=False, logarithmic=False, by_position=False):
        self.title, self.x_label, self.x_values, self.curves, self.percent = title, x_label, x_values, curves, percent
        self.logarithmic, self.by_position = logarithmic, by_position
        values = [value for curve in curves.values() for value in curve if value]
        if logarithmic:
            self.low, self.high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
        else:
            self.low, self.high = 0, 1 if percent else ceiling(max(values))

    def x(self, index):
        if self.by_position:
            return (index + 0.5) / len(self.x_values) * PANEL_WIDTH
        return self.x_values[index] / (self.x_values[-1] * 1.05) * PANEL_WIDTH

    def y(self, value):
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return PANEL_HEIGHT * (1 - share)

    def ticks(self):
        if self.logarithmic:
            return [self.low * 10 ** i for i in range(round(math.log10(self.high / self.low)) + 1)]
        return [self.high * i / 5 for i in range(6)]


def ceiling(value):
    """The next number that five ticks divide well."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10) if step * power >= value)


def text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def draw_panel(panel):
    yield text(PANEL_WIDTH / 2, -12, panel.title, extra=' font-weight="bold"')
    for tick in panel.ticks():
        words = f"{tick:.0%}" if panel.percent else f"{tick:g}"
        yield f'<line x1="0" x2="{PANEL_WIDTH}" y1="{panel.y(tick):.1f}" y2="{panel.y(tick):.1f}" stroke="#ddd"/>'
        yield text(-6, panel.y(tick) + 4, words, "end")
    for index, value in enumerate(panel.x_values):
        yield text(panel.x(index), PANEL_HEIGHT + 16, f"{value:g}")
    yield text(PANEL_WIDTH / 2, PANEL_HEIGHT + 34, panel.x_label)
    for colour, curve in zip(COLOURS, panel.curves.values()):
        points = [(panel.x(index), panel.y(value)) for index, value in enumerate(curve) if value]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)


def draw_legend(names, width, top):
    """What each colour is: side by side where there is room, else one below the other."""
    column = (width - LEFT) / len(names)
    beside = max(map(len, names)) * 7 + 24 < column
    for number, (colour, name) in enumerate(zip(COLOURS, names)):
        x, y = (LEFT + number * column, top) if beside else (LEFT, top + number * 18)
        yield f'<rect x="{x:.1f}" y="{y - 6}" width="12" height="4" fill="{colour}"/>'
        yield text(x + 18, y, name, "start")
    yield top + (0 if beside else 18 * (len(names) - 1))


def draw(path, panels):
    """Panels with the same curves, and under them what each colour is."""
    width = LEFT + len(panels) * PANEL_WIDTH + (len(panels) - 1) * GAP + 20
    *legend, bottom = draw_legend(list(panels[0].curves), width, TOP + PANEL_HEIGHT + 59)
    height = bottom + 11
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif" font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>']
    for number, panel in enumerate(panels):
        parts += [f'<g transform="translate({LEFT + number * (PANEL_WIDTH + GAP)} {TOP})">', *draw_panel(panel), "</g>"]
    path.write_text("\n".join([*parts, *legend]) + "\n</svg>\n")
