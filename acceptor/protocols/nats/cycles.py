"""Finds imports that form a cycle, in the same cases as nats-server.

The search follows the imports of the exporting account whose subjects overlap with that of the new import, and so on.
It misses some cycles where subjects are renamed on the way. In those a message is stopped because it records the
imports that it has passed (nats_journey.c).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mq_shards.acceptor.protocols.nats.patterns import Patterns

# Accounts in a chain of imports, at most; a message passes no more either. (nats-server: 1,024.)
LONGEST_CHAIN: Final = 64

FORMS_CYCLE: Final = "import forms a cycle"
TOO_DEEP: Final = "search cycle depth exhausted"


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


class Imports:
    """All imports of one kind, service or stream, that have been accepted."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._exports: dict[str, Patterns[str]] = {}  # by account
        self._taken: dict[str, Patterns[Import]] = {}  # by account

    def exported(self, account: str, subjects: Iterable[str]) -> None:
        """What an account exports, in place of what it did before."""
        self._exports.pop(account, None)
        for subject in subjects:
            self._exports.setdefault(account, Patterns()).add(subject, subject)

    def forget(self, importer: str) -> None:
        self._taken.pop(importer, None)

    def add(self, importer: str, one: Import) -> str | None:
        """Accepts an import and returns None, or returns why it is refused, in nats-server's words."""
        subjects = [one.to] if self._kind == "service" else [one.to, one.subject]
        for subject in subjects:
            if (why := self._look(one.account, subject, {importer})) is not None:
                return why
        compared, _ = one.compared(self._kind)
        self._taken.setdefault(importer, Patterns()).add(compared, one)
        return None

    def _look(self, account: str, subject: str, visited: set[str]) -> str | None:
        if len(visited) >= LONGEST_CHAIN:
            return TOO_DEEP
        if self._kind == "stream" and not _has(self._exports.get(account), subject):
            return None
        taken = self._taken.get(account)
        for one in taken.overlapping(subject) if taken is not None else ():
            _, narrower = one.compared(self._kind)
            if one.account in visited:
                return FORMS_CYCLE
            visited.add(account)
            why = self._look(one.account, narrower if covers(subject, narrower) else subject, visited)
            if why is not None:
                return why
        return None


def _has(exports: Patterns[str] | None, subject: str) -> bool:
    return exports is not None and bool(exports.covering(subject))
