"""A client of nsqd's HTTP API that adds nothing of its own."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.nsq.servers import HOST, NsqServer

SECONDS = 60.0
TEXT = "text/plain; charset=utf-8"
JSON = "application/json; charset=utf-8"
VERSIONED = "nsq; version=1.0"


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str]  # by name in lower case

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)


def error(message: str) -> bytes:
    return json.dumps({"message": message}, separators=(",", ":")).encode()


def is_versioned(reply: Reply) -> bool:
    return reply.headers.get("x-nsq-content-type") == VERSIONED


def call(
    server: NsqServer | int,
    method: str,
    target: str,
    body: bytes | Iterable[bytes] = b"",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """A body that is not bytes is sent in chunks."""
    port = server if isinstance(server, int) else server.http_port
    connection = http.client.HTTPConnection(HOST, port, timeout=SECONDS)
    try:
        connection.request(method, target, body, dict(headers or {}))
        reply = connection.getresponse()
        return Reply(reply.status, reply.read(), {name.lower(): value for name, value in reply.getheaders()})
    finally:
        connection.close()


def post(server: NsqServer | int, target: str, body: bytes = b"") -> None:
    """What must succeed."""
    reply = call(server, "POST", target, body)
    assert reply.status == 200, (target, reply)


def stats(server: NsqServer | int, **fields: str) -> dict[str, Any]:
    query = "&".join(f"{name}={value}" for name, value in fields.items())
    reply = call(server, "GET", f"/stats?format=json&include_mem=false&{query}")
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.json
    return found


def topic_stats(server: NsqServer | int, topic: str) -> dict[str, Any] | None:
    found: list[dict[str, Any]] | None = stats(server, topic=topic)["topics"]
    return found[0] if found else None


def channel_stats(server: NsqServer | int, topic: str, channel: str) -> dict[str, Any] | None:
    found = topic_stats(server, topic)
    return next((c for c in found["channels"] if c["channel_name"] == channel), None) if found else None
