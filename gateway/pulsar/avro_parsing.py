"""Reads Avro schemas by Avro's library, whose errors are kept short.

The library puts what it cannot read into the text of its error, and at each level around it that text once more, with
the level's own: half a megabyte that was wrong at its 180th level became 5.6 GB. Nobody is shown these texts. Nor are
its warnings: Python would write what a schema says to the journal, lines and all, and remember each such text for ever.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from avro.schema import Schema

MAX_DEPTH: Final = 400  # of the JSON, of which a record in a record takes three
MAX_TEXT: Final = 1024
_SHORT: Final = "..."


class _Object(dict[str, Any]):
    def __repr__(self) -> str:
        return _SHORT

    def keys(self) -> Any:  # noqa: ANN401 - a view, which has no type of its own
        return _Array(super().keys())


class _Array(list[Any]):
    def __repr__(self) -> str:
        return _SHORT


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return _SHORT

    def __str__(self) -> str:
        return _SHORT

    def __format__(self, _: str) -> str:
        return _SHORT


@cache
def _silence() -> None:
    from avro.errors import AvroWarning

    warnings.filterwarnings("ignore", category=AvroWarning)


def parse(text: str) -> Schema:
    """Raises RecursionError if it is nested too deep, else what the library raises, which is all kinds."""
    _silence()
    from avro.name import Names  # loaded with the first use
    from avro.schema import make_avsc_object

    names = Names(validate_names=True)
    names.names = _Object()
    return make_avsc_object(_short(json.loads(text), 0), names)


def _short(value: Any, depth: int) -> Any:  # noqa: ANN401 - JSON
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        return _Object(zip(value, _all_short(value.values(), depth), strict=True))
    if isinstance(value, list):
        return _Array(_all_short(value, depth))
    return _Text(value) if isinstance(value, str) and len(value) > MAX_TEXT else value


def _all_short(values: Iterable[Any], depth: int) -> list[Any]:
    found = []
    for value in values:
        found.append(_short(value, depth + 1))
    return found
