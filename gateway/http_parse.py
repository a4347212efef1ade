"""Parses the head of a request and the framing of its body, as Go's library does: clients of servers in Go rely on it.

So lines may end in LF alone, and any token is a method. Source: RFC 9112; what is refused: net/http of Go 1.21.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Go accepts a head of 1 MB, with any number of lines.
MAX_HEAD_BYTES: Final = (1 << 20) + 4096
MAX_HEADERS: Final = 10_000
TLS_HANDSHAKE: Final = b"\x16\x03"  # a client that begins with it waits for an answer before it sends an end of a line
MAX_CHUNK_LINE_BYTES: Final = 4096
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VERSION: Final = re.compile(rb"HTTP/([0-9])\.([0-9])")
_CONTROL: Final = re.compile(rb"[\x00-\x20\x7f]")
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_HOST: Final = re.compile(r"[0-9A-Za-z!$%&'()*+,.:;=\[\]_~-]*")


class BadRequestError(Exception):
    """Input that is not HTTP, or too large. It is answered with this status and reason, and the connection is
    closed."""

    def __init__(self, status: int = 400, why: str = "") -> None:
        super().__init__(status)
        self.status: Final = status
        self.why: Final = why


@dataclass(frozen=True, slots=True)
class Head:
    method: str
    target: str
    headers: Mapping[str, str]  # by name in lower case; several of one name are joined with ", "
    keeps_alive: bool
    is_old: bool  # HTTP/1.0: answered in that version, and the answer says so if the connection is kept
    body_bytes: int | None  # None: the body is sent in chunks

    @property
    def expects_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"


def find_end(buffer: bytearray, start: int) -> int:
    """The offset behind the empty line that ends the head; 0: not there yet. Bytes before `start` were searched
    before."""
    start = max(0, start - 3)
    ends = [at + size for mark, size in ((b"\n\r\n", 3), (b"\n\n", 2)) if (at := buffer.find(mark, start)) >= 0]
    return min(ends, default=0)


def parse_head(data: bytes) -> Head:
    """Parses a complete head. Raises BadRequestError."""
    if data.count(b"\n") > MAX_HEADERS:
        raise BadRequestError(431)
    first, *lines = (line.removesuffix(b"\r") for line in data.split(b"\n"))
    method, target, is_old = parse_request_line(first)
    headers, hosts = _headers(lines)
    _check_hosts(hosts, is_needed=not is_old and method != "CONNECT")
    said = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    keeps_alive = "close" not in said and (not is_old or "keep-alive" in said)
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise BadRequestError(417)
    return Head(method, _target(method, target, headers), headers, keeps_alive, is_old, _body_bytes(headers, is_old))


def parse_request_line(line: bytes) -> tuple[str, str, bool]:
    """The method, the target, and whether it is HTTP/1.0. Raises BadRequestError."""
    parts = line.split(b" ", 2)
    version = _VERSION.fullmatch(parts[2]) if len(parts) == 3 else None
    if version is None or not _TOKEN.fullmatch(parts[0]) or not parts[1] or _CONTROL.search(parts[1]):
        raise BadRequestError
    if version[1] != b"1":
        raise BadRequestError(505)
    return parts[0].decode("ascii"), parts[1].decode("utf-8", "replace"), version[2] == b"0"


def _target(method: str, target: str, headers: dict[str, str]) -> str:
    """The path and query. Clients of a proxy send a whole URL, whose host then counts instead of the header's."""
    if target.startswith("/") or method == "CONNECT" or (method == "OPTIONS" and target == "*"):
        return target
    scheme, _, rest = target.partition("://")
    host, slash, path = rest.partition("/")
    if scheme.lower() not in ("http", "https") or not host or not _HOST.fullmatch(host):
        raise BadRequestError
    headers["host"] = host
    return slash + path or "/"


def _check_hosts(hosts: list[str], *, is_needed: bool) -> None:
    """Two hosts could mean one to a proxy and the other to us."""
    if len(hosts) > 1:
        raise BadRequestError
    if not hosts and is_needed:
        raise BadRequestError(why="missing required Host header")
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise BadRequestError(why="malformed Host header")


def _headers(lines: list[bytes]) -> tuple[dict[str, str], list[str]]:
    """All headers, and each value of Host."""
    found: dict[str, str] = {}
    hosts: list[str] = []
    last = ""
    for line in lines:
        if not line:
            continue  # the empty line at the end
        if line[0] in b" \t":  # continues the line before
            if last in ("", "host"):
                raise BadRequestError
            found[last] += " " + _value(line)
            continue
        name, colon, rest = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name):
            raise BadRequestError
        last, value = name.decode("ascii").lower(), _value(rest)
        if last == "host":
            hosts.append(value)
        if last == "content-length" and last in found:
            if found[last] != value:
                raise BadRequestError
            continue  # said again, and the same
        found[last] = f"{found[last]}, {value}" if last in found else value
    return found, hosts


def _value(data: bytes) -> str:
    data = data.strip(b" \t")
    if _BAD_VALUE.search(data):
        raise BadRequestError
    return data.decode("latin-1")


def _body_bytes(headers: Mapping[str, str], is_old: bool) -> int | None:
    coding = headers.get("transfer-encoding")
    if coding is not None:
        # A request with both may be an attempt to smuggle another one past a proxy.
        if is_old or "content-length" in headers:
            raise BadRequestError
        if coding.lower() != "chunked":
            raise BadRequestError(501)
        return None
    size = headers.get("content-length", "0")
    if not size.isascii() or not size.isdigit() or len(size) > 18:
        raise BadRequestError
    return int(size)


def chunk_bytes(line: bytes) -> int:
    """The chunk's size, from the line that begins it. Raises ValueError."""
    size, _, extension = line.rstrip(b" \t\r\n").partition(b";")
    if b"\r" in extension:  # to some it ends the line
        raise ValueError("a carriage return within a line")
    size = size.rstrip(b" \t")
    if not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", size):
        raise ValueError("not the size of a chunk")
    return int(size, 16)
