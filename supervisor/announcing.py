"""What the journal says when a broker begins to serve."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from mq_shards.supervisor.options.options import SCHEMES, Listen, Options

log: Final = logging.getLogger(__name__)


def announce(options: Options, addresses: Sequence[Listen], shards: int, workers: int) -> None:
    for address in addresses:
        log.info("listening on %s", address)
    processes = f"{_count(workers, 'worker')} and {_count(options.acceptors, 'acceptor')}"
    if options.data_dir is None:
        log.info("messages are kept in memory only, in %d shards of %s", shards, processes)
    else:
        sync = options.sync
        if sync == "interval":
            sync += f" ({options.settings['log']['sync-interval']} ms)"
        log.info(
            "messages are kept in %s, in %d shards of %s; --sync %s",
            options.data_dir.absolute(), shards, processes, sync,
        )  # fmt: skip
    for name in SCHEMES if options.users is None else ():  # without a login nothing of it would be answered
        found = (address for address in addresses if not address.path and address.protocol == name)
        first = next(found, None)
        if first is not None:
            log.info("try it: %s", first.example)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
