"""Pulsar's REST API: its server, and which handler serves which request. docs/pulsar-admin.md lists the API.

Statuses, {"reason": ...} and the error pages are those of a real broker.
"""

from __future__ import annotations

import dataclasses
import html
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, unquote

from mq_shards.gateway.access import HttpAccess
from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer, Request
from mq_shards.gateway.pulsar.http_access import Access, Asked
from mq_shards.gateway.pulsar.older_paths import OlderPaths
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.requests import Call, Handler, Routes
from mq_shards.gateway.pulsar.store import Store, StoreError

MAX_CONNECTIONS: Final = 1024
MAX_QUERY_FIELDS: Final = 32
MAX_PATH_BYTES: Final = 8192

log = logging.getLogger(__name__)


class PulsarHttp:
    def __init__(
        self, store: Store, bodies: Bodies, routes: Routes, older: OlderPaths, access: Access, users: HttpAccess
    ) -> None:
        """To be made where the event loop runs. `users`: those that all protocols share."""
        self._store = store
        self._access = access
        self._users = users
        self._bodies = bodies
        self._older = older
        self._tree = _Tree({**routes, **older.routes})
        self.knows_others: Final = access.knows_others
        self.server: Final = HttpServer(self._serve, bodies, MAX_CONNECTIONS)

    async def _serve(self, request: Request) -> Answer | None:
        try:
            return await self._respond(request)
        except RefusedError as error:
            return _refused(error.status, error.reason)
        except StoreError as error:
            return _refused(503, str(error))
        except HttpError as error:
            return _refused(error.status, error.message, error.headers)
        except Exception:
            log.exception("cannot serve %s %.200r", request.method, request.target)
            return _refused(500, "An unexpected error occurred in the server")

    async def _respond(self, request: Request) -> Answer:
        raw, _, query = request.target.partition("?")
        if len(raw) > MAX_PATH_BYTES:
            return page(414, raw[:64])
        try:
            parts = [unquote(part, errors="strict") for part in raw.split("/")[1:]]
            fields = dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS))
        except ValueError:
            return page(400, raw)
        who = self._access.who(raw, request)
        if who is None:
            await self._users.refuse(request)
            return page(401, raw, "Authentication required")
        route, methods, names = self._tree.find(parts)
        if methods is None:
            return page(404, raw)
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            return page(405, raw)
        route, asked = self._older.today(route, names)
        await self._store.opened()
        try:
            self._access.check(Asked(request.method, route, asked, who))
        except RefusedError as error:
            if error.error == "AuthorizationError" and isinstance(request.access, HttpAccess):
                request.access.refused(request)
            raise
        return await handler(Call(request, self._bodies, asked, fields))


class _Tree:
    """The tree of paths, a segment a level. A literal segment is preferred to one that may be anything."""

    def __init__(self, routes: Routes) -> None:
        self._start = _Node()
        for path, methods in routes.items():
            node = self._start
            for segment in path.split("/")[1:]:
                if segment.startswith("{"):
                    node.anything = node.anything or _Node()
                    node = node.anything
                    assert node.name in ("", segment[1:-1]), path
                    node.name = segment[1:-1]
                else:
                    node = node.named.setdefault(segment, _Node())
            assert not node.methods.keys() & methods.keys(), path
            node.methods.update(methods)
            node.route = path

    def find(self, parts: list[str]) -> tuple[str, dict[str, Handler] | None, dict[str, str]]:
        """Finds a path: its route, the handlers by method (None: no such path), and the values of the route's names."""
        # Depth first; the number of steps is bounded by the number of routes.
        open_: list[tuple[_Node, int, dict[str, str]]] = [(self._start, 0, {})]
        while open_:
            node, at, names = open_.pop()
            if at == len(parts):
                if node.methods:
                    return node.route, node.methods, names
                continue
            if node.anything is not None and parts[at]:
                open_.append((node.anything, at + 1, {**names, node.anything.name: parts[at]}))
            if parts[at] in node.named:
                open_.append((node.named[parts[at]], at + 1, names))
        return "", None, {}


class _Node:
    def __init__(self) -> None:
        self.name = ""  # of the segment, if it may be anything
        self.route = ""
        self.named: dict[str, _Node] = {}
        self.anything: _Node | None = None
        self.methods: dict[str, Handler] = {}


def _refused(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Answer:
    """The reason is in the status line too: Java's clients that look topics up by HTTP say what that says."""
    return dataclasses.replace(json_answer({"reason": reason}, status, headers), reason=reason)


def page(status: int, uri: str, message: str = "") -> Answer:
    """An error page like that of a servlet container."""
    phrase = message or HTTPStatus(status).phrase
    text = (
        f"<html>\n<head>\n<title>Error {status} {phrase}</title>\n</head>\n"
        f"<body><h2>HTTP ERROR {status} {phrase}</h2>\n"
        f"<table>\n<tr><th>URI:</th><td>{html.escape(uri[:1000])}</td></tr>\n"
        f"<tr><th>STATUS:</th><td>{status}</td></tr>\n"
        f"<tr><th>MESSAGE:</th><td>{phrase}</td></tr>\n</table>\n</body>\n</html>\n"
    )
    return Answer(status, text.encode(), {"Content-Type": "text/html;charset=iso-8859-1"})
