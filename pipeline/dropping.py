"""What the commands staged and writers share: the options that say what to drop, dropping it, and the exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Mapping

from mq_shards.pipeline.client import BrokerError, Client
from mq_shards.pipeline.options import OptionError, connection_of

TIMEOUT_S = 10.0
MOST = 100_000  # the largest age, in days or hours


def drop_each(client: Client, names: Iterable[str], drop: Callable[[str], None], conflicts: Collection[int]) -> int:
    """Drops what can be dropped, and prints that. `conflicts`: statuses that say that one cannot be. Returns how many
    were."""
    dropped = 0
    for name in names:
        try:
            drop(name)
        except BrokerError as error:
            if error.status not in conflicts:
                raise
            continue
        dropped += 1
        print(f"dropped {name} of {client.address}")
    return dropped


def show_or_drop(
    options: argparse.Namespace,
    connection: Mapping[str, str],
    show: Callable[[list[Client]], int],
    drop: Callable[[Client, argparse.Namespace], int],
    none: str,
) -> int:
    """Shows what brokers keep, or drops what the options say; needs no Spark. The exit status is 1 if a broker has
    nothing of the name to drop, which `none` then says, or does not answer."""
    try:
        clients = [Client(address, TIMEOUT_S) for address in connection_of(connection)]
        if options.drop is None and options.drop_older is None:
            return show(clients)
        dropped = sum(drop(client, options) for client in clients)
    except (BrokerError, OptionError) as error:
        print(f"mq-pipeline: {error}", file=sys.stderr)
        return 1
    if options.drop is not None and not dropped:
        print(f"mq-pipeline: {options.drop} {none}", file=sys.stderr)
        return 1
    return 0
