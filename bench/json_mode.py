# SPDX-License-Identifier: Apache-2.0
"""What masking costs in JSON mode: the logprob lost to masks, and first keys that nobody meant.

    python3 bench/json_mode.py NIBBLE MODEL

Forty requests with response_format json_object, each twice:
  greedy           the loss of a token is the logprob of the likeliest token minus that of the likeliest token that the mask
                   allows, which is the one that greedy decoding takes; its mean over all tokens of all answers
  temperature 1    how many answers have a first key that is garbage: not made of words (see is_garbage)
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "test" / "e2e"))

from serving import Server, user  # noqa: E402

THINGS = {
    "a cat": "name, age and colour", "the city of Paris": "name, country and population", "a book": "title, author and year",
    "an apple": "colour, taste and weight", "a car": "make, model and year", "a software developer": "name, job and skills",
    "the planet Mars": "name, diameter and moons", "a cup of coffee": "size, price and temperature", "a football team": "name, city and players",
    "a restaurant": "name, cuisine and rating", "a weather report": "city, temperature and humidity", "a film": "title, director and genre",
    "a bicycle": "brand, colour and price", "a recipe for pancakes": "ingredients and steps", "a university": "name, city and students",
    "a dog": "name, breed and age", "an airline ticket": "origin, destination and date", "a mobile phone": "brand, model and price",
    "a song": "title, artist and length", "a tree": "species, height and age", "a hotel room": "number, beds and price",
    "a bank account": "owner, balance and currency", "a train": "number, departure and arrival", "a museum": "name, city and exhibits",
    "a programming language": "name, year and creator", "a river": "name, length and countries", "a birthday party": "date, place and guests",
    "an employee": "name, department and salary", "a shopping list": "items and total", "a mountain": "name, height and range",
    "a chess game": "white, black and result", "a house": "address, rooms and price", "a newspaper article": "headline, author and date",
    "a computer": "processor, memory and disk", "a flower": "name, colour and season", "a student": "name, grades and school",
    "a pizza": "toppings, size and price", "an ocean": "name, area and depth", "a doctor's appointment": "patient, doctor and time",
    "a video game": "title, platform and score",
}
WORDS = re.compile(r"[^\W\d]\w*(?:[ .'’-]\w+)*")  # words with single spaces, dots, hyphens or apostrophes between them
FIRST_KEY = re.compile(r'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:')


def is_garbage(answer):
    """Whether the first key of an answer is no name that a person could have given: empty, or with stray punctuation, quotes or
    white space in it. An answer without a first key is garbage, too."""
    match = FIRST_KEY.match(answer)
    return not match or not WORDS.fullmatch(json.loads(match.group(1)))


def ask(server, prompt, **fields):
    request = {"messages": user(prompt), "response_format": {"type": "json_object"}, "max_tokens": 64, **fields}
    answer = server.ask("/v1/chat/completions", request, timeout=600)
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]


def lost(choice):
    """Of each token, the logprob that the mask cost."""
    return [entry["top_logprobs"][0]["logprob"] - entry["logprob"] for entry in choice["logprobs"]["content"]]


def measure(server):
    prompts = [f"Describe {thing} as a JSON object with {fields}." for thing, fields in THINGS.items()]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        greedy = list(pool.map(lambda prompt: ask(server, prompt, temperature=0, logprobs=True, top_logprobs=1), prompts))
        drawn = list(pool.map(lambda pair: ask(server, pair[1], temperature=1, seed=pair[0]), enumerate(prompts)))
    losses = [loss for choice in greedy for loss in lost(choice)]
    answers = [choice["message"]["content"] for choice in drawn]
    return {"prompts": len(prompts), "tokens": len(losses), "mean_logprob_lost": round(statistics.mean(losses), 4),
            "masked_tokens": sum(loss > 0 for loss in losses), "garbage_first_keys": sum(map(is_garbage, answers)),
            "garbage": [answer[:60] for answer in answers if is_garbage(answer)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nibble")
    parser.add_argument("model")
    arguments = parser.parse_args()
    with Server(arguments.nibble, arguments.model) as server:
        json.dump(measure(server), sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
