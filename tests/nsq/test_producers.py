"""Who publishes, as /stats shows it: of the real nsqd and of mq-shards."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any

from tests.nsq import frames
from tests.nsq.api import call, post, stats
from tests.nsq.servers import NsqServer
from tests.nsq.wire import Wire, consumer, unique_topic
from tests.servers import Shape, wait_until

PRODUCED_TOPICS = 8  # csrc/acceptor/protocols/nsq/nsq_producers.h


def port_of(wire: Wire) -> int:
    return int(wire.socket.getsockname()[1])


def of(server: NsqServer, who: Wire | int, **fields: str) -> dict[str, Any] | None:
    """As /stats has who this is, or comes from this port, if it does."""
    port = who if isinstance(who, int) else port_of(who)
    listed = stats(server, **fields)["producers"] or []
    found = [one for one in listed if one["remote_address"].endswith(f":{port}")]
    assert len(found) <= 1
    return found[0] if found else None


def counts(producer: Mapping[str, Any] | None) -> dict[str, int]:
    return {one["topic"]: one["count"] for one in (producer or {}).get("pub_counts", ())}


def test_one_who_has_published_is_a_producer_until_he_goes(server: NsqServer) -> None:
    topic = unique_topic()
    with Wire(server) as wire:
        begun = int(time.time())
        wire.identify(hostname="host", client_id="me", user_agent="agent")
        assert of(server, wire) is None
        for command in (frames.pub(topic, b"a"), frames.mpub(topic, [b"b", b"c"]), frames.dpub(topic, 60_000, b"d")):
            assert wire.ask(command).data == b"OK"
        found = of(server, wire, topic=topic)
        assert found is not None
        assert counts(found) == {topic: 4}
        assert (found["hostname"], found["client_id"], found["user_agent"]) == ("host", "me", "agent")
        assert (found["version"], found["state"], found["tls"]) == ("V2", 0, False)
        assert begun - 60 < found["connect_ts"] < begun + 60
        text = call(server, "GET", f"/stats?topic={topic}").body.decode()
        who = f"host:{port_of(wire)} agent"
        line = rf"   \[V2 {who:<21}\] msgs: 4        topics: {topic}=4 connected: \d+s\n"
        assert re.search(rf"\nProducers:\n(?s:.*){line}", text), text
        assert stats(server, topic="nobody-made-it")["producers"] is None
        # With another topic he is there, and nothing that he has published.
        other = unique_topic()
        post(server, f"/topic/create?topic={other}")
        shown = of(server, wire, topic=other)
        assert shown is not None
        assert "pub_counts" not in shown
        assert stats(server, include_clients="false")["producers"] is None
        port = port_of(wire)
    wait_until(lambda: of(server, port) is None, "he is forgotten")


def test_one_who_never_said_who_he_is_goes_by_his_address(server: NsqServer) -> None:
    with Wire(server) as wire:
        assert wire.ask(frames.pub(unique_topic(), b"a")).data == b"OK"
        found = of(server, wire)
        assert found is not None
        assert found["hostname"] == found["client_id"] == "127.0.0.1"
        assert time.time() - 600 < found["connect_ts"] <= time.time() + 1


def test_the_keys_are_nsqds(server: NsqServer) -> None:
    with Wire(server) as wire:
        assert wire.ask(frames.pub(unique_topic(), b"a")).data == b"OK"
        found = of(server, wire)
    assert found is not None
    assert set(found) == {
        "client_id", "hostname", "version", "remote_address", "state", "ready_count", "in_flight_count",
        "message_count", "finish_count", "requeue_count", "connect_ts", "sample_rate", "deflate", "snappy",
        "user_agent", "pub_counts", "tls", "tls_cipher_suite", "tls_version", "tls_negotiated_protocol",
        "tls_negotiated_protocol_is_mutual",
    }  # fmt: skip


def test_who_only_consumes_is_none(server: NsqServer) -> None:
    with consumer(server, unique_topic()) as wire:
        assert of(server, wire) is None
        assert wire.ask(frames.pub("to-somebody", b"a")).data == b"OK"
        found = of(server, wire)
        assert found is not None
        assert (found["state"], counts(found)) == (3, {"to-somebody": 1})


def test_all_are_listed_with_each_of_their_topics(server: NsqServer, shape: Shape) -> None:
    """More of both than an acceptor tells at once. nsqd shows one topic of each."""
    topics = [unique_topic("produced") for _ in range(PRODUCED_TOPICS)]
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(server)) for _ in range(150)]
        for n, wire in enumerate(wires):
            wire.send(b"".join(frames.pub(topic, b"x") for topic in topics) + frames.pub(topics[0], b"x") * n)
        for n, wire in enumerate(wires):
            assert {frame.data for frame in wire.frames(len(topics) + n)} == {b"OK"}
        listed = {one["remote_address"].rpartition(":")[2]: counts(one) for one in stats(server)["producers"]}
        for n, wire in enumerate(wires):
            expected = dict.fromkeys(topics, 1) | {topics[0]: 1 + n}
            found = listed[str(port_of(wire))]
            assert found == expected if shape.is_shards else found.items() <= expected.items()


def test_of_more_topics_than_there_is_room_for_the_first_are_counted(server: NsqServer, shape: Shape) -> None:
    topics = [unique_topic("first") for _ in range(PRODUCED_TOPICS + 3)]
    with Wire(server) as wire:
        for _ in range(2):
            for topic in topics:
                assert wire.ask(frames.pub(topic, b"x")).data == b"OK"
        found = counts(of(server, wire))
        if shape.is_shards:
            assert found == dict.fromkeys(topics[:PRODUCED_TOPICS], 2)
        else:
            assert len(found) == 1
        shown = of(server, wire, topic=topics[-1])
        assert counts(shown) == ({} if shape.is_shards else {topics[-1]: 2})
