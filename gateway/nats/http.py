"""nats-server's monitoring port: its paths, parameters, keys and error texts (docs/nats.md says what differs)."""

from __future__ import annotations

import html
import logging
import posixpath
import re
import string
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

from mq_shards.gateway.http_answers import TEXT, Answer, HttpError
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer, Request
from mq_shards.gateway.nats import listings
from mq_shards.gateway.nats.acceptors import UnavailableError
from mq_shards.gateway.nats.connz import ConnzError, ConnzOptions
from mq_shards.gateway.nats.go_values import ParameterError, boolean, dumps, integer
from mq_shards.gateway.nats.listings import HealthOptions, LeafzOptions, ListingError, RoutezOptions, SubszOptions
from mq_shards.gateway.nats.monitoring import Monitoring

MAX_CONNECTIONS: Final = 1024
MAX_FIELDS: Final = 100
JSON_HEADERS: Final = {"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"}
HTML: Final = "text/html; charset=utf-8"

_UNREADABLE: Final = re.compile(r";|%(?![0-9A-Fa-f]{2})")

Fields = dict[str, str]
Row = dict[str, Any]

log = logging.getLogger(__name__)


class MonitoringHttp:
    def __init__(self, monitoring: Monitoring, bodies: Bodies, base_path: str) -> None:
        self._monitoring = monitoring
        self._base_path = "/" + base_path.strip("/") if base_path.strip("/") else ""
        self.server: Final = HttpServer(self._serve, bodies, MAX_CONNECTIONS)
        self._paths: Mapping[str, Callable[[Fields], Awaitable[Row]]] = {
            "/varz": self._varz,
            "/connz": self._connz,
            "/routez": self._routez,
            "/gatewayz": self._gatewayz,
            "/leafz": self._leafz,
            "/subsz": self._subsz,
            "/subscriptionsz": self._subsz,
            "/accountz": self._accountz,
            "/accstatz": self._accstatz,
            "/jsz": self._jsz,
        }

    async def _serve(self, request: Request) -> Answer:
        raw_path, _, query = request.target.partition("?")
        if (clean := _clean(raw_path)) != raw_path:
            return _redirect(quote(clean, "/$&+,:;=@") + ("?" + quote(query, string.punctuation) if query else ""))
        path = unquote(raw_path, errors="replace")
        if not path.startswith(self._base_path):
            return _not_found()
        path = path[len(self._base_path) :] or "/"
        try:
            return await self._answer(path, query)
        except (ParameterError, ConnzError, ListingError) as error:
            return Answer(400, str(error).encode(), {"Content-Type": TEXT})
        except UnavailableError:
            return Answer(503, b"no acceptor answers", {"Content-Type": TEXT})
        except HttpError as error:
            return Answer(error.status, error.message.encode(), {"Content-Type": TEXT})
        except Exception:
            log.exception("cannot serve %s %.200r", request.method, request.target)
            return Answer(500, b"Internal Server Error", {"Content-Type": TEXT})

    async def _answer(self, path: str, query: str) -> Answer:
        counted = {"/subscriptionsz": "/subsz"}.get(path, path)
        if path == "/":
            self._monitoring.count(counted)
            return Answer(200, ROOT_PAGE, {"Content-Type": HTML})
        if path == "/healthz":
            self._monitoring.count(counted)
            status, health = await self._monitoring.healthz(_health_options(_fields(query)))
            return Answer(status, dumps(health, indented=False), JSON_HEADERS)
        if path == "/raftz":
            return Answer(404, b"No Raft nodes registered", {"Content-Type": TEXT})
        if path == "/ipqueuesz":
            boolean(_fields(query), "all")
            return Answer(200, b"{}", JSON_HEADERS)
        handler = self._paths.get(path)
        if handler is None:
            return _not_found()
        fields = _fields(query)
        self._monitoring.count(counted)
        return Answer(200, dumps(await handler(fields), indented=True), JSON_HEADERS)

    # --- pages ------------------------------------------------------------------------------------------------------

    async def _varz(self, fields: Fields) -> Row:
        return await self._monitoring.varz()

    async def _connz(self, fields: Fields) -> Row:
        auth = boolean(fields, "auth")
        detail = fields.get("subs", "").lower() == "detail"
        options = ConnzOptions(
            sort=fields.get("sort", ""),
            auth=auth,
            subs=not detail and boolean(fields, "subs"),
            subs_detail=detail,
            offset=integer(fields, "offset"),
            limit=integer(fields, "limit"),
            cid=integer(fields, "cid", unsigned=True),
            state=_state(fields),
            user=fields.get("user", ""),
            account=fields.get("acc", ""),
            mqtt_client=fields.get("mqtt_client", ""),
        )
        return await self._monitoring.connz(options)

    async def _routez(self, fields: Fields) -> Row:
        detail = fields.get("subs", "").lower() == "detail"
        return await self._monitoring.routez(RoutezOptions(not detail and boolean(fields, "subs"), detail))

    async def _gatewayz(self, fields: Fields) -> Row:
        if fields.get("subs", "").lower() != "detail":
            boolean(fields, "subs")
        boolean(fields, "accs")
        return listings.gatewayz(await self._monitoring.server(), time.time_ns())

    async def _leafz(self, fields: Fields) -> Row:
        return await self._monitoring.leafz(LeafzOptions(boolean(fields, "subs"), fields.get("acc", "")))

    async def _subsz(self, fields: Fields) -> Row:
        options = SubszOptions(
            subscriptions=boolean(fields, "subs"),
            offset=integer(fields, "offset"),
            limit=integer(fields, "limit"),
            account=fields.get("acc", ""),
            test=fields.get("test", ""),
        )
        return await self._monitoring.subsz(options)

    async def _accountz(self, fields: Fields) -> Row:
        return await self._monitoring.accountz(fields.get("acc", ""))

    async def _accstatz(self, fields: Fields) -> Row:
        return await self._monitoring.accstatz(boolean(fields, "unused"), [])

    async def _jsz(self, fields: Fields) -> Row:
        for name in ("accounts", "streams", "consumers", "direct-consumers", "config"):
            boolean(fields, name)
        for name in ("offset", "limit"):
            integer(fields, name)
        is_leader = boolean(fields, "leader-only")
        for name in ("raft", "stream-leader-only"):
            boolean(fields, name)
        if is_leader:
            raise ListingError("filtered response: not leader")
        return listings.jsz(await self._monitoring.server(), time.time_ns())


def _fields(query: str) -> Fields:
    """The first value of each parameter. Like Go, ignores one with a semicolon or a bad escape. Raises HttpError."""
    found: Fields = {}
    read = "&".join(one for one in query.split("&") if _UNREADABLE.search(one) is None)
    try:
        pairs = parse_qsl(read, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise HttpError(400, "too many parameters") from None
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def _health_options(fields: Fields) -> HealthOptions:
    for name in ("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only"):
        boolean(fields, name)
    account, stream, consumer = (fields.get(name, "") for name in ("account", "stream", "consumer"))
    return HealthOptions(account, stream, consumer, boolean(fields, "details"))


def _state(fields: Fields) -> str:
    text = fields.get("state", "")
    state = {"": "open", "open": "open", "closed": "closed", "any": "all", "all": "all"}.get(text.lower())
    if state is None:
        raise ParameterError(f"Error decoding state for {text}")
    return state


def _clean(path: str) -> str:
    """A path without empty parts, "." and "..". Like Go's ServeMux, looks at it as it is escaped."""
    if not path.startswith("/"):
        return path
    clean = "/" + posixpath.normpath(path).lstrip("/")
    return clean + "/" if path.endswith("/") and clean != "/" else clean


def _redirect(target: str) -> Answer:
    body = f'<a href="{html.escape(target)}">Temporary Redirect</a>.\n\n'
    return Answer(307, body.encode(), {"Content-Type": HTML, "Location": target})


def _not_found() -> Answer:
    return Answer(404, b"404 page not found\n", {"Content-Type": TEXT, "X-Content-Type-Options": "nosniff"})


_PAGES: Final = (
    ("General", "varz"), ("JetStream", "jsz"), ("Connections", "connz"), ("Accounts", "accountz"),
    ("Account Stats", "accstatz"), ("Subscriptions", "subsz"), ("Routes", "routez"), ("LeafNodes", "leafz"),
    ("Gateways", "gatewayz"), ("Health Probe", "healthz"),
)  # fmt: skip
ROOT_PAGE: Final = (
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head><title>mq-shards: NATS</title></head>\n<body>\n<h1>NATS</h1>\n"
    + "".join(f"<p><a href=./{path}>{name}</a> /{path}</p>\n" for name, path in _PAGES)
    + "</body>\n</html>\n"
).encode()  # fmt: skip
