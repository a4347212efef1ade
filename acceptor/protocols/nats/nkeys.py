"""nkeys: the text form of NATS's Ed25519 keys, in base32, whose first letter shows the kind of key.

prefix (1 byte, or 2 of a seed), key (32 bytes), CRC-16 (2 bytes, the lower first); base32 without padding
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

# The kinds of keys, as the first byte: five bits that become the letter, and three zero bits.
OPERATOR: Final = 14 << 3  # O
ACCOUNT: Final = 0  # A
USER: Final = 20 << 3  # U
SERVER: Final = 13 << 3  # N
CURVE: Final = 23 << 3  # X: for encryption (xkeys.py)
SEED: Final = 18 << 3  # S: a private key; its kind follows
KEY_BYTES: Final = 32


def decode(text: str) -> tuple[int, bytes] | None:
    """Returns the kind of a public key and its bytes; None when the text is no such key."""
    raw = _raw(text, 1 + KEY_BYTES)
    return (raw[0], raw[1:]) if raw is not None else None


def _raw(text: str, size: int) -> bytes | None:
    """Decodes base32 and removes the CRC; None if that is wrong, or the size is."""
    if not text.isascii():
        return None
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return None
    if len(raw) != size + 2 or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return None
    return raw[:-2]


def encode(kind: int, key: bytes) -> str:
    raw = bytes([kind]) + key
    raw += binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw).decode().rstrip("=")


def is_public(kind: int, text: str) -> bool:
    found = decode(text)
    return found is not None and found[0] == kind


def verify(text: str, message: bytes, signature: bytes) -> bool:
    """Whether the public key `text` has signed the message."""
    # Imported late: only servers with such users need it.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = decode(text)
    if found is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(found[1]).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def signature_of(text: str) -> bytes | None:
    """Decodes a signature of CONNECT: base64 for URLs without padding, or standard base64 with padding."""
    try:
        if set(text).isdisjoint("+/="):
            return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def seed_of(text: str) -> tuple[int, bytes] | None:
    """Returns the kind of a seed and its private key; None when the text is no seed.

    The first 5 bits mark a seed, the next 8 are its kind.
    """
    raw = _raw(text, 2 + KEY_BYTES)
    if raw is None or raw[0] & 0xF8 != SEED:
        return None
    return (raw[0] & 7) << 5 | raw[1] >> 3, raw[2:]


def sign(seed: str, message: bytes) -> tuple[str, bytes]:
    """Returns the public key, as text, and the signature. Raises ValueError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    found = seed_of(seed)
    if found is None:
        raise ValueError("this is not the seed of a key")
    private = Ed25519PrivateKey.from_private_bytes(found[1])
    return encode(found[0], private.public_key().public_bytes_raw()), private.sign(message)
