# SPDX-License-Identifier: Apache-2.0
"""nibble beside llama.cpp on this CPU: the measuring half of bench/cpu-peers, which builds both and gives their paths.

Every round runs all works once on both sides, one right after the other, in an order that changes from round to round.
What counts is the ratio of medians; figures of different machines, or of different hours, are not to be compared.
"""

import argparse
import dataclasses
import datetime
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

PEER_CACHES = ("f16", "q8_0", "q4_0")
OWN_CACHES = ("nvfp4", "bfloat16")
COMMAND_SECONDS = 3600
START_SECONDS = 120
LOAD_MAX = 0.5  # of other processes, beyond which the figures are doubtful


@dataclasses.dataclass
class Sizes:
    """How much work there is: the real thing, or a short one that only shows that everything runs."""
    prompt: int = 512
    new: int = 128
    depth: int = 4096
    depth_new: int = 64
    streams: int = 32
    stream_prompt: int = 128
    stream_new: int = 64
    context: int = 4096  # of the servers


QUICK = Sizes(prompt=64, new=8, depth=128, depth_new=8, streams=4, stream_prompt=16, stream_new=8, context=512)


@dataclasses.dataclass
class Bar:
    """A line of the table: nibble's figure against the best of some others, and what the ratio has to be."""
    work: str
    own: str
    others: tuple
    bar: float
    unit: str = "t/s"
    at_most: bool = False  # less is better

    def ratio(self, medians):
        best = (min if self.at_most else max)(medians[other] for other in self.others)
        return medians[self.own] / best

    def passes(self, ratio):
        return ratio <= self.bar if self.at_most else ratio >= self.bar


def bars(sizes):
    at = f"at context {sizes.depth}"
    streams = f"{sizes.streams} streams, {sizes.stream_prompt} prompt + {sizes.stream_new} new, decode t/s summed"
    return [
        Bar("SmolLM2 decode, short context", "own smollm2 decode", ("peer smollm2 decode",), 1.8),
        Bar(f"SmolLM2 decode {at}: nvfp4 against llama.cpp's fastest cache", "own depth nvfp4",
            tuple(f"peer depth {cache}" for cache in PEER_CACHES), 3),
        Bar(f"SmolLM2 decode {at}: nvfp4 against nibble's bfloat16", "own depth nvfp4", ("own depth bfloat16",), 1.3),
        Bar(f"SmolLM2 prefill {sizes.prompt}", "own smollm2 prefill", ("peer smollm2 prefill",), 2.5),
        Bar(f"SmolLM2 {streams}", "own streams", ("peer streams",), 2.5),
        Bar(f"Gemma 3 270M prefill {sizes.prompt}", "own gemma3 prefill", ("peer gemma3 prefill",), 1.5),
        Bar("Gemma 3 270M decode", "own gemma3 decode", ("peer gemma3 decode",), 1.5),
        Bar("cold start: server spawned to first token of 16-token prompt", "own start", ("peer start",), 0.5, "s", at_most=True),
        Bar(f"peak resident memory after it, context {sizes.context}", "own memory", ("peer memory",), 1, "MiB", at_most=True),
    ]


# ---- programs ----


def run(command):
    """What a program prints, on both of its outputs."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS)
    if done.returncode:
        sys.exit(f"cpu-peers: {' '.join(command)} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout, done.stderr


def own_bench(setup, model, *flags):
    """Medians of one timed round, by (kind, cache)."""
    command = [setup.nibble, "bench", model, "-r", 1, "--threads", setup.threads, "--json", *flags]
    results = json.loads(run(command)[0])["results"]
    return {(result["kind"], result["kv_cache_dtype"]): result["median"] for result in results}


def peer_bench(setup, model, *flags):
    command = [setup.llama / "llama-bench", "-m", model, "-r", 1, "-t", setup.threads, "-fa", "on", "-o", "json", *flags]
    results = json.loads(run(command)[0])
    return {("prefill" if result["n_prompt"] else "decode", result["type_k"]): result["avg_ts"] for result in results}


def peer_streams(setup, sizes):
    context = sizes.streams * (sizes.stream_prompt + sizes.stream_new)
    command = [setup.llama / "llama-batched-bench", "-m", setup.smollm2, "-t", setup.threads, "-tb", setup.threads, "-fa", "on",
               "-c", context, "-b", 2048, "-ub", 512, "-npp", sizes.stream_prompt, "-ntg", sizes.stream_new,
               "-npl", sizes.streams, "--output-format", "jsonl"]
    line, = [line for line in "".join(run(command)).splitlines() if line.startswith("{")]
    return json.loads(line)["speed_tg"]


# ---- servers ----


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def first_token(port):
    """Whether a completion of 16 tokens' prompt was answered: a server that is not there yet refuses, or says 503."""
    body = json.dumps({"model": "smollm2", "prompt": list(range(1000, 1016)), "max_tokens": 4, "temperature": 0, "stream": True})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            return False
        return any(line.startswith(b"data: {") for line in iter(response.readline, b""))
    except (ConnectionError, http.client.BadStatusLine):
        return False
    finally:
        connection.close()


def peak_mebibytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the system does not tell a process's peak memory")


def start_server(command, port):
    """Seconds from the spawn to the first token, and the peak of resident memory then."""
    began = time.monotonic()
    server = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not first_token(port):
            if server.poll() is not None or time.monotonic() - began > START_SECONDS:
                sys.exit(f"cpu-peers: {command[0]} did not answer")
            time.sleep(0.001)
        seconds = time.monotonic() - began
        return seconds, peak_mebibytes(server.pid)
    finally:
        server.terminate()
        server.wait()


def own_server(setup, sizes):
    port = free_port()
    return start_server([setup.nibble, "serve", setup.smollm2, "--port", port, "--threads", setup.threads, "--max-model-len",
                         sizes.context, "--max-num-seqs", 1, "--served-model-name", "smollm2"], port)


def peer_server(setup, sizes):
    port = free_port()
    return start_server([setup.llama / "llama-server", "-m", setup.smollm2, "--port", port, "-t", setup.threads, "-fa", "on",
                         "-c", sizes.context, "-np", 1], port)


# ---- works ----


def bench_pair(setup, sizes, name, model):
    flags = "-p", sizes.prompt, "-n", sizes.new

    def own():
        return {f"own {name} {kind}": rate for (kind, _), rate in own_bench(setup, model, *flags).items()}

    def peer():
        return {f"peer {name} {kind}": rate for (kind, _), rate in peer_bench(setup, model, *flags).items()}

    return own, peer


def depth_pair(setup, sizes):
    flags = "-p", 0, "-n", sizes.depth_new, "-d", sizes.depth

    def own():
        rates = own_bench(setup, setup.smollm2, *flags, "--kv-cache-dtype", ",".join(OWN_CACHES))
        return {f"own depth {cache}": rate for (_, cache), rate in rates.items()}

    def peer():
        figures = {}
        for cache in PEER_CACHES:
            rates = peer_bench(setup, setup.smollm2, *flags, "-ctk", cache, "-ctv", cache)
            figures[f"peer depth {cache}"] = rates["decode", cache]
        return figures

    return own, peer


def streams_pair(setup, sizes):
    def own():
        rates = own_bench(setup, setup.smollm2, "-p", 0, "-n", sizes.stream_new, "-d", sizes.stream_prompt,
                          "--batch", sizes.streams)
        return {"own streams": rates["decode", "auto"]}

    return own, lambda: {"peer streams": peer_streams(setup, sizes)}


def server_pair(setup, sizes):
    def own():
        return dict(zip(("own start", "own memory"), own_server(setup, sizes)))

    return own, lambda: dict(zip(("peer start", "peer memory"), peer_server(setup, sizes)))


def works(setup, sizes):
    """By name: what measures nibble, and what measures llama.cpp."""
    return {
        "smollm2": bench_pair(setup, sizes, "smollm2", setup.smollm2),
        "depth": depth_pair(setup, sizes),
        "streams": streams_pair(setup, sizes),
        "gemma3": bench_pair(setup, sizes, "gemma3", setup.gemma3),
        "server": server_pair(setup, sizes),
    }


def measure(chosen, rounds):
    """Every figure's samples, by name."""
    samples = {}
    for number in range(rounds):
        for name, pair in chosen.items():
            for side in pair if number % 2 == 0 else reversed(pair):
                began = time.monotonic()
                figures = side()
                told = ", ".join(f"{key} {figure:.4g}" for key, figure in figures.items())
                print(f"round {number + 1} of {rounds}, {name}: {told} ({time.monotonic() - began:.0f} s)", file=sys.stderr)
                for key, figure in figures.items():
                    samples.setdefault(key, []).append(figure)
    return samples


# ---- the report ----


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "unknown CPU")
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "date": datetime.date.today().isoformat()}


def report(setup, sizes, samples):
    medians = {key: statistics.median(values) for key, values in samples.items()}
    rows = []
    for bar in bars(sizes):
        if bar.own in medians:
            ratio = bar.ratio(medians)
            rows.append(dataclasses.asdict(bar) | {"ratio": ratio, "passes": bar.passes(ratio)})
    return {"machine": machine(), "llama_cpp_python": setup.llama_version, "threads": setup.threads, "rounds": setup.rounds,
            "quick": setup.quick, "rows": rows, "medians": medians, "samples": samples}


def figure_text(key, values, unit):
    """The median with its range; a cache format where there are several."""
    digits = 3 if unit == "s" else 1
    label = f"{key.split()[-1]} " if "depth" in key else ""
    return f"{label}{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def print_table(result):
    about, samples = result["machine"], result["samples"]
    print(f"## Beside llama.cpp, {about['date']}{', quick: sizes too small to mean anything' if result['quick'] else ''}\n")
    print(f"{about['cpu']}, {about['cores']} cores, {result['threads']} threads; llama.cpp of llama-cpp-python "
          f"{result['llama_cpp_python']}, -march=native, flash attention on. Rounds in alternation: {result['rounds']}; medians, with "
          "lowest and highest; by `bench/cpu-peers`.\n")
    print("| work | nibble | peer | ratio | target | |\n|---|---|---|---|---|---|")
    for row in result["rows"]:
        unit = row["unit"]
        others = ", ".join(figure_text(other, samples[other], unit) for other in row["others"])
        print(f"| {row['work']} | {figure_text(row['own'], samples[row['own']], unit)} {unit} | {others} {unit} | "
              f"{row['ratio']:.2f} | {'at most' if row['at_most'] else 'at least'} {row['bar']:g} | "
              f"{'met' if row['passes'] else 'missed'} |")


def options():
    parser = argparse.ArgumentParser(prog="bench/cpu-peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--nibble", "--llama", "--llama-version", "--smollm2", "--gemma3"):
        parser.add_argument(name, required=True, help=argparse.SUPPRESS, type=str if name == "--llama-version" else pathlib.Path)
    parser.add_argument("--rounds", type=int, help="how often everything is measured (5; with --quick 1)")
    parser.add_argument("--threads", type=int, default=2, help="of both sides (2)")
    parser.add_argument("--only", metavar="WORK,...", help="some of: smollm2 depth streams gemma3 server")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that everything runs, and nothing else")
    parser.add_argument("--json", action="store_true", help="figures with all samples as JSON")
    setup = parser.parse_args()
    setup.rounds = setup.rounds or (1 if setup.quick else 5)
    if setup.rounds < 1 or setup.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    return parser, setup


def main():
    parser, setup = options()
    sizes = QUICK if setup.quick else Sizes()
    chosen = works(setup, sizes)
    unknown = set((setup.only or "").split(",")) - set(chosen) - {""}
    if unknown:
        parser.error(f"--only knows {' '.join(chosen)}, not {' '.join(sorted(unknown))}")
    if setup.only:
        chosen = {name: pair for name, pair in chosen.items() if name in setup.only.split(",")}
    if os.getloadavg()[0] > LOAD_MAX:
        print(f"cpu-peers: the machine is busy (load {os.getloadavg()[0]:.1f}); the figures will be doubtful", file=sys.stderr)
    for model in (setup.smollm2, setup.gemma3):
        model.read_bytes()  # into the file cache, as after a first start
    result = report(setup, sizes, measure(chosen, setup.rounds))
    if setup.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(result)


if __name__ == "__main__":
    main()
