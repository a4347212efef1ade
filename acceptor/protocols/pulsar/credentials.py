"""Credentials: tokens (JSON Web Tokens, RFC 7519), names with passwords, and certificates. Each proves the name of a
role."""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mq_shards.acceptor import named_files
from mq_shards.acceptor.option_kinds import Choice, File, Flag, Kind, Setting, Text, TextList

TOKEN: Final = "token"
BASIC: Final = "basic"
CERTIFICATE: Final = "tls"
SECRET_ALGORITHMS: Final = ("HS256", "HS384", "HS512")
SECRET_KEY_BYTES: Final = 32  # at least, as in Pulsar (RFC 7518, section 3.2)
PUBLIC_ALGORITHMS: Final = ("rs256", "rs384", "rs512", "es256", "es384", "es512")
MAX_USERS: Final = 100_000
# MD5-crypt as Apache's htpasswd writes it.
_MAGIC: Final = "$apr1$"
_DIGITS: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ROUNDS: Final = 1000


def _is_role(text: str) -> bool:
    """As in Pulsar's lists, where a comma stands between two of them."""
    return text.isprintable() and "," not in text


OPTIONS: Final[dict[str, Kind]] = {
    "token-secret-key-file": File("the bytes that tokens are signed with (HS256); clients must then say who they are"),
    "token-public-key-file": File("the key (PEM or DER) that verifies tokens; clients must then say who they are"),
    "token-public-alg": Choice("rs256", PUBLIC_ALGORITHMS, "how tokens are signed that a public key verifies"),
    "token-auth-claim": Text("sub", "what in a token is the name of a role"),
    "basic-auth-file": File("names and passwords, as htpasswd -m writes them; clients must then say who they are"),
    "tls-auth": Flag(False, "the common name of a client's certificate is a role; clients must say who they are"),
    "authorization-enabled": Flag(False, "roles may do what they have been granted only"),
    "super-user-roles": TextList("a role that may do everything", "one role, without a comma", _is_role),
    "proxy-roles": TextList("a role of proxies, who say for whom they speak", "one role, without a comma", _is_role),
    "anonymous-role": Text("", "the role of clients that do not say who they are; they are refused without one"),
}


class CredentialsError(Exception):
    """The credentials are invalid."""


class Identity(NamedTuple):
    role: str
    expires_s: float | None = None  # by the wall clock; None: never
    is_anonymous: bool = False  # nothing proves it


class Tokens(NamedTuple):
    key: Any
    algorithms: tuple[str, ...]
    claim: str

    def identity(self, data: bytes) -> Identity:
        """The identity that a token proves. Raises CredentialsError."""
        import jwt

        try:
            # Many clients send a token with the end of the line of its file. A real broker passes over spaces.
            bare = b".".join(part.strip() for part in data.split(b"."))
            found = jwt.decode(bare, self.key, algorithms=list(self.algorithms), options={"verify_aud": False})
            expires_s = float(found["exp"]) if "exp" in found else None
        except (jwt.PyJWTError, ValueError, OverflowError) as error:
            raise CredentialsError(f"Failed to authentication token: {error}") from None
        role = found.get(self.claim)
        if isinstance(role, list):
            role = next(iter(role), None)
        if not isinstance(role, str) or not role:
            raise CredentialsError(f"Token has no {self.claim}")
        return Identity(role, expires_s)


class Users(NamedTuple):
    """The hashes of passwords, by user name."""

    hashes: Mapping[str, str]

    def identity(self, data: bytes) -> Identity:
        """The identity that NAME:PASSWORD proves. Raises CredentialsError."""
        from hmac import compare_digest  # imports OpenSSL: see access/secrets.py

        name, colon, password = data.decode(errors="replace").partition(":")
        known = self.hashes.get(name)
        # An unknown user takes as long to check as a known one.
        found = _apr1(password, _salt(known or _MAGIC + "none$"))
        if not colon or known is None or not compare_digest(found, known):
            raise CredentialsError("Unknown user or invalid password")
        return Identity(name)


class Credentials(NamedTuple):
    """The credentials that are accepted; None or False: not of that kind."""

    tokens: Tokens | None
    users: Users | None
    certificates: bool
    anonymous: str = ""  # the role of whoever brings none; "": it is refused

    @classmethod
    def of(cls, settings: Mapping[str, Setting]) -> Credentials | None:
        """None: clients need no credentials. Raises ValueError."""
        users = _users(str(settings["basic-auth-file"]))
        found = cls(_tokens(settings), users, bool(settings["tls-auth"]), str(settings["anonymous-role"]))
        return found if found.tokens or found.users or found.certificates else None

    def identity(self, method: str, data: bytes, common_name: str = "") -> Identity:
        """`method`: the kind of credentials; `common_name`: that of the certificate. Raises CredentialsError."""
        if method == TOKEN and self.tokens is not None:
            return self.tokens.identity(data)
        if method == BASIC and self.users is not None:
            return self.users.identity(data)
        if method == CERTIFICATE and self.certificates and common_name:
            return Identity(common_name)
        known = {TOKEN: self.tokens, BASIC: self.users, CERTIFICATE: self.certificates}
        if self.anonymous and not known.get(method):
            return Identity(self.anonymous, is_anonymous=True)
        raise CredentialsError(f"Unsupported authentication method: [{method}]")

    def of_request(self, authorization: str, common_name: str) -> Identity:
        """The identity that a certificate proves, by its common name if there is one, or else an Authorization header;
        or the anonymous one, as with a real broker also for a header that proves nothing. Raises CredentialsError."""
        if self.certificates and common_name:
            return Identity(common_name)
        try:
            return self._proven(authorization)
        except CredentialsError:
            if not self.anonymous:
                raise
            return Identity(self.anonymous, is_anonymous=True)

    def _proven(self, authorization: str) -> Identity:
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self.identity(TOKEN, given.strip().encode())
        if scheme.lower() == "basic":
            try:
                return self.identity(BASIC, base64.b64decode(given.strip(), validate=True))
            except (binascii.Error, ValueError):
                raise CredentialsError("Invalid authorization header") from None
        raise CredentialsError("Authentication required")


def are_wanted(settings: Mapping[str, Any]) -> bool:
    """Whether clients need credentials."""
    files = ("token-secret-key-file", "token-public-key-file", "basic-auth-file")
    return bool(settings["tls-auth"]) or any(settings[name] for name in files)


def check(settings: Mapping[str, Setting]) -> None:
    """Raises ValueError if these settings do not go together."""
    if settings["token-secret-key-file"] and settings["token-public-key-file"]:
        raise ValueError("pulsar.token-secret-key-file and pulsar.token-public-key-file: it is one or the other")
    if settings["tls-auth"] and not settings["tls-trust-certs-file"]:
        raise ValueError("pulsar.tls-auth needs pulsar.tls-trust-certs-file: certificates have to be verified")
    if Credentials.of(settings) is None and settings["authorization-enabled"]:
        raise ValueError("pulsar.authorization-enabled needs tokens, pulsar.basic-auth-file or pulsar.tls-auth")
    if settings["anonymous-role"] and not settings["authorization-enabled"]:
        raise ValueError("pulsar.anonymous-role needs pulsar.authorization-enabled, or else it may do everything")


def _tokens(settings: Mapping[str, Setting]) -> Tokens | None:
    claim = str(settings["token-auth-claim"])
    secret, public = str(settings["token-secret-key-file"]), str(settings["token-public-key-file"])
    try:
        if secret:
            return Tokens(_secret_key(named_files.read(secret)), SECRET_ALGORITHMS, claim)
        if public:
            key = _public_key(named_files.read(public))
            return Tokens(key, (str(settings["token-public-alg"]).upper(),), claim)
    except (OSError, ValueError) as error:
        raise ValueError(f"the key that pulsar's tokens are verified with: {error}") from None
    return None


def _secret_key(data: bytes) -> bytes:
    """Raises ValueError for a key that is too short, which can be guessed or is that of a half-written file."""
    if len(data) < SECRET_KEY_BYTES:
        raise ValueError(f"it has {len(data)} bytes, and needs {SECRET_KEY_BYTES} at least")
    return data


def _public_key(data: bytes) -> object:
    from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

    return load_pem_public_key(data) if data.startswith(b"-----") else load_der_public_key(data)


def _users(file: str) -> Users | None:
    if not file:
        return None
    found: dict[str, str] = {}
    try:
        lines = named_files.read(file).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"pulsar.basic-auth-file {file}: {error}") from None
    for number, line in enumerate(lines, 1):
        name, _, known = line.strip().partition(":")
        if not name or name.startswith("#"):
            continue
        if not known.startswith(_MAGIC) or known.count("$") != 3 or len(found) >= MAX_USERS:
            raise ValueError(f"pulsar.basic-auth-file {file}: line {number} is none that htpasswd -m writes")
        found[name] = known
    return Users(found)


def _salt(known: str) -> str:
    return known.removeprefix(_MAGIC).partition("$")[0][:8]


def _apr1(password: str, salt: str) -> str:
    """MD5-crypt with Apache's magic: https://httpd.apache.org/docs/2.4/misc/password_encryptions.html"""
    from hashlib import md5

    secret, salted = password.encode(), salt.encode()
    inner = md5(secret + salted + secret).digest()
    start = secret + _MAGIC.encode() + salted
    start += bytes(itertools.islice(itertools.cycle(inner), len(secret)))
    bits = len(secret)
    while bits:
        start += b"\0" if bits & 1 else secret[:1]
        bits >>= 1
    digest = md5(start).digest()
    for i in range(_ROUNDS):
        text = secret if i % 2 else digest
        text += salted if i % 3 else b""
        text += secret if i % 7 else b""
        digest = md5(text + (digest if i % 2 else secret)).digest()
    order = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))
    numbers = [(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in order] + [(digest[11], 2)]
    written = "".join(_DIGITS[number >> 6 * i & 63] for number, digits in numbers for i in range(digits))
    return f"{_MAGIC}{salt}${written}"
