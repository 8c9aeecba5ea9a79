# SPDX-License-Identifier: Apache-2.0
"""Real tokenizer.json files without a hub: vocabularies out of GGUF files, in the structures their families publish.

    python3 make_tokenizers.py LLAMA_SOURCE FOLDER [GGUF ...]

Each becomes a folder with tokenizer.json and tokenizer_config.json that nibble and the `tokenizers` package both read.
"""

import functools
import json
import mmap
import pathlib
import struct
import sys

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6
SIGN = "\u2581"

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
          r"|\s*[\r\n]|\s+(?!\S)|\s")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+" + CONTRACTIONS +
        r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*" + CONTRACTIONS + r"?|\p{N}{1,3}" + TAIL)
DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
             "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def byte_level(use_regex=True, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def pretokenizers(*steps):
    return sequence("pretokenizers", *steps)


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


DIGITS = {"type": "Digits", "individual_digits": True}
SENTENCEPIECE = sequence("normalizers", {"type": "Prepend", "prepend": SIGN}, replace(" ", SIGN))
FUSE = [replace(SIGN, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
METASPACE = {"type": "Metaspace", "replacement": SIGN, "prepend_scheme": "first", "split": False}


NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Keys:
    """The keys of a GGUF, read straight through: the gguf package takes ten seconds for a large vocabulary."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 8
        self.take("Q")
        self.values = {}
        for _ in range(self.take("Q")):
            name = self.string().decode()
            self.values[name] = self.value(self.take("I"))

    def take(self, code, count=1):
        values = struct.unpack_from(f"<{count}{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{count}{code}")
        return values[0] if count == 1 else values

    def string(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length:self.at]

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.take(NUMBERS[kind])
        kind, count = self.take("I"), self.take("Q")
        return [self.string() for _ in range(count)] if kind == STRING else list(self.take(NUMBERS[kind], count))


class Vocabulary:
    """What a GGUF says of its tokens."""

    def __init__(self, path):
        keys = Keys(path).values
        self.pieces = [piece.decode() for piece in keys["tokenizer.ggml.tokens"]]
        self.types = keys["tokenizer.ggml.token_type"]
        self.scores = keys.get("tokenizer.ggml.scores")
        merges = keys.get("tokenizer.ggml.merges")
        self.merges = merges and [merge.decode() for merge in merges]
        self.bos, self.eos = keys["tokenizer.ggml.bos_token_id"], keys["tokenizer.ggml.eos_token_id"]

    def ids(self):
        return {piece: i for i, piece in enumerate(self.pieces)}

    def pairs(self):
        """Merges as pairs; where there are only scores, every way to make a piece, best piece first."""
        if self.merges is not None:
            return [(merge[:merge.index(" ", 1)], merge[merge.index(" ", 1) + 1:]) for merge in self.merges]
        ids, found = self.ids(), []
        for piece, kind, score in zip(self.pieces, self.types, self.scores):
            ways = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
            if kind == 1:
                found += [(score, pair) for pair in sorted(ways, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
        return [pair for _, pair in sorted(found, key=lambda item: item[0], reverse=True)]

    def added(self, normalized=False, rstrip=False):
        kinds = {UNKNOWN: True, CONTROL: True, USER_DEFINED: False}
        return [{"id": i, "content": piece, "single_word": False, "lstrip": False, "rstrip": rstrip and kinds[kind],
                 "normalized": normalized and not kinds[kind], "special": kinds[kind]}
                for i, (piece, kind) in enumerate(zip(self.pieces, self.types)) if kind in kinds]


def bpe(vocabulary, as_text=False, **settings):
    pairs = vocabulary.pairs()
    merges = [" ".join(pair) for pair in pairs] if as_text else [list(pair) for pair in pairs]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return model | settings | {"vocab": vocabulary.ids(), "merges": merges}


def template(name, id):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]}}}


def write(folder, vocabulary, model, normalizer, pre_tokenizer, decoder, post_processor=None, added=None):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = {"version": "1.0", "truncation": None, "padding": None,
                 "added_tokens": vocabulary.added() if added is None else added, "normalizer": normalizer,
                 "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    bos, eos = vocabulary.pieces[vocabulary.bos], vocabulary.pieces[vocabulary.eos]
    config = {"bos_token": bos, "eos_token": {"content": eos}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"eos_token_id": vocabulary.eos}), encoding="utf-8")


def byte_level_family(folder, vocabulary, pre_tokenizer, nfc=False, bos=False, as_text=False, normalized=False,
                      **settings):
    post = byte_level()
    if bos:
        post = sequence("processors", byte_level(), template(vocabulary.pieces[vocabulary.bos], vocabulary.bos))
    write(folder, vocabulary, bpe(vocabulary, as_text, **settings), {"type": "NFC"} if nfc else None, pre_tokenizer,
          byte_level(), post, vocabulary.added(normalized))


def sentencepiece_family(folder, vocabulary, normalizer, pre_tokenizer, decoders, rstrip=False):
    model = bpe(vocabulary, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    write(folder, vocabulary, model, normalizer, pre_tokenizer, sequence("decoders", *decoders),
          template(vocabulary.pieces[vocabulary.bos], vocabulary.bos), vocabulary.added(rstrip=rstrip))


def deepseek(regexes):
    return pretokenizers(*[split(regex) for regex in regexes], DIGITS, byte_level(use_regex=False))


FALCON = pretokenizers({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                       {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))
GEMMA = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def regex_then_bytes(*regexes):
    return pretokenizers(*[split(regex) for regex in regexes], byte_level(use_regex=False))


# name: (vocabulary, how it is made)
FAMILIES = {
    "llama-3": ("llama-bpe", lambda f, v: byte_level_family(
        f, v, regex_then_bytes(LLAMA3), bos=True, ignore_merges=True)),
    "tekken": ("llama-bpe", lambda f, v: byte_level_family(
        f, v, regex_then_bytes(TEKKEN), bos=True, ignore_merges=True)),
    "gpt-4o": ("llama-bpe", lambda f, v: byte_level_family(f, v, regex_then_bytes(GPT4O))),
    "cl100k": ("qwen2", lambda f, v: byte_level_family(f, v, regex_then_bytes(CL100K))),
    "kimi-k2": ("qwen2", lambda f, v: byte_level_family(f, v, regex_then_bytes(KIMI))),
    "bloom": ("gpt-2", lambda f, v: byte_level_family(f, v, regex_then_bytes(BLOOM), as_text=True)),
    "cohere-digits": ("gpt-2", lambda f, v: byte_level_family(
        f, v, regex_then_bytes(r"\d{1,3}(?=(?:\d{3})*\b)", LLAMA3), as_text=True)),
    "superbpe": ("gpt-2", lambda f, v: byte_level_family(
        f, v, regex_then_bytes(r"\p{N}+", r"(?=(\d{3})+(?!\d))"), as_text=True)),
    "deepseek-3": ("deepseek-llm", lambda f, v: byte_level_family(
        f, v, regex_then_bytes(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3), bos=True)),
    "deepseek-coder": ("deepseek-coder", lambda f, v: byte_level_family(
        f, v, deepseek(["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]), bos=True, normalized=True)),
    "qwen-2": ("qwen2", lambda f, v: byte_level_family(f, v, regex_then_bytes(QWEN2), nfc=True)),
    "gpt-2": ("gpt-2", lambda f, v: byte_level_family(f, v, byte_level(), as_text=True)),
    "neox": ("mpt", lambda f, v: byte_level_family(f, v, byte_level(), nfc=True, as_text=True, normalized=True)),
    "starcoder": ("starcoder", lambda f, v: byte_level_family(f, v, pretokenizers(DIGITS, byte_level()))),
    "command-r": ("command-r", lambda f, v: byte_level_family(
        f, v, pretokenizers(DIGITS, byte_level()), nfc=True, bos=True)),
    "falcon": ("falcon", lambda f, v: byte_level_family(f, v, FALCON, as_text=True)),
    "llama-2": ("llama-spm", lambda f, v: sentencepiece_family(f, v, SENTENCEPIECE, None, FUSE + [STRIP])),
    "mistral": ("llama-spm", lambda f, v: sentencepiece_family(f, v, None, METASPACE, FUSE + [STRIP])),
    "phi-3": ("phi-3", lambda f, v: sentencepiece_family(f, v, SENTENCEPIECE, None, FUSE + [STRIP], rstrip=True)),
    "gemma-4": ("gemma-4", lambda f, v: sentencepiece_family(f, v, replace(" ", SIGN), GEMMA, FUSE)),
}


@functools.lru_cache(maxsize=2)
def read_vocabulary(path):
    return Vocabulary(path)


def vocabulary_path(source, name):
    return next(pathlib.Path(source).rglob(f"ggml-vocab-{name}.gguf"))


def make(name, source, folder):
    """The folder of one family, made unless it is there already."""
    folder = pathlib.Path(folder) / name
    if not (folder / "config.json").exists():
        vocabulary, build = FAMILIES[name]
        build(folder, read_vocabulary(vocabulary_path(source, vocabulary)))
    return folder


def make_from_gguf(name, path, folder):
    """SmolLM2 and Gemma 3 out of the models themselves."""
    folder = pathlib.Path(folder) / name
    if not (folder / "config.json").exists():
        vocabulary = Vocabulary(path)
        if vocabulary.merges:
            byte_level_family(folder, vocabulary, pretokenizers(DIGITS, byte_level()))
        else:
            sentencepiece_family(folder, vocabulary, replace(" ", SIGN), GEMMA, FUSE)
    return folder


if __name__ == "__main__":
    for family in FAMILIES:
        print(make(family, sys.argv[1], sys.argv[2]))
    for model in sys.argv[3:]:
        print(make_from_gguf(pathlib.Path(model).stem, model, sys.argv[2]))
