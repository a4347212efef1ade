"""`mq-pipeline readers`: shows the named subscriptions of queries and what each has not read yet, and drops one.

As long as a subscription exists, brokers keep what it has not read: one whose query will not come back is to be
dropped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from mq_shards.pipeline.client import BrokerError, Client, Reader
from mq_shards.pipeline.options import connection_of

TIMEOUT_S = 10.0


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    """Needs no Spark. The exit status is 1 if there was none to drop, or a broker does not answer."""
    del master
    try:
        clients = [Client(address, TIMEOUT_S) for address in connection_of(connection)]
        return _drop(clients, options.drop) if options.drop is not None else _show(clients)
    except (BrokerError, ValueError) as error:
        print(f"mq-pipeline: {error}", file=sys.stderr)
        return 1


def _drop(clients: list[Client], name: str) -> int:
    dropped = 0
    for client in clients:
        with client:
            if client.drop_reader(name):
                dropped += 1
                print(f"dropped {name} of {client.address}")
    if not dropped:
        print(f"mq-pipeline: there is no reader {name}", file=sys.stderr)
    return 0 if dropped else 1


def _show(clients: list[Client]) -> int:
    rows: list[tuple[str, ...]] = [("reader", "broker", "topics", "unread", "last change")]
    for client in clients:
        with client:
            rows += [_row(client, reader) for reader in sorted(client.readers(), key=lambda reader: reader.name)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _row(client: Client, reader: Reader) -> tuple[str, ...]:
    changed = datetime.fromtimestamp(reader.changed_ns / 10**9, UTC).isoformat(" ", "seconds")
    return reader.name, str(client.address), str(len(reader.topics)), str(sum(reader.unread.values())), changed
