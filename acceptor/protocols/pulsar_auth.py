"""Who a Pulsar client is: tokens (JSON Web Tokens, RFC 7519) that come with CONNECT, and anew when they have expired.

Whoever has a token that is signed with the broker's key, and names a role, may do everything: roles are not looked at
yet.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.option_kinds import Choice, File, Kind, Setting, Text
from mq_shards.acceptor.protocols.pulsar_clients import AUTHENTICATION_ERROR, Client, Desk, PulsarError, Request
from mq_shards.acceptor.protocols.pulsar_messages import Message

METHOD: Final = "token"
NOBODY: Final = (1 << 64) - 1  # the number of a request that was none
SECOND_NS: Final = 1_000_000_000
# How long a client has to come with a new token.
REFRESH_S: Final = 60.0
REFRESH: Final = b"PulsarAuthRefresh"
SECRET_ALGORITHMS: Final = ("HS256", "HS384", "HS512")
PUBLIC_ALGORITHMS: Final = ("rs256", "rs384", "rs512", "es256", "es384", "es512")

OPTIONS: Final[dict[str, Kind]] = {
    "token-secret-key-file": File("the bytes that tokens are signed with (HS256); every client must then have one"),
    "token-public-key-file": File("the key (PEM or DER) that verifies tokens; every client must then have one"),
    "token-public-alg": Choice("rs256", PUBLIC_ALGORITHMS, "how tokens are signed that a public key verifies"),
    "token-auth-claim": Text("sub", "what in a token is the name of a role"),
}


def check(settings: dict[str, Setting]) -> None:
    """Raises ValueError."""
    if settings["token-secret-key-file"] and settings["token-public-key-file"]:
        raise ValueError("pulsar.token-secret-key-file and pulsar.token-public-key-file: it is one or the other")
    Tokens.of(settings)


@dataclass(frozen=True, slots=True)
class Tokens:
    key: Any
    algorithms: tuple[str, ...]
    claim: str

    @classmethod
    def of(cls, settings: Mapping[str, Setting]) -> Tokens | None:
        """None: nobody has to say who he is. Raises ValueError."""
        claim = str(settings["token-auth-claim"])
        secret, public = str(settings["token-secret-key-file"]), str(settings["token-public-key-file"])
        try:
            if secret:
                return cls(Path(secret).read_bytes(), SECRET_ALGORITHMS, claim)
            if public:
                key = _public_key(Path(public).read_bytes())
                return cls(key, (str(settings["token-public-alg"]).upper(),), claim)
        except (OSError, ValueError) as error:
            raise ValueError(f"the key that pulsar's tokens are verified with: {error}") from None
        return None

    def role(self, token: bytes) -> tuple[str, float | None]:
        """And when it expires. Raises PulsarError."""
        import jwt

        try:
            found = jwt.decode(token, self.key, algorithms=list(self.algorithms), options={"verify_aud": False})
        except (jwt.PyJWTError, ValueError) as error:
            raise PulsarError(AUTHENTICATION_ERROR, f"Failed to authentication token: {error}") from None
        role, expires = found.get(self.claim), found.get("exp")
        if not isinstance(role, str) or not role:
            raise PulsarError(AUTHENTICATION_ERROR, f"Token has no {self.claim}")
        return role, None if expires is None else float(expires)


def _public_key(data: bytes) -> object:
    from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

    return load_pem_public_key(data) if data.startswith(b"-----") else load_der_public_key(data)


class Authentication:
    """Of all clients of an acceptor."""

    def __init__(self, desk: Desk, tokens: Tokens | None, server_version: str) -> None:
        self._desk = desk
        self._tokens = tokens
        self._server_version = server_version
        self._due: list[tuple[float, int]] = []  # wall clock, connection: to be looked at then

    def admit(self, client: Client, body: Message) -> None:
        """At its CONNECT. Raises PulsarError."""
        if self._tokens is None:
            return
        if body.auth_method_name != METHOD:
            raise PulsarError(AUTHENTICATION_ERROR, f"Unsupported authentication method: [{body.auth_method_name}]")
        client.refreshes = bool(body.feature_flags.supports_auth_refresh)
        self._learn(client, body.auth_data)

    def _learn(self, client: Client, token: bytes) -> None:
        assert self._tokens is not None
        client.role, client.expires_s = self._tokens.role(token)
        client.challenged = False
        if client.expires_s is not None:
            heapq.heappush(self._due, (client.expires_s, client.conn))

    def refresh(self, request: Request, end: Callable[[Client], None]) -> None:
        """AUTH_RESPONSE. Another role than before ends the connection, as what is no token does."""
        client, before = request.client, request.client.role
        request.done()
        if self._tokens is None:
            return
        try:
            self._learn(client, request.body.response.auth_data)
        except PulsarError:
            client.role = ""
        if client.role != before:
            end(client)

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        return max(int((self._due[0][0] - time.time()) * SECOND_NS), 0) + 1 if self._due else FOREVER

    def expire(self, end: Callable[[Client], None]) -> None:
        now = time.time()
        while self._due and self._due[0][0] <= now:
            client = self._desk.clients.get(heapq.heappop(self._due)[1])
            if client is None or client.expires_s is None or client.expires_s > now:
                continue
            if client.challenged or not client.refreshes:
                end(client)
                continue
            client.challenged = True
            heapq.heappush(self._due, (now + REFRESH_S, client.conn))
            self._desk.say(
                client, "authChallenge", server_version=self._server_version,
                protocol_version=client.protocol_version,
                challenge={"auth_method_name": METHOD, "auth_data": REFRESH},
            )  # fmt: skip
