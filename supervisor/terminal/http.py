"""The client of http://, which can do all that the console can (docs/console.md)."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from mq_shards.supervisor.terminal.client import (
    ANSWER_S,
    CONNECT_S,
    UNAVAILABLE,
    At,
    Client,
    ClientError,
    LostError,
    Message,
    RefusedError,
    begin_tls,
    doubt,
    reason,
    words,
)
from mq_shards.supervisor.terminal.wire import LAST_WORDS

PAGE: Final = 500
LOOK: Final = 200  # messages in one request
BODY_BYTES: Final = 1 << 20
POLL_S: Final = 0.25
ALL: Final = 1 << 62
SECTION_MESSAGES: Final = 5000
SECTION_BYTES: Final = 1 << 20  # a section may have no more, unless it is one message
# The listeners that deliver messages, the preferred one first, and the scheme to connect with.
CONSUMABLE: Final = {"nsq": "nsq", "beanstalk": "beanstalk", "pulsar": "pulsar", "nats": "nats"}
ENCRYPTED: Final = {"nsq": "nsq+tls", "beanstalks": "beanstalks", "pulsar": "pulsar+ssl", "nats": "nats+tls"}
HOW: Final = "--token-file, or --user and --password-file, or $MQ_SHARDS_TOKEN"
ANY_HOST: Final = ("0.0.0.0", "::")


class _Connection(http.client.HTTPConnection):
    def __init__(self, at: At) -> None:
        super().__init__(at.host or "localhost", at.port or 80, timeout=CONNECT_S)
        self._at = at

    def connect(self) -> None:
        """Raises LostError."""
        try:
            if self._at.path:
                self.sock = socket.socket(socket.AF_UNIX)
                self.sock.settimeout(CONNECT_S)
                self.sock.connect(self._at.path)
            else:
                super().connect()
            self.sock = begin_tls(self._at, self.sock)
        except OSError as error:
            self.close()  # otherwise it cannot be used again
            raise LostError(f"no broker at {self._at}: {reason(error)}") from None
        self.sock.settimeout(ANSWER_S)


class Http(Client):
    def __init__(self, at: At) -> None:
        super().__init__(at)
        self._connection = _Connection(at)
        self._connection.connect()
        self._consumer: Client | None = None

    def close(self) -> None:
        self._connection.close()
        if self._consumer is not None:
            self._consumer.close()

    def call(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Sends a request; returns the JSON of the answer. Raises ClientError, RefusedError."""
        status, data = self._ask(method, path, body, headers)
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ClientError(f"{self.at} is no broker's http:// address: it answers {status} to {path}")
        if status >= 400:
            raise self._refusal(status, str(found.get("error") or _of_nsqd(self.at, status, found)))
        return found

    def _refusal(self, status: int, why: str) -> RefusedError:
        if status == 401 and self.at.proof is not None:
            why = f"{self.at} does not know this login"
        elif status == 401:
            why = f"{why} ({HOW})"
        return RefusedError(why or f"{self.at} answers {status}", status)

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Sends a request; returns the status and the body of the answer. Raises ClientError."""
        try:
            try:
                return self._answer(method, path, body, headers)
            except (ConnectionResetError, BrokenPipeError):
                if method != "GET":
                    raise  # the broker may have done it already
                self._connection.close()
                return self._answer(method, path, body, headers)
        except TimeoutError:
            self._connection.close()
            raise LostError(f"{self.at} has not answered for {ANSWER_S:g} s") from None
        except (ConnectionResetError, BrokenPipeError):
            self._connection.close()
            raise LostError(f"{self.at} has closed the connection without an answer: {doubt(self.at)}") from None
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            what = reason(error) if isinstance(error, OSError) else f"it speaks no HTTP ({error!r:.80})"
            raise LostError(f"{self.at}: {what}") from None

    def _answer(self, method: str, path: str, body: bytes, headers: dict[str, str] | None) -> tuple[int, bytes]:
        proof = {} if self.at.proof is None else self.at.proof.header
        self._connection.request(method, path, body, {**proof, **(headers or {})})
        with self._connection.getresponse() as reply:
            return reply.status, reply.read()

    def get(self, path: str, **fields: object) -> dict[str, Any]:
        given = {name: value for name, value in fields.items() if value is not None}
        return self.call("GET", path + ("?" + urlencode(given) if given else ""))

    def act(self, **said: object) -> dict[str, Any]:
        return self.call("POST", "/v1/act", json.dumps(said).encode(), {"Content-Type": "application/json"})

    def delete(self, topic: str) -> None:
        self.act(do="delete", topic=topic)

    # --- the calls --------------------------------------------------------------------------------------------------

    def overview(self) -> dict[str, Any]:
        return self.get("/v1/overview")

    def find(self, **fields: object) -> dict[str, Any]:
        return self.get("/v1/find", **fields)

    def topics(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        while True:
            page = self.find(order="name", limit=PAGE, **{"from": len(rows)})
            rows += page["rows"]
            if not page["rows"] or len(rows) >= page["found"]:
                self.silent = page.get("silent", ())
                return [_shown(row) for row in rows]

    def _look(self, topic: str, first: int | None, limit: int) -> dict[str, Any]:
        return self.get("/v1/peek", topic=topic, limit=limit, body=BODY_BYTES, **{"from": first})

    def peek(self, topic: str, first: int | None, limit: int) -> Iterator[Message]:
        if first is None and limit > LOOK:
            ends = self._look(topic, None, 1)
            first = max(ends["earliest"], ends["latest"] - limit)
        left = limit
        while left > 0:
            page = self._look(topic, first, min(LOOK, left))
            for one in page["messages"]:
                yield _message(topic, one)
            left -= len(page["messages"])
            first = page["next"]
            if page["next"] >= page["latest"]:
                break

    def tail(self, topic: str, last: int, place: object = None) -> Iterator[Message]:
        """Follows a topic; waits for one that does not exist yet."""
        end = self._end(topic, last)  # fails if there is no broker
        self.place = place if isinstance(place, tuple) else end
        return self._follow(topic)

    def _end(self, topic: str, last: int) -> tuple[int | None, int]:
        """Where following a topic begins: the seq, or None if the topic does not exist; how many messages of those
        that are there then."""
        try:
            ends = self._look(topic, None, 1)
        except RefusedError as error:
            if error.status == 404:
                return None, ALL  # once the topic exists, all its messages are new
            if error.status == UNAVAILABLE:
                return None, last
            raise
        return max(ends["earliest"], ends["latest"] - last), last

    def _follow(self, topic: str) -> Iterator[Message]:
        while True:
            following, last = self.place
            if following is None:
                following, last = self.place = self._end(topic, last)
            page: dict[str, Any] | None = None
            if following is not None:
                try:
                    page = self._look(topic, following, LOOK)
                except RefusedError as error:
                    if error.status == 404:
                        self.place = None, ALL
                    elif error.status != UNAVAILABLE:
                        raise
            if page is None:
                time.sleep(POLL_S)
                continue
            for one in page["messages"]:
                yield _message(topic, one)
            # A topic that is deleted and created again goes on with higher seqs; that of a broker that keeps messages
            # in memory begins anew after a restart.
            self.place = page["next"] if page["latest"] >= following else page["earliest"], last
            if page["next"] >= page["latest"]:
                time.sleep(POLL_S)

    def publish(self, topic: str, bodies: Iterable[bytes], delay_s: float = 0.0) -> int:
        count = 0
        if delay_s:
            for body in bodies:
                self.act(do="publish", topic=topic, base64=base64.b64encode(body).decode(), delay_s=delay_s)
                count += 1
            return count
        name = topic.encode()
        for some in _sections(iter(bodies)):
            data = b"".join(struct.pack(">I", len(body)) + body for body in some)
            head = struct.pack("<HHII", len(name), 0, len(some), len(data)) + name
            count += int(self.call("POST", "/v1/publish", head + data)["published"])
        return count

    def consume(self, topic: str, channel: str) -> Iterator[Message]:
        """Consumes over one of the broker's other listeners: http:// delivers nothing. Encrypted as this one is."""
        from mq_shards.supervisor.terminal.at import connect, parse

        said = [parse(address) for address in self.overview()["addresses"] if "://" in address and "+" not in address]
        failure = ClientError(f"{self.at} has no{' encrypted' if self.at.tls else ''} listener that delivers messages")
        for listener, scheme in (ENCRYPTED if self.at.tls else CONSUMABLE).items():
            for at in said:
                if at.scheme != listener:
                    continue
                # A certificate is for the name that we were given, rarely for the address that is listened on.
                host = self.at.host if self.at.tls is not None or at.host in ANY_HOST else at.host
                try:
                    self._consumer = connect(replace(self.at, scheme=scheme, host=host, port=at.port, path=at.path))
                except ClientError as error:
                    failure = error
                    continue
                return self._consumer.consume(topic, channel)
        raise failure

    def finish(self, message: Message) -> None:
        assert self._consumer is not None
        self._consumer.finish(message)


class NsqHttp(Http):
    """The client of nsqd's own HTTP API; it works with a real nsqd too."""

    def topics(self) -> list[dict[str, Any]]:
        found = self.get("/stats", format="json", include_mem="false")
        self.silent = found.get("mq_shards_silent", ())
        rows = []
        for topic in sorted(found["topics"] or (), key=lambda one: str(one["topic_name"])):
            channels = topic["channels"]
            rows.append({
                "name": topic["topic_name"], "in": None, "out": None,
                "backlog": max((c["depth"] + c["deferred_count"] for c in channels), default=topic["depth"]),
                "in_flight": sum(c["in_flight_count"] for c in channels),
                "consumers": sum(c["client_count"] for c in channels),
                "published": topic["message_count"],
            })  # fmt: skip
        return rows

    def publish(self, topic: str, bodies: Iterable[bytes], delay_s: float = 0.0) -> int:
        count = 0
        for body in bodies:
            fields = {"topic": topic} | ({"defer": round(delay_s * 1000)} if delay_s else {})
            status, data = self._ask("POST", "/pub?" + urlencode(fields), body)
            if status == 401:
                raise self._refusal(status, "a login is needed")
            if status != 200:
                raise ClientError(f"{self.at} answers {status} {words(data)[:LAST_WORDS]}")
            count += 1
        return count

    def delete(self, topic: str) -> None:
        status, data = self._ask("POST", "/topic/delete?" + urlencode({"topic": topic}), b"")
        if status != 200:
            raise self._refusal(status, f"{self.at} answers {status} {words(data)[:LAST_WORDS]}")

    def overview(self) -> dict[str, Any]:
        raise self.cannot("say how the broker is")

    def peek(self, topic: str, first: int | None, limit: int) -> Iterator[Message]:
        raise self.cannot("show messages without taking them")

    def tail(self, topic: str, last: int, place: object = None) -> Iterator[Message]:
        raise self.cannot("follow a topic without taking its messages")

    def consume(self, topic: str, channel: str) -> Iterator[Message]:
        raise self.cannot("consume")


def _of_nsqd(at: At, status: int, found: dict[str, Any]) -> str:
    """A refusal in nsqd's form, which is one word."""
    return f"{at} answers {status} {found['message']}" if "message" in found else ""


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    names = ("name", "in", "delivered", "out", "oldest_s", "in_flight", "consumers", "published", "channels", "paused")
    return {**{name: row.get(name) for name in names}, "backlog": max(row["backlog"], row["jobs"])}


def _message(topic: str, one: dict[str, Any]) -> Message:
    body = base64.b64decode(one["base64"]) if "base64" in one else one["text"].encode()
    return Message(topic, body, {name: value for name, value in one.items() if name not in ("base64", "text")})


def _sections(bodies: Iterator[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    for body in bodies:
        if some and (len(some) == SECTION_MESSAGES or size + 4 + len(body) > SECTION_BYTES):
            yield some
            some, size = [], 0
        some.append(body)
        size += 4 + len(body)
    if some:
        yield some
