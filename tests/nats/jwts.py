"""An operator, accounts and users for tests: keys, and JWTs that they sign."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys

HEADERS: Final = {1: {"typ": "jwt", "alg": "ed25519"}, 2: {"typ": "JWT", "alg": "ed25519-nkey"}}
ANY: Final = -1
UNLIMITED: Final = {
    "subs": ANY, "data": ANY, "payload": ANY, "imports": ANY, "exports": ANY, "wildcards": True, "conn": ANY,
    "leaf": ANY,
}  # fmt: skip


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Key:
    """The same for the same name."""

    def __init__(self, kind: int, name: str) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"{kind} {name}".encode()).digest())
        self.public: Final = nats_nkeys.encode(kind, self._private.public_key().public_bytes_raw())
        raw = bytes([18 << 3 | kind >> 5, (kind & 31) << 3]) + self._private.private_bytes_raw()
        raw += binascii.crc_hqx(raw, 0).to_bytes(2, "little")
        self.seed: Final = base64.b32encode(raw).decode().rstrip("=")

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)

    def jwt(self, kind: str, subject: str, nats: Mapping[str, Any], *, version: int = 2, **claims: object) -> str:
        """Of what the key says of another. Version 1 says less under "nats", and signs less."""
        body = {
            "jti": "x", "iat": 1_700_000_000, "iss": self.public, "name": subject[:6], "sub": subject, **claims,
            "nats": {**nats, "type": kind, "version": 2},
        }  # fmt: skip
        if version == 1:
            said = dict(nats)
            body |= {"type": kind, **{name: said.pop(name) for name in ("tags", "issuer_account") if name in said}}
            body["nats"] = said
            if "kind" in said:
                said["type"] = said.pop("kind")
        header, content = (_encoded(json.dumps(one).encode()) for one in (HEADERS[version], body))
        signed = content if version == 1 else f"{header}.{content}"
        return f"{header}.{content}.{_encoded(self.sign(signed.encode()))}"


class Operator(Key):
    def __init__(self, name: str = "operator") -> None:
        super().__init__(nats_nkeys.OPERATOR, name)

    def own(self, **nats: object) -> str:
        return self.jwt("operator", self.public, nats)

    def account(self, account: Key, limits: Mapping[str, Any] | None = None, **more: object) -> str:
        claims: dict[str, Any] = {name: more.pop(name) for name in ("exp", "name", "version") if name in more}
        return self.jwt("account", account.public, {"limits": {**UNLIMITED, **(limits or {})}, **more}, **claims)


class Account(Key):
    def __init__(self, name: str) -> None:
        super().__init__(nats_nkeys.ACCOUNT, name)

    def user(self, user_name: str, *, of: Key | None = None, **more: object) -> tuple[Key, str]:
        """`of`: the account, if this is a signing key of it."""
        user = Key(nats_nkeys.USER, user_name)
        claims: dict[str, Any] = {one: more.pop(one) for one in ("exp", "nbf", "iat", "name", "version") if one in more}
        # What version 1 does not say of a user has no limit.
        nats = {} if claims.get("version") == 1 else {"subs": ANY, "data": ANY, "payload": ANY}
        nats |= more
        if of is not None:
            nats["issuer_account"] = of.public
        return user, self.jwt("user", user.public, nats, **claims)

    def scoped(self, user_name: str, of: Key, **claims: object) -> tuple[Key, str]:
        """Of a signing key that says what its users may."""
        user = Key(nats_nkeys.USER, user_name)
        nats: dict[str, Any] = {"issuer_account": of.public}
        if "tags" in claims:
            nats["tags"] = claims.pop("tags")
        return user, self.jwt("user", user.public, nats, **claims)

    def activation(self, account: Key, kind: str, subject: str, version: int = 2) -> str:
        return self.jwt("activation", account.public, {"subject": subject, "kind": kind}, version=version)
