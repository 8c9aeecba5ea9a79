# SPDX-License-Identifier: Apache-2.0
"""Answers that always parse: random walks through real vocabularies, held to what `json` and `jsonschema` say of them."""

import ctypes
import json
import random
import re
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

import numpy as np
import pytest

import libnibble
from schemas import Dice, MODELS, is_valid, meets

PROTOTYPES = {
    "grammar_vocabulary_open": (c_void_p, [c_void_p]),
    "grammar_vocabulary_close": (None, [c_void_p]),
    "grammar_from_schema": (c_void_p, [c_void_p, POINTER(libnibble.Error)]),
    "grammar_free": (None, [c_void_p]),
    "grammar_unenforced": (c_char_p, [c_void_p]),
    "grammar_unsupported": (c_char_p, [c_void_p]),
    "validate": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(libnibble.Error)]),
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
        self.loose, self.unheld = ((function(self.pointer) or b"").decode() for function in (lib.grammar_unenforced, lib.grammar_unsupported))

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
    (3, "object, true or false"), (False, "no answer"), ({"not": {}}, "no answer"), ({"type": "int"}, "'type'"),
    ({"type": "array", "uniqueItems": 1}, "'uniqueItems'"), ({"type": "number", "multipleOf": 0}, "'multipleOf'"),
    ({"patternProperties": {"a": 3}}, "'patternProperties'"), ({"if": 1}, "'if'"), ({"minProperties": -1}, "minProperties"),
    ({"patternProperties": {"(": {}}}, "patternProperties"), ({"not": 1}, "'not'"), ({"propertyNames": []}, "'propertyNames'"),
    ({"enum": []}, "cannot be met"), ({"type": "string", "minLength": 4, "maxLength": 3}, "minLength is greater"),
    ({"type": "array", "minItems": 4, "maxItems": 3}, "minItems is greater"), ({"type": "integer", "minimum": 4, "maximum": 3}, "cannot be met"),
    ({"type": "integer", "minimum": 0.2, "maximum": 0.8}, "no answer"), (obj(a=False), "no answer"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no answer"), ({"$ref": "#"}, "refers to itself"),
    ({"$ref": "#/$defs/x"}, "leads nowhere"),
    ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "refers to itself"), ({"anyOf": []}, "'anyOf'"), ({"allOf": {}}, "'allOf'"),
    ({"required": "a"}, "'required'"), ({"type": "string", "pattern": "(a"}, "not a regex"),
    ({"type": "string", "pattern": 3}, "pattern"),
    ({"type": "string", "pattern": "^a{5}$", "maxLength": 3}, "cannot be met"), ({"type": "string", "minLength": 100000}, "bytes"),
    ({"type": "array", "minItems": 10**9}, "more than any answer"), ({"allOf": [{"type": "string"}, {"type": "null"}]}, "cannot be met"),
    ({"properties": [1]}, "'properties'"), ({"const": 1, "not": {"const": 1}}, "cannot be met"), ({"enum": ["aaaa"], "maxLength": 3}, "cannot be met"),
    ({"allOf": [{**obj(a={}), "additionalProperties": False}, obj(b={})]}, "no answer"), ({"type": "string", "not": {"type": "string"}}, "cannot be met"),
    ({"type": "object", "minProperties": 2, "properties": {"a": {}}, "additionalProperties": False}, "minProperties"),
    ({"type": "string", "minLength": -1}, "minLength"), ({"properties": {"a": {"items": {"not": 3}}}}, "#/properties/a/items"),
]


def test_what_is_no_schema_or_cannot_be_met_is_refused(lib):
    for schema, words in REFUSED:
        with pytest.raises(Refused, match=re.escape(words)):
            Grammar(lib, schema)


HELD, CHECKED, UNHELD = "held", "checked", "unheld"

OUTCOMES = [  # what becomes of a keyword: held by masks, checked when the answer is whole, or neither
    (HELD, "not", {"not": {"type": "string"}}), (HELD, "not", {"type": "string", "not": {"const": "a"}}), (HELD, "not", {"not": {"enum": ["a", 1, None, True]}}),
    (HELD, "not", {"type": "integer", "not": {"enum": [0, 1, 2]}}), (HELD, "not", {"not": {"not": {"type": "integer"}}}),
    (HELD, "not", {"not": {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}]}}), (HELD, "not", {"type": "string", "not": {"pattern": "[aeiou]"}}),
    (HELD, "not", {"type": "object", "properties": {"a": {"type": "integer"}}, "not": {"required": ["a"]}}), (CHECKED, "not", {"type": "object", "not": {"const": {}}}),
    (CHECKED, "not", {"type": "number", "not": {"type": "integer"}}), (CHECKED, "not", {"type": "string", "not": {"format": "date"}}),
    (HELD, "multipleOf", {"type": "integer", "multipleOf": 7}), (HELD, "multipleOf", {"type": "number", "multipleOf": 0.01}), (HELD, "multipleOf", {"multipleOf": 3}),
    (HELD, "multipleOf", {"type": "number", "multipleOf": 0.25, "minimum": -3, "maximum": 10}), (CHECKED, "multipleOf", {"type": "integer", "multipleOf": 1000003}), (CHECKED, "multipleOf", {"type": "integer", "multipleOf": 4.4e52}),
    (HELD, "multipleOf", {"type": "integer", "multipleOf": 12, "minimum": 100, "maximum": 1000}), (HELD, "multipleOf", {"allOf": [{"multipleOf": 4}, {"multipleOf": 6}]}),
    (HELD, "patternProperties", {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}),
    (HELD, "patternProperties", {"patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "null"}}}),
    (HELD, "patternProperties", {**obj(ab={"minimum": 3}, ac={}), "patternProperties": {"^a": {"type": "integer", "maximum": 9}}}),
    (CHECKED, "patternProperties", {"type": "object", "patternProperties": {"^(a|b)\\1$": {"type": "integer"}}}),
    (HELD, "propertyNames", {"type": "object", "propertyNames": {"pattern": "^[a-z]{2,4}$"}}), (HELD, "propertyNames", {"propertyNames": {"format": "uuid"}}),
    (HELD, "propertyNames", {"propertyNames": {"enum": ["x", "y"]}, "additionalProperties": {"type": "integer"}}),
    (HELD, "propertyNames", {**obj([], a={}, bbb={}), "propertyNames": {"maxLength": 2}}), (CHECKED, "propertyNames", {"propertyNames": {"not": {"const": "a"}}}),
    (HELD, "minProperties", {"minProperties": 1}), (CHECKED, "minProperties", {"type": "object", "minProperties": 2}),
    (HELD, "minProperties", {**obj([], a={}, b={}, c={}), "minProperties": 2, "additionalProperties": False}), (HELD, "maxProperties", {**obj([], a={}, b={}), "maxProperties": 1}),
    (HELD, "minProperties", {**obj(["c"], a={}, b={}, c={}, d={}), "minProperties": 2, "maxProperties": 3}),
    (HELD, "maxProperties", {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 3}),
    (HELD, "uniqueItems", {"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b", "c"]}, "minItems": 2}), (HELD, "uniqueItems", {"uniqueItems": True, "maxItems": 1}),
    (CHECKED, "uniqueItems", {"type": "array", "uniqueItems": True, "items": {"type": "integer", "minimum": 0, "maximum": 3}}),
    (HELD, "contains", {"contains": {"const": 7}, "items": {"type": "integer"}}), (HELD, "contains", {"contains": {"const": 7}, "minContains": 0}),
    (CHECKED, "contains", {"contains": {"type": "integer"}, "maxContains": 1, "items": {"type": ["integer", "null"]}}),
    (CHECKED, "oneOf", {"oneOf": [{"type": "integer"}, {"type": "number"}]}), (HELD, "oneOf", {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]}),
    (HELD, "oneOf", {"oneOf": [obj(a={"type": "integer"}), obj(b={"type": "integer"})]}), (HELD, "oneOf", {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "b$"}]}),
    (HELD, "oneOf", {**obj([], a={"type": "integer"}, b={"type": "integer"}), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
    (HELD, "if", {**obj(["kind"], kind={"enum": ["x", "y"]}, n={"type": "integer"}), "if": {"properties": {"kind": {"const": "x"}}}, "then": {"required": ["n"]},
                  "else": {"properties": {"n": False}}}), (HELD, "if", {"if": {"type": "string"}, "then": {"maxLength": 3}}),
    (HELD, "if", {"if": {"type": "integer"}, "then": {"minimum": 100}, "else": {"type": "string", "maxLength": 2}}), (CHECKED, "if", {"if": {"format": "date"}, "else": {"type": "string", "maxLength": 9}}),
    (HELD, "dependentRequired", {**obj([], a={}, b={}), "dependentRequired": {"a": ["b"]}}), (HELD, "dependencies", {**obj([], a={}, b={"type": "string"}), "dependencies": {"a": {"required": ["b"]}}}),
    (HELD, "pattern", {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}), (HELD, "pattern", {"type": "string", "pattern": "^(?=.*[A-Z])(?=.*\\d).{3,8}$"}),
    (CHECKED, "pattern", {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*(?:\\d{0,4}|(?=[\\d.]{1,7}0*$)\\d{0,4}\\.\\d{0,2}0*)$"}),
    (CHECKED, "pattern", {"type": "string", "pattern": "\\bfoo\\b"}), (CHECKED, "pattern", {"type": "string", "pattern": "^(a|b)\\1$"}), (CHECKED, "pattern", {"type": "string", "pattern": "^(a|b$)c"}),
    (HELD, "pattern", {"allOf": [{"pattern": "^a"}, {"pattern": "b$"}]}), (CHECKED, "pattern", {"allOf": [{"pattern": "^a|x"}, {"pattern": "b$"}]}),
    (HELD, "enum", {"enum": ["a", "bbb", "cc"], "maxLength": 2}), (HELD, "allOf", {"allOf": [{**obj(a={}), "additionalProperties": False}, obj([], b={})]}),
    (HELD, "anyOf", {"allOf": [{"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}]}),
    (CHECKED, "items", {"allOf": [{"type": "array", "prefixItems": [{"type": "integer"}]}, {"items": {"minimum": 3}}]}),
    (CHECKED, "format", {"type": "string", "format": "ipv4", "pattern": "^1.*9\\.9\\.9\\.9$", "minLength": 16}),
    (UNHELD, "$ref", {"$ref": "https://example.org/x", "type": "string", "maxLength": 3}), (UNHELD, "$ref", {"allOf": [{"type": "integer"}, {"$ref": "other.json#/a", "minimum": 3}]}),
    (UNHELD, "$ref", {"$defs": {"a": {"$anchor": "here"}}, "type": "array", "items": {"$ref": "#here"}}), (UNHELD, "pattern", {"type": "string", "pattern": "^[a-z]{1,1000000}$"}),
    (UNHELD, "pattern", {"type": "string", "pattern": "(?<=a+)b", "maxLength": 5}), (UNHELD, "pattern", {"type": "string", "pattern": "(x+x+)+y{4000}{40000000}"}),
    (UNHELD, "$dynamicRef", {"type": "null", "$dynamicRef": "#x"}), (UNHELD, "unevaluatedProperties", {**obj(a={}), "unevaluatedProperties": False}),
    *((HELD, "format", {"type": "string", "format": name}) for name in [
        "date", "time", "date-time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference",
        "uri-template", "uuid", "json-pointer", "relative-json-pointer", "uuid4", "ipvanyaddress", "ipv4network", "ipv6network", "ipv4interface", "base64", "base64url"]),
]


class Validator:
    """The validator of answers, with its verdict and sentence."""

    def __init__(self, lib):
        self.lib = lib

    def __call__(self, schema, value):
        error, texts = libnibble.Error(), [json.dumps(one).encode() for one in (schema, value)]
        first, second = [self.lib.json_loads(text, JSON_DECODE_ANY, None) for text in texts]
        verdict = self.lib.validate(first, first, second, byref(error))
        self.lib.json_delete(first)
        self.lib.json_delete(second)
        return ["valid", "invalid", "undecided"][verdict], error.text.decode()


def check_walks(lib, vocabulary, schema, seeds, known=is_valid):
    """Walks through a schema: all valid where it is held, and judged as `jsonschema` does where it is checked. The grammar's notes."""
    with Grammar(lib, schema) as grammar:
        shortest = lib.grammar_shortest(grammar.pointer, vocabulary.pointer)
        for seed in seeds:
            text = walk(grammar, vocabulary, seed, shortest + seed % 30)
            value = json.loads(text)
            valid = known(schema, value)
            assert valid or grammar.loose or grammar.unheld, f"{json.dumps(schema)} seed {seed}: {text!r} is not valid"
            if not grammar.unheld:
                assert Validator(lib)(schema, value)[0] == ("valid" if valid else "invalid"), f"{json.dumps(schema)}: {text!r}"
        return grammar.loose, grammar.unheld


def test_what_becomes_of_each_keyword(lib, vocabularies):
    for outcome, keyword, schema in OUTCOMES:
        known = is_valid if outcome != UNHELD else lambda schema, value: True
        loose, unheld = check_walks(lib, vocabularies["smollm2"], schema, range(6), known)
        named = {HELD: "", CHECKED: f"'{keyword}' at #", UNHELD: f"'{keyword}' at #"}[outcome]
        assert (loose if outcome == CHECKED else unheld).startswith(named) and bool(loose) == (outcome == CHECKED), (outcome, schema, loose, unheld)
        assert bool(unheld) == (outcome == UNHELD), (schema, unheld)


def test_schemas_at_random_are_held_or_checked(lib, vocabularies):
    """Of everything that is understood; what is refused cannot be met."""
    taken = 0
    for seed in range(400):
        dice = Dice(seed)
        schema = {**dice.schema(3), "$defs": {"other": dice.schema(1)}}
        try:
            check_walks(lib, vocabularies["smollm2"], schema, [seed])
            taken += 1
        except Refused as refused:
            assert re.search("cannot be met|no answer|refers to itself", str(refused)), (schema, refused)
    assert taken > 300


def value_at_random(dice, depth=2):
    """Values in which schemas of the dice find something."""
    leaves = [None, True, False, 0, 1, 2.5, -7, 3, 1e10, 0.07, 1e300, "", "a", "ab", "x", "é🦊", "foo", "2024-02-29", "127.0.0.1", "::1", "A", "123-4567", "/a"]
    kind = dice.choice(["leaf", "object", "array"]) if depth else "leaf"
    if kind == "object":
        return {name: value_at_random(dice, depth - 1) for name in dice.sample(["a", "b", "c", "d", "kind", "n", "x", "dé"], dice.randrange(5))}
    return [value_at_random(dice, depth - 1) for _ in range(dice.randrange(4))] if kind == "array" else dice.choice(leaves)


def test_the_validator_agrees(lib):
    """With `jsonschema`, of schemas and values at random."""
    validator, verdicts = Validator(lib), []
    for seed in range(1500):
        dice = Dice(seed)
        schema = {**dice.schema(3), "$defs": {"other": dice.schema(1)}}
        value = value_at_random(dice)
        verdict, sentence = validator(schema, value)
        try:
            assert verdict == ("valid" if is_valid(schema, value) else "invalid"), (schema, value, sentence)
        except RecursionError:  # a schema that refers to itself in place
            assert verdict == "undecided"
        assert (verdict == "valid") == (not sentence) and re.match(r"$|'[$\w]+' at #|it cannot be checked at #", sentence), sentence
        verdicts.append(verdict)
    assert 100 < verdicts.count("valid") < 1200


def test_the_validator_gives_up(lib):
    """Work and depth are bounded: no verdict is better than none in time."""
    many = {"anyOf": [{"items": {"$ref": "#"}, "minItems": 1}] * 40, "type": "array"}
    deep = []
    for _ in range(60):
        deep = [deep, deep] if len(json.dumps(deep)) < 4000 else [deep]
    validator = Validator(lib)
    assert validator(many, deep)[0] == "undecided"
    assert validator({"$ref": "#"}, 1)[0] == "undecided"
    assert validator({"pattern": "^(a+)+$"}, "a" * 400 + "b") == ("undecided", "it cannot be checked at #: a pattern takes too many steps")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_what_pydantic_asks_for(lib, vocabularies, model):
    """No class of a kind that people write is refused, and pydantic reads what is held back into an object of it."""
    for mode in ("validation", "serialization"):
        schema = model.model_json_schema(mode=mode)
        loose, unheld = check_walks(lib, vocabularies["smollm2"], schema, range(3))
        assert not unheld
    with Grammar(lib, model.model_json_schema()) as grammar:
        for seed in range(3):
            text = walk(grammar, vocabularies["smollm2"], seed, lib.grammar_shortest(grammar.pointer, vocabularies["smollm2"].pointer) + 10)
            if is_valid(model.model_json_schema(), json.loads(text)) and model.__name__ != "Decimals":  # its schema says: any string
                model.model_validate_json(text)


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
        chain(lambda i: {"not": ref(i)}), chain(lambda i: {"if": ref(i), "then": ref(i), "else": {"not": ref(i)}}), chain(lambda i: {"oneOf": [ref(i), {"const": i}, {"type": "integer"}]}),
        {"allOf": [{"if": {"required": [f"a{i}"]}, "then": {"required": [f"b{i}"]}} for i in range(60)]}, {"type": "integer", "multipleOf": 999, "minimum": 10**14},
        {"type": "object", "minProperties": 900, "properties": {f"k{i}": {} for i in range(1000)}}, {"type": "object", "minProperties": 100000},
        {"type": "object", "patternProperties": {f"a{{{i}}}.*b": {"type": "integer"} for i in range(200)}}, {"type": "string", "pattern": "^" + "(?!a{50}b)" * 60},
        {"enum": [f"{i}" for i in range(4000)], "pattern": "(1+)+2", "not": {"anyOf": [{"pattern": f"{i}.*{i}"} for i in range(200)]}},
        {"type": "array", "uniqueItems": True, "items": {"enum": list(range(8))}}, {"dependentSchemas": {f"k{i}": {"required": [f"k{i + 1}"]} for i in range(100)}},
    ]
    for schema in hostile:
        try:
            with Grammar(lib, schema) as grammar:
                for seed in range(2):
                    shortest = lib.grammar_shortest(grammar.pointer, vocabularies["smollm2"].pointer)
                    json.loads(walk(grammar, vocabularies["smollm2"], seed, shortest + 20))
        except Refused as refused:
            assert "schema" in str(refused)
