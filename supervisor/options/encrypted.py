"""The schemes of --listen that are others, encrypted from the first byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Encrypted(NamedTuple):
    of: str  # the protocol that is spoken there
    port: int
    example: str


# Not unless asked for, since a certificate is needed.
ENCRYPTED: Final[Mapping[str, Encrypted]] = {
    "beanstalks": Encrypted("beanstalk", 11301, "openssl s_client -quiet -connect {address}"),
    "https": Encrypted("http", 4181, "curl --cacert CA 'https://{address}/v1/topics'"),
    "nsq-https": Encrypted("nsq-http", 4152, "curl --cacert CA -d hello 'https://{address}/pub?topic=greetings'"),
}
SECURE: Final[Mapping[str, str]] = {scheme: one.of for scheme, one in ENCRYPTED.items()}
