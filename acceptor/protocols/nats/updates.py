"""JWTs of accounts that all acceptors are to know: those that one has fetched, and those that are sent to a server that
runs, in the system account.

One of them has it, or hears the request; what counts goes through the supervisor to all, and to those that start later.
When it has come back, all others obey it, and the request is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from mq_shards.acceptor.protocols.nats.operator import MAX_SPREAD_BYTES, Operator

WHAT: Final = "claims "  # behind it the account
MAX_WAITING: Final = 1024

Row = dict[str, Any]
Answer = Callable[[Row], None]
Done = Callable[[], None]
Share = Callable[[str, Row], None]


def spread(share: Share, account: str, jwt: str) -> None:
    """What was fetched: of an account that others may not know."""
    share(f"{WHAT}{account}", {"jwt": jwt, "fetched": True})


class Updates:
    def __init__(self, operator: Operator, server: Callable[[], Row], share: Share) -> None:
        """`share` tells all acceptors something, this one too: see took()."""
        self._operator = operator
        self._server = server
        self._share = share
        self._waiting: list[tuple[str, Done]] = []  # for what account

    def asked(self, account: str, jwt: str, answer: Answer) -> None:
        refusal = self._operator.refusal(account, jwt)
        done = partial(self._answer, answer, account, "jwt updated")
        if refusal is None and len(jwt) <= MAX_SPREAD_BYTES and self.tell(account, {"jwt": jwt}, done):
            return
        if refusal == "":
            self._answer(answer, account, "jwt update skipped")
        else:
            doing = "jwt update resulted in error" if jwt else "jwt update error"
            why = f"{doing} - {refusal or 'it is too large, or too many are under way'}"
            answer({"server": self._server(), "error": {"account": account, "code": 500, "description": why}})

    def tell(self, account: str, message: Row, done: Done | None = None) -> bool:
        """All acceptors: `done` is called when they obey. False, and they are not told, if too many wait for that."""
        if done is not None:
            if len(self._waiting) >= MAX_WAITING:
                return False
            self._waiting.append((account, done))
        self._share(f"{WHAT}{account}", message)
        return True

    def took(self, what: str, message: Mapping[str, Any]) -> str:
        """What was shared has come; which account it changes, if it does."""
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
