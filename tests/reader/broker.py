"""A broker of several processes with the pipeline's HTTP API, and a client of it that adds nothing of its own."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.nsq.api import Reply, call
from tests.nsq.servers import HOST, SHARDS, NsqServer, listening, running
from tests.reader.disk import Sent, decode_runs
from tests.servers import wait_until

LISTEN = (f"--listen=http://{HOST}:0",)


class Broker:
    def __init__(self, server: NsqServer) -> None:
        self.server = server
        wait_until(lambda: "http" in listening(server), "it has said where it listens")
        self.port = listening(server)["http"]

    def call(self, method: str, target: str, body: bytes = b"") -> Reply:
        return call(self.port, method, target, body)

    def json(self, target: str, method: str = "GET", body: bytes = b"", status: int = 200) -> dict[str, object]:
        reply = self.call(method, target, body)
        assert reply.status == status, reply
        found: dict[str, object] = reply.json
        return found

    def publish(self, *messages: tuple[str, bytes]) -> Reply:
        return self.call("POST", "/v1/publish", encode(messages))

    def stage(self, name: str, at: int, body: bytes) -> Reply:
        return self.call("POST", f"/v1/staged/{name}?at={at}", body)

    def decide(self, writer: str, batch: int, staged: dict[str, int], **more: object) -> Reply:
        said = {"batch": batch, "staged": [{"name": name, "bytes": size} for name, size in staged.items()], **more}
        return self.call("PUT", f"/v1/writers/{writer}", json.dumps(said).encode())

    def state(self, writer: str) -> str | None:
        reply = self.call("GET", f"/v1/writers/{writer}")
        return reply.json["state"] if reply.status == 200 else None

    def topic(self, name: str) -> dict[str, int]:
        topics = self.json("/v1/topics")["topics"]
        assert isinstance(topics, list)
        return next((topic for topic in topics if topic["topic"] == name), {})

    def records(self, topic: str, first: int, **fields: int) -> tuple[list[Sent], dict[str, int]]:
        query = "".join(f"&{name}={value}" for name, value in fields.items())
        reply = self.call("GET", f"/v1/records?topic={topic}&from={first}{query}")
        assert reply.status == 200, reply
        seqs = {name[2:]: int(reply.headers[name]) for name in ("x-earliest", "x-complete", "x-latest", "x-next")}
        return decode_runs(reply.body), seqs

    def read_all(self, topic: str, **fields: int) -> list[Sent]:
        sent: list[Sent] = []
        at, latest = 0, 1
        while at < latest:
            more, seqs = self.records(topic, at, **fields)
            sent += more
            at, latest = seqs["next"], seqs["latest"]
        return sent


def section(topic: str, *bodies: bytes) -> bytes:
    data = b"".join(struct.pack(">I", len(body)) + body for body in bodies)
    return struct.pack("<HHII", len(topic.encode()), 0, len(bodies), len(data)) + topic.encode() + data


def encode(messages: Sequence[tuple[str, bytes]], most: int = 1 << 20) -> bytes:
    """A section ends where the topic changes, or with `most` bytes."""
    sections: list[bytes] = []
    topic, bodies, size = "", list[bytes](), 0
    for name, body in messages:
        if bodies and (name != topic or size + 4 + len(body) > most):
            sections.append(section(topic, *bodies))
            bodies, size = [], 0
        topic = name
        bodies.append(body)
        size += 4 + len(body)
    return b"".join((*sections, section(topic, *bodies) if bodies else b""))


@contextlib.contextmanager
def started(data_dir: Path | None, *arguments: str) -> Iterator[Broker]:
    with running(SHARDS, data_dir=data_dir, arguments=(*LISTEN, *arguments)) as server:
        yield Broker(server)
