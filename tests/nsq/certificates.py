"""Certificates made for one test run: an authority, a server's, and clients' that it signed or that nobody did."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLIENT_NAME = "client of the tests"
# Python's own clients want an authority to say it, from 3.13 on.
SIGNS_OTHERS = x509.KeyUsage(
    digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


@dataclass(frozen=True)
class Certificates:
    authority: Path
    server: Pair
    client: Pair  # signed by the authority, CLIENT_NAME
    stranger: Pair  # signed by itself

    def context(
        self, client: Pair | None = None, *, most: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
    ) -> ssl.SSLContext:
        """Of a client that knows the authority and shows `client`."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.maximum_version = most
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context


def make(directory: Path) -> Certificates:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = sign("authority of the tests", authority_key, None, authority_key)

    def signed(file: str, name: str) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        return write(directory, file, sign(name, key, authority, authority_key), key)

    stranger_key = ec.generate_private_key(ec.SECP256R1())
    return Certificates(
        write(directory, "authority", authority, authority_key).cert,
        signed("server", "localhost"),
        signed("client", CLIENT_NAME),
        write(directory, "stranger", sign("stranger", stranger_key, None, stranger_key), stranger_key),
    )


def sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    ends: datetime.datetime | None = None,
) -> x509.Certificate:
    """Without an issuer it is its own and may sign others. `ends`: in two days, if it is not said."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    ends = now + datetime.timedelta(days=2) if ends is None else ends
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - datetime.timedelta(hours=1))
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if issuer is not None:
        names: list[x509.GeneralName] = [
            x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1")),
        ]  # fmt: skip
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    else:
        builder = builder.add_extension(SIGNS_OTHERS, critical=True)
    return builder.sign(issuer_key, hashes.SHA256())


def write(directory: Path, file: str, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pair = Pair(directory / f"{file}.pem", directory / f"{file}.key")
    pair.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    pair.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pair
