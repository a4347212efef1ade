"""The HTTP API for data pipelines (docs/pipeline-http.md): its server, and which handler serves which request.

Handlers read files in threads: the event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_handling import Handler
from mq_shards.gateway.http_server import HttpServer, Request
from mq_shards.gateway.part import Shared
from mq_shards.gateway.pipeline.giving_way import GiveWay
from mq_shards.gateway.pipeline.http_erase import HttpErase
from mq_shards.gateway.pipeline.http_publish import HttpPublish
from mq_shards.gateway.pipeline.http_readers import HttpReaders
from mq_shards.gateway.pipeline.http_records import HttpRecords
from mq_shards.gateway.pipeline.http_writers import HttpWriters
from mq_shards.gateway.pipeline.staging import Staging
from mq_shards.gateway.pipeline.writers import Writers
from mq_shards.gateway.unread import Unread
from mq_shards.shards.erased import ErasedError
from mq_shards.shards.reader_names import ReadersError

if TYPE_CHECKING:
    from mq_shards.shards.reader.view import DataView

MAX_CONNECTIONS: Final = 512
MAX_SAID: Final = 256
UNSENT_BYTES: Final = 256 << 10  # of one connection, in the kernel: bytes that lie there can no longer give way
READER_THREADS: Final = 2  # read logs
STAGING_THREADS: Final = 4  # write staged files, sync them and read them again
CHECK_THREADS: Final = 1  # checks published bodies, which waits for no disk
MAX_QUERY_FIELDS: Final = 16

BROKER_HEADER: Final = "x-broker"  # of a request: the id of the broker that the client wants to reach
NO_DATA_DIR: Final = "with --memory there is nothing to read: messages that are finished are not kept"
_ON_DISK: Final = (
    "/v1/topics", "/v1/topics/", "/v1/erased", "/v1/offsets", "/v1/records", "/v1/readers", "/v1/readers/",
)  # fmt: skip

log = logging.getLogger(__name__)


class _View:
    """The logs as readers see them. Loaded with the first read: it imports numpy, which costs time and memory."""

    def __init__(self, data_dir: Path, shards: int) -> None:
        self._data_dir = data_dir
        self._shards = shards
        self._lock = Lock()
        self._view: DataView | None = None

    def __call__(self) -> DataView:
        """Returns the view; any thread may call it."""
        with self._lock:
            if self._view is None:
                from mq_shards.shards.reader.view import DataView

                self._view = DataView(self._data_dir, self._shards)
            return self._view


class PipelineHttp:
    def __init__(self, shared: Shared, staging_dir: Path) -> None:
        """To be made where the event loop runs. Batches that writers had under way are continued at once."""
        broker, bodies, prepare_topic = shared.broker, shared.bodies, shared.prepare_topic
        data_dir, max_message_bytes = shared.data_dir, shared.terms.max_message_bytes
        reading = ThreadPoolExecutor(READER_THREADS, "reader")
        writing = ThreadPoolExecutor(STAGING_THREADS, "staging")
        checking = ThreadPoolExecutor(CHECK_THREADS, "check")
        self._threads = reading, writing, checking
        self.reading: Final = reading
        self.view: Final = None if data_dir is None else _View(data_dir, shared.start["shards"])
        self._readers: HttpReaders | None = None
        max_staged_bytes = shared.start["settings"]["http"]["staged-bytes"]
        staging = Staging(staging_dir, max_staged_bytes, max_message_bytes, writing)
        self._writers = Writers(staging_dir, staging, broker, prepare_topic, writing)
        self._way = GiveWay(shared.engine.records_written)
        self._broker_id = shared.broker_id
        self._said: set[str] = set()  # why the data directory was not read, lately
        # By path. A path that ends in / is a collection's: the name of a member follows it.
        self._routes: dict[str, Mapping[str, Handler]] = {
            "/v1/broker": {"GET": self._identify},
            **HttpPublish(broker, prepare_topic, max_message_bytes, bodies, checking).routes,
            **HttpWriters(staging, self._writers, bodies).routes,
        }
        if data_dir is not None and self.view is not None:
            self._routes |= HttpRecords(shared.broker_id, self.view, bodies, reading, self._way).routes
            self._routes |= HttpErase(broker, self.view, reading).routes
            self._readers = HttpReaders(data_dir, self.view, bodies, reading)
            self._routes |= self._readers.routes
        self.server: Final = HttpServer(self._serve, bodies, MAX_CONNECTIONS, UNSENT_BYTES)

    def serve_too(self, routes: Mapping[str, Mapping[str, Handler]]) -> None:
        """Adds routes to be served at these addresses too."""
        self._routes |= routes

    async def run(self) -> None:
        """Does the work that belongs to no request, until it is cancelled."""
        await asyncio.gather(self._writers.run(), self._way.run())

    async def unread(self) -> dict[str, list[Unread]]:
        """What named readers have not read, by topic; empty with --memory. Raises ReadersError, OSError."""
        return {} if self._readers is None else await self._readers.unread()

    async def close(self, timeout_s: float) -> None:
        """Accepts no more connections, and waits up to `timeout_s` for requests that are being served."""
        await self._writers.close()
        await self.server.close(timeout_s)

    async def end_threads(self) -> None:
        """Ends the threads. To be called last: NSQ's /stats calls unread() as well."""
        for threads in self._threads:
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)

    # --- a request --------------------------------------------------------------------------------------------------

    async def _serve(self, request: Request) -> Answer | None:
        try:
            return await self._respond(request)
        except HttpError as error:
            return json_answer({"error": error.message, **error.more}, error.status, error.headers)
        except ReadersError as error:
            return json_answer({"error": str(error)}, 400)
        except (ErasedError, OSError) as error:  # a disk, or a file that something else has changed: no fault here
            status, why = 503, str(error)
            if why not in self._said:  # readers ask again and again
                if len(self._said) == MAX_SAID:
                    self._said.clear()
                self._said.add(why)
                log.error("cannot serve %s %.200r: %s", request.method, request.target, why)
        except Exception as error:
            log.exception("cannot serve %s %.200r", request.method, request.target)
            status, why = 500, str(error)
        if request.begun:
            request.cut()
            return None
        return json_answer({"error": f"cannot be served: {why}"}, status)

    async def _respond(self, request: Request) -> Answer | None:
        path, _, query = request.target.partition("?")
        try:
            path = unquote(path, errors="strict")
            fields = dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS))
        except ValueError:
            raise HttpError(400, "the request's target cannot be decoded") from None
        route = path
        if path.startswith("/v1/") and path.count("/") > 2:
            collection, _, name = path.removeprefix("/v1/").partition("/")
            route, fields = f"/v1/{collection}/", fields | {"name": name}
        handlers = self._routes.get(route)
        if handlers is None and route in _ON_DISK:
            raise HttpError(503, NO_DATA_DIR)
        if handlers is None:
            raise HttpError(404, f"there is no {path}")
        handler = handlers.get(request.method)
        if handler is None:
            raise HttpError(405, f"{path} takes {', '.join(handlers)}", {"Allow": ", ".join(handlers)})
        if (meant := request.headers.get(BROKER_HEADER, self._broker_id)) != self._broker_id:
            raise HttpError(412, f"this is broker {self._broker_id}, another data directory than that of {meant[:64]}")
        return await handler(request, fields)

    async def _identify(self, request: Request, fields: dict[str, str]) -> Answer:
        return json_answer({"broker": self._broker_id})
