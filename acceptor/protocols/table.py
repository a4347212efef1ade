"""The Python halves of the wire protocols that csrc/acceptor/protocols/table.c lists.

That of nats-route is the class PROTOCOL in nats/nats_route.py: the folder has the name of the protocol's family.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Final

from mq_shards.acceptor.engine import protocol_names
from mq_shards.acceptor.protocol import Protocol


def family(name: str) -> str:
    """Protocols of one family are one system's, and know each other: nats of nats, nats-route and nats-leaf."""
    return name.partition("-")[0]


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"mq_shards.acceptor.protocols.{family(name)}.{name.replace('-', '_')}")


PROTOCOLS: Final[Mapping[str, type[Protocol]]] = {name: _module(name).PROTOCOL for name in protocol_names().values()}
