# SPDX-License-Identifier: Apache-2.0
"""Grammars as text: random walks through real vocabularies, held to what an independent recogniser (ebnf.py) says of
them, and grammars as clients send them to the server."""

import ctypes
import random
from ctypes import POINTER, byref, c_char_p, c_size_t, c_void_p

import numpy as np
import pytest

import libnibble
from ebnf import Recogniser
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
