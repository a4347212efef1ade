"""What the commands that show what brokers keep, and drop some of it, have in common: how old, and how it ends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping

from mq_shards.pipeline.client import BrokerError, Client
from mq_shards.pipeline.options import OptionError, connection_of

PATIENCE_S = 10.0
MOST = 100_000  # of days, or hours


def age(text: str) -> float:
    """Of --drop-older. Raises ValueError."""
    found = float(text)
    if not 0 <= found <= MOST:  # nor "nan"
        raise ValueError
    return found


def show_or_drop(
    options: argparse.Namespace,
    connection: Mapping[str, str],
    show: Callable[[list[Client]], int],
    drop: Callable[[Client, argparse.Namespace], int],
    none: str,
) -> int:
    """Needs no Spark. The exit status is 1 when there was none of that name, as `none` says, or a broker does not
    answer."""
    try:
        clients = [Client(address, PATIENCE_S) for address in connection_of(connection)]
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
