# SPDX-License-Identifier: Apache-2.0
"""A recogniser of GBNF that shares nothing with the server's: a parser of the notation, and the places where each part of
a grammar can end in a text, found by memoised search."""

import re
import sys

TOKEN = re.compile(r'\s+|\#[^\n]*|(?P<rule>[\w-]+)\s*::=|(?P<name>[\w-]+)|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<class>\[(?:[^\]\\]|\\.)*\])'
                   r'|\{(?P<counts>\d+(?:,\d*)?)\}|(?P<mark>[()|*+?.])')
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
ESCAPE = re.compile(r"\\(?:x(..)|u(....)|U(.{8})|(.))", re.S)


def unescaped(text):
    return ESCAPE.sub(lambda m: ESCAPES.get(m[4], m[4]) if m[4] else chr(int(m[1] or m[2] or m[3], 16)), text)


def tokens(source):
    at = 0
    while at < len(source):
        match = TOKEN.match(source, at)
        assert match, source[at:at + 20]
        at = match.end()
        if match.lastgroup:
            yield match.lastgroup, match[match.lastgroup]


def parse(source):
    """{rule: expression}; an expression is a tuple that begins with its kind."""
    items, rules = list(tokens(source)) + [("end", "")], {}
    at = 0

    def peek():
        return items[at]

    def alternatives():
        nonlocal at
        ways = [sequence()]
        while peek() == ("mark", "|"):
            at += 1
            ways.append(sequence())
        return ("choice", *ways)

    def sequence():
        parts = []
        while peek()[0] in ("name", "text", "class") or peek() in (("mark", "("), ("mark", ".")):
            parts.append(repeated())
        return ("sequence", *parts)

    def repeated():
        nonlocal at
        kind, value = peek()
        at += 1
        part = (kind, value)
        if kind == "text":
            part = (kind, unescaped(value))
        elif kind == "class":
            part = (kind, re.compile(value, re.S))
        elif value == ".":
            part = ("class", re.compile(".", re.S))
        elif value == "(":
            part = alternatives()
            assert peek() == ("mark", ")")
            at += 1
        while True:
            kind, value = peek()
            if kind == "counts":
                low, _, high = value.partition(",")
                part = ("repeat", part, int(low), int(high) if high else int(low) if "," not in value else 10**9)
            elif kind == "mark" and value in "*+?":
                part = ("repeat", part, int(value == "+"), 1 if value == "?" else 10**9)
            else:
                return part
            at += 1

    while peek()[0] == "rule":
        name = peek()[1]
        at += 1
        rules[name] = alternatives()
    assert peek()[0] == "end", peek()
    return rules


class Recogniser:
    def __init__(self, source):
        self.rules = parse(source)

    def accepts(self, text):
        self.text, self.known = text, {}
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(100000)
        try:
            return len(text) in self.ends(("name", "root"), 0)
        finally:
            sys.setrecursionlimit(limit)

    def ends(self, part, at):
        key = (part[1] if part[0] == "name" else id(part), at)
        if key not in self.known:
            self.known[key] = getattr(self, "of_" + part[0])(part, at)
        return self.known[key]

    def of_name(self, part, at):
        return self.ends(self.rules[part[1]], at)

    def of_choice(self, part, at):
        return {end for way in part[1:] for end in self.ends(way, at)}

    def of_sequence(self, part, at):
        places = {at}
        for entry in part[1:]:
            places = {end for place in places for end in self.ends(entry, place)}
        return places

    def of_repeat(self, part, at):
        _, item, low, high = part
        places, found, count = {at}, {at} if low == 0 else set(), 0
        while places and count < high:
            places = {end for place in places for end in self.ends(item, place)}
            count += 1
            if count >= low and places <= found:
                break
            found |= places if count >= low else set()
        return found

    def of_text(self, part, at):
        return {at + len(part[1])} if self.text.startswith(part[1], at) else set()

    def of_class(self, part, at):
        return {at + 1} if at < len(self.text) and part[1].match(self.text[at]) else set()
