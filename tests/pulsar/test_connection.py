"""CONNECT and what is no conversation, on the raw wire. What must hold was seen of a real broker 4.0."""

from __future__ import annotations

import struct

import pytest
from mq_shards.acceptor.protocols.pulsar.messages import base_command, encode

from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import MAX, Wire, send_frame


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


def with_number(name: str, field: str, number: int, **others: object) -> bytes:
    """The frame of a command with a number that its enumeration does not have, which protobuf would not write."""
    command = base_command()
    kind = command.DESCRIPTOR.fields_by_name[name]
    for part in field.split("."):
        kind = kind.message_type.fields_by_name[part]
    before, after = bytes([kind.number << 3, 1]), bytes([kind.number << 3, number])
    frame = encode(name, **others)
    assert frame.count(before) == 1, "its place is not known"
    return frame.replace(before, after)


OF_NO_ENUMERATION = {
    "a type of subscription": with_number("subscribe", "subType", 4, topic="odd", subscription="s", subType=1,
        consumer_id=7, request_id=9),
    "a mode of keys": with_number("subscribe", "keySharedMeta.keySharedMode", 2, topic="odd", subscription="s",
        subType=3, consumer_id=7, request_id=9, keySharedMeta={"keySharedMode": 1}),
    "a type of acknowledgement": with_number("ack", "ack_type", 2, consumer_id=7, ack_type=1),
    "a type of schema": with_number("getOrCreateSchema", "schema.type", 22, topic="odd", request_id=9,
        schema={"name": "", "schema_data": b"", "type": 1}),
    "an end of a transaction": with_number("endTxn", "txn_action", 2, request_id=9, txnid_least_bits=7,
        txnid_most_bits=7, txn_action=1),
}  # fmt: skip


@pytest.mark.parametrize("said", OF_NO_ENUMERATION)
def test_what_must_be_given_and_is_none_of_its_kind_ends_the_connection(wire: Wire, said: str) -> None:
    wire.raw(OF_NO_ENUMERATION[said])
    assert wire.is_closed() and not wire.frames


def test_what_may_be_left_out_and_is_none_of_its_kind_counts_as_left_out(wire: Wire) -> None:
    wire.raw(with_number("producer", "producer_access_mode", 4, topic="odd-mode", producer_id=7, request_id=9,
        producer_access_mode=1))  # fmt: skip
    assert not wire.expect("producer_success").HasField("topic_epoch")  # Shared
    wire.raw(with_number("getTopicsOfNamespace", "mode", 3, namespace="public/default", request_id=9, mode=1))
    assert "persistent://public/default/odd-mode" in wire.expect("getTopicsOfNamespaceResponse").topics


@pytest.mark.parametrize("entry", [b"", b"\x0e", b"\x0e\x01", b"\x0e\x01\0\0\0"])
def test_an_entry_that_is_cut_off_in_its_checksum_ends_the_connection(wire: Wire, entry: bytes) -> None:
    wire.producer("odd-entry")
    wire.raw(send_frame(1, 0, entry))
    assert wire.is_closed() and not wire.frames


TWICE = [{"key": "k", "value": "1"}, {"key": "k", "value": "2"}]


@pytest.mark.parametrize("said", [
    ("producer", {"topic": "odd", "producer_id": 7, "metadata": TWICE}),
    ("subscribe", {"topic": "odd", "subscription": "s", "subType": 1, "consumer_id": 7, "metadata": TWICE}),
    ("endTxn", {"txnid_least_bits": 7, "txnid_most_bits": 0}),
    ("getSchema", {"topic": "odd", "schema_version": b"short"}),
    ("watchTopicList", {"namespace": "public", "watcher_id": 1, "topics_pattern": ".*"}),
    ("getTopicsOfNamespace", {"namespace": "a/b/c/d"}),
], ids=lambda said: said[0])  # fmt: skip
def test_what_a_real_broker_stumbles_over_ends_the_connection(wire: Wire, said: tuple[str, dict[str, object]]) -> None:
    wire.say(said[0], request_id=9, **said[1])
    assert wire.is_closed() and not wire.frames


def test_an_empty_version_and_a_readers_schema_are_no_schema(wire: Wire) -> None:
    found = wire.ask("getSchema", "getSchemaResponse", topic="odd", schema_version=b"")
    assert (found.error_code, found.error_message) == (18, "Empty schema version")
    schema = {"name": "", "schema_data": b"", "type": 21}
    refused = wire.ask("getOrCreateSchema", "getOrCreateSchemaResponse", topic="odd", schema=schema)
    assert (refused.error_code, refused.error_message) == (18, "Schema AUTO_CONSUME is a client-side schema type")


@pytest.mark.parametrize("connected", [True, False], ids=["after CONNECT", "before"])
def test_credentials_that_nobody_asked_for_are_refused(server: PulsarServer, *, connected: bool) -> None:
    with Wire(server.port) as wire:
        if connected:
            wire.connect()
        wire.say("authResponse", response={"auth_method_name": "token", "auth_data": b"x"})
        refused = wire.expect("error")
        assert (refused.error, refused.message, refused.request_id) == (3, "Failed to authenticate", MAX)
        assert wire.is_closed()


@pytest.mark.parametrize("said", BEFORE_CONNECT, ids=range(len(BEFORE_CONNECT)))
def test_only_connect_and_ping_may_come_first(server: PulsarServer, said: bytes) -> None:
    with Wire(server.port) as wire:
        wire.raw(said)
        assert wire.is_closed() and not wire.frames


@pytest.mark.parametrize("said", AFTER_CONNECT, ids=range(len(AFTER_CONNECT)))
def test_what_is_no_conversation_ends_without_a_word(wire: Wire, said: bytes) -> None:
    wire.raw(said)
    assert wire.is_closed() and not wire.frames


def test_of_two_types_of_a_command_the_last_counts(server: PulsarServer) -> None:
    with Wire(server.port) as wire:
        ping = b"\x08\x02" + encode("ping")[8:]
        wire.raw(struct.pack(">II", 4 + len(ping), len(ping)) + ping)
        wire.expect("pong")


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
