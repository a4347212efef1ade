"""What a key of nats-server's configuration file sets: the kinds of keys there are.

A key is a Taker: it is given the key's value and says in a Conf what follows from it. A key that nats-server knows and
this broker has no use for is `unsupported`, with the reason, which is one line of warning; one that nobody knows is an
error, unless a variable refers to it. The tables are in conf_keys.py and where a block has a file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mq_shards.acceptor.option_kinds import SECOND
from mq_shards.acceptor.protocols.nats.conf import Block, ConfError, Value

DEFAULT_HOST: Final = "0.0.0.0"
DEFAULT_PORT: Final = 4222
SECURE_MONITORING: Final = "nats-https"


@dataclass(slots=True)
class Conf:
    """What a file asks for, so far."""

    # Options of [nats]: where each was set, and its value as our own file would have it.
    options: dict[str, tuple[str, object]] = field(default_factory=dict)
    # What is listened on: hosts and ports by scheme. Port 0: any free one.
    hosts: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    # What acceptors are told beside the options, by its name: of what JSON has.
    content: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    # Found on the way, and put into the content when the whole file has been looked at.
    users: list[dict[str, Any]] = field(default_factory=list)
    user_names: set[str] = field(default_factory=set)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    accounts_value: Value | None = None  # where what is wrong among accounts is said to be
    mappings: dict[str, Any] = field(default_factory=dict)  # of the global account
    system_account: Value | None = None
    no_auth_user: Value | None = None
    callout_accounts: Value | None = None  # those whose users are asked about
    has_authorization: bool = False
    websocket: Value | None = None  # the block
    leaf_authorization: Value | None = None  # likewise, in leafnodes
    leaf_remotes: Value | None = None  # and its array remotes
    resolver: Value | None = None  # of accounts
    file: str = ""  # the one that was named

    def set(self, name: str, where: Value, content: object) -> None:
        """Nothing, and 0, are the default, as they are to nats-server."""
        self.options.pop(name, None)
        if content:
            self.options[name] = (f"{where.file}:{where.line}", content)

    def address(self, scheme: str) -> str:
        host = self.hosts.get(scheme) or self.hosts.get("nats", DEFAULT_HOST)
        return f"[{host}]:{self.ports[scheme]}" if ":" in host else f"{host}:{self.ports[scheme]}"

    def shown_at(self, scheme: str) -> str:
        """Behind an address: the certificate that is shown there. Raises ConfError."""
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
    """All keys of a block, whatever their case. `what` is said of the block in a complaint."""
    for key, value in block.items():
        taker = table.get(key.lower())
        if taker is not None:
            taker(conf, value)
        elif not value.referenced:
            raise value.error(f'unknown key "{key}"{what}')


# --- kinds of takers --------------------------------------------------------------------------------------------------


def option(name: str, get: Callable[[Value], object]) -> Taker:
    """Sets an option of [nats]."""

    def take(conf: Conf, value: Value) -> None:
        conf.set(name, value, get(value))

    return take


def duration_option(name: str) -> Taker:
    """Written as Go does; a bare number is of seconds, as it was in old files."""

    def take(conf: Conf, value: Value) -> None:
        if isinstance(value.content, int) and not isinstance(value.content, bool):
            conf.warn(value, f'{value.content} is taken for seconds: write it as a duration, "{value.content}s"')
            ns = value.content * SECOND
        else:
            ns = value.duration_ns()
        conf.set(name, value, f"{ns}ns" if ns else 0)

    return take


def unsupported(key: str, why: str) -> Taker:
    def take(conf: Conf, value: Value) -> None:
        # What is turned off is not missed.
        if value.content not in (False, {}, []):
            conf.warn(value, f"{key} is not supported: {why}")

    return take


def refused(key: str) -> Taker:
    """What cannot be left out: who may do what, and who may listen."""

    def take(conf: Conf, value: Value) -> None:
        raise value.error(f"{key} is not supported")

    return take


# --- where it listens -------------------------------------------------------------------------------------------------


def listen(scheme: str) -> Taker:
    """A port, or HOST:PORT."""

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
    """As nats-server has it, -1 is any free port, and 0 (like none at all) the usual one."""
    if not -1 <= number <= 65535:
        raise value.error(f"{number} is not a port")
    return 0 if number == -1 else number or DEFAULT_PORT
