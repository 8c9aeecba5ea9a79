# SPDX-License-Identifier: Apache-2.0
"""The text of a plan, which is wrapped at 80 columns."""

import re


def unwrapped(text):
    """With each line in one piece."""
    return re.sub(r"\n {10}(?=\S)", " ", text)
