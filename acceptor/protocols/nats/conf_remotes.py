"""The array "remotes" in the block "leafnodes" of nats-server's configuration file: the hubs to connect to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from mq_shards.acceptor.option_kinds import parse_duration, without_secrets
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_compression import RTT_KEYS, compression_mode
from mq_shards.acceptor.protocols.nats.conf_operating import first, only_of_routes, tls_block
from mq_shards.acceptor.protocols.nats.conf_takers import Conf, Taker, option, span_ns, take_block, unsupported
from mq_shards.acceptor.protocols.nats.remotes import MOST, by_websocket, hub_url, read
from mq_shards.acceptor.protocols.nats.route_compression import thresholds
from mq_shards.acceptor.protocols.nats.transforms import is_subject
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT

PREFIX: Final = "tls-"
RowTaker: TypeAlias = Callable[[dict[str, Any], Value], None]


def _urls(row: dict[str, Any], value: Value) -> None:
    texts = value.texts() if isinstance(value.content, list) else [value.text()]
    for text in texts:
        if hub_url(text) is None:
            raise value.error(f'"{text}" is not nats-leaf://HOST:PORT')
    row["urls"] = texts


def _credentials(row: dict[str, Any], value: Value) -> None:
    row["credentials"] = str(Path(value.text()).expanduser())


def _nkey(row: dict[str, Any], value: Value) -> None:
    found = nats_nkeys.seed_of(value.text())
    if found is None or found[0] != nats_nkeys.USER:
        raise value.error("Remote leafnode nkey is not a valid seed")
    row["nkey"] = value.text()


def _subjects(name: str) -> RowTaker:
    def take(row: dict[str, Any], value: Value) -> None:
        row[name] = subjects = value.texts() if isinstance(value.content, list) else [value.text()]
        for subject in subjects:
            if not is_subject(subject):
                raise value.error(f'{name}: "{subject}" is not a subject')

    return take


def _flag(name: str) -> RowTaker:
    def take(row: dict[str, Any], value: Value) -> None:
        row[name] = value.flag()

    return take


def _duration(name: str) -> RowTaker:
    def take(row: dict[str, Any], value: Value) -> None:
        row[name] = max(span_ns(value), 0)

    return take


def _account(row: dict[str, Any], value: Value) -> None:
    row["account"] = value.text()


def _compression(row: dict[str, Any], value: Value) -> None:
    if not isinstance(value.content, dict):
        row["compression"] = compression_mode(value)
        return
    for key, item in value.block().items():
        if key.lower() == "mode":
            row["compression"] = compression_mode(item)
        elif key.lower() in RTT_KEYS:
            try:
                row["thresholds_ns"] = list(thresholds([parse_duration(text) or 0 for text in item.texts()], "leaf-"))
            except ValueError as error:
                raise item.error(str(error)) from None
        else:
            raise item.error(f'unknown key "{key}" in compression')


ROW: Final[Mapping[str, RowTaker]] = {
    **dict.fromkeys(("url", "urls"), _urls),
    **dict.fromkeys(("account", "local"), _account),
    **dict.fromkeys(("creds", "credentials"), _credentials),
    **dict.fromkeys(("nkey", "seed"), _nkey),
    **dict.fromkeys(("deny_imports", "deny_import"), _subjects("deny_imports")),
    **dict.fromkeys(("deny_exports", "deny_export"), _subjects("deny_exports")),
    **dict.fromkeys(("no_randomize", "dont_randomize"), _flag("no_randomize")),
    "ignore_discovered_servers": _flag("ignore_discovered_servers"),
    "disabled": _flag("disabled"),
    "hub": _flag("hub"),
    **dict.fromkeys(
        ("ws_compress", "ws_compression", "websocket_compress", "websocket_compression"), _flag("ws_compression")
    ),
    **dict.fromkeys(("ws_no_masking", "websocket_no_masking"), _flag("ws_no_masking")),
    "first_info_timeout": _duration("first_info_ns"),
    "dial_timeout": _duration("dial_ns"),
    "compression": _compression,
}


def _flag_or_block(value: Value) -> object:
    return value.block() if isinstance(value.content, dict) else value.flag()


_MIGRATION: Final = "there is no JetStream whose assets would move"
OTHERS: Final[Mapping[str, Taker]] = {
    **{
        key: unsupported(f"leafnodes.remotes.{key}", _MIGRATION, _flag_or_block)
        for key in ("jetstream_cluster_migrate", "js_cluster_migrate")
    },
    **{
        key: unsupported(f"leafnodes.remotes.{key}", "leaf nodes hear what others want", Value.flag)
        for key in ("isolate_leafnode_interest", "isolate", "request_isolation")
    },
}  # fmt: skip


def _take_first(conf: Conf, value: Value) -> None:
    conf.set("tls-handshake-first", value, "true" if first(value) else "")


def _take_timeout(conf: Conf, value: Value) -> None:
    number = value.content
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    conf.set("tls-timeout", value, int(float(str(number)) * 1e9) if is_number else value.duration_ns())


TLS: Final[Mapping[str, Taker]] = {
    **tls_block(PREFIX, {"connection_rate_limit": "connections to hubs are few"}),
    **dict.fromkeys(("handshake_first", "first", "immediate"), _take_first),
    "timeout": _take_timeout,
    "insecure": option("insecure", Value.flag),
    "verify_and_map": unsupported("verify_and_map", "it is about connections that are accepted"),
    "verify_cert_and_check_known_urls": only_of_routes,
}


def _take_tls(conf: Conf, row: dict[str, Any], value: Value) -> None:
    said = Conf()
    take_block(said, value.block(), TLS, " in leafnodes.remotes.tls")
    conf.warnings += said.warnings
    row["tls"] = {name: content for name, (_, content) in said.options.items() if name != "tls-verify"}


def _row(conf: Conf, value: Value) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, item in value.block().items():
        name = key.lower()
        if name in ROW:
            ROW[name](row, item)
        elif name == "tls":
            _take_tls(conf, row, item)
        elif name == "proxy":
            raise item.error("leafnodes.remotes.proxy is not supported")
        elif name in OTHERS:
            OTHERS[name](conf, item)
        elif not item.referenced:
            raise item.error(f'unknown key "{key}" in leafnodes.remotes')
    if row.get("credentials") and row.get("nkey"):
        raise value.error("Remote leafnode can not have both creds and nkey defined")
    return row


def _name(row: Mapping[str, Any]) -> str:
    """The description of a remote in the error about duplicates, without passwords."""
    urls = [without_secrets(text) for text in row["urls"]]
    shown = " ".join(f'"{url}"' for url in urls)
    more = f', credentials="{row["credentials"]}"' if row.get("credentials") else ""
    more = ', nkey="[REDACTED]"' if row.get("nkey") else more
    return f'urls=[{shown}], account="{row.get("account") or GLOBAL_ACCOUNT}"{more}'


def _is_to_be(conf: Conf, row: Mapping[str, Any], value: Value) -> bool:
    """Whether to connect to this remote. False with a warning when that is not supported."""
    if row.get("disabled") or not row.get("urls"):
        return False
    if row.get("hub"):
        conf.warn(value, "leafnodes.remotes.hub is not supported: this server is the leaf node where it connects")
        return False
    if len({by_websocket(text) for text in row["urls"]}) > 1:
        raise value.error("remote leaf node configuration cannot have a mix of websocket and non-websocket urls")
    return True


def take_remotes(conf: Conf, value: Value) -> None:
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for item in value.items():
        row = _row(conf, item)
        known = repr([row.get(name) for name in ("urls", "account", "credentials", "nkey")])
        if known in seen:
            raise item.error(f"duplicate remote {_name(row)}")
        seen.add(known)
        if _is_to_be(conf, row, item):
            rows.append({name: found for name, found in row.items() if name not in ("disabled", "hub")})
    if len(rows) > MOST:
        raise value.error(f"there may be {MOST} remotes")
    conf.content.setdefault("leaf", {})["remotes"] = rows
    _check_encryption(value, rows)
    conf.leaf_remotes = value


def _check_encryption(value: Value, rows: list[dict[str, Any]]) -> None:
    """Raises ConfError for files that cannot be used, before anything starts."""
    nothing = {
        "leaf-remotes": (), "leaf-remote-account": "", "leaf-remote-credentials": "", "leaf-dial-timeout": 0,
    }  # fmt: skip
    for remote in read(nothing, {"remotes": [row for row in rows if "tls" in row]}):
        try:
            remote.encryption()
        except ValueError as error:
            raise value.error(f"leafnodes.remotes: {error}") from None
