"""The last minutes of a figure: one value for each sample."""

from __future__ import annotations

from array import array
from typing import Final

POINTS: Final = 90


class History:
    """The last POINTS values."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = array("f")

    def add(self, value: float) -> None:
        if len(self._values) == POINTS:
            del self._values[0]
        self._values.append(value)

    def values(self) -> list[float]:
        return [round(value, 1) for value in self._values]
