"""What a page in somebody's browser may not make it do here: every page of the web can send requests to any address
that the browser reaches, this broker's too.

Two ways are closed. A page of another site that posts here (CSRF) is told by the Origin that the browser names. A page
whose own name is made to stand for this address (DNS rebinding) is told by the Host, which then is that name. Programs
that are no browsers say nothing of the kind, and are not asked: to them a broker may have any name.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mq_shards.gateway.http_answers import Answer, json_answer

if TYPE_CHECKING:
    from mq_shards.gateway.http_server import Request

# Every browser sends one of these, whatever a script of its page says: a script may change what some of them hold,
# and cannot leave them all out.
_OF_BROWSERS: Final = ("origin", "accept-language", "sec-fetch-site", "sec-fetch-mode")
_ELSEWHERE: Final = ("cross-site", "same-site")


class Browsers:
    def __init__(self, hosts: Sequence[str], *, reading: bool) -> None:
        """`hosts`: the names, beside addresses and this machine's own name, under which browsers come. `reading`: what
        is only read is guarded too; else what comes without an Origin is taken for a program's."""
        self._hosts: Final = frozenset(host.lower() for host in (*hosts, "localhost", socket.gethostname()))
        self._reading: Final = reading

    def refusal(self, request: Request) -> Answer | None:
        """What a request from a browser is answered if it must not be served."""
        headers = request.headers
        if not (_is_browser(headers) if self._reading else "origin" in headers):
            return None
        host = headers.get("host", "")
        if not self._is_known(host):
            return _no(f"this broker is not known as {host:.200}: name it with http.hosts, or use its address")
        origin = headers.get("origin")
        if origin is not None and not _is_same(origin, host):
            return _no("a page of another site asks")
        follows_link = request.method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") in _ELSEWHERE and not follows_link:
            return _no("a page of another site asks")
        return None

    def _is_known(self, host: str) -> bool:
        name = _name_of(host)
        # A name without a dot belongs to nobody of the web; so no page of it has one.
        return name in self._hosts or _is_address(name) or bool(name and "." not in name)


def _is_browser(headers: Mapping[str, str]) -> bool:
    return any(name in headers for name in _OF_BROWSERS) or headers.get("user-agent", "").startswith("Mozilla/")


def _name_of(host: str) -> str:
    """Without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return "?.?"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_same(origin: str, host: str) -> bool:
    scheme, _, at = origin.lower().partition("://")
    return scheme in ("http", "https") and at == host.lower()


def _no(why: str) -> Answer:
    return json_answer({"error": why, "message": why, "reason": why}, 403)
