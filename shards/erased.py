"""Topics whose history was erased: up to which seq nothing of them is shown any more, whoever reads the log.

    DIR/erased.json     {"version": 1, "topics": {"orders": {"until": 1200, "log_began_ns": N, "erased_ns": N,
                         "by": "boss"}}}

Seqs count on when a topic is made again, so what comes later is read; those of a log that was lost and begun anew are
others, and the erasure is of the log that it names. Owned by the gateway.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from mq_shards.shards import durable

VERSION: Final = 1
NAME: Final = "erased.json"
MAX_TOPICS: Final = 65536


class ErasedError(Exception):
    """One line: why what was erased cannot be told, or no more be erased."""


class Erasure(NamedTuple):
    until: int  # the first seq that may be shown
    log_began_ns: int
    erased_ns: int  # wall clock
    by: str  # "": nobody was asked who they are


def load(data_dir: Path) -> dict[str, Erasure]:
    """Raises ErasedError: who does not know what was erased must not show anything."""
    path = data_dir / NAME
    try:
        found = json.loads(path.read_bytes())
        if found["version"] != VERSION:
            raise ErasedError(f"{path} is of version {found['version']!r}, which is not known here")
        return {topic: Erasure(**{name: said[name] for name in Erasure._fields}) for topic, said in _items(found)}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ErasedError(f"{path} cannot be read, so that nothing may be: {error!r}") from None


def _items(found: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return list(found["topics"].items())


def save(data_dir: Path, erased: Mapping[str, Erasure]) -> None:
    """Durable when it returns. Raises ErasedError, OSError."""
    if len(erased) > MAX_TOPICS:
        raise ErasedError(f"{MAX_TOPICS} topics are erased and still in the log, which is as many as there may be")
    topics = {topic: erasure._asdict() for topic, erasure in erased.items()}
    durable.save(data_dir / NAME, json.dumps({"version": VERSION, "topics": topics}).encode())
