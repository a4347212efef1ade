"""`mq-pipeline writers`: whose batches brokers remember as published, and forgetting one.

A stream that writes is a writer for good, and a broker has room for so many. One whose query will not come back can be
forgotten; a query that goes on under a forgotten name may publish its last micro-batch twice.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from mq_shards.pipeline.client import PUBLISHED, BrokerError, Client, Writer
from mq_shards.pipeline.options import OptionError, connection_of
from mq_shards.pipeline.tables import text_table

PATIENCE_S = 10.0
DAY_NS = 24 * 3600 * 10**9
MOST_DAYS = 100_000
CONFLICTS = (403, 404, 409)  # another user's; it has gone meanwhile; a batch of it is being published


def add_arguments(command: argparse.ArgumentParser) -> None:
    drop = command.add_mutually_exclusive_group()
    drop.add_argument("--drop", metavar="NAME", help="forget this one, whose query will not come back")
    older = "forget those that have published nothing for so long"
    drop.add_argument("--drop-older", metavar="DAYS", type=_days, help=older)


def _days(text: str) -> float:
    found = float(text)
    if not 0 <= found <= MOST_DAYS:  # nor "nan"
        raise ValueError
    return found


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    """Needs no Spark. The exit status is 1 when there was none of that name, or a broker does not answer."""
    del master
    try:
        clients = [Client(address, PATIENCE_S) for address in connection_of(connection)]
        if options.drop is None and options.drop_older is None:
            return _show(clients)
        dropped = sum(_drop(client, options) for client in clients)
    except (BrokerError, OptionError) as error:
        print(f"mq-pipeline: {error}", file=sys.stderr)
        return 1
    if options.drop is not None and not dropped:
        print(f"mq-pipeline: {options.drop} is no writer, or publishes just now", file=sys.stderr)
        return 1
    return 0


def _drop(client: Client, options: argparse.Namespace) -> int:
    dropped = 0
    with client:
        names = [options.drop] if options.drop is not None else _older(client, options.drop_older)
        for name in names:
            try:
                client.delete_writer(name)
            except BrokerError as error:
                if error.status not in CONFLICTS:
                    raise
                continue
            dropped += 1
            print(f"dropped {name} of {client.address}")
    return dropped


def _older(client: Client, days: float) -> list[str]:
    before_ns = time.time_ns() - int(days * DAY_NS)
    found = client.writers()
    return [writer.name for writer in found if writer.changed_ns <= before_ns and writer.state == PUBLISHED]


def _show(clients: list[Client]) -> int:
    rows: list[tuple[str, ...]] = []
    for client in clients:
        with client:
            rows += [_row(client, writer) for writer in client.writers()]
    print(text_table(("writer", "broker", "last batch", "state", "messages", "last change", ""), rows))
    return 0


def _row(client: Client, writer: Writer) -> tuple[str, ...]:
    changed = datetime.fromtimestamp(writer.changed_ns / 1e9, UTC).isoformat(" ", "seconds")
    return (
        writer.name, str(client.address), str(writer.batch), writer.state, str(writer.messages), changed, writer.error
    )  # fmt: skip
