# SPDX-License-Identifier: Apache-2.0
"""Answers that have to have a form: JSON, JSON of a schema, calls of tools. Whatever the model would rather say."""

import concurrent.futures
import json
import pathlib
import re
import sys
import time
import typing

import jsonschema
import openai
import pydantic
import pytest

import small_model
from schemas import Dice, meets
from serving import DONE, Server, text_of, user

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import json_mode  # noqa: E402


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def form_of(schema, strict=True):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}


def described(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


WORD = {"type": "string", "maxLength": 12}

SCHEMAS = {
    "flat": described(name=WORD, age={"type": "integer"}, married={"type": "boolean"}),
    "nested": described(person=described(name=WORD, home=described(city=WORD, street=WORD))),
    "array": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    "objects in an array": described(rows={"type": "array", "maxItems": 2, "minItems": 1, "items": described(id={"type": "integer"})}),
    "enum": described(colour={"enum": ["red", "green", "blue"]}, mixed={"enum": [1, None, "a", True, [1, 2]]}),
    "const": described(version={"const": 3}, kind={"const": "circle"}),
    "numbers": described(x={"type": "number"}, y={"type": "integer", "minimum": 10, "maximum": 99}),
    "optional": {"type": "object", "properties": {"a": {"type": "integer"}, "b": WORD, "c": {"type": "null"}}, "required": ["b"],
                 "additionalProperties": False},
    "string lengths": described(code={"type": "string", "minLength": 5, "maxLength": 5}, more={"type": "string", "minLength": 12}),
    "refs": {"$ref": "#/$defs/pair", "$defs": {"pair": described(left={"$ref": "#/$defs/leaf"}, right={"$ref": "#/$defs/leaf"}),
                                               "leaf": {"type": "integer"}}},
    "recursive": {"$ref": "#/$defs/tree", "$defs": {"tree": {
        "type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        "required": ["value", "children"], "additionalProperties": False}}},
    "anyOf": described(value={"anyOf": [{"type": "integer"}, {"type": "null"}, described(text=WORD)]}),
    "types": described(value={"type": ["string", "null"], "maxLength": 10}),
    "a string alone": {"type": "string", "maxLength": 30},
    "a number alone": {"type": "number"},
    "odd names": described(**{"a \"quoted\" name": {"type": "boolean"}, "naïve 🦊": {"type": "boolean"}, "": {"type": "null"}}),
}


@pytest.fixture(scope="module")
def answers(client, server):
    """To each schema, all asked at once: a greedy answer, and hot ones that are closed when their tokens run out."""
    def ask(schema):
        fields = {"model": server.model, "messages": user("Describe something."), "response_format": form_of(schema)}
        samplings = ({"temperature": 0, "max_tokens": 48},
                     {"temperature": 1.5, "seed": 1, "max_tokens": 32, "n": 2, "extra_body": {"close_at_max_tokens": True}})
        return [[(choice.message.content, choice.finish_reason) for choice in client.chat.completions.create(**fields, **sampling).choices]
                for sampling in samplings]

    with concurrent.futures.ThreadPoolExecutor(len(SCHEMAS)) as pool:
        return dict(zip(SCHEMAS, pool.map(ask, SCHEMAS.values())))


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_answer_of_a_schema(answers, name):
    """It parses and validates unless it was cut off; where it is closed, in any case."""
    greedy, closed = answers[name]
    for answer, reason in greedy + closed:
        assert reason in ("stop", "length")
        if reason == "stop" or (answer, reason) in closed:
            jsonschema.validate(json.loads(answer), SCHEMAS[name], jsonschema.Draft202012Validator)


def test_answers_end_by_themselves(answers):
    """Which ones do depends on how a CPU rounds: here a third must."""
    ended = sum(greedy[0][1] == "stop" for greedy, _ in answers.values())
    print(f"{ended} of {len(SCHEMAS)} answers ended by themselves")
    assert ended > len(SCHEMAS) / 3


def test_schemas_at_random(nibble, smollm2, tmp_path):
    """A model that says nothing sensible, hot: what is neither refused nor given up validates."""
    model = small_model.write(smollm2, tmp_path / "small.gguf")
    answered = []

    def ask(seed):
        dice = Dice(seed)
        schema = {**dice.schema(3), "$defs": {"other": dice.schema(1)}}
        answer = server.ask("/v1/chat/completions", {
            "messages": user("Hi"), "max_tokens": dice.choice([40, 80]), "temperature": dice.choice([0, 1, 2]), "seed": seed, "n": 2,
            "response_format": form_of(schema), "close_at_max_tokens": True})
        if answer.status in (400, 422):
            return
        for choice in answer.json["choices"]:
            value = json.loads(choice["message"]["content"])
            if choice["finish_reason"] == "stop":  # one that was closed is not checked
                meets(schema, value)
        answered.append(seed)

    with Server(nibble, str(model), "--max-model-len", 512) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(100)))
    assert len(answered) > 50


def test_the_schema_streams(client, server):
    fields = {"model": server.model, "messages": user("Who are you?"), "response_format": form_of(SCHEMAS["flat"]), "temperature": 0,
              "max_tokens": 48}
    whole = client.chat.completions.create(**fields).choices[0].message.content
    streamed = client.chat.completions.create(stream=True, **fields)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == whole


class Step(pydantic.BaseModel):
    text: str = pydantic.Field(max_length=10)
    number: int = pydantic.Field(ge=0, le=99)


class Party(pydantic.BaseModel):
    title: str = pydantic.Field(max_length=20)
    steps: list[Step] = pydantic.Field(max_length=2)
    colour: typing.Literal["red", "blue"]
    note: typing.Optional[typing.Annotated[str, pydantic.Field(max_length=10)]]


class Weather(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=10)


def test_the_clients_own_helpers(client, server):
    """Classes in, objects out; the helpers raise when an answer was cut off."""
    chats, common = client.chat.completions, {"model": server.model, "temperature": 0}
    fields = {**common, "messages": user("Plan a party."), "response_format": Party, "max_tokens": 160}
    party = chats.parse(**fields).choices[0].message.parsed
    assert isinstance(party, Party)
    with chats.stream(**fields) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == party
    with pytest.raises(openai.LengthFinishReasonError):
        chats.parse(**{**fields, "max_tokens": 12})
    fields = {**common, "messages": user("How is Rome?"), "tools": [openai.pydantic_function_tool(Weather)], "tool_choice": "required",
              "parallel_tool_calls": False, "max_tokens": 64}
    (called,) = chats.parse(**fields).choices[0].message.tool_calls
    assert isinstance(called.function.parsed_arguments, Weather)
    with chats.stream(**fields) as stream:
        (streamed,) = stream.get_final_completion().choices[0].message.tool_calls
    assert streamed.function == called.function


CATS = {"messages": user("Describe a cat as a JSON object with name, age and colour."), "response_format": {"type": "json_object"},
        "temperature": 0}


@pytest.mark.parametrize("max_tokens", [8, 12, 20])
def test_any_json_object(server, max_tokens):
    """Cut at max_tokens, it says so and is the beginning of what it would have been; closed there, it says so, too."""
    whole = server.chat(**CATS, max_tokens=64)["choices"][0]
    assert whole["finish_reason"] == "stop" and isinstance(json.loads(whole["message"]["content"]), dict)
    cut = server.chat(**CATS, max_tokens=max_tokens)
    assert cut["choices"][0]["finish_reason"] == "length" and cut["usage"]["completion_tokens"] == max_tokens
    assert whole["message"]["content"].startswith(cut["choices"][0]["message"]["content"])
    closed = server.chat(**CATS, max_tokens=max_tokens, close_at_max_tokens=True)["choices"][0]
    assert closed["finish_reason"] == "length" and isinstance(json.loads(closed["message"]["content"]), dict)
    streamed = [event["choices"][0] for event in server.events("/v1/chat/completions", {**CATS, "max_tokens": max_tokens}) if event != DONE]
    assert streamed[-1]["finish_reason"] == "length"


def test_closing_changes_nothing_that_ends_by_itself(server):
    assert (server.chat(**CATS, max_tokens=64, close_at_max_tokens=True)["choices"][0]
            == server.chat(**CATS, max_tokens=64)["choices"][0])


def test_closing_needs_a_form(server):
    error = server.refuse("/v1/chat/completions", {"messages": user("Hi"), "max_tokens": 8, "close_at_max_tokens": True})
    assert error["param"] == "close_at_max_tokens" and "response_format" in error["message"]


def test_white_space_is_the_models_choice(server):
    """SmolLM2 writes an object over several lines, and its first keys are names. Forced to a quote behind the brace, it wrote
    garbage in a quarter of these answers (bench/json_mode.py)."""
    assert server.chat(**CATS, max_tokens=8)["choices"][0]["message"]["content"].startswith('{\n  "name"')
    prompts = [f"Describe {thing} as a JSON object with {fields}." for thing, fields in json_mode.THINGS.items()]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda pair: json_mode.ask(server, pair[1], temperature=1, seed=pair[0], max_tokens=16), enumerate(prompts)))
    garbage = [answer["message"]["content"] for answer in answers if json_mode.is_garbage(answer["message"]["content"])]
    assert len(prompts) == 40 and len(garbage) <= 2, garbage


def test_tight_lengths(server):
    """Closed in time, from the shortest answer there is to a comfortable one: refused with the number, or whole."""
    schema = described(name=WORD, tags={"type": "array", "items": WORD, "minItems": 2})
    request = {"messages": user("Describe a tree."), "response_format": form_of(schema), "temperature": 0, "close_at_max_tokens": True}
    shortest = next(count for count in range(2, 40) if
                    server.ask("/v1/chat/completions", {**request, "max_tokens": count}).status == 200)
    assert shortest > 5
    error = server.refuse("/v1/chat/completions", {**request, "max_tokens": shortest - 1})
    assert error["param"] == "max_tokens" and str(shortest) in error["message"]
    for count in range(shortest, shortest + 12, 3):
        choice = server.chat(**{**request, "max_tokens": count})["choices"][0]
        jsonschema.validate(json.loads(choice["message"]["content"]), schema)
        assert choice["finish_reason"] == "length"
    cut = server.chat(**{**request, "max_tokens": 2, "close_at_max_tokens": False})["choices"][0]
    assert cut["finish_reason"] == "length"


@pytest.mark.parametrize("schema, word", [
    ({"type": "object", "patternProperties": {"^a": 1}}, "patternProperties"),
    ({"type": "integer", "multipleOf": 0}, "multipleOf"),
    ({"type": "array", "uniqueItems": 3}, "uniqueItems"),
    ({"not": {}}, "no answer"),
    ({"type": "string", "pattern": "(a"}, "pattern"),
    ({"type": "colour"}, "type"),
    ({"$ref": "#/$defs/absent"}, "absent"),
    ({"type": "string", "minLength": 5, "maxLength": 2}, "Length"),
    ({"type": "object", "properties": [1]}, "properties"),
    (5, "schema"),
])
@pytest.mark.parametrize("strict", [True, False])
def test_what_is_no_schema_is_refused(server, schema, word, strict):
    error = server.refuse("/v1/chat/completions", {"messages": user("Hi"), "max_tokens": 64, "response_format": form_of(schema, strict)})
    assert error["param"] == "response_format" and word in error["message"]


def warning_of(server, answer):
    """What the log's line of this answer warns of, "" for nothing. The line comes when the answer is out."""
    for _ in range(3000):
        for line in server.log:
            if answer["id"] in line:
                found = re.search(r'warning="((?:[^"\\\\]|\\\\.)*)"', line)
                return found.group(1) if found else ""
        time.sleep(0.01)
    raise AssertionError("the log has no line of " + answer["id"])


@pytest.mark.parametrize("keyword, value", [("$dynamicRef", "#x"), ("$ref", "http://example.org/schema"), ("$ref", "#anchor"),
                                            ("pattern", "^[a-z]{1,1000000}$"), ("pattern", "(?<=a+)b")])
def test_what_nobody_can_hold(server, keyword, value):
    """Named in a 400 where strictness is asked for, in the log where it is not; the rest is held."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 8, keyword: value}}, "required": ["a"]}
    request = {"messages": user("Hi"), "max_tokens": 64}
    error = server.refuse("/v1/chat/completions", {**request, "response_format": form_of(schema)})
    assert f"'{keyword}' at #/properties/a" in error["message"] and "strict" in error["message"]
    answer = server.chat(**request, response_format=form_of(schema, strict=False))
    assert len(json.loads(answer["choices"][0]["message"]["content"])["a"]) <= 8
    assert warning_of(server, answer) == f"not enforced: '{keyword}' at #/properties/a"


# ---- what masks do not hold alone -----------------------------------------------------------------------------------

TWINS = {"type": "string", "pattern": "^(Q|ß)\\1$", "maxLength": 3}  # a back reference: no mask follows it
COINS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 2, "uniqueItems": True}


def test_an_answer_that_fails_its_check_is_generated_again(server):
    """With another draw, and the same one each time. Tokens of all attempts are counted, only the last answer is sent."""
    request = {"messages": user("Two dice?"), "response_format": form_of(COINS), "temperature": 0.8, "max_tokens": 64}
    seen = {}
    for seed in range(40):
        answer = server.chat(**request, seed=seed)
        content = answer["choices"][0]["message"]["content"]
        if answer["choices"][0]["finish_reason"] == "length":
            continue
        jsonschema.validate(json.loads(content), COINS, jsonschema.Draft202012Validator)
        attempt = (warning_of(server, answer) or "attempt 1")[-1]
        seen.setdefault(attempt, (seed, content, answer["usage"]))
        if {"1", "2"} <= seen.keys():
            break
    (_, _, once), (seed, content, twice) = seen["1"], seen["2"]
    assert twice["completion_tokens"] > once["completion_tokens"] and twice["prompt_tokens"] == once["prompt_tokens"]
    assert server.chat(**request, seed=seed)["choices"][0]["message"]["content"] == content
    assert text_of(server.events("/v1/chat/completions", {**request, "seed": seed})) == content


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_never_meets_its_schema(server, stream):
    """An error that names the keyword, or where strictness was not asked for, the last answer and a warning."""
    request = {"messages": user("Hi"), "temperature": 0, "max_tokens": 24, "stream": stream}
    failed = server.ask("/v1/chat/completions", {**request, "response_format": form_of(described(twins=TWINS))})
    assert failed.status == (200 if stream else 422)
    assert b"3 answers were generated" in failed.body and b"'pattern' at #/properties/twins does not hold for /twins" in failed.body
    given = server.ask("/v1/chat/completions", {**request, "stream": False, "response_format": form_of(described(twins=TWINS), strict=False)})
    assert given.status == 200 and "'pattern' at #/properties/twins" in warning_of(server, given.json)


def test_a_part_of_an_answer_is_not_checked(server):
    """What a stop string cuts off cannot be valid, and says so itself."""
    choice = server.chat("Hi", response_format=form_of(described(twins=TWINS)), stop="tw")["choices"][0]
    assert choice["stop_reason"] == "tw" and "tw" not in choice["message"]["content"]


@pytest.mark.parametrize("strict", [True, False])
def test_the_arguments_of_a_forced_call_are_checked(server, strict):
    called = tool("match", twins=TWINS)
    called["function"]["strict"] = strict
    answer = server.ask("/v1/chat/completions", {"messages": user("Hi"), "tools": [called], "tool_choice": "required", "temperature": 0,
                                                 "max_tokens": 64, "parallel_tool_calls": False})
    if strict:
        assert answer.status == 422 and "the arguments of match: 'pattern' at #/properties/twins" in answer.error["message"]
    else:
        assert answer.json["choices"][0]["finish_reason"] == "tool_calls" and "'pattern'" in warning_of(server, answer.json)


def test_other_fields_hold_too(server):
    """A stop string, a seed and logprobs go with a form."""
    answer = server.chat("Hi", response_format=form_of(SCHEMAS["flat"]), logprobs=True, max_tokens=64)
    choice = answer["choices"][0]
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    stopped = server.chat("Hi", response_format=form_of(SCHEMAS["flat"]), stop='"age"', max_tokens=64)["choices"][0]
    assert choice["message"]["content"].startswith(stopped["message"]["content"]) and stopped["stop_reason"] == '"age"'


# ---- tools ---------------------------------------------------------------------------------------------------------

def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "description": f"The tool {name}.", "parameters": described(**properties)}}


TOOLS = [tool("get_weather", city={"type": "string", "maxLength": 20}, unit={"enum": ["celsius", "fahrenheit"]}),
         tool("add", a={"type": "integer"}, b={"type": "integer"})]


def check_calls(calls):
    for call in calls:
        assert call.type == "function" and call.id.startswith("call_")
        parameters = next(one["function"]["parameters"] for one in TOOLS if one["function"]["name"] == call.function.name)
        jsonschema.validate(json.loads(call.function.arguments), parameters)


def gather(stream):
    """A streamed chat with calls: its content, the calls as (id, name, arguments), and how it ended."""
    content, calls, reason = "", [], None
    for chunk in stream:
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        for delta in choice.delta.tool_calls or []:
            if delta.index == len(calls):
                assert delta.id and delta.type == "function" and delta.function.name
                calls.append([delta.id, delta.function.name, ""])
            else:
                assert delta.index == len(calls) - 1 and not delta.id and not delta.function.name
            calls[delta.index][2] += delta.function.arguments or ""
        reason = choice.finish_reason or reason
    return content, calls, reason


@pytest.fixture(scope="module")
def call(client, server):
    def ask(tool_choice, content="What is the weather in Paris?", **fields):
        fields = {"temperature": 0, "max_tokens": 40, "tools": TOOLS, **fields}
        messages = user(content) if isinstance(content, str) else content
        return client.chat.completions.create(model=server.model, messages=messages, tool_choice=tool_choice, **fields)
    return ask


def compare(whole, stream):
    content, calls, reason = gather(stream)
    message = whole.choices[0].message
    assert content == (message.content or "") and reason == whole.choices[0].finish_reason
    assert [one[1:] for one in calls] == [[one.function.name, one.function.arguments] for one in message.tool_calls or []]


@pytest.mark.parametrize("content", ["What is the weather in Paris?", "Add 3 and 4.", "Hello!"])
def test_a_required_call(call, content):
    for choice in call("required", content, temperature=1.2, seed=4, n=3, max_tokens=64).choices:
        calls, whole = choice.message.tool_calls, choice.finish_reason == "tool_calls"
        assert whole or choice.finish_reason == "length"  # a further call was cut off
        assert calls and not (whole and choice.message.content)
        check_calls(calls if whole else calls[:1])


def test_a_named_call(call):
    choice = call({"type": "function", "function": {"name": "add"}}).choices[0]
    assert [one.function.name for one in choice.message.tool_calls] == ["add"] and choice.finish_reason == "tool_calls"
    check_calls(choice.message.tool_calls)


def test_one_call_at_most(call):
    for choice in call("required", parallel_tool_calls=False, temperature=1.2, seed=1, n=4).choices:
        assert len(choice.message.tool_calls) == 1


def called(*cities):
    """What the assistant said when it asked for the weather in these."""
    return {"role": "assistant", "content": None, "tool_calls": [
        {"id": f"call_{city}", "type": "function", "function": {"name": "get_weather", "arguments": json.dumps({"city": city, "unit": "celsius"})}}
        for city in cities]}


PAIRS = [*user("Weather in Paris and Rome?"), called("Paris", "Rome"), *user("Weather in Oslo and Bonn?"), called("Oslo", "Bonn"),
         *user("Weather in Berlin and London?")]


@pytest.mark.parametrize("stream", [False, True])
def test_one_call_when_the_model_likes_two(call, stream):
    """parallel_tool_calls false holds without a mask, too: the answer ends with its first call."""
    def ask(**fields):
        answer = call("auto", PAIRS, max_tokens=96, stream=stream, **fields)
        if stream:
            return gather(answer)
        message = answer.choices[0].message
        return message.content or "", [[one.id, one.function.name, one.function.arguments] for one in message.tool_calls], answer.choices[0].finish_reason

    _, both, _ = ask()
    content, (first,), reason = ask(parallel_tool_calls=False)
    assert len(both) == 2 and first[1:] == both[0][1:] and reason == "tool_calls" and not content


def test_tools_beside_a_response_format(call):
    """With auto the model does either; a call that is required comes now; with none the schema holds."""
    schema = described(city=WORD, degrees={"type": "integer", "minimum": -50, "maximum": 50})

    def ask(tool_choice, content):
        choice = call(tool_choice, content, max_tokens=96, response_format=form_of(schema)).choices[0]
        assert choice.finish_reason == ("tool_calls" if choice.message.tool_calls else "stop")
        if not choice.message.tool_calls:
            jsonschema.validate(json.loads(choice.message.content), schema)
        check_calls(choice.message.tool_calls or [])
        return len(choice.message.tool_calls or [])

    assert ask("auto", PAIRS) == 2 and ask("auto", "The weather in Paris as JSON, please.") == 0
    assert ask("none", PAIRS) == 0
    assert ask({"type": "function", "function": {"name": "add"}}, "The weather in Paris as JSON, please.") == 1


def test_calls_stream(call):
    for choice in ("required", "auto"):
        compare(call(choice), call(choice, stream=True))


def test_no_calls(call, server):
    message = call("none", max_tokens=12).choices[0].message
    assert not message.tool_calls
    assert message.content == server.chat("What is the weather in Paris?", max_tokens=12)["choices"][0]["message"]["content"]


def test_calls_when_the_model_likes(call):
    choice = call("auto", max_tokens=32).choices[0]
    assert choice.message.content or choice.message.tool_calls
    assert (choice.finish_reason == "tool_calls") == bool(choice.message.tool_calls)


def test_a_call_ends_the_answer(call):
    """Even where the model's end token is to be ignored."""
    choice = call("required", max_tokens=64, parallel_tool_calls=False, extra_body={"ignore_eos": True}).choices[0]
    assert choice.finish_reason == "tool_calls" and not choice.message.content


def test_tight_calls(server):
    request = {"messages": user("Hi"), "tools": TOOLS[1:], "tool_choice": "required", "temperature": 0, "close_at_max_tokens": True}
    assert server.refuse("/v1/chat/completions", {**request, "max_tokens": 3})["param"] == "max_tokens"
    answer = server.chat(**request, max_tokens=32)["choices"][0]
    jsonschema.validate(json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"]), TOOLS[1]["function"]["parameters"])


WRITER = {"messages": user("Write a poem."), "tools": [tool("write", text={"type": "string", "minLength": 200})], "tool_choice": "required",
          "temperature": 0}


@pytest.mark.parametrize("max_tokens, closed", [(4, False), (40, False), (120, True)])
def test_a_call_that_is_cut_off(server, max_tokens, closed):
    """It says length, whole and streamed, so that nobody stores half a file; its arguments are as far as they came."""
    request = {**WRITER, "max_tokens": max_tokens, "close_at_max_tokens": closed}
    choice = server.chat(**request)["choices"][0]
    assert choice["finish_reason"] == "length"
    events = [event["choices"][0] for event in server.events("/v1/chat/completions", request) if event != DONE]
    assert events[-1]["finish_reason"] == "length"
    calls = choice["message"].get("tool_calls", [])
    deltas = [delta["function"]["arguments"] for event in events for delta in event["delta"].get("tool_calls", [])]
    assert "".join(deltas) == "".join(call["function"]["arguments"] for call in calls)
    if closed:
        assert len(json.loads(calls[0]["function"]["arguments"])["text"]) >= 200
    else:
        assert len(calls) == (max_tokens == 40)
        for call in calls:
            with pytest.raises(json.JSONDecodeError):
                json.loads(call["function"]["arguments"])


def test_a_conversation_with_calls(call, server):
    """Earlier calls and their results are part of the prompt."""
    called = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris", "unit": "celsius"}'}}
    messages = [*user("What is the weather in Paris?"), {"role": "assistant", "content": None, "tool_calls": [called]},
                {"role": "tool", "tool_call_id": "call_1", "content": "It is snowing, -3 degrees."}]
    answer = call("auto", messages, max_tokens=24)
    assert answer.choices[0].message.content or answer.choices[0].message.tool_calls
    assert answer.usage.prompt_tokens > call("auto", messages[:1], max_tokens=1).usage.prompt_tokens
    tokens = server.ask("/tokenize", {"messages": messages, "tools": TOOLS}).json["tokens"]
    prompt = server.ask("/detokenize", {"tokens": tokens}).json["prompt"]
    assert "snowing" in prompt and "celsius" in prompt and prompt.count("get_weather") >= 2


def test_arguments_come_as_they_are_made(server):
    """A long argument is not held back until its end."""
    tools = [tool("write", text={"type": "string", "minLength": 40, "maxLength": 60})]
    request = {"messages": user("Write a poem."), "tools": tools, "tool_choice": "required", "max_tokens": 60, "temperature": 0}
    events = [event for event in server.events("/v1/chat/completions", request) if event != DONE]
    pieces = [event for event in events if event["choices"][0]["delta"].get("tool_calls")]
    assert len(pieces) > 5
