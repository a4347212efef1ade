"""What the journal says when a worker has recovered, and when the broker begins to serve."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from mq_shards.ringbuf.control import Message
from mq_shards.supervisor.options.listen import SCHEMES, Listen
from mq_shards.supervisor.options.options import Options

log: Final = logging.getLogger(__name__)


def say_recovered(title: str, message: Message) -> None:
    """`message`: what the worker says of its recovery."""
    for damage in message["damage"]:
        # Damage costs messages; a torn write at the end of the log is normal after a crash.
        (log.info if damage.get("torn") else log.error)(
            "%s: shard %d, segment %d, offset %d: %s",
            title, damage["shard"], damage["segment"], damage["offset"], damage["reason"],
            extra={"fields": damage},
        )  # fmt: skip
    counts = {name: message[name] for name in ("shards", "records", "jobs", "bytes", "seconds")}
    log.info(
        "%s recovered %d messages from %d records (%d bytes) of %d shards in %.3f s",
        title, counts["jobs"], counts["records"], counts["bytes"], counts["shards"], counts["seconds"],
        extra={"fields": counts},
    )  # fmt: skip


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
