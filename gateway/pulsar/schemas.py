"""Whether a schema may follow others on a topic: Pulsar's strategies, on top of Avro's rules of which schema can read
which.

AVRO, JSON and PROTOBUF schemas are Avro schemas (clients make them so), of which those of PROTOBUF are only looked at
one by one. PROTOBUF_NATIVE ones are descriptors, whose root message must stay the same. KEY_VALUE ones are two schemas
in one. Others are compatible if their types are equal, as those of PROTOBUF are.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.gateway.pulsar import avro_parsing
from mq_shards.gateway.pulsar.catalog import Schema
from mq_shards.gateway.pulsar.schema_defaults import Step, unusable_default, wrong_default

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
# The most pairs of fields that one check may compare: the library searches for each field among all fields, and
# compares each branch of a union with each branch of the other.
MAX_PAIRS: Final = 1 << 22
_PAIRS_OF_BRANCHES: Final = 32
# The most values of defaults that one check may look at, besides one for so many bytes of schemas in stored form.
MAX_VALUES: Final = 1 << 16
_BYTES_A_VALUE: Final = 8

_WITHOUT_DATA: Final = frozenset(
    {
        "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "INSTANT",
        "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME",
    }
)  # fmt: skip
_BY_AVRO: Final = frozenset({"AVRO", "JSON", "PROTOBUF"})
_COMPARED: Final = frozenset({"AVRO", "JSON"})  # as at a real broker, which has no check for PROTOBUF
_TRANSITIVE: Final = "_TRANSITIVE"


# The most bytes of earlier schemas, in stored form, that are compared: the library takes seconds for each MiB.
MAX_COMPARED_BYTES: Final = 4 << 20
TOO_DEEP: Final = "it is nested too deep"


class InvalidSchemaError(Exception):
    """The data is not a schema of its type."""


class IncompatibleError(Exception):
    """The schema may not follow the others; says why."""


class WrongDefaultError(Exception):
    """The schema, or one before it, has a default that its field cannot have, or that a reader needs and cannot use;
    says which."""


class _Steps:
    """Counts the values of defaults that a check looks at. Raises IncompatibleError if they are too many."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        self._left = MAX_VALUES + sum(len(schema.data) for schema in schemas) // _BYTES_A_VALUE

    def __call__(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise IncompatibleError("the defaults of its fields are too many values to be looked at")


def check(schema: Schema) -> None:
    """Checks that a schema is valid. Raises InvalidSchemaError."""
    if schema.type not in TYPES:
        raise InvalidSchemaError(f"there is no schema type {schema.type}")
    raw = raw_data(schema)
    if len(raw) > MAX_SCHEMA_BYTES:
        raise InvalidSchemaError(f"a schema has {MAX_SCHEMA_BYTES} bytes at most")
    if schema.type in _WITHOUT_DATA and raw:
        why = f"primitive schemas :length of schema data should be zero, but {len(raw)} bytes is found"
        raise InvalidSchemaError(f"Invalid schema definition data for {why}")
    if schema.type == "STRING" and raw:
        raise InvalidSchemaError(f"Invalid schema definition data for string schema : '{raw.decode(errors='replace')}'")
    try:
        if schema.type in _BY_AVRO:
            avro_parsing.parse(raw.decode())
        elif schema.type == "PROTOBUF_NATIVE":
            _root_message(raw)
        elif schema.type == "KEY_VALUE":
            for part in key_and_value(schema):
                check(part)
    except InvalidSchemaError:
        raise
    except RecursionError:
        raise InvalidSchemaError(f"Invalid schema definition data for {schema.type} schema: {TOO_DEEP}") from None
    except Exception:  # the library raises all kinds
        raise InvalidSchemaError(f"Invalid schema definition data for {schema.type} schema") from None


def check_defaults(new: Schema, live: Sequence[Schema]) -> None:
    """Checks the defaults of a producer's schema and of those that the topic has. Raises WrongDefaultError,
    IncompatibleError.

    As a real broker does: it looks at them when it compares the new one with others. So a topic's first schema may have
    wrong ones, and nothing follows it.
    """
    others = [old for old in live if old.type in _BY_AVRO]
    looked_at = (new, *others) if new.type in _BY_AVRO and others else ()
    step = _Steps(looked_at)
    for schema in looked_at:
        if why := wrong_default(raw_data(schema), step):
            raise WrongDefaultError(why)


def worth_comparing(wanted: Schema, live: Sequence[Schema]) -> list[Schema]:
    """The latest schemas that may mean the same as `wanted` though their text differs."""
    found, size = [], 0
    for schema in reversed(live) if wanted.type in _BY_AVRO else ():
        size += len(schema.data)
        if size > MAX_COMPARED_BYTES:
            break
        if schema.type == wanted.type:
            found.append(schema)
    return found


def version_of(wanted: Schema, compared: Sequence[Schema]) -> int:
    """The version of the one that means the same as `wanted`; -1: there is none."""
    means = _meaning(wanted) if compared else None
    return -1 if means is None else next((one.version for one in compared if _meaning(one) == means), -1)


def _meaning(schema: Schema) -> Any:  # noqa: ANN401
    """The schema as a JSON value; None: it cannot be read."""
    try:
        return orjson.loads(raw_data(schema))
    except (orjson.JSONDecodeError, InvalidSchemaError):
        return None


def followed(live: Sequence[Schema], strategy: str) -> Sequence[Schema]:
    """The schemas with which a new one must be compatible."""
    if strategy == "ALWAYS_COMPATIBLE":
        return ()
    return live if strategy.endswith(_TRANSITIVE) else live[-1:]


def check_type(new: Schema, against: Sequence[Schema]) -> None:
    """As check_follows, but looks at the type alone."""
    if against and against[-1].type != new.type:
        raise IncompatibleError(
            f"Incompatible schema: exists schema type {against[-1].type}, new schema type {new.type}"
        )


def check_follows(new: Schema, against: Sequence[Schema], strategy: str) -> None:
    """`against`: the result of followed(), oldest first. Raises IncompatibleError, WrongDefaultError."""
    check_type(new, against)
    if not against:
        return
    last = against[-1]
    # As at a real broker, whatever the properties say: those of a pair name the types of its schemas.
    if last.data == new.data and not strategy.endswith(_TRANSITIVE):
        return
    if strategy == "ALWAYS_INCOMPATIBLE":
        raise IncompatibleError("Error during schema compatibility check with strategy ALWAYS_INCOMPATIBLE")
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
    """Why `new` may not follow all of them; "": it may."""
    if sum(_pairs(old, new) for old in against) > MAX_PAIRS:
        raise IncompatibleError(f"more than {MAX_PAIRS} pairs of fields are too many to be compared")
    step = _Steps((new, *against))
    for old in reversed(against):
        if why := _why_not(old, new, way, step):
            return why
    return ""


def _why_not(old: Schema, new: Schema, way: str, step: Step) -> str:
    """Why `new` may not follow `old`; "": it may."""
    if new.type == "KEY_VALUE":
        (key, value), (next_key, next_value) = key_and_value(old), key_and_value(new)
        if (key.type, value.type) != (next_key.type, next_value.type):
            raise IncompatibleError(
                f"Key schemas or Value schemas are different schema type, from key schema type is {key.type} and to "
                f"key schema is {next_key.type}, from value schema is {value.type} and to value schema is "
                f"{next_value.type}"
            )
        for name, one, other in (("key", key, next_key), ("value", value, next_value)):
            if why := _why_not(one, other, way, step):
                return f"{name}: {why}"
        return ""
    if new.type == "PROTOBUF_NATIVE":
        before, after = _root_message(raw_data(old)), _root_message(raw_data(new))
        return "" if before == after else f"Protobuf root message isn't allow change! {before} is now {after}"
    if new.type not in _COMPARED:
        return ""
    written, reading = (avro_parsing.parse(raw_data(one).decode()) for one in (old, new))
    # BACKWARD: readers with the new schema can read what was written with the old one.
    if way in ("BACKWARD", "FULL") and (why := _why_unreadable(reading, written, step)):
        return f"Unable to read schema: {why}"
    if way in ("FORWARD", "FULL") and (why := _why_unreadable(written, reading, step)):
        return f"Unable to read schema: {why}"
    return ""


def _pairs(old: Schema, new: Schema) -> int:
    """An upper bound of the pairs that are compared, for two valid schemas."""
    if new.type == "KEY_VALUE":
        pairs = zip(key_and_value(old), key_and_value(new), strict=True)
        return sum(_pairs(one, other) for one, other in pairs if one.type == other.type)
    if new.type not in _BY_AVRO:
        return 0
    (before, some), (after, others) = _sizes(raw_data(old)), _sizes(raw_data(new))
    return before * after + _PAIRS_OF_BRANCHES * (some + others)


def _sizes(raw: bytes) -> tuple[int, int]:
    """Counts all fields, and sums up the squares of the numbers of branches of all unions."""
    fields = branches = 0
    left: list[Any] = [json.loads(raw)]  # parsed with json, as the library does
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


def _why_unreadable(reader: AvroSchema, writer: AvroSchema, step: Step) -> str:
    from avro.compatibility import (
        ReaderWriterCompatibilityChecker,
        SchemaCompatibilityResult,
        SchemaCompatibilityType,
        check_schema_names,
        lookup_writer_field,
    )
    from avro.schema import EnumSchema, RecordSchema, UnionSchema

    class Checker(ReaderWriterCompatibilityChecker):
        """Decides as the Java library of a real broker does. Names of records matter only in a union, where the branch
        of the same name is the one compared. A reader's enum may lack symbols of the writer's.

        The Python library copies all incompatibilities of a type to each type that refers to it, which doubles them at
        each level of types that refer to another twice. So they are cleared; the messages, shown to clients, stay."""

        def calculate_compatibility(
            self, reader: AvroSchema, writer: AvroSchema, location: list[str]
        ) -> SchemaCompatibilityResult:
            found = self._calculate(reader, writer, location)
            found.incompatibilities.clear()
            return found

        def _calculate(self, reader: AvroSchema, writer: AvroSchema, location: list[str]) -> SchemaCompatibilityResult:
            if isinstance(reader, RecordSchema) and isinstance(writer, RecordSchema):
                self._check_unwritten(reader, writer)
                return self.check_reader_writer_record_fields(reader, writer, location)
            if isinstance(reader, EnumSchema) and isinstance(writer, EnumSchema):
                return check_schema_names(reader, writer, location)
            if isinstance(reader, UnionSchema) and isinstance(writer, RecordSchema):
                for branch in reader.schemas:
                    if isinstance(branch, RecordSchema) and branch.fullname == writer.fullname:
                        return self.get_compatibility(branch, writer)
            return super().calculate_compatibility(reader, writer, location)

        @staticmethod
        def _check_unwritten(reader: RecordSchema, writer: RecordSchema) -> None:
            """Raises WrongDefaultError if the default of a field that was not written cannot be used."""
            for field in reader.fields:
                if lookup_writer_field(writer, field) is not None:
                    continue
                if not field.has_default:
                    return  # that makes them incompatible
                if why := unusable_default(field.type, field.default, step):
                    raise WrongDefaultError(why)

    result = Checker().get_compatibility(reader, writer)  # type: ignore[no-untyped-call]
    if result.compatibility is SchemaCompatibilityType.compatible:
        return ""
    return "; ".join(sorted(map(str, result.messages))) or "they do not match"


def _root_message(raw: bytes) -> str:
    """The root message of a descriptor, which clients send as JSON around a FileDescriptorSet."""
    return str(orjson.loads(raw)["rootMessageTypeName"])


def key_and_value(schema: Schema) -> tuple[Schema, Schema]:
    """Splits a KEY_VALUE schema. Each part is preceded by its length in 4 bytes; the types are in the properties."""
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
