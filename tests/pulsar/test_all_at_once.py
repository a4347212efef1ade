"""What pulsar-admin does to all subscriptions of a topic or namespace, and to all partitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, payload_of

_numbers: Final = itertools.count()


def ask(server: PulsarServer, method: str, path: str, body: object = None) -> dict[str, Any]:
    return request(server.http, "", "", method, path, body)


@pytest.fixture(scope="module")
def server() -> Iterator[PulsarServer]:
    """Its own: others compare which namespaces there are."""
    with running() as server:
        yield server


@pytest.fixture
def namespace(server: PulsarServer) -> str:
    name = f"public/all{next(_numbers)}"
    assert ask(server, "PUT", f"namespaces/{name}")["status"] == 204
    return name


def backlogs(server: PulsarServer, topic: str) -> dict[str, int]:
    stats = ask(server, "GET", f"persistent/{topic}/stats")["json"]["subscriptions"]
    return {name: one["msgBacklog"] for name, one in stats.items()}


@pytest.mark.parametrize(
    ("method", "path", "left"),
    [
        ("POST", "namespaces/{0}/clearBacklog", {"a": 0, "b": 0}),
        ("POST", "namespaces/{0}/clearBacklog/a", {"a": 0, "b": 3}),
        ("DELETE", "persistent/{0}/t/truncate", {"a": 0, "b": 0}),
        ("POST", "persistent/{0}/t/all_subscription/expireMessages/0", {"a": 0, "b": 0}),
        ("POST", "namespaces/{0}/unsubscribe/a", {"b": 3}),
    ],
)
def test_backlogs_go(server: PulsarServer, namespace: str, method: str, path: str, left: dict[str, int]) -> None:
    with Wire(server.port).connect() as wire:
        for name in ("a", "b"):
            wire.subscribe(f"persistent://{namespace}/t", name, 1)
            wire.ask("close_consumer", consumer_id=1)
        wire.producer(f"persistent://{namespace}/t")
        for i in range(3):
            wire.send(b"old", sequence=i)
            wire.expect("send_receipt")
        assert ask(server, method, path.format(namespace))["status"] == 204
        assert backlogs(server, f"{namespace}/t") == left
        wire.subscribe(f"persistent://{namespace}/t", "b", 1)
        wire.flow(10)
        wire.send(b"new", sequence=3)
        came = [payload_of(frame) for frame in wire.messages(left["b"] + 1)]
        assert came == [b"old"] * left["b"] + [b"new"]


def test_who_is_there_is_not_unsubscribed(server: PulsarServer, namespace: str) -> None:
    with Wire(server.port).connect() as wire:
        wire.subscribe(f"persistent://{namespace}/t", "a", 1)
        assert ask(server, "POST", f"namespaces/{namespace}/unsubscribe/a")["status"] == 412
        assert ask(server, "POST", f"namespaces/{namespace}/unsubscribe/none")["status"] == 204
        answer = ask(server, "POST", f"persistent/{namespace}/t/all_subscription/expireMessages/10")
        assert answer["status"] == 409 and "for subscription a due to" in answer["json"]["reason"]


def test_to_expire_is_refused_only_where_a_consumer_is_about_to_have_what_is_left(
    server: PulsarServer, namespace: str
) -> None:
    def expire(what: str) -> int:
        return int(ask(server, "POST", f"persistent/{namespace}/t/{what}/expireMessages/100")["status"])

    with Wire(server.port).connect() as wire:
        topic = f"persistent://{namespace}/t"
        wire.subscribe(topic, "a", 1)
        assert expire("subscription/a") == expire("all_subscription") == 409, "there is nothing"
        wire.ask("close_consumer", consumer_id=1)
        wire.producer(topic)
        wire.send(b"new")
        wire.expect("send_receipt")
        assert expire("subscription/a") == expire("all_subscription") == 204, "nobody is there"
        assert backlogs(server, f"{namespace}/t") == {"a": 1}
        wire.subscribe(topic, "a", 1)
        assert expire("subscription/a") == expire("all_subscription") == 409, "it is about to be delivered"
        for i in range(1, 1000):
            wire.send(b"new", sequence=i)
        for _ in range(1, 1000):
            wire.expect("send_receipt")
        assert expire("subscription/a") == expire("all_subscription") == 204, "there are many"
        assert expire("subscription/none") == 404


def test_what_expires_in_one_partition_goes_though_another_has_nothing(server: PulsarServer, namespace: str) -> None:
    path = f"persistent/{namespace}/p"
    assert ask(server, "PUT", f"{path}/partitions", 2)["status"] == 204
    assert ask(server, "PUT", f"{path}/subscription/a")["status"] == 204
    with Wire(server.port).connect() as wire:
        wire.producer(f"persistent://{namespace}/p-partition-1")
        wire.send(b"old")
        wire.expect("send_receipt")
    answer = ask(server, "POST", f"{path}/subscription/a/expireMessages/0")
    assert answer["status"] == 409 and "p-partition-0 for subscription a" in answer["json"]["reason"]
    assert backlogs(server, f"{namespace}/p-partition-1") == {"a": 0}


def test_all_partitions_are_terminated(server: PulsarServer, namespace: str) -> None:
    path = f"persistent/{namespace}/p"
    assert ask(server, "PUT", f"{path}/partitions", 2)["status"] == 204
    with Wire(server.port).connect() as wire:
        wire.producer(f"persistent://{namespace}/p-partition-1")
        found = ask(server, "POST", f"{path}/terminate/partitions")["json"]
        assert {number: one["entryId"] for number, one in found.items()} == {"0": -1, "1": -1}
        assert {one["partitionIndex"] for one in found.values()} == {-1}  # the key names the partition
        wire.expect("close_producer")
        again = ask(server, "POST", f"{path}-partition-1/terminate")["json"]
        assert (again["entryId"], again["partitionIndex"]) == (-1, -1)
        for partition in range(2):
            topic = f"persistent://{namespace}/p-partition-{partition}"
            assert wire.ask("producer", "error", topic=topic, producer_id=2).error == 15


def test_a_cluster_is_made_with_fields_that_are_not_set(server: PulsarServer) -> None:
    """As pulsar-admin sends it."""
    body = {"serviceUrl": "http://127.0.0.1:1", "brokerClientTlsTrustStoreType": None, "listenerName": None}
    assert ask(server, "PUT", "clusters/made", body)["status"] in (200, 204)
    assert ask(server, "GET", "clusters/made")["json"]["serviceUrl"] == "http://127.0.0.1:1"
    assert ask(server, "DELETE", "clusters/made")["status"] == 204


def test_a_namespace_is_in_the_one_cluster_there_is(server: PulsarServer, namespace: str) -> None:
    path = f"namespaces/{namespace}/replication"
    assert ask(server, "POST", path, ["standalone"])["status"] == 204
    assert ask(server, "POST", path, ["nowhere"]) == {"status": 403, "json": {"reason": "Invalid cluster id: nowhere"}}
    assert ask(server, "GET", path)["json"] == ["standalone"]
