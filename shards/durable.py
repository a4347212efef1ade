"""Small files that are replaced whole and survive a power failure: the one place that knows how.

Knows nothing of what is in them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# Several syncs cost a disk no more than one: they share a commit of its journal.
SYNCING_THREADS: Final = 4


def save(path: Path, content: bytes) -> None:
    """Durable when it returns. Before that, and if it raises (OSError), `path` is what it was.

    The folder must exist. One writer at a time: what it writes first is called as the file, with .new behind.
    """
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """The names in it are durable then: those that came and those that went. OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_all(paths: Sequence[Path]) -> None:
    """Files, and folders with the names in them. OSError."""
    failed: list[OSError] = []

    def sync(some: Sequence[Path]) -> None:
        try:
            for path in some:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=sync, args=(paths[at::SYNCING_THREADS],)) for at in range(SYNCING_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
