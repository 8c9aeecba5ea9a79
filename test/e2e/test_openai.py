# SPDX-License-Identifier: Apache-2.0
"""The API as OpenAI's own client uses it: chats, completions, streams, sampling, scores and refusals."""

import asyncio
import concurrent.futures
import json
import math
import subprocess
import time

import numpy as np
import openai
import pytest

import libnibble
from serving import DONE, PAGE_TOKENS, QUESTIONS, equal_bits, one_process, user

QUESTION = "What is the capital of Germany? Answer in one sentence."
STORY = "Once upon a time, in a small village by the sea,"
NOT_AN_ID = 10**6


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def chat(client, server):
    """Asks a question, greedily; what only nibble and vLLM know goes into `extra`."""
    def ask(content=QUESTION, extra=None, **fields):
        fields = {"temperature": 0, "max_tokens": 16, **fields}
        messages = user(content) if isinstance(content, str) else content
        return client.chat.completions.create(model=server.model, messages=messages, extra_body=extra, **fields)
    return ask


@pytest.fixture(scope="module")
def complete(client, server):
    def ask(prompt=STORY, extra=None, **fields):
        fields = {"temperature": 0, "max_tokens": 12, **fields}
        return client.completions.create(model=server.model, prompt=prompt, extra_body=extra, **fields)
    return ask


@pytest.fixture(scope="module")
def known(chat):
    """A greedy answer and its tokens."""
    answer = chat(logprobs=True, top_logprobs=3, max_tokens=24)
    return answer.choices[0]


@pytest.fixture(scope="module")
def short(chat, server):
    """A bias of the model's end token with which an answer ends by itself, soon but not at once."""
    (end,) = first_ids(server, "<|im_end|>")
    for bias in range(2, 30, 2):
        answer = chat(logit_bias={end: bias})
        if answer.choices[0].finish_reason == "stop" and 2 < answer.usage.completion_tokens < 12:
            return {end: bias}
    raise AssertionError("no answer is short")


def tokens_of(choice):
    return [entry.token for entry in choice.logprobs.content]


def first_ids(server, text):
    """The token ids of a text that begins nothing."""
    return server.ask("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"]


# ---- whole answers -------------------------------------------------------------------------------------------------

def test_a_chat(chat, server):
    answer = chat()
    choice = answer.choices[0]
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion" and answer.model == server.model
    assert abs(answer.created - time.time()) < 60
    assert choice.message.role == "assistant" and "Berlin" in choice.message.content
    assert choice.index == 0 and choice.finish_reason in ("stop", "length") and choice.logprobs is None
    assert answer.usage.prompt_tokens > 10 and 0 < answer.usage.completion_tokens <= 16
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_messages_may_come_in_parts(chat):
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[:9]}, {"type": "text", "text": QUESTION[9:]}]}]
    with pytest.raises(openai.BadRequestError):
        chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}])
    assert chat(parts).choices[0].message.content


def test_a_system_message_changes_the_prompt(chat):
    system = {"role": "system", "content": "Answer in French."}
    assert chat([system, *user("Hi")]).usage.prompt_tokens != chat("Hi").usage.prompt_tokens


def test_the_models_own_end(chat, short):
    """A short answer ends by itself, and its end token is no text."""
    answer = chat(logit_bias=short, logprobs=True)
    choice = answer.choices[0]
    assert choice.finish_reason == "stop" and choice.stop_reason is None
    assert "".join(tokens_of(choice)) == choice.message.content and "<|" not in choice.message.content
    assert len(tokens_of(choice)) == answer.usage.completion_tokens - 1


def test_max_tokens(chat):
    for name in ("max_tokens", "max_completion_tokens"):
        answer = chat("Count from 1 to 100.", **{"max_tokens": None, name: 5})
        assert answer.usage.completion_tokens == 5 and answer.choices[0].finish_reason == "length"


def test_null_is_absent(server):
    names = ("n stop stream stream_options temperature top_p top_k max_completion_tokens logprobs top_logprobs tools tool_choice "
             "response_format seed logit_bias presence_penalty parallel_tool_calls min_tokens cache_salt priority echo model").split()
    assert server.chat("Hi", **dict.fromkeys(names), max_tokens=2)["usage"]["completion_tokens"] == 2


@equal_bits
def test_answers_with_a_seed(chat):
    """The n answers differ among themselves and repeat from call to call."""
    first, again = (chat("Tell me a story.", n=3, seed=7, temperature=1, max_tokens=12) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [choice.message.content for choice in again.choices]
    alone = chat("Tell me a story.", seed=7, temperature=1, max_tokens=12)
    assert alone.choices[0].message.content == texts[0]
    assert first.usage.prompt_tokens == alone.usage.prompt_tokens and first.usage.completion_tokens <= 36
    other = chat("Tell me a story.", seed=8, temperature=1, max_tokens=12)
    assert other.choices[0].message.content != texts[0]


def test_answers_without_a_seed_differ(chat):
    texts = {chat("Tell me a story.", temperature=1, max_tokens=12).choices[0].message.content for _ in range(3)}
    assert len(texts) > 1


@pytest.mark.parametrize("narrow", [{"top_p": 0}, {"extra": {"top_k": 1}}, {"extra": {"min_p": 1}}, {"temperature": 1e-300}])
def test_narrow_sampling_is_greedy(chat, known, narrow):
    answer = chat(max_tokens=8, **{"temperature": 1, **narrow})
    assert known.message.content.startswith(answer.choices[0].message.content)


# ---- streams -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_is_the_whole_answer(chat, n):
    fields = {"n": n, "seed": 3, "temperature": 0.8}
    whole = chat(**fields)
    chunks = list(chat(stream=True, stream_options={"include_usage": True}, **fields))
    texts, ends = [""] * n, [None] * n
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        assert chunk.object == "chat.completion.chunk" and chunk.id == chunks[0].id and chunk.usage is None
        assert not ends[choice.index], "a chunk came after the last one of its choice"
        texts[choice.index] += choice.delta.content or ""
        ends[choice.index] = choice.finish_reason
    assert texts == [choice.message.content for choice in whole.choices]
    assert ends == [choice.finish_reason for choice in whole.choices]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_the_bytes_of_a_stream(server):
    request = {"messages": user(QUESTION), "max_tokens": 6, "temperature": 0, "stream": True}
    connection, response = server.send("/v1/chat/completions", request)
    assert response.status == 200 and response.headers["Transfer-Encoding"] == "chunked"
    assert response.headers["Content-Type"].startswith("text/event-stream")
    data = response.read()
    connection.close()
    assert data.endswith(b"data: [DONE]\n\n") and b"\r" not in data
    events = data.split(b"\n\n")
    assert events.pop() == b"" and all(event.startswith(b"data: {") for event in events[:-1])
    chunks = [json.loads(event[6:]) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(chunk["choices"][0]["delta"]["content"] for chunk in chunks[1:-1])
    assert all(chunk["choices"][0]["finish_reason"] is None and "usage" not in chunk for chunk in chunks[:-1])
    assert chunks[-1]["choices"][0]["delta"] == {} and chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert len(chunks) >= 4


def test_usage_on_every_chunk(server):
    request = {"messages": user(QUESTION), "max_tokens": 4, "temperature": 0,
               "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    events = list(server.events("/v1/chat/completions", request))
    counts = [event["usage"]["completion_tokens"] for event in events[:-1]]
    assert counts == sorted(counts) and counts[-1] == 4
    assert events[-1] == DONE and events[-2]["choices"] == []


def test_a_streamed_completion(complete):
    whole = complete().choices[0]
    chunks = list(complete(stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.text
    assert all(chunk.object == "text_completion" for chunk in chunks)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]


def test_characters_stay_whole(server):
    """A character of several tokens comes in one piece, or not at all."""
    fields = {"prompt": "Emoji: 🦊 🐻 🐼 🦊 🐻 🐼 🦊 🐻 🐼 🦊 🐻", "temperature": 0, "max_tokens": 15}
    pieces = [event["choices"][0]["text"] for event in server.events("/v1/completions", fields) if event != DONE]
    assert "".join(pieces) == server.complete(**fields)["choices"][0]["text"]
    assert "🐼" in "".join(pieces)
    assert not any("\ufffd" in piece for piece in pieces[:-2])


# ---- ends ----------------------------------------------------------------------------------------------------------

def spanning(tokens):
    """A string over the border of two tokens, which the text does not have before, and the text in front of it."""
    text = "".join(tokens)
    for i in range(2, len(tokens) - 2):
        stop = tokens[i][-2:] + tokens[i + 1][:2]
        before = "".join(tokens[:i + 1])[:-len(tokens[i][-2:])]
        if len(stop) > 2 and text.find(stop) == len(before):
            return stop, before
    raise AssertionError(f"no stop string is to be had from {tokens}")


def test_a_stop_string_across_tokens(chat, known):
    stop, before = spanning(tokens_of(known))
    choice = chat(stop=[stop, "zzz"], max_tokens=24).choices[0]
    assert choice.message.content == before
    assert choice.finish_reason == "stop" and choice.stop_reason == stop
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chat(stop=stop, max_tokens=24, stream=True))
    assert streamed == before
    kept = chat(stop=stop, max_tokens=24, extra={"include_stop_str_in_output": True}).choices[0]
    assert kept.message.content == before + stop


def test_stop_token_ids(chat, known, server):
    tokens = tokens_of(known)
    at = next(i for i in range(2, len(tokens)) if tokens[i] not in tokens[:i])
    (stop,) = first_ids(server, tokens[at])
    choice = chat(extra={"stop_token_ids": [stop]}, max_tokens=24).choices[0]
    assert choice.message.content == "".join(tokens[:at])
    assert choice.finish_reason == "stop" and choice.stop_reason == stop


def test_min_tokens_and_ignore_eos(chat, short):
    length = chat(logit_bias=short).usage.completion_tokens
    longer = chat(logit_bias=short, extra={"min_tokens": length + 3})
    assert longer.usage.completion_tokens >= length + 3
    endless = chat(logit_bias=short, extra={"ignore_eos": True})
    assert endless.usage.completion_tokens == 16 and endless.choices[0].finish_reason == "length"


# ---- what changes the choice ---------------------------------------------------------------------------------------

def test_logit_bias(chat, known, server):
    (first,) = first_ids(server, tokens_of(known)[0])
    banned = chat(logit_bias={first: -100}, max_tokens=3, logprobs=True).choices[0]
    assert tokens_of(banned)[0] != tokens_of(known)[0]
    (forced,) = first_ids(server, " fox")
    assert chat(logit_bias={forced: 100}, max_tokens=3).choices[0].message.content == " fox fox fox"


@pytest.mark.parametrize("penalty", [{"presence_penalty": 2}, {"frequency_penalty": 2}, {"extra": {"repetition_penalty": 2}}])
def test_penalties(complete, penalty):
    prompt = "red blue red blue red blue red blue red"
    plain, changed = (complete(prompt, max_tokens=8, **fields).choices[0].text for fields in ({}, penalty))
    assert plain.count("blue") > changed.count("blue")


# ---- scores --------------------------------------------------------------------------------------------------------

def test_logprobs_of_a_chat(known):
    entries = known.logprobs.content
    assert bytes(byte for entry in entries for byte in entry.bytes).decode() == known.message.content
    for entry in entries:
        top = entry.top_logprobs
        assert len(top) == 3
        assert (top[0].token, top[0].logprob) == (entry.token, entry.logprob), "a greedy token is the likeliest"
        assert [one.logprob for one in top] == sorted((one.logprob for one in top), reverse=True)
        assert entry.logprob <= 0 and sum(math.exp(one.logprob) for one in top) <= 1.0001


def test_logprobs_of_a_stream(chat, known):
    entries = []
    for chunk in chat(logprobs=True, top_logprobs=3, max_tokens=24, stream=True):
        if chunk.choices[0].logprobs:
            entries += chunk.choices[0].logprobs.content
    assert entries == known.logprobs.content


def test_the_likeliest_tokens_have_most_of_the_mass(chat):
    for entry in chat(logprobs=True, top_logprobs=20, max_tokens=4).choices[0].logprobs.content:
        assert 0.5 < sum(math.exp(one.logprob) for one in entry.top_logprobs) <= 1.0001


def test_logprobs_of_a_completion(complete):
    choice = complete(logprobs=2).choices[0]
    scores = choice.logprobs
    assert "".join(scores.tokens) == choice.text
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs) == len(scores.text_offset) == 12
    for token, logprob, top, offset in zip(scores.tokens, scores.token_logprobs, scores.top_logprobs, scores.text_offset):
        assert top[token] == logprob and max(top.values()) == logprob and len(top) <= 3
        assert choice.text[offset:].startswith(token)


@equal_bits
@one_process
def test_scoring_a_prompt(complete, server, library, smollm2):
    """echo, logprobs and max_tokens 0: the model's own probabilities, as the library gives them."""
    choice = complete(echo=True, logprobs=0, max_tokens=0).choices[0]
    scores = choice.logprobs
    assert choice.text == STORY == "".join(scores.tokens) and choice.finish_reason == "length"
    assert scores.token_logprobs[0] is None and len(scores.token_logprobs) == len(scores.tokens)
    ids = server.ask("/tokenize", {"prompt": STORY}).json["tokens"]
    with libnibble.Model(libnibble.Library(library), smollm2, max_model_len=256) as model, model.sequence() as sequence:
        logits = sequence.score(ids).astype(np.float64)
    top = logits.max(axis=1, keepdims=True)
    logprobs = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    want = [logprobs[i, ids[i + 1]] for i in range(len(ids) - 1)]
    assert np.abs(np.array(scores.token_logprobs[1:]) - want).max() < 1e-3


# ---- completions ---------------------------------------------------------------------------------------------------

def test_forms_of_a_prompt(complete, server):
    prompts = [STORY, "The three primary colours are"]
    want = [complete(prompt, max_tokens=5).choices[0].text for prompt in prompts]
    ids = [server.ask("/tokenize", {"prompt": prompt}).json["tokens"] for prompt in prompts]
    for form in (prompts, ids):
        answer = complete(form, max_tokens=5)
        assert [choice.text for choice in answer.choices] == want
        assert [choice.index for choice in answer.choices] == [0, 1]
        assert answer.usage.prompt_tokens == sum(map(len, ids))
    assert complete(prompts, max_tokens=5, n=2, echo=True).choices[3].text == prompts[1] + want[1]
    assert complete(ids[1], max_tokens=5, echo=True).choices[0].text == prompts[1] + want[1]


def test_the_default_length_of_a_completion(client, server):
    answer = client.completions.create(model=server.model, prompt=STORY, temperature=0, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16 and answer.id.startswith("cmpl-") and answer.object == "text_completion"


def test_token_ids(server):
    choice = server.complete(STORY, return_token_ids=True)["choices"][0]
    assert choice["prompt_token_ids"] == server.ask("/tokenize", {"prompt": STORY}).json["tokens"]
    assert server.ask("/detokenize", {"tokens": choice["token_ids"]}).json["prompt"] == choice["text"]


# ---- the model and its tokens --------------------------------------------------------------------------------------

def test_models(client, server):
    (card,) = client.models.list().data
    assert (card.id, card.object, card.max_model_len) == (server.model, "model", 2048)
    assert client.models.retrieve(server.model) == card
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-0")


def test_health_and_version(server, nibble):
    assert server.ask("/health").status == 200
    version = subprocess.run([nibble, "--version"], capture_output=True, text=True, check=True).stdout
    assert server.ask("/version").json["version"] in version


@pytest.mark.parametrize("text", ["Hello, world", " two  spaces ", "naïve 🦊 日本語", "<|im_start|>user\nHi<|im_end|>", "\0\x7f"])
def test_tokenize_round_trip(server, nibble, smollm2, text):
    answer = server.ask("/tokenize", {"prompt": text, "return_token_strs": True}).json
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"]) and answer["max_model_len"] == 2048
    done = subprocess.run([nibble, "tokenize", smollm2, "-"], input=text.encode(), capture_output=True, check=True)
    assert answer["tokens"] == list(map(int, done.stdout.split()))
    assert server.ask("/detokenize", {"tokens": answer["tokens"]}).json == {"prompt": text}


def test_tokenize_messages(server):
    messages = [{"role": "system", "content": "Be brief."}, *user(QUESTION)]
    answer = server.ask("/tokenize", {"messages": messages}).json
    text = server.ask("/detokenize", {"tokens": answer["tokens"]}).json["prompt"]
    assert QUESTION in text and text.endswith("<|im_start|>assistant\n")
    assert answer["count"] == server.chat(messages, max_tokens=1)["usage"]["prompt_tokens"]
    bare = server.ask("/tokenize", {"messages": messages, "add_generation_prompt": False}).json
    assert bare["tokens"] == answer["tokens"][:bare["count"]] and bare["count"] < answer["count"]


@one_process
def test_the_plan(server, nibble, smollm2):
    command = [nibble, "plan", smollm2, "--json", *"--max-model-len 2048 --max-num-seqs 64".split()]
    done = subprocess.run([*command, "--kv-cache-memory-bytes", "512M"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert server.ask("/v1/plan").json == json.loads(done.stdout)


def test_a_prompt_is_read_once(chat):
    """What the cache has of a prompt is told: all its whole pages but the last token's."""
    question = "Name the seven colours of the rainbow in order, from the outside to the inside, please. " * 3
    first, second = (chat(question, max_tokens=1).usage for _ in range(2))
    assert first.prompt_tokens_details.cached_tokens < second.prompt_tokens_details.cached_tokens
    assert second.prompt_tokens_details.cached_tokens == (second.prompt_tokens - 1) // PAGE_TOKENS * PAGE_TOKENS
    salted = chat(question, max_tokens=1, extra={"cache_salt": "mine"}).usage
    assert salted.prompt_tokens_details.cached_tokens == 0


# ---- refusals ------------------------------------------------------------------------------------------------------

def test_an_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="gpt-0", messages=user("Hi"))
    assert error.value.body["code"] == "model_not_found" and "gpt-0" in error.value.body["message"]
    assert error.value.body["param"] == "model"


BAD_FIELDS = {
    "temperature": [-1, "hot", 1e9], "top_p": [1.5, -0.1, []], "max_tokens": [0, -5, 1.5, "all", 2**40], "n": [0, -1, 129, 1.5],
    "stop": [5, [""], ["a"] * 33, {"a": 1}], "presence_penalty": [3, True], "frequency_penalty": [-2.5], "seed": [1.5, "x"],
    "logit_bias": [{"x": 1}, {"-1": 1}, {str(NOT_AN_ID): 1}, {"5": 101}, [1]], "top_logprobs": [21, -1, 3], "logprobs": ["yes"],
    "stream": ["yes", 1], "stream_options": [5, {"include_usage": True}], "messages": [None, [], "Hi", [5], [{"content": "Hi"}], {}],
    "response_format": [5, {"type": "xml"}, {"type": "json_schema"}], "tools": [5, [{"type": "function"}], {}],
    "tool_choice": ["maybe", "required", {"type": "function", "function": {"name": "absent"}}], "min_tokens": [17, -1],
    "stop_token_ids": [[-1], [NOT_AN_ID], ["a"], 5], "cache_salt": [5, "", "s" * 5000], "repetition_penalty": [0, -1],
    "top_k": [-2, 1.5], "min_p": [2], "best_of": [2], "echo": [True], "structured_outputs": [{"grammar": "a"}],
    "functions": [[{"name": "f"}]], "priority": ["high"], "ignore_eos": [5],
}


@pytest.mark.parametrize("field", BAD_FIELDS)
def test_a_bad_field_is_named(server, field):
    for value in BAD_FIELDS[field]:
        error = server.refuse("/v1/chat/completions", {"messages": user("Hi"), "max_tokens": 16, field: value})
        assert error["param"] == field and field in error["message"], (value, error)


@pytest.mark.parametrize("value", [None, [], [[]], "", {}, 5, [5.5], [-1], [NOT_AN_ID], ["a", 5], [["a"]], ["Hi"] * 129])
def test_a_bad_prompt_is_refused(server, value):
    assert server.refuse("/v1/completions", {"prompt": value})["param"] == "prompt"


def test_too_long_for_the_context(client, chat, server):
    with pytest.raises(openai.BadRequestError) as error:
        chat(max_tokens=2040)
    assert error.value.body["param"] == "max_tokens"
    for figure in ("2048", "2040", str(chat().usage.prompt_tokens)):
        assert figure in error.value.body["message"]
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model=server.model, prompt="word " * 3000)
    assert "2048" in error.value.body["message"] and error.value.body["param"] == "prompt"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": [}', b'{"a": 1} x'])
def test_a_body_that_is_no_request(server, body):
    assert server.refuse("/v1/chat/completions", body)["type"] == "BadRequestError"


def test_paths_and_methods(server):
    assert server.refuse("/v1/embeddings", {}, 404)["type"] == "NotFoundError"
    answer = server.ask("/v1/chat/completions")
    assert answer.status == 405 and answer.headers["Allow"] == "POST" and answer.error["code"] == "method_not_allowed"
    assert server.ask("/v1/models", {}).status == 405
    assert server.ask("/v1/models", method="HEAD").body == b""
    assert server.ask("/v1/chat/completions", method="OPTIONS").headers["Allow"] == "POST"


def test_keys(guarded_server):
    address = f"{guarded_server.url}/v1"
    for key in ("first-key", "second-key"):
        assert openai.OpenAI(base_url=address, api_key=key, max_retries=0).models.list().data
    for key in ("first-kez", "first-ke", "first-keyy", "FIRST-KEY"):
        with pytest.raises(openai.AuthenticationError) as error:
            openai.OpenAI(base_url=address, api_key=key, max_retries=0).models.list()
        assert error.value.body["code"] == "invalid_api_key"
    guarded_server.key = None
    try:
        for path in ("/health", "/version", "/metrics", "/"):
            assert guarded_server.ask(path).status == 200, path
        for path in ("/v1/models", "/v1/plan"):
            assert guarded_server.ask(path).error["code"] == "invalid_api_key"
        for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
            answer = guarded_server.ask(path, {"prompt": "Hi", "tokens": [1], "messages": user("Hi"), "max_tokens": 1})
            assert answer.error["code"] == "invalid_api_key" and answer.headers["WWW-Authenticate"] == "Bearer"
    finally:
        guarded_server.key = "first-key"


# ---- many at once --------------------------------------------------------------------------------------------------

def test_a_client_that_gives_up(client, server):
    """A timeout on the client's side ends the request on the server's, and its pages are free again."""
    server.wait_idle()
    before = server.metric("vllm:request_success_total", finished_reason="abort")
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).chat.completions.create(
            model=server.model, messages=user("Count to a thousand."), max_tokens=1500, extra_body={"ignore_eos": True})
    server.wait_idle(2)
    assert server.metric("vllm:request_success_total", finished_reason="abort") == before + 1


@equal_bits
def test_parallel_streams(server):
    """32 at once, each the same as when it is alone."""
    questions = QUESTIONS[:8]
    fields = {"max_tokens": 10, "temperature": 0}
    alone = [server.chat(question, **fields)["choices"][0]["message"]["content"] for question in questions]

    async def ask(client, question):
        stream = await client.chat.completions.create(model=server.model, messages=user(question), stream=True, **fields)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
            return await asyncio.gather(*(ask(client, question) for question in questions * 4))

    assert asyncio.run(ask_all()) == alone * 4


@equal_bits
def test_parallel_choices(server):
    """Many requests with several choices each, over several threads of a client."""
    want = server.chat("Tell me a joke.", n=2, seed=5, temperature=1, max_tokens=8)["choices"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.chat("Tell me a joke.", n=2, seed=5, temperature=1, max_tokens=8), range(8)))
    assert all(answer["choices"] == want for answer in answers)
