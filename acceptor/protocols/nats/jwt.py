"""JWTs of NATS: an operator's, of accounts, which an operator signs, and of users, which an account signs.

    HEADER.CLAIMS.SIGNATURE      each in base64 for URLs; the header's alg is "ed25519-nkey", and the issuer's nkey has
                                 signed the first two

Tokens of version 1, which nsc made before 2021, have their type beside "nats" and sign CLAIMS alone; they are converted
to version 2. The format is that of github.com/nats-io/jwt; PyJWT does not know nkeys.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.json_fields import block, number, text, texts

MAX_BYTES: Final = 1 << 20
VERSION: Final = 2
OPERATOR, ACCOUNT, USER, ACTIVATION = "operator", "account", "user", "activation"
ANSWER = "authorization_response"  # of the service of an auth callout
GENERIC = "generic"  # any signed claims, whatever type they have
# By kind of token: the kinds of keys that may sign it.
ISSUERS: Final[Mapping[str, tuple[int, ...]]] = {
    OPERATOR: (nats_nkeys.OPERATOR,),
    ACCOUNT: (nats_nkeys.OPERATOR, nats_nkeys.ACCOUNT),
    USER: (nats_nkeys.ACCOUNT,),
    ACTIVATION: (nats_nkeys.ACCOUNT, nats_nkeys.OPERATOR),
    ANSWER: (nats_nkeys.ACCOUNT,),
    GENERIC: (nats_nkeys.OPERATOR,),
}
EVERYBODY: Final = "*"  # in revocations
# Claims that version 1 has beside "nats", and the defaults of claims that are missing there.
MOVED: Final = ("tags", "issuer_account")
UNSAID: Final[Mapping[str, Mapping[str, Any]]] = {USER: {"subs": -1, "data": -1, "payload": -1}}


class JwtError(ValueError):
    """Why a token is not valid, in one line."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    issuer: str
    subject: str
    issued_s: int = 0
    expires_s: int = 0  # 0: never
    begins_s: int = 0
    name: str = ""
    nats: Mapping[str, Any] = field(default_factory=dict)  # the claims of its kind
    audience: str = ""

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(texts(self.nats, "tags"))

    @property
    def issuer_account(self) -> str:
        """The account that has issued a token, with its own key or a signing key."""
        return text(self.nats, "issuer_account") or self.issuer

    def counts_at(self, now_s: float) -> bool:
        return (not self.expires_s or self.expires_s > now_s) and self.begins_s <= now_s

    def lets_in_at(self, now_s: float) -> bool:
        """Whether the user of this JWT is let in, perhaps only to be told that its time is over; or whether this answer
        of a service counts. As with a nats-server that is so in the last second, and with an end before 1970."""
        return not 0 < self.expires_s < int(now_s) and self.begins_s <= now_s

    def user_end_s(self, now_s: float, for_s: float) -> float:
        """When a user that is let in now has to go; 0: never. `for_s`: how long it may stay at most; 0: for ever.

        As with a nats-server that is whole seconds from now, counted in nanoseconds of 64 bits, which overflow after
        292 years."""
        stays = [for_s] if for_s else []
        if self.expires_s:
            whole_s = max(self.expires_s - int(now_s), 0)
            stays.append(max(_as_int64(whole_s * 1_000_000_000), 0) / 1e9)
        return now_s + min(stays) if stays else 0


def _as_int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def decode(token: str, kind: str) -> Token:
    """Reads a token. Raises JwtError if it is not of that kind or not validly signed. Does not check its times."""
    parts = token.strip().split(".")
    if len(token) > MAX_BYTES or len(parts) != 3 or not token.isascii():
        raise JwtError("not a JWT")
    header, claims = _object(parts[0]), _object(parts[1])
    if text(header, "typ").lower() != "jwt" or text(header, "alg").lower() not in ("ed25519-nkey", "ed25519"):
        raise JwtError("its header is not one of NATS's")
    nats, signed = _version_1(claims), parts[1]
    if nats is None:
        nats, signed = block(claims, "nats"), f"{parts[0]}.{parts[1]}"
        if number(nats, "version") != VERSION:
            raise JwtError("it is not of version 1 or 2")
    if text(nats, "type") != kind and kind != GENERIC:
        raise JwtError(f"it is of {text(nats, 'type') or 'nothing'}, not of {kind}")
    issuer = text(claims, "iss")
    found = nats_nkeys.decode(issuer)
    if found is None or found[0] not in ISSUERS[kind]:
        raise JwtError("its issuer is nobody who may")
    if not nats_nkeys.verify(issuer, signed.encode(), _bytes(parts[2])):
        raise JwtError("its issuer has not signed it")
    return Token(
        kind, issuer, text(claims, "sub"), number(claims, "iat"), number(claims, "exp"), number(claims, "nbf"),
        text(claims, "name"), nats, text(claims, "aud"),
    )  # fmt: skip


def _version_1(claims: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Converts claims of version 1 to version 2; None when they are not of version 1."""
    kind = text(claims, "type")
    if not kind:
        return None
    said = block(claims, "nats")
    moved = {name: claims[name] for name in MOVED if name in claims}
    if kind == ACTIVATION:
        moved["kind"] = text(said, "type")
    return {**UNSAID.get(kind, {}), **said, **moved, "type": kind}


def is_revoked(revocations: Mapping[str, Any], subject: str, issued_s: int) -> bool:
    """Whether a token is revoked: a revocation covers what was issued up to its time."""
    return any(number(revocations, key) >= issued_s for key in (subject, EVERYBODY) if key in revocations)


def _bytes(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise JwtError("not a JWT") from None


def _object(part: str) -> Mapping[str, Any]:
    try:
        found = orjson.loads(_bytes(part))
    except orjson.JSONDecodeError:
        raise JwtError("not a JWT") from None
    if not isinstance(found, dict):
        raise JwtError("not a JWT")
    return found
