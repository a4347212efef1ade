"""Pulsar as the supervisor knows it: its options, and what follows from them. serving.py serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from mq_shards.acceptor.option_kinds import (
    MAX_BODY,
    MS,
    SECOND,
    YEAR,
    Duration,
    File,
    Flag,
    Kind,
    Number,
    Setting,
    Text,
)
from mq_shards.acceptor.protocol import OwnTls, Protocol, Settings
from mq_shards.acceptor.protocols.pulsar import credentials as pulsar_credentials
from mq_shards.acceptor.protocols.pulsar.tls import context_of


class Pulsar(Protocol):
    name = "pulsar"
    served_by = "serving"
    port = 6650
    example = "python3 -c \"import pulsar; pulsar.Client('pulsar://{address}').create_producer('t').send(b'hello')\""
    system = "Pulsar"
    options: ClassVar[Mapping[str, Kind]] = {
        "max-message-size": Number(5 << 20, 1, MAX_BODY // 2, "bytes of the largest message, as clients are told"),
        "keep-alive": Duration(30 * SECOND, MS, YEAR, "between two PINGs; who is silent for two of these is cut off"),
        "policies-interval": Duration(60 * SECOND, MS, YEAR, "between two looks at what expires by a policy"),
        "deduplication": Flag(False, "whether topics deduplicate whose namespace says neither"),
        "advertised-url": Text("", "where clients are told that a topic is; empty: the address that is listened on"),
        "tls-cert-file": File("the certificate (PEM) for pulsar+ssl://, which is spoken on the same ports"),
        "tls-key-file": File("the key of that certificate"),
        "tls-trust-certs-file": File("who signs clients' certificates; they must then have one"),
        "tls-client-cert-optional": Flag(False, "they may come without one, and say in another way who they are"),
        **pulsar_credentials.OPTIONS,
    }

    largest = "max-message-size"
    own_tls = (OwnTls(),)
    reloadable = frozenset({"tls-cert-file", "tls-key-file"})
    has_logins = True

    @classmethod
    def is_guarded(cls, settings: Settings, content: bytes) -> bool:
        return pulsar_credentials.are_wanted(settings)

    @classmethod
    def check(cls, settings: dict[str, Setting]) -> None:
        pulsar_credentials.check(settings)
        context_of(settings)


PROTOCOL: Final = Pulsar
