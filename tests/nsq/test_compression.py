"""Snappy and deflate, alone and inside TLS: the same protocol, whatever the pieces that the stream comes in."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.nsq import frames
from tests.nsq.certificates import Certificates
from tests.nsq.frames import OK, Frame
from tests.nsq.servers import NsqServer
from tests.nsq.streams import SNAPPY_MAGIC, Deflate, snappy_chunk
from tests.nsq.wire import Wire, consumer

Connect = Callable[..., Wire]

KINDS = ["snappy", "snappy-uncompressed-chunks", "deflate", "deflate-1", "tls-snappy", "tls-deflate"]


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest, tls_server: NsqServer, certificates: Certificates) -> Connect:
    """Makes a connection of this kind that has told what it wants and had every OK."""
    words = request.param.split("-")

    def make(**fields: object) -> Wire:
        wire = Wire(tls_server)
        deflate, snappy, tls = "deflate" in words, "snappy" in words, "tls" in words
        level = {"deflate_level": 1} if "1" in words else {}
        answer = wire.identify(deflate=deflate, snappy=snappy, tls_v1=tls, output_buffer_timeout=25, **level, **fields)
        assert (answer["deflate"], answer["snappy"], answer["tls_v1"]) == (deflate, snappy, tls)
        if tls:
            wire.start_tls(certificates.context())
            assert wire.frame() == OK
        if snappy:
            wire.start_snappy(compress="uncompressed" not in words)
        else:
            wire.start_deflate(1 if "1" in words else 6)
        assert wire.frame() == OK
        return wire

    return make


def test_commands_errors_and_messages(connect: Connect, topic: str) -> None:
    with connect(sample_rate=0, msg_timeout=5000) as wire:
        wire.publish(topic, b"1")
        wire.publish_many(topic, [b"2", b"3"])
        wire.publish_deferred(topic, 0, b"4")
        wire.subscribe(topic, "ch", rdy=2)
        first, second = wire.messages(2)
        assert (first.body, second.body) == (b"1", b"2")
        wire.fin(first)
        wire.req(second)
        third, fourth = wire.messages(2)
        assert wire.is_not_in_flight(first)
        wire.touch(third)
        assert {third.body, fourth.body} < {b"2", b"3", b"4"}
        assert wire.ask("CLS\n") == Frame(0, b"CLOSE_WAIT")
        wire.fails("STOP\n", "E_INVALID invalid command STOP")


def test_what_compresses_well_and_what_does_not(connect: Connect, topic: str) -> None:
    draw = random.Random(4)
    bodies = [
        b"\0" * (1024 * 1024), draw.randbytes(1024 * 1024), b"x", draw.randbytes(65536), b"ab" * 32768,
        *(draw.randbytes(draw.randint(1, 300)) for _ in range(200)),
    ]  # fmt: skip
    with connect() as wire:
        wire.publish_many(topic, bodies)
        wire.subscribe(topic, "ch", rdy=300)
        messages = wire.messages(len(bodies))
        assert [message.body for message in messages] == bodies
        wire.fin(*messages)
        assert wire.is_not_in_flight(messages[-1])


def test_bytes_one_by_one(connect: Connect, topic: str) -> None:
    """Each byte of what is compressed alone in its segment, or in its TLS record."""
    with connect() as wire:
        assert wire.filter is not None
        data = wire.filter.encode(frames.pub(topic, b"x" * 100) + b"NOP\n") + wire.filter.encode(
            frames.sub(topic, "ch")
        )
        for byte in data:
            wire.socket.sendall(bytes([byte]))
        assert wire.frames(2) == [OK, OK]


def test_each_byte_compressed_alone(connect: Connect, topic: str) -> None:
    with connect() as wire:
        for byte in frames.pub(topic, b"x" * 20) + frames.sub(topic, "ch"):
            wire.send(bytes([byte]))
        assert wire.frames(2) == [OK, OK]


def test_pipelined_and_random_pieces(connect: Connect, tls_server: NsqServer, topic: str) -> None:
    draw = random.Random(5)
    bodies = [b"%d:" % n + draw.randbytes(draw.choice([1, 100, 9000])) for n in range(200)]
    with connect() as wire:
        assert wire.filter is not None
        data = b"".join(wire.filter.encode(frames.pub(topic, body)) for body in bodies)
        at = 0
        while at < len(data):
            size = draw.randint(1, 20_000)
            wire.socket.sendall(data[at : at + size])
            at += size
        assert wire.frames(200) == [OK] * 200
    with consumer(tls_server, topic, rdy=200) as reader:
        assert [message.body for message in reader.messages(200)] == bodies


def test_a_client_that_leaves_is_noticed(connect: Connect, tls_server: NsqServer, topic: str) -> None:
    with connect() as wire:
        wire.publish(topic, b"before")
        wire.send(frames.pub(topic, b"cut off")[:-1])
    with consumer(tls_server, topic, rdy=5) as reader:
        assert reader.message().body == b"before"
        assert reader.is_quiet()


GARBAGE = [
    b"PUB in the clear\n" * 3, b"\0" * 100, b"\xff" * 100, random.Random(6).randbytes(1000),
    SNAPPY_MAGIC + snappy_chunk(b"NOP\n")[:4] + b"\0\0\0\0" + snappy_chunk(b"NOP\n")[8:],  # a wrong checksum
    SNAPPY_MAGIC + b"\x02\x01\x00\x00x",  # a chunk of a kind that may not be skipped
    SNAPPY_MAGIC + b"\x00\xff\xff\xff" + b"x" * 100,  # a chunk larger than any
    b"\xff\x06\x00\x00SNAPPY",
]  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda data: repr(data[:12]))
def test_what_is_no_snappy_ends_the_connection(server: NsqServer, topic: str, garbage: bytes) -> None:
    with Wire(server) as wire:
        assert wire.identify(snappy=True)["snappy"] is True
        wire.start_snappy()
        assert wire.frame() == OK
        wire.socket.sendall(garbage)
        wire.end_sending()
        assert wire.frames_until_close() == []


@pytest.mark.parametrize("garbage", [b"\xff" * 100, b"PUB in the clear\n" * 3], ids=lambda data: repr(data[:12]))
def test_what_is_no_deflate_ends_the_connection(server: NsqServer, topic: str, garbage: bytes) -> None:
    with Wire(server) as wire:
        assert wire.identify(deflate=True)["deflate"] is True
        wire.start_deflate()
        assert wire.frame() == OK
        wire.socket.sendall(garbage)
        wire.end_sending()
        assert wire.frames_until_close() == []


def test_chunks_that_may_be_skipped_are_skipped(server: NsqServer, topic: str) -> None:
    with Wire(server) as wire:
        wire.identify(snappy=True)
        wire.start_snappy()
        assert wire.frame() == OK
        padding = b"\xfe\x05\x00\x00-----" + b"\x80\x00\x00\x00" + SNAPPY_MAGIC
        wire.socket.sendall(SNAPPY_MAGIC + padding + snappy_chunk(frames.pub(topic, b"x")) + padding)
        assert wire.frame() == OK


def test_deflate_blocks_may_be_of_any_kind(server: NsqServer, topic: str) -> None:
    """Stored ones too, as with level 0."""
    with Wire(server) as wire:
        wire.identify(deflate=True)
        wire.start_deflate()
        assert wire.frame() == OK
        wire.socket.sendall(Deflate(0).encode(frames.pub(topic, b"x" * 70_000)))
        assert wire.frame() == OK


def test_a_message_is_limited_by_its_size_unpacked(limited: NsqServer, topic: str) -> None:
    with Wire(limited) as wire:
        wire.identify(deflate=True)
        wire.start_deflate(3)
        assert wire.frame() == OK
        wire.fails(
            f"PUB {topic}\n".encode() + frames.size(1_000_000), "E_BAD_MESSAGE PUB message too big 1000000 > 100"
        )
