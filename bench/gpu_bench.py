# SPDX-License-Identifier: Apache-2.0
"""nibble on a GPU: the measuring half of bench/gpu, which gives the program's path.

Parts: kernels (nibble kernels --bench), torch (cuDNN's attention and torch's product on the same shapes), bars (the models'
bars, nibble bench) and sweep (batches, contexts and cache formats). The models are written where there is room and removed
afterwards.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import gpu_peers

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("kernels", "torch", "bars", "sweep")
COMMAND_SECONDS = 1800
MODEL_BYTES = 30e9  # the largest model, and some room
STEPS = ("1 x 1 of 131072", "64 x 1 of 4096", "128 x 1 of 8192")
PREFILL = "1 x 8192 of 8192"
FORMATS = ("bfloat16", "float16", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head", "nvfp4",
           "nvfp4_4over6")


@dataclasses.dataclass
class Bar:
    """A line of the table: a figure, what it has to be, and what a peer does."""
    work: str
    key: str
    bar: float | None  # None: the peer's figure, of the same run where it was measured
    peer: str
    unit: str = "us"
    peer_key: str | None = None
    peer_value: float | None = None  # measured another time

    @property
    def at_most(self):
        return self.unit == "us"

    def can_be_judged(self, figures):
        return self.key in figures and (self.bar is not None or figures.get(self.peer_key, self.peer_value) is not None)


def bars():
    """Those of kernels, then those of whole models."""
    for step, peer, eight, four in zip(STEPS, (142, 265, 950), (85, 150, 520), (70, 115, 380)):
        yield Bar(f"decode attention {step}, bfloat16", f"attention {step} bfloat16", None, "cuDNN over such pages",
                  peer_key=f"cudnn pages {step}")
        yield Bar(f"decode attention {step}, bfloat16", f"attention {step} bfloat16", None, "cuDNN, in a row", peer_key=f"cudnn {step}",
                  peer_value=peer)
        for format in ("fp8_e4m3", "int8_per_token_head"):
            yield Bar(f"the same, {format}", f"attention {step} {format}", eight, "FlashInfer fp8",
                      peer_value={142: 156, 265: 268, 950: 926}[peer])
        yield Bar("the same, nvfp4", f"attention {step} nvfp4", four, "none")
    yield Bar("prefill attention, causal, 8192 tokens, bfloat16", f"rate {PREFILL} bfloat16", 450, "cuDNN", "TFLOP/s",
              f"cudnn {PREFILL}", 601)
    yield Bar("the same, nvfp4", f"rate {PREFILL} nvfp4", 350, "none", "TFLOP/s")
    yield Bar("linear 28672 x 4096, one token, bfloat16", "linear 1 bfloat16", 65, "torch", peer_key="torch linear 1", peer_value=80)
    yield Bar("the same, NVFP4", "linear 1 NVFP4", 24, "none")
    yield Bar("the same, 64 tokens, NVFP4", "linear 64 NVFP4", 40, "none")
    yield Bar("8B Llama, batch 1, bfloat16 weights", "bf16 decode 1", 240, "llama.cpp f16", "t/s", peer_value=210)
    yield Bar("the same, NVFP4 weights", "NVFP4 decode 1", 550, "llama.cpp Q4_0", "t/s", peer_value=347)
    yield Bar("NVFP4 weights at 32k context, nvfp4 cache", "NVFP4 decode 32768 nvfp4", 450, "llama.cpp f16 / q4_0 cache 214 / 129",
              "t/s")
    yield Bar("bfloat16, 128 streams of 512 + 64", "bf16 streams 128", 14000, "llama.cpp", "t/s", peer_value=7760)
    yield Bar("prefill 2048 tokens, bfloat16", "bf16 prefill 2048", 30000, "llama.cpp", "t/s", peer_value=21800)


# ---- programs ----


def run_json(command):
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr.strip()[-1500:]}")
    return json.loads(done.stdout)


def print_figure(key, figure):
    print(f"  {key}: {figure:.5g}", file=sys.stderr, flush=True)


def measure_kernels(setup):
    """Microseconds (and TFLOP/s of prefill) of the row that a plan would take, by op, step and format."""
    priority = {row["name"]: row["priority"] for row in run_json([setup.nibble, "kernels", "--device", "cuda", "--json"])["kernels"]}
    figures, best, shares = {}, {}, []
    for op in ("attention", "linear"):
        began = time.monotonic()
        report = run_json([setup.nibble, "kernels", op, "--bench", "--device", "cuda", "--json"])
        print(f"  {op}: {len(report['kernels'])} figures in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        figures["ceiling GB/s"], figures["ceiling TFLOP/s"] = report["ceiling"]["gb_per_s"], report["ceiling"]["gflop_per_s"] / 1e3
        for row in report["kernels"]:
            shares.append(row)
            sequences, rows = map(int, row["tokens"].split(" of ")[0].split(" x "))
            key = f"{op} {sequences * rows if op == 'linear' else row['tokens']} {row['formats']}"
            if priority[row["name"]] < best.get(key, -1):
                continue
            best[key] = priority[row["name"]]
            figures[key] = 1e6 * row["seconds"]
            if op == "attention":
                figures[key.replace("attention", "rate")] = row["gflop_per_s"] / 1e3
    figures["rows"] = shares
    return figures


# ---- models ----


def model_folder(setup):
    """Where a model has room: memory, if there is enough of it, is the fastest."""
    for path in filter(None, (setup.models, "/dev/shm", tempfile.gettempdir())):
        if shutil.disk_usage(path).free > MODEL_BYTES:
            return pathlib.Path(path)
    sys.exit("gpu: no folder has room for the models (30 GB); give one with --models")


class Model:
    """A checkpoint for the time of a `with`."""

    def __init__(self, setup, kind):
        self.setup, self.kind = setup, kind
        self.path = model_folder(setup) / f"nibble-8b-{kind}"

    def __enter__(self):
        began = time.monotonic()
        command = [sys.executable, HERE / "gpu_model.py", self.kind, self.path, "--layers", self.setup.layers]
        subprocess.run([str(word) for word in command], check=True)
        print(f"{self.kind} model written in {time.monotonic() - began:.0f} s", file=sys.stderr)
        return self

    def __exit__(self, *exception):
        shutil.rmtree(self.path) if self.path.is_dir() else self.path.unlink(missing_ok=True)

    def bench(self, *flags):
        """Tokens per second, by (kind, depth, batch)."""
        command = [self.setup.nibble, "bench", self.path, "--device", "cuda", "-r", self.setup.rounds, "--json", *flags]
        results = run_json(command)["results"]
        return {(row["kind"], row["depth"], row["batch"]): row["median"] for row in results}


def try_bench(figures, model, names, *flags):
    """Puts the rates under the names of their cases; what fails is told, and the rest goes on."""
    try:
        rates = model.bench(*flags)
    except (RuntimeError, subprocess.TimeoutExpired) as trouble:
        print(f"gpu: {trouble}", file=sys.stderr)
        figures.setdefault("failures", []).append(str(trouble))
        return
    for case, name in names.items():
        figures[name] = rates[case]
        print_figure(name, rates[case])


def measure_bars(setup):
    figures = {}
    with Model(setup, "bf16") as model:
        try_bench(figures, model, {("decode", 0, 1): "bf16 decode 1", ("prefill", 0, 1): "bf16 prefill 2048"}, "-p", 2048, "-n", 128)
        try_bench(figures, model, {("decode", 512, 128): "bf16 streams 128", ("prefill", 512, 1): "bf16 prefill 512 at 512"}, "-p", 512,
                  "-n", 64, "-d", 512, "--batch", 128, "--max-model-len", 1088)
    with Model(setup, "NVFP4") as model:
        try_bench(figures, model, {("decode", 0, 1): "NVFP4 decode 1", ("prefill", 0, 1): "NVFP4 prefill 2048"}, "-p", 2048, "-n", 128)
        try_bench(figures, model, {("decode", 32768, 1): "NVFP4 decode 32768 nvfp4"}, "-p", 0, "-n", 64, "-d", 32768,
                  "--kv-cache-dtype", "nvfp4")
    with Model(setup, "Q4_0") as model:
        try_bench(figures, model, {("decode", 0, 1): "Q4_0 decode 1", ("prefill", 0, 1): "Q4_0 prefill 2048"}, "-p", 2048, "-n", 128)
    return figures


def measure_sweep(setup):
    """Decoding by batch, context and cache format, on NVFP4 weights; by batch alone on the others."""
    figures, batches = {}, (1, 8, 32, 128)
    for kind in ("bf16", "NVFP4", "Q4_0"):
        with Model(setup, kind) as model:
            try_bench(figures, model, {("decode", 512, batch): f"{kind} batch {batch}" for batch in batches}, "-p", 0, "-n", 32,
                      "-d", 512, "--batch", ",".join(map(str, batches)))
            for format in FORMATS if kind == "NVFP4" else ():
                depths = (4096, 32768, 131000) if format in ("bfloat16", "fp8_e4m3", "nvfp4") else (4096, 32768)
                try_bench(figures, model, {("decode", depth, 1): f"NVFP4 {format} at {depth}" for depth in depths}, "-p", 0, "-n", 32,
                          "-d", ",".join(map(str, depths)), "--kv-cache-dtype", format)
                try_bench(figures, model, {("decode", 4096, 64): f"NVFP4 {format} at 4096, batch 64"}, "-p", 0, "-n", 32, "-d", 4096,
                          "--batch", 64, "--kv-cache-dtype", format)
    return figures


# ---- the report ----


def device_name():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.splitlines()[0].replace(", ", ", driver ")


def row_of(bar, figures):
    peer = figures.get(bar.peer_key, bar.peer_value)
    limit = peer if bar.bar is None else bar.bar
    value = figures[bar.key]
    measured = bar.peer_key in figures
    peer_text = bar.peer if peer is None else f"{bar.peer} {peer:.0f}{'' if measured else ' (then)'}"
    met = value <= limit if bar.at_most else value >= limit
    return {"work": bar.work, "value": value, "unit": bar.unit, "peer": peer_text, "bar": limit, "at_most": bar.at_most, "met": met}


def print_table(result):
    figures = result["figures"]
    print(f"## On a GPU, {result['date']}\n\n{result['device']}; by `bench/gpu`.")
    if "ceiling GB/s" in figures:
        print(f"Copying moves {figures['ceiling GB/s'] / 1e3:.2f} TB/s, cuBLASLt multiplies at {figures['ceiling TFLOP/s']:.0f} "
              "TFLOP/s. Kernels: medians, operands larger than the caches, pages in random order, 32 query heads, 8 KV heads, head size 128.")
    print("\n| work | peer | nibble | target | |\n|---|---|---|---|---|")
    for row in result["rows"]:
        word = "at most" if row["at_most"] else "at least"
        print(f"| {row['work']} | {row['peer']} | {row['value']:.{1 if row['value'] < 1000 else 0}f} {row['unit']} | {word} "
              f"{row['bar']:.0f} | {'met' if row['met'] else 'missed'} |")
    batches = sorted({int(key.split()[2]) for key in figures if " batch " in key and "at" not in key.split()})
    if batches:
        print("\n| weights, decode at 512 | " + " | ".join(f"batch {batch}" for batch in batches) + " |\n|---|" + "---|" * len(batches))
        for kind in ("bf16", "NVFP4", "Q4_0"):
            print(f"| {kind} | " + " | ".join(f"{figures[f'{kind} batch {b}']:.0f} t/s" if f"{kind} batch {b}" in figures else "-"
                                              for b in batches) + " |")
    columns = ("at 4096", "at 32768", "at 131000", "at 4096, batch 64")
    if any(key.startswith("NVFP4 nvfp4 at") for key in figures):
        print("\n| cache, NVFP4 weights | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
        for format in FORMATS:
            cells = (figures.get(f"NVFP4 {format} {column}") for column in columns)
            print(f"| {format} | " + " | ".join("-" if cell is None else f"{cell:.0f} t/s" for cell in cells) + " |")
    for failure in figures.get("failures", ()):
        print(f"\nfailed: {failure}")


def options():
    parser = argparse.ArgumentParser(prog="bench/gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nibble", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...", help=f"some of: {' '.join(PARTS)}")
    parser.add_argument("--models", help="where models are written (/dev/shm if it has room)")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of each case (3)")
    parser.add_argument("--layers", type=int, default=32, help="of the models; fewer only show that everything runs")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    setup = parser.parse_args()
    unknown = set(setup.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--only knows {' '.join(PARTS)}, not {' '.join(sorted(unknown))}")
    return setup


def main():
    setup = options()
    measures = {"kernels": measure_kernels, "torch": lambda _: gpu_peers.measure(), "bars": measure_bars, "sweep": measure_sweep}
    figures = {}
    for part in PARTS:
        if part in setup.only.split(","):
            print(f"measuring {part}", file=sys.stderr, flush=True)
            figures |= measures[part](setup)
    rows = [row_of(bar, figures) for bar in bars() if bar.can_be_judged(figures)]
    result = {"date": datetime.date.today().isoformat(), "device": device_name(), "rows": rows, "figures": figures}
    if setup.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(result)
    sys.exit(1 if figures.get("failures") else 0)


if __name__ == "__main__":
    main()
