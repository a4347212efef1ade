"""Imports that form a cycle: refused, where nats-server refuses them.

It looks along the imports of the account that a new one takes from, for those whose subject the new one's may be. Where
names change on the way, not every cycle is found; a message is stopped then by what it has come by
(nats_journey.c).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# Accounts that imports may lead through: as many as a message goes through at most. (nats-server: 1,024.)
LONGEST_CHAIN: Final = 64

FORMS_CYCLE: Final = "import forms a cycle"
TOO_DEEP: Final = "search cycle depth exhausted"


def overlaps(one: str, other: str) -> bool:
    """Some subject is one of both."""
    a, b = one.split("."), other.split(".")
    for mine, theirs in zip(a, b, strict=False):
        if ">" in (mine, theirs):
            return True
        if mine != theirs and "*" not in (mine, theirs):
            return False
    return len(a) == len(b)


def covers(outer: str, inner: str) -> bool:
    """Every subject of `inner` is one of `outer`."""
    wide, narrow = outer.split("."), inner.split(".")
    for place, token in enumerate(wide):
        if token == ">":
            return place < len(narrow)
        if place >= len(narrow) or narrow[place] == ">" or token not in ("*", narrow[place]):
            return False
    return len(wide) == len(narrow)


@dataclass(frozen=True, slots=True)
class Import:
    account: str  # that gives
    subject: str  # there
    to: str  # in the account that takes

    def compared(self, kind: str) -> tuple[str, str]:
        """What a subject is compared with, and what becomes of one that the other stands for."""
        return (self.subject, self.to) if kind == "service" else (self.to, self.to)


@dataclass(slots=True)
class Imports:
    """Of one kind, service or stream, as far as they have been taken."""

    kind: str
    exports: dict[str, list[str]]  # by account
    taken: dict[str, list[Import]] = field(default_factory=dict)

    def add(self, importer: str, one: Import) -> str | None:
        """Why it is refused, in nats-server's words."""
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
            why = self._look(one.account, narrower if covers(narrower, subject) else subject, visited)
            if why is not None:
                return why
        return None
