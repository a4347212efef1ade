"""`mq-pipeline writers`: shows the writers whose batches brokers remember as published, and forgets one.

A stream that writes is remembered as a writer for good, and a broker has room for a limited number of writers. One
whose query will not come back can be forgotten; a query that goes on under a forgotten name may publish its last
micro-batch twice.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from mq_shards.pipeline.client import PUBLISHED, Client, Writer
from mq_shards.pipeline.dropping import drop_each, show_or_drop
from mq_shards.pipeline.tables import text_table

DAY_NS = 24 * 3600 * 10**9
CONFLICTS = (403, 404, 409)  # the writer is another user's; has gone meanwhile; or publishes a batch now


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    del master
    return show_or_drop(options, connection, _show, _drop, "is no writer, or publishes just now")


def _drop(client: Client, options: argparse.Namespace) -> int:
    with client:
        names = [options.drop] if options.drop is not None else _older(client, options.drop_older)
        return drop_each(client, names, client.delete_writer, CONFLICTS)


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
