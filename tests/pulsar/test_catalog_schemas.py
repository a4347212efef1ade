"""Schemas, as the catalog has them when acceptors ask: versions, and what fits which."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from avro import compatibility
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway.pulsar.catalog import Catalog, Schema
from mq_shards.gateway.pulsar.refusals import RefusedError

from tests.pulsar.control_side import A, B, C, Run, Side, T, schema


def test_schemas_have_versions_and_must_fit_those_before(run: Run) -> None:
    async def test(side: Side) -> None:
        topic = T + "s"
        assert (await side.ask("put-schema", topic=topic, **schema(A)))["error"] == "TopicNotFound"
        await side.ask("open", topic=topic, create=True)
        await side.ask("open", topic=T + "s-partition-1", create=True)
        assert (await side.ask("get-schema", topic=topic))["error"] == "TopicNotFound"
        assert await side.ask("put-schema", topic=topic, **schema(A)) == {"version": 0}
        assert await side.ask("put-schema", topic=topic, **schema(A)) == {"version": 0}, "the same"
        assert await side.ask("put-schema", topic=T + "s-partition-1", **schema(f"{A},{B}")) == {"version": 1}
        other = await side.ask("put-schema", topic=topic, **schema(C))
        assert other["error"] == "IncompatibleSchema"
        assert (await side.ask("put-schema", topic=topic, **schema(A, "JSON")))["error"] == "IncompatibleSchema"
        assert (await side.ask("get-schema", topic=topic))["version"] == 1
        first = await side.ask("get-schema", topic=topic, version=0)
        assert (first["type"], first["data"]) == ("AVRO", schema(A)["data"])
        assert (await side.ask("get-schema", topic=topic, version=9))["error"] == "TopicNotFound"
        await side.control.delete_schema(topic_name(topic))
        assert (await side.ask("get-schema", topic=topic))["type"] == "NONE"
        assert (await side.ask("get-schema", topic=topic, version=0))["error"] == "TopicNotFound", "it went with all"
        assert await side.ask("put-schema", topic=topic, **schema(C)) == {"version": 3}, "a deletion is a version too"

    run(test)


def _shown(fields: str) -> Schema:
    found = schema(fields)
    return Schema(-1, found["type"], found["data"], found["properties"], 0)


def test_where_clients_may_add_no_schema_the_first_one_must_be_the_administrators(run: Run) -> None:
    async def test(side: Side) -> None:
        topic, name = T + "s", topic_name(T + "s")
        await side.ask("open", topic=topic, create=True)
        policies = side.store.catalog.namespaces[name.namespace].policies
        await side.control.set_policies(name.namespace, {**policies, "is_allow_auto_update_schema": False})
        for more in ({}, {"consumer": True, "idle": True}):
            refused = await side.ask("put-schema", topic=topic, **schema(A), **more)
            assert refused["error"] == "IncompatibleSchema"
            assert "Schema not found and schema auto updating is disabled." in refused["reason"]
        assert await side.control.put_schema(name, _shown(A), by_admin=True) == 0
        assert await side.ask("put-schema", topic=topic, **schema(A)) == {"version": 0}
        assert (await side.ask("put-schema", topic=topic, **schema(f"{A},{B}")))["error"] == "IncompatibleSchema"
        assert await side.control.put_schema(name, _shown(f"{A},{B}"), by_admin=True) == 1

    run(test)


def test_what_is_too_much_to_be_compared_is_refused_at_once(run: Run) -> None:
    """By pairs of fields, and of branches: some hundred kilobytes would take the library minutes."""
    branches = ", ".join(f'{{"type": "record", "name": "U{i}", "fields": [{A}]}}' for i in range(300))
    union = f'{{"name": "u", "type": [{branches}]}}'
    many = [", ".join(f'{{"name": "{a}{i}", "type": "int"}}' for i in range(2100)) for a in "ab"]

    async def test(side: Side) -> None:
        for topic, first, second in ((T + "fields", *many), (T + "branches", union, f"{union}, {B}")):
            await side.ask("open", topic=topic, create=True)
            assert await side.ask("put-schema", topic=topic, **schema(first)) == {"version": 0}
            refused = await side.ask("put-schema", topic=topic, **schema(second))
            assert refused["error"] == "IncompatibleSchema"
            assert "too many to be compared" in refused["reason"]
            assert await side.ask("put-schema", topic=topic, **schema(first)) == {"version": 0}, "the same"

    run(test)


def test_what_is_wrong_with_a_type_is_said_once_however_often_it_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these has the one before twice: the library would gather 2^30 of what is wrong with the first."""
    merge = compatibility.merge

    def watched(*both: compatibility.SchemaCompatibilityResult) -> compatibility.SchemaCompatibilityResult:
        merged = merge(*both)
        assert len(merged.incompatibilities) < 1000
        return merged

    monkeypatch.setattr(compatibility, "merge", watched)

    def nested(last: str, deep: int = 30) -> str:
        kind = f'{{"type": "record", "name": "R0", "fields": [{last}]}}'
        for i in range(1, deep):
            twice = f'{{"name": "x", "type": {kind}}}, {{"name": "y", "type": "R{i - 1}"}}'
            kind = f'{{"type": "record", "name": "R{i}", "fields": [{twice}]}}'
        return f'{{"name": "all", "type": {kind}}}'

    async def test(side: Side) -> None:
        await side.ask("open", topic=T + "s", create=True)
        assert await side.ask("put-schema", topic=T + "s", **schema(nested(A))) == {"version": 0}
        refused = await side.ask("put-schema", topic=T + "s", **schema(nested('{"name": "z", "type": "int"}')))
        assert refused["error"] == "IncompatibleSchema" and refused["reason"].endswith("Unable to read schema: z")

    run(test)


def test_a_consumer_brings_the_first_schema_only_to_a_topic_that_nobody_uses(run: Run) -> None:
    async def test(side: Side) -> None:
        topic = T + "s"
        used = await side.ask("put-schema", topic=topic, consumer=True, idle=False, **schema(A))
        assert used["error"] == "IncompatibleSchema"
        assert await side.ask("put-schema", topic=topic, consumer=True, idle=True, **schema(A)) == {"version": 0}
        wider = schema(f"{A},{B}")
        assert "version" in await side.ask("put-schema", topic=topic, consumer=True, idle=False, **wider)
        narrow = await side.ask("put-schema", topic=topic, consumer=True, idle=False, **schema(C))
        assert narrow["error"] == "IncompatibleSchema"

    run(test)


@pytest.mark.parametrize(
    ("strategy", "old", "new", "fits"),
    [
        ("FULL", A, f"{A},{B}", True),
        ("FULL", A, f"{A},{C}", False),
        ("BACKWARD", f"{A},{C}", A, True),
        ("BACKWARD", A, f"{A},{C}", False),
        ("FORWARD", A, f"{A},{C}", True),
        ("FORWARD", f"{A},{C}", A, False),
        ("ALWAYS_COMPATIBLE", A, C, True),
        ("ALWAYS_INCOMPATIBLE", A, f"{A},{B}", False),
        ("FULL_TRANSITIVE", A, f"{A},{B}", True),
    ],
)
def test_each_strategy_lets_in_what_it_should(run: Run, strategy: str, old: str, new: str, fits: bool) -> None:
    async def test(side: Side) -> None:
        await side.control.set_policies("public/default", {"schema_compatibility_strategy": strategy})
        await side.control.create_new(topic_name(T + "s"), 0)
        assert await side.ask("put-schema", topic=T + "s", **schema(old)) == {"version": 0}
        assert ("version" in await side.ask("put-schema", topic=T + "s", **schema(new))) == fits

    run(test)


def test_a_schema_that_the_topic_has_is_compatible_though_no_other_is(run: Run) -> None:
    """As a real 4.0.7 answers who asks."""

    async def test(side: Side) -> None:
        name = topic_name(T + "s")
        await side.control.set_policies("public/default", {"schema_compatibility_strategy": "ALWAYS_INCOMPATIBLE"})
        await side.control.create_new(name, 0)
        await side.control.put_schema(name, _shown(A))
        await side.control.check_schema(name, _shown(A))
        with pytest.raises(RefusedError):
            await side.control.check_schema(name, _shown(f"{A},{B}"))

    run(test)


@pytest.mark.parametrize(
    ("strategy", "old", "new", "fits"),
    [
        ("FULL", A, B, True),
        ("FULL", A, f"{A},{C}", False),
        ("FORWARD", f"{A},{C}", A, True),
        ("FORWARD_TRANSITIVE", f"{A},{C}", A, True),
        ("FORWARD_TRANSITIVE", A, f"{A},{C}", False),
        ("BACKWARD_TRANSITIVE", f"{A},{C}", A, True),
        ("FULL_TRANSITIVE", f"{A},{C}", A, False),
        ("ALWAYS_COMPATIBLE", A, C, True),
        ("ALWAYS_INCOMPATIBLE", A, f"{A},{B}", False),
    ],
)
def test_a_consumer_has_to_read_the_latest_or_with_some_strategies_all(
    run: Run, strategy: str, old: str, new: str, fits: bool
) -> None:
    """As a real 4.0.7 says of each."""

    async def test(side: Side) -> None:
        await side.control.set_policies("public/default", {"schema_compatibility_strategy": strategy})
        await side.control.create_new(topic_name(T + "s"), 0)
        assert await side.ask("put-schema", topic=T + "s", **schema(old)) == {"version": 0}
        consumer = await side.ask("put-schema", topic=T + "s", consumer=True, idle=False, **schema(new))
        assert ("version" in consumer) == fits

    run(test)


def pair(key: str, value: str) -> dict[str, Any]:
    """A schema of pairs, of types so named, whose bytes are always the same."""
    one = base64.b64decode(schema(A)["data"])
    return {
        "type": "KEY_VALUE", "name": "K", "data": base64.b64encode((len(one).to_bytes(4, "big") + one) * 2).decode(),
        "properties": {"key.schema.type": key, "value.schema.type": value},
    }  # fmt: skip


def test_schemas_of_other_types_are_refused_in_a_real_brokers_words(run: Run) -> None:
    async def test(side: Side) -> None:
        await side.control.create_new(topic_name(T + "s"), 0)
        assert await side.ask("put-schema", topic=T + "s", **pair("AVRO", "JSON")) == {"version": 0}
        # The same bytes are the same schema, whatever is said of them.
        for consumer in (False, True):
            same = {"topic": T + "s", "consumer": consumer, "idle": False, **pair("AVRO", "AVRO")}
            assert await side.ask("put-schema", **same) == {"version": 0}
        longer = base64.b64encode(base64.b64decode(pair("AVRO", "JSON")["data"]) + b" ").decode()
        other = await side.ask("put-schema", topic=T + "s", **{**pair("PROTOBUF", "JSON"), "data": longer})
        assert other["reason"].endswith(
            "IncompatibleSchemaException: Key schemas or Value schemas are different schema type, from key schema type "
            "is AVRO and to key schema is PROTOBUF, from value schema is JSON and to value schema is JSON"
        )
        await side.control.set_policies("public/default", {"schema_compatibility_strategy": "ALWAYS_INCOMPATIBLE"})
        single = await side.ask("put-schema", topic=T + "s", **schema(A))
        assert single["reason"].endswith(": Incompatible schema: exists schema type KEY_VALUE, new schema type AVRO")

    run(test)


def record(*fields: object, name: str = "R") -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": one} for i, one in enumerate(fields)]}


def enum(*symbols: str, name: str = "E") -> dict[str, object]:
    return {"type": "enum", "name": name, "symbols": symbols}


INT, LONG = record("int", name="I"), record("long", name="L")


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        # As a real 4.0.7 says of each.
        (record("int"), record("int", name="other"), True),
        (record(INT), record(LONG), True),
        (record(LONG), record(INT), False),
        (record(["null", INT]), record(["null", LONG]), True),
        (record(["null", LONG]), record(["null", INT]), False),
        (record(["null", INT]), record([record("string", name="I"), LONG]), False),
        (record(["null", "R"]), record(["null", "other"], name="other"), True),
        (record(enum("a")), record(enum("a", name="other")), False),
        (record(enum("a", "b")), record(enum("a")), True),
        (record(enum("a")), record(enum("b")), True),
        (record({"type": "fixed", "name": "F", "size": 4}), record({"type": "fixed", "name": "G", "size": 4}), False),
        (record("int"), record("long"), True),
        (record("long"), record("int"), False),
        (record(["null", "int", "string"]), record(["null", "int"]), False),
        (record("string"), record("bytes"), True),
    ],
)
def test_who_reads_what_is_as_in_java(run: Run, old: object, new: object, fits: bool) -> None:
    """Names of records matter only in a union that has one of the same, and symbols of enums not at all."""

    async def test(side: Side) -> None:
        await side.control.set_policies("public/default", {"schema_compatibility_strategy": "BACKWARD"})
        await side.control.create_new(topic_name(T + "s"), 0)
        texts = (base64.b64encode(json.dumps(one).encode()).decode() for one in (old, new))
        first, second = ({"type": "AVRO", "name": "", "data": text, "properties": {}} for text in texts)
        assert await side.ask("put-schema", topic=T + "s", **first) == {"version": 0}
        assert ("version" in await side.ask("put-schema", topic=T + "s", **second)) == fits

    run(test)


def test_schemas_since_the_last_deletion_are_the_live_ones() -> None:
    catalog = Catalog.new()
    for version, kind in enumerate(["AVRO", "", "AVRO", "AVRO"]):
        catalog.schemas.setdefault("t", []).append(Schema(version, kind, "", {}, 0))
    assert [found.version for found in catalog.live_schemas("t")] == [2, 3]
