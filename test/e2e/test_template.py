# SPDX-License-Identifier: Apache-2.0
"""Chat templates print what jinja2 prints: real templates over conversations, and several hundred small snippets.

jinja2 is set up the way transformers does it. Where it raises, nibble has to fail; where it prints, the bytes are equal.
Features of jinja2 that no published chat template uses are left out; test_sentences has what is said about them.
"""

import copy
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import lru_cache

import jinja2
import pytest
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATES_THAT_AGREE = 70  # of those in llama.cpp's models/templates, over all conversations


class Generation(Extension):
    """{% generation %} marks what the model says; it prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, attributes = args[0], dict(*args[1:], **kwargs)
        for name in attributes:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


class Sandbox(ImmutableSandboxedEnvironment):
    """transformers', and the two methods that Kimi K2's template calls."""

    def is_safe_attribute(self, of, name, value):
        return isinstance(of, list) and name in ("append", "pop") or super().is_safe_attribute(of, name, value)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads  # DeepSeek V3.2 and V4
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    env.globals["namespace"] = Namespace
    return env


compiled = lru_cache(maxsize=None)(environment().from_string)


def expected(source, variables):
    """What jinja2 prints, or the exception it raises."""
    defaults = {"messages": None, "tools": None, "documents": None, "add_generation_prompt": True}
    try:
        text = compiled(source).render(copy.deepcopy({**defaults, **variables}))  # append and pop change lists
        text.encode()
        return text, None
    except Exception as error:
        return None, error


def actual(nibble, folder, number, source, variables):
    """What nibble prints, or its status and its sentence."""
    template, data = folder / f"{number}.jinja", folder / f"{number}.json"
    template.write_bytes(source.encode())
    data.write_text(json.dumps(variables, ensure_ascii=False), encoding="utf-8")
    run = subprocess.run([nibble, "render", "--chat-template", template, data], capture_output=True, timeout=20)
    if run.returncode == 0:
        return run.stdout.decode(), None
    return None, (run.returncode, run.stderr.decode())


def compare(nibble, folder, number, source, variables):
    """None when both agree, else what is wrong."""
    want, error = expected(source, variables)
    got, failure = actual(nibble, folder, number, source, variables)
    if error is None and failure is None:
        return None if got == want else f"wanted {want!r}\n   got {got!r}"
    if error is not None and failure is not None:
        return None if failure[0] == 1 else f"status {failure[0]}: {failure[1]}"
    return f"wanted {want!r} {error!r}\n   got {got!r} {failure}"


def compare_all(nibble, folder, cases):
    """Runs compare over (source, variables) pairs; returns the complaints, None where there are none."""
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(compare, nibble, folder, i, *case) for i, case in enumerate(cases)]
        return [job.result() for job in jobs]


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place.\nToday's only.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "minimum": 1},
                "places": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "Tells \"the\" time", "parameters": {"type": "object", "properties": {}}},
}


def call(name, arguments, number="abc123def"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text, name="get_weather", number="abc123def"):
    return {"role": "tool", "name": name, "tool_call_id": number, "content": text}


QUESTION = [system("You are terse."), user("Weather in Łódź?")]
CALLED = assistant("", tool_calls=[call("get_weather", {"city": "Łódź", "days": 2, "deep": {"a": [1, 2.5, None, True]}})])
CALLED_TWICE = assistant(None, tool_calls=[call("get_weather", {"city": "Paris"}), call("clock", {}, "fed321cba")])
CALLED_BY_TEXT = assistant("", tool_calls=[call("get_weather", '{"city": "Łódź"}')])
TOOLS = {"tools": [WEATHER, CLOCK]}

CONVERSATIONS = {
    "plain": {"messages": [user("Hello")]},
    "no prompt": {"messages": [user("Hello"), assistant("Hi there")], "add_generation_prompt": False},
    "system": {"messages": [system("  Be kind.\n"), user("Hello")]},
    "turns": {"messages": [system("S"), user(" a "), assistant("b\n"), user("c"), assistant("d"), user("e")]},
    "not alternating": {"messages": [user("a"), user("b")]},
    "assistant first": {"messages": [assistant("a"), user("b")]},
    "developer": {"messages": [{"role": "developer", "content": "D"}, user("a")]},
    "empty": {"messages": []},
    "tools": {"messages": QUESTION, **TOOLS},
    "tools, no system": {"messages": [user("Weather?")], **TOOLS},
    "empty tools": {"messages": QUESTION, "tools": []},
    "called": {"messages": [*QUESTION, CALLED], **TOOLS, "add_generation_prompt": False},
    "called by text": {"messages": [*QUESTION, CALLED_BY_TEXT, result("rain")], **TOOLS},
    "answered": {"messages": [*QUESTION, CALLED, result('{"temp": 21.5}'), assistant("Warm."), user("And now?")], **TOOLS},
    "answered twice": {"messages": [*QUESTION, CALLED_TWICE, result("sun"), result("12:00", "clock", "fed321cba")], **TOOLS},
    "answered without tools": {"messages": [*QUESTION, CALLED, result("rain")]},
    "reasoning": {"messages": [user("2+2?"), assistant("4", reasoning_content="Count.\nTwice."), user("3+3?")]},
    "reasoning, last": {"messages": [user("2+2?"), assistant("4", reasoning_content="Count.")], "add_generation_prompt": False},
    "reasoning and tools": {
        "messages": [*QUESTION, {**CALLED, "reasoning_content": "Look it up."}, result("rain"), assistant("Rain.", reasoning_content="So.")],
        **TOOLS, "add_generation_prompt": False},
    "thinking": {"messages": [user("2+2?"), assistant("4", thinking="Count."), user("3+3?")]},
    "tags": {"messages": [user("2+2?"), assistant("<think>\nCount.\n</think>\n\n4"), user("3+3?")]},
    "parts": {"messages": [{"role": "system", "content": parts("S")}, {"role": "user", "content": parts("one", " two")}]},
    "parts answered": {"messages": [user("a"), {"role": "assistant", "content": parts("b")}, {"role": "user", "content": parts("c")}]},
    "images": {"messages": [{"role": "user", "content": [{"type": "image"}, *parts("What is it?"), {"type": "image_url", "image_url": {"url": "x"}}]}]},
    "think": {"messages": [user("2+2?")], "enable_thinking": True},
    "think not": {"messages": [user("2+2?"), assistant("4"), user("3+3?")], "enable_thinking": False},
    "think, thinking": {"messages": QUESTION, "thinking": True, "reasoning_effort": "high", **TOOLS},
    "think not, tools": {"messages": QUESTION, "enable_thinking": False, "thinking": False, "reasoning_effort": "low", **TOOLS},
    "not ASCII": {"messages": [system("Réponds en français 🇫🇷"), user("日本語\u00a0\u3000のテキスト — “quoted” 'single' \\ <b>&amp;</b>"), assistant("ß İ ǆ")]},
    "spaces": {"messages": [system("\n\n S \n"), user("\t\n u \n\n"), assistant("\n a\t"), user("\r\n x")]},
    "odd tools": {"messages": QUESTION, "tools": [{"name": "bare", "description": "d", "parameters": {"properties": {"p": {"type": "string"}}}}]},
    "documents": {"messages": QUESTION, "documents": [{"title": "T", "text": "Body"}, {"title": "U", "text": "Other"}]},
    "strict dates": {"messages": QUESTION, "date_string": "26 Jul 2024", "builtin_tools": ["wolfram", "code_interpreter"]},
    "no content": {"messages": [user("a"), {"role": "assistant"}, {"role": "user"}]},
    "none content": {"messages": [user("a"), assistant(None), user(None)]},
    "no role": {"messages": [{"content": "a"}]},
}


def test_templates(nibble, llama_source, tmp_path):
    templates = sorted((llama_source / "models" / "templates").glob("*.jinja"))
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    cases = [(path, name) for path in templates for name in CONVERSATIONS]
    sources = {path: path.read_text(encoding="utf-8") for path in templates}
    complaints = compare_all(nibble, tmp_path, [(sources[path], {**tokens, **CONVERSATIONS[name]}) for path, name in cases])
    wrong = {}
    for (path, name), complaint in zip(cases, complaints):
        if complaint:
            wrong.setdefault(path.name, []).append(f"{path.name}, {name}: {complaint}")
    agree = len(templates) - len(wrong)
    print(f"{agree} of {len(templates)} templates agree over {len(CONVERSATIONS)} conversations")
    assert agree >= TEMPLATES_THAT_AGREE, "\n".join(lines[0] for lines in wrong.values())


VARIABLES = {
    "s": "Hello, World", "t": "  padded\t\n", "u": "Straße ΑΣ ǆ İ ﬁ 日本 🇫🇷", "n": 7, "f": 2.5, "z": 0, "yes": True, "no": False, "nil": None,
    "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "d": {"b": 1, "a": {"x": [1, {"y": "deep"}]}, "items": "key", "2": "two"},
    "e": [], "ed": {}, "html": "<a href=\"x\">T&amp;C's</a>", "big": 9007199254740993, "tiny": 1e-7, "huge": 1e308, "neg": -7,
    "people": [{"name": "Zoe", "age": 30, "city": "Rome"}, {"name": "adam", "age": 25, "city": "Oslo"}, {"name": "Bob", "age": 30, "city": "rome"}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}, {"v": 4, "kids": []}]}],
    "long": "The quick brown fox jumps over the lazy dog. It--surely--was a well-known, state-of-the-art fox.\nNew line.",
}

# One expression per line, each printed as {{ ... }}.
EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3, 7.5 // 2, -7.5 % 2, 7.5 % -2
1 / 3, 10 / 5, 1e16, 1e15, 123456789012345678, 1e100, 0.1 + 0.2, 1.0, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308
1 / 0
1 // 0
1 % 0
0 ** -1
1_000 + 0x1F + 0o17 + 0b101, 0xFF_FF, 1_0.5_0, 1e1_0
1 + "a"
"a" + 1
"a" + "b" ~ 1 ~ none ~ true ~ 1.5 ~ [1, "x"]
"ab" * 3, 3 * "ab", "ab" * -1, [1] * 3, 2 * (1, 2)
"ab" * 1.5
[1] + [2], (1,) + (2, 3)
[1] + (2,)
1 - "x"
true + true, true * 3, -true, +true, true / 2
- -1, +-1, -f, --n
-"x"
not 1, not 0, not "", not none, not not 5
1 < 2 < 3, 3 > 2 > 2, 1 < 2 > 1, 1 == 1.0 == true
1 == 1.0, 1 == true, "1" == 1, none == false, [1, 2] == [1, 2], [1] == (1,), {"a": 1} == {"a": 1.0}, big == 9007199254740992.0
1 < "a"
[1, 2] < [1, 3], (1, 2) < (1,), "a" < "B", "é" > "z", [1] < [1, 0]
none < 1
1 in [1, 2], 1 not in [1, 2], "el" in s, "" in s, "b" in d, 1 in d, "z" not in "abc", 3 in range(5), none in [none]
1 in s
none in none
1 in 5
"a" in undefined_thing
undefined_thing in "a"
undefined_thing in [1], undefined_thing == other_undefined, undefined_thing == none, undefined_thing != 1
1 and 2, 0 and 2, 1 or 2, 0 or "" or none, none and x.y.z, 1 or x.y.z
1 if true else 2, 1 if false else 2, (1 if false), 1 if n > 5 else 2 if n > 3 else 3
(1 if false) is undefined
(1 if false) + 1
"a" "b" 'c', "it's", 'say "hi"', "\n\t\\\x41\u00e9\U0001F600\101\q"
"\x4"
[1, "two", 3.0, none, true, [4], (5,), {"six": 6}, ()]
[], (), {}, [1,], (1,), {"a": 1,}
{"a": 1, "b": {"c": [1, 2]}, 1: 2, none: 3, true: 4, 2.5: 5, (1, 2): 6}
{[1]: 2}
{1: "int", 1.0: "float", true: "bool"}
"it's", ["it's", 'say "hi"', "both ' and \"", "tab\tnl\ncr\r\\", "\x00\x1f\x7f\xa0é日😀\u200b\ufeff"]
undefined_thing, [undefined_thing], undefined_thing ~ "x"
undefined_thing.x
undefined_thing["x"]
undefined_thing()
undefined_thing + 1
undefined_thing < 1
-undefined_thing
d.missing, d["missing"], d.a.x[1].y, d["a"]["x"][1]["y"], d.b, d[2], d["2"]
d.missing.deeper
d["items"], d.a.x.0, l.0, l.5, l[-1], l[10], l["0"], s[0], s[-1], s[99], u[0], u[6], u[-1]
s.nothing, n.nothing, nil.nothing, nil["x"], l.nothing, l["nothing"], true.x, (5).x
d.__class__, s.__len__, s._private, d._x
d.__class__.__mro__
s[1:4], s[:-1], s[::2], s[::-1], s[5:1], s[-3:], s[:100], s[100:], s[8:2:-2], u[::-1], u[2:5], l[::-1], l[1:], l[:2], (1, 2, 3)[1:], l[::2], l[-1:0:-1]
s[::0]
s["a":]
nil[1:]
undefined_thing[1:]
l[1.0], l[true], d[1.0], d[none], d[[1]]
s.upper(), s.lower(), s.title(), s.capitalize(), u.upper(), u.lower(), u.title(), u.capitalize()
"they're bill's friends from the UK".title(), "ǆ".title(), "ΑΣ ΑΣΑ Σ".lower()
t.strip(), t.lstrip(), t.rstrip(), "xxhixx".strip("x"), "abcba".strip("ab"), "abcba".lstrip("ab"), "..a..".rstrip("."), "éaé".strip("é"), " \u3000x\xa0".strip()
s.split(), s.split(","), s.split(", ", 1), "a,b,c".split(",", 1), "a,b,c".rsplit(",", 1), " a  b ".split(), " a  b ".split(" "), "a b c".split(None, 1), " a b c ".rsplit(None, 1), "".split(), "".split(","), "abc".split("abc"), "a--b--c".rsplit("--"), "a b c".split(maxsplit=1), "a,b".split(sep=",")
"a b  c ".split(None, 1), "  a b  c".rsplit(None, 1), "aXbXc".split("X", 0), "aXbXc".rsplit("X", 0), " a ".split(None, 0), " a ".rsplit(None, 0)
"a".split("")
"a".split(1)
"a\nb\r\nc\rd\x0be\x1cf\u2028g".splitlines(), "a\n".splitlines(), "\n".splitlines(), "".splitlines(), "a\nb".splitlines(true), "a\n\nb".splitlines(keepends=true)
s.startswith("He"), s.startswith(("x", "H")), s.endswith("ld"), s.endswith(("a", "b")), s.startswith("")
s.startswith(1)
s.startswith(["H"])
s.find("o"), s.find("zz"), s.rfind("o"), u.find("日"), "aaaa".rfind("aa"), "".find(""), "abc".rfind("")
s.index("zz")
s.replace("l", "L"), s.replace("l", "", 1), s.replace("", "-"), "aaa".replace("a", "b", 2), "abc".replace("", "-", 2), "ab".replace("zz", "y"), s.replace("o", "ö"), "".replace("", "x"), "ab".replace("a", "b", -1), "ab".replace("a", "x", 0)
s.replace("l", 1)
"-".join(["a", "b"]), "".join([]), ", ".join("abc"), "-".join(words), "x".join({"a": 1, "b": 2})
"-".join([1])
"-".join(5)
"a".center(4, "ab")
"prefix-x".removeprefix("prefix-"), "x.txt".removesuffix(".txt"), "x".removeprefix("yy"), "x".removesuffix("")
"{} {}".format(1, "x"), "{1} {0}".format("a", "b"), "{a}-{b}".format(a=1, b=[2]), "{{}}".format(), "{0}{0}".format("x")
"{}".format(none), "{}".format([1]), "{}".format(undefined_thing)
"{} {}".format(1)
"{a}".format()
"{".format(1)
"}".format(1)
"{:d}".format("a")
"{:>5}".format(none)
"{:.2f}".format("a")
"{:zz}".format(1)
"%s %s" % "a"
"%s" % ("a", "b")
"%d" % "a"
"%x" % 1.5
"%q" % 1
"plain" % 5
"%(a)s" % {"b": 1}
s.nonexistent()
d.get("b"), d.get("zz"), d.get("zz", "def"), d.get(1, 2), d.get("a").x, ed.get("a", {}).get("b", "deep")
d.get([1])
d.get()
d.get("a", default=1)
d.items(), d.keys(), d.values(), ed.items(), d.items() | list
d.items() | length, d.keys() | list, d.values() | list | length, "b" in d.keys(), ("b", 1) in d.items(), 1 in d.values()
d.pop("a")
d.update({"q": 1})
d.setdefault("q", 1)
d.clear()
l.append(4)
l.sort()
l.pop()
l.extend([1])
l.extend, d.pop, l.append is defined
l.index(99)
l | sort, l | sort(reverse=true), words | sort, words | sort(case_sensitive=true), words | sort(true), l | sort | first
[1, "a"] | sort
people | sort(attribute="name") | map(attribute="name") | list, people | sort(attribute="age,name") | map(attribute="name") | list, people | sort(attribute="age", reverse=true) | map(attribute="name") | list
people | sort(attribute="missing") | length
people | map(attribute="name") | join(", "), people | map(attribute="zz", default="?") | list, people | map(attribute="zz") | list, words | map("upper") | list, words | map("replace", "a", "X") | list, [[1, 2], [3]] | map("length") | list, [[1, 2], [3, 4]] | map(attribute=1) | list, [{"a": {"b": 1}}] | map(attribute="a.b") | list, [["x"]] | map("first") | map("upper") | list, [1.5] | map("int") | list, [1] | map("string") | list
words | map("nofilter") | list
words | map() | list
words | map(attribute="x", extra=1) | list
e | map("nofilter") | list
people | selectattr("age", "equalto", 30) | map(attribute="name") | list, people | rejectattr("age", "gt", 26) | map(attribute="name") | list, people | selectattr("zz") | list, people | selectattr("name") | list | length, people | selectattr("city", "in", ["Rome"]) | list | length, people | selectattr("zz", "defined") | list, people | selectattr("age", "divisibleby", 5) | list | length
[1, 2, 3, 4, none, 0] | select | list, [1, 2, 3, 4] | select("odd") | list, [1, 2, 3] | reject("odd") | list, ["a", 1] | select("string") | list, [1, 2, 3] | select(">", 1) | list, [1, 2, 3] | select("lessthan", 3) | list, [0, 1] | reject | list
l | select("notest") | list
people | selectattr() | list
(l | select("odd")) is iterable, true if e | select("odd") else false, (e | map("upper")) is sequence
l | select("odd") | length
l | map("string") | first, l | reverse | first, l | reverse | list, s | reverse, d | reverse | list, (1, 2) | reverse | list, range(3) | reverse | list
l | first, l | last, e | first, e | last, s | first, s | last, d | first, d | last, undefined_thing | first, range(5) | last, d.items() | last | first
nil | first
5 | last
l | min, l | max, words | min, words | max, words | max(case_sensitive=true), e | min, people | min(attribute="age"), (people | max(attribute="name")).name, s | max, [1, 1.0] | max
["a", 1] | max
l | sum, [] | sum, [1.5, 2] | sum, people | sum(attribute="age"), [[1], [2]] | sum(start=[]), l | sum(start=10), [1, 2] | sum("real") if false else 0
["a"] | sum
l | join, l | join("-"), l | join(", ") | length, people | join("|", attribute="age"), s | join("."), d | join, [none, true, 1.5, [1]] | join(" "), e | join("x"), l | join(1), undefined_thing | join("x")
5 | join
l | length, s | length, u | length, d | length, e | count, undefined_thing | length, (1, 2) | length, range(10) | length
5 | length
nil | length
true | length
undefined_thing | default("x"), "" | default("x"), "" | default("x", true), nil | default("x"), nil | d("x", boolean=true), 0 | default(5, true), undefined_thing | default, d.zz | default("q"), undefined_thing | default(default_value=3), undefined_thing | default("x") | upper
undefined_thing.x | default("x")
s | upper, s | lower, s | title, s | capitalize, "foo-bar baz (qux) [a] {b} <c> d'e é" | title, 5 | upper, none | lower, u | title, "" | capitalize
t | trim, "xxaxx" | trim("x"), 5 | trim, none | trim, "  a " | trim(none)
s | replace("l", "L"), s | replace("l", "L", 1), 5 | replace(5, 6), s | replace("o", 0), "aaa" | replace("a", "b", count=2), s | replace("l", "L", none), "ab" | replace("", "-")
s | replace("l")
"a\nb\n\nc" | indent, "a\nb\n\nc" | indent(2, true), "a\nb\n\nc" | indent(2, blank=true), "a\nb" | indent("> "), "a\nb\n" | indent(1, first=true), "" | indent, "a\r\nb" | indent(1), "a\n" | indent(first=true), "\n" | indent(2, true, true)
5 | indent
s | truncate(2)
html | safe
("<" | safe) + "&", ("<" | safe) ~ "<", ("<{}>" | safe).format("<"), ("a<" | safe).upper() + "<", ("," | safe).join(["<", "a"]), ("<a" | safe).replace("a", "<"), ("<" | safe) * 2 + "<", [("x" | safe)], ("a,<" | safe).split(",")[1] + "<", ("ab" | safe)[0] + "<", ("<x" | safe) | upper + "<", ("<" | safe) | string + "<", "<" ~ ("a" | safe) + "<"
{"a b": 1} | xmlattr
"5" | int, "5.7" | int, "x" | int, "x" | int(9), 5.9 | int, -5.9 | int, true | int, none | int, " 7 " | int, "1_000" | int, "" | int, "1e3" | int, "-3" | int, [] | int(1), "0x1f" | int, "nan" | int, "inf" | int
undefined_thing | int
"5" | float, "5.7" | float, "x" | float, "x" | float(1.5), "1e3" | float, "inf" | float, "-nan" | float, none | float, true | float, "1_0" | float, "1__0" | float, " 2.5 " | float, 3 | float, "0x1p3" | float, "infinity" | float
undefined_thing | float
-5 | abs, 5.5 | abs, -5.5 | abs, true | abs, neg | abs
"x" | abs
2.5 | round, 3.5 | round, 2.675 | round(2), 42.55 | round(1, "floor"), 42.55 | round(1, "ceil"), 5 | round, 1234 | round(-2), 1250 | round(-2), 1350 | round(-2), 1234.5 | round(-2), -2.5 | round, 0.5 | round, 1.005 | round(2), 5 | round(2), 5 | round(0, "ceil"), true | round, 1e20 | round(3), -0.4 | round
"x" | round
2.5 | round(0, "up")
l | slice(0) | list
words | unique | list, words | unique(case_sensitive=true) | list, [1, 1.0, true, 2] | unique | list, people | unique(attribute="city") | map(attribute="name") | list, [none, none] | unique | list
[[1]] | unique | list
d | dictsort, {"b": 1, "A": 2, "c": 0} | dictsort, {"b": 1, "A": 2} | dictsort(true), {"b": 1, "A": 2, "c": 0} | dictsort(by="value"), {"b": 1, "a": 2} | dictsort(reverse=true), ed | dictsort
{"b": 1, "a": "x"} | dictsort(by="value")
{"b": 1} | dictsort(by="x")
l | dictsort
{"a": 1, "b": 2} | items | list, undefined_thing | items | list, {} | items | list
l | items | list
s | list, d | list, l | list, (1, 2) | list, range(3) | list, undefined_thing | list, {"a": 1}.items() | list
5 | list
5 | string, s | string, none | string, [1] | string, 1.0 | string, true | string, undefined_thing | string
d | tojson, l | tojson, s | tojson, u | tojson, html | tojson, none | tojson, true | tojson, 1.5 | tojson, 1e100 | tojson, (1, 2) | tojson, [] | tojson, {} | tojson, "\n\t\"\\/\x00\x1f\x7f\b\f" | tojson, {1: 2, none: 3, true: 4, 1.5: 5} | tojson
d | tojson(indent=2), l | tojson(indent=4), {"a": [], "b": {}, "c": [1, [2]]} | tojson(indent=1), d | tojson(indent="\t"), [1] | tojson(indent=0), {"a": 1} | tojson(false, 2), [1, 2] | tojson(separators=(",", ":")), {"a": [1]} | tojson(separators=[" , ", " : "]), {"b": 1, "a": 2} | tojson(sort_keys=true), u | tojson(ensure_ascii=true), [1, 2] | tojson(indent=2, separators=(";", "=")), [1] | tojson(indent=-1)
undefined_thing | tojson
range(3) | tojson
{"a": undefined_thing} | tojson
{(1, 2): 3} | tojson
{1: 2, "a": 3} | tojson(sort_keys=true)
"%s" | format(1, a=2)
n is odd, n is even, n is divisibleby 7, n is divisibleby(2), 2.5 is odd, true is odd, neg is odd, 4.0 is even
"x" is odd
s is string, 5 is string, n is number, f is number, true is number, "5" is number, n is integer, true is integer, f is float, 5 is float, true is boolean, 1 is boolean, true is true, 1 is true, false is false, 0 is false, nil is none, undefined_thing is none
s is defined, undefined_thing is defined, undefined_thing is not defined, d.zz is defined, d.b is defined, undefined_thing is undefined, nil is undefined, l[0] is defined, l[9] is defined, nil.x is defined
s is mapping, d is mapping, ed is mapping, l is mapping, s is sequence, d is sequence, l is sequence, 5 is sequence, undefined_thing is sequence, d.items() is sequence, range(2) is sequence
s is iterable, d is iterable, 5 is iterable, nil is iterable, undefined_thing is iterable, d.items() is iterable, range(2) is iterable, (l | map("string")) is iterable
1 is eq 1, 1 is equalto(1), 1 is ne 2, 1 is lt 2, 2 is gt 1, 1 is le 1, 1 is ge 2, 1 is lessthan 2, 1 is greaterthan 0, 1 is == 1
1 is in [1, 2], "a" is in "abc", 5 is not in [1], 1 is sameas 1, true is sameas true, 1 is sameas true, nil is sameas none, l is sameas l, [1] is sameas [1], "a" is sameas "a"
1 is nope
s | nope
1 if true else s | nope
s | nope if false else 3
5 is defined is defined
range(5), range(2, 5) | list, range(0, 10, 3) | list, range(5, 0, -2) | list, range(0) | list, range(3)[1], range(10)[2:5], range(10)[::-1] | list, range(3) == range(0, 3), range(-1) | list, range(5)[-1], range(5)[9]
range(100001)
range(1, 5, 0)
range("5")
range()
range(1.5)
dict(a=1, b=2), dict({"x": 1}, y=2), dict([["a", 1]]), dict(), dict(d, b=5).b
dict(5)
dict(1, 2)
namespace(a=1).a, namespace({"b": 2}).b, namespace(), namespace(a=[1]), namespace(a=1)["a"], namespace(a=1).b is defined
namespace(_a=1)
strftime_now("%Y-%m-%d"), strftime_now("%d %b %Y") | length, strftime_now(""), strftime_now("%%"), strftime_now("%B %A") is string, strftime_now("%-d"), strftime_now("%Z|%z|é")
strftime_now(5)
raise_exception("boom")
raise_exception()
lipsum is defined if false else 1
(l | length) > 2 and s.startswith("H") or false, (n + 1) * 2 ~ "!", [1, 2, 3][1:] | first, {"a": {"b": [10, 20]}}.a.b[-1], "a,b".split(",")[1].upper() ~ "x" * 2
-5 | abs, -n | abs, (-n) | abs, 2 + -3 | abs, n | float | string, "a" ~ "b" | upper, "a" + "b" | upper, not n is defined, not "x" in s, n is defined and s is string
n if n is odd else "even", "y" if "x" in ["x"] else "n", (n if n) , [n, f] | max, (1, 2) == (1, 2), (1), (1,), ((1, 2), 3)
s | upper | lower | title | length, (s | upper)[0], s.split(",")[0] | lower, d.a.x | length, d["a"].x[1]["y"].upper()
l[0] + l[1], l[n - 5], s[n], s[:n], s[n:], s[-n:], l[:z], l[z:], d["a" if yes else "b"]
f * 2, f // 1, f % 1, -f, f + n, big + 0, tiny, tiny * 1e-300 * 1e-300, tiny * 1e-300 * 1e-20, (huge * 10), -huge * 10, huge * 10 - huge * 10, 1e22, 1e21 + 1, 123456.789e3, 100000000000000000000.0, 0.00001234, -0.0, 1.10, 12345678.9
5 .real is defined if false else 5
messages is none, tools is none, add_generation_prompt, documents is defined
loop is defined, self is defined if false else 1
true and false or not true, True, False, None, none, true == True
é
{"a": 1}.a, {"a": 1}["a"], [1, 2].0, (1, 2).1, "abc".1, "abc"[1]
1.5.x is defined
foo.bar.baz is defined
"a" in d and d.a.x is sequence, d.get("a", {}).get("x", [])[0], (d.zz or {}).get("q", "none"), (d.zz | default({})).q is defined
[x for x in l]
lambda x: x
1 +
(1
1)
[1, 2
{1: 2
{"a"}
a b
a.
a[
a[]
f(a=1, 2)
f(**ed, *l)
f(a=1, a=2)
s.upper(*5)
s.upper(**5)
dict(**{1: 2})
1 is not
| upper
s |
s || upper
"unclosed
$x
x ? y : z
a && b
1 <> 2
!x
1; 2
`x`
"""
EXPRESSIONS = [line for line in EXPRESSIONS.split("\n") if line]

# Whole templates, in groups.
WHITE_SPACE = [
    "", "a", "a\n", "a\n\n", "\n", "a\r\nb\r\n", "a\rb", "{{ 1 }}\n", "{{ 1 }}\n\n", "\n{{ 1 }}\n x",
    "{% if true %}\nx\n{% endif %}\ny", "  {% if true %}\n  x\n  {% endif %}\n  y", "a  {% if true %}b{% endif %}  c", "\t{% set a = 1 %}\t\n{{ a }}",
    "  {{ 1 }}  {{- 2 -}}  {{ 3 -}}  \n  x  {{- 4 }}", "a {%- if true -%} b {%- endif -%} c", "a\n  {%- if true %}\n b{% endif %}", "a {%+ if true +%}\n b {%+ endif %}",
    "  {%+ if true %}\nx{% endif +%}\ny", "{% if true -%}\n\n  x\n\n{%- endif %}", "x{# c #}\ny", "x\n  {# c #}\ny", "x {#- c -#} y", "x\n  {#+ c +#}\ny", "x{##}y{#-#}z {#--#} w", "{# {{ 1 }} {% if %} #}x",
    "{# multi\nline #}\nx\n{{ 1 }}", "{% raw %}{{ x }}{% endraw %}", "{% raw %}\n {{ x }} \n{% endraw %}\ny", "a {%- raw -%} {{ x }} {%- endraw -%} b", "  {% raw %}x\n  {% endraw %}\n y", "{% raw %}{% raw %}{% endraw %}x",
    "{%raw%}{%endraw%}", "{% raw %}{# c #}{%- endraw +%}\nx", "  {%- raw %} {% endraw -%}  x", "\u3000{%- if true %}\u3000x\u2003{%- endif %}", "\u3000 {% if true %}x{% endif %}", "x\n\x0b\x0c {% if true %}y{% endif %}",
    "{{'a'}}{%if true%}b{%endif%}", "{{ 'a' }}\n{%- if true -%}\nb\n{%- endif -%}\n{{ 'c' }}", "{%- set x = 1 -%}\n\n {{ x }}", "{% set x = 'a\nb' %}{{ x }}", "{{ 'a\r\nb' }}", "{{ \"a\\\nb\" }}", "{ { } } {a {% if true %}%{% endif %} #}", "{{ '}}' }} {{ '%}' }} {{ {'a': {'b': 1}} }}",
    "{{- 1 }}\n{{ 2 -}}\n\n{{ 3 }}", "{%- for x in [1, 2] %}\n{{ x }}\n{%- endfor %}\n", "{% for x in [1, 2] -%}\n  {{ x }}\n{%- endfor %}", "{{ 1\n+\n2 }}\n{{\nnone\n}}", "a\n{% if false %}\nb\n{% endif %}\nc\n", "\n\n{% if true %}\n\nx\n\n{% endif %}\n\n",
]
LOOPS = [
    "{% for x in l %}{{ x }}{% endfor %}", "{% for x in l %}{{ x }},{% else %}none{% endfor %}", "{% for x in e %}{{ x }}{% else %}none{% endfor %}", "{% for x in undefined_thing %}{% else %}u{% endfor %}", "{% for x in nil %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for c in 'héy' %}[{{ c }}]{% endfor %}", "{% for k in d %}{{ k }} {% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | dictsort %}{{ k }};{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for (a, b) in [[1, 2]] %}{{ a + b }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in ['xy'] %}{{ b }}{% endfor %}", "{% for a, in [[1]] %}{{ a }}{% endfor %}",
    
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}|{% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in l %}{{ loop.nope }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle() }}{% endfor %}", "{{ loop.index }}", "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }}{% endfor %}", "{% for x in l if x > 9 %}{% else %}empty{% endfor %}", "{% for x in range(10) if x is odd %}{{ x }}{{ loop.last }}{{ loop.nextitem }}|{% endfor %}", "{% for a, b in [[1, 2], [3, 4]] if a > 1 %}{{ b }}{% endfor %}",
    "{% for x in l | select('odd') %}{{ x }}{{ loop.length }}{{ loop.last }}{% endfor %}", "{% for x in range(3) %}{% for y in range(x) %}{{ x }}{{ y }}{{ loop.index }} {% endfor %}{{ loop.index }};{% endfor %}", "{% for x in [1, 2] %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in range(5) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in range(5) %}{% if x is odd %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in [1] %}{% break %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}{% continue %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}{% for y in [1, 2] %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% break %}", "{% continue %}", "{% if true %}{% break %}{% endif %}", "{% for x in l %}{% else %}{% break %}{% endfor %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for x in l %}{% set y %}a{% break %}{% endset %}{% endfor %}z", "{% for x in l %}{{ x }}{% filter upper %}a{% if x == 1 %}{% break %}{% endif %}{% endfilter %}{% endfor %}z", "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% for x in l %}{{ loop([1]) }}{% endfor %}", 
    "{% for loop in l %}{% endfor %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for x.y in l %}{% endfor %}", "{% for 5 in l %}{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in (1, 2) %}{{ x }}{% endfor %}", "{% for x in [] + l if x %}{{ x }}{% endfor %}", "{% for x in l if x else e %}{% endfor %}",
    "{% for x in messages or [] %}{% endfor %}ok", "{% for x in l[1:] %}{{ x }}{% endfor %}", "{% for x in people | map(attribute='name') | sort %}{{ x }} {% endfor %}", "{% for x in d.values() %}{{ loop.last }}{% endfor %}", "{% for x in l | reverse %}{{ x }}{{ loop.length }}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(3) if j != i %}{{ i }}{{ j }} {% endfor %}{% endfor %}", "{% for x in loop_thing %}{% endfor %}", "{% set g = l | map('string') %}{% for x in g %}{{ x }}{% endfor %}|{% for x in g %}{{ x }}{% endfor %}|{{ g | list }}", "{% set g = l | map('string') %}{{ g | first }}{{ g | first }}{{ g | list }}", "{% set g = l | reverse %}{{ g | list }}{{ g | list }}", "{% for x in [1, 2, 3] %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in range(3) %}{{ 'abc'[loop.index0] }}{% endfor %}", "{% for x in l %}{% if loop.first %}F{% elif loop.last %}L{% else %}M{% endif %}{% endfor %}", "{% for a in [1, 2] %}{% for b in [3] %}{{ loop.previtem }}{{ loop.length }}{% endfor %}{{ loop.previtem }}{% endfor %}", 
]
SCOPES = [
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}{{ ns }}", "{% set d.x = 1 %}", "{% set undefined_thing.x = 1 %}", "{% set ns = namespace() %}{% set ns._a = 1 %}", "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}", "{% set ns = namespace(a={}) %}{% set ns.a.b = 1 %}", "{% set ns = namespace() %}{% set ns['a'] = 1 %}",
    "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l }}", "{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "{% if false %}{% set n = 1 %}{% endif %}{{ n }}", "{% if false %}{% set q = 1 %}{% endif %}{{ q is defined }}", "{% set n = n + 1 %}{{ n }}", "{% set a = 1 %}{% set a = a ~ a %}{{ a }}",
    "{% for i in [1] %}{{ n }}{% endfor %}{% set n = 2 %}{{ n }}", "{{ n }}{% set n = 2 %}{{ n }}", "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 2 %}{{ m() }}", "{% for i in [1] %}{% if true %}{% set n = 5 %}{% endif %}{{ n }}{% endfor %}{{ n }}", "{% for i in [1, 2] %}{% if i == 1 %}{% set n = 5 %}{% endif %}{{ n }}{% endfor %}", "{% for n in l %}{{ n }}{% endfor %}{{ n }}",
    "{% with a %}{% endwith %}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]", "{% set x | upper %}abc{% endset %}{{ x }}", "{% set x | replace('a', 'b') | upper %}abc{% endset %}{{ x }}", "{% set x %}{% set n = 1 %}{{ n }}{% endset %}{{ x }}{{ n }}", "{% set ns = namespace() %}{% set ns.x %}t{% endset %}{{ ns.x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = b, a %}{{ a }}", "{% set (a, b) = [1, 2] %}{{ a }}", "{% set a, b = [1] %}", "{% set a = 1, 2 %}{{ a }}", "{% set a, b %}xy{% endset %}{{ a }}-{{ b }}",
    "{% set 5 = 1 %}", "{% set none = 1 %}", "{% set true = 1 %}", "{% set a + b = 1 %}", "{% set [a] = [1] %}", "{% set a.b.c = 1 %}", "{% set a b = 1 %}", "{% set recursive = 1 %}{{ recursive }}", "{% set range = 5 %}{{ range }}", "{% set raise_exception = 1 %}{{ raise_exception }}", "{% set _x = 1 %}{{ _x }}", "{% set é = 1 %}{{ é }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter upper | replace('A', 'x') %}abc{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter nope %}a{% endfilter %}", "{% filter trim %}  {% set n = 1 %}{{ n }} {% endfilter %}{{ n }}", "{% if false %}{% filter nope %}a{% endfilter %}{% endif %}x", "{% if false %}{{ 1 | nope }}{{ 1 is nope }}{% endif %}x", "{% if true %}{{ 1 | nope }}{% endif %}", "{% if false %}{% for i in l %}{{ 1 | nope }}{% endfor %}{% endif %}x",
    "{% generation %}a{{ s }}{% set n = 1 %}{% endgeneration %}{{ n }}", "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% do l.append(1) %}", "{% if n %}a{% elif f %}b{% else %}c{% endif %}", "{% if z %}a{% elif nil %}b{% else %}c{% endif %}", "{% if z %}a{% elif n %}b{% elif s %}d{% endif %}", "{% if n: %}a{% endif %}", "{% if 1, 2 %}a{% endif %}", "{% if x is defined %}a{% else %}b{% endif %}", "{% if (n == 7 and not z) or q.r %}a{% endif %}",
    "{% set x = namespace(a=namespace(b=1)) %}{{ x.a.b }}", "{% for i in [1, 2] %}{% set x %}{{ i }}{% endset %}{{ x }}{% endfor %}", "{{ cycler() }}", "{% set x = s %}{% set s = 'q' %}{{ x }}{{ s }}", "{% set f = s.upper %}{{ f() }}{% set g = d.get %}{{ g('b') }}",
    "{% set out = namespace(t='') %}{% for w in words %}{% set out.t = out.t + w %}{% set copy = out.t %}{% set out.t = out.t + '.' %}{{ copy }},{% endfor %}{{ out.t }}", "{% set a = 'x' %}{% set b = a + 'y' %}{% set c = b + '1' %}{% set e2 = b + '2' %}{{ a }}{{ b }}{{ c }}{{ e2 }}", "{% for x in l %}{% for y in l %}{% set n = n + y %}{{ n }} {% endfor %}{{ n }};{% endfor %}",
    "{% set l2 = l %}{% for x in l2 %}{% set l2 = [9] %}{{ l2[0] }}{% endfor %}{{ l2 }}", "{% if true %}{% if true %}{% set deep = 1 %}{% endif %}{% endif %}{{ deep }}", "{% set x = 1 %}{% set y %}{{ x }}{% set x = 2 %}{{ x }}{% endset %}{{ y }}{{ x }}", "{% for x in l %}{% if x == 1 %}{% set found = x %}{% endif %}{{ found is defined }}{% endfor %}{{ found is defined }}",
]
MACROS = [
    "{% macro m() %}x{% endmacro %}{{ m() }}{{ m() ~ 'y' }}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(*a) %}{% endmacro %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% call m %}{% endcall %}", "{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}",
    "{% macro fact(k) %}{% if k > 1 %}{{ k * (fact(k - 1) | int) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}", "{% macro tree_of(x) %}{{ x.v }}{% for k in x.kids %}({{ tree_of(k) }}){% endfor %}{% endmacro %}{{ tree_of(tree[0]) }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% set x = 1 %}{% macro m() %}{% set x = x + 1 %}{{ x }}{% endmacro %}{{ m() }}{{ m() }}{{ x }}",
    "{% macro m() %}{{ q }}{% endmacro %}{% for q in l %}{{ m() }}{% endfor %}", "{% for q in l %}{% macro m() %}{{ q }}{% endmacro %}{{ m() }}{% endfor %}", "{% for q in l %}{% macro m() %}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro a() %}{% macro b() %}in{% endmacro %}{{ b() }}{% endmacro %}{{ a() }}", "{% macro a() %}x{% endmacro %}{% macro b() %}{{ a() }}{{ a() }}{% endmacro %}{{ b() }}",
    "{% macro m(x) %}\n  {{ x }}\n{% endmacro %}\n[{{ m(1) }}]", "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}\n[{{ m(1) }}]", "{% macro m() %}{% endmacro %}{{ m() is string }}{{ m() | length }}", "{% macro m(x) %}{{ x | upper }}{% endmacro %}{{ ['a', 'b'] | map('upper') | join }}{{ m('c') }}", "{% set ns = namespace(x=1) %}{% macro m() %}{% set ns.x = ns.x + 1 %}{% endmacro %}{{ m() }}{{ m() }}{{ ns.x }}", "{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}", "{% if false %}{% macro m() %}x{% endmacro %}{% endif %}{{ m is defined }}", "{% macro m(x=n, y=[1, 2]) %}{{ x }}{{ y }}{% endmacro %}{{ m() }}",
    "{% call(x) undefined_thing() %}{% endcall %}", "{% macro m() %}{% for x in l %}{{ x }}{% if x == 1 %}{% break %}{% endif %}{% endfor %}{% endmacro %}{{ m() }}", "{% macro m() %}{{ m2() }}{% endmacro %}{% macro m2() %}y{% endmacro %}{{ m() }}",
]
BROKEN = [
    "{{", "{{ 1", "{%", "{% if", "{% if true", "{% if true %}", "{% for x in l %}", "{% endif %}", "{% if true %}{% endfor %}", "{% if true %}{% else %}{% else %}{% endif %}", "{% if true %}{% else %}{% elif 1 %}{% endif %}", "{% for %}{% endfor %}", "{% for x %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for in l %}{% endfor %}", "{% set %}", "{% set x %}", "{% set x = %}", "{% macro %}{% endmacro %}", "{% macro m %}{% endmacro %}", "{% macro m() %}", "{% call %}{% endcall %}",
    "{% nope %}", "{% %}", "{%%}", "{{}}", "{{ }}", "{#", "{# x", "{% raw %}", "{% raw %}{% endraw", "{% raw +%}x{% endraw %}", "{% if true }}", "{{ 1 %}", "{{ 1 }", "{{ (1 }}", "{{ [1) }}", "{{ {1] }}", "{% endraw %}", "{% endset %}", "{% with %}", "{% filter %}{% endfilter %}", "{% filter upper %}", "{% generation %}", "{% extends 'x' %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% endmacro m %}", "{% macro m() %}{% endmacro m %}", "{% if true %}{% endif x %}", "{% else %}", "{% elif %}",
    "{{ 1 2 }}", "{{ 012 }}", "{{ 1.2.3 }}", "{{ 'a' 5 }}", "{{ x..y }}", "{{ x.'y' }}", "{{ not }}", "{{ and 1 }}", "{{ 1 if }}", "{{ is defined }}", "{{ x is }}", "{{ x | }}", "{{ 'a' | upper() () }}", "{{ x[1:2:3:4] }}", "{{ \\ }}", "{{ \"\\ud800\" }}", "{{ '\\u12' }}", "{{ $ }}", "{{ @x }}", "{{ a ** }}", "{{ -}}", "{{ + }}", "{{ ~ 'a' }}", "{{ == }}", "{{ in }}", "{{ 1 in }}", "{{ x not y }}", "{{ f(,) }}", "{{ [,] }}", "{{ {,} }}", "{{ (,) }}", "{% set x = 1 %}{% set x", "text {{ 1 }} {% broken",
]
STATEMENTS = WHITE_SPACE + LOOPS + SCOPES + MACROS + BROKEN


def test_snippets(nibble, tmp_path):
    cases = ["{{ %s }}" % line for line in EXPRESSIONS] + STATEMENTS
    complaints = compare_all(nibble, tmp_path, [(source, VARIABLES) for source in cases])
    wrong = [f"{source}\n{complaint}" for source, complaint in zip(cases, complaints) if complaint]
    print(f"{len(cases) - len(wrong)} of {len(cases)} snippets agree")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("source, sentence", [
    ("\n{{ 9223372036854775807 + 1 }}", "line 2: an integer outgrows 64 bits"),  # Python's integers go on growing
    ("{{ s.encode() }}", "line 1: there is no method called 'encode'"),
    ("{% if s.encode() %}{% endif %}", "line 1: a string has no attribute 'encode'"),
    ("{{ l | random }}", "line 1: there is no filter called 'random'"),
    ("{{ s is callable }}", "line 1: there is no test called 'callable'"),
    ("{{ cycler('a') }}", "line 1: there is no function called 'cycler'"),
    ("{% block x %}{% endblock %}", "line 1: unknown tag 'block'"),
    ("{{ '%s' % s }}", "line 1: '%' does not format strings here"),
    ("{{ '{:d}'.format(n) }}", "line 1: format() has no value for '{:d}'"),
    ("{{ undefined_thing.x }}", "line 1: 'undefined_thing' is undefined"),
    ("\n\n{{ d.nope.x }}", "line 3: a dict has no attribute 'nope'"),
    ("{{ raise_exception('Only\nthis') }}", "Only\nthis"),
    ("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "steps"),
    ("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "MB of memory"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels"),
])
def test_sentences(nibble, tmp_path, source, sentence):
    text, failure = actual(nibble, tmp_path, 0, source, VARIABLES)
    assert text is None and failure[0] == 1 and sentence in failure[1]
