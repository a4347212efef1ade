"""Limits the connections of an HTTP server, and decides which one must go for a new one.

Clients that connect and send nothing, or very slowly, must not keep others out. When all places are taken, a new
connection takes the place of the one that the server has waited for longest: first of those whose login is not proven
or was wrong, then of those that have not made a request yet, then of the others. A connection that is being served
keeps its place.
"""

from __future__ import annotations

from typing import Final, Protocol


class Holder(Protocol):
    def let_go(self) -> None:
        """Ends the connection at once, since its place is given to another."""


class Places:
    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._held: Final[set[Holder]] = set()
        # Connections that the server waits for, the longest first: those whose login is not proven, those without a
        # request yet, and the others.
        self._unproven: Final[dict[Holder, None]] = {}
        self._new: Final[dict[Holder, None]] = {}
        self._known: Final[dict[Holder, None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def make_room(self) -> bool:
        """Makes room for a new connection. False when none can go, because all are being served."""
        if len(self._held) < self._most:
            return True
        longest = next(iter(self._unproven or self._new or self._known), None)
        if longest is None:
            return False
        self.leave(longest)
        longest.let_go()
        return True

    def let_go(self, most: int) -> int:
        """Lets those go that are waited for longest: up to `most` without a request yet, else one. Returns how many."""
        silent = [*self._unproven, *self._new][:most] or list(self._known)[:1]
        for holder in silent:
            self.leave(holder)
            holder.let_go()
        return len(silent)

    def take(self, holder: Holder) -> None:
        """Takes a place. To be called after make_room()."""
        self._held.add(holder)

    def leave(self, holder: Holder) -> None:
        """Gives the place back; does nothing if it has none."""
        self._held.discard(holder)
        self.heard(holder)

    def waits_for(self, holder: Holder, *, has_asked: bool) -> None:
        """The server waits for the connection from now on, if it does not already."""
        if holder in self._held:
            (self._known if has_asked else self._new).setdefault(holder)

    def waits_for_proof(self, holder: Holder) -> None:
        """The server waits, until heard(), for the check of a login, which a wrong one makes last, or for what comes
        after a wrong one."""
        if holder in self._held:
            self._unproven.setdefault(holder)

    def heard(self, holder: Holder) -> None:
        """The server has received all that it waited for."""
        self._unproven.pop(holder, None)
        self._new.pop(holder, None)
        self._known.pop(holder, None)
