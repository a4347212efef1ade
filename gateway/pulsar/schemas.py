"""Whether a schema may follow others on a topic: Pulsar's strategies, over Avro's own rules of who can read what.

AVRO, JSON and PROTOBUF schemas are Avro's (clients make them so); PROTOBUF_NATIVE ones are descriptors, of which the
root message must stay; KEY_VALUE ones are two schemas in one; all others are equal or another type.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.gateway.pulsar.catalog import Schema

if TYPE_CHECKING:
    from avro.schema import Schema as AvroSchema

TYPES: Final = frozenset(
    {
        "NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE",
        "DATE", "TIME", "TIMESTAMP", "KEY_VALUE", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME",
        "PROTOBUF_NATIVE", "BYTES",
    }
)  # fmt: skip
STRATEGIES: Final = frozenset(
    {
        "UNDEFINED", "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE",
        "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
    }
)  # fmt: skip
DEFAULT_STRATEGY: Final = "FULL"
MAX_SCHEMA_BYTES: Final = 1 << 20
# Pairs of fields that are looked at to say whether a schema may follow those before it: the library looks each up among
# all, and each branch of a union beside each.
MAX_PAIRS: Final = 1 << 22
_PAIRS_OF_BRANCHES: Final = 32

_BY_AVRO: Final = frozenset({"AVRO", "JSON", "PROTOBUF"})
_TRANSITIVE: Final = "_TRANSITIVE"


# Of those before it, as they are stored: the library takes seconds for each MiB.
MAX_COMPARED_BYTES: Final = 4 << 20
TOO_DEEP: Final = "it is nested too deep"


class InvalidSchemaError(Exception):
    """It is no schema of its type."""


class IncompatibleError(Exception):
    """It may not follow the others; says why."""


def check(schema: Schema) -> None:
    """Raises InvalidSchemaError."""
    if schema.type not in TYPES:
        raise InvalidSchemaError(f"there is no schema type {schema.type}")
    raw = raw_data(schema)
    if len(raw) > MAX_SCHEMA_BYTES:
        raise InvalidSchemaError(f"a schema has {MAX_SCHEMA_BYTES} bytes at most")
    try:
        if schema.type in _BY_AVRO:
            _avro(raw)
        elif schema.type == "PROTOBUF_NATIVE":
            _root_message(raw)
        elif schema.type == "KEY_VALUE":
            for part in key_and_value(schema):
                check(part)
    except InvalidSchemaError:
        raise
    except RecursionError:
        raise InvalidSchemaError(f"Invalid schema definition data for {schema.type} schema: {TOO_DEEP}") from None
    except Exception:  # the library's, of all kinds
        raise InvalidSchemaError(f"Invalid schema definition data for {schema.type} schema") from None


def worth_comparing(wanted: Schema, live: Sequence[Schema]) -> list[Schema]:
    """Those that may say the same in other words; of all that there are the last."""
    found, size = [], 0
    for schema in reversed(live) if wanted.type in _BY_AVRO else ():
        size += len(schema.data)
        if size > MAX_COMPARED_BYTES:
            break
        if schema.type == wanted.type:
            found.append(schema)
    return found


def version_of(wanted: Schema, compared: Sequence[Schema]) -> int:
    """-1: none of them says the same."""
    means = _meaning(wanted) if compared else None
    return -1 if means is None else next((one.version for one in compared if _meaning(one) == means), -1)


def _meaning(schema: Schema) -> Any:  # noqa: ANN401
    """None: it cannot be told."""
    try:
        return orjson.loads(raw_data(schema))
    except (orjson.JSONDecodeError, InvalidSchemaError):
        return None


def followed(live: Sequence[Schema], strategy: str) -> Sequence[Schema]:
    """Those that a new one has to fit."""
    if strategy == "ALWAYS_COMPATIBLE":
        return ()
    return live if strategy.endswith(_TRANSITIVE) else live[-1:]


def check_follows(new: Schema, against: Sequence[Schema], strategy: str) -> None:
    """`against` as followed() has them, oldest first. Raises IncompatibleError."""
    if not against:
        return
    if strategy == "ALWAYS_INCOMPATIBLE":
        raise IncompatibleError("Error during schema compatibility check with strategy ALWAYS_INCOMPATIBLE")
    last = against[-1]
    if last.type != new.type:
        raise IncompatibleError(
            f"Incompatible schema: exists schema type {last.type}, new schema type {new.type}",
        )
    if len(against) > 1 and sum(len(old.data) for old in against) > MAX_COMPARED_BYTES:
        raise IncompatibleError(f"more than {MAX_COMPARED_BYTES} bytes of schemas are too many to be compared")
    try:
        why = _why_not_all(new, [old for old in against if old.type == new.type], strategy.removesuffix(_TRANSITIVE))
    except RecursionError:
        why = f"{TOO_DEEP} to be compared"
    if why:
        raise IncompatibleError(f"Error during schema compatibility check with strategy {strategy}: {why}")


def raw_data(schema: Schema) -> bytes:
    try:
        return base64.b64decode(schema.data, validate=True)
    except binascii.Error:
        raise InvalidSchemaError("the data of a schema is not base64") from None


def _why_not_all(new: Schema, against: Sequence[Schema], way: str) -> str:
    """ "": it may follow all of them."""
    if sum(_pairs(old, new) for old in against) > MAX_PAIRS:
        raise IncompatibleError(f"more than {MAX_PAIRS} pairs of fields are too many to be compared")
    for old in reversed(against):
        if why := _why_not(old, new, way):
            return why
    return ""


def _why_not(old: Schema, new: Schema, way: str) -> str:
    """ "": it may follow."""
    if new.type == "KEY_VALUE":
        pairs = zip(key_and_value(old), key_and_value(new), strict=True)
        for name, (one, other) in zip(("key", "value"), pairs, strict=True):
            if one.type != other.type:
                return f"{name} schemas have types {one.type} and {other.type}"
            if why := _why_not(one, other, way):
                return f"{name}: {why}"
        return ""
    if new.type == "PROTOBUF_NATIVE":
        before, after = _root_message(raw_data(old)), _root_message(raw_data(new))
        return "" if before == after else f"Protobuf root message isn't allow change! {before} is now {after}"
    if new.type not in _BY_AVRO:
        return ""
    written, reading = _avro(raw_data(old)), _avro(raw_data(new))
    # BACKWARD: who has the new schema reads what was written with the old.
    if way in ("BACKWARD", "FULL") and (why := _why_unreadable(reading, written)):
        return f"Unable to read schema: {why}"
    if way in ("FORWARD", "FULL") and (why := _why_unreadable(written, reading)):
        return f"Unable to read schema: {why}"
    return ""


def _pairs(old: Schema, new: Schema) -> int:
    """At most, of two that are valid."""
    if new.type == "KEY_VALUE":
        pairs = zip(key_and_value(old), key_and_value(new), strict=True)
        return sum(_pairs(one, other) for one, other in pairs if one.type == other.type)
    if new.type not in _BY_AVRO:
        return 0
    (before, some), (after, others) = _sizes(raw_data(old)), _sizes(raw_data(new))
    return before * after + _PAIRS_OF_BRANCHES * (some + others)


def _sizes(raw: bytes) -> tuple[int, int]:
    """All fields, and of each union the square of its branches."""
    fields = branches = 0
    left: list[Any] = [json.loads(raw)]  # as the library reads it
    while left:
        one = left.pop()
        if isinstance(one, list):
            branches += len(one) ** 2
            left += one
        elif isinstance(one, dict):
            inner = one.get("fields")
            if isinstance(inner, list):
                fields += len(inner)
                left += inner
            left += [one[key] for key in ("type", "items", "values") if key in one]
    return fields, branches


def _avro(raw: bytes) -> AvroSchema:
    import avro.schema  # loaded when it is first needed

    return avro.schema.parse(raw.decode())


def _why_unreadable(reader: AvroSchema, writer: AvroSchema) -> str:
    from avro.compatibility import (
        ReaderWriterCompatibilityChecker,
        SchemaCompatibilityResult,
        SchemaCompatibilityType,
        check_schema_names,
    )
    from avro.schema import EnumSchema, RecordSchema, UnionSchema

    class Checker(ReaderWriterCompatibilityChecker):
        """Goes by what Java's library says, which a real broker asks: names of records matter only in a union, where
        one of the same name is the one to be read; and who reads an enum may lack symbols of it.

        The library gives all that is wrong with a type to each that names it: of some that name each other twice
        that is twice as much with each. Messages, which are told, are kept once."""

        def calculate_compatibility(
            self, reader: AvroSchema, writer: AvroSchema, location: list[str]
        ) -> SchemaCompatibilityResult:
            found = self._calculate(reader, writer, location)
            found.incompatibilities.clear()
            return found

        def _calculate(
            self, reader: AvroSchema, writer: AvroSchema, location: list[str]
        ) -> SchemaCompatibilityResult:
            if isinstance(reader, RecordSchema) and isinstance(writer, RecordSchema):
                return self.check_reader_writer_record_fields(reader, writer, location)
            if isinstance(reader, EnumSchema) and isinstance(writer, EnumSchema):
                return check_schema_names(reader, writer, location)
            if isinstance(reader, UnionSchema) and isinstance(writer, RecordSchema):
                for branch in reader.schemas:
                    if isinstance(branch, RecordSchema) and branch.fullname == writer.fullname:
                        return self.get_compatibility(branch, writer)
            return super().calculate_compatibility(reader, writer, location)

    result = Checker().get_compatibility(reader, writer)  # type: ignore[no-untyped-call]
    if result.compatibility is SchemaCompatibilityType.compatible:
        return ""
    return "; ".join(sorted(map(str, result.messages))) or "they do not match"


def _root_message(raw: bytes) -> str:
    """Of a descriptor as clients send it: JSON around a FileDescriptorSet."""
    return str(orjson.loads(raw)["rootMessageTypeName"])


def key_and_value(schema: Schema) -> tuple[Schema, Schema]:
    """Each with its length before it, in 4 bytes; their types are in the properties."""
    raw, parts, at = raw_data(schema), [], 0
    for name in ("key", "value"):
        size = int.from_bytes(raw[at : at + 4], "big", signed=True)
        at += 4
        if size > len(raw) - at:
            raise InvalidSchemaError("a key-value schema is cut off")
        data = raw[at : at + max(size, 0)]
        at += max(size, 0)
        properties = _properties(schema.properties.get(f"{name}.schema.properties", ""))
        kind = schema.properties.get(f"{name}.schema.type", "BYTES")
        parts.append(Schema(schema.version, kind, base64.b64encode(data).decode(), properties, 0))
    return parts[0], parts[1]


def _properties(text: str) -> dict[str, str]:
    try:
        found: Any = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
