"""Topics and channels that end in #ephemeral vanish with the last consumer; others stay."""

from __future__ import annotations

import json
import urllib.request

from tests.nsq.servers import NsqServer
from tests.nsq.wire import Wire, consumer, unique_topic
from tests.servers import wait_until


def channels(server: NsqServer, topic: str) -> list[str] | None:
    """The topic's channels, or None without the topic."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/stats?format=json") as reply:
        stats = json.load(reply)
    for found in stats["topics"]:
        if found["topic_name"] == topic:
            return sorted(channel["channel_name"] for channel in found["channels"])
    return None


def test_an_ephemeral_channel_starts_anew_after_its_last_consumer(server: NsqServer, topic: str) -> None:
    with consumer(server, topic, "anchor", rdy=100) as anchor, Wire(server) as producer:
        first, second = (consumer(server, topic, "ch#ephemeral", rdy=1) for _ in range(2))
        producer.publish(topic, b"1", b"2", b"3")
        bodies = {first.message().body, second.message().body}
        assert len(bodies) == 2
        first.close()
        second.close()
        sent = 3

        def is_new() -> bool:
            """What is published while nobody is there comes only if the channel is still the old one."""
            nonlocal sent
            producer.publish(topic, b"nobody is there")
            with consumer(server, topic, "ch#ephemeral", rdy=100) as wire:
                sent += 1
                return wire.is_quiet()

        wait_until(is_new, "the channel is gone")
        assert len(anchor.messages(sent)) == sent, "the other channel has missed nothing"


def test_it_stays_while_one_consumer_is_there(server: NsqServer, topic: str) -> None:
    with consumer(server, topic, "ch#ephemeral") as last, Wire(server) as producer:
        consumer(server, topic, "ch#ephemeral").close()
        producer.publish(topic, b"1", b"2")
        last.rdy(2)
        assert [message.body for message in last.messages(2)] == [b"1", b"2"]


def test_stats_know_what_has_vanished(server: NsqServer) -> None:
    durable, ephemeral = unique_topic(), unique_topic() + "#ephemeral"
    wires = [
        consumer(server, durable, "stays"), consumer(server, durable, "goes#ephemeral"),
        consumer(server, ephemeral, "one#ephemeral"), consumer(server, ephemeral, "two#ephemeral"),
    ]  # fmt: skip
    assert channels(server, durable) == ["goes#ephemeral", "stays"]
    assert channels(server, ephemeral) == ["one#ephemeral", "two#ephemeral"]
    wires.pop().close()
    wait_until(lambda: channels(server, ephemeral) == ["one#ephemeral"], "a channel is gone, the topic is not")
    for wire in wires:
        wire.close()
    wait_until(lambda: channels(server, durable) == ["stays"], "the ephemeral channel is gone")
    wait_until(lambda: channels(server, ephemeral) is None, "the ephemeral topic is gone")


def test_a_durable_channel_keeps_an_ephemeral_topic(server: NsqServer) -> None:
    topic = unique_topic() + "#ephemeral"
    consumer(server, topic, "durable").close()
    with Wire(server) as producer:
        producer.publish(topic, b"x")
    with consumer(server, topic, "durable", rdy=1) as wire:
        assert wire.message().body == b"x"


def test_an_ephemeral_topic_keeps_messages_for_its_first_channel(server: NsqServer) -> None:
    topic = unique_topic() + "#ephemeral"
    with Wire(server) as producer:
        producer.publish(topic, b"1")
        producer.publish_many(topic, [b"2", b"3"])
    with consumer(server, topic, "ch#ephemeral", rdy=3) as wire:
        assert [message.body for message in wire.messages(3)] == [b"1", b"2", b"3"]
