"""A question about the whole broker that many connections ask at once: the workers are asked once for all of them.

What answers it is made for all who had asked before the workers were; who asks meanwhile waits for the next round. So a
hundred clients with `stats` or `list-tubes` cost what two do, and others do not wait behind a hundred answers.
"""

from __future__ import annotations

from collections.abc import Callable


class Together:
    """`ask` puts the question to the workers as if one connection had, which answers are given for."""

    def __init__(self, ask: Callable[[int], None]) -> None:
        self._ask = ask
        # The first of a round is the one that was asked as. In the order in which they came; a dict, to take some out.
        self._asked: dict[int, None] = {}
        self._waiting: dict[int, None] = {}

    def join(self, conn: int) -> None:
        self._waiting[conn] = None
        if not self._asked:
            self._begin()

    def answered(self, tell: Callable[[int], None]) -> None:
        """The workers have, and this tells it to each who had asked."""
        asked, self._asked = self._asked, {}
        for conn in asked:
            tell(conn)
        if self._waiting and not self._asked:
            self._begin()

    def leave(self, conn: int) -> None:
        """It is closed, or has been told that it failed."""
        self._waiting.pop(conn, None)
        if conn not in self._asked:
            return
        leads = next(iter(self._asked)) == conn
        del self._asked[conn]
        if leads and self._asked:
            self._ask(next(iter(self._asked)))
        elif leads and self._waiting:
            self._begin()

    def _begin(self) -> None:
        self._asked, self._waiting = self._waiting, {}
        self._ask(next(iter(self._asked)))
