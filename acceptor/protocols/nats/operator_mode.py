"""The parts of an acceptor that exist in operator mode only: authentication by JWTs (operator.py), the resolver of
account JWTs, and the system account's requests about them.

A new configuration replaces all parts, but accounts that were fetched before stay known.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.remarks import Remarks

if TYPE_CHECKING:
    import ssl

    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.protocol import Broker
    from mq_shards.acceptor.protocols.nats.claims import Account
    from mq_shards.acceptor.protocols.nats.claims_requests import ClaimsRequests
    from mq_shards.acceptor.protocols.nats.dir_resolver import DirResolver, Found
    from mq_shards.acceptor.protocols.nats.operator import Operator
    from mq_shards.acceptor.protocols.nats.resolver import UrlResolver
    from mq_shards.acceptor.protocols.nats.system import System
    from mq_shards.acceptor.protocols.nats.updates import Updates

ANSWERING_ACCEPTOR: Final = 0  # answers requests of the system account
# Tokens and accounts go by the wall clock, which may be set meanwhile: it is read at least this often.
LOOK_S: Final = 60.0

Row = dict[str, Any]

log = logging.getLogger(__name__)


def _context_of(tls: Mapping[str, Any] | None) -> ssl.SSLContext | None:
    """The TLS context that verifies a resolver; None: the system's certificates do."""
    if tls is None:
        return None
    from mq_shards.acceptor.protocols.nats.tls import resolver_context

    try:
        return resolver_context(tls)
    except ValueError as error:  # a file was removed after the configuration was checked
        log.error("resolver_tls: %s", error)
        return None


class OperatorMode:
    def __init__(
        self, engine: Engine, broker: Broker, protocol: str, server: Callable[[], Row],
        changed: Callable[[Mapping[str, Row], set[str] | None], None], others: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`server` returns this server's row of fields. `changed` is called with what all accounts share and the names
        of those whose shares have changed; None: any may have. `others` returns whether other servers are or were
        known."""
        self._engine = engine
        self._broker = broker
        self._tell = partial(broker.share, protocol)
        self._server = server
        self._changed = changed
        self._others = others
        self._inbox: Final = f"_INBOX.{os.urandom(11).hex()}"
        self.operator: Operator | None = None
        self._resolver: UrlResolver | DirResolver | None = None
        self._updates: Updates | None = None
        self._requests: ClaimsRequests | None = None
        self._system: System | None = None
        self._has_jetstream = False
        self._remarks = Remarks(log)  # about clients that failed to authenticate, and accounts

    def configure(self, found: Mapping[str, Any] | None) -> None:
        """Applies the part "operator" of a configuration file; None: not in operator mode."""
        before = self._resolver
        self.close()
        # With a resolver, interest of other servers in unknown accounts counts, since they may be fetched later.
        learns = bool(found and (found["url"] or found["directory"]))
        self._engine.set("nats.learns-accounts", int(learns))
        if not found:
            return
        from mq_shards.acceptor.protocols.nats.operator import Operator
        from mq_shards.acceptor.protocols.nats.updates import Updates, spread

        others = partial(spread, self._tell) if self._broker.acceptors > 1 else None
        self._resolver = self._resolver_of(found, before)
        preload = {name: self._newest(name, jwt) for name, jwt in found["preload"].items()}
        self.operator = Operator(
            {**found, "preload": preload},
            self._resolver,
            self._changed,
            others,
            poke=self._engine.poke,
            remarks=self._remarks,
            pause=self._engine.pause,
        )
        self._updates = Updates(self.operator, self._server, self._tell)
        if self._has_jetstream:
            self.operator.meet_jetstream()
        if self._requests is not None:
            self._requests.begin(self.operator, self._updates, preload)
            self._attach()

    def start(self, fetched: Mapping[str, Account]) -> None:
        """Clients are served from now on. `fetched`: the accounts known before a reconfiguration."""
        if self.operator is not None:
            self.operator.start(fetched)
            if self._requests is not None:
                self._requests.look_again(list(self.operator.accounts))

    def meet_jetstream(self) -> None:
        """Other servers of the cluster have JetStream."""
        self._has_jetstream = True
        if self.operator is not None:
            self.operator.meet_jetstream()

    def _newest(self, account: str, jwt: str) -> str:
        """The newer of an account's JWTs in the file and in the directory."""
        if self._requests is None:
            return jwt
        try:
            return self._requests.directory.newest(account, jwt)
        except OSError as error:
            log.warning("accounts' directory: %s", error)
            return jwt

    def _resolver_of(
        self, found: Mapping[str, Any], before: UrlResolver | DirResolver | None
    ) -> UrlResolver | DirResolver | None:
        if found["url"]:
            from mq_shards.acceptor.protocols.nats.resolver import UrlResolver

            return UrlResolver(found["url"], self._engine.poke, self._remarks, _context_of(found["tls"]))
        if not found["directory"]:
            return None
        from mq_shards.acceptor.protocols.nats.claims_requests import ClaimsRequests
        from mq_shards.acceptor.protocols.nats.dir_resolver import DirResolver

        before = before if isinstance(before, DirResolver) else None
        resolver = DirResolver(found["directory"], self._engine.poke, self._lookup, before)
        answers = self._broker.acceptor == ANSWERING_ACCEPTOR
        self._requests = ClaimsRequests(
            resolver, found["directory"], self._server, self._inbox, self._others, answers=answers
        )
        return resolver

    def _lookup(self, account: str, found: Found) -> None:
        requests = self._requests
        if requests is None:
            found("")
            return

        def heard(jwt: str) -> None:
            if jwt:
                requests.keep(account, jwt)
            found(jwt)

        requests.lookup(account, heard)

    def close(self) -> None:
        if self._resolver is not None:
            self._resolver.close()
        self.operator = self._resolver = self._updates = self._requests = None

    def attach(self, system: System) -> None:
        """Serves requests that the system account's client receives."""
        self._system = system
        self._attach()

    def _attach(self) -> None:
        if self._system is not None and self._requests is not None:
            self._requests.serve(self._system.client)

    # --- messages ---------------------------------------------------------------------------------------------------

    def heard(self, subject: str, reply: str, body: bytes) -> bool:
        """Handles a message in the system account. False when it is not about JWTs."""
        if self._requests is not None:
            return self._requests.heard(subject, reply, body)
        if not subject.endswith(".CLAIMS.UPDATE"):
            return False
        if self._updates is not None:
            account = subject.split(".")[-3]
            self._updates.asked(account, body.decode(errors="replace"), partial(self._say, reply))
        return True

    def _say(self, reply: str, answer: Row) -> None:
        if reply and self._system is not None:
            self._system.publish(reply, orjson.dumps(answer))

    def took(self, what: str, message: Mapping[str, Any]) -> str:
        """Handles what an acceptor has told all. Returns the account that it changes, or ""."""
        if self._updates is None:
            return ""
        account = self._updates.took(what, message)
        if message.get("fetched") and self._requests is not None:
            self._requests.keep(what.rpartition(" ")[2], message["jwt"])
        return account

    # --- time -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        if self.operator is not None:
            self.operator.settle()
        if self._resolver is not None:
            self._resolver.settle()

    def wait_ns(self) -> int:
        waits = [self._remarks.wait_ns()]
        waits += [self._requests.wait_ns()] if self._requests is not None else []
        if self.operator is not None and (wait_s := self.operator.wait_s()) >= 0:
            waits.append(int(min(wait_s, LOOK_S) * 1e9))
        return min((wait for wait in waits if wait != FOREVER), default=FOREVER)

    def expire(self) -> None:
        self._remarks.expire()
        if self.operator is not None:
            self.operator.expire()
        if self._requests is not None:
            self._requests.expire()
