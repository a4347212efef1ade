"""The block "leafnodes" of nats-server's configuration file: how leaf nodes connect to this server. The hubs that this
server connects to are read by conf_remotes.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_compression import take_compression
from mq_shards.acceptor.protocols.nats.conf_operating import first, only_of_routes, take_tls, timeout, tls_block
from mq_shards.acceptor.protocols.nats.conf_remotes import take_remotes
from mq_shards.acceptor.protocols.nats.conf_takers import (
    DEFAULT_HOST,
    Conf,
    Taker,
    duration_option,
    host,
    listen,
    option,
    port,
    take_block,
    unsupported,
    write_timeout,
)
from mq_shards.acceptor.protocols.nats.conf_users import read_user, take_names
from mq_shards.acceptor.protocols.nats.leaf_options import OLDEST, version_of
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT

SCHEME: Final = "nats-leaf"


def _take_port(conf: Conf, value: Value) -> None:
    """0 means that no leaf node can connect."""
    if value.whole() != 0:
        port(SCHEME)(conf, value)


def _take_nkey(conf: Conf, value: Value) -> None:
    if not nats_nkeys.is_public(nats_nkeys.USER, value.text()):
        raise value.error("Not a valid public nkey for leafnode authorization")
    conf.set("leaf-nkey", value, value.text())


def _user(value: Value) -> dict[str, Any]:
    found = read_user(value, GLOBAL_ACCOUNT, "a leaf node's user", {"account": ("account", Value.text)})
    if not found.get("name"):
        raise value.error("a user of a leaf node needs a name")
    return found


def _take_users(conf: Conf, value: Value) -> None:
    users = [_user(item) for item in value.items()]
    take_names(users, value, set(), " of leaf nodes")
    conf.content.setdefault("leaf", {})["users"] = users


AUTHORIZATION: Final[Mapping[str, Taker]] = {
    "user": option("leaf-user", Value.text),
    "username": option("leaf-user", Value.text),
    "pass": option("leaf-password", Value.text),
    "password": option("leaf-password", Value.text),
    "nkey": _take_nkey,
    "account": option("leaf-account", Value.text),
    "timeout": timeout("leaf-auth-timeout"),
    "users": _take_users,
    "proxy_required": unsupported("proxy_required", "there are no trusted proxies", Value.flag),
}


def _take_authorization(conf: Conf, value: Value) -> None:
    take_block(conf, value.block(), AUTHORIZATION, " in leafnodes.authorization")
    for name, what in (("leaf-user", "user"), ("leaf-nkey", "nkey")):
        if name in conf.options and "users" in conf.content.get("leaf", {}):
            raise value.error(f"can not have a single {what} and a users array")
    if "leaf-user" in conf.options and "leaf-nkey" in conf.options:
        raise value.error("can not have a single user/pass and a Nkey")
    if "leaf-password" in conf.options and "leaf-user" not in conf.options:
        conf.options.pop("leaf-password")
    conf.leaf_authorization = value


def _take_first(conf: Conf, value: Value) -> None:
    said = first(value)
    if said in ("", "true"):
        conf.set("leaf-tls-handshake-first", value, bool(said))
    else:
        conf.warn(value, "leafnodes.tls.handshake_first is true or false: INFO comes first, for all")


TLS: Final[Mapping[str, Taker]] = {
    **tls_block("leaf-tls-", {"connection_rate_limit": "leaf nodes are few"}),
    **dict.fromkeys(("handshake_first", "first", "immediate"), _take_first),
    "verify_and_map": option("leaf-tls-verify-and-map", Value.flag),
    "verify_cert_and_check_known_urls": only_of_routes,
}


def _take_min_version(conf: Conf, value: Value) -> None:
    text = value.text()
    version = version_of(text)
    if version is None:
        raise value.error("invalid leafnode's minimum version: invalid semver")
    if version < OLDEST:
        raise value.error("the minimum version should be at least 2.8.0")
    conf.set("leaf-min-version", value, text)


LEAFNODES: Final[Mapping[str, Taker]] = {
    "listen": listen(SCHEME),
    "port": _take_port,
    "host": host(SCHEME),
    "net": host(SCHEME),
    "authorization": _take_authorization,
    "tls": take_tls("leafnodes.tls", "leaf-tls-", TLS),
    "leafnode_advertise": option("leaf-advertise", Value.text),
    "advertise": option("leaf-advertise", Value.text),
    "no_advertise": option("leaf-no-advertise", Value.flag),
    "compression": take_compression("leafnodes", "leaf-"),
    "write_deadline": duration_option("leaf-write-deadline"),
    "remotes": take_remotes,
    **dict.fromkeys(("reconnect", "reconnect_delay", "reconnect_interval"), duration_option("leaf-reconnect")),
    "dial_timeout": duration_option("leaf-dial-timeout"),
    **dict.fromkeys(("min_version", "minimum_version"), _take_min_version),
    **{
        key: unsupported(f"leafnodes.{key}", "leaf nodes hear what others want", Value.flag)
        for key in ("isolate_leafnode_interest", "isolate")
    },
    "write_timeout": write_timeout("leaf-write-timeout"),
}


def take_leafnodes(conf: Conf, value: Value) -> None:
    take_block(conf, value.block(), LEAFNODES, " in leafnodes")


def finish_leaf(conf: Conf) -> None:
    """Call after the whole file has been read."""
    if SCHEME in conf.ports:
        conf.hosts.setdefault(SCHEME, DEFAULT_HOST)
    elif SCHEME in conf.hosts:
        del conf.hosts[SCHEME]
    leaf = conf.content.get("leaf", {})
    local = [row.get("account") or GLOBAL_ACCOUNT for row in leaf.get("remotes", ())]
    if "operator" in conf.content:
        if conf.leaf_remotes is not None and not all(nats_nkeys.is_public(nats_nkeys.ACCOUNT, name) for name in local):
            raise conf.leaf_remotes.error("operator mode requires account nkeys in remotes")
        return
    named = [user["account"] for user in leaf.get("users", ())]
    named += [str(conf.options["leaf-account"][1])] if "leaf-account" in conf.options else []
    _must_be_there(conf, conf.leaf_authorization, named, "authorization")
    _must_be_there(conf, conf.leaf_remotes, local, "remote")


def _must_be_there(conf: Conf, where: Value | None, accounts: list[str], what: str) -> None:
    there = {GLOBAL_ACCOUNT, conf.content["who"]["system_account"], *conf.accounts}
    for name in accounts:
        if where is not None and name not in there:
            raise where.error(f'cannot find local account "{name}" specified in leafnode {what}')
