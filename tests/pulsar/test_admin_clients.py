"""The REST API while clients are connected, and the catalog when processes are killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import greenstalk
import jwt
import pulsar
import pytest

from tests.pulsar.consuming import EARLIEST, EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, place, publish
from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, batch_of, entry_of, metadata, send_frame
from tests.servers import wait_until

P = "persistent/public/default"
T = "persistent://public/default/"


@pytest.fixture
def client(server: PulsarServer) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def ask(server: PulsarServer, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
    found = play(server.http, (method, path) if body is None else (method, path, body))
    assert found["status"] < 300, found
    return found.get("json")


def received(consumer: pulsar.Consumer, count: int) -> list[bytes]:
    bodies = []
    for _ in range(count):
        message = consumer.receive(10_000)
        bodies.append(message.data())
        consumer.acknowledge(message)
    return bodies


def peek(server: PulsarServer, path: str) -> tuple[bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(server.http, timeout=60)
    connection.request("GET", f"/admin/v2/{path}")
    response = connection.getresponse()
    found = response.read(), {name.lower(): value for name, value in response.getheaders()}
    assert response.status == 200, found
    connection.close()
    return found


def test_a_partitioned_topic_made_by_rest_is_produced_to_and_read_by_partitions(
    server: PulsarServer, client: pulsar.Client, topic: str
) -> None:
    ask(server, "PUT", f"{P}/{topic}/partitions", 3)
    assert sorted(client.get_topic_partitions(T + topic)) == [f"{T}{topic}-partition-{i}" for i in range(3)]
    ask(server, "PUT", f"{P}/{topic}/subscription/s")
    producer = client.create_producer(
        T + topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for i in range(9):
        producer.send(b"%d" % i)
    stats = ask(server, "GET", f"{P}/{topic}/partitioned-stats")
    assert stats["msgInCounter"] == 9
    assert [part["msgInCounter"] for part in stats["partitions"].values()] == [3, 3, 3]
    assert stats["subscriptions"]["s"]["msgBacklog"] == 9, "it was there before the messages"
    consumer = client.subscribe(T + topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    assert sorted(received(consumer, 9)) == [b"%d" % i for i in range(9)]
    stats = ask(server, "GET", f"{P}/{topic}/partitioned-stats")
    # As a real broker has it, the first producers and consumers of all partitions are one.
    assert [one["producerId"] for one in stats["publishers"]] == [0] and "address" not in stats["publishers"][0]
    assert [one["msgOutCounter"] for one in stats["subscriptions"]["s"]["consumers"]] == [9]
    assert [len(part["publishers"]) for part in stats["partitions"].values()] == [1, 1, 1]
    wait_until(
        lambda: ask(server, "GET", f"{P}/{topic}/partitioned-stats")["subscriptions"]["s"]["msgBacklog"] == 0,
        "nothing is left",
    )


def test_single_messages_are_shown_with_what_they_say_of_themselves(
    server: PulsarServer, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(T + topic, producer_name=f"of-{topic}")
    ids = [producer.send(b"body %d" % i, properties={"a": "b"}, partition_key="k") for i in range(3)]
    ask(server, "PUT", f"{P}/{topic}/subscription/s", "earliest")
    body, headers = peek(server, f"{P}/{topic}/subscription/s/position/2")
    assert body == b"body 1"
    assert headers["x-pulsar-message-id"] == f"{ids[1].ledger_id()}:{ids[1].entry_id()}"
    assert json.loads(headers["x-pulsar-property"]) == {"a": "b"}
    assert headers["x-pulsar-partition-key"] == "k"
    assert (headers["x-pulsar-producer-name"], headers["x-pulsar-sequence-id"]) == (f"of-{topic}", "1")
    same, _ = peek(server, f"{P}/{topic}/ledger/{ids[2].ledger_id()}/entry/{ids[2].entry_id()}")
    assert same == b"body 2"
    for missing in (f"ledger/{ids[2].ledger_id()}/entry/99", f"ledger/{ids[2].ledger_id() + 1}/entry/0"):
        assert play(server.http, ("GET", f"{P}/{topic}/{missing}"))["status"] == 404
    last = ask(server, "GET", f"{P}/{topic}/lastMessageId")
    assert (last["ledgerId"], last["entryId"]) == (ids[2].ledger_id(), ids[2].entry_id())
    client.create_reader(T + topic, pulsar.MessageId.earliest, subscription_role_prefix="reader")
    internal = ask(server, "GET", f"{P}/{topic}/internalStats")
    states = {name.partition("-")[0]: one["state"] for name, one in internal["cursors"].items()}
    assert states == {"reader": "Open", "s": "NoLedger"}
    assert internal["numberOfEntries"] == 3
    assert internal["lastConfirmedEntry"] == f"{ids[2].ledger_id()}:{ids[2].entry_id()}"
    assert internal["cursors"]["s"]["markDeletePosition"].endswith(":-1")


def test_compressed_and_batched_messages_are_shown(server: PulsarServer, client: pulsar.Client, topic: str) -> None:
    for number, kind in enumerate(
        [
            pulsar.CompressionType.LZ4,
            pulsar.CompressionType.ZLib,
            pulsar.CompressionType.ZSTD,
            pulsar.CompressionType.SNAPPY,
        ]
    ):
        producer = client.create_producer(T + topic, compression_type=kind, batching_enabled=False)
        sent = producer.send(b"x" * 5000 + b"%d" % number)
        body, headers = peek(server, f"{P}/{topic}/ledger/{sent.ledger_id()}/entry/{sent.entry_id()}")
        assert body == b"x" * 5000 + b"%d" % number, kind
        assert headers["x-pulsar-uncompressed-size"] == "5001"
        assert headers["x-pulsar-compression"] == ("LZ4", "ZLIB", "ZSTD", "SNAPPY")[number]
        producer.close()


def test_all_that_a_message_says_of_itself_is_in_headers(server: PulsarServer, wire: Wire, topic: str) -> None:
    """As a real 4.0.7 shows it: pulsar-admin makes messages of them again."""

    def headers_of(payload: bytes, **fields: object) -> tuple[bytes, dict[str, str]]:
        wire.raw(send_frame(1, 0, entry_of(metadata(**fields), payload)))
        sent = wire.expect("send_receipt").message_id
        body, headers = peek(server, f"{P}/{topic}/ledger/{sent.ledgerId}/entry/{sent.entryId}")
        first = "x-pulsar-"
        return body, {name.removeprefix(first): value for name, value in headers.items() if name.startswith(first)}

    wire.producer(topic)
    always = {"property": "{}", "producer-name": "p", "txn-uncommitted": "false", "is-encrypted": "false"}
    always |= {"publish-time": "2023-11-14T22:13:20Z", "sequence-id": "0"}
    cases: list[tuple[dict[str, object], dict[str, str]]] = [
        ({}, {}),
        (
            {"partition_key": "az", "partition_key_b64_encoded": True, "ordering_key": b"ok", "null_value": True,
             "schema_version": bytes(7) + b"\x01", "event_time": 0},
            {"partition-key": "az", "partition-key-b64-encoded": "true", "base64-ordering-key": "b2s=",
             "null-value": "true", "base64-schema-version": "AAAAAAAAAAE=", "event-time": "1970-01-01T00:00:00Z"},
        ),
        (
            {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 20, "chunk_id": 0},
            {"uuid": "u", "num-chunks-from-msg": "2", "total-chunk-msg-size": "20", "chunk-id": "0",
             "property-total-chunks": "2", "property-chunk-id": "0"},
        ),
        (
            {"txnid_least_bits": 3, "txnid_most_bits": 7, "deliver_at_time": 1, "highest_sequence_id": 9},
            {"txnid-least-bits": "3", "txnid-most-bits": "7", "txn-aborted": "false", "highest-sequence-id": "9",
             "deliver-at-time": "1970-01-01T00:00:00.001Z"},
        ),
        (
            {"publish_time": (1 << 64) - 86_400_000, "event_time": 1 << 62, "deliver_at_time": 253_402_300_800_000},
            {"publish-time": "1969-12-31T00:00:00Z", "event-time": "+146140482-04-24T15:36:27.904Z",
             "deliver-at-time": "+10000-01-01T00:00:00Z"},
        ),
    ]  # fmt: skip
    for fields, expected in cases:
        body, headers = headers_of(b"payload", **fields)
        del headers["message-id"]
        assert (body, headers) == (b"payload", always | expected)
    _, headers = headers_of(batch_of(b"payload"), num_messages_in_batch=1)
    assert (headers["num-batch-message"], headers["batch-size"]) == ("1", "23")


def test_a_cursor_is_moved_by_rest(server: PulsarServer, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(T + topic)
    ids = [producer.send(b"%d" % i) for i in range(4)]
    time.sleep(0.02)
    middle_ms = int(time.time() * 1000)
    time.sleep(0.02)
    ids += [producer.send(b"%d" % i) for i in range(4, 6)]
    sub = f"{P}/{topic}/subscription/s"
    ask(server, "PUT", sub, "earliest")
    ask(server, "POST", f"{sub}/skip/2")
    consumer = client.subscribe(T + topic, "s")
    assert received(consumer, 4) == [b"2", b"3", b"4", b"5"]
    ask(server, "POST", f"{sub}/resetcursor/{middle_ms}")
    assert received(consumer, 2) == [b"4", b"5"], "the consumer came again by itself"
    ask(server, "POST", f"{sub}/resetcursor", {"ledgerId": ids[1].ledger_id(), "entryId": ids[1].entry_id()})
    assert received(consumer, 5) == [b"1", b"2", b"3", b"4", b"5"]
    consumer.close()
    ask(server, "POST", f"{sub}/resetcursor", {"ledgerId": -1, "entryId": -1})
    ask(server, "POST", f"{sub}/skip_all")
    assert ask(server, "GET", f"{P}/{topic}/stats")["subscriptions"]["s"]["msgBacklog"] == 0
    ask(server, "DELETE", sub)
    assert ask(server, "GET", f"{P}/{topic}/subscriptions") == []


def test_a_topic_in_use_says_by_whom_and_goes_only_by_force(
    server: PulsarServer, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(T + topic, producer_name=f"of-{topic}")
    consumer = client.subscribe(T + topic, "s", consumer_type=pulsar.ConsumerType.Shared, consumer_name="me")
    for _ in range(3):
        producer.send(b"x" * 100)
    received(consumer, 1)
    stats = ask(server, "GET", f"{P}/{topic}/stats")
    assert [one["producerName"] for one in stats["publishers"]] == [f"of-{topic}"]
    sub = stats["subscriptions"]["s"]
    assert (sub["type"], [one["consumerName"] for one in sub["consumers"]]) == ("Shared", ["me"])
    assert sub["consumers"][0]["address"].startswith("/127.0.0.1:")
    wait_until(
        lambda: ask(server, "GET", f"{P}/{topic}/stats")["subscriptions"]["s"]["msgBacklog"] == 2, "one is acknowledged"
    )
    refused = play(server.http, ("DELETE", f"{P}/{topic}"))
    assert refused == {"status": 412, "json": {"reason": "Topic has 2 connected producers/consumers"}}
    refused = play(server.http, ("DELETE", f"{P}/{topic}/subscription/s"))
    assert refused == {"status": 412, "json": {"reason": "Subscription has active connected consumers"}}
    ask(server, "PUT", f"{P}/{topic}/unload")
    producer.send(b"after the client came again")
    wait_until(lambda: len(ask(server, "GET", f"{P}/{topic}/stats")["publishers"]) == 1, "it is there again")
    consumer.close()
    producer.close()
    ask(server, "DELETE", f"{P}/{topic}")
    assert play(server.http, ("GET", f"{P}/{topic}/stats"))["status"] == 404


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
def test_what_consumers_have_not_acknowledged_comes_again_when_their_topic_is_unloaded(
    server: PulsarServer, wire: Wire, topic: str, kind: int
) -> None:
    """The same ids, other ids, and on other connections; as often as that is done."""
    publish(wire, topic, 6)
    with Wire(server.port) as other:
        sides = (wire, wire, other.connect(), wire)
        for count, side in enumerate(sides, start=1):
            side.subscribe(topic, kind=kind, consumer=count // 2, initialPosition=EARLIEST)
            side.flow(1000, consumer=count // 2)
            had = side.messages(6, consumer=count // 2)
            assert [(one.body.message_id.entryId, one.body.redelivery_count) for one in had] == [
                (i, 0) for i in range(6)
            ]
            ask(server, "PUT", f"{P}/{topic}/unload")
            assert side.expect("close_consumer").consumer_id == count // 2
            side.quiet()
            assert ask(server, "GET", f"{P}/{topic}/stats")["subscriptions"]["s"]["consumers"] == []
    wire.subscribe(topic, kind=kind, consumer=9)
    wire.flow(1000, consumer=9)
    for one in wire.messages(6, consumer=9):
        wire.ack(place(one), consumer=9)
    wire.quiet()
    assert ask(server, "GET", f"{P}/{topic}/stats")["subscriptions"]["s"]["msgBacklog"] == 0


def test_a_terminated_topic_says_so(server: PulsarServer, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(T + topic, batching_enabled=True, batching_max_publish_delay_ms=10_000)
    sent = client.create_producer(T + topic).send(b"first")
    for _ in range(3):
        producer.send_async(b"last", lambda *_: None)
    producer.flush()
    said = ask(server, "POST", f"{P}/{topic}/terminate")
    assert (said["ledgerId"], said["entryId"], said["batchIndex"]) == (sent.ledger_id(), sent.entry_id() + 1, -1)
    assert ask(server, "GET", f"{P}/{topic}/internalStats")["state"] == "Terminated"


def test_a_tube_whose_topic_is_terminated_takes_no_more_jobs_and_keeps_those_it_has(
    server: PulsarServer, topic: str
) -> None:
    with greenstalk.Client(("127.0.0.1", server.beanstalk_port), use=topic, watch=topic) as tube:
        tube.put("before")
        assert ask(server, "POST", f"{P}/{topic}/terminate")["entryId"] == 0
        with pytest.raises(greenstalk.DrainingError):
            tube.put("after")
        job = tube.reserve(timeout=0)
        assert job.body == "before"
        tube.delete(job)
        with pytest.raises(greenstalk.DrainingError):
            tube.put("after")


def test_what_other_protocols_make_is_a_topic_of_pulsars(server: PulsarServer, topic: str) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", server.other_port), 5) as nsq:
        nsq.sendall(b"  V2PUB %s\n" % topic.encode() + (5).to_bytes(4, "big") + b"hello")
        assert nsq.recv(100)[8:] == b"OK"
    wait_until(lambda: T + topic in ask(server, "GET", P), "it is listed")
    assert ask(server, "GET", f"{P}/{topic}/stats")["msgInCounter"] == 1
    assert play(server.http, ("PUT", f"{P}/{topic}"))["status"] == 409
    ask(server, "DELETE", f"{P}/{topic}")
    assert play(server.http, ("GET", f"{P}/{topic}/stats"))["status"] == 404


def test_kill_9_of_gateway_and_acceptor_costs_nothing_that_was_answered(tmp_path: Path) -> None:
    """What REST made is there with the next gateway, and traffic goes on without one."""
    with running(data_dir=tmp_path / "data") as server:
        client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        ask(server, "PUT", "tenants/acme", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]})
        ask(server, "PUT", "namespaces/acme/apps")
        ask(server, "POST", "namespaces/acme/apps/messageTTL", 60)
        ask(server, "PUT", "persistent/acme/apps/orders/partitions", 2)
        producer = client.create_producer("persistent://acme/apps/orders")
        producer.send(b"1")
        made = 0
        for _ in range(3):
            os.kill(server.pid_of("mq-gateway"), signal.SIGKILL)
            producer.send(b"without a gateway")
            ask(server, "PUT", f"persistent/acme/apps/topic{made}")  # its queue waits for the next
            made += 1
            assert ask(server, "GET", "namespaces/acme/apps/messageTTL") == 60
            assert ask(server, "GET", "tenants/acme")["adminRoles"] == ["boss"]
            names = ask(server, "GET", "persistent/acme/apps")
            assert len(names) == 2 + made
        os.kill(server.pid_of("mq-acceptor-0"), signal.SIGKILL)
        consumer = client.subscribe(
            "persistent://acme/apps/orders", "s", initial_position=pulsar.InitialPosition.Earliest
        )
        assert sorted(received(consumer, 4)) == [b"1", *[b"without a gateway"] * 3]
        client.close()
    with running(data_dir=tmp_path / "data") as server:
        assert ask(server, "GET", "persistent/acme/apps/orders/partitions")["partitions"] == 2
        assert len(ask(server, "GET", "persistent/acme/apps")) == 2 + made
        assert ask(server, "GET", "namespaces/acme/apps/messageTTL") == 60


def test_rest_wants_a_token_where_clients_need_one(tmp_path: Path) -> None:
    secret = b"a secret of more than thirty-two bytes, as HS256 wants"
    (tmp_path / "key").write_bytes(secret)

    def status(path: str, token: str | None) -> int:
        connection = http.client.HTTPConnection(server.http, timeout=60)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request("GET", path, headers=headers)
        found = connection.getresponse().status
        connection.close()
        return found

    good, other = jwt.encode({"sub": "boss"}, secret), jwt.encode({"sub": "boss"}, b"x" * 40)
    late = jwt.encode({"sub": "boss", "exp": 1}, secret)
    with running(settings=[f"pulsar.token-secret-key-file={tmp_path / 'key'}"]) as server:
        assert status("/admin/v2/tenants", good) == 200
        for token in (None, other, late, "", "x"):
            assert status("/admin/v2/tenants", token) == 401
            assert status("/lookup/v2/topic/persistent/public/default/t", token) == 401
        assert status("/status.html", None) == 200
        assert status("/metrics/", None) == 200


def test_names_that_are_no_ascii_are_those_of_clients(server: PulsarServer, wire: Wire, topic: str) -> None:
    """In lists once each; and what is asked or done by such a name is of what has it."""
    name, subscription = f"{topic}-höhe-高", "größe"
    publish(wire, name, 3)
    wire.subscribe(name, subscription, initialPosition=EARLIEST)
    path = f"{P}/{quote(name)}"
    listed = [one for one in ask(server, "GET", P) if topic in one]
    assert listed == [T + name]
    assert ask(server, "GET", f"{path}/subscriptions") == [subscription]
    assert ask(server, "GET", f"{path}/stats")["subscriptions"][subscription]["msgBacklog"] == 3
    assert list(ask(server, "GET", f"{path}/internalStats")["cursors"]) == [subscription]
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=60)) as connection:
        connection.request("GET", "/metrics/")
        figures = connection.getresponse().read().decode()
    assert f'subscription="{subscription}"' in figures and f'topic="{T + name}"' in figures
    of_subscription = f"{path}/subscription/{quote(subscription)}"
    ask(server, "POST", f"{of_subscription}/skip/1")
    assert wire.expect("close_consumer")
    assert ask(server, "GET", f"{path}/stats")["subscriptions"][subscription]["msgBacklog"] == 2
    ask(server, "DELETE", of_subscription)
    assert ask(server, "GET", f"{path}/subscriptions") == []


def test_a_cluster_and_a_namespace_are_made_with_what_pulsar_admin_says_of_them(server: PulsarServer) -> None:
    """It says all that there is, also of key stores and rates that nobody asked for."""
    cluster = {
        "serviceUrl": "http://far:8080", "brokerClientTlsEnabled": False, "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False, "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsKeyStoreType": "JKS",
        "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    }  # fmt: skip
    ask(server, "PUT", "clusters/far", cluster)
    assert ask(server, "GET", "clusters/far") == cluster
    ask(server, "DELETE", "clusters/far")
    rates = ("topicDispatchRate", "subscriptionDispatchRate", "clusterSubscribeRate")
    ask(server, "PUT", "namespaces/public/said", {name: {} for name in rates})
    shown = ask(server, "GET", "namespaces/public/said")
    assert {name: shown[name] for name in rates} == {name: {} for name in rates}
    dispatch = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": 50, "ratePeriodInSecond": 2}
    ask(server, "PUT", "namespaces/public/rated", {"topicDispatchRate": {"standalone": dispatch, "far": dispatch}})
    found = ask(server, "GET", "namespaces/public/rated/dispatchRate")
    assert found == {**dispatch, "relativeToPublishRate": False}
    ask(server, "POST", "namespaces/public/rated/dispatchRate", {**dispatch, "ratePeriodInSecond": 3})
    shown = ask(server, "GET", "namespaces/public/rated")["topicDispatchRate"]
    assert {name: rate["ratePeriodInSecond"] for name, rate in shown.items()} == {"standalone": 3, "far": 2}
    ask(server, "DELETE", "namespaces/public/rated/dispatchRate")
    assert list(ask(server, "GET", "namespaces/public/rated")["topicDispatchRate"]) == ["far"]
    assert play(server.http, ("PUT", "namespaces/public/bad", {"topicDispatchRate": 3}))["status"] == 400


def test_commands_of_pulsar_admin_about_what_is_not_here_have_a_real_brokers_answers(
    server: PulsarServer, topic: str
) -> None:
    ask(server, "PUT", f"{P}/{topic}")
    none = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchSize": 0, "batchIndex": -1}
    found = ask(server, "GET", f"{P}/{topic}/offload")
    assert found == {"status": "NOT_RUN", "lastError": "", "firstUnoffloadedMessage": none}
    schema, path = {"type": "STRING", "schema": "", "properties": {}}, f"schemas/public/default/{topic}"
    assert ask(server, "GET", f"{path}/metadata") is None
    ask(server, "POST", f"{path}/schema", schema)
    version = {"ledgerId": -1, "entryId": -1, "version": 0}
    assert ask(server, "GET", f"{path}/metadata") == {"info": version, "index": [version]}
    for kind in ("functions", "sink", "source"):
        found = play(server.http, ("GET", f"/admin/v3/{kind}/public/default"))
        assert found["status"] == 409 and "Function Worker is not enabled" in found["json"]["reason"]
