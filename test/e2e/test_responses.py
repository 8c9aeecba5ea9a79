# SPDX-License-Identifier: Apache-2.0
"""/v1/responses as the openai SDK uses it. Each object and each event is held against the SDK's own types, strictly."""

import json
import typing

import openai
import pydantic
import pytest
from openai.types import responses as types
from openai.types.responses import response_create_params, response_item, response_stream_event

from serving import Server, user

PATH = "/v1/responses"
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather in a city.", "strict": False,
           "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"],
                          "additionalProperties": False}}
TIME = {"type": "function", "name": "get_time", "strict": True,
        "parameters": {"type": "object", "properties": {"zone": {"type": "string", "maxLength": 20}}, "required": ["zone"],
                       "additionalProperties": False}}
UNKNOWN = {"bytes", "store"}  # of tokens in deltas, and of a response: OpenAI sends them, its types lack them


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    people: int = pydantic.Field(ge=0, le=99999999)


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def extras(model):
    """Fields that a model's types do not know."""
    found = set(model.__pydantic_extra__ or {})
    for name in type(model).model_fields:
        value = getattr(model, name)
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, pydantic.BaseModel):
                found |= extras(entry)
    return found


def strictly(type_, value):
    """A value as one of the SDK's types, with no field missing, wrong or unknown."""
    made = pydantic.TypeAdapter(type_).validate_json(json.dumps(value), strict=True)
    assert extras(made) <= UNKNOWN, (extras(made), value)
    return made


def create(server, status=200, path=PATH, **fields):
    answer = server.ask(path, {"temperature": 0, "max_output_tokens": 12, **fields})
    assert answer.status == status, answer.body
    return answer.json


def respond(server, **fields):
    response = create(server, **fields)
    strictly(types.Response, response)
    return response


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def messages_of(server, **fields):
    """The prompt tokens of a request, which say what the model saw."""
    return create(server, path=PATH + "/input_tokens", temperature=None, max_output_tokens=None, **fields)["input_tokens"]


def events_of(server, **fields):
    """A stream's events, each with the name of its line."""
    connection, answer = server.send(PATH, {"temperature": 0, "max_output_tokens": 12, **fields, "stream": True})
    assert answer.status == 200, answer.read()
    blocks = answer.read().decode().split("\n\n")
    connection.close()
    assert blocks.pop() == ""
    events = []
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


ITEM_EVENTS = {
    "message": ("response.output_text", "text"),
    "reasoning": ("response.reasoning_text", "text"),
    "function_call": ("response.function_call_arguments", "arguments"),
}


def check_item_events(events, index):
    """The events of one item: added, deltas, done with the whole text."""
    item = events[0]["item"]
    name, key = ITEM_EVENTS[item["type"]]
    names = [event["type"] for event in events]
    framed = item["type"] != "function_call"
    first = 2 if framed else 1
    assert names[:first] == ["response.output_item.added", "response.content_part.added"][:first]
    assert names[-1] == "response.output_item.done" and item["status"] == "in_progress"
    end = len(names) - first - 1
    assert set(names[first:end]) <= {name + ".delta"}
    assert names[end:-1] == [name + ".done", "response.content_part.done"][:first]
    assert all(event["output_index"] == index for event in events)
    assert {event.get("item_id", item["id"]) for event in events} == {item["id"]}
    whole = "".join(event["delta"] for event in events[first:end])
    done = events[-1]["item"]
    assert events[end][key] == whole
    assert (done["content"][0]["text"] if framed else done["arguments"]) == whole
    if item["type"] == "message":
        logged = [entry for event in events[first:end] for entry in event["logprobs"]]
        assert logged == events[end]["logprobs"] == done["content"][0]["logprobs"]
    return done


def check_stream(events):
    """The response at the end of a stream whose events are in order."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        strictly(response_stream_event.ResponseStreamEvent, event)
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert all(event["response"]["status"] == "in_progress" and event["response"]["output"] == [] for event in events[:2])
    final = events[-1]["response"]
    assert events[-1]["type"] == {"cancelled": "response.incomplete"}.get(final["status"], f"response.{final['status']}")
    middle, done = events[2:-1], []
    while middle:
        end = 1 + next(at for at, event in enumerate(middle) if event["type"] == "response.output_item.done")
        done.append(check_item_events(middle[:end], len(done)))
        middle = middle[end:]
    assert done == final["output"]
    return final


# ---- answers -------------------------------------------------------------------------------------------------------

def test_a_text(server):
    response = respond(server, input="What is the capital of Italy?", max_output_tokens=400)
    assert response["status"] == response["output"][0]["status"] == "completed" and text_of(response)
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] and usage["output_tokens"] > 2


def test_the_length_ends_it(server):
    response = respond(server, input="Write about the sea.", max_output_tokens=5)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["output"][0]["status"] == "incomplete" and response["usage"]["output_tokens"] == 5


def test_more_than_the_context_is_cut(server):
    assert respond(server, input="Say hi.", max_output_tokens=100000, stop="!")["status"] in ("completed", "incomplete")


def test_the_same_as_a_chat(server):
    """Instructions, and a system message that stands first, are one system message."""
    question = "Name a river in Africa."
    chat = server.chat([{"role": "system", "content": "Be brief."}, *user(question)])
    messages = [{"role": "user", "content": [{"type": "input_text", "text": question}]}]
    for fields in ({"instructions": "Be brief.", "input": question}, {"instructions": "Be brief.", "input": messages},
                   {"input": [{"role": "developer", "content": "Be brief."}, *messages]}):
        response = respond(server, **fields, max_output_tokens=16)
        assert text_of(response) == chat["choices"][0]["message"]["content"]
        assert response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    both = messages_of(server, instructions="Be", input=[{"role": "system", "content": "brief."}, *user(question)])
    assert both == messages_of(server, instructions="Be\n\nbrief.", input=question)


def test_a_request_is_repeated(server):
    fields = {"instructions": "Be brief.", "metadata": {"a": "b"}, "tools": [WEATHER], "tool_choice": "none", "top_p": 0.5,
              "temperature": 0.25, "truncation": "auto", "parallel_tool_calls": False, "user": "me", "store": False,
              "max_output_tokens": 3, "max_tool_calls": 2, "safety_identifier": "x", "prompt_cache_key": "y"}
    response = respond(server, input="Hi", **fields)
    assert {name: response[name] for name in fields} == fields
    assert response["model"] == server.model and response["text"]["format"] == {"type": "text"}


def test_a_stream(server):
    whole = respond(server, input="Write a sentence about the sea.", max_output_tokens=30)
    final = check_stream(events_of(server, input="Write a sentence about the sea.", max_output_tokens=30))
    assert text_of(final) == text_of(whole) and final["status"] == whole["status"]
    usages = [{**response["usage"], "input_tokens_details": None} for response in (final, whole)]
    assert usages[0] == usages[1]


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(server, stream):
    fields = {"input": "Name three fruits.", "include": ["message.output_text.logprobs"], "top_logprobs": 3, "max_output_tokens": 200}
    response = check_stream(events_of(server, **fields)) if stream else respond(server, **fields)
    content = response["output"][0]["content"][0]
    tokens = [bytes(entry["bytes"]) for entry in content["logprobs"]]
    assert b"".join(tokens).decode() == content["text"] and len(tokens) > 3
    assert all(len(entry["top_logprobs"]) == 3 for entry in content["logprobs"])


def test_reasoning_and_its_encryption_are_asked_for(server):
    response = respond(server, input="Hi", include=["reasoning.encrypted_content"], reasoning={"summary": "auto", "effort": "none"})
    assert response["reasoning"] == {"effort": "none", "summary": None}


@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
def test_a_form(server, kind):
    schema = {"name": "city", "schema": City.model_json_schema(), "strict": True} if kind == "json_schema" else {}
    response = respond(server, input="Describe Paris as JSON.", text={"format": {"type": kind, **schema}}, max_output_tokens=90)
    if response["status"] == "completed":
        json.loads(text_of(response))
    if schema:
        City.model_validate_json(text_of(response))


# ---- tools ---------------------------------------------------------------------------------------------------------

def call_of(response):
    return next(item for item in response["output"] if item["type"] == "function_call")


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_and_its_result(server, stream):
    question = user("How is the weather in Paris?")
    fields = {"input": question, "tools": [TIME, WEATHER], "tool_choice": {"type": "function", "name": "get_weather"}, "max_output_tokens": 60}
    response = check_stream(events_of(server, **fields)) if stream else respond(server, **fields)
    call = call_of(response)
    assert call["name"] == "get_weather" and json.loads(call["arguments"])["city"] and response["status"] == "completed"
    for output in ("21 degrees", [{"type": "input_text", "text": "21 degrees"}]):
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
        second = respond(server, input=[*question, call, result], tools=[WEATHER], tool_choice="none")
        assert second["output"][0]["type"] == "message"
        third = respond(server, input=[result], previous_response_id=response["id"], tools=[WEATHER], tool_choice="none")
        assert text_of(third) == text_of(second) and third["usage"]["input_tokens"] == second["usage"]["input_tokens"]


@pytest.mark.parametrize("choice", ["required", {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_time"}]}],
                         ids=["required", "allowed"])
def test_a_call_is_required(server, choice):
    response = respond(server, input="What time is it?", tools=[WEATHER, TIME], tool_choice=choice, max_output_tokens=90,
                       parallel_tool_calls=False)
    assert choice == "required" or call_of(response)["name"] == "get_time"
    assert response["tool_choice"] == choice and len(response["tools"]) == 2


OTHER_TOOLS = ["custom", "web_search", "web_search_preview", "file_search", "computer", "computer_use_preview", "mcp", "code_interpreter",
               "image_generation", "local_shell", "shell", "apply_patch", "namespace", "tool_search", "programmatic_tool_calling", "nothing"]


@pytest.mark.parametrize("name", OTHER_TOOLS)
def test_other_tools_are_refused(server, name):
    error = server.refuse(PATH, {"input": "Hi", "tools": [{"type": name, "name": "x"}]})
    assert error["param"] == "tools" and name in error["message"]
    error = server.refuse(PATH, {"input": "Hi", "tools": [WEATHER], "tool_choice": {"type": name}})
    assert error["param"] == "tool_choice" and name in error["message"]


# ---- what is stored ------------------------------------------------------------------------------------------------

def test_a_conversation(server):
    first = respond(server, input="My name is Ada.", instructions="Be brief.")
    second = respond(server, input="What is my name?", previous_response_id=first["id"])
    said = [*user("My name is Ada."), *first["output"]]
    again = respond(server, input=[*said, *user("What is my name?")])
    assert text_of(second) == text_of(again) and second["usage"]["input_tokens"] == again["usage"]["input_tokens"]
    third = respond(server, input="And?", previous_response_id=second["id"])
    everything = [*said, *user("What is my name?"), *second["output"], *user("And?")]
    assert third["usage"]["input_tokens"] == messages_of(server, input=everything)
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    assert messages_of(server, input=[*user("My name is Ada."), *references]) == messages_of(server, input=said)
    assert server.ask(f"{PATH}/{first['id']}", method="DELETE").json == {"id": first["id"], "object": "response", "deleted": True}
    assert messages_of(server, input=user("And?"), previous_response_id=second["id"]) == third["usage"]["input_tokens"]


def test_by_its_id(server):
    for response in (respond(server, input="Hi"), check_stream(events_of(server, input="Hi"))):
        answer = server.ask(f"{PATH}/{response['id']}?include[]=reasoning.encrypted_content&stream=false")
        assert answer.status == 200 and answer.json == response
        error = server.ask(f"{PATH}/{response['id']}?stream=true").error
        assert error["param"] == "stream"
        error = server.ask(f"{PATH}/{response['id']}/cancel", {}).error
        assert error["message"] == f"Cannot cancel a{'n' * (response['status'] == 'incomplete')} {response['status']} response."
        assert server.ask(f"{PATH}/{response['id']}", method="PATCH").headers["Allow"] == "GET, DELETE"
        assert server.ask(f"{PATH}/{response['id']}", method="DELETE").status == 200
        assert server.ask(f"{PATH}/{response['id']}").status == 404


def test_nothing_is_stored_if_not_wanted(server):
    response = respond(server, input="Hi", store=False)
    error = server.ask(f"{PATH}/{response['id']}").error
    assert error["message"] == f"Response with id '{response['id']}' not found." and not response["store"]
    error = server.refuse(PATH, {"input": "Hi", "previous_response_id": response["id"]}, status=404)
    assert (error["param"], error["code"]) == ("previous_response_id", "previous_response_not_found")
    assert error["message"] == f"Previous response with id '{response['id']}' not found."


def test_input_items(server):
    items = [{"role": "user", "content": f"{index}"} for index in range(5)]
    first = respond(server, input=items, max_output_tokens=2)
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    second = respond(server, input=[call, {"type": "function_call_output", "call_id": "c", "output": "x"}],
                     previous_response_id=first["id"], max_output_tokens=2)
    listed, after = [], ""
    while True:
        page = server.ask(f"{PATH}/{second['id']}/input_items?limit=3&order=asc{after}").json
        strictly(types.ResponseItemList, page)
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
        listed += page["data"]
        after = f"&after={page['last_id']}"
        if not page["has_more"]:
            break
    assert [item["type"] for item in listed] == ["message"] * 6 + ["function_call", "function_call_output"]
    assert [item["content"][0]["text"] for item in listed[:5]] == list("01234") and listed[5] == first["output"][0]
    newest = server.ask(f"{PATH}/{second['id']}/input_items").json["data"]
    assert newest == listed[::-1] and len({item["id"] for item in listed}) == 8
    for query, field in (("limit=0", "limit"), ("limit=101", "limit"), ("order=up", "order"), ("before=x", "before"), ("after=x", "after")):
        assert server.ask(f"{PATH}/{second['id']}/input_items?{query}").error["param"] == field


def test_a_stranger(nibble, smollm2):
    """Another key's responses are not there, and least recently used ones make room."""
    flags = ("--max-model-len", 256, "--kv-cache-memory-bytes", "64M", "--api-key", "a", "b", "--response-store-count", 3)
    with Server(nibble, smollm2, *flags) as server:
        server.key = "a"
        first = respond(server, input="Hi", max_output_tokens=1)["id"]
        server.key = "b"
        assert server.ask(f"{PATH}/{first}").status == server.ask(f"{PATH}/{first}", method="DELETE").status == 404
        assert server.ask(f"{PATH}/{first}/cancel", {}).status == server.ask(f"{PATH}/{first}/input_items").status == 404
        server.refuse(PATH, {"input": "Hi", "previous_response_id": first}, status=404)
        server.key = "a"
        ids = [first]
        for _ in range(3):
            assert server.ask(f"{PATH}/{first}").status == 200  # and is the one used last
            ids.append(respond(server, input="Hi", max_output_tokens=1)["id"])
        assert [server.ask(f"{PATH}/{name}").status for name in ids] == [200, 404, 200, 200]


def test_a_small_store(nibble, smollm2):
    """What does not fit is answered and not stored; a conversation outlives the ids of its beginning."""
    flags = ("--max-model-len", 512, "--kv-cache-memory-bytes", "64M", "--response-store-size", "16K")
    with Server(nibble, smollm2, *flags) as server:
        large = respond(server, input="Hi", instructions="x", metadata={str(i): "x" * 2000 for i in range(16)}, max_output_tokens=1)
        assert server.ask(f"{PATH}/{large['id']}").status == 404 and not large["store"]
        assert any("not stored" in line for line in server.log)
        ids = [respond(server, input="Hi", max_output_tokens=1)["id"] for _ in range(40)]
        kept = [name for name in ids if server.ask(f"{PATH}/{name}").status == 200]
        assert kept == ids[-len(kept):] and 1 < len(kept) < 20
        last = None
        for turn in range(30):  # longer than the store
            last = create(server, input="x", previous_response_id=last, max_output_tokens=1, truncation="auto", status=200)["id"]
            if server.ask(f"{PATH}/{last}").status == 404:
                break
        assert turn > 3
    with Server(nibble, smollm2, "--max-model-len", 256, "--kv-cache-memory-bytes", "64M", "--response-store-count", 0) as server:
        response = respond(server, input="Hi", max_output_tokens=1)
        assert server.ask(f"{PATH}/{response['id']}").status == 404 and response["store"] is False


def test_cancelled(server):
    """By its id, while it is streamed: the stream ends, and the response says why."""
    connection, answer = server.send(PATH, {"input": "Count to a thousand.", "stream": True, "ignore_eos": True, "max_output_tokens": 1900})
    lines = iter(answer)
    while not (line := next(lines)).startswith(b"data: "):
        pass
    name = json.loads(line[6:])["response"]["id"]
    assert server.ask(f"{PATH}/{name}").json["status"] == "in_progress"
    error = server.refuse(PATH, {"input": "Hi", "previous_response_id": name})
    assert error["param"] == "previous_response_id"
    cancelled = server.ask(f"{PATH}/{name}/cancel", {}).json
    strictly(types.Response, cancelled)
    assert cancelled["status"] == "cancelled"
    events = [json.loads(line[6:]) for line in [line, *lines] if line.startswith(b"data: ")]
    connection.close()
    final = check_stream(events)
    assert final["status"] == "cancelled" and final["usage"]["output_tokens"] < 1900
    assert server.ask(f"{PATH}/{name}").json == final


def test_a_client_that_leaves(server):
    connection, answer = server.send(PATH, {"input": "Count.", "stream": True, "ignore_eos": True, "max_output_tokens": 1900})
    while not (line := answer.readline()).startswith(b"data: "):
        pass
    name = json.loads(line[6:])["response"]["id"]
    answer.close()
    connection.close()
    server.wait_until(lambda: server.ask(f"{PATH}/{name}").status == 404)
    server.wait_idle()


# ---- truncation ----------------------------------------------------------------------------------------------------

def test_truncation(server):
    """The oldest messages go; the system message and the last question stay."""
    talk = [message for index in range(60) for message in (*user(f"Question {index}: " + "word " * 30), {"role": "assistant", "content": "Yes."})]
    fields = {"instructions": "Be brief.", "input": [*talk, *user("Name a colour.")]}
    error = server.refuse(PATH, {**fields, "truncation": "disabled"})
    assert error["param"] == "input" and error["code"] == "context_length_exceeded"
    response = respond(server, **fields, truncation="auto", max_output_tokens=100)
    assert 1500 < response["usage"]["input_tokens"] <= 1948
    assert messages_of(server, **fields, truncation="auto") <= 2048
    short = {"instructions": "Be brief.", "input": "Name a colour."}
    assert messages_of(server, **short, truncation="auto") == messages_of(server, **short)
    error = server.refuse(PATH, {"input": "word " * 4000, "truncation": "auto"})
    assert error["param"] == "input"


def test_truncation_within_a_loop_of_tools(server):
    """Of one question and many calls the oldest calls go with their results."""
    talk = user("How is the weather?")
    for index in range(60):
        talk += [{"type": "function_call", "call_id": f"c{index}", "name": "get_weather", "arguments": '{"city": "Oslo"}'},
                 {"type": "function_call_output", "call_id": f"c{index}", "output": "rain " * 30}]
    response = respond(server, input=talk, tools=[WEATHER], tool_choice="none", truncation="auto")
    assert 1000 < response["usage"]["input_tokens"] < 2048


# ---- refusals ------------------------------------------------------------------------------------------------------

REFUSALS = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": [5]}, "input"),
    ({"input": [{"role": "user"}]}, "input"),
    ({"input": [{"role": "nobody", "content": "x"}]}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input"),
    ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "xxx"}]}, "input"),
    ({"input": [{"type": "web_search_call", "id": "x"}]}, "input"),
    ({"input": [{"type": "function_call", "name": "x"}]}, "input"),
    ({"input": [{"type": "function_call_output", "call_id": "x", "output": [{"type": "input_image"}]}]}, "input"),
    ({"instructions": ["x"]}, "instructions"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": "x"}, "max_output_tokens"),
    ({"min_tokens": 9, "max_output_tokens": 5}, "min_tokens"),
    ({"text": {"format": {"type": "grammar"}}}, "text"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "nothing"}}}}, "text"),
    ({"text": {"verbosity": "low"}}, "text"),
    ({"text": {"other": 1}}, "text"),
    ({"reasoning": {"effort": "high"}}, "reasoning"),
    ({"reasoning": {"context": "all_turns"}}, "reasoning"),
    ({"reasoning": {"budget": 1}}, "reasoning"),
    ({"include": ["x"]}, "include"),
    ({"truncation": "middle"}, "truncation"),
    ({"store": "x"}, "store"),
    ({"metadata": {"a": 1}}, "metadata"),
    ({"metadata": {str(index): "x" for index in range(17)}}, "metadata"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"x": True}}, "stream_options"),
    ({"previous_response_id": 5}, "previous_response_id"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tools": [{**WEATHER, "defer_loading": True}]}, "tools"),
    ({"tools": [WEATHER, WEATHER]}, "tools"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [TIME]}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": "always"}, "tool_choice"),
    ({"background": True}, "background"),
    ({"conversation": "x"}, "conversation"),
    ({"prompt": {"id": "x"}}, "prompt"),
    ({"messages": user("Hi")}, "messages"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"temperature": -1}, "temperature"),
]


@pytest.mark.parametrize("fields, param", REFUSALS, ids=[json.dumps(fields)[:70] for fields, _ in REFUSALS])
def test_refused(server, fields, param):
    """The error names the field of this API, and what is quoted of it is there."""
    error = server.refuse(PATH, {"input": "Hi", **fields})
    assert error["param"] == param
    assert not any(f'"{name}"' in error["message"] for name in ("messages", "max_tokens", "response_format") if name != param)


def test_every_field_of_the_sdk(server):
    """Each is accepted or refused by its name."""
    fields = set(typing.get_type_hints(response_create_params.ResponseCreateParamsStreaming))
    assert {"input", "tools", "background", "moderation"} <= fields
    for name in sorted(fields):
        for value in ("x", 5.5, {"a": 1}):
            answer = server.ask(PATH, {"input": "Hi", "max_output_tokens": 1, name: value})
            assert answer.status in (200, 400, 404), answer.body
            if answer.status == 200:
                continue
            assert answer.error["param"] == name and "no field" not in answer.error["message"], answer.error
            assert answer.status == 404 or f'"{name}"' in answer.error["message"], answer.error


# ---- the SDK -------------------------------------------------------------------------------------------------------

def test_the_sdk(server, client):
    response = client.responses.create(model=server.model, input="What is the capital of Italy?", temperature=0, max_output_tokens=20)
    assert response.output_text and client.responses.retrieve(response.id) == response
    items = list(client.responses.input_items.list(response.id, limit=1))
    assert [item.content[0].text for item in items] == ["What is the capital of Italy?"]
    second = client.responses.create(model=server.model, input="And of Spain?", previous_response_id=response.id, temperature=0, max_output_tokens=20)
    assert second.previous_response_id == response.id
    assert [item.id for item in client.responses.input_items.list(second.id, limit=1)][1:] == [response.output[0].id, items[0].id]
    assert client.responses.input_tokens.count(model=server.model, input="Hi").input_tokens > 3
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(second.id)


def test_the_sdk_streams(server, client):
    with client.responses.stream(model=server.model, input="Name a colour.", temperature=0, max_output_tokens=200) as stream:
        events = list(stream)
        final = stream.get_final_response()
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == final.output_text and final.output_text


def test_the_sdk_parses(server, client):
    fields = {"model": server.model, "input": "Describe Paris as JSON.", "temperature": 0, "max_output_tokens": 90}
    assert isinstance(client.responses.parse(**fields, text_format=City).output_parsed, City)
    tool = openai.pydantic_function_tool(City)
    response = client.responses.parse(**fields, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    assert isinstance(response.output[0].parsed_arguments, City)
    with client.responses.stream(**fields, text_format=City) as stream:
        assert isinstance(stream.get_final_response().output_parsed, City)
