"""The options in CONNECT. Equal ones are parsed and stored once for all clients, as those of one program often are.

A stored mapping is never changed: a client that sends CONNECT again gets a new mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor.protocols.go_json import fields, flag, int64, items, loads, text
from mq_shards.acceptor.protocols.nats.client import DEFAULTS
from mq_shards.acceptor.protocols.nats.reasons import VIOLATION


def _subjects(value: object) -> dict[str, list[str]]:
    """What servers of a cluster say of permissions: of a client it has no meaning, but must be well-formed."""
    return fields(value, {"allow": items(text, ""), "deny": items(text, "")})


FIELDS: Final = {
    "verbose": flag, "pedantic": flag, "tls_required": flag, "echo": flag, "headers": flag, "no_responders": flag,
    "user": text, "pass": text, "auth_token": text, "nkey": text, "sig": text, "jwt": text,
    "name": text, "lang": text, "version": text, "protocol": int64, "account": text, "new_account": flag,
    "import": _subjects, "export": _subjects, "remote_account": text, "proxy_sig": text,
}  # fmt: skip
KEPT: Final = 1024
KEPT_BYTES: Final = 512  # longer ones are not stored: they hold signatures, which no other client sends

Said = Mapping[str, Any]


def refusal_of(said: Said) -> str:
    """Why no client may send these options; empty when they are allowed.

    >>> refusal_of({"protocol": 2})
    'invalid client protocol'
    """
    if said.get("account") or said.get("new_account"):
        return VIOLATION
    if said.get("protocol", 0) not in (0, 1):
        return "invalid client protocol"
    if said.get("no_responders") and not said.get("headers"):
        return "no responders requires headers support"
    return ""


class Connects:
    def __init__(self, has_headers: bool = True) -> None:
        """`has_headers` False: clients have no headers, whatever they ask for."""
        self._kept: dict[bytes, Said] = {}
        self._denied: Said = {} if has_headers else {"headers": False}

    def read(self, before: Said, body: bytes) -> Said:
        """Returns a client's options: `before` and those of a CONNECT, in `body`. Raises DecodeError.

        >>> connects = Connects()
        >>> one, other = (connects.read(DEFAULTS, b'{"verbose":false}') for _ in range(2))
        >>> one is other, one["verbose"], connects.read(one, b'{"echo":false}')["verbose"]
        (True, False, False)
        """
        if before is not DEFAULTS or len(body) > KEPT_BYTES:
            return {**before, **fields(loads(body), FIELDS), **self._denied}
        found = self._kept.get(body)
        if found is None:
            found = {**before, **fields(loads(body), FIELDS), **self._denied}
            if len(self._kept) == KEPT:
                self._kept.clear()
            self._kept[body] = found
        return found
