"""`mq-pipeline staged`: shows what tasks have staged and no batch has published, and removes it.

A job that is killed leaves what its tasks had staged. Brokers remove what has not been touched for a day by themselves;
until then it counts in `http.staged-bytes`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from mq_shards.pipeline.client import Client, StagedFile
from mq_shards.pipeline.dropping import drop_each, show_or_drop
from mq_shards.pipeline.tables import text_table

CONFLICTS = (404, 409)  # the name has gone meanwhile, or is being published


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    del master
    return show_or_drop(options, connection, _show, _drop, "is not staged, or is being published")


def _drop(client: Client, options: argparse.Namespace) -> int:
    before_ns = 0 if options.drop_older is None else time.time_ns() - int(options.drop_older * 3600e9)
    with client:
        names = [options.drop] if options.drop is not None else _older(client, before_ns)
        return drop_each(client, names, client.drop_staged, CONFLICTS)


def _older(client: Client, before_ns: int) -> list[str]:
    return [file.name for file in client.staged() if file.touched_ns <= before_ns and not file.publishing]


def _show(clients: list[Client]) -> int:
    rows: list[tuple[str, ...]] = []
    for client in clients:
        with client:
            rows += [_row(client, file) for file in client.staged()]
    print(text_table(("staged", "broker", "bytes", "last touched", ""), rows))
    return 0


def _row(client: Client, file: StagedFile) -> tuple[str, ...]:
    touched = datetime.fromtimestamp(file.touched_ns / 1e9, UTC).isoformat(" ", "seconds")
    return file.name, str(client.address), str(file.bytes), touched, "being published" if file.publishing else ""
