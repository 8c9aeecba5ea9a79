# SPDX-License-Identifier: Apache-2.0
"""Reasoning apart from the answer. A model that has learnt none is made to write it: by a grammar that has one text alone
(where the prompt opens no thought, the grammar may write the markers), and by a bias towards one token (inside a thought
that the prompt opens, where the grammar has not begun)."""

import ctypes
import json
import subprocess

import openai
import pytest

import small_model
from serving import DONE, Server, text_of, user
from terminal import Terminal

SMALL = ("--max-model-len", 512, "--kv-cache-memory-bytes", "64M")
TURNS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
# Two switches, as Qwen 3 and DeepSeek have them; `forced` opens the thought in the prompt.
TEMPLATE = TURNS + """{# <think> #}effort={{ reasoning_effort }} assistant:
{% if thinking is defined and not thinking %}{{ '<think>\n\n</think>\n\n' }}{% elif forced %}{{ '<think>\n' }}{% endif %}"""
THOUGHT = "Größe?\nNo: <b> </thin"
ANSWER = "Hello </think> 😀\n"
WRITTEN = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"


@pytest.fixture(scope="module")
def model(smollm2, tmp_path_factory):
    return small_model.write(smollm2, tmp_path_factory.mktemp("model") / "small.gguf")


@pytest.fixture(scope="module")
def thinker(nibble, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reasoning")
    (folder / "template.jinja").write_text(TEMPLATE)
    with Server(nibble, model, *SMALL, "--chat-template", folder / "template.jinja") as server:
        yield server


@pytest.fixture(scope="module")
def bang(thinker):
    """The token of '!', which a bias makes the only one."""
    [token] = thinker.ask("/tokenize", {"prompt": "!", "add_special_tokens": False}).json["tokens"]
    return {"logit_bias": {str(token): 100}}


def write(text, **fields):
    """A request whose answer is this text."""
    return {"messages": user("Hi"), "temperature": 0, "max_tokens": 200, "structured_outputs": {"choice": [text]}, **fields}


def message_of(server, request):
    answer = server.ask("/v1/chat/completions", request)
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]["message"], answer.json["usage"]


def deltas_of(server, request):
    events = list(server.events("/v1/chat/completions", request))
    assert events[-1] == DONE and all("error" not in event for event in events[:-1])
    return [event["choices"][0]["delta"] for event in events[:-1] if event["choices"]]


def test_whole(thinker):
    message, usage = message_of(thinker, write(WRITTEN))
    assert message["reasoning_content"] == message["reasoning"] == THOUGHT
    assert message["content"] == ANSWER and list(message)[0] == "role"
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]


def test_streamed(thinker):
    deltas = deltas_of(thinker, write(WRITTEN, stream_options={"include_usage": True}))
    for key in ("reasoning", "reasoning_content"):
        assert "".join(delta.get(key, "") for delta in deltas) == THOUGHT
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
    thought = [index for index, delta in enumerate(deltas) if "reasoning" in delta]
    content = [index for index, delta in enumerate(deltas) if delta.get("content")]
    assert len(thought) > 1 and max(thought) <= min(content)


def test_several_choices(thinker):
    answer = thinker.ask("/v1/chat/completions", write(WRITTEN, n=3, temperature=1)).json
    assert [choice["message"]["reasoning"] for choice in answer["choices"]] == [THOUGHT] * 3
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 3


@pytest.mark.parametrize("fields", [{"reasoning_format": "none"}, {"separate_reasoning": False}])
def test_left_in_the_content(thinker, fields):
    message, usage = message_of(thinker, write(WRITTEN, **fields))
    assert message["content"] == WRITTEN and "reasoning" not in message
    assert usage["completion_tokens_details"]["reasoning_tokens"] > 0
    assert text_of(thinker.events("/v1/chat/completions", write(WRITTEN, **fields))) == WRITTEN


@pytest.mark.parametrize("fields", [{"include_reasoning": False}, {"reasoning": {"exclude": True}}])
def test_left_out(thinker, fields):
    message, usage = message_of(thinker, write(WRITTEN, **fields))
    assert message["content"] == ANSWER and "reasoning" not in message
    assert usage["completion_tokens_details"]["reasoning_tokens"] > 0


def test_gathered(thinker):
    """stream_reasoning false: the thought comes in one piece."""
    deltas = deltas_of(thinker, write(WRITTEN, stream_reasoning=False))
    assert [delta["reasoning"] for delta in deltas if "reasoning" in delta] == [THOUGHT]
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER


def test_openai_client(thinker):
    """reasoning_content is a member that the client passes on; reasoning_effort is one of its own words."""
    client = openai.OpenAI(base_url=f"{thinker.url}/v1", api_key="none", max_retries=0, timeout=60)
    request = write(WRITTEN)
    request["extra_body"] = {"structured_outputs": request.pop("structured_outputs")}
    answer = client.chat.completions.create(model=thinker.model, reasoning_effort="high", **request)
    assert answer.choices[0].message.reasoning_content == THOUGHT
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0


def test_stop_strings_are_for_the_answer(thinker):
    """`stop` is searched for behind the thought alone."""
    message, _ = message_of(thinker, write(WRITTEN, stop=["No: ", "lo </t"]))
    assert message["reasoning"] == THOUGHT and message["content"] == "Hel"
    message, _ = message_of(thinker, write("<think>a</think>b", stop=["b"]))
    assert message["reasoning"] == "a" and message["content"] == ""


# ---- a thought that the prompt opens -------------------------------------------------------------------------------

FORCED = {"chat_template_kwargs": {"forced": True}}


def test_opened_by_the_prompt(thinker, bang):
    """Never closed, it is reasoning to its end."""
    message, usage = message_of(thinker, {"messages": user("Hi"), "temperature": 0, "max_tokens": 9, **bang, **FORCED})
    assert message["reasoning"] == "!" * 9 and message["content"] == ""
    assert usage["completion_tokens_details"]["reasoning_tokens"] == usage["completion_tokens"] == 9


@pytest.mark.parametrize("budget", [0, 1, 7])
@pytest.mark.parametrize("name", ["max_reasoning_tokens", "thinking_token_budget", "thinking_budget_tokens"])
def test_budget(thinker, bang, name, budget):
    message, usage = message_of(thinker, {"messages": user("Hi"), "temperature": 0, "max_tokens": 20, name: budget, **bang, **FORCED})
    assert message.get("reasoning", "") == "!" * budget and set(message["content"]) == {"!"}
    assert usage["completion_tokens_details"]["reasoning_tokens"] == budget
    assert usage["completion_tokens"] == 20 > budget + len(message["content"])  # and the close marker's


@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_begins_behind_the_thought(thinker, bang, stream):
    """What is thought is free, and the answer has its form: a choice, a schema, one that is validated."""
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    forms = [({"structured_outputs": {"choice": ["red"]}}, {"red"}), ({"json_schema": schema}, {'{"a":1}', '{"a":2}'}),
             ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {**schema, "not": {"required": ["b"]}}}}},
              {'{"a":1}', '{"a":2}'})]
    for form, answers in forms:
        request = {"messages": user("Hi"), "temperature": 0, "max_tokens": 64, "max_reasoning_tokens": 5, **form, **bang, **FORCED}
        if stream:
            deltas = deltas_of(thinker, request)
            message = {key: "".join(delta.get(key) or "" for delta in deltas) for key in ("reasoning", "content")}
        else:
            message, _ = message_of(thinker, request)
        content = message["content"] if "red" in answers else json.dumps(json.loads(message["content"]), separators=(",", ":"))
        assert message["reasoning"] == "!!!!!" and content in answers, message


def test_a_message_that_is_continued(thinker, bang):
    """It may end inside a thought, which then goes on."""
    request = {"temperature": 0, "max_tokens": 5, "continue_final_message": True, **bang}
    for text, thinks in (("<think>\nWell", True), ("<think>\nWell</think>Hi", False), ("Hi", False)):
        message, _ = message_of(thinker, {"messages": [*user("<think>"), {"role": "assistant", "content": text}], **request})
        assert message.get("reasoning", message["content"]) == "!!!!!" and ("reasoning" in message) == thinks


def test_closed_at_max_tokens(thinker, bang):
    """close_at_max_tokens leaves room for the answer behind the thought."""
    request = {"messages": user("Hi"), "temperature": 0, "max_tokens": 24, "close_at_max_tokens": True, **bang, **FORCED,
               "structured_outputs": {"choice": ["The answer is red."]}}
    message, _ = message_of(thinker, request)
    assert message["content"] == "The answer is red." and len(message["reasoning"]) > 5


def test_the_model_may_open_it(thinker):
    """A grammar does not keep a model from thinking first: the open marker's token may come."""
    tokens = thinker.ask("/tokenize", {"prompt": "<", "add_special_tokens": False}).json["tokens"]
    request = {"messages": user("Hi"), "temperature": 0, "max_tokens": 40, "max_reasoning_tokens": 3, "logit_bias": {str(tokens[0]): 100},
               "structured_outputs": {"choice": ["red"]}}
    message, usage = message_of(thinker, request)
    assert message["content"] == "red" and message["reasoning"] == "<<"  # the third may begin the close marker, and does
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 2


# ---- switches ------------------------------------------------------------------------------------------------------

def prompt_of(server, **fields):
    tokens = server.ask("/tokenize", {"messages": user("Hi"), **fields})
    assert tokens.status == 200, tokens.body
    return server.ask("/detokenize", {"tokens": tokens.json["tokens"]}).json["prompt"]


@pytest.mark.parametrize("fields, thinks, effort", [
    ({"thinking": False}, False, ""), ({"enable_thinking": False}, False, ""), ({"enable_thinking": True}, True, ""),
    ({"thinking": {"type": "disabled"}}, False, ""), ({"reasoning": {"enabled": False}}, False, ""),
    ({"reasoning_effort": "none"}, False, ""), ({"reasoning_effort": "low"}, True, "low"),
    ({"reasoning": {"effort": "high"}}, True, "high"), ({"reasoning": {"effort": "none"}}, False, ""), ({}, True, ""),
    ({"reasoning_effort": None, "thinking": None, "reasoning": None}, True, ""),
])
def test_switches_reach_the_template(thinker, fields, thinks, effort):
    """Under the names that it reads, whatever name the client has for them."""
    prompt = prompt_of(thinker, **fields)
    assert ("</think>" not in prompt) == thinks and f"effort={effort} " in prompt


@pytest.mark.parametrize("field, value", [
    ("thinking", "yes"), ("thinking", {"type": "maybe"}), ("thinking", {"budget": 5}), ("reasoning", "high"), ("reasoning", {"efort": "high"}),
    ("reasoning", {"effort": 5}), ("reasoning_effort", 5), ("reasoning_format", "deepseek-legacy"), ("max_reasoning_tokens", -2),
])
def test_values_that_are_none(thinker, field, value):
    error = thinker.refuse("/v1/chat/completions", {"messages": user("Hi"), field: value})
    assert error["param"] == field and field in error["message"]


def test_switches_that_a_template_lacks(nibble, model, tmp_path, server):
    """A template without a switch cannot be asked not to think; asking it to think changes nothing. One without thoughts is the
    other way round."""
    (tmp_path / "template.jinja").write_text(TURNS + "assistant: {{ '<think>' }}{# #}{{ '</think>' if false }}")
    with Server(nibble, model, *SMALL, "--chat-template", tmp_path / "template.jinja", "--max-reasoning-tokens", 4) as thinking:
        for field, value in (("enable_thinking", False), ("thinking", False), ("reasoning_effort", "none")):
            error = thinking.refuse("/v1/chat/completions", {"messages": user("Hi"), field: value})
            assert error["param"] == field and "max_reasoning_tokens" in error["message"]
        message, usage = message_of(thinking, {"messages": user("Hi"), "enable_thinking": True, "max_tokens": 30, "ignore_eos": True})
        assert usage["completion_tokens_details"]["reasoning_tokens"] <= 4 and message["content"]
        assert any("reasoning think" in line for line in thinking.log)
    assert server.refuse("/v1/chat/completions", {"messages": user("Hi"), "enable_thinking": True})["param"] == "enable_thinking"
    assert server.chat("Hi", max_tokens=1, enable_thinking=False, reasoning_effort="none")["usage"].keys().isdisjoint({"completion_tokens_details"})


# ---- flags ---------------------------------------------------------------------------------------------------------

def test_flags(nibble, model, tmp_path):
    with Server(nibble, model, *SMALL, "--reasoning-parser", "granite") as named:
        assert any("reasoning granite" in line for line in named.log)
        message, _ = message_of(named, write("<think>T</think>\n<response>Hi</response>"))
        assert (message["reasoning"], message["content"]) == ("T", "Hi")
        assert message_of(named, write("Hi"))[0]["content"] == "Hi"
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    with Server(nibble, model, *SMALL, "--chat-template", tmp_path / "template.jinja", "--no-reasoning") as without:
        message, usage = message_of(without, write(WRITTEN))
        assert message["content"] == WRITTEN and "reasoning" not in message and "completion_tokens_details" not in usage


def test_an_unknown_parser(nibble, smollm2):
    done = subprocess.run([nibble, "serve", smollm2, "--port", "0", "--reasoning-parser", "qwen33"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and 'did you mean "qwen3"?' in done.stderr


# ---- other forms, by the parser's name -----------------------------------------------------------------------------

FORMS = [
    ("mistral", "[THINK]T[/THINK]Hi[THINK]U[/THINK]!", "TU", "Hi!"),
    ("gemma4", "<|channel>thought\nT\n<channel|>Hi", "T", "Hi"),
    ("cohere_command3", "<|START_THINKING|>T<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>", "T", "Hi"),
    ("seed_oss", "<seed:think>T</seed:think>Hi", "T", "Hi"),
]


@pytest.mark.parametrize("form, written, thought, answer", FORMS, ids=[form[0] for form in FORMS])
def test_forms(nibble, model, form, written, thought, answer):
    with Server(nibble, model, *SMALL, "--reasoning-parser", form) as server:
        message, _ = message_of(server, write(written))
        assert (message["reasoning"], message["content"]) == (thought, answer)
        deltas = deltas_of(server, write(written))
        assert "".join(delta.get("reasoning", "") for delta in deltas) == thought
        assert "".join(delta.get("content", "") for delta in deltas) == answer


# ---- `nibble run` --------------------------------------------------------------------------------------------------

def run(nibble, model, template, *flags):
    words = [nibble, "run", model, "Hi", "--chat-template", template, "--temperature", "0", "--max-tokens", "8", "--max-model-len", "512"]
    done = subprocess.run([*map(str, words), *flags], capture_output=True, text=True, errors="replace", timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def test_run_keeps_thoughts_out_of_stdout(nibble, model, tmp_path):
    (tmp_path / "open.jinja").write_text(TURNS + "assistant: {{ '<think>' }}{{ '' if true else '</think>' }}")
    (tmp_path / "plain.jinja").write_text(TURNS + "assistant: {{ '<think>' }}")
    thinking = run(nibble, model, tmp_path / "open.jinja")
    as_it_is = run(nibble, model, tmp_path / "open.jinja", "--no-reasoning")
    plain = run(nibble, model, tmp_path / "plain.jinja")
    assert thinking.stdout == "\n" and as_it_is.stdout == plain.stdout and plain.stdout.strip()
    assert plain.stdout.strip() in thinking.stderr and "\x1b" not in thinking.stderr
    with Terminal([nibble, "run", model, "Hi", "--chat-template", tmp_path / "open.jinja", "--max-tokens", "2"], tmp_path) as terminal:
        assert b"\x1b[2m" in terminal.read_until(b"t/s")


# ---- published templates -------------------------------------------------------------------------------------------

def form_of(name):
    """The form in a template, by the facts of its family."""
    for part, form in (("gpt-oss", "harmony"), ("MiniMax-M2", "minimax_m2"), ("MiniMax-M3", "minimax_m3"), ("Seed-OSS", "seed_oss"),
                       ("Ministral-3", "mistral"), ("Cohere2MoE", "cohere_command4"), ("command-r7b", "cohere_command3"),
                       ("gemma-4", "gemma4"), ("Apertus", "apertus"), ("Solar", "solar"), ("Kimi-K3", "kimi_k3"), ("Apriel", "apriel"),
                       ("Hy3", "hy_v3"), ("granite-3.3", "granite"), ("K2-Thinking", "kimi_k2"), ("muse", "muse_glimmer"),
                       ("Qwen3-0.6B", "qwen3"), ("Qwen3.5", "qwen3"), ("QwQ", "qwen3"), ("GLM-4", "qwen3"), ("Nemotron-3", "qwen3"),
                       ("SmolLM3", "think"), ("DeepSeek-R1", "think"), ("deepseek-r1", "think"), ("DeepSeek-V3", "think"), ("DeepSeek-V4", "think"),
                       ("Qwen3-Coder", None), ("Qwen2.5", None), ("Llama-3", None), ("Phi-3.5", None), ("gemma-2", None), ("MiniMax-M1", None),
                       ("Nemo-Instruct", None), ("Small-3.2", None), ("granite-4", None), ("Hermes", None), ("functionary", None), ("K2-Instruct", None)):
        if part in name and not (part == "Llama-3" and ("DeepSeek" in name or "firefunction" in name)):
            return form
    return "other"


def test_published_templates(library, llama_source):
    """Each of llama.cpp's templates has the form of its family."""
    nibble = ctypes.CDLL(library)
    nibble.nibble_chat_open.restype = nibble.nibble_chat_reasoning.restype = ctypes.c_void_p
    checked = 0
    for path in sorted((llama_source / "models" / "templates").glob("*.jinja")):
        error = ctypes.create_string_buffer(8192)
        chat = ctypes.c_void_p(nibble.nibble_chat_open(None, str(path).encode(), error))
        assert chat.value, error.value
        found = nibble.nibble_chat_reasoning(chat)
        found = found and ctypes.string_at(found).decode()
        nibble.nibble_chat_close(chat)
        expected = form_of(path.name)
        if expected != "other":
            assert found == expected, path.name
            checked += 1
    assert checked > 45
