"""The wire protocols, one line each: the module of that name has the class, as PROTOCOL.

The other half of each is in csrc/acceptor/protocols/table.c.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.protocol import Protocol

NAMES: Final = (
    "beanstalk",
    "nsq",
    "nats",
    "nats_route",
    "pulsar",
)

PROTOCOLS: Final[Mapping[str, type[Protocol]]] = {
    protocol.name: protocol
    for protocol in (importlib.import_module(f"mq_shards.acceptor.protocols.{name}").PROTOCOL for name in NAMES)
}
