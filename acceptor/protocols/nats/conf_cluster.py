"""The block "cluster" of nats-server's configuration file: the servers of a cluster and the routes between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.protocols.nats import conf_auth as nats_conf_auth
from mq_shards.acceptor.protocols.nats.cluster_options import is_cluster_name
from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_compression import take_compression
from mq_shards.acceptor.protocols.nats.conf_operating import take_tls, timeout, tls_block
from mq_shards.acceptor.protocols.nats.conf_takers import (
    Conf,
    Taker,
    duration_option,
    host,
    listen,
    option,
    port,
    refused,
    take_block,
    write_timeout,
)
from mq_shards.acceptor.protocols.nats.server_url import route_url

SCHEME: Final = "nats-route"
FIRST: Final = ("handshake_first", "first", "immediate")
ALWAYS_FIRST: Final = "routes are encrypted before INFO, always"


def _name(value: Value) -> str:
    if not is_cluster_name(value.text()):
        raise value.error("a cluster's name has no blanks")
    return value.text()


def _route(value: Value) -> str:
    if route_url(value.text()) is None:
        raise value.error(f'"{value.content}" is not nats-route://HOST:PORT')
    return value.text()


def _take_routes(conf: Conf, value: Value) -> None:
    many = isinstance(value.content, list)
    conf.set("routes", value, [_route(one) for one in (value.items() if many else [value])])


def _take_permissions(conf: Conf, value: Value) -> None:
    """`import` limits what other servers may publish here, and `export` what they may subscribe to."""
    found = nats_conf_auth.permissions(value)
    for name, kind in (("import", "publish"), ("export", "subscribe")):
        for which, subjects in found.get(kind, {}).items():
            conf.set(f"cluster-{name}-{which}", value, subjects)


def _take_verify(conf: Conf, value: Value) -> None:
    """Has no effect: servers always verify each other's certificates."""
    value.flag()


def _take_pool_size(conf: Conf, value: Value) -> None:
    """0 means the default, a negative number no pool."""
    conf.set("cluster-pool-size", value, -1 if value.whole() < 0 else value.whole())


AUTHORIZATION: Final[Mapping[str, Taker]] = {
    "user": option("cluster-user", Value.text),
    "username": option("cluster-user", Value.text),
    "pass": option("cluster-password", Value.text),
    "password": option("cluster-password", Value.text),
    "timeout": timeout("cluster-auth-timeout"),
    "permissions": _take_permissions,
    "default_permissions": _take_permissions,
    "users": refused("more than one user in cluster.authorization"),
    "token": refused("a token in cluster.authorization"),
}


def _take_authorization(conf: Conf, value: Value) -> None:
    take_block(conf, value.block(), AUTHORIZATION, " in cluster.authorization")


TLS: Final[Mapping[str, Taker]] = {
    **tls_block("cluster-tls-", {"connection_rate_limit": "routes are few", **dict.fromkeys(FIRST, ALWAYS_FIRST)}),
    "verify": _take_verify,
    "insecure": option("cluster-tls-insecure", Value.flag),
    "verify_and_map": option("cluster-tls-verify-and-map", Value.flag),
    "verify_cert_and_check_known_urls": option("cluster-tls-check-known-urls", Value.flag),
}


CLUSTER: Final[Mapping[str, Taker]] = {
    "name": option("cluster-name", _name),
    "listen": listen(SCHEME),
    "port": port(SCHEME),
    "host": host(SCHEME),
    "net": host(SCHEME),
    "authorization": _take_authorization,
    "routes": _take_routes,
    "tls": take_tls("cluster.tls", "cluster-tls-", TLS),
    "cluster_advertise": option("cluster-advertise", Value.text),
    "advertise": option("cluster-advertise", Value.text),
    "no_advertise": option("cluster-no-advertise", Value.flag),
    "connect_retries": option("cluster-connect-retries", Value.whole),
    "connect_backoff": option("cluster-connect-backoff", Value.flag),
    "permissions": _take_permissions,
    "pool_size": _take_pool_size,
    "accounts": option("cluster-accounts", Value.texts),
    "compression": take_compression("cluster", "cluster-"),
    "ping_interval": duration_option("cluster-ping-interval"),
    "ping_max": option("cluster-ping-max", Value.whole),
    "write_deadline": duration_option("cluster-write-deadline"),
    "write_timeout": write_timeout("cluster-write-timeout"),
}


def take_cluster(conf: Conf, value: Value) -> None:
    take_block(conf, value.block(), CLUSTER, " in cluster")
