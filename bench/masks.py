#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What masks cost in time: decode with and without them at a batch of 32, and the compilation of a schema of 100 KB.

    python3 bench/masks.py NIBBLE MODEL [--rounds 5] [--tokens 64] [--json]

Times are CPU times of the server's threads, with one thread for the engine, so that a busy machine changes them little:

  decode    32 greedy answers at once, of the same length with and without a form, in alternation after a round that is not
            counted; the ratio of a round is the CPU time with the form to that without, and the median of the rounds counts.
            "new schemas" are compiled within it, and no mask of theirs is known: they have no target
  compile   a schema that the server has not seen, less the same request again
"""

import argparse
import concurrent.futures
import itertools
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "test" / "e2e"))

from serving import QUESTIONS, Server, user  # noqa: E402

BATCH = 32
SCHEMA_BYTES = 100_000
TARGETS = {"decode": 1.05, "compile": 50}  # a ratio, and milliseconds
TEXT = {"type": "string"}
PERSON = {"name": TEXT, "age": {"type": "integer", "minimum": 0, "maximum": 130}, "email": {"type": "string", "format": "email"},
          "joined": {"type": "string", "format": "date"}, "role": {"enum": ["admin", "editor", "reader"]}, "tags": {"type": "array", "items": TEXT},
          "score": {"type": "number"}}
JSON_GRAMMAR = r'''root ::= "[" (value "," " "?){200,} value "]"
value ::= object | "[" (value ("," " "? value)*)? "]" | string | number | "true" | "false" | "null"
object ::= "{" (string ":" " "? value ("," " "? string ":" " "? value)*)? "}"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?
'''


def closed(properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def people(rename=str):
    """Answers to it are longer than any of the benchmark."""
    return {"type": "array", "items": closed({rename(name): value for name, value in PERSON.items()}), "minItems": 20}


def of_schema(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}}


NEW = itertools.count()
FORMS = {  # the fields of the request with a number
    "one schema": lambda number: of_schema(people()),
    "32 schemas": lambda number: of_schema(people(lambda name: f"{name}_{number}")),
    "32 new schemas": lambda number: of_schema(people(lambda name, new=next(NEW): f"{name}_new_{new}")),
    "JSON as GBNF": lambda number: {"grammar": JSON_GRAMMAR},
}


def large_schemas(turn):
    """Schemas of 100 KB, which a server sees for the first time in each turn."""
    def grown(add):
        parts = {}
        while len(json.dumps(parts)) < SCHEMA_BYTES:
            parts.update(add(f"{len(parts)}_{turn}"))
        return parts

    objects = grown(lambda name: {f"field_{name}": {**closed(PERSON), "description": f"The person of field {name}."}})
    names = grown(lambda name: {f"owner_{name}": {"$ref": "#/$defs/person"},
                                f"code_{name}": {"type": "string", "pattern": f"^[A-Z]{{2}}-{turn}[0-9]+$", "description": f"The code of {name}. " * 6}})
    words = grown(lambda name: {f"a value with the name {name}": 0})
    return {"objects": {"anyOf": [closed({"kind": {"const": name}, **value["properties"]}) for name, value in objects.items()]},
            "references and patterns": {**closed(names), "required": [], "$defs": {"person": closed(PERSON)}},
            "an enum": closed({"word": {"enum": list(words)}})}


def cpu_seconds(process):
    """Of all threads of a process, from the scheduler's own nanoseconds."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def ask(server, number, tokens, fields):
    request = {"messages": user(QUESTIONS[number % len(QUESTIONS)] + f" ({number})"), "temperature": 0, "max_tokens": tokens,
               **({} if fields else {"ignore_eos": True}), **fields}
    answer = server.ask("/v1/chat/completions", request, timeout=3600)
    assert answer.status == 200, answer.body
    return answer.json["usage"]["completion_tokens"]


def batch_seconds(server, pool, tokens, form):
    """CPU seconds per token of a batch."""
    before = cpu_seconds(server.process)
    made = sum(pool.map(lambda number: ask(server, number, tokens, form(number) if form else {}), range(BATCH)))
    return (cpu_seconds(server.process) - before) / made


def measure_decode(server, rounds, tokens):
    """By form the ratio of each round."""
    ratios = {name: [] for name in FORMS}
    with concurrent.futures.ThreadPoolExecutor(BATCH) as pool:
        for turn in range(rounds + 1):
            for name, form in FORMS.items():
                plain, masked = batch_seconds(server, pool, tokens, None), batch_seconds(server, pool, tokens, form)
                ratios[name] += [masked / plain] if turn else []
    return ratios


def request_ms(server, schema):
    before = cpu_seconds(server.process)
    ask(server, 0, 1, of_schema(schema))
    return 1000 * (cpu_seconds(server.process) - before)


def measure_compile(server, rounds):
    """By kind of schema, milliseconds of each round: the first request, and the next one with it."""
    times = {}
    request_ms(server, people())  # the vocabulary of grammars is made once
    for turn in range(rounds):
        for name, schema in large_schemas(turn).items():
            times.setdefault(name, []).append([request_ms(server, schema), request_ms(server, schema)])
    return times


def report(decode, compile):
    median = statistics.median
    print("| decode at a batch of 32 | CPU time to that without a form | lowest and highest |\n|---|---|---|")
    for name, ratios in decode.items():
        print(f"| {name} | {median(ratios):.3f} | {min(ratios):.3f}-{max(ratios):.3f} |")
    print("\n| schema of 100 KB | the first request with it | the next one | compilation |\n|---|---|---|---|")
    for name, times in compile.items():
        first, again = (median(column) for column in zip(*times))
        print(f"| {name} | {first:.1f} ms | {again:.1f} ms | {median(one - two for one, two in times):.1f} ms |")


def missed(decode, compile):
    """What is above its target."""
    slow = [f"decode with {name}" for name, ratios in decode.items() if statistics.median(ratios) > TARGETS["decode"] and "new" not in name]
    return slow + [f"compilation of {name}" for name, times in compile.items() if statistics.median(one - two for one, two in times) > TARGETS["compile"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nibble")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with Server(options.nibble, options.model, "--threads", 1, "--max-num-seqs", BATCH, "--max-model-len", 1024, "--kv-cache-memory-bytes", "2G",
                "--max-body-bytes", "4M") as server:
        decode, compile = measure_decode(server, options.rounds, options.tokens), measure_compile(server, options.rounds)
    if options.json:
        print(json.dumps({"decode": decode, "compile_ms": compile}))
    else:
        report(decode, compile)
    above = missed(decode, compile)
    return f"above the target: {', '.join(above)}" if above else 0


if __name__ == "__main__":
    sys.exit(main())
