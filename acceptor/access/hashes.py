"""The hashes that are kept of passwords and tokens. People choose passwords that can be guessed, so bcrypt makes each
guess slow. A token is 256 random bits, which nobody guesses, and comes with every request: SHA-256 is enough.
"""

from __future__ import annotations

from typing import Final

TOKEN_BYTES: Final = 32
TOKEN_PREFIX: Final = "mqs_"  # so that a leaked token is recognized as one
HASHED_TOKEN: Final = r"sha256:[0-9a-f]{64}"
HASHED_PASSWORD: Final = r"\$2[abxy]\$(?:0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}"
ROUNDS: Final = 12
PASSWORD_BYTES: Final = 72  # bcrypt reads no more


def make_token() -> str:
    import secrets  # no broker makes tokens

    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def token_hash(token: str) -> str:
    import hashlib  # see secrets.py

    return "sha256:" + hashlib.sha256(token.encode(errors="replace")).hexdigest()


def password_hash(password: str, rounds: int = ROUNDS) -> str:
    """Raises ValueError of one line."""
    import bcrypt

    if not password:
        raise ValueError("a password is not empty")
    if len(password.encode()) > PASSWORD_BYTES:
        raise ValueError(f"a password has {PASSWORD_BYTES} bytes at most")
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds)).decode()
