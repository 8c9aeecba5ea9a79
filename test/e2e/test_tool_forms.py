# SPDX-License-Identifier: Apache-2.0
"""Calls in other forms than the model's own, by --tool-call-parser: forced ones are read back, whole and streamed."""

import json
import re
import subprocess

import pytest

from serving import Server, user

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": CITY}} for name in ("get_weather", "get_time")]
IDS = {"kimi_k2": r"functions\.get_(weather|time):[0-9]+", "mistral": "[A-Za-z0-9]{9}"}


def allowed(mode, *names):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [
        {"type": "function", "function": {"name": name}} for name in names]}}


def calls_of(events):
    calls = []
    for event in events:
        for choice in event.get("choices", []) if isinstance(event, dict) else []:
            assert not choice["delta"].get("content")
            for part in choice["delta"].get("tool_calls") or []:
                if part["index"] == len(calls):
                    calls.append({"id": part["id"], "name": part["function"]["name"], "arguments": ""})
                calls[part["index"]]["arguments"] += part["function"].get("arguments") or ""
    return calls


@pytest.mark.parametrize("form", ["qwen3_coder", "kimi_k2", "mistral", "gemma4", "pythonic"])
def test_forced_calls(nibble, smollm2, form):
    with Server(nibble, smollm2, "--tool-call-parser", form) as server:
        body = {"messages": user("The weather in Paris?"), "tools": TOOLS, "temperature": 0, "max_tokens": 160,
                "parallel_tool_calls": False, "close_at_max_tokens": True}
        for choice in ["required", {"type": "function", "function": {"name": "get_time"}}, allowed("required", "get_time")]:
            request = {**body, "tool_choice": choice}
            message = server.ask("/v1/chat/completions", request).json["choices"][0]["message"]
            (call,) = message["tool_calls"]
            arguments = json.loads(call["function"]["arguments"])
            assert not message.get("content") and set(arguments) == {"city", "days"} and 1 <= arguments["days"] <= 9
            assert choice == "required" or call["function"]["name"] == "get_time"
            assert re.fullmatch(IDS.get(form, "call_[0-9a-f]{16}"), call["id"])
            (streamed,) = calls_of(server.events("/v1/chat/completions", {**request, "stream": True}))
            assert [streamed["name"], streamed["arguments"]] == [call["function"]["name"], call["function"]["arguments"]]


@pytest.mark.parametrize("choice", [
    allowed("required", "absent"), allowed("auto"), allowed("maybe", "get_time"), {"type": "allowed_tools"},
    {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ["get_time"]}},
    {**allowed("auto", "get_time"), "more": 1},
])
def test_refused_choices(server, choice):
    error = server.refuse("/v1/chat/completions", {"messages": user("Hi"), "tools": TOOLS, "tool_choice": choice})
    assert error["param"].startswith("tool_choice")


def test_an_unknown_form(nibble, smollm2):
    run = subprocess.run([nibble, "serve", smollm2, "--port", "0", "--tool-call-parser", "qwen3_codr"], capture_output=True, text=True, timeout=60)
    assert run.returncode and "did you mean qwen3_coder?" in run.stderr and "kimi_k2" in run.stderr
