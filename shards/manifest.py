"""Which segments a shard has, so that a missing or exchanged one is noticed.

    DIR/shard-0007/manifest.json   {"version": 1, "directory": "...", "shard": 7, "segments": {"3": 1700}, "going": [2],
                                      "check": 4107}

`segments` maps the number of each segment to the wall clock in its header, which no other segment has; 0: it is not
known to have a header yet. A worker has the newest segment listed as begun soon after its first record,
when its header is durable.
`going` are segments that are being removed, so their files may or may not exist. `ended`, which may be absent, is a
segment and how many bytes it had when the broker was stopped: if it has fewer now, some are lost. `read-from`, which
may be absent too, is the first segment that a start has to read: those before it are kept for readers of the log
only. `check`, which releases before it do not write, is the CRC-32C of the JSON without it: a digit that is another
would make segments missing that never were.

The order of steps, so that a kill between any two of them raises no alarm: a segment's file is created, then listed,
then written to; at its end it is listed as going, then its file is removed. Each listing is durable before the next
step.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from mq_shards.shards import durable
from mq_shards.shards.checksum import crc32c

VERSION: Final = 1
NAME: Final = "manifest.json"
NEW: Final = f"{NAME}.new"


def _fits(path: Path, content: bytes) -> bool:
    """Whether the content fits into the disk space that the file has already."""
    return path.exists() and len(content) <= path.stat().st_blocks * 512


def _overwrite(path: Path, content: bytes) -> None:
    """Writes into the existing file: a full disk has no room for a new one, and a start must not fail for that. A power
    failure in between leaves a damaged manifest, which is noticed: then the segments found count."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _check(content: Mapping[str, object]) -> int:
    return crc32c(json.dumps(content).encode())


class ManifestError(Exception):
    """One line: why the manifest cannot be trusted."""


class Manifest(NamedTuple):
    directory: str  # the id of the data directory
    shard: int
    segments: Mapping[int, int] = MappingProxyType({})
    going: Sequence[int] = ()
    ended: tuple[int, int] = (0, 0)
    read_from: int = 0

    def save(self, path: Path) -> None:
        """Saves the manifest durably, with the names of all files in the shard's folder by then. Raises OSError."""
        content = self._encode()
        try:
            durable.save(path / NAME, content)
        except OSError as error:
            if error.errno != errno.ENOSPC or not _fits(path / NAME, content):
                raise
            (path / NEW).unlink(missing_ok=True)
            _overwrite(path / NAME, content)

    def write(self, path: Path) -> None:
        """Writes the manifest, durable only when the caller has synced it. Raises OSError."""
        with os.fdopen(durable.open_anew(path / NAME), "wb") as file:
            file.write(self._encode())

    def _encode(self) -> bytes:
        content = {
            "version": VERSION,
            "directory": self.directory,
            "shard": self.shard,
            "segments": {str(number): begun for number, begun in sorted(self.segments.items())},
            "going": list(self.going),
            **({"ended": list(self.ended)} if self.ended[0] else {}),
            **({"read-from": self.read_from} if self.read_from else {}),
        }
        return json.dumps({**content, "check": _check(content)}).encode() + b"\n"

    @staticmethod
    def load(path: Path, directory: str, shard: int) -> Manifest | None:
        """Reads the manifest; None: there is none. Raises ManifestError, OSError."""
        try:
            text = durable.read(path / NAME)
        except FileNotFoundError:
            return None
        except durable.NotAFileError:
            raise ManifestError("its manifest is not a file") from None
        if not text:
            return None
        try:
            found = json.loads(text)
            check = found.pop("check", None)
            version, whose, of = found["version"], found["directory"], found["shard"]
            segments = {int(number): int(begun) for number, begun in found["segments"].items()}
            going = [int(number) for number in found["going"]]
            segment, end = map(int, found.get("ended", (0, 0)))
            read_from = int(found.get("read-from", 0))
            if check not in (None, _check(found)):
                raise ManifestError("its manifest is damaged")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise ManifestError("its manifest is damaged") from None
        if version != VERSION:
            raise ManifestError(f"its manifest is of version {version!r}; this program reads version {VERSION}")
        if (whose, of) != (directory, shard):
            raise ManifestError(f"its manifest is that of shard {of!r} of the data directory with id {whose!r}")
        return Manifest(directory, shard, segments, going, (segment, end), read_from)
