"""The client of NSQ's protocol."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from mq_shards.supervisor.terminal.client import At, Client, ClientError, Message, as_word, words
from mq_shards.supervisor.terminal.wire import Wire

RESPONSE, ERROR, MESSAGE = 0, 1, 2
MAX_BATCH: Final = 200
MAX_BATCH_BYTES: Final = 1 << 20


class Nsq(Client):
    def __init__(self, at: At) -> None:
        super().__init__(at)
        self._wire = Wire(at, plain_first=True)
        said = json.dumps({"client_id": "mq-shards", "user_agent": "mq-shards", "feature_negotiation": True,
                           "tls_v1": at.tls is not None}).encode()  # fmt: skip
        self._wire.send(b"  V2IDENTIFY\n" + struct.pack(">I", len(said)) + said)
        answer = json.loads(self._response())
        if at.tls is not None:
            if not answer.get("tls_v1"):
                raise ClientError(f"{at} offers no TLS")
            self._wire.start_tls()
            self._response()
        if at.proof is not None:
            secret = at.proof.secret.encode()
            self._wire.send(b"AUTH\n" + struct.pack(">I", len(secret)) + secret)
            self._response()

    def close(self) -> None:
        self._wire.close()

    def _frame(self) -> tuple[int, bytes]:
        """The next frame that is not a heartbeat."""
        while True:
            size, kind = struct.unpack(">II", self._wire.take(8))
            data = self._wire.take(size - 4)
            if kind != RESPONSE or data != b"_heartbeat_":
                return kind, data
            self._wire.send(b"NOP\n")

    def _response(self) -> bytes:
        kind, data = self._frame()
        if kind != RESPONSE:
            raise ClientError(f"{self.at} answers {words(data)}")
        return data

    def publish(self, topic: str, bodies: Iterable[bytes], delay_s: float = 0.0) -> int:
        as_word(topic)
        count = 0
        for some in in_batches(bodies):
            if delay_s:
                for body in some:
                    head = f"DPUB {topic} {round(delay_s * 1000)}\n".encode()
                    self._wire.send(head + struct.pack(">I", len(body)) + body)
                    self._response()
            else:
                data = struct.pack(">I", len(some)) + b"".join(struct.pack(">I", len(b)) + b for b in some)
                self._wire.send(f"MPUB {topic}\n".encode() + struct.pack(">I", len(data)) + data)
                self._response()
            count += len(some)
        return count

    def consume(self, topic: str, channel: str) -> Iterator[Message]:
        self._wire.send(f"SUB {as_word(topic)} {as_word(channel, 'channel')}\n".encode())
        self._response()
        self._wire.wait_for_ever()
        return self._messages(topic)

    def _messages(self, topic: str) -> Iterator[Message]:
        while True:
            # One message at a time: those that are not shown stay with other consumers.
            self._wire.send(b"RDY 1\n")
            kind, data = self._frame()
            if kind != MESSAGE:
                raise ClientError(f"{self.at} answers {words(data)}")
            time_ns, attempts = struct.unpack(">QH", data[:10])
            self._wire.send(b"RDY 0\n")
            id = data[10:26].decode()
            yield Message(topic, data[26:], {"id": id, "attempts": attempts, "time_ns": time_ns}, id)

    def finish(self, message: Message) -> None:
        self._wire.send(b"FIN %s\n" % message.handle.encode())


def in_batches(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    for body in bodies:
        if some and (len(some) == MAX_BATCH or size + len(body) > MAX_BATCH_BYTES):
            yield some
            some, size = [], 0
        some.append(body)
        size += len(body)
    if some:
        yield some
