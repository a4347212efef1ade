"""`compression` in nats-server's configuration file: a mode, or a block of mode and round-trip thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_takers import Conf, Taker, option, take_block
from mq_shards.acceptor.protocols.nats.route_compression import NAMES

RTT_KEYS: Final = ("rtt_thresholds", "thresholds", "rtts", "rtt")


def compression_mode(value: Value) -> str:
    mode = str(value.content).lower()
    if mode not in NAMES:
        raise value.error(f'unsupported compression mode "{value.content}"')
    return NAMES[mode]


def take_compression(block: str, prefix: str) -> Taker:
    mode = option(f"{prefix}compression", compression_mode)
    takers: Mapping[str, Taker] = {
        "mode": mode, **dict.fromkeys(RTT_KEYS, option(f"{prefix}compression-rtt", Value.texts)),
    }  # fmt: skip

    def take(conf: Conf, value: Value) -> None:
        if isinstance(value.content, dict):
            take_block(conf, value.block(), takers, f" in {block}.compression")
        else:
            mode(conf, value)

    return take
