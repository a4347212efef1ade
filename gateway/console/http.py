"""The console's paths: its pages, their queries, and the one path for changes.

A change is a POST of JSON. Pages of other sites cannot send that without a CORS preflight, which is not answered here.
Requests from browsers have been checked before they come here (gateway/browsers.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any, Final

import orjson
from mq_shards.acceptor.access.rights import READ
from mq_shards.gateway.access import check, granted
from mq_shards.gateway.console.actions import Actions
from mq_shards.gateway.console.detail import Detail
from mq_shards.gateway.console.figures import Figures
from mq_shards.gateway.console.listing import Listing, Wanted
from mq_shards.gateway.console.overview import Overview
from mq_shards.gateway.console.peek import Peek
from mq_shards.gateway.console.waits import Waits
from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_handling import Handler
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.workers import WorkersError

PAGES: Final = "pages"
KINDS: Final = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}  # fmt: skip
START: Final = "index.html"
COPIES: Final = 2  # of the body of a change: its text, and the message that waits for the worker
# Pages load nothing from elsewhere, are shown in no frame of another site, and send no Referer to links.
POLICY: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class ConsoleHttp:
    def __init__(
        self,
        figures: Figures,
        waits: Waits,
        overview: Overview,
        detail: Detail,
        peek: Peek,
        actions: Actions,
        bodies: Bodies,
        max_body_bytes: int,
    ) -> None:
        self._figures = figures
        self._overview = overview
        self._detail = detail
        self._peek = peek
        self._actions = actions
        self._bodies = bodies
        self._max_body_bytes = max_body_bytes
        self._listing = Listing(figures, waits)
        self.routes: Final[dict[str, dict[str, Handler]]] = {
            "/": {"GET": _page(START)},
            **{f"/console/{name}": {"GET": _page(name)} for name in pages()},
            "/v1/health": {"GET": _asking(self._health)},
            "/v1/overview": {"GET": _asking(self._overview_json)},
            "/v1/find": {"GET": _asking(self._find)},
            "/v1/topic": {"GET": self._topic_answer},
            "/v1/peek": {"GET": self._peek_answer},
            "/v1/act": {"POST": self._act},
        }
        for methods in self.routes.values():
            if "GET" in methods:  # load balancers ask so whether somebody is there
                methods["HEAD"] = methods["GET"]

    async def _health(self, fields: dict[str, str]) -> dict[str, Any]:
        return self._overview.health()

    async def _overview_json(self, fields: dict[str, str]) -> dict[str, Any]:
        return await self._overview.json(await self._figures.sample())

    async def _find(self, fields: dict[str, str]) -> dict[str, Any]:
        wanted = Wanted.of(fields)
        return await self._listing.page(await self._figures.sample(), wanted)

    async def _topic(self, fields: dict[str, str]) -> dict[str, Any]:
        if not fields.get("name"):
            raise HttpError(400, "which topic?")
        await self._figures.sample()
        return await self._detail.json(fields["name"])

    async def _topic_answer(self, request: Request, fields: dict[str, str]) -> Answer | None:
        async def asked(fields: dict[str, str]) -> dict[str, Any]:
            return {**await self._topic(fields), "may": granted(request, fields["name"])}

        return await _asking(asked)(request, fields)

    async def _peek_answer(self, request: Request, fields: dict[str, str]) -> Answer | None:
        check(request, READ, fields.get("topic", ""))
        return await _asking(self._peek.json)(request, fields)

    async def _act(self, request: Request, fields: dict[str, str]) -> Answer:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HttpError(415, "Content-Type has to be application/json")
        async with self._bodies.read_whole(request, self._max_body_bytes) as body:
            try:
                said = orjson.loads(body)
            except ValueError:
                raise HttpError(400, "the body is not JSON") from None
            with self._bodies.held(COPIES * len(body)):
                return json_answer({"ok": True, **await self._actions.do(request, said)})


def _asking(ask: Callable[[dict[str, str]], Any]) -> Handler:
    async def handle(request: Request, fields: dict[str, str]) -> Answer:
        try:
            return json_answer(await ask(fields), headers={"Cache-Control": "no-store"})
        except WorkersError as error:
            raise HttpError(503, str(error)) from None

    return handle


@cache
def pages() -> dict[str, bytes]:
    """The console's files, by name."""
    folder = resources.files("mq_shards.gateway.console") / PAGES
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name.endswith(tuple(KINDS))}


def _page(name: str) -> Handler:
    async def handle(request: Request, fields: dict[str, str]) -> Answer:
        content = pages()[name]
        tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
        headers = {**POLICY, "ETag": tag, "Content-Type": KINDS[name[name.rindex(".") :]]}
        if request.headers.get("if-none-match") == tag:
            return Answer(304, b"", headers)
        return Answer(200, content, headers)

    return handle
