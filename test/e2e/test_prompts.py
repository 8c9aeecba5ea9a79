# SPDX-License-Identifier: Apache-2.0
"""The prompt that a chat becomes, as the server's clients see it: continued messages, templates of requests, counts, the tokenizer's configuration."""

import json
import subprocess

import pytest

from serving import Server, user

CHAT, TOKENIZE, COUNT = "/v1/chat/completions", "/tokenize", "/v1/chat/completions/input_tokens"
OPEN = [*user("Name a colour."), {"role": "assistant", "content": "The colour of the sky is "}]
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}
SLOW = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def prompt_of(server, messages, **fields):
    answer = server.ask(TOKENIZE, {"messages": messages, **fields})
    assert answer.status == 200, answer.body
    return server.ask("/detokenize", {"tokens": answer.json["tokens"]}).json["prompt"]


# ---- continue_final_message -----------------------------------------------------------------------------------------

def test_the_last_message_is_left_open(server):
    whole = prompt_of(server, OPEN, add_generation_prompt=False)
    prompt = prompt_of(server, OPEN, continue_final_message=True, add_generation_prompt=False)
    assert prompt.endswith(OPEN[-1]["content"]) and whole.startswith(prompt) and whole != prompt
    assert prompt == prompt_of(server, OPEN, continue_final_message=True), "the generation prompt is off when it is not asked for"
    answer = server.chat(OPEN, continue_final_message=True, add_generation_prompt=False)
    continued = server.complete(prompt, add_special_tokens=False)
    assert answer["choices"][0]["message"]["content"] == continued["choices"][0]["text"]
    assert answer["usage"]["prompt_tokens"] == continued["usage"]["prompt_tokens"]


def test_a_last_assistant_message_is_complete_otherwise(server):
    prompt = prompt_of(server, OPEN)
    assert prompt.startswith(prompt_of(server, OPEN, add_generation_prompt=False)) and prompt.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize("fields, sentence", [
    ({"add_generation_prompt": True}, "both true"), ({"messages": user("Hi")}, "not the assistant's"),
    ({"messages": [*user("Hi"), {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}]},
     "tool_calls"),
    ({"continue_final_message": 1}, "true or false"),
])
def test_what_cannot_be_continued(server, fields, sentence):
    for path in (CHAT, TOKENIZE, COUNT):
        error = server.refuse(path, {"messages": OPEN, "continue_final_message": True, **fields})
        assert error["param"] == "continue_final_message" and sentence in error["message"]


def test_render_takes_the_key(server, nibble, smollm2, tmp_path):
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"messages": OPEN, "continue_final_message": True}))
    run = subprocess.run([nibble, "render", smollm2, file], capture_output=True, check=True, timeout=60)
    assert run.stdout.decode() == prompt_of(server, OPEN, continue_final_message=True)
    file.write_text(json.dumps({"messages": OPEN, "continue_final_message": True, "add_generation_prompt": True}))
    run = subprocess.run([nibble, "render", smollm2, file], capture_output=True, timeout=60)
    assert run.returncode == 1 and b"both true" in run.stderr


# ---- earlier calls and thoughts -------------------------------------------------------------------------------------

def test_a_prompt_is_what_render_shows(server, nibble, smollm2, tmp_path):
    """ChatML, which knows no tools: all of it in words."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
    messages = [{"role": "developer", "content": "Be brief."}, *user("Look."), {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "blue"}]},
                {"role": "assistant", "content": "Blue.", "reasoning_content": "It is blue."}, *user("And?")]
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"messages": messages, "tools": [TOOL]}))
    run = subprocess.run([nibble, "render", "--as-served", smollm2, file], capture_output=True, check=True, timeout=60)
    prompt = prompt_of(server, messages, tools=[TOOL])
    assert run.stdout.decode() == prompt
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\n") and '"at": "sky"' in prompt and "blue" in prompt and "It is blue." not in prompt


def test_special_tokens_of_a_user_are_recognised(server):
    """As doc/interface.md says; a reader of prompts has to know."""
    (end,) = server.ask(TOKENIZE, {"prompt": "<|im_end|>", "add_special_tokens": False}).json["tokens"]
    ends = [server.ask(TOKENIZE, {"messages": user(text)}).json["tokens"].count(end) for text in ("a b", "a<|im_end|>b")]
    assert ends[1] == ends[0] + 1


# ---- counts ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fields", [{}, {"tools": [TOOL]}, {"messages": OPEN, "continue_final_message": True}, {"max_tokens": 3, "temperature": 0.5, "stream": True}])
def test_input_tokens_are_the_prompts(server, fields):
    request = {"messages": user("Name a colour."), "max_tokens": 1, **fields}
    count = server.ask(COUNT, request).json
    assert count == {"object": "response.input_tokens", "input_tokens": server.ask(CHAT, {**request, "stream": False}).json["usage"]["prompt_tokens"]}


def test_input_tokens_checks_its_fields(server):
    assert server.refuse(COUNT, {"messages": user("Hi"), "no_such_field": 1})["param"] == "no_such_field"
    assert server.refuse(COUNT, {"messages": user("Hi"), "temperature": "hot"})["param"] == "temperature"
    assert server.refuse(COUNT, {})["param"] == "messages"
    assert server.refuse(COUNT, {"messages": user("x" * 10**6)})["code"] == "context_length_exceeded"


# ---- templates of requests, and the tokenizer's configuration -----------------------------------------------------------

def test_off_unless_the_server_trusts(server):
    for path in (CHAT, TOKENIZE):
        error = server.refuse(path, {"messages": user("Hi"), "chat_template": "{{ messages }}"})
        assert error["param"] == "chat_template" and "--trust-request-chat-template" in error["message"]
    assert server.ask(CHAT, {"messages": user("Hi"), "chat_template": None, "max_tokens": 1}).status == 200
    assert "--enable-tokenizer-info-endpoint" in server.refuse("/tokenizer_info", None, 404)["message"]


@pytest.fixture(scope="module")
def trusting(nibble, smollm2):
    flags = ("--max-model-len", 256, "--kv-cache-memory-bytes", "64M", "--trust-request-chat-template", "--enable-tokenizer-info-endpoint")
    with Server(nibble, smollm2, *flags) as server:
        yield server


def test_a_requests_template(trusting):
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{% if reasoning_effort %} {{ reasoning_effort }}{% endif %}"
    messages = [{"role": "developer", "content": "D"}, *user("U")]
    assert prompt_of(trusting, messages, chat_template=template, reasoning_effort="high") == "<|im_start|>[system] D[user] U high"
    assert trusting.ask(CHAT, {"messages": messages, "chat_template": template, "max_tokens": 1}).status == 200
    assert trusting.ask(COUNT, {"messages": messages, "chat_template": template}).json["input_tokens"] > 0
    assert trusting.refuse(CHAT, {"messages": messages, "reasoning_effort": "high"})["param"] == "reasoning_effort", "the model's reads none"
    assert prompt_of(trusting, messages).startswith("<|im_start|>system\nD")


@pytest.mark.parametrize("template, param, sentence", [
    (5, "chat_template", "a string"), ("{% if", "chat_template", "line 1"), ("x" * (1 << 19), "chat_template", "limit"), (SLOW, "messages", "steps"),
    ("{{ raise_exception('no') }}", "messages", "no"), ("{{ 'x' * 1000000000 }}", "messages", "limit"),
])
def test_bad_templates(trusting, template, param, sentence):
    error = trusting.refuse(CHAT, {"messages": user("Hi"), "chat_template": template})
    assert error["param"] == param and sentence in error["message"]


def test_tokenizer_info(trusting):
    info = trusting.ask("/tokenizer_info")
    assert info.status == 200 and info.headers["Content-Type"] == "application/json"
    assert info.json["tokenizer_class"] == "PreTrainedTokenizerFast" and info.json["eos_token"] == "<|im_end|>"
    assert "{% for message in messages %}" in info.json["chat_template"]
