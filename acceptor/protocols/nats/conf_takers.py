"""The kinds of keys in nats-server's configuration file, and the Conf that collects what they set.

Each key has a Taker, which is called with the key's value and stores the result in a Conf. A key that nats-server knows
but this broker does not support is `unsupported`, and gives a warning of one line with the reason. An unknown key is an
error, unless a variable refers to it. The tables of keys are in conf_keys.py and in the file of each block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mq_shards.acceptor.option_kinds import SECOND
from mq_shards.acceptor.protocol import NO_LOG_FILE, LogFileTerms
from mq_shards.acceptor.protocols.nats.conf import Block, ConfError, Value
from mq_shards.acceptor.protocols.nats.write_timeout import CHOICES as WRITE_TIMEOUTS

DEFAULT_HOST: Final = "0.0.0.0"
DEFAULT_PORT: Final = 4222
SECURE_MONITORING: Final = "nats-https"
MONITORING: Final = ("nats-http", SECURE_MONITORING)  # on the host that clients connect to, unless there is another


@dataclass(slots=True)
class Conf:
    """What has been read of a file so far."""

    # Options of [nats], by name: where each was set, and its value in the form of this broker's own file.
    options: dict[str, tuple[str, object]] = field(default_factory=dict)
    # Where to listen: hosts and ports by scheme. Port 0: any free port.
    hosts: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    # Settings for the acceptors that are not options, by name; only values that JSON can hold.
    content: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    log_file: LogFileTerms = NO_LOG_FILE
    # Collected while reading, and moved into `content` when the whole file has been read.
    users: list[dict[str, Any]] = field(default_factory=list)
    user_names: set[str] = field(default_factory=set)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    accounts_value: Value | None = None  # errors about several accounts are reported at its line
    mappings: dict[str, Any] = field(default_factory=dict)  # of the global account
    system_account: Value | None = None
    no_auth_user: Value | None = None
    callout_accounts: Value | None = None  # allowed_accounts of auth_callout
    has_authorization: bool = False
    websocket: Value | None = None  # the block
    leaf_authorization: Value | None = None  # the block leafnodes.authorization
    leaf_remotes: Value | None = None  # the array leafnodes.remotes
    resolver: Value | None = None  # of account JWTs
    file: str = ""  # path of the main file, which may include others

    def set(self, name: str, where: Value, content: object) -> None:
        """Sets an option. An empty value, and 0, mean the default, as in nats-server."""
        self.options.pop(name, None)
        if content:
            self.options[name] = (f"{where.file}:{where.line}", content)

    def address(self, scheme: str) -> str:
        usual = self.hosts.get("nats", DEFAULT_HOST) if scheme in MONITORING else DEFAULT_HOST
        host = self.hosts.get(scheme) or usual
        return f"[{host}]:{self.ports[scheme]}" if ":" in host else f"{host}:{self.ports[scheme]}"

    def shown_at(self, scheme: str) -> str:
        """The part of a listen address that names the certificate for that scheme, or "". Raises ConfError."""
        if scheme != SECURE_MONITORING:
            return ""
        cert, key = (self.options.get(name, ("", ""))[1] for name in ("tls-cert-file", "tls-key-file"))
        if not cert or not key:
            raise self.error_at(self.file, "https needs tls with cert_file and key_file")
        return f"?cert={cert}&key={key}"

    def error_at(self, where: str, text: str) -> ConfError:
        return ConfError(f"{where}: {text}")

    def warn(self, value: Value, text: str) -> None:
        self.warnings.append(f"{value.file}:{value.line}: {text}")


Taker: TypeAlias = Callable[[Conf, Value], None]


def take_block(conf: Conf, block: Block, table: Mapping[str, Taker], what: str = "") -> None:
    """Calls the taker of each key of a block; case does not matter. `what` describes the block in error messages."""
    for key, value in block.items():
        taker = table.get(key.lower())
        if taker is not None:
            taker(conf, value)
        elif not value.referenced:
            raise value.error(f'unknown key "{key}"{what}')


# --- kinds of takers --------------------------------------------------------------------------------------------------


def option(name: str, get: Callable[[Value], object]) -> Taker:
    """Makes a taker that sets an option of [nats]."""

    def take(conf: Conf, value: Value) -> None:
        conf.set(name, value, get(value))

    return take


def span_ns(value: Value) -> int:
    """A duration in Go's notation; a bare number means seconds, as in old files."""
    return value.whole() * SECOND if _is_whole(value) else value.duration_ns()


def _is_whole(value: Value) -> bool:
    return isinstance(value.content, int) and not isinstance(value.content, bool)


def duration_option(name: str) -> Taker:
    """Makes a taker of a duration."""

    def take(conf: Conf, value: Value) -> None:
        if _is_whole(value):
            conf.warn(value, f'{value.content} is taken for seconds: write it as a duration, "{value.content}s"')
        ns = span_ns(value)
        conf.set(name, value, f"{ns}ns" if ns else 0)

    return take


def write_timeout(name: str) -> Taker:
    """Makes a taker of what becomes of a connection that does not take its output in time."""

    def take(conf: Conf, value: Value) -> None:
        if value.text() not in WRITE_TIMEOUTS:
            raise value.error("write_timeout must be 'default', 'close' or 'retry'")
        conf.set(name, value, value.text())

    return take


def percent_of(value: Value) -> int:
    """How many in a hundred: 15, "15" or "15%"."""
    text = value.content.removesuffix("%") if isinstance(value.content, str) else str(value.whole())
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 100:
        raise value.error(f'"{value.content}" is not a percentage from 1 to 100')
    return int(text)


def unsupported(key: str, why: str, check: Callable[[Value], object] | None = None) -> Taker:
    """`check` refuses what a nats-server refuses."""

    def take(conf: Conf, value: Value) -> None:
        if check is not None:
            check(value)
        # No warning about a feature that the file turns off.
        if value.content not in (False, {}, []):
            conf.warn(value, f"{key} is not supported: {why}")

    return take


def refused(key: str) -> Taker:
    """Makes a taker that fails, for unsupported keys about rights, which must not be ignored."""

    def take(conf: Conf, value: Value) -> None:
        raise value.error(f"{key} is not supported")

    return take


# --- where to listen --------------------------------------------------------------------------------------------------


def listen(scheme: str) -> Taker:
    """Makes a taker of a port or HOST:PORT."""

    def take(conf: Conf, value: Value) -> None:
        if isinstance(value.content, int) and not isinstance(value.content, bool):
            conf.ports[scheme] = _port(value, value.content)
            conf.hosts[scheme] = DEFAULT_HOST
            return
        match = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:]*)", value.text())
        if match is None:
            raise value.error(f'"{value.content}" is not HOST:PORT')
        if re.fullmatch("[-+]?[0-9]{1,9}", match[3]) is None:
            raise value.error(f'"{match[3]}" is not a port')
        conf.hosts[scheme] = match[1] or match[2] or DEFAULT_HOST
        conf.ports[scheme] = _port(value, int(match[3]))

    return take


def host(scheme: str) -> Taker:
    def take(conf: Conf, value: Value) -> None:
        conf.hosts[scheme] = value.text()

    return take


def port(scheme: str) -> Taker:
    def take(conf: Conf, value: Value) -> None:
        conf.ports[scheme] = _port(value, value.whole())

    return take


def _port(value: Value, number: int) -> int:
    """As in nats-server, -1 means any free port, and 0 the default port. Returns 0 for any free port."""
    if not -1 <= number <= 65535:
        raise value.error(f"{number} is not a port")
    return 0 if number == -1 else number or DEFAULT_PORT
