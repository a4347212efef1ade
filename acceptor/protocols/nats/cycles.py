"""Finds imports that form a cycle, in the same cases as nats-server.

The search follows the imports of the exporting account whose subjects overlap with that of the new import, and so on.
It misses some cycles where subjects are renamed on the way. In those a message is stopped because it records the
imports that it has passed (nats_journey.c).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

# Accounts in a chain of imports, at most; a message passes no more either. (nats-server: 1,024.)
LONGEST_CHAIN: Final = 64

FORMS_CYCLE: Final = "import forms a cycle"
TOO_DEEP: Final = "search cycle depth exhausted"


def overlaps(one: str, other: str) -> bool:
    """Whether some subject matches both patterns."""
    a, b = one.split("."), other.split(".")
    for mine, theirs in zip(a, b, strict=False):
        if ">" in (mine, theirs):
            return True
        if mine != theirs and "*" not in (mine, theirs):
            return False
    return len(a) == len(b)


def covers(outer: str, inner: str) -> bool:
    """Whether all subjects of the pattern `inner` match the pattern `outer`."""
    wide, narrow = outer.split("."), inner.split(".")
    for place, token in enumerate(wide):
        if token == ">":
            return place < len(narrow)
        if place >= len(narrow) or narrow[place] == ">" or token not in ("*", narrow[place]):
            return False
    return len(wide) == len(narrow)


class Import(NamedTuple):
    account: str  # the exporter
    subject: str  # in the exporter
    to: str  # in the importer

    def compared(self, kind: str) -> tuple[str, str]:
        """The pattern that a subject must overlap with, and the subject to go on with if that is covered by it."""
        return (self.subject, self.to) if kind == "service" else (self.to, self.to)


@dataclass(slots=True, eq=False, repr=False)
class Imports:
    """All imports of one kind, service or stream, that have been accepted."""

    kind: str
    exports: dict[str, list[str]]  # by account
    taken: dict[str, list[Import]] = field(default_factory=dict)

    def add(self, importer: str, one: Import) -> str | None:
        """Accepts an import and returns None, or returns why it is refused, in nats-server's words."""
        subjects = [one.to] if self.kind == "service" else [one.to, one.subject]
        for subject in subjects:
            if (why := self._look(one.account, subject, {importer})) is not None:
                return why
        self.taken.setdefault(importer, []).append(one)
        return None

    def _look(self, account: str, subject: str, visited: set[str]) -> str | None:
        if len(visited) >= LONGEST_CHAIN:
            return TOO_DEEP
        if self.kind == "stream" and not any(covers(each, subject) for each in self.exports.get(account, ())):
            return None
        for one in self.taken.get(account, ()):
            compared, narrower = one.compared(self.kind)
            if not overlaps(subject, compared):
                continue
            if one.account in visited:
                return FORMS_CYCLE
            visited.add(account)
            why = self._look(one.account, narrower if covers(subject, narrower) else subject, visited)
            if why is not None:
                return why
        return None
