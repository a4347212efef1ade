"""Auth callout: a service that is a NATS client says who others are, and what they may.

    $SYS.REQ.USER.AUTH      in the service's account: a JWT of all that is known of a client, signed by this server
    the reply               a JWT for it, with the JWT of a user in it, or an error; none in time is a refusal too

callout.decides(user, claimed)       whether the service is asked about somebody whom the file knows as `user`
callout.ask(client, tls, done)       done(user) later; None: it may not come

What is asked and believed is nats-server's. The server is a client of the service's account for it (own_client.py), so
the service may be at any acceptor or server. Each acceptor signs with a key of its own, whose public half is the ID
that it calls the server by in its requests.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import logging
import os
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.claims import connection_types_of, is_now, permissions_of
from mq_shards.acceptor.protocols.nats.client import Client, go_json
from mq_shards.acceptor.protocols.nats.jwt import JwtError, Token
from mq_shards.acceptor.protocols.nats.own_client import OwnClient
from mq_shards.acceptor.protocols.nats.who import GLOBAL_ACCOUNT, Limits, Permissions, User

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.acceptor.watched import Watched

SUBJECT: Final = "$SYS.REQ.USER.AUTH"
AUDIENCE: Final = "nats-authorization-request"
# Requests; one more is refused, and so is one more of whoever has as many as are left for all others.
UNDER_WAY: Final = 4096
ADDRESSES: Final = 64  # bits of an IPv6 address: those that begin with the same ones are one host's
# What a client says in CONNECT that a service is told, in that order; a JWT only where JWTs count.
SAID: Final = ("nkey", "sig", "auth_token", "user", "pass", "name", "lang", "version")

log = logging.getLogger(__name__)

Done = Callable[[User | None], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    user: str  # the key that it is to have, so that no old answer counts
    client: Client
    done: Done
    ends_ns: int


class Callout:
    def __init__(
        self, engine: Engine, protocol: int, watched: Watched, content: Mapping[str, Any],
        accounts: Callable[[], Collection[str]], server: Callable[[], Mapping[str, Any]],
    ) -> None:  # fmt: skip
        """`content`: what conf_callout.py has found. `accounts` that there are; `server`: what is said of this one."""
        self.content: Final = content
        self._issuer: str = content["issuer"]
        self._users = frozenset(content["users"])
        self._allowed = frozenset(content["allowed_accounts"])
        self._accounts = accounts
        self._server = server
        self._key = Ed25519PrivateKey.generate()
        self._id = _public(nats_nkeys.SERVER, self._key)
        self._asked: dict[str, _Asked] = {}  # by the last token of the subject for the answer; the first is the oldest
        self._by_host: Counter[str] = Counter()  # how many of these
        self._asked_ever = 0
        self._inbox = f"$SYS._INBOX.{base64.b32encode(os.urandom(10)).decode()}"
        self.client: Final = OwnClient(engine, protocol, watched, content["account"], self._heard)
        self.client.subscribe(f"{self._inbox}.*")

    def close(self) -> None:
        """Who is asked about is not let in. Its client is dropped by who has added it."""
        for token in list(self._asked):
            self._end(token, None)

    # --- whom it is about -------------------------------------------------------------------------------------------

    def decides(self, user: User | None, claimed: str) -> bool:
        """`claimed`: whom of those in the file a client says it is; `user`: if it has proven that."""
        account = user.account if user is not None else GLOBAL_ACCOUNT
        if account != GLOBAL_ACCOUNT and self._allowed and account not in self._allowed:
            return False
        return self.is_for(claimed)

    def is_for(self, name: str) -> bool:
        return name not in self._users

    def fenced(self, user: User | None) -> User | None:
        """Nobody but the server asks the service."""
        if user is None or user.account != self.content["account"]:
            return user
        before = user.permissions or Permissions()
        publish = Limits(before.publish.allow, (*before.publish.deny, SUBJECT))
        return replace(user, permissions=replace(before, publish=publish))

    def now(self, user: User) -> User | str:
        """What has become of one that the service has let in; why it has to go, if so."""
        if 0 < user.until_s <= time.time():
            return "User Authentication Expired"
        return user if user.account in self._accounts() else "Authorization Violation"

    # --- requests ---------------------------------------------------------------------------------------------------

    def ask(self, client: Client, tls: VerifyingTls | None, timeout_ns: int, done: Done) -> None:
        # Of a client that hangs up nothing is heard before there is an answer.
        host = _host(client.host)
        if self._by_host[host] >= UNDER_WAY - len(self._asked):
            done(None)
            return
        self._by_host[host] += 1
        user = _public(nats_nkeys.USER, Ed25519PrivateKey.generate())
        self._asked_ever += 1
        token = str(self._asked_ever)
        self._asked[token] = _Asked(user, client, done, time.monotonic_ns() + timeout_ns)
        request = self._request(user, client, tls, timeout_ns)
        self.client.publish(SUBJECT, request, f"{self._inbox}.{token}")

    def wait_ns(self) -> int:
        first = next(iter(self._asked.values()), None)
        return FOREVER if first is None else max(first.ends_ns - time.monotonic_ns(), 0)

    def expire(self) -> None:
        now_ns = time.monotonic_ns()
        while self._asked and next(iter(self._asked.values())).ends_ns <= now_ns:
            token = next(iter(self._asked))
            log.info("%s: the service of auth_callout has not answered", self._asked[token].client.remote)
            self._end(token, None)

    def _end(self, token: str, found: User | None) -> None:
        asked = self._asked.pop(token)
        host = _host(asked.client.host)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        asked.done(found)

    def _request(self, user: str, client: Client, tls: VerifyingTls | None, timeout_ns: int) -> bytes:
        said = {name: client.options[name] for name in SAID if client.options.get(name)}
        signs = {"nonce": client.nonce} if said.get("sig") else {}
        name = said.get("nkey") or said.get("user") or ("[REDACTED]" if "auth_token" in said else "")
        row = self._server()
        named = {name: row[key] for name, key in (("cluster", "cluster"), ("tags", "tags")) if row.get(key)}
        nats = {
            "server_id": {"name": row["name"], "host": row["host"], "id": self._id, "version": row["ver"], **named},
            "user_nkey": user,
            "client_info": {
                "host": client.host, "id": client.client_id,
                **({"user": name} if name else {}),
                **({"name": said["name"]} if "name" in said else {}),
                "kind": "Client", "type": "websocket" if client.is_websocket else "nats", **signs,
            },
            "connect_opts": {**said, "protocol": client.options.get("protocol", 0)},
            **({"client_tls": _tls_row(tls)} if tls is not None else {}),
            "type": "authorization_request",
            "version": nats_jwt.VERSION,
        }  # fmt: skip
        now_s = int(time.time())
        return self._signed(
            {
                "aud": AUDIENCE,
                "exp": now_s + timeout_ns // 1_000_000_000,
                "iat": now_s,
                "iss": self._id,
                "sub": self._issuer,
                "nats": nats,
            }
        )

    def _signed(self, claims: dict[str, Any]) -> bytes:
        number = base64.b32encode(hashlib.sha512(go_json(claims)).digest()[:32]).rstrip(b"=").decode()
        header = go_json({"typ": "JWT", "alg": "ed25519-nkey"})
        content = _base64(header) + b"." + _base64(go_json({**claims, "jti": number}))
        return content + b"." + _base64(self._key.sign(content))

    # --- answers ----------------------------------------------------------------------------------------------------

    def _heard(self, subject: str, reply: str, body: bytes) -> None:
        del reply
        token = subject.rpartition(".")[2]
        asked = self._asked.get(token)
        if asked is None:
            return  # it comes too late, or again
        try:
            found = self._believed(asked.user, body.decode(errors="replace"), asked.client)
        except JwtError as error:
            log.warning("%s: auth_callout: %s", asked.client.remote, error)
            found = None
        self._end(token, found)

    def _believed(self, user: str, text: str, client: Client) -> User:
        """Raises JwtError: it may not come."""
        now_s = time.time()
        if not text:
            raise JwtError("no reason supplied")
        answer = nats_jwt.decode(text, nats_jwt.ANSWER)
        if answer.issuer != self._issuer:
            raise JwtError("the key that has signed the answer is unknown")
        if answer.subject != user:
            raise JwtError("the answer is not for the expected user")
        if answer.audience != self._id:
            raise JwtError("the answer is not for this server")
        if not answer.counts_at(now_s):
            raise JwtError("the answer has expired")
        error, found = nats_jwt.text(answer.nats, "error"), nats_jwt.text(answer.nats, "jwt")
        if error or not found:
            raise JwtError(f"the service says: {error or 'nothing'}")
        token = nats_jwt.decode(found, nats_jwt.USER)
        if token.subject != user:
            raise JwtError(f"it lets in {token.subject}, not {user}")
        return self._user(token, client, now_s)

    def _user(self, token: Token, client: Client, now_s: float) -> User:
        if nats_jwt.text(token.nats, "issuer_account"):
            raise JwtError("attempted to use issuer_account")
        if token.issuer != self._issuer:
            raise JwtError(f"wrong issuer, expected {self._issuer} got {token.issuer}")
        if not token.counts_at(now_s):
            raise JwtError("the user's JWT has expired")
        there, for_s = is_now(token.nats, now_s)
        if not there:
            raise JwtError("outside of valid connect times")
        if nats_jwt.flag(token.nats, "proxy_required"):
            raise JwtError("there are no trusted proxies")
        if token.audience not in self._accounts():
            raise JwtError(f'no valid account "{token.audience}"')
        types = connection_types_of(token.nats)
        if types and client.connection_type not in types:
            raise JwtError("Connection type not allowed")
        ends = [one for one in (token.expires_s, now_s + for_s if for_s else 0) if one]
        return User(
            name=token.name,
            nkey="" if token.name else token.subject,
            account=token.audience,
            permissions=permissions_of(token.nats),
            connection_types=types,
            until_s=min(ends, default=0),
            is_called_out=True,
        )


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _public(kind: int, key: Ed25519PrivateKey) -> str:
    return nats_nkeys.encode(kind, key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def _host(address: str) -> str:
    """Whose address it is.

    >>> _host("127.0.0.1"), _host("::ffff:127.0.0.1"), _host("2001:db8::1:2:3:4"), _host("@")
    ('127.0.0.1', '127.0.0.1', '2001:db8::', '@')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), ADDRESSES), strict=False).network_address)


def _tls_row(tls: VerifyingTls) -> dict[str, Any]:
    row: dict[str, Any] = {"version": tls.version.removeprefix("TLS"), "cipher": tls.cipher}
    certificate = tls.certificate
    if certificate:
        pem = ssl.DER_cert_to_PEM_cert(certificate)
        row |= {"verified_chains": [[pem]]} if tls.certificate_fields else {"certs": [pem]}
    return row
