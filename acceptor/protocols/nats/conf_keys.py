"""The keys at the top level of nats-server's configuration file; the keys of blocks are in other files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from mq_shards.acceptor.protocols.nats import conf_accounts as nats_conf_accounts
from mq_shards.acceptor.protocols.nats import conf_auth as nats_conf_auth
from mq_shards.acceptor.protocols.nats.conf import Value, read
from mq_shards.acceptor.protocols.nats.conf_callout import finish as finish_callout
from mq_shards.acceptor.protocols.nats.conf_cluster import take_cluster
from mq_shards.acceptor.protocols.nats.conf_leaf import finish_leaf, take_leafnodes
from mq_shards.acceptor.protocols.nats.conf_operating import OPERATING, finish_auth_timeouts
from mq_shards.acceptor.protocols.nats.conf_operator import OPERATOR, finish_operator
from mq_shards.acceptor.protocols.nats.conf_takers import (
    DEFAULT_PORT,
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
from mq_shards.acceptor.protocols.nats.conf_websocket import finish_websocket, take_websocket


def _server_name(value: Value) -> str:
    name = value.text()
    if " " in name:
        raise value.error("a server's name has no blanks")
    return name


def _any_number(value: Value) -> int:
    """A negative number means no limit, like 0."""
    return max(value.whole(), 0)


def _tokens(value: Value) -> int:
    tokens = value.whole()
    if not 1 <= tokens <= 255:
        raise value.error("max_sub_tokens is not between 1 and 255")
    return tokens


def _take_trace_verbose(conf: Conf, value: Value) -> None:
    """A nats-server logs what it says to itself, too; here nothing more is logged than with `trace`."""
    if value.flag():
        conf.set("trace", value, True)


def _tags(value: Value) -> list[str]:
    """One tag or a list, without duplicates."""
    said = [one.text().strip() for one in value.items()] if isinstance(value.content, list) else [value.text().strip()]
    return list(dict.fromkeys(filter(None, said)))


def _metadata(value: Value) -> list[str]:
    return [f"{name}: {said.text()}" for name, said in value.block().items()]


_JETSTREAM: Final = "there is no JetStream here; topics of this broker are durable"
_LOG: Final = "the journal goes to stderr or log_file; --log-level says how much"
_LATER: Final = "not yet"
_NONE: Final = "it has no meaning here"

UNSUPPORTED: Final[Mapping[str, str]] = {
    # about the core
    "no_fast_producer_stall": _NONE,
    "disable_sublist_cache": _NONE,
    "proxies": _LATER,
    "feature_flags": _NONE,
    # about logging and the process
    "debug": _LOG,
    "logtime": _LOG,
    "logtime_utc": _LOG,
    "syslog": _LOG,
    "remote_syslog": _LOG,
    "connect_error_reports": _LOG,
    "reconnect_error_reports": _LOG,
    "prof_port": "it is of Go's run-time",
    "prof_block_rate": "it is of Go's run-time",
    # about operation
    "ocsp": _LATER,
    "ocsp_cache": _LATER,
    # about other servers and protocols
    "gateway": "there are no superclusters",
    "mqtt": "there is no MQTT",
    "jetstream": _JETSTREAM,
    "store_dir": _JETSTREAM,
    "default_js_domain": _JETSTREAM,
    # about rights
    "no_system_account": _LATER,
}

# What their values must be, as far as nats-server looks at them.
CHECKS: Final[Mapping[str, Callable[[Value], object]]] = {
    **dict.fromkeys(("store_dir", "remote_syslog"), Value.text),
    **dict.fromkeys(("connect_error_reports", "reconnect_error_reports"), Value.whole),
    **dict.fromkeys(("prof_port", "prof_block_rate"), Value.whole),
    **dict.fromkeys(("proxies", "feature_flags", "default_js_domain"), Value.block),
    **dict.fromkeys(
        (
            "no_fast_producer_stall", "disable_sublist_cache", "no_system_account", "debug", "logtime",
            "logtime_utc", "syslog",
        ),
        Value.flag,
    ),
}  # fmt: skip

# Synonyms of keys.
SAME: Final[Mapping[str, str]] = {
    "net": "host", "monitor_port": "http_port", "max_conn": "max_connections", "max_subs": "max_subscriptions",
    "max_subscription_tokens": "max_sub_tokens", "no_sublist_cache": "disable_sublist_cache",
    "log_file": "logfile", "log_size_limit": "logfile_size_limit", "log_max_num": "logfile_max_num",
    "pid_file": "pidfile", "storedir": "store_dir", "leaf": "leafnodes", "ws": "websocket", "maps": "mappings",
    "system": "system_account", "no_system": "no_system_account", "no_sys_acc": "no_system_account",
}  # fmt: skip

KEYS: Final[dict[str, Taker]] = {
    **{key: unsupported(key, why, CHECKS.get(key)) for key, why in UNSUPPORTED.items()},
    "listen": listen("nats"),
    "host": host("nats"),
    "port": port("nats"),
    "server_name": option("server-name", _server_name),
    "max_payload": option("max-payload", Value.whole),
    "max_control_line": option("max-control-line", Value.whole),
    "max_pending": option("max-pending", Value.whole),
    "max_subscriptions": option("max-subscriptions", _any_number),
    "max_sub_tokens": option("max-sub-tokens", _tokens),
    "trace": option("trace", Value.flag),
    "trace_verbose": _take_trace_verbose,
    "trace_headers": option("trace-headers", Value.flag),
    "max_traced_msg_len": option("max-traced-msg-len", _any_number),
    "no_header_support": option("no-header-support", Value.flag),
    "proxy_protocol": option("proxy-protocol", Value.flag),
    "server_tags": option("server-tags", _tags),
    "server_metadata": option("server-metadata", _metadata),
    "write_deadline": duration_option("write-deadline"),
    "write_timeout": write_timeout("write-timeout"),
    "ping_interval": duration_option("ping-interval"),
    "ping_max": option("ping-max", Value.whole),
    "authorization": nats_conf_auth.take_authorization,
    **OPERATING,
    "no_auth_user": nats_conf_auth.take_no_auth_user,
    "accounts": nats_conf_accounts.take_accounts,
    "mappings": nats_conf_accounts.take_mappings,
    "system_account": nats_conf_accounts.take_system_account,
    "cluster": take_cluster,
    "leafnodes": take_leafnodes,
    "websocket": take_websocket,
    **OPERATOR,
}
KEYS.update({other: KEYS[key] for other, key in SAME.items()})


def digest(whole: Value) -> str:
    """The digest of a configuration, as nats-server makes it: SHA-256 of its JSON."""
    text = json.dumps(whole.plain(), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_date)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return "sha256:" + hashlib.sha256(f"{text}\n".encode(errors="replace")).hexdigest()


def _date(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")


def read_conf(path: str) -> Conf:
    """Reads a configuration file. Raises ConfError."""
    conf = Conf(file=path)
    whole = read(path)
    take_block(conf, whole.block(), KEYS)
    conf.content["digest"] = digest(whole)
    finish_operator(conf)
    nats_conf_accounts.finish(conf)
    nats_conf_auth.finish(conf)
    finish_callout(conf)
    finish_websocket(conf)
    finish_leaf(conf)
    finish_auth_timeouts(conf)
    conf.ports.setdefault("nats", DEFAULT_PORT)
    return conf
