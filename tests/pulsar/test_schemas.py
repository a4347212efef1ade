"""Schemas that are large or deep: nobody else waits while they are looked at, and what is wrong with them is said."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import orjson
import pytest
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway import turns
from mq_shards.gateway.pulsar import avro_parsing, http_schemas, schema_checks, schemas
from mq_shards.gateway.pulsar.catalog import Schema
from mq_shards.gateway.pulsar.http_schemas import HttpSchemas
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.requests import Call

from tests.pulsar.control_side import Side, T, around, schema

A = '{"name": "a", "type": "int"}'
LARGE = f'{A}, {{"name": "b", "type": "int", "doc": "{"x" * 20_000}"}}'


class Held:
    """Large schemas are looked at for as long as it is wanted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._begun = threading.Semaphore(0)
        self._go_on = threading.Semaphore(0)
        self.times = 0
        check = schemas.check

        def held(new: Schema) -> None:
            if len(new.data) > schema_checks.QUICK_BYTES:
                self.times += 1
                self._begun.release()
                assert self._go_on.acquire(timeout=60)
            check(new)

        monkeypatch.setattr(schemas, "check", held)

    async def begun(self) -> None:
        assert await asyncio.to_thread(self._begun.acquire, timeout=60)

    def go_on(self) -> None:
        self._go_on.release()

    @contextmanager
    def letting_go(self) -> Iterator[None]:
        """What is held at the end would wait for its time."""
        try:
            yield
        finally:
            self._go_on.release(100)


def test_others_are_served_while_a_large_schema_is_looked_at_and_who_asks_again_waits_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)

    async def test(side: Side) -> None:
        for name in ("large", "small"):
            await side.ask("open", topic=T + name, create=True)
        with held.letting_go():
            large = [asyncio.create_task(side.ask("put-schema", topic=T + "large", **schema(LARGE))) for _ in range(3)]
            await held.begun()
            assert await side.ask("put-schema", topic=T + "small", **schema(A)) == {"version": 0}
            assert (await side.ask("get-schema", topic=T + "large"))["error"] == "TopicNotFound"
            held.go_on()
            assert await asyncio.gather(*large) == [{"version": 0}] * 3
        assert held.times == 1, "it was looked at once"

    around(test, None)


def test_what_is_changed_while_a_schema_is_looked_at_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fits what was there when it came, and not what came meanwhile."""
    held = Held(monkeypatch)

    async def test(side: Side) -> None:
        name = topic_name(T + "t")
        await side.ask("open", topic=str(name), create=True)
        with held.letting_go():
            putting = asyncio.create_task(side.ask("put-schema", topic=str(name), **schema(LARGE)))
            await held.begun()
            record = {"do": "schema", "topic": str(name), "version": 0, "type": "STRING", "data": "", "properties": {}}
            await side.store.commit({**record, "timestamp_ms": 0})
            held.go_on()
            await held.begun()
            held.go_on()
            refused = await putting
        assert refused["error"] == "IncompatibleSchema" and "exists schema type STRING" in refused["reason"]

    around(test, None)


def test_the_first_of_a_topic_that_was_deleted_while_it_was_looked_at_is_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)

    async def test(side: Side) -> None:
        name = topic_name(T + "t")
        await side.control.set_policies("public/default", {"schema_compatibility_strategy": "ALWAYS_COMPATIBLE"})
        await side.ask("open", topic=str(name), create=True)
        await side.ask("put-schema", topic=str(name), **schema(A))
        with held.letting_go():
            putting = asyncio.create_task(side.ask("put-schema", topic=str(name), **schema(LARGE)))
            await held.begun()
            await side.control.delete(name, force=True)
        assert await putting == {"version": 0}
        assert [one.version for one in side.store.catalog.schemas[str(name)]] == [0]

    around(test, None)


def test_what_waits_to_be_looked_at_has_a_limit_and_gives_its_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    monkeypatch.setattr(schema_checks, "MAX_WAITING_BYTES", 2 * len(schema(LARGE)["data"]))

    async def test(side: Side) -> None:
        for i in range(3):
            await side.ask("open", topic=T + f"t{i}", create=True)
        with held.letting_go():
            first = [asyncio.create_task(side.ask("put-schema", topic=T + f"t{i}", **schema(LARGE))) for i in range(2)]
            await held.begun()
            for consumer in (False, True):
                more = await side.ask("put-schema", topic=T + "t2", consumer=consumer, idle=True, **schema(LARGE))
                assert more["error"] == "ServiceNotReady", "a client tries again"
        assert await asyncio.gather(*first) == [{"version": 0}] * 2
        assert await side.ask("put-schema", topic=T + "t2", **schema(LARGE)) == {"version": 0}

    around(test, None)


def nested(deep: int, last: str) -> str:
    fields = last
    for i in range(deep):
        fields = f'{{"name": "f", "type": {{"type": "record", "name": "R{i}", "fields": [{fields}]}}}}'
    return fields


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "KEY_VALUE"])
def test_a_schema_of_any_depth_is_taken_or_refused_with_what_is_wrong(kind: str) -> None:
    def given(deep: int, last: str) -> dict[str, Any]:
        if kind != "KEY_VALUE":
            return schema(nested(deep, last), kind)
        one = base64.b64decode(schema(nested(deep, last))["data"])
        both = (len(one).to_bytes(4, "big") + one) * 2
        types = {"key.schema.type": "AVRO", "value.schema.type": "AVRO", "key.schema.properties": "[" * 5000}
        return {"type": kind, "name": "K", "data": base64.b64encode(both).decode(), "properties": types}

    async def test(side: Side) -> None:
        said = []
        for deep in (5, 70, 130, 190, 1500, 5000):
            topic = T + f"t{deep}"
            await side.ask("open", topic=topic, create=True)
            first = await side.ask("put-schema", topic=topic, **given(deep, A))
            second = await side.ask("put-schema", topic=topic, **given(deep, f'{A}, {{"name": "b", "type": "int"}}'))
            for answer in (first, second):
                assert answer.get("version") == 0 or answer["error"] == "IncompatibleSchema"
            said += [answer.get("reason", "") for answer in (first, second)]
        assert any(why.endswith("it is nested too deep") for why in said)
        assert said[1].endswith("Unable to read schema: b"), "what is not deep is compared"

    around(test, None)


@pytest.mark.parametrize(
    "kind",
    [
        "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "INSTANT",
        "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME",
    ],
)  # fmt: skip
def test_a_primitive_schema_has_no_data(kind: str) -> None:
    async def test(side: Side) -> None:
        await side.ask("open", topic=T + "t", create=True)
        given = {"type": kind, "name": "n", "properties": {}}
        with_data = await side.ask("put-schema", topic=T + "t", **given, data=base64.b64encode(b"x").decode())
        assert with_data["error"] == "IncompatibleSchema"
        assert with_data["reason"].endswith("length of schema data should be zero, but 1 bytes is found")
        assert (await side.ask("put-schema", topic=T + "t", **given, data=""))["version"] == 0

    around(test, None)


@pytest.mark.parametrize(
    "last",
    [
        ", ".join(f'{{"name": "f{i}", "type": "int"}}' for i in range(500)) + ', {"name": "a", "type": "nothing"}',
        '{"name": "a", "type": "' + "x" * 20_000 + '"}',
        ", ".join(f'{{"name": "f{i}", "type": {{"type": "record", "name": "N{i}", "fields": []}}}}' for i in range(500))
        + ', {"name": "z", "type": {"type": "array", "items": "nothing"}}',
    ],
)  # fmt: skip
def test_what_is_wrong_deep_inside_is_not_said_again_at_each_level(last: str) -> None:
    """So that a short schema does not take gigabytes."""
    with pytest.raises(Exception) as wrong:
        avro_parsing.parse(base64.b64decode(schema(nested(50, last))["data"]).decode())
    assert len(str(wrong.value)) < 10_000


def test_schemas_that_are_too_long_together_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy that looks at all versions would take minutes."""
    monkeypatch.setattr(schemas, "MAX_COMPARED_BYTES", 3000)

    async def test(side: Side) -> None:
        await side.control.set_policies("public/default", {"schema_compatibility_strategy": "FULL_TRANSITIVE"})
        await side.ask("open", topic=T + "t", create=True)
        versions = [
            f'{A}, {{"name": "b", "type": ["null", "int"], "default": null, "doc": "{"x" * i}"}}'
            for i in range(800, 806)
        ]
        answers = [await side.ask("put-schema", topic=T + "t", **schema(one)) for one in versions]
        assert answers[0] == {"version": 0} and "too many to be compared" in answers[-1]["reason"]
        assert await side.ask("put-schema", topic=T + "t", **schema(versions[0])) == {"version": 0}, "the same"

    around(test, None)


def test_all_schemas_of_a_topic_are_shown_one_a_turn_and_as_many_as_one_answer_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.0)  # as if the clock of each turn had run out
    names = {"tenant": "public", "namespace": "default", "topic": "t"}

    async def test(side: Side) -> None:
        await side.control.set_policies("public/default", {"schema_compatibility_strategy": "ALWAYS_COMPATIBLE"})
        await side.control.create_new(topic_name(T + "t"), 0)
        for i in range(20):
            await side.ask("put-schema", topic=T + "t", **schema(f'{{"name": "f{i}", "type": "int"}}'))
        http, call = HttpSchemas(side.control), Call(cast(Any, None), cast(Any, None), names, {})
        others = 0

        async def run_others() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(run_others())
        shown = orjson.loads((await http._all(call)).body)["getSchemaResponses"]
        task.cancel()
        assert [one["version"] for one in shown] == list(range(20))
        assert all(f'"f{i}"' in one["data"] for i, one in enumerate(shown))
        assert others >= 20
        monkeypatch.setattr(http_schemas, "MAX_SHOWN_BYTES", 1000)
        with pytest.raises(RefusedError, match="ask for each version"):
            await http._all(call)

    around(test, None)
