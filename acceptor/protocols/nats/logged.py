"""What clients say and hear, in the log: nats-server's option `trace`. The C half (nats_logged.h) hands over each line,
and here it is written as a nats-server writes it, without passwords."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.option_kinds import Flag, Kind, Number, Setting
from mq_shards.acceptor.protocols.go_quote import quoted

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.client import Client

COMMAND: Final = b"LOG"
OPTIONS: Final[Mapping[str, Kind]] = {
    "trace": Flag(False, "the log has what clients say and hear"),
    "trace-headers": Flag(False, "and only the headers of messages"),
    "max-traced-msg-len": Number(0, 0, 1 << 40, "and so many bytes of a message; 0: 64 KiB"),
}
FORMATS: Final = {b"<": "<<- [%s]", b">": "->> [%s]", b"-": "<-> [DELSUB %s]"}
# What a payload is, and whether it is cut off.
PAYLOADS: Final = {b"i": ("<<-", ""), b"o": ("->>", ""), b"I": ("<<-", "..."), b"O": ("->>", "...")}
UNPRINTABLE: Final = {n: f"\\x{n:02x}" for n in (*range(32), *range(127, 160))}
REDACTED: Final = b"[REDACTED]"
# A secret and its key. A key without a value is matched as well, so that no search begins within it again.
SECRETS: Final = (
    rb'(?:auth_token|pass)[^\s:=]*+\s*+(?:[:=]\s*+"?([^",\r\n}]*+))?',
    rb'(?<![A-Za-z0-9_])(?:proxy_sig|nkey|sig)"?\s*+[:=]\s*+"?([^",\r\n}]*+)',
)

log = logging.getLogger(__name__)


def terms(settings: Mapping[str, Setting]) -> int:
    """The value for the codec: see nats_log_set."""
    most = settings["max-traced-msg-len"]
    assert isinstance(most, int)
    return (1 if is_on(settings) else 0) | (2 if settings["trace-headers"] else 0) | most << 2


def without_secrets(line: bytes) -> bytes:
    """
    >>> without_secrets(b'{"user":"u","pass":"p","nkey":"U1","sig":"x"}')
    b'{"user":"u","pass":"[REDACTED]","nkey":"[REDACTED]","sig":"[REDACTED]"}'
    """
    for secret in SECRETS:
        parts, at = [], 0
        for found in re.finditer(secret, line):
            if found.start(1) >= 0:
                parts += [line[at : found.start(1)], REDACTED]
                at = found.end(1)
        line = b"".join((*parts, line[at:]))
    return line


def label(client: Client) -> str:
    """Which client it is: its address, number, name and user."""
    said = client.options
    version = f"v{said['version']}" if said.get("version") else ""
    name = ":".join(filter(None, (version, said.get("lang"), said.get("name"))))
    found = [client.remote, f"{'wid' if client.is_websocket else 'cid'}:{client.client_id}"]
    found += [quoted(one.encode()) for one in (name, _login(client)) if one]
    return " - ".join(found)


def _login(client: Client) -> str:
    said = client.options
    if not client.connects:
        return ""
    by_jwt = client.user.nkey if said.get("jwt") and client.user is not None else ""
    named = {"nkey": said.get("nkey"), "user": said.get("user"), "jwt": by_jwt}
    for kind, name in named.items():
        if name:
            return f"{client.account}/{kind}:{name}"
    return f"{client.account}/token" if said.get("auth_token") else ""


def is_on(settings: Mapping[str, Setting]) -> bool:
    return bool(settings["trace"] or settings["trace-headers"])


def write_sent(client: Client, line: str) -> None:
    """Writes what Python itself sends."""
    log.info("[TRC] %s - ->> [%s]", label(client), line)


def write(client: Client | None, record: bytes) -> None:
    """Writes a line of the codec (without its first word); None: the client is gone."""
    if client is None:
        return
    what, left_out, text = record[:1], int.from_bytes(record[1:5], sys.byteorder), record[5:]
    if left_out:
        log.warning("%d lines of what clients said and heard are left out: there were too many", left_out)
    if what in PAYLOADS:
        arrow, cut = PAYLOADS[what]
        shown = f'{arrow} MSG_PAYLOAD: [{quoted(text)[:-1]}{cut}"]'
    else:
        if text.startswith(b"CONNECT "):
            text = without_secrets(text)
        shown = FORMATS[what] % text.decode(errors="backslashreplace").translate(UNPRINTABLE)
    log.info("[TRC] %s - %s", label(client), shown)
