# SPDX-License-Identifier: Apache-2.0
"""Logits and greedy continuations of several models by several processes together; mpirun starts this program in each.

    mpirun -n N python ranks_score.py LIBRARY CASES.json RESULT.npz

CASES is a list of {"name", "path", "ids", "new", "options"}. Rank 0 writes, for each, NAME.logits, NAME.tokens and
NAME.plan, or NAME.refused with the sentence. Without mpirun one process computes alone.
"""

import json
import os
import sys

import numpy as np

from libnibble import Library, Model, Refused


def compute(lib, case, ranks, out):
    name = case["name"]
    try:
        with Model(lib, case["path"], ranks=ranks, tensor_parallel=lib.call("ranks_size", ranks) if ranks else 1,
                   **case["options"]) as model:
            with model.sequence() as sequence:
                out[f"{name}.logits"] = sequence.score(case["ids"])
            out[f"{name}.tokens"] = np.array(model.generate([case["ids"]], max_tokens=case["new"])[0].tokens)
            out[f"{name}.plan"] = np.array(model.plan())
    except Refused as refusal:
        out[f"{name}.refused"] = np.array(str(refusal))


def main(library, cases, result):
    lib = Library(library)
    ranks = lib.ask("ranks_open", b"scores") if "OMPI_COMM_WORLD_SIZE" in os.environ else None
    if ranks and lib.call("ranks_rank", ranks):
        lib.ask("ranks_work", ranks)
    else:
        out = {}
        with open(cases) as file:
            for case in json.load(file):
                compute(lib, case, ranks, out)
        np.savez(result, **out)
    if ranks:
        lib.call("ranks_close", ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
