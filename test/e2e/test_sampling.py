# SPDX-License-Identifier: Apache-2.0
"""Samplers: what a real model's logits leave of each, against NumPy; their fields in requests; alone and in a batch."""

import concurrent.futures

import numpy as np
import pytest

from libnibble import Library, Model, Tokenizer
from serving import equal_bits, user

DRAWS = 48
TEXT = "The three things that I like most about the sea are the"


# ---- definitions in NumPy: of logits, which tokens are left ---------------------------------------------------------

def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def entropy(p):
    return -(p[p > 0] * np.log(p[p > 0])).sum()


def top_n_sigma(logits, n):
    return logits >= logits.max() - n * logits.std()


def typical_p(logits, wanted):
    p = softmax(logits)
    order = np.argsort(np.abs(-np.log(p) - entropy(p)), kind="stable")
    kept = np.zeros(len(p), bool)
    kept[order[:np.searchsorted(np.cumsum(p[order]), wanted) + 1]] = True
    return kept


def top_a(logits, a):
    p = softmax(logits)
    return p >= a * p.max() ** 2


def xtc(logits, threshold):
    p = softmax(logits)
    above = np.flatnonzero(p >= threshold)
    kept = np.ones(len(p), bool)
    if len(above) > 1:
        kept[above] = False
        kept[above[np.argmin(p[above])]] = True
    return kept


def mirostat(logits, tau):  # the first token's: mu is 2 tau
    p = softmax(logits)
    return (-np.log2(p) <= 2 * tau) | (p == p.max())


def dynamic(logits, temperature, spread, exponent):
    p = softmax(logits)
    low = max(0, temperature - spread)
    return logits / (low + (temperature + spread - low) * (entropy(p) / np.log(len(p))) ** exponent)


def nucleus(logits, wanted):
    p = softmax(logits)
    order = np.argsort(-p, kind="stable")
    kept = np.zeros(len(p), bool)
    kept[order[:np.searchsorted(np.cumsum(p[order]), wanted) + 1]] = True
    return kept


CASES = {  # settings, and of the logits divided by the temperature which tokens are left
    "top_n_sigma": ({"top_n_sigma": 1.5}, lambda x: top_n_sigma(x, 1.5)),
    "typical_p": ({"typical_p": 0.6}, lambda x: typical_p(x, 0.6)),
    "top_a": ({"top_a": 0.3}, lambda x: top_a(x, 0.3)),
    "xtc": ({"xtc_probability": 1, "xtc_threshold": 0.05, "top_k": 12}, None),
    "mirostat": ({"mirostat": 2, "mirostat_tau": 4, "mirostat_eta": 0.1}, lambda x: mirostat(x, 4)),
    "dynatemp": ({"dynatemp_range": 1.2, "dynatemp_exponent": 0.7, "top_p": 0.7}, None),
}


@pytest.fixture(scope="module")
def world(library, smollm2):
    with Model(Library(library), smollm2, max_model_len=128, no_self_test=True) as model:
        with Tokenizer(model.checkpoint) as tokenizer:
            prompt = tokenizer.encode(TEXT)
        with model.sequence() as sequence:
            logits = sequence.score(prompt)[-1].astype(np.float64)
        yield model, prompt, logits


@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn(world, name):
    model, prompt, logits = world
    settings, keeps = CASES[name]
    hot = logits / 1.4
    if name == "xtc":  # after top_k
        best = np.argsort(-hot, kind="stable")[:12]
        kept = np.zeros(len(hot), bool)
        kept[best[xtc(hot[best], 0.05)]] = True
    elif name == "dynatemp":
        hot = dynamic(logits, 1.4, 1.2, 0.7)
        kept = nucleus(hot, 0.7)
    else:
        kept = keeps(hot)
    answers = model_draws(model, prompt, {"temperature": 1.4, **settings})
    assert all(kept[token] for token in answers)
    p = softmax(np.where(kept, hot, -np.inf))
    surprise = -np.log(p[answers]).mean()
    spread = np.sqrt((p[p > 0] * np.log(p[p > 0]) ** 2).sum() - entropy(p) ** 2)
    assert abs(surprise - entropy(p)) < 4 * spread / np.sqrt(DRAWS) + 1e-6, "as often as they should"
    assert 1 < kept.sum() < len(kept)


def model_draws(model, prompt, settings):
    with model.scheduler() as scheduler:
        answers = [scheduler.add(prompt, max_tokens=1, seed=seed, **settings) for seed in range(DRAWS)]
        scheduler.run()
    return [answer.tokens[0] for answer in answers]


# ---- fields of requests ---------------------------------------------------------------------------------------------

PROMPT = "Once upon a time there was a"
REPEATING = "one two three four five. one two three four five. one two three four five. one two three four"


def complete(server, prompt=PROMPT, **fields):
    request = {"prompt": prompt, "max_tokens": 24, "temperature": 1, "seed": 5, **fields}
    answer = server.ask("/v1/completions", request)
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]


def ids(server, text):
    return server.ask("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"]


OFF = {"dry_multiplier": 0, "xtc_probability": 0, "typical_p": 1, "typical": 1, "top_a": 0, "mirostat": 0, "top_n_sigma": -1, "dynatemp_range": 0,
       "min_keep": 0, "repeat_last_n": -1, "dry_base": 2, "mirostat_tau": 3, "xtc_threshold": 0.2, "dry_sequence_breakers": ["x"], "bad_words": []}


def test_off_changes_nothing(server):
    plain = complete(server)["text"]
    for name, value in OFF.items():
        assert complete(server, **{name: value})["text"] == plain, name
    assert complete(server, **OFF)["text"] == plain
    assert complete(server, samplers=["penalties", "dry", "top_n_sigma", "temperature", "min_p", "top_k", "typ_p", "top_p", "top_a", "xtc"])["text"] == plain


def test_narrow_ones_are_greedy(server):
    greedy = complete(server, temperature=0)["text"]
    for fields in ({"top_n_sigma": 0.001}, {"top_a": 1, "temperature": 0.01}, {"mirostat": 2, "mirostat_tau": 0, "mirostat_eta": 0},
                   {"dynatemp_range": 0, "temperature": 0.001}, {"dry_multiplier": 0, "temperature": 0}, {"xtc_probability": 1, "temperature": 0},
                   {"samplers": ["top_k"], "top_k": 1}, {"samplers": ["xtc"], "temperature": 0}):
        assert complete(server, **fields)["text"] == greedy, fields
    assert complete(server, top_p=0.001, min_keep=40)["text"] != greedy


def test_dry_ends_a_repetition(server):
    repeating = complete(server, REPEATING, temperature=0)["text"]
    assert repeating.startswith(" five.")
    dry = {"temperature": 0, "dry_multiplier": 5}
    assert not complete(server, REPEATING, **dry)["text"].startswith(" five")
    assert complete(server, REPEATING, **dry, dry_allowed_length=1000)["text"] == repeating
    assert complete(server, REPEATING, **dry, dry_penalty_last_n=0)["text"] == repeating
    assert complete(server, REPEATING, **dry, dry_sequence_breakers=[" four"])["text"].startswith(" five"), "what is repeated ends here"
    assert complete(server, REPEATING, **dry, dry_sequence_breakers=["our"])["text"].startswith(" five"), "within a token"
    assert complete(server, REPEATING, **dry, dry_sequence_breakers=["ee four"])["text"].startswith(" five"), "over two of them"
    assert not complete(server, REPEATING, **dry, dry_sequence_breakers=["ee for"])["text"].startswith(" five")


def test_xtc_takes_the_likeliest_away(server):
    greedy = complete(server, temperature=0, max_tokens=1, logprobs=5)["logprobs"]
    best = greedy["tokens"][0]
    drawn = {complete(server, xtc_probability=1, xtc_threshold=0.01, seed=seed, max_tokens=1)["text"] for seed in range(12)}
    assert best not in drawn
    assert complete(server, xtc_probability=1, xtc_threshold=0.6, max_tokens=24) == complete(server)


def test_a_window_of_penalties(server):
    strong = {"temperature": 0, "repetition_penalty": 5}
    everything = complete(server, REPEATING, **strong)["text"]
    assert complete(server, REPEATING, **strong, repeat_last_n=-1)["text"] == everything
    assert complete(server, REPEATING, **strong, repeat_last_n=2000)["text"] == everything
    assert complete(server, REPEATING, **strong, repeat_last_n=0)["text"] == complete(server, REPEATING, temperature=0)["text"] != everything
    assert complete(server, REPEATING, **strong, repeat_last_n=2)["text"].startswith(" five"), "it is not among the last two"
    assert complete(server, REPEATING, temperature=0, rep_pen=5)["text"] == everything


def test_order_of_samplers(server):
    assert complete(server, samplers=["temperature"], top_k=1)["text"] == complete(server, top_p=1)["text"], "the others are left out"
    hot = {"temperature": 5, "top_p": 0.3}
    assert complete(server, samplers=["top_p", "temperature"], **hot)["text"] != complete(server, samplers=["temperature", "top_p"], **hot)["text"]
    for wrong in (["infill"], ["top_k", "top_k"], ["typ_p", "typical_p"], [5], "top_k", [], {"a": 1}):
        assert server.refuse("/v1/completions", {"prompt": "a", "samplers": wrong})["param"] == "samplers"


def test_bad_words(server):
    text = complete(server, temperature=0)["text"]
    words = text.split()
    for word in {words[0], words[3], " ".join(words[2:4])}:
        other = complete(server, temperature=0, bad_words=[word])["text"]
        assert f" {word} " not in other and other != text
    chat = server.chat("What is the capital of Italy?", bad_words=["Rome", "Italy"])["choices"][0]["message"]["content"]
    assert "Rome" not in chat and "Italy" not in chat
    for wrong in (["a", 5], "word", [""], ["x" * 2000], ["x"] * 2000):
        assert server.refuse("/v1/completions", {"prompt": "a", "bad_words": wrong})["param"] == "bad_words"


def test_allowed_tokens(server):
    allowed = ids(server, " yes no maybe")
    for fields in ({"temperature": 0}, {"temperature": 5}, {"temperature": 5, "top_k": 2, "xtc_probability": 0.5}):
        answer = complete(server, allowed_token_ids=allowed, return_token_ids=True, **fields)
        assert len(answer["token_ids"]) == 24 and set(answer["token_ids"]) <= set(allowed)
    for wrong in ([], [-1], [10**6], ["a"], 5):
        assert server.refuse("/v1/completions", {"prompt": "a", "allowed_token_ids": wrong})["param"] == "allowed_token_ids"
    assert server.refuse("/v1/completions", {"prompt": "a", "allowed_token_ids": allowed, "regex": "[0-9]+"})["param"] == "allowed_token_ids"


@pytest.mark.parametrize("fields", [{"mirostat": 1}, {"mirostat": 3}, {"typical_p": 0}, {"xtc_probability": 1.5}, {"dry_base": 0.5}, {"dry_allowed_length": -1},
                                    {"repeat_last_n": -2}, {"dry_sequence_breakers": "x"}, {"dry_sequence_breakers": ["x" * 41]},
                                    {"dry_sequence_breakers": ["x"] * 33}, {"min_keep": -1}, {"top_a": 2}, {"dynatemp_range": -1}], ids=str)
def test_values_that_make_no_sense(server, fields):
    (name,) = fields
    assert server.refuse("/v1/completions", {"prompt": "a", **fields})["param"] == name


TOGETHER = [
    {"mirostat": 2, "mirostat_tau": 3}, {"dry_multiplier": 1}, {"xtc_probability": 0.5, "xtc_threshold": 0.02}, {"typical_p": 0.5}, {"top_a": 0.2},
    {"top_n_sigma": 1}, {"dynatemp_range": 0.5}, {"repeat_last_n": 8, "repetition_penalty": 1.3}, {"bad_words": ["the", "little girl"]},
    {"samplers": ["dry", "top_k", "temperature"], "top_k": 30, "dry_multiplier": 1}, {"mirostat": 2, "n": 3}, {},
]


@equal_bits
def test_alone_and_together(server):
    """A draw depends on the text and the key; mirostat's state is each choice's own."""
    def ask(fields):
        return server.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 24, "temperature": 1.1, "seed": 9, **fields}).json["choices"]

    alone = [ask(fields) for fields in TOGETHER]
    with concurrent.futures.ThreadPoolExecutor(len(TOGETHER)) as pool:
        assert list(pool.map(ask, TOGETHER)) == alone
    texts = [choice["text"] for choices in alone for choice in choices]
    assert len(set(texts)) > len(TOGETHER) - 3


# ---- the prompt: its logprobs, its length ---------------------------------------------------------------------------

def test_prompt_logprobs(server):
    """vLLM's shape: a table for each token, of itself and of the likeliest, by id."""
    prompt = "The capital of France is Paris"
    request = {"prompt": prompt, "max_tokens": 2, "temperature": 0}
    echoed = server.ask("/v1/completions", {**request, "echo": True, "logprobs": 3, "return_token_ids": True}).json["choices"][0]
    plain = server.ask("/v1/completions", request).json["choices"][0]
    answer = server.ask("/v1/completions", {**request, "prompt_logprobs": 3}).json["choices"][0]
    table = answer.pop("prompt_logprobs")
    assert answer == plain, "nothing else changes"
    assert len(table) == len(echoed["prompt_token_ids"]) and table[0] is None
    scores = echoed["logprobs"]["token_logprobs"]
    for token, logprob, tops in list(zip(echoed["prompt_token_ids"], scores, table))[1:]:
        own = tops[str(token)]
        assert list(tops)[0] == str(token) and own["logprob"] == pytest.approx(logprob, abs=1e-5)
        assert own["decoded_token"] == server.ask("/detokenize", {"tokens": [token]}).json["prompt"] or own["decoded_token"].startswith(" ")
        assert len(tops) in (3, 4) and (own["rank"] <= 3) == (len(tops) == 3)
        others = [entry for entry in tops.values()]
        assert {entry["rank"] for entry in others} >= {1, 2, 3}
        ranked = sorted(others, key=lambda entry: entry["rank"])
        assert [entry["logprob"] for entry in ranked] == sorted((entry["logprob"] for entry in others), reverse=True)
    own = server.ask("/v1/completions", {**request, "prompt_logprobs": 0}).json["choices"][0]["prompt_logprobs"]
    assert [entry and list(entry) for entry in own] == [None] + [[str(token)] for token in echoed["prompt_token_ids"][1:]]
    assert all(entry[str(token)] == tops[str(token)] for entry, tops, token in list(zip(own, table, echoed["prompt_token_ids"]))[1:])
    assert server.refuse("/v1/completions", {**request, "prompt_logprobs": 3, "stream": True})["param"] == "prompt_logprobs"
    assert server.refuse("/v1/completions", {**request, "prompt_logprobs": 21})["param"] == "prompt_logprobs"


def test_prompt_logprobs_beside_others(server):
    """Logprobs of the answer, an echo, and the n of several prompts."""
    fields = {"max_tokens": 3, "temperature": 0, "logprobs": 1}
    prompts = ["The capital of France", "A B C D E"]
    plain = server.ask("/v1/completions", {"prompt": prompts, "n": 2, **fields, "echo": True}).json["choices"]
    choices = server.ask("/v1/completions", {"prompt": prompts, "n": 2, **fields, "echo": True, "prompt_logprobs": 4}).json["choices"]
    tables = [choice.pop("prompt_logprobs") for choice in choices]
    assert choices == plain
    assert tables[0] == tables[1] != tables[2] == tables[3] and all(len(entry) >= 4 for entry in tables[0][1:])
    chat = {"messages": user("Hi"), "temperature": 0, "max_tokens": 2}
    answer = server.ask("/v1/chat/completions", {**chat, "n": 2, "prompt_logprobs": 1}).json
    assert len(answer.pop("prompt_logprobs")) == answer["usage"]["prompt_tokens"]
    assert answer["choices"] == server.ask("/v1/chat/completions", {**chat, "n": 2}).json["choices"]
    score = server.ask("/v1/completions", {"prompt": "A B C", "max_tokens": 0, "prompt_logprobs": 0}).json
    assert score["choices"][0]["text"] == "" and len(score["choices"][0]["prompt_logprobs"]) == score["usage"]["prompt_tokens"]


def test_truncated_prompts(server):
    text = " ".join(str(number) for number in range(200))
    tokens = server.ask("/tokenize", {"prompt": text}).json["tokens"]
    request = {"prompt": text, "max_tokens": 2, "temperature": 0, "return_token_ids": True}
    def prompt_of(**fields):
        return server.ask("/v1/completions", {**request, **fields}).json["choices"][0]["prompt_token_ids"]
    assert prompt_of(truncate_prompt_tokens=10) == prompt_of(truncate_prompt_tokens=10, truncation_side="left") == tokens[-10:]
    assert prompt_of(truncate_prompt_tokens=10, truncation_side="right") == tokens[:10]
    assert prompt_of(truncate_prompt_tokens=10, prompt=tokens) == tokens[-10:]
    assert prompt_of(truncate_prompt_tokens=10**6) == tokens
    echo = server.ask("/v1/completions", {**request, "truncate_prompt_tokens": 4, "echo": True, "max_tokens": 1}).json["choices"][0]["text"]
    assert echo.startswith(server.ask("/detokenize", {"tokens": tokens[-4:]}).json["prompt"])
    long = "one two three " * 30000
    answer = server.ask("/v1/completions", {"prompt": long, "max_tokens": 1900, "truncate_prompt_tokens": -1, "stop": " "}).json
    assert answer["usage"]["prompt_tokens"] == 2048 - 1900
    assert server.ask("/v1/chat/completions", {"messages": user("x " * 3000), "max_tokens": 5, "truncate_prompt_tokens": 50}).json["usage"]["prompt_tokens"] == 50
    assert server.refuse("/v1/completions", {"prompt": long, "max_tokens": 5})["code"] == "context_length_exceeded"
    for name, wrong in (("truncate_prompt_tokens", -2), ("truncate_prompt_tokens", "x"), ("truncation_side", "middle")):
        assert server.refuse("/v1/completions", {"prompt": "a", name: wrong})["param"] == name
