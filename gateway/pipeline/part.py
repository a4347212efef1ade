"""The gateway's part for pipelines and browsers: the HTTP API, and beside it the console, metrics and logins."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from mq_shards.gateway.access import HttpLogin
from mq_shards.gateway.browsers import Browsers
from mq_shards.gateway.console.overview import Identity
from mq_shards.gateway.console.service import Console, address_text
from mq_shards.gateway.part import Part, Shared
from mq_shards.gateway.pipeline.http import PipelineHttp
from mq_shards.gateway.unread import Unread
from mq_shards.ringbuf.control import Message


class PipelinePart(Part):
    name = "pipeline"

    def __init__(self, shared: Shared) -> None:
        settings = shared.start["settings"]["http"]
        self._is_in_memory = shared.data_dir is None
        self._staging_dir = shared.data_dir or _staging_dir(shared.start, shared.supervisor)
        self._http = PipelineHttp(shared, self._staging_dir)
        self._console = _make_console(shared, self._http)
        metrics = {"GET": shared.metrics.answer, "HEAD": shared.metrics.answer}
        self._http.serve_too({"/metrics": metrics, **self._console.http.routes})
        self._http.serve_too(HttpLogin(shared.access, shared.bodies).routes)
        server = self._http.server
        self.servers = {"http": server}
        server.refusal = Browsers(settings["hosts"], reading_from_anywhere=True).refusal
        shared.access.gate(server, "http", "/", "/console/", "/v1/health", "/v1/login", cookies=True)

    async def unread(self) -> Mapping[str, Sequence[Unread]]:
        """What named readers have not read, by topic; empty with --memory. Raises ReadersError, OSError."""
        return await self._http.unread()

    def work(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [self._http.run(), self._console.figures.run()]

    async def close(self, timeout_s: float) -> None:
        await self._http.close(timeout_s)

    async def end(self, timeout_s: float) -> None:
        await self._http.end_threads()
        if self._is_in_memory:
            await asyncio.to_thread(shutil.rmtree, self._staging_dir, ignore_errors=True)


def _make_console(shared: Shared, http: PipelineHttp) -> Console:
    start = shared.start
    identity = Identity(
        version=shared.version,
        broker=shared.broker_id,
        started_wall_ns=start["started_wall_ns"],
        data_dir=start["data_dir"] or "",
        sync=start["sync"] if start["data_dir"] else "never",
        addresses=[address_text(address) for address in start["addresses"]],
        supervisor=shared.supervisor,
    )
    return Console(shared, identity, http.view, http.reading)


def _staging_dir(start: Message, supervisor: int) -> Path:
    """With --memory: a directory of this broker, which is made when needed and found by a restarted gateway."""
    path = Path(tempfile.gettempdir()) / f"mq-shards-{supervisor}-{start['started_wall_ns']}"
    if os.path.lexists(path) and path.lstat().st_uid != os.geteuid():
        raise PermissionError(f"{path} is not ours")
    return path
