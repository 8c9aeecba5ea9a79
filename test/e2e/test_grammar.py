# SPDX-License-Identifier: Apache-2.0
"""Answers that always parse: random walks through real vocabularies, held to what `json` and `jsonschema` say of them."""

import ctypes
import datetime
import json
import random
import re
import urllib.parse
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

import jsonschema
import numpy as np
import pytest

import libnibble

PROTOTYPES = {
    "grammar_vocabulary_open": (c_void_p, [c_void_p]),
    "grammar_vocabulary_close": (None, [c_void_p]),
    "grammar_from_schema": (c_void_p, [c_void_p, POINTER(libnibble.Error)]),
    "grammar_free": (None, [c_void_p]),
    "grammar_shortest": (c_int, [c_void_p, c_void_p]),
    "matcher_open": (c_void_p, [c_void_p, c_void_p]),
    "matcher_close": (None, [c_void_p]),
    "matcher_restrict": (c_uint64, [c_void_p, POINTER(c_uint32)]),
    "matcher_choose": (c_int32, [c_void_p, c_int, c_int32]),
    "matcher_accept": (None, [c_void_p, c_int32]),
    "matcher_done": (c_bool, [c_void_p]),
    "json_loads": (c_void_p, [c_char_p, c_size_t, c_void_p]),
    "json_delete": (None, [c_void_p]),
    "nibble_tokenizer_open": (c_void_p, [c_void_p, POINTER(libnibble.Error)]),
    "nibble_checkpoint_open": (c_void_p, [c_char_p, c_int, POINTER(libnibble.Error)]),
    "nibble_vocabulary_size": (c_int, [c_void_p]),
    "nibble_token_ends_text": (c_bool, [c_void_p, c_int32]),
    "nibble_tokenize": (ctypes.c_ssize_t, [c_void_p, c_char_p, c_size_t, c_int, POINTER(POINTER(c_int32)),
                                           POINTER(libnibble.Error)]),
    "nibble_decoder_open": (c_void_p, [c_void_p, c_bool]),
    "nibble_decoder_add": (None, [c_void_p, c_int32, POINTER(libnibble.Text)]),
    "nibble_decoder_finish": (None, [c_void_p, POINTER(libnibble.Text)]),
    "nibble_decoder_close": (None, [c_void_p]),
}
JSON_DECODE_ANY = 4


@pytest.fixture(scope="module")
def lib(library):
    functions = ctypes.CDLL(library)
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    functions.release = ctypes.CDLL(None).free
    functions.release.argtypes = [c_void_p]
    return functions


class Refused(Exception):
    pass


class Grammar:
    def __init__(self, lib, schema):
        self.lib, error = lib, libnibble.Error()
        value = lib.json_loads(json.dumps(schema).encode(), JSON_DECODE_ANY, None)
        assert value
        self.pointer = lib.grammar_from_schema(value, byref(error))
        lib.json_delete(value)
        if not self.pointer:
            raise Refused(error.text.decode())

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.lib.grammar_free(self.pointer)


class Vocabulary:
    def __init__(self, lib, path):
        self.lib, error = lib, libnibble.Error()
        self.checkpoint = lib.nibble_checkpoint_open(str(path).encode(), libnibble.NEED_TEXT, byref(error))
        assert self.checkpoint, error.text
        self.tokenizer = lib.nibble_tokenizer_open(self.checkpoint, byref(error))
        assert self.tokenizer, error.text
        self.size = lib.nibble_vocabulary_size(self.tokenizer)
        self.pointer = lib.grammar_vocabulary_open(self.tokenizer)
        self.structural = np.array([bool(re.search(rb'["{}\[\],:]|^-?[0-9.]+$', self.text([0, i])[len(self.text([0])):]))
                                    for i in range(self.size)])

    def text(self, ids):
        text, decoder = libnibble.Text(), self.lib.nibble_decoder_open(self.tokenizer, True)
        for token in ids:
            self.lib.nibble_decoder_add(decoder, token, byref(text))
        self.lib.nibble_decoder_finish(decoder, byref(text))
        self.lib.nibble_decoder_close(decoder)
        result = ctypes.string_at(text.data, text.len) if text.len else b""
        self.lib.release(text.data)
        return result

    def encode(self, text):
        ids, error = POINTER(c_int32)(), libnibble.Error()
        count = self.lib.nibble_tokenize(self.tokenizer, text.encode(), len(text.encode()), 0, byref(ids), byref(error))
        result = ids[:count]
        self.lib.release(ids)
        return result


class Matcher:
    def __init__(self, grammar, vocabulary):
        self.lib, self.vocabulary = grammar.lib, vocabulary
        self.pointer = self.lib.matcher_open(grammar.pointer, vocabulary.pointer)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.lib.matcher_close(self.pointer)

    def allowed(self):
        mask = np.full((self.vocabulary.size + 31) // 32, 0xFFFFFFFF, dtype=np.uint32)
        self.lib.matcher_restrict(self.pointer, mask.ctypes.data_as(POINTER(c_uint32)))
        return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))

    def choose(self, left, drawn):
        return self.lib.matcher_choose(self.pointer, left, drawn)

    def accept(self, token):
        self.lib.matcher_accept(self.pointer, token)

    def done(self):
        return self.lib.matcher_done(self.pointer)


@pytest.fixture(scope="module")
def vocabularies(lib, smollm2, llama_source):
    """Byte-level BPE, and SentencePiece with its leading space and its byte tokens."""
    spm = llama_source / "models" / "ggml-vocab-llama-spm.gguf"
    return {"smollm2": Vocabulary(lib, smollm2), "llama-spm": Vocabulary(lib, spm)}


def walk(grammar, vocabulary, seed, budget):
    """One answer of at most `budget` tokens, drawn at random; half of the time among tokens that get on with it."""
    rng, ids = random.Random(seed), []
    with Matcher(grammar, vocabulary) as matcher:
        for left in range(budget, 0, -1):
            if matcher.done():
                break
            allowed = matcher.allowed()
            assert len(allowed), f"nothing may follow {vocabulary.text(ids)}"
            some = allowed[vocabulary.structural[allowed]] if rng.random() < 0.6 else allowed
            token = matcher.choose(left, int(rng.choice(some if len(some) else allowed)))
            matcher.accept(token)
            if vocabulary.lib.nibble_token_ends_text(vocabulary.tokenizer, token):
                break
            ids.append(token)
    return vocabulary.text(ids).decode()


DEFS = {"node": {"type": "object", "properties": {"value": {"type": "integer"},
                                                  "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                 "required": ["value", "next"]}}


def obj(required=None, **properties):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


SCHEMAS = [
    True, {}, {"description": "anything"}, {"type": "object"}, {"type": "array"}, {"type": "string"}, {"type": "number"},
    {"type": "integer"}, {"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}, {"type": ["integer", "array"]},
    {"type": "string", "minLength": 3}, {"type": "string", "maxLength": 5}, {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "minLength": 7, "maxLength": 7}, {"type": "string", "maxLength": 0}, {"type": "string", "maxLength": 300},
    {"type": "string", "pattern": "^[a-z]+$"}, {"type": "string", "pattern": "^\\d{3}-\\d{4}$"},
    {"type": "string", "pattern": "^(foo|ba[rz])+$"}, {"type": "string", "pattern": "x+y"},
    {"type": "string", "pattern": "^[^a-z\"]*$"}, {"type": "string", "pattern": "^\\w+@\\w+\\.(com|org)$"},
    {"type": "string", "pattern": "^.{2,5}$"}, {"type": "string", "pattern": "^[äöü\\u00df]{1,3}$"},
    {"type": "string", "pattern": "^a\\\\b\"c$"}, {"type": "string", "pattern": "^\\s\\S+\\W$"},
    {"type": "string", "pattern": "^[A-Z]{2,}$", "maxLength": 6}, {"type": "string", "pattern": "^[\\n\\t -]+$", "minLength": 3},
    {"type": "string", "pattern": "^a|b$"}, {"type": "string", "pattern": "^(?:a?b*?){1,4}c$"}, {"type": "string", "pattern": ""},
    {"type": "string", "format": "date"}, {"type": "string", "format": "time"}, {"type": "string", "format": "date-time"},
    {"type": "string", "format": "uuid"}, {"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"},
    {"type": "string", "format": "email"}, {"type": "string", "format": "hostname"}, {"type": "string", "format": "uri"},
    {"type": "string", "format": "duration"}, {"type": "string", "format": "password"},
    {"type": "integer", "minimum": 0}, {"type": "integer", "minimum": 5, "maximum": 137}, {"type": "integer", "maximum": -3},
    {"type": "integer", "minimum": -20, "maximum": 1005}, {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3},
    {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}, {"type": "integer", "minimum": 999, "maximum": 1000},
    {"type": "integer", "minimum": 0.5, "maximum": 2.5}, {"type": "integer", "minimum": 3, "maximum": 3},
    {"type": "number", "minimum": 0, "maximum": 1}, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "minimum": -1.5, "maximum": 2.25}, {"type": "number", "minimum": 0.1, "maximum": 0.3},
    {"type": "number", "exclusiveMinimum": 0.3, "maximum": 0.31}, {"type": "number", "minimum": 1e6}, {"type": "number", "maximum": -0.001},
    {"type": "number", "exclusiveMaximum": 1e12}, {"type": "number", "minimum": 99.5, "maximum": 100.25},
    {"minimum": 10}, {"minLength": 2}, {"properties": {"a": {"type": "integer"}}}, {"items": {"type": "boolean"}},
    {"enum": ["red", "green", "blue"]}, {"enum": [1, 12, 123, None, True, "a\"b", {"k": [1, 0.1]}]}, {"const": "only"}, {"const": None},
    {"type": "string", "enum": ["a", 1, "b"]}, {"enum": ["日本", "日本語", "é"]},
    {"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
    {"type": "array", "maxItems": 0}, {"type": "array", "items": False}, {"type": "array", "minItems": 5, "items": {"type": "null"}},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}, "minItems": 3},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "null"}, {"type": "null"}], "minItems": 1, "maxItems": 2},
    {"type": "array", "items": {"type": "array", "items": {"type": "number"}, "maxItems": 2}},
    {"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "object", "additionalProperties": False},
    {"type": "object", "required": ["x"]}, {"type": "object", "required": ["x"], "additionalProperties": {"type": "null"}},
    obj(name={"type": "string"}, age={"type": "integer"}), obj([], a={"type": "integer"}, b={"type": "null"}, ab={"type": "boolean"}),
    obj(["c"], a={"type": "integer"}, b={"type": "null"}, c={"enum": [1]}, d={"type": "string", "maxLength": 2}),
    obj(["b"], a=False, b={"type": "integer"}), {**obj(a={"type": "integer"}), "additionalProperties": False},
    obj(**{"k\"ey\\": {"type": "null"}, "ключ": {"type": "boolean"}, "new\nline": {"const": 1}, "": {"const": 2}}),
    obj(person=obj(name={"type": "string", "maxLength": 8}, tags={"type": "array", "items": {"type": "string", "maxLength": 3}})),
    {"anyOf": [{"type": "integer"}, {"type": "number"}, obj(a={"type": "null"}), obj(a={"type": "null"}, b={"type": "null"})]},
    {"anyOf": [obj(kind={"const": "cat"}, lives={"type": "integer"}), obj(kind={"const": "dog"}, good={"type": "boolean"})]},
    {"oneOf": [obj(kind={"const": "cat"}, lives={"type": "integer"}), obj(kind={"const": "dog"}, good={"type": "boolean"})]},
    {"anyOf": [{"type": "array", "minItems": 1}, {"type": "string", "pattern": "."}]},
    {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}, {"oneOf": [{"enum": [1, 2]}, {"const": 3}]},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"allOf": [{"type": "integer"}]}, {"allOf": [obj(a={"type": "integer"}), obj(b={"type": "string", "maxLength": 4})]},
    {"allOf": [{"type": ["integer", "string"]}, {"type": ["number", "null"]}, {"minimum": 3}], "maximum": 9},
    {"allOf": [obj(a={"type": "integer", "minimum": 3}), obj(a={"maximum": 5})]},
    {"$defs": DEFS, "$ref": "#/$defs/node"}, {"$defs": DEFS, "allOf": [{"$ref": "#/$defs/node"}], "title": "T"},
    {"definitions": {"a/b c": {"const": 7}}, "$ref": "#/definitions/a~1b%20c"},
    {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}, "required": ["children"]},
    {"type": "object", "properties": {"next": {"$ref": "#"}}}, {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]},
    {"$defs": {"s": {"type": "string"}}, "type": "object", "properties": {"x": {"$ref": "#/$defs/s", "maxLength": 2}}, "required": ["x"]},
    {"type": "string", "nullable": True, "maxLength": 1}, {"uniqueItems": False, "type": "array", "items": {"const": 1}},
]


CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
CHECKER.checks("date-time", ValueError)(lambda text: bool(datetime.datetime.fromisoformat(text)))
CHECKER.checks("time", ValueError)(lambda text: bool(datetime.time.fromisoformat(text) is not None))
CHECKER.checks("uri", ValueError)(lambda text: bool(urllib.parse.urlsplit(text).netloc))


def meets(schema, value):
    if isinstance(schema, dict) and schema.get("nullable") and value is None:
        return
    jsonschema.Draft202012Validator(schema, format_checker=CHECKER).validate(value)


@pytest.mark.parametrize("name", ["smollm2", "llama-spm"])
def test_every_walk_parses_and_validates(lib, vocabularies, name):
    vocabulary, rng = vocabularies[name], random.Random(7)
    for index, schema in enumerate(SCHEMAS):
        with Grammar(lib, schema) as grammar:
            shortest = lib.grammar_shortest(grammar.pointer, vocabulary.pointer)
            assert 0 < shortest < 200, schema
            for seed in range(12):
                budget = shortest + (seed if seed < 4 else rng.randrange(60))
                text = walk(grammar, vocabulary, seed * 1000 + index, budget)
                try:
                    meets(schema, json.loads(text))
                except Exception as error:
                    pytest.fail(f"{json.dumps(schema)} seed {seed} budget {budget}: {text!r}: {error}")


ACCEPTED = [  # what models write, as they write it
    ({"type": "object"}, '{"name": "Ada", "tags": ["a", "b"], "n": -1.5e10, "ok": true, "no": null}'),
    ({"type": "object"}, '{"a":{"b":[1,2,{"c":"\\u00e9\\n\\"x\\""}]}}'),
    (obj(name={"type": "string"}, age={"type": "integer"}), '{"name": "Zoë 日本 😀", "age": 36}'),
    (obj([], a={"type": "integer"}, b={"type": "integer"}), '{"b": 2}'),
    ({"type": "string", "maxLength": 5}, '"日本語😀é"'),
    ({"type": "number", "minimum": 0, "maximum": 1}, "0.85"), ({"type": "number"}, "3.14159"),
    ({"type": "string", "format": "date-time"}, '"2024-02-28T23:59:59.5+01:00"'),
    ({"type": "string", "format": "email"}, '"ada.lovelace@mail.example.org"'),
    ({"type": "string", "pattern": "^https?://"}, '"https://example.org/a?b=\\"c\\""'),
    ({"type": "object"}, json.dumps({"a": {"b": [1, {"c": []}]}, "d": {}}, indent=2)), ({"type": "object"}, json.dumps({"a": [{"b": 1}]}, indent="\t")),
    (obj(rows={"type": "array", "items": obj(id={"type": "integer"})}), json.dumps({"rows": [{"id": 1}, {"id": 2}]}, indent=4)),
    ({"enum": [0.1, "x"]}, "0.1"), ({"type": "array", "items": {"type": "string"}}, '["a", "b c"]'),
]


@pytest.mark.parametrize("name", ["smollm2", "llama-spm"])
def test_what_models_write_is_accepted(lib, vocabularies, name):
    vocabulary = vocabularies[name]
    for schema, text in ACCEPTED:
        meets(schema, json.loads(text))
        with Grammar(lib, schema) as grammar, Matcher(grammar, vocabulary) as matcher:
            for token in vocabulary.encode(text):
                assert token in matcher.allowed(), (schema, text, vocabulary.text([token]))
                assert matcher.choose(1000, token) == token
                matcher.accept(token)
            assert any(lib.nibble_token_ends_text(vocabulary.tokenizer, int(i)) for i in matcher.allowed()), text


REFUSED = [
    (3, "object, true or false"), (False, "no answer"), ({"not": {}}, "'not' cannot be enforced"), ({"type": "int"}, "'type'"),
    ({"type": "array", "uniqueItems": True}, "'uniqueItems' cannot be enforced"), ({"type": "number", "multipleOf": 2}, "'multipleOf'"),
    ({"patternProperties": {"a": {}}}, "'patternProperties'"), ({"if": {}}, "'if'"), ({"minProperties": 1}, "'minProperties'"),
    ({"enum": []}, "cannot be met"), ({"type": "string", "minLength": 4, "maxLength": 3}, "minLength is greater"),
    ({"type": "array", "minItems": 4, "maxItems": 3}, "minItems is greater"), ({"type": "integer", "minimum": 4, "maximum": 3}, "cannot be met"),
    ({"type": "integer", "minimum": 0.2, "maximum": 0.8}, "no answer"), (obj(a=False), "no answer"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no answer"), ({"$ref": "#"}, "refers to itself"),
    ({"$ref": "#/$defs/x"}, "leads nowhere"), ({"$ref": "https://example.org/x"}, "cannot be followed"),
    ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "refers to itself"), ({"anyOf": []}, "'anyOf'"), ({"allOf": {}}, "'allOf'"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "'oneOf' cannot be enforced"), ({"required": "a"}, "'required'"),
    ({"type": "string", "pattern": "(?=a)b"}, "look-around"), ({"type": "string", "pattern": "(a"}, "not closed"),
    ({"type": "string", "pattern": "\\bfoo"}, "\\b cannot be enforced"), ({"type": "string", "pattern": "a(b|^c)"}, "only at the ends"),
    ({"type": "string", "pattern": "(x+x+)+y{4000}{4000}"}, "'pattern'"), ({"type": "string", "format": "iri"}, "'iri' cannot be enforced"),
    ({"type": "string", "pattern": "^a{5}$", "maxLength": 3}, "cannot be met"), ({"type": "string", "minLength": 100000}, "bytes"),
    ({"type": "array", "minItems": 10**9}, "more than any answer"), ({"allOf": [{"type": "string"}, {"type": "null"}]}, "cannot be met"),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "'pattern'"), ({"properties": [1]}, "'properties'"),
    ({"allOf": [{**obj(a={}), "additionalProperties": False}, obj(b={})]}, "'additionalProperties'"),
    ({"allOf": [{"type": "array", "prefixItems": [{}]}, {"items": {"type": "null"}}]}, "'prefixItems'"),
    ({"enum": ["a"], "maxLength": 3}, "'maxLength' beside enum"), ({"type": "string", "minLength": -1}, "minLength"),
    ({"properties": {"a": {"items": {"not": {}}}}}, "#/properties/a/items"),
]


def test_what_cannot_be_promised_is_refused(lib):
    for schema, words in REFUSED:
        with pytest.raises(Refused, match=re.escape(words)):
            Grammar(lib, schema)


def test_a_hostile_schema_costs_little(lib, vocabularies):
    """Schemas that double at every step, or ask for more than there is: a grammar or a sentence, and soon."""
    def chain(make, count=90):
        return {"$defs": {f"d{i}": make(i) for i in range(count)} | {f"d{count}": {"type": "null"}}, "$ref": "#/$defs/d0"}

    def ref(i):
        return {"$ref": f"#/$defs/d{i + 1}"}

    deep = {"type": "null"}
    for _ in range(95):
        deep = {"type": "array", "items": deep, "minItems": 1}
    hostile = [
        chain(lambda i: {"anyOf": [ref(i), {"anyOf": [ref(i), {"const": i}]}]}),
        chain(lambda i: obj(a=ref(i), b=ref(i))), chain(lambda i: {"allOf": [ref(i), ref(i)]}), deep,
        chain(lambda i: {"type": "array", "items": ref(i), "minItems": 2}),
        {"anyOf": [obj(**{f"p{j}": {"type": "string", "minLength": j} for j in range(20)}) for _ in range(200)]},
        {"type": "string", "pattern": "^(a|a)*(a|b){200}[^x]*$"}, {"type": "string", "pattern": "(.*a.{12}.*)"},
        {"type": "object", "properties": {f"k{i}": {"type": "integer", "minimum": i} for i in range(1024)}},
        {"enum": [f"{i}" * 20 for i in range(20000)]}, {"type": "string", "pattern": "(" * 100 + ")" * 100},
        {"type": "array", "items": {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"$ref": "#/items"}}]}},
    ]
    for schema in hostile:
        try:
            with Grammar(lib, schema) as grammar:
                for seed in range(2):
                    shortest = lib.grammar_shortest(grammar.pointer, vocabularies["smollm2"].pointer)
                    json.loads(walk(grammar, vocabularies["smollm2"], seed, shortest + 20))
        except Refused as refused:
            assert "schema" in str(refused)
