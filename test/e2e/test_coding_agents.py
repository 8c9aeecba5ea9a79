# SPDX-License-Identifier: Apache-2.0
"""Requests of Codex CLI, opencode and Continue in the shapes of their public sources, but for the lengths of answers.

What they send to /v1/messages is in test_messages.py.
"""

import json

import pytest

from serving import DONE, Server, user

PATH = "/v1/responses"  # of Codex CLI
HEADERS = {"originator": "codex_cli_rs", "session-id": "7c9b8f2e-0000-4c00-8000-000000000001", "Accept": "text/event-stream",
           "version": "0.144.0", "User-Agent": "codex_cli_rs/0.144.0 (Debian 12; x86_64) xterm"}


def function(name, required, **properties):
    return {"type": "function", "name": name, "description": f"The tool {name}.", "strict": False,
            "parameters": {"type": "object", "properties": properties, "required": required, "additionalProperties": False}}


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
STEPS = {"type": "array", "items": {"type": "object", "properties": {"step": TEXT, "status": TEXT}, "required": ["step", "status"],
                                    "additionalProperties": False}}
FUNCTIONS = [
    function("exec_command", ["cmd"], cmd=TEXT, workdir=TEXT, shell=TEXT, login={"type": "boolean"}, tty={"type": "boolean"},
             yield_time_ms=NUMBER, max_output_tokens=NUMBER, prefix_rule={"type": "array", "items": TEXT}),
    function("write_stdin", ["session_id"], session_id=NUMBER, chars=TEXT, yield_time_ms=NUMBER, max_output_tokens=NUMBER),
    function("update_plan", ["plan"], explanation=TEXT, plan=STEPS),
    function("view_image", ["path"], path=TEXT),
]
AGENTS = {"type": "namespace", "name": "multi_agent_v1", "description": "Sub-agents.",
          "tools": [function("spawn_agent", ["message"], message=TEXT), function("close_agent", ["target"], target=TEXT)]}
SEARCH = {"type": "web_search", "external_web_access": False}


def message(role, kind, text):
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


START = [message("developer", "input_text", "<permissions instructions>\nread-only\n</permissions instructions>"),
         message("user", "input_text", "<environment_context>\n<cwd>/src</cwd>\n</environment_context>"),
         message("user", "input_text", "What is in this folder?")]
LATER = [*START,
         {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
         message("assistant", "output_text", "I look."),
         {"type": "function_call", "name": "exec_command", "arguments": "{\"cmd\":\"ls\"}", "call_id": "call_1"},
         {"type": "function_call_output", "call_id": "call_1", "output": "Process exited with code 0\nOutput:\na.c\n"}]
REQUEST = {"instructions": "You are Codex, a coding agent.", "input": START, "tools": [*FUNCTIONS, AGENTS, SEARCH], "tool_choice": "auto",
           "parallel_tool_calls": False, "reasoning": None, "store": False, "stream": True, "include": [], "prompt_cache_key": "thread",
           "client_metadata": {"x-codex-installation-id": "id"}}
REASONING = {"reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
SCHEMA = {"type": "object", "properties": {"files": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["files"],
          "additionalProperties": False}
REQUESTS = {
    "the first turn": {},
    "after a tool": {"input": LATER},
    "an output schema": {"tools": [], "text": {"format": {"type": "json_schema", "strict": True, "schema": SCHEMA, "name": "codex_output_schema"}}},
}


def events_of(server, request):
    """Codex sends no limit; the tests' own keeps the answer short."""
    connection, answer = server.send(PATH, {"max_output_tokens": 24, "temperature": 0, **request}, headers=HEADERS)
    assert answer.status == 200, answer.read()
    events = [json.loads(line[6:]) for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    connection.close()
    return events


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_of_codex(server, name):
    events = events_of(server, {"model": server.model, **REQUEST, **REQUESTS[name]})
    assert [event["type"] for event in events if event["type"] == "response.output_item.done"]
    final = events[-1]
    assert final["type"] in ("response.completed", "response.incomplete") and final["response"]["usage"]["output_tokens"] > 0
    if "schema" in name:
        json.loads(final["response"]["output"][0]["content"][0]["text"])


def test_a_model_that_reasons(nibble, smollm2, tmp_path):
    """With the effort that its user has set."""
    template = tmp_path / "template.jinja"
    template.write_text("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
                        "<|im_start|>assistant\n{% if reasoning_effort %}Effort: {{ reasoning_effort }}.{% endif %}")
    with Server(nibble, smollm2, "--max-model-len", 1024, "--kv-cache-memory-bytes", "64M", "--chat-template", template) as server:
        plain, reasoning = (events_of(server, {**REQUEST, "input": LATER, **fields})[-1]["response"] for fields in ({}, REASONING))
    assert reasoning["reasoning"]["effort"] == "medium"
    assert reasoning["usage"]["input_tokens"] > plain["usage"]["input_tokens"]


def test_what_is_left_out(server):
    """A search and a namespace beside functions: the log and the response say so. Alone they are refused."""
    plain = events_of(server, {**REQUEST, "tools": FUNCTIONS})[-1]["response"]
    response = events_of(server, REQUEST)[-1]["response"]
    assert response["tools"] == plain["tools"] == FUNCTIONS
    assert response["usage"]["input_tokens"] == plain["usage"]["input_tokens"] and response["output"][0]["type"] == plain["output"][0]["type"]
    server.wait_until(lambda: any("a tool is left out: namespace; a tool is left out: web_search" in line for line in server.log))
    for tool in (AGENTS, SEARCH):
        assert tool["type"] in server.refuse(PATH, {"input": user("Hi"), "tools": [tool]})["message"]
        assert tool["type"] in server.refuse(PATH, {**REQUEST, "tool_choice": {"type": tool["type"]}})["message"]


# ---- chats ---------------------------------------------------------------------------------------------------------

def chat_function(tool):
    return {"type": "function", "function": {key: tool[key] for key in ("name", "description", "parameters")}}


CALL = {"id": "call_1", "type": "function", "function": {"name": "exec_command", "arguments": "{\"cmd\":\"ls\"}"}}
USER = {"role": "user", "content": [{"type": "text", "text": "What is in this folder?"}]}
CHATS = {
    "opencode": {
        "messages": [{"role": "system", "content": "You are opencode."}, {"role": "system", "content": "<env>/src</env>"}, USER,
                     {"role": "assistant", "content": "", "tool_calls": [CALL]},
                     {"role": "tool", "tool_call_id": "call_1", "content": "a.c"}],
        "tools": [chat_function(tool) for tool in FUNCTIONS], "tool_choice": "auto", "stream_options": {"include_usage": True}, "top_p": 1},
    "opencode, a title": {"messages": [{"role": "system", "content": "Find a title."}, {"role": "user", "content": "Mend the build."}],
                          "stream_options": {"include_usage": True}},
    "Continue": {
        "messages": [{"role": "system", "content": "You are in agent mode."}, USER,
                     {"role": "assistant", "content": " ", "tool_calls": [CALL]},
                     {"role": "tool", "tool_call_id": "call_1", "content": "a.c"}],
        "tools": [chat_function(tool) for tool in FUNCTIONS], "parallel_tool_calls": False, "stop": ["\n\n\n"],
        "stream_options": {"include_usage": True}},
}


@pytest.mark.parametrize("name", CHATS)
def test_chats_of_agents(server, name):
    events = list(server.events("/v1/chat/completions", {"model": server.model, "max_tokens": 16, "temperature": 0, **CHATS[name]}))
    assert events[-1] == DONE and events[-2]["usage"]["completion_tokens"] > 0 and events[-2]["choices"] == []
    assert [event["choices"][0]["finish_reason"] for event in events[:-2]][-1] in ("stop", "length", "tool_calls")


def test_a_completion_of_continue(server):
    """In the middle of a line, by the markers that Continue writes into the prompt itself."""
    request = {"model": server.model, "prompt": "<fim_prefix>int add(int a, int b) { return <fim_suffix>; }<fim_middle>", "max_tokens": 12,
               "temperature": 0.01, "stop": ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<|endoftext|>", "\n\n", "/src/"]}
    assert list(server.events("/v1/completions", request))[-1] == DONE
