"""TLS without a socket: the caller passes received bytes in, and sends the bytes that it gets back.

It uses OpenSSL through the standard library, with one exception: `ssl` cannot demand a certificate of a client and
accept any signer, since it verifies every certificate that it asks for. pyOpenSSL can, and is needed only for that.
"""

from __future__ import annotations

import importlib
import ssl
import time
from _ssl import ENCODING_DER as DER
from typing import Any, Final, Protocol

from mq_shards.acceptor.access.certificates import names_of
from mq_shards.acceptor.filters import PIECE_BYTES, PIECE_PARTS, Filter, FilterError

# The content of the largest record. A read returns one record at most, so a larger buffer would bring nothing, and be
# mapped and unmapped by the kernel each time.
READ_BYTES: Final = 16 << 10

COMMON_NAME: Final = "2.5.4.3"

VERSION_NAMES: Final = {"TLSv1": "TLS1.0", "TLSv1.1": "TLS1.1", "TLSv1.2": "TLS1.2", "TLSv1.3": "TLS1.3"}
# The registry's names (RFC 8447) by OpenSSL's, where they differ. For TLS 1.3 they agree.
CIPHER_NAMES: Final = {
    "RC4-SHA": "TLS_RSA_WITH_RC4_128_SHA",
    "DES-CBC3-SHA": "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "AES128-SHA": "TLS_RSA_WITH_AES_128_CBC_SHA",
    "AES256-SHA": "TLS_RSA_WITH_AES_256_CBC_SHA",
    "AES128-GCM-SHA256": "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "AES256-GCM-SHA384": "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "ECDHE-ECDSA-AES128-SHA": "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "ECDHE-ECDSA-AES256-SHA": "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-AES128-SHA": "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "ECDHE-RSA-AES256-SHA": "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "ECDHE-RSA-AES128-GCM-SHA256": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305": "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
}


class Tls(Filter, Protocol):
    """A filter that begins with a handshake.

    decode() and encode() may be called once handshake() has returned True. After each handshake() and decode(), even if
    it raised, the caller must send what outgoing() returns.
    """

    def handshake(self, data: bytes) -> bool:
        """Takes received bytes; True when the handshake is complete. Raises FilterError."""
        ...

    def outgoing(self) -> bytes: ...

    @property
    def version(self) -> str: ...

    @property
    def cipher(self) -> str: ...

    @property
    def common_name(self) -> str:
        """The common name in the client's certificate; "" without a certificate."""
        ...


class TlsFactory(Protocol):
    """Makes the TLS filter of a new connection."""

    def __call__(self) -> Tls: ...


class VerifyingTls:
    """TLS by the standard library, which verifies the certificates that it asks for."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        """`server_hostname`: this is the client side of a connection to that server; None: this is the server side."""
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._in, self._out, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self._checks_time = server_hostname is None and context.verify_mode != ssl.CERT_NONE
        self.ended = False
        self.pending = False

    def handshake(self, data: bytes) -> bool:
        self._in.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise FilterError(f"tls: {why(error)}") from None
        # OpenSSL does not look at the certificate of a session that is resumed.
        if self._checks_time and self._object.session_reused and self._is_over():
            raise FilterError("tls: the certificate of the resumed session has expired")
        return True

    def _is_over(self) -> bool:
        until = self.certificate_fields.get("notAfter")
        return until is not None and ssl.cert_time_to_seconds(until) < time.time()

    def decode(self, data: bytes) -> bytes:
        self._in.write(data)
        parts: list[bytes] = []
        made = 0
        self.pending = False
        try:
            # Avoids reads that would raise SSLWantReadError: raising it costs as much as reading a small record.
            while not self.ended and not self.pending and (self._in.pending or not parts):
                piece = self._object.read(READ_BYTES)
                self.ended = not piece
                parts.append(piece)
                made += len(piece)
                self.pending = is_piece(len(parts), made)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            raise FilterError(f"tls: {error.reason or error}") from None
        return b"".join(parts)

    def encode(self, data: bytes) -> bytes:
        # A record at a time; most output is one.
        written = self._object.write(data) if data else 0
        while written < len(data):
            written += self._object.write(memoryview(data)[written:])
        return self._out.read()

    def outgoing(self) -> bytes:
        return self._out.read()

    @property
    def version(self) -> str:
        return version_name(self._object.version() or "")

    @property
    def cipher(self) -> str:
        cipher = self._object.cipher()
        return cipher_name(cipher[0] if cipher else "")

    @property
    def common_name(self) -> str:
        certificate = self._object.getpeercert() or {}
        subject: Any = certificate.get("subject", ())
        return next((value for names in subject for key, value in names if key == "commonName"), "")

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate in DER."""
        return self._object.getpeercert(binary_form=True)

    @property
    def certificates(self) -> list[bytes]:
        """All certificates that the client has sent, in DER, its own first."""
        # `ssl` gives them from Python 3.13 on; before, only what it is made of does.
        chain = self._object._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
        return [one.public_bytes(DER) for one in chain or ()]

    @property
    def certificate_fields(self) -> dict[str, Any]:
        """The fields of the client's verified certificate, in the form of ssl.SSLSocket.getpeercert()."""
        return self._object.getpeercert() or {}

    @property
    def certificate_names(self) -> tuple[str, ...]:
        return names_of(self.certificate_fields)


class UnverifyingTls:
    """TLS by pyOpenSSL, whose contexts can ask for a certificate and accept any."""

    def __init__(self, context: object) -> None:
        """`context`: an OpenSSL.SSL.Context."""
        self._ssl: Any = importlib.import_module("OpenSSL.SSL")
        self._connection: Any = self._ssl.Connection(context, None)
        self._connection.set_accept_state()
        self.ended = False
        self.pending = False

    def handshake(self, data: bytes) -> bool:
        self._put(data)
        try:
            self._connection.do_handshake()
        except self._ssl.WantReadError:
            return False
        except self._ssl.Error as error:
            raise FilterError(f"tls: {reason(error)}") from None
        return True

    def decode(self, data: bytes) -> bytes:
        self._put(data)
        parts: list[bytes] = []
        made = 0
        self.pending = False
        try:
            while not self.ended and not self.pending:
                parts.append(self._connection.recv(READ_BYTES))
                made += len(parts[-1])
                self.pending = is_piece(len(parts), made)
        except self._ssl.WantReadError:
            pass
        except self._ssl.ZeroReturnError:
            self.ended = True
        except self._ssl.Error as error:
            raise FilterError(f"tls: {reason(error)}") from None
        return b"".join(parts)

    def encode(self, data: bytes) -> bytes:
        if data:
            self._connection.sendall(data)
        return self.outgoing()

    def outgoing(self) -> bytes:
        parts = []
        try:
            while True:
                parts.append(self._connection.bio_read(READ_BYTES))
        except self._ssl.WantReadError:
            return b"".join(parts)

    def _put(self, data: bytes) -> None:
        while data:
            data = data[self._connection.bio_write(data) :]

    @property
    def version(self) -> str:
        return version_name(self._connection.get_protocol_version_name())

    @property
    def cipher(self) -> str:
        return cipher_name(self._connection.get_cipher_name() or "")

    @property
    def common_name(self) -> str:
        certificate = self._connection.get_peer_certificate(as_cryptography=True)
        names = certificate.subject if certificate is not None else ()
        return next((str(name.value) for name in names if name.oid.dotted_string == COMMON_NAME), "")


def is_piece(records: int, record_bytes: int) -> bool:
    """Whether that is enough for one call of decode()."""
    return records >= PIECE_PARTS or record_bytes >= PIECE_BYTES


def why(error: ssl.SSLError) -> str:
    """Of a certificate that is refused, also what is wrong with it."""
    about = f": {error.verify_message}" if isinstance(error, ssl.SSLCertVerificationError) else ""
    return f"{error.reason or error}{about}"


def reason(error: Exception) -> str:
    """pyOpenSSL's errors hold a list of (library, function, reason)."""
    queue = error.args[0] if error.args else ()
    return str(queue[-1][-1]) if isinstance(queue, list) and queue else str(error) or type(error).__name__


def version_name(name: str) -> str:
    return VERSION_NAMES.get(name, name)


def cipher_name(name: str) -> str:
    return CIPHER_NAMES.get(name, name)
