# SPDX-License-Identifier: Apache-2.0
"""Tokens as llama.cpp and the `tokenizers` package have them: vocabularies in GGUF files against the ids llama.cpp
publishes with them, tokenizer.json files of every family (and odd ones, at random) against `tokenizers` itself."""

import ctypes
import json
import pathlib
import random
import subprocess

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

import libnibble
import make_tokenizers

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
PAGE = (GOLDEN / "tokenizer_page.txt").read_bytes().decode()
SEPARATOR = b"\n__ggml_vocab_test__\n"
SUITES = ("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "mpt",
          "phi-3", "qwen2", "qwen35", "refact", "starcoder")
SIGN = make_tokenizers.SIGN


# ---- nibble, by its library (many texts, one opening) and by its command ----

class Tokenizer(libnibble.Tokenizer):
    """With the way back."""

    def decode(self, ids, skip_special=False):
        text, functions = libnibble.Text(), self.library.functions
        functions.nibble_decoder_open.restype = ctypes.c_void_p
        opened = functions.nibble_decoder_open(ctypes.c_void_p(self.pointer), ctypes.c_bool(skip_special))
        decoder = ctypes.c_void_p(opened)
        for id in ids:
            functions.nibble_decoder_add(decoder, ctypes.c_int32(id), ctypes.byref(text))
        functions.nibble_decoder_finish(decoder, ctypes.byref(text))
        functions.nibble_decoder_close(decoder)
        result = ctypes.string_at(text.data, text.len) if text.len else b""
        self.library.free(text.data)
        return result


@pytest.fixture(scope="module")
def open_tokenizer(library):
    loaded = libnibble.Library(library)

    def open_one(path):
        with libnibble.Checkpoint(loaded, path, libnibble.NEED_TEXT) as checkpoint:
            return Tokenizer(checkpoint)
    return open_one


def command(nibble, *arguments, text=b"", status=0):
    done = subprocess.run([nibble, "tokenize", *map(str, arguments)], input=text, capture_output=True)
    assert done.returncode == status, done.stderr.decode()
    return done.stderr.decode() if status else done.stdout


# ---- GGUF ----

def check_round_trip(tokenizer):
    page = PAGE.replace(SIGN, "").encode()  # SentencePiece cannot tell the sign from a space
    assert tokenizer.decode(tokenizer.encode(page, flags=0)) == page


@pytest.mark.parametrize("name", SUITES)
def test_llama_cpp_suite(name, llama_source, open_tokenizer):
    path = make_tokenizers.vocabulary_path(llama_source, name)
    texts = pathlib.Path(f"{path}.inp").read_bytes().split(SEPARATOR)
    expected = pathlib.Path(f"{path}.out").read_text().split("\n")
    assert len(texts) > 40
    with open_tokenizer(path) as tokenizer:
        for text, ids in zip(texts, expected):
            assert tokenizer.encode(text, flags=0) == [int(id) for id in ids.split()], text
        if name != "falcon":  # which has no tokens for control characters
            check_round_trip(tokenizer)


@pytest.mark.parametrize("name", ("aquila", "baichuan", "gpt-neox"))
def test_older_vocabularies_open(name, llama_source, open_tokenizer):
    with open_tokenizer(make_tokenizers.vocabulary_path(llama_source, name)) as tokenizer:
        check_round_trip(tokenizer)


@pytest.mark.parametrize("name,kind", (("bert-bge", "bert"), ("nomic-bert-moe", "t5")))
def test_other_kinds_are_refused_by_name(name, kind, nibble, llama_source):
    message = command(nibble, make_tokenizers.vocabulary_path(llama_source, name), "x", status=1)
    assert f'"{kind}"' in message and "gpt2" in message


def test_user_defined_tokens_match_longest_first(gemma3, open_tokenizer):
    with open_tokenizer(gemma3) as tokenizer:
        ids = tokenizer.encode("\n" * 34 + "\t\t\t\tx    y", flags=0)
        assert [tokenizer.decode([id]) for id in ids] == [b"\n" * 31, b"\n" * 3, b"\t" * 4, b"x", b"    ", b"y"]


# ---- tokenizer.json ----

def texts_of(page, seed, slices):
    rng = random.Random(seed)
    texts = [page, "", " ", *page.split("\n")]
    for _ in range(slices):
        start = rng.randrange(len(page))
        texts.append(page[start:start + rng.randrange(1, 60)])
    return texts


def check_text(got, want, text, invertible):
    """Where bytes make no text, `tokenizers` writes U+FFFD and nibble the bytes."""
    got = got.decode(errors="replace")
    if not invertible:
        assert got.replace("\ufffd", "") == want.replace("\ufffd", ""), text
    elif want.count("\ufffd") <= text.count("\ufffd"):
        assert got == want
    else:  # DeepSeek's ü is an added token; `tokenizers` takes it for a byte
        assert got.count("\ufffd") <= text.count("\ufffd")


def check_agreement(folder, tokenizer, texts, invertible=True):
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in texts:
        for special in (True, False):
            theirs.encode_special_tokens = not special
            expected = theirs.encode(text, add_special_tokens=special).ids
            flags = libnibble.ADD_SPECIAL | libnibble.PARSE_SPECIAL if special else 0
            assert tokenizer.encode(text, flags) == expected, (text, special)
            for skip in (True, False):
                want = theirs.decode(expected, skip_special_tokens=skip)
                check_text(tokenizer.decode(expected, skip), want, text, invertible)


@pytest.mark.parametrize("name", make_tokenizers.FAMILIES)
def test_family_agrees_with_tokenizers(name, llama_source, cache, open_tokenizer):
    folder = make_tokenizers.make(name, llama_source, cache / "tokenizers")
    with open_tokenizer(folder) as tokenizer:
        check_agreement(folder, tokenizer, texts_of(PAGE, name, 60))


@pytest.mark.parametrize("name", ("smollm2", "gemma3"))
def test_model_agrees_with_tokenizers(name, request, cache, open_tokenizer):
    path = request.getfixturevalue(name)
    folder = make_tokenizers.make_from_gguf(name, path, cache / "tokenizers")
    with open_tokenizer(folder) as tokenizer, open_tokenizer(path) as original:
        check_agreement(folder, tokenizer, texts_of(PAGE, name, 60))
        prose = (GOLDEN / "prose.txt").read_bytes()
        assert tokenizer.encode(prose, flags=0) == original.encode(prose, flags=0)


# ---- odd settings, at random ----

WORDS = ["the", "th", " the", "<a>", "<b>", "[X]", "ж", "\n", "  ", "   ", "The", "end", "1", "漢", "don't", "a b",
         SIGN + "x", "page", "of", ".", "fox", "<a", "a>"]
LITERALS = [" ", SIGN, "a", "th", "\n", "e", "..", ",", "1"]
REGEXES = [r"\s+", r"\d", r"\p{L}+", r"[^\s\p{L}]+", r"\s", r"\w+", r"'(?i:s|t)", r"x*", r"\p{N}{1,3}", r"[aeiou]",
           r"^\s+|\s+$", r"(?=[A-Z])", r"\bthe\b", r".\n", r"[^\w\s]", r"[\p{L}&&[^a-m]]+", r"\p{N}{1,2}+"]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


class Dice:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.pick = self.rng.choice

    def chance(self, probability=0.5):
        return self.rng.random() < probability

    def pattern(self):
        return {"String": self.pick(LITERALS)} if self.chance() else {"Regex": self.pick(REGEXES)}

    def several(self, make, depth):
        return [make(depth + 1) for _ in range(self.rng.randrange(4))]

    def normalizer(self, depth=0):
        kind = self.pick(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend", "Replace"]
                         + ["Sequence"] * (depth < 2))
        more = {"Strip": {"strip_left": self.chance(), "strip_right": self.chance()},
                "Prepend": {"prepend": self.pick([SIGN, " ", "xx"])},
                "Replace": {"pattern": self.pattern(), "content": self.pick(["", SIGN, " ", "zz", "$1"])},
                "Sequence": {"normalizers": self.several(self.normalizer, depth)} if kind == "Sequence" else {}}
        return {"type": kind} | more.get(kind, {})

    def pre_tokenizer(self, depth=0):
        kind = self.pick(["ByteLevel", "Split", "Split", "Digits", "Metaspace", "Whitespace", "WhitespaceSplit",
                          "Punctuation"] + ["Sequence"] * (depth < 2))
        more = {"ByteLevel": {"add_prefix_space": self.chance(), "trim_offsets": True, "use_regex": self.chance()},
                "Split": {"pattern": self.pattern(), "behavior": self.pick(BEHAVIORS), "invert": self.chance(0.3)},
                "Digits": {"individual_digits": self.chance()},
                "Metaspace": {"replacement": self.pick([SIGN, "_"]), "split": self.chance(),
                              "prepend_scheme": self.pick(["always", "first", "never"])},
                "Punctuation": {"behavior": self.pick(BEHAVIORS)},
                "Sequence": {"pretokenizers": self.several(self.pre_tokenizer, depth)} if kind == "Sequence" else {}}
        return {"type": kind} | more.get(kind, {})

    def decoder(self):
        fallback, fuse = {"type": "ByteFallback"}, {"type": "Fuse"}
        metaspace = {"type": "Metaspace", "replacement": SIGN, "prepend_scheme": self.pick(["always", "never"])}
        strip = {"type": "Strip", "content": self.pick([SIGN, "e", " "]), "start": self.rng.randrange(3), "stop": 0}
        star = {"type": "Replace", "pattern": {"Regex": "[aeiou]"}, "content": "*"}
        return self.pick([None, make_tokenizers.byte_level(), metaspace, fuse] + [
            make_tokenizers.sequence("decoders", *steps) for steps in (
                [*make_tokenizers.FUSE, make_tokenizers.STRIP], [strip, star], [fallback, metaspace])])

    def added(self, vocabulary, normalizer):
        """Words that stay apart and stay something after normalisation: where they do not, `tokenizers` panics."""
        seen, tokens, next_id = set(), [], max(vocabulary.values()) + 1
        for word in self.rng.sample(WORDS, self.rng.randrange(8)):
            normalized = self.chance(0.4)
            form = normalizer.normalize_str(word) if normalizer and normalized else word
            if not form or form in seen:
                continue
            seen.add(form)
            known = word in vocabulary
            tokens.append({"id": vocabulary[word] if known else next_id, "content": word,
                           "single_word": self.chance(0.2), "lstrip": self.chance(0.2), "rstrip": self.chance(0.2),
                           "normalized": normalized, "special": self.chance(0.4) and form == word})
            next_id += not known
        return sorted(tokens, key=lambda token: token["id"])

    def texts(self):
        made = ["".join(self.pick(WORDS + [" ", "x", "  ", "1"]) for _ in range(self.rng.randrange(1, 9)))
                for _ in range(15)]
        cut = texts_of(PAGE, self.rng.random(), 15)
        return made + cut[:3] + cut[-15:]


@pytest.fixture(scope="module")
def trained():
    """A small BPE for each way to treat what it has no token for."""
    page = PAGE.replace("\0", "")  # which jansson refuses in a key
    result = []
    for byte_level, unknown, fallback, fuse in ((1, 0, 0, 0), (1, 1, 0, 0), (0, 1, 0, 0), (0, 1, 0, 1), (0, 1, 1, 1),
                                                (0, 0, 1, 0), (0, 0, 0, 0)):
        model = models.BPE(unk_token="<unk>" if unknown else None, byte_fallback=bool(fallback), fuse_unk=bool(fuse))
        tokenizer = tokenizers.Tokenizer(model)
        if byte_level:
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if byte_level else [SIGN]
        special = ["<unk>"] + ["<0x%02X>" % byte for byte in range(256)] * fallback
        trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, initial_alphabet=alphabet,
                                      limit_alphabet=400, show_progress=False)
        tokenizer.train_from_iterator([page, page.replace(" ", SIGN)], trainer)
        result.append(json.loads(tokenizer.to_str()))
    return result


@pytest.mark.parametrize("seed", range(80))
def test_odd_settings_agree_with_tokenizers(seed, trained, tmp_path, open_tokenizer):
    dice = Dice(seed)
    tokenizer = dict(dice.pick(trained), decoder=dice.decoder(), added_tokens=[],
                     normalizer=dice.normalizer() if dice.chance(0.6) else None,
                     pre_tokenizer=dice.pre_tokenizer() if dice.chance(0.8) else None)
    tokenizer["model"] = tokenizer["model"] | {"ignore_merges": dice.chance(0.3)}
    normalizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer)).normalizer
    tokenizer["added_tokens"] = dice.added(tokenizer["model"]["vocab"], normalizer)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=dice.chance()), encoding="utf-8")
    (tmp_path / "config.json").write_text("{}")
    with open_tokenizer(tmp_path) as opened:
        check_agreement(tmp_path, opened, dice.texts(), invertible=False)


# ---- the command ----

def test_command_prints_ids_on_one_line(nibble, smollm2):
    assert command(nibble, smollm2, "Hello", "world") == b"19556 905\n"
    assert command(nibble, smollm2, "-", text=b"Hello world") == b"19556 905\n"
    assert command(nibble, smollm2, "--no-special", "-", text=b"") == b"\n"


def test_command_adds_and_recognises_special_tokens(nibble, gemma3):
    assert command(nibble, gemma3, "-", text=b"a<eos>") == b"2 236746 1\n"
    plain = command(nibble, gemma3, "--no-special", "-", text=b"a<eos>").split()
    assert plain[0] == b"236746" and b"1" not in plain and b"2" not in plain


def test_command_shows_pieces(nibble, smollm2):
    lines = command(nibble, smollm2, "--pieces", "Hello world\n").decode().split("\n")
    assert lines == ["19556\tHello", "905\tĠworld", "198\tĊ", ""]


@pytest.mark.parametrize("model", ("smollm2", "gemma3"))
def test_command_keeps_every_byte(nibble, model, request):
    path = request.getfixturevalue(model)
    text = PAGE.replace(SIGN, "").encode() + b"\x80 a\xc3(\xe2\x82 \xf0\x9f\x98\x00\x80z\xaf\xed\xa0\x80"
    ids = command(nibble, path, "--no-special", "-", text=text)
    assert command(nibble, path, "--decode", "-", text=ids) == text


def test_command_names_what_it_does_not_read(nibble, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": []}}')
    assert "Unigram" in command(nibble, tmp_path, "x", status=1)
