"""What a named reader may be called. Apart from the readers' files, since Spark's executors check a name, too."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"


class ReadersError(Exception):
    """One line: what is wrong with a reader's name, topics or file."""


def check_name(name: str) -> None:
    if re.fullmatch(NAME, name) is None:
        raise ReadersError("a reader's name has 1 to 128 letters, digits, _ - and . but no . first")
