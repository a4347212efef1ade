"""Shows messages without delivering them: it uses no credit and finishes nothing.

With a data directory it shows all messages that retention has kept, finished or not; with --memory, those that are not
yet finished.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor import engine as engine_module
from mq_shards.acceptor.engine import Engine, WorkerRequest
from mq_shards.csrc._core import ffi, lib
from mq_shards.csrc.structs import struct_in
from mq_shards.gateway.http_answers import HttpError
from mq_shards.gateway.http_handling import number
from mq_shards.gateway.names import raw
from mq_shards.gateway.workers import LOOK_S, Workers
from mq_shards.ringbuf.time_units import MS_NS
from mq_shards.shards.layout import RECORD_BYTES

if TYPE_CHECKING:  # imports numpy, so it is not loaded before the first read
    from mq_shards.shards.reader.runs import Runs
    from mq_shards.shards.reader.view import DataView

MAX_MESSAGES: Final = 200
MAX_BODY_BYTES: Final = 1 << 20  # of one body, that are shown
DEFAULT_BODY_BYTES: Final = 4096
MAX_ANSWER_BYTES: Final = 4 << 20
SCAN_BYTES: Final = 4 << 20  # of the log, that are read for one answer
TAGS: Final[Mapping[int, str]] = {lib.HEADERS_NATS: "nats", lib.HEADERS_PULSAR: "pulsar", lib.HEADERS_SPARK: "spark"}
HEADERS_BYTES: Final[int] = ffi.sizeof("struct headers")


@dataclass(frozen=True, slots=True)
class Message:
    seq: int
    id: int
    time_ns: int
    size: int  # of the whole body
    body: bytes  # its beginning, as much as was asked for
    headers: bytes
    tag: int
    parts: int
    pri: int | None = None
    ttr_ms: int | None = None
    delay_ms: int | None = None

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "seq": self.seq, "id": f"{self.id:016x}", "job": self.id, "time_ns": self.time_ns, "bytes": self.size
        }  # fmt: skip
        try:
            found["text"] = self.body.decode()
        except UnicodeDecodeError as error:
            # A body that is cut off in the middle of a character is still text.
            if len(self.body) < self.size and error.start > len(self.body) - 4:
                found["text"] = self.body[: error.start].decode()
            else:
                found["base64"] = base64.b64encode(self.body).decode()
        for name in ("pri", "ttr_ms", "delay_ms"):
            if (value := getattr(self, name)) is not None:
                found[name] = value
        if self.headers:
            found["headers"] = {"of": TAGS.get(self.tag, str(self.tag)), "text": self.headers.decode("latin-1")}
        if self.parts:
            found["parts"] = self.parts
        return found


class Peek:
    def __init__(
        self, engine: Engine, workers: Workers, view: Callable[[], DataView] | None, threads: Executor
    ) -> None:
        """`view` returns a view of the data directory; None: with --memory."""
        self._engine = engine
        self._workers = workers
        self._view = view
        self._threads = threads

    async def json(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """Messages of a topic, as a query asks for them. Raises HttpError, OSError."""
        topic = fields.get("topic")
        if not topic:
            raise HttpError(400, "which topic?")
        limit = max(1, min(number(fields, "limit", 20), MAX_MESSAGES))
        most = min(number(fields, "body", DEFAULT_BODY_BYTES), MAX_BODY_BYTES)
        first = number(fields, "from") if "from" in fields else None
        if self._view is None:
            return await self._of_workers(topic, first, limit, most)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, self._of_log, raw(topic), first, limit, most)
        if found is None:  # the log has nothing of it; its worker may still know it
            return await self._of_workers(topic, first, limit, most)
        return {"topic": topic, **found}

    # --- from the log -----------------------------------------------------------------------------------------------

    def _of_log(self, topic: str, first: int | None, limit: int, most: int) -> dict[str, Any] | None:
        """Reads from the log. Runs in a thread. None: there is no such topic."""
        assert self._view is not None
        view = self._view()
        known = view.topic(topic)
        if known is None:
            return None
        begin = max(known.earliest, known.latest - limit) if first is None else first
        messages: list[Message] = []
        following, room = begin, MAX_ANSWER_BYTES
        while len(messages) < limit and following < known.latest and room > 0:
            found = view.records(topic, following, following + limit - len(messages), SCAN_BYTES)
            if found is None:
                break
            with found.runs as runs:
                for message in messages_of(runs, most):
                    if len(messages) == limit or room <= 0:
                        break
                    messages.append(message)
                    room -= len(message.body) + len(message.headers)
                following = max(following + 1, runs.next)
        following = messages[-1].seq + 1 if messages else following
        return {
            "earliest": known.earliest,
            "latest": known.latest,
            "next": following,
            "messages": [message.json() for message in messages],
        }

    # --- from the workers -------------------------------------------------------------------------------------------

    async def _of_workers(self, topic: str, first: int | None, limit: int, most: int) -> dict[str, Any]:
        name = raw(topic).encode("latin-1")
        worker = self._engine.worker_of_name(name)
        listed = await self._workers.ask(worker, WorkerRequest(lib.MSG_CATALOG, body=name), within_s=LOOK_S, looks=True)
        if listed.status != engine_module.OK or not listed.body:
            raise HttpError(404, f"there is no topic {topic}")
        bound = self._engine.bind(name)
        if bound == 0:
            raise HttpError(503, "there are as many topics as there may be")
        request = WorkerRequest(lib.MSG_POSITION, topic=bound)
        asked = await self._workers.ask(worker, request, within_s=LOOK_S, looks=True)
        position = ffi.new("struct position *")
        if asked.status != engine_module.OK or len(asked.body) < ffi.sizeof(position[0]):
            raise HttpError(404, f"there is no topic {topic}")
        ffi.memmove(position, asked.body, ffi.sizeof(position[0]))
        latest, earliest = int(position.next_seq), int(position.first_seq)
        begin = max(earliest, latest - limit) if first is None else max(first, earliest)
        messages: list[Message] = []
        room = MAX_ANSWER_BYTES
        for seq in range(begin, min(latest, begin + limit)):
            request = WorkerRequest(
                lib.MSG_PEEK_SEQ, topic=bound, ttr_ns=seq, id=most + HEADERS_BYTES + lib.HEADERS_MAX_BYTES,
                flags=lib.MSG_HEADERS,
            )  # fmt: skip
            answer = await self._workers.ask(worker, request, within_s=LOOK_S, looks=True)
            if answer.status == engine_module.OK and room > 0:
                has_headers = bool(answer.flags & lib.MSG_HEADERS)
                headers, tag, parts, size, body = taken_apart(answer.body, has_headers, most, answer.pri)
                messages.append(Message(seq, answer.id, answer.incarnation, size, body, headers, tag, parts))
                room -= len(body) + len(headers)
        return {
            "topic": topic,
            "earliest": earliest,
            "latest": latest,
            "next": min(latest, begin + limit),
            "messages": [message.json() for message in messages],
        }


def messages_of(runs: Runs, most: int) -> list[Message]:
    """Reads messages; of each body at most `most` bytes."""
    found: list[Message] = []
    for run in runs.runs:
        for offset, length in zip(run.offsets, run.lengths, strict=True):
            at, end = offset, offset + length
            while at < end and len(found) < MAX_MESSAGES:
                message, size = _message_at(run.fd, at, most)
                if message is not None:
                    found.append(message)
                at += (size + 7) // 8 * 8
    return found


def _message_at(fd: int, at: int, most: int) -> tuple[Message | None, int]:
    """Returns a message and its record's length; None: its transaction was aborted. OSError: there is no record."""
    head = os.pread(fd, RECORD_BYTES + 256, at)
    if len(head) < RECORD_BYTES:
        raise OSError(f"the record at {at} ends in the middle")
    record = struct_in("record", head)
    size, begin = record.bytes, RECORD_BYTES + record.attribute_bytes
    if size < begin or len(head) < begin:
        raise OSError(f"the record at {at} is damaged")
    if record.kind == lib.RECORD_STAGED:
        return None, size
    said = lib.publish_attributes_of(record)
    has_headers = bool(record.flags & lib.MESSAGE_HEADERS)
    wanted = min(size - begin, most + HEADERS_BYTES + lib.HEADERS_MAX_BYTES if has_headers else most)
    content = os.pread(fd, wanted, at + begin)
    headers, tag, parts, left, body = taken_apart(content, has_headers, most, size - begin)
    times = said.pri, said.ttr_ns // MS_NS, said.delay_ns // MS_NS
    return Message(record.seq, record.id, record.time_ns, left, body, headers, tag, parts, *times), size


def taken_apart(content: bytes, has_headers: bool, most: int, size: int) -> tuple[bytes, int, int, int, bytes]:
    """Headers, their tag, parts, the body's size, its first `most` bytes. `size`: of all; `content` may be cut off."""
    if not has_headers or len(content) < HEADERS_BYTES:
        return b"", 0, 0, size, content[:most]
    headers = struct_in("headers", content)
    begin = HEADERS_BYTES + headers.bytes
    return content[HEADERS_BYTES:begin], headers.tag, headers.parts, size - begin, content[begin : begin + most]
