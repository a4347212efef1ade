"""JWTs of accounts that are sent to a server that runs, in the system account: all acceptors are to know them.

One of them hears a request; what counts goes through the supervisor to all, and to those that start later. The request
is answered when it has come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mq_shards.acceptor.protocols.nats.operator import Operator

WHAT: Final = "claims "  # behind it the account
MAX_WAITING: Final = 1024

Row = dict[str, Any]
Answer = Callable[[Row], None]


class Updates:
    def __init__(self, operator: Operator, server: Callable[[], Row], share: Callable[[str, Row], None]) -> None:
        """`share` tells all acceptors something, this one too: see took()."""
        self._operator = operator
        self._server = server
        self._share = share
        self._waiting: list[tuple[str, Answer]] = []  # for what account

    def asked(self, account: str, jwt: str, answer: Answer) -> None:
        refusal = self._operator.refusal(account, jwt)
        if refusal is None and len(self._waiting) < MAX_WAITING:
            self._waiting.append((account, answer))
            self._share(f"{WHAT}{account}", {"jwt": jwt})
        elif refusal == "":
            answer(self._said(account, "jwt update skipped"))
        else:
            doing = "jwt update resulted in error" if jwt else "jwt update error"
            why = f"{doing} - {refusal or 'too many are under way'}"
            answer({"server": self._server(), "error": {"account": account, "code": 500, "description": why}})

    def took(self, what: str, message: Mapping[str, Any]) -> str:
        """What was shared has come; of which account it is."""
        account = what.removeprefix(WHAT)
        self._operator.update(account, message["jwt"])
        for name, answer in self._waiting:
            if name == account:
                answer(self._said(account, "jwt updated"))
        self._waiting = [one for one in self._waiting if one[0] != account]
        return account

    def _said(self, account: str, text: str) -> Row:
        return {"server": self._server(), "data": {"account": account, "code": 200, "message": text}}
