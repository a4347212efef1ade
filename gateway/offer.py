"""What the gateway offers to a protocol's clients, besides what acceptors serve, and what the rest of the gateway must
know of that protocol.

The supervisor imports offers before it starts a gateway, so they must import nothing large of the gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mq_shards.acceptor.option_kinds import Kind
from mq_shards.acceptor.protocol import OtherScheme
from mq_shards.gateway.terms import Terms

if TYPE_CHECKING:
    from mq_shards.gateway.part import Part, Shared

Settings: TypeAlias = Mapping[str, Mapping[str, Any]]


class Service(NamedTuple):
    name: str  # the scheme of --listen
    port: int  # the default port
    example: str  # a shell command that tries it; {address} is {host}:{port}, IPv6 in brackets
    other_schemes: tuple[OtherScheme, ...] = ()
    guarded_as: str = ""  # the protocol whose options also say who may connect here
    leads_to_topics: bool = True


def _no_work(listening: Collection[str], settings: Settings) -> bool:
    return False


def _no_warnings(listening: Collection[str], settings: Settings) -> Iterator[str]:
    return iter(())


class Offer(NamedTuple):
    # Makes its part of the gateway's process, and only then loads the code for it. None: there is nothing to do.
    part: Callable[[Shared], Part | None]
    services: tuple[Service, ...] = ()
    section: tuple[str, Mapping[str, Kind]] | None = None  # the gateway's own options: the section's name, and each
    needed_by: tuple[str, ...] = ()  # schemes that acceptors serve, and whose clients need a gateway too
    # Whether there is work without being asked; `listening` has the schemes of listeners.
    has_work: Callable[[Collection[str], Settings], bool] = _no_work
    # Whether an earlier start has left work in the data directory, if there is one, even if nothing listens now.
    is_left: Callable[[str | None], bool] = lambda data_dir: False
    # Yields warnings about options that have no effect.
    without_effect: Callable[[Collection[str], Settings], Iterator[str]] = _no_warnings
    # The terms of publishing over HTTP; one offer has them.
    terms: Callable[[Settings], Terms] | None = None
    # Patterns of the topics whose messages live subscribers are told (live.py).
    live_topics: Callable[[Settings], Sequence[str]] = lambda settings: ()
