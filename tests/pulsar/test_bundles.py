"""Bundles of a namespace, and what pulsar-admin asks of a load balancer and of a JVM that are not here."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import zlib
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mq_shards.acceptor.protocols.pulsar.names import topic_name
from mq_shards.gateway import turns
from mq_shards.gateway.pulsar.bundles import DEFAULT, bundle_of, evenly, names_of, shown
from mq_shards.gateway.pulsar.http_all import HttpAll

from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer
from tests.pulsar.test_listing import Counting
from tests.pulsar.wire import Wire

NS = "namespaces/public/default"


def asked(server: PulsarServer, method: str, path: str) -> tuple[int, Any]:
    answer = play(server.http, (method, path))
    return answer["status"], answer.get("json")


def test_a_bundle_chooses_topics_by_the_crc_of_their_names(wire: Wire, server: PulsarServer, topic: str) -> None:
    assert bundle_of(DEFAULT, "persistent://public/default/sometopic") == "0x80000000_0xc0000000", "as a real broker"
    name, bundle = f"persistent://public/default/{topic}", bundle_of(DEFAULT, f"persistent://public/default/{topic}")
    low = bundle.partition("_")[0]
    other = next(one for one in names_of(DEFAULT) if one != bundle)
    wire.subscribe(name)
    wire.producer(name)
    wire.send(b"x")
    wire.until(lambda frame: frame.name == "send_receipt")

    def backlog() -> int:
        stats = asked(server, "GET", f"persistent/public/default/{topic}/stats")[1]
        return int(stats["subscriptions"]["s"]["msgBacklog"])

    assert asked(server, "POST", f"{NS}/{other}/clearBacklog/s")[0] == 204
    assert backlog() == 1
    assert asked(server, "POST", f"{NS}/{bundle}/clearBacklog/s")[0] == 204
    assert backlog() == 0
    assert asked(server, "PUT", f"{NS}/{other}/unload")[0] == 204
    wire.quiet()
    assert not wire.pending("close_consumer")
    assert asked(server, "PUT", f"{NS}/{bundle}/unload")[0] == 204
    wire.until(lambda frame: frame.name == "close_consumer")
    assert asked(server, "PUT", f"{NS}/{low}_0xfffffffe/unload") == (
        412,
        {
            "reason": f"Invalid upper boundary for bundle public/default/{low}_0xfffffffe. "
            f"Expected upper boundary of public/default/{bundle}"
        },
    )
    assert asked(server, "PUT", f"{NS}/junk/unload")[0] == 412


def test_the_broker_owns_all_bundles(server: PulsarServer) -> None:
    [broker] = asked(server, "GET", "brokers/standalone")[1]
    status, owned = asked(server, "GET", f"brokers/standalone/{broker}/ownedNamespaces")
    of_default = {name: about for name, about in owned.items() if name.startswith("public/default/")}
    about = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    assert status == 200
    assert of_default == {f"public/default/{name}": about for name in names_of(DEFAULT)}


@pytest.mark.parametrize("given", [5, "0x00000000", {"a": 1}, [5], ["junk"], ["0x1ffffffff"]])
def test_boundaries_that_are_none_are_refused(server: PulsarServer, given: object) -> None:
    wanted = {"bundles": {"numBundles": 2, "boundaries": given}}
    assert play(server.http, ("PUT", "namespaces/public/no-boundaries", wanted))["status"] == 400
    assert asked(server, "GET", "namespaces/public/no-boundaries")[0] == 404


def test_others_have_their_turn_while_the_topics_of_a_bundle_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.0)  # as if the clock of each turn had run out
    names = [f"persistent://public/default/t{i}" for i in range(20_000)]

    async def topics(namespace: str, domain: str) -> list[str]:
        return names

    async def chosen(**bundle: str) -> tuple[list[Any], int]:
        control = SimpleNamespace(namespace=lambda *_: SimpleNamespace(policies={}), topics=topics)
        call = SimpleNamespace(namespace="public/default", names=bundle)
        counting = Counting()
        found = await counting.during(HttpAll(cast(Any, control), cast(Any, None))._topics(cast(Any, call)))
        return found, counting.count

    found, others = asyncio.run(chosen(bundle="0x40000000_0x80000000"))
    assert found == [topic_name(name) for name in names if zlib.crc32(name.encode()) >> 30 == 1]
    assert others > 40, "some names in each turn"
    found, others = asyncio.run(chosen())
    assert len(found) == len(names) and others > 30


def test_what_is_asked_of_a_load_balancer_and_a_jvm_is_read_by_pulsar_admin(server: PulsarServer) -> None:
    assert asked(server, "GET", "broker-stats/mbeans") == (200, [])
    assert asked(server, "GET", "broker-stats/allocator-stats/default")[1]["directArenas"] == []
    assert asked(server, "GET", "broker-stats/allocator-stats/x") == (
        406, {"reason": "Invalid allocator name : x"},
    )  # fmt: skip
    assert asked(server, "GET", "brokers/backlog-quota-check")[0] == 204


def test_boundaries_are_those_of_a_real_broker() -> None:
    assert shown(evenly(3))["boundaries"] == ["0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff"]
    assert shown(evenly(1000000))["boundaries"][:3] == ["0x00000000", "0x000010c6", "0x0000218c"]
    assert bundle_of(evenly(16), "persistent://public/b1/t1") == "0xc0000000_0xd0000000"
    assert bundle_of(evenly(1), "persistent://public/b1/t1") == "0x00000000_0xffffffff"


def test_what_is_said_of_bundles_agrees_with_what_was_set(server: PulsarServer) -> None:
    ns = "namespaces/public/sixteen"
    assert play(server.http, ("PUT", ns, {"bundles": {"numBundles": 16}}))["status"] == 204
    assert asked(server, "PUT", "persistent/public/sixteen/t")[0] == 204
    of_topic = bundle_of(evenly(16), "persistent://public/sixteen/t")
    low, high = (int(text, 16) for text in of_topic.split("_"))
    looked_up = play(server.http, ("GET", "/lookup/v2/topic/persistent/public/sixteen/t/bundle"))
    assert looked_up["text"] == of_topic
    assert asked(server, "GET", f"persistent/public/sixteen?bundle={of_topic}")[1] == ["persistent://public/sixteen/t"]
    assert asked(server, "PUT", f"{ns}/LARGEST/split")[0] == 204, "that of the only topic"
    boundaries = asked(server, "GET", f"{ns}/bundles")[1]["boundaries"]
    assert boundaries == shown(tuple(sorted((*evenly(16), low + (high - low) // 2))))["boundaries"]
    assert asked(server, "GET", ns)[1]["bundles"]["boundaries"] == boundaries
    [broker] = asked(server, "GET", "brokers/standalone")[1]
    owned = asked(server, "GET", f"brokers/standalone/{broker}/ownedNamespaces")[1]
    assert sum(name.startswith("public/sixteen/") for name in owned) == 17
    assert asked(server, "DELETE", f"{ns}/{of_topic}")[0] == 412, "there is no such bundle any more"
    now = play(server.http, ("GET", "/lookup/v2/topic/persistent/public/sixteen/t/bundle"))["text"]
    assert asked(server, "DELETE", f"{ns}/{now}") == (409, {"reason": "Cannot delete non empty bundle"})
    assert asked(server, "DELETE", "persistent/public/sixteen/t")[0] == 204
    assert asked(server, "DELETE", f"{ns}/{now}")[0] == 204


def test_the_namespaces_of_an_anti_affinity_group_are_found_where_pulsar_admin_asks(server: PulsarServer) -> None:
    ns = "namespaces/public/apart-from-others"
    assert asked(server, "PUT", ns)[0] == 204
    body = b"group"  # no JSON: pulsar-admin sends the name as it is
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=30)) as connection:
        connection.request("POST", f"/admin/v2/{ns}/antiAffinity", body, {"Content-Type": "application/json"})
        assert connection.getresponse().status == 204
    for path in ("/admin/namespaces/standalone/antiAffinity/group?property=public",
                 "namespaces/standalone/antiAffinity/group?tenant=public"):  # fmt: skip
        assert asked(server, "GET", path) == (200, ["public/apart-from-others"])
    assert asked(server, "GET", "namespaces/standalone/antiAffinity/group?tenant=pulsar") == (200, [])


def test_topics_that_are_not_persistent_are_listed_by_bundle(server: PulsarServer, wire: Wire) -> None:
    name = "non-persistent://public/default/by-bundle"
    wire.producer(name)
    bundle = bundle_of(DEFAULT, name)
    assert name in asked(server, "GET", f"non-persistent/public/default/{bundle}")[1]
    other = next(one for one in names_of(DEFAULT) if one != bundle)
    assert name not in asked(server, "GET", f"non-persistent/public/default/{other}")[1]
    assert asked(server, "GET", f"persistent/public/default/{bundle}")[0] == 405
