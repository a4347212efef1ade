"""Which client speaks with an address."""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import Final
from urllib.parse import urlsplit

from mq_shards.terminal.client import At, CannotError, Client, ClientError

USUAL: Final = "http://127.0.0.1:4180"
ENVIRONMENT: Final = "MQ_SHARDS_AT"
HTTP_PORT: Final = 4180
# By scheme: the usual port, and the client, whose module is loaded when it is wanted.
CLIENTS: Final = {
    "http": (HTTP_PORT, "http", "Http"),
    "nsq-http": (4151, "http", "NsqHttp"),
    "beanstalk": (11300, "beanstalk", "Beanstalk"),
    "nsq": (4150, "nsq", "Nsq"),
    "nats": (4222, "nats", "Nats"),
    "pulsar": (6650, "pulsar", "Pulsar"),
}


def usual() -> str:
    return os.environ.get(ENVIRONMENT, USUAL)


def parse(text: str) -> At:
    """Raises ClientError. Of what is not known here the scheme is all that counts."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme, rest = "http", text
    if rest.startswith("unix:"):
        return At(scheme, "", 0, rest.removeprefix("unix:"))
    try:
        parts = urlsplit(f"//{rest}")
        port = parts.port
    except ValueError:
        raise ClientError(f"{text!r} is not SCHEME://HOST:PORT") from None
    host = parts.hostname or ""
    if not re.fullmatch(r"[\w.:%-]+", host) or parts.path.strip("/") or parts.query or parts.username:
        raise ClientError(f"{text!r} is not SCHEME://HOST:PORT")
    return At(scheme, host, port if port is not None else CLIENTS.get(scheme, (0,))[0])


def connect(at: At) -> Client:
    """Raises ClientError."""
    if at.scheme not in CLIENTS:
        raise ClientError(f"{at.scheme}:// is not spoken here: it is one of {', '.join(CLIENTS)}")
    _, module, name = CLIENTS[at.scheme]
    client: Client = getattr(import_module(f"mq_shards.terminal.{module}"), name)(at)
    return client


def elsewhere(at: At, error: CannotError) -> Client:
    """Of what a protocol cannot say: the http:// address that is usual on the same host. Raises ClientError."""
    if at.scheme == "http" or not at.host:
        raise error
    other = At("http", at.host, HTTP_PORT)
    client = connect(other)
    try:
        client.overview()
    except ClientError:
        raise ClientError(f"{error}, and nothing answers at {other}: name the broker's http:// address") from None
    return client
