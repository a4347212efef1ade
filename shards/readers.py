"""Named readers: how far each has read which topics, durably, so that retention keeps what they have not read yet.

    DIR/readers/NAME.json     {"version": 1, "topics": {"orders": 1200}}: it has read the seqs below 1200

`"owner"` is present if the reading process has named itself: two under one name would lose each other's place. `"user"`
is present if the reader belongs to a user. The gateway writes the files, atomically; workers read them before they drop
a segment.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.shards import durable
from mq_shards.shards.reader_names import NAME, ReadersError, check_name

VERSION: Final = 1
MAX_READERS: Final = 1024
MAX_TOPICS: Final = 65536  # most topics of one reader
MAX_SEQ: Final = (1 << 63) - 1
DIRECTORY: Final = "readers"
RESOLUTION_NS: Final = 100_000_000  # resolution of the times of files
_OWNER: Final = r"[A-Za-z0-9_-]{1,64}"
_FILE: Final = rf"({NAME})\.json"


class Reader(NamedTuple):
    name: str
    topics: Mapping[str, int]  # by topic: the first seq that it has not read
    changed_ns: int  # wall clock
    owner: str = ""
    user: str = ""  # the user it belongs to; "": anybody


def decode_topics(found: object) -> dict[str, int]:
    if not isinstance(found, dict) or len(found) > MAX_TOPICS:
        raise ReadersError(f'a reader says {{"topic": seq, ...}} of {MAX_TOPICS} topics at most')
    for topic, seq in found.items():
        if not isinstance(topic, str) or type(seq) is not int or not 0 <= seq <= MAX_SEQ:
            raise ReadersError(f"a seq is a whole number from 0 to {MAX_SEQ}, which {seq!r:.40} is not")
    return found


def check_owner(owner: str) -> None:
    if owner and re.fullmatch(_OWNER, owner) is None:
        raise ReadersError("an owner has 1 to 64 letters, digits, _ and -")


def save(data_dir: Path, name: str, topics: Mapping[str, int], owner: str = "", user: str = "") -> None:
    """Saves a reader, which is durable when it returns. Raises ReadersError, OSError."""
    check_name(name)
    directory = data_dir / DIRECTORY
    directory.mkdir(mode=0o750, exist_ok=True)
    target = directory / f"{name}.json"
    if not target.exists() and len(_names(data_dir)) >= MAX_READERS:
        raise ReadersError(f"there are {MAX_READERS} readers, which is as many as there may be")
    said = {"version": VERSION, "topics": dict(topics)} | ({"owner": owner} if owner else {})
    said |= {"user": user} if user else {}
    durable.save(target, json.dumps(said).encode())
    durable.sync_directory(data_dir)


def delete(data_dir: Path, name: str) -> bool:
    """Deletes a reader; False: there is none of that name. Raises ReadersError, OSError."""
    check_name(name)
    try:
        (data_dir / DIRECTORY / f"{name}.json").unlink()
    except FileNotFoundError:
        return False
    durable.sync_directory(data_dir / DIRECTORY)
    return True


def load(data_dir: Path, name: str) -> Reader | None:
    """Reads a reader's file; None: there is none. Raises ReadersError if it is damaged or no file, OSError."""
    check_name(name)
    path = data_dir / DIRECTORY / f"{name}.json"
    try:
        found = json.loads(durable.read(path))
        changed_ns = path.stat().st_mtime_ns
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ReadersError(f"{path} is not of version {VERSION}")
        owner, user = str(found.get("owner", "")), str(found.get("user", ""))
        return Reader(name, decode_topics(found.get("topics")), changed_ns, owner, user)
    except FileNotFoundError:
        return None
    except durable.NotAFileError:
        raise ReadersError(f"{path} is not a file") from None
    except (ValueError, RecursionError) as error:
        raise ReadersError(f"{path} is damaged: {error}") from None


def load_all(data_dir: Path) -> list[Reader]:
    return [reader for name in _names(data_dir) if (reader := load(data_dir, name)) is not None]


def exist(data_dir: Path) -> bool:
    return bool(_names(data_dir))


def _names(data_dir: Path) -> list[str]:
    try:
        found = [re.fullmatch(_FILE, path.name) for path in (data_dir / DIRECTORY).iterdir()]
    except FileNotFoundError:
        return []
    return sorted(match[1] for match in found if match)


@dataclass(slots=True, eq=False, repr=False)
class Unread:
    """By topic, the first seq that some reader has not read: a worker must keep it and all later ones. Reads the files
    again when the directory has changed."""

    data_dir: Path
    topics: dict[str, int] = field(default_factory=dict)
    error: str = ""  # why the files cannot be read; then it is unknown what may be dropped
    _seen_ns: int | None = None

    def refresh(self) -> None:
        """To be called before a segment is dropped: files that were renamed into the directory before that count."""
        directory = self.data_dir / DIRECTORY
        try:
            changed_ns = directory.stat().st_mtime_ns
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not directory.is_symlink():
                self.topics, self.error, self._seen_ns = self.topics and {}, "", None
            else:
                self.error = str(error)
            return
        if changed_ns == self._seen_ns and not self.error:
            return
        try:
            topics: dict[str, int] = {}
            for reader in load_all(self.data_dir):
                for topic, seq in reader.topics.items():
                    topics[topic] = min(seq, topics.get(topic, seq))
        except (OSError, ReadersError) as error:
            self.error = str(error)
            return
        self.topics, self.error = topics, ""
        # Another change within the clock's resolution may leave the same time.
        recent = abs(time.time_ns() - changed_ns) < RESOLUTION_NS
        self._seen_ns = None if recent else changed_ns
