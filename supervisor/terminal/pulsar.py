"""The client of Pulsar's protocol. Splits batches; shows compressed or encrypted messages as they are."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from mq_shards.acceptor.protocols.pulsar.messages import Message as Command
from mq_shards.acceptor.protocols.pulsar.messages import base_command, decode, encode
from mq_shards.shards.checksum import crc32c
from mq_shards.supervisor.terminal.client import ANSWER_S, At, Client, ClientError, LostError, Message
from mq_shards.supervisor.terminal.wire import Wire

CHECKSUM: Final = b"\x0e\x01"
SHARED, EXCLUSIVE = 1, 0
AT_ONCE: Final = 100
NEWEST: Final = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}
SERVICE_NOT_READY: Final = 6


class Pulsar(Client):
    def __init__(self, at: At) -> None:
        super().__init__(at)
        self._wire = Wire(at, first_s=ANSWER_S)  # the first answer is to the login, and wrong ones wait for it
        self._requests = 0
        login: dict[str, Any] = {}
        if at.proof is None and at.has_certificate:
            login = {"auth_method_name": "tls"}
        elif at.proof is not None:
            method = "token" if at.proof.token else "basic"
            login = {"auth_method_name": method, "auth_data": at.proof.secret.encode()}
        self._wire.send(encode("connect", client_version="mq-shards", protocol_version=19, **login))
        self._until("connected")

    def close(self) -> None:
        self._wire.close()

    def _receive(self) -> tuple[str, Command, bytes]:
        size = int.from_bytes(self._wire.take(4), "big")
        frame = self._wire.take(size)
        command_bytes = int.from_bytes(frame[:4], "big")
        found = decode(frame[4 : 4 + command_bytes])
        if found is None:
            raise ClientError(f"{self.at} sends what is no command")
        return *found, frame[4 + command_bytes :]

    def _until(self, *wanted: str) -> tuple[Command, bytes]:
        while True:
            name, command, rest = self._receive()
            if name == "ping":
                self._wire.send(encode("pong"))
            elif name in wanted:
                return command, rest
            elif name in ("error", "send_error", "close_consumer", "close_producer"):
                passes = name.startswith("close_") or command.error == SERVICE_NOT_READY
                error = LostError if passes else ClientError
                raise error(f"{self.at} answers {getattr(command, 'message', '') or name}")

    def _ask(self, name: str, answer: str, **fields: object) -> Command:
        self._requests += 1
        self._wire.send(encode(name, request_id=self._requests, **fields))
        return self._until(answer)[0]

    def publish(self, topic: str, bodies: Iterable[bytes], delay_s: float = 0.0) -> int:
        name = f"mq-shards-{os.getpid()}-{time.time_ns()}"
        self._ask("producer", "producer_success", topic=topic, producer_id=1, producer_name=name)
        sent = count = 0
        for body in bodies:
            fields: dict[str, Any] = {"producer_name": name, "sequence_id": sent, "publish_time": _now_ms()}
            if delay_s:
                fields["deliver_at_time"] = _now_ms() + round(delay_s * 1000)
            self._wire.send(_frame(sent, _class("MessageMetadata")(**fields).SerializeToString(), body))
            sent += 1
            if sent - count >= AT_ONCE:
                self._until("send_receipt")
                count += 1
        while count < sent:
            self._until("send_receipt")
            count += 1
        return count

    def consume(self, topic: str, channel: str) -> Iterator[Message]:
        self._ask("subscribe", "success", topic=topic, subscription=channel, subType=SHARED, consumer_id=1)
        return self._messages(topic)

    def finish(self, message: Message) -> None:
        if message.handle is not None:
            self._wire.send(encode("ack", consumer_id=1, ack_type=0, message_id=[message.handle]))

    def tail(self, topic: str, last: int, place: object = None) -> Iterator[Message]:
        """Follows a topic as a reader, without a durable subscription."""
        if last:
            raise self.cannot("show the last messages")
        self._ask(
            "subscribe", "success", topic=topic, subscription=f"tail-{os.getpid()}-{time.time_ns()}", subType=EXCLUSIVE,
            consumer_id=1, durable=False, start_message_id=place or NEWEST,
        )  # fmt: skip
        self.place = place or self._where_it_stands(topic)
        return self._messages(topic)

    def _where_it_stands(self, topic: str) -> dict[str, int] | None:
        """The place of the next message, even if there is none yet. None: the topic keeps no messages."""
        if topic.startswith("non-persistent://"):
            return None
        done = self._ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1).consumer_mark_delete_position
        return _behind(done.ledgerId, done.entryId)

    def _messages(self, topic: str) -> Iterator[Message]:
        self._wire.wait_for_ever()
        while True:
            self._wire.send(encode("flow", consumer_id=1, messagePermits=1))
            command, entry = self._until("message")
            place = {"ledgerId": command.message_id.ledgerId, "entryId": command.message_id.entryId}
            bodies = list(_taken_apart(topic, entry, f"{place['ledgerId']}:{place['entryId']}"))
            if self.place is not None:
                self.place = _behind(**place)
            for left, (body, more) in zip(reversed(range(len(bodies))), bodies, strict=True):
                yield Message(topic, body, more, None if left else place)  # the last one acknowledges the batch


def _behind(ledgerId: int, entryId: int) -> dict[str, int]:  # noqa: N803
    """The place of the entry behind this one. The first of a ledger is 0, and before it is -1."""
    return {"ledgerId": ledgerId, "entryId": (entryId + 1) % (1 << 64)}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _class(name: str) -> Any:  # noqa: ANN401
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(base_command().DESCRIPTOR.file.message_types_by_name[name])


def _frame(sequence: int, head: bytes, body: bytes) -> bytes:
    rest = struct.pack(">I", len(head)) + head + body
    entry = CHECKSUM + struct.pack(">I", crc32c(rest)) + rest
    frame = encode("send", producer_id=1, sequence_id=sequence)
    return struct.pack(">I", len(frame) - 4 + len(entry)) + frame[4:] + entry


def _taken_apart(topic: str, entry: bytes, place: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    if entry.startswith(CHECKSUM):
        entry = entry[6:]
    head_bytes = int.from_bytes(entry[:4], "big")
    head = _class("MessageMetadata").FromString(entry[4 : 4 + head_bytes])
    body = entry[4 + head_bytes :]
    more: dict[str, Any] = {"id": place, "time_ns": int(head.publish_time) * 1_000_000}
    if head.HasField("partition_key"):
        more["key"] = head.partition_key
    if head.properties:
        more["properties"] = {one.key: one.value for one in head.properties}
    if head.compression:
        more["compressed"] = True
    elif head.HasField("num_messages_in_batch"):
        at = 0
        for _ in range(head.num_messages_in_batch):
            size = int.from_bytes(body[at : at + 4], "big")
            single = _class("SingleMessageMetadata").FromString(body[at + 4 : at + 4 + size])
            begin = at + 4 + size
            at = begin + single.payload_size
            yield body[begin:at], more
        return
    yield body, more
