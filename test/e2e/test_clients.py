# SPDX-License-Identifier: Apache-2.0
"""Client libraries as their users write them, unchanged and in their default modes.

They ask for older versions of the openai SDK than the other tests, so scripts/test gives them an environment of their own
(test/requirements-clients.txt); a library that is not installed is skipped. SmolLM2 is forced into the shape of an answer
(tool_choice, a schema, max_tokens) where it would not find it: what is checked is the protocol.
"""

import asyncio
import json
import os
import typing

import pydantic
import pytest

from serving import Server, user

GREEDY = {"temperature": 0}
QUESTION = user("How is the weather in Paris?")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": SCHEMA}}
FORCED = {"type": "function", "function": {"name": "get_weather"}}


class Weather(pydantic.BaseModel):
    """The weather in a city."""

    city: str = pydantic.Field(max_length=20)
    degrees: int = pydantic.Field(ge=-50, le=50)


# ---- litellm -------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def litellm(server):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
    litellm = pytest.importorskip("litellm")
    litellm.telemetry = False
    litellm.num_retries = 0
    # litellm makes up the stream of /v1/responses of a model that is not registered.
    litellm.register_model({f"openai/{server.model}": {"litellm_provider": "openai", "mode": "chat", "supports_native_streaming": True}})
    return litellm


@pytest.fixture
def vllm(server):
    """litellm's provider for a vLLM server, at this one."""
    return {"model": f"hosted_vllm/{server.model}", "api_base": f"{server.url}/v1", "api_key": "none"}


@pytest.mark.parametrize("provider", ["hosted_vllm", "openai"])
def test_litellm(litellm, server, provider):
    where = {"model": f"{provider}/{server.model}", "api_base": f"{server.url}/v1", "api_key": "none"}
    want = server.chat("Name a colour.", max_tokens=12)["choices"][0]["message"]["content"]
    answer = litellm.completion(messages=user("Name a colour."), max_tokens=12, temperature=0, **where)
    assert answer.choices[0].message.content == want and answer.usage.completion_tokens <= 12
    chunks = litellm.completion(messages=user("Name a colour."), max_tokens=12, temperature=0, stream=True, **where)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == want


@pytest.mark.parametrize("stream", [False, True])
def test_litellm_with_tools(litellm, vllm, stream):
    fields = {"tools": [TOOL], "temperature": 0, "max_tokens": 64, **vllm}
    answer = litellm.completion(messages=QUESTION, tool_choice=FORCED, stream=stream, **fields)
    answer = litellm.stream_chunk_builder(list(answer)) if stream else answer
    message = answer.choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == "get_weather" and set(json.loads(call.function.arguments)) == {"city"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}
    assert litellm.completion(messages=[*QUESTION, message, result], tool_choice="none", **fields).choices[0].message.content


def test_litellm_structured(litellm, vllm):
    answer = litellm.completion(messages=QUESTION, response_format=Weather, max_tokens=64, temperature=0, **vllm)
    Weather.model_validate_json(answer.choices[0].message.content)


RESPONSES_TOOL = {"type": "function", **TOOL["function"]}


@pytest.mark.parametrize("provider", ["hosted_vllm", "openai"])
@pytest.mark.parametrize("stream", [False, True])
def test_litellm_responses(litellm, server, provider, stream):
    """By a bridge over chat completions, and as the provider's own API."""
    where = {"model": f"{provider}/{server.model}", "api_base": f"{server.url}/v1", "api_key": "none"}
    answer = litellm.responses(input="How is the weather in Paris?", tools=[RESPONSES_TOOL], tool_choice="required", temperature=0,
                               max_output_tokens=64, parallel_tool_calls=False, stream=stream, **where)
    if stream:
        answer = [event for event in answer if event.type == "response.completed"][-1].response
    call = next(item for item in answer.output if item.type == "function_call")
    assert call.name == "get_weather" and json.loads(call.arguments)["city"]


@pytest.mark.parametrize("stream", [False, True])
def test_litellm_by_responses(litellm, server, stream):
    """A chat that litellm sends to /v1/responses."""
    answer = litellm.completion(model=f"openai/responses/{server.model}", api_base=f"{server.url}/v1", api_key="none", messages=QUESTION,
                                tools=[TOOL], tool_choice="required", max_tokens=64, temperature=0, stream=stream)
    answer = litellm.stream_chunk_builder(list(answer)) if stream else answer
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments)["city"]


@pytest.mark.parametrize("provider", ["hosted_vllm", "openai", "anthropic"])
def test_litellm_messages(litellm, server, provider):
    """Anthropic's API in the client, over chat completions, /v1/responses or /v1/messages."""
    base = server.url if provider == "anthropic" else f"{server.url}/v1"
    answer = asyncio.run(litellm.anthropic.messages.acreate(
        model=f"{provider}/{server.model}", api_base=base, api_key="none", messages=QUESTION, max_tokens=64, temperature=0,
        tools=[{"name": "get_weather", "input_schema": SCHEMA}], tool_choice={"type": "tool", "name": "get_weather"}))
    call = next(block for block in answer["content"] if block["type"] == "tool_use")
    assert call["name"] == "get_weather" and call["input"]["city"] and answer["stop_reason"] == "tool_use"


def test_litellm_anthropic(litellm, server):
    answer = litellm.completion(model=f"anthropic/{server.model}", api_base=server.url, api_key="none", messages=QUESTION, tools=[TOOL],
                                tool_choice="required", max_tokens=64, temperature=0)
    assert json.loads(answer.choices[0].message.tool_calls[0].function.arguments)["city"]


# ---- instructor ----------------------------------------------------------------------------------------------------

INSTRUCTOR_MODES = ["TOOLS", "TOOLS_STRICT", "JSON", "JSON_SCHEMA", "JSON_O1", "MD_JSON", "PARALLEL_TOOLS", "FUNCTIONS", "RESPONSES_TOOLS",
                    "RESPONSES_TOOLS_WITH_INBUILT_TOOLS"]

INSTRUCTOR_FORCED = {"PARALLEL_TOOLS": {"tool_choice": "required", "parallel_tool_calls": False},
                     "MD_JSON": {"structured_outputs": {"json": Weather.model_json_schema()}}}


@pytest.mark.parametrize("mode", INSTRUCTOR_MODES)
def test_instructor(server, mode):
    instructor = pytest.importorskip("instructor")
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as plain:
        client = instructor.from_openai(plain, mode=instructor.Mode[mode], model=server.model)
        limit = "max_output_tokens" if "RESPONSES" in mode else "max_tokens"
        kind = typing.Iterable[Weather] if mode == "PARALLEL_TOOLS" else Weather
        forced = {"extra_body": INSTRUCTOR_FORCED[mode]} if mode in INSTRUCTOR_FORCED else {}
        question = user(f"{QUESTION[0]['content']} Answer: {{\"city\": \"Paris\", \"degrees\": 21}}")
        answer = client.chat.completions.create(messages=question, response_model=kind, max_retries=1, temperature=0, **forced, **{limit: 96})
        assert all(isinstance(entry, Weather) for entry in (answer if mode == "PARALLEL_TOOLS" else [answer]))


INSTRUCTOR_FORCED_MESSAGES = {
    "ANTHROPIC_REASONING_TOOLS": {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    "ANTHROPIC_PARALLEL_TOOLS": {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    "ANTHROPIC_JSON": {"output_config": {"format": {"type": "json_schema", "schema": {**Weather.model_json_schema(), "additionalProperties": False}}}},
}


@pytest.mark.parametrize("mode", ["ANTHROPIC_TOOLS", *INSTRUCTOR_FORCED_MESSAGES])
def test_instructor_with_messages(server, mode):
    """The modes of the anthropic SDK."""
    instructor = pytest.importorskip("instructor")
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as plain:
        client = instructor.from_anthropic(plain, mode=instructor.Mode[mode])
        kind = typing.Iterable[Weather] if mode == "ANTHROPIC_PARALLEL_TOOLS" else Weather
        question = user(f"{QUESTION[0]['content']} Answer: {{\"city\": \"Paris\", \"degrees\": 21}}")
        answer = client.messages.create(model=server.model, max_tokens=96, messages=question, response_model=kind, max_retries=1,
                                        extra_body={**GREEDY, **INSTRUCTOR_FORCED_MESSAGES.get(mode, {})})
        answers = list(answer) if mode == "ANTHROPIC_PARALLEL_TOOLS" else [answer]
        assert answers and all(isinstance(entry, Weather) for entry in answers)


# ---- outlines ------------------------------------------------------------------------------------------------------

def test_outlines(server):
    """In vLLM's mode: a type, a choice, a regex and a grammar."""
    outlines = pytest.importorskip("outlines")
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as plain:
        model = outlines.from_vllm(plain, server.model)
        fields = {"max_tokens": 64, **GREEDY}
        Weather.model_validate_json(model("How is the weather in Paris?", Weather, **fields))
        assert model("Is the sky blue?", typing.Literal["yes", "no"], **fields) in ("yes", "no")
        assert int(model("How old are you?", outlines.types.Regex("[1-9][0-9]"), **fields)) >= 10
        grammar = outlines.types.CFG('start: "(" NUMBER ")"\nNUMBER: /[0-9]{2}/')
        assert model("A number, please.", grammar, **fields)[0] == "("
        assert "".join(model.stream("Is the sky blue?", typing.Literal["yes", "no"], **fields)) in ("yes", "no")


# ---- langchain -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("responses", [False, True])
def test_langchain(server, responses):
    langchain_openai = pytest.importorskip("langchain_openai")
    model = langchain_openai.ChatOpenAI(base_url=f"{server.url}/v1", api_key="none", model=server.model, max_retries=0, temperature=0,
                                        max_tokens=96, use_responses_api=responses)
    assert model.invoke("Name a colour.").text
    assert "".join(chunk.text for chunk in model.stream("Name a colour."))
    bound = model.bind_tools([Weather], tool_choice="required", parallel_tool_calls=False)
    answer = bound.invoke("How is the weather in Paris?")
    Weather.model_validate(answer.tool_calls[0]["args"])
    history = [("user", "How is the weather in Paris?"), answer,
               {"role": "tool", "tool_call_id": answer.tool_calls[0]["id"], "content": "21 degrees"}]
    assert model.invoke(history).text
    assert isinstance(model.with_structured_output(Weather).invoke("How is the weather in Paris?"), Weather)
    assert isinstance(model.with_structured_output(Weather, method="function_calling").invoke("How is the weather in Paris?"), Weather)


# ---- agents, programs and evaluations ------------------------------------------------------------------------------

def test_smolagents(server):
    smolagents = pytest.importorskip("smolagents")

    @smolagents.tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: Its name.
        """
        return "21 degrees"

    model = smolagents.OpenAIModel(server.model, api_base=f"{server.url}/v1", api_key="none", temperature=0, max_tokens=96)
    answer = model.generate([smolagents.ChatMessage(role="user", content=[{"type": "text", "text": QUESTION[0]["content"]}])],
                            tools_to_call_from=[get_weather])
    assert answer.tool_calls[0].function.name == "get_weather"
    agent = smolagents.ToolCallingAgent(tools=[get_weather], model=model, max_steps=1, verbosity_level=0)
    steps = list(agent.run(QUESTION[0]["content"], stream=True))
    assert steps


SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"], "additionalProperties": False}


def test_dspy(server, litellm):
    dspy = pytest.importorskip("dspy")
    model = dspy.LM(f"openai/{server.model}", api_base=f"{server.url}/v1", api_key="none", temperature=0, max_tokens=64, cache=False,
                    extra_body={"structured_outputs": {"json": SURE}})
    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        assert dspy.Predict("question -> sure: bool")(question="Is the sky blue?").sure in (True, False)


def test_lm_eval(nibble, smollm2):
    """Without a tokenizer of its own: it asks /tokenizer_info and /tokenize."""
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model

    prompt, until = "The capital of Italy is", {"until": ["."], "max_gen_toks": 8}
    with Server(nibble, smollm2, "--max-model-len", 512, "--kv-cache-memory-bytes", "64M", "--enable-tokenizer-info-endpoint") as server:
        where = f"model={server.model},base_url={server.url}/v1"
        model = get_model("local-completions").create_from_arg_string(f"{where}/completions,max_retries=1")
        assert model.tokenizer_backend == "remote"
        assert model.generate_until([Instance("generate_until", {}, (prompt, until), 0)]) == [" Rome"]
        ((rome, greedy),) = model.loglikelihood([Instance("loglikelihood", {}, (prompt, " Rome"), 0)])
        ((oslo, _),) = model.loglikelihood([Instance("loglikelihood", {}, (prompt, " Oslo"), 0)])
        assert greedy and oslo < rome < 0
        model = get_model("local-chat-completions").create_from_arg_string(f"{where}/chat/completions,max_retries=1")
        assert model.generate_until([Instance("generate_until", {}, (model.apply_chat_template(QUESTION), until), 0)])[0]


def test_llama_index(server):
    module = pytest.importorskip("llama_index.llms.openai_like")
    model = module.OpenAILike(model=server.model, api_base=f"{server.url}/v1", api_key="none", max_tokens=64, temperature=0, max_retries=0,
                              is_chat_model=True, is_function_calling_model=True, context_window=2048)
    assert model.complete("Name a colour.").text
    assert "".join(chunk.delta for chunk in model.stream_complete("Name a colour."))
    assert isinstance(model.as_structured_llm(Weather).complete(QUESTION[0]["content"]).raw, Weather)


def test_guidance(server):
    guidance = pytest.importorskip("guidance")
    model = guidance.models.experimental.VLLMModel(server.model, base_url=f"{server.url}/v1", api_key="none")
    with guidance.user():
        model += "How old are you?"
    with guidance.assistant():
        model += "I am " + guidance.gen("age", regex="[1-9][0-9]") + guidance.select([" years old.", " days old."], name="unit")
    assert 10 <= int(model["age"]) <= 99 and model["unit"] in (" years old.", " days old.")
