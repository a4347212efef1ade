"""The filters of a query that narrow down what is read: topics, and ranges of seq and of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
US: Final = timedelta(microseconds=1)
UNBOUNDED: Final = 1 << 63


@dataclass
class Interval:
    """The numbers from `start` to `end` - 1."""

    start: int = -UNBOUNDED
    end: int = UNBOUNDED

    def narrow(self, f: Filter, value_of: Callable[[object], int | None]) -> bool:
        """Narrows the interval by a filter. True if the interval now says all that the filter does."""
        given: Any = getattr(f, "value", None)
        kind = _kind(f)
        values = [value_of(v) for v in given] if kind == "In" else [value_of(given)]
        known = [value for value in values if value is not None]
        if not known or len(known) != len(values):
            return False
        low, high = min(known), max(known)
        match kind:
            case "EqualTo" | "EqualNullSafe" | "In":
                self._within(low, high + 1)
                return low == high
            case "GreaterThanOrEqual":
                self._within(low, UNBOUNDED)
            case "GreaterThan":
                self._within(low + 1, UNBOUNDED)
            case "LessThanOrEqual":
                self._within(-UNBOUNDED, high + 1)
            case "LessThan":
                self._within(-UNBOUNDED, high)
            case _:
                return False
        return True

    def _within(self, start: int, end: int) -> None:
        self.start, self.end = max(self.start, start), min(self.end, end)


@dataclass
class Pushed:
    """The filters that reading obeys. `times_us` may be wider than its filters: Spark applies these again."""

    seqs: Interval = field(default_factory=Interval)
    times_us: Interval = field(default_factory=Interval)
    topics: list[Callable[[str], bool]] = field(default_factory=list)

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Takes the filters that it can, and yields those that Spark must apply."""
        for f in filters:
            if not self._push(f):
                yield f

    def _push(self, f: Filter) -> bool:
        match getattr(f, "attribute", None):
            case ("seq",):
                return self.seqs.narrow(f, _integer)
            case ("timestamp",):
                self.times_us.narrow(f, _microseconds)
            case ("topic",) if (accepts := _topics(f)) is not None:
                self.topics.append(accepts)
                return True
        return False

    def has(self, topic: str) -> bool:
        return all(accepts(topic) for accepts in self.topics)


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: object) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - EPOCH) // US


def _topics(f: Filter) -> Callable[[str], bool] | None:
    value: Any = getattr(f, "value", None)
    match _kind(f):
        case "EqualTo" | "EqualNullSafe" if isinstance(value, str):
            return lambda topic: topic == value
        case "In":
            return lambda topic: topic in value
        case "StringStartsWith":
            return lambda topic: topic.startswith(value)
        case "StringEndsWith":
            return lambda topic: topic.endswith(value)
        case "StringContains":
            return lambda topic: value in topic
        case _:
            return None


def _kind(f: Filter) -> str:
    """The name of a filter's class: PySpark 4.0 has no filters, and no classes of theirs to import."""
    return type(f).__name__
