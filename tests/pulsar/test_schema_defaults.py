"""Which defaults Java's Avro takes for a field: what a real 4.0.7 said to each, as the second schema of a topic."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pytest
from mq_shards.gateway.pulsar import schemas
from mq_shards.gateway.pulsar.catalog import Schema
from mq_shards.gateway.pulsar.schema_defaults import unusable_default, wrong_default
from mq_shards.gateway.pulsar.schemas import IncompatibleError

from tests.pulsar.wire import Wire

ITEMS: Final = {"type": "array", "items": "int"}
VALUES: Final = {"type": "map", "values": "int"}
FIXED: Final = {"type": "fixed", "name": "F", "size": 2}
ENUM: Final = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}


def inner(**field: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"type": "record", "name": "B", "fields": [{"name": "b", "type": "int", **field}]}


TAKEN: Final[list[tuple[Any, Any]]] = [
    ("long", 3), ("float", 3), ("float", "NaN"), ("double", "NaN"), ("boolean", True), ("null", None),
    (["null", "int"], None), (ITEMS, []), (ITEMS, [1]), (VALUES, {}), (ENUM, "X"), (ENUM, "Z"), (FIXED, "ab"),
    (FIXED, "abc"), ("bytes", "ab"), ("bytes", "\u0416"), (inner(), {"b": 1}), (inner(default=1), {}),
    (inner(), {"b": 1, "c": 2}),
]  # fmt: skip
REFUSED: Final[list[tuple[Any, Any]]] = [
    ("int", "x"), ("int", None), ("int", 1.5), ("int", 1.0), ("int", 1 << 40), ("string", 3), ("string", None),
    ("boolean", 1), ("bytes", 3), (["null", "int"], 3), (["int", "null"], None), (["null", "int"], "x"), (ITEMS, ["x"]),
    (ITEMS, {}), (VALUES, {"k": "x"}), (inner(), {}), (inner(), {"b": "x"}), (inner(), None),
    ({"type": "long", "logicalType": "timestamp-millis"}, "x"),
]  # fmt: skip


def any_number(count: int) -> None:
    """There is no limit on the values that are looked at."""


def said(kind: Any, default: Any) -> str:  # noqa: ANN401
    fields = [{"name": "a", "type": kind, "default": default}]
    return wrong_default(json.dumps({"type": "record", "name": "A", "fields": fields}).encode(), any_number)


@pytest.mark.parametrize(("kind", "default"), TAKEN)
def test_a_default_that_its_field_may_have_is_taken(kind: Any, default: Any) -> None:  # noqa: ANN401
    assert said(kind, default) == ""


@pytest.mark.parametrize(("kind", "default"), REFUSED)
def test_a_default_of_another_type_is_named(kind: Any, default: Any) -> None:  # noqa: ANN401
    shown, wanted = (json.dumps(one, separators=(",", ":")) for one in (default, kind))
    assert said(kind, default) == f"Invalid default for field a: {shown} not a {wanted}"


def test_the_innermost_field_is_named_first_and_names_stand_for_types() -> None:
    fields = [{"name": "a", "type": inner(default="x")}]
    raw = json.dumps({"type": "record", "name": "A", "fields": fields}).encode()
    assert wrong_default(raw, any_number) == 'Invalid default for field b: "x" not a "int"'
    again = [{"name": "a", "type": inner()}, {"name": "c", "type": "B", "default": {"b": "x"}}]
    raw = json.dumps({"type": "record", "name": "A", "fields": again}).encode()
    assert wrong_default(raw, any_number) == 'Invalid default for field c: {"b":"x"} not a "B"'


@pytest.mark.parametrize("raw", [b"", b'{"default":', b'["default"]', b'{"type":"record","fields":[{"default":1}]}'])
def test_what_is_no_schema_is_not_judged(raw: bytes) -> None:
    assert wrong_default(raw, any_number) == ""


def test_a_type_within_itself_and_deep_ones_come_to_an_end() -> None:
    itself = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "A", "default": {}}]}
    assert wrong_default(json.dumps(itself).encode(), any_number) == ""
    deep = '{"type":"array","default":1,"items":' * 900 + '"int"' + "}" * 900
    assert wrong_default(deep.encode(), any_number) == ""


# --- of consumers -----------------------------------------------------------------------------------------------------

# What a real 4.0.7 says to a consumer whose schema has a field of such a type and default more than the topic's.
UNUSABLE: Final[list[tuple[Any, Any, str]]] = [
    ("int", "x", 'Non-numeric default value for int: "x"'), ("int", None, "Non-numeric default value for int: null"),
    ("string", 3, "Non-string default value for string: 3"), ("boolean", 1, "Non-boolean default for boolean: 1"),
    ("bytes", 3, "Non-string default value for bytes: 3"),
    (["null", "int"], 3, "Non-null default value for null type: 3"),
    (["int", "null"], None, "Non-numeric default value for int: null"),
    (ITEMS, ["x"], 'Non-numeric default value for int: "x"'), (inner(), {}, "No default value for: b"),
    (VALUES, {"k": "x"}, 'Non-numeric default value for int: "x"'), (inner(), None, "No default value for: b"),
    (inner(), {"b": "x"}, 'Non-numeric default value for int: "x"'),
]  # fmt: skip
USABLE: Final = [one for one in TAKEN if one != (ENUM, "Z")] + [("int", 1.5), ("int", 1 << 40), (ITEMS, {})]


def parsed(kind: Any) -> Any:  # noqa: ANN401
    import avro.schema

    return avro.schema.parse(json.dumps(kind))


@pytest.mark.parametrize(("kind", "default", "why"), UNUSABLE)
def test_a_default_that_a_consumer_cannot_use_is_named(kind: Any, default: Any, why: str) -> None:  # noqa: ANN401
    assert unusable_default(parsed(kind), default, any_number) == why


@pytest.mark.parametrize(("kind", "default"), USABLE)
def test_a_default_that_a_consumer_can_use_is_taken(kind: Any, default: Any) -> None:  # noqa: ANN401
    assert unusable_default(parsed(kind), default, any_number) == ""


def test_a_consumer_with_a_default_that_it_would_need_and_cannot_use_is_refused(wire: Wire, topic: str) -> None:
    def schema(*fields: dict[str, Any]) -> dict[str, Any]:
        record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, *fields]}
        return {"name": "s", "type": 4, "schema_data": json.dumps(record).encode()}

    wrong = {"name": "b", "type": "int", "default": "x"}
    wire.subscribe(topic, kind=1, schema=schema())
    asked = {"topic": topic, "subscription": "s", "subType": 1, "consumer_id": 2}
    refused = wire.ask("subscribe", "error", **asked, schema=schema(wrong))
    assert (refused.error, refused.message) == (0, 'Non-numeric default value for int: "x"')
    missing = {"name": "c", "type": "int"}
    assert wire.ask("subscribe", "error", **asked, schema=schema(missing, wrong)).error == 18  # that comes first
    wire.subscribe(topic, kind=1, consumer=2, schema=schema({"name": "b", "type": "int", "default": 1}))
    wire.subscribe(topic + "idle", kind=1, consumer=3, schema=schema(wrong))
    wire.subscribe(topic + "idle", kind=1, consumer=4, schema=schema(wrong))


# --- values that a short schema has in great numbers ------------------------------------------------------------------


def avro(*fields: dict[str, Any]) -> Schema:
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, *fields]})
    return Schema(0, "AVRO", base64.b64encode(text.encode()).decode(), {}, 0)


def doubling(levels: int) -> dict[str, Any]:
    """A field whose default says 2^levels values: each record has two of the one before."""
    kind: Any = inner(default=1)
    for level in range(levels):
        fields = [{"name": "x", "type": kind, "default": {}}]
        fields.append({"name": "y", "type": kind["name"], "default": {}})
        kind = {"type": "record", "name": f"R{level}", "fields": fields}
    return {"name": "more", "type": kind, "default": {}}


def test_defaults_that_say_too_many_values_are_refused_and_not_looked_at() -> None:
    before, few, many = avro(), avro(doubling(8)), avro(doubling(18))
    schemas.check_defaults(few, [before])
    schemas.check_follows(few, [before], "BACKWARD")
    with pytest.raises(IncompatibleError, match="too many values"):
        schemas.check_defaults(many, [before])
    with pytest.raises(IncompatibleError, match="too many values"):
        schemas.check_follows(many, [before], "BACKWARD")


def test_the_values_of_all_schemas_of_a_check_count_together() -> None:
    before, some = avro(), avro(doubling(12))
    schemas.check_defaults(before, [some])
    schemas.check_follows(some, [before], "FULL_TRANSITIVE")
    with pytest.raises(IncompatibleError, match="too many values"):
        schemas.check_defaults(before, [some] * 8)
    with pytest.raises(IncompatibleError, match="too many values"):
        schemas.check_follows(some, [before] * 8, "FULL_TRANSITIVE")


def test_a_schema_may_have_as_many_defaults_as_fit_into_it() -> None:
    most = avro(*({"name": f"f{i}", "type": "int", "default": 0} for i in range(20_000)))
    schemas.check_defaults(most, [most] * 4)
