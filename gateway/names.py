"""What NSQ takes for the name of a topic or of a channel."""

from __future__ import annotations

import re
from typing import Final

EPHEMERAL_SUFFIX: Final = "#ephemeral"
MAX_NAME_BYTES: Final = 64
_NAME: Final = re.compile(r"[.a-zA-Z0-9_-]+(?:#ephemeral)?")


def is_valid_name(name: str) -> bool:
    return len(name) <= MAX_NAME_BYTES and _NAME.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    return name.endswith(EPHEMERAL_SUFFIX)
