"""Reading over HTTP: topics, offsets and records, from the segments of the log."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.acceptor.access.rights import READ
from mq_shards.gateway.access import check, may, user_of
from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_handling import Handler, number
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.names import raw, shown
from mq_shards.gateway.pipeline.giving_way import GiveWay
from mq_shards.shards.readers import MAX_SEQ

if TYPE_CHECKING:  # import numpy, so they are not loaded before the first read
    from mq_shards.shards.reader.runs import Asked
    from mq_shards.shards.reader.shard import Topic
    from mq_shards.shards.reader.view import DataView, Range, Ranges

DEFAULT_REPLY_BYTES: Final = 8 << 20
MAX_REPLY_BYTES: Final = 64 << 20
REPLIES_AT_ONCE: Final = 32  # replies of records; further requests wait
MAX_DAMAGE: Final = 16  # damaged places that a reply names for each topic
MAX_RANGES: Final = 1024  # in one request
MAX_RANGES_BYTES: Final = 2 << 20
WANTED: Final = '{"ranges": [[topic, from, to], ...], "max_bytes": N} is wanted'


class HttpRecords:
    def __init__(
        self, broker_id: str, view: Callable[[], DataView], bodies: Bodies, threads: Executor, way: GiveWay
    ) -> None:
        self._broker_id = broker_id
        self._view = view
        self._bodies = bodies
        self._way = way
        self._threads = threads
        self._replies = asyncio.Semaphore(REPLIES_AT_ONCE)
        self.routes: Final[dict[str, dict[str, Handler]]] = {
            "/v1/topics": {"GET": self._topics},
            "/v1/offsets": {"GET": self._offsets},
            "/v1/records": {"GET": self._records, "POST": self._records_of_many},
        }

    async def _topics(self, request: Request, fields: dict[str, str]) -> Answer:
        token, prefix = fields.get("since", ""), raw(fields.get("prefix", ""))
        names = {raw(name) for name in fields["topics"].split(",")} if "topics" in fields else None
        # Only topics that the client may read are listed. If its rights have changed since, it gets the whole listing.
        readable = _readable(request)
        if readable:
            seen, _, of = token.partition("~")
            token = seen if of == readable else ""

        def asked(name: str) -> bool:
            wanted = name.startswith(prefix) and (names is None or name in names)
            return wanted and may(request, READ, shown(name))

        # Runs in a thread, encoding included: with 100,000 topics it takes long.
        def answer() -> Answer:
            listing = self._view().listing(token)
            return json_answer(
                {
                    "broker": self._broker_id,
                    "changes": listing.token + (f"~{readable}" if readable else ""),
                    "whole": listing.whole,
                    "topics": [_topic_json(topic) for topic in listing.topics if asked(topic.name)],
                    "gone": [shown(name) for name in listing.gone if asked(name)],
                    "counts_on": True,
                }
            )

        return await asyncio.get_running_loop().run_in_executor(self._threads, answer)

    async def _offsets(self, request: Request, fields: dict[str, str]) -> Answer:
        topic, timestamp_ns = _topic_name(request, fields), number(fields, "timestamp_ns")
        loop = asyncio.get_running_loop()
        place = await loop.run_in_executor(self._threads, lambda: self._view().place_of(topic, timestamp_ns))
        if place is None:
            raise HttpError(404, f"there is no topic {shown(topic)}")
        return json_answer({"seq": place.seq, "until": place.until})

    async def _records(self, request: Request, fields: dict[str, str]) -> None:
        topic, first = _topic_name(request, fields), number(fields, "from")
        until = number(fields, "to") if "to" in fields else None
        max_bytes = min(number(fields, "max_bytes", DEFAULT_REPLY_BYTES), MAX_REPLY_BYTES)
        loop = asyncio.get_running_loop()
        async with self._replies:
            found = await loop.run_in_executor(self._threads, self._find, topic, first, until, max_bytes)
            if found is None:
                raise HttpError(404, f"there is no topic {shown(topic)}")
            with found.runs, self._way:
                from mq_shards.gateway.pipeline.send_records import send

                await send(request, _records_headers(found), [found.runs], self._threads, self._way)

    async def _records_of_many(self, request: Request, fields: dict[str, str]) -> None:
        """Answers many ranges at once, so that many small topics do not cost a request each."""
        async with self._bodies.read_whole(request, MAX_RANGES_BYTES) as body:
            asked, max_bytes = _asked(body)
        for of in asked:
            check(request, READ, shown(of.topic))
        loop = asyncio.get_running_loop()
        async with self._replies:
            found = await loop.run_in_executor(self._threads, lambda: self._view().records_of(asked, max_bytes))
            with found.files, self._way:
                from mq_shards.gateway.pipeline.send_records import send

                parts = await loop.run_in_executor(self._threads, _parts_json, found)
                headers = {"Content-Type": "application/octet-stream", "X-Parts": str(len(parts))}
                runs = [part.runs for part in found.parts if part is not None]
                await send(request, headers, runs, self._threads, self._way, parts)

    def _find(self, topic: str, first: int, until: int | None, max_bytes: int) -> Range | None:
        """Finds the records. Runs in a thread."""
        return self._view().records(topic, first, until, max_bytes)


def _topic_name(request: Request, fields: dict[str, str]) -> str:
    if not fields.get("topic"):
        raise HttpError(400, "which topic?")
    name = raw(fields["topic"])
    check(request, READ, shown(name))
    return name


def _readable(request: Request) -> str:
    """Identifies the set of topics that the user may read; "" if the user may read all of them."""
    user = user_of(request)
    if not request.is_guarded or user is None or user.may_all(READ):
        return ""
    return hashlib.sha256("\n".join(sorted(user.patterns(READ))).encode()).hexdigest()[:16]


def _topic_json(topic: Topic) -> dict[str, Any]:
    jumps = {"jumps": topic.jumps} if topic.jumps else {}
    return {
        "topic": shown(topic.name),
        "shard": topic.shard,
        "earliest": topic.earliest,
        "complete": topic.complete,
        "latest": topic.latest,
        "records": topic.records,
        "bytes": topic.bytes,
        "last_timestamp_ns": topic.last_timestamp_ns,
        "incarnation": _incarnation(topic),
        **jumps,
    }


def _incarnation(topic: Topic) -> str:
    """Differs from an earlier one if the shard's log was lost and begun anew, so that seqs may have been reused."""
    return f"{topic.log_began_ns:x}"


def _records_headers(found: Range) -> dict[str, str]:
    headers = {
        "Content-Type": "application/octet-stream",
        "X-Earliest": str(found.topic.earliest),
        "X-Complete": str(found.topic.complete),
        "X-Latest": str(found.topic.latest),
        "X-Incarnation": _incarnation(found.topic),
        "X-Next": str(found.runs.next),
    }
    if found.damage:
        headers["X-Damage"] = _damage(found)
    return headers


def _damage(found: Range) -> str:
    return ", ".join(f"{found.topic.shard}/{n}/{place.offset}-{place.until}" for n, place in found.damage[:MAX_DAMAGE])


def _parts_json(found: Ranges) -> bytes:
    return orjson.dumps([None if part is None else _part_json(part) for part in found.parts])


def _part_json(part: Range) -> dict[str, Any]:
    return {
        "earliest": part.topic.earliest,
        "complete": part.topic.complete,
        "latest": part.topic.latest,
        "incarnation": _incarnation(part.topic),
        "next": part.runs.next,
        "bytes": part.runs.size,
        "damage": _damage(part),
    }


def _asked(body: bytes) -> tuple[list[Asked], int]:
    """Decodes the ranges and max_bytes of a request. Raises HttpError."""
    from mq_shards.shards.reader.runs import Asked

    try:
        said = orjson.loads(body)
        ranges, max_bytes = said["ranges"], said.get("max_bytes", DEFAULT_REPLY_BYTES)
        asked = [Asked(topic, first, until) for topic, first, until in ranges]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise HttpError(400, WANTED) from None
    if not 0 < len(asked) <= MAX_RANGES:
        raise HttpError(400, f"ranges: from 1 to {MAX_RANGES} of them")
    for number_of in (max_bytes, *(seq for of in asked for seq in (of.first, of.until))):
        if type(number_of) is not int or not 0 <= number_of <= MAX_SEQ:
            raise HttpError(400, WANTED)
    if not all(isinstance(of.topic, str) and of.topic for of in asked):
        raise HttpError(400, WANTED)
    return [replace(of, topic=raw(of.topic)) for of in asked], min(max_bytes, MAX_REPLY_BYTES)
