"""A topic's own policies are obeyed, and fit each other, as at a real broker."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

import pytest

from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Wire

NAMESPACE: Final = "persistent/public/default"
MIB: Final = 1 << 20
AVRO: Final = 4
_numbers: Final = itertools.count()


def ask(server: PulsarServer, method: str, path: str, body: object = None) -> dict[str, Any]:
    return request(server.http, "", "", method, path, body)


def made(server: PulsarServer, topic: str) -> str:
    assert ask(server, "PUT", f"{NAMESPACE}/{topic}")["status"] == 204
    return f"{NAMESPACE}/{topic}"


def schema(kind: str) -> dict[str, object]:
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    return {"name": "s", "type": AVRO, "schema_data": json.dumps(record).encode()}


@pytest.mark.parametrize(
    ("strategy", "may_follow"),
    [("BACKWARD", True), ("FORWARD", False), ("ALWAYS_COMPATIBLE", True), ("ALWAYS_INCOMPATIBLE", False)],
)
def test_a_topic_has_a_schema_compatibility_strategy_of_its_own(
    server: PulsarServer, wire: Wire, topic: str, strategy: str, may_follow: bool
) -> None:
    path = made(server, topic)
    wire.producer(topic, 1, schema=schema("int"))
    assert ask(server, "PUT", f"{path}/schemaCompatibilityStrategy", strategy)["status"] == 204
    answer = wire.ask("producer", None, topic=topic, producer_id=2, schema=schema("long"))
    assert (answer.DESCRIPTOR.name == "ProducerSuccess") == may_follow


NO_RATE: Final = {
    "dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 0, "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}  # fmt: skip
# What a real standalone 4.0.7 shows of a topic for which nothing was set, but for inactive topics, which it deletes.
APPLIED: Final[dict[str, object]] = {
    "dispatchRate": NO_RATE,
    "subscriptionDispatchRate": NO_RATE,
    "replicatorDispatchRate": NO_RATE,
    "s/dispatchRate": NO_RATE,
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30},
    "retention": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
    "messageTTL": 0,
    "maxProducers": 0,
    "maxConsumers": 0,
    "maxUnackedMessagesOnConsumer": 50000,
    "maxUnackedMessagesOnSubscription": 200000,
    "delayedDelivery": {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0},
    "deduplicationEnabled": False,
    "persistence": {
        "bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 1.0,
    },
    "compactionThreshold": 0,
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 60,
        "deleteWhileInactive": False,
    },
    "schemaCompatibilityStrategy": "FULL",
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": True},
    "backlogQuotaMap": {
        kind: {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
        for kind in ("destination_storage", "message_age")
    },
}  # fmt: skip


def test_what_applies_is_shown_where_nothing_was_set(server: PulsarServer, topic: str) -> None:
    path = made(server, topic)
    assert {name: ask(server, "GET", f"{path}/{name}?applied=true").get("json") for name in APPLIED} == APPLIED
    assert not ask(server, "GET", f"{path}/dispatchRate").get("json")


def test_what_a_namespace_retains_and_lets_wait_counts_for_a_topic_that_has_none_of_its_own(
    server: PulsarServer, topic: str
) -> None:
    space = f"namespaces/public/{topic}"
    assert ask(server, "PUT", space)["status"] == 204
    path = f"persistent/public/{topic}/t"
    assert ask(server, "PUT", path)["status"] == 204
    day = {"limitTime": 86400, "policy": "producer_exception"}
    assert ask(server, "POST", f"{space}/backlogQuota?backlogQuotaType=message_age", day)["status"] == 204
    hour = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 1000}
    assert ask(server, "POST", f"{path}/retention", hour)["status"] == 412
    assert ask(server, "DELETE", f"{space}/backlogQuota?backlogQuotaType=message_age")["status"] == 204
    assert ask(server, "POST", f"{space}/retention", hour)["status"] == 204
    assert ask(server, "POST", f"{path}/backlogQuota?backlogQuotaType=message_age", day)["status"] == 412


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_partition_has_the_policies_of_its_topic_and_none_of_its_own(
    server: PulsarServer, topic: str, domain: str
) -> None:
    """What was set for one would hold for nobody."""
    path = f"{domain}/public/default/{topic}"
    assert ask(server, "PUT", f"{path}/partitions", 2)["status"] == 204
    refused = {"status": 412, "json": {"reason": "Not allowed to set/get topic policy for a partition"}}
    quota = {"limitSize": 10, "policy": "producer_exception"}
    for partition in (f"{path}-partition-1", f"{path}-partition-7"):
        for name in (*APPLIED, "publishRate", "entryFilters", "shadowTopics", "offloadPolicies", "replication"):
            assert ask(server, "GET", f"{partition}/{name}") == refused, name
        assert ask(server, "POST", f"{partition}/maxProducers", 1) == refused
        assert ask(server, "POST", f"{partition}/backlogQuota", quota) == refused
        assert ask(server, "DELETE", f"{partition}/maxProducers") == refused
    assert ask(server, "POST", f"{path}/maxProducers", 1)["status"] == 204


def test_a_rate_of_replicators_is_stored_and_shown(server: PulsarServer, topic: str) -> None:
    rate = {**NO_RATE, "dispatchThrottlingRateInMsg": 5, "relativeToPublishRate": True}
    space = f"namespaces/public/{topic}"
    assert ask(server, "PUT", space)["status"] == 204
    for path in (space, made(server, topic)):
        assert ask(server, "POST", f"{path}/replicatorDispatchRate", rate)["status"] == 204
        assert ask(server, "GET", f"{path}/replicatorDispatchRate")["json"] == rate
        assert ask(server, "DELETE", f"{path}/replicatorDispatchRate")["status"] == 204
        assert not ask(server, "GET", f"{path}/replicatorDispatchRate").get("json")


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        ("{path}/maxConsumersPerSubscription", "maxConsumersPerSubscription"),
        ("{path}/compactionThreshold", "compactionThreshold"),
        ("namespaces/public/default/subscriptionExpirationTime", "subscription expiration time"),
    ],
)
def test_a_number_that_is_too_small_is_refused_in_a_real_brokers_words(
    server: PulsarServer, topic: str, policy: str, what: str
) -> None:
    found = ask(server, "POST", policy.format(path=made(server, topic)), -60)
    assert (found["status"], found["json"]["reason"]) == (412, f"Invalid value for {what}")


def test_a_message_larger_than_the_topic_allows_is_refused(server: PulsarServer, wire: Wire, topic: str) -> None:
    path = made(server, topic)
    wire.producer(topic)
    assert ask(server, "POST", f"{path}/maxMessageSize", 1000)["status"] == 204
    for sequence in range(1000):
        wire.send(b"x" * 1000, sequence=sequence)
        frame = wire.until(lambda frame: frame.name in ("send_receipt", "send_error"))
        if frame.name == "send_error":  # the policy has been told to the acceptor
            break
    assert (frame.body.error, frame.body.message) == (22, "Exceed maximum message size")
    wire.send(b"x" * 100, sequence=1001)
    wire.expect("send_receipt")


@pytest.mark.parametrize(
    ("of", "kind"), [("topic", "destination_storage"), ("topic", "message_age"), ("namespace", "")]
)
def test_a_backlog_quota_is_less_than_what_is_retained(server: PulsarServer, topic: str, of: str, kind: str) -> None:
    if of == "topic":
        path = made(server, topic)
    else:
        path = f"namespaces/public/quota{next(_numbers)}"
        assert ask(server, "PUT", path)["status"] == 204
    quota_path = f"{path}/backlogQuota" + (f"?backlogQuotaType={kind}" if kind else "")
    retention = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}

    def quota(**limits: int) -> int:
        return int(ask(server, "POST", quota_path, {"policy": "producer_exception", **limits})["status"])

    assert quota(limitSize=10 * MIB) == 204
    refused = ask(server, "POST", f"{path}/retention", retention)
    assert refused["status"] == 412
    assert refused["json"]["reason"].startswith(f"Retention Quota must exceed configured backlog quota for {of}.")
    assert quota(limitSize=9 * MIB, limitTime=599) == 204
    assert ask(server, "POST", f"{path}/retention", retention)["status"] == 204
    assert quota(limitTime=600) == quota(limitSize=10 * MIB) == 412


def test_stats_without_clients(server: PulsarServer, wire: Wire, topic: str) -> None:
    wire.producer(topic)
    wire.subscribe(topic)
    path = f"{NAMESPACE}/{topic}/stats"
    found = ask(server, "GET", path)["json"]
    assert len(found["publishers"]) == len(found["subscriptions"]["s"]["consumers"]) == 1
    found = ask(server, "GET", f"{path}?excludePublishers=true&excludeConsumers=true")["json"]
    assert (found["publishers"], found["subscriptions"]["s"]["consumers"]) == ([], [])
