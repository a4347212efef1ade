"""What `stats` and `internalStats` say of producers and consumers, with the keys and types that a real 4.0.7 has
(stats_shape.json: of four subscriptions, with a client each), and what is so."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Wire, batch_of, entry_of, metadata, send_frame
from tests.servers import wait_until

SHAPE: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("stats_shape.json").read_text())
KINDS: Final = {"ex": 0, "sh": 1, "fo": 2, "ks": 3}


def differing(theirs: Any, ours: Any, at: str = "") -> list[str]:  # noqa: ANN401
    """Keys that one of them has, and values of another type."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = [f"{at}.{key}: {'ours' if key in ours else 'theirs'} only" for key in theirs.keys() ^ ours.keys()]
        both = theirs.keys() & ours.keys()
        return found + [one for key in both for one in differing(theirs[key], ours[key], f"{at}.{key}")]
    if isinstance(theirs, list):
        return [one for each in ours for one in differing(theirs[0], each, f"{at}[]")] if theirs else []
    return [] if type(ours).__name__ == theirs else [f"{at}: {ours!r} is no {theirs}"]


def stats_of(server: PulsarServer, topic: str, what: str = "stats") -> dict[str, Any]:
    found = request(server.http, "", "", "GET", f"persistent/public/default/{topic}/{what}")
    assert found["status"] == 200
    return dict(found["json"])


def test_producers_and_consumers_are_told_of_as_by_a_real_broker(server: PulsarServer, topic: str) -> None:
    # A rate is that since figures were kept last, which may have been a moment ago.
    assert any(all(told_of(server, f"{topic}-{n}")) for n in range(5))


def told_of(server: PulsarServer, topic: str) -> list[float]:
    """The rates."""
    with Wire(server.port).connect() as wire:
        wire.producer(topic, producer_name="who", metadata=[{"key": "a", "value": "b"}])
        for number, (name, kind) in enumerate(KINDS.items(), 1):
            metadata = [{"key": "x", "value": "y"}]
            wire.subscribe(topic, name, kind, number, consumer_name=f"c-{name}", metadata=metadata)
            wire.flow(10, number)
        before_ms = time.time_ns() // 1_000_000 - 10_000  # an acceptor's clock is that of its turn
        for i in range(20):
            wire.send(b"x" * 100, sequence=i)
        for number in range(1, 5):
            came = [frame.body.message_id for frame in wire.messages(10, number)]
            wire.ack(*came[:4], consumer=number)
        found = stats_of(server, topic)
        assert not differing(SHAPE["stats"], found)
        assert not differing(SHAPE["internal"], stats_of(server, topic, "internalStats"))
        (publisher,) = found["publishers"]
        assert (publisher["producerName"], publisher["metadata"]) == ("who", {"a": "b"})
        assert publisher["msgRateIn"] == found["msgRateIn"]
        assert 100 < publisher["averageMsgSize"] < 200
        assert sum(one["msgRateOut"] for one in found["subscriptions"].values()) == found["msgRateOut"]
        rates = [found["msgRateIn"], found["msgRateOut"]]
        for name, subscription in found["subscriptions"].items():
            (consumer,) = subscription["consumers"]
            assert (consumer["consumerName"], consumer["metadata"]) == (f"c-{name}", {"x": "y"})
            assert (consumer["availablePermits"], consumer["msgOutCounter"]) == (0, 10)
            assert consumer["unackedMessages"] == subscription["unackedMessages"] == (6 if name in ("sh", "ks") else 0)
            assert before_ms <= consumer["lastConsumedFlowTimestamp"]
            assert before_ms <= consumer["lastConsumedTimestamp"] <= consumer["lastAckedTimestamp"]
            assert consumer["msgRateRedeliver"] == 0
            rates.append(consumer["messageAckRate"])
            assert subscription["lastAckedTimestamp"] == consumer["lastAckedTimestamp"]
        assert found["subscriptions"]["fo"]["activeConsumerName"] == "c-fo"
        return rates


def test_a_producer_that_waits_for_the_exclusive_place_is_no_publisher_yet(server: PulsarServer, topic: str) -> None:
    with Wire(server.port).connect() as wire:
        wire.producer(topic, producer_name="holds", producer_access_mode=1)
        assert not wire.producer(topic, producer=2, producer_name="waits", producer_access_mode=2).producer_ready
        found = stats_of(server, topic)
        assert [one["producerName"] for one in found["publishers"]] == ["holds"]
        assert found["waitingPublishers"] == 1
        wire.ask("close_producer", producer_id=1)
        wait_until(lambda: stats_of(server, topic)["waitingPublishers"] == 0, "it has the place", 10)
        assert [one["producerName"] for one in stats_of(server, topic)["publishers"]] == ["waits"]


def test_a_consumer_that_has_had_nothing_has_no_messages_in_an_entry(
    wire: Wire, server: PulsarServer, topic: str
) -> None:
    wire.subscribe(topic)
    (consumer,) = stats_of(server, topic)["subscriptions"]["s"]["consumers"]
    assert consumer["avgMessagesPerEntry"] == 0


def test_what_one_of_several_consumers_has_is_its_own(server: PulsarServer, topic: str) -> None:
    """In messages, whether they came in batches or not."""
    with Wire(server.port).connect() as wire:
        wire.producer(topic)
        for number, flow in ((1, 10), (2, 20)):
            wire.subscribe(topic, "s", 1, number, consumer_name=f"c{number}")
            wire.flow(flow, number)
        for i in range(3):
            head = metadata(sequence_id=i * 10, num_messages_in_batch=10)
            wire.raw(send_frame(1, i * 10, entry_of(head, batch_of(*[b"x"] * 10))))
        frames = [wire.until(lambda frame: frame.name == "message") for _ in range(3)]
        consumers = {one["consumerName"]: one for one in stats_of(server, topic)["subscriptions"]["s"]["consumers"]}
        assert [consumers[name]["unackedMessages"] for name in ("c1", "c2")] == [10, 20]
        assert [consumers[name]["avgMessagesPerEntry"] for name in ("c1", "c2")] == [10, 10]
        again = next(frame for frame in frames if frame.body.consumer_id == 1).body.message_id
        until = time.monotonic() + 30
        while True:
            wire.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[again])
            wire.flow(10, 1)
            wire.message(1)
            found = stats_of(server, topic)["subscriptions"]["s"]
            assert sum(one["msgRateRedeliver"] for one in found["consumers"]) == found["msgRateRedeliver"]
            said = wire.ask("consumerStats", "consumerStatsResponse", consumer_id=1)
            if found["msgRateRedeliver"] and said.msgRateRedeliver and said.msgRateOut:
                break
            assert time.monotonic() < until, (found, said)
        assert said.msgThroughputOut > said.msgRateOut


def test_ranges_and_who_is_active_are_told(server: PulsarServer, topic: str) -> None:
    with Wire(server.port).connect() as wire:
        for number, ranges in ((1, (0, 1000)), (2, (1001, 65535))):
            meta = {"keySharedMode": 1, "hashRanges": [{"start": ranges[0], "end": ranges[1]}]}
            wire.subscribe(topic, "keys", 3, number, keySharedMeta=meta, consumer_name=f"c{number}")
        for number in (3, 4):
            wire.subscribe(topic, "first", 2, number, consumer_name=f"c{number}")
        found = stats_of(server, topic)["subscriptions"]
        assert found["keys"]["keySharedMode"] == "STICKY"
        assert not found["keys"]["allowOutOfOrderDelivery"]
        wire.subscribe(topic, "any", 3, 5, keySharedMeta={"keySharedMode": 0, "allowOutOfOrderDelivery": True})
        assert stats_of(server, topic)["subscriptions"]["any"]["allowOutOfOrderDelivery"]
        ranges_of = {one["consumerName"]: one["keyHashRangeArrays"] for one in found["keys"]["consumers"]}
        assert ranges_of == {"c1": [[0, 1000]], "c2": [[1001, 65535]]}

        def active() -> object:
            return stats_of(server, topic)["subscriptions"]["first"]["activeConsumerName"]

        was = active()
        assert was in ("c3", "c4")
        wire.ask("close_consumer", consumer_id=int(str(was)[1:]))
        wait_until(lambda: active() == ("c4" if was == "c3" else "c3"), "the other one is")


def test_a_subscription_without_consumers_has_the_type_of_the_last(server: PulsarServer, topic: str) -> None:
    def types() -> dict[str, str]:
        return {name: one["type"] for name, one in stats_of(server, topic)["subscriptions"].items()}

    with Wire(server.port).connect() as wire:
        for number, (name, kind) in enumerate(KINDS.items(), 1):
            wire.subscribe(topic, name, kind, number)
            wire.ask("close_consumer", consumer_id=number)
        path = f"persistent/public/default/{topic}/subscription/never"
        assert request(server.http, "", "", "PUT", path)["status"] == 204
        last = {"ex": "Exclusive", "sh": "Shared", "fo": "Failover", "ks": "Key_Shared", "never": "None"}
        assert types() == last
        wire.subscribe(topic, "ex", KINDS["fo"], 5)
        assert types() == {**last, "ex": "Failover"}
        wire.ask("close_consumer", consumer_id=5)
        assert types() == {**last, "ex": "Failover"}


def test_deduplication_of_one_topic_is_shown(server: PulsarServer, topic: str) -> None:
    path = f"persistent/public/default/{topic}"
    assert request(server.http, "", "", "PUT", path)["status"] == 204
    assert stats_of(server, topic)["deduplicationStatus"] == "Disabled"
    assert request(server.http, "", "", "POST", f"{path}/deduplicationEnabled", True)["status"] == 204
    assert stats_of(server, topic)["deduplicationStatus"] == "Enabled"


def test_a_readers_subscription_is_there_as_long_as_it_is(server: PulsarServer, topic: str) -> None:
    with Wire(server.port) as wire:
        wire.connect().producer(topic)
        wire.subscribe(topic, "reads", durable=False)
        assert stats_of(server, topic)["subscriptions"]["reads"]["isDurable"] is False
        wire.ask("close_consumer", consumer_id=1)
        assert "reads" not in stats_of(server, topic)["subscriptions"]


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_of_a_batch_each_message_is_counted_and_of_an_entry_all_its_bytes(
    server: PulsarServer, topic: str, domain: str
) -> None:
    entries = [entry_of(metadata(sequence_id=i), b"x" * 100) for i in range(8)]
    entries.append(entry_of(metadata(sequence_id=8, num_messages_in_batch=3), batch_of(b"a", b"b", b"c")))
    sizes = sum(map(len, entries))
    with Wire(server.port).connect() as wire:
        name = f"{domain}://public/default/{topic}"
        wire.producer(name)
        wire.subscribe(name)
        wire.flow(100)
        for i, entry in enumerate(entries):
            wire.raw(send_frame(1, i, entry, **({"num_messages": 3} if i == 8 else {})))
            wire.expect("send_receipt")
        wire.messages(len(entries))
        found, inside = (
            request(server.http, "", "", "GET", f"{domain}/public/default/{topic}/{what}")["json"]
            for what in ("stats", "internalStats")
        )
    assert (found["msgInCounter"], found["bytesInCounter"]) == (11, sizes)
    assert found["msgOutCounter"] == found["subscriptions"]["s"]["msgOutCounter"] == 11
    assert inside["entriesAddedCounter"] == len(entries)
    if domain == "persistent":
        assert inside["totalSize"] == inside["currentLedgerSize"] == inside["ledgers"][0]["size"] == sizes
        assert found["storageSize"] == found["backlogSize"] == sizes


def test_the_figures_of_all_topics_can_be_asked_for_at_once(server: PulsarServer, topic: str) -> None:
    with Wire(server.port).connect() as wire:
        wire.producer(topic)
        wire.subscribe(topic, "s", 1)
        wire.send(b"one")
        wire.expect("send_receipt")
        found = request(server.http, "", "", "GET", "broker-stats/topics")["json"]
    whole = f"persistent://public/default/{topic}"
    bundle = next(of for of in found["public/default"].values() if whole in of.get("persistent", {}))
    one = bundle["persistent"][whole]
    assert (one["msgInCount"], one["producerCount"], len(one["publishers"])) == (1, 1, 1)
    assert (one["subscriptions"]["s"]["msgBacklog"], one["subscriptions"]["s"]["type"]) == (1, "Shared")
    assert set(one) == {
        "publishers", "replication", "subscriptions", "producerCount", "averageMsgSize", "msgRateIn", "msgRateOut",
        "msgInCount", "bytesInCount", "msgOutCount", "bytesOutCount", "msgThroughputIn", "msgThroughputOut",
        "storageSize", "backlogSize", "pendingAddEntriesCount", "filteredEntriesCount",
    }, "as a real 4.0.7 has them"  # fmt: skip
