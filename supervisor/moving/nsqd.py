"""nsqd's command line and configuration file (1.3's)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mq_shards.acceptor import named_files
from mq_shards.acceptor.option_kinds import Duration, Flag, Number, OptionsError, TextList
from mq_shards.acceptor.protocols.nsq.options import INSTEAD, OPTIONS
from mq_shards.supervisor.moving import go_flags
from mq_shards.supervisor.moving.translation import ANY_ADDRESS, DUAL_STACK, Translation, port_of

BOOLEAN: Final = ("tls-required", "verbose", "version", "help", "h", "worker-id")
ADDRESSES: Final[Mapping[str, tuple[str, str]]] = {
    "tcp-address": ("nsq", "4150"),
    "http-address": ("nsq-http", "4151"),
}
# Names in the file that are not the flag's with _ for -.
FILE_NAMES: Final = {
    "id": "node-id",
    "nsqlookupd-tcp-addresses": "lookupd-tcp-address",
    "auth-http-addresses": "auth-http-address",
}
MESSAGES: Final = ("nsqd.dat", "*.diskqueue.*")
HELP: Final = """\
Usage of mq-shards as nsqd: the options of nsqd 1.3, and behind -- those of mq-shards.
Messages are kept in mq-shards, in -data-path (by default the working directory).
"""
KNOWN: Final = frozenset(OPTIONS) | frozenset(INSTEAD)
# By name, whether a flag needs no value.
SWITCHES: Final = {name: name in BOOLEAN or isinstance(OPTIONS.get(name), Flag) for name in (*KNOWN, *BOOLEAN)}
LEVELS: Final = {"debug": "debug", "info": "info", "warn": "warning", "error": "error", "fatal": "error"}
NUMBERS: Final = (
    "mem-queue-size", "max-bytes-per-file", "sync-every", "queue-scan-worker-pool-max", "queue-scan-selection-count",
)  # fmt: skip
NO_EFFECT: Final = frozenset(INSTEAD) - {"tcp-address", "http-address", "data-path", "config", "log-level", "verbose"}


def translate(arguments: Sequence[str], version: str) -> Translation:
    """Translates nsqd's arguments. Raises OptionsError."""
    t = Translation()
    flags = list(_flags(arguments))
    named = dict(flags)
    if {"help", "h", "version"} & named.keys():
        t.said = f"mq-shards {version}, as nsqd\n" if "version" in named else HELP
        return t
    given: dict[str, list[str]] = {}
    if "config" in named:
        given |= dict(_file(t, named["config"]))
        t.has_file = True
    from_flags: dict[str, list[str]] = {}
    for name, value in flags:
        from_flags.setdefault(name, []).append(value)
    given |= from_flags
    for name, (scheme, port) in ADDRESSES.items():
        _listen(t, scheme, given.pop(name, [f"{ANY_ADDRESS}:{port}"])[-1])
    _listen_encrypted(t, given)
    t.keep_in(given.pop("data-path", [""])[-1] or os.getcwd(), MESSAGES, "nsqd")  # noqa: PTH109 (as nsqd says it)
    for name, values in given.items():
        _translate_one(t, name, values)
    if "auth-http-address" in given or given.get("tls-client-auth-policy", [""])[-1] == "require-verify":
        # nsqd asks for no authorization there.
        t.option("insecure", "nsq-http")
        t.option("insecure", "nsq-https")
        t.notes.append("what AUTH and certificates guard is open to whoever reaches the HTTP API, as nsqd's is")
    return t


def _translate_one(t: Translation, name: str, values: Sequence[str]) -> None:
    if name == "broadcast-address" and not values[-1]:  # as in the file that nsqd ships
        t.notes.append("an empty -broadcast-address means the name of this host: nsqlookupd refuses an empty one")
    elif name in OPTIONS:
        several = isinstance(OPTIONS[name], TextList)
        is_number = isinstance(OPTIONS[name], Number)
        for value in values if several else values[-1:]:
            t.setting(f"nsq.{name}", _decimal(value) if is_number else value)
    elif name == "worker-id":
        go_flags.boolean(values[-1], "-worker-id")
        t.notes.append("-worker-id has no effect, in nsqd neither: -node-id has")
    elif name == "log-level":
        if values[-1].lower() not in LEVELS:
            raise OptionsError(f'-log-level: "{values[-1]}" is not one of {", ".join(LEVELS)}')
        t.option("log-level", LEVELS[values[-1].lower()])
    elif name == "verbose":
        if go_flags.boolean(values[-1], "-verbose"):
            t.option("log-level", "debug")
    elif name in NO_EFFECT:
        if name in NUMBERS and not _decimal(values[-1]).lstrip("-").isdigit():
            raise OptionsError(f'-{name}: "{values[-1]}" is not a number')
        t.notes.append(f"-{name} has no effect: {INSTEAD[name]}")
    elif name != "config":
        raise OptionsError(f"nsqd has no option -{name}")


def _decimal(text: str) -> str:
    """A number as Go's flags take it: 0x10, 0o17, 1_000."""
    if re.fullmatch(r"[+-]?0[0-7_]+", text):
        return str(int(text.replace("_", ""), 8))
    try:
        return str(int(text, 0))
    except ValueError:
        return text  # the option itself reports that this is no number


def _listen(t: Translation, scheme: str, address: str) -> None:
    """An address without a port is the path of a socket file, as in nsqd."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in port:
        t.listen(scheme, host, port_of(port, f"nsqd: {address}"), DUAL_STACK)
    elif address:
        t.option("listen", f"{scheme}://unix:{Path(address).absolute()}")


def _listen_encrypted(t: Translation, given: dict[str, list[str]]) -> None:
    """Listens with TLS as nsqd does: only if there is a certificate."""
    address = given.pop("https-address", [f"{ANY_ADDRESS}:4152"])[-1]
    if not address or not all(given.get(name, [""])[-1] for name in ("tls-cert", "tls-key")):
        return
    _listen(t, "nsq-https", address)
    t.setting("tls.cert", given["tls-cert"][-1])
    t.setting("tls.key", given["tls-key"][-1])
    if given.get("tls-client-auth-policy", [""])[-1] == "require-verify" and "tls-root-ca-file" in given:
        t.setting("tls.client-ca", given["tls-root-ca-file"][-1])


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name, value in go_flags.read(arguments, "nsqd", SWITCHES):
        if not name:
            raise OptionsError(f'nsqd takes no "{value}"')
        yield name, value


def _file(t: Translation, path: str) -> Iterator[tuple[str, list[str]]]:
    """Reads the configuration file. nsqd ignores unknown keys silently, here each is noted. Raises OptionsError."""
    import tomllib

    try:
        content = tomllib.loads(named_files.read(path).decode())
    except OSError as error:
        raise OptionsError(f"nsqd: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionsError(f"nsqd: {path} is not TOML: {error}") from None
    for key, value in content.items():
        name = key.replace("_", "-")
        name = FILE_NAMES.get(name, name)
        if name not in KNOWN:
            t.notes.append(f"{path}: nsqd has no option {key}, and nothing is made of it here")
            continue
        values = value if isinstance(value, list) else [value]
        yield name, [text for one in values for text in _texts(name, one)]


def _texts(name: str, value: Any) -> list[str]:  # noqa: ANN401 (whatever stands in a file)
    """The values in a file: a list may be one text with commas, and a time without a unit is in milliseconds."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    kind = OPTIONS.get(name)
    if isinstance(kind, TextList):
        return text.split(",")
    return [f"{text}ms" if isinstance(kind, Duration) and text.isdigit() else text]
