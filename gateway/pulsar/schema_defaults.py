"""Which defaults of an Avro schema's fields are of another type than their field, by the rules of Java's library.

Works on the parsed JSON and not with Avro's library, which checks no defaults and is slow: producers come with schemas
that their topic has long had. Says nothing of what is wrong with a schema otherwise.

The default of a record may leave out fields, whose own defaults then count and may leave out fields as well. So a short
schema may have more values than can ever be looked at. Callers limit them: `step` is called with what each value costs,
1 or more, and may raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import orjson

_INTEGERS: Final = {"int": 1 << 31, "long": 1 << 63}
_TEXTS: Final = frozenset({"string", "bytes", "fixed", "enum"})  # what the text says is not looked at
_SYMBOLS_A_STEP: Final = 32

Step: TypeAlias = Callable[[int], None]


def wrong_default(raw: bytes, step: Step) -> str:
    """Why a schema's first wrong default is one, as a real broker says it; "": none is wrong."""
    if b'"default"' not in raw:
        return ""
    try:
        return _Defaults(step).wrong(orjson.loads(raw))
    except (orjson.JSONDecodeError, RecursionError, KeyError, TypeError, AttributeError):
        return ""  # it is no schema


class _Defaults:
    def __init__(self, step: Step) -> None:
        self._step = step
        self._named: dict[str, Any] = {}

    def wrong(self, schema: Any) -> str:  # noqa: ANN401
        if isinstance(schema, list):
            return next(filter(None, map(self.wrong, schema)), "")
        if isinstance(schema, str):
            return ""
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.wrong(kind)
        if kind in ("array", "map"):
            return self.wrong(schema["items" if kind == "array" else "values"])
        if "name" in schema:
            self._named[_last(schema["name"])] = schema
        return next(filter(None, map(self._wrong_field, schema.get("fields", ()))), "")

    def _wrong_field(self, field: Any) -> str:  # noqa: ANN401
        if why := self.wrong(field["type"]):
            return why
        # A text stands for the number in it.
        is_number = field["type"] in ("float", "double") and isinstance(field.get("default"), str)
        if "default" not in field or is_number or self._fits(field["type"], field["default"]):
            return ""
        shown, kind = orjson.dumps(field["default"]).decode(), orjson.dumps(field["type"]).decode()
        return f"Invalid default for field {field['name']}: {shown} not a {kind}"

    def _fits(self, schema: Any, value: Any) -> bool:  # noqa: ANN401
        self._step(1)
        if isinstance(schema, list):  # only the first branch may have it
            return bool(schema) and self._fits(schema[0], value)
        schema = self._named.get(_last(schema), schema) if isinstance(schema, str) else schema
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str):
            return self._fits(kind, value)
        if kind in _INTEGERS:
            return type(value) is int and -_INTEGERS[kind] <= value < _INTEGERS[kind]
        if kind in _TEXTS:
            return isinstance(value, str)
        match kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "float" | "double":
                return type(value) in (int, float)
            case "array":
                return isinstance(value, list) and all(self._fits(schema["items"], one) for one in value)
            case "map":
                return isinstance(value, dict) and all(self._fits(schema["values"], one) for one in value.values())
        return isinstance(value, dict) and all(self._has(field, value) for field in schema["fields"])

    def _has(self, field: Any, record: dict[str, Any]) -> bool:  # noqa: ANN401
        if field["name"] in record:
            return self._fits(field["type"], record[field["name"]])
        return "default" in field and self._fits(field["type"], field["default"])


def _last(name: str) -> str:
    return name.rpartition(".")[2]


_NUMBERS: Final = frozenset({"int", "long", "float", "double"})


def unusable_default(schema: Any, value: Any, step: Step) -> str:  # noqa: ANN401
    """Why a reader's default cannot stand for a field that was not written, as a real broker says it; "": it can.

    `schema` is the library's. A real broker encodes the default, and so takes any number for a number.
    """
    kind = schema.type
    step(1 + len(schema.symbols) // _SYMBOLS_A_STEP if kind == "enum" else 1)
    if kind in _NUMBERS:
        is_text = kind in ("float", "double") and isinstance(value, str)  # that stands for the number in it
        return "" if is_text or type(value) in (int, float) else _said(f"Non-numeric default value for {kind}", value)
    if kind in ("string", "bytes", "fixed"):
        return "" if isinstance(value, str) else _said(f"Non-string default value for {kind}", value)
    match kind:
        case "boolean":
            return "" if isinstance(value, bool) else _said("Non-boolean default for boolean", value)
        case "null":
            return "" if value is None else _said("Non-null default value for null type", value)
        case "enum":
            return "" if value in schema.symbols else _said("No such symbol", value)
        case "union" | "error_union":
            return unusable_default(schema.schemas[0], value, step) if schema.schemas else ""
        case "array" | "map":
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            of_each = schema.items if kind == "array" else schema.values
            return next(filter(None, (unusable_default(of_each, one, step) for one in inner)), "")
    return next(filter(None, (_unusable_field(field, value, step) for field in schema.fields)), "")


def _unusable_field(field: Any, record: Any, step: Step) -> str:  # noqa: ANN401
    if isinstance(record, dict) and field.name in record:
        return unusable_default(field.type, record[field.name], step)
    if field.has_default:
        return unusable_default(field.type, field.default, step)
    return f"No default value for: {field.name}"


def _said(why: str, value: Any) -> str:  # noqa: ANN401
    return f"{why}: {orjson.dumps(value).decode()}"
