"""Requests that the server answers in every account. The codec hands them over as `ASK WHAT REPLY`; options follow the
line:

    $SYS.REQ.USER.INFO                                      who the client is
    $SYS.REQ.ACCOUNT.PING.CONNZ, $SYS.REQ.SERVER.PING.CONNZ the account's connections
    $SYS.REQ.ACCOUNT.PING.STATZ                             the account's statistics

The gateway answers the last three like a request about that account from a user of the system account; so do the other
servers of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.protocols.nats.client import Client
    from mq_shards.acceptor.protocols.nats.system import System


class Questions:
    def __init__(self, engine: Engine, clients: Mapping[int, Client], server_row: Callable[[], dict[str, Any]]) -> None:
        self._engine = engine
        self._clients = clients
        self._server_row = server_row
        self._answered = 0

    def asked(self, conn: int, system: System | None, line: bytes, options: bytes) -> None:
        client = self._clients[conn]
        subject, reply = line.split(b" ")
        if subject.endswith(b".INFO"):
            from mq_shards.acceptor.protocols.nats.user_info import answer

            self._answered += 1
            self._answer(conn, client, reply, answer(self._server_row(), self._answered, client))
        elif system is not None and client.account != system.client.account:  # else its subscription answers
            what = subject.rpartition(b".")[2].decode()
            system.ask_all(
                f"$SYS.REQ.ACCOUNT.{client.account}.{what}", options,
                lambda content: self._answer(conn, client, reply, content),
            )  # fmt: skip

    def _answer(self, conn: int, client: Client, reply: bytes, content: bytes) -> None:
        """Answers, unless the client has disconnected meanwhile."""
        if self._clients.get(conn) is client:
            self._engine.call(conn, "answer", 0, reply + b" " + content)
