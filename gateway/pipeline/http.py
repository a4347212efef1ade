"""The HTTP API for data pipelines (docs/pipeline-http.md): its sockets, and which request goes to which handler.

What reads files runs in threads: the event loop waits for no disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from mq_shards.gateway.broker import Broker
from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer, Request
from mq_shards.gateway.pipeline.giving_way import GiveWay
from mq_shards.gateway.pipeline.handling import Handler
from mq_shards.gateway.pipeline.http_erase import HttpErase
from mq_shards.gateway.pipeline.http_publish import HttpPublish, PrepareTopic
from mq_shards.gateway.pipeline.http_readers import HttpReaders, Unread
from mq_shards.gateway.pipeline.http_records import HttpRecords
from mq_shards.gateway.pipeline.http_writers import HttpWriters
from mq_shards.gateway.pipeline.staging import Staging
from mq_shards.gateway.pipeline.writers import Writers
from mq_shards.shards.erased import ErasedError
from mq_shards.shards.readers import ReadersError

if TYPE_CHECKING:
    from mq_shards.shards.reader.view import DataView

MAX_CONNECTIONS: Final = 512
UNSENT_BYTES: Final = 256 << 10  # of a connection, in the kernel: what lies there can no longer give way
READER_THREADS: Final = 2  # that read logs
STAGING_THREADS: Final = 4  # that write what is staged, sync it and read it again
CHECK_THREADS: Final = 1  # that look at what is published: it waits for no disk
MAX_QUERY_FIELDS: Final = 16

BROKER_HEADER: Final = "x-broker"  # of a request: which broker is meant, whatever answers at this address
NO_DATA_DIR: Final = "with --memory there is nothing to read: messages that are finished are not kept"
_ON_DISK: Final = (
    "/v1/topics", "/v1/topics/", "/v1/erased", "/v1/offsets", "/v1/records", "/v1/readers", "/v1/readers/",
)  # fmt: skip

log = logging.getLogger(__name__)


class _View:
    """The logs as readers see them, not before somebody reads: numpy comes with it, which takes its time and memory."""

    def __init__(self, data_dir: Path, shards: int) -> None:
        self._data_dir = data_dir
        self._shards = shards
        self._lock = Lock()
        self._view: DataView | None = None

    def __call__(self) -> DataView:
        """For threads."""
        with self._lock:
            if self._view is None:
                from mq_shards.shards.reader.view import DataView

                self._view = DataView(self._data_dir, self._shards)
            return self._view


class PipelineHttp:
    def __init__(
        self,
        broker: Broker,
        bodies: Bodies,
        broker_id: str,
        data_dir: Path | None,
        staging_dir: Path,
        shards: int,
        max_message_bytes: int,
        max_staged_bytes: int,
        prepare_topic: PrepareTopic,
        written: Callable[[], int],
    ) -> None:
        """`broker_id`: the data directory's, or, with --memory, one of this start. `written`: how many records the
        workers have written so far. To be made where the event loop runs. What writers had under way goes on at
        once."""
        reading = ThreadPoolExecutor(READER_THREADS, "reader")
        writing = ThreadPoolExecutor(STAGING_THREADS, "staging")
        checking = ThreadPoolExecutor(CHECK_THREADS, "check")
        self._threads = reading, writing, checking
        self.reading: Final = reading
        self.view: Final = None if data_dir is None else _View(data_dir, shards)
        self._readers: HttpReaders | None = None
        staging = Staging(staging_dir, max_staged_bytes, max_message_bytes, writing)
        self._writers = Writers(staging_dir, staging, broker, prepare_topic, writing)
        self._way = GiveWay(written)
        self._broker_id = broker_id
        # By path; one that ends in a / is a collection's, and the name of a member follows.
        self._routes: dict[str, Mapping[str, Handler]] = {
            "/v1/broker": {"GET": self._identify},
            **HttpPublish(broker, prepare_topic, max_message_bytes, bodies, checking).routes,
            **HttpWriters(staging, self._writers, bodies).routes,
        }
        if data_dir is not None and self.view is not None:
            self._routes |= HttpRecords(broker_id, self.view, bodies, reading, self._way).routes
            self._routes |= HttpErase(broker, self.view, reading).routes
            self._readers = HttpReaders(data_dir, self.view, bodies, reading)
            self._routes |= self._readers.routes
        self.server: Final = HttpServer(self._serve, bodies, MAX_CONNECTIONS, UNSENT_BYTES)

    def serve_too(self, routes: Mapping[str, Mapping[str, Handler]]) -> None:
        """What else answers at these addresses."""
        self._routes |= routes

    async def run(self) -> None:
        """What is done beside requests. Goes on until it is cancelled."""
        await asyncio.gather(self._writers.run(), self._way.run())

    async def unread(self) -> dict[str, list[Unread]]:
        """What named readers have not read, by topic; nothing where there can be none. Raises ReadersError, OSError."""
        return {} if self._readers is None else await self._readers.unread()

    async def close(self, patience_s: float) -> None:
        """Accepts no more, and waits that long for the requests that are being served."""
        await self._writers.close()
        await self.server.close(patience_s)

    async def end_threads(self) -> None:
        """When nobody asks any more: of what readers have not read, /stats of NSQ's asks too."""
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
        except ErasedError as error:
            return json_answer({"error": str(error)}, 503)
        except Exception as error:
            log.exception("cannot serve %s %.200r", request.method, request.target)
            if request.begun:
                request.cut()
                return None
            return json_answer({"error": f"cannot be served: {error}"}, 500)

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
