# SPDX-License-Identifier: Apache-2.0
"""Ollama's API as its own client and IDE plugins use it, and the endpoints of llama-server that tools ask for."""

import json

import ollama
import pytest
from ollama import _types as types

from serving import Server, user

GREEDY = {"temperature": 0, "num_predict": 8}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(host=server.url, timeout=60)


def refuse(server, path, request, status=400):
    answer = server.ask(path, request)
    assert answer.status == status and set(answer.json) == {"error"}, answer.body
    return answer.json["error"]


# ---- answers -------------------------------------------------------------------------------------------------------

def test_chat(client, server):
    want = server.chat("Name a colour.", max_tokens=8)
    answer = client.chat(f"{server.model}:latest", user("Name a colour."), options=GREEDY)
    assert answer.message.content == want["choices"][0]["message"]["content"] and answer.done and answer.done_reason == "length"
    assert answer.eval_count == 8 and answer.prompt_eval_count == want["usage"]["prompt_tokens"]
    assert answer.total_duration >= answer.eval_duration > 0
    *lines, last = client.chat(server.model, user("Name a colour."), options=GREEDY, stream=True)
    assert "".join(line.message.content for line in lines) == answer.message.content
    assert last.done and last.eval_count == 8 and not any(line.done for line in lines)


def test_a_stream_is_the_default(server):
    answer = server.ask("/api/chat", {"messages": user("Hi"), "options": GREEDY})
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert lines[-1]["done"] and len(lines) > 1


def test_generate(client, server):
    want = server.chat([{"role": "system", "content": "Be brief."}, *user("Name a colour.")], max_tokens=8)
    answer = client.generate(server.model, "Name a colour.", system="Be brief.", options=GREEDY)
    assert answer.response == want["choices"][0]["message"]["content"]
    raw = client.generate(server.model, "The capital of France is", raw=True, options=GREEDY)
    assert raw.response == server.complete("The capital of France is", max_tokens=8)["choices"][0]["text"]
    lines = list(client.generate(server.model, "The capital of France is", raw=True, options=GREEDY, stream=True))
    assert "".join(line.response for line in lines) == raw.response and lines[-1].done


def test_loading(client, server):
    """Plugins ask for the model before they need it."""
    assert client.generate(server.model, keep_alive=-1).done_reason == "load"
    assert client.chat(server.model, []).done_reason == "load"


def test_formats(client, server):
    schema = {"type": "object", "properties": {"a": {"const": 5}}, "required": ["a"], "additionalProperties": False}
    options = {"temperature": 0, "num_predict": 60}
    assert json.loads(client.generate(server.model, "Give JSON.", format=schema, options=options).response) == {"a": 5}
    text = client.chat(server.model, user("Give a small JSON object."), format="json", options=options).message.content
    assert text.lstrip().startswith("{")


def test_tools(server):
    history = [*user("How is the weather in Paris?"),
               {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]},
               {"role": "tool", "tool_name": "get_weather", "content": "21 degrees"}]
    answer = server.ask("/api/chat", {"messages": history, "tools": [WEATHER], "options": GREEDY, "stream": False})
    assert answer.status == 200 and answer.json["message"]["content"]


def test_descriptions(client, server):
    (model,) = client.list().models
    assert model.model == f"{server.model}:latest" and model.size > 0 and len(model.digest) == 64
    shown = client.show(f"{server.model}:latest")
    assert {"completion", "tools"} <= set(shown.capabilities) and "{%" in shown.template
    architecture = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{architecture}.context_length"] == 2048
    assert client.ps().models[0].context_length == 2048
    assert [int(part) for part in server.ask("/api/version").json["version"].split(".")] >= [0, 6, 4]
    assert server.ask("/api/show", {"name": server.model}).status == 200
    assert "gpt-4" in refuse(server, "/api/show", {"model": "gpt-4"}, 404)
    assert "gpt-4" in refuse(server, "/api/show", {"name": "gpt-4"}, 404)


# ---- refusals ------------------------------------------------------------------------------------------------------

def test_errors(client, server, guarded_server):
    with pytest.raises(ollama.ResponseError) as error:
        client.chat("gpt-4", user("Hi"))
    assert error.value.status_code == 404 and "gpt-4" in error.value.error
    with pytest.raises(ollama.ResponseError) as error:
        list(client.chat(server.model, user("Hi"), options={"temperature": -1}, stream=True))
    assert error.value.status_code == 400 and "options.temperature" in error.value.error
    assert "num_predict" in refuse(server, "/api/chat", {"messages": user("Hi"), "options": {"num_predict": 0}})
    assert "2048" in refuse(server, "/api/chat", {"messages": user("Hi"), "options": {"num_ctx": 4096}})
    assert "images" in refuse(server, "/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["abc"]}]})
    for path, status in (("/api/chat", 405), ("/api/pull", 404), ("/api/embed", 404)):
        answer = server.ask(path)
        assert answer.status == status and set(answer.json) == {"error"}
    key, guarded_server.key = guarded_server.key, None
    try:
        assert set(guarded_server.ask("/api/tags").json) == {"error"}
        assert guarded_server.ask("/api/version").status == 200
    finally:
        guarded_server.key = key


@pytest.mark.parametrize("path, shape", [("/api/chat", types.ChatRequest), ("/api/generate", types.GenerateRequest)])
def test_every_field_is_known(server, path, shape):
    base = {"messages": user("Hi"), "prompt": "Hi"}
    base = {name: value for name, value in base.items() if name in shape.model_fields}
    for name in shape.model_fields:
        answer = server.ask(path, {**base, "stream": False, "options": GREEDY, name: 12.5})
        assert answer.status in (200, 400)
        assert answer.status == 200 or name in answer.json["error"], (name, answer.body)
        assert b"no field" not in answer.body


def test_every_option_is_known(server):
    for name in [*types.Options.model_fields, "min_p"]:
        answer = server.ask("/api/chat", {"messages": user("Hi"), "stream": False, "options": {"num_predict": 2, name: "x"}})
        assert answer.status == 200 or (name in answer.json["error"] and "is no option" not in answer.json["error"]), (name, answer.body)
    assert "is no option" in refuse(server, "/api/chat", {"messages": user("Hi"), "options": {"no_such_option": 1}})


# ---- llama-server --------------------------------------------------------------------------------------------------

def test_props(server):
    props = server.ask("/props").json
    assert props["default_generation_settings"]["n_ctx"] == 2048 and props["total_slots"] == 64
    params = props["default_generation_settings"]["params"]
    assert {"typical_p", "top_n_sigma", "top_a", "min_keep", "repeat_last_n", "dry_multiplier", "dry_penalty_last_n", "xtc_threshold", "dynatemp_range",
            "mirostat"} <= set(params) and (params["dry_base"], params["repeat_last_n"]) == (1.75, -1)
    assert props["model_alias"] == server.model and "{%" in props["chat_template"] and props["build_info"].startswith("nibble")
    assert props["modalities"] == {"vision": False, "audio": False} and props["eos_token"] == "<|im_end|>"
    assert server.ask("/v1/health").status == 200


def test_slots(nibble, smollm2, server):
    assert "--slots" in server.ask("/slots").error["message"]
    with Server(nibble, smollm2, "--max-model-len", 256, "--max-num-seqs", 2, "--kv-cache-memory-bytes", "64M", "--slots") as shown:
        assert [(slot["id"], slot["n_ctx"], slot["is_processing"]) for slot in shown.ask("/slots").json] == [(0, 256, False), (1, 256, False)]
        connection, response = shown.send("/completion", {"prompt": "A", "n_predict": 200, "ignore_eos": True, "stream": True})
        response.readline()
        assert shown.wait_until(lambda: [slot["is_processing"] for slot in shown.ask("/slots").json] == [True, False])
        connection.close()


def test_apply_template(server):
    request = {"messages": user("Hi")}
    prompt = server.ask("/apply-template", request).json["prompt"]
    tokens = server.ask("/tokenize", request).json["tokens"]
    assert server.ask("/detokenize", {"tokens": tokens}).json["prompt"] == prompt
    tools = {**request, "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]}
    with_tools, without = (server.ask("/apply-template", {**tools, "tool_choice": choice}).json["prompt"] for choice in ("auto", "none"))
    assert "get_weather" in with_tools and without == prompt
    assert server.ask("/tokenize", tools).json["count"] == server.ask("/v1/chat/completions/input_tokens", tools).json["input_tokens"]


def test_completion(server):
    want = server.complete("The capital of France is", max_tokens=8)
    request = {"prompt": "The capital of France is", "n_predict": 8, "temperature": 0, "cache_prompt": True}
    answer = server.ask("/completion", request).json
    assert answer["content"] == want["choices"][0]["text"] and answer["stop"] and answer["stop_type"] == "limit"
    assert answer["tokens_predicted"] == 8 and answer["tokens_evaluated"] == want["usage"]["prompt_tokens"]
    *events, last = [json.loads(line[6:]) for line in server.ask("/completion", {**request, "stream": True}).body.split(b"\n\n") if line]
    assert "".join(event["content"] for event in events) == answer["content"] and last["stop"]
    stopped = server.ask("/completion", {**request, "stop": [answer["content"][3:5]]}).json
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", answer["content"][3:5])
    unlimited = server.ask("/completion", {"prompt": request["prompt"], "temperature": 0, "stop": [want["choices"][0]["text"][-3:]]})
    assert unlimited.status == 200 and unlimited.json["stop_type"] == "word"
    for fields in ({"n": 2}, {"prompt": ["a", "b"]}, {"logprobs": 1}, {"n_predct": 5}):
        assert server.refuse("/completion", {**request, **fields})["param"] in fields
