"""What a project or report is told of the contents of messages: formats, and the names of an event's fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

AUTO, JSON, TEXT, BINARY = "auto", "json", "text", "binary"
FORMATS: Final = (AUTO, JSON, TEXT, BINARY)
_FIELD: Final = re.compile(r"[^'\"\\\[\]]+")


class FieldError(ValueError):
    """A field has a name that cannot be looked for."""


@dataclass(frozen=True)
class Fields:
    """The names of an event's fields in the outermost object of its JSON. The first name that is there counts."""

    id: Sequence[str] = ("id",)
    time: Sequence[str] = ("time", "timestamp", "ts")
    source: Sequence[str] = ("source", "user")

    def __post_init__(self) -> None:
        for name in (*self.id, *self.time, *self.source):
            if not _FIELD.fullmatch(name):
                raise FieldError(f"{name!r} cannot be a field's name: it has quotes, brackets or backslashes")
