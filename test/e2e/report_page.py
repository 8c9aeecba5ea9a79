# SPDX-License-Identifier: Apache-2.0
"""The pages of `eval --html` and `bench --html`: the JSON within them, and how a browser lays them out: nothing is cut off, no
label lies over another."""

import json
import re

WIDTHS = (1280, 360)  # a desk and a phone

LAYOUT = """
    const boxes = selector => [...document.querySelectorAll(selector)].map(element => {
        const { left, right, top, bottom } = element.getBoundingClientRect();
        return { left, right, top, bottom, text: element.textContent, figure: element.closest('figure')?.ariaLabel };
    });
    return { page: document.scrollingElement.scrollWidth, seen: document.scrollingElement.clientWidth,
             all: boxes('body :not(.table *)'), labels: boxes('figure text, .bar span, .key li'), dots: boxes('figure .plot circle') }
"""


def data_of(path):
    """What the page draws; nothing of it can end the element that it is in, and the page loads nothing."""
    text = path.read_text()
    assert not re.search(r"<link|<img|src=|url\(|@import|href=", text)
    data, = re.findall(r'<script type="application/json" id="data">([^<]*)</script>', text)
    return json.loads(data)


def overlap(a, b, slack=0.5):
    return (min(a["right"], b["right"]) - max(a["left"], b["left"]) > slack
            and min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]) > slack)


def check_layout(browser, path, numbered=False):
    """With `numbered`, labels are numbers beside dots and lie over none of them, either."""
    browser.get_log("browser")  # what the pages of other tests have left is taken out of it
    for width in WIDTHS:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(path.as_uri())
        found = browser.execute_script(LAYOUT)
        assert found["labels"] and found["page"] <= width
        outside = [box for box in found["all"] if box["left"] < -0.5 or box["right"] > found["seen"] + 0.5]
        assert not outside, (width, outside)
        labels, dots = found["labels"], found["dots"] if numbered else []
        for i, label in enumerate(labels):
            over = [other for other in labels[:i] + dots if overlap(label, other)]
            assert not over, (width, label, over)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert not browser.get_log("browser")
    return labels
