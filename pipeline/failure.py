"""What a job says when Spark has failed: Spark's message and its last cause, in a few lines, without the plan, the
offsets of all topics and the stack that Spark appends."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

# Makes Spark append the causes to a message, which alone says which task failed, and not that the disk is full.
CAUSES: Final = ("spark.sql.pyspark.jvmStacktrace.enabled", "true")
LITTLE_BYTES: Final = 1 << 20
_QUERY: Final = "=== Streaming Query ==="
_BEHIND: Final = re.compile(rf"\n(?:{_QUERY}|\n*JVM stacktrace:|\n*Driver stacktrace:)")
_OF_A_QUERY: Final = re.compile(r"Identifier: |Current |Thread State: |Logical Plan:|~|[ :|]*\+- |[ :|]*:- |'[A-Z]|$")
# Of a flow of a project; its plan follows at once.
ERROR: Final = "Error: ["
_FRAME: Final = re.compile(r"\n\s+(?:at [\w.$/<>]+\(|\.\.\. \d+ more).*")
_CAUSE: Final = re.compile(r"^\s*Caused by: (?:\w+\.)*([\w$]+): (.+)$", re.MULTILINE)
# An error that the source or the sink raises for its reader; of any other the stack says where it comes from.
_OURS: Final = re.compile(
    r"(?:^|: )(?:mq_shards\.pipeline\.[\w.]+Error: |ImportError: \w+ .* cannot read or write mqshards: )",
    re.MULTILINE,
)
_CHAINED: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
TRACEBACK: Final = "Traceback (most recent call last):"  # such a cause is in Spark's message as a whole


def told(said: str) -> str:
    """Shortens the text of an exception."""
    behind = _BEHIND.search(said)
    message = _FRAME.sub("", said[: behind.start()] if behind else said).lstrip("\n").rstrip()
    if _OURS.search(message):
        return "\n".join(filter(None, without_plan_and_stack(message.split("\n"))))
    causes = [found for found in _CAUSE.finditer(said) if not found[2].endswith(TRACEBACK)]
    if not causes or causes[-1][2] in message:
        return message
    return f"{message}\nbecause of {causes[-1][1]}: {causes[-1][2]}"


def full(directory: Path) -> str:
    """Returns a sentence if almost nothing is left of the file system of `directory`, which may not exist; otherwise
    "". Spark's catalog does not say why it cannot be opened."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    status = os.statvfs(there)
    left = status.f_bavail * status.f_frsize
    return f"the file system of {directory} is full: {left >> 10} KiB are left" if left < LITTLE_BYTES else ""


def without_plan_and_stack(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines that are not of the offsets and the plan of a query that has failed, nor of a stack of
    Python's."""
    within = in_stack = False
    for line in lines:
        if in_stack and (not line or line[0].isspace()):
            continue
        in_stack = line.endswith(TRACEBACK)
        within = line == _QUERY or (within and _OF_A_QUERY.match(line) is not None)
        if not within and (found := line.removesuffix(TRACEBACK).rstrip()) not in _CHAINED:
            yield found
        within = within or line.startswith(ERROR)
