# SPDX-License-Identifier: Apache-2.0
"""Fields that are published: of the openai package's own types, vLLM's, llama-server's and SGLang's. Each is honoured, harmless or refused by name."""

import typing

import pytest
from openai.types import completion_create_params
from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionMessageParam, ChatCompletionToolUnionParam
from openai.types.chat import completion_create_params as chat_create_params

from serving import Server, user
from test_fields import TABLE

ROWS = {row.name: row for row in TABLE}
PATHS = {"ON_CHAT": "/v1/chat/completions", "ON_COMPLETION": "/v1/completions"}
REQUESTS = {"ON_CHAT": {"messages": user("Hi"), "max_tokens": 1}, "ON_COMPLETION": {"prompt": "Hi", "max_tokens": 1}}

VLLM = """frequency_penalty logit_bias logprobs max_tokens n presence_penalty response_format seed stop stream stream_options temperature top_p user
top_k min_p repetition_penalty length_penalty use_beam_search stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens
spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids allowed_token_ids bad_words thinking_token_budget
repetition_detection add_special_tokens structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids return_prompt_text
cache_salt kv_transfer_params vllm_xargs stream_interval model"""
VLLM_CHAT = """messages max_completion_tokens top_logprobs tools tool_choice parallel_tool_calls reasoning_effort add_generation_prompt
continue_final_message documents chat_template chat_template_kwargs mm_processor_kwargs media_io_kwargs include_reasoning"""
VLLM_COMPLETION = "prompt echo suffix prompt_embeds"
LLAMA_SERVER = """timings_per_token stream stream_options cache_prompt return_tokens return_progress sse_ping_interval n_predict n_indent n_keep n_discard
n_cmpl n_cache_reuse t_max_predict_ms response_fields top_k top_p min_p top_n_sigma xtc_probability xtc_threshold typical_p temperature dynatemp_range
dynatemp_exponent repeat_last_n repeat_penalty frequency_penalty presence_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n
dry_sequence_breakers mirostat mirostat_tau mirostat_eta adaptive_target adaptive_decay seed n_probs min_keep backend_sampling post_sampling_probs lora
json_schema grammar samplers logit_bias stop ignore_eos id_slot reasoning_format parse_tool_calls thinking_forced_open"""
SGLANG = """regex ebnf stop_regex no_stop_trim custom_logit_processor custom_params lora_path session_params return_hidden_states rid min_tokens
bootstrap_host bootstrap_port bootstrap_room separate_reasoning stream_reasoning"""
BUILT = """dry_multiplier dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers xtc_probability xtc_threshold typical_p top_a mirostat
mirostat_tau mirostat_eta repeat_last_n top_n_sigma dynatemp_range dynatemp_exponent min_keep samplers prompt_logprobs allowed_token_ids bad_words
truncate_prompt_tokens truncation_side suffix"""


OBJECTS = ("chat_template_kwargs", "json_schema")  # of any keys


def openai_fields(module):
    """Those of the package's TypedDict, with the ones that only a stream has."""
    names = set()
    for kind in ("CompletionCreateParamsNonStreaming", "CompletionCreateParamsStreaming"):
        names |= set(typing.get_type_hints(getattr(module, kind), include_extras=True))
    return names


def names(*lists):
    return {name for text in lists for name in text.split()}


PUBLISHED = {
    "ON_CHAT": lambda: openai_fields(chat_create_params) | names(VLLM, VLLM_CHAT, LLAMA_SERVER, SGLANG),
    "ON_COMPLETION": lambda: openai_fields(completion_create_params) | names(VLLM, VLLM_COMPLETION, LLAMA_SERVER, SGLANG),
}


def row_of(name, endpoint):
    """The row of that endpoint, where a name has several."""
    rows = [row for row in TABLE if row.name == name]
    return next((row for row in rows if endpoint in row.endpoints), rows[0])


@pytest.mark.parametrize("endpoint", PUBLISHED)
def test_every_published_field_has_a_row(endpoint):
    assert len(PUBLISHED[endpoint]()) > 90
    unknown = {name for name in PUBLISHED[endpoint]() if name not in ROWS}
    elsewhere = {name for name in PUBLISHED[endpoint]() - unknown if endpoint not in row_of(name, endpoint).endpoints and row_of(name, endpoint).kind != "HARMLESS"}
    assert not unknown, "refused as fields that nobody knows"
    assert elsewhere <= names("""parse_tool_calls thinking_forced_open thinking_token_budget reasoning_format separate_reasoning stream_reasoning
        response_format top_logprobs echo suffix""") if endpoint == "ON_COMPLETION" else not elsewhere


@pytest.mark.parametrize("endpoint", PUBLISHED)
def test_none_is_ignored(server, endpoint):
    """A value that no field can have is refused by the field's name, unless it is written down that the field changes nothing."""
    for name in sorted(PUBLISHED[endpoint]()):
        request = {**REQUESTS[endpoint], name: 12.5 if name in OBJECTS else {"no": ["such", "value"]}}
        answer = server.ask(PATHS[endpoint], request)
        if row_of(name, endpoint).kind == "HARMLESS":
            assert answer.status == 200, name
        elif name == "model":
            assert answer.status in (400, 404)
        else:
            assert answer.status == 400 and name in answer.error["message"], (name, answer.body)


def test_what_is_built_is_honoured():
    assert {name: ROWS[name].kind for name in names(BUILT) if ROWS[name].kind not in ("READ", "BOOL", "INT", "REAL")} == {}


# ---- within messages and tools ---------------------------------------------------------------------------------------

CHAT = "/v1/chat/completions"
PRINTED = {"chat_template": "{{ messages | tojson }}{{ tools | tojson }}"}
SMALL = ("--max-model-len", 512, "--kv-cache-memory-bytes", "64M", "--trust-request-chat-template")


def members(union):
    """The TypedDicts of a union, with what may be their type or role."""
    for member in typing.get_args(union):
        hints = typing.get_type_hints(member)
        yield hints, typing.get_args(hints.get("role", hints.get("type")))[0]


@pytest.fixture(scope="module")
def printer(nibble, smollm2):
    """Its prompts are the messages and tools as a template gets them."""
    with Server(nibble, smollm2, *SMALL) as server:
        yield server


def prompt_of(server, message, **fields):
    """The prompt with that message in it, or the sentence that refuses it."""
    answer = server.ask("/apply-template", {"messages": [message], **PRINTED, **fields})
    assert answer.status in (200, 400)
    return (answer.json["prompt"], None) if answer.status == 200 else (None, answer.error["message"])


def test_no_key_of_a_message_is_ignored(printer):
    """Each key of OpenAI's messages reaches the template, or is refused by its name."""
    seen = set()
    for hints, role in members(ChatCompletionMessageParam):
        for name in sorted(set(hints) - {"role"}):
            prompt, refusal = prompt_of(printer, {"role": role, "content": "Hi", name: "PROBE"})
            assert "PROBE" in prompt if prompt else name in refusal, (role, name, prompt or refusal)
            seen.add(name)
    assert {"content", "name", "refusal", "audio", "function_call", "tool_calls", "tool_call_id"} <= seen
    assert '"content": "PROBE"' in prompt_of(printer, {"role": "assistant", "content": None, "refusal": "PROBE"})[0]
    nothing = {"role": "assistant", "content": "Hi", "audio": None, "function_call": None, "refusal": None, "tool_calls": None}
    assert prompt_of(printer, nothing)[0], "as the SDK writes a message that it got"


def test_no_part_of_a_message_is_ignored(printer):
    kinds = [kind for _, kind in members(ChatCompletionContentPartParam)]
    assert {"text", "image_url", "input_audio", "file"} <= set(kinds)
    for kind in kinds:
        prompt, refusal = prompt_of(printer, {"role": "user", "content": [{"type": kind, kind: "PROBE"}]})
        assert "PROBE" in prompt if kind == "text" else kind in refusal, (kind, prompt or refusal)


def test_no_key_of_a_tool_is_ignored(printer):
    for hints, kind in members(ChatCompletionToolUnionParam):
        if kind != "function":
            error = printer.refuse(CHAT, {"messages": user("Hi"), "tools": [{"type": kind, kind: {"name": "x"}}]})
            assert "function" in error["message"] and error["param"] == "tools"
            continue
        for name in sorted(set(typing.get_type_hints(hints["function"])) - {"name"}):
            tool = {"type": "function", "function": {"name": "x", name: "PROBE"}}
            prompt, refusal = prompt_of(printer, user("Hi")[0], tools=[tool])
            assert "PROBE" in prompt if prompt else name in refusal, (name, prompt or refusal)
