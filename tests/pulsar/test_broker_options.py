"""Options of the broker that are set while it runs: each that is listed takes effect, and is kept."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mq_shards.gateway.pulsar.broker_options import OPTIONS, BrokerOptions
from mq_shards.gateway.pulsar.catalog import Catalog

from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire
from tests.servers import wait_until

CONFIGURATION = "brokers/configuration"


@pytest.fixture(scope="module")
def own() -> Iterator[PulsarServer]:
    with running(settings=["pulsar.policies-interval=50ms"]) as server:
        yield server


@pytest.fixture
def broker(own: PulsarServer) -> Iterator[PulsarServer]:
    """Without any option when the test ends."""
    yield own
    for name in asked(own, "GET", f"{CONFIGURATION}/values")[1]:
        assert asked(own, "DELETE", f"{CONFIGURATION}/{name}")[0] == 200


def asked(server: PulsarServer, method: str, path: str, *body: Any) -> tuple[int, Any]:  # noqa: ANN401
    answer = play(server.http, (method, path, *body))
    return answer["status"], answer.get("json")


def set_option(server: PulsarServer, name: str, value: str) -> None:
    assert asked(server, "POST", f"{CONFIGURATION}/{name}/{value}")[0] == 200


def new(server: PulsarServer) -> str:
    namespace = f"public/{uuid.uuid4().hex[:8]}"
    assert asked(server, "PUT", f"namespaces/{namespace}")[0] == 204
    return namespace


def test_options_and_what_they_may_be(broker: PulsarServer) -> None:
    assert sorted(asked(broker, "GET", CONFIGURATION)[1]) == sorted(OPTIONS)
    runtime = asked(broker, "GET", f"{CONFIGURATION}/runtime")[1]
    assert {name: runtime[name] for name in OPTIONS} == {name: option.default for name, option in OPTIONS.items()}
    assert runtime["clusterName"] == "standalone" and runtime["maxMessageSize"] == str(5 << 20)
    for name, value in (
        ("allowAutoTopicCreation", "perhaps"), ("maxTenants", "-1"), ("maxTenants", "x"),
        ("defaultNumPartitions", "0"), ("defaultNumberOfNamespaceBundles", "4097"),
        ("subscriptionTypesEnabled", "Shared,Solo"), ("brokerDeleteInactiveTopicsMode", "never"),
    ):  # fmt: skip
        assert asked(broker, "POST", f"{CONFIGURATION}/{name}/{value}")[0] == 412
    assert asked(broker, "GET", f"{CONFIGURATION}/values") == (200, {})
    set_option(broker, "maxTenants", "77")
    assert asked(broker, "GET", f"{CONFIGURATION}/values") == (200, {"maxTenants": "77"})
    assert asked(broker, "GET", f"{CONFIGURATION}/runtime")[1]["maxTenants"] == "77"


def test_defaults_leave_policies_as_they_are() -> None:
    catalog = Catalog()
    options = BrokerOptions(lambda: catalog)
    assert options.policies == {}
    for name, option in OPTIONS.items():
        option.read(option.default)
        catalog.apply({"do": "broker", "name": "options", "data": {name: option.default}})
        assert options.of(name) == option.read(option.default)


def test_topics_and_subscriptions_are_made_as_the_options_say(broker: PulsarServer) -> None:
    namespace = new(broker)
    with Wire(broker.port).connect() as wire:
        set_option(broker, "allowAutoTopicCreation", "false")
        wire.ask("producer", "error", topic=f"persistent://{namespace}/t", producer_id=1)
        set_option(broker, "allowAutoTopicCreation", "true")
        set_option(broker, "allowAutoTopicCreationType", "partitioned")
        set_option(broker, "defaultNumPartitions", "3")
        found = wire.ask(
            "partitionMetadata", "partitionMetadataResponse", topic=f"persistent://{namespace}/p",
            metadata_auto_creation_enabled=True,
        )  # fmt: skip
        assert found.partitions == 3
        set_option(broker, "allowAutoTopicCreationType", "non-partitioned")
        assert asked(broker, "PUT", f"persistent/{namespace}/s")[0] == 204
        set_option(broker, "allowAutoSubscriptionCreation", "false")
        said = {"topic": f"persistent://{namespace}/s", "subscription": "s", "subType": 0, "consumer_id": 1}
        wire.ask("subscribe", "error", **said)
        set_option(broker, "allowAutoSubscriptionCreation", "true")
        set_option(broker, "subscriptionTypesEnabled", "Shared")
        wire.ask("subscribe", "error", **said)
        wire.ask("subscribe", **{**said, "subType": 1})
        set_option(broker, "maxTopicsPerNamespace", "1")
        assert asked(broker, "PUT", f"persistent/{namespace}/more")[0] == 409


def test_rates_hold_for_those_that_are_there(broker: PulsarServer) -> None:
    """A namespace's own go before them."""
    slow, free = new(broker), new(broker)
    assert asked(broker, "POST", f"namespaces/{free}/publishRate", {"publishThrottlingRateInMsg": -1})[0] == 204
    with Wire(broker.port).connect() as one, Wire(broker.port).connect() as other:
        one.producer(f"persistent://{slow}/t")
        other.producer(f"persistent://{free}/t")
        set_option(broker, "maxPublishRatePerTopicInMessages", "50")
        one.producer(f"persistent://{slow}/new", 2)  # the gateway's answer comes behind what it tells of the rate
        begin = time.monotonic()
        for wire in (other, one):
            for i in range(120):
                wire.send(b"x", sequence=i)
        for _ in range(120):
            other.expect("send_receipt")
        assert time.monotonic() - begin < 1.2
        for _ in range(120):
            one.expect("send_receipt")
        assert time.monotonic() - begin >= 1.2, "120 at 50 a second, 50 of them at once"
        set_option(broker, "dispatchThrottlingRatePerTopicInMsg", "50")
        one.producer(f"persistent://{slow}/newer", 3)
        one.subscribe(f"persistent://{slow}/t", "s", initialPosition=1)
        one.flow(1000)
        begin = time.monotonic()
        one.messages(120)
        assert time.monotonic() - begin >= 1.2


def test_rates_of_the_broker_hold_for_all_topics_together(broker: PulsarServer) -> None:
    """Whatever those of their namespaces are."""
    topics = [f"persistent://{new(broker)}/t" for _ in range(2)]
    set_option(broker, "brokerPublisherThrottlingMaxMessageRate", "100")
    set_option(broker, "dispatchThrottlingRateInMsg", "50")
    with Wire(broker.port).connect() as one, Wire(broker.port).connect() as other:
        for wire, topic in zip((one, other), topics, strict=True):
            rate = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1}
            namespace = topic.partition("://")[2].rpartition("/")[0]
            assert asked(broker, "POST", f"namespaces/{namespace}/publishRate", rate)[0] == 204
            wire.producer(topic)
            wire.subscribe(topic)
        begin = time.monotonic()
        for i in range(80):
            one.send(b"x", sequence=i)
            other.send(b"x", sequence=i)
        for wire in (one, other):
            for _ in range(80):
                wire.expect("send_receipt")
        assert time.monotonic() - begin >= 0.5, "160 at 100 a second, 100 of them at once"
        begin = time.monotonic()
        for wire in (one, other):
            wire.flow(40)
            wire.messages(40)
        assert time.monotonic() - begin >= 0.5, "80 at 50 a second, 50 of them at once"


def test_topics_that_nobody_uses_go_when_the_broker_says_so(broker: PulsarServer) -> None:
    namespace = new(broker)
    assert asked(broker, "PUT", f"persistent/{namespace}/t")[0] == 204
    set_option(broker, "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", "0")
    set_option(broker, "brokerDeleteInactiveTopicsEnabled", "true")
    wait_until(lambda: asked(broker, "GET", f"persistent/{namespace}") == (200, []), "it is deleted")


def test_what_is_forced_takes_its_clients_and_topics_with_it(broker: PulsarServer) -> None:
    """Also those that another protocol's client has made."""
    namespace = new(broker)
    topic = f"persistent://{namespace}/t"
    assert asked(broker, "PUT", f"persistent/{namespace}/p/partitions", 3)[0] == 204
    with Wire(broker.port).connect() as wire:
        wire.producer(topic)
        assert asked(broker, "DELETE", f"namespaces/{namespace}?force=true")[0] == 405
        set_option(broker, "forceDeleteNamespaceAllowed", "true")
        assert asked(broker, "DELETE", f"namespaces/{namespace}?force=true")[0] == 204
        wire.expect("close_producer")
    assert asked(broker, "GET", f"namespaces/{namespace}")[0] == 404
    assert asked(broker, "PUT", f"namespaces/{namespace}")[0] == 204
    assert asked(broker, "GET", f"persistent/{namespace}") == (200, [])


def test_all_of_it_is_kept(tmp_path: Path) -> None:
    quota = {"msgRateIn": 1.0, "msgRateOut": 2.0, "bandwidthIn": 3.0, "bandwidthOut": 4.0, "memory": 5.0}
    kept = {
        f"{CONFIGURATION}/values": {"maxTenants": "77"},
        "resourcegroups/g": dict.fromkeys(
            ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes"), 5
        ),
        "resource-quotas": {**quota, "dynamic": True},
        "clusters/standalone/failureDomains": {"d": {"brokers": ["b"]}},
        "namespaces/public/kept/bundles": {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2},
    }
    with running(data_dir=tmp_path) as server:
        set_option(server, "maxTenants", "77")
        assert asked(server, "PUT", "resourcegroups/g", kept["resourcegroups/g"])[0] == 204
        assert asked(server, "POST", "resource-quotas", quota)[0] == 204
        assert asked(server, "POST", "clusters/standalone/failureDomains/d", {"brokers": ["b"]})[0] == 204
        assert asked(server, "PUT", "namespaces/public/kept", {"bundles": {"numBundles": 2}})[0] == 204
        server.kill()
    with running(data_dir=tmp_path) as server:
        assert {path: asked(server, "GET", path)[1] for path in kept} == kept
        address = asked(server, "GET", "clusters/standalone")[1]["serviceUrl"]
        assert address == f"http://{server.http}", "that of the broker as it is now"
