"""Named readers over HTTP: how far each has read, and how many messages it has not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson
from mq_shards.acceptor.access.rights import READ
from mq_shards.gateway.access import check, check_owner, owner_of
from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_handling import MAX_BODY_BYTES, Handler
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.names import raw, shown
from mq_shards.gateway.unread import Unread
from mq_shards.shards import readers
from mq_shards.shards.reader_names import ReadersError, check_name
from mq_shards.shards.readers import Reader

if TYPE_CHECKING:  # imports numpy, so it is not loaded before the first read
    from mq_shards.shards.reader.shard import Topic
    from mq_shards.shards.reader.view import DataView

T = TypeVar("T")

# Of a reader whose file is damaged: no user's name, so that only who manages everything may make it anew.
UNKNOWN: Final = "\0"


class HttpReaders:
    def __init__(self, data_dir: Path, view: Callable[[], DataView], bodies: Bodies, threads: Executor) -> None:
        self._data_dir = data_dir
        self._view = view
        self._bodies = bodies
        self._threads = threads
        self._changing = asyncio.Lock()
        self.routes: Final[dict[str, dict[str, Handler]]] = {
            "/v1/readers": {"GET": self._list},
            "/v1/readers/": {"GET": self._get, "PUT": self._put, "DELETE": self._delete},
        }

    async def unread(self) -> dict[str, list[Unread]]:
        """What named readers have not read, by topic. Raises ReadersError, OSError."""
        if not await self._in_thread(readers.exist, self._data_dir):
            return {}
        found: dict[str, list[Unread]] = {}
        for reader in await self._in_thread(_readers_json, self._view, self._data_dir):
            for topic, seq in reader["topics"].items():
                found.setdefault(topic, []).append(Unread(reader["name"], reader["unread"][topic], seq))
        return found

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def _list(self, request: Request, fields: dict[str, str]) -> Answer:
        found = await self._in_thread(_readers_json, self._view, self._data_dir)
        return json_answer({"readers": [_told(reader) for reader in found]})

    async def _get(self, request: Request, fields: dict[str, str]) -> Answer:
        found = await self._in_thread(_reader_json, self._view, self._data_dir, fields["name"])
        if found is None:
            raise HttpError(404, f"there is no reader {fields['name']}")
        return json_answer(_told(found))

    async def _put(self, request: Request, fields: dict[str, str]) -> Answer:
        check_name(fields["name"])
        async with self._bodies.read_whole(request, MAX_BODY_BYTES) as body:
            try:
                said = readers.decode_topics(orjson.loads(body))
            except ValueError:
                raise HttpError(400, "the body is not JSON") from None
        owner = fields.get("owner", "")
        readers.check_owner(owner)
        topics = {raw(topic): seq for topic, seq in said.items()}
        for topic in topics:
            check(request, READ, shown(topic))
        async with self._changing:
            before, user = await self._in_thread(_owners_of, self._data_dir, fields["name"])
            check_owner(request, user, f"reader {fields['name']}")
            if before not in ("", owner) and not (owner and "begin" in fields):
                raise HttpError(409, f"reader {fields['name']} is another's now, which began after this one")
            user = user if user not in ("", UNKNOWN) else owner_of(request)
            await self._in_thread(readers.save, self._data_dir, fields["name"], topics, owner, user)
        return json_answer({"name": fields["name"], "topics": said})

    async def _delete(self, request: Request, fields: dict[str, str]) -> Answer:
        async with self._changing:
            if request.is_guarded:
                check_name(fields["name"])
                _, user = await self._in_thread(_owners_of, self._data_dir, fields["name"])
                check_owner(request, user, f"reader {fields['name']}")
            if not await self._in_thread(readers.delete, self._data_dir, fields["name"]):
                raise HttpError(404, f"there is no reader {fields['name']}")
        return json_answer({})


def _told(reader: dict[str, Any]) -> dict[str, Any]:
    of_topics = {name: {shown(topic): seq for topic, seq in reader[name].items()} for name in ("topics", "unread")}
    return reader | of_topics


def _owners_of(data_dir: Path, name: str) -> tuple[str, str]:
    """The owner that reads under the name, and the user whose reader it is, which is UNKNOWN if its file is damaged."""
    try:
        reader = readers.load(data_dir, name)
    except ReadersError:
        return "", UNKNOWN
    return ("", "") if reader is None else (reader.owner, reader.user)


def _readers_json(view: Callable[[], DataView], data_dir: Path) -> list[dict[str, Any]]:
    topics = {topic.name: topic for topic in view().topics()}
    return [_described(reader, view(), topics) for reader in readers.load_all(data_dir)]


def _reader_json(view: Callable[[], DataView], data_dir: Path, name: str) -> dict[str, Any] | None:
    reader = readers.load(data_dir, name)
    if reader is None:
        return None
    topics = {name: topic for name in reader.topics if (topic := view().topic(name)) is not None}
    return _described(reader, view(), topics)


def _described(reader: Reader, view: DataView, topics: dict[str, Topic]) -> dict[str, Any]:
    unread = {name: view.unread(topics[name], seq) if name in topics else 0 for name, seq in reader.topics.items()}
    return {"name": reader.name, "topics": reader.topics, "unread": unread, "changed_ns": reader.changed_ns} | (
        {"user": reader.user} if reader.user else {}
    )
