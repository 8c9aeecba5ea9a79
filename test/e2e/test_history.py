# SPDX-License-Identifier: Apache-2.0
"""Conversations with tools and thoughts, as clients send them, in the prompts of all published chat templates.

Three tests of each prompt: jinja2, set up the way transformers does it, prints the same for messages in the shape that SHAPES says the
template wants (nibble finds that shape by itself); calls and results stand in it as the model's family writes them; nothing is refused but what
REFUSED lists.
"""

import copy
import hashlib
import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from test_template import expected

# ---- conversations, as clients send them ------------------------------------------------------------------------------

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather at a place", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Where"}, "days": {"type": "integer", "description": "How many"}},
    "required": ["city"]}}}
TOOLS = {"tools": [WEATHER]}
ON, OFF = {"enable_thinking": True, "thinking": True}, {"enable_thinking": False, "thinking": False}


def chat_message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(city, days, number, arguments=json.dumps):
    return {"id": number, "type": "function", "function": {"name": "get_weather", "arguments": arguments({"city": city, "days": days})}}


def called(*calls, content=None, **more):
    return chat_message("assistant", content, tool_calls=list(calls), **more)


def result(text, number):
    return chat_message("tool", text, tool_call_id=number)


SYSTEM, DEVELOPER, ASK = chat_message("system", "You are terse."), chat_message("developer", "Be brief."), chat_message("user", "Weather in Oslo and Rome?")
OSLO, ROME = call("Oslo", 2, "call_a"), call("Rome", 3, "call_b")
PARTS = [{"type": "text", "text": "R1"}]
THINKING_PARTS = [{"type": "thinking", "thinking": "THOUGHT"}, {"type": "text", "text": "Let me look."}]

CONVERSATIONS = {
    "plain": {"messages": [chat_message("user", "Hello")]},
    "system": {"messages": [SYSTEM, chat_message("user", "Hello")]},
    "developer": {"messages": [DEVELOPER, chat_message("user", "Hello")]},
    "system and developer": {"messages": [SYSTEM, DEVELOPER, chat_message("user", "Hello")]},
    "late system": {"messages": [SYSTEM, chat_message("user", "Hello"), chat_message("assistant", "Hi"), DEVELOPER, chat_message("user", "Again")]},
    "tools": {"messages": [SYSTEM, ASK], **TOOLS},
    "one": {"messages": [ASK, called(OSLO), result("R1", "call_a")], **TOOLS},
    "one, no tools": {"messages": [ASK, called(OSLO), result("R1", "call_a")]},
    "an object": {"messages": [ASK, called(call("Oslo", 2, "call_a", dict), content=""), result("R1", "call_a")], **TOOLS},
    "without ids": {"messages": [ASK, called(call("Oslo", 2, None), content=""), chat_message("tool", "R1")], **TOOLS},
    "content and call": {"messages": [ASK, called(OSLO, content="Let me look."), result(PARTS, "call_a")], **TOOLS},
    "two": {"messages": [ASK, called(OSLO, ROME), result("R1", "call_a"), result("R2", "call_b")], **TOOLS},
    "two, the later first": {"messages": [ASK, called(OSLO, ROME), result("R2", "call_b"), result("R1", "call_a")], **TOOLS},
    "answered": {"messages": [SYSTEM, ASK, called(OSLO), result("R1", "call_a"), chat_message("assistant", "Warm."), chat_message("user", "And?")], **TOOLS},
    "two turns": {"messages": [ASK, called(OSLO), result("R1", "call_a"), chat_message("assistant", "Warm."), chat_message("user", "And?"), called(ROME),
                               result("R2", "call_b")], **TOOLS},
    "thought": {"messages": [chat_message("user", "2+2?"), chat_message("assistant", "4", reasoning_content="THOUGHT"), chat_message("user", "3+3?")]},
    "thought and call": {"messages": [ASK, called(OSLO, reasoning="THOUGHT"), result("R1", "call_a")], **TOOLS},
    "thought, content and call": {"messages": [ASK, called(OSLO, content="Let me look.", thinking="THOUGHT"), result("R1", "call_a")], **TOOLS},
    "thought in a part": {"messages": [ASK, called(OSLO, content=THINKING_PARTS), result("R1", "call_a")], **TOOLS},
}
for _name in ("plain", "tools", "one", "thought", "thought and call"):
    CONVERSATIONS[_name + ", thinking"] = {**CONVERSATIONS[_name], **ON}
    CONVERSATIONS[_name + ", not thinking"] = {**CONVERSATIONS[_name], **OFF}

# ---- what each template wants -------------------------------------------------------------------------------------------

USUAL = {"thought": None, "one_system": False, "one_call": False, "ids": None, "calls": True, "results": True, "arguments": "object",
         "content": "", "json_results": False, "calls_apart": False, "joins_thought": False, "words": False, "list": False}
KEY = {"thought": "reasoning_content"}
SHAPES = {  # where it differs from USUAL
    "Apertus-8B-Instruct": {"one_system": True},
    "Apriel-1.6-15b-Thinker-fixed": KEY,
    "Bielik-11B-v3.0-Instruct": {**KEY, "one_system": True},
    "ByteDance-Seed-OSS": KEY,
    "Cohere2MoE": KEY,
    "CohereForAI-c4ai-command-r-plus-tool_use": {"list": True},
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": KEY,
    "GLM-4.6": KEY,
    "GLM-4.7-Flash": KEY,
    "GigaChat3-10B-A1.8B": {"one_call": True},
    "GigaChat3.1-10B-A1.8B": {"one_call": True},
    "HuggingFaceTB-SmolLM3-3B": {"calls": False, "one_system": True, "words": True},
    "Kimi-K2-Instruct": {"ids": "named"},
    "Kimi-K2-Thinking": {**KEY, "ids": "named"},
    "Kimi-K3": KEY,
    "LFM2-8B-A1B": {"calls": False},
    "LFM2.5-8B-A1B": {"thought": "thinking"},
    "LFM2.5-Instruct": {"calls": False},
    "MiniMax-M1": {"one_system": True},
    "MiniMax-M2": {**KEY, "one_system": True},
    "MiniMax-M3": {**KEY, "one_system": True},
    "Mistral-Small-3.2-24B-Instruct-2506": {"ids": "nine", "one_system": True},
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": KEY,
    "NVIDIA-Nemotron-Nano-v2": {"one_system": True},
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": {"list": True},
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": {"list": True},
    "Qwen-Qwen3-0.6B": KEY,
    "Qwen3.5-4B": {**KEY, "one_system": True},
    "Reka-Edge": {**KEY, "one_system": True},
    "Spark2.5": KEY,
    "StepFun3.5-Flash": KEY,
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": {"arguments": "text", "content": None, "calls_apart": True, "one_system": True, "words": True},
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": {"one_system": True, "words": True},
    "deepseek-ai-DeepSeek-V3.1": {"words": True},
    "deepseek-ai-DeepSeek-V3.2": KEY,
    "deepseek-ai-DeepSeek-V4": KEY,
    "deepseek-ai-DeepSeek-V4-Flash-0731": KEY,
    "google-gemma-2-2b-it": {"calls": False, "results": False, "words": True},
    "google-gemma-4-31B-it": KEY,
    "google-gemma-4-31B-it-interleaved": KEY,
    "ibm-granite-granite-3.3-2B-Instruct": {"calls": False},
    "inclusionai-ling-3.0-flash": KEY,
    "llama-cpp-deepseek-r1": {"calls_apart": True, "one_system": True, "words": True},
    "llama-cpp-rwkv-world": {"calls": False, "results": False, "one_system": True, "words": True},
    "meetkai-functionary-medium-v3.2": {"arguments": "text"},
    "meta-llama-Llama-3.1-8B-Instruct": {"one_call": True},
    "meta-llama-Llama-3.2-3B-Instruct": {"one_call": True},
    "meta-llama-Llama-3.3-70B-Instruct": {"one_call": True},
    "microsoft-Phi-3.5-mini-instruct": {"calls": False, "results": False, "words": True},
    "mistralai-Ministral-3-14B-Reasoning-2512": {"thought": "block", "one_system": True},
    "mistralai-Mistral-Nemo-Instruct-2407": {"ids": "nine", "json_results": True, "one_system": True},
    "moonshotai-Kimi-K2": {"ids": "named"},
    "muse-glimmer": KEY,
    "openai-gpt-oss-120b": {"thought": "thinking", "one_call": True, "joins_thought": True, "one_system": True},
    "openbmb-MiniCPM5-1B": KEY,
    "poolside-Laguna-S-2.1": KEY,
    "poolside-Laguna-XS-2.1": KEY,
    "poolside-Laguna-XS.2": KEY,
    "tencent-Hy3": KEY,
    "upstage-Solar-Open-100B": {"thought": "reasoning"},
}
NO_SYSTEM = "System role not supported"  # the template's own words
REFUSED = {  # what no shape of the messages would help
    "fireworks-ai-llama-3-firefunction-v2": ("'functions' is undefined", CONVERSATIONS),  # a variable of its own, which no client sends
    "google-gemma-2-2b-it": (NO_SYSTEM, ["system", "developer", "system and developer", "late system", "tools", "tools, thinking",
                                         "tools, not thinking", "answered"]),
}

# How the family writes one call (get_weather, Oslo, 2) and its result R1.
JSON_CALL = '{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}'
HERMES = f"<tool_call>\n{JSON_CALL}\n</tool_call>"
IN_RESPONSE = "<tool_response>\nR1\n</tool_response>"
XML_BODY = "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>"
GLM = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
GLM_LINE = GLM.replace("\n", "")
LLAMA = '{"name": "get_weather", "parameters": {"city": "Oslo", "days": 2}}<|eot_id|>'
ARGUMENTS = '{"city": "Oslo", "days": 2}'
DSML = ('<｜DSML｜{0}>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜{0}>')
MINIMAX = "]<]minimax[>["
K2 = f"<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>"
V3 = f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
COHERE = '[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo", "days": 2}}\n]<|END_ACTION|>'
GEMMA_4 = '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:2}<tool_call|>'
NINE = "[0-9A-Za-z]{9}"


def exactly(call_text, result_text):
    return re.escape(call_text), re.escape(result_text)


FAMILIES = {
    "Apertus": exactly('<|tools_prefix|>[{"get_weather": {"city": "Oslo", "days": 2}}]<|tools_suffix|>', "[R1]"),
    "Apriel-1.6": exactly(f'<tool_calls>[{JSON_CALL[:-1]}, "id": "call_a"}}]</tool_calls>', "<|begin_tool_result|>\nR1"),
    "unsloth-Apriel": exactly(f'<tool_calls>[{JSON_CALL[:-1]}, "id": "call_a"}}]</tool_calls>', "<|tool_result|>\nR1"),
    "Bielik": exactly(HERMES, "<|im_start|>user\n<|function_output|>R1"),
    "ByteDance": exactly("<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n<parameter=days>2</parameter>\n</function>\n"
                         "</seed:tool_call>", "<seed:bos>tool\nR1<seed:eos>"),
    "Cohere2MoE": exactly(COHERE, '"0": {"content": "R1"}'),
    "CohereForAI-c4ai-command-r7b": exactly(COHERE, '"0": "R1"'),
    "CohereForAI-c4ai-command-r-plus": exactly('"tool_name": "get_weather",\n        "parameters": {\n            "city": "Oslo",\n            "days": 2\n',
                                               "<results>\nR1</results>"),
    "GLM-4.6": exactly(GLM, "<|observation|>\n" + IN_RESPONSE),
    "GLM-4.7": exactly(GLM_LINE, "<|observation|><tool_response>R1</tool_response>"),
    "GigaChat3-": exactly("function call<|role_sep|>\n" + JSON_CALL, "function result<|role_sep|>\nR1"),
    "GigaChat3.1": exactly("<|function_call|>" + JSON_CALL, "function result<|role_sep|>\nR1"),
    "HuggingFaceTB-SmolLM3": ("get_weather.*Oslo", re.escape("<|im_start|>user\n") + ".*R1"),
    "Kimi-K2": exactly(K2, "<|im_system|>get_weather<|im_middle|>## Return of functions.get_weather:0\nR1<|im_end|>"),
    "moonshotai-Kimi-K2": exactly(K2, "## Return of functions.get_weather:0\\nR1<|im_end|>"),
    "Kimi-K3": exactly('<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|>'
                       '<|open|>argument key="days" type="number"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|>',
                       '<|open|>message role="tool" tool="get_weather" index="1"<|sep|>R1<|close|>message<|sep|>'),
    "LFM2-": ("get_weather.*Oslo", re.escape("<|tool_response_start|>R1<|tool_response_end|>")),
    "LFM2.5-8B": exactly("<|tool_call_start|>[get_weather(city='Oslo', days=2)]<|tool_call_end|>", "<|im_start|>tool\nR1<|im_end|>"),
    "LFM2.5-Instruct": ("get_weather.*Oslo", re.escape("<|im_start|>tool\nR1<|im_end|>")),
    "MiMo": exactly(HERMES, "<|im_start|>user\n" + IN_RESPONSE),
    "MiniMax-M1": exactly(f"<tool_calls>\n{JSON_CALL}\n</tool_calls>", "tool result: R1"),
    "MiniMax-M2": exactly('<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n<parameter name="days">2</parameter>\n'
                          "</invoke>\n</minimax:tool_call>", "]~b]tool\n<response>R1</response>[e~["),
    "MiniMax-M3": exactly('P<tool_call>\nP<invoke name="get_weather">P<city>OsloP</city>P<days>2P</days>P</invoke>\nP</tool_call>'.replace("P", MINIMAX),
                          "]~b]tool\n<response>R1</response>[e~["),
    "Mistral-Small": (rf"\[TOOL_CALLS\]get_weather\[CALL_ID\]({NINE})\[ARGS\]" + re.escape(ARGUMENTS + "</s>"),
                      rf"\[TOOL_RESULTS\]{NINE}\[TOOL_CONTENT\]R1\[/TOOL_RESULTS\]"),
    "mistralai-Mistral-Nemo": (re.escape("[TOOL_CALLS][" + JSON_CALL[:-1] + ', "id": "') + NINE + re.escape('"}]</s>'),
                               r'\[TOOL_RESULTS\]\{"content": "R1", "call_id": "' + NINE + r'"\}\[/TOOL_RESULTS\]'),
    "mistralai-Ministral": exactly(f"[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}</s>", "[TOOL_RESULTS]R1[/TOOL_RESULTS]"),
    "unsloth-mistral": exactly(f"[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}</s>", "[TOOL_RESULTS]R1[/TOOL_RESULTS]"),
    "NVIDIA-Nemotron-3": exactly(f"<tool_call>\n{XML_BODY}\n</tool_call>", IN_RESPONSE),
    "NVIDIA-Nemotron-Nano": exactly(f"<TOOLCALL>[{JSON_CALL}]</TOOLCALL>", "<TOOL_RESPONSE>[R1]</TOOL_RESPONSE>"),
    "NousResearch": exactly(HERMES, "<|im_start|>tool\n" + IN_RESPONSE),
    "Qwen-": exactly(HERMES, "<|im_start|>user\n" + IN_RESPONSE),
    "Qwen3": exactly(f"<tool_call>\n{XML_BODY}\n</tool_call>", "<|im_start|>user\n" + IN_RESPONSE),
    "Reka": exactly(HERMES, IN_RESPONSE),
    "Spark": exactly(GLM_LINE, "<|Tool|><tool_response>R1</tool_response>"),
    "StepFun": exactly(f"<tool_call>\n{XML_BODY}\n</tool_call>", "<tool_response>R1</tool_response>"),
    "deepseek-ai-DeepSeek-R1": exactly(V3.removesuffix("<｜tool▁calls▁end｜>"),  # which these write behind several calls alone
                                       "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>R1<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"),
    "llama-cpp-deepseek": exactly(V3, "<｜tool▁output▁begin｜>R1<｜tool▁output▁end｜>"),
    "deepseek-ai-DeepSeek-V3.1": exactly(f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                                         "<｜tool▁output▁begin｜>R1<｜tool▁output▁end｜>"),
    "deepseek-ai-DeepSeek-V3.2": exactly("\n\n" + DSML.format("function_calls"), "\n\n<function_results>\n<result>R1</result>\n</function_results>\n\n"),
    "deepseek-ai-DeepSeek-V4": exactly(DSML.format("tool_calls"), "<｜User｜><tool_result>R1</tool_result>"),
    "google-gemma-2": ("get_weather.*Oslo", re.escape("<start_of_turn>user\n") + ".*R1"),
    "google-gemma-4-31B-it": exactly(GEMMA_4, '<|tool_response>response:get_weather{value:<|"|>R1<|"|>}<tool_response|>'),
    "google-gemma-4-31B-it-interleaved": exactly(GEMMA_4, "<|turn>tool\nR1<turn|>"),
    "ibm-granite-granite-3.3": ("get_weather.*Oslo", re.escape("<|start_of_role|>tool<|end_of_role|>R1<|end_of_text|>")),
    "ibm-granite-granite-4": exactly(HERMES, "<|start_of_role|>user<|end_of_role|>\n" + IN_RESPONSE),
    "inclusionai-ling": exactly(GLM.replace("</arg_value>\n<arg_key>", "</arg_value><arg_key>"), "<role>OBSERVATION</role>\n" + IN_RESPONSE),
    "llama-cpp-rwkv": ("get_weather.*Oslo", "User: .*R1"),
    "meetkai-functionary-medium-v3.1": exactly(f"<function=get_weather>{ARGUMENTS}</function><|eom_id|>", "ipython<|end_header_id|>\n\nR1<|eot_id|>"),
    "meetkai-functionary-medium-v3.2": exactly(f">>>get_weather\n{ARGUMENTS}<|eot_id|>", "<|start_header_id|>tool<|end_header_id|>\n\nR1<|eot_id|>"),
    "meta-llama": exactly(LLAMA, '<|start_header_id|>ipython<|end_header_id|>\n\n"R1"<|eot_id|>'),
    "microsoft-Phi-3.5": ("get_weather.*Oslo", re.escape("<|user|>\n") + ".*R1"),
    "muse": exactly('<atem:function_calls>\n<atem:invoke name="get_weather">\n<atem:parameter name="city">Oslo</atem:parameter>\n'
                    '<atem:parameter name="days">2</atem:parameter>\n</atem:invoke>\n</atem:function_calls>', '<tool_output name="get_weather">\nR1\n</tool_output>'),
    "openai-gpt-oss": exactly(f"<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>",
                              '<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>"R1"<|end|>'),
    "openbmb": exactly('<function name="get_weather"><param name="city">Oslo</param><param name="days">2</param></function>', IN_RESPONSE),
    "poolside-Laguna-S": exactly(GLM_LINE, "<tool_response>R1</tool_response>"),
    "poolside-Laguna-XS": exactly(GLM, IN_RESPONSE),
    "tencent-Hy3": exactly("<tool_callsS>\n<tool_callS>get_weather<tool_sepS>\n<arg_keyS>city</arg_keyS>\n<arg_valueS>Oslo</arg_valueS>\n<arg_keyS>days</arg_keyS>\n"
                           "<arg_valueS>2</arg_valueS>\n</tool_callS>\n</tool_callsS>".replace("S>", ":opensource>"),
                           "<tool_responsesS>\n<tool_responseS>\nR1\n</tool_responseS>\n</tool_responsesS>".replace("S>", ":opensource>")),
    "upstage-Solar": exactly(f"<|tool_call:begin|>call_a<|tool_call:name|>get_weather<|tool_call:args|>{ARGUMENTS}<|tool_call:end|>",
                             "<|tool_response:begin|>call_a<|tool_response:name|>get_weather<|tool_response:result|>R1<|tool_response:end|>"),
}


# ---- the same messages in a template's shape ------------------------------------------------------------------------------

def nine(number):
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return "".join(digits[byte % 62] for byte in hashlib.sha256(number.encode()).digest()[:9])


def text_of(content):
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content or [] if part["type"] == "text")


def usual_message(message):
    """A message with a text, calls that are objects, and its thought, if any."""
    own = {key: value for key, value in copy.deepcopy(message).items() if key not in ("reasoning_content", "reasoning", "thinking")}
    blocks = [part["thinking"] for part in message["content"] if part["type"] == "thinking"] if isinstance(message["content"], list) else []
    thought = next((message[key] for key in ("reasoning_content", "reasoning", "thinking") if key in message), "".join(blocks))
    own["content"] = text_of(message["content"])
    if own["role"] == "developer":
        own["role"] = "system"
    for one in own.get("tool_calls", []):
        if isinstance(one["function"]["arguments"], str):
            one["function"]["arguments"] = json.loads(one["function"]["arguments"])
    return own, thought


def link(messages, form):
    """Ids in the template's form; results with the id and the name of their call, in the order of the calls."""
    ids, count, out = {}, 0, []
    for message in messages:
        for one in message.get("tool_calls", []):
            given = one["id"]
            made = {"named": f"functions.{one['function']['name']}:{count}", "nine": nine(given or f"call_{count}")}
            one["id"] = made.get(form, given or f"call_{count}")
            ids[given] = one["id"], one["function"]["name"], count
            count += 1
        if message["role"] == "tool":
            message["tool_call_id"], message["name"], message["place"] = ids[message.get("tool_call_id")]
            while out and out[-1].get("place", -1) > message["place"]:
                messages_behind = out.pop()
                message, out = messages_behind, [*out, message]
        out.append(message)
    return [{key: value for key, value in message.items() if key != "place"} for message in out]


def split(messages):
    out = []
    for message in messages:
        calls = message.get("tool_calls", [])
        if message["role"] == "tool":
            at = next(i for i, other in enumerate(out) if any(one["id"] == message["tool_call_id"] for one in other.get("tool_calls", [])))
            out.insert(at + 1, message)
        for i in range(max(1, len(calls))) if message["role"] != "tool" else ():
            own = {**message, "tool_calls": calls[i:i + 1]} if calls else message
            out.append({**own, "content": "", "thought": ""} if i else own)
    return out


def apart(messages):
    """Calls behind the content of their message, as a message of their own."""
    for message in messages:
        if message.get("tool_calls") and message["content"]:
            yield {key: value for key, value in message.items() if key != "tool_calls"}
            message = {**message, "content": "", "thought": ""}
        yield message


def gather(messages):
    """System messages at the beginning as one, later ones as the user's."""
    out = []
    for message in messages:
        if message["role"] == "system" and not (out and out[-1]["role"] == "system") and out:
            message = {**message, "role": "user", "late": True}
        together = out and (out[-1]["role"] == message["role"] == "system" or (message["role"] == "user" and out[-1].get("late")))
        if together or (out and message.get("late") and out[-1]["role"] == "user"):
            out[-1] = {**out[-1], "content": out[-1]["content"] + "\n\n" + message["content"]}
        else:
            out.append(message)
    return [{key: value for key, value in message.items() if key != "late"} for message in out]


def place(message, shape):
    thought, calls = message.pop("thought", ""), message.get("tool_calls")
    if thought and calls and message["content"] and shape["joins_thought"]:
        thought, message["content"] = thought + "\n\n" + message["content"], ""
    if thought and shape["thought"] == "block":
        message["content"] = [{"type": "thinking", "thinking": thought}, *([{"type": "text", "text": message["content"]}] if message["content"] else [])]
    elif thought and shape["thought"]:
        message[shape["thought"]] = thought
    for one in calls or [] if shape["arguments"] == "text" else []:
        one["function"]["arguments"] = json.dumps(one["function"]["arguments"])
    if message["role"] == "tool" and shape["json_results"]:
        message["content"] = json.dumps(message["content"])
    if calls and message["content"] == "":
        message["content"] = shape["content"]
    return message


def shaped(conversation, shape):
    messages = []
    for message in conversation["messages"]:
        own, thought = usual_message(message)
        messages.append({**own, "thought": thought} if own["role"] == "assistant" else own)
    messages = link(messages, shape["ids"])
    if shape["one_call"]:
        messages = split(messages)
    if shape["calls_apart"]:
        messages = list(apart(messages))
    if shape["one_system"]:
        messages = gather(messages)
    variables = {**conversation, "messages": [place(message, shape) for message in messages]}
    if shape["list"] and "tools" not in conversation:
        variables["tools"] = []
    return variables


# ---- the tests ------------------------------------------------------------------------------------------------------------

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(nibble, folder, number, template, request):
    file = folder / f"{number}.json"
    file.write_text(json.dumps({**TOKENS, **request}), encoding="utf-8")
    return subprocess.run([nibble, "render", "--as-served", "--chat-template", template, file], capture_output=True, timeout=20)


@pytest.fixture(scope="module")
def prompts(nibble, llama_source, tmp_path_factory):
    """(template, conversation) -> what nibble render did."""
    folder = tmp_path_factory.mktemp("history")
    templates = sorted((llama_source / "models" / "templates").glob("*.jinja"))
    cases = [(path, name) for path in templates for name in CONVERSATIONS]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(render, nibble, folder, i, path, CONVERSATIONS[name]) for i, (path, name) in enumerate(cases)]
        return {(path.stem, name): job.result() for (path, name), job in zip(cases, jobs)}


def refused(template, name):
    return name in REFUSED.get(template, ("", ()))[1]


def test_nothing_else_is_refused(prompts):
    assert len({template for template, _ in prompts}) == 70
    for (template, name), run in prompts.items():
        if refused(template, name):
            assert run.returncode == 1 and REFUSED[template][0] in run.stderr.decode(), (template, name, run)
        else:
            assert run.returncode == 0, (template, name, run.stderr)


def test_jinja2_prints_the_same(prompts, llama_source):
    """Where calls or tools stand in words, which are nibble's own, the conversations without them."""
    compared = 0
    for (template, name), run in prompts.items():
        shape, conversation = {**USUAL, **SHAPES.get(template, {})}, CONVERSATIONS[name]
        history = any("tool_calls" in message for message in conversation["messages"])
        if refused(template, name) or (history and not shape["calls"]) or ("tools" in conversation and shape["words"]):
            continue
        source = (llama_source / "models" / "templates" / f"{template}.jinja").read_text(encoding="utf-8")
        want, error = expected(source, {**TOKENS, **shaped(conversation, shape)})
        assert run.stdout.decode() == want, (template, name, error)
        compared += 1
    assert compared > 1500


def family(template):
    return FAMILIES[max((prefix for prefix in FAMILIES if template.startswith(prefix)), key=len)]


def test_calls_and_results_as_the_family_writes_them(prompts):
    for (template, name), run in prompts.items():
        if name not in ("one", "an object", "content and call", "two", "two, the later first") or refused(template, name):
            continue
        call_text, result_text = family(template)
        prompt = run.stdout.decode()
        answer = prompt[prompt.rindex("Oslo and Rome?"):]
        if name.startswith("two"):
            for number in ("call_a", "call_b"):
                answer = answer.replace(nine(number), "")
            assert re.search("Oslo and Rome.*Oslo.*Rome.*", answer, re.S) and answer.index("R1") < answer.index("R2"), (template, name)
        else:
            assert re.search(call_text + ".*" + result_text, answer, re.S), (template, name, call_text, answer)


def test_system_messages_are_never_lost(prompts):
    for (template, name), run in prompts.items():
        if name in ("system and developer", "late system") and not refused(template, name):
            assert "You are terse." in run.stdout.decode() and "Be brief." in run.stdout.decode(), (template, name)


def test_ids_are_the_same_in_call_and_result(prompts):
    for template in ("Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407"):
        for name in ("two", "two, the later first", "without ids"):
            prompt = prompts[template, name].stdout.decode()
            calls = re.findall(rf'(?:\[CALL_ID\]|"id": ")({NINE})', prompt)
            assert calls and calls == re.findall(rf'(?:\[TOOL_RESULTS\]|"call_id": ")({NINE})', prompt)


def test_the_last_message_is_continued(nibble, llama_source, tmp_path):
    """The prompt ends where the content ends; where the template trims contents, without the blank."""
    for number, path in enumerate(sorted((llama_source / "models" / "templates").glob("*.jinja"))):
        prompts = []
        for content in ("The answer is", "The answer is "):
            messages = [chat_message("user", "Question?"), chat_message("assistant", content)]
            run = render(nibble, tmp_path, number, path, {"messages": messages, "continue_final_message": True})
            assert run.returncode == (1 if path.stem in REFUSED and "gemma" not in path.stem else 0), (path.stem, run.stderr)
            prompts.append(run.stdout.decode())
            assert run.returncode or re.search("The answer is ?$", prompts[-1]), (path.stem, prompts)
        assert prompts[1] in (prompts[0], prompts[0] + " "), path.stem
