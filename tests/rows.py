"""Tables of what a real server is known to do, with the tests that play each row."""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path


def check_played(names: tuple[str, ...], here: Path, scenes: Container[str]) -> None:
    """Each is a scene, or a function that is defined in a file of `here`, FILE::FUNCTION."""
    for name in names:
        file, is_test, function = name.partition("::")
        if is_test:
            assert re.search(rf"^ *def {function}\(", (here / file).read_text(), re.MULTILINE), name
        else:
            assert name in scenes, name
