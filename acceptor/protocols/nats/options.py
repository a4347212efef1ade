"""All options of section nats: the general ones, and those of clusters, leaf nodes, TLS, topics and websockets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from mq_shards.acceptor.option_kinds import (
    MAX_BODY,
    MINUTE,
    MS,
    SECOND,
    YEAR,
    Duration,
    Flag,
    Kind,
    Number,
    Setting,
    Text,
    TextList,
)
from mq_shards.acceptor.protocol import OtherScheme, OwnTls
from mq_shards.acceptor.protocols.nats import (
    cluster_options as nats_cluster_options,
)
from mq_shards.acceptor.protocols.nats import (
    leaf_options as nats_leaf_options,
)
from mq_shards.acceptor.protocols.nats import (
    logged as nats_logged,
)
from mq_shards.acceptor.protocols.nats import (
    tls_options as nats_tls_options,
)
from mq_shards.acceptor.protocols.nats import (
    topics as nats_topics,
)
from mq_shards.acceptor.protocols.nats import (
    websocket_options as nats_websocket_options,
)
from mq_shards.acceptor.protocols.nats import (
    write_timeout as nats_write_timeout,
)

# May hold unprintable characters, as with nats-server.
_Word: Final = partial(Text, check=lambda text: True, is_printable=False)

OPTIONS: Final[Mapping[str, Kind]] = {
    "server-name": Text("", "what INFO calls server_name; empty: the server's ID"),
    "server-tags": TextList("of the server, that $SYS requests choose by", "a word", bool),
    "server-metadata": TextList("what is said of the server", "NAME: VALUE", lambda text: ": " in text),
    "user": _Word("", "every client must say this user and password"),
    "password": _Word("", "see user"),
    "token": _Word("", "every client must say this token"),
    "auth-timeout": Duration(2 * SECOND, MS, YEAR, "for a CONNECT to come, where one must"),
    "max-payload": Number(1 << 20, -1, MAX_BODY, "bytes of the largest message; -1: as large as any protocol's"),
    "max-control-line": Number(4096, 64, 64 << 10, "bytes of the longest line's arguments"),
    "max-subscriptions": Number(0, 0, (1 << 32) - 1, "subscriptions of one connection; 0: any number"),
    "max-sub-tokens": Number(0, 0, 255, "tokens of a subject that is subscribed to; 0: any number"),
    "no-header-support": Flag(False, "messages have no headers: HPUB is an error"),
    "max-pending": Number(64 << 20, 1 << 10, 1 << 40, "bytes that may wait for one client before it is cut off"),
    "write-deadline": Duration(10 * SECOND, MS, YEAR, "in which a client has to take what waits, or be cut off"),
    "write-timeout": nats_write_timeout.option("a client"),
    "ping-interval": Duration(2 * MINUTE, MS, YEAR, "a client that is silent for so long is sent a PING"),
    "ping-max": Number(2, 0, 1 << 20, "unanswered PINGs; one more, and the client is cut off"),
    "max-closed-clients": Number(10_000, 0, 1 << 20, "connections that have ended and are shown by monitoring"),
    "http-base-path": Text("", "what the paths of monitoring begin with", "a path"),
    "max-connections": Number(64 << 10, -1, 1 << 31, "clients of all acceptors together; 0: any number, -1: none"),
    "proxy-protocol": Flag(False, "a proxy in front says for whom it connects"),
    "client-advertise": Text("", "HOST[:PORT] that INFO says of this server's address"),
    "lame-duck-duration": Duration(2 * MINUTE, MS, YEAR, "on SIGUSR2: until all clients are cut off"),
    "lame-duck-grace-period": Duration(10 * SECOND, MS, YEAR, "and until the first is"),
    "pid-file": Text("", "a file that the process's number is written to", "a path"),
    "ports-file-dir": Text("", "where to write a file that says what is listened on", "a path"),
    **nats_logged.OPTIONS,
    **nats_tls_options.OPTIONS,
    **nats_websocket_options.OPTIONS,
    **nats_topics.OPTIONS,
    **nats_cluster_options.OPTIONS,
    **nats_leaf_options.OPTIONS,
}

# The protocol itself handles what comes first: the HTTP request of a websocket, and TLS by its own options.
OTHER_SCHEMES: Final = (OtherScheme("nats-ws", 8080, "nats --server ws://{address} sub greetings", secure=False),)
# Examples of --help.
USAGES: Final = (
    "--listen nats://0.0.0.0:4222 --listen nats-route://0.0.0.0:6222 --set nats.routes=nats-route://10.0.0.2:6222",
    "--listen nats://0.0.0.0:4222 --listen nats-leaf://0.0.0.0:7422",
)

# A certificate for the whole broker turns on TLS for clients, websockets and leaf nodes. For routes it does not, unless
# another option of their TLS is set: there both servers need a certificate.
OWN_TLS: Final = (
    OwnTls(optional="allow-non-tls", demands=nats_tls_options.DEMANDS),
    *(
        OwnTls(f"{part}-tls-cert-file", f"{part}-tls-key-file", f"{part}-allow-non-tls", demands)
        for part, demands in (("websocket", nats_websocket_options.DEMANDS), ("leaf", nats_leaf_options.DEMANDS))
    ),
    OwnTls(
        "cluster-tls-cert-file", "cluster-tls-key-file",
        demands=nats_cluster_options.TLS_DEMANDS,
        only_demanded=True,
    ),
)  # fmt: skip

# Options that only a restart can change.
FIXED: Final = frozenset({
    "server-name", "pid-file", "ports-file-dir", "max-closed-clients", "http-base-path", "max-sub-tokens",
    "no-header-support", "proxy-protocol",
})  # fmt: skip
SECRETS: Final = frozenset({
    "user", "password", "token", "routes", "cluster-user", "cluster-password", *nats_websocket_options.SECRETS,
    *nats_leaf_options.SECRETS,
})  # fmt: skip


def payload_limit(most: int) -> int:
    """The limit in bytes that a value of max-payload means."""
    return MAX_BODY if most < 0 else most


def check(settings: Mapping[str, Setting]) -> None:
    """Raises ValueError, with a message of one line, for options that contradict each other."""
    if bool(settings["user"]) != bool(settings["password"]):
        raise ValueError("nats.user and nats.password go together")
    if settings["user"] and settings["token"]:
        raise ValueError("nats.user and nats.token: it is one or the other")
    payload, pending = settings["max-payload"], settings["max-pending"]
    assert isinstance(payload, int) and isinstance(pending, int)
    if payload == 0:
        raise ValueError("nats.max-payload: 0 is not a size")
    if payload > pending:
        raise ValueError(f"max_payload ({payload}) cannot be higher than max_pending ({pending})")
    grace, duration = settings["lame-duck-grace-period"], settings["lame-duck-duration"]
    assert isinstance(grace, int) and isinstance(duration, int)
    if grace >= duration:
        raise ValueError("nats.lame-duck-grace-period is not less than nats.lame-duck-duration")
    nats_cluster_options.check(dict(settings))
    nats_leaf_options.check(settings)
    nats_websocket_options.check(settings)
    if nats_tls_options.are_set(settings):
        from mq_shards.acceptor.protocols.nats import tls as nats_tls

        nats_tls.terms(settings)
