"""Structs as bytes, by the core's own declarations of them: what Python packs for C, and reads of what C has packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mq_shards.csrc._core import ffi


def packed(name: str, **fields: int | Mapping[str, int]) -> bytes:
    """A struct with these fields; the others are 0. A field that is a struct itself is given as a mapping."""
    return bytes(ffi.buffer(ffi.new(f"struct {name} *", fields)))


def struct_in(name: str, content: bytes | memoryview, at: int = 0) -> Any:  # noqa: ANN401
    """The struct that lies at `at`. ValueError if `content` ends before it does."""
    return ffi.from_buffer(f"struct {name} *", memoryview(content)[at:])


def structs_in(name: str, content: bytes) -> Any:  # noqa: ANN401
    """All structs of an array."""
    return ffi.from_buffer(f"struct {name}[]", content)
