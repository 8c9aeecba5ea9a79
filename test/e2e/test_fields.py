# SPDX-License-Identifier: Apache-2.0
"""Every field that clients of OpenAI, vLLM, SGLang and llama-server send: what src/server/field_table.c says of it is what happens."""

import collections
import pathlib
import re

import openai
import pytest

import small_model
from serving import Server, one_process, user

ROOT = pathlib.Path(__file__).parents[2]
PATHS = {"ON_CHAT": "/v1/chat/completions", "ON_COMPLETION": "/v1/completions", "ON_TOKENIZE": "/tokenize", "ON_DETOKENIZE": "/detokenize",
         "ON_RESPONSES": "/v1/responses", "ON_TEMPLATE": "/apply-template"}
GROUPS = {"GENERATE": "ON_CHAT ON_COMPLETION", "WITH_SCORES": "ON_CHAT ON_COMPLETION", "ON_INFILL": "", "SAMPLE": "ON_CHAT ON_COMPLETION ON_RESPONSES", "TEMPLATE": "ON_CHAT ON_TOKENIZE ON_TEMPLATE",
          "CONVERSE": "ON_CHAT ON_TOKENIZE ON_RESPONSES", "ANYWHERE": " ".join(PATHS)}
REQUESTS = {
    "ON_CHAT": {"messages": user("Name a colour."), "temperature": 0, "max_tokens": 3},
    "ON_COMPLETION": {"prompt": "The colour is", "temperature": 0, "max_tokens": 3},
    "ON_TOKENIZE": {"messages": user("Name a colour.")},
    "ON_DETOKENIZE": {"tokens": [5, 6]},
    "ON_RESPONSES": {"input": "Name a colour.", "temperature": 0, "max_output_tokens": 3},
    "ON_TEMPLATE": {"messages": user("Name a colour.")},
}
WRONG = 12.5  # of no honoured field's type, or out of its range
SMALL = ("--max-model-len", 256, "--kv-cache-memory-bytes", "64M")

Row = collections.namedtuple("Row", "name endpoints kind rest")


def read_table():
    """The rows of these endpoints; test_messages.py and test_ollama.py have those of the other APIs."""
    text = (ROOT / "src/server/field_table.c").read_text()
    rows = re.findall(r'^    \{ "([\w.]+)", ([\w| ]+), FIELD_(\w+)(.*) \},', text, re.M)
    assert len(rows) > 150
    words = lambda names: " ".join(GROUPS.get(name, name) for name in names.split(" | ")).split()
    return [Row(name, words(endpoints), kind, rest) for name, endpoints, kind, rest in rows if set(words(endpoints)) <= set(PATHS)]


TABLE = read_table()
ENDPOINTS = collections.defaultdict(set)  # of a name: those of all its rows
for one in TABLE:
    ENDPOINTS[one.name] |= set(PATHS if one.kind == "HARMLESS" else one.endpoints)


def rows_of(*kinds):
    return [pytest.param(row, id=row.name) for row in TABLE if row.kind in kinds]


def answer_of(server, endpoint, **fields):
    """What a request gets, less what is another each time."""
    answer = server.ask(PATHS[endpoint], {**REQUESTS[endpoint], **fields})
    assert answer.status == 200, (fields, answer.body)
    if endpoint == "ON_RESPONSES":  # which repeats its request
        return [item["content"] for item in answer.json["output"]]
    return {key: value for key, value in answer.json.items() if key not in ("id", "created", "usage")}


def refuse(server, endpoint, field, value):
    error = server.refuse(PATHS[endpoint], {**REQUESTS[endpoint], field: value})
    assert error["param"] == field and field in error["message"], (value, error)
    return error


@pytest.fixture(scope="module")
def plain(server):
    return {endpoint: answer_of(server, endpoint) for endpoint in PATHS}


# ---- the table -----------------------------------------------------------------------------------------------------

def test_no_row_comes_twice():
    """But for another endpoint."""
    assert len({(row.name, endpoint) for row in TABLE for endpoint in row.endpoints if row.kind != "HARMLESS"}) == \
        sum(len(row.endpoints) for row in TABLE if row.kind != "HARMLESS")
    assert len({(row.name, row.kind == "HARMLESS", tuple(row.endpoints)) for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("row", rows_of("READ", "BOOL", "INT", "REAL"))
def test_honoured(server, row):
    """What is read is checked."""
    wrong = {"INT": 12.5, "REAL": 1e9, "BOOL": 5}.get(row.kind, WRONG)
    for endpoint in row.endpoints:
        refuse(server, endpoint, row.name, wrong)


def usual_value(row):
    """The value with which a field that is refused otherwise is taken."""
    word = re.search(r'ONLY_WORD\("(\w+)"', row.rest)
    return word.group(1) if word else float(row.rest.split(", ")[2].replace("INFINITY", "1e30"))


@pytest.mark.parametrize("endpoint", PATHS)
def test_without_influence(server, plain, endpoint):
    """All that may pass, passes at once, and the answer is the same."""
    honoured = {row.name for row in TABLE if row.kind != "HARMLESS" and endpoint in row.endpoints}
    harmless = [row.name for row in TABLE if row.kind == "HARMLESS" and row.name not in honoured]
    refused = [row.name for row in TABLE if row.kind == "REFUSED" and (endpoint in row.endpoints or row.name not in honoured)]
    only = [row for row in TABLE if row.kind == "ONLY" and endpoint in row.endpoints]
    for value in ("x", 1, {"a": [1]}):
        assert answer_of(server, endpoint, **dict.fromkeys(harmless, value)) == plain[endpoint]
    for value in (None, False, "", [], {}):
        assert answer_of(server, endpoint, **dict.fromkeys(refused, value)) == plain[endpoint]
    assert answer_of(server, endpoint, **{row.name: usual_value(row) for row in only}) == plain[endpoint]
    assert answer_of(server, endpoint, **dict.fromkeys([row.name for row in only])) == plain[endpoint]


@pytest.mark.parametrize("row", rows_of("REFUSED"))
def test_refused(server, row):
    assert "INSTEAD(" in row.rest
    for endpoint in row.endpoints:
        for value in ("x", 1, True, [1], {"a": 1}):
            assert refuse(server, endpoint, row.name, value)["code"] == "unsupported_parameter"


@pytest.mark.parametrize("row", rows_of("ONLY"))
def test_taken_with_one_value(server, row):
    for endpoint in row.endpoints:
        for value in ("high", 99, 1 if row.name == "adaptive_target" else -99, {"a": 1}, ["x", "y"]):
            assert refuse(server, endpoint, row.name, value)["code"] == "unsupported_value"


@pytest.mark.parametrize("row", rows_of("VARIABLE", "SWITCH"))
def test_variables_of_another_template(server, plain, row):
    """SmolLM2's template reads none of them."""
    for endpoint in row.endpoints:
        refuse(server, endpoint, row.name, True)
        assert answer_of(server, endpoint, **{row.name: False}) == plain[endpoint]


@pytest.mark.parametrize("row", rows_of("READ", "BOOL", "INT", "REAL", "VARIABLE", "SWITCH", "ONLY", "REFUSED"))
def test_another_endpoints(server, row):
    for endpoint in set(PATHS) - ENDPOINTS[row.name]:
        error = refuse(server, endpoint, row.name, WRONG)
        assert "belongs to" in error["message"] and error["code"] == "unsupported_parameter"


def test_what_no_row_knows(server):
    for endpoint in PATHS:
        error = refuse(server, endpoint, "no_such_field", {"deep": [1]})
        assert error["code"] == "unknown_parameter"
        assert answer_of(server, endpoint, no_such_field=None)
    assert '"max_tokens"' in refuse(server, "ON_CHAT", "max_tokns", 5)["message"]
    long = "x" * 10000
    assert long.startswith(server.refuse(PATHS["ON_CHAT"], {**REQUESTS["ON_CHAT"], long: 1})["param"])
    stream = {**REQUESTS["ON_CHAT"], "stream": True, "stream_options": {"include_usge": True}}
    assert "include_usge" in server.refuse(PATHS["ON_CHAT"], stream)["message"]
    tools = {"tools": [{"type": "function", "function": {"name": "f"}}],
             "tool_choice": {"type": "function", "function": {"name": "f", "strictly": True}}}
    assert "strictly" in server.refuse(PATHS["ON_CHAT"], {**REQUESTS["ON_CHAT"], **tools})["message"]


def test_the_documentation_has_every_field():
    text = (ROOT / "doc/interface.md").read_text()
    section = text[text.index("### Fields"):]
    listed = {kind: set(re.findall(r"`([\w.]+)`", line)) for kind, line in re.findall(r"^\| (\w+) \|(.*)\|$", section, re.M)}
    kinds = {"honoured": ("READ", "BOOL", "INT", "REAL", "VARIABLE", "SWITCH"), "harmless": ("HARMLESS",), "one": ("ONLY",), "refused": ("REFUSED",)}
    for word, members in kinds.items():
        assert listed[word] == {row.name for row in TABLE if row.kind in members}, word


# ---- what some of them do ------------------------------------------------------------------------------------------

def content(answer):
    choice = answer["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


@pytest.mark.parametrize("first, second", [
    ({"repeat_penalty": 1.9}, {"repetition_penalty": 1.9}), ({"n_predict": 5}, {"max_tokens": 5}), ({"n_cmpl": 2}, {"n": 2}),
    ({"no_stop_trim": True, "stop": " "}, {"include_stop_str_in_output": True, "stop": " "}), ({"max_tokens": 2, "max_completion_tokens": 4}, {"max_tokens": 4}),
])
def test_names_of_the_same(server, plain, first, second):
    for endpoint in ("ON_CHAT", "ON_COMPLETION"):
        fields = {**second, "max_tokens": second.get("max_tokens", 12)}
        answer = answer_of(server, endpoint, **{"max_tokens": None if "n_predict" in first else 12, **first})
        assert answer == answer_of(server, endpoint, **fields) != plain[endpoint]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_no_limit(server, name):
    (end,) = server.ask("/tokenize", {"prompt": "<|im_end|>", "add_special_tokens": False}).json["tokens"]
    for endpoint in ("ON_CHAT", "ON_COMPLETION"):
        request = {**REQUESTS[endpoint], "max_tokens": None, name: -1, "min_tokens": 20, "logit_bias": {end: 100}}
        answer = server.ask(PATHS[endpoint], request).json
        assert answer["usage"]["completion_tokens"] >= 20, "more than the 16 that a completion has without the field"
        assert server.refuse(PATHS[endpoint], {**request, name: -2})["param"] == name


def test_a_seed_of_minus_one_is_none(server):
    request = {"prompt": "A", "temperature": 5, "max_tokens": 8, "seed": -1}
    assert len({content(server.ask("/v1/completions", request).json) for _ in range(4)}) > 1


def test_tokens_as_ids(server):
    chat = answer_of(server, "ON_CHAT", logprobs=True, top_logprobs=2, return_tokens_as_token_ids=True, return_token_ids=True)["choices"][0]
    tokens = [entry["token"] for entry in chat["logprobs"]["content"]]
    assert tokens == [f"token_id:{token}" for token in chat["token_ids"]]
    text = b"".join(bytes(entry["bytes"]) for entry in chat["logprobs"]["content"]).decode()
    assert text == chat["message"]["content"]
    complete = answer_of(server, "ON_COMPLETION", logprobs=2, return_tokens_as_token_ids=True, return_token_ids=True)["choices"][0]
    assert complete["logprobs"]["tokens"] == [f"token_id:{token}" for token in complete["token_ids"]]
    assert all(name.startswith("token_id:") for table in complete["logprobs"]["top_logprobs"] for name in table)
    usual = answer_of(server, "ON_COMPLETION", logprobs=2)["choices"][0]["logprobs"]
    assert complete["logprobs"]["text_offset"] == usual["text_offset"]


def test_special_tokens_are_added_when_asked_for(nibble, gemma3):
    with Server(nibble, gemma3, *SMALL) as server:
        def count(**fields):
            return server.ask("/v1/completions", {"prompt": "Hi", "max_tokens": 1, **fields}).json["usage"]["prompt_tokens"]
        assert count() == count(add_special_tokens=True) == count(add_special_tokens=False) + 1
        chats = [server.chat("Hi", max_tokens=1, add_special_tokens=wanted)["usage"]["prompt_tokens"] for wanted in (None, False, True)]
        assert chats[0] == chats[1] == chats[2] - 1
        # The model has no chat template, but tokens for turns.
        assert any("no chat template" in line and "--chat-template" in line for line in server.log)
        tokens = server.ask("/tokenize", {"messages": [{"role": "system", "content": "Be kind."}, *user("Hi")]}).json["tokens"]
        assert server.ask("/detokenize", {"tokens": tokens}).json["prompt"] == \
            "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\n"


def test_a_model_that_cannot_chat(nibble, llama_source, tmp_path):
    """It has neither a chat template nor tokens for turns."""
    model = small_model.write(llama_source / "models" / "ggml-vocab-gpt-2.gguf", tmp_path / "small.gguf")
    with Server(nibble, model, *SMALL) as server:
        assert any("chats will be refused" in line and "--chat-template" in line for line in server.log)
        message = server.refuse("/v1/chat/completions", REQUESTS["ON_CHAT"])["message"]
        assert "--chat-template" in message and "/v1/completions" in message
        assert server.complete("Hi", max_tokens=1)


TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %} thinking={{ enable_thinking }} effort={{ reasoning_effort }}"


def test_variables_that_the_template_reads(nibble, smollm2, tmp_path):
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    with Server(nibble, small_model.write(smollm2, tmp_path / "small.gguf"), *SMALL, "--chat-template", tmp_path / "template.jinja") as server:
        request = {"messages": user("Hi"), "enable_thinking": True, "reasoning_effort": "low"}
        tokens = server.ask("/tokenize", request).json["tokens"]
        assert server.ask("/detokenize", {"tokens": tokens}).json["prompt"] == "Hi thinking=True effort=low"
        assert server.ask("/v1/chat/completions", {**request, "max_tokens": 1}).status == 200
        request = {"messages": user("Hi"), "thinking": True}  # under the name that the template reads
        tokens = server.ask("/tokenize", request).json["tokens"]
        assert server.ask("/detokenize", {"tokens": tokens}).json["prompt"] == "Hi thinking=True effort="
        refuse(server, "ON_CHAT", "enable_thinking", "yes")


# ---- structured outputs --------------------------------------------------------------------------------------------

SCHEMA = {"enum": ["red", "blue"]}
FORMS = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "json_schema": SCHEMA, "guided_json": SCHEMA,
    "structured_outputs": {"json": SCHEMA},
}
TEXTS = {
    "regex": "(red|blue)[0-9]{2}", "guided_regex": "^(red|blue)[0-9]{2}$", "structured_outputs": {"regex": "(red|blue)[0-9]{2}"},
}
CHOICES = {"guided_choice": ["red", "blue", "red", "redder"], "structured_outputs": {"choice": ["red", "blue"]}}


@pytest.mark.parametrize("endpoint", ["ON_CHAT", "ON_COMPLETION"])
def test_forms_under_all_their_names(server, endpoint):
    length = {"max_tokens": 12}
    for name, value in FORMS.items():
        assert content(answer_of(server, endpoint, **length, **{name: value})).strip() in ('"red"', '"blue"'), name
    assert content(answer_of(server, endpoint, **length, json_schema='{"enum": [7]}')).strip() == "7"
    for name, value in TEXTS.items():
        assert re.fullmatch("(red|blue)[0-9]{2}", content(answer_of(server, endpoint, **length, **{name: value}))), name
    for name, value in CHOICES.items():
        assert content(answer_of(server, endpoint, **length, **{name: value})) in ("red", "blue", "redder")
    form = {"type": "json_object", "schema": {"type": "object", "properties": {"a": {"const": 5}}, "required": ["a"], "additionalProperties": False}}
    assert re.sub(r"\s", "", content(answer_of(server, endpoint, max_tokens=30, response_format=form))) == '{"a":5}'


BAD_FORMS = [
    {"regex": "a)(b"}, {"regex": "(?=a)"}, {"guided_choice": []}, {"guided_choice": ["a", 5]}, {"guided_choice": [""]}, {"json_schema": "{"},
    {"guided_json": {"type": "foo"}}, {"structured_outputs": {"grammar": "x"}}, {"structured_outputs": {"json": SCHEMA, "regex": "a"}},
    {"structured_outputs": {"structural_tag": {"a": 1}}}, {"structured_outputs": {"choice": []}}, {"structured_outputs": {"regex": {}}}, {"response_format": {"type": "json_object", "shema": {}}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "extra": 1}}}, {"guided_regex": "a", "regex": "b"},
]


@pytest.mark.parametrize("fields", BAD_FORMS, ids=str)
def test_forms_that_cannot_be(server, fields):
    for endpoint in ("ON_CHAT", "ON_COMPLETION"):
        assert server.refuse(PATHS[endpoint], {**REQUESTS[endpoint], **fields})["param"] in fields


# ---- errors, names and fingerprints --------------------------------------------------------------------------------

def test_codes(server):
    chat = REQUESTS["ON_CHAT"]
    codes = {
        "context_length_exceeded": {**chat, "max_tokens": 10**6}, "invalid_value": {**chat, "temperature": -1},
        "unknown_parameter": {**chat, "tmperature": 1}, "unsupported_parameter": {**chat, "stop_regex": "x"},
        "unsupported_value": {**chat, "mirostat": 1},
    }
    for code, request in codes.items():
        assert server.refuse("/v1/chat/completions", request)["code"] == code
    long = {"prompt": "word " * 100000}
    assert server.refuse("/v1/completions", long)["code"] == "context_length_exceeded"
    assert server.refuse("/v1/completions", {})["code"] == "missing_required_parameter"
    assert server.refuse("/v1/completions", {"prompt": "x", "model": "y"}, 404)["code"] == "model_not_found"
    assert server.ask("/v1/models/y").error["code"] == "model_not_found"
    assert server.refuse("/v1/nothing", {}, 404)["code"] == "unknown_url"
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client, pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=server.model, messages=user("Hi"), max_tokens=10**6)
    assert error.value.code == "context_length_exceeded"


def test_keys_that_stand_twice(server):
    answer = server.ask("/v1/completions", b'{"prompt": "a", "max_tokens": 1, "prompt": "b"}')
    assert answer.status == 400 and '"prompt" stands twice' in answer.error["message"]


def name_of(server):
    return server.ask("/v1/models").json["data"][0]["id"]


@one_process
def test_the_models_own_name(nibble, smollm2, tmp_path):
    part = tmp_path / "Own-Name-00001-of-00001.gguf"
    part.symlink_to(smollm2)
    with Server(nibble, part, *SMALL, name=None) as server:
        assert name_of(server) == "Own-Name"
        first = server.chat("Hi", max_tokens=1)
        assert first["model"] == "Own-Name" and re.fullmatch(r"fp_[0-9a-f]{16}", first["system_fingerprint"])
        for name in ("", None, "Own-Name", str(part)):  # the path is one more name
            assert server.chat("Hi", max_tokens=1, model=name)["model"] == "Own-Name"
        for name in ("own-name", "Own", part.name, "gpt-4"):
            assert server.refuse("/v1/completions", {"prompt": "Hi", "model": name}, 404)["code"] == "model_not_found"
        assert server.ask(f"/v1/models/{str(part).replace('/', '%2F')}").json["id"] == str(part)
    with Server(nibble, part, *SMALL, name="given") as server:
        again = server.chat("Hi", max_tokens=1)
        assert again["system_fingerprint"] == first["system_fingerprint"]
        assert server.refuse("/v1/completions", {"prompt": "Hi", "model": str(part)}, 404)
    with Server(nibble, part, *SMALL, "--kv-cache-dtype", "fp8") as server:
        assert server.chat("Hi", max_tokens=1)["system_fingerprint"] != first["system_fingerprint"], "another plan"
