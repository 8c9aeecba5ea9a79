# SPDX-License-Identifier: Apache-2.0
"""Many answers at once through libnibble: the same request gives the same tokens, whatever goes on around it."""

import json

import pytest

from libnibble import Library, Model, Refused, Tokenizer

TEXTS = [
    "The lighthouse keeper climbed the stairs every evening, counting each of the two hundred and twelve steps under his breath, and",
    "The lighthouse keeper climbed the stairs every evening, counting each of the two hundred and twelve steps aloud, until one day",
    "A nibble is half of a byte, that is",
    "Once upon a time there was a",
]
SETTINGS = [  # of the four texts: greedy, drawn, drawn otherwise, greedy with logprobs
    {"max_tokens": 12}, {"max_tokens": 16, "temperature": 0.8, "top_p": 0.9, "seed": 7, "frequency_penalty": 0.3},
    {"max_tokens": 10, "temperature": 1.0, "top_k": 20, "seed": 8}, {"max_tokens": 8, "top_logprobs": 3},
]


@pytest.fixture(scope="module")
def lib(library):
    return Library(library)


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def world(request, lib):
    """The model's path, the texts as ids, and the answer each gets alone."""
    path = request.getfixturevalue(request.param)
    with Model(lib, path, max_model_len=128, no_self_test=True) as model:
        with Tokenizer(model.checkpoint) as tokenizer:
            prompts = [tokenizer.encode(text) for text in TEXTS]
        alone = [model.generate([prompt], **settings)[0] for prompt, settings in zip(prompts, SETTINGS)]
    return path, prompts, alone


def same(answers, alone):
    assert [answer.tokens for answer in answers] == [answer.tokens for answer in alone]
    assert [answer.logprobs for answer in answers] == [answer.logprobs for answer in alone]
    assert [answer.top for answer in answers] == [answer.top for answer in alone]
    assert [answer.finish_reason for answer in answers] == [answer.finish_reason for answer in alone]


def add_all(scheduler, prompts):
    return [scheduler.add(prompt, **settings) for prompt, settings in zip(prompts, SETTINGS)]


def test_together_and_again(lib, world):
    path, prompts, alone = world
    with Model(lib, path, max_model_len=128, max_num_seqs=4, threads=2) as model, model.scheduler() as scheduler:
        first = add_all(scheduler, prompts)
        scheduler.run()
        same(first, alone)
        again = add_all(scheduler, prompts)  # the prefix cache has their beginnings
        scheduler.run()
        same(again, alone)
        assert all(answer.usage["cached_tokens"] == (len(prompt) - 1) // 16 * 16 for answer, prompt in zip(again, prompts))
        stats = scheduler.stats
        assert stats.running == stats.waiting == 0 and stats.prefix_hits > 0 and stats.cache_tokens == 4 * 128
        assert stats.answer_tokens == 2 * sum(len(answer.tokens) for answer in alone)


def test_chunked_and_preempted_on_one_thread(lib, world):
    path, prompts, alone = world
    with Model(lib, path, max_model_len=48, batch_tokens=16, no_self_test=True) as model:
        pool = sum(pool["pages"] * pool["page_bytes"] for pool in json.loads(model.plan())["memory"]["pools"])
    with Model(lib, path, max_model_len=48, max_num_seqs=4, batch_tokens=16, threads=1, kv_cache_bytes=pool + pool // 3) as model:
        with model.scheduler() as scheduler:
            answers = add_all(scheduler, prompts)
            scheduler.run()
            same(answers, alone)
            assert scheduler.stats.preemptions > 0


def test_a_conversation_reads_only_what_is_new(lib, smollm2):
    with Model(lib, smollm2, max_model_len=512) as model, model.scheduler() as scheduler:
        prompt = list(range(100, 300))
        first = scheduler.add(prompt, max_tokens=40)
        scheduler.run()
        second = scheduler.add(prompt + first.tokens + list(range(400, 420)), max_tokens=4)
        read = []
        while step := scheduler.step():
            read.append(step[0])
        known = (len(prompt) + 39) // 16 * 16  # the answer's last token was never read
        assert second.usage["cached_tokens"] == known and sum(read) == len(prompt) + 40 + 20 - known + 3
        private = scheduler.add(prompt, max_tokens=1, cache_salt=b"somebody")
        scheduler.run()
        assert private.usage["cached_tokens"] == 0
        scheduler.forget()
        forgotten = scheduler.add(prompt, max_tokens=1)
        scheduler.run()
        assert forgotten.usage["cached_tokens"] == 0


def test_a_hit_behind_a_window(lib, gemma3):
    prompt = [2, *range(1000, 1560)]  # longer than the window of 512: its first pages have been given back
    with Model(lib, gemma3, max_model_len=640, no_self_test=True) as model:
        alone, = model.generate([prompt], max_tokens=6, top_logprobs=2, scheduling={"no_prefix_cache": True})
    with Model(lib, gemma3, max_model_len=640, batch_tokens=96, max_num_seqs=2) as model, model.scheduler() as scheduler:
        for cached in (0, 560):
            answer = scheduler.add(prompt, max_tokens=6, top_logprobs=2)
            scheduler.run()
            same([answer], [alone])
            assert answer.usage["cached_tokens"] == cached


def test_scoring_a_prompt(lib, world):
    path, prompts, alone = world
    with Model(lib, path, max_model_len=128, no_self_test=True) as model, model.scheduler() as scheduler:
        whole = prompts[3] + alone[3].tokens
        scored = scheduler.add(whole, max_tokens=0, score_prompt=True, top_logprobs=0)
        scheduler.run()
        assert scored.prompt_tokens == whole and scored.prompt_logprobs[0] is None and not scored.tokens
        assert scored.prompt_logprobs[len(prompts[3]):] == alone[3].logprobs


def test_cancel_and_refusals(lib, smollm2):
    with Model(lib, smollm2, max_model_len=64, max_num_seqs=2) as model, model.scheduler() as scheduler:
        answers = [scheduler.add([1, 2, 3], max_tokens=50) for _ in range(3)]
        scheduler.step()
        assert scheduler.stats.running == 2 and scheduler.stats.waiting == 1 and scheduler.stats.cache_use > 0
        for answer in answers:
            scheduler.cancel(answer)
            assert answer.finish_reason == "cancelled"
        assert scheduler.stats.cache_use == 0 and scheduler.step() is None
        for settings, words in (({"max_tokens": 62}, "context of 64"), ({"temperature": -1.0}, "temperature"), ({"stop_ids": [10 ** 9]}, "stop id")):
            with pytest.raises(Refused, match=words):
                scheduler.add([1, 2, 3], **settings)
