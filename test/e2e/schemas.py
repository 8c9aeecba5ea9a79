# SPDX-License-Identifier: Apache-2.0
"""JSON schemas for tests: at random (Dice), as pydantic writes them (MODELS), and what `jsonschema` says of a value."""

import datetime
import decimal
import enum
import ipaddress
import random
import typing
import urllib.parse
import uuid

import jsonschema
import pydantic

CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
FORMATS = {
    "date-time": lambda text: datetime.datetime.fromisoformat(text), "time": lambda text: [datetime.time.fromisoformat(text)],
    "uri": lambda text: urllib.parse.urlsplit(text).scheme, "json-pointer": lambda text: not text or text.startswith("/"),
    "email": lambda text: "@" in text and " " not in text,
}
for name, check in FORMATS.items():
    CHECKER.checks(name, ValueError)(lambda value, check=check: not isinstance(value, str) or bool(check(value)))


def is_multiple(validator, of, value, schema):
    """As decimals: 0.07 is a multiple of 0.01, though the doubles are not."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with decimal.localcontext(prec=400):
            if decimal.Decimal(repr(value)) % decimal.Decimal(repr(of)):
                yield jsonschema.ValidationError(f"{value} is not a multiple of {of}")


VALIDATOR = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"multipleOf": is_multiple})


def meets(schema, value):
    """Raises where the value is not valid."""
    if isinstance(schema, dict) and schema.get("nullable") and value is None:
        return
    VALIDATOR(schema, format_checker=CHECKER).validate(value)


def is_valid(schema, value):
    return VALIDATOR(schema, format_checker=CHECKER).is_valid(value)


class Dice(random.Random):
    """Schemas at random, out of everything that is understood."""

    def leaf(self):
        low, high = sorted((self.randrange(-50, 500), self.randrange(-50, 500)))
        return self.choice([
            {"type": "integer"}, {"type": "integer", "minimum": low, "maximum": high}, {"type": "number", "exclusiveMinimum": low / 8},
            {"type": "string", "minLength": self.randrange(4), "maxLength": self.randrange(4, 9)}, {"type": "boolean"}, {"type": "null"},
            {"type": self.sample(["string", "integer", "null", "boolean", "number"], 2)}, {}, {"$ref": "#/$defs/other"},
            {"enum": self.sample([1, 2.5, "a", 'b"c', "é🦊", None, True, [1, "x"], {"k": 1}, "", -7, 0, 1e10], self.randrange(1, 6))},
            {"type": "string", "pattern": self.choice(["^a+b?$", "^[0-9]{3}-[0-9]{4}$", "^(foo|bar)*$", "^\\w{2,5}$", "[A-Z]$"])},
            {"type": "string", "pattern": self.choice(["^(?!a)[a-d]{1,3}$", "^(?=.*[0-9])[a-z0-9]{2,4}$", "\\bx\\b", "^([ab])\\1$"])},
            {"type": "string", "format": self.choice(["date", "ipv4", "ipv6", "uuid", "json-pointer", "email"])},
            {"type": "integer", "multipleOf": self.randrange(1, 40)}, {"type": "number", "multipleOf": self.choice([0.5, 0.01, 0.125, 3])},
            {"not": self.choice([{"type": "string"}, {"enum": ["a", 1, None]}, {"const": True}, {"minimum": 3}, {"type": ["object", "array"]}])},
            {"type": "string", "maxLength": 6, "not": self.choice([{"pattern": "^[ab]"}, {"enum": ["a", "é"]}, {"maxLength": 1}])},
        ])

    def counted(self):
        """An object whose members are counted, or named by a pattern."""
        value = self.choice([{"type": "integer"}, {"type": "boolean"}, {"const": "x"}])
        return self.choice([
            {"type": "object", "patternProperties": {"^a": value}, "additionalProperties": False},
            {"type": "object", "propertyNames": {"pattern": "^[a-c]{1,4}$"}, "additionalProperties": value},
            {"type": "object", "propertyNames": {"enum": ["x", "y", "z"]}, "additionalProperties": value, "minProperties": self.randrange(3)},
            {"type": "object", "properties": {name: value for name in "abcd"}, "minProperties": self.randrange(3), "maxProperties": self.randrange(3, 5)},
            {"type": "object", "additionalProperties": value, "minProperties": self.randrange(3), "maxProperties": 3},
        ])

    def chosen(self, depth):
        """A schema that decides by what it sees."""
        kind, one, other = {"enum": ["x", "y"]}, self.schema(depth - 1), self.schema(depth - 1)
        return self.choice([
            {"type": "object", "properties": {"kind": kind, "n": {"type": "integer"}}, "required": ["kind"],
             "if": {"properties": {"kind": {"const": "x"}}}, "then": {"required": ["n"]}, "else": {"properties": {"n": False}}},
            {"if": {"type": "integer"}, "then": {"minimum": 5}, "else": one}, {"oneOf": [one, other]}, {"not": {"anyOf": [{"type": "object"}, one]}},
            {"type": "object", "properties": {"a": one, "b": other}, "dependentRequired": {"a": ["b"]}},
            {"type": "object", "properties": {"a": one, "b": other}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ])

    def schema(self, depth):
        kind = self.choice(["leaf", "object", "object", "array", "anyOf", "allOf", "counted", "chosen"]) if depth else "leaf"
        if kind == "counted":
            return self.counted()
        if kind == "chosen":
            return self.chosen(depth)
        if kind == "object":
            names = self.sample(["a", "b", "dé", "e e", 'f"q'], self.randrange(1, 5))
            return {"type": "object", "properties": {name: self.schema(depth - 1) for name in names},
                    "required": self.sample(names, self.randrange(len(names) + 1)), "additionalProperties": self.random() < 0.2}
        if kind == "array":
            more = self.choice([{}, {}, {"uniqueItems": True}, {"contains": self.leaf()}])
            return {"type": "array", "items": self.schema(depth - 1), "minItems": self.randrange(3), "maxItems": self.randrange(3, 5), **more}
        if kind in ("anyOf", "allOf"):
            return {kind: [self.schema(depth - 1) for _ in range(self.randrange(1, 4))]}
        return self.leaf()


# ---- as people write them with pydantic -----------------------------------------------------------------------------

class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(pydantic.BaseModel):
    kind: typing.Literal["cat"]
    lives: int = pydantic.Field(ge=1, le=9)


class Dog(pydantic.BaseModel):
    kind: typing.Literal["dog"]
    good: bool = True


class Node(pydantic.BaseModel):
    value: int
    children: list["Node"] = []


def model(name, **types):
    return pydantic.create_model(name, **{field: (type_, ...) for field, type_ in types.items()})


MODELS = [
    Cat, Node,
    model("Plain", a=int, b=float, c=bool, d=str, e=None),
    model("Optional", a=typing.Optional[int], b=int | str | None),
    model("Decimals", a=decimal.Decimal, b=typing.Annotated[decimal.Decimal, pydantic.Field(max_digits=6, decimal_places=2, ge=0)]),
    model("Bounds", a=typing.Annotated[int, pydantic.Field(gt=0, lt=100)], b=pydantic.PositiveFloat, c=pydantic.NonNegativeInt),
    model("Multiples", a=typing.Annotated[int, pydantic.Field(multiple_of=5)], b=typing.Annotated[float, pydantic.Field(multiple_of=0.5)]),
    model("Strings", a=typing.Annotated[str, pydantic.StringConstraints(min_length=2, max_length=8, pattern="^[a-z]+$")], b=pydantic.SecretStr),
    model("Lists", a=typing.Annotated[list[int], pydantic.Field(min_length=1, max_length=3)], b=tuple[int, str], c=tuple[bool, ...]),
    model("Sets", a=set[int], b=frozenset[typing.Literal["x", "y"]]),
    model("Literals", a=typing.Literal["red", "green", 3, None, True], b=Colour),
    model("Unions", pet=typing.Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]),
    model("PlainUnions", pet=Cat | Dog, either=int | list[str]),
    model("Dates", a=datetime.date, b=datetime.datetime, c=datetime.time, d=datetime.timedelta),
    model("Uuids", a=uuid.UUID, b=pydantic.UUID4, c=pydantic.UUID1),
    model("Addresses", a=ipaddress.IPv4Address, b=ipaddress.IPv6Address, c=pydantic.IPvAnyAddress),
    model("Networks", a=ipaddress.IPv4Network, b=ipaddress.IPv6Network, c=ipaddress.IPv4Interface),
    model("Urls", a=pydantic.AnyUrl, b=pydantic.HttpUrl),
    model("Bytes", a=bytes, b=pydantic.Base64Bytes, c=pydantic.Base64UrlStr),
    model("Dicts", a=dict[str, int], b=dict[typing.Literal["x", "y"], bool], c=typing.Annotated[dict[str, int], pydantic.Field(min_length=1, max_length=3)]),
    model("Keys", a=dict[typing.Annotated[str, pydantic.StringConstraints(pattern="^k[0-9]$")], int], b=dict[uuid.UUID, str],
          c=dict[typing.Annotated[str, pydantic.StringConstraints(min_length=2)], bool]),
    model("Nested", pets=list[Cat], by_name=dict[str, Dog], any=typing.Any, root=Node),
    model("Patterns", a=typing.Pattern, b=typing.Annotated[str, pydantic.StringConstraints(pattern=r"^\\+?[1-9]\\d{1,14}$")]),
    model("Closed", pet=pydantic.create_model("Inner", __config__=pydantic.ConfigDict(extra="forbid"), a=(int, 3), b=(str, ...))),
]
