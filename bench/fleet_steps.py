# SPDX-License-Identifier: Apache-2.0
"""How long a step takes: the model that the fleet simulation is given (bench/sim/step_time.h), fitted to `nibble bench`.

seconds = curve(rows) + output * rows of logits + context * tokens looked back at by those that continue
        + pair * pairs of a prompt's token with one before it
"""

import dataclasses
import json
import statistics
import subprocess
import sys

COMMAND_SECONDS = 600
FITTED = {"prompts": (16, 32, 64, 128, 256, 512), "batches": (1, 2, 4, 8, 16, 32), "depths": (0, 512), "new": 12}
KEPT_OUT = {"prompts": (48, 200, 400), "batches": (3, 12, 24), "depths": (256,), "new": 12}  # to see what the fit is worth


@dataclasses.dataclass
class Step:
    """A kind of step that was timed."""
    rows: float
    outputs: float
    context: float
    pairs: float
    seconds: float


@dataclasses.dataclass
class StepTime:
    curve: list  # of (rows, seconds)
    output: float = 0.0
    context: float = 0.0
    pair: float = 0.0

    def seconds(self, step):
        shares = shares_of(step.rows, [rows for rows, _ in self.curve])
        return (sum(share * seconds for share, (_, seconds) in zip(shares, self.curve)) + self.output * step.outputs
                + self.context * step.context + self.pair * step.pairs)

    def flags(self):
        """As fleet-sim takes it."""
        curve = " ".join(f"{rows:g}:{seconds:.9g}" for rows, seconds in self.curve)
        return ["--step-seconds", curve, "--output-seconds", f"{self.output:.9g}", "--context-seconds", f"{self.context:.9g}",
                "--pair-seconds", f"{self.pair:.9g}"]


def shares_of(rows, nodes):
    """How much each node of the curve has to say at a number of rows: two of them share it, on a straight line."""
    last = len(nodes) - 1
    i = next((i for i in range(1, last) if rows <= nodes[i]), last)
    share = (rows - nodes[i - 1]) / (nodes[i] - nodes[i - 1])
    return [1 - share if node == i - 1 else share if node == i else 0.0 for node in range(len(nodes))]


# ---- measuring ----


def bench(nibble, model, threads, rounds, sizes):
    """Steps of `nibble bench`, timed: whole prompts of one step, and batches that continue."""
    def listed(name):
        return ",".join(map(str, sizes[name]))

    command = [nibble, "bench", model, "--json", "-r", rounds, "--threads", threads, "-p", listed("prompts"), "-n", sizes["new"],
               "--batch", listed("batches"), "-d", listed("depths")]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=COMMAND_SECONDS)
    if done.returncode:
        sys.exit(f"fleet: nibble bench ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return [step_of(result) for result in json.loads(done.stdout)["results"]]


def step_of(result):
    depth, prompt, batch = result["depth"], result["prompt"], result["batch"]
    if result["kind"] == "prefill":
        return Step(prompt, 1, 0, prompt * depth + prompt * (prompt + 1) / 2, prompt / result["median"])
    return Step(batch, batch, batch * (depth + 1 + result["new"] / 2), 0, batch / result["median"])


def medians(rounds):
    """Of the same steps, timed several times."""
    return [dataclasses.replace(same[0], seconds=statistics.median(step.seconds for step in same)) for same in zip(*rounds)]


# ---- fitting ----


def solve(matrix, right):
    """Gauss's way, with the largest pivot of a column."""
    rows = [list(row) + [value] for row, value in zip(matrix, right)]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda row: abs(rows[row][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for row in rows[:i] + rows[i + 1:]:
            factor = row[i] / rows[i][i]
            for j in range(i, len(row)):
                row[j] -= factor * rows[i][j]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def least_squares(rows):
    """Factors with which each row of features comes nearest to 1: features are divided by what they should give."""
    count = len(rows[0])
    normal = [[sum(row[i] * row[j] for row in rows) for j in range(count)] for i in range(count)]
    return solve(normal, [sum(row[i] for row in rows) for i in range(count)])


def fit(steps):
    """The model nearest to these steps by relative error. Negative coefficients are set to zero and the rest is fitted again."""
    nodes = sorted({step.rows for step in steps})
    extras = ["outputs", "context", "pairs"]
    while True:
        rows = [[value / step.seconds for value in (*shares_of(step.rows, nodes), *(getattr(step, name) for name in extras))]
                for step in steps]
        factors = least_squares(rows)
        of = dict(zip(extras, factors[len(nodes):]))
        worst = min(of, key=of.get, default=None)
        if worst is None or of[worst] >= 0:
            return StepTime(list(zip(nodes, factors)), of.get("outputs", 0.0), of.get("context", 0.0), of.get("pairs", 0.0))
        extras.remove(worst)


def errors(time, steps):
    """Mean and largest relative error."""
    found = [abs(time.seconds(step) / step.seconds - 1) for step in steps]
    return sum(found) / len(found), max(found)
