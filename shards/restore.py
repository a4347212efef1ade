"""Makes a data directory from a backup (shards/backup.py): all of it, as it was copied, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

from mq_shards.shards import durable
from mq_shards.shards.backup import PIECE_BYTES, Backup, File
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.manifest import Manifest
from mq_shards.shards.meta import Meta
from mq_shards.shards.paths import META, SEGMENT_NAME, shard_path
from mq_shards.shards.store_error import StoreError, explained
from mq_shards.shards.whole_directory import making


def restore(backup_dir: Path, to: Path, *, as_new: bool = False) -> Backup:
    """Restores to `to`, which must be empty or not exist. `as_new`: with a new id, for a broker that runs beside the
    one that was copied. Raises StoreError."""
    backup = Backup.load(backup_dir)
    if backup is None:
        raise StoreError(f"{backup_dir} is no backup: it has no backup.json")
    with explained(f"{to} cannot be made of {backup_dir}"):
        if to.exists() and any(to.iterdir()):
            raise StoreError(f"{to} is not empty")
        with making(to, ".restoring") as made:
            _fill(backup, backup_dir, made, os.urandom(16).hex() if as_new else backup.id)
    return backup


def _fill(backup: Backup, backup_dir: Path, made: Path, identity: str) -> None:
    segments: dict[int, dict[int, int]] = {shard: {} for shard in range(backup.shards)}
    for shard in segments:
        shard_path(made, shard).mkdir(mode=0o750)
    for name, file in backup.files.items():
        if name == META or ".." in Path(name).parts or Path(name).is_absolute():
            continue  # written at the end, below
        _copy(backup_dir / file.at, made / name, file)
        if file.begun_ns and (number := SEGMENT_NAME.fullmatch(Path(name).name)):
            segments[int(Path(name).parts[0].removeprefix("shard-"))][int(number[1])] = file.begun_ns
    for shard, listed in segments.items():
        Manifest(identity, shard, listed).save(shard_path(made, shard))
    durable.save(made / META, Meta(backup.shards, identity).encode())


def _copy(source: Path, target: Path, file: File) -> None:
    """Copies the first `file.bytes` bytes. Raises StoreError if they are not what was backed up."""
    target.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    left, crc = file.bytes, 0
    with explained(f"{source} cannot be read"):
        opened = durable.open_to_read(source)
    with os.fdopen(opened, "rb") as reading, target.open("wb") as writing:
        while left > 0 and (data := reading.read(min(PIECE_BYTES, left))):
            crc = crc32c(data, crc)
            writing.write(data)
            left -= len(data)
        writing.flush()
        if file.changed_ns:
            os.utime(writing.fileno(), ns=(file.changed_ns, file.changed_ns))
        os.fsync(writing.fileno())
    if left or crc != file.crc:
        raise StoreError(f"{source} is damaged: it is not what was copied")
