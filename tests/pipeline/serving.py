"""A broker's HTTP API (docs/pipeline-http.md) over log segments in a data directory, with faults on demand.

It stands in for the gateway where a test needs what a broker does not do on request: a reply that ends too early, a
message that is gone, a byte that is wrong.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import crc32c
from mq_shards.shards import dump

TOPIC, PUBLISH, MOVED = 1, 3, 6


@dataclass
class Message:
    segment: int
    seq: int
    time_ns: int
    record: bytes


def record(segment: int, seq: int, body: bytes, *, time_ns: int = 0, identity: int = 0, attributes: bytes = b"",
           kind: int = PUBLISH, flags: int = 0) -> bytes:  # fmt: skip
    """As csrc/log/layout.h lays it out, padded."""
    size = 40 + len(attributes) + len(body)
    rest = struct.pack("<BBHIQQQ", kind, len(attributes), flags, 1, seq, time_ns, identity) + attributes + body
    crc = crc32c.crc32c(rest, crc32c.crc32c(struct.pack("<II", size, segment)))
    return struct.pack("<II", size, crc) + rest + bytes(-size % 8)


def run(segment: int, records: list[bytes]) -> bytes:
    return struct.pack("<IIQ", segment, len(records), sum(map(len, records))) + b"".join(records)


def runs(messages: list[Message], most: int = 1000) -> bytes:
    out, at = [], 0
    while at < len(messages):
        end = at + 1
        while end < len(messages) and end - at < most and messages[end].segment == messages[at].segment:
            end += 1
        out.append(run(messages[at].segment, [m.record for m in messages[at:end]]))
        at = end
    return b"".join(out)


@dataclass
class Kept:
    shard: int
    messages: dict[int, Message] = field(default_factory=dict)
    next_seq: int = 0
    incarnation: str = "1"

    def add(
        self, body: bytes, *, segment: int = 1, time_ns: int = 0, identity: int = 0, attributes: bytes = b""
    ) -> int:
        seq = self.next_seq
        encoded = record(segment, seq, body, time_ns=time_ns, identity=identity, attributes=attributes)
        self.messages[seq] = Message(segment, seq, time_ns, encoded)
        self.next_seq += 1
        return seq

    def drop(self, start: int, end: int) -> None:
        for seq in range(start, end):
            self.messages.pop(seq, None)

    @property
    def complete(self) -> int:
        seq = self.next_seq
        while seq - 1 in self.messages:
            seq -= 1
        return seq

    @property
    def earliest(self) -> int:
        return min(self.messages, default=self.next_seq)


def kept_in(directory: Path) -> dict[str, Kept]:
    """What the log segments in a data directory hold."""
    found: dict[str, Kept] = {}
    for path in sorted(directory.glob("shard-*/*.log")):
        shard = int(path.parent.name.removeprefix("shard-"))
        names: dict[int, str] = {}
        content = path.read_bytes()
        if not any(content[:64]):
            continue  # it waits for its first record
        for entry in dump.decode(content):
            assert isinstance(entry, dump.Record)
            if entry.kind == TOPIC:
                names[entry.topic] = entry.body.decode()
                topic = found.setdefault(names[entry.topic], Kept(shard))
                topic.next_seq = max(topic.next_seq, entry.seq)
            elif entry.kind in (PUBLISH, MOVED):
                size = int.from_bytes(content[entry.offset : entry.offset + 4], "little")
                raw = content[entry.offset : entry.offset + (size + 7) // 8 * 8]
                topic = found[names[entry.topic]]
                topic.messages[entry.seq] = Message(int(path.stem), entry.seq, entry.time_ns, raw)
                topic.next_seq = max(topic.next_seq, entry.seq + 1)
    return found


class Gateway:
    """What it serves can be changed at any time. `spoil` may alter the bytes of a records reply, whose declared length
    stays: shorter ones break off."""

    def __init__(self, topics: dict[str, Kept] | None = None, broker: str | None = None) -> None:
        self.broker = secrets.token_hex(16) if broker is None else broker
        self.topics = topics if topics is not None else {}
        self.readers: dict[str, dict[str, int]] = {}
        self.owners: dict[str, str] = {}
        self.spoil: Callable[[str, int, bytes], bytes] = lambda topic, start, reply: reply
        self.refuse = 0  # so many calls from now on are answered 503
        self.calls: list[str] = []
        self.listed_bytes = 0
        self.tells_changes = True
        self.counts_on = False
        self.reads_many = True
        self._told: dict[str, dict[str, dict[str, Any]]] = {}  # what was told with each token
        self.reply_bytes = 64 << 20
        self.lock = threading.Lock()
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes: the second would wait for 40 ms

            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                gateway.answer(self)

            def do_PUT(self) -> None:
                gateway.answer(self)

            def do_POST(self) -> None:
                gateway.answer(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Gateway:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def topic(self, name: str, shard: int = 0) -> Kept:
        return self.topics.setdefault(name, Kept(shard))

    def answer(self, call: BaseHTTPRequestHandler) -> None:
        body = call.rfile.read(int(call.headers.get("Content-Length", "0")))
        url = urlsplit(call.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        with self.lock:
            self.calls.append(f"{call.command} {call.path}")
            if self.refuse > 0:
                self.refuse -= 1
                self._send(call, 503, b"starting")
                return
            if call.headers.get("X-Broker", self.broker) != self.broker:
                self._send(call, 412, b"another broker")
            elif url.path == "/v1/broker":
                self._send(call, 200, json.dumps({"broker": self.broker}).encode())
            elif url.path == "/v1/topics":
                listing = self._topics(query)
                self.listed_bytes += len(listing)
                self._send(call, 200, listing)
            elif url.path == "/v1/offsets":
                self._send(call, 200, self._offsets(query))
            elif url.path == "/v1/records" and call.command == "POST":
                self._records_of_many(call, json.loads(body))
            elif url.path == "/v1/records":
                self._records(call, query)
            elif url.path.startswith("/v1/readers/") and call.command == "PUT":
                self._commit(call, unquote(url.path.removeprefix("/v1/readers/")), query, json.loads(body))
            else:
                self._send(call, 404, b"no such call")

    def _commit(
        self, call: BaseHTTPRequestHandler, reader: str, query: dict[str, str], offsets: dict[str, int]
    ) -> None:
        if self.owners.get(reader, query["owner"]) != query["owner"] and "begin" not in query:
            self._send(call, 409, b"another's")
            return
        self.owners[reader] = query["owner"]
        self.readers[reader] = offsets
        self._send(call, 200, b"")

    def _topics(self, query: dict[str, str]) -> bytes:
        """As a broker from before there were changes, or with them."""
        topics = [self._topic(name, kept) for name, kept in self.topics.items()]
        if not self.tells_changes:
            return json.dumps({"broker": self.broker, "topics": topics}).encode()
        told = self._told.get(query.get("since", ""))
        token = f"{self.broker}.{len(self._told) + 1}"
        self._told[token] = {topic["topic"]: topic for topic in topics}
        new = [topic for topic in topics if told is None or told.get(topic["topic"]) != topic]
        gone = sorted(set(told or ()) - set(self.topics))
        found = {"broker": self.broker, "changes": token, "whole": told is None, "topics": new, "gone": gone}
        if self.counts_on:
            found["counts_on"] = True
        return json.dumps(found).encode()

    def _topic(self, name: str, kept: Kept) -> dict[str, Any]:
        return {
            "topic": name, "shard": kept.shard, "earliest": kept.earliest, "complete": kept.complete,
            "latest": kept.next_seq, "records": len(kept.messages),
            "bytes": sum(len(m.record) for m in kept.messages.values()),
            "last_timestamp_ns": max((m.time_ns for m in kept.messages.values()), default=0),
            "incarnation": kept.incarnation,
        }  # fmt: skip

    def _offsets(self, query: dict[str, str]) -> bytes:
        kept, at = self.topics[query["topic"]], int(query["timestamp_ns"])
        later = [m.seq for m in kept.messages.values() if m.time_ns >= at]
        earlier = [m.seq for m in kept.messages.values() if m.time_ns < at]
        until = max(earlier) + 1 if earlier else kept.earliest
        return json.dumps({"seq": min(later, default=kept.next_seq), "until": until}).encode()

    def _records(self, call: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        kept = self.topics.get(query["topic"], Kept(0))
        start = int(query["from"])
        whole, end = self._found(kept, start, int(query["to"]), int(query["max_bytes"]))
        spoilt = self.spoil(query["topic"], start, whole)
        self._send(call, 200, spoilt, length=max(len(whole), len(spoilt)), earliest=kept.earliest, following=end,
                   incarnation=kept.incarnation)  # fmt: skip

    def _found(self, kept: Kept, start: int, end: int, max_bytes: int) -> tuple[bytes, int]:
        """Runs, and the seq to ask for next."""
        room, found = min(max_bytes, self.reply_bytes), []
        for seq in sorted(seq for seq in kept.messages if start <= seq < end):
            room -= len(kept.messages[seq].record)
            if room < 0 and found:
                return runs(found), seq
            found.append(kept.messages[seq])
        return runs(found), end

    def _records_of_many(self, call: BaseHTTPRequestHandler, said: dict[str, Any]) -> None:
        if not self.reads_many:
            self._send(call, 405, b"POST?")
            return
        parts: list[dict[str, Any] | None] = []
        data, length = [], 0
        for topic, start, end in said["ranges"]:
            if (kept := self.topics.get(topic)) is None:
                parts.append(None)
                continue
            whole, following = self._found(kept, start, end, self.reply_bytes)
            data.append(self.spoil(topic, start, whole))
            length += len(whole)
            parts.append({
                "earliest": kept.earliest, "complete": kept.complete, "latest": kept.next_seq, "bytes": len(whole),
                "incarnation": kept.incarnation, "next": following, "damage": "",
            })  # fmt: skip
            if length >= self.reply_bytes or len(data[-1]) < len(whole):
                break
        head = json.dumps(parts).encode()
        self._send(call, 200, head + b"".join(data), length=len(head) + length, parts=len(head))

    @staticmethod
    def _send(
        call: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        length: int | None = None,
        earliest: int = 0,
        following: int = 0,
        incarnation: str = "",
        parts: int = 0,
    ) -> None:
        call.send_response(status)
        call.send_header("Content-Length", str(len(body) if length is None else length))
        call.send_header("X-Earliest", str(earliest))
        call.send_header("X-Next", str(following))
        call.send_header("X-Incarnation", incarnation)
        call.send_header("X-Parts", str(parts))
        call.end_headers()
        with contextlib.suppress(OSError):
            call.wfile.write(body)
        if length is not None and len(body) < length:
            call.close_connection = True


@contextlib.contextmanager
def serving(topics: dict[str, Kept] | None = None) -> Iterator[Gateway]:
    with Gateway(topics) as gateway:
        yield gateway
