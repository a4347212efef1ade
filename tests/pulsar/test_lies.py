"""Entries that are not what they say: consumers of all protocols get them as they are, or nothing of them; others are
served."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest
from crc32c import crc32c
from mq_shards.gateway.pulsar.metadata import Metadata, uncompressed

from tests.nsq import wire as nsq
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire, batch_of, entry_of, metadata, send_frame
from tests.servers import children, comm_of, free_port

MIB = 1 << 20
BOMB = bytes(48 * MIB)
PACKED = {
    1: bytes(cramjam.lz4.compress_block(BOMB[: 5 * MIB], store_size=False)),
    2: zlib.compress(BOMB, 9),
    3: bytes(cramjam.zstd.compress(BOMB, 9)),
    4: bytes(cramjam.snappy.compress_raw(BOMB[: 4 * MIB])),
}
MOST = (1 << 31) - 1
# Of an acceptor that opens them, beside what it had: the largest message there may be, several times over.
ROOM_KB = 160 << 10


def peak_kb(server: PulsarServer) -> int:
    """Of the process that has the connections."""
    pid = next(pid for pid in children(server.process.pid) if comm_of(pid).startswith("mq-acceptor"))
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1])


def lying_entries() -> Iterator[tuple[dict[str, object], bytes]]:
    for kind, packed in PACKED.items():
        for size in (0, 1000, 5 * MIB, 5 * MIB + 1, (1 << 32) - 1):
            for count in ({}, {"num_messages_in_batch": 1}, {"num_messages_in_batch": MOST}):
                yield {"compression": kind, "uncompressed_size": size, **count}, packed
    sizes = struct.pack(">I", 4) + b"\x18" + b"\xff" * 8 + b"\x01"  # a payload of -1 bytes, nearly
    for count in (-1, 0, 1, 1000, 1024, 1025, 16384, 16385, MOST):
        for payload in (b"", b"\xff" * 40, bytes(40), batch_of(b"1", b"2"), b"\xff\xff\xff\xffx", sizes):
            yield {"num_messages_in_batch": count}, payload
    for chunk, chunks, total in ((0, 2, MOST), (5, 2, 5), (0, MOST, 1), (0, -1, -1)):
        yield {"chunk_id": chunk, "num_chunks_from_msg": chunks, "total_chunk_msg_size": total, "uuid": "u"}, b"part"


def lying_metadata() -> Iterator[bytes]:
    """With a checksum that is right, and with none."""
    for size in (0, 1, 100, MOST, (1 << 32) - 1):
        rest = struct.pack(">I", size) + metadata() + b"payload"
        yield b"\x0e\x01" + struct.pack(">I", crc32c(rest)) + rest
        yield rest
    yield from (b"\x0e\x01\0\0\0\0", bytes(4))


def test_entries_that_lie_cost_nobody_anything() -> None:
    port = free_port()
    with (
        running(listen=[f"nats://127.0.0.1:{port}"], settings=["nats.topics=bound.>"]) as server,
        socket.create_connection(("127.0.0.1", port), timeout=60) as listener,
        nsq.Wire(server.other_port) as consumer,
        Wire(server.port).connect() as wire,
        Wire(server.port).connect() as subscriber,
    ):
        listener.sendall(b'CONNECT {"headers":true,"verbose":false}\r\nSUB bound.x 1\r\nPING\r\n')
        said = b""
        while not said.endswith(b"PONG\r\n"):
            said += listener.recv(1 << 16)
        consumer.identify(heartbeat_interval=60_000)  # a busy machine takes longer than the usual half minute
        consumer.subscribe("bound.x", "channel")
        consumer.send(b"RDY 2500\n")
        wire.producer("bound.x")
        subscriber.subscribe("bound.x", kind=1)
        subscriber.flow(1 << 28)  # a batch takes as many as it says that it has
        before_kb, sent = peak_kb(server), 0
        for fields, payload in lying_entries():
            wire.raw(send_frame(1, sent, entry_of(metadata(sequence_id=sent, **fields), payload)))
            sent += 1
        for entry in lying_metadata():
            wire.raw(send_frame(1, sent, entry))
            sent += 1
        for _ in range(sent):
            wire.until(lambda frame: frame.name in ("send_receipt", "send_error"))
        wire.send(b"the last of all", sequence=sent)
        wire.expect("send_receipt")
        while not said.endswith(b"the last of all\r\n"):
            said = said[-100:] + listener.recv(1 << 20)
        # Unacknowledged, one with very many messages would be all that a Shared consumer may have.
        while not (message := subscriber.message()).entry.endswith(b"the last of all"):
            subscriber.ack(message.body.message_id)
        while consumer.message().body != b"the last of all":
            pass
        assert peak_kb(server) - before_kb < ROOM_KB


def test_a_frame_may_come_in_any_pieces(wire: Wire, topic: str) -> None:
    wire.subscribe(topic, kind=1)
    wire.producer(topic)
    wire.flow(10)
    for piece in (1, 3, 7, 1000):
        said = b"".join(send_frame(1, n, entry_of(metadata(sequence_id=n), b"%d" % n * 1200)) for n in range(3))
        for at in range(0, len(said), piece):
            wire.raw(said[at : at + piece])
        assert [frame.entry[-1:] for frame in wire.messages(3)] == [b"0", b"1", b"2"]
        wire.flow(3)


@pytest.mark.parametrize("says", [1, 1000, MIB])
def test_a_snappy_payload_is_not_decompressed_further_than_it_says(says: int) -> None:
    body = b"x" * MIB
    payload = bytes(cramjam.snappy.compress_raw(body))
    shown = uncompressed(Metadata(compression=4, uncompressed_bytes=says), payload, MIB)
    assert shown == (body if says == MIB else payload)
