"""Schemas, as the catalog has them when acceptors ask: versions, and what fits which."""

from __future__ import annotations

import pytest
from avro import compatibility
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway.pulsar.catalog import Catalog, Schema

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
        assert (await side.ask("get-schema", topic=topic))["error"] == "TopicNotFound"
        assert await side.ask("put-schema", topic=topic, **schema(C)) == {"version": 3}, "a deletion is a version too"

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


def test_schemas_since_the_last_deletion_are_the_live_ones() -> None:
    catalog = Catalog.new()
    for version, kind in enumerate(["AVRO", "", "AVRO", "AVRO"]):
        catalog.schemas.setdefault("t", []).append(Schema(version, kind, "", {}, 0))
    assert [found.version for found in catalog.live_schemas("t")] == [2, 3]
