# SPDX-License-Identifier: Apache-2.0
"""Agent frameworks as their users write them: a tool, and an answer of a class, in one conversation.

SmolLM2 is no agent: the tool's result tells it what to do next, and what is checked is the protocol. A call and an answer of
the schema are both ways to go on; each has to come as its framework reads it.
"""

import asyncio
import json

import agents
import anthropic
import openai
import pydantic
import pydantic_ai
import pytest
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from serving import Server, user

QUESTION = "How is the weather in Paris?"
TASK = "Answer with a JSON object of city and degrees."
RESULT = "Paris: 21 degrees. Now answer with a JSON object."


class Weather(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=20)
    degrees: int = pydantic.Field(ge=-50, le=50)


@pytest.fixture
def client(server):
    """Its connections belong to the event loop of one test."""
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture
def called():
    """The cities that the tool was asked for."""
    return []


@pytest.mark.parametrize("tool_choice", ["auto", "required"])
def test_the_agents_sdk(server, client, called, tool_choice):
    """A call, its result, and the answer parsed into its class; `required` holds for the first turn only."""
    agents.set_tracing_disabled(True)

    @agents.function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return RESULT

    settings = agents.ModelSettings(temperature=0, max_tokens=96, tool_choice=tool_choice, parallel_tool_calls=False)
    agent = agents.Agent(name="weather", instructions=TASK, tools=[get_weather], output_type=Weather, model_settings=settings,
                         model=agents.OpenAIChatCompletionsModel(server.model, client))
    result = asyncio.run(agents.Runner.run(agent, QUESTION, max_turns=3))
    assert called == ["Paris"] and result.final_output.city == "Paris"


@pytest.mark.parametrize("output", [pydantic_ai.NativeOutput(Weather), pydantic_ai.ToolOutput(Weather, max_retries=0)],
                         ids=["native", "tool"])
def test_pydantic_ai(server, client, called, output):
    """As a response_format beside the tool, and as one more tool, of which one is required. The tool is offered once: this
    model would go on asking it."""
    async def once(context, definition):
        return None if called else definition

    model = OpenAIChatModel(server.model, provider=OpenAIProvider(openai_client=client))
    agent = pydantic_ai.Agent(model, output_type=output, instructions=TASK,
                              model_settings={"temperature": 0, "max_tokens": 96, "parallel_tool_calls": False})

    @agent.tool_plain(prepare=once)
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return RESULT

    result = asyncio.run(agent.run(QUESTION, usage_limits=pydantic_ai.UsageLimits(request_limit=3)))
    assert isinstance(result.output, Weather) and len(called) <= 1
    assert called or isinstance(output, pydantic_ai.ToolOutput)  # there it may answer at once


# ---- over /v1/responses, which both use by default -------------------------------------------------------------------

@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("tool_choice", ["auto", "required"])
def test_the_agents_sdk_by_default(server, client, called, tool_choice, streamed):
    agents.set_tracing_disabled(True)

    @agents.function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return RESULT

    settings = agents.ModelSettings(temperature=0, max_tokens=96, tool_choice=tool_choice, parallel_tool_calls=False,
                                    response_include=["reasoning.encrypted_content"])
    agent = agents.Agent(name="weather", instructions=TASK, tools=[get_weather], output_type=Weather, model_settings=settings,
                         model=agents.OpenAIResponsesModel(server.model, client))

    async def run():
        if not streamed:
            return await agents.Runner.run(agent, QUESTION, max_turns=3)
        result = agents.Runner.run_streamed(agent, QUESTION, max_turns=3)
        events = [event async for event in result.stream_events()]
        assert {"raw_response_event", "run_item_stream_event"} <= {event.type for event in events}
        return result

    result = asyncio.run(run())
    assert called == ["Paris"] and result.final_output.city == "Paris"
    assert result.context_wrapper.usage.requests == 2 and result.context_wrapper.usage.output_tokens > 10


@pytest.mark.parametrize("stored", [False, True])
def test_a_handoff(server, client, stored):
    """One agent hands the conversation to another, which answers; the server keeps it, or the client does."""
    agents.set_tracing_disabled(True)
    settings = agents.ModelSettings(temperature=0, max_tokens=400, store=stored, parallel_tool_calls=False)
    model = agents.OpenAIResponsesModel(server.model, client)
    cook = agents.Agent(name="cook", instructions="Say hello.", model=model, model_settings=settings)
    host = agents.Agent(name="host", instructions="Hand the question to the cook.", handoffs=[cook], model=model,
                        model_settings=settings.resolve(agents.ModelSettings(tool_choice="required")))

    async def run():
        result = await agents.Runner.run(host, "Hello!", max_turns=4, auto_previous_response_id=stored)
        return result, await agents.Runner.run(cook, [*result.to_input_list(), {"role": "user", "content": "Thanks."}])

    result, again = asyncio.run(run())
    assert result.last_agent.name == "cook" and result.final_output
    kinds = [item.type for item in result.new_items]
    assert kinds == ["handoff_call_item", "handoff_output_item", "message_output_item"]
    assert again.final_output


@pytest.mark.parametrize("output", [pydantic_ai.NativeOutput(Weather), pydantic_ai.ToolOutput(Weather, max_retries=0)],
                         ids=["native", "tool"])
@pytest.mark.parametrize("streamed", [False, True])
def test_pydantic_ai_by_default(server, client, called, output, streamed):
    async def once(context, definition):
        return None if called else definition

    model = OpenAIResponsesModel(server.model, provider=OpenAIProvider(openai_client=client))
    agent = pydantic_ai.Agent(model, output_type=output, instructions=TASK,
                              model_settings={"temperature": 0, "max_tokens": 96, "parallel_tool_calls": False})

    @agent.tool_plain(prepare=once)
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return RESULT

    async def run():
        limits = pydantic_ai.UsageLimits(request_limit=3)
        if not streamed:
            return (await agent.run(QUESTION, usage_limits=limits)).output
        async with agent.run_stream(QUESTION, usage_limits=limits) as result:
            return await result.get_output()

    assert isinstance(asyncio.run(run()), Weather) and len(called) <= 1
    assert called or isinstance(output, pydantic_ai.ToolOutput)


# ---- over /v1/messages -----------------------------------------------------------------------------------------------

def test_pydantic_ai_with_messages(server, called):
    async def once(context, definition):
        return None if called else definition

    async def run():
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as client:
            model = AnthropicModel(server.model, provider=AnthropicProvider(anthropic_client=client))
            agent = pydantic_ai.Agent(model, output_type=pydantic_ai.ToolOutput(Weather, max_retries=0), instructions=TASK,
                                      model_settings={"temperature": 0, "max_tokens": 96, "parallel_tool_calls": False})

            @agent.tool_plain(prepare=once)
            def get_weather(city: str) -> str:
                """The weather in a city."""
                called.append(city)
                return RESULT

            return (await agent.run(QUESTION, usage_limits=pydantic_ai.UsageLimits(request_limit=3))).output

    assert isinstance(asyncio.run(run()), Weather) and len(called) <= 1


# ---- a model that reasons --------------------------------------------------------------------------------------------

TEMPLATE = """{% if tools %}<|im_start|>system
{{ tools | tojson }}
<tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is not defined or enable_thinking %}<think>
{% endif %}{% endif %}"""
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"], "additionalProperties": False}


@pytest.fixture(scope="module")
def thinker(nibble, smollm2, tmp_path_factory):
    """SmolLM2 with a template that opens a thought; the budget closes it, since it has not learnt to."""
    template = tmp_path_factory.mktemp("thinker") / "template.jinja"
    template.write_text(TEMPLATE)
    with Server(nibble, smollm2, "--max-model-len", 2048, "--kv-cache-memory-bytes", "64M", "--chat-template", template,
                "--max-reasoning-tokens", 12) as server:
        yield server


@pytest.mark.parametrize("streamed", [False, True])
def test_the_anthropic_sdk_with_tools_and_thinking(thinker, streamed):
    """A thought, a call, and both again in front of the result; without thinking there is no thought."""
    fields = {"model": thinker.model, "max_tokens": 64, "extra_body": {"temperature": 0}, "thinking": {"type": "enabled", "budget_tokens": 12},
              "tools": [{"name": "get_weather", "description": "The weather in a city.", "input_schema": CITY}]}
    with anthropic.Anthropic(base_url=thinker.url, api_key="none", max_retries=0, timeout=60) as client:
        def ask(**more):
            if not streamed:
                return client.messages.create(**{**fields, **more})
            with client.messages.stream(**{**fields, **more}) as stream:
                events = [event.type for event in stream]
                assert ("thinking" in events) == (more.get("thinking", fields["thinking"])["type"] == "enabled")
                return stream.get_final_message()

        first = ask(messages=user(QUESTION), tool_choice={"type": "any", "disable_parallel_tool_use": True})
        thought, call = first.content
        assert (thought.type, call.type, first.stop_reason) == ("thinking", "tool_use", "tool_use") and thought.thinking and call.input["city"]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
        history = [*user(QUESTION), {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        kept, dropped = ([block for block in history[1]["content"] if keep or block.type != "thinking"] for keep in (True, False))
        counts = [client.messages.count_tokens(model=thinker.model, tools=fields["tools"], messages=[history[0], {"role": "assistant", "content": content},
                                                                                                   history[2]]).input_tokens for content in (kept, dropped)]
        assert counts[0] > counts[1] + 5, "the thought reaches the template"
        second = ask(messages=history, tool_choice={"type": "none"})
        assert [block.type for block in second.content] == ["thinking", "text"]
        plain = ask(messages=history, tool_choice={"type": "none"}, thinking={"type": "disabled"})
        assert [block.type for block in plain.content] == ["text"]


@pytest.mark.parametrize("streamed", [False, True])
def test_the_agents_sdk_with_a_model_that_reasons(thinker, called, streamed):
    """Reasoning items come, and go back with the calls behind them."""
    agents.set_tracing_disabled(True)

    @agents.function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(city)
        return RESULT

    async def run():
        async with openai.AsyncOpenAI(base_url=f"{thinker.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
            settings = agents.ModelSettings(temperature=0, max_tokens=128, tool_choice="required", parallel_tool_calls=False)
            agent = agents.Agent(name="weather", instructions=TASK, tools=[get_weather], output_type=Weather, model_settings=settings,
                                 model=agents.OpenAIResponsesModel(thinker.model, client))
            if not streamed:
                return await agents.Runner.run(agent, QUESTION, max_turns=3)
            result = agents.Runner.run_streamed(agent, QUESTION, max_turns=3)
            kinds = {event.data.type async for event in result.stream_events() if event.type == "raw_response_event"}
            assert {"response.reasoning_text.delta", "response.function_call_arguments.delta", "response.output_text.delta"} <= kinds
            return result

    result = asyncio.run(run())
    kinds = [item.type for item in result.new_items]
    assert kinds[:3] == ["reasoning_item", "tool_call_item", "tool_call_output_item"] and kinds[-2:] == ["reasoning_item", "message_output_item"]
    assert called and isinstance(result.final_output, Weather)
    assert result.context_wrapper.usage.output_tokens_details.reasoning_tokens > 0


def test_reasoning_in_all_apis(thinker):
    """The same answer has the same thought under each API's name for it."""
    fields = {"max_tokens": 40, "temperature": 0}
    chat = thinker.ask("/v1/chat/completions", {"messages": user(QUESTION), **fields}).json
    message = chat["choices"][0]["message"]
    thought, text = message["reasoning_content"], message["content"]
    assert thought and text and 0 < chat["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 12
    response = thinker.ask("/v1/responses", {"input": QUESTION, "max_output_tokens": 40, "temperature": 0}).json
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert response["output"][0]["content"][0]["text"] == thought and response["output"][1]["content"][0]["text"] == text
    blocks = thinker.ask("/v1/messages", {"messages": user(QUESTION), **fields}, headers={"anthropic-version": "2023-06-01"}).json["content"]
    assert blocks[0]["thinking"] == thought and blocks[1]["text"] == text
    ollama = thinker.ask("/api/chat", {"messages": user(QUESTION), "stream": False, "options": {"num_predict": 40, "temperature": 0}}).json["message"]
    assert (ollama["thinking"], ollama["content"]) == (thought, text)
    streams = {
        "/v1/messages": [json.loads(line[6:]) for line in thinker.ask("/v1/messages", {"messages": user(QUESTION), "stream": True, **fields}).body.decode()
                         .splitlines() if line.startswith("data: ")],
        "/api/chat": [json.loads(line) for line in thinker.ask("/api/chat", {"messages": user(QUESTION), "options": {
            "num_predict": 40, "temperature": 0}}).body.decode().splitlines()],
    }
    assert "".join(event.get("delta", {}).get("thinking", "") for event in streams["/v1/messages"]) == thought
    assert "".join(line["message"].get("thinking", "") for line in streams["/api/chat"]) == thought
