"""Reads JSON objects by the rules of Go's encoding/json, as nsqd does.

A key matches a field in any case. Unknown keys are ignored, and of several for one field the last counts, but each must
have the type of the field. null leaves a field as it is. A value of another type is an error; a number with a point
or an exponent is not a whole number, and may be one that no float can hold. Bytes that are not UTF-8 and halves of
surrogate pairs are replaced.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import orjson
from mq_shards.csrc._core import ffi, lib

INT32: Final = 1 << 31
INT64: Final = 1 << 63
MAX_BYTES: Final = 64 << 10


class DecodeError(ValueError):
    """The text is not JSON, or a value has a wrong type."""


T = TypeVar("T")
# Takes a value that is not null; raises DecodeError.
Reader: TypeAlias = Callable[[object], T]


class _Pairs(dict[str, Any]):
    """An object with all of its keys, of which a dict keeps the last of each name."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


# A string without its end is one token too, so that no search begins within it again.
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?+|-?+[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+', re.DOTALL)
_ESCAPES: Final = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|(\\.)", re.DOTALL
)
_FRACTION: Final = "0.5"  # any number that is not whole


def _representable(text: str) -> str:
    """JSON with other values for those that Go reads and orjson does not."""

    def token(found: re.Match[str]) -> str:
        one = found[0]
        if one.startswith('"'):
            return _ESCAPES.sub(lambda escape: "\\ufffd" if escape[2] else escape[0], one)
        return _FRACTION if math.isinf(float(one)) else one

    return _TOKENS.sub(token, text)


def loads(body: bytes) -> object:
    """Of a text of more than MAX_BYTES that is not plain JSON nothing is found out: that takes long, and all clients
    wait meanwhile. Of a key that comes twice there, only the last value is looked at.
    """
    text = body.decode("utf-8", "replace")
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if len(body) > MAX_BYTES:
            raise DecodeError(str(error)) from None
        text = _representable(text)
        try:
            found = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise DecodeError(str(error)) from None
    # As many colons as keys: no key comes twice, as it is nearly always.
    if not isinstance(found, dict) or len(body) > MAX_BYTES or body.count(b":") == len(found):
        return found
    try:
        return json.loads(text, object_pairs_hook=_Pairs)
    except RecursionError:  # it is nested deeper than the other reader goes
        return found


def members(body: bytes, names: Iterable[str]) -> bytes:
    """An object with the members of these names only, which are in lower case: to decode unknown ones takes long if
    there are many, and all clients wait meanwhile. A member that is an array or an object is an empty one."""
    out = bytearray(len(body) + 1)
    known = b"".join(bytes([len(name)]) + name.encode() for name in names)
    found = lib.json_members(body, len(body), known, ffi.from_buffer(out))
    if found == 0:
        raise DecodeError("not JSON")
    return bytes(out[:found])


def fields(value: object, readers: Mapping[str, Reader[Any]]) -> dict[str, Any]:
    """Reads the fields of an object that are set and not null. `readers` has the fields' names in lower case."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodeError(f"not an object: {_kind(value)}")
    found = {}
    for key, member in value.pairs if isinstance(value, _Pairs) else value.items():
        name = key if key in readers else key.casefold()
        if name in readers and member is not None:
            try:
                found[name] = readers[name](member)
            except DecodeError as error:
                raise DecodeError(f"{name}: {error}") from None
    return found


def text(value: object) -> str:
    if not isinstance(value, str):
        raise DecodeError(f"not a string: {_kind(value)}")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise DecodeError(f"neither true nor false: {_kind(value)}")
    return value


def int64(value: object) -> int:
    return _whole(value, INT64)


def int32(value: object) -> int:
    return _whole(value, INT32)


def _whole(value: object, bound: int) -> int:
    if type(value) is not int or not -bound <= value < bound:
        raise DecodeError(f"not a whole number in range: {_kind(value)}")
    return value


def items(reader: Reader[T], zero: T) -> Reader[list[T]]:
    """A reader of lists; a null in a list becomes `zero`."""

    def read(value: object) -> list[T]:
        if not isinstance(value, list):
            raise DecodeError(f"not a list: {_kind(value)}")
        return [zero if item is None else reader(item) for item in value]

    return read


def _kind(value: object) -> str:
    return type(value).__name__
