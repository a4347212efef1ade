"""A data directory: made, locked, and taken over from versions without manifests."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mq_shards.shards import durable, last_run
from mq_shards.shards.manifest import NAME as MANIFEST
from mq_shards.shards.manifest import Manifest, ManifestError
from mq_shards.shards.meta import MAX_SHARDS, Meta, check_shards
from mq_shards.shards.paths import LOCK, META, META_NEW, SHARD_NAME, segment_name, shard_path
from mq_shards.shards.store import ShardStore
from mq_shards.shards.store_error import StoreError, explained


class DataDirectory:
    """A data directory that this process has locked. `shards` and `id` are fixed since it was made."""

    def __init__(self, path: Path, meta: Meta, lock: int) -> None:
        self.path = path
        self.shards = meta.shards
        self.id = meta.id
        self.new = meta.new  # until `synced`: the shards have been made, and may not be on the disk yet
        self._lock = lock

    @classmethod
    def open_or_create(
        cls, path: Path, shards: int | None, default_shards: int = 64, *, begun: bool = False
    ) -> DataDirectory:
        """Opens the directory, or makes it with `shards` shards (None: as many as it has, or the default). `begun`:
        makes each shard with the file of its first segment, and leaves it to the workers to sync that: `new` says so.

        Raises StoreError: another broker uses it, it has another number of shards, it holds other files, or the disk
        refuses.
        """
        with explained(f"the data directory {path} cannot be made"):
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
        lock = cls._take_lock(path)
        try:
            meta = cls._with_manifests(path, cls._meta(path, shards, default_shards, begun=begun))
        except BaseException:
            os.close(lock)
            raise
        return cls(path, meta, lock)

    def synced(self) -> None:
        """To be called when what is new has been synced. Raises StoreError."""
        with explained(f"{self.path / META} cannot be written"):
            durable.save(self.path / META, Meta(self.shards, self.id).encode())
        self.new = False

    def close(self) -> None:
        """Unlocks the directory for another broker."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def shard(self, shard: int) -> ShardStore:
        return ShardStore(self.path, shard)

    @staticmethod
    def _take_lock(path: Path) -> int:
        with explained(f"{path / LOCK} cannot be locked"):
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with contextlib.suppress(OSError):  # only who cannot have the lock reads it
                    os.ftruncate(lock, os.pwrite(lock, b"%d\n" % os.getpid(), 0))
            except BlockingIOError:
                owner = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
                os.close(lock)
                raise StoreError(f"the data directory {path} is in use by another broker (pid {owner})") from None
            except BaseException:
                os.close(lock)
                raise
        return lock

    @classmethod
    def _meta(cls, path: Path, shards: int | None, default_shards: int, *, begun: bool) -> Meta:
        with explained(f"{path / META} cannot be read"):
            try:
                meta = Meta.load(path)
            except FileNotFoundError:
                return cls._create(path, default_shards if shards is None else shards, begun=begun)
        if shards not in (None, meta.shards):
            raise StoreError(f"the data directory {path} has {meta.shards} shards, which is fixed, and not {shards}")
        check_shards(path, meta)
        if meta.new:
            with explained(f"the data directory {path} cannot be made"):
                _make_shards(path, meta)
        return meta

    @staticmethod
    def _with_manifests(path: Path, meta: Meta) -> Meta:
        """Takes over a directory of a version without manifests: lists the segments that are there now."""
        if meta.manifests:
            return meta
        for shard in range(meta.shards):
            store = ShardStore(path, shard)
            try:
                store.recover()
            finally:
                store.close()
        meta = Meta(meta.shards, meta.id)
        with explained(f"{path / META} cannot be written"):
            durable.save(path / META, meta.encode())
        return meta

    @staticmethod
    def _create(path: Path, shards: int, *, begun: bool) -> Meta:
        if not 1 <= shards <= MAX_SHARDS:
            raise StoreError(f"a data directory has 1 to {MAX_SHARDS} shards, not {shards}")
        with explained(f"the data directory {path} cannot be made"):
            for entry in sorted(path.iterdir()):
                # Left by a crash in the middle of this, or found in a fresh file system.
                ours = entry.name in (LOCK, META_NEW, last_run.NAME, "lost+found") or (
                    SHARD_NAME.fullmatch(entry.name)
                    and entry.is_dir()
                    and all(_is_new(file) for file in entry.iterdir())
                )
                if not ours:
                    raise StoreError(f"{path} is not a data directory (no {META}) and not empty: it has {entry.name}")
            meta = Meta(shards, os.urandom(16).hex(), new=begun)
            if begun:
                _make_shards(path, meta)
            else:
                for shard in range(shards):
                    folder = shard_path(path, shard)
                    folder.mkdir(mode=0o750, exist_ok=True)
                    (folder / segment_name(1)).unlink(missing_ok=True)
                    Manifest(meta.id, shard).write(folder)
            last_run.write(path)
            # The directory exists once meta.json does.
            durable.save(path / META, meta.encode())
            durable.sync_directory(path.resolve().parent)
        return meta


def _make_shards(path: Path, meta: Meta) -> None:
    """Makes what is not there of shards that are new: all, or what a power failure took."""
    for shard in range(meta.shards):
        folder = shard_path(path, shard)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o750)
        new, found = Manifest(meta.id, shard, {1: 0}), None
        with contextlib.suppress(ManifestError):  # it was being written
            found = Manifest.load(folder, meta.id, shard)
        if found is None or found.segments == new.segments:
            (folder / segment_name(1)).touch(0o640)
        if found is None:
            new.write(folder)


def sync_shards(path: Path, shards: Iterable[int]) -> None:
    """Makes the first files of new shards durable: their names, and the manifests. Raises OSError."""
    folders = [shard_path(path, shard) for shard in shards]
    durable.sync_all([*(folder / MANIFEST for folder in folders), *folders])


def _is_new(file: Path) -> bool:
    status = file.lstat()
    is_empty = file.name == segment_name(1) and status.st_size == 0
    return stat.S_ISREG(status.st_mode) and (file.name == MANIFEST or is_empty)
