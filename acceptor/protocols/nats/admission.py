"""Tells the codec each connection's account and permissions, as numbers that this acceptor has assigned.

A set of permissions is made for the first connection that uses it, and removed with the last. Accounts stay as long as
they are configured or known; in the codec, as long as something uses them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.protocols.nats.jetstream import with_api
from mq_shards.acceptor.protocols.nats.reasons import VIOLATION
from mq_shards.acceptor.protocols.nats.shares import Account, Lines, ShareError, all_lines, refuse_cycles, trace_of
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, Permissions, User

ALL_IS_ALLOWED: Final = 0
ANY_NUMBER: Final = (1 << 64) - 1
ROUTES_SET: Final = 1  # the permissions of routes, which routing.py sets
TOLD_BYTES: Final = 128 << 10  # of an account's shares, which the codec is told at once

log = logging.getLogger(__name__)


class Admission:
    def __init__(self, engine: Engine, protocol: int) -> None:
        self._engine = engine
        self._protocol = protocol
        self._accounts: dict[str, int] = {}
        self._sets: dict[Permissions, int] = {}
        self._references: dict[Permissions, int] = {}
        self._held: dict[int, Permissions] = {}  # by connection
        self._free: list[int] = []
        self._unused = ROUTES_SET + 1  # the lowest number that was never assigned
        self._sharing: dict[str, str] = {}  # by account: the lines that the codec was last given
        self._tracing: dict[str, str] = {}  # by account: where messages are traced to, as the codec was last told
        self._said: Collection[Account] = ()  # the accounts as configured, without JetStream's API
        self._lines: Lines | None = None
        self._reshared: set[str] = set()  # accounts whose lines have changed: see reshared()
        self._system_account = ""  # the account that exports JetStream's API; empty: no server of the cluster has one

    def admit(self, conn: int, user: User | None, most: int | None = None) -> str:
        """Puts a connection in its user's account; `user` None: it may do everything in the global account. Returns why
        it is refused, or "". The account may have `most` connections at all acceptors together, None is no limit. A
        JWT may hold invalid subjects."""
        account = user.account if user is not None else GLOBAL_ACCOUNT
        permissions = user.permissions if user is not None else None
        self._engine.call(conn, "account", self.account(account))
        if not self._engine.call(conn, "join", ANY_NUMBER if most is None else most):
            return "maximum account active connections exceeded"
        try:
            number = self._take(conn, permissions)
        except ValueError:
            log.warning("%s: its permissions are not valid", self._engine.remote(conn))
            return VIOLATION
        self._engine.call(conn, "permissions", number)
        return ""

    def hold(self, whose: int, permissions: Permissions | None) -> int:
        """Holds a set of permissions until gone(), and returns its number. `whose` is a connection's number, or that
        negated for a second set of the connection. Raises ValueError when a subject is invalid."""
        return self._take(whose, permissions)

    def gone(self, conn: int) -> None:
        self._give_up(conn)

    def _give_up(self, conn: int) -> None:
        permissions = self._held.pop(conn, None)
        if permissions is None:
            return
        self._references[permissions] -= 1
        if self._references[permissions] == 0:
            del self._references[permissions]
            number = self._sets.pop(permissions)
            # In the codec, connections that still use the set keep it alive.
            self._engine.configure(self._protocol, "permissions", number)
            self._free.append(number)

    def account(self, name: str) -> int:
        number = self._accounts.get(name)
        if number is None:
            encoded = name.encode(errors="surrogateescape")
            number = self._accounts[name] = self._engine.configure(self._protocol, "account", 0, encoded)
        return number

    def take_jetstream(self, system_account: str) -> bool:
        """Sets the account that exports JetStream's API. Returns whether it has changed: then share() must follow."""
        is_news, self._system_account = system_account != self._system_account, system_account
        return is_news

    def share(self, cluster: str, accounts: Sequence[Account] | None = None) -> Sequence[Account]:
        """Replaces what accounts share, at a server of that cluster; None: `accounts` of the last call. Returns the
        accounts with JetStream's API, which configurations leave out, added."""
        if accounts is not None and (changed := self._changed(cluster, accounts)) is not None:
            self.share_some(cluster, {account["name"]: account for account in accounts}, changed)
            return accounts
        self._said = self._said if accounts is None else accounts
        accounts, self._lines = self._lines_of(cluster)
        names = [account["name"] for account in accounts]
        for name in names:
            self.account(name)
        for name in dict.fromkeys([*self._sharing, *names]):
            self._tell(name, self._lines.of(name))
        tracing = {account["name"]: trace_of(account) for account in accounts}
        for name in dict.fromkeys([*self._tracing, *names]):
            self._trace(name, tracing.get(name, ""))
        self._let_go(self._accounts.keys() - {*names, GLOBAL_ACCOUNT, SYSTEM_ACCOUNT})
        return accounts

    def _changed(self, cluster: str, accounts: Sequence[Account]) -> set[str] | None:
        """The accounts that share other things than at the last call, so that one change among very many is no long
        turn; None: all have to be looked at."""
        before, now = ({account["name"]: account for account in some} for some in (self._said, accounts))
        if not self._may_share_some(cluster) or before.keys() != now.keys():
            return None
        changed = {name for name, account in now.items() if account != before[name]}
        exporters = {name for name in changed if now[name].get("exports") != before[name].get("exports")}
        if exporters:
            imports = ((name, account.get("imports", ())) for name, account in now.items())
            changed |= {name for name, some in imports if any(one["account"] in exporters for one in some)}
        return changed

    def _may_share_some(self, cluster: str) -> bool:
        return self._lines is not None and self._lines.cluster == cluster and not self._system_account

    def share_some(self, cluster: str, accounts: Mapping[str, Account], names: set[str]) -> bool:
        """Updates what the accounts `names` share, `accounts` being all. False when share() must be called instead."""
        if not self._may_share_some(cluster):
            return False
        assert self._lines is not None
        self._said = accounts.values()
        for name in names:
            self.account(name)
        touched = [name for one in names for name in self._lines.learn(accounts[one], accounts)]
        for name in dict.fromkeys(touched):
            self._tell(name, self._lines.of(name))
        for name in names:
            self._trace(name, trace_of(accounts[name]))
        return True

    def _let_go(self, names: Collection[str]) -> None:
        """Gives up the numbers of accounts. They are asked for anew when they are needed again."""
        for name in names:
            self._engine.configure(self._protocol, "let-account-go", self._accounts.pop(name))
        self._reshared.difference_update(names)

    def has_reshared(self) -> bool:
        return bool(self._reshared)

    def reshared(self) -> set[str]:
        """The accounts whose shares have changed since the last call."""
        found, self._reshared = self._reshared, set()
        return found

    def _tell(self, name: str, text: str) -> None:
        if text == self._sharing.get(name, ""):
            return
        try:
            self._tell_lines(self.account(name), text.encode(errors="surrogateescape"))
        except ValueError:  # a JWT may say anything, and will say so to the next process, too
            log.error("what account %s shares is not obeyed: the codec refuses it", name)
            return
        self._sharing[name] = text  # set at once, because the next account's lines may be refused
        if not text:
            del self._sharing[name]
        self._reshared.add(name)

    def _tell_lines(self, account: int, lines: bytes) -> None:
        begin = 0
        while len(lines) - begin > TOLD_BYTES:
            end = lines.rfind(b"\n", begin, begin + TOLD_BYTES) + 1 or lines.find(b"\n", begin) + 1
            self._engine.configure(self._protocol, "share-lines", account, lines[begin:end])
            self._engine.pause()
            begin = end
        self._engine.configure(self._protocol, "shares", account, lines[begin:])

    def _trace(self, name: str, said: str) -> None:
        if said != self._tracing.get(name, ""):
            self._engine.configure(self._protocol, "trace", self.account(name), said.encode(errors="surrogateescape"))
            self._tracing[name] = said
            if not said:
                del self._tracing[name]

    def _lines_of(self, cluster: str) -> tuple[Sequence[Account], Lines]:
        """Adds JetStream's API to the accounts, unless that would form a cycle with their other imports."""
        said = list(self._said)
        if self._system_account:
            accounts = with_api(said, self._system_account)
            try:
                refuse_cycles(accounts, self._engine.pause)
                return accounts, all_lines(accounts, self.account, cluster, self._engine.pause)
            except ShareError as error:
                log.warning("JetStream of other servers is out of reach: %s", error)
        return said, all_lines(said, self.account, cluster, self._engine.pause)

    def _take(self, conn: int, permissions: Permissions | None) -> int:
        if permissions is None or permissions == Permissions():
            self._give_up(conn)
            return ALL_IS_ALLOWED
        if permissions not in self._sets:
            number = self._free[-1] if self._free else self._unused
            # The codec may refuse the set: then the number stays free.
            self._engine.configure(self._protocol, "permissions", number, permissions.lines())
            if self._free:
                self._free.pop()
            else:
                self._unused += 1
            self._sets[permissions] = number
            self._references[permissions] = 0
        self._references[permissions] += 1
        self._give_up(conn)
        self._held[conn] = permissions
        return self._sets[permissions]
