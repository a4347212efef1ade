"""What was fixed when a data directory was made: {"version": 1, "shards": 64, "id": "..."}, written once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.shards import durable
from mq_shards.shards.paths import META
from mq_shards.shards.store_error import StoreError, explained

VERSION: Final = 1
MAX_SHARDS: Final = 4096


class Meta(NamedTuple):
    """What was fixed when the directory was made."""

    shards: int
    id: str
    manifests: bool = True  # whether shards have manifests; False: made by a version that had none

    def encode(self) -> bytes:
        found = {"version": VERSION, "shards": self.shards, "id": self.id, "manifests": self.manifests}
        return json.dumps(found).encode() + b"\n"

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
        return Meta(shards, identity, found.get("manifests") is True)


def read_meta(path: Path) -> Meta:
    """Reads meta.json of an existing data directory, without its lock. Raises StoreError."""
    with explained(f"{path / META} cannot be read"):
        return Meta.decode(path / META, durable.read(path / META))
