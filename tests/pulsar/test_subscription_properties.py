"""What the catalog keeps of subscriptions beside their workers: properties, and whether they are to be replicated."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest
from mq_shards.acceptor.protocols.pulsar.names import MAX_PROPERTIES, MAX_PROPERTY_BYTES, topic_name
from mq_shards.gateway.pulsar import subscription_properties
from mq_shards.gateway.pulsar.catalog import Catalog, Subscription, decode, encode, subscription_record
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.subscription_properties import (
    MADE_WITHIN_S,
    SubscriptionProperties,
    checked,
)
from mq_shards.gateway.pulsar.upkeep import Upkeep

from tests.pulsar.control_side import Run, Side, T
from tests.pulsar.record_admin import play
from tests.pulsar.servers import running
from tests.pulsar.test_catalog_kept import state
from tests.pulsar.wire import Wire

P = "persistent/public/default"


def pairs(**properties: str) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in properties.items()]


def told(http: str, topic: str, subscription: str = "s") -> tuple[Any, Any]:
    """What a request for properties says, and what the stats do."""
    found = play(http, ("GET", f"{P}/{topic}/subscription/{subscription}/properties"))["json"]
    stats = play(http, ("GET", f"{P}/{topic}/stats"))["json"]["subscriptions"][subscription]
    assert stats["replicated"] == stats["isReplicated"] and stats["subscriptionProperties"] == found
    return found, stats["replicated"]


# --- by clients -------------------------------------------------------------------------------------------------------


def test_a_subscription_has_the_properties_of_the_consumer_that_made_it(tmp_path: Path) -> None:
    with running(data_dir=tmp_path) as server:
        with Wire(server.port).connect() as wire:
            wire.subscribe("t", subscription_properties=pairs(a="1", b="2"))
            assert told(server.http, "t") == ({"a": "1", "b": "2"}, False)
            wire.ask("close_consumer", consumer_id=1)
            wire.subscribe("t", consumer=2, subscription_properties=pairs(c="3"), replicate_subscription_state=True)
            assert told(server.http, "t") == ({"a": "1", "b": "2"}, True)
            wire.ask("close_consumer", consumer_id=2)
            wire.subscribe("t", consumer=3)
            wire.subscribe("t", "twice", consumer=4, subscription_properties=[*pairs(c="3"), *pairs(c="4")])
            assert told(server.http, "t", "twice") == ({"c": "3"}, False)
        server.kill()
    with running(data_dir=tmp_path) as server, Wire(server.port).connect() as wire:
        assert told(server.http, "t") == ({"a": "1", "b": "2"}, True)
        wire.subscribe("t")
        wire.ask("unsubscribe", consumer_id=1)
        assert play(server.http, ("GET", f"{P}/t/subscription/s/properties"))["status"] == 404
        wire.subscribe("t", consumer=2)
        assert told(server.http, "t") == ({}, False)
        many = pairs(**{f"k{i}": "v" for i in range(MAX_PROPERTIES + 1)})
        refused = wire.ask(
            "subscribe", "error", topic="t", subscription="m", subType=0, consumer_id=3, subscription_properties=many
        )
        assert refused.message == "properties are 64 and 4096 bytes at most"


def test_a_subscription_that_is_not_durable_is_shown_with_its_properties_until_it_goes() -> None:
    with running() as server, Wire(server.port).connect() as wire:

        def listed() -> Any:  # noqa: ANN401
            return play(server.http, ("GET", f"{P}/t/subscriptions"))["json"]

        wire.subscribe("t", durable=False, subscription_properties=[*pairs(a="1"), *pairs(a="2")])
        assert (listed(), told(server.http, "t")) == (["s"], ({"a": "1"}, False))
        assert play(server.http, ("PUT", f"{P}/t/subscription/s/properties", {"b": "2"}))["status"] == 204
        assert told(server.http, "t") == ({"b": "2"}, False)
        assert play(server.http, ("PUT", f"{P}/t/subscription/s"))["status"] == 409
        assert play(server.http, ("DELETE", f"{P}/t/subscription/s"))["status"] == 412
        wire.ask("close_consumer", consumer_id=1)
        assert listed() == []
        many = pairs(**{f"k{i}": "v" for i in range(MAX_PROPERTIES + 1)})
        for wanted in (many, [*pairs(a="x" * MAX_PROPERTY_BYTES), *pairs(a="")]):
            refused = wire.ask(
                "subscribe", "error", topic="t", subscription="m", subType=0, consumer_id=2, durable=False,
                subscription_properties=wanted,
            )  # fmt: skip
            assert refused.message == "properties are 64 and 4096 bytes at most"


# --- in the catalog ---------------------------------------------------------------------------------------------------


async def opened(side: Side, subscription: str, **more: object) -> Any:  # noqa: ANN401
    """What an acceptor asks for a consumer, which then makes its subscription."""
    answer = await side.ask(
        "open", topic=T + "t", create=True, action="consume", subscription=subscription, durable=True, **more
    )
    side.core.begun.append(("t", subscription, 0))
    return answer


def kept(side: Side) -> SubscriptionProperties:
    return side.control.subscription_properties


def test_an_initial_subscription_of_a_producer_has_nothing_of_a_deleted_one(run: Run) -> None:
    async def test(side: Side) -> None:
        topic = topic_name(T + "t")
        for name in ("deleted", "there"):
            await kept(side).set_properties(topic, name, {"a": "b"})
        side.core.begun.append(("t", "there", 0))
        for name in ("deleted", "there"):
            await side.ask("open", topic=str(topic), create=True, initial=name)
        assert kept(side).of(topic).keys() == {"there"}

    run(test)


def test_what_is_kept_goes_with_its_topic_or_partition(run: Run) -> None:
    async def test(side: Side) -> None:
        catalog, p = side.store.catalog, topic_name(T + "p")
        await side.control.create_new(p, 2)
        for i in range(2):
            await kept(side).set_properties(p.of_partition(i), "s", {"a": "b"})
        await opened(side, "s", properties={"a": "b"})
        bytes_of_one = catalog.subscription_bytes // 3
        await side.control.delete(p.of_partition(0), force=True)
        assert not kept(side).of(p.of_partition(0)) and kept(side).of(p.of_partition(1))
        await side.control.delete_partitioned(p, force=True)
        assert not kept(side).of(p.of_partition(1)) and catalog.subscription_bytes == bytes_of_one
        await side.control.delete(topic_name(T + "t"), force=True)
        assert catalog.subscription_bytes == 0 and not catalog.namespaces["public/default"].subscriptions

    run(test)


def test_what_is_kept_is_there_after_a_restart_also_when_the_log_was_written_anew(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq_shards.gateway.pulsar.store.REWRITE_BYTES", 2000)
    seen = list[list[bytes]]()

    async def write(side: Side) -> None:
        await opened(side, "s", properties={"a": "b"}, replicated=True)
        for i in range(100):
            await kept(side).set_properties(topic_name(T + "t"), "changed", {"n": str(i)})
        seen.append(state(side.store.catalog))

    async def read(side: Side) -> None:
        assert state(side.store.catalog) == seen[0]
        found = kept(side).of(topic_name(T + "t"))
        assert found["s"].replicated and found["s"].properties == {"a": "b"}
        assert found["changed"].properties == {"n": "99"}

    run(write)
    run(read)


def test_what_is_kept_of_deleted_subscriptions_is_dropped_by_upkeep(run: Run) -> None:
    now_s = [0.0]

    async def test(side: Side) -> None:
        about = SubscriptionProperties(side.store, side.control.core, lambda: now_s[0])
        topic = topic_name(T + "t")
        await opened(side, "there")
        for name in ("there", "gone"):
            await about.set_properties(topic, name, {"a": "b"})
        await about.begin(topic, "coming", {"a": "b"}, replicated=False)
        await about.drop_deleted()
        assert about.of(topic).keys() == {"there", "coming"}, "that one is on its way to its worker"
        now_s[0] += MADE_WITHIN_S + 1
        await about.drop_deleted()
        assert about.of(topic).keys() == {"there"}

    run(test)


def test_upkeep_drops_few_at_a_time_and_goes_on_where_it_stopped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_properties, "MAX_DROPPED_AT_ONCE", 10)

    async def test(side: Side) -> None:
        topics = [topic_name(T + f"t{i}") for i in range(5)]
        for i in range(25):
            await kept(side).set_properties(topics[i % 3 and 3], f"gone{i}", {"a": "b"})
            await kept(side).set_properties(topics[1 + i % 2], f"s{i}", {"a": "b"})
            side.core.topics.add(f"t{1 + i % 2}")
            side.core.begun.append((f"t{1 + i % 2}", f"s{i}", 0))
        syncs = list[int]()
        fdatasync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", lambda fd: (syncs.append(fd), fdatasync(fd)))
        left = list[tuple[bool, int]]()
        for _ in range(3):
            more = await kept(side).drop_deleted()
            left.append((more, sum(len(kept(side).of(topic)) for topic in topics) - 25))
        assert left == [(True, 15), (True, 5), (False, 0)] and len(syncs) == 3

    run(test)


def test_a_round_of_upkeep_drops_all_that_clients_deleted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many: a client that makes subscriptions and deletes them all the time would be refused after a while."""
    monkeypatch.setattr(subscription_properties, "MAX_DROPPED_AT_ONCE", 10)

    async def test(side: Side) -> None:
        topic = topic_name(T + "t")
        for i in range(95):
            await kept(side).set_properties(topic, f"gone{i}", {"a": "b"})
        upkeep = Upkeep(side.control, cast(Any, None), 60.0, lambda: 0.0)
        upkeep._retention._keeping = set()
        await upkeep.round()
        assert not kept(side).of(topic)

    run(test)


def test_a_subscription_that_is_begun_while_others_are_dropped_keeps_what_it_is_given(run: Run) -> None:
    async def test(side: Side) -> None:
        topic = topic_name(T + "t")
        for name in "abc":
            await kept(side).set_properties(topic, name, {"of": "the deleted one"})
        new = {"of": "the new one"}
        await asyncio.gather(
            kept(side).drop_deleted(), *(kept(side).begin(topic, name, new, replicated=False) for name in "bc")
        )
        assert {name: one.properties for name, one in kept(side).of(topic).items()} == {"b": new, "c": new}

    run(test)


def test_properties_of_all_subscriptions_are_limited_together(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_properties, "MAX_ALL_BYTES", 2100)

    async def test(side: Side) -> None:
        topic = topic_name(T + "t")
        for i in range(3):
            assert "error" not in await opened(side, f"s{i}", properties={"a": "b"})
        refused = await opened(side, "s3", properties={"a": "b"})
        assert refused["reason"] == "there are as many properties of subscriptions as there may be"
        await kept(side).set_properties(topic, "s0", {})
        await kept(side).set_properties(topic, "s3", {"a": "b"})
        with pytest.raises(RefusedError):
            await kept(side).set_replicated(topic, "s0", replicated=True)

    run(test)


@pytest.mark.parametrize(("count", "size"), [(64, 1), (8, 250), (1, 2000)])
def test_what_properties_take_in_memory_is_about_what_they_count(count: int, size: int) -> None:
    def record(number: int) -> bytes:
        texts = {f"{number}.{i}": "x" * size for i in range(count)}
        return encode(subscription_record("public/default", T + "t", f"s{number}".ljust(200, "s"), Subscription(texts)))

    catalog = Catalog.new()
    records = [record(number) for number in range(200)]
    tracemalloc.start()
    for payload in records:
        catalog.apply(decode(payload))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.6 < taken / catalog.subscription_bytes < 1.3


def test_the_size_of_properties_is_that_of_their_bytes() -> None:
    assert checked({"a": "\u00e9" * 2047}) == {"a": "\u00e9" * 2047}
    with pytest.raises(RefusedError):
        checked({"a": "\u00e9" * 2048})


def test_subscriptions_on_their_way_are_remembered_up_to_a_limit_and_not_if_they_were_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_properties, "MAX_BEGUN", 10)

    async def test(side: Side) -> None:
        about, topic = kept(side), topic_name(T + "t")
        for i in range(20):
            await about.begin(topic, f"s{i}", {"a": "b"}, replicated=False)
        await about.drop_deleted()
        assert list(about.of(topic)) == [f"s{i}" for i in range(10, 20)]
        monkeypatch.setattr(subscription_properties, "MAX_ALL_BYTES", side.store.catalog.subscription_bytes)
        for i in range(20):
            with pytest.raises(RefusedError):
                await about.begin(topic, f"refused{i}", {"a": "b"}, replicated=False)
        await about.drop_deleted()
        assert len(about.of(topic)) == 10, "those that were refused took no other's place"

    run(test)
