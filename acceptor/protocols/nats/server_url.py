"""URLs of other servers: of routes, of leaf nodes and of hubs."""

from __future__ import annotations

from typing import Final, NamedTuple

from mq_shards.acceptor.option_kinds import is_host

DEFAULT_PORT: Final = 6222


class RouteUrl(NamedTuple):
    """Where a server accepts routes, and the user and password that this server sends there."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    path: str = ""  # for the request of a websocket

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"nats-route://{host}:{self.port}/"

    def is_at(self, host: str, port: int) -> bool:
        return (self.host.lower(), self.port) == (host.lower(), port)


def route_url(text: str) -> RouteUrl | None:
    """Parses nats-route://[USER:PASSWORD@]HOST[:PORT], with any scheme; None when the text is no such URL. What follows
    is ignored, as by nats-server."""
    scheme, url = server_url(text, DEFAULT_PORT)
    return url._replace(path="") if url is not None and scheme else None


def server_url(text: str, default_port: int) -> tuple[str, RouteUrl | None]:
    """Parses SCHEME://[USER:PASSWORD@]HOST[:PORT][/PATH] into scheme and URL; None when it names no host or port."""
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(text)
        port = default_port if parts.port is None else parts.port
    except ValueError:
        return "", None
    host = parts.hostname or ""
    if not is_host(host) or not port:
        return parts.scheme, None
    path = parts.path.rstrip("/")
    return parts.scheme, RouteUrl(host, port, unquote(parts.username or ""), unquote(parts.password or ""), path)
