"""A Pulsar client as raw frames."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c
from mq_shards.acceptor.protocols.pulsar.messages import Message, base_command, decode, encode

TIMEOUT_S = 60.0
MAX = (1 << 64) - 1


@dataclass
class Frame:
    name: str
    body: Message
    entry: bytes


def metadata_class() -> Message:
    return message_class("MessageMetadata")


def message_class(name: str) -> Message:
    from google.protobuf import message_factory

    descriptor = base_command().DESCRIPTOR.file.message_types_by_name[name]
    return message_factory.GetMessageClass(descriptor)


def metadata(**fields: object) -> bytes:
    given = {"producer_name": "p", "sequence_id": 0, "publish_time": 1_700_000_000_000, **fields}
    return bytes(metadata_class()(**given).SerializeToString())


def entry_of(head: bytes, payload: bytes, *, checksum: int | None = None) -> bytes:
    rest = struct.pack(">I", len(head)) + head + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(rest) if checksum is None else checksum) + rest


def send_frame(producer: int, sequence: int, entry: bytes, **fields: object) -> bytes:
    frame = encode("send", producer_id=producer, sequence_id=sequence, **fields)
    return struct.pack(">I", len(frame) - 4 + len(entry)) + frame[4:] + entry


def batch_of(*payloads: bytes) -> bytes:
    return batch_with(*((payload, {}) for payload in payloads))


def batch_with(*messages: tuple[bytes, dict[str, object]]) -> bytes:
    """Of messages with metadata of their own."""
    single = message_class("SingleMessageMetadata")
    out = b""
    for payload, fields in messages:
        head = single(payload_size=len(payload), **fields).SerializeToString()
        out += struct.pack(">I", len(head)) + head + payload
    return out


class Wire:
    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.frames: list[Frame] = []
        self.requests = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # --- what is said -----------------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, name: str, **fields: object) -> None:
        self.raw(encode(name, **fields))

    def ask(self, name: str, expected: str | None = "success", **fields: object) -> Message:
        """Its answer, by the number of the request."""
        self.requests += 1
        number = self.requests
        self.say(name, request_id=number, **fields)
        frame = self.until(lambda f: hasattr(f.body, "request_id") and f.body.request_id == number)
        assert expected is None or frame.name == expected, frame
        return frame.body

    def connect(self) -> Wire:
        self.say("connect", client_version="test", protocol_version=21)
        self.expect("connected")
        return self

    def producer(self, topic: str, producer: int = 1, **fields: object) -> Message:
        return self.ask("producer", "producer_success", topic=topic, producer_id=producer, **fields)

    def subscribe(self, topic: str, name: str = "s", kind: int = 0, consumer: int = 1, **fields: object) -> Message:
        return self.ask("subscribe", topic=topic, subscription=name, subType=kind, consumer_id=consumer, **fields)

    def send(self, payload: bytes, producer: int = 1, sequence: int = 0, **fields: object) -> None:
        head = metadata(sequence_id=sequence, **fields)
        self.raw(send_frame(producer, sequence, entry_of(head, payload)))

    def flow(self, permits: int, consumer: int = 1) -> None:
        self.say("flow", consumer_id=consumer, messagePermits=permits)

    def ack(self, *ids: object, consumer: int = 1, cumulative: bool = False, **fields: object) -> Message:
        """Until the broker says that it is done."""
        return self.ask(
            "ack", "ackResponse", consumer_id=consumer, ack_type=int(cumulative), message_id=list(ids), **fields
        )

    # --- what is heard ----------------------------------------------------------------------------------------------

    def receive(self) -> Frame | None:
        """The next frame; None: the connection was closed."""
        while len(self.buffer) < 4 or len(self.buffer) < 4 + int.from_bytes(self.buffer[:4], "big"):
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self.buffer += data
        total = 4 + int.from_bytes(self.buffer[:4], "big")
        frame, self.buffer = self.buffer[:total], self.buffer[total:]
        command_bytes = int.from_bytes(frame[4:8], "big")
        command = decode(frame[8 : 8 + command_bytes])
        assert command is not None, frame
        return Frame(*command, frame[8 + command_bytes :])

    def until(self, wanted: Callable[[Frame], bool]) -> Frame:
        """What comes before it is kept for who asks for that."""
        for i, frame in enumerate(self.frames):
            if wanted(frame):
                return self.frames.pop(i)
        while True:
            received = self.receive()
            assert received is not None, "the connection was closed"
            if wanted(received):
                return received
            if received.name == "ping":
                self.say("pong")
            else:
                self.frames.append(received)

    def expect(self, name: str) -> Message:
        return self.until(lambda frame: frame.name == name).body

    def message(self, consumer: int = 1) -> Frame:
        return self.until(lambda frame: frame.name == "message" and frame.body.consumer_id == consumer)

    def messages(self, count: int, consumer: int = 1) -> list[Frame]:
        return [self.message(consumer) for _ in range(count)]

    def quiet(self) -> None:
        """Nothing more is on its way: what was said has been done, and all that came of it is here."""
        self.ask("lookupTopic", "lookupTopicResponse", topic="quiet")

    def pending(self, name: str) -> list[Frame]:
        return [frame for frame in self.frames if frame.name == name]

    def is_closed(self) -> bool:
        """Whatever came before."""
        while (frame := self.receive()) is not None:
            if frame.name == "ping":
                self.say("pong")
            else:
                self.frames.append(frame)
        return True


def payload_of(frame: Frame) -> bytes:
    entry = frame.entry
    assert entry[:2] == b"\x0e\x01" and int.from_bytes(entry[2:6], "big") == crc32c(entry[6:])
    size = int.from_bytes(entry[6:10], "big")
    return entry[10 + size :]


def metadata_of(frame: Frame) -> Message:
    size = int.from_bytes(frame.entry[6:10], "big")
    return metadata_class().FromString(frame.entry[10 : 10 + size])
