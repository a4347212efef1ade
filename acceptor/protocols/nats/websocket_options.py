"""The options of section nats about websockets, as in nats-server's block `websocket`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from mq_shards.acceptor.option_kinds import MS, SECOND, YEAR, Duration, File, Flag, Kind, Text, TextList
from mq_shards.acceptor.protocols.nats.tls_options import OPTIONS as TLS_OPTIONS
from mq_shards.acceptor.protocols.nats.tls_options import SHA256_HEX

PREFIX: Final = "websocket-"
ANY_ORIGIN: Final = "*"
# Headers that the server sets itself, so that no option may.
OWN_HEADERS: Final = ("host", "content-length", "connection", "upgrade", "nats-no-masking")
TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"


def is_origin(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        return False


def is_header(text: str) -> bool:
    name, colon, value = text.partition(":")
    own = name.lower() in OWN_HEADERS or name.lower().startswith("sec-websocket-")
    return bool(colon) and re.fullmatch(TOKEN, name) is not None and not own and value.isprintable()


def is_cookie(text: str) -> bool:
    return re.fullmatch(TOKEN, text) is not None


def _tls(name: str) -> Kind:
    return TLS_OPTIONS[name]


OPTIONS: Final[Mapping[str, Kind]] = {
    "websocket-tls-cert-file": File("the server's certificate: websockets are encrypted (wss)"),
    "websocket-tls-key-file": File("its key"),
    "websocket-allow-non-tls": Flag(False, "clients of websockets may do without"),
    "websocket-tls-ca-file": File("who may have signed clients' certificates; none: whom the system trusts"),
    "websocket-tls-verify": Flag(False, "clients must show a certificate"),
    "websocket-tls-verify-and-map": Flag(False, "and it says which user they are"),
    "websocket-tls-pinned-certs": TextList(
        "keys of clients' certificates, and no others", "hexadecimal SHA-256 of a SubjectPublicKeyInfo",
        lambda text: re.fullmatch(SHA256_HEX, text) is not None,
    ),
    "websocket-tls-cipher-suites": _tls("tls-cipher-suites"),
    "websocket-tls-curve-preferences": _tls("tls-curve-preferences"),
    "websocket-tls-min-version": _tls("tls-min-version"),
    "websocket-handshake-timeout": Duration(5 * SECOND, MS, YEAR, "until a connection is a websocket, TLS included"),
    "websocket-same-origin": Flag(False, "browsers may only come from where they were served"),
    "websocket-allowed-origins": TextList(
        "or from here; none: from this host, and from the browser's own machine", "an http or https URL, or * for all",
        lambda text: text == ANY_ORIGIN or is_origin(text),
    ),
    "websocket-compression": Flag(False, "messages are compressed where a client wants that"),
    "websocket-headers": TextList("of the answer to a handshake, beside its own", "NAME: VALUE", is_header),
    "websocket-jwt-cookie": Text("", "that a client's JWT is in, if not in CONNECT", "a cookie's name", is_cookie),
    "websocket-user-cookie": Text("", "the same of its user", "a cookie's name", is_cookie),
    "websocket-pass-cookie": Text("", "the same of its password", "a cookie's name", is_cookie),
    "websocket-token-cookie": Text("", "the same of its token", "a cookie's name", is_cookie),
    "websocket-user": Text("", "what clients of websockets must say, instead of others"),
    "websocket-password": Text("", "see websocket-user"),
    "websocket-token": Text("", "the same"),
    "websocket-no-auth-user": Text("", "who clients of websockets are that say nothing"),
    "websocket-auth-timeout": Duration(0, 0, YEAR, "for a CONNECT to come on a websocket; 0: auth-timeout"),
    "websocket-advertise": Text("", "HOST[:PORT] that connect_urls says of this server to clients of websockets"),
}  # fmt: skip
# See tls_options.py.
DEMANDS: Final = ("websocket-tls-verify", "websocket-tls-verify-and-map", "websocket-tls-pinned-certs")
SECRETS: Final = frozenset({"websocket-user", "websocket-password", "websocket-token"})


def tls_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the TLS options that websockets lack; the timeout is that of the handshake as a whole."""
    usual = {f"{PREFIX}{name}": kind.default for name, kind in TLS_OPTIONS.items()}
    return {**usual, **settings, f"{PREFIX}tls-timeout": settings[f"{PREFIX}handshake-timeout"]}


def check(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, with a message of one line, for options that contradict each other."""
    if settings["websocket-user"] and settings["websocket-token"]:
        raise ValueError("nats.websocket-user and nats.websocket-token: it is one or the other")
    tls = [name for name in OPTIONS if name.startswith(f"{PREFIX}tls-")]
    if any(settings[name] != OPTIONS[name].default for name in tls):
        from mq_shards.acceptor.protocols.nats import tls as nats_tls

        nats_tls.terms(tls_settings(settings), PREFIX)
