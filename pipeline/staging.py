"""Stages the sections of a task at one broker: sends them piece by piece under a name of their own. No consumer sees
them until the driver has them published."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from mq_shards.pipeline.client import Address, BrokerError, Client
from mq_shards.pipeline.encode import Section

PIECE_BYTES: Final = 8 << 20
PIECE_SECTIONS: Final = 32768
DROP_S: Final = 5.0  # for a drop, which the broker does by itself after a day
_PREFIX: Final = 150  # most characters of the owner's name in that of a stage


@dataclass(frozen=True)
class Staged:
    broker: Address
    identity: str
    """Of the broker that was there then; empty: whichever is there."""
    name: str
    bytes: int
    messages: int


class Stage:
    """No name is used twice: an attempt of a task that is thought dead may still be writing under its name."""

    def __init__(self, client: Client, owner: str) -> None:
        self._client = client
        self._name = f"{owner[:_PREFIX]}-{secrets.token_hex(8)}"
        self._sections: list[bytes] = []
        self._waiting = self._bytes = self._messages = 0

    def add(self, section: Section) -> None:
        """Raises BrokerError."""
        if self._waiting + len(section.data) > PIECE_BYTES or len(self._sections) == PIECE_SECTIONS:
            self._send()
        self._sections.append(section.data)
        self._waiting += len(section.data)
        self._messages += section.messages

    def finish(self) -> Staged:
        """Raises BrokerError."""
        self._send()
        return Staged(self._client.address, self._client.broker, self._name, self._bytes, self._messages)

    def _send(self) -> None:
        if not self._sections:
            return
        piece = b"".join(self._sections)
        self._sections.clear()
        self._waiting = 0
        there = self._client.stage(self._name, self._bytes, piece)
        self._bytes += len(piece)
        if there != self._bytes:
            raise BrokerError(f"broker {self._client.address}: {self._name} has {there} bytes, not {self._bytes}")

    def drop(self) -> None:
        drop(self._client.address, [self._name])


def drop(broker: Address, names: list[str]) -> None:
    """Drops what it can."""
    with Client(broker, DROP_S) as client:
        for name in names:
            try:
                client.drop_staged(name)
            except BrokerError as error:
                # A refusal is fine: nothing is staged, or it is being published. Else the next call would take as long.
                if error.status is None:
                    return
