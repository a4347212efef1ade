"""The block "websocket" of nats-server's configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.option_kinds import SECOND
from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_operating import only_of_routes, timeout, tls_block
from mq_shards.acceptor.protocols.nats.conf_takers import (
    DEFAULT_HOST,
    Conf,
    Taker,
    host,
    listen,
    option,
    port,
    span_ns,
    take_block,
    unsupported,
)
from mq_shards.acceptor.protocols.nats.websocket_options import ANY_ORIGIN, is_header, is_origin

SCHEME: Final = "nats-ws"


def _origins(value: Value) -> list[str]:
    found = [value.text()] if isinstance(value.content, str) else value.texts()
    for text in found:
        if not is_origin(text):
            raise value.error(f'"{text}" is not the http or https URL of an origin')
    return found


def _headers(value: Value) -> list[str]:
    found = []
    for name, item in value.block().items():
        line = f"{name}: {item.text()}"
        if not is_header(line):
            raise item.error(f'"{name}" is not a header that may be added')
        found.append(line)
    return found


def _take_handshake_timeout(conf: Conf, value: Value) -> None:
    """A number means seconds; 0: the default."""
    if isinstance(value.content, int) and not isinstance(value.content, bool):
        ns = value.content * SECOND
    else:
        ns = value.duration_ns()
    conf.set("websocket-handshake-timeout", value, f"{ns}ns" if ns else 0)


def _take_port(conf: Conf, value: Value) -> None:
    """0: no listener for websockets."""
    if value.content != 0:
        port(SCHEME)(conf, value)


AUTHORIZATION: Final[Mapping[str, Taker]] = {
    "user": option("websocket-user", Value.text),
    "username": option("websocket-user", Value.text),
    "pass": option("websocket-password", Value.text),
    "password": option("websocket-password", Value.text),
    "token": option("websocket-token", Value.text),
    "timeout": timeout("websocket-auth-timeout"),
}

TLS: Final[Mapping[str, Taker]] = {
    **tls_block(
        "websocket-tls-",
        {
            "timeout": "handshake_timeout says how long a handshake may take",
            **dict.fromkeys(("handshake_first", "first", "immediate"), "websockets are encrypted from the first byte"),
            "connection_rate_limit": "it is about other clients",
        },
    ),
    "verify_and_map": option("websocket-tls-verify-and-map", Value.flag),
    "verify_cert_and_check_known_urls": only_of_routes,
}


def _take_tls(conf: Conf, value: Value) -> None:
    take_block(conf, value.block(), TLS, " in tls")
    for name in ("cert-file", "key-file"):
        if f"websocket-tls-{name}" not in conf.options:
            raise value.error(f"tls has no {name.replace('-', '_')}")


def _do_nothing(conf: Conf, value: Value) -> None:
    """finish_websocket() reads this key."""
    value.flag()


WEBSOCKET: Final[dict[str, Taker]] = {
    "listen": listen(SCHEME),
    "port": _take_port,
    "host": host(SCHEME),
    "net": host(SCHEME),
    "advertise": option("websocket-advertise", Value.text),
    "no_tls": _do_nothing,
    "tls": _take_tls,
    "same_origin": option("websocket-same-origin", Value.flag),
    "handshake_timeout": _take_handshake_timeout,
    "compression": option("websocket-compression", Value.flag),
    "authorization": lambda conf, value: take_block(conf, value.block(), AUTHORIZATION, " in authorization"),
    "jwt_cookie": option("websocket-jwt-cookie", Value.text),
    "user_cookie": option("websocket-user-cookie", Value.text),
    "pass_cookie": option("websocket-pass-cookie", Value.text),
    "token_cookie": option("websocket-token-cookie", Value.text),
    "no_auth_user": option("websocket-no-auth-user", Value.text),
    "headers": option("websocket-headers", _headers),
    "ping_interval": unsupported("ping_interval", "websockets are sent PINGs as often as other clients", span_ns),
}
WEBSOCKET.update({
    "compress": WEBSOCKET["compression"],
    "authentication": WEBSOCKET["authorization"],
    **dict.fromkeys(
        ("allowed_origins", "allowed_origin", "allow_origins", "allow_origin", "origins", "origin"),
        option("websocket-allowed-origins", _origins),
    ),
})  # fmt: skip


def take_websocket(conf: Conf, value: Value) -> None:
    conf.websocket = value
    take_block(conf, value.block(), WEBSOCKET, " in websocket")


def finish_websocket(conf: Conf) -> None:
    """Call after the whole file has been read."""
    value = conf.websocket
    if value is None or SCHEME not in conf.ports:
        return  # without a port there is no listener
    conf.hosts.setdefault(SCHEME, DEFAULT_HOST)
    no_tls = any(key.lower() == "no_tls" and item.content is True for key, item in value.block().items())
    if "websocket-tls-cert-file" not in conf.options and not no_tls:
        raise value.error("websocket needs a block tls, or no_tls: true")
    if "websocket-tls-cert-file" not in conf.options:
        conf.set("websocket-tls-cert-file", value, "")  # so that not even tls-cert-file is used
    if "websocket-allowed-origins" not in conf.options:
        conf.set("websocket-allowed-origins", value, [ANY_ORIGIN])  # what an empty list means to a nats-server
    for name in ("user", "token"):
        if conf.users and f"websocket-{name}" in conf.options:
            raise value.error(f"websocket has a {name} of its own, and there are users: it is one or the other")
    if "websocket-jwt-cookie" in conf.options and "operator" not in conf.content:
        raise value.error("websocket has a jwt_cookie, and there is no operator")
    nobody = conf.options.get("websocket-no-auth-user")
    if nobody is not None and nobody[1] not in {user.get("nkey") or user.get("name") for user in conf.users}:
        raise value.error(f'there is no user "{nobody[1]}"')
