"""xkeys: encryption between two parties, each with its own secret key and the other's public key.

"xkv1", nonce (24 bytes), NaCl's crypto_box of the content (X25519, XSalsa20, Poly1305)
"""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from nacl.exceptions import CryptoError
from nacl.public import Box, PrivateKey, PublicKey

VERSION: Final = b"xkv1"


class XKey:
    """
    >>> one, other = XKey(), XKey()
    >>> other.open(one.seal(b"hello", other.public) or b"", one.public), other.open(b"xkv1 or not", one.public)
    (b'hello', None)
    >>> one.seal(b"hello", "X"), one.seal(b"hello", nats_nkeys.encode(nats_nkeys.CURVE, bytes(32)))
    (None, None)
    """

    def __init__(self) -> None:
        self._secret = PrivateKey.generate()
        self.public: Final = nats_nkeys.encode(nats_nkeys.CURVE, bytes(self._secret.public_key))

    def seal(self, content: bytes, to: str) -> bytes | None:
        """Encrypts for the public key `to`; None when that is no valid key."""
        box = self._box(to)
        return None if box is None else VERSION + bytes(box.encrypt(content))

    def open(self, sealed: bytes, by: str) -> bytes | None:
        """Decrypts what `by` has sealed; None when that fails."""
        box = self._box(by)
        if box is None or not sealed.startswith(VERSION):
            return None
        try:
            return box.decrypt(sealed[len(VERSION) :])
        except (CryptoError, ValueError):
            return None

    def _box(self, other: str) -> Box | None:
        found = nats_nkeys.decode(other)
        if found is None or found[0] != nats_nkeys.CURVE:
            return None
        try:
            return Box(self._secret, PublicKey(found[1]))
        except CryptoError:  # a key that gives the same shared secret with any other
            return None
