# SPDX-License-Identifier: Apache-2.0
"""Agent frameworks as their users write them: a tool, and an answer of a class, in one conversation.

SmolLM2 is no agent: the tool's result tells it what to do next, and what is checked is the protocol. A call and an answer of
the schema are both ways to go on; each has to come as its framework reads it.
"""

import asyncio

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
