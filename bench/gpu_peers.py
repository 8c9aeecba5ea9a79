# SPDX-License-Identifier: Apache-2.0
"""What torch does on the shapes of bench/gpu: cuDNN's attention and a product of bfloat16. Nothing, where torch is not there.
With cuDNN's frontend also its attention over pages."""

import statistics
import sys

import gpu_pages

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    torch = None

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
BETWEEN_BYTES = 256 << 20  # that other operands take before the same come again
REPEATS, ROUNDS = 12, 7
WARM_SECONDS = 0.03  # before it counts: drivers clear freed memory in the background


def seconds(calls):
    """The median time of one call of several that take turns, replayed as a graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    repeats = 1 + REPEATS // len(calls)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeats):
            for call in calls:
                call()
    times, warm = [], 0
    while len(times) < ROUNDS:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        took = start.elapsed_time(end) / 1e3
        if warm < WARM_SECONDS:
            warm += took
        else:
            times.append(took / (repeats * len(calls)))
    return statistics.median(times)


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def attention(sequences, rows, context):
    """A call on operands of its own; keys and values lie in a row, which is the best case for cuDNN."""
    q = random(sequences, HEADS, rows, HEAD_DIM)
    k, v = (random(sequences, KV_HEADS, context, HEAD_DIM) for _ in range(2))

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=rows > 1, enable_gqa=True)

    return call


def product(rows):
    x, w = random(rows, 4096), random(28672, 4096)
    return lambda: torch.nn.functional.linear(x, w)


def attentions():
    """What a figure is called, its shape, and a function that makes a call."""
    for shape in (1, 1, 131072), (64, 1, 4096), (128, 1, 8192), (1, 8192, 8192):
        sequences, rows, context = shape
        yield f"cudnn {sequences} x {rows} of {context}", shape, lambda: attention(sequences, rows, context)
        if rows == 1 and gpu_pages.attention:
            yield (f"cudnn pages {sequences} x {rows} of {context}", shape,
                   lambda: gpu_pages.attention(sequences, HEADS, KV_HEADS, context, HEAD_DIM))


def measure():
    if torch is None or not torch.cuda.is_available():
        print("torch is not there: peers' figures are those measured another time", file=sys.stderr)
        return {}
    if not gpu_pages.attention:
        print("nvidia-cudnn-frontend is not there: no figures of cuDNN over pages", file=sys.stderr)
    figures = {}
    for key, (sequences, rows, context), make in attentions():
        size = sequences * context * KV_HEADS * HEAD_DIM * 4
        try:
            took = seconds([make() for _ in range(1 + BETWEEN_BYTES // size)])
        except RuntimeError as trouble:
            print(f"{key}: {str(trouble).splitlines()[0]}", file=sys.stderr)
            continue
        operations = 4 * HEADS * HEAD_DIM * sum(range(context - rows + 1, context + 1)) * sequences
        figures[key] = operations / took / 1e12 if rows > 1 else 1e6 * took
    for rows in (1, 64, 2048):
        figures[f"torch linear {rows}"] = 1e6 * seconds([product(rows) for _ in range(2)])
    return figures


if __name__ == "__main__":
    print(measure())
