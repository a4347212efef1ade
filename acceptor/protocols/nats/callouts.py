"""All callouts of an acceptor: the one of the configuration file or, in operator mode, one of each account that has a
callout service.

An account's callout is made for its first client and dropped when the account's JWT changes. At MOST_ACCOUNTS the
least recently used one that has no request under way is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocols.nats.callout import Callout, Done, Terms
from mq_shards.acceptor.protocols.nats.callout_terms import AccountTerms, FileTerms, authorization_of
from mq_shards.acceptor.protocols.nats.places import Places
from mq_shards.acceptor.protocols.nats.who import User, fenced

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.acceptor.protocols.nats.claims import Account
    from mq_shards.acceptor.protocols.nats.client import Client
    from mq_shards.acceptor.protocols.nats.operator import Operator
    from mq_shards.acceptor.protocols.nats.own_client import OwnClients
    from mq_shards.acceptor.watched import Watched

MOST_ACCOUNTS: Final = 256  # accounts with a callout at one time


class Callouts:
    def __init__(
        self, engine: Engine, protocol: int, watched: Watched, own: OwnClients,
        server: Callable[[], Mapping[str, Any]], operator: Callable[[], Operator | None],
    ) -> None:  # fmt: skip
        """`server` returns this server's row of fields, and `operator` the current operator, or None."""
        self._engine = engine
        self._protocol = protocol
        self._watched = watched
        self._own = own
        self._server = server
        self._operator = operator
        self._places = Places()
        self._of_accounts: dict[str, tuple[Account, Callout]] = {}  # least recently used first
        self._of_file: Callout | None = None
        self.file: FileTerms | None = None

    def close(self) -> None:
        self.set_file(None, tuple)
        for name in list(self._of_accounts):
            self._drop_account(name)

    # --- the file's callout -----------------------------------------------------------------------------------------

    def set_file(self, content: Mapping[str, Any] | None, accounts: Callable[[], Collection[str]]) -> None:
        if (self.file.content if self.file is not None else None) == content:
            return
        before, self._of_file, self.file = self._of_file, None, None
        if before is not None:
            self._drop(before)
        if content is not None:
            self.file = FileTerms(content, accounts)
            self._of_file = self._made(self.file)

    def ask(self, client: Client, tls: VerifyingTls | None, timeout_ns: int, done: Done) -> None:
        assert self._of_file is not None
        self._of_file.ask(client, tls, timeout_ns, self._fenced(self._of_file.terms, done))

    # --- callouts of accounts ---------------------------------------------------------------------------------------

    def ask_account(self, user: User, client: Client, tls: VerifyingTls | None, timeout_ns: int, done: Done) -> None:
        """Asks the service of the account of a user that is known by a JWT; calls done(user) if it has no service."""
        account = self._account(user.account)
        authorization = authorization_of(account) if account is not None else {}
        if account is None or not authorization:
            done(user)
        elif user.nkey in authorization["auth_users"]:
            done(fenced(user, account.name))
        elif (found := self._of_account(account)) is not None:
            found.ask(client, tls, timeout_ns, self._fenced(found.terms, done))
        else:
            done(None)

    def _account(self, name: str) -> Account | None:
        operator = self._operator()
        return None if operator is None else operator.accounts.get(name)

    def _of_account(self, account: Account) -> Callout | None:
        known = self._of_accounts.pop(account.name, None)
        if known is not None and known[0] != account:
            self._drop(known[1])
            known = None
        if known is None:
            if len(self._of_accounts) >= MOST_ACCOUNTS and not self._drop_one():
                return None
            known = (account, self._made(AccountTerms(self._operator, account)))
        self._of_accounts[account.name] = known
        return known[1]

    def _drop_one(self) -> bool:
        idle = next((name for name, (_, one) in self._of_accounts.items() if one.is_idle), None)
        if idle is not None:
            self._drop_account(idle)
        return idle is not None

    def accounts_changed(self) -> None:
        """Drops the callouts of accounts whose JWT has changed; the next client makes a new one."""
        for name, (account, _) in list(self._of_accounts.items()):
            if self._account(name) != account:
                self._drop_account(name)

    # --- both -------------------------------------------------------------------------------------------------------

    def _fenced(self, terms: Terms, done: Done) -> Done:
        return lambda found: done(fenced(found, terms.account))

    def _made(self, terms: Terms) -> Callout:
        made = Callout(self._engine, self._protocol, self._watched, terms, self._server, self._places)
        self._own.add(made.client)
        return made

    def _drop_account(self, name: str) -> None:
        self._drop(self._of_accounts.pop(name)[1])

    def _drop(self, callout: Callout) -> None:
        self._own.drop(callout.client)
        callout.close()

    def wait_ns(self) -> int:
        return min((one.wait_ns() for one in self._all()), default=FOREVER)

    def expire(self) -> None:
        for one in self._all():
            one.expire()

    def _all(self) -> list[Callout]:
        return [one for _, one in self._of_accounts.values()] + ([self._of_file] if self._of_file is not None else [])
