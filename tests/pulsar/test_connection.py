"""CONNECT and what is no conversation, on the raw wire. What must hold was seen of a real broker 4.0."""

from __future__ import annotations

import struct

import pytest
from mq_shards.acceptor.protocols.pulsar.messages import encode

from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Wire, send_frame


def test_a_client_is_told_what_is_there(server: PulsarServer) -> None:
    with Wire(server.port) as wire:
        wire.say("connect", client_version="x", protocol_version=20)
        connected = wire.expect("connected")
        assert (connected.protocol_version, connected.max_message_size) == (20, 5 << 20)
        assert not connected.feature_flags.supports_broker_entry_metadata


def test_a_ping_is_answered_before_and_after_connect(server: PulsarServer) -> None:
    with Wire(server.port) as wire:
        wire.say("ping")
        wire.expect("pong")
        wire.connect()
        wire.say("ping")
        wire.expect("pong")


def test_what_comes_with_connect_is_done_behind_it(server: PulsarServer) -> None:
    with Wire(server.port) as wire:
        lookup = encode("lookupTopic", topic="t", request_id=7)
        wire.raw(encode("connect", client_version="x", protocol_version=21) + lookup)
        wire.expect("connected")
        assert wire.expect("lookupTopicResponse").request_id == 7


BEFORE_CONNECT = [
    encode("lookupTopic", topic="t", request_id=1),
    send_frame(1, 0, b""),
    encode("flow", consumer_id=1, messagePermits=1),
]
AFTER_CONNECT = [
    encode("connect", client_version="x", protocol_version=21),
    encode("connected", server_version="x"),
    encode("flow", consumer_id=1, messagePermits=0),
    send_frame(9, 0, b""),
    struct.pack(">II", 4, 0),
    struct.pack(">II", 6, 2) + b"\xff\xff",
    struct.pack(">II", 6, 2) + b"\x08\x06",
    struct.pack(">II", 7, 3) + b"\x08\xe7\x07",
    struct.pack(">II", 8, 4) + b"\x08\x05\x2a\x00",
    struct.pack(">II", 4, 100),
    struct.pack(">I", 3) + b"xxx",
    struct.pack(">I", (5 << 20) + (10 << 10) + 1),
]


@pytest.mark.parametrize("said", BEFORE_CONNECT, ids=range(len(BEFORE_CONNECT)))
def test_only_connect_and_ping_may_come_first(server: PulsarServer, said: bytes) -> None:
    with Wire(server.port) as wire:
        wire.raw(said)
        assert wire.is_closed() and not wire.frames


@pytest.mark.parametrize("said", AFTER_CONNECT, ids=range(len(AFTER_CONNECT)))
def test_what_is_no_conversation_ends_without_a_word(wire: Wire, said: bytes) -> None:
    wire.raw(said)
    assert wire.is_closed() and not wire.frames


def test_bytes_behind_a_simple_command_mean_nothing(wire: Wire) -> None:
    frame = encode("ping")
    wire.raw(struct.pack(">I", len(frame) - 4 + 5) + frame[4:] + b"extra")
    wire.expect("pong")
    wire.quiet()


def test_what_is_said_of_an_unknown_consumer_is_ignored(wire: Wire) -> None:
    wire.flow(10, consumer=99)
    wire.say("ack", consumer_id=99, ack_type=0, message_id=[])
    wire.quiet()


def test_a_topic_is_where_its_client_is(wire: Wire, server: PulsarServer) -> None:
    found = wire.ask("lookupTopic", "lookupTopicResponse", topic="persistent://public/default/x")
    assert (found.response, found.brokerServiceUrl, found.authoritative) == (1, server.url, True)
    assert found.proxy_through_service_url


@pytest.mark.parametrize("name", ["persistent://public/default/", "x://public/default/t", "persistent://a b/c/d"])
def test_a_name_that_is_none_is_refused(wire: Wire, name: str) -> None:
    assert wire.ask("lookupTopic", "lookupTopicResponse", topic=name).error == 17
    assert wire.ask("partitionMetadata", "partitionMetadataResponse", topic=name).error == 17
    assert wire.ask("producer", "error", topic=name, producer_id=1).error == 17
    refused = wire.ask("subscribe", "error", topic=name, subscription="s", subType=0, consumer_id=1)
    assert refused.error == 17


def test_commands_that_come_in_pieces_are_put_together(wire: Wire) -> None:
    frame = encode("lookupTopic", topic="t", request_id=5)
    for byte in frame:
        wire.raw(bytes([byte]))
    assert wire.expect("lookupTopicResponse").request_id == 5
