"""Decisions: the last batch of each writer, written down before the first of its messages is published.

    DIR/writers/WRITER.json     {"version": 1, "key": 64 bits, "batch": 7, "state": "publishing", "staged": [...], ...}

A file is replaced atomically, and is durable before anything is done that it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mq_shards.gateway.pipeline import leftovers
from mq_shards.gateway.pipeline.staging import Stamp
from mq_shards.shards import durable

VERSION: Final = 1
DIRECTORY: Final = leftovers.WRITERS
PUBLISHING: Final = "publishing"
PUBLISHED: Final = "published"
FAILED: Final = "failed"  # the batch can never be published whole
_STATES: Final = (PUBLISHING, PUBLISHED, FAILED)
_NAME: Final = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,199}")
_FILE: Final = re.compile(rf"({_NAME.pattern})\.json")


class WriterNameError(Exception):
    """One line: what is wrong with a writer's name."""


class DamagedError(Exception):
    """One line: what is wrong with a file."""


@dataclass(frozen=True, slots=True)
class Decision:
    writer: str
    key: int  # identifies the writer to workers
    batch: int
    state: str
    messages: int
    once: bool  # the writer has no other batch
    changed_ns: int  # wall clock
    staged: tuple[Stamp, ...]
    error: str = ""  # why it failed
    owner: str = ""  # the user whose writer it is; "": anybody's

    @property
    def is_over(self) -> bool:
        return self.state in (PUBLISHED, FAILED)


def check_name(writer: str) -> None:
    if _NAME.fullmatch(writer) is None:
        raise WriterNameError("a writer's name has 1 to 200 letters, digits, _ - : and . but no . first")


def save(root: Path, decision: Decision) -> None:
    """Writes a decision, which is durable on return. Raises OSError."""
    directory = root / DIRECTORY
    root.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o750, exist_ok=True)
    fields = asdict(decision)
    for name in ("error", "owner"):
        if not fields[name]:
            del fields[name]  # earlier versions did not know these fields
    durable.save(directory / f"{decision.writer}.json", json.dumps({"version": VERSION, **fields}).encode())
    durable.sync_directory(root)


def delete(root: Path, writer: str) -> None:
    """Removes a writer's decision. Raises OSError."""
    (root / DIRECTORY / f"{writer}.json").unlink(missing_ok=True)
    durable.sync_directory(root / DIRECTORY)


def load_all(root: Path) -> Iterator[tuple[str, Decision | DamagedError]]:
    """Yields each writer's name with its decision, or with an error if its file is damaged. Raises OSError."""
    try:
        paths = sorted((root / DIRECTORY).iterdir())
    except FileNotFoundError:
        return
    for path in paths:
        if match := _FILE.fullmatch(path.name):
            try:
                yield match[1], _decode(match[1], durable.read(path))
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                yield match[1], DamagedError(f"{path} is damaged: {error!r}")
            except durable.NotAFileError as error:
                yield match[1], DamagedError(f"{path} cannot be read: {error.strerror}")


def _decode(writer: str, text: bytes) -> Decision:
    found = json.loads(text)
    if found.pop("version") != VERSION or found["writer"] != writer or found["state"] not in _STATES:
        raise ValueError(f"not a decision of version {VERSION}")
    if any(type(found[name]) is not int for name in ("key", "batch", "messages", "changed_ns")):
        raise ValueError("not a number")
    found["staged"] = tuple(Stamp(**stamp) for stamp in found["staged"])
    return Decision(**found)
