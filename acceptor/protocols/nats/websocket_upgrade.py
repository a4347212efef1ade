"""Parses a client's request for a websocket and makes the answer, with nats-server's checks. Sends nothing itself."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from mq_shards.acceptor.host_names import is_of_this_machine, is_out_of_reach
from mq_shards.acceptor.protocols.nats.websocket_options import ANY_ORIGIN

MAX_HEAD_BYTES: Final = 16 << 10
GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
COMPRESSION: Final = "permessage-deflate"
FRAME_BYTES: Final = 30 << 10  # the most in one frame: bounds.h
# Browsers behave better with small frames.
BROWSER_FRAME_BYTES: Final = 4096

_REQUEST: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP/([0-9])\.([0-9])")
_TARGET: Final = re.compile(r"(?:/|[A-Za-z][A-Za-z0-9+.-]*:)(?:[^%]|%[0-9A-Fa-f]{2})*|\*")
_HOST: Final = re.compile(r"[A-Za-z0-9!$%&'()*+,.:;=@\[\]_~-]*")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):(.*)")
BAD_REQUEST: Final = "400 Bad Request"
# Ends of paths that are not for clients.
LEAF_NODE: Final = "/leafnode"
MQTT: Final = "/mqtt"

Place = tuple[str, str, int]  # scheme, host and port


@dataclass(frozen=True, slots=True)
class Terms:
    """What requests must meet, and what answers offer."""

    encrypted: bool = False
    takes_leaves: bool = False
    same_origin: bool = False
    allowed_origins: Sequence[str] = ()
    compression: bool = False
    headers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A request that was granted."""

    answer: bytes
    compressed: bool
    unmasked: bool
    browser: bool
    whole_compressed: bool  # each compressed message must be in one frame
    is_leaf: bool = False  # a leaf node's request
    cookies: Mapping[str, str] = field(default_factory=dict)


class UpgradeError(Exception):
    """A request was refused."""

    def __init__(self, why: str, answer: bytes, *, ends: bool) -> None:
        """`answer`: the bytes to send. `ends`: closes the connection; otherwise another request may follow."""
        super().__init__(why)
        self.answer = answer
        self.ends = ends


class Request:
    """A request of HTTP/1.1, without a body."""

    def __init__(self, head: bytes) -> None:
        """Parses a request. Raises UpgradeError."""
        first, *lines = head.decode("latin-1").split("\r\n")
        match = _REQUEST.fullmatch(first)
        if match is None:
            raise malformed()
        self.method, self.target = match[1], match[2]
        if _TARGET.fullmatch(self.target) is None:
            raise malformed()
        if match[3] != "1":
            raise malformed("505 HTTP Version Not Supported: unsupported protocol version")
        self.is_old = match[4] == "0"
        self.headers: dict[str, list[str]] = {}
        for line in lines:
            header = _HEADER.fullmatch(line)
            if header is None:
                raise malformed("400 Bad Request: invalid header name" if ":" in line else BAD_REQUEST)
            # Not stripped by the pattern: that takes quadratic time for a value with many blanks within.
            value = header[2].strip(" \t")
            if any((letter < " " and letter != "\t") or letter == "\x7f" for letter in value):
                raise malformed()
            self.headers.setdefault(header[1].lower(), []).append(value)
        hosts = len(self.headers.get("host", ()))
        if hosts > 1 or (hosts == 0 and not self.is_old):
            raise malformed(BAD_REQUEST if hosts else "400 Bad Request: missing required Host header")
        self.host = self.get("host")
        if _HOST.fullmatch(self.host) is None:
            raise malformed("400 Bad Request: malformed Host header")
        has_body = self.get("content-length") not in ("", "0") or bool(self.get("transfer-encoding"))
        self.is_last = self.is_old or has_body or self.has("connection", "close")

    def get(self, name: str) -> str:
        return self.headers.get(name, [""])[0]

    def has(self, name: str, value: str) -> bool:
        """Whether a header that is a list has this word; case does not matter."""
        words = (word.strip(" \t") for line in self.headers.get(name, ()) for word in line.split(","))
        return any(word.lower() == value.lower() for word in words)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


def malformed(text: str = BAD_REQUEST) -> UpgradeError:
    """The error for input that is not a valid HTTP request, as Go's server answers it."""
    answer = f"HTTP/1.1 {text}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{text}"
    return UpgradeError(text, answer.encode(), ends=True)


def too_large() -> UpgradeError:
    return malformed("431 Request Header Fields Too Large")


def _refused(request: Request, status: HTTPStatus, why: str) -> UpgradeError:
    text = f"{status.phrase}\n"
    lines = [
        f"HTTP/1.{0 if request.is_old else 1} {status.value} {status.phrase}",
        "Content-Type: text/plain; charset=utf-8",
        "Sec-Websocket-Version: 13",
        "X-Content-Type-Options: nosniff",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Length: {len(text)}",
        *(["Connection: close"] if request.is_last and not request.is_old else []),
    ]
    body = "" if request.method == "HEAD" else text
    answer = "\r\n".join([*lines, "", body]).encode()
    return UpgradeError(f"websocket handshake error: {why}", answer, ends=request.is_last)


def upgrade(head: bytes, terms: Terms) -> Upgraded:
    """`head`: a request, without the empty line at its end. Raises UpgradeError."""
    request = Request(head)
    bad = HTTPStatus.BAD_REQUEST
    if request.path.endswith(MQTT):
        raise _refused(request, HTTPStatus.NOT_FOUND, "mqtt websocket endpoint not enabled")
    if request.method != "GET":
        raise _refused(request, HTTPStatus.METHOD_NOT_ALLOWED, "request method must be GET")
    if not request.host:
        raise _refused(request, bad, "'Host' missing in request")
    if not request.has("upgrade", "websocket"):
        raise _refused(request, bad, "invalid value for header 'Upgrade'")
    if not request.has("connection", "Upgrade"):
        raise _refused(request, bad, "invalid value for header 'Connection'")
    key = request.get("sec-websocket-key")
    if not key:
        raise _refused(request, bad, "key missing")
    if not _is_key(key):
        raise _refused(request, bad, "invalid websocket key")
    if not request.has("sec-websocket-version", "13"):
        raise _refused(request, bad, "invalid version")
    if why := _origin_refusal(request, terms):
        raise _refused(request, HTTPStatus.FORBIDDEN, f"origin not allowed: {why}")
    granted = _granted(request, terms, key)
    if granted.is_leaf and not terms.takes_leaves:
        raise UpgradeError("not configured to accept leaf node connections", granted.answer, ends=True)
    return granted


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _granted(request: Request, terms: Terms, key: str) -> Upgraded:
    compressed = terms.compression and _wants_compression(request)
    unmasked = request.get("nats-no-masking") == "true"
    agent = request.get("user-agent")
    accept = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {accept}",
    ]
    if compressed:
        extension = f"{COMPRESSION}; server_no_context_takeover; client_no_context_takeover"
        lines.append(f"Sec-WebSocket-Extensions: {extension}")
    if unmasked:
        lines.append("Nats-No-Masking: true")
    lines += terms.headers
    browser = agent.startswith("Mozilla/")
    return Upgraded(
        answer="\r\n".join([*lines, "", ""]).encode(),
        compressed=compressed,
        unmasked=unmasked,
        browser=browser,
        whole_compressed=browser and "Version/" in agent and "Safari/" in agent,
        is_leaf=request.path.endswith(LEAF_NODE),
        cookies=_cookies(request),
    )


def _wants_compression(request: Request) -> bool:
    extensions = (one for line in request.headers.get("sec-websocket-extensions", ()) for one in line.split(","))
    return any(part.strip(" \t").lower() == COMPRESSION for one in extensions for part in one.split(";"))


def _cookies(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in request.headers.get("cookie", ()):
        # One by one, so that a malformed cookie does not affect the others.
        for part in line.split(";"):
            cookie = SimpleCookie()
            try:
                cookie.load(part.strip())
            except CookieError:
                continue
            found |= {name: morsel.value for name, morsel in cookie.items()}
    return found


# --- where a browser's page is from -----------------------------------------------------------------------------------


def _origin_refusal(request: Request, terms: Terms) -> str:
    """Why a page's origin is refused; empty if it is not. Clients that are no browsers send no origin."""
    origin = request.get("origin") or request.get("sec-websocket-origin")
    if not origin:
        return ""
    page, here = _place(origin), _place(f"{'https' if terms.encrypted else 'http'}://{request.host}")
    if terms.same_origin and page != here:
        return "not same origin"
    if ANY_ORIGIN in terms.allowed_origins or (terms.same_origin and not terms.allowed_origins):
        return ""
    if terms.allowed_origins:
        return "" if page in map(_place, terms.allowed_origins) else "not in the allowed list"
    return "" if _is_near(page, here, terms) else f"nats.websocket-allowed-origins does not name {origin:.200}"


def _is_near(page: Place | None, here: Place | None, terms: Terms) -> bool:
    """Whether a page is from the browser's own machine or the host that it calls, which no page of a stranger is."""
    if page is None or here is None:
        return False
    # A certificate keeps a stranger's name from meaning this host.
    is_host = page[1] == here[1] and (terms.encrypted or is_out_of_reach(here[1]))
    return is_host or is_of_this_machine(page[1])


def _place(url: str) -> Place | None:
    """Scheme, host and port; None when the text is no URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    return (parts.scheme.lower(), (parts.hostname or "").lower(), port) if parts.scheme else None
