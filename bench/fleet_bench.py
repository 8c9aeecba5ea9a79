# SPDX-License-Identifier: Apache-2.0
"""A fleet of servers, simulated: the measuring half of bench/fleet, which builds what it needs and gives the paths.

proof: step times of SmolLM2 on this CPU are measured and fitted, and the same traffic goes to a real server and to a
simulated one. fleet: servers with an H200's step times, in numbers from 1 to 256, under rising load, bursts and a small
cache, routed round-robin, by queue and by prefix. Prints the tables of doc/scale.md and draws its plots.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import sys

import plot
import fleet_replay
import fleet_steps

# One H200, a Llama of 8B's shape in bfloat16, measured on 2026-11-15 (doc/scale.md): decoding 247.7 t/s alone and 14814 t/s with 128 streams of
# 512 + 64 tokens; prompts of 2048 at 38518 t/s in steps of 512. Attention apart from it, by itself: 963 us a layer for 128 x 8192
# tokens of context, and 500 TFLOP/s for prompts; 32 layers, 32 heads of 128.
H200_CONTEXT = 32 * 963e-6 / (128 * 8192)
H200_PAIR = 32 * 4 * 32 * 128 / 500e12
H200 = fleet_steps.StepTime([(1, 1 / 247.7), (128, 128 / 14814 - 128 * 544 * H200_CONTEXT),
                             (512, 512 / 38518 - 2048 * 2048 / 2 / 4 * H200_PAIR)], 0.0, H200_CONTEXT, H200_PAIR)
H200_PAGES = int(100e9 / (32 * 2 * 8 * 128 * 2 * 16))  # 100 GB of cache, 128 KiB a token

POLICIES = {
    "round robin": ("--policy", "round-robin"),
    "queue": ("--policy", "queue"),
    "queue, counting": ("--policy", "queue", "--count-sent"),
    "prefix": ("--policy", "prefix"),
    "prefix, counting": ("--policy", "prefix", "--count-sent"),
}
SIZES = (1, 4, 16, 64, 256)
LOADS = (3, 6, 9, 12, 15, 18, 21, 24)  # sessions that begin in a second, for each server
LOAD, LOAD_SERVERS = 9, 16
SMALL_CACHE = 20  # times smaller
BURSTS = ("--surge", 5, "--variation", 2, "--seconds", 240)  # some surges must come
WARM_UP, SECONDS = 60, 90


def print_progress(words):
    print(words, file=sys.stderr, flush=True)


# ---- proof ----


FIGURES = {  # what is compared: where it is found, and its digits
    "seconds for all of it": (("seconds",), 1),
    "tokens answered per second": (("answer_tokens_per_s",), 1),
    "time to first token, mean": (("first_token_s", "mean"), 3),
    "time per token, mean": (("token_s", "mean"), 4),
    "prefix cache hit rate": (("hit_rate",), 5),
}


def figure(result, path):
    for word in path:
        result = result[word]
    return result


def prove(setup):
    """Steps and real runs alternate, so that the machine's better and worse minutes are in both."""
    wanted = fleet_replay.Replay()
    sessions = fleet_replay.sessions_of(setup.sim, wanted)

    def measure(sizes):
        print_progress("measuring steps")
        return fleet_steps.bench(setup.nibble, setup.model, setup.threads, 1, sizes)

    rounds, reals = [measure(fleet_steps.FITTED)], []
    for number in range(setup.rounds):
        print_progress(f"a real server under the same traffic, {number + 1} of {setup.rounds}")
        reals.append(fleet_replay.serve_and_replay(setup.nibble, setup.model, setup.threads, wanted, sessions))
        rounds.append(measure(fleet_steps.FITTED))
    steps = fleet_steps.medians(rounds)
    time = fleet_steps.fit(steps)
    made, = fleet_replay.simulate(setup.sim, *wanted.simulated(), *time.flags())
    return {"fit": fleet_steps.errors(time, steps), "kept_out": fleet_steps.errors(time, measure(fleet_steps.KEPT_OUT)),
            "flags": time.flags(), "load": os.getloadavg()[2], "threads": setup.threads, "real": reals, "made": made}


def print_proof(proof):
    (fit, fit_most), (kept_out, kept_out_most) = proof["fit"], proof["kept_out"]
    print(f"{proof['made']['requests']} requests, {proof['threads']} thread{'s' * (proof['threads'] > 1)}, {len(proof['real'])} real runs "
          f"alternating with measuring steps: medians, with the lowest and highest; load of the machine {proof['load']:.1f}. The fit's error: "
          f"{fit:.1%} in the mean, {fit_most:.1%} at most; on steps that were kept out {kept_out:.1%} and {kept_out_most:.1%}.\n")
    print("| | real | simulated | |\n|---|---|---|---|")
    for name, (path, digits) in FIGURES.items():
        real, made = [figure(result, path) for result in proof["real"]], figure(proof["made"], path)
        middle = statistics.median(real)
        print(f"| {name} | {middle:.{digits}f} ({min(real):.{digits}f}-{max(real):.{digits}f}) | {made:.{digits}f} | "
              f"{made / middle - 1:+.1%} |")
    print()


# ---- fleet ----


def cases(setup):
    """Every simulation: which table it is for, its place there, and its flags."""
    def at(servers, load):
        return "--servers", servers, "--rate", servers * load

    for policy in POLICIES:
        for servers in setup.sizes:
            yield ("size", servers, policy), at(servers, LOAD)
        for load in LOADS:
            yield ("load", load, policy), at(LOAD_SERVERS, load)
        yield ("at", "bursts", policy), (*at(LOAD_SERVERS, LOAD), *BURSTS)
        yield ("at", "small cache", policy), (*at(LOAD_SERVERS, LOAD), "--pages", H200_PAGES // SMALL_CACHE)


def run_fleets(setup):
    """Results of all seeds by case. A fleet's figures hardly differ between seeds when it is large: then one is enough."""
    base = ["--pages", H200_PAGES, "--batch-tokens", 2048, "--running", 256, "--warm-up", WARM_UP, "--seconds", SECONDS, *H200.flags()]
    works = [(case, (*base, *flags, *POLICIES[case[2]], "--seed", seed)) for case, flags in cases(setup)
             for seed in range(1, (setup.seeds if case[0] != "size" or case[1] <= LOAD_SERVERS * 4 else 1) + 1)]
    results = {}
    with concurrent.futures.ThreadPoolExecutor(setup.jobs) as pool:
        for done, ((case, _), (result,)) in enumerate(zip(works, pool.map(lambda work: fleet_replay.simulate(setup.sim, *work[1]),
                                                                           works)), 1):
            print_progress(f"{done} of {len(works)}: {' '.join(map(str, case))}")
            results.setdefault(" ".join(map(str, case)), []).append(result)
    return results


def mean(results, *path):
    return statistics.fmean(figure(result, path) for result in results)


HEAD = "hit rate | first token: mean | p50 | p99 | per token: mean | p99 | tokens/s a server | preempted | busiest"


def row_of(results):
    servers = results[0]["servers"]
    first, token = ([mean(results, name, which) * 1000 for which in ("mean", "p50", "p99")] for name in ("first_token_s", "token_s"))
    return (f"{mean(results, 'hit_rate'):.1%} | {first[0]:.0f} ms | {first[1]:.0f} ms | {first[2]:.0f} ms | {token[0]:.1f} ms | "
            f"{token[2]:.1f} ms | {mean(results, 'answer_tokens_per_s') / servers:.0f} | {mean(results, 'preemptions'):.0f} | "
            f"{mean(results, 'busiest'):.2f}")


def print_table(results, table, places, label):
    print(f"| {label} | routed by | {HEAD} |\n|{'---|' * 11}")
    for place in places:
        for policy in POLICIES:
            found = results.get(f"{table} {place} {policy}")
            if found:
                print(f"| {place} | {policy} | {row_of(found)} |")
    print()


def print_loads(results):
    """In short: what a load does to each way of routing."""
    print(f"| sessions/s a server | {' | '.join(POLICIES)} |\n|{'---|' * (len(POLICIES) + 1)}")
    for load in LOADS:
        cells = []
        for policy in POLICIES:
            found = results[f"load {load} {policy}"]
            cells.append(f"{mean(found, 'first_token_s', 'p99') * 1000:.0f} ms, {mean(found, 'token_s', 'mean') * 1000:.1f} ms, "
                         f"{mean(found, 'answer_tokens_per_s') / LOAD_SERVERS:.0f}/s")
        print(f"| {load} | {' | '.join(cells)} |")
    print()


def draw_plots(results, sizes, folder):
    def curves(table, places, *path, scale=1.0):
        return {policy: [mean(results[f"{table} {place} {policy}"], *path) * scale for place in places] for policy in POLICIES}

    folder.mkdir(parents=True, exist_ok=True)
    plot.draw(folder / "fleet-size.svg", [
        plot.Panel("prefix cache hit rate", "servers", sizes, curves("size", sizes, "hit_rate"), percent=True, by_position=True),
        plot.Panel("time to first token, p99 [ms]", "servers", sizes, curves("size", sizes, "first_token_s", "p99", scale=1e3),
                         logarithmic=True, by_position=True)])
    plot.draw(folder / "fleet-load.svg", [
        plot.Panel("time to first token, p99 [ms]", "sessions begun per second and server", LOADS,
                         curves("load", LOADS, "first_token_s", "p99", scale=1e3), logarithmic=True),
        plot.Panel("time per token, mean [ms]", "sessions begun per second and server", LOADS,
                         curves("load", LOADS, "token_s", "mean", scale=1e3))])


def print_fleets(results, sizes):
    print_table(results, "size", sizes, "servers")
    print_loads(results)
    print_table(results, "at", ("bursts", "small cache"), "under")


# ---- the command ----


def options():
    parser = argparse.ArgumentParser(prog="bench/fleet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--nibble", "--sim", "--model"):
        parser.add_argument(name, required=True, help=argparse.SUPPRESS, type=pathlib.Path)
    parser.add_argument("--only", choices=("proof", "fleet"), help="one of the two")
    parser.add_argument("--threads", type=int, default=1, help="of the real server; the client has the rest (1)")
    parser.add_argument("--rounds", type=int, default=3, help="real runs, alternating with measuring steps (3)")
    parser.add_argument("--seeds", type=int, default=3, help="how often a fleet is simulated, up to 64 servers (3)")
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES, metavar="N,...",
                        help="of the fleets (1,4,16,64,256)")
    parser.add_argument("--jobs", type=int, default=1, help="simulations at once (1)")
    parser.add_argument("--plots", type=pathlib.Path, metavar="FOLDER", help="draw there")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="all figures, too")
    return parser.parse_args()


def main():
    setup = options()
    figures = {}
    if setup.only != "fleet":
        figures["proof"] = prove(setup)
        print_proof(figures["proof"])
    if setup.only != "proof":
        figures["fleet"] = run_fleets(setup)
        print_fleets(figures["fleet"], setup.sizes)
        if setup.plots:
            draw_plots(figures["fleet"], setup.sizes, setup.plots)
    if setup.json:
        setup.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
