"""Auth callout: a service that is itself a NATS client decides who other clients are, and what they may do.

    $SYS.REQ.USER.AUTH      the request, in the service's account: a JWT, signed by this server, that describes a client
    the reply               a JWT for this server that holds a user's JWT or an error; without one in time the client is
                            refused

callout.ask(client, tls, timeout_ns, done)       calls done(user) later; None: the client is refused

Requests and checks are those of nats-server; Terms (callout_terms.py) decide whose answers count. This server is a
client of the service's account (own_client.py), so the service may be connected to any acceptor or server. Each
acceptor signs requests with a key of its own, whose public half they carry as the server's ID. If the service has an
xkey, requests are sealed for it, and answers may be sealed.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocols.nats import json_fields
from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.client import Client, go_json
from mq_shards.acceptor.protocols.nats.jwt import JwtError, Token
from mq_shards.acceptor.protocols.nats.own_client import OwnClient
from mq_shards.acceptor.protocols.nats.places import Place, Places
from mq_shards.acceptor.protocols.nats.who import ASKED_AT, User
from mq_shards.acceptor.remarks import Remarks

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.acceptor.protocols.nats.xkeys import XKey
    from mq_shards.acceptor.watched import Watched

AUDIENCE: Final = "nats-authorization-request"
XKEY_HEADER: Final = "Nats-Server-Xkey"
JWT_BEGINS: Final = b"eyJ"
# The fields of CONNECT that the service is sent, in this order.
SAID: Final = ("jwt", "nkey", "sig", "auth_token", "user", "pass", "name", "lang", "version")

log = logging.getLogger(__name__)

Done = Callable[[User | None], None]
Took = Callable[[User | JwtError], None]


class Terms(Protocol):
    """In which account a service is asked, and which of its answers count."""

    @property
    def account(self) -> str: ...

    @property
    def about(self) -> str:
        """The `sub` claim of a request's JWT."""
        ...

    @property
    def xkey(self) -> str:
        """The public key that requests are sealed for; "": they are not sealed."""
        ...

    def said(self, client: Client) -> Mapping[str, Any]:
        """The fields of CONNECT that the service may be sent."""
        ...

    def known(self, client: Client) -> Mapping[str, Any]:
        """What else is known about the client's identity, for the request's `client_info`."""
        ...

    def check_signer(self, answer: Token) -> None:
        """Checks who has signed an answer that was not sealed. Raises JwtError when the answer does not count."""
        ...

    def take(self, token: Token, client: Client, took: Took) -> None:
        """Calls `took`, now or later, with the user that an answer's token describes, or with an error."""
        ...


@dataclass(frozen=True, slots=True)
class _Asked:
    user: str  # the public key that the answer must name: made for this request, so that old answers do not count
    client: Client
    place: Place
    done: Done
    ends_ns: int


class Callout:
    def __init__(
        self, engine: Engine, protocol: int, watched: Watched, terms: Terms, server: Callable[[], Mapping[str, Any]],
        places: Places,
    ) -> None:  # fmt: skip
        """`server` returns this server's row of fields. `places` are shared by all callouts of this acceptor."""
        self.terms: Final = terms
        self._server = server
        self._places = places
        self._key = Ed25519PrivateKey.generate()
        self._id = _public(nats_nkeys.SERVER, self._key)
        self._xkey: XKey | None = None
        if terms.xkey:
            from mq_shards.acceptor.protocols.nats.xkeys import XKey

            self._xkey = XKey()
        self._asked: dict[str, _Asked] = {}  # by the last token of the reply subject, oldest first
        self._asked_ever = 0
        self._remarks = Remarks(log)
        self._inbox = f"$SYS._INBOX.{base64.b32encode(os.urandom(10)).decode()}"
        self.client: Final = OwnClient(engine, protocol, watched, terms.account, self._heard)
        self.client.subscribe(f"{self._inbox}.*")

    @property
    def is_idle(self) -> bool:
        return not self._asked

    def close(self) -> None:
        """Refuses all clients that wait for an answer. The caller has added `client` and must drop it."""
        for token in list(self._asked):
            self._end(token, None)

    # --- requests ---------------------------------------------------------------------------------------------------

    def ask(self, client: Client, tls: VerifyingTls | None, timeout_ns: int, done: Done) -> None:
        # That a client has hung up is only noticed after the answer.
        place = self._places.take(client.host)
        if place is None:
            done(None)
            return
        user = _public(nats_nkeys.USER, Ed25519PrivateKey.generate())
        request: bytes | None = self._request(user, client, tls, timeout_ns)
        header = b""
        if self._xkey is not None:
            request = self._xkey.seal(request or b"", self.terms.xkey)
            header = f"NATS/1.0\r\n{XKEY_HEADER}: {self._xkey.public}\r\n\r\n".encode()
        if request is None:
            log.warning("account %s: its xkey is none, so nobody can be asked about", self.terms.account)
            self._places.give(place, was_good=False)
            done(None)
            return
        self._asked_ever += 1
        token = str(self._asked_ever)
        self._asked[token] = _Asked(user, client, place, done, time.monotonic_ns() + timeout_ns)
        self.client.publish(ASKED_AT, request, f"{self._inbox}.{token}", header)

    def wait_ns(self) -> int:
        first, remarks_ns = next(iter(self._asked.values()), None), self._remarks.wait_ns()
        if first is None:
            return remarks_ns
        answer_ns = max(first.ends_ns - time.monotonic_ns(), 0)
        return answer_ns if remarks_ns == FOREVER else min(answer_ns, remarks_ns)

    def expire(self) -> None:
        self._remarks.expire()
        now_ns = time.monotonic_ns()
        while self._asked and next(iter(self._asked.values())).ends_ns <= now_ns:
            token = next(iter(self._asked))
            self._remarks.of_client(self._asked[token].client.remote, "the service of auth_callout has not answered")
            self._end(token, None)

    def _end(self, token: str, found: User | None) -> None:
        asked = self._asked.pop(token)
        self._places.give(asked.place, was_good=found is not None)
        asked.done(found)

    def _request(self, user: str, client: Client, tls: VerifyingTls | None, timeout_ns: int) -> bytes:
        options = self.terms.said(client)
        said = {name: options[name] for name in SAID if options.get(name)}
        signs = {"nonce": client.nonce} if said.get("sig") else {}
        known = self.terms.known(client)
        name = said.get("nkey") or said.get("user") or known.get("user")
        name = name or ("[REDACTED]" if "auth_token" in said else "")
        row = self._server()
        named = {name: row[key] for name, key in (("cluster", "cluster"), ("tags", "tags")) if row.get(key)}
        nats = {
            "server_id": {
                "name": row["name"], "host": row["host"], "id": self._id, "version": row["ver"], **named,
                **({"xkey": self._xkey.public} if self._xkey is not None else {}),
            },
            "user_nkey": user,
            "client_info": {
                "host": client.host, "id": client.client_id,
                **({"user": name} if name else {}),
                **({"name": said["name"]} if "name" in said else {}),
                **{field: value for field, value in known.items() if field != "user" and value},
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
                "sub": self.terms.about,
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
            return  # the answer is late, or a duplicate
        try:
            user = self._believed(asked.user, body)
        except JwtError as error:
            self._took(token, asked, error)
            return
        self.terms.take(user, asked.client, partial(self._took, token, asked))

    def _took(self, token: str, asked: _Asked, found: User | JwtError) -> None:
        if self._asked.get(token) is not asked:
            return  # the request has timed out meanwhile
        if isinstance(found, JwtError):
            said = f"{asked.client.remote}: auth_callout: {found}"
            self._remarks.say(logging.WARNING, asked.client.host, said)
            self._end(token, None)
        else:
            self._end(token, found)

    def _believed(self, user: str, body: bytes) -> Token:
        """Returns the user's JWT in an answer that is valid. Raises JwtError when the client is refused."""
        now_s = time.time()
        if not body:
            raise JwtError("no reason supplied")
        is_sealed = self._xkey is not None and not body.startswith(JWT_BEGINS)
        if self._xkey is not None and is_sealed:
            opened = self._xkey.open(body, self.terms.xkey)
            if opened is None:
                raise JwtError("the answer is not sealed for this server")
            body = opened
        answer = nats_jwt.decode(body.decode(errors="replace"), nats_jwt.ANSWER)
        if answer.subject != user:
            raise JwtError("the answer is not for the expected user")
        if answer.audience != self._id:
            raise JwtError("the answer is not for this server")
        if not is_sealed:
            self.terms.check_signer(answer)
        if not answer.lets_in_at(now_s):
            raise JwtError("the answer has expired")
        error, found = json_fields.text(answer.nats, "error"), json_fields.text(answer.nats, "jwt")
        if error or not found:
            raise JwtError(f"the service says: {error or 'nothing'}")
        token = nats_jwt.decode(found, nats_jwt.USER)
        if token.subject != user:
            raise JwtError(f"it lets in {token.subject}, not {user}")
        return token


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _public(kind: int, key: Ed25519PrivateKey) -> str:
    return nats_nkeys.encode(kind, key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def _tls_row(tls: VerifyingTls) -> dict[str, Any]:
    row: dict[str, Any] = {"version": tls.version.removeprefix("TLS"), "cipher": tls.cipher}
    certificate = tls.certificate
    if certificate:
        pem = ssl.DER_cert_to_PEM_cert(certificate)
        row |= {"verified_chains": [[pem]]} if tls.certificate_fields else {"certs": [pem]}
    return row
