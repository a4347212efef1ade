"""How many connections an HTTP server has, and which of them one more takes the place of.

Strangers who connect and say nothing, or little by little, are not to keep others out: where all places are taken, who
is waited for longest loses its own, and one who has asked for nothing yet rather than one who has. Who is being served
keeps it.
"""

from __future__ import annotations

from typing import Final, Protocol


class Holder(Protocol):
    def let_go(self) -> None:
        """Its place is another's: it ends, at once."""


class Places:
    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._held: Final[set[Holder]] = set()
        # Who is waited for, longest first.
        self._new: Final[dict[Holder, None]] = {}
        self._known: Final[dict[Holder, None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def make_room(self) -> bool:
        """Whether one more may come; there is nobody to let go where all are being served."""
        if len(self._held) < self._most:
            return True
        longest = next(iter(self._new or self._known), None)
        if longest is None:
            return False
        self.leave(longest)
        longest.let_go()
        return True

    def take(self, holder: Holder) -> None:
        """Behind make_room."""
        self._held.add(holder)

    def leave(self, holder: Holder) -> None:
        """Also of one that has no place."""
        self._held.discard(holder)
        self.heard(holder)

    def waits_for(self, holder: Holder, *, has_asked: bool) -> None:
        """From now on, if not already."""
        if holder in self._held:
            (self._known if has_asked else self._new).setdefault(holder)

    def heard(self, holder: Holder) -> None:
        """All that was waited for."""
        self._new.pop(holder, None)
        self._known.pop(holder, None)
