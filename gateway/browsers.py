"""Protects the broker from web pages: any page can make a browser send requests to any address that the browser
reaches, and so to this broker.

Two attacks are stopped. A page of another site that posts here (CSRF) is recognized by the Origin header that the
browser sends. A page whose own name was made to resolve to this address (DNS rebinding) is recognized by the Host
header, which has that name. Programs that are not browsers may use any name for a broker: they send no Origin, and
most send no other header by which a browser is recognized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mq_shards.acceptor.host_names import is_out_of_reach
from mq_shards.gateway.access import SAFE
from mq_shards.gateway.http_answers import Answer, json_answer

if TYPE_CHECKING:
    from mq_shards.gateway.http_server import Request

# Every browser sends at least one of these headers: a script of a page can change some of their values, but cannot
# leave all of them out.
_OF_BROWSERS: Final = ("origin", "accept-language", "sec-fetch-site", "sec-fetch-mode")
_ELSEWHERE: Final = ("cross-site", "same-site")
# What a client that connects to loopback has as its address. (Istio's sidecars pass on clients of the network from
# 127.0.0.6.)
_THIS_MACHINE: Final = ("127.0.0.1", "::1")


class Browsers:
    def __init__(self, hosts: Sequence[str], *, reading_from_anywhere: bool) -> None:
        """`hosts`: the names that browsers may use, besides addresses and this machine's own name.
        `reading_from_anywhere`: protects reading from browsers on other machines too. Otherwise a request from another
        machine without an Origin counts as a program's: programs call brokers of the network by any name, and Node's
        fetch sends Accept-Language too."""
        self._hosts: Final = frozenset(host.lower() for host in hosts)
        self._reading_from_anywhere: Final = reading_from_anywhere

    def refusal(self, request: Request) -> Answer | None:
        """The answer to a browser's request that must not be served; None: it may be."""
        headers = request.headers
        if not self._must_check(request):
            return None
        host = headers.get("host", "")
        if not is_out_of_reach(_name_of(host), self._hosts):
            return _no(f"this broker is not known as {host:.200}: name it with http.hosts, or use its address")
        origin = headers.get("origin")
        if origin is not None and not _is_same(origin, host):
            return _no("a page of another site asks")
        follows_link = request.method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") in _ELSEWHERE and not follows_link:
            return _no("a page of another site asks")
        return None

    def _must_check(self, request: Request) -> bool:
        headers = request.headers
        # A browser leaves out the Origin only where nothing changes.
        is_local_read = request.method in SAFE and request.peer in _THIS_MACHINE
        return "origin" in headers or ((self._reading_from_anywhere or is_local_read) and _is_browser(headers))


def _is_browser(headers: Mapping[str, str]) -> bool:
    return any(name in headers for name in _OF_BROWSERS) or headers.get("user-agent", "").startswith("Mozilla/")


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return "?.?"


def _is_same(origin: str, host: str) -> bool:
    scheme, _, at = origin.lower().partition("://")
    return scheme in ("http", "https") and at == host.lower()


def _no(why: str) -> Answer:
    return json_answer({"error": why, "message": why, "reason": why}, 403)
