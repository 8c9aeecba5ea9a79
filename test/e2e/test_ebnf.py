# SPDX-License-Identifier: Apache-2.0
"""Grammars as text: random walks through real vocabularies, held to what an independent recogniser (ebnf.py) says of
them, and grammars as clients send them to the server."""

import ctypes
import json
import random
import re
from ctypes import POINTER, byref, c_char_p, c_size_t, c_void_p

import numpy as np
import pytest

import libnibble
from ebnf import Recogniser
from serving import text_of, user
from test_grammar import Matcher, Refused, lib, vocabularies  # noqa: F401  fixtures


class Bytes(ctypes.Structure):
    _fields_ = [("data", c_char_p), ("len", c_size_t)]


class Grammar:
    def __init__(self, lib, text):
        self.lib, error, data = lib, libnibble.Error(), text.encode()
        lib.grammar_from_text.restype, lib.grammar_from_text.argtypes = c_void_p, [Bytes, POINTER(libnibble.Error)]
        self.pointer = lib.grammar_from_text(Bytes(data, len(data)), byref(error))
        if not self.pointer:
            raise Refused(error.text.decode())

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.lib.grammar_free(self.pointer)


class Tag(Grammar):
    def __init__(self, lib, form):
        self.lib, error = lib, libnibble.Error()
        lib.grammar_from_structural_tag.restype, lib.grammar_from_structural_tag.argtypes = c_void_p, [c_void_p, POINTER(libnibble.Error)]
        value = lib.json_loads(json.dumps({"type": "structural_tag", "format": form}).encode(), 0, None)
        self.pointer = lib.grammar_from_structural_tag(value, byref(error))
        lib.json_delete(value)
        if not self.pointer:
            raise Refused(error.text.decode())


JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws   # each with its white space
object ::= "{" ws ( member ("," ws member)* )? "}" ws
member ::= string ":" ws value
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x00-\x1F\x7F] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} ) )* "\"" ws
number ::= "-"? ( "0" | [1-9] [0-9]{0,14} ) ( "." [0-9]+ )? ( [eE] [-+]? [0-9]{1,3} )? ws
ws     ::= | " " | "\n" [ \t]{0,8}
"""
CALCULATOR = r"""
root  ::= ( expr "=" ws num "\n" )+
expr  ::= term ( [-+*/] ws term )*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]{0,9} ws
num   ::= [0-9]{1,6} ws
ws    ::= [ \t]{0,2}
"""
PROGRAM = r"""
root      ::= function+
function  ::= type name "(" ( type name ( ", " type name )* )? ") {\n" statement* "}\n"
type      ::= ( "int" | "float" | "char" ) " "
name      ::= [a-zA-Z_] [a-zA-Z_0-9]*
statement ::= type name " = " sum ";\n" | name " = " sum ";\n" | name "(" ( sum ( ", " sum )* )? ");\n"
            | "return " sum ";\n" | "while (" test ") {\n" statement* "}\n"
            | "if (" test ") {\n" statement* "}" ( " else {\n" statement* "}" )? "\n" | "//" [^\n]* "\n"
            | "/*" ( [^*] | "*"+ [^*/] )* "*"+ "/\n"
test      ::= sum ( "<=" | "<" | "==" | "!=" | ">=" | ">" ) sum
sum       ::= product ( ( " + " | " - " ) product )*
product   ::= factor ( ( "*" | "/" ) factor )*
factor    ::= name | [0-9]+ | "-" factor | name "(" ( sum ( ", " sum )* )? ")" | "(" sum ")"
"""
MOVES = r"""
root ::= "1. " move " " move "\n" ( [1-9] [0-9]? ". " move " " move "\n" )+
move ::= ( piece | pawn | "O-O" "-O"? ) [+#]?
piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ( [a-h] "x" )? [a-h] [1-8] ( "=" [NBKQR] )?
"""
SCRIPT = """
root  ::= kana+ ( [ \\t\\n] kana+ )*
kana  ::= [ぁ-ゟ] | [ァ-ヿ] | [、-〾] | [\\u4e00-\\u9fff] | [🌀-🗿]
"""
LINES = r"""
root ::= item+
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
"""
EMPTY = r"""
root ::= a b a ( b a )* ( a | b ){0,3} end
a    ::= ( "(" a b ")" )?
b    ::= a | "x" b | ""
end  ::= "." | "!"{2,3} | ( "?"* ","* )* ";"
"""
GRAMMARS = {"json": JSON, "calculator": CALCULATOR, "program": PROGRAM, "moves": MOVES, "script": SCRIPT, "lines": LINES, "empty": EMPTY}

LARK = {  # with what each means
    "sums": (r"""
start: sum
?sum: product | sum_of
sum_of: product (("+" | "-") product)+ -> sum
product: atom (("*" | "/") atom)*
atom: NUMBER | NAME | "(" sum ")"
NAME: /[a-z_]\w{0,5}/i
%import common.INT -> NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
""", r"""
root ::= product ( ( "+" | "-" ) ws product )*
product ::= atom ( ( "*" | "/" ) ws atom )*
atom ::= ( [0-9]+ | [a-zA-Z_] [a-zA-Z0-9_]{0,5} ) ws | "(" ws root ")" ws
ws ::= [ \t]*
"""),
    "left": (r"""
start: expr
expr: expr ("+" | "-") term | term
term: term "*" term | factor | term "!"
factor: "(" expr ")" | LETTER
%import common.LETTER
""", r"""
root ::= term ( [+-] term )*
term ::= factor ( "*" factor | "!" )*
factor ::= "(" root ")" | [a-zA-Z]
"""),
    "records": (r"""
start: record (";" record)*
record: KEY "=" [value ("," value)~0..2]
value: "yes"i | ESCAPED_STRING | "a".."f" | SIGNED_NUMBER
KEY: ("x" | "y") DIGIT+
DIGIT: "0".."9"
%import common (ESCAPED_STRING, SIGNED_NUMBER)
""", r"""
root ::= record ( ";" record )*
record ::= [xy] [0-9]+ "=" ( value ( "," value ){0,2} )?
value ::= [yY] [eE] [sS] | "\"" ( [^"\\\n] | "\\" [^\n] )* "\"" | [a-f] | number
number ::= [+-]? ( [0-9]+ ( "." [0-9]* )? | "." [0-9]+ ) ( [eE] [+-]? [0-9]+ )?
"""),
}


def walk(grammar, vocabulary, seed, budget):
    rng, ids = random.Random(seed), []
    with Matcher(grammar, vocabulary) as matcher:
        for left in range(budget, 0, -1):
            if matcher.done():
                break
            allowed = matcher.allowed()
            assert len(allowed), f"nothing may follow {vocabulary.text(ids)}"
            some = allowed[vocabulary.structural[allowed]] if rng.random() < 0.5 else allowed
            token = matcher.choose(left, int(rng.choice(some if len(some) else allowed)))
            matcher.accept(token)
            if vocabulary.lib.nibble_token_ends_text(vocabulary.tokenizer, token):
                break
            ids.append(token)
    return vocabulary.text(ids).decode()


def check_walks(lib, vocabularies, text, meaning):
    recogniser, rng = Recogniser(meaning), random.Random(5)
    for vocabulary in vocabularies.values():
        with Grammar(lib, text) as grammar:
            shortest = lib.grammar_shortest(grammar.pointer, vocabulary.pointer)
            assert 0 <= shortest < 100
            for seed in range(16):
                answer = walk(grammar, vocabulary, seed, max(shortest, 1) + (seed if seed < 4 else rng.randrange(60)))
                assert recogniser.accepts(answer), answer


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_walk_is_in_the_language(lib, vocabularies, name):  # noqa: F811
    check_walks(lib, vocabularies, GRAMMARS[name], GRAMMARS[name])


@pytest.mark.parametrize("name", LARK)
def test_every_walk_of_lark_is_in_the_language(lib, vocabularies, name):  # noqa: F811
    check_walks(lib, vocabularies, *LARK[name])


# ---- on the server --------------------------------------------------------------------------------------------------

ANSWER = r"""
root ::= "It is " ( "hot" | "cold" ) ", " [0-9]{1,2} " degrees" ( " and " weather ){0,2} "."
weather ::= "dry" | "wet" | "not " weather
"""
ANSWER_LARK = r"""
start: "It is " ("hot" | "cold") ", " /[0-9]{1,2}/ " degrees" (" and " weather)~0..2 "."
weather: "dry" | "wet" | "not " weather
"""
NAMES = [{"grammar": ANSWER}, {"ebnf": ANSWER}, {"guided_grammar": ANSWER}, {"structured_outputs": {"grammar": ANSWER}},
         {"structured_outputs": {"grammar": ANSWER_LARK}}, {"guided_grammar": ANSWER_LARK},
         {"structured_outputs": {"grammar": ANSWER_LARK}, "guided_grammar": ANSWER_LARK}, {"response_format": {"type": "grammar", "grammar": ANSWER}},
         {"grammar": ANSWER, "guided_decoding_backend": "xgrammar", "json_schema": None, "ebnf": ""}]


def test_an_answer_of_a_grammar_by_every_name(server):
    recogniser = Recogniser(ANSWER)
    for index, fields in enumerate(NAMES):
        hot = {"temperature": 1.3, "seed": index, "max_tokens": 40, "close_at_max_tokens": True, **fields}
        answers = [server.chat(user("How is the weather?"), **hot)["choices"][0]["message"]["content"],
                   server.complete("The weather:", **hot)["choices"][0]["text"],
                   text_of(server.events("/v1/chat/completions", {"messages": user("Weather?"), "stream": True, **hot}))]
        assert all(map(recogniser.accepts, answers)), (fields, answers)


CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}, "required": ["city"], "additionalProperties": False}
WEATHER_TAG = {"type": "tag", "begin": "<function=weather>", "content": {"type": "json_schema", "json_schema": CITY}, "end": "</function>"}
CALL = re.compile(r'<function=weather>(\{.*?\})</function>', re.S)


def test_a_structural_tag(server):
    form = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<function="], "tags": [WEATHER_TAG],
                                                 "at_least_one": True, "stop_after_first": True}}
    older = {"type": "structural_tag", "triggers": ["<function="],
             "structures": [{"begin": "<function=weather>", "schema": CITY, "end": "</function>"}]}
    for fields in ({"response_format": form}, {"structured_outputs": {"structural_tag": json.dumps(form)}}, {"structural_tag": json.dumps(form)}):
        text = server.chat(user("Call it."), max_tokens=40, close_at_max_tokens=True, **fields)["choices"][0]["message"]["content"]
        assert set(json.loads(CALL.fullmatch(text)[1])) == {"city"}
    text = server.chat(user("Say <function=weather>."), max_tokens=30, close_at_max_tokens=True, response_format=older)["choices"][0]["message"]["content"]
    assert "<function=" not in CALL.sub("", text)


FORMS = [  # a form, what it takes and what it does not
    ({"type": "const_string", "value": "Hi"}, ["Hi"], ["H", "Hi!"]),
    ({"type": "regex", "pattern": "^[A-Z]{2}-\\d+$"}, ["AB-12"], ["A-1", "AB-"]),
    ({"type": "sequence", "elements": [{"type": "const_string", "value": "a"}, {"type": "or", "elements": [
        {"type": "const_string", "value": "b"}, {"type": "json_schema", "json_schema": {"type": "integer"}}]}]}, ["ab", "a12"], ["a", "b", "ab1"]),
    ({"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": ["</a>", "<end>"]},
     ["<a></a>", "<a>é<b>\n</a>", "<a></x><end>"], ["<a>", "<a></a></a>", "<a></a> ", "x<a></a>", "<a></a><end>"]),
    ({"type": "any_text", "excludes": ["ab", "ba"]}, ["", "aa", "b b", "axb"], ["ab", "cba"]),
    ({"type": "repeat", "min": 1, "max": 2, "content": {"type": "optional", "content": {"type": "const_string", "value": "x"}}}, ["", "x", "xx"], ["xxx"]),
    ({"type": "star", "content": {"type": "plus", "content": {"type": "const_string", "value": "xy"}}}, ["", "xy", "xyxy"], ["xyx"]),
    ({"type": "triggered_tags", "triggers": ["<f"], "tags": [{"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": CITY}, "end": "</f>"},
                                                            {"type": "tag", "begin": "<fn>", "content": {"type": "const_string", "value": "1"}, "end": "!"}]},
     ["", "text < f", '<f>{"city":"Oslo"}</f>', 'a<f>{"city": "O"}</f> b <fn>1! <'], ["<f", "<fx", '<f>{"city":1}</f>', "<fn>2!", "<fn>1"]),
    ({"type": "triggered_tags", "triggers": ["<f>"], "tags": [{"type": "tag", "begin": "<f>", "content": {"type": "const_string", "value": "1"}, "end": "!"}],
      "stop_after_first": True}, ["a", "a<f>1!"], ["a<f>1! ", "<f>1!<f>1!"]),
    ({"type": "tags_with_separator", "separator": ", ", "tags": [{"type": "tag", "begin": "[", "content": {"type": "regex", "pattern": "[0-9]"}, "end": "]"}]},
     ["", "[1]", "[1], [2]"], ["[1][2]", "[1], "]),
]
REFUSED_FORMS = [({"type": "token", "token": 1}, "token is a type"), ({"type": "grammar", "grammar": "x"}, "is a type"), ({"type": "tag", "begin": "a"}, "no end"),
                 ({"type": "json_schema", "json_schema": CITY, "style": "qwen_xml"}, "style"), ({"type": "or"}, "no elements"), ({"type": "any_text", "x": 1}, '"x"'),
                 ({"type": "triggered_tags", "triggers": ["y"], "tags": [WEATHER_TAG]}, "none of the triggers"), ({"type": "repeat", "min": 2, "max": 1}, "min and max")]


@pytest.mark.parametrize("form,good,bad", FORMS)
def test_the_forms_of_structural_tags(lib, vocabularies, form, good, bad):  # noqa: F811
    vocabulary = vocabularies["smollm2"]
    with Tag(lib, form) as grammar:
        for text in good + bad:
            with Matcher(grammar, vocabulary) as matcher:
                takes = all(token in matcher.allowed() and not matcher.accept(token) for token in vocabulary.encode(text))
                takes = takes and any(lib.nibble_token_ends_text(vocabulary.tokenizer, int(i)) for i in matcher.allowed())
            assert takes == (text in good), text


@pytest.mark.parametrize("form,words", REFUSED_FORMS)
def test_what_is_no_structural_tag_is_refused(lib, form, words):  # noqa: F811
    with pytest.raises(Refused, match=re.escape(words)):
        Tag(lib, form)


def test_json_without_white_space(server):
    for fields in ({"json": CITY}, {"json_object": True}):
        answer = server.chat(user("Name a city."), max_tokens=30, close_at_max_tokens=True, structured_outputs={**fields, "disable_any_whitespace": True})
        text = answer["choices"][0]["message"]["content"]
        assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


BAD = [({"grammar": "root ::= this is (not valid"}, "grammar", "line 1"), ({"ebnf": 'root ::= a | "b"\na ::= root "c"'}, "ebnf", "left recursion"),
       ({"structured_outputs": {"grammar": "x"}}, "structured_outputs", "expected a rule"), ({"guided_grammar": 7}, "guided_grammar", "as text"),
       ({"grammar": ANSWER, "json_schema": {}}, "grammar", "both say"), ({"grammar": ANSWER, "regex": "a"}, "grammar", "both say"),
       ({"structured_outputs": {"grammar": ANSWER}, "guided_grammar": ANSWER_LARK}, "guided_grammar", "both say"),
       ({"structured_outputs": {"grammar": ANSWER, "regex": "a"}}, "structured_outputs", "a second one"), ({"structural_tag": "x"}, "structural_tag", "no object"),
       ({"structured_outputs": {"json": CITY, "whitespace_pattern": " "}}, "structured_outputs", "whitespace_pattern"),
       ({"structured_outputs": {"json": CITY, "disable_additional_properties": True}}, "structured_outputs", "additionalProperties"),
       ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "disable_any_whitespace"), ({"grammar_lazy": True}, "grammar_lazy", "structural_tag"),
       ({"grammar": ANSWER, "tools": [{"type": "function", "function": {"name": "f"}}]}, "grammar", "tools"),
       ({"response_format": {"type": "grammar", "grammar": "a", "x": 1}}, "response_format", "x")]


@pytest.mark.parametrize("fields,param,words", BAD)
def test_what_is_no_grammar_is_refused(server, fields, param, words):
    error = server.refuse("/v1/chat/completions", {"messages": user("Hi"), **fields})
    assert error["param"] == param and words in error["message"]


def test_what_was_compiled_is_not_compiled_again(server):
    """Three requests with each form, one of them a stream, count as one."""
    tool = {"type": "function", "function": {"name": "paint", "parameters": {"type": "object", "properties": {"colour": {"enum": ["red", "teal"]}}}}}
    forms = [{"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": "cached"}}}}, {"regex": "cached|kept"},
             {"grammar": 'root ::= "cached" | "kept"'}, {"tools": [tool], "tool_choice": "required"},
             {"structural_tag": {"type": "structural_tag", "format": {"type": "const_string", "value": "cached"}}}]
    for form in forms:
        before = server.metric("nibble:grammars_compiled_total")
        answers = [server.chat(user("Hi"), max_tokens=24, **form)["choices"][0]["message"] for _ in range(2)]
        assert answers[0]["content"] == answers[1]["content"]
        list(server.events("/v1/chat/completions", {"messages": user("Hi"), "max_tokens": 4, **form}))
        assert server.metric("nibble:grammars_compiled_total") == before + 1, form
