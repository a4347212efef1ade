"""The section tls: the certificate of listeners whose connections are encrypted from their first byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.option_kinds import Choice, File, Flag, Kind

OPTIONS: Final[Mapping[str, Kind]] = {
    "cert": File("the certificate shown by all that has none of its own (PEM)"),
    "key": File("its key (PEM)"),
    "client-ca": File("clients there must show a certificate that this has signed (PEM)"),
    "client-cert-optional": Flag(False, "they may come without, and say in another way who they are"),
    "min-version": Choice("1.2", ("1.2", "1.3"), "the oldest TLS accepted there"),
}
