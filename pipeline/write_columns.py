"""The columns that Spark writes into topics: their names, their types and their contents.

As in Kafka's sink, `value` may be the body, and `key` and `headers` may have the sink's types; other columns are
ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from mq_shards.pipeline.contents import contents
from mq_shards.pipeline.encode import EncodeError, Encoder, Schedules, Section
from mq_shards.pipeline.options import OptionError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

TOPIC: Final = "topic"
BODIES: Final = ("body", "value")  # the second is its name in Kafka's sink
ATTRIBUTES: Final = ("attributes", "headers")
KEY: Final = "key"
DELAY: Final = "delay_ms"
PRIORITY: Final = "priority"
MAX_PRIORITY: Final = (1 << 32) - 1
MAX_DELAY_MS: Final = MAX_PRIORITY * 1000
_MS_NS: Final = 1_000_000


@dataclass(frozen=True)
class Columns:
    """The index of each column in a row; None: it is not there. `topic`: else an option names the topic of all rows."""

    body: int
    body_name: str
    topic: int | None
    attributes: int | None = None
    key: int | None = None
    delay: int | None = None
    priority: int | None = None

    @staticmethod
    def of(schema: StructType, option_topic: str | None) -> Columns:
        """Raises OptionError."""
        names = schema.fieldNames()
        body = _one_of(names, BODIES)
        if body is None:
            raise OptionError(f"one column, body (or value), is wanted: there are {', '.join(names) or 'no columns'}")
        _check(schema, body, "binary or string", lambda kind: isinstance(kind, BinaryType | StringType))
        if option_topic is None:
            if TOPIC not in names:
                raise OptionError("topic: there is neither a column nor an option of this name")
            _check(schema, TOPIC, "string", lambda kind: isinstance(kind, StringType))
        attributes = _one_of(names, ATTRIBUTES)
        if attributes is not None:
            _check(schema, attributes, "map<string,string>, or array<struct<key:string,value:binary>>,", is_headers)
        found = {}
        for name, wanted, of in _OTHERS:
            if name in names:
                _check(schema, name, wanted, lambda kind, of=of: isinstance(kind, of))
                found[name] = names.index(name)
        return Columns(
            names.index(body), body, None if option_topic is not None else names.index(TOPIC),
            None if attributes is None else names.index(attributes),
            found.get(KEY), found.get(DELAY), found.get(PRIORITY),
        )  # fmt: skip

    @property
    def has_headers(self) -> bool:
        return self.attributes is not None or self.key is not None

    def sections(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> Iterator[Section]:
        """Raises EncodeError."""
        encoder = Encoder(headers=self.has_headers)
        for batch in batches:
            bodies = _without_nulls(batch, self.body, self.body_name)
            topics = topic if self.topic is None else _without_nulls(batch, self.topic, TOPIC)
            assert topics is not None
            if self.has_headers:
                attributes = None if self.attributes is None else _as_map(batch.column(self.attributes))
                keys = None if self.key is None else _as_text(batch.column(self.key), KEY)
                bodies = contents(bodies, attributes, keys)
            yield from encoder.add(topics, bodies, self._schedules(batch))
        yield from encoder.finish()

    def _schedules(self, batch: pa.RecordBatch) -> Schedules | None:
        if self.delay is None and self.priority is None:
            return None
        delay = _numbers(batch, self.delay, DELAY, 0, MAX_DELAY_MS)
        return Schedules(delay * _MS_NS, _numbers(batch, self.priority, PRIORITY, -1, MAX_PRIORITY))


_OTHERS: Final = (
    (KEY, "string or binary", BinaryType | StringType),
    (DELAY, "int or bigint", IntegerType | LongType),
    (PRIORITY, "int or bigint", IntegerType | LongType),
)


def _one_of(names: list[str], wanted: tuple[str, ...]) -> str | None:
    found = [name for name in wanted if name in names]
    if len(found) > 1:
        raise OptionError(f"one column, {wanted[0]} (or {wanted[1]}), is wanted: there are {' and '.join(found)}")
    return found[0] if found else None


def _check(schema: StructType, name: str, wanted: str, fits: object) -> None:
    assert callable(fits)
    if not fits(kind := schema[name].dataType):
        raise OptionError(f"column {name} is of type {kind.simpleString()}; {wanted} is wanted")


def is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    of = [field.dataType for field in kind.elementType]
    return len(of) == 2 and isinstance(of[0], StringType) and isinstance(of[1], StringType | BinaryType)


def _as_map(column: pa.Array) -> pa.Array:
    if pa.types.is_map(column.type):
        return column
    entries = column.values
    offsets = column.offsets
    if column.null_count:  # null rows become rows without entries
        column = column.fill_null([])
        entries, offsets = column.values, column.offsets
    return pa.MapArray.from_arrays(
        offsets.cast(pa.int32()), _as_text(entries.field(0), "headers"), _as_text(entries.field(1), "headers")
    )


def _as_text(column: pa.Array, name: str) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise EncodeError(f"column {name}: what is not UTF-8 cannot be an attribute ({error})") from None


def _numbers(batch: pa.RecordBatch, number: int | None, name: str, none: int, most: int) -> npt.NDArray[np.int64]:
    if number is None:
        return np.full(batch.num_rows, none, np.int64)
    column = batch.column(number).cast(pa.int64())
    found: npt.NDArray[np.int64] = column.fill_null(none).to_numpy(zero_copy_only=False)
    wrong = (found > most) | ((found < 0) & column.is_valid().to_numpy(zero_copy_only=False))
    if wrong.any():
        raise EncodeError(f"column {name}: {int(found[wrong][0])} is not 0 to {most}")
    return found


def _without_nulls(batch: pa.RecordBatch, number: int, name: str) -> pa.Array:
    column = batch.column(number)
    if column.null_count:
        raise EncodeError(f"column {name} is null in {column.null_count} of {len(column)} rows; a message has a {name}")
    return column
