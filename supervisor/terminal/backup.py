"""`mq-shards backup DATA_DIR TO` and `mq-shards restore FROM DATA_DIR`."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from mq_shards.shards import backup as backups
from mq_shards.shards.restore import restore
from mq_shards.shards.store_error import StoreError
from mq_shards.supervisor.terminal.show import counted

FAILED: Final = 1


def main(arguments: Sequence[str]) -> int:
    try:
        return _backup(arguments[1:]) if arguments[0] == "backup" else _restore(arguments[1:])
    except StoreError as error:
        print(f"mq-shards: {error}", file=sys.stderr)
        return FAILED


def _backup(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mq-shards backup",
        description="A copy of a data directory; its broker may run. Made again, only what is new is copied.",
    )
    parser.add_argument("data_dir", type=Path, metavar="DATA_DIR")
    parser.add_argument("to", type=Path, metavar="TO")
    parser.add_argument("--json", action="store_true", help="for programs: an object")
    options = parser.parse_args(arguments)
    # A backup opens all segments of a shard at once.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = backups.make(options.data_dir, options.to)
    found = backups.contents_json(made)
    for problem in made.problems:
        print(f"mq-shards: {problem}", file=sys.stderr)
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{options.to} has {counted(found['segments'], 'segments')}, {_mib(found['bytes'])}; "
              f"{_mib(found['copied_bytes'])} were copied now")  # fmt: skip
    return 0


def _restore(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mq-shards restore",
        description="A data directory as it was when the backup was made. Every byte is checked.",
    )
    parser.add_argument("backup", type=Path, metavar="FROM")
    parser.add_argument("data_dir", type=Path, metavar="DATA_DIR", help="must not be there, or be empty")
    parser.add_argument(
        "--as-new", action="store_true", help="for a broker beside the one that was copied: with an id of its own"
    )
    options = parser.parse_args(arguments)
    found = restore(options.backup, options.data_dir, as_new=options.as_new)
    when = datetime.fromtimestamp(found.at_ns / 1e9).astimezone().isoformat(" ", "seconds")
    print(f"{options.data_dir} is as it was at {when}: {_mib(sum(file.bytes for file in found.files.values()))}")
    return 0


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
