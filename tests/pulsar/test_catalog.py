"""The catalog: what acceptors ask of it and are told, and that what was answered is there after any end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from avro import compatibility
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway.catalog import DURABLE, Channel
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar import policies as policies_module
from mq_shards.gateway.pulsar import watches
from mq_shards.gateway.pulsar.catalog import Catalog, CatalogError, Schema, Topic, topic_record
from mq_shards.gateway.pulsar.clients import Connected
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import EARLIEST, Core, NoTopicError
from mq_shards.gateway.pulsar.listing import topics_hash
from mq_shards.gateway.pulsar.questions import Questions
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.retention import Retention
from mq_shards.gateway.pulsar.roles import Roles
from mq_shards.gateway.pulsar.store import FILE, Store, StoreError
from mq_shards.gateway.pulsar.transactions import Coordinator
from mq_shards.gateway.pulsar.upkeep import Upkeep
from mq_shards.gateway.pulsar.watches import Watches

T = "persistent://public/default/"


class SmallCore:
    """What workers have."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.keeping: set[str] = set()
        self.begun: list[tuple[str, str, int]] = []

    async def make(self, topic: str) -> int:
        self.topics.add(topic)
        return 1

    async def delete(self, topic: str) -> bool:
        self.topics.discard(topic)
        return True

    async def figures(self, topic: str) -> Figures | None:
        if topic not in self.topics:
            return None
        return Figures(topic, DURABLE, 0, 0, 0, 0, [Channel(n, 0, *[0] * 7) for of, n, _ in self.begun if of == topic])

    async def names(self) -> list[str]:
        return sorted(self.topics)

    async def begin_subscription(self, topic: str, name: str, start: int, at: int = 0) -> None:
        self.begun.append((topic, name, start))


class SmallClients:
    def __init__(self) -> None:
        self.connected: dict[str, Connected] = {}

    async def of(self, topics: list[str]) -> dict[str, Connected]:
        return {topic: self.connected.get(topic, Connected()) for topic in topics}

    async def close(self, topics: list[str], subscription: str | None = None) -> int:
        return sum(self.connected.pop(topic, None) is not None for topic in topics)


class SmallCalls:
    """The gateway's ends: what is served, and what was told."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[int, bytes], Awaitable[bytes]]] = {}
        self.told: list[tuple[str, Any]] = []
        self.ends = [self]

    def serve(self, what: str, handler: Callable[[int, bytes], Awaitable[bytes]]) -> None:
        self.handlers[what] = handler

    def tell(self, what: str, body: bytes) -> None:
        self.told.append((what, orjson.loads(body)))

    def tell_lost(self) -> None:
        self.told.append(("lost", None))


class Side:
    """The control side without processes around it."""

    def __init__(self, data_dir: Path | None) -> None:
        self.core, self.clients, self.calls = SmallCore(), SmallClients(), SmallCalls()
        self.store = Store(data_dir)
        self.watches = Watches(cast(Any, self.calls))
        self.control = Control(self.store, cast(Core, self.core), cast(Any, self.clients))
        settings = {"authorization-enabled": False, "super-user-roles": [], "proxy-roles": []}
        roles = Roles(settings, lambda: self.store.catalog, lambda: None)
        Questions(self.control, cast(Any, self.calls), self.watches, roles, Coordinator(self.control))

    async def ask(self, what: str, **fields: object) -> Any:  # noqa: ANN401
        if what == "open":
            fields = {"action": "produce", **fields}
        return orjson.loads(await self.calls.handlers[f"pulsar.{what}"](0, orjson.dumps(fields)))


Run = Callable[[Callable[[Side], Awaitable[None]]], None]


def around(test: Callable[[Side], Awaitable[None]], data_dir: Path | None) -> None:
    async def run() -> None:
        side = Side(data_dir)
        await side.store.open()
        try:
            await test(side)
        finally:
            side.watches.close()
            side.control.schema_checks.close()
            await side.store.close()

    asyncio.run(run())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda test: around(test, tmp_path)


def schema(fields: str, kind: str = "AVRO") -> dict[str, Any]:
    text = f'{{"type": "record", "name": "R", "fields": [{fields}]}}'
    return {"type": kind, "name": "R", "data": base64.b64encode(text.encode()).decode(), "properties": {}}


A = '{"name": "a", "type": "int"}'
B = '{"name": "b", "type": ["null", "string"], "default": null}'
C = '{"name": "c", "type": "string"}'


# --- what acceptors ask -----------------------------------------------------------------------------------------------


def test_a_topic_is_made_when_a_client_opens_it_unless_it_may_not(run: Run) -> None:
    async def test(side: Side) -> None:
        assert await side.ask("partitions", topic=T + "a", create=True) == {"partitions": 0, "exists": False}
        missing = await side.ask("open", topic=T + "a", create=False)
        assert missing["error"] == "TopicNotFound"
        opened = await side.ask("open", topic=T + "a", create=True)
        assert opened["schema"] is False
        assert opened["policies"]["max_unacked_per_consumer"] == 50_000
        assert side.core.topics == {"a"}
        assert await side.ask("open", topic=T + "a", create=False) == opened
        assert (await side.ask("partitions", topic=T + "a", create=False))["exists"]
        for bad in ("persistent://nobody/default/a", "persistent://public/nothing/a"):
            assert (await side.ask("open", topic=bad, create=True))["error"] == "ServiceNotReady"
            assert (await side.ask("partitions", topic=bad, create=True))["error"] == "TopicNotFound"
        assert (await side.ask("open", topic="public/default/a/", create=True)).get("error") is None
        for bad in ("persistent://public/a", "other://public/default/a", T, T + "x" * 250):
            assert (await side.ask("open", topic=bad, create=True))["error"] == "InvalidTopicName"

    run(test)


def test_a_partition_is_there_with_its_topic_and_one_beyond_is_not(run: Run) -> None:
    async def test(side: Side) -> None:
        await side.control.create_new(topic_name(T + "p"), 3)
        assert await side.ask("partitions", topic=T + "p", create=False) == {"partitions": 3, "exists": True}
        assert side.core.topics == {f"p-partition-{i}" for i in range(3)}
        assert "policies" in await side.ask("open", topic=T + "p-partition-2", create=False)
        assert (await side.ask("open", topic=T + "p-partition-3", create=True))["error"] == "TopicNotFound"
        await side.control.delete(topic_name(T + "p-partition-1"), force=False)
        assert (await side.ask("open", topic=T + "p-partition-1", create=False))["error"] == "TopicNotFound"
        assert "policies" in await side.ask("open", topic=T + "p-partition-1", create=True)
        assert sorted(side.core.topics) == [f"p-partition-{i}" for i in range(3)]
        await side.control.grow(topic_name(T + "p"), 4)
        assert "policies" in await side.ask("open", topic=T + "p-partition-3", create=False)
        assert "policies" in await side.ask("open", topic=T + "alone-partition-7", create=True), "no topic's partition"

    run(test)


def test_a_namespace_says_how_topics_are_made(run: Run) -> None:
    async def test(side: Side) -> None:
        override = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
        await side.control.set_policies("public/default", {"autoTopicCreationOverride": override})
        told = side.calls.told.pop()
        assert (told[0], told[1]["namespace"]) == ("pulsar.policies", "public/default")
        assert (await side.ask("partitions", topic=T + "new", create=False))["error"] == "TopicNotFound"
        asked = [side.ask("partitions", topic=T + "new", create=True) for _ in range(3)]
        assert await asyncio.gather(*asked) == [{"partitions": 2, "exists": True}] * 3
        override["allowAutoTopicCreation"] = False
        await side.control.set_policies("public/default", {"autoTopicCreationOverride": override})
        assert (await side.ask("open", topic=T + "other", create=True))["error"] == "TopicNotFound"
        side.core.topics.add("of-another-protocol")
        assert "policies" in await side.ask("open", topic=T + "of-another-protocol", create=False)

    run(test)


def test_topics_are_listed_by_pattern_and_not_again_when_they_are_known(run: Run) -> None:
    async def test(side: Side) -> None:
        await side.control.create_new(topic_name(T + "one"), 2)
        await side.control.create_new(topic_name(T + "two"), 0)
        side.core.topics.add("tube")
        names = [T + "one-partition-0", T + "one-partition-1", T + "tube", T + "two"]
        found = await side.ask("topics", namespace="public/default")
        assert (found["topics"], found["changed"], found["filtered"]) == (names, True, False)
        assert found["hash"] == await topics_hash(names)
        again = await side.ask("topics", namespace="public/default", hash=found["hash"])
        assert (again["topics"], again["changed"]) == ([], False)
        some = await side.ask("topics", namespace="public/default", pattern=T + "(one|tw.)")
        assert some["topics"] == [*names[:2], T + "two"]
        assert (await side.ask("topics", namespace="public/default", pattern="(("))["error"] == "MetadataError"
        assert (await side.ask("topics", namespace="public/nothing"))["topics"] == []

    run(test)


def test_a_watcher_is_told_of_what_matches_and_of_nothing_else(run: Run) -> None:
    async def test(side: Side) -> None:
        await side.control.create_new(topic_name(T + "log-a"), 0)
        found = await side.ask("watch", watcher=7, namespace="public/default", pattern=T + "log-.*")
        assert found == {"topics": [T + "log-a"], "hash": await topics_hash([T + "log-a"])}
        await side.control.create_new(topic_name(T + "log-b"), 0)
        await side.control.create_new(topic_name(T + "other"), 0)
        await side.control.delete(topic_name(T + "log-a"), force=False)
        while not side.calls.told:
            await asyncio.sleep(0.01)
        said = {"watcher": 7, "new": [T + "log-b"], "deleted": [T + "log-a"], "hash": await topics_hash([T + "log-b"])}
        assert side.calls.told == [("pulsar.watched", said)]
        await side.ask("unwatch", watcher=7)
        await side.control.create_new(topic_name(T + "log-c"), 0)
        await asyncio.sleep(0.1)
        assert len(side.calls.told) == 1

    run(test)


def test_a_pattern_is_no_larger_than_it_looks_and_all_of_them_have_a_limit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a few characters RE2 makes megabytes, and takes a second to do so."""

    async def test(side: Side) -> None:
        for what in ({"do": "topics"}, {"do": "watch", "watcher": 1}):
            name = str(what.pop("do"))
            for huge in (r".*[\pL\pN]{1,400}b", r"(?:\pL{1,10}){1,40}b"):
                assert "error" in await side.ask(name, namespace="public/default", pattern=huge, **what)
        many = "|".join(f"persistent://public/default/orders-{i}.*" for i in range(20))
        assert "error" not in await side.ask("topics", namespace="public/default", pattern=many)
        monkeypatch.setattr(watches, "MAX_WATCHED_SIZE", 3 * watches.Matcher(T + "log-1.*").size)
        wanted = {"namespace": "public/default", "pattern": T + "log-1.*"}
        for _ in range(2):
            answers = [await side.ask("watch", watcher=number, **wanted) for number in range(4)]
            assert ["error" in one for one in answers] == [False, False, False, True]
            for number in range(4):
                await side.ask("unwatch", watcher=number)

    run(test)


def test_what_the_groups_of_a_pattern_match_is_not_looked_for() -> None:
    """It takes hundreds of times as long as to say whether all of it matches; and each name is compared."""
    matches = watches.Matcher(T + r"(\w*)" * 190)
    found = matches._compiled.fullmatch("public/default/orders")
    assert found is not None and found.groups() == ()
    assert matches(T + "orders") and not matches(T + "or-ders")


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


def test_a_topic_with_clients_is_deleted_only_by_force(run: Run) -> None:
    async def test(side: Side) -> None:
        name = topic_name(T + "used")
        await side.control.create_new(name, 0)
        side.clients.connected[str(name)] = Connected(producers=[{"id": 1}], consumers=[{"id": 1}, {"id": 2}])
        with pytest.raises(RefusedError, match="3 connected"):
            await side.control.delete(name, force=False)
        assert side.core.topics
        await side.control.delete(name, force=True)
        assert not side.core.topics
        assert not side.clients.connected

    run(test)


# --- what is on disk --------------------------------------------------------------------------------------------------


def state(catalog: Catalog) -> list[bytes]:
    return sorted(orjson.dumps(record, option=orjson.OPT_SORT_KEYS) for record in catalog.records())


def test_what_was_answered_is_there_after_any_end_also_when_it_was_written_anew(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq_shards.gateway.pulsar.store.REWRITE_BYTES", 2000)
    sizes, seen = [], list[list[bytes]]()

    async def test(side: Side) -> None:
        for i in range(40):
            await side.control.create_new(topic_name(T + f"p{i}"), i % 3)
            await side.ask("put-schema", topic=T + f"p{i}", **schema(A))
            if i % 2:
                deleting = side.control.delete_partitioned if i % 3 else side.control.delete
                await deleting(topic_name(T + f"p{i}"), force=True)
            # A copy of the file now is what a kill leaves.
            copy = tmp_path / f"after-{i}"
            (copy / FILE).parent.mkdir(parents=True)
            (copy / FILE).write_bytes((tmp_path / FILE).read_bytes())
            sizes.append((tmp_path / FILE).stat().st_size)
            seen.append(state(side.store.catalog))

    run(test)
    assert any(later < before for before, later in itertools.pairwise(sizes)), "it was written anew"

    async def look() -> None:
        for i, wanted in enumerate(seen):
            store = Store(tmp_path / f"after-{i}")
            await store.open()
            assert state(store.catalog) == wanted
            await store.close()

    asyncio.run(look())


def test_a_change_that_the_disk_refuses_is_undone_and_said(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(side: Side) -> None:
        await side.ask("open", topic=T + "before", create=True)

        def full(fd: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: full(fd))
        refused = await asyncio.gather(*(side.ask("open", topic=T + f"t{i}", create=True) for i in range(5)))
        assert [answer["error"] for answer in refused] == ["ServiceNotReady"] * 5
        monkeypatch.undo()
        assert side.calls.told == [("lost", None)]
        assert side.store.catalog.topic("public/default", T + "t1") is None
        assert "policies" in await side.ask("open", topic=T + "t1", create=True)
        assert "policies" in await side.ask("open", topic=T + "before", create=False)

    run(test)
    assert "No space left on device" in caplog.text


def test_a_catalog_of_a_later_version_is_refused_with_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        first = Store(tmp_path)
        await first.open()
        await first.close()
        later = Store(tmp_path)
        await later.open()
        assert later._journal is not None
        later._journal.append([b'{"do": "teleport"}'])
        await later.close()
        before = (tmp_path / FILE).read_bytes()
        store = Store(tmp_path)
        await store.open()
        with pytest.raises(StoreError, match="teleport"):
            await store.commit({"do": "no-tenant", "name": "public"})
        await store.close()
        assert (tmp_path / FILE).read_bytes() == before

    asyncio.run(test())
    assert "teleport" in caplog.text


def test_what_is_about_something_that_was_lost_to_damage_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A sector that says that a topic was made, and behind it that it was deleted, and that others were made."""

    async def test(side: Side) -> None:
        await side.control.create_new(topic_name(T + "lost"), 3)
        await side.control.delete_partitioned(topic_name(T + "lost"), force=False)
        await side.control.create_new(topic_name(T + "there"), 0)

    around(test, tmp_path)
    log = bytearray((tmp_path / FILE).read_bytes())
    place = log.index(T.encode() + b"lost")
    log[place] ^= 1
    (tmp_path / FILE).write_bytes(log)

    async def again(side: Side) -> None:
        assert list(side.store.catalog.namespaces["public/default"].topics) == [T + "there"]
        await side.control.create_new(topic_name(T + "new"), 0)

    caplog.clear()
    around(again, tmp_path)
    assert [said in caplog.text for said in ("cannot be read", "1 records are left out", "no-topic")] == [True] * 3

    async def at_last(side: Side) -> None:
        assert list(side.store.catalog.namespaces["public/default"].topics) == [T + "there", T + "new"]

    around(at_last, tmp_path)


def damaged(directory: Path, said: bytes) -> None:
    """Where the log says that for the last time."""
    log = bytearray((directory / FILE).read_bytes())
    log[log.rindex(said)] ^= 1
    (directory / FILE).write_bytes(log)


def test_no_version_of_a_schema_is_given_twice_where_one_was_lost_to_damage(tmp_path: Path) -> None:
    name = topic_name(T + "t")
    fields = [f'{{"name": "{one}", "type": "int"}}' for one in "abcd"]

    async def test(side: Side) -> None:
        await side.ask("open", topic=str(name), create=True)
        await side.control.set_policies("public/default", {"schema_compatibility_strategy": "ALWAYS_COMPATIBLE"})
        for version in range(3):
            assert await side.ask("put-schema", topic=str(name), **schema(fields[version])) == {"version": version}

    around(test, tmp_path)
    damaged(tmp_path, schema(fields[1])["data"].encode())

    async def again(side: Side) -> None:
        assert await side.ask("put-schema", topic=str(name), **schema(fields[3])) == {"version": 3}
        third = await side.ask("get-schema", topic=str(name), version=2)
        assert third["data"] == schema(fields[2])["data"], "of messages that were published with it"
        assert await side.control.delete_schema(name) == 4

    around(again, tmp_path)


def test_schemas_that_were_deleted_are_not_found_where_what_said_so_was_lost_to_damage(tmp_path: Path) -> None:
    name = topic_name(T + "t")

    async def test(side: Side) -> None:
        for fields in (A, C):
            await side.ask("open", topic=str(name), create=True)
            assert await side.ask("put-schema", topic=str(name), **schema(fields)) == {"version": 0}
            if fields == A:
                await side.control.delete(name, force=False)

    around(test, tmp_path)
    damaged(tmp_path, b"no-schemas")

    async def again(side: Side) -> None:
        found = await side.ask("get-schema", topic=str(name), version=0)
        assert found["data"] == schema(C)["data"]
        assert side.store.catalog.schema_bytes == len(found["data"])

    around(again, tmp_path)


def test_no_transaction_has_the_id_of_another_where_the_log_has_lost_what_was_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq_shards.gateway.pulsar.transactions.RESERVED_IDS", 2)
    ids: list[int] = []

    async def test(side: Side) -> None:
        coordinator = Coordinator(side.control)
        coordinator.start()
        try:
            for _ in range(4):
                ids.append((await coordinator.begin({"timeout_ms": 60_000}))["id"])
        finally:
            await coordinator.close()

    around(test, tmp_path)
    damaged(tmp_path, b"transactions-from")
    around(test, tmp_path)
    assert len(set(ids)) == 8


def test_a_record_that_cannot_be_changes_nothing() -> None:
    catalog = Catalog.new()
    before = state(catalog)
    for record in ({}, {"do": "fly"}, {"do": "no-tenant", "name": "x"}, {"do": "topic", "namespace": "x", "name": "y"}):
        with pytest.raises(CatalogError):
            catalog.apply(record)
    assert state(catalog) == before


def test_schemas_since_the_last_deletion_are_the_live_ones() -> None:
    catalog = Catalog.new()
    for version, kind in enumerate(["AVRO", "", "AVRO", "AVRO"]):
        catalog.schemas.setdefault("t", []).append(Schema(version, kind, "", {}, 0))
    assert [found.version for found in catalog.live_schemas("t")] == [2, 3]


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_who_waits_while_nothing_is_written_is_told(run: Run) -> None:
    async def test(side: Side) -> None:
        for _ in range(3):
            side.store.change()
            waiting = [asyncio.ensure_future(side.store.settled())]
            await asyncio.sleep(0)
            waiting.append(asyncio.ensure_future(side.store.settled()))
            await asyncio.wait_for(side.store.commit({"do": "transactions-from", "id": 1}), 30)
            await asyncio.wait_for(asyncio.gather(*waiting), 30)

    run(test)


def test_the_log_is_written_anew_though_changes_never_end(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq_shards.gateway.pulsar.store.REWRITE_BYTES", 1 << 14)

    async def test(side: Side) -> None:
        seen: list[int] = []
        file = tmp_path / FILE
        number = 0
        while len(seen) < 5:  # times that it has become smaller
            number += 1
            side.store.change({"do": "transactions-from", "id": number})
            before = file.stat().st_size
            await asyncio.sleep(0)
            if file.stat().st_size < before:
                seen.append(number)
            assert number < 1_000_000, "it only grows"
        await side.store.settled()
        assert file.stat().st_size < 1 << 20
        again = Store(tmp_path)
        await again.open()
        assert again.catalog.transactions_from == number
        await again.close()

    run(test)


def test_a_log_that_was_long_when_it_was_read_is_written_anew_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(side: Side) -> None:
        for number in range(1000):
            side.store.change({"do": "transactions-from", "id": number})
        await side.store.settled()
        size = (tmp_path / FILE).stat().st_size
        monkeypatch.setattr("mq_shards.gateway.pulsar.store.REWRITE_BYTES", 1 << 12)
        again = Store(tmp_path)
        await again.open()
        await again.commit({"do": "transactions-from", "id": 1000})
        assert (tmp_path / FILE).stat().st_size < size / 10
        assert again.catalog.transactions_from == 1000
        await again.close()

    run(test)


def test_a_namespace_that_goes_keeps_no_other_from_being_looked_after(run: Run) -> None:
    async def test(side: Side) -> None:
        for name in ("public/a", "public/b"):
            await side.store.commit({"do": "namespace", "name": name, "policies": {}})
            topic = Topic(2, policies={"message_ttl_in_seconds": 1})
            await side.store.commit(topic_record(name, f"persistent://{name}/t", topic))
        asked: list[str] = []
        figures = side.core.figures

        async def goes(topic: str) -> Figures | None:
            asked.append(topic)
            if len(asked) == 1:
                side.store.change({"do": "no-namespace", "name": "public/a"})
            return await figures(topic) and None

        side.core.figures = goes  # type: ignore[method-assign]
        upkeep = Upkeep(side.control, cast(Any, None), 60.0, lambda: 0.0)
        upkeep._retention._keeping = set()
        await upkeep.round()
        assert {name[:21] for name in asked} == {"persistent://public/a", "persistent://public/b"}

    run(test)


def test_a_record_that_cannot_be_written_is_undone_and_the_next_one_is_written(run: Run) -> None:
    async def test(side: Side) -> None:
        long = {"do": "transaction", "id": 1, "timeout_ms": 1, "opened_ms": 1, "owner": "x" * (9 << 20)}
        with pytest.raises(StoreError):
            await asyncio.wait_for(side.store.commit(long), 30)
        assert not side.store.catalog.transactions
        await asyncio.wait_for(side.store.commit({"do": "transactions-from", "id": 5}), 30)
        assert side.store.catalog.transactions_from == 5

    run(test)


def test_a_transaction_takes_no_more_names_than_the_log_can_hold(run: Run) -> None:
    async def test(side: Side) -> None:
        await side.store.commit({"do": "transaction", "id": 1, "timeout_ms": 1000, "opened_ms": 0})
        for name in ("x" * 1025, "a\nb", "__retention"):
            refused = await side.ask("txn-add", id=1, subscriptions=[[T + "t", name]])
            assert refused["error"] == "NotAllowedError"
        answers = [
            await side.ask("txn-add", id=1, subscriptions=[[T + "t", f"{i}-{j}-".ljust(1000, "x")] for j in range(500)])
            for i in range(10)
        ]
        assert answers[:7] == [{}] * 7
        assert answers[8]["error"] == answers[9]["error"] == "NotAllowedError"

    run(test)


@pytest.mark.parametrize("name", ["__retention", "__compaction", "a\nb", "x" * 1025])
def test_an_initial_subscription_has_a_name_that_a_consumer_could_ask_for(run: Run, name: str) -> None:
    async def test(side: Side) -> None:
        refused = await side.ask("open", topic=T + "t", create=True, initial=name)
        assert refused["error"] == "NotAllowedError"
        assert not side.core.topics

    run(test)


def test_an_initial_subscription_is_made_where_it_begins_and_never_moved(run: Run) -> None:
    async def test(side: Side) -> None:
        await asyncio.gather(*(side.ask("open", topic=T + "t", create=True, initial="s") for _ in range(2)))
        assert side.core.begun == [("t", "s", EARLIEST)] * 2, "of which the second changes nothing"

    run(test)


def test_of_two_initial_subscriptions_at_one_moment_one_has_the_last_place(run: Run) -> None:
    """Also by the policy of the topic alone."""

    async def test(side: Side) -> None:
        topic = Topic(0, policies={"max_subscriptions_per_topic": 1})
        await side.store.commit(topic_record("public/default", T + "t", topic))
        asked = [side.ask("open", topic=T + "t", create=True, initial=name) for name in ("a", "b")]
        first, second = await asyncio.gather(*asked)
        assert "error" not in first
        assert (second["error"], second["reason"]) == (
            "NotAllowedError", f"Exceed the maximum number of subscriptions of the topic: {T}t"
        )  # fmt: skip
        assert side.core.begun == [("t", "a", EARLIEST)]
        topic = Topic(0, policies={"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False}})
        await side.store.commit(topic_record("public/default", T + "t", topic))
        refused = await side.ask("open", topic=T + "t", create=True, initial="c")
        assert refused["error"] == "NotAllowedError"
        assert "auto subscription creation" in refused["reason"]

    run(test)


def test_a_place_is_kept_until_the_subscription_is_made_however_long_that_takes(run: Run) -> None:
    async def test(side: Side) -> None:
        topic = Topic(0, policies={"max_subscriptions_per_topic": 1})
        await side.store.commit(topic_record("public/default", T + "t", topic))
        name = side.control.name(T + "t")

        async def ask(subscription: str) -> None:
            told = policies_module.told(side.control.policies_of(name))
            await side.control.admission.check_subscription(name, subscription, told, durable=True)

        await ask("a")
        await asyncio.sleep(0.4)
        with pytest.raises(RefusedError, match="maximum number"):
            await ask("b")
        await side.ask("made", topic=T + "t", subscription="a")
        await ask("b")
        side.control.admission.was_made(name, "b")
        # What is made while a topic is looked at counts, though it is not being made any more.
        answer, figures = asyncio.Event(), side.core.figures

        async def late(of: str) -> Figures | None:
            found = await figures(of)
            await answer.wait()
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(side.core, "figures", late)
            waits = asyncio.create_task(ask("c"))
            await asyncio.sleep(0)
        await ask("d")
        side.control.admission.was_made(name, "d")
        answer.set()
        with pytest.raises(RefusedError, match="maximum number"):
            await waits

    run(test)


@pytest.mark.parametrize("fails", [False, True])
def test_an_initial_subscription_that_was_made_or_not_holds_no_place(
    run: Run, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    async def test(side: Side) -> None:
        topic = Topic(0, policies={"max_subscriptions_per_topic": 1})
        await side.store.commit(topic_record("public/default", T + "t", topic))

        async def broken(*_: object) -> None:
            raise NoTopicError

        with monkeypatch.context() as patched:
            if fails:
                patched.setattr(side.core, "begin_subscription", broken)
            with contextlib.suppress(NoTopicError):
                await side.ask("open", topic=T + "t", create=True, initial="a")
        side.core.begun.clear()
        assert "error" not in await side.ask("open", topic=T + "t", create=True, initial="b"), "a is not there"

    run(test)


def test_nobody_is_told_of_a_decision_that_is_not_in_the_log(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(side: Side) -> None:
        await side.store.commit({"do": "transaction", "id": 1, "timeout_ms": 1000, "opened_ms": 0})

        def broken(*_: object) -> int:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", broken)
            patched.setattr(os, "ftruncate", broken)
            for _ in range(2):
                refused = await asyncio.wait_for(side.ask("txn-end", id=1, commit=True), 30)
                assert refused["error"] == "ServiceNotReady"

    run(test)


def test_what_is_retained_goes_by_policy_alone(run: Run) -> None:
    async def test(side: Side) -> None:
        core, asked = cast(Any, side.core), list[str]()

        async def keep_no_more(topic: str) -> None:
            asked.append(topic)

        core.keeping, core.keep_no_more = {"t"}, keep_no_more
        policy = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        for policies, gone in (({"retention_policies": policy}, []), ({}, ["t"])):
            await side.store.commit({"do": "namespace", "name": "public/default", "policies": policies})
            retention = Retention(side.control)
            await retention.begin()  # and nothing is heard of any topic
            await retention.end()
            assert asked == gone

    run(test)
