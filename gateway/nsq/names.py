"""Which names of topics and channels are valid in NSQ."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor import engine
from mq_shards.acceptor.protocols.nsq.options import EPHEMERAL, HIDDEN

_NSQ: Final = engine.protocol_number("nsq")


def is_valid_name(name: str) -> bool:
    return engine.is_name(_NSQ, name.encode(errors="replace"))


def is_valid_channel(name: str) -> bool:
    return is_valid_name(name) and name not in HIDDEN


def is_ephemeral(name: str) -> bool:
    return name.endswith(EPHEMERAL)
