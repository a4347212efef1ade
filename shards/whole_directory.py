"""A directory that appears as a whole or not at all: it is made under another name, and renamed when all of it is on
the disk. One that a killed process has left half made is begun anew."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mq_shards.shards import durable
from mq_shards.shards.store_error import StoreError


@contextlib.contextmanager
def making(final: Path, suffix: str) -> Iterator[Path]:
    """Yields an empty directory to be filled, whose files are synced by who writes them; renames it to `final`, which
    must be empty or not exist. Raises StoreError, also if another process makes the same one, and OSError."""
    final = final.resolve()  # it may be a link to another disk
    if final.is_mount():
        raise StoreError(f"a disk is mounted at {final}: name a directory in it, such as {final / 'mq-shards'}")
    made = final.with_name(final.name + suffix)
    made.mkdir(mode=0o750, parents=True, exist_ok=True)
    with _locked(made):
        try:
            for left in made.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            yield made
            _give(made, final if final.exists() else final.parent)
            for path in (made, *(one for one in made.rglob("*") if one.is_dir())):
                durable.sync_directory(path)
            if final.exists():
                final.rmdir()
            made.rename(final)
            durable.sync_directory(final.parent)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise


@contextlib.contextmanager
def _locked(made: Path) -> Iterator[None]:
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_it = os.path.samestat(os.fstat(lock), made.stat())
        except (BlockingIOError, FileNotFoundError):
            is_it = False  # FileNotFoundError: the other one has just ended
        if not is_it:
            raise StoreError(f"another process makes {made}")
        yield
    finally:
        os.close(lock)


def _give(made: Path, like: Path) -> None:
    """What root makes belongs to the owner of `like`."""
    if os.geteuid() != 0:
        return
    status = like.stat()
    for path in (made, *made.rglob("*")):
        os.chown(path, status.st_uid, status.st_gid)
