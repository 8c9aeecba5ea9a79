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


# ---- /infill --------------------------------------------------------------------------------------------------------

FILES = [{"filename": "a.py", "text": "x = 1\n"}, {"filename": "b.py", "text": "y = 2\n"}]


def infill(server, **fields):
    answer = server.ask("/infill", {"input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": 6, "temperature": 0, **fields})
    assert answer.status == 200, answer.body
    return answer.json


def test_infill(nibble, llama_source, tmp_path):
    """llama-server's own endpoint, its fields and its words."""
    with Server(nibble, small_model.write(vocabulary(llama_source, "starcoder"), tmp_path / "small.gguf"), *SMALL) as server:
        completed = middle(server, max_tokens=6)
        answer = infill(server)
        assert answer["content"] == completed["text"] and answer["stop"] is True and answer["stop_type"] == "limit"
        assert answer["tokens_predicted"] == 6 and answer["tokens_evaluated"] == len(completed["prompt_token_ids"])
        events = list(server.events("/infill", {"input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": 6, "temperature": 0}))
        assert "".join(event["content"] for event in events) == answer["content"]
        assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
        assert {**events[-1], "content": "", "tokens_cached": 0} == {**answer, "content": "", "tokens_cached": 0}
        request = {"prompt": PREFIX, "suffix": SUFFIX, "stream": False, "options": {"num_predict": 6, "temperature": 0}}
        ollama = server.ask("/api/generate", request).json
        assert (ollama["response"], ollama["prompt_eval_count"]) == (answer["content"], answer["tokens_evaluated"]), "as Ollama's clients ask for it"
        assert "insert" in server.ask("/api/show", {"model": server.model}).json["capabilities"]
        begun = infill(server, prompt="a")
        assert begun["tokens_evaluated"] == answer["tokens_evaluated"] + 1
        extra = infill(server, input_extra=FILES)
        files = "".join(f"\n--- {file['filename']}\n{file['text']}" for file in FILES)
        assert extra["tokens_evaluated"] > answer["tokens_evaluated"] + len(encode(server, [files])) // 2
        assert infill(server, stop=answer["content"][1:3])["stop_type"] == "word"
        (end,) = encode(server, ["<fim_pad>"])
        assert infill(server, logit_bias={end: 100})["stop_type"] == "eos"
        assert infill(server, samplers=["top_k"], top_k=1, dry_multiplier=0, temperature=1)["content"] == answer["content"]
        assert infill(server, input_prefix="", input_suffix="x")["content"]
        for name, wrong in (("input_prefix", 5), ("input_suffix", ["a"]), ("prompt", [1]), ("input_extra", "x"), ("input_extra", [{"text": 5}]),
                            ("input_extra", [{"text": "", "path": "x"}]), ("n", 2), ("logprobs", 1), ("messages", [1]), ("n_probs", 5)):
            assert server.refuse("/infill", {"input_prefix": "a", name: wrong})["param"] == name
        assert server.refuse("/infill", {})["code"] == "missing_required_parameter"


def test_infill_without_tokens(server):
    assert "no tokens for fill in the middle" in server.refuse("/infill", {"input_prefix": "a", "input_suffix": "b"})["message"]
