"""The client of NATS's protocol: a topic is a subject. A message that no one hears is lost, unless a topic keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from mq_shards.supervisor.terminal.client import At, Client, ClientError, LostError, Message, as_word, words
from mq_shards.supervisor.terminal.wire import Wire

# Errors after which a server closes a connection that may be opened again.
PASSING: Final = ("'Slow Consumer'", "'Stale Connection'", "'Server Shutdown'", "'Write Deadline Exceeded'")


class Nats(Client):
    missed = "; what was published meanwhile is not shown"

    def __init__(self, at: At) -> None:
        super().__init__(at)
        self._wire = Wire(at, plain_first=True)
        kind, _, info = self._wire.line().partition(b" ")
        if kind != b"INFO":
            raise ClientError(f"{at} is no NATS server")
        if at.tls is not None:
            offered = json.loads(info)
            if not (offered.get("tls_required") or offered.get("tls_available")):
                raise ClientError(f"{at} offers no TLS")
            self._wire.start_tls()
        said = {"verbose": False, "pedantic": False, "name": "mq-shards", "lang": "mq-shards", "version": "0",
                "headers": True, "no_responders": False, "protocol": 1, "tls_required": at.tls is not None}  # fmt: skip
        if at.proof is not None:
            by_token = {"auth_token": at.proof.token}
            said |= by_token if at.proof.token else {"user": at.proof.user, "pass": at.proof.password}
        self._wire.send(b"CONNECT " + json.dumps(said).encode() + b"\r\nPING\r\n")
        self._pong()

    def close(self) -> None:
        self._wire.close()

    def _pong(self) -> None:
        while True:
            line = self._wire.line()
            if line == b"PONG":
                return
            if line.startswith(b"-ERR"):
                raise ClientError(f"{self.at} answers {words(line)[5:]}")

    def publish(self, topic: str, bodies: Iterable[bytes], delay_s: float = 0.0) -> int:
        if delay_s:
            raise self.cannot("delay a message")
        subject = as_word(topic).encode()
        count = 0
        for body in bodies:
            self._wire.send(b"PUB %s %d\r\n%b\r\n" % (subject, len(body), body))
            count += 1
        self._wire.send(b"PING\r\n")
        self._pong()
        return count

    def consume(self, topic: str, channel: str) -> Iterator[Message]:
        """Consumes as one of a queue group, the channel: each message goes to one of its members."""
        return self._hear(b"SUB %s %s 1\r\n" % (as_word(topic).encode(), as_word(channel, "channel").encode()))

    def tail(self, topic: str, last: int, place: object = None) -> Iterator[Message]:
        if last:
            raise self.cannot("show what was published before")
        return self._hear(b"SUB %s 1\r\n" % as_word(topic).encode())

    def _hear(self, subscribe: bytes) -> Iterator[Message]:
        self._wire.send(subscribe + b"PING\r\n")
        self._wire.wait_for_ever()
        return self._messages()

    def _messages(self) -> Iterator[Message]:
        while True:
            line = self._wire.line()
            kind = line.partition(b" ")[0]
            if kind == b"PING":
                self._wire.send(b"PONG\r\n")
            elif kind == b"-ERR":
                error = LostError if words(line)[5:] in PASSING else ClientError
                raise error(f"{self.at} answers {words(line)[5:]}")
            elif kind in (b"MSG", b"HMSG"):
                yield self._message(line.split(b" "))

    def _message(self, fields: list[bytes]) -> Message:
        data = self._wire.take(int(fields[-1]) + 2)[:-2]
        head = int(fields[-2]) if fields[0] == b"HMSG" else 0
        more = {}
        if len(fields) > (5 if head else 4):
            more["reply"] = words(fields[3])
        if head:
            more["headers"] = words(data[:head]).strip()
        return Message(words(fields[1]), data[head:], more)
