"""What is kept of passwords and tokens. A password is a person's, and guessed: bcrypt takes its time. A token is 256
random bits, which nobody guesses, and is said with every request: SHA-256 is enough.
"""

from __future__ import annotations

import re
from typing import Final

TOKEN_BYTES: Final = 32
TOKEN_PREFIX: Final = "mqs_"  # so that it is known for what it is where it should not be
HASHED_TOKEN: Final = re.compile(r"sha256:[0-9a-f]{64}")
HASHED_PASSWORD: Final = re.compile(r"\$2[abxy]\$(?:0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
ROUNDS: Final = 12
PASSWORD_BYTES: Final = 72  # bcrypt reads no more


def make_token() -> str:
    import secrets  # no broker makes one

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
