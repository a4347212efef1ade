"""Bodies of the REST API: taken as a real 4.0.7 takes them, and refused, whatever they are, without a traceback."""

from __future__ import annotations

import itertools
import re
from typing import Any, Final, cast

import pytest
from mq_shards.gateway.pulsar.http_all import HttpAll
from mq_shards.gateway.pulsar.http_namespaces import HttpNamespaces
from mq_shards.gateway.pulsar.http_schemas import HttpSchemas
from mq_shards.gateway.pulsar.http_subscriptions import HttpSubscriptions
from mq_shards.gateway.pulsar.http_tenants import HttpTenants
from mq_shards.gateway.pulsar.http_topic_policies import HttpTopicPolicies
from mq_shards.gateway.pulsar.http_topics import HttpTopics
from mq_shards.gateway.pulsar.http_transactions import HttpTransactions
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.scalars import decimal, flag, whole

from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer, running

ODD: Final[list[object]] = [
    *(True, 3, -1, 1.5, 1 << 62, (1 << 64) - 1, 1e300, "", "x", "3", [], [None], [[]], [1], {}, {"a": {}}),
    *({"partitions": []}, {"properties": 1}, {"ledgerId": [], "entryId": {}}, {"policy": [], "limitSize": {}}),
    *({"retentionTimeInMinutes": {}}, {"adminRoles": 1, "allowedClusters": {}}, {"type": 1, "schema": []}),
    *({"topicType": [], "allowAutoTopicCreation": "true"}, {"type": "KEY_VALUE", "schema": "{}", "properties": []}),
    {"ledgerId": 1 << 62, "entryId": (1 << 64) - 1},
]
_numbers = itertools.count()


@pytest.mark.parametrize(
    ("given", "taken"),
    [(3, 3), ("3", 3), (" 3 ", 3), ("+3", 3), ("03", 3), ("-3", -3), (3.7, 3), ("", 0), ("null", 0), (None, 0)],
)
def test_a_whole_number_is_taken_in_all_its_ways(given: object, taken: int) -> None:
    assert whole(given, "it") == taken


@pytest.mark.parametrize("given", [True, "3.7", "2.0", "0x3", "x", [3], {}, "99999999999999999999", 1e300])
def test_what_is_no_whole_number_is_refused(given: object) -> None:
    with pytest.raises(RefusedError, match="it is not a whole number"):
        whole(given, "it")


@pytest.mark.parametrize(
    ("given", "taken"),
    [(True, True), ("true", True), ("TRUE", True), ("True", True), (1, True), (0, False), (" false ", False)],
)
def test_a_flag_is_taken_in_all_its_ways(given: object, taken: bool) -> None:
    assert flag(given, "it") is taken


@pytest.mark.parametrize("given", ["yes", "1", 1.5, [True], {}])
def test_what_is_no_flag_is_refused(given: object) -> None:
    with pytest.raises(RefusedError, match="it is neither true nor false"):
        flag(given, "it")


def test_a_number_with_a_fraction_may_be_a_string() -> None:
    assert decimal("2.5", "it") == decimal(2.5, "it") == 2.5
    for given in ("x", True, "nan", "inf", []):
        with pytest.raises(RefusedError, match="it is not a number"):
            decimal(given, "it")


def test_pulsar_rs_makes_partitions_with_a_string(server: PulsarServer, topic: str) -> None:
    path = f"persistent/public/default/{topic}/partitions"
    assert request(server.http, "", "", "PUT", path, "3")["status"] == 204
    assert request(server.http, "", "", "GET", path)["json"]["partitions"] == 3
    assert request(server.http, "", "", "POST", path, "4")["status"] == 204
    assert request(server.http, "", "", "GET", path)["json"]["partitions"] == 4


def test_policies_in_strings_are_kept_as_what_they_are(server: PulsarServer) -> None:
    namespace = f"namespaces/public/b{next(_numbers)}"
    assert request(server.http, "", "", "PUT", namespace)["status"] == 204
    for name, given, kept in (
        ("messageTTL", "7", 7),
        ("deduplication", "true", True),
        ("maxProducersPerTopic", 5.9, 5),
        (
            "retention",
            {"retentionTimeInMinutes": "10", "retentionSizeInMB": 20.6},
            {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20},
        ),
        (
            "delayedDelivery",
            {"active": "true", "tickTime": None},
            {"active": True, "tickTime": 0, "maxDeliveryDelayInMillis": 0},
        ),
        (
            "autoTopicCreation",
            {"allowAutoTopicCreation": 1, "topicType": "partitioned", "defaultNumPartitions": "4"},
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4},
        ),
    ):
        assert request(server.http, "", "", "POST", f"{namespace}/{name}", given)["status"] == 204, name
        assert request(server.http, "", "", "GET", f"{namespace}/{name}")["json"] == kept


def _routes() -> list[tuple[str, str]]:
    """Method and path of all that change something; the parts that handlers are made of are not needed to list them."""
    nothing = cast("Any", None)
    rooms = (
        HttpNamespaces(nothing), HttpTopicPolicies(nothing, deduplicates=False),
        HttpTopics(nothing, nothing, nothing, nothing),
        HttpSubscriptions(nothing, nothing), HttpSchemas(nothing), HttpAll(nothing, nothing),
        HttpTransactions(nothing, nothing, ""), HttpTenants(nothing, nothing, nothing, nothing),
    )  # fmt: skip
    return sorted(
        (method, path)
        for room in rooms
        for path, methods in room.routes.items()
        for method in methods
        if method in ("POST", "PUT")
    )


@pytest.mark.parametrize(
    "path",
    ["bookies/racks-info/b:1", "clusters/far/migrate", "/admin/v3/transactions/transactionCoordinator/replicas"],
)
def test_what_there_is_none_of_here_cannot_be_set_and_says_so(server: PulsarServer, path: str) -> None:
    found = request(server.http, "", "", "POST", path, {})
    assert found["status"] == 501
    assert found["json"]["reason"].startswith("this broker has ")


@pytest.mark.parametrize("parts", [3, pytest.param(1, marks=pytest.mark.long)])
def test_odd_bodies_are_answered_without_a_failure_of_ours(topic: str, parts: int) -> None:
    """By a broker of its own: whatever is taken changes what others find there. With `parts` 3 each operation is asked
    with a third of the bodies."""
    with running() as server:
        ask_for_all(server, topic, parts)


def ask_for_all(server: PulsarServer, topic: str, parts: int) -> None:
    names = {
        "domain": "persistent", "tenant": "public", "namespace": "default", "topic": topic, "subscription": "s",
        "cluster": "standalone", "role": "r", "of": "s", "key": "k", "value": "v", "seconds": "9999999",
    }  # fmt: skip
    path = f"persistent/public/default/{topic}"
    assert request(server.http, "", "", "PUT", path)["status"] == 204
    start = {"ledgerId": -1, "entryId": -1}
    assert request(server.http, "", "", "PUT", f"{path}/subscription/s", start)["status"] == 204
    failed = []
    for number, (method, pattern) in enumerate(_routes()):
        target = re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "1"), pattern)
        for body in ODD[number % parts :: parts]:
            found = request(server.http, "", "", method, target, body)
            if found["status"] >= 500 and found["status"] != 501:
                failed.append((method, target, body, found))
    assert not failed, "\n".join(map(str, failed))
    assert "Traceback" not in server.stderr.read_text()
