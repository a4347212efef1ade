"""Passes account JWTs to all acceptors: JWTs that one acceptor has fetched, and updates that a user of the system
account has sent to the running server.

The acceptor that has fetched a JWT, or received the request, sends it through the supervisor to all acceptors, and to
those that start later. When it comes back to the sender, all others obey it, and the request is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from mq_shards.acceptor.protocols.nats.operator import Operator

WHAT: Final = "claims "  # the account follows
MAX_WAITING: Final = 1024

Row = dict[str, Any]
Answer = Callable[[Row], None]
Done = Callable[[], None]
Share = Callable[[str, Row], None]


def spread(share: Share, account: str, jwt: str) -> None:
    """Tells all acceptors a JWT that was fetched, of an account that they may not know."""
    share(f"{WHAT}{account}", {"jwt": jwt, "fetched": True})


class Updates:
    def __init__(self, operator: Operator, server: Callable[[], Row], share: Share) -> None:
        """`share` sends a message to all acceptors, including this one: see took()."""
        self._operator = operator
        self._server = server
        self._share = share
        self._waiting: list[tuple[str, Done]] = []  # account, and what to call when all acceptors obey

    def asked(self, account: str, jwt: str, answer: Answer) -> None:
        refusal = self._operator.refusal(account, jwt)
        done = partial(self._answer, answer, account, "jwt updated")
        if refusal is None and self.tell(account, {"jwt": jwt}, done):
            return
        if refusal == "":
            self._answer(answer, account, "jwt update skipped")
        else:
            doing = "jwt update resulted in error" if jwt else "jwt update error"
            why = f"{doing} - {refusal or 'too many are under way'}"
            answer({"server": self._server(), "error": {"account": account, "code": 500, "description": why}})

    def tell(self, account: str, message: Row, done: Done | None = None) -> bool:
        """Tells all acceptors; `done` is called when they obey. False, with nothing told, if too many wait for that."""
        if done is not None:
            if len(self._waiting) >= MAX_WAITING:
                return False
            self._waiting.append((account, done))
        self._share(f"{WHAT}{account}", message)
        return True

    def took(self, what: str, message: Mapping[str, Any]) -> str:
        """Handles a shared message. Returns the account whose clients must be checked again, or ""."""
        account = what.removeprefix(WHAT)
        if message.get("fetched"):
            self._operator.learned(account, message["jwt"])
            return ""
        if message.get("deleted"):
            self._operator.forget(account)
        else:
            self._operator.update(account, message["jwt"])
        dones = [done for name, done in self._waiting if name == account]
        self._waiting = [one for one in self._waiting if one[0] != account]
        for done in dones:
            done()
        return account

    def _answer(self, answer: Answer, account: str, text: str) -> None:
        answer({"server": self._server(), "data": {"account": account, "code": 200, "message": text}})
