# SPDX-License-Identifier: Apache-2.0
"""Fill in the middle: the prompts that a suffix makes, in the tokens and the order of each family."""

import pytest

import small_model
from serving import Server

PREFIX, SUFFIX = "def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n"
STAR = {"prefix": "<fim_prefix>", "suffix": "<fim_suffix>", "middle": "<fim_middle>"}
SMALL = ("--max-model-len", 512, "--kv-cache-memory-bytes", "64M")


def names(prefix, suffix, middle):
    return {"<fim_prefix>": prefix, "<fim_suffix>": suffix, "<fim_middle>": middle}


FAMILIES = {  # the vocabulary, its tokens under other names, and the parts of the prompt in order
    "starcoder": ("starcoder", {}, ["<fim_prefix>", PREFIX, "<fim_suffix>", SUFFIX, "<fim_middle>"]),
    "deepseek": ("deepseek-coder", {}, ["<｜begin▁of▁sentence｜>", "<｜fim▁begin｜>", PREFIX, "<｜fim▁hole｜>", SUFFIX, "<｜fim▁end｜>"]),
    "qwen": ("starcoder", names("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), ["<|fim_prefix|>", PREFIX, "<|fim_suffix|>", SUFFIX, "<|fim_middle|>"]),
    "codestral": ("starcoder", names("[PREFIX]", "[SUFFIX]", "[MIDDLE]"), ["[SUFFIX]", SUFFIX, "[PREFIX]", PREFIX]),
    "glm": ("starcoder", names("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
            ["<|code_prefix|>", PREFIX, "<|code_suffix|>", SUFFIX, "<|code_middle|>"]),
}


def encode(server, parts):
    return [token for part in parts for token in server.ask("/tokenize", {"prompt": part, "add_special_tokens": False}).json["tokens"]]


def vocabulary(llama_source, name):
    return llama_source / "models" / f"ggml-vocab-{name}.gguf"


def middle(server, **fields):
    request = {"prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 4, "temperature": 0, "return_token_ids": True, **fields}
    answer = server.ask("/v1/completions", request)
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_prompt(nibble, llama_source, tmp_path, name):
    source, renamed, parts = FAMILIES[name]
    with Server(nibble, small_model.write(vocabulary(llama_source, source), tmp_path / "small.gguf", renamed), *SMALL) as server:
        answer = middle(server)
        assert answer["prompt_token_ids"] == encode(server, parts)
        assert answer["text"] and len(answer["token_ids"]) == 4
        assert middle(server, prompt=[PREFIX, "x"])["prompt_token_ids"] == encode(server, parts)
        if name != "starcoder":
            return
        written_out = middle(server, prompt="<fim_middle>")["prompt_token_ids"]  # a text makes no special tokens
        assert written_out.count(encode(server, ["<fim_middle>"])[0]) == 1
        plain = server.ask("/v1/completions", {"prompt": PREFIX, "max_tokens": 4, "temperature": 0, "return_token_ids": True}).json["choices"][0]
        assert middle(server, suffix="") == middle(server, suffix=None) == plain
        for fields in ({"prompt": [1, 2]}, {"echo": True}, {"suffix": ["x"]}):
            assert server.refuse("/v1/completions", {"prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 4, **fields})["param"] == "suffix"
        events = list(server.events("/v1/completions", {"prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 4, "temperature": 0}))
        assert "".join(event["choices"][0]["text"] for event in events[:-1]) == answer["text"]
        (end,) = encode(server, ["<fim_pad>"])  # with which a middle ends, too
        assert middle(server, logit_bias={end: 100})["finish_reason"] == "stop"
        assert middle(server, logit_bias={end: 100}, ignore_eos=True)["finish_reason"] == "length"


def test_tokens_that_a_gguf_names(nibble, llama_source, tmp_path):
    """Code Llama's: the prefix begins with the space that SentencePiece puts before a text, the suffix does not."""
    keys = {"prefix_token_id": 3000, "suffix_token_id": 3001, "middle_token_id": 3002}
    with Server(nibble, small_model.write(vocabulary(llama_source, "llama-spm"), tmp_path / "small.gguf", **keys), *SMALL) as server:
        ids = middle(server, prompt="def f", suffix="return x")["prompt_token_ids"]
        assert ids[:2] == [1, 3000] and ids[-1] == 3002
        at = ids.index(3001)
        assert ids[2:at] == encode(server, ["def f"])
        (dummy,) = encode(server, ["return"])
        assert ids[at + 1] != dummy and encode(server, ["x return"])[-1] == dummy
        tokens = server.ask("/tokenize", {"prompt": "return x", "add_special_tokens": False, "return_token_strs": True}).json["token_strs"]
        assert tokens == ["▁return", "▁x"] and len(ids[at + 1:-1]) == 2
        assert server.ask("/detokenize", {"tokens": [dummy] + ids[at + 1:-1]}).json["prompt"].endswith("returnreturn x")


def test_a_model_without(server):
    error = server.refuse("/v1/completions", {"prompt": PREFIX, "suffix": SUFFIX})
    assert error["param"] == "suffix" and "no tokens for fill in the middle" in error["message"] and error["code"] == "unsupported_parameter"
