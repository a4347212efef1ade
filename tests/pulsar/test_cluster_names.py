"""Topics and namespaces with a cluster in their names, as before Pulsar 2.0. What a real broker answers about them is
in the transcripts of test_admin.py and test_wire_errors.py."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pulsar
import pytest
from mq_shards.acceptor.protocols.pulsar.names import PulsarNameError, TopicName, topic_name, topic_of_core
from mq_shards.gateway.pulsar.catalog import CLUSTER, FIRST, Catalog, Record, Topic, encode, topic_record
from mq_shards.gateway.pulsar.replay import replay
from mq_shards.gateway.pulsar.retention import Retention
from mq_shards.gateway.pulsar.store import FILE, Store

from tests.beanstalk.wire import Wire as Beanstalk
from tests.pulsar.control_side import Run, Side
from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire
from tests.servers import wait_until

OLD = "persistent://nobody/nowhere"


@pytest.mark.parametrize(
    ("name", "namespace", "local", "core"),
    [
        ("persistent://t/c/ns/x", "t/c/ns", "x", "persistent://t/c/ns/x"),
        ("persistent://t/c/ns/x/y//z", "t/c/ns", "x/y//z", "persistent://t/c/ns/x/y//z"),
        ("non-persistent://public/default/a/b", "public/default/a", "b", "non-persistent://public/default/a/b"),
        ("persistent://public/default/a/b", "public/default/a", "b", "a/b"),
        ("persistent://public/default/a//b", "public/default/a", "/b", "a//b"),
        ("persistent://public/defaults/a/b", "public/defaults/a", "b", "persistent://public/defaults/a/b"),
        ("persistent://public/default/b", "public/default", "b", "b"),
    ],
)
def test_a_name_with_a_cluster_is_of_its_own_namespace_and_has_the_name_that_it_always_had_elsewhere(
    name: str, namespace: str, local: str, core: str
) -> None:
    found = topic_name(name)
    assert (found.namespace, found.local, found.core, str(found)) == (namespace, local, core, name)
    assert topic_of_core(core) == found


def test_partitions_are_those_of_a_topic_with_the_same_namespace() -> None:
    part = topic_name("persistent://t/c/ns/x-partition-3")
    assert (part.partition, part.base) == (3, TopicName("persistent", "t", "c/ns", "x"))
    assert part.base.of_partition(3) == part


@pytest.mark.parametrize("name", ["t/c/ns/x", "persistent://t/c//x", "persistent://t/c/n s/x", "persistent://t/c/ns/ "])
def test_what_cannot_be_a_name(name: str) -> None:
    with pytest.raises(PulsarNameError):
        topic_name(name)


def test_clients_publish_and_consume_also_after_a_restart(tmp_path: Path) -> None:
    with running(data_dir=tmp_path) as server:
        client = pulsar.Client(server.url)
        client.create_producer(f"{OLD}/ns/t").send(b"before")
        assert play(server.http, ("PUT", "/admin/persistent/nobody/nowhere/ns/p/partitions", 3))["status"] == 204
        spread = pulsar.PartitionsRoutingMode.RoundRobinDistribution
        producer = client.create_producer(f"{OLD}/ns/p", message_routing_mode=spread)
        for i in range(6):
            producer.send(b"%d" % i)
        assert play(server.http, ("PUT", "/admin/namespaces/public/standalone/made"))["status"] == 204
        keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        answer = play(server.http, ("POST", "/admin/namespaces/public/standalone/made/retention", keep))
        assert answer["status"] == 204
        client.close()
        server.kill()
    with running(data_dir=tmp_path, workers=2) as server:
        client = pulsar.Client(server.url)
        earliest = pulsar.InitialPosition.Earliest
        consumer = client.subscribe(f"{OLD}/ns/t", "s", initial_position=earliest)
        message = consumer.receive(20_000)
        assert (message.data(), message.topic_name()) == (b"before", f"{OLD}/ns/t")
        parts = client.subscribe(f"{OLD}/ns/p", "s", initial_position=earliest)
        assert sorted(parts.receive(20_000).data() for _ in range(6)) == [b"%d" % i for i in range(6)]
        assert client.get_topic_partitions(f"{OLD}/ns/p") == [f"{OLD}/ns/p-partition-{i}" for i in range(3)]
        made = ("GET", "/admin/namespaces/public/standalone")
        assert play(server.http, made)["json"] == ["public/standalone/made"]
        kept = play(server.http, ("GET", "/admin/namespaces/public/standalone/made/retention"))["json"]
        assert kept == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        client.close()


def test_a_pattern_finds_topics_with_a_cluster(server: PulsarServer, topic: str) -> None:
    client = pulsar.Client(server.url)
    base = f"persistent://{topic}/cluster/ns"
    for local in ("a", "a/b", "other"):
        client.create_producer(f"{base}/{local}").send(local.encode())
    consumer = client.subscribe([f"{base}/a", f"{base}/a/b"], "list", initial_position=pulsar.InitialPosition.Earliest)
    assert {consumer.receive(20_000).data() for _ in range(2)} == {b"a", b"a/b"}
    with Wire(server.port).connect() as wire:
        found = wire.ask(
            "getTopicsOfNamespace", "getTopicsOfNamespaceResponse", namespace=f"{topic}/cluster/ns", mode=0,
            topics_pattern=f"{base}/a.*",
        )  # fmt: skip
        assert list(found.topics) == [f"{base}/a", f"{base}/a/b"]
    client.close()


def test_a_tube_with_a_slash_is_a_topic_of_a_default_cluster(server: PulsarServer, topic: str) -> None:
    tube, name = f"{topic}/jobs", f"persistent://public/default/{topic}/jobs"
    with Beanstalk(server.beanstalk_port) as jobs:
        jobs.use(tube)
        jobs.put(b"job")
        with Wire(server.port).connect() as wire:

            def listed(namespace: str) -> list[str]:
                found = wire.ask("getTopicsOfNamespace", "getTopicsOfNamespaceResponse", namespace=namespace, mode=0)
                return [one for one in found.topics if topic in one]

            # Names of tubes are asked for once a second.
            wait_until(lambda: listed(f"public/default/{topic}") == [name], "the tube is listed")
            assert listed("public/default") == []


def test_a_namespace_that_nobody_made_is_gone_with_its_last_topic(run: Run) -> None:
    async def test(side: Side) -> None:
        for local in ("a", "b"):
            assert "policies" in await side.ask("open", topic=f"{OLD}/ns/{local}", create=True)
        before = side.store.catalog.described_bytes
        assert "nobody/nowhere/ns" in side.store.catalog.namespaces
        assert side.store.catalog.namespaces_of("nobody") == []
        for local in ("a", "b"):
            await side.control.delete(topic_name(f"{OLD}/ns/{local}"), force=False)
        assert "nobody/nowhere/ns" not in side.store.catalog.namespaces
        assert side.store.catalog.described_bytes < before
        assert (await side.ask("topics", namespace="nobody/nowhere/ns"))["topics"] == []

    run(test)


def test_a_namespace_made_later_has_the_topics_that_were_there(run: Run) -> None:
    async def test(side: Side) -> None:
        await side.ask("open", topic=f"{OLD}/ns/a", create=True)
        bytes_before = side.store.catalog.described_bytes
        await side.control.set_policies("nobody/nowhere/ns", {"max_producers_per_topic": 1})
        opened = await side.ask("open", topic=f"{OLD}/ns/a", create=False)
        assert opened["policies"]["max_producers"] == 1
        assert side.store.catalog.namespaces_of("nobody") == ["nobody/nowhere/ns"]
        record = {"do": "namespace", "name": "nobody/nowhere/ns", "policies": {"max_producers_per_topic": 1}}
        assert side.store.catalog.described_bytes == bytes_before + len(encode(record))

    run(test)


# --- the catalog of a release that knew no namespaces with a cluster --------------------------------------------------

POLICIES = {"retention_policies": {"retentionTimeInMinutes": 60, "retentionSizeInMB": 1}}
EARLIER: list[Record] = [
    *FIRST,
    {"do": "namespace", "name": "public/one", "policies": {}},
    topic_record("public/one", "persistent://public/one/ns/t", Topic(2, permissions={"me": ["produce"]})),
    {"do": "no-partition", "namespace": "public/one", "name": "persistent://public/one/ns/t-partition-1"},
    {"do": "subscription", "namespace": "public/one", "topic": "persistent://public/one/ns/t-partition-0", "name": "s",
     "properties": {"k": "v"}},
    topic_record("public/one", "persistent://public/one/t", Topic()),
    topic_record("public/one", "persistent://public/one/gone/t", Topic()),
    {"do": "no-topic", "namespace": "public/one", "name": "persistent://public/one/gone/t"},
    topic_record("public/default", "persistent://public/default/a/b", Topic()),
    topic_record("public/default", "persistent://public/default/a b/c", Topic()),
    {"do": "namespace", "name": "public/one", "policies": POLICIES},
]  # fmt: skip


def test_topics_of_an_earlier_release_come_into_their_own_namespaces_with_the_policies_that_held() -> None:
    found = replay(EARLIER, is_damaged=False)
    catalog = found.catalog
    moved = catalog.namespaces["public/one/ns"]
    assert moved.topics == {"persistent://public/one/ns/t": Topic(2, permissions={"me": ["produce"]})}
    assert moved.deleted_partitions == {"persistent://public/one/ns/t-partition-1"}
    assert moved.subscriptions["persistent://public/one/ns/t-partition-0"]["s"].properties == {"k": "v"}
    assert (moved.policies, moved.is_made) == (POLICIES, True)
    assert catalog.namespaces["public/one"].topics.keys() == {"persistent://public/one/t"}
    assert "public/one/gone" not in catalog.namespaces
    # No policies were set for these.
    assert not catalog.namespaces["public/default/a"].is_made
    # No client can name it any more: its messages are where they were.
    assert len(found.left_out) == 1
    assert "persistent://public/default/a b/c" in found.left_out[0]
    again = Catalog()
    for record in catalog.records():
        again.apply(record)
    assert sorted(map(encode, again.records())) == sorted(map(encode, catalog.records()))
    assert again.described_bytes == catalog.described_bytes


def test_it_is_written_so_at_once_and_later_policies_of_the_other_namespace_do_not_count(tmp_path: Path) -> None:
    async def start(*records: Record) -> Catalog:
        store = Store(tmp_path)
        await store.open()
        await store.commit(*records)
        catalog = store.catalog
        await store.close()
        return catalog

    # As an earlier release left it: its records name the namespaces that it took them for.
    async def prepare() -> None:
        store = Store(tmp_path)
        await store.open()
        journal = store._journal
        assert journal is not None
        journal.append(encode(record) for record in EARLIER[len(FIRST) :])
        await store.close()

    async def look() -> None:
        await prepare()
        assert (await start()).namespaces["public/one/ns"].policies == POLICIES
        assert b'"namespace":"public/one","name":"persistent://public/one/ns/t"' not in (tmp_path / FILE).read_bytes()
        other = {"do": "namespace", "name": "public/one", "policies": {"message_ttl_in_seconds": 1}}
        await start(other)
        assert (await start()).namespaces["public/one/ns"].policies == POLICIES

    asyncio.run(look())


def test_a_cluster_that_is_not_there_can_have_no_namespaces(server: PulsarServer) -> None:
    refused = play(server.http, ("PUT", "/admin/namespaces/public/elsewhere/ns"))
    assert refused["status"] == 403
    assert CLUSTER not in refused["json"]["reason"]


@pytest.mark.parametrize("policies", [POLICIES, {}])
def test_what_an_earlier_release_retained_of_a_tube_with_a_slash_stays_where_it_was_to_be_kept(
    run: Run, policies: dict[str, Any]
) -> None:
    async def test(side: Side) -> None:
        core, dropped = cast(Any, side.core), list[str]()

        async def keep_no_more(topic: str) -> None:
            dropped.append(topic)

        core.keeping, core.keep_no_more = {"a/b"}, keep_no_more
        await side.control.set_policies("public/default", policies)
        retention = Retention(side.control)
        await retention.begin()
        await retention.end()
        assert dropped == ([] if policies else ["a/b"])
        made = side.store.catalog.namespaces.get("public/default/a")
        assert (made.policies if made else {}) == policies

    run(test)
