# SPDX-License-Identifier: Apache-2.0
"""/v1/messages as Anthropic's own SDK uses it. SmolLM2 is no agent: what is checked is the protocol, by the SDK's types.

The fields, blocks and tools that the SDK knows are walked: each is taken, or refused by a name that the error has.
"""

import json
import typing

import anthropic
import anthropic.types.beta.message_create_params as beta_params
import anthropic.types.message_count_tokens_params as count_params
import anthropic.types.message_create_params as params
import pydantic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types import content_block_param, tool_union_param
from anthropic.types.beta import beta_content_block_param, beta_tool_union_param

from serving import user

EVENT = pydantic.TypeAdapter(RawMessageStreamEvent)
GREEDY = {"temperature": 0}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"], "additionalProperties": False}
TOOL = {"name": "get_weather", "description": "The weather in a city.", "input_schema": SCHEMA}
ASK = {"max_tokens": 8, "messages": user("Name a colour.")}
HEADERS = {"anthropic-version": "2023-06-01"}


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)


@pytest.fixture
def create(client, server):
    def create(**fields):
        body = {**GREEDY, **fields.pop("extra_body", {})}
        return client.messages.create(model=server.model, extra_body=body, **{**ASK, **fields})
    return create


def events_of(server, **fields):
    """A stream's events, each valid and with its type in the line before it."""
    answer = server.ask("/v1/messages", {**ASK, **GREEDY, **fields, "stream": True}, headers=HEADERS)
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/event-stream"), answer.body
    events = []
    for block in answer.body.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        if event["type"] != "ping":
            EVENT.validate_python(event)
        events.append(event)
    return events


def refuse(server, status=400, **fields):
    answer = server.ask("/v1/messages", {**ASK, **fields})
    assert answer.status == status, answer.body
    error = answer.json
    assert set(error) == {"type", "error", "request_id"} and error["type"] == "error" and error["request_id"]
    assert set(error["error"]) == {"type", "message"}
    return error["error"]


def prompt_tokens(message):
    return message.usage.input_tokens + message.usage.cache_read_input_tokens


# ---- answers -------------------------------------------------------------------------------------------------------

def test_a_message(server, create):
    message = create()
    Message.model_validate(message.model_dump())
    want = server.chat(ASK["messages"], max_tokens=8)
    assert message.id.startswith("msg_") and message.model == server.model and message.role == "assistant"
    assert [block.text for block in message.content] == [want["choices"][0]["message"]["content"]]
    assert message.stop_reason == "max_tokens" and message.stop_sequence is None and message.usage.output_tokens == 8
    assert message._request_id


def test_a_stream_is_the_same(client, server, create):
    want = create(max_tokens=24)
    with client.messages.stream(model=server.model, extra_body=GREEDY, **{**ASK, "max_tokens": 24}) as stream:
        assert "".join(stream.text_stream) == want.content[0].text
        message = stream.get_final_message()
    assert (message.content[0].text, message.stop_reason) == (want.content[0].text, want.stop_reason)
    assert message.usage.output_tokens == want.usage.output_tokens
    types = [event["type"] for event in events_of(server)]
    assert types[:3] == ["message_start", "ping", "content_block_start"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[3:-3]) == {"content_block_delta"}


def test_system_blocks_and_stop_sequences(server, create):
    text = create(system="Be brief.", max_tokens=20).content[0].text
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert create(system=blocks, max_tokens=20).content[0].text == text
    message = create(system="Be brief.", max_tokens=20, stop_sequences=["zzz", text[5:8]])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", text[5:8])
    assert message.content[0].text == text[:text.index(text[5:8])]


def test_max_tokens_is_cut(create):
    """Clients ask for 16384 and more by default."""
    assert create(max_tokens=64000, stop_sequences=["."]).stop_reason in ("stop_sequence", "end_turn")


def test_the_prefix_cache_is_usage(create):
    question = user("Name the seven colours of the rainbow in order, please. " * 6)
    first, second = (create(max_tokens=1, messages=question, system=[
        {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={nonce};"}, {"type": "text", "text": "Answer."}])
        for nonce in ("4f3a1", "99bce"))
    assert second.usage.cache_read_input_tokens > first.usage.cache_read_input_tokens, "the line of accounting is no part of the prompt"
    assert first.usage.cache_creation_input_tokens == 0
    assert prompt_tokens(first) == prompt_tokens(second)


# ---- tools ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("choice", [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "get_weather"}])
def test_a_tool_and_its_result(client, server, create, choice):
    fields = {"tools": [TOOL], "tool_choice": choice, "max_tokens": 64, "messages": user("How is the weather in Paris?")}
    message = create(**fields)
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert call.name == "get_weather" and set(call.input) == {"city"} and message.stop_reason == "tool_use"
    with client.messages.stream(model=server.model, extra_body=GREEDY, **fields) as stream:
        streamed = stream.get_final_message()
    assert [block.input for block in streamed.content if block.type == "tool_use"] == [call.input]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "21 degrees"}]}
    history = [*fields["messages"], {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    answer = create(tools=[TOOL], messages=history, max_tokens=16)
    assert answer.content[0].type == "text" and prompt_tokens(answer) > prompt_tokens(message)


def test_a_call_that_is_cut_off(create):
    """Its input is an object, and has what there is."""
    message = create(tools=[TOOL], tool_choice={"type": "tool", "name": "get_weather"}, max_tokens=14)
    calls = [block for block in message.content if block.type == "tool_use"]
    assert message.stop_reason == "max_tokens" and all(isinstance(call.input, dict) for call in calls)


def test_structured_outputs(client, server):
    class Weather(pydantic.BaseModel):
        city: typing.Literal["Paris", "Rome"]
        degrees: int = pydantic.Field(ge=-50, le=50)

    message = client.messages.parse(model=server.model, output_format=Weather, extra_body=GREEDY, **{**ASK, "max_tokens": 60})
    assert message.parsed_output.city in ("Paris", "Rome")


def test_prefill(server, create):
    history = [*user("Count from one to five."), {"role": "assistant", "content": "One, two, three,"}]
    message = create(messages=history, max_tokens=12)
    assert "one" not in message.content[0].text.lower().split()[:1]
    tokens = server.ask("/v1/messages/count_tokens", {"messages": history}).json["input_tokens"]
    assert prompt_tokens(message) == tokens


@pytest.mark.parametrize("thinking", [{"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}, {"type": "adaptive"},
                                      {"type": "adaptive", "display": "omitted"}])
def test_thinking_is_taken(create, thinking):
    assert create(thinking=thinking).content[0].type == "text"  # this model has no thoughts


def test_counting(client, server, create):
    fields = {"messages": user("Hello there."), "system": "Be kind.", "tools": [TOOL]}
    counted = client.messages.count_tokens(model=server.model, **fields).input_tokens
    assert counted == prompt_tokens(create(max_tokens=1, **fields))
    assert counted > client.messages.count_tokens(model=server.model, messages=fields["messages"]).input_tokens


def test_models(client, server):
    (model,) = client.models.list().data
    assert model.id == server.model and model.max_input_tokens == 2048
    assert client.models.retrieve(server.model).id == server.model
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("gpt-4")
    assert server.ask("/v1/models").json["object"] == "list", "without the header the shape is OpenAI's"


# ---- requests as agents send them -----------------------------------------------------------------------------------

EPHEMERAL = {"type": "ephemeral"}
READ = {"name": "Read", "description": "Reads a file.", "input_schema": {
    "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"file_path": {"type": "string"}},
    "required": ["file_path"], "additionalProperties": False}}
AGENTS = {
    "Claude Code": {
        "max_tokens": 32000, "stream": True, "temperature": 1, "metadata": {"user_id": "user_1_account__session_2"},
        "thinking": {"type": "enabled", "budget_tokens": 31999}, "tools": [READ],
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch=00000;"},
                   {"type": "text", "text": "You are an agent.", "cache_control": EPHEMERAL}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nx\n</system-reminder>"}, {"type": "text", "text": "Read a.c"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "A file.", "signature": ""},
                                              {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "a.c"}}]},
            {"role": "user", "content": [{"tool_use_id": "toolu_1", "type": "tool_result", "content": "1 int x;", "cache_control": EPHEMERAL}]}]},
    "Claude Code, a title": {
        "max_tokens": 32000, "stream": True, "temperature": 1, "tools": [], "system": [{"type": "text", "text": "Find a title."}],
        "output_config": {"format": {"type": "json_schema", "schema": {
            "type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"], "additionalProperties": False}}},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Mend the build."}]}]},
    "Claude Code, a probe": {"max_tokens": 1, "messages": user("quota"), "metadata": {"user_id": "u"}},
    "opencode": {
        "max_tokens": 32000, "stream": True, "system": [{"type": "text", "text": "You are an agent.", "cache_control": EPHEMERAL}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Read a.c", "cache_control": EPHEMERAL}]}],
        "tools": [READ], "tool_choice": {"type": "auto"}},
    "Continue": {"max_tokens": 8192, "stream": True, "system": "You are an assistant.", "tools": [READ], "stop_sequences": ["\n\n\n"],
                 "messages": [{"role": "user", "content": [{"type": "text", "text": "Read a.c"}]}]},
}


@pytest.mark.parametrize("agent", AGENTS)
def test_requests_of_agents(server, agent):
    """Recorded shapes, but for the lengths: without them the answers would be long."""
    request = AGENTS[agent]
    counted = {name: value for name, value in request.items() if name not in ("max_tokens", "stream", "temperature", "metadata", "stop_sequences")}
    assert server.ask("/v1/messages/count_tokens?beta=true", counted, headers=HEADERS).json["input_tokens"] > 0
    answer = server.ask("/v1/messages?beta=true", {**request, "max_tokens": min(request["max_tokens"], 8)},
                        headers={**HEADERS, "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14"})
    assert answer.status == 200 and (b"message_stop" in answer.body) == request.get("stream", False), answer.body


# ---- refusals ------------------------------------------------------------------------------------------------------

ERRORS = [
    (anthropic.BadRequestError, "invalid_request_error", {"messages": []}),
    (anthropic.BadRequestError, "invalid_request_error", {"extra_body": {"temperature": -1}}),
    (anthropic.NotFoundError, "not_found_error", {"model": "gpt-4"}),
    (anthropic.BadRequestError, "invalid_request_error", {"messages": user("word " * 5000)}),
    (anthropic.ContentTooLargeError, "request_too_large", {"messages": user("word " * 2000000)}),
]


@pytest.mark.parametrize("error_class, word, fields", ERRORS, ids=range(len(ERRORS)))
def test_the_sdks_exceptions(client, server, error_class, word, fields):
    with pytest.raises(error_class) as error:
        client.messages.create(**{"model": server.model, **ASK, **fields})
    assert error.value.body["error"]["type"] == word and error.value.body["error"]["message"]
    assert error.value.request_id == error.value.body["request_id"]


def test_a_prompt_that_is_too_long(server):
    """Claude Code shortens the conversation when an error begins with these words."""
    assert refuse(server, messages=user("word " * 5000))["message"].startswith("prompt is too long")


def test_keys_of_both_kinds(guarded_server):
    for key in ({"api_key": guarded_server.key}, {"auth_token": guarded_server.key}):
        with anthropic.Anthropic(base_url=guarded_server.url, max_retries=0, **key) as client:
            assert client.messages.create(model=guarded_server.model, **ASK).content
    with anthropic.Anthropic(base_url=guarded_server.url, max_retries=0, api_key="wrong") as client:
        with pytest.raises(anthropic.AuthenticationError) as error:
            client.messages.create(model=guarded_server.model, **ASK)
        assert error.value.body["error"]["type"] == "authentication_error"
        with pytest.raises(anthropic.AuthenticationError) as error:
            client.models.list()
        assert error.value.body["error"]["type"] == "authentication_error"


def test_errors_of_paths_and_methods(server):
    for path, method, status, word in (("/v1/messages", "GET", 405, "invalid_request_error"), ("/v1/messages", "PUT", 405, "invalid_request_error"),
                                       ("/v1/messages/batches", "POST", 404, "not_found_error")):
        answer = server.ask(path, method=method)
        assert (answer.status, answer.json["error"]["type"]) == (status, word), answer.body
    answer = server.ask("/v1/nothing", headers=HEADERS)
    assert answer.status == 404 and answer.json["type"] == "error"
    answer = server.ask("/v1/messages", b"{", headers=HEADERS)
    assert answer.status == 400 and answer.json["error"]["type"] == "invalid_request_error"


# ---- every field, block and tool that the SDK knows -----------------------------------------------------------------

def fields_of(*shapes):
    """A TypedDict's fields, those of its parents included."""
    return sorted({name for shape in shapes for name in typing.get_type_hints(shape)})


def types_of(union):
    """The words that a union's members may have as their type."""
    words = set()
    for member in typing.get_args(union):
        hint = getattr(member, "__annotations__", {}).get("type")
        text = getattr(hint, "__forward_arg__", None) or str(hint)
        words |= set(typing.get_args(typing.get_args(eval(text, vars(typing)))[0])) if "Required" in text else set()
    return sorted(words)


@pytest.mark.parametrize("name", fields_of(params.MessageCreateParamsBase, params.MessageCreateParamsStreaming,
                                           beta_params.MessageCreateParamsBase))
def test_every_field_is_known(server, name):
    for value in ({"x": 1}, "x", 12.5):
        answer = server.ask("/v1/messages", {**ASK, name: value})
        assert answer.status in (200, 400, 404), (name, value, answer.body)
        if answer.status == 400:
            assert name in answer.json["error"]["message"] and "no field" not in answer.json["error"]["message"], answer.body


@pytest.mark.parametrize("name", fields_of(count_params.MessageCountTokensParams))
def test_every_field_of_counts_is_known(server, name):
    answer = server.ask("/v1/messages/count_tokens", {"messages": user("Hi"), name: {"x": 1}})
    assert answer.status in (200, 400)
    assert answer.status == 200 or (name in answer.json["error"]["message"] and "no field" not in answer.json["error"]["message"])


BLOCKS = {
    "text": {"text": "x"}, "thinking": {"thinking": "x", "signature": ""}, "redacted_thinking": {"data": "x"},
    "tool_use": {"id": "a", "name": "get_weather", "input": {}}, "tool_result": {"tool_use_id": "a", "content": "x"},
}
BLOCK_TYPES = sorted({*types_of(content_block_param.ContentBlockParam), *types_of(beta_content_block_param.BetaContentBlockParam)})
TOOL_TYPES = sorted({*types_of(tool_union_param.ToolUnionParam), *types_of(beta_tool_union_param.BetaToolUnionParam)} - {"custom"})


def test_the_walk_finds_the_sdks_types():
    assert {*BLOCKS, "image", "document", "search_result", "server_tool_use"} <= set(BLOCK_TYPES)
    assert {"bash_20250124", "web_search_20250305", "text_editor_20250728"} <= set(TOOL_TYPES)


@pytest.mark.parametrize("word", BLOCK_TYPES)
def test_every_block_is_known(server, word):
    block = {"type": word, **BLOCKS.get(word, {})}
    role = "user" if word in ("text", "tool_result") else "assistant"
    messages = [*user("Hi"), {"role": role, "content": [block]}, *user("Go on.")]
    if word in BLOCKS:
        assert server.ask("/v1/messages", {**ASK, "messages": messages}).status == 200
    else:
        assert word in refuse(server, messages=messages)["message"]


@pytest.mark.parametrize("word", TOOL_TYPES)
def test_hosted_tools_are_refused_by_name(server, word):
    assert word in refuse(server, tools=[{"type": word, "name": "x"}])["message"]


def test_unknown_fields(server):
    assert "no_such_field" in refuse(server, no_such_field=1)["message"]
    assert '"max_tokens"' in refuse(server, max_tokns=5)["message"]
    assert "/v1/chat/completions" in refuse(server, n=2)["message"]
    assert server.ask("/v1/messages", {**ASK, "metadata": {"user_id": "x"}, "service_tier": "auto", "no_such_field": None}).status == 200
