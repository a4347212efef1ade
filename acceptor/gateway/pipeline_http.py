"""The HTTP API for data pipelines (docs/pipeline.md): reading topics out of the logs, publishing, named readers.

What reads files runs in threads of its own: the event loop waits for no disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

import orjson
from aiohttp import web

from acceptor.gateway import batch
from acceptor.gateway.batch import BatchError, Part
from acceptor.gateway.broker import Broker, BrokerError, DiskError, DrainingError
from acceptor.gateway.http_ends import Refuse, cut, quiet_logger
from acceptor.gateway.names import is_valid_name
from acceptor.gateway.send_records import send
from acceptor.gateway.workers import WorkersError
from shards import readers
from shards.listeners import BACKLOG
from shards.reader.shard import Topic
from shards.reader.view import DataView, Range
from shards.readers import Reader, ReadersError

# The limits. A connection has one request at a time, so they bound the requests in flight too.
MAX_CONNECTIONS: Final = 512
READ_BUFFER_BYTES: Final = 256 << 10
MAX_BODY_BYTES: Final = 32 << 20
BODIES_BYTES: Final = 128 << 20  # of all request bodies that are held at once
DEFAULT_REPLY_BYTES: Final = 8 << 20
MAX_REPLY_BYTES: Final = 64 << 20
REPLIES_AT_ONCE: Final = 32  # of records; the others wait for their turn
MAX_DAMAGE: Final = 16  # places that a reply names
IDLE_S: Final = 75.0
BODY_S: Final = 60.0
SEND_S: Final = 30.0
LINGER_S: Final = 1.0
THREADS: Final = 2
MAX_QUERY_FIELDS: Final = 16
MAX_SEQ: Final = readers.MAX_SEQ

NO_DATA_DIR: Final = "with --memory there is nothing to read: messages that are finished are not kept"
_READERS: Final = "/v1/readers/"
_SERVER: Final = {"Server": "mq-shards"}

T = TypeVar("T")
Handler = Callable[[web.BaseRequest, dict[str, str]], Awaitable[web.StreamResponse]]
log = logging.getLogger(__name__)


class HttpError(Exception):
    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status: Final = status
        self.message: Final = message
        self.headers: Final = headers or {}


class PipelineHttp:
    def __init__(
        self,
        broker: Broker,
        data_dir: Path | None,
        shards: int,
        max_message_bytes: int,
        prepare_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        """`prepare_topic` is done before what may make a topic of NSQ's."""
        self._broker = broker
        self._data_dir = data_dir
        self._shards = shards
        self._max_message_bytes = max_message_bytes
        self._prepare_topic = prepare_topic
        self._view: DataView | None = None
        self._threads = ThreadPoolExecutor(THREADS, "reader")
        self._replies = asyncio.Semaphore(REPLIES_AT_ONCE)
        self._changing = asyncio.Lock()
        self._bodies_bytes = 0
        self._routes: dict[str, dict[str, Handler]] = {
            "/v1/topics": {"GET": self._topics},
            "/v1/offsets": {"GET": self._offsets},
            "/v1/records": {"GET": self._records},
            "/v1/publish": {"POST": self._publish},
            "/v1/readers": {"GET": self._list_readers},
        }
        self._reader_routes: dict[str, Handler] = {
            "GET": self._get_reader, "PUT": self._put_reader, "DELETE": self._delete_reader
        }  # fmt: skip
        self._server = web.Server(
            self._serve,
            access_log=None,
            logger=quiet_logger(),
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
            read_bufsize=READ_BUFFER_BYTES,
            auto_decompress=False,
        )
        self._listening: list[asyncio.Server] = []

    # --- sockets ----------------------------------------------------------------------------------------------------

    async def listen(self, sock: socket.socket) -> None:
        """Takes a listening socket over."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SEND_S * 1000))
        loop = asyncio.get_running_loop()
        self._listening.append(await loop.create_server(self._connection, sock=sock, backlog=BACKLOG))

    def _connection(self) -> asyncio.Protocol:
        if len(self._server.connections) >= MAX_CONNECTIONS:
            return Refuse()
        return self._server()

    async def close(self, patience_s: float) -> None:
        """Accepts no more, and waits that long for the requests that are being served."""
        for server in self._listening:
            server.close()
        self._server.pre_shutdown()
        await self._server.shutdown(patience_s)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- a request --------------------------------------------------------------------------------------------------

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._respond(request)
        except HttpError as error:
            response = _json({"error": error.message}, error.status, error.headers)
        except ReadersError as error:
            response = _json({"error": str(error)}, 400)
        except Exception as error:
            log.exception("cannot serve %s %.200r", request.method, request.raw_path)
            response = _json({"error": f"cannot be served: {error}"}, 500)
        if response.prepared:
            return response
        try:
            async with asyncio.timeout(SEND_S):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            cut(request.transport)
        except ConnectionError:
            pass  # it does not want it any more
        return response

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        try:
            path = unquote(path, errors="strict")
            fields = dict(
                parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS)
            )
        except ValueError:
            raise HttpError(400, "the request's target cannot be decoded") from None
        handlers = self._routes.get(path)
        if handlers is None and path.startswith(_READERS):
            handlers, fields = self._reader_routes, {"name": path[len(_READERS) :]}
        if handlers is None:
            raise HttpError(404, f"there is no {path}")
        handler = handlers.get(request.method)
        if handler is None:
            raise HttpError(405, f"{path} takes {', '.join(handlers)}", {"Allow": ", ".join(handlers)})
        return await handler(request, fields)

    async def _read(self, request: web.BaseRequest) -> bytes:
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise HttpError(413, f"a body has {MAX_BODY_BYTES} bytes at most")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                if request.headers.get("Expect", "").lower() == "100-continue":
                    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                while part := await request.content.readany():
                    body += part
                    self._bodies_bytes += len(part)
                    if len(body) > MAX_BODY_BYTES:
                        raise HttpError(413, f"a body has {MAX_BODY_BYTES} bytes at most")
                    if self._bodies_bytes > BODIES_BYTES:
                        raise HttpError(503, "too many bodies are being read already")
        except TimeoutError:
            raise HttpError(408, f"the body has not come within {BODY_S:g} s") from None
        except (OSError, web.RequestPayloadError):
            raise HttpError(400, "the body came only in part") from None
        finally:
            self._bodies_bytes -= len(body)
        return bytes(body)

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _data(self) -> tuple[DataView, Path]:
        if self._data_dir is None:
            raise HttpError(503, NO_DATA_DIR)
        if self._view is None:
            self._view = DataView(self._data_dir, self._shards)
        return self._view, self._data_dir

    async def _topics(self, request: web.BaseRequest, fields: dict[str, str]) -> web.StreamResponse:
        view, _ = self._data()
        topics = await self._in_thread(view.topics)
        return _json({"topics": [_topic_json(topic) for topic in topics]})

    async def _offsets(self, request: web.BaseRequest, fields: dict[str, str]) -> web.StreamResponse:
        view, _ = self._data()
        place = await self._in_thread(view.place_of, _topic_name(fields), _number(fields, "timestamp_ns"))
        if place is None:
            raise HttpError(404, f"there is no topic {fields['topic']}")
        return _json({"seq": place.seq, "until": place.until})

    async def _records(self, request: web.BaseRequest, fields: dict[str, str]) -> web.StreamResponse:
        view, _ = self._data()
        topic, first = _topic_name(fields), _number(fields, "from")
        until = _number(fields, "to") if "to" in fields else None
        max_bytes = min(_number(fields, "max_bytes", DEFAULT_REPLY_BYTES), MAX_REPLY_BYTES)
        async with self._replies:
            found = await self._in_thread(view.records, topic, first, until, max_bytes)
            if found is None:
                raise HttpError(404, f"there is no topic {topic}")
            with found.runs:
                response = web.StreamResponse(headers=_records_headers(found))
                await send(request, response, found.runs, self._threads)
                return response

    # --- publishing -------------------------------------------------------------------------------------------------

    async def _publish(self, request: web.BaseRequest, fields: dict[str, str]) -> web.StreamResponse:
        body = await self._read(request)
        try:
            topics = await batch.split(body, self._max_message_bytes)
        except BatchError as error:
            raise HttpError(400, str(error)) from None
        done = await asyncio.gather(*(self._publish_to(topic, parts) for topic, parts in topics.items()))
        published = sum(count for count, _ in done)
        for _, refusal in done:
            if refusal is not None:
                return _json({"error": refusal, "published": published}, 503)
        return _json({"published": published})

    async def _publish_to(self, topic: str, parts: list[Part]) -> tuple[int, str | None]:
        """How many are in the log, and why not all of them are (or whether they are is not known)."""
        published = 0
        try:
            if is_valid_name(topic):
                await self._prepare_topic(topic)
            for part in parts:
                await self._broker.publish_many(topic, part.count, b"".join(part.pieces))
                published += part.count
        except DrainingError:
            return published, "the broker takes no new messages until it is started again"
        except DiskError as error:
            return published, str(error)
        except (BrokerError, WorkersError) as error:
            return published, f"topic {topic}: {error}"
        return published, None

    # --- readers ----------------------------------------------------------------------------------------------------

    async def _list_readers(self, request: web.BaseRequest, fields: dict[str, str]) -> web.StreamResponse:
        view, data_dir = self._data()
        return _json({"readers": await self._in_thread(_readers_json, view, data_dir)})

    async def _get_reader(self, request: web.BaseRequest, fields: dict[str, str]) -> web.StreamResponse:
        view, data_dir = self._data()
        found = await self._in_thread(_reader_json, view, data_dir, fields["name"])
        if found is None:
            raise HttpError(404, f"there is no reader {fields['name']}")
        return _json(found)

    async def _put_reader(self, request: web.BaseRequest, fields: dict[str, str]) -> web.StreamResponse:
        _, data_dir = self._data()
        readers.check_name(fields["name"])
        try:
            topics = readers.decode_topics(json.loads(await self._read(request)))
        except ValueError:
            raise HttpError(400, "the body is not JSON") from None
        async with self._changing:
            await self._in_thread(readers.save, data_dir, fields["name"], topics)
        return _json({"name": fields["name"], "topics": topics})

    async def _delete_reader(self, request: web.BaseRequest, fields: dict[str, str]) -> web.StreamResponse:
        _, data_dir = self._data()
        async with self._changing:
            if not await self._in_thread(readers.delete, data_dir, fields["name"]):
                raise HttpError(404, f"there is no reader {fields['name']}")
        return _json({})


# --- what is said and shown -----------------------------------------------------------------------------------------


def _topic_name(fields: dict[str, str]) -> str:
    if not fields.get("topic"):
        raise HttpError(400, "which topic?")
    return fields["topic"]


def _number(fields: dict[str, str], name: str, default: int | None = None) -> int:
    text = fields.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > MAX_SEQ:
        raise HttpError(400, f"{name} is a whole number from 0 to {MAX_SEQ}")
    return int(text)


def _topic_json(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "shard": topic.shard,
        "earliest": topic.earliest,
        "complete": topic.complete,
        "latest": topic.latest,
        "records": topic.records,
        "bytes": topic.bytes,
        "last_timestamp_ns": topic.last_timestamp_ns,
    }


def _records_headers(found: Range) -> dict[str, str]:
    headers = {
        "Content-Type": "application/octet-stream",
        "X-Earliest": str(found.topic.earliest),
        "X-Complete": str(found.topic.complete),
        "X-Latest": str(found.topic.latest),
        "X-Next": str(found.runs.next),
        **_SERVER,
    }
    if found.damage:
        places = [f"{found.topic.shard}/{n}/{place.offset}-{place.until}" for n, place in found.damage[:MAX_DAMAGE]]
        headers["X-Damage"] = ", ".join(places)
    return headers


def _readers_json(view: DataView, data_dir: Path) -> list[dict[str, Any]]:
    latest = {topic.name: topic.latest for topic in view.topics()}
    return [_described(reader, latest) for reader in readers.load_all(data_dir)]


def _reader_json(view: DataView, data_dir: Path, name: str) -> dict[str, Any] | None:
    reader = readers.load(data_dir, name)
    if reader is None:
        return None
    topics = (view.topic(topic) for topic in reader.topics)
    return _described(reader, {topic.name: topic.latest for topic in topics if topic is not None})


def _described(reader: Reader, latest: dict[str, int]) -> dict[str, Any]:
    unread = {topic: max(0, latest.get(topic, seq) - seq) for topic, seq in reader.topics.items()}
    return {"name": reader.name, "topics": reader.topics, "unread": unread, "changed_ns": reader.changed_ns}


def _json(data: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    all_headers = {"Content-Type": "application/json", **_SERVER, **(headers or {})}
    return web.Response(status=status, body=orjson.dumps(data), headers=all_headers)
