"""What the name of a topic or of a channel may be: NSQ's own, and at most."""

from __future__ import annotations

import re
from typing import Final

from mq_shards.csrc._core import lib

EPHEMERAL_SUFFIX: Final = "#ephemeral"
MAX_NAME_BYTES: Final = 64
# Of a topic's in any protocol: no acceptor takes a longer one.
MAX_TOPIC_BYTES: Final[int] = lib.TOPIC_NAME_BYTES
_NAME: Final = re.compile(r"[.a-zA-Z0-9_-]+(?:#ephemeral)?")


def is_valid_name(name: str) -> bool:
    return len(name) <= MAX_NAME_BYTES and _NAME.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    return name.endswith(EPHEMERAL_SUFFIX)
