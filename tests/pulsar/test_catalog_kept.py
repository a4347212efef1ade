"""The catalog on disk: what was answered is there after any end, and what is lost to damage is said."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import orjson
import pytest
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway.pulsar.catalog import Catalog, CatalogError, Schema, Topic, schema_record, topic_record
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.store import FILE, Store, StoreError
from mq_shards.gateway.pulsar.transactions import Coordinator

from tests.pulsar.control_side import A, C, Run, Side, T, around, schema


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


def test_who_asks_while_the_broker_stops_is_refused_and_nothing_is_said_of_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        side = Side(tmp_path)
        await side.store.open()
        opened = asyncio.create_task(side.ask("open", topic=T + "before", create=True))
        await asyncio.sleep(0)
        await side.store.close()
        assert "policies" in await opened
        answer = await side.ask("open", topic=T + "after", create=True)
        assert (answer["error"], answer["reason"].endswith("stops")) == ("ServiceNotReady", True)
        side.watches.close()
        side.control.schema_checks.close()

    asyncio.run(test())
    assert not caplog.records
    store = Store(tmp_path)

    async def look() -> None:
        await store.open()
        await store.close()

    asyncio.run(look())
    assert store.catalog.topic("public/default", T + "before") is not None


def test_a_catalog_that_could_not_be_read_is_served_when_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start, and later when a change was refused."""
    monkeypatch.setattr("mq_shards.gateway.pulsar.store.AGAIN_S", 0.01)
    caplog.set_level("INFO")
    directory, away, told = (tmp_path / FILE).parent, tmp_path / "away", list[str]()

    def failing(fd: int) -> None:
        raise OSError(5, "Input/output error")

    async def served_again(store: Store) -> None:
        with pytest.raises(StoreError, match="is not a directory"):
            store.check()
        await asyncio.sleep(0.1)  # for some attempts in vain
        directory.unlink()
        away.rename(directory)
        while not told:
            await asyncio.sleep(0.01)
        store.check()
        assert "acme" in store.catalog.tenants

    async def test() -> None:
        first = Store(tmp_path)
        await first.open()
        await first.commit({"do": "tenant", "name": "acme", "data": {}})
        await first.close()
        directory.rename(away)
        directory.write_text("a file")
        store = Store(tmp_path)
        store.on_undone.append(lambda: told.append("anew"))
        await store.open()
        assert "acme" not in store.catalog.tenants
        await served_again(store)
        told.clear()
        directory.rename(away)
        directory.write_text("a file")
        with monkeypatch.context() as disk, pytest.raises(StoreError, match="Input/output error"):
            disk.setattr(os, "fdatasync", failing)
            await store.commit({"do": "tenant", "name": "other", "data": {}})
        told.clear()
        await served_again(store)
        assert "other" not in store.catalog.tenants
        await store.commit({"do": "tenant", "name": "other", "data": {}})
        await store.close()

    asyncio.run(test())
    lines = [record.getMessage() for record in caplog.records if "cannot be served" in record.getMessage()]
    assert len(lines) == 2 and caplog.text.count("is served again") == 2


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


def test_what_others_say_of_a_namespace_that_was_lost_to_damage_is_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first sector, in which there are the head, tenants, namespaces and their policies."""
    where = "persistent://lost/space/"

    async def test(side: Side) -> None:
        data = {"adminRoles": ["somebody"], "allowedClusters": ["standalone"]}
        await side.store.commit({"do": "tenant", "name": "lost", "data": data})
        await side.store.commit({"do": "namespace", "name": "lost/space", "policies": {"max_topics": 5}})
        long = {"filler": "x" * 4096}
        await side.store.commit({"do": "tenant", "name": "long", "data": long})
        for name in (T, where):
            await side.control.create_new(topic_name(name + "there"), 3)

    around(test, tmp_path)
    log = (tmp_path / FILE).read_bytes()
    assert where.encode() not in log[:4096]
    (tmp_path / FILE).write_bytes(bytes(4096) + log[4096:])

    async def again(side: Side) -> None:
        for name in (T, where):
            assert (await side.ask("partitions", topic=name + "there", create=False))["partitions"] == 3
            assert "policies" in await side.ask("open", topic=name + "new", create=True)
        assert side.store.catalog.tenants["lost"]["adminRoles"] == []
        assert side.store.catalog.namespaces["lost/space"].policies == {}

    caplog.clear()
    around(again, tmp_path)
    said = ("damaged head", "cannot be read", "namespace lost/space was lost", "tenant lost was lost")
    assert [one in caplog.text for one in said] == [True] * 4
    caplog.clear()
    around(again, tmp_path)
    assert not caplog.text, "said once"


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
        only = side.store.catalog.schemas[str(name)]
        assert len(only) == 1 and side.store.catalog.schema_bytes == only[0].stored_bytes

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


def test_a_record_that_the_log_does_not_take_is_refused_and_no_other_change_is_lost(run: Run) -> None:
    async def test(side: Side) -> None:
        before = asyncio.ensure_future(side.ask("open", topic=T + "before", create=True))
        await asyncio.sleep(0)
        catalog = side.store.catalog
        long = {"do": "transaction", "id": 1, "timeout_ms": 1, "opened_ms": 1, "owner": "x" * (9 << 20)}
        with pytest.raises(RefusedError, match="8388608 bytes at most"):
            await asyncio.wait_for(side.store.commit(long), 30)
        assert "policies" in await asyncio.wait_for(before, 30)
        assert not catalog.transactions and side.store.catalog is catalog, "it is not read again"
        await asyncio.wait_for(side.store.commit({"do": "transactions-from", "id": 5}), 30)
        assert side.store.catalog.transactions_from == 5

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


def test_what_a_broker_does_not_keep_is_deleted_when_it_begins(tmp_path: Path) -> None:
    np = "non-persistent://public/default/"
    rows = [
        (T + "t", {}, True),
        (np + "plain", {}, False),
        (np + "partitioned", {"partitions": 2}, True),
        (np + "granted", {"permissions": {"joe": ["produce"]}}, True),
        (np + "limited", {"policies": {"max_producers_per_topic": 1}}, True),
    ]

    async def kept(*, broker_began: bool) -> set[str]:
        store = Store(tmp_path)
        await store.open(broker_began=broker_began)
        found = set(store.catalog.namespaces["public/default"].topics)
        assert store.catalog.topic_count == len(found)
        assert set(store.catalog.schemas) == found
        await store.close()
        return found

    async def test() -> None:
        store = Store(tmp_path)
        await store.open()
        for name, known, _ in rows:
            await store.commit(
                topic_record("public/default", name, Topic(**known)),
                schema_record(name, Schema(0, "STRING", "", {}, 0)),
            )
        await store.close()
        assert await kept(broker_began=False) == {name for name, _, _ in rows}
        wanted = {name for name, _, stays in rows if stays}
        assert await kept(broker_began=True) == wanted
        assert await kept(broker_began=False) == wanted, "it is on the disk"

    asyncio.run(test())


def test_a_disk_that_is_full_when_the_broker_begins_keeps_the_catalog_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = "non-persistent://public/default/t"

    async def test() -> None:
        first = Store(tmp_path)
        await first.open()
        await first.commit(topic_record("public/default", name, Topic()))
        await first.close()
        store = Store(tmp_path)

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        await store.open(broker_began=True)
        monkeypatch.undo()
        assert store.catalog.topic("public/default", name) is not None
        await store.commit(topic_record("public/default", T + "later", Topic()))
        await store.close()

    asyncio.run(test())
    assert "No space left on device" in caplog.text
