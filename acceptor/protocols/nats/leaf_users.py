"""Authenticates leaf nodes: as users of the block leafnodes if it names any, otherwise as clients are.

    users.prove(conn, client, done)    calls done(user) now or later; None: the leaf node is refused
    users.now(conn, client)            the current user of a connected leaf node; None: it has to go

The order of these checks is nats-server's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.client import Client
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT, User, user_of

if TYPE_CHECKING:
    from mq_shards.acceptor.access.secrets import Secrets
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.acceptor.protocols.nats.logins import Logins

Done = Callable[[User | None], None]


class LeafUsers:
    def __init__(self, logins: Logins, secrets: Secrets, encryption: Callable[[int], VerifyingTls | None]) -> None:
        self._logins, self._secrets, self._encryption = logins, secrets, encryption
        self._users: dict[str, User] = {}
        self._one: User | None = None  # the only user of leaf nodes, if set
        self._account = GLOBAL_ACCOUNT
        self._maps = False

    def learn(self, found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """`found`: what the block leafnodes of a configuration file says."""
        self._account = settings["leaf-account"] or GLOBAL_ACCOUNT
        self._users = {user.name: user for user in map(user_of, found.get("users", ()))}
        self._maps = settings["leaf-tls-verify-and-map"]
        name, nkey = settings["leaf-user"], settings["leaf-nkey"]
        self._one = None
        if name or nkey:
            self._one = User(name, settings["leaf-password"], nkey=nkey, account=self._account)

    def prove(self, conn: int, client: Client, done: Done) -> None:
        if self._one is not None or self._users:
            done = partial(self._logins.decide, client, done)
            user = self._claimed(conn, client)
            if user is None:
                done(None)
            elif user.nkey:
                signature = nats_nkeys.signature_of(client.options.get("sig", ""))
                right = signature is not None and nats_nkeys.verify(user.nkey, client.nonce.encode(), signature)
                done(user if right else None)
            else:
                said = client.options.get("pass", "")
                proven = self._secrets.compare(user.password, said, lambda right: done(user if right else None))
                if proven is not None:
                    done(user if proven else None)
        elif self._logins.required(conn, client):
            self._logins.prove(conn, client, done)
        else:
            done(User(account=self._account))

    def _claimed(self, conn: int, client: Client) -> User | None:
        said, one = client.options, self._one
        if one is not None:
            same = said.get("nkey", "") == one.nkey if one.nkey else said.get("user", "") == one.name
            return one if same else None
        if not self._maps:
            return self._users.get(said.get("user", ""))
        from mq_shards.acceptor.protocols.nats import tls as nats_tls

        tls = self._encryption(conn)
        certificate = tls.certificate_fields if tls is not None else {}
        subject = nats_tls.subject_of(certificate)
        named = (self._users[name] for name in nats_tls.names_of(certificate) if name in self._users)
        whole = (user for name, user in self._users.items() if nats_tls.parse_subject(name) == subject)
        return next(named, None) or next(whole, None)

    def now(self, conn: int, client: Client) -> User | None:
        user = client.user
        assert user is not None
        if self._one is not None or self._users:
            known = self._one if self._one is not None else self._users.get(user.name)
            return user if known == user else None
        if not self._logins.required(conn, client):
            return user if user == User(account=self._account) else None
        found = self._logins.now(client)
        return found if isinstance(found, User) else None
