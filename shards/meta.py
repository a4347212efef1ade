"""What was fixed when a data directory was made: {"version": 1, "shards": 64, "id": "..."}.

It is written when all is made, and once more when all of that is on the disk, which "new" is for: see Meta.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.shards import durable, medium
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.paths import META, SHARD_NAME
from mq_shards.shards.segment_header import Header, decode_header
from mq_shards.shards.store_error import StoreError, explained

VERSION: Final = 1
MAX_SHARDS: Final = 4096


class Meta(NamedTuple):
    """What was fixed when the directory was made."""

    shards: int
    id: str
    manifests: bool = True  # whether shards have manifests; False: made by a version that had none
    new: bool = False  # whether a power failure may still take folders and files of shards, and nothing of worth

    def encode(self) -> bytes:
        found = {"version": VERSION, "shards": self.shards, "id": self.id, "manifests": self.manifests}
        if self.new:
            found["new"] = True
        return json.dumps(found).encode() + b"\n"

    @staticmethod
    def load(directory: Path) -> Meta:
        """Raises StoreError if what it says is damaged, and OSError."""
        return Meta.decode(directory / META, durable.read(directory / META))

    @staticmethod
    def decode(path: Path, text: bytes) -> Meta:
        try:
            found = json.loads(text)
            version, shards, identity = found["version"], found["shards"], found["id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise StoreError(f"{path} is damaged: it should say version, shards and id") from None
        if version != VERSION:
            raise StoreError(f"{path} is of version {version!r}; this program reads version {VERSION}")
        if type(shards) is not int or not 1 <= shards <= MAX_SHARDS or not isinstance(identity, str):
            raise StoreError(f"{path} is damaged: {shards!r} shards, id {identity!r}")
        return Meta(shards, identity, found.get("manifests") is True, found.get("new") is True)


def read_meta(path: Path) -> Meta:
    """Reads meta.json of an existing data directory, without its lock. Raises StoreError."""
    with explained(f"{path / META} cannot be read"):
        meta = Meta.load(path)
    check_shards(path, meta)
    return meta


def check_shards(path: Path, meta: Meta) -> None:
    """Raises StoreError if folders and logs agree that the number of shards is another. Were a damaged one believed,
    each log would be put aside as another directory's."""
    with explained(f"the data directory {path} cannot be read"):
        folders = sorted(entry for entry in path.iterdir() if SHARD_NAME.fullmatch(entry.name) and entry.is_dir())
        if len(folders) == meta.shards:
            return
        headers = [header for folder in folders if (header := _header_of(folder)) is not None]
    numbers = {header.shards for header in headers}
    if len(numbers) == 1 and (logged := numbers.pop()) != meta.shards:
        raise StoreError(f"{path / META} is damaged: it says {meta.shards} shards, and all logs are of {logged}")


def _header_of(folder: Path) -> Header | None:
    """Of a segment of the shard whose header is whole."""
    for log in sorted(folder.glob("*.log")):
        with contextlib.suppress(StoreError, OSError), os.fdopen(durable.open_to_read(log), "rb", buffering=0) as file:
            return decode_header(medium.read(file.fileno(), SEGMENT_HEADER_BYTES, 0))
    return None
