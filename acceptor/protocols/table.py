"""The wire protocols, one line each. The module of that name has the class as PROTOCOL; its folder has the name up to
an underscore, so nats_route and nats_leaf are in nats/.

Their codecs are listed in csrc/acceptor/protocols/table.c.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Final

from mq_shards.acceptor.protocol import Protocol

NAMES: Final = (
    "beanstalk",
    "nsq",
    "nsq_http",
    "nats",
    "nats_route",
    "nats_leaf",
    "pulsar",
)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"mq_shards.acceptor.protocols.{name.partition('_')[0]}.{name}")


def family(name: str) -> str:
    """Protocols of one family are one system's, and know each other: nats of nats, nats-route and nats-leaf."""
    return name.partition("-")[0]


PROTOCOLS: Final[Mapping[str, type[Protocol]]] = {
    protocol.name: protocol for protocol in (_module(name).PROTOCOL for name in NAMES)
}
